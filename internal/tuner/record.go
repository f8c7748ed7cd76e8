package tuner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"attune/internal/run"
	"attune/internal/tune"
)

// describe makes the record of the search. The best is the default until a candidate is better.
func (s *search) describe(standard run.TunedVariant, elites []run.TunedVariant) *run.Tuning {
	l, all := s.harness.lab, s.standings.evaluations
	r := &run.Tuning{
		SchemaVersion: run.TuningSchemaVersion, MessageType: "tuning", ID: s.document.ID, Time: s.document.Time,
		Kernel: l.Kernel.Name, Stage: s.request.Variant.Stage().Name,
		Objective: s.request.Objective, Unit: run.ObjectiveUnit(s.request.Objective), Identity: s.document.Identity,
		Best: standard, Default: standard, Elites: append([]run.TunedVariant{}, elites...),
		Evaluations: s.standings.counted, EqualCode: len(all) - s.standings.counted, Failures: map[string]int{}, Ended: s.ended,
		Effects: s.effects(), Seconds: s.spent().Seconds(), NoSim: l.Device.WithoutSim(), Facts: l.Device.Facts(), Git: l.Git, GitSHA: l.Git.SHA, Attune: l.Version,
	}
	if n, exact := s.space.Size(); exact {
		r.Variants = &n
	}
	for _, e := range all {
		if e.OK() || e.SameAs != "" {
			continue
		}
		if r.Failures[e.Failure]++; r.Failures[e.Failure] == 1 {
			r.FirstFailures = append(r.FirstFailures, run.TuneFailure{Kind: e.Failure, Variant: e.Name(), Reason: e.Reason})
		}
	}
	return r
}

// effects are those of the knobs. An evaluation whose candidate was found to be wrong later is a
// failure.
func (s *search) effects() []tune.KnobEffect {
	all := slices.Clone(s.strategy.Evaluations())
	for i := range all {
		all[i].Failure = tune.Failure(s.standings.evaluations[i].Failure)
	}
	return tune.Effects(s.space, all)
}

// finish writes the record into the ledger, or into the folder of the request.
func (s *search) finish(ctx context.Context, result *run.Tuning) error {
	if s.folder.path == "" {
		return nil
	}
	files, err := s.files(result)
	if err != nil {
		return err
	}
	kept := s.harness.lab.Ledger
	if kept == nil || s.request.Folder != "" {
		return s.folder.finish(files)
	}
	if err := kept.RecordTuning(ctx, files); err != nil {
		return fmt.Errorf("%w; --resume records it", err)
	}
	return kept.RemoveUnfinishedTuning(s.document.ID)
}

// files are those of the record.
func (s *search) files(result *run.Tuning) (map[string][]byte, error) {
	files, err := s.folderFiles()
	if err != nil {
		return nil, err
	}
	if files[run.TuningFile], err = result.Document(); err != nil {
		return nil, err
	}
	return files, s.harness.lab.AddDescription(files, run.FinishedSearch{Tuning: result, Evaluations: s.standings.evaluations})
}

// folderFiles are the journal, the elites, the patches, and what a proposer of any part of the search
// has kept.
func (s *search) folderFiles() (map[string][]byte, error) {
	names := []string{run.TuneJournal, run.TuneEliteFile}
	for _, e := range s.standings.evaluations {
		if e.Patch != "" {
			names = append(names, e.Patch)
		}
	}
	if keeper, ok := s.request.Proposer.(Keeper); ok {
		names = append(names, keeper.Files()...)
	}
	entries, err := os.ReadDir(s.folder.path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if whole := !slices.Contains([]string{".new", ".part"}, filepath.Ext(e.Name())); whole && e.Type().IsRegular() && e.Name() != run.TuneFile {
			names = append(names, e.Name())
		}
	}
	files := map[string][]byte{}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(s.folder.path, name))
		if err != nil {
			return nil, err
		}
		files[name] = text
	}
	return files, nil
}

// finish writes the documents of a finished search into its folder, beside the journal. tuning.json
// comes last and appears as a whole, so that a folder that has it is complete.
func (f folder) finish(files map[string][]byte) error {
	for name, data := range files {
		if name == run.TuneJournal || name == run.TuningFile {
			continue // the journal is there
		}
		if err := os.WriteFile(filepath.Join(f.path, name), data, 0o644); err != nil {
			return err
		}
	}
	return replace(filepath.Join(f.path, run.TuningFile), files[run.TuningFile])
}
