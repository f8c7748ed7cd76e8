package sim

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/ptx"
	"attune/internal/sim/mma"
)

// Products of a warpgroup.
//
// Each of the four warps has a quarter of the rows, which it computes when a wait brings the result, at the last moment that is allowed: until then the
// registers of the result hold poison, and what is read from shared memory and from registers is what stands there by then. A program that does not wait,
// or changes an operand too early, so gets another answer and is told. That the four do the same thing is checked step by step (warpgroup.go).

// productOp is wgmma.mma_async.
type productOp struct {
	d, a           []slot // registers; a is nil where it lies in shared memory
	descA, descB   slot
	scale          slot // predicate that says whether the result is added to what is there; noFile where it is known
	not, add       bool
	transA, transB bool // M or N runs fastest in shared memory
}

// wgmmaOp is an operation of a warpgroup.
type wgmmaOp struct {
	product *productOp
	keep    int // of wait_group: groups that may be left
}

// asyncRegister is what a register that products use is in.
type asyncRegister struct {
	touched   bool   // by other instructions, since the last wgmma.fence
	results   uint16 // products under way that write it
	multiples uint16 // products under way that read it as A
}

func (r *asyncRegister) busy() bool { return r.results+r.multiples > 0 }

// pendingProduct is a warp's quarter of a product that has begun.
type pendingProduct struct {
	op    *op
	frame *frame
	group int    // of the warp's groups
	step  int    // of the warpgroup's
	epoch uint32 // of what it reads
	descA mma.Descriptor
	descB mma.Descriptor
	add   bool
	c     []uint32 // what the result is added to; given by the product before it where that is under way
}

// productQueue is the products that a warp has begun.
type productQueue struct {
	open    []*pendingProduct
	groups  int  // committed
	fenced  bool // there has been a wgmma.fence
	steps   int  // of the warpgroup, so far
	waiting bool // the step that runs has been counted
}

// lowerWgmma turns wgmma.* into operations.
func (c *code) lowerWgmma(in *ptx.Instruction, o *op) error {
	if err := c.wantsHopper("wgmma"); err != nil {
		return err
	}
	o.wgmma, o.class = &wgmmaOp{}, classSync
	words := strings.Join(in.Modifiers, ".")
	want := 0
	switch words {
	case "fence.sync.aligned":
		o.run = runWgmmaFence
	case "commit_group.sync.aligned":
		o.run = runWgmmaCommit
	case "wait_group.sync.aligned":
		o.run, want = runWgmmaWait, 1
	default:
		return c.lowerProduct(in, o)
	}
	if len(in.Operands) != want {
		return fmt.Errorf("it has %d operands, want %d", len(in.Operands), want)
	}
	if want == 1 {
		if in.Operands[0].Kind != ptx.ImmOperand || in.Operands[0].Value > mostGroups {
			return fmt.Errorf("it wants a number of groups from 0 to %d", mostGroups)
		}
		o.wgmma.keep = int(in.Operands[0].Value)
	}
	return nil
}

// mostGroups bounds what wgmma.wait_group takes.
const mostGroups = 7

// wantsHopper refuses what ptxas refuses: an instruction of one chip for another.
func (c *code) wantsHopper(what string) error {
	if arch := c.program.arch; arch != "sm_90a" && arch != "compute_90a" {
		return fmt.Errorf("unsupported instruction: %s is for sm_90a, not for %s", what, arch)
	}
	return nil
}

// lowerProduct is wgmma.mma_async d, a, b-desc, scale-d {, imm-scale-a, imm-scale-b {, imm-trans-a} {, imm-trans-b}}.
func (c *code) lowerProduct(in *ptx.Instruction, o *op) error {
	found, err := mma.Lookup(in.Opcode, in.Modifiers)
	if err != nil {
		return err
	}
	p := &productOp{}
	o.wgmma.product, o.mat, o.class, o.run = p, &matrixOp{in: found}, classTensor, runWgmma
	fromRegisters := len(in.Operands) > 1 && in.Operands[1].Kind == ptx.VecOperand
	want := wgmmaOperands(found, fromRegisters)
	if len(in.Operands) != want {
		return fmt.Errorf("it has %d operands, want %d", len(in.Operands), want)
	}
	if p.d, err = c.productRegisters(in.Operands[0], found, mma.D); err != nil {
		return err
	}
	if fromRegisters {
		p.a, err = c.productRegisters(in.Operands[1], found, mma.A)
	} else {
		p.descA, err = c.source(in.Operands[1], ptx.B64)
	}
	if err != nil {
		return err
	}
	if p.descB, err = c.source(in.Operands[2], ptx.B64); err != nil {
		return err
	}
	if err := c.lowerScale(p, in.Operands[3]); err != nil {
		return err
	}
	return p.lowerImmediates(found, in.Operands[4:])
}

// wgmmaOperands is how many operands a product has: only floats can be negated, and only those of 16 bits lie either way.
func wgmmaOperands(in *mma.Instruction, fromRegisters bool) int {
	n := 4
	if in.D != mma.S32 {
		n += 2
	}
	if in.A.Bits() == 16 {
		n += 2
		if fromRegisters {
			n--
		}
	}
	return n
}

func (c *code) productRegisters(o ptx.Operand, in *mma.Instruction, m mma.Matrix) ([]slot, error) {
	want := in.Fragment(m, 0).Registers
	if o.Kind != ptx.VecOperand || len(o.Parts) != want {
		return nil, fmt.Errorf("%s has %d registers, want %d", m, len(o.Parts), want)
	}
	var list []slot
	for _, part := range o.Parts {
		s, err := c.register(part, ptx.B32)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// lowerScale is scale-d: a predicate, or a constant.
func (c *code) lowerScale(p *productOp, o ptx.Operand) error {
	if o.Kind == ptx.ImmOperand {
		p.add = o.Value != 0
		return nil
	}
	var err error
	p.not = o.Negated
	p.scale, err = c.predicate(o)
	return err
}

// lowerImmediates reads the signs and the transpositions.
func (p *productOp) lowerImmediates(in *mma.Instruction, operands []ptx.Operand) error {
	values := make([]int64, len(operands))
	for i, o := range operands {
		values[i] = int64(o.Value)
		sign := i < 2
		if o.Kind != ptx.ImmOperand || sign && values[i] != 1 && values[i] != -1 || !sign && values[i]&^1 != 0 {
			return fmt.Errorf("operand %d must be the constant 1 or -1 for a sign, 0 or 1 for a transposition", i+4)
		}
	}
	if len(values) >= 2 {
		in.Negate = values[0]*values[1] < 0
	}
	if len(values) > 2 {
		p.transB = values[len(values)-1] == 1
		p.transA = len(values) == 4 && values[2] == 1
	}
	return nil
}

// watchProducts has every instruction that touches a register of a product look whether that is under way. It is done once, when all are known.
func (c *code) watchProducts() {
	used := map[int32]bool{}
	for i := range c.ops {
		if g := c.ops[i].wgmma; g != nil && g.product != nil {
			for _, s := range append(slices.Clone(g.product.d), g.product.a...) {
				if !used[s.index] {
					used[s.index] = true
					c.products = append(c.products, s.index)
				}
			}
		}
	}
	if len(used) == 0 {
		return
	}
	for i := range c.fn.Code {
		o := &c.ops[i]
		if o.wgmma != nil {
			continue
		}
		var touched []int32
		for j := range c.fn.Code[i].Operands {
			eachRegister(&c.fn.Code[i].Operands[j], func(r int) {
				if s := c.regs[r]; s.file == file32 && used[s.index] {
					touched = append(touched, s.index)
				}
			})
		}
		if run := o.run; len(touched) > 0 {
			o.watched = true
			o.run = func(w *warp, o *op, mask uint32) {
				w.touchProducts(o, touched, mask)
				run(w, o, mask)
			}
		}
	}
}

// touchProducts is an access of another instruction to registers of products.
func (w *warp) touchProducts(o *op, registers []int32, mask uint32) {
	for _, index := range registers {
		r := &w.frame.products[index]
		if !r.busy() {
			r.touched = true
			continue
		}
		i := slices.IndexFunc(w.wgmma.open, func(p *pendingProduct) bool { return p.frame == w.frame && p.uses(index) })
		w.reportPair(MissingWait, o, spotOf(w, w.wgmma.open[i].op), mask, func() string {
			return "touches a register of a wgmma.mma_async that is under way: no wgmma.wait_group has waited for its group"
		})
	}
}

func (p *pendingProduct) uses(index int32) bool {
	is := func(s slot) bool { return s.index == index }
	return slices.ContainsFunc(p.op.wgmma.product.d, is) || slices.ContainsFunc(p.op.wgmma.product.a, is)
}

// runWgmmaFence orders what was done to registers before the products that follow.
func runWgmmaFence(w *warp, o *op, mask uint32) {
	if !w.wholeInGroup(o, mask) {
		return
	}
	w.takeStep(o, groupStep{op: o})
	w.settleRegisters()
}

func (w *warp) settleRegisters() {
	w.wgmma.fenced = true
	for f := w.frame; f != nil; f = f.caller {
		for _, index := range f.code.products {
			f.products[index].touched = false
		}
	}
}

func runWgmmaCommit(w *warp, o *op, mask uint32) {
	if !w.wholeInGroup(o, mask) {
		return
	}
	w.takeStep(o, groupStep{op: o})
	w.wgmma.groups++
}

// runWgmmaWait brings the results of all groups but the last ones, once all warps of the warpgroup have begun them.
func runWgmmaWait(w *warp, o *op, mask uint32) {
	if !w.wholeInGroup(o, mask) {
		return
	}
	q := &w.wgmma
	if !q.waiting {
		w.takeStep(o, groupStep{op: o})
		q.waiting = true
	}
	ready := 0
	for ready < len(q.open) && q.open[ready].group < q.groups-o.wgmma.keep {
		ready++
	}
	if ready > 0 && !w.groupHasTaken(q.open[ready-1].step) {
		w.halt(wait{what: waitWarpgroup, op: o})
		return
	}
	q.waiting = false
	w.deliverProducts(ready)
}

// runWgmma begins a product.
func runWgmma(w *warp, o *op, mask uint32) {
	if !w.wholeInGroup(o, mask) {
		return
	}
	g := o.wgmma.product
	p := &pendingProduct{op: o, frame: w.frame, group: w.wgmma.groups, epoch: w.knows.epoch, add: g.add}
	if g.scale.file == filePred {
		p.add = w.uniformScale(o)
	}
	if g.a == nil {
		p.descA = mma.Descriptor(w.uniform(o, g.descA))
	}
	p.descB = mma.Descriptor(w.uniform(o, g.descB))
	p.step = w.takeStep(o, groupStep{op: o, a: p.descA, b: p.descB, add: p.add})
	w.checkRegisters(o)
	w.beginReads(p)
	w.hold(p)
	w.wgmma.open = append(w.wgmma.open, p)
	w.count.TensorOps++
	w.count.TensorFLOPs += 2 * quarterRows * uint64(o.mat.in.Shape.N) * uint64(o.mat.in.Shape.K)
}

// uniform is an operand that all lanes have to have the same of.
func (w *warp) uniform(o *op, s slot) uint64 {
	values := &w.r64[s.index]
	first := values[firstLane(w.lanes)]
	for m := w.lanes; m != 0; m &= m - 1 {
		if values[firstLane(m)] != first {
			w.report(Undefined, o, w.lanes, func() string { return "the lanes of the warp have different descriptors" })
			break
		}
	}
	return first
}

func (w *warp) uniformScale(o *op) bool {
	g := o.wgmma.product
	bits := w.preds[g.scale.index] & w.lanes
	if bits != 0 && bits != w.lanes {
		w.report(Undefined, o, w.lanes, func() string { return "the lanes of the warp have different values of scale-d" })
	}
	return (bits != 0) != g.not
}

// checkRegisters looks whether the registers of a product are such as it may use now.
func (w *warp) checkRegisters(o *op) {
	g, state := o.wgmma.product, w.frame.products
	touched := func(s slot) bool { return state[s.index].touched }
	if !w.wgmma.fenced || slices.ContainsFunc(g.d, touched) || slices.ContainsFunc(g.a, touched) {
		w.report(MissingFence, o, w.lanes, func() string {
			return "uses registers that other instructions have used, or is the first, with no wgmma.fence in between"
		})
		w.settleRegisters() // once is enough
	}
	follows := w.lastInto(g.d) != nil
	clash := slices.ContainsFunc(g.a, func(s slot) bool { return state[s.index].results > 0 }) ||
		slices.ContainsFunc(g.d, func(s slot) bool { r := &state[s.index]; return r.multiples > 0 || r.results > 0 && !follows })
	if clash {
		w.reportPair(MissingWait, o, spotOf(w, w.wgmma.open[len(w.wgmma.open)-1].op), w.lanes, func() string {
			return "uses registers of another wgmma.mma_async that is under way, and not as the same result of the same shape"
		})
		w.deliverProducts(len(w.wgmma.open))
	}
}

// lastInto is the last product under way with just this result.
func (w *warp) lastInto(d []slot) *pendingProduct {
	for _, p := range slices.Backward(w.wgmma.open) {
		if p.frame == w.frame && slices.Equal(p.op.wgmma.product.d, d) {
			return p
		}
	}
	return nil
}

// hold takes the registers of a product away from everybody else.
func (w *warp) hold(p *pendingProduct) {
	g, f := p.op.wgmma.product, w.block.launch.plans[p.op.number].d
	if w.lastInto(g.d) == nil {
		registers := w.registersOf(p.frame, g.d)
		if p.add {
			p.c = make([]uint32, f.Words())
			mma.Gather(f, p.c, registers)
		}
		for _, r := range registers {
			for lane := range r {
				r[lane] = poison
			}
		}
	}
	for _, s := range g.d {
		p.frame.products[s.index].results++
	}
	for _, s := range g.a {
		p.frame.products[s.index].multiples++
	}
}

// poison is what the registers of a result hold until it is there: NaN, as a float and as two halves.
const poison = 0xFFFFFFFF

func (w *warp) registersOf(f *frame, list []slot) []*v32 {
	w.mats.r32 = w.mats.r32[:0]
	for _, s := range list {
		w.mats.r32 = append(w.mats.r32, &f.r32[s.index])
	}
	return w.mats.r32
}

// deliverProducts ends the first products that are under way.
func (w *warp) deliverProducts(n int) {
	for _, p := range w.wgmma.open[:n] {
		w.wgmma.open = w.wgmma.open[1:]
		w.deliverProduct(p)
	}
	if n > 0 {
		w.block.changes++
	}
}

func (w *warp) deliverProduct(p *pendingProduct) {
	g, plan := p.op.wgmma.product, w.block.launch.plans[p.op.number]
	in := p.op.mat.in
	a := room(&w.mats.a, plan.a.Words())
	if g.a != nil {
		mma.Gather(plan.a, a, w.registersOf(p.frame, g.a))
	} else {
		w.readMatrix(p.quarterA(w), a)
	}
	b := room(&w.mats.b, in.Shape.N*in.Shape.K*in.B.Bits()/unitBits(in.B))
	w.readMatrix(p.matrixB(), b)
	c, d := p.c, p.c
	if d == nil {
		d = make([]uint32, plan.d.Words())
	}
	if !p.add {
		c = nil
	}
	plan.product.Multiply(&w.mats.scratch, d, a, b, c)
	for _, s := range g.d {
		p.frame.products[s.index].results--
	}
	for _, s := range g.a {
		p.frame.products[s.index].multiples--
	}
	w.endReads(p)
	// Where the next product adds to this one, the registers go on holding poison.
	for _, next := range w.wgmma.open {
		if next.frame == p.frame && slices.Equal(next.op.wgmma.product.d, g.d) {
			next.c = d
			return
		}
	}
	mma.Scatter(plan.d, w.registersOf(p.frame, g.d), d)
}

// quarterRows is how many rows of A and of the result a warp has.
const quarterRows = 16

// sharedMatrix is a matrix in shared memory: its rows from one on, each of a number of units (elements, or 32 single bits).
type sharedMatrix struct {
	at               mma.Shared
	first, rows      int
	units, unitBits  int
	transposed       bool
	run              int // units that lie one after the other
	runRows, runCols int // of the matrix that these are
}

func newSharedMatrix(d mma.Descriptor, t mma.Type, transposed bool, first, rows, k int) *sharedMatrix {
	m := &sharedMatrix{at: d.Shared(t, transposed), first: first, rows: rows, unitBits: unitBits(t), transposed: transposed}
	m.units = k * t.Bits() / m.unitBits
	m.run = m.at.Run()
	m.runRows, m.runCols = 1, m.run
	if transposed {
		m.runRows, m.runCols = m.run, 1
	}
	return m
}

func (p *pendingProduct) quarterA(w *warp) *sharedMatrix {
	in := p.op.mat.in
	return newSharedMatrix(p.descA, in.A, p.op.wgmma.product.transA, w.index%groupWarps*quarterRows, quarterRows, in.Shape.K)
}

func (p *pendingProduct) matrixB() *sharedMatrix {
	in := p.op.mat.in
	return newSharedMatrix(p.descB, in.B, p.op.wgmma.product.transB, 0, in.Shape.N, in.Shape.K)
}

// runBytes is how many bytes of a matrix lie one after the other.
const runBytes = 16

// each visits the runs of 16 bytes: the address of each, and the place of its first unit.
func (m *sharedMatrix) each(visit func(address uint64, row, col int)) {
	for row := 0; row < m.rows; row += m.runRows {
		for col := 0; col < m.units; col += m.runCols {
			visit(uint64(m.at.Address(m.first+row, col)), row, col)
		}
	}
}

// matrices are those that a product reads from shared memory.
func (p *pendingProduct) matrices(w *warp) []*sharedMatrix {
	if p.op.wgmma.product.a != nil {
		return []*sharedMatrix{p.matrixB()}
	}
	return []*sharedMatrix{p.quarterA(w), p.matrixB()}
}

// beginReads checks what a product reads from shared memory. From now until it has been waited for, nobody may write there.
func (w *warp) beginReads(p *pendingProduct) {
	if !w.block.launch.options.Checks {
		return
	}
	for _, m := range p.matrices(w) {
		m.each(func(address uint64, _, _ int) { w.readAsync(p.op, "wgmma", address, runBytes) })
	}
	w.knows.epoch++ // so that these reads are told from those of the next product
}

// endReads makes the reads of a product those of its warp, now.
func (w *warp) endReads(p *pendingProduct) {
	if !w.block.launch.options.Checks {
		return
	}
	s := &w.block.shared
	me := w.observer(p.op, allLanes, 0).access
	me.epoch = p.epoch
	for _, m := range p.matrices(w) {
		m.each(func(address uint64, _, _ int) {
			if s.holds(address, runBytes) {
				s.shadow.settleReads(int(address-s.first), runBytes, me, w.knows.epoch)
			}
		})
	}
}

// holds says whether bytes lie inside.
func (s *sharedMemory) holds(address uint64, size int) bool {
	return address >= s.first && address-s.first+uint64(size) <= uint64(len(s.data))
}

// readMatrix collects a matrix from shared memory; what lies outside, which has been reported, is zero.
func (w *warp) readMatrix(m *sharedMatrix, into []uint32) {
	s := &w.block.shared
	step := 1
	if m.transposed {
		step = m.units
	}
	m.each(func(address uint64, row, col int) {
		var data []byte
		if s.holds(address, runBytes) {
			data = s.data[address-s.first:][:runBytes]
		}
		for i := range m.run {
			value := uint32(0)
			if data != nil {
				value = unit(data, m.unitBits, i)
			}
			into[row*m.units+col+i*step] = value
		}
	})
}
