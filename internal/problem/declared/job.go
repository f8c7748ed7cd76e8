package declared

import (
	"encoding/binary"
	"slices"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/problem"
	"attune/internal/ptx"
	"attune/internal/spec"
	"attune/internal/tensormap"
	"attune/internal/toolchain"
)

// launch is the expressions of a launch.
type launch struct {
	grid, block, cluster [3]*spec.Expr
	shared               *spec.Expr
	cooperative          bool
}

// Job is the launch of a build on the inputs of an instance. No reference is computed.
func (p *Problem) Job(b problem.Build, i problem.Instance) (device.Job, error) {
	buffers, err := p.buffers(p.Values(b.Variant, i.Shape), i.Shape)
	if err != nil {
		return device.Job{}, err
	}
	arrays, err := (&references{Problem: p}).arrays(i, buffers)
	if err != nil {
		return device.Job{}, err
	}
	return p.jobOf(b, i.Shape, arrays)
}

// jobOf is the launch of a build on arrays.
func (p *Problem) jobOf(b problem.Build, s spec.Shape, arrays []*array.Array) (device.Job, error) {
	job, err := p.job(launch{p.Grid, p.Block, p.Cluster, p.Shared, p.Cooperative}, p.Values(b.Variant, s), s, arrays)
	if err != nil {
		return device.Job{}, err
	}
	job.Image, job.Entry = b.Code, b.Image.Record.EntryName()
	return job, nil
}

// job makes the launch of an image on arrays, which are by argument.
func (p *Problem) job(l launch, values []int, s spec.Shape, arrays []*array.Array) (device.Job, error) {
	var job device.Job
	absent := 1
	for _, dimension := range []struct {
		extents [3]*spec.Expr
		to      *[3]int
	}{{l.grid, &job.Grid}, {l.block, &job.Block}, {l.cluster, &job.Cluster}} {
		if dimension.extents[0] == nil {
			absent = 0 // no cluster
		}
		extents, err := p.integers(dimension.extents[:], absent, values, s)
		if err != nil {
			return job, err
		}
		*dimension.to = [3]int(extents)
	}
	args, err := p.ArgsFor(values)
	if err != nil {
		return job, err
	}
	if job.DynamicSharedBytes, err = p.integer(l.shared, 0, values, s); err != nil {
		return job, err
	}
	job.Cooperative = l.cooperative
	for i, declared := range args {
		arg, err := p.arg(&declared, values, s, arrays)
		if err != nil {
			return job, err
		}
		if a := arrays[i]; a != nil {
			switch declared.Role {
			case spec.In:
				arg = device.Arg{Input: a.Data, Unit: rotationUnit(declared, len(a.Data))}
			case spec.Out:
				arg = device.Out(a.Len() * a.Type.Bytes())
			case spec.InOut:
				arg = device.Arg{InOut: a.Data}
			case spec.Scratch:
				arg = device.Arg{Scratch: a.Len() * a.Type.Bytes(), Zero: declared.Zero}
			}
		}
		arg.Name = declared.Name
		job.Args = append(job.Args, arg)
	}
	return job, nil
}

// arg is the argument of a scalar or a tensor map, or a null pointer.
func (p *Problem) arg(a *spec.Arg, values []int, s spec.Shape, arrays []*array.Array) (device.Arg, error) {
	switch a.Role {
	case spec.Map:
		box, err := p.integers(a.Map.Box, 1, values, s)
		if err != nil {
			return device.Arg{}, err
		}
		swizzle, err := a.Map.SwizzleFor(values)
		if err != nil {
			return device.Arg{}, p.EvalError(a.Map.SwizzleBytes, s, err)
		}
		order, err := p.integers(a.Map.Order, 0, values, s)
		if err != nil {
			return device.Arg{}, err
		}
		whole := tensormap.Map{Box: box, Swizzle: swizzle, OOB: a.Map.OOB, L2Promotion: "128B"}
		buffer := arrays[a.Map.Arg]
		whole.Type = buffer.Type.TensorMapType()
		if err := whole.SetLayout(buffer.Shape, order); err != nil {
			return device.Arg{}, p.EvalError(a.Map.Order[0], s, err)
		}
		return device.Arg{TensorMap: &device.TensorMap{Arg: a.Map.Arg, Map: whole}}, nil
	case spec.Scalar:
		if a.Type == array.U64 {
			value, err := a.Value.Uint(values)
			if err != nil {
				return device.Arg{}, p.EvalError(a.Value, s, err)
			}
			return device.Arg{Scalar: binary.LittleEndian.AppendUint64(nil, value)}, nil
		}
		var real float64
		var integer int
		var err error
		if a.Type.Float() {
			real, err = p.real(a.Value, values, s)
		} else {
			integer, err = p.integer(a.Value, 0, values, s)
		}
		if err != nil {
			return device.Arg{}, err
		}
		value, err := array.Scalar(a.Type, real, int64(integer))
		if err != nil {
			return device.Arg{}, p.EvalError(a.Value, s, err)
		}
		return device.Arg{Scalar: value}, nil
	}
	return device.Arg{Scalar: make([]byte, 8)}, nil // the null pointer of a buffer without an array
}

// rotationUnit is the unit by which an input may be rotated while the kernel is timed. The elements
// of a random fill are independent of each other, so that their order has no meaning. An element
// must not be cut, and must keep its place in a unit.
func rotationUnit(a spec.Arg, bytes int) int {
	if a.File != "" || !slices.Contains([]string{"normal", "uniform", "integers"}, a.Fill.Kind) {
		return 0
	}
	for _, unit := range device.RotationUnits {
		if bytes%unit == 0 && unit >= a.Type.Bytes() {
			return unit
		}
	}
	return 0
}

// unordered reports whether the kernel adds floats by atomic operations. PTX that cannot be read is
// the concern of the device.
func unordered(image *toolchain.Image) bool {
	module, err := ptx.Parse(image.PTX)
	return err == nil && module.UnorderedSums()
}
