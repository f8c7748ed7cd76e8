package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"attune/internal/document"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
)

// knobPage explores the knobs of a stage.
type knobPage struct {
	Kernel      string
	Stages      []string
	Stage       string
	Knobs       []knobChoice
	Variant     string // as it was chosen
	Valid       bool
	Reasons     []string
	Change      string // from the stage
	Constraints []*spec.Constraint
	Runs        runTable
	Tuned       []tunedVariant
}

// knobChoice is a knob with its chosen value.
type knobChoice struct {
	spec.Knob
	Value  int
	Own    int // the stage's value
	Values []valueChoice
}

// valueChoice is a value, and whether it could be chosen with the others as they are.
type valueChoice struct {
	Value  int
	Chosen bool
	Reason string // why not; empty if it could
}

// tunedVariant is the result of the chosen variant in the finals of a search.
type tunedVariant struct {
	ID       string
	CostText string // with its unit
	run.TunedVariant
}

func (s *Server) knobPage(w http.ResponseWriter, r *http.Request) error {
	kernel, _, err := s.config.Kernel()
	if err != nil {
		return err
	}
	page, stage, err := newKnobPage(kernel, r.URL.Query())
	if err != nil {
		return err
	}
	for _, c := range kernel.Constraints {
		if len(c.Sources) == 0 || slices.Contains(c.Sources, stage.Source) {
			page.Constraints = append(page.Constraints, c)
		}
	}
	if err := s.readRecorded(r.Context(), &page); err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, "knobs", "Knobs of "+page.Stage, page)
}

// newKnobPage reads the choice from the address: stage, and KNOB=VALUE for each knob, or a variant.
func newKnobPage(kernel *spec.Kernel, q url.Values) (knobPage, *spec.Stage, error) {
	page := knobPage{Kernel: kernel.Name, Stage: q.Get("stage")}
	for _, stage := range kernel.Stages {
		page.Stages = append(page.Stages, stage.Name)
	}
	chosen := map[string]int{}
	if name := q.Get("variant"); name != "" {
		v, err := kernel.Variant(name)
		if err != nil {
			return page, nil, failure(http.StatusBadRequest, "%v", err)
		}
		page.Stage = v.Stage().Name
		for _, setting := range v.Values() {
			chosen[setting.Knob] = setting.Value
		}
	}
	if page.Stage == "" {
		page.Stage = page.Stages[0]
	}
	stage, err := kernel.Stage(page.Stage)
	if err != nil {
		return page, nil, failure(http.StatusNotFound, "%v", err)
	}
	for _, setting := range stage.Variant().Values() {
		i := slices.IndexFunc(kernel.Knobs, func(k spec.Knob) bool { return k.Name == setting.Knob })
		k := knobChoice{Knob: kernel.Knobs[i], Value: setting.Value, Own: setting.Value}
		if v, ok := chosen[setting.Knob]; ok {
			k.Value = v
		}
		if v, err := strconv.Atoi(q.Get(setting.Knob)); err == nil && slices.Contains(k.Knob.Values, v) {
			k.Value = v
		}
		page.Knobs = append(page.Knobs, k)
	}
	page.check(kernel)
	return page, stage, nil
}

// check says whether the choice is a variant, and which single changes would be one.
func (p *knobPage) check(kernel *spec.Kernel) {
	p.Variant = p.name("", 0)
	v, err := kernel.Variant(p.Variant)
	if p.Valid = err == nil; p.Valid {
		p.Change = v.Diff(v.Stage().Variant())
	} else {
		p.Reasons = strings.Split(err.Error(), "\n")
	}
	for i := range p.Knobs {
		k := &p.Knobs[i]
		for _, value := range k.Knob.Values {
			choice := valueChoice{Value: value, Chosen: value == k.Value}
			if _, err := kernel.Variant(p.name(k.Name, value)); err != nil && !choice.Chosen {
				choice.Reason, _, _ = strings.Cut(err.Error(), "\n")
			}
			k.Values = append(k.Values, choice)
		}
	}
}

// name is the variant of the choice, with one knob changed if it is named.
func (p *knobPage) name(knob string, value int) string {
	name := p.Stage
	for _, k := range p.Knobs {
		v := k.Value
		if k.Name == knob {
			v = value
		}
		if v != k.Own {
			name += "+" + spec.Setting{Knob: k.Name, Value: v}.String()
		}
	}
	return name
}

// readRecorded finds the runs and finals of the chosen variant.
func (s *Server) readRecorded(ctx context.Context, p *knobPage) error {
	const most = 20
	l, err := s.records.now(ctx)
	if err != nil || !p.Valid {
		return err
	}
	var own []ledger.Entry
	for _, e := range l.entries {
		if e.Kernel == p.Kernel && e.Variant == p.Variant && len(own) < most {
			own = append(own, e)
		}
	}
	p.Runs = runTable{Label: "Runs of the choice", Rows: s.records.shown(ctx, own)}
	read := 0
	for _, e := range l.tunings {
		if e.Kernel != p.Kernel || e.Stage != p.Stage {
			continue
		}
		if read++; read > most {
			return nil
		}
		study, err := s.reader().Tuning(ctx, e.ID)
		if err != nil {
			continue // the page of the search says why
		}
		t := study.Tuning
		for _, v := range append([]run.TunedVariant{t.Default}, t.Elites...) {
			if v.Variant == p.Variant && v.Patch == "" {
				p.Tuned = append(p.Tuned, tunedVariant{e.ID, scaledCost(v.Cost, t.Unit) + " " + document.CostUnit(t.Unit), v})
			}
		}
	}
	return nil
}
