package lab

import (
	"fmt"
	"slices"

	"attune/internal/form"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// Request says what to run.
type Request struct {
	Problem    problem.Problem // of the kernel; the one that its spec declares if it is nil. A lab takes its own
	Variants   []spec.Variant
	Selections []*spec.Selection // after the variants
	Shapes     []spec.Shape
	Benchmark  []spec.Shape // the performance gate counts those of them that are among Shapes
	Seeds      []uint64
	NormalOnly []spec.Shape  // shapes without the harder inputs, to save time in a quick run
	Samples    int           // of each shape's time
	Processes  int           // in which the samples are taken, one after the other; 0 is 1
	Energy     bool          // measure that of the benchmark shapes
	L2         run.L2        // state of the L2 cache before a timed launch
	Against    *spec.Variant // replaces the parent of every variant
	Arch       string        // replaces the device's, or the newest of the stage
	Part       Part          // of the problems; all if it is zero

	Reproduces string // id of the recorded run that this request repeats
}

// processes is the number of processes in which times are taken: at most one per sample.
func (r Request) processes() int { return max(1, min(r.Processes, r.Samples)) }

// Part is one of several machines' parts of the problems of every variant: each Of-th of them.
type Part struct{ Number, Of int } // from 0

// of are the problems of the part.
func (p Part) of(all []problem.Instance) []problem.Instance {
	if p.Of == 0 {
		return all
	}
	var own []problem.Instance
	for i := p.Number; i < len(all); i += p.Of {
		own = append(own, all[i])
	}
	return own
}

// RequestError is the error of a request that cannot be carried out.
type RequestError string

func (e RequestError) Error() string { return string(e) }

func (r Request) problem() problem.Problem {
	if r.Problem != nil {
		return r.Problem
	}
	return NewProblem(r.kernel(), nil, "") // Check reads no files
}

// kernel is the kernel of what the request names; nil for an empty request.
func (r Request) kernel() *spec.Kernel {
	for _, v := range r.Variants {
		return v.Stage().Kernel()
	}
	for _, s := range r.Selections {
		return s.Variants()[0].Stage().Kernel()
	}
	return nil
}

// instances are those of the correctness gate for a variant on some of the shapes.
func (r Request) instances(v spec.Variant, shapes []spec.Shape) []problem.Instance {
	p := r.problem()
	all := slices.DeleteFunc(p.Instances(shapes, r.Seeds), func(i problem.Instance) bool {
		return i != p.Plain(i.Shape, i.Seed) && slices.Contains(r.NormalOnly, i.Shape)
	})
	if study, ok := p.(problem.Study); ok {
		hard := slices.DeleteFunc(slices.Clone(shapes), func(s spec.Shape) bool { return slices.Contains(r.NormalOnly, s) })
		all = append(all, study.Studies(v, hard, r.Seeds)...)
	}
	return r.Part.of(all)
}

// MostProblems is the number of problems of the variant, or of a selection's, that has most.
func (r Request) MostProblems() (int, error) {
	p, err := r.plan("")
	if err != nil {
		return 0, err
	}
	most := 0
	for _, e := range p.entries {
		for _, part := range e.parts {
			most = max(most, len(p.instances(part.variant, part.shapes)))
		}
	}
	return most, nil
}

// Check refuses shapes and architectures that a variant does not support. It needs no device.
func (r Request) Check() error {
	_, err := r.plan("")
	return err
}

// plan is a checked request. Its selections are resolved: later steps take the variant of a shape
// from here.
type plan struct {
	Request
	entries []entry      // variants, then selections, in the order of the request
	gated   []spec.Shape // shapes that the performance gate counts
}

// entry is one requested variant or selection.
type entry struct {
	name      string
	selection *spec.Selection // nil for a variant
	parts     []part          // one for a variant; one per chosen variant for a selection
}

// part is a variant and the shapes that it takes.
type part struct {
	variant   spec.Variant
	selection *spec.Selection // whose table chose the variant; nil where the request names it
	shapes    []spec.Shape
	gated     []spec.Shape  // shapes that the performance gate of this part counts
	parent    *spec.Variant // nil where there is none to be measured against
}

// plan checks the request for a device. With an empty architecture it does not look at the device.
func (r Request) plan(deviceArch string) (*plan, error) {
	p := &plan{Request: r, gated: gatedShapes(r.Shapes, r.Benchmark)}
	for _, v := range r.Variants {
		one := part{variant: v, shapes: r.Shapes, gated: p.gated}
		if err := r.complete(&one, deviceArch); err != nil {
			return nil, err
		}
		p.entries = append(p.entries, entry{name: v.String(), parts: []part{one}})
	}
	for _, s := range r.Selections {
		e, err := r.resolve(s, deviceArch)
		if err != nil {
			return nil, err
		}
		p.entries = append(p.entries, e)
	}
	if r.Against != nil { // a variant's own parent runs the variant's shapes
		return p, r.checkShapes(*r.Against, r.Shapes)
	}
	return p, nil
}

// resolve assigns every shape to the variant that a selection chooses for it. The parts are in the
// order of the selection's table.
func (r Request) resolve(s *spec.Selection, deviceArch string) (entry, error) {
	e := entry{name: s.Name, selection: s}
	for _, v := range s.Variants() {
		e.parts = append(e.parts, part{variant: v, selection: s})
	}
	for _, shape := range r.Shapes {
		chosen, err := s.Choose(shape)
		if err != nil {
			return e, RequestError(err.Error())
		}
		i := slices.IndexFunc(e.parts, func(p part) bool { return p.variant.String() == chosen.Variant.String() })
		e.parts[i].shapes = append(e.parts[i].shapes, shape)
	}
	e.parts = slices.DeleteFunc(e.parts, func(p part) bool { return len(p.shapes) == 0 })
	for i := range e.parts {
		p := &e.parts[i]
		p.gated = gatedShapes(p.shapes, r.Benchmark)
		if err := r.complete(p, deviceArch); err != nil {
			return e, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return e, nil
}

// complete checks a part and finds its parent. A variant that has no shape in common with its parent,
// such as one with another head dim, has none.
func (r Request) complete(p *part, deviceArch string) error {
	if _, err := Arch(p.variant.Stage(), r.Arch, deviceArch); err != nil {
		return err
	}
	if err := r.checkShapes(p.variant, p.shapes); err != nil {
		return err
	}
	if p.parent = r.Against; p.parent != nil {
		return nil
	}
	parent, ok := p.variant.Parent()
	if p.selection != nil {
		parent, ok = p.selection.Parent()
	}
	if ok && r.problem().Common(parent, p.variant) {
		p.parent = &parent
	}
	return nil
}

// checkShapes refuses shapes that a variant cannot run.
func (r Request) checkShapes(v spec.Variant, shapes []spec.Shape) error {
	if err := r.problem().CheckShapes(v, shapes); err != nil {
		return RequestError(err.Error())
	}
	return nil
}

// gatedShapes are the shapes that the performance gate counts: the benchmark shapes among them, or
// all where there is none.
func gatedShapes(shapes, benchmark []spec.Shape) []spec.Shape {
	var gated []spec.Shape
	for _, shape := range shapes {
		if slices.Contains(benchmark, shape) {
			gated = append(gated, shape)
		}
	}
	if gated == nil {
		return shapes
	}
	return gated
}

// on is the variant that takes a shape.
func (e entry) on(shape spec.Shape) spec.Variant {
	for _, p := range e.parts {
		if slices.Contains(p.shapes, shape) {
			return p.variant
		}
	}
	panic("BUG: a shape that is not in the plan")
}

// variants are those of all parts, and their parents if the request is timed against them.
func (p *plan) variants(withParents bool) []spec.Variant {
	var all []spec.Variant
	for _, e := range p.entries {
		for _, part := range e.parts {
			all = append(all, part.variant)
			if withParents && part.parent != nil {
				all = append(all, *part.parent)
			}
		}
	}
	return all
}

// ShippedTargets are the builds that ship with a kernel: every stage, every variant of a selection
// and their parents, for each of their architectures.
func ShippedTargets(kernel *spec.Kernel) []toolchain.Target {
	var targets []toolchain.Target
	add := func(archs []string, variants []spec.Variant, parent spec.Variant, hasParent bool) {
		if hasParent {
			variants = append(variants, parent)
		}
		for _, v := range variants {
			for _, arch := range archs {
				t := form.Target(kernel, v, arch)
				if !slices.ContainsFunc(targets, func(known toolchain.Target) bool { return known.String() == t.String() }) {
					targets = append(targets, t)
				}
			}
		}
	}
	for _, stage := range kernel.Stages {
		parent, ok := stage.Variant().Parent()
		add(stage.Archs, []spec.Variant{stage.Variant()}, parent, ok)
	}
	for _, s := range kernel.Selections {
		parent, ok := s.Parent()
		add(s.Archs, s.Variants(), parent, ok)
	}
	return targets
}
