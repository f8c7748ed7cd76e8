package run

import (
	"fmt"
	"slices"

	"attune/internal/gate"
	"attune/internal/measure"
)

// Reproduction says whether a recorded run still holds, now that it was done again.
type Reproduction struct {
	Then  string `json:"then"`  // the recorded run
	Now   string `json:"now"`   // the run that did it again
	Holds bool   `json:"holds"` // nothing that was compared differs

	// CorrectnessOnly says that times were recorded then and the device of now takes none: code, answers and the first two gates were
	// compared, and nothing else.
	CorrectnessOnly bool `json:"correctness_only,omitempty"`

	Code    CodeCheck   `json:"code"`
	Outputs OutputCheck `json:"outputs"`
	Gates   []GateCheck `json:"gates"`
	Verdict GateCheck   `json:"verdict"`

	// Time is how many times faster the run was now than then. The two were taken in different sessions, so that it decides nothing.
	Time  *measure.Speedup `json:"time,omitempty"` // over the judged shapes
	Times []TimeCheck      `json:"times,omitempty"`

	Differences []string `json:"differences,omitempty"` // all of them, in words
}

// CodeCheck compares the machine code.
type CodeCheck struct {
	Same bool   `json:"same"`
	Then string `json:"then,omitempty"`
	Now  string `json:"now,omitempty"`
}

// OutputCheck compares the bytes of the answers, where both runs have them.
type OutputCheck struct {
	Same      int `json:"same"`
	Different int `json:"different"`
	Missing   int `json:"missing"` // answered then and not now
	LeftOut   int `json:"left_out,omitempty"`
}

// GateCheck compares one gate, or the verdict.
type GateCheck struct {
	Name     string `json:"name"`
	Then     string `json:"then"`
	Now      string `json:"now"`
	Compared bool   `json:"compared"`
}

// TimeCheck is the time of one shape in the two sessions.
type TimeCheck struct {
	Shape  string          `json:"shape"`
	ThenUS float64         `json:"then_us"`
	NowUS  float64         `json:"now_us"`
	Ratio  measure.Speedup `json:"ratio"` // then over now
	Judged bool            `json:"judged"`
}

// CompareAgain holds a run that was done again against the record of the first time. The samples of both must be there.
func CompareAgain(then, now *Run) *Reproduction {
	r := &Reproduction{Then: then.ID, Now: now.ID}
	r.CorrectnessOnly = len(then.Performance) > 0 && now.Asked.Simulation != nil
	r.compareCode(then, now)
	r.compareOutputs(then, now)
	r.compareGates(then, now)
	r.compareTimes(then, now)
	r.Holds = len(r.Differences) == 0
	return r
}

func (r *Reproduction) differ(format string, args ...any) {
	r.Differences = append(r.Differences, fmt.Sprintf(format, args...))
}

func (r *Reproduction) compareCode(then, now *Run) {
	r.Code = CodeCheck{then.CodeHash == now.CodeHash, then.CodeHash, now.CodeHash}
	if len(then.Parts) > 0 {
		r.compareParts(then, now)
		return
	}
	if r.Code.Same {
		return
	}
	why := "the sources, flags and compiler are the same"
	switch a, b := then.Build, now.Build; {
	case a == nil:
		why = "it did not compile then"
	case b == nil:
		why = "it does not compile now"
	case a.SourceHash != b.SourceHash:
		why = "the sources have changed"
	case a.Compiler != b.Compiler:
		why = fmt.Sprintf("the compiler was %s and is %s", a.Compiler, b.Compiler)
	case a.Arch != b.Arch:
		why = fmt.Sprintf("it was built for %s and is for %s", a.Arch, b.Arch)
	case !slices.Equal(a.Flags, b.Flags):
		why = "the compiler's flags have changed"
	}
	r.differ("the machine code is another: %s", why)
}

// compareParts compares the code of a selection, variant by variant: of the shapes of then some may be left out now.
func (r *Reproduction) compareParts(then, now *Run) {
	before := len(r.Differences)
	for _, p := range now.Parts {
		for _, shape := range p.Shapes {
			if was := then.TakenBy(shape); was != p.Variant {
				r.differ("the table is another: %s was taken by %s and is by %s", shape, was, p.Variant)
				break
			}
		}
		i := slices.IndexFunc(then.Parts, func(q Part) bool { return q.Variant == p.Variant })
		if i >= 0 && then.Parts[i].CodeHash != p.CodeHash {
			r.differ("the machine code of %s is another", p.Variant)
		}
	}
	r.Code.Same = len(r.Differences) == before
}

func (r *Reproduction) compareOutputs(then, now *Run) {
	type problem struct {
		shape, inputs string
		seed          uint64
	}
	of := func(c Correctness) problem {
		if c.Inputs == "" { // an older record
			c.Inputs = "normal"
		}
		return problem{c.Shape, c.Inputs, c.Seed}
	}
	answers := map[problem]string{}
	for _, c := range now.Correctness {
		answers[of(c)] = c.OutputSHA256
	}
	first := ""
	for _, c := range then.Correctness {
		hash, answered := answers[of(c)]
		switch {
		case !slices.Contains(now.Asked.Shapes, c.Shape):
			r.Outputs.LeftOut++
		case c.OutputSHA256 == "":
			// An older record, which kept none.
		case !answered:
			r.Outputs.Missing++
		case hash == c.OutputSHA256:
			r.Outputs.Same++
		default:
			r.Outputs.Different++
			if first == "" {
				first = fmt.Sprintf("%s %s seed %d", c.Shape, of(c).inputs, c.Seed)
			}
		}
	}
	if r.Outputs.Different > 0 {
		r.differ("%d of %d answers have other bytes, the first on %s", r.Outputs.Different, r.Outputs.Different+r.Outputs.Same, first)
	}
	if r.Outputs.Missing > 0 {
		r.differ("%d answers of then were not given now", r.Outputs.Missing)
	}
}

func (r *Reproduction) compareGates(then, now *Run) {
	whole := !r.CorrectnessOnly
	for _, g := range []struct {
		name      string
		then, now gate.Status
		compared  bool
	}{
		{"resources", then.Gates.Resources, now.Gates.Resources, true},
		{"correctness", then.Gates.Correctness, now.Gates.Correctness, true},
		{"performance", then.Gates.Performance, now.Gates.Performance, whole},
		{"profile", then.Gates.Profile, now.Gates.Profile, whole},
	} {
		r.Gates = append(r.Gates, GateCheck{g.name, string(g.then), string(g.now), g.compared})
		if g.compared && g.then != g.now {
			r.differ("the %s gate said %s and says %s", g.name, g.then, g.now)
		}
	}
	if whole && then.RequiredSpeedup != now.RequiredSpeedup {
		r.differ("%.2fx was needed and %.2fx is", then.RequiredSpeedup, now.RequiredSpeedup)
	}
	r.Verdict = GateCheck{"verdict", string(then.Verdict), string(now.Verdict), whole}
	if whole && then.Verdict != now.Verdict {
		r.differ("the verdict was %s and is %s", then.Verdict, now.Verdict)
	}
}

func (r *Reproduction) compareTimes(then, now *Run) {
	const us = 1e6
	var judged []measure.Pair
	for _, a := range then.Samples {
		i := slices.IndexFunc(now.Samples, func(b Samples) bool { return b.Shape == a.Shape })
		if i < 0 || len(a.Variant.Seconds) == 0 || len(now.Samples[i].Variant.Seconds) == 0 {
			continue
		}
		was, _ := a.Steady()
		is, _ := now.Samples[i].Steady()
		pair := measure.Pair{Parent: was, Variant: is}
		t := TimeCheck{
			Shape: a.Shape, ThenUS: measure.Summarize(pair.Parent).P50 * us, NowUS: measure.Summarize(pair.Variant).P50 * us,
			Ratio:  measure.CompareApart([]measure.Pair{pair}),
			Judged: slices.ContainsFunc(then.Performance, func(p Performance) bool { return p.Shape == a.Shape && p.Judged }),
		}
		r.Times = append(r.Times, t)
		if t.Judged {
			judged = append(judged, pair)
		}
	}
	if len(judged) > 0 {
		ratio := measure.CompareApart(judged)
		r.Time = &ratio
	}
}
