package lab

import (
	"attune/internal/run"
	"attune/internal/spec"
)

// Outline lists what a bench of a kernel would time: each problem with the variants that run it, and
// the work of the first of them.
func (r BenchRequest) Outline(kernel *spec.Kernel) (*run.Outline, error) {
	request := Request{Variants: r.Variants, Selections: r.Selections, Shapes: r.Shapes, Seeds: []uint64{r.Seed}, Arch: r.Arch}
	p, err := request.plan("")
	if err != nil {
		return nil, err
	}
	o := &run.Outline{SchemaVersion: run.BenchSchemaVersion, Kernel: kernel.Name, Command: r.Command, Random: r.Random, Problems: []run.OutlinedProblem{}}
	for _, e := range p.entries {
		o.Names = append(o.Names, e.name)
	}
	for _, shape := range r.Shapes {
		one := run.OutlinedProblem{Shape: shape.String()}
		for _, e := range p.entries {
			one.Variants = append(one.Variants, e.on(shape).String())
		}
		first := p.entries[0].on(shape)
		work, err := request.problem().Work(first, shape, request.problem().DType(first))
		if err != nil {
			return nil, err
		}
		one.GFLOP, one.MB = work.FLOPs/1e9, work.Bytes/1e6
		o.Problems = append(o.Problems, one)
	}
	return o, nil
}
