package form

import (
	"errors"
	"fmt"
	"math"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/tensor"
)

// ErrUnsupported is the error of a problem that no form computes.
var ErrUnsupported = errors.New("no kernel computes this")

// Problem is attention on tensors in the memory of a device, as attune_sdpa_params in C. Its sizes
// are those that package tensor accepts. An address of 0 is none.
type Problem struct {
	Batch, Heads, KVHeads, Queries, Keys, HeadDim int // of packed sequences the most rows of one
	VHeadDim                                      int // columns of v and o; 0 for HeadDim

	Q, K, V, O                   Tensor
	DescaleQ, DescaleK, DescaleV device.Address // of tensors in E4M3
	LSE                          device.Address // [batch, heads, queries], or [heads, TotalQueries]

	Precision               Precision // of q, k and v in 16 bits
	Causal                  bool
	WindowLeft, WindowRight int // keys beside the query's own; -1 for no limit
	Scale                   float32
	Softcap                 float32        // scores become Softcap * tanh(score / Softcap); 0 for none
	AlibiSlopes             device.Address // [heads], or [batch, heads] with AlibiStride heads
	AlibiStride             int            // from the slopes of a sequence to those of the next
	TreeMask                device.Address // uint64 [batch, queries], or [TotalQueries]: a bit for each of the last Queries keys
	Sinks                   device.Address // [heads]

	CuQueries, CuKeys         device.Address // int32 [batch + 1]: packed sequences
	TotalQueries, TotalKeys   int            // rows of packed tensors
	KeyLengths                device.Address // int32 [batch]
	PageTable                 device.Address // int32 [batch, MaxPages]; k and v are then pages
	MaxPages, PageSize, Pages int

	packed int // query heads in a tile of pingpong; 0 for one
	splits int // blocks of a tile of warp
}

// Precision is what tensors in 16 bits are computed in.
type Precision int

// The precisions, as attune_sdpa_precision in C.
const (
	Auto   Precision = iota // E4M3 where that is a tenth faster, or only E4M3 has a form
	FP8                     // E4M3: they are quantised
	Bits16                  // their own type: nothing is quantised
)

// Tensor is a tensor of rows: elements of batch entries (or pages), heads, rows.
type Tensor struct {
	Address device.Address
	Type    array.DType
	// Strides are those of a batch entry, a head and a row, in elements. Zeros: contiguous.
	Strides [3]int

	extents    [3]int
	columns    int
	contiguous bool
}

// setStrides sets the extents and, of a tensor without strides, those of a contiguous one.
func (t *Tensor) setStrides(batch, heads, rows, dim int) {
	t.extents, t.columns = [3]int{batch, heads, rows}, dim
	packed := [3]int{heads * rows * dim, rows * dim, dim}
	if t.Strides == [3]int{} {
		t.Strides = packed
	}
	t.contiguous = true
	for i, extent := range t.extents {
		if extent > 1 && t.Strides[i] != packed[i] {
			t.contiguous = false
		}
	}
}

// simplify sets the extents of the tensors, and removes limits of windows that no row reaches,
// because forms without a window are faster.
func (p *Problem) simplify() {
	batch, queries, pages, keys := p.Batch, p.Queries, p.Batch, p.Keys
	if p.CuQueries != 0 {
		batch, queries = 1, p.TotalQueries
	}
	switch {
	case p.CuKeys != 0:
		pages, keys = 1, p.TotalKeys
	case p.PageTable != 0:
		pages, keys = p.Pages, p.PageSize
	}
	if p.VHeadDim == 0 {
		p.VHeadDim = p.HeadDim
	}
	p.Q.setStrides(batch, p.Heads, queries, p.HeadDim)
	p.O.setStrides(batch, p.Heads, queries, p.VHeadDim)
	p.K.setStrides(pages, p.KVHeads, keys, p.HeadDim)
	p.V.setStrides(pages, p.KVHeads, keys, p.VHeadDim)
	if p.WindowRight == 0 {
		p.Causal = true
	}
	if p.WindowLeft >= p.Keys-1 {
		p.WindowLeft = -1
	}
	if p.Causal || p.WindowRight >= p.Queries-1 {
		p.WindowRight = -1
	}
	if p.Scale == 0 {
		p.Scale = float32(1 / math.Sqrt(float64(p.HeadDim)))
	}
}

// checkPrecision refuses 16 bits for tensors in E4M3, whose computation is in FP8.
func (p *Problem) checkPrecision() error {
	switch {
	case p.Precision < Auto || p.Precision > Bits16:
		return fmt.Errorf("the precision is %d, which does not exist", p.Precision)
	case p.Precision == Bits16 && (p.Q.Type == array.E4M3 || p.K.Type == array.E4M3):
		return errors.New("the precision is 16 bits, and q, k or v are E4M3, which is computed in FP8")
	}
	return nil
}

// scoreOption is an option of the scores, which only prefill16 has; empty without one.
func (p *Problem) scoreOption() string {
	switch {
	case p.Softcap != 0:
		return "a softcap"
	case p.AlibiSlopes != 0:
		return "ALiBi slopes"
	case p.TreeMask != 0:
		return "a tree mask"
	}
	return ""
}

// hasOptions reports whether the problem has sequences, sinks, a window or options of the scores.
func (p *Problem) hasOptions() bool {
	return p.scoreOption() != "" || p.CuQueries != 0 || p.PageTable != 0 || p.KeyLengths != 0 || p.Sinks != 0 || p.WindowLeft >= 0 || p.WindowRight >= 0
}

// isQuantisable reports whether the quantiser can read k and v: they have no pages, and are packed if
// the queries are.
func (p *Problem) isQuantisable() bool {
	return p.PageTable == 0 && (p.CuQueries == 0 || p.CuKeys != 0)
}

// rows are the query rows of a K/V head.
func (p *Problem) rows() int { return p.Heads / p.KVHeads * p.Queries }

// fewRows reports whether the decode kernel computes the query rows even if K and V are quantised.
func (p *Problem) fewRows() bool { return p.rows() <= fewRows }

// manyKeys reports whether k and v have more elements than kernels index by 32 bits. The decode
// kernel reads them by tensor maps alone, and has no limit.
func (p *Problem) manyKeys() bool {
	return p.PageTable == 0 && p.CuKeys == 0 && float64(p.Batch)*float64(p.KVHeads)*float64(p.Keys)*float64(max(p.HeadDim, p.VHeadDim)) > maxElements
}

// shape is the problem as the rules of a selection see it.
func (p *Problem) shape() tensor.Shape {
	s := tensor.Shape{Batch: p.Batch, Heads: p.Heads, SeqQ: p.Queries, SeqK: p.Keys, HeadDim: p.HeadDim, Causal: p.Causal}
	if p.KVHeads != p.Heads {
		s.KVHeads = p.KVHeads
	}
	return s
}

// unsupported is an ErrUnsupported with its reason.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrUnsupported)
}
