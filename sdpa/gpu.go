//go:build linux || darwin

package sdpa

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"attune/internal/device"
	"attune/internal/device/cuda"
	"attune/internal/problem/attention/launch"
	"attune/internal/spec"
	"attune/internal/tensor"
	"attune/internal/toolchain"
	"attune/kernels"
)

// selectionName is the selection of kernel.toml whose variants a GPU runs, those with exact
// exponentials.
const selectionName = "stage7"

// loadKernel reads the embedded kernel.toml, once.
var loadKernel = sync.OnceValues(func() (*spec.Kernel, error) { return spec.Load(kernels.SDPA()) })

// GPU opens a GPU by its index among those of the driver. Without a driver or such a GPU the error
// is ErrNoGPU, and ErrUnsupported for a GPU that the kernels are not for.
func GPU(index int) (*Device, error) {
	machine, err := cuda.Open(index)
	if errors.Is(err, device.ErrNoDevice) {
		return nil, fmt.Errorf("sdpa: %w%s", ErrNoGPU, strings.TrimPrefix(err.Error(), device.ErrNoDevice.Error()))
	}
	if err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	d, err := newGPU(machine)
	if err != nil {
		return nil, errors.Join(err, machine.Close())
	}
	return d, nil
}

// gpu is an accelerator behind NVIDIA's driver.
type gpu struct {
	machine   device.Machine
	arch      string // that the images are built for
	selection *spec.Selection
	builder   *toolchain.Builder
	forms     map[string]*loaded // by variant
	chosen    map[tensor.Shape]*loaded
	live      map[device.Address]bool
	staging   [4]gpuTensor // memory for q, k, v and o of calls with host tensors
	lost      error        // after a kernel has failed
}

// maxChosen bounds the shapes whose form is remembered. The rules of a selection take half a
// millisecond.
const maxChosen = 1024

// loaded is a variant that is ready to launch.
type loaded struct {
	image    *toolchain.Image
	function device.Function
}

// newGPU returns a machine as a device.
func newGPU(machine device.Machine) (*Device, error) {
	kernel, err := loadKernel()
	if err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	facts, selection := machine.Facts(), kernel.Selection(selectionName)
	// Code for sm_90a runs on sm_90 only.
	index := slices.IndexFunc(selection.Archs, func(arch string) bool { return strings.TrimSuffix(arch, "a") == facts.Arch })
	if index < 0 {
		return nil, fmt.Errorf("sdpa: %s is %s and the kernels are for %s: %w; use the CPU",
			facts.Name, facts.Arch, strings.Join(selection.Archs, ", "), ErrUnsupported)
	}
	return &Device{name: facts.Name, gpu: &gpu{
		machine: machine, arch: selection.Archs[index], selection: selection,
		builder: toolchain.NewBuilder(kernels.SDPA(), nil, ""),
		forms:   map[string]*loaded{}, chosen: map[tensor.Shape]*loaded{}, live: map[device.Address]bool{},
	}}, nil
}

// close frees all memory. A lost context cannot, and the end of the process does.
func (g *gpu) close() error {
	var all []error
	for address := range g.live {
		if err := g.machine.Free(address); g.lost == nil {
			all = append(all, g.wrap(err))
		}
	}
	return errors.Join(append(all, g.machine.Close())...)
}

// failure is the error of a kernel that has lost the context.
func (g *gpu) failure() error { return g.lost }

// supports reports why the GPU has no kernel for a call.
func (g *gpu) supports(c *call, all [4]*operand) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("sdpa: %s: %w; set Fallback to use the CPU", fmt.Sprintf(format, args...), ErrUnsupported)
	}
	switch {
	case all[0].dtype != E4M3:
		return refuse("q, k and v are %s; the kernels take E4M3, which Quantize makes", all[0].dtype)
	case all[3].dtype != FP16:
		return refuse("o is %s; the kernels write FP16", all[3].dtype)
	case c.left >= 0 || c.right >= 0:
		return refuse("a Window of %d keys to the left and %d to the right", c.Window.Left, c.Window.Right)
	case c.Sinks != nil:
		return refuse("Sinks")
	case c.QueryLengths != nil:
		return refuse("QueryLengths")
	case c.KeyLengths != nil:
		return refuse("KeyLengths")
	case c.LSE != nil:
		return refuse("LSE")
	}
	shape := c.shape()
	if dims := g.headDims(); !slices.Contains(dims, shape.HeadDim) {
		return refuse("the head dim is %d; the kernels have %s", shape.HeadDim, strings.Trim(fmt.Sprint(dims), "[]"))
	}
	if err := launch.CheckGrid(shape); err != nil {
		return refuse("%v", err)
	}
	return nil
}

// headDims are those of the selection's variants, in order.
func (g *gpu) headDims() []int {
	var dims []int
	for _, v := range g.selection.Variants() {
		dim, _ := v.Value(launch.HeadDimKnob)
		dims = append(dims, dim)
	}
	slices.Sort(dims)
	return slices.Compact(dims)
}

// shape is the call as the selection sees it.
func (c *call) shape() tensor.Shape {
	s := tensor.Shape{Batch: c.batch, Heads: c.heads, SeqQ: c.queries, SeqK: c.keys, HeadDim: c.dim, Causal: c.Causal}
	if c.kvHeads != c.heads {
		s.KVHeads = c.kvHeads
	}
	return s
}

// attend launches the kernel for a call and waits for it.
func (g *gpu) attend(ctx context.Context, c *call, all [4]*operand) error {
	shape := c.shape()
	form, err := g.form(ctx, shape)
	if err != nil {
		return err
	}
	var at [4]gpuTensor
	for i, x := range all {
		if at[i], err = g.place(i, x); err != nil {
			return err
		}
	}
	if err := context.Cause(ctx); err != nil { // the copies of long tensors take a while
		return fmt.Errorf("sdpa: %w", err)
	}
	if err := g.launch(form, shape, c.scale, at); err != nil {
		return err
	}
	if o := all[3].host; o != nil {
		return g.wrap(g.machine.Read(o.Data, at[3].data))
	}
	return nil
}

// form loads the variant that the selection chooses for a shape.
func (g *gpu) form(ctx context.Context, shape tensor.Shape) (*loaded, error) {
	if form := g.chosen[shape]; form != nil {
		return form, nil
	}
	choice, err := g.selection.Choose(shape)
	if err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	form, err := g.load(ctx, choice.Variant)
	if err != nil {
		return nil, err
	}
	if len(g.chosen) >= maxChosen {
		clear(g.chosen)
	}
	g.chosen[shape] = form
	return form, nil
}

// load loads a variant once.
func (g *gpu) load(ctx context.Context, v spec.Variant) (*loaded, error) {
	if form := g.forms[v.String()]; form != nil {
		return form, nil
	}
	knobs := map[string]int{}
	for _, s := range v.Values() {
		knobs[s.Knob] = s.Value
	}
	stage := v.Stage()
	image, _, err := g.builder.Build(ctx, toolchain.Target{
		Kernel: stage.Kernel().Name, Variant: v.String(), Source: stage.Source, Arch: g.arch, Knobs: knobs, Contract: true,
	})
	if err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	form := &loaded{image: image}
	if form.function, err = g.machine.Load(image.PTX, image.Record.EntryName()); err != nil {
		return nil, g.wrap(err)
	}
	g.forms[v.String()] = form
	return form, nil
}

// place returns the memory of an operand. Host tensors are copied to the staging memory of their
// position; the output is not.
func (g *gpu) place(i int, x *operand) (gpuTensor, error) {
	if x.remote != nil {
		return x.remote.remote, nil
	}
	to := &g.staging[i]
	heads := x.host.heads()
	if len(x.host.Data) > to.bytes || heads > to.heads {
		if err := g.free(*to); err != nil {
			return gpuTensor{}, err
		}
		*to = gpuTensor{}
		fresh, err := g.alloc(len(x.host.Data), heads)
		if err != nil {
			return gpuTensor{}, err
		}
		*to = fresh
	}
	if i == launch.ArgumentO {
		return *to, nil
	}
	return *to, g.copyIn(*to, x.host)
}

// launch runs a kernel on tensors in the memory of the GPU.
func (g *gpu) launch(form *loaded, shape tensor.Shape, scale float64, at [4]gpuTensor) error {
	elements := func(heads, rows int) device.Arg { return device.Out(heads * rows * shape.HeadDim) }
	q, kv := shape.HeadCount(), shape.KVHeadCount()
	job := launch.Job(form.image, form.image.PTX, g.machine.Facts(), shape, scale, launch.Inputs{
		Q: elements(q, shape.SeqQ), K: elements(kv, shape.SeqK), V: elements(kv, shape.SeqK),
		DescaleQ: device.Out(4 * q), DescaleK: device.Out(4 * kv), DescaleV: device.Out(4 * kv),
	})
	addresses := make([]device.Address, len(job.Args))
	for i, t := range at {
		addresses[i] = t.data
		if i < launch.ArgumentO {
			addresses[launch.ArgumentO+1+i] = t.descale
		}
	}
	values, err := device.Values(g.machine, job, addresses)
	if err != nil {
		return g.wrap(err)
	}
	return g.wrap(g.machine.Launch(form.function, &job, values))
}

// wrap names the package in an error of the machine. After a fault of a kernel the context is lost,
// and with it the device.
func (g *gpu) wrap(err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("sdpa: %w", err)
	if device.Classify(err).LosesDevice() {
		g.lost = err
	}
	return err
}

// alloc allocates memory for a tensor and its factors.
func (g *gpu) alloc(bytes, heads int) (gpuTensor, error) {
	t := gpuTensor{bytes: bytes, heads: heads}
	for _, part := range []struct {
		into *device.Address
		size int
	}{{&t.data, bytes}, {&t.descale, 4 * heads}} {
		address, err := g.machine.Alloc(part.size)
		if err != nil {
			return gpuTensor{}, errors.Join(g.wrap(err), g.free(t))
		}
		*part.into = address
		g.live[address] = true
	}
	return t, nil
}

// copyIn copies a tensor and its factors to the GPU.
func (g *gpu) copyIn(to gpuTensor, x *Tensor) error {
	if err := g.machine.Write(to.data, x.Data); err != nil {
		return g.wrap(err)
	}
	to.heads = x.heads() // staging memory may have room for more
	return g.writeFactors(to, x.descale)
}

// writeFactors writes the factor of each head.
func (g *gpu) writeFactors(to gpuTensor, factor func(head int) float32) error {
	factors := make([]float32, to.heads)
	for i := range factors {
		factors[i] = factor(i)
	}
	data := make([]byte, 4*len(factors))
	vectors.narrow(data, factors, FP32)
	return g.wrap(g.machine.Write(to.descale, data))
}

// upload copies a tensor to memory of its own.
func (g *gpu) upload(x *Tensor) (gpuTensor, error) {
	t, err := g.alloc(len(x.Data), x.heads())
	if err != nil {
		return gpuTensor{}, err
	}
	t.factors = slices.Clone(x.Descale)
	if err := g.copyIn(t, x); err != nil {
		return gpuTensor{}, errors.Join(err, g.free(t))
	}
	return t, nil
}

// zeros allocates a tensor of zeros. They are written in parts, so that a large tensor needs no copy
// in host memory.
func (g *gpu) zeros(bytes, heads int) (gpuTensor, error) {
	t, err := g.alloc(bytes, heads)
	if err != nil {
		return gpuTensor{}, err
	}
	part := make([]byte, min(bytes, 1<<20))
	for done := 0; done < bytes; done += len(part) {
		if err := g.machine.Write(t.data+device.Address(done), part[:min(len(part), bytes-done)]); err != nil {
			return gpuTensor{}, errors.Join(g.wrap(err), g.free(t))
		}
	}
	if err := g.writeFactors(t, func(int) float32 { return 1 }); err != nil {
		return gpuTensor{}, errors.Join(err, g.free(t))
	}
	return t, nil
}

// free releases the memory of a tensor, whose addresses may be 0.
func (g *gpu) free(t gpuTensor) error {
	var all []error
	for _, address := range []device.Address{t.data, t.descale} {
		if address != 0 {
			delete(g.live, address)
			all = append(all, g.wrap(g.machine.Free(address)))
		}
	}
	return errors.Join(all...)
}

// download copies a tensor to host memory.
func (g *gpu) download(from gpuTensor, t DType, shape [4]int) (*Tensor, error) {
	x := &Tensor{DType: t, Shape: shape, Data: make([]byte, from.bytes), Descale: slices.Clone(from.factors)}
	return x, g.wrap(g.machine.Read(x.Data, from.data))
}

// write replaces the elements of a tensor.
func (g *gpu) write(to gpuTensor, data []byte) error { return g.wrap(g.machine.Write(to.data, data)) }
