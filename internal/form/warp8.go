package form

import (
	"math"

	"attune/internal/arch"
	"attune/internal/array"
	"attune/internal/device"
)

// attune_warp8.c has the same choice.

// Rows and keys of a group that has a factor for each of its lanes (docs/warp8.md), and rows of a tile
// of the quantiser's first pass, of a warp of its second pass.
const (
	factorRows, factorsOfRows = 32, 8
	factorKeys, factorsOfKeys = 64, 4
	columnTileRows            = 128
	unitRows                  = 16
	lanesOfWarp               = 32
)

// hasE4M3Products reports whether mma.sync multiplies E4M3 on a device as fast as s8, or faster. GPUs
// before sm_89 have no such products. On Hopper mma.sync emulates them, and those of sm_100 to sm_110
// are not known.
func hasE4M3Products(device string) bool {
	number, _ := arch.Number(device)
	return number == 89 || number >= 120
}

// isIn8Bits reports whether all of q, k and v are in 8 bits, as they are given or quantised.
func (p *Problem) isIn8Bits() bool {
	return p.Q.Type == array.E4M3 || p.Precision == FP8 && p.K.Type != array.E4M3
}

// planWarp8 plans a problem in 8 bits on a GPU that the kernels for Hopper are not for. E4M3 tensors are
// taken as they are. Others become s8, but for V where there are no products of E4M3.
func (t *Table) planWarp8(p Problem) (*Call, error) {
	device := t.facts.Arch
	given := p.Q.Type == array.E4M3
	e4m3V := given || hasE4M3Products(device)
	switch {
	case p.hasOptions():
		return nil, unsupported("no form of 8 bits for %s has this option", device)
	case p.manyKeys():
		return nil, unsupported("%d batches of %d heads and %d keys are more than 2^31 elements", p.Batch, p.KVHeads, p.Keys)
	case !e4m3V && p.O.Type != p.V.Type:
		return nil, unsupported("v is %s and o %s; in 8 bits on %s both are F16 or both BF16", p.V.Type, p.O.Type, device)
	}
	form := t.find(Warp8, p.HeadDim, func(f *Form) bool {
		return arch.Runs(f.Target.Arch, true, device) && f.hasColumns(&p) && f.E4M3V == e4m3V && f.BF16 == (p.O.Type == array.BF16) &&
			(f.Cache == array.E4M3) == given && f.blocksOn(t.facts) > 0
	})
	c := &Call{Form: form, problem: p}
	switch {
	case form == nil && given && !arch.Runs(e4m3Arch, true, device):
		return nil, unsupported("q is %s, which %s does not multiply; q is F16 or BF16, and k and v the same, or %s", p.Q.Type, device, p.Q.Type)
	case form == nil:
		return nil, unsupported("q is %s, the head dim %d and that of v %d; no form of 8 bits for %s has them", p.Q.Type, p.HeadDim, p.VHeadDim, device)
	case form.warpTiles(&p) > math.MaxInt32:
		return nil, unsupported("%d batches of %d heads and %d queries are more than 2^31 tiles", p.Batch, p.Heads, p.Queries)
	case given:
		return c, nil
	}
	return c, t.quantise8(c)
}

// quantise8 plans the quantiser of a call.
func (t *Table) quantise8(c *Call) error {
	p, e4m3V := &c.problem, c.Form.E4M3V
	c.Quantiser = t.find(Quantize8, p.HeadDim, func(f *Form) bool { return f.E4M3V == e4m3V })
	c.cast = cast{
		q: p.Q, k: p.K, v: p.V, batch: p.Batch, heads: p.Heads, copies: 1, qRows: p.Queries, kvRows: p.Keys, keepsV: !e4m3V,
		bf16: p.Q.Type == array.BF16,
	}
	switch {
	case c.Quantiser == nil:
		return unsupported("there is no quantiser for %s", c.Form.Variant())
	case c.units8() > math.MaxInt32:
		return unsupported("%d batches of %d heads are more than 2^31 units of the quantiser", p.Batch, p.Heads)
	}
	p.Q, p.K = quantised(p.Q, p.HeadDim), quantised(p.K, p.HeadDim)
	if e4m3V {
		p.V = quantised(p.V, p.HeadDim)
	}
	c.layOut8()
	return nil
}

// units8 are the runs of 16 rows that the warps of the quantiser share.
func (c *Call) units8() float64 {
	p, z := &c.problem, &c.cast
	ofKV := factorKeys / unitRows * ceilDiv(z.kvRows, factorKeys)
	if !z.keepsV {
		ofKV += ceilDiv(z.kvRows, unitRows)
	}
	return float64(p.Batch)*float64(p.Heads)*float64(factorRows/unitRows*ceilDiv(z.qRows, factorRows)) + float64(p.Batch)*float64(p.KVHeads)*float64(ofKV)
}

// columnBytes8 is the workspace of the quantiser: its counter, and the columns of K and V of each tile
// of rows and of all.
func (c *Call) columnBytes8() int {
	p := &c.problem
	return quantizeCounterBytes + 4*2*p.Batch*p.KVHeads*p.HeadDim*(1+ceilDiv(p.Keys, columnTileRows))
}

// factors8 are the factors of a head of Q and of K.
func (p *Problem) factors8() (q, k int) {
	return factorsOfRows * ceilDiv(p.Queries, factorRows), factorsOfKeys * ceilDiv(p.Keys, factorKeys)
}

// layOut8 sets the offsets in the workspace of a call that quantises. The workspace of the quantiser
// begins with the last of the counters.
func (c *Call) layOut8() {
	p, z := &c.problem, &c.cast
	w := layout{ZeroedBytes - quantizeCounterBytes + c.columnBytes8()}
	heads, kvHeads := p.Batch*p.Heads, p.Batch*p.KVHeads
	ofQ, ofK := p.factors8()
	z.yQ, z.descaleQ = w.reserve(heads*p.Queries*p.HeadDim), w.reserve(4*heads*ofQ)
	z.yK = w.reserve(kvHeads * p.Keys * p.HeadDim)
	if !z.keepsV {
		z.yV = w.reserve(kvHeads * p.Keys * p.HeadDim)
	}
	z.descaleK = w.reserve(4 * kvHeads * ofK)
	if !z.keepsV {
		z.descaleV = w.reserve(4 * kvHeads * p.HeadDim)
	}
	z.mean = w.reserve(4 * kvHeads * p.HeadDim)
	if p.LSE != 0 {
		z.qDotMean = w.reserve(4 * heads * p.Queries)
	}
	c.WorkspaceBytes = w.end
}

// qDotMean8 is the address of the products of the rows of Q with the means of K; 0 without any.
func (c *Call) qDotMean8(workspace device.Address) device.Address {
	if c.cast.qDotMean == 0 {
		return 0
	}
	return workspace + device.Address(c.cast.qDotMean)
}

// quantisation8 is the launch of quantize8, with all blocks resident.
func (c *Call) quantisation8(workspace device.Address, p *Problem, facts device.Facts) Launch {
	z, v := &c.cast, values{}
	heads, kvHeads := p.Batch*p.Heads, p.Batch*p.KVHeads
	ofQ, ofK := p.factors8()
	y, descale := p.V.Address, p.DescaleV
	if z.keepsV {
		y, descale, z.v.Address = 0, 0, 0
	}
	for name, t := range map[string]*Tensor{"q": &z.q, "k": &z.k, "v": &z.v} {
		v.pointer(name, t.Address, t.bytes())
		v.strides(name+"_%s_stride", t.Strides)
	}
	v.pointer("y_q", p.Q.Address, heads*p.Queries*p.HeadDim)
	v.pointer("y_k", p.K.Address, kvHeads*p.Keys*p.HeadDim)
	v.pointer("y_v", y, kvHeads*p.Keys*p.HeadDim)
	v.pointer("descale_q", p.DescaleQ, 4*heads*ofQ)
	v.pointer("descale_k", p.DescaleK, 4*kvHeads*ofK)
	v.pointer("descale_v", descale, 4*kvHeads*p.HeadDim)
	v.pointer("mean_k", workspace+device.Address(z.mean), 4*kvHeads*p.HeadDim)
	v.pointer("q_dot_mean", c.qDotMean8(workspace), 4*heads*p.Queries)
	v.pointer("workspace", workspace+ZeroedBytes-quantizeCounterBytes, c.columnBytes8())
	v.int32s(map[string]int{
		"batch": p.Batch, "heads": p.Heads, "kv_heads": p.KVHeads, "q_rows": p.Queries, "kv_rows": p.Keys, "dim": p.HeadDim, "bf16": toInt(z.bf16), "smooth": 1,
	})
	f := c.Quantiser
	blocks := min(ceilDiv(int(c.units8()), f.Threads/lanesOfWarp), f.MaxBlocks, f.BlocksPerMultiprocessor*facts.Multiprocessors)
	return f.launch([3]int{blocks, 1, 1}, v, nil)
}

// addWarp8 adds the values of the warp8 kernel alone.
func (c *Call) addWarp8(v values, p *Problem, workspace device.Address, facts device.Facts) {
	v.int32s(map[string]int{"section": c.Form.section(p, facts)})
	v.pointer("q_s8", p.Q.Address, p.Q.bytes())
	v.pointer("k_s8", p.K.Address, p.K.bytes())
	v.pointer("q_dot_mean", c.qDotMean8(workspace), 4*p.Batch*p.Heads*p.Queries)
	if c.Quantiser == nil {
		return
	}
	ofQ, ofK := p.factors8()
	v.pointer("descale_q", p.DescaleQ, 4*p.Batch*p.Heads*ofQ)
	v.pointer("descale_k", p.DescaleK, 4*p.Batch*p.KVHeads*ofK)
	v.pointer("descale_v", p.DescaleV, 4*p.Batch*p.KVHeads*p.HeadDim)
}
