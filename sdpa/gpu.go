//go:build linux || darwin

package sdpa

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/device/cuda"
	"attune/internal/form"
	"attune/internal/spec"
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
	table     *form.Table
	forms     map[string]*loaded // by variant
	live      map[device.Address]bool
	staging   [4]gpuTensor         // memory for q, k, v and o of calls with host tensors
	arrays    map[string]gpuTensor // memory for the options of a call, by their names
	workspace gpuTensor            // its first bytes are zero between calls
	lost      error                // after a kernel has failed
}

// loaded is a form that is ready to launch.
type loaded struct {
	*form.Form
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
	table, err := form.NewTable(selection, selection.Archs[index])
	if err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	return &Device{name: facts.Name, gpu: &gpu{
		machine: machine, table: table, forms: map[string]*loaded{}, live: map[device.Address]bool{}, arrays: map[string]gpuTensor{},
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
	_, err := g.plan(c, all, func(string) gpuTensor { return gpuTensor{data: 1, descale: 1} })
	return err
}

// plan chooses the forms for a call whose tensors and options are at addresses.
func (g *gpu) plan(c *call, all [4]*operand, at func(name string) gpuTensor) (*form.Call, error) {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("sdpa: %s: %w; set Fallback to use the CPU", fmt.Sprintf(format, args...), ErrUnsupported)
	}
	switch {
	case all[0].dtype == FP32 || all[1].dtype == FP32:
		return nil, refuse("q is %s and k %s; the kernels take E4M3, FP16 and BF16", all[0].dtype, all[1].dtype)
	case all[3].dtype == FP32:
		return nil, refuse("o is FP32; the kernels write FP16 and BF16")
	case all[1].dtype != E4M3 && all[0].dtype != all[1].dtype:
		return nil, refuse("q is %s and k %s; k and v in 16 bits need q in the same", all[0].dtype, all[1].dtype)
	case c.QueryLengths != nil:
		return nil, refuse("QueryLengths")
	case c.PageTable != nil && all[1].shape[2]%pageUnit != 0:
		return nil, refuse("pages of %d keys; the kernels take multiples of %d", all[1].shape[2], pageUnit)
	}
	call, err := g.table.Plan(c.problem(all, at))
	if errors.Is(err, form.ErrUnsupported) {
		return nil, refuse("%s", strings.TrimSuffix(err.Error(), ": "+form.ErrUnsupported.Error()))
	}
	if err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	return call, nil
}

// pageUnit divides the keys of a page.
const pageUnit = 64

// maxPages is the number of pages of the longest sequence.
func (c *call) maxPages(pageSize int) int { return ceilDiv(c.keys, pageSize) }

// problem is a call as the kernels see it.
func (c *call) problem(all [4]*operand, at func(name string) gpuTensor) form.Problem {
	p := form.Problem{
		Batch: c.batch, Heads: c.heads, KVHeads: c.kvHeads, Queries: c.queries, Keys: c.keys, HeadDim: c.dim,
		Causal: c.Causal, WindowLeft: c.left, WindowRight: c.right, Scale: float32(c.scale),
	}
	types := map[DType]array.DType{E4M3: array.E4M3, FP16: array.F16, BF16: array.BF16}
	for i, into := range []*form.Tensor{&p.Q, &p.K, &p.V, &p.O} {
		x := at(all[i].name)
		into.Address, into.Type = x.data, types[all[i].dtype]
		if i < 3 && all[i].dtype == E4M3 {
			*[]*device.Address{&p.DescaleQ, &p.DescaleK, &p.DescaleV}[i] = x.descale
		}
	}
	for _, option := range []struct {
		into  *device.Address
		name  string
		given bool
	}{
		{&p.LSE, "LSE", c.LSE != nil},
		{&p.Sinks, "Sinks", c.Sinks != nil},
		{&p.KeyLengths, "KeyLengths", c.KeyLengths != nil},
		{&p.CuQueries, "QueryOffsets", c.QueryOffsets != nil},
		{&p.CuKeys, "KeyOffsets", c.KeyOffsets != nil},
		{&p.PageTable, "PageTable", c.PageTable != nil},
	} {
		if option.given {
			*option.into = at(option.name).data
		}
	}
	if c.QueryOffsets != nil {
		p.TotalQueries = all[0].shape[2]
	}
	if c.KeyOffsets != nil {
		p.TotalKeys = all[1].shape[2]
	}
	if c.PageTable != nil {
		p.Pages, p.PageSize, p.MaxPages = all[1].shape[0], all[1].shape[2], c.maxPages(all[1].shape[2])
	}
	return p
}

// attend launches the kernels of a call and waits for them.
func (g *gpu) attend(ctx context.Context, c *call, all [4]*operand) error {
	at := map[string]gpuTensor{}
	for i, x := range all {
		t, err := g.place(i, x)
		if err != nil {
			return err
		}
		at[x.name] = t
	}
	if err := g.placeOptions(c, all, at); err != nil {
		return err
	}
	plan, err := g.plan(c, all, func(name string) gpuTensor { return at[name] })
	if err != nil {
		return err
	}
	if err := g.launch(ctx, plan); err != nil {
		return err
	}
	if c.LSE != nil {
		if err := g.readLSE(c, at["LSE"]); err != nil {
			return err
		}
	}
	if o := all[3].host; o != nil {
		return g.wrap(g.machine.Read(o.Data, at["o"].data))
	}
	return nil
}

// placeOptions copies the arrays of a problem to the GPU, and allocates that of the log-sum-exp.
func (g *gpu) placeOptions(c *call, all [4]*operand, at map[string]gpuTensor) error {
	var sinks []byte
	if c.Sinks != nil {
		sinks = make([]byte, 4*len(c.Sinks))
		vectors.narrow(sinks, c.Sinks, FP32)
	}
	arrays := map[string][]byte{
		"Sinks": sinks, "KeyLengths": int32s(c.KeyLengths), "QueryOffsets": int32s(c.QueryOffsets), "KeyOffsets": int32s(c.KeyOffsets),
	}
	if c.PageTable != nil {
		width := c.maxPages(all[1].shape[2])
		for _, row := range c.PageTable {
			padded := append(slices.Clone(row[:min(width, len(row))]), make([]int, max(width-len(row), 0))...)
			arrays["PageTable"] = append(arrays["PageTable"], int32s(padded)...)
		}
	}
	for name, data := range arrays {
		if data == nil {
			continue
		}
		if err := g.array(name, len(data), at); err != nil {
			return err
		}
		if err := g.wrap(g.machine.Write(at[name].data, data)); err != nil {
			return err
		}
	}
	if c.LSE != nil {
		if err := g.array("LSE", 4*len(c.LSE), at); err != nil {
			return err
		}
	}
	return g.placeFactors(c, all, at)
}

// placeFactors writes the factors of packed and paged tensors in E4M3, which have those of a head
// once: the kernels read them for each sequence.
func (g *gpu) placeFactors(c *call, all [4]*operand, at map[string]gpuTensor) error {
	for i, x := range all[:3] {
		shared := c.QueryOffsets != nil && i == 0 || (c.KeyOffsets != nil || c.PageTable != nil) && i > 0
		if !shared || x.dtype != E4M3 {
			continue
		}
		heads, factors := x.shape[1], x.factors()
		scaled, name := at[x.name], "factors of "+x.name
		if err := g.array(name, 4*c.batch*heads, at); err != nil {
			return err
		}
		to := gpuTensor{descale: at[name].data, heads: c.batch * heads}
		if err := g.writeFactors(to, func(i int) float32 {
			if factors == nil {
				return 1
			}
			return factors[i%heads]
		}); err != nil {
			return err
		}
		scaled.descale = to.descale
		at[x.name] = scaled
	}
	return nil
}

// int32s are integers as the kernels read them; nil for none.
func int32s(numbers []int) []byte {
	var data []byte
	for _, n := range numbers {
		data = binary.LittleEndian.AppendUint32(data, uint32(int32(n)))
	}
	return data
}

// array finds memory of some bytes for an option, which later calls use again.
func (g *gpu) array(name string, bytes int, at map[string]gpuTensor) error {
	if g.arrays[name].bytes < bytes {
		fresh, err := g.grown(g.arrays[name], bytes, 0)
		g.arrays[name] = fresh
		if err != nil {
			return err
		}
	}
	at[name] = g.arrays[name]
	return nil
}

// grown replaces memory by larger memory.
func (g *gpu) grown(old gpuTensor, bytes, heads int) (gpuTensor, error) {
	if err := g.free(old); err != nil {
		return gpuTensor{}, err
	}
	return g.alloc(bytes, heads)
}

// readLSE copies the log-sum-exp to the host. The kernels write minus infinity for a row without keys
// also if it has a sink, whose logarithm it then is.
func (g *gpu) readLSE(c *call, from gpuTensor) error {
	data := make([]byte, 4*len(c.LSE))
	if err := g.wrap(g.machine.Read(data, from.data)); err != nil {
		return err
	}
	vectors.widen(c.LSE, data, FP32)
	if c.Sinks == nil {
		return nil
	}
	rows := c.queries
	if c.QueryOffsets != nil {
		rows = len(c.LSE) / c.heads
	}
	for i, lse := range c.LSE {
		if math.IsInf(float64(lse), -1) {
			c.LSE[i] = c.Sinks[i/rows%c.heads]
		}
	}
	return nil
}

// launch launches the kernels of a plan, one after the other.
func (g *gpu) launch(ctx context.Context, plan *form.Call) error {
	if g.workspace.bytes < plan.WorkspaceBytes {
		if err := g.growWorkspace(plan.WorkspaceBytes); err != nil {
			return err
		}
	}
	functions := map[string]device.Function{}
	for _, f := range []**form.Form{&plan.Quantiser, &plan.Form} {
		if *f == nil {
			continue
		}
		l, err := g.load(ctx, *f)
		if err != nil {
			return err
		}
		*f, functions[l.Variant()] = l.Form, l.function
	}
	if err := context.Cause(ctx); err != nil { // the copies of long tensors take a while
		return fmt.Errorf("sdpa: %w", err)
	}
	for _, l := range plan.Launches(g.workspace.data, g.machine.Facts()) {
		values, err := device.Values(g.machine, l.Job, l.Addresses)
		if err != nil {
			return g.wrap(err)
		}
		if err := g.wrap(g.machine.Launch(functions[l.Form.Variant()], &l.Job, values)); err != nil {
			return err
		}
	}
	return nil
}

// growWorkspace allocates a workspace whose counters are zero.
func (g *gpu) growWorkspace(bytes int) error {
	var err error
	if g.workspace, err = g.grown(g.workspace, bytes, 0); err != nil {
		return err
	}
	if err := g.wrap(g.machine.Write(g.workspace.data, make([]byte, form.ZeroedBytes))); err != nil {
		old := g.workspace
		g.workspace = gpuTensor{}
		return errors.Join(err, g.free(old))
	}
	return nil
}

// load loads a form once.
func (g *gpu) load(ctx context.Context, f *form.Form) (*loaded, error) {
	if l := g.forms[f.Variant()]; l != nil {
		return l, nil
	}
	image, _, err := toolchain.NewBuilder(f.Folder(), nil, "").Build(ctx, f.Target)
	if err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	l := &loaded{Form: f}
	if f.Kernel == form.DenseKernel {
		l.Form = form.Dense(image)
	}
	if l.function, err = g.machine.Load(image.PTX, image.Record.EntryName()); err != nil {
		return nil, g.wrap(err)
	}
	g.forms[f.Variant()] = l
	return l, nil
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
		fresh, err := g.grown(*to, len(x.host.Data), heads)
		*to = fresh
		if err != nil {
			return gpuTensor{}, err
		}
	}
	if x.name == "o" {
		return *to, nil
	}
	return *to, g.copyIn(*to, x.host)
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

// alloc allocates memory for a tensor and the factors of its heads.
func (g *gpu) alloc(bytes, heads int) (gpuTensor, error) {
	t := gpuTensor{bytes: bytes, heads: heads}
	for _, part := range []struct {
		into *device.Address
		size int
	}{{&t.data, bytes}, {&t.descale, 4 * heads}} {
		if part.size == 0 {
			continue
		}
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
