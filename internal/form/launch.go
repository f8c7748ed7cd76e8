package form

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/tensor"
	"attune/internal/tensormap"
	"attune/internal/toolchain"
)

// Launch is a launch of a form on addresses, which are by argument.
type Launch struct {
	Form      *Form
	Job       device.Job
	Addresses []device.Address
}

// value is what an argument gets. A null pointer is a scalar.
type value struct {
	arg     device.Arg
	address device.Address
}

// values are what a problem gives to arguments, by their names in kernel.toml.
type values map[string]value

// pointer sets the address of a buffer of some bytes.
func (v values) pointer(name string, address device.Address, bytes int) {
	if address == 0 {
		v[name] = value{arg: device.Arg{Scalar: make([]byte, 8)}}
		return
	}
	v[name] = value{device.Out(bytes), address}
}

func (v values) int32s(numbers map[string]int) {
	for name, n := range numbers {
		v[name] = value{arg: device.Int32(int32(n))}
	}
}

func (v values) strides(format string, strides [3]int) {
	for i, dimension := range []string{"batch", "head", "row"} {
		v[fmt.Sprintf(format, dimension)] = value{arg: device.Arg{Scalar: binary.LittleEndian.AppendUint64(nil, uint64(strides[i]))}}
	}
}

// launch is the launch of a form on values. maps describes the tensors that the form has maps of.
func (f *Form) launch(grid [3]int, v values, maps func(*Map) *tensormap.Map) Launch {
	l := Launch{Form: f, Job: device.Job{
		Entry: f.Target.EntryName(), Grid: grid, Block: [3]int{f.Threads, 1, 1}, DynamicSharedBytes: f.SharedBytes, Cooperative: f.Cooperative,
	}}
	if f.Cluster > 1 {
		l.Job.Cluster = [3]int{f.Cluster, 1, 1}
	}
	for _, a := range f.Arguments {
		if a.Map != nil {
			l.Job.Args = append(l.Job.Args, device.Arg{Name: a.Name, TensorMap: &device.TensorMap{Arg: f.indexOf(a.Map), Map: *maps(a.Map)}})
			l.Addresses = append(l.Addresses, 0)
			continue
		}
		x, known := v[a.Name]
		if !known {
			panic(fmt.Sprintf("BUG: %s has the argument %s, for which there is no value", f.Variant(), a.Name))
		}
		x.arg.Name = a.Name
		l.Job.Args, l.Addresses = append(l.Job.Args, x.arg), append(l.Addresses, x.address)
	}
	return l
}

// indexOf is the argument that a map describes.
func (f *Form) indexOf(m *Map) int {
	name := Tensors[m.Tensor]
	return slices.IndexFunc(f.Arguments, func(a Argument) bool { return a.Name == name || name == "o" && a.Name == "output" })
}

// Launches are those of a call, in order. Its forms have their images; the workspace has the size
// that the call says.
func (c *Call) Launches(workspace device.Address, facts device.Facts) []Launch {
	var all []Launch
	p := c.place(workspace)
	switch {
	case c.Quantiser == nil:
	case c.Quantiser.Kernel == Quantize8:
		all = append(all, c.quantisation8(workspace, &p, facts))
	default:
		all = append(all, c.quantisation(workspace, &p))
	}
	grid, even := c.Form.grid(&p, facts)
	v := p.values(c.Form)
	v.int32s(map[string]int{"even_blocks": even})
	if c.Form.Kernel == Decode {
		v.pointer("arrived", workspace, counterBytes)
		v.pointer("parts", workspace+device.Address(c.parts), c.Form.partBytes(facts.Multiprocessors))
	}
	switch c.Form.Kernel {
	case Warp:
		c.addWarp(v, workspace, facts)
	case Warp8:
		c.addWarp8(v, &p, workspace, facts)
	}
	if c.countsTiles() {
		v.pointer("counters", workspace, tileCounterBytes)
	}
	return append(all, c.Form.launch(grid, v, p.tensorMap))
}

// quantisation is the launch of the cast, with a block for each tile.
func (c *Call) quantisation(workspace device.Address, p *Problem) Launch {
	z, dim, v := &c.cast, p.HeadDim, values{}
	tensors := []struct {
		name     string
		in       Tensor
		y        device.Address
		factors  device.Address
		heads    int
		quantise bool
	}{
		{"q", z.q, p.Q.Address, p.DescaleQ, z.heads, z.qRows > 0},
		{"k", z.k, p.K.Address, p.DescaleK, p.KVHeads, z.kvRows > 0},
		{"v", z.v, p.V.Address, p.DescaleV, p.KVHeads, z.kvRows > 0},
	}
	for _, t := range tensors {
		v.strides(t.name+"_%s_stride", t.in.Strides)
		if !t.quantise {
			t.in.Address, t.y, t.factors = 0, 0, 0
		}
		v.pointer(t.name, t.in.Address, t.in.bytes())
		v.pointer("y_"+t.name, t.y, t.in.extents[0]*t.in.extents[1]*t.in.extents[2]*dim)
		v.pointer("descale_"+t.name, t.factors, 4*p.Batch*t.heads)
	}
	v.pointer("counters", workspace, counterBytes)
	rows := c.Quantiser.castRows(dim)
	v.int32s(map[string]int{
		"batch": z.batch, "heads": z.heads, "kv_heads": p.KVHeads, "q_rows": z.qRows, "kv_rows": z.kvRows, "dim": dim, "bf16": toInt(z.bf16), "copies": z.copies,
	})
	tiles := z.batch * (z.heads*ceilDiv(z.qRows, rows) + 2*p.KVHeads*ceilDiv(z.kvRows, rows))
	return c.Quantiser.launch([3]int{tiles, 1, 1}, v, nil)
}

// values are those of attention. attune_attention.c has the same list.
func (p *Problem) values(f *Form) values {
	v := values{}
	q, q16 := p.Q.Address, [2]device.Address{} // FP16, BF16
	if f.Kernel == Decode && p.Q.Type != array.E4M3 {
		q, q16[toInt(p.Q.Type == array.BF16)] = 0, q
	}
	v.pointer("q", q, p.Q.bytes())
	v.pointer("q_fp16", q16[0], p.Q.bytes())
	v.pointer("q_bf16", q16[1], p.Q.bytes())
	if f.Kernel == Mixed {
		v.int32s(map[string]int{"q_bf16": toInt(p.Q.Type == array.BF16)})
	}
	v.pointer("k", p.K.Address, p.K.bytes())
	v.pointer("v", p.V.Address, p.V.bytes())
	outputs := map[array.DType]device.Address{p.O.Type: p.O.Address}
	v.pointer("output", p.O.Address, p.O.bytes())
	v.pointer("o", outputs[array.F16], p.O.bytes())
	v.pointer("o_bf16", outputs[array.BF16], p.O.bytes())
	heads, queries := p.Batch*p.Heads, p.Queries
	qStrides, oStrides, lseStrides := p.Q.Strides, p.O.Strides, [3]int{p.Heads * p.Queries, p.Queries}
	kStrides, vStrides := p.K.Strides, p.V.Strides
	if p.CuKeys != 0 {
		kStrides[0], vStrides[0] = 0, 0
	}
	lse := heads * queries
	if p.CuQueries != 0 { // which alone finds packed rows
		qStrides[0], oStrides[0], lseStrides = 0, 0, [3]int{0, p.TotalQueries}
		lse = p.Heads * p.TotalQueries
	}
	v.pointer("lse", p.LSE, 4*lse)
	v.pointer("descale_q", p.DescaleQ, 4*heads)
	v.pointer("descale_k", p.DescaleK, 4*p.Batch*p.KVHeads)
	v.pointer("descale_v", p.DescaleV, 4*p.Batch*p.KVHeads)
	v.pointer("sinks", p.Sinks, 4*p.Heads)
	v.pointer("cu_queries", p.CuQueries, 4*(p.Batch+1))
	v.pointer("cu_keys", p.CuKeys, 4*(p.Batch+1))
	v.pointer("lengths", p.KeyLengths, 4*p.Batch)
	v.pointer("page_table", p.PageTable, 4*p.Batch*p.MaxPages)
	v.int32s(map[string]int{
		"batch": p.Batch, "heads": heads, "kv_heads": p.KVHeads, "group": p.Heads / p.KVHeads, "queries": queries, "keys": p.Keys,
		"max_pages": p.MaxPages, "page_size": p.PageSize, "causal": toInt(p.Causal), "window_left": p.WindowLeft, "window_right": p.WindowRight,
	})
	v.pointer("counters", 0, 0)
	v.int32s(map[string]int{"head_rows": consumerRows / max(p.packed, 1)})
	v.int32s(map[string]int{"columns": p.HeadDim, "o_columns": p.O.columns, "total_queries": p.TotalQueries, "total_keys": p.allKeys()})
	v["softmax_scale"] = value{arg: device.Float32(p.Scale)}
	v["softcap"] = value{arg: device.Float32(p.Softcap)}
	v.pointer("alibi_slopes", p.AlibiSlopes, 4*(p.Heads+(p.Batch-1)*p.AlibiStride))
	v.pointer("tree_mask", p.TreeMask, 8*cmp.Or(p.TotalQueries, p.Batch*p.Queries))
	v.strides("alibi_stride_%s", [3]int{p.AlibiStride})
	v.strides("q_stride_%s", qStrides)
	v.strides("q_%s_stride", qStrides)
	v.strides("k_stride_%s", kStrides)
	v.strides("v_stride_%s", vStrides)
	v.strides("o_stride_%s", oStrides)
	v.strides("lse_stride_%s", lseStrides)
	return v
}

// addWarp adds the values of the warp kernel alone.
func (c *Call) addWarp(v values, workspace device.Address, facts device.Facts) {
	p := &c.problem
	v.int32s(map[string]int{"section": c.Form.section(p, facts), "splits": p.splits})
	v.pointer("arrived", 0, 0)
	v.pointer("parts", 0, 0)
	if p.splits > 1 {
		v.pointer("arrived", workspace, counterBytes)
		v.pointer("parts", workspace+device.Address(c.parts), c.Form.warpPartBytes(p)*p.splits)
	}
}

// allKeys are the rows of a K/V head: of all pages, of all packed sequences, or of one.
func (p *Problem) allKeys() int {
	if p.PageTable != 0 {
		return min(p.Pages*p.PageSize, math.MaxInt32)
	}
	return p.K.extents[2]
}

// bytes is the memory from the first element of a tensor to its last.
func (t *Tensor) bytes() int {
	elements := t.columns
	for i, extent := range t.extents {
		elements += (extent - 1) * t.Strides[i]
	}
	return max(elements, 0) * t.Type.Bytes()
}

// tensorMap is the map of a tensor. Rows of a contiguous tensor are adjacent, so the bytes that L2
// fetches beyond a box are used soon after.
func (p *Problem) tensorMap(m *Map) *tensormap.Map {
	t := []*Tensor{&p.Q, &p.K, &p.V, &p.O}[m.Tensor]
	size, rows := m.ElementBytes, m.Rows
	switch {
	case p.PageTable != 0 && m.isKV():
		rows = m.pageBox(p.PageSize)
	case Tensors[m.Tensor] == "q":
		rows /= max(p.packed, 1)
	}
	whole := &tensormap.Map{Type: "u8", Box: []int{m.Columns, rows, 1}, Swizzle: "none", OOB: "zero"}
	if size == 2 {
		whole.Type = "bf16" // loads copy bits
		if Tensors[m.Tensor] == "o" && t.Type == array.F16 {
			whole.Type = "f16"
		}
	}
	if m.SwizzleBytes > 0 {
		whole.Swizzle = fmt.Sprintf("%dB", m.SwizzleBytes)
	}
	batch, heads, count := t.extents[0], t.extents[1], t.extents[2]
	if m.Rank == 3 {
		row := t.columns * size
		whole.Dims, whole.Strides, whole.L2Promotion = []int{t.columns, count, batch * heads}, []int{row, count * row}, "256B"
		return whole
	}
	whole.Dims, whole.Box, whole.L2Promotion = []int{t.columns, count, heads, batch}, append(whole.Box, 1), "128B"
	for i := range t.Strides {
		whole.Strides = append(whole.Strides, size*t.Strides[2-i])
	}
	return whole
}

// Inputs are the arguments that a dense form reads: E4M3 codes, and a float32 factor per head.
type Inputs struct {
	Q, K, V                      device.Arg
	DescaleQ, DescaleK, DescaleV device.Arg
}

// ArgumentO is the index of o among the arguments of a dense form.
const ArgumentO = 3

// Job is the launch of an image of the attention kernel on inputs of a shape. Code is the part of the
// image that the device loads.
func Job(image *toolchain.Image, code []byte, facts device.Facts, shape tensor.Shape, scale float64, in Inputs) device.Job {
	f := Dense(image)
	p := Problem{
		Batch: shape.Batch, Heads: shape.Heads, KVHeads: shape.Heads / shape.Group(), Queries: shape.SeqQ, Keys: shape.SeqK, HeadDim: shape.HeadDim,
		Q: Tensor{Type: array.E4M3}, K: Tensor{Type: array.E4M3}, V: Tensor{Type: array.E4M3}, O: Tensor{Type: array.F16},
		Causal: shape.Causal, WindowLeft: -1, WindowRight: -1, Scale: float32(scale),
	}
	if image.Record.Launch.Output == toolchain.BF16 {
		p.O.Type = array.BF16
	}
	p.simplify()
	grid, _ := f.grid(&p, facts)
	v := p.values(f)
	for name, arg := range map[string]device.Arg{
		"q": in.Q, "k": in.K, "v": in.V, "descale_q": in.DescaleQ, "descale_k": in.DescaleK, "descale_v": in.DescaleV,
		"output": device.Out(p.O.bytes()), "lse": device.Out(4 * shape.Rows()),
	} {
		v[name] = value{arg: arg}
	}
	job := f.launch(grid, v, p.tensorMap).Job
	job.Image = code
	for i := range job.Args { // messages number the arguments of the attention kernel
		job.Args[i].Name = ""
	}
	return job
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func ceilDiv(n, by int) int { return (n + by - 1) / by }
