package sdpa

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Problem is attention but for its tensors. The zero value is softmax(q·kᵀ/√d)·v over all keys.
//
// Query i of a sequence stands at position i + keys - queries, so that the last query stands at the
// last key. Causal masks and windows count from there.
type Problem struct {
	Causal bool    // a query sees the keys up to its position
	Scale  float64 // of the scores; 0 for 1/√(head dim)
	Window *Window // keys around the position that a query sees; nil for no limit
	// Softcap limits the scores: s, scaled, becomes Softcap * tanh(s / Softcap). 0 is no cap. Sinks are
	// not capped. A GPU computes it with all tensors in FP16 or all in BF16, which are not quantised.
	Softcap float64
	// AlibiSlopes has a slope for each query head, [heads], or for each head of each sequence, [batch,
	// heads]. Slope * |position - j| is subtracted from the score of key j, which is scaled and capped
	// before. Sinks stay as they are. A GPU computes it for the tensors that Softcap is for.
	AlibiSlopes []float32
	// TreeMask is for speculative decoding: the queries are the tokens of a tree, whose keys are the last
	// ones. Bit t of the word of a query says whether it sees key keys - queries + t. It sees all keys
	// before. There is a word for each query, [batch, queries], or [rows] of packed sequences, for at most
	// 64 queries, without Causal and Window. A GPU computes it for the tensors that Softcap is for.
	TreeMask []uint64
	// Sinks has a logit for each query head that is added to the sum of exponentials, like a key
	// without a value. -Inf adds nothing.
	Sinks []float32
	// QueryLengths and KeyLengths are the lengths of the sequences of a batch, where they are shorter
	// than the tensors. The output of the rows behind a sequence is zero.
	QueryLengths, KeyLengths []int
	// QueryOffsets and KeyOffsets concatenate sequences: q and o are [1, heads, rows of all
	// sequences, head dim], and k and v likewise. Sequence b has the rows from QueryOffsets[b] to
	// QueryOffsets[b+1]-1. Other libraries call them cu_seqlens_q and cu_seqlens_k. Beside packed
	// queries k and v may also be a batch, or pages.
	QueryOffsets, KeyOffsets []int
	// PageTable has the pages of each sequence: k and v are [pages, kv heads, page size, head dim], and
	// key j of sequence b is row j % page size of page PageTable[b][j / page size]. KeyLengths has the
	// keys of each sequence. All pages have the same descale factors.
	PageTable [][]int
	// LSE receives the natural logarithm of each row's sum of exponentials: [batch, heads, queries], or
	// [heads, rows] of packed sequences. For a row that sees no key it is -Inf, with a sink too.
	// Nil requests none.
	LSE []float32
	// Precision is what a GPU computes FP16 and BF16 tensors in.
	Precision Precision
	// Fallback computes on the CPU what a GPU does not support. Without it that is ErrUnsupported.
	Fallback bool
}

// Precision is what a GPU computes FP16 and BF16 tensors in. The CPU computes in float32 always. E4M3
// tensors are computed in FP8: with them PrecisionAuto and PrecisionFP8 are the same, and Precision16
// is an error.
type Precision int

const (
	PrecisionAuto Precision = iota // FP8 where that is a tenth faster, or only FP8 has a kernel
	PrecisionFP8                   // they are quantised to E4M3
	Precision16                    // their own type: nothing is quantised
)

// Window limits the keys that a query sees to Left before its position and Right behind it. A
// negative number is no limit.
type Window struct{ Left, Right int }

// call is a checked and simplified problem with its sizes.
type call struct {
	Problem
	batch, heads, kvHeads, queries, keys, dim int
	vDim                                      int // columns of v and o
	left, right                               int // of the window; -1 for no limit
	scale                                     float64
}

func (c *call) group() int { return c.heads / c.kvHeads }

// tensorForm is what a check of a call needs to know about a tensor.
type tensorForm struct {
	name  string
	dtype DType
	shape [4]int
}

// maxHeadDim bounds the working memory of a core, which is some 4 KB per column.
const maxHeadDim = 1 << 14

// minSoftcap is the least positive number of float32 that has an inverse: rounded to 0 it would be no cap.
const minSoftcap = 0x1p-126

// newCall checks a problem against the forms of its tensors.
func newCall(p Problem, q, k, v, o tensorForm) (*call, error) {
	c := &call{
		Problem: p, batch: q.shape[0], heads: q.shape[1], kvHeads: k.shape[1],
		queries: q.shape[2], keys: k.shape[2], dim: q.shape[3], vDim: v.shape[3], left: -1, right: -1, scale: p.Scale,
	}
	if err := checkForms(c.hasSequences(), q, k, v, o); err != nil {
		return nil, err
	}
	if err := c.setSequences(q, k); err != nil {
		return nil, err
	}
	if most := max(c.dim, c.vDim); most > maxHeadDim {
		return nil, fmt.Errorf("sdpa: the head dim is %d; want at most %d", most, maxHeadDim)
	}
	if !(p.Scale >= 0) || math.IsInf(p.Scale, 0) {
		return nil, fmt.Errorf("sdpa: Scale is %v; want a positive number, or 0 for 1/√(head dim)", p.Scale)
	}
	if p.Scale == 0 {
		c.scale = 1 / math.Sqrt(float64(c.dim))
	}
	if !(p.Softcap >= 0) || p.Softcap > math.MaxFloat32 {
		return nil, fmt.Errorf("sdpa: Softcap is %v; want a positive number, finite in float32, or 0 for none", p.Softcap)
	}
	if p.Softcap != 0 {
		c.Softcap = max(p.Softcap, minSoftcap)
	}
	if err := checkPrecision(p.Precision, q, k); err != nil {
		return nil, err
	}
	if err := c.checkSinks(); err != nil {
		return nil, err
	}
	if err := c.checkAlibi(); err != nil {
		return nil, err
	}
	if err := c.checkTree(q.shape[0] * q.shape[2]); err != nil {
		return nil, err
	}
	if err := checkLengths("QueryLengths", p.QueryLengths, c.batch, c.queries); err != nil {
		return nil, err
	}
	if err := checkLengths("KeyLengths", p.KeyLengths, c.batch, c.keys); err != nil {
		return nil, err
	}
	if want := q.shape[0] * c.heads * q.shape[2]; p.LSE != nil && len(p.LSE) != want {
		return nil, fmt.Errorf("sdpa: LSE has %d elements; %d batches of %d heads and %d queries have %d",
			len(p.LSE), q.shape[0], c.heads, q.shape[2], want)
	}
	c.simplify()
	return c, nil
}

// simplify removes options that change nothing, so that a GPU need not support them: limits of a
// window that no key exceeds, a window that is a causal mask, lengths of whole sequences.
func (c *call) simplify() {
	if w := c.Window; w != nil {
		far := c.queries + c.keys // no key is as far from a query
		if w.Left >= 0 && w.Left < far {
			c.left = w.Left
		}
		if w.Right >= 0 && w.Right < far && !c.Causal {
			c.right = w.Right
		}
	}
	if c.right == 0 {
		c.Causal, c.right = true, -1
	}
	if !slices.ContainsFunc(c.QueryLengths, func(n int) bool { return n != c.queries }) {
		c.QueryLengths = nil
	}
	if !slices.ContainsFunc(c.KeyLengths, func(n int) bool { return n != c.keys }) {
		c.KeyLengths = nil
	}
}

// checkForms compares the formats and shapes of the tensors. Those of sequences need not have one
// batch.
func checkForms(sequences bool, q, k, v, o tensorForm) error {
	if k.dtype != q.dtype && k.dtype != E4M3 {
		return fmt.Errorf("sdpa: k is %s and q is %s; they have one format, unless k and v are E4M3", k.dtype, q.dtype)
	}
	if v.dtype != k.dtype {
		return fmt.Errorf("sdpa: v is %s and k is %s; they have one format", v.dtype, k.dtype)
	}
	if o.dtype == E4M3 {
		return fmt.Errorf("sdpa: o is E4M3; an output is FP16, BF16 or FP32")
	}
	if !sequences && k.shape[0] != q.shape[0] || k.shape[3] != q.shape[3] {
		return fmt.Errorf("sdpa: k has the shape %v and q %v; batch and head dim must agree", k.shape, q.shape)
	}
	if [3]int(v.shape[:3]) != [3]int(k.shape[:3]) {
		return fmt.Errorf("sdpa: v has the shape %v and k %v; all but the head dims must agree", v.shape, k.shape)
	}
	if o.shape != outputShape(q.shape, v.shape) {
		return fmt.Errorf("sdpa: o has the shape %v and q %v; they must agree, but the head dim is that of v, %d", o.shape, q.shape, v.shape[3])
	}
	if q.shape[1]%k.shape[1] != 0 {
		return fmt.Errorf("sdpa: k and v have %d heads, which do not divide the %d heads of q", k.shape[1], q.shape[1])
	}
	return nil
}

// outputShape is that of o: the rows of q with the columns of v.
func outputShape(q, v [4]int) [4]int { return [4]int{q[0], q[1], q[2], v[3]} }

func checkPrecision(p Precision, q, k tensorForm) error {
	if p < PrecisionAuto || p > Precision16 {
		return fmt.Errorf("sdpa: Precision is %d; want PrecisionAuto, PrecisionFP8 or Precision16", p)
	}
	if p == Precision16 && (q.dtype == E4M3 || k.dtype == E4M3) {
		return fmt.Errorf("sdpa: Precision is Precision16, q %s and k %s: E4M3 tensors are computed in FP8", q.dtype, k.dtype)
	}
	return nil
}

func (c *call) checkSinks() error {
	if c.Sinks == nil {
		return nil
	}
	if len(c.Sinks) != c.heads {
		return fmt.Errorf("sdpa: Sinks has %d logits; q has %d heads", len(c.Sinks), c.heads)
	}
	for i, x := range c.Sinks {
		if x != x || math.IsInf(float64(x), 1) {
			return fmt.Errorf("sdpa: sink %d is %v; want a finite logit, or -Inf for none", i, x)
		}
	}
	return nil
}

func (c *call) checkAlibi() error {
	if c.AlibiSlopes == nil {
		return nil
	}
	if n := len(c.AlibiSlopes); n != c.heads && n != c.batch*c.heads {
		return fmt.Errorf("sdpa: AlibiSlopes has %d slopes; want one for each of %d heads, or for each of %d heads of %d sequences",
			n, c.heads, c.heads, c.batch)
	}
	for i, x := range c.AlibiSlopes {
		if x != x || math.IsInf(float64(x), 0) {
			return fmt.Errorf("sdpa: slope %d of AlibiSlopes is %v; want a finite number", i, x)
		}
	}
	return nil
}

// maxTreeTokens are the bits of a word of a tree mask.
const maxTreeTokens = 64

func (c *call) checkTree(rows int) error {
	window := c.Window != nil && (c.Window.Left >= 0 || c.Window.Right >= 0)
	switch {
	case c.TreeMask == nil:
		return nil
	case c.Causal || window:
		return errors.New("sdpa: TreeMask with Causal or Window; the mask of a tree replaces both")
	case c.queries > maxTreeTokens:
		return fmt.Errorf("sdpa: TreeMask with %d queries; want at most %d, one for each bit", c.queries, maxTreeTokens)
	case len(c.TreeMask) != rows:
		return fmt.Errorf("sdpa: TreeMask has %d words; q has %d rows", len(c.TreeMask), rows)
	}
	return nil
}

func checkLengths(name string, lengths []int, batch, most int) error {
	if lengths == nil {
		return nil
	}
	if len(lengths) != batch {
		return fmt.Errorf("sdpa: %s has %d lengths; the batch has %d sequences", name, len(lengths), batch)
	}
	for i, n := range lengths {
		if n < 0 || n > most {
			return fmt.Errorf("sdpa: length %d of %s is %d; want 0 to %d", i, name, n, most)
		}
	}
	return nil
}

// lengthsOf are the queries and the keys of a sequence.
func (c *call) lengthsOf(batch int) (queries, keys int) {
	queries, keys = c.queries, c.keys
	if c.QueryLengths != nil {
		queries = c.QueryLengths[batch]
	}
	if c.KeyLengths != nil {
		keys = c.KeyLengths[batch]
	}
	return queries, keys
}

// visible returns the range of keys that a query of a batch sees; in a tree not all of them. It is
// empty for a row behind the sequence, and for one that sees no key.
func (c *call) visible(batch, query int) (from, to int) {
	queries, keys := c.lengthsOf(batch)
	if query >= queries {
		return 0, 0
	}
	position := query + keys - queries
	if c.TreeMask != nil {
		return treeRange(c.TreeMask[batch*c.queries+query], keys-queries, keys)
	}
	to = keys
	if c.Causal {
		to = min(to, position+1)
	}
	if c.right >= 0 {
		to = min(to, position+c.right+1)
	}
	if c.left >= 0 {
		from = max(from, position-c.left)
	}
	return from, max(from, to)
}

// treeRange returns the range from the first to the last key that a token of a tree sees. first is the
// key of bit 0, which is negative where a sequence has fewer keys than queries.
func treeRange(seen uint64, first, keys int) (from, to int) {
	tokens := keys - max(first, 0)
	seen = seen >> uint(max(-first, 0)) & (1<<uint(tokens) - 1)
	if first <= 0 && seen == 0 {
		return 0, 0
	}
	if first <= 0 {
		return bits.TrailingZeros64(seen), bits.Len64(seen)
	}
	return 0, first + bits.Len64(seen)
}
