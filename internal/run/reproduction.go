package run

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"attune/internal/measure"
)

// Reproduction compares a recorded run with the run that repeated it.
type Reproduction struct {
	Recorded string `json:"then"`  // id of the recorded run
	Repeated string `json:"now"`   // id of the run that repeated it
	Holds    bool   `json:"holds"` // nothing that was compared differs

	// CorrectnessOnly reports that the recorded run has times and the present device takes none.
	// Only code, outputs and the first two gates were compared.
	CorrectnessOnly bool `json:"correctness_only,omitempty"`

	Code    CodeCheck   `json:"code"`
	Outputs OutputCheck `json:"outputs"`
	Gates   []GateCheck `json:"gates"`
	Verdict GateCheck   `json:"verdict"`

	// Time is the recorded time over the repeated one. The two are of different sessions, so the
	// ratio decides nothing.
	Time  *measure.Speedup `json:"time,omitempty"` // over the benchmark shapes
	Times []TimeCheck      `json:"times,omitempty"`

	Differences []string `json:"differences,omitempty"` // all of them, in words

	// Changed lists what the problem of a declared kernel depends on and has changed, such as its
	// reference or a version of numpy. Outputs may be the same all the same.
	Changed []string `json:"changed,omitempty"`
	// Stale reports that kernel.toml or a file of the reference is among them. The two runs then
	// judge different problems, so the record does not hold.
	Stale bool `json:"stale,omitempty"`
}

// CodeCheck compares the machine code by its hashes.
type CodeCheck struct {
	Same     bool   `json:"same"`
	Recorded string `json:"then,omitempty"`
	Repeated string `json:"now,omitempty"`
}

// OutputCheck counts the outputs that both runs have, by their bytes.
type OutputCheck struct {
	Same      int `json:"same"`
	Different int `json:"different"`
	Missing   int `json:"missing"`            // only the recorded run has them
	Skipped   int `json:"left_out,omitempty"` // their shapes were not repeated
	// Unordered ones differ, as the sums of floating-point atomics may. The gates have compared them.
	Unordered int `json:"unordered,omitempty"`
}

// GateCheck compares one gate, or the verdict.
type GateCheck struct {
	Name     string `json:"name"`
	Recorded string `json:"then"`
	Repeated string `json:"now"`
	Compared bool   `json:"compared"`
}

// TimeCheck compares the times of one shape.
type TimeCheck struct {
	Shape      string          `json:"shape"`
	RecordedUS float64         `json:"then_us"`
	RepeatedUS float64         `json:"now_us"`
	Ratio      measure.Speedup `json:"ratio"` // recorded over repeated
	Benchmark  bool            `json:"judged"`
}

// CompareRepeated compares a run with the recorded run that it repeats. Both must have their
// samples.
func CompareRepeated(recorded, repeated *Run) *Reproduction {
	r := &Reproduction{Recorded: recorded.ID, Repeated: repeated.ID}
	r.CorrectnessOnly = len(recorded.Performance) > 0 && repeated.Requested.Simulation != nil
	r.compareProblem(recorded.Problem, repeated.Problem)
	r.compareCode(recorded, repeated)
	r.compareOutputs(recorded, repeated)
	r.compareGates(recorded, repeated)
	r.compareTimes(recorded, repeated)
	r.Holds = len(r.Differences) == 0
	return r
}

// compareProblem lists what differs between the problems of two runs.
func (r *Reproduction) compareProblem(recorded, repeated *Problem) {
	if recorded == nil || repeated == nil {
		return
	}
	file := func(name string) {
		r.Changed, r.Stale = append(r.Changed, name+" has changed"), true
		r.differ("%s has changed; restore it, or record a new run", name)
	}
	if recorded.SpecSHA256 != repeated.SpecSHA256 {
		file("kernel.toml")
	}
	for _, key := range slices.Sorted(maps.Keys(recorded.Facts)) {
		was, is := recorded.Facts[key], repeated.Facts[key]
		name, isHash := strings.CutPrefix(key, "sha256:")
		switch {
		case was == is:
		case isHash:
			file(name)
		default:
			r.Changed = append(r.Changed, fmt.Sprintf("%s was %s and is %s", key, was, cmp.Or(is, "missing")))
		}
	}
}

func (r *Reproduction) differ(format string, args ...any) {
	r.Differences = append(r.Differences, fmt.Sprintf(format, args...))
}

func (r *Reproduction) compareCode(recorded, repeated *Run) {
	r.Code = CodeCheck{recorded.CodeHash == repeated.CodeHash, recorded.CodeHash, repeated.CodeHash}
	if len(recorded.Parts) > 0 {
		r.compareParts(recorded, repeated)
		return
	}
	if r.Code.Same {
		return
	}
	why := "the sources, flags and compiler are the same"
	switch a, b := recorded.Build, repeated.Build; {
	case a == nil:
		why = "it did not compile before"
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
	r.differ("the machine code differs: %s", why)
}

// compareParts compares the code of a selection, variant by variant. The repeated run may have
// fewer shapes.
func (r *Reproduction) compareParts(recorded, repeated *Run) {
	before := len(r.Differences)
	for _, p := range repeated.Parts {
		for _, shape := range p.Shapes {
			if was := recorded.VariantOn(shape); was != p.Variant {
				r.differ("the selection's table differs: it chose %s for %s and chooses %s", was, shape, p.Variant)
				break
			}
		}
		i := slices.IndexFunc(recorded.Parts, func(q Part) bool { return q.Variant == p.Variant })
		if i >= 0 && recorded.Parts[i].CodeHash != p.CodeHash {
			r.differ("the machine code of %s differs", p.Variant)
		}
	}
	r.Code.Same = len(r.Differences) == before
}

func (r *Reproduction) compareOutputs(recorded, repeated *Run) {
	type problem struct {
		shape, inputs string
		seed          uint64
	}
	of := func(c Correctness) problem {
		if c.Inputs == "" { // an old record
			c.Inputs = "normal"
		}
		return problem{c.Shape, c.Inputs, c.Seed}
	}
	outputs := map[problem]string{}
	for _, c := range repeated.Correctness {
		outputs[of(c)] = c.OutputSHA256
	}
	first := ""
	for _, c := range recorded.Correctness {
		hash, known := outputs[of(c)]
		switch {
		case !slices.Contains(repeated.Requested.Shapes, c.Shape):
			r.Outputs.Skipped++
		case c.OutputSHA256 == "":
			// An old record, without hashes.
		case !known:
			r.Outputs.Missing++
		case hash == c.OutputSHA256:
			r.Outputs.Same++
		case c.unordered():
			r.Outputs.Unordered++
		default:
			r.Outputs.Different++
			if first == "" {
				first = fmt.Sprintf("%s %s seed %d", c.Shape, of(c).inputs, c.Seed)
				if recorded.Problem != nil { // it has one kind of inputs
					first = fmt.Sprintf("%s seed %d", c.Shape, c.Seed)
				}
			}
		}
	}
	if r.Outputs.Different > 0 {
		r.differ("%d of %d outputs have different bytes, the first on %s",
			r.Outputs.Different, r.Outputs.Different+r.Outputs.Same, first)
	}
	if r.Outputs.Missing > 0 {
		r.differ("%d recorded outputs are missing now", r.Outputs.Missing)
	}
}

func (r *Reproduction) compareGates(recorded, repeated *Run) {
	all := !r.CorrectnessOnly
	after := repeated.GateOutcomes()
	for i, before := range recorded.GateOutcomes() {
		compared := all || before.Name == "resources" || before.Name == "correctness"
		r.Gates = append(r.Gates, GateCheck{before.Name, string(before.Status), string(after[i].Status), compared})
		if compared && before.Status != after[i].Status {
			r.differ("the %s gate was %s and is %s", before.Name, before.Status, after[i].Status)
		}
	}
	if all && recorded.RequiredSpeedup != repeated.RequiredSpeedup {
		r.differ("the required speedup was %.2fx and is %.2fx", recorded.RequiredSpeedup, repeated.RequiredSpeedup)
	}
	r.Verdict = GateCheck{"verdict", string(recorded.Verdict), string(repeated.Verdict), all}
	if all && recorded.Verdict != repeated.Verdict {
		r.differ("the verdict was %s and is %s", recorded.Verdict, repeated.Verdict)
	}
}

func (r *Reproduction) compareTimes(recorded, repeated *Run) {
	const us = 1e6
	var counted []measure.Pair
	for _, a := range recorded.Samples {
		i := slices.IndexFunc(repeated.Samples, func(b Samples) bool { return b.Shape == a.Shape })
		if i < 0 || len(a.Variant.Seconds) == 0 || len(repeated.Samples[i].Variant.Seconds) == 0 {
			continue
		}
		before, _ := a.Steady()
		after, _ := repeated.Samples[i].Steady()
		pair := measure.Pair{Parent: before, Variant: after}
		t := TimeCheck{
			Shape: a.Shape, RecordedUS: measure.Summarize(before).P50 * us, RepeatedUS: measure.Summarize(after).P50 * us,
			Ratio:     measure.CompareUnpaired([]measure.Pair{pair}),
			Benchmark: slices.ContainsFunc(recorded.Performance, func(p Performance) bool { return p.Shape == a.Shape && p.Benchmark }),
		}
		r.Times = append(r.Times, t)
		if t.Benchmark {
			counted = append(counted, pair)
		}
	}
	if len(counted) > 0 {
		ratio := measure.CompareUnpaired(counted)
		r.Time = &ratio
	}
}
