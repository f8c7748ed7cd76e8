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
	a     sharedMatrix // the warp's rows of it; none where A is in registers
	b     *tile
	c     []uint32 // what the result is added to; given by the product before it where that is under way
}

// productQueue is the products that a warp has begun.
type productQueue struct {
	open    []*pendingProduct
	groups  int  // committed
	fenced  bool // there has been a wgmma.fence
	opened  bool // there has been one since the last wgmma.wait_group
	steps   int  // of the warpgroup, so far
	waiting bool // the step that runs has been counted

	spare []*pendingProduct // that are over
	sums  [][]uint32        // the same of results
}

// newProduct is room for a product.
func (q *productQueue) newProduct() *pendingProduct {
	n := len(q.spare)
	if n == 0 {
		return &pendingProduct{}
	}
	p := q.spare[n-1]
	q.spare = q.spare[:n-1]
	*p = pendingProduct{a: sharedMatrix{runs: p.a.runs[:0]}}
	return p
}

// newSums is room for a result.
func (q *productQueue) newSums(words int) []uint32 {
	for i, s := range q.sums {
		if len(s) == words {
			q.sums = slices.Delete(q.sums, i, i+1)
			return s
		}
	}
	return make([]uint32, words)
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
	constants := setsConstants(c.fn)
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
			sets := constants[i]
			o.run = func(w *warp, o *op, mask uint32) {
				w.touchProducts(o, touched, sets, mask)
				run(w, o, mask)
			}
		}
	}
}

// touchProducts is an access of another instruction to registers of products. Where it only sets them to a constant, the fence of this stage may stand before it
// as well as behind it: compilers bring the zeros that a sum begins with to where they are used, past the fence, and ptxas knows how to deal with that.
func (w *warp) touchProducts(o *op, registers []int32, constant bool, mask uint32) {
	for _, index := range registers {
		r := &w.frame.products[index]
		if !r.busy() {
			r.touched = r.touched || !constant || !w.wgmma.opened
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
	w.wgmma.fenced, w.wgmma.opened = true, true
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
	q.waiting, q.opened = false, false
	w.deliverProducts(ready)
}

// runWgmma begins a product.
func runWgmma(w *warp, o *op, mask uint32) {
	if !w.wholeInGroup(o, mask) {
		return
	}
	g := o.wgmma.product
	p := w.wgmma.newProduct()
	p.op, p.frame, p.group, p.epoch, p.add = o, w.frame, w.wgmma.groups, w.knows.epoch, g.add
	if g.scale.file == filePred {
		p.add = w.uniformScale(o)
	}
	if g.a == nil {
		p.descA = mma.Descriptor(w.uniform(o, g.descA))
	}
	p.descB = mma.Descriptor(w.uniform(o, g.descB))
	p.step = w.takeStep(o, groupStep{op: o, a: p.descA, b: p.descB, add: p.add})
	w.checkRegisters(o)
	w.placeOperands(p)
	w.beginReads(p)
	w.hold(p)
	w.wgmma.open = append(w.wgmma.open, p)
	w.countProduct(o, quarterRows)
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
			p.c = w.wgmma.newSums(f.Words())
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
	for range n {
		p := w.wgmma.open[0]
		w.wgmma.open = slices.Delete(w.wgmma.open, 0, 1)
		w.deliverProduct(p)
		w.wgmma.spare = append(w.wgmma.spare, p)
	}
	if n > 0 {
		w.block.changes++
	}
}

func (w *warp) deliverProduct(p *pendingProduct) {
	g, plan := p.op.wgmma.product, w.block.launch.plans[p.op.number]
	a := room(&w.mats.a, plan.a.Words())
	if g.a != nil {
		mma.Gather(plan.a, a, w.registersOf(p.frame, g.a))
	} else {
		p.a.expand(w.collect(&p.a), a)
	}
	w.makeReady(p.b, plan)
	c, d := p.c, p.c
	if d == nil {
		d = w.wgmma.newSums(plan.d.Words())
	}
	if !p.add {
		c = nil
	}
	plan.product.MultiplyPrepared(&w.mats.scratch, d, a, &p.b.ready, c)
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
	w.wgmma.sums = append(w.wgmma.sums, d)
}

// quarterRows is how many rows of A and of the result a warp has.
const quarterRows = 16
