package declared

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/problem"
	"attune/internal/toolchain"
)

// runSource launches the trusted kernel on arrays. Its architecture is that of the lab's device. It has
// the defaults of all knobs but those that choose the types of the arrays.
func (r *references) runSource(ctx context.Context, i problem.Instance, values []int, arrays []*array.Array) (map[string]*array.Array, error) {
	if r.options.Launch == nil {
		return nil, r.failure("there is no device for the trusted kernel", "")
	}
	t := toolchain.Target{
		Kernel: r.kernel.Name, Variant: "reference", Source: r.Reference.Path, Entry: r.Reference.Entry, Flags: r.Flags, FlagsAt: r.FlagsAt,
		Knobs: map[string]int{},
	}
	own := r.defaults(i.Shape)
	for n, knob := range r.kernel.Knobs {
		at := len(r.Axes) + n
		if r.ChoosesType(n) {
			own[at] = values[at]
		}
		t.Knobs[knob.Name] = own[at]
	}
	outputs, err := r.options.Launch(ctx, t, func(image *toolchain.Image) (device.Job, error) {
		r.hash(r.Reference.Path)
		r.fact("source_sha256", image.Record.SourceHash)
		job, err := r.job(r.referenceLaunch(), own, i.Shape, arrays)
		job.Image, job.Entry, job.Unordered = image.PTX, image.Record.EntryName(), unordered(image)
		return job, err
	})
	switch {
	case err == nil:
	case contextual(err), errors.Is(err, device.ErrNoDevice), errors.Is(err, toolchain.ErrNoCompiler):
		return nil, err
	default:
		return nil, r.failure(firstError(err), "")
	}
	right := map[string]*array.Array{}
	for n, a := range r.Args {
		if !isOutput(a) || arrays[n] == nil {
			continue
		}
		if len(outputs) == 0 || len(outputs[0]) != arrays[n].Len()*arrays[n].Type.Bytes() {
			return nil, r.failure(fmt.Sprintf("the launch returned no %q", a.Name), "")
		}
		right[a.Name] = &array.Array{Name: a.Name, Type: arrays[n].Type, Shape: arrays[n].Shape, Data: outputs[0]}
		outputs = outputs[1:]
	}
	return right, nil
}

// referenceLaunch is the launch of the trusted kernel: that of the kernel, without what [reference]
// replaces and without clusters, which a slow kernel has no use for.
func (p *Problem) referenceLaunch() launch {
	l := launch{grid: p.Grid, block: p.Block, shared: p.Shared, cooperative: p.Cooperative}
	own := p.Reference
	if own.Grid[0] != nil {
		l.grid, l.cooperative = own.Grid, false
	}
	if own.Block[0] != nil {
		l.block = own.Block
	}
	if own.Shared != nil {
		l.shared = own.Shared
	}
	return l
}

// firstError is the line of an error that says what is wrong: the first error of the compiler, or
// else the first line.
func firstError(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	for _, line := range lines {
		if strings.Contains(line, "error:") || strings.Contains(line, "error :") {
			return strings.TrimSpace(line)
		}
	}
	return lines[0]
}
