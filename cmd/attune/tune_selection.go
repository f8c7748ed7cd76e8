package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"attune/internal/document"
	"attune/internal/form"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
	"attune/internal/tuner"
)

// selectionOptions are those of a selection's tuning.
type selectionOptions struct {
	selection string
	holdout   int
	install   bool
	output    string // file of the libraries' selection
}

// defaultHoldout holds out every fourth shape.
const defaultHoldout = 4

// selectionToTune is the selection of the flag.
func selectionToTune(kernel *spec.Kernel, name string) (*spec.Selection, error) {
	var names []string
	for _, s := range kernel.Selections {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	switch near := spec.Nearest(name, names); {
	case len(names) == 0:
		return nil, fmt.Errorf("%s has no selection; a [[selection]] in %s is a table of forms", kernel.Name, spec.File)
	case near != "":
		return nil, fmt.Errorf("unknown selection %q; did you mean %q?", name, near)
	}
	return nil, fmt.Errorf("unknown selection %q; there are %s", name, strings.Join(names, ", "))
}

// selectionRequest makes a request of the options.
func (o tuneOptions) selectionRequest(kernel *spec.Kernel, simulated bool, args []string) (tuner.SelectionRequest, error) {
	var r tuner.SelectionRequest
	var err error
	if r.Selection, err = selectionToTune(kernel, o.selection); err != nil {
		return r, err
	}
	if len(args) > 0 {
		return r, fmt.Errorf("--selection starts from the forms of %s and takes no variant; got %q", o.selection, args[0])
	}
	if slices.Contains(o.given, "proposer") {
		return r, errors.New("--proposer takes part in the search of one VARIANT, not of a --selection")
	}
	if o.install && kernel.Name != string(form.Warp) {
		return r, fmt.Errorf("--install is for the kernel %s, whose form the libraries choose by the GPU; this is %s", form.Warp, kernel.Name)
	}
	if o.install && simulated {
		return r, errors.New("--install needs times of a GPU; the simulator has a cost")
	}
	if o.holdout < 0 || o.holdout == 1 {
		return r, fmt.Errorf("--holdout %d: want 0 for none, or 2 and more for every such shape", o.holdout)
	}
	r.Search, err = o.tuneRequest(kernel, r.Selection.Variants()[0].String(), simulated)
	r.Holdout = tune.Holdout(len(r.Search.Shapes), o.holdout)
	return r, err
}

// tuneSelection tunes a selection and prints the table.
func (a *app) tuneSelection(ctx context.Context, w *workplace, r tuner.SelectionRequest, install bool) error {
	p := &selectionPrinter{tunePrinter: tunePrinter{app: a, work: w, request: r.Search, started: time.Now()}}
	w.Progress = p.progress
	defer ignoreClosedPipe()()
	result, err := tuner.SearchSelection(ctx, w.Lab, r, p.finished)
	w.status.Clear()
	if ctx.Err() != nil {
		return p.interrupted()
	}
	if err != nil {
		return err
	}
	tuned := document.SelectionTuning(result)
	a.step.Summarize(tuned.Step("tune"))
	if install {
		if err := a.installSelection(result, w.Kernel); err != nil {
			return err
		}
	}
	if a.json {
		return a.printLine(result)
	}
	if err := tuned.Terminal(a.stdout, a.screen()); err != nil {
		return err
	}
	a.printLeftOut(w, r.Search.Shapes)
	return nil
}

// installSelection gives the proposed table to the libraries, which have the stages of the kernel. Other
// variants are left out.
func (a *app) installSelection(t *run.SelectionTuning, kernel *spec.Kernel) error {
	var choices []form.MeasuredChoice
	for _, c := range t.Proposal.Choices {
		if !slices.ContainsFunc(kernel.Stages, func(s *spec.Stage) bool { return s.Name == c.Variant }) {
			fmt.Fprintf(a.stderr, "attune: the libraries do not have %s; its line of the table is left out\n", c.Variant)
			continue
		}
		choices = append(choices, form.MeasuredChoice{When: c.When, Variant: c.Variant})
	}
	if len(choices) == 0 {
		fmt.Fprintln(a.stderr, "attune: the libraries have no form of the table; nothing is installed, and they keep the one that they had")
		return nil
	}
	path, err := form.Install(t.Facts, t.Selection, choices)
	if err != nil {
		return fmt.Errorf("the table is recorded, and not installed: %w", err)
	}
	fmt.Fprintf(a.stderr, "attune: installed in %s; new processes use it\n", path)
	return nil
}

// selectionPrinter prints the evaluations of one shape after the other.
type selectionPrinter struct {
	tunePrinter
	shape spec.Shape
}

// selectionLine is an evaluation in the search of one shape.
type selectionLine struct {
	run.TuneEvaluation
	Search string `json:"search_shape"`
}

func (p *selectionPrinter) finished(shape spec.Shape, e run.TuneEvaluation) {
	if shape != p.shape {
		p.shape, p.standard, p.best = shape, nil, nil
		if !p.json {
			fmt.Fprintf(p.stderr, "attune: %s\n", shape)
		}
	}
	p.take(e)
	if p.json {
		_ = p.printLine(selectionLine{e, shape.String()}) // the writer keeps the error, and the search goes on
	}
}

func (a *app) showSelectionTuning(t *run.SelectionTuning, o showOptions) error {
	return a.printDocument(document.SelectionTuning(t), o.markdown)
}
