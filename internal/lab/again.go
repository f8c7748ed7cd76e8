package lab

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/report"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
)

// Again is the request that does a recorded run again: the same variant or selection, shapes, seeds, samples, state of L2 and architecture, against the same
// parent. Given shapes, it keeps to those of the run that are among them.
func Again(kernel *spec.Kernel, then *run.Run, only []tensor.Shape) (Request, error) {
	refuse := func(format string, args ...any) (Request, error) {
		return Request{}, RequestError(fmt.Sprintf("run %s cannot be done again: ", then.ID) + fmt.Sprintf(format, args...))
	}
	if then.Kernel != kernel.Name {
		return refuse("it is of kernel %s, and the one at hand is %s; give its folder with --kernel", then.Kernel, kernel.Name)
	}
	if then.Asked.Profile {
		return refuse("it is a profile; `%s` takes another", report.Command(then))
	}
	r := Request{
		Seeds: then.Asked.Seeds, Samples: then.Asked.Samples, L2: then.Asked.L2, Arch: then.Arch,
		Reproduces: then.ID,
	}
	if strings.Contains(then.Arch, ", ") { // the parts of a selection were built for several
		r.Arch = then.Asked.Arch
	}
	var today spec.Variant // what it would be measured against
	var hasParent bool
	if s := kernel.Selection(then.Variant); s != nil {
		r.Selections = []*spec.Selection{s}
		today, hasParent = s.Parent()
	} else {
		variant, err := kernel.Variant(then.Variant)
		if err != nil {
			return refuse("%s is no variant of today's spec: %v", then.Variant, err)
		}
		r.Variants = []spec.Variant{variant}
		today, hasParent = variant.Parent()
	}
	if then.Parent != "" {
		parent, err := kernel.Variant(then.Parent)
		if err != nil {
			return refuse("its parent %s is no variant of today's spec: %v", then.Parent, err)
		}
		if !hasParent || then.Asked.Against != "" || today.String() != parent.String() {
			r.Against = &parent
		}
	}
	for _, text := range then.Asked.Shapes {
		shape, err := tensor.ParseShape(text)
		if err != nil {
			return refuse("%v", err)
		}
		if len(only) == 0 || slices.Contains(only, shape) {
			r.Shapes = append(r.Shapes, shape)
		}
		if slices.ContainsFunc(then.Performance, func(p run.Performance) bool { return p.Shape == text && p.Judged }) {
			r.Judged = append(r.Judged, shape)
		}
	}
	if len(r.Shapes) == 0 || len(r.Seeds) == 0 {
		return refuse("none of the shapes asked for is among its own: %v", then.Asked.Shapes)
	}
	return r, r.Check()
}
