package document

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"attune/internal/catalog"
	"attune/internal/finding"
	"attune/internal/ledger"
	"attune/internal/profile"
	"attune/internal/ptx"
	"attune/internal/run"
	"attune/internal/spec"
)

// Reader gathers the records of a study from a ledger.
type Reader struct {
	Ledger   *ledger.Ledger
	Commands Commands
}

// RunStudy is a run with the records that say more about it.
type RunStudy struct {
	Run       *run.Run           // with its samples, if they can be read
	Profiles  []*profile.Profile // of the run, or of another run of the same code
	Profiled  string             // id of the run with the profiles
	Ancestors []*run.Run         // newest runs of the parent, of its parent and so on, the oldest first
	Siblings  []*run.Run         // other runs of the stage, the newest first
	Tunings   []*run.Tuning      // of the stage, the newest first
	Bench     *run.Bench         // newest one that has the variant beside peers
	Sweep     *run.Bench         // newest one that has the variant on shapes of growing length
	LeftOut   []string           // what could not be read, and why

	Approximate Approximate // of the run and its ancestors, on the run's headline shape
	Commands    Commands
	SourceLink  func(at ptx.Frame) string // the address of a source line in a page; may be nil
	Sources     finding.Sources           // for findings without their source lines, on a terminal; may be nil
}

// Approximate has the ids of runs whose kernel on a shape computes exponentials so that the error is
// larger than what E4M3 rounds away. Their figures are marked.
type Approximate map[string]bool

// LadderStudy is the newest run of each stage and selection of a kernel.
type LadderStudy struct {
	Kernel  string
	Runs    []*run.Run
	Bench   *run.Bench // newest one that has the last of them beside peers
	Sweep   *run.Bench // newest one that has it on shapes of growing length
	LeftOut []string   // what could not be read, and why

	Approximate Approximate // of the runs, on the shape of the ladder
	Commands    Commands
}

// TuningStudy is a search with its evaluations.
type TuningStudy struct {
	Tuning      *run.Tuning
	Evaluations []run.TuneEvaluation
	LeftOut     []string
	Commands    Commands

	Kernel   *spec.Kernel             // says how the best becomes the default; nil for a record that is printed later
	Complete func(text string) string // completes a command for the kernel of the search; may be nil
}

// maxAncestors bounds the chain of parents, which a damaged record may close to a circle.
const maxAncestors = 50

// Run gathers the study of a run. Records beside the run that cannot be read are left out.
func (r Reader) Run(ctx context.Context, id string) (*RunStudy, error) {
	own, err := catalog.Run(ctx, r.Ledger, id)
	if err != nil {
		return nil, err
	}
	s := &RunStudy{Run: own, Commands: r.Commands}
	s.leftOut("the samples", catalog.ReadSamples(ctx, r.Ledger, own))
	s.leftOut("the ancestors", r.ancestors(ctx, s))
	s.leftOut("other runs of the stage", r.siblings(ctx, s))
	s.leftOut("the profile", r.profiles(ctx, s))
	s.leftOut("tunings", r.tunings(ctx, s))
	s.leftOut("benches", r.bench(ctx, s))
	if own.Headline != nil {
		s.Approximate, err = r.approximate(ctx, append([]*run.Run{own}, s.Ancestors...), own.Headline.Shape)
		s.leftOut("parts of selections", err)
	}
	return s, ctx.Err()
}

// approximate finds the runs with approximate exponentials on a shape. Of a selection that is the part
// which takes the shape.
func (r Reader) approximate(ctx context.Context, runs []*run.Run, shape string) (Approximate, error) {
	found := Approximate{}
	var unreadable []error
	for _, own := range runs {
		kernel := own
		for _, part := range own.Parts {
			if !slices.Contains(part.Shapes, shape) {
				continue
			}
			if of, err := catalog.Run(ctx, r.Ledger, part.Run); err != nil {
				unreadable = append(unreadable, err)
			} else {
				kernel = of
			}
		}
		if kernel.Build != nil && kernel.Problem == nil && ApproximateKnobs(kernel.Build.Knobs) {
			found[own.ID] = true
		}
	}
	return found, errors.Join(unreadable...)
}

func (s *RunStudy) leftOut(what string, err error) {
	s.LeftOut = append(s.LeftOut, reasons(what, err)...)
}

// reasons has a line for each record of a kind that could not be read.
func reasons(what string, err error) []string {
	var all []string
	for _, reason := range catalog.Reasons(err) {
		all = append(all, fmt.Sprintf("%s: %v", what, reason))
	}
	return all
}

// ancestors follows the parents, each by its newest run on the same kind of device.
func (r Reader) ancestors(ctx context.Context, s *RunStudy) error {
	known := map[string]bool{s.Run.Variant: true}
	var unreadable []error
	for parent := s.Run.Parent; parent != "" && !known[parent] && len(known) < maxAncestors; {
		known[parent] = true
		newest, err := r.newest(ctx, ledger.Filter{Kernel: s.Run.Kernel, Variant: parent, Device: s.Run.Device})
		unreadable = append(unreadable, catalog.Reasons(err)...)
		if newest == nil {
			break
		}
		s.Ancestors = slices.Insert(s.Ancestors, 0, newest)
		parent = newest.Parent
	}
	return errors.Join(unreadable...)
}

// newest is the newest readable run that matches; nil without any.
func (r Reader) newest(ctx context.Context, f ledger.Filter) (*run.Run, error) {
	entries, err := r.Ledger.List(ctx, f)
	if err != nil {
		return nil, err
	}
	return catalog.Newest(entries, func(id string) (*run.Run, error) { return catalog.Run(ctx, r.Ledger, id) })
}

// mostSiblings is how many other runs of a stage a report lists, and how many runs of the same code it
// looks for a profile in.
const mostSiblings = 20

func (r Reader) siblings(ctx context.Context, s *RunStudy) error {
	entries, err := r.Ledger.List(ctx, ledger.Filter{Kernel: s.Run.Kernel, Stage: s.Run.Stage, Device: s.Run.Device})
	if err != nil {
		return err
	}
	var unreadable []error
	for _, e := range entries {
		if e.ID == s.Run.ID || len(s.Siblings) == mostSiblings {
			continue
		}
		found, err := catalog.Run(ctx, r.Ledger, e.ID)
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		s.Siblings = append(s.Siblings, found)
	}
	return errors.Join(unreadable...)
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
		for _, e := range entries[:min(len(entries), mostSiblings)] {
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
	var unreadable []error
	for _, id := range ids {
		text, err := r.Ledger.ReadTuning(ctx, id, run.TuningFile)
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		if selection, err := run.DecodeSelectionTuning(text); err != nil || selection != nil {
			continue
		}
		t, err := run.DecodeTuning(text)
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		if t.Kernel == s.Run.Kernel && t.Stage == s.Run.Stage {
			s.Tunings = append(s.Tunings, t)
		}
	}
	return errors.Join(unreadable...)
}

// bench finds the newest benches that have the variant: beside peers, and as a sweep.
func (r Reader) bench(ctx context.Context, s *RunStudy) error {
	ids, err := r.Ledger.Benches()
	if err != nil {
		return err
	}
	var unreadable []error
	for _, id := range ids {
		b, err := catalog.Bench(ctx, r.Ledger, id)
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		has := slices.ContainsFunc(b.Rows, func(row run.BenchRow) bool { return !row.Peer && row.Name == s.Run.Variant && row.P50US != nil })
		if b.Kernel != s.Run.Kernel || !has {
			continue
		}
		if s.Bench == nil && len(b.Best) > 0 {
			s.Bench = b
		}
		if s.Sweep == nil && len(throughputPlots(b)) > 0 {
			s.Sweep = b
		}
	}
	return errors.Join(unreadable...)
}

// BenchStudy is a bench with its samples.
type BenchStudy struct {
	Bench    *run.Bench
	LeftOut  []string
	Commands Commands
}

// Bench gathers a bench with its samples.
func (r Reader) Bench(ctx context.Context, id string) (*BenchStudy, error) {
	b, err := catalog.Bench(ctx, r.Ledger, id)
	if err != nil {
		return nil, err
	}
	s := &BenchStudy{Bench: b, Commands: r.Commands}
	text, err := r.Ledger.ReadBench(ctx, id, "samples.json")
	var file struct {
		Samples []run.BenchSamples `json:"samples"`
	}
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		s.LeftOut = append(s.LeftOut, fmt.Sprintf("the samples: %v", err))
	}
	for i, row := range b.Rows {
		for _, samples := range file.Samples {
			if samples.Shape == row.Shape && samples.Name == row.Name {
				b.Rows[i].Seconds = samples.Seconds
			}
		}
	}
	return s, nil
}

// TuningDocument is the document on a search, of a variant or of a selection.
func (r Reader) TuningDocument(ctx context.Context, id string) (*Document, error) {
	text, err := r.Ledger.ReadTuning(ctx, id, run.TuningFile)
	if err != nil {
		return nil, err
	}
	selection, err := run.DecodeSelectionTuning(text)
	if err != nil {
		return nil, err
	}
	if selection != nil {
		return SelectionTuning(selection), nil
	}
	study, err := r.Tuning(ctx, id)
	if err != nil {
		return nil, err
	}
	return study.Document(), nil
}

// Tuning gathers a search of a variant with its evaluations.
func (r Reader) Tuning(ctx context.Context, id string) (*TuningStudy, error) {
	text, err := r.Ledger.ReadTuning(ctx, id, run.TuningFile)
	if err != nil {
		return nil, err
	}
	if selection, err := run.DecodeSelectionTuning(text); err != nil || selection != nil {
		return nil, errors.Join(err, fmt.Errorf("tuning %s is that of a selection, not of a variant", id))
	}
	t, err := run.DecodeTuning(text)
	if err != nil {
		return nil, err
	}
	s := &TuningStudy{Tuning: t, Commands: r.Commands}
	journal, err := r.Ledger.ReadTuning(ctx, id, run.TuneJournal)
	if err == nil {
		s.Evaluations, err = evaluations(journal)
	}
	if err != nil {
		s.LeftOut = append(s.LeftOut, fmt.Sprintf("the journal: %v", err))
	}
	return s, nil
}

// evaluations are the details of the lines of a journal that have one.
func evaluations(journal []byte) ([]run.TuneEvaluation, error) {
	var all []run.TuneEvaluation
	for line := range bytes.Lines(journal) {
		var entry struct {
			Detail *run.TuneEvaluation `json:"detail"`
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			return nil, fmt.Errorf("read %s: %w", run.TuneJournal, err)
		}
		if entry.Detail != nil {
			all = append(all, *entry.Detail)
		}
	}
	return all, nil
}

// Ladder gathers the newest readable run of each stage and selection of a kernel on a kind of device.
func (r Reader) Ladder(ctx context.Context, kernel *spec.Kernel, device string) (*LadderStudy, error) {
	entries, err := r.Ledger.List(ctx, ledger.Filter{Kernel: kernel.Name, Device: device})
	if err != nil {
		return nil, err
	}
	changes := map[string]string{}
	runs, err := catalog.Ladder(kernel, device, entries, func(id string) (*run.Run, error) {
		found, err := catalog.Run(ctx, r.Ledger, id)
		if err == nil {
			changes[id] = found.Change
		}
		return found, err
	})
	for _, found := range runs { // as recorded, not as the present spec has it
		found.Change = changes[found.ID]
	}
	s := &LadderStudy{Kernel: kernel.Name, Runs: runs, Commands: r.Commands, LeftOut: reasons("runs", err)}
	if len(runs) > 0 {
		last := &RunStudy{Run: runs[len(runs)-1]}
		s.LeftOut = append(s.LeftOut, reasons("benches", r.bench(ctx, last))...)
		s.Bench, s.Sweep = last.Bench, last.Sweep
	}
	s.Approximate, err = r.approximate(ctx, runs, headlineShape(runs))
	s.LeftOut = append(s.LeftOut, reasons("parts of selections", err)...)
	return s, ctx.Err()
}
