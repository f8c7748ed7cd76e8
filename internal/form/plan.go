package form

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"attune/internal/arch"
	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/spec"
	"attune/internal/tensor"
)

const (
	// ZeroedBytes is the beginning of a workspace: counters that are zero before the first call, and
	// that every call leaves zero.
	ZeroedBytes = 65536

	// The end of the counters is that of the quantiser with options, which only the C library calls.
	quantizeCounterBytes = 16
	counterBytes         = ZeroedBytes - quantizeCounterBytes
	maxDecodeCounters    = counterBytes / 4

	// Of pingpong. A box of Q has 8 rows of a head at least, for the sake of its swizzle.
	consumerRows     = 64
	tileCounterBytes = 8
	maxPackedHeads   = 8

	// Query rows of a K/V head: few are left to the decode kernel. Of K and V that need no quantiser it
	// takes more, if they are of few queries: other kernels would read them once for each query head.
	fewRows          = 16
	maxDecodeRows    = 128
	maxDecodeQueries = 16

	columnUnit = 8 // divides the head dim of tensors in 16 bits: strides of TMA are multiples of 16 bytes

	maxElements = 1 << 31 // of a tensor that kernels index by 32 bits
)

// Table has the forms that a program launches: those of a selection and the declared ones.
type Table struct {
	selection *spec.Selection
	folder    fs.FS        // of the selection's kernel
	arch      string       // of the images, PortableArch for portable ones
	facts     device.Facts // of the device
	measured  *Measured    // of portable forms; nil without one
	declared  []*Form
	headDims  []int // of the selection's variants, in order
	chosen    map[tensor.Shape]choice
}

// choice is what the rules of a selection say about a shape.
type choice struct {
	variant    spec.Variant
	preference map[string]bool // prefers_decode and so on
}

// maxChosen bounds the shapes whose choice is remembered. The rules of a selection take half a
// millisecond.
const maxChosen = 1024

// NewTable has the forms for a device: those of a selection of the kernel in a folder, and of declared
// kernels, where their images run, else those of portable kernels. Without either the error is
// ErrUnsupported.
func NewTable(selection *spec.Selection, folder fs.FS, declared, portable []fs.FS, facts device.Facts) (*Table, error) {
	t := &Table{selection: selection, folder: folder, facts: facts, chosen: map[tensor.Shape]choice{}}
	archs := PortableArchs
	index := slices.IndexFunc(selection.Archs, func(a string) bool { return arch.Runs(a, true, facts.Arch) })
	switch {
	case index >= 0:
		t.arch = selection.Archs[index]
		archs = []string{t.arch}
	case arch.Runs(PortableArch, true, facts.Arch):
		t.arch, declared = PortableArch, portable
	default:
		return nil, unsupported("%s is %s and the kernels are for %s and later", facts.Name, facts.Arch, PortableArch)
	}
	for _, folder := range declared {
		forms, err := Declared(folder, archs...)
		if err != nil {
			return nil, err
		}
		t.declared = append(t.declared, forms...)
	}
	if t.arch == PortableArch {
		var err error
		if t.measured, err = findMeasured(facts, t.declared); err != nil {
			return nil, err
		}
	}
	for _, v := range selection.Variants() {
		dim, _ := v.Value(HeadDimKnob)
		t.headDims = append(t.headDims, dim)
	}
	slices.Sort(t.headDims)
	t.headDims = slices.Compact(t.headDims)
	return t, nil
}

// choose evaluates the rules of the selection, once for a shape.
func (t *Table) choose(shape tensor.Shape) (choice, error) {
	if c, known := t.chosen[shape]; known {
		return c, nil
	}
	chosen, err := t.selection.Choose(shape)
	if err != nil {
		return choice{}, err
	}
	names, values, _, err := t.selection.Terms(shape)
	if err != nil {
		return choice{}, err
	}
	c := choice{chosen.Variant, map[string]bool{}}
	for i, name := range names {
		c.preference[name] = values[i] != 0
	}
	if len(t.chosen) >= maxChosen {
		clear(t.chosen)
	}
	t.chosen[shape] = c
	return c, nil
}

// find returns the first declared form of a kernel for a head dim that a condition holds for; nil
// without one.
func (t *Table) find(kernel Kernel, dim int, holds func(*Form) bool) *Form {
	i := slices.IndexFunc(t.declared, func(f *Form) bool {
		return f.Kernel == kernel && (f.HeadDim == 0 || f.HeadDim == dim) && (holds == nil || holds(f))
	})
	if i < 0 {
		return nil
	}
	return t.declared[i]
}

// Call is a problem with the forms that compute it. A dense form has a target only, until its image
// is built.
type Call struct {
	Form           *Form
	Quantiser      *Form // launched before; nil if nothing is quantised
	WorkspaceBytes int   // with ZeroedBytes at its beginning; 0 if there is none

	problem Problem
	cast    cast // of the quantiser
	parts   int  // offset of the partial results of a decode form in the workspace
}

// cast is what a quantiser reads, and the offsets in the workspace of what it writes.
type cast struct {
	q, k, v                      Tensor
	batch, heads, copies         int
	qRows, kvRows                int // 0 for tensors that are not quantised
	yQ, yK, yV                   int
	descaleQ, descaleK, descaleV int
	bf16                         bool

	// Of quantize8. Smooth-K is always on.
	keepsV         bool
	mean, qDotMean int // the latter 0 without a log-sum-exp
}

// Plan chooses the forms of a problem as the C library does with a workspace: attune_sdpa.c explains
// the order. An error without ErrUnsupported is one of the selection's rules, or of a precision that
// the tensors cannot have.
func (t *Table) Plan(p Problem) (*Call, error) {
	if err := p.checkPrecision(); err != nil {
		return nil, err
	}
	p.simplify()
	switch {
	case t.arch == PortableArch && p.isIn8Bits():
		return t.planWarp8(p)
	case t.arch == PortableArch:
		return t.planWarp(p)
	}
	if !t.hasHeadDim(&p) {
		return t.planOtherHeadDim(p)
	}
	rules, err := t.choose(p.shape())
	if err != nil {
		return nil, err
	}
	c := &Call{problem: p}
	if t.selectHalves(c, rules) {
		return c, nil
	}
	if p.Precision == Bits16 {
		return nil, unsupported("the precision is 16 bits; no form in 16 bits %s", cmp.Or(p.whyNotHalves(), "has such sizes"))
	}
	if option := p.scoreOption(); option != "" {
		return nil, unsupported("q is %s, k %s and o %s; with %s all are F16 or all BF16, and not computed in FP8", p.Q.Type, p.K.Type, p.O.Type, option)
	}
	c.Form = t.mixed(&p, rules)
	if err := t.quantise(c); err != nil {
		return nil, err
	}
	if c.Form == nil {
		if err := t.selectForm(c, rules); err != nil {
			return nil, err
		}
	}
	t.convertInDecode(c)
	c.layOut(t.facts.Multiprocessors)
	return c, nil
}

// hasHeadDim reports whether the head dim is that of forms of all kernels.
func (t *Table) hasHeadDim(p *Problem) bool {
	return p.VHeadDim == p.HeadDim && slices.Contains(t.headDims, p.HeadDim)
}

// planOtherHeadDim plans a problem of another head dim. prefill16 alone computes it, in 16 bits.
func (t *Table) planOtherHeadDim(p Problem) (*Call, error) {
	if p.K.Type != array.E4M3 && p.Precision != FP8 {
		if why := p.whyNotHalves(); why != "" {
			return nil, unsupported("the head dim is %d; no form in 16 bits %s", p.HeadDim, why)
		}
		if f := t.options16(&p); f != nil {
			return &Call{Form: f, problem: p}, nil
		}
	}
	dims := strings.Trim(fmt.Sprint(t.headDims), "[]")
	largest := t.headDims[len(t.headDims)-1]
	if p.VHeadDim != p.HeadDim {
		return nil, unsupported("the head dim is %d, and that of v %d; the kernels in FP8 have one for all, and those in 16 bits multiples of %d up to %d", p.HeadDim, p.VHeadDim, columnUnit, largest)
	}
	return nil, unsupported("the head dim is %d; the kernels have %s, and those in 16 bits multiples of %d up to %d", p.HeadDim, dims, columnUnit, largest)
}

// selectHalves chooses a form for a problem in 16 bits that is not quantised: decode, else native or
// pingpong, or prefill16.
func (t *Table) selectHalves(c *Call, rules choice) bool {
	p := &c.problem
	if p.K.Type == array.E4M3 || p.Precision == FP8 {
		return false
	}
	if p.scoreOption() == "" {
		if c.Form = t.decode(p, false); c.Form != nil {
			c.layOut(t.facts.Multiprocessors)
			return true
		}
	}
	if c.Form = t.native(p, rules); c.Form == nil {
		c.Form = t.options16(p)
		return c.Form != nil
	}
	if c.Form.Kernel == Pingpong {
		p.packed = p.packedHeads(c.Form.QueryRows, t.facts.Multiprocessors)
	}
	if c.countsTiles() {
		c.WorkspaceBytes = ZeroedBytes
	}
	return true
}

// whyNotHalves is why no form in 16 bits for many queries computes a problem in 16 bits, as the rest
// of "no form in 16 bits ..."; empty if one does, whether or not it is the fastest.
func (p *Problem) whyNotHalves() string {
	switch {
	case p.O.Type != p.K.Type:
		return "has o of another type than q, k and v for such sizes"
	case p.manyKeys():
		return "takes k and v of more than 2^31 elements for such sizes"
	}
	return ""
}

// native is the form for a problem in 16 bits that is not quantised, of native or pingpong. With LSE
// all exponentials are exact, which forms with tiles of 128 rows have; without it the first form is
// the fastest.
func (t *Table) native(p *Problem, rules choice) *Form {
	if p.whyNotHalves() != "" || p.hasOptions() || p.Precision != Bits16 && !rules.preference["prefers_native"] {
		return nil
	}
	rows, keys, exact := 256, 128, p.LSE != 0
	if p.HeadDim > 128 || !exact && rules.preference["prefers_steps_of_64"] {
		keys = 64
	}
	switch {
	case !exact && rules.preference["prefers_tiles_of_64"]:
		rows = 64
	case exact || rules.preference["prefers_small_tiles"]:
		rows = 128
	case rules.preference["prefers_tiles_of_192"]:
		rows = 192
	}
	holds := func(f *Form) bool {
		return f.QueryRows == rows && f.StepKeys == keys && f.BF16 == (p.K.Type == array.BF16) && (f.LinearEighths == 0 || !exact)
	}
	if f := t.find(Native, p.HeadDim, holds); f != nil {
		return f
	}
	return t.find(Pingpong, p.HeadDim, holds)
}

// options16 is the form for a problem in 16 bits with options that is not quantised. It is not timed
// yet, so that without a precision it gets what has no other form: options of the scores, K and V of
// many queries that the quantiser cannot read, and other head dims, which take the next larger one's
// form.
func (t *Table) options16(p *Problem) *Form {
	wanted := p.Precision == Bits16 || p.scoreOption() != "" || !p.isQuantisable() || !t.hasHeadDim(p)
	if !wanted || p.whyNotHalves() != "" || p.HeadDim%columnUnit != 0 || p.VHeadDim%columnUnit != 0 {
		return nil
	}
	var narrowest *Form // that has all columns
	for _, f := range t.declared {
		holds := f.Kernel == Prefill16 && f.BF16 == (p.K.Type == array.BF16) && f.HeadDim >= max(p.HeadDim, p.VHeadDim)
		if holds && (narrowest == nil || f.HeadDim < narrowest.HeadDim) {
			narrowest = f
		}
	}
	return narrowest
}

// packedHeads are the query heads of a group that share a tile of some rows where queries are few
// (FA3: PackGQA): as many as save a tenth of the tiles.
func (p *Problem) packedHeads(rows, multiprocessors int) int {
	packed := 1
	tiles := func(n int) int { // at least those that the chip has at once
		return max(p.Batch*p.Heads/n*ceilDiv(p.Queries*n, rows), multiprocessors)
	}
	for n := 2; n <= maxPackedHeads && p.Heads/p.KVHeads%n == 0; n *= 2 {
		if 10*tiles(n) <= 9*tiles(packed) {
			packed = n
		}
	}
	return packed
}

// countsTiles reports whether the form hands out its tiles by counters.
func (c *Call) countsTiles() bool { return c.Form.Kernel == Pingpong && c.problem.Causal }

// mixed is the form for a problem with q in 16 bits, of which k and v alone are quantised. Its
// exponentials are not exact, so that it has no LSE.
func (t *Table) mixed(p *Problem, rules choice) *Form {
	contiguous := p.Q.contiguous && p.O.contiguous && (p.K.Type != array.E4M3 || p.K.contiguous && p.V.contiguous)
	if p.Q.Type == array.E4M3 || !contiguous || p.LSE != 0 || p.manyKeys() || p.hasOptions() || p.fewRows() || !rules.preference["prefers_mixed"] {
		return nil
	}
	return t.find(Mixed, p.HeadDim, nil)
}

// quantise plans the cast of tensors in 16 bits, which then are contiguous. A mixed form, which the
// call has already, takes q as it is. Packed tensors are one batch entry, whose factors every
// sequence gets.
func (t *Table) quantise(c *Call) error {
	p := &c.problem
	q, kv, packed := p.Q.Type != array.E4M3 && c.Form == nil, p.K.Type != array.E4M3, p.CuQueries != 0
	if !q && !kv {
		return nil
	}
	if kv && !p.isQuantisable() {
		paged := map[bool]string{false: "have the type of o or are E4M3", true: "are E4M3 in FP8"}[p.Precision == FP8]
		return unsupported("k and v are %s and o %s; paged keys of many queries, and keys beside packed queries that are not packed, %s", p.K.Type, p.O.Type, paged)
	}
	z := cast{q: p.Q, k: p.K, v: p.V, batch: p.Batch, heads: 1, copies: 1, bf16: p.Q.Type == array.BF16}
	if packed {
		z.batch, z.copies = 1, p.Batch
	}
	if q {
		z.heads, z.qRows = p.Heads, p.Q.extents[2]
		p.Q = quantised(p.Q, p.HeadDim)
	}
	if kv {
		z.kvRows = p.K.extents[2]
		p.K, p.V = quantised(p.K, p.HeadDim), quantised(p.V, p.HeadDim)
	}
	c.cast = z
	c.Quantiser = t.find(Cast, p.HeadDim, nil)
	if c.Quantiser == nil || !c.hasRoom() {
		return unsupported("%d batches of %d heads; the quantiser counts at most %d heads of q, k and v", z.batch, p.Heads, counterBytes/8)
	}
	return nil
}

// quantised is what a quantiser makes of a tensor: contiguous, heads before rows.
func quantised(t Tensor, dim int) Tensor {
	y := Tensor{Type: array.E4M3}
	y.setStrides(t.extents[0], t.extents[1], t.extents[2], dim)
	return y
}

// hasRoom reports whether the zeroed bytes have room for the counters of the cast: 8 bytes for each
// head of q, k and v. Heads of one tile are not counted.
func (c *Call) hasRoom() bool {
	z, rows := &c.cast, c.Quantiser.castRows(c.problem.HeadDim)
	return z.qRows <= rows && z.kvRows <= rows || 8*z.batch*(z.heads+2*c.problem.KVHeads) <= counterBytes
}

// castRows are the rows of a tile of the cast.
func (f *Form) castRows(dim int) int {
	lanes := 32
	switch {
	case dim <= 64:
		lanes = 8
	case dim <= 128:
		lanes = 16
	}
	return f.Chunks * f.Threads / lanes
}

// selectForm chooses among decode (few query rows, with an option or where the selection prefers it),
// the dense forms (contiguous tensors without options) and prefill (all others).
func (t *Table) selectForm(c *Call, rules choice) error {
	p := &c.problem
	plain := !p.hasOptions() && p.Q.contiguous && p.K.contiguous && p.V.contiguous && p.O.contiguous && !p.manyKeys() &&
		p.O.Type == array.F16 && p.LSE == 0 // for which the kernels are shipped
	if !plain || p.fewRows() && rules.preference["prefers_decode"] {
		c.Form = t.decode(p, c.cast.kvRows > 0)
	}
	if c.Form == nil && plain {
		if err := CheckGrid(p.shape()); err != nil {
			return fmt.Errorf("%w: %w", err, ErrUnsupported)
		}
		v := rules.variant
		c.Form = &Form{Kernel: DenseKernel, Folder: t.folder, Target: Target(v.Stage().Kernel(), v, t.arch), HeadDim: p.HeadDim}
	}
	if c.Form == nil && !p.manyKeys() {
		c.Form = t.find(Prefill, p.HeadDim, nil)
	}
	if c.Form == nil {
		return unsupported("%d batches of %d heads and %d keys are more than 2^31 elements", p.Batch, p.KVHeads, p.Keys)
	}
	return nil
}

// decode is the decode form of a problem, over K and V as they are given or quantised: that with the
// fewest units, and then the fewest rows; nil if none computes it. It takes any strides of Q in 16 bits.
func (t *Table) decode(p *Problem, quantised bool) *Form {
	few := p.fewRows() || !quantised && p.rows() <= maxDecodeRows && p.Queries <= maxDecodeQueries
	strided := p.Q.Type == array.E4M3 && !p.Q.contiguous || !p.O.contiguous
	if !few || p.CuQueries != 0 || p.WindowRight >= 0 || strided {
		return nil
	}
	var best *Form
	for _, f := range t.declared {
		if f.Kernel != Decode || f.HeadDim != p.HeadDim || f.Cache != p.K.Type {
			continue
		}
		if best == nil || f.units(p) < best.units(p) || f.units(p) == best.units(p) && f.QueryRows < best.QueryRows {
			best = f
		}
	}
	if best == nil || best.units(p) > maxDecodeCounters {
		return nil
	}
	return best
}

// units are the K/V heads of all sequences, each for some of its query rows: as many as a block of a
// decode form computes at once.
func (f *Form) units(p *Problem) int { return p.Batch * p.KVHeads * ceilDiv(p.rows(), f.QueryRows) }

// convertInDecode lets a decode form convert q where nothing else is quantised. That saves a launch.
func (t *Table) convertInDecode(c *Call) {
	if c.Quantiser == nil || c.Form.Kernel != Decode || c.cast.kvRows > 0 {
		return
	}
	c.Quantiser, c.problem.Q = nil, c.cast.q
}

// layOut sets the offsets in the workspace.
func (c *Call) layOut(multiprocessors int) {
	if c.Quantiser == nil && c.Form.Kernel != Decode {
		return
	}
	w := layout{ZeroedBytes}
	if z := &c.cast; c.Quantiser != nil {
		row, factors, kvHeads := z.batch*c.problem.HeadDim, 4*c.problem.Batch, c.problem.KVHeads
		if z.qRows > 0 {
			z.yQ = w.reserve(row * z.heads * z.qRows)
			z.descaleQ = w.reserve(factors * z.heads)
		}
		if z.kvRows > 0 {
			z.yK = w.reserve(row * kvHeads * z.kvRows)
			z.yV = w.reserve(row * kvHeads * z.kvRows)
			z.descaleK = w.reserve(factors * kvHeads)
			z.descaleV = w.reserve(factors * kvHeads)
		}
	}
	if c.Form.Kernel == Decode {
		c.parts = w.reserve(c.Form.partBytes(multiprocessors))
	}
	c.WorkspaceBytes = w.end
}

// layout divides a workspace.
type layout struct{ end int }

// reserve sets aside bytes at the next multiple of 256, and returns where.
func (w *layout) reserve(bytes int) int {
	start := (w.end + 255) / 256 * 256
	w.end = start + bytes
	return start
}

// partBytes are two parts of each block of a decode form: rows of O with the max and the sum of each.
func (f *Form) partBytes(multiprocessors int) int {
	return 2 * multiprocessors * f.QueryRows * (f.HeadDim + 2) * 4
}

// place puts the addresses of the workspace into the problem.
func (c *Call) place(workspace device.Address) Problem {
	p, z := c.problem, &c.cast
	at := func(offset int) device.Address { return workspace + device.Address(offset) }
	if c.Quantiser == nil {
		return p
	}
	if z.qRows > 0 {
		p.Q.Address, p.DescaleQ = at(z.yQ), at(z.descaleQ)
	}
	if z.kvRows > 0 {
		p.K.Address, p.DescaleK = at(z.yK), at(z.descaleK)
	}
	if z.kvRows > 0 && !z.keepsV {
		p.V.Address, p.DescaleV = at(z.yV), at(z.descaleV)
	}
	return p
}
