package document

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"attune/internal/ledger"
	"attune/internal/profile"
	"attune/internal/run"
)

// Reader gathers the records of a study from a ledger.
type Reader struct {
	Ledger *ledger.Ledger
}

// RunStudy is a run with the records that say more about it.
type RunStudy struct {
	Run       *run.Run            // with its samples, if they can be read
	Profiles  []*profile.Profile  // of the run, or of another run of the same code
	Profiled  string              // id of the run with the profiles
	Ancestors []*run.Run          // newest runs of the parent, of its parent and so on, the oldest first
	Siblings  []*run.Run          // other runs of the stage, the newest first
	Tunings   []*run.Tuning       // of the stage, the newest first
	Bench     *run.Bench          // newest one that has the variant beside peers
	LeftOut   []string            // what could not be read, and why
}

// TuningStudy is a search with its evaluations.
type TuningStudy struct {
	Tuning      *run.Tuning
	Evaluations []run.TuneEvaluation
	LeftOut     []string
}

// maxAncestors bounds the chain of parents, which a damaged record may close to a circle.
const maxAncestors = 50

// Run gathers the study of a run. Records beside the run that cannot be read are left out.
func (r Reader) Run(ctx context.Context, id string) (*RunStudy, error) {
	own, err := r.readRun(ctx, id)
	if err != nil {
		return nil, err
	}
	s := &RunStudy{Run: own}
	text, err := r.Ledger.Read(ctx, id, "samples.json")
	if err == nil {
		own.Samples, err = run.DecodeSamples(text)
	}
	s.leftOut("the samples", err)
	s.leftOut("the ancestors", r.ancestors(ctx, s))
	s.leftOut("other runs of the stage", r.siblings(ctx, s))
	s.leftOut("the profile", r.profiles(ctx, s))
	s.leftOut("tunings", r.tunings(ctx, s))
	s.leftOut("benches", r.bench(ctx, s))
	return s, ctx.Err()
}

func (s *RunStudy) leftOut(what string, err error) {
	if err != nil {
		s.LeftOut = append(s.LeftOut, fmt.Sprintf("%s: %v", what, err))
	}
}

func (r Reader) readRun(ctx context.Context, id string) (*run.Run, error) {
	text, err := r.Ledger.Read(ctx, id, "run.json")
	if err != nil {
		return nil, err
	}
	return run.Decode(text)
}

// ancestors follows the parents, each by its newest run on the same kind of device.
func (r Reader) ancestors(ctx context.Context, s *RunStudy) error {
	known := map[string]bool{s.Run.Variant: true}
	for parent := s.Run.Parent; parent != "" && !known[parent] && len(known) < maxAncestors; {
		known[parent] = true
		newest, err := r.newest(ctx, ledger.Filter{Kernel: s.Run.Kernel, Variant: parent, Device: s.Run.Device})
		if err != nil || newest == nil {
			return err
		}
		s.Ancestors = slices.Insert(s.Ancestors, 0, newest)
		parent = newest.Parent
	}
	return nil
}

// newest is the newest run with times, else the newest, that is no part of a selection; nil without
// any.
func (r Reader) newest(ctx context.Context, f ledger.Filter) (*run.Run, error) {
	entries, err := r.Ledger.List(ctx, f)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(entries, func(a, b ledger.Entry) int { return untimed(a) - untimed(b) })
	for _, e := range entries {
		found, err := r.readRun(ctx, e.ID)
		if err != nil || found.PartOf == "" {
			return found, err
		}
	}
	return nil, nil
}

func untimed(e ledger.Entry) int {
	if e.Headline.P50US == nil {
		return 1
	}
	return 0
}

// mostSiblings is how many other runs of a stage a report lists.
const mostSiblings = 20

func (r Reader) siblings(ctx context.Context, s *RunStudy) error {
	entries, err := r.Ledger.List(ctx, ledger.Filter{Kernel: s.Run.Kernel, Stage: s.Run.Stage, Device: s.Run.Device})
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.ID == s.Run.ID || len(s.Siblings) == mostSiblings {
			continue
		}
		found, err := r.readRun(ctx, e.ID)
		if err != nil {
			return err
		}
		s.Siblings = append(s.Siblings, found)
	}
	return nil
}

// profiles reads the profile of the run, or else the newest of the same code on the same kind of
// device.
func (r Reader) profiles(ctx context.Context, s *RunStudy) error {
	ids := []string{s.Run.ID}
	if s.Run.CodeHash != "" {
		entries, err := r.Ledger.List(ctx, ledger.Filter{CodeHash: s.Run.CodeHash})
		if err != nil {
			return err
		}
		for _, e := range entries {
			ids = append(ids, e.ID)
		}
	}
	for _, id := range ids {
		text, err := r.Ledger.Read(ctx, id, "profile.json")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		var file struct {
			Profiles []*profile.Profile `json:"profiles"`
		}
		if err := json.Unmarshal(text, &file); err != nil {
			return fmt.Errorf("read profile.json of %s: %w", id, err)
		}
		s.Profiles, s.Profiled = file.Profiles, id
		return nil
	}
	return nil
}

func (r Reader) tunings(ctx context.Context, s *RunStudy) error {
	ids, err := r.Ledger.Tunings()
	if err != nil {
		return err
	}
	for _, id := range ids {
		text, err := r.Ledger.ReadTuning(ctx, id, run.TuningFile)
		if err != nil {
			return err
		}
		if selection, err := run.DecodeSelectionTuning(text); err != nil || selection != nil {
			continue
		}
		t, err := run.DecodeTuning(text)
		if err != nil {
			return err
		}
		if t.Kernel == s.Run.Kernel && t.Stage == s.Run.Stage {
			s.Tunings = append(s.Tunings, t)
		}
	}
	return nil
}

// bench finds the newest bench that has the variant, one with peers first.
func (r Reader) bench(ctx context.Context, s *RunStudy) error {
	ids, err := r.Ledger.Benches()
	if err != nil {
		return err
	}
	for _, id := range ids {
		b, err := r.Bench(ctx, id)
		if err != nil {
			return err
		}
		has := slices.ContainsFunc(b.Rows, func(row run.BenchRow) bool { return !row.Peer && row.Name == s.Run.Variant && row.P50US != nil })
		if b.Kernel == s.Run.Kernel && has && len(b.Best) > 0 {
			s.Bench = b
			return nil
		}
	}
	return nil
}

// Bench reads a bench. Its samples stay in the ledger.
func (r Reader) Bench(ctx context.Context, id string) (*run.Bench, error) {
	text, err := r.Ledger.ReadBench(ctx, id, "bench.json")
	if err != nil {
		return nil, err
	}
	return run.DecodeBench(text)
}

// Tuning gathers a search with its evaluations.
func (r Reader) Tuning(ctx context.Context, id string) (*TuningStudy, error) {
	text, err := r.Ledger.ReadTuning(ctx, id, run.TuningFile)
	if err != nil {
		return nil, err
	}
	if selection, err := run.DecodeSelectionTuning(text); err != nil || selection != nil {
		return nil, errors.Join(err, fmt.Errorf("tuning %s is that of a selection, which has no report; `attune show %s` prints it", id, id))
	}
	t, err := run.DecodeTuning(text)
	if err != nil {
		return nil, err
	}
	s := &TuningStudy{Tuning: t}
	journal, err := r.Ledger.ReadTuning(ctx, id, run.TuneJournal)
	if err == nil {
		s.Evaluations, err = evaluations(journal)
	}
	if err != nil {
		s.LeftOut = append(s.LeftOut, fmt.Sprintf("the journal: %v", err))
	}
	return s, nil
}
