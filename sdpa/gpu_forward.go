//go:build linux || darwin

package sdpa

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/form"
	"attune/internal/toolchain"
)

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
	case c.PageTable != nil && all[1].shape[2]%form.PageUnit != 0:
		return nil, refuse("pages of %d keys; the kernels take multiples of %d", all[1].shape[2], form.PageUnit)
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

// maxPages is the number of pages of the longest sequence.
func (c *call) maxPages(pageSize int) int { return ceilDiv(c.keys, pageSize) }

// problem is a call as the kernels see it.
func (c *call) problem(all [4]*operand, at func(name string) gpuTensor) form.Problem {
	p := form.Problem{
		Batch: c.batch, Heads: c.heads, KVHeads: c.kvHeads, Queries: c.queries, Keys: c.keys, HeadDim: c.dim, VHeadDim: c.vDim,
		Precision: form.Precision(c.Precision), Causal: c.Causal, WindowLeft: c.left, WindowRight: c.right, Scale: float32(c.scale), Softcap: float32(c.Softcap),
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
		{&p.AlibiSlopes, "AlibiSlopes", c.AlibiSlopes != nil},
		{&p.TreeMask, "TreeMask", c.TreeMask != nil},
		{&p.KeyLengths, "KeyLengths", c.KeyLengths != nil},
		{&p.CuQueries, "QueryOffsets", c.QueryOffsets != nil},
		{&p.CuKeys, "KeyOffsets", c.KeyOffsets != nil},
		{&p.PageTable, "PageTable", c.PageTable != nil},
	} {
		if option.given {
			*option.into = at(option.name).data
		}
	}
	if len(c.AlibiSlopes) > c.heads {
		p.AlibiStride = c.heads
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
	var tree []byte
	for _, word := range c.TreeMask {
		tree = binary.LittleEndian.AppendUint64(tree, word)
	}
	arrays := map[string][]byte{
		"Sinks": float32s(c.Sinks), "AlibiSlopes": float32s(c.AlibiSlopes), "TreeMask": tree, "KeyLengths": int32s(c.KeyLengths), "QueryOffsets": int32s(c.QueryOffsets), "KeyOffsets": int32s(c.KeyOffsets),
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

// float32s are numbers as the kernels read them; nil for none.
func float32s(numbers []float32) []byte {
	if numbers == nil {
		return nil
	}
	data := make([]byte, 4*len(numbers))
	vectors.narrow(data, numbers, FP32)
	return data
}

// int32s are integers as the kernels read them; nil for none.
func int32s(numbers []int) []byte {
	var data []byte
	for _, n := range numbers {
		data = binary.LittleEndian.AppendUint32(data, uint32(int32(n)))
	}
	return data
}

// readLSE copies the log-sum-exp to the host.
func (g *gpu) readLSE(c *call, from gpuTensor) error {
	data := make([]byte, 4*len(c.LSE))
	if err := g.wrap(g.machine.Read(data, from.data)); err != nil {
		return err
	}
	vectors.widen(c.LSE, data, FP32)
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
	image, _, err := toolchain.NewBuilder(f.Folder, nil, "").Build(ctx, f.Target)
	if err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	ready := *f
	ready.Image = image
	l := &loaded{Form: &ready}
	if f.Kernel == form.DenseKernel {
		l.Form = form.Dense(image)
	}
	if l.function, err = g.machine.Load(l.PTX(), image.Record.EntryName()); err != nil {
		return nil, g.wrap(err)
	}
	g.forms[f.Variant()] = l
	return l, nil
}
