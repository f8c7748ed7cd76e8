package lab

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/run"
	"attune/internal/spec"
)

// ReproduceRequest is the request that repeats a recorded run: the same variant or selection,
// shapes, seeds, samples, L2 state and architecture, against the same parent. With a list of shapes
// it repeats only those of them that the run has.
func ReproduceRequest(kernel *spec.Kernel, recorded *run.Run, only []spec.Shape) (Request, error) {
	refuse := func(format string, args ...any) (Request, error) {
		return Request{}, RequestError(fmt.Sprintf("run %s cannot be repeated: ", recorded.ID) + fmt.Sprintf(format, args...))
	}
	if recorded.Kernel != kernel.Name {
		return refuse("it is of kernel %s, and the present one is %s; give its folder with --kernel", recorded.Kernel, kernel.Name)
	}
	if recorded.Requested.Profile {
		return refuse("it is a profile; `%s` takes a new one", recorded.Command())
	}
	r := Request{
		Problem: NewProblem(kernel, nil, ""),
		Seeds:   recorded.Requested.Seeds, Samples: recorded.Requested.Samples, Processes: recorded.Requested.Processes, L2: recorded.Requested.L2, Arch: recorded.Arch,
		Reproduces: recorded.ID,
	}
	if strings.Contains(recorded.Arch, ", ") { // the parts of a selection were built for several
		r.Arch = recorded.Requested.Arch
	}
	parent, hasParent, err := r.name(kernel, recorded.Variant)
	if err != nil {
		return refuse("%s is not a variant of the present spec: %v", recorded.Variant, err)
	}
	if recorded.Parent != "" {
		against, err := kernel.Variant(recorded.Parent)
		if err != nil {
			return refuse("its parent %s is not a variant of the present spec: %v", recorded.Parent, err)
		}
		if !hasParent || recorded.Requested.Against != "" || parent.String() != against.String() {
			r.Against = &against
		}
	}
	for _, text := range recorded.Requested.Shapes {
		shape, err := kernel.ParseShape(text)
		if err != nil {
			return refuse("%v", err)
		}
		if len(only) == 0 || slices.Contains(only, shape) {
			r.Shapes = append(r.Shapes, shape)
		}
		if slices.ContainsFunc(recorded.Performance, func(p run.Performance) bool { return p.Shape == text && p.Benchmark }) {
			r.Benchmark = append(r.Benchmark, shape)
		}
	}
	if recorded.Requested.Quick {
		if r.NormalOnly, err = kernel.Shapes(strings.Join(kernel.Run.Benchmark, ",")); err != nil {
			return refuse("%v", err)
		}
	}
	if len(r.Shapes) == 0 || len(r.Seeds) == 0 {
		return refuse("it has none of the requested shapes; it has %v", recorded.Requested.Shapes)
	}
	return r, r.Check()
}

// CompareRepeated compares a run with the recorded run that it repeats. The parts of a recorded
// selection may have former knob names, so they get their present names first.
func CompareRepeated(kernel *spec.Kernel, recorded, repeated *run.Run) *run.Reproduction {
	renamed := *recorded
	renamed.Parts = slices.Clone(recorded.Parts)
	for i := range renamed.Parts {
		renamed.Parts[i].Variant = presentName(kernel, renamed.Parts[i].Variant)
	}
	return run.CompareRepeated(&renamed, repeated)
}

// presentName is the present name of a recorded variant. A variant that the kernel no longer has
// keeps its recorded name.
func presentName(kernel *spec.Kernel, recorded string) string {
	v, err := kernel.Variant(recorded)
	if err != nil {
		return recorded
	}
	return v.String()
}

// name adds a variant or a selection to the request, and returns its present parent.
func (r *Request) name(kernel *spec.Kernel, text string) (parent spec.Variant, ok bool, err error) {
	if s := kernel.Selection(text); s != nil {
		r.Selections = []*spec.Selection{s}
		parent, ok = s.Parent()
		return parent, ok, nil
	}
	v, err := kernel.Variant(text)
	if err != nil {
		return parent, false, err
	}
	r.Variants = []spec.Variant{v}
	parent, ok = v.Parent()
	return parent, ok, nil
}
