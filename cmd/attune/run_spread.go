package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"attune/internal/lab"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/trial"
)

// spreadRun is a run whose variants, or the problems of few variants, are divided among workers.
type spreadRun struct {
	*spread
	groups [][]string // variants and selections that one worker runs, which share references
	parts  int        // of the problems of each group
}

// divide has as many jobs as can make the run faster. Variants are divided first: the parts of a
// variant's problems build it each.
func (s *spread) divide(request lab.Request) (*spreadRun, error) {
	var names []string
	for _, v := range request.Variants {
		names = append(names, v.String())
	}
	for _, selection := range request.Selections {
		names = append(names, selection.Name)
	}
	r := &spreadRun{spread: s, parts: 1}
	groups := max(1, min(len(names), s.slots))
	for i := range groups {
		r.groups = append(r.groups, names[i*len(names)/groups:(i+1)*len(names)/groups])
	}
	if s.facts.Kind != simDevice || groups >= s.slots {
		return r, nil
	}
	problems, err := request.MostProblems()
	r.parts = max(1, min(problems, (s.slots+groups-1)/groups))
	return r, err
}

// runSpread has workers run the variants and selections. Their records are written as they come.
func (a *app) runSpread(ctx context.Context, s *spread, w *workplace, o runOptions, request lab.Request, args []string, out *runPrinter) error {
	r, err := s.divide(request)
	if err != nil {
		return err
	}
	flags := o.spread.passed()
	if o.isQuick(args) {
		flags = append(flags, "--quick")
	}
	var all []trial.Command
	for _, group := range r.groups {
		for part := range r.parts {
			own := slices.Concat([]string{"run"}, group, flags)
			if r.parts > 1 {
				own = append(own, fmt.Sprintf("--part=%d/%d", part, r.parts))
			}
			all = append(all, trial.Command{Args: own})
		}
	}
	kept := w.Ledger
	if r.parts > 1 {
		kept = nil // the parts are joined before they are recorded
	}
	done, pieces := 0, make([][]*run.Run, len(all))
	w.status.Set("%d jobs on %d workers", len(all), s.workers)
	return s.commands(ctx, a, kept, all, func(i int, found *trial.Outcome) error {
		group := i / r.parts
		runs, err := r.runs(ctx, found)
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(r.groups[group], " "), err)
		}
		done++
		w.status.Set("%d of %d jobs on %d workers", done, len(all), s.workers)
		if r.parts == 1 {
			for _, one := range runs {
				out.finished(one)
			}
			return nil
		}
		pieces[i] = runs
		own := pieces[group*r.parts : (group+1)*r.parts]
		if slices.ContainsFunc(own, func(piece []*run.Run) bool { return piece == nil }) {
			return nil
		}
		return w.Join(ctx, only(request, r.groups[group]), own, out.finished)
	})
}

// only is the request for some of its variants and selections.
func only(r lab.Request, names []string) lab.Request {
	r.Variants = slices.DeleteFunc(slices.Clone(r.Variants), func(v spec.Variant) bool { return !slices.Contains(names, v.String()) })
	r.Selections = slices.DeleteFunc(slices.Clone(r.Selections), func(s *spec.Selection) bool { return !slices.Contains(names, s.Name) })
	return r
}

// runs are those of a job, with the compiler's output, which is no part of their document.
func (r *spreadRun) runs(ctx context.Context, found *trial.Outcome) ([]*run.Run, error) {
	var document struct{ Runs []*run.Run }
	if err := json.Unmarshal(found.Output, &document); err != nil || len(document.Runs) == 0 {
		return nil, fmt.Errorf("nothing was run: %s", found.Errors)
	}
	if r.parts == 1 {
		return document.Runs, nil
	}
	for _, one := range document.Runs {
		hash, ok := found.Record["runs/"+one.ID+"/"+run.LogFile]
		if !ok {
			continue
		}
		text, err := r.fleet.Objects().Get(ctx, hash)
		if err != nil {
			return nil, err
		}
		one.Log = string(text)
	}
	return document.Runs, nil
}
