package sim

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/lanes"
	"attune/internal/sim/mma"
	"attune/internal/sim/order"
)

// Matrix products of a warpgroup.
//
// Each of the four warps has a quarter of the rows. The product of all four is computed when the
// first of them waits for it, at the last moment that is allowed: on an H200 the four warps start
// together, and the operands may be overwritten as soon as one warp has waited. The operands are
// read from shared memory and registers at that moment. A warp gets its quarter when it waits
// itself; until then the registers of the result are poisoned. A kernel that does not wait, or that
// changes an operand too early, therefore gets a different result besides a finding. That the four
// warps execute the same instructions is checked step by step (op_warpgroup.go).

// productOp is wgmma.mma_async.
type productOp struct {
	d, a           []slot // registers; a is nil where A is in shared memory
	descA, descB   slot
	scale          slot // predicate scale-d: add to D; noFile where it is a constant
	not, add       bool // scale is negated; the constant
	transA, transB bool // the M or N dimension is contiguous in shared memory
}

// wgmmaOp is a wgmma instruction.
type wgmmaOp struct {
	product *productOp
	keep    int // of wait_group: groups that may stay pending
}

// asyncRegister is the state of a register that products use.
type asyncRegister struct {
	touched bool   // by other instructions, since the last wgmma.fence
	writes  uint16 // products in flight that write it
	reads   uint16 // products in flight that read it as A
}

func (r *asyncRegister) busy() bool { return r.writes+r.reads > 0 }

// pendingProduct is a warp's quarter of a product in flight.
type pendingProduct struct {
	op    *op
	frame *frame
	group int // of the warp's groups
	step  int // of the warpgroup's steps
	descA mma.Descriptor
	descB mma.Descriptor
	add   bool
	a     sharedMatrix // the warp's rows of A; empty where A is in registers
	b     *tile
	c     []uint32 // what the product is added to; the previous product sets it if that is in flight

	start    order.Clock // what the warp had done and knew when it started the product
	computed bool
	d        []uint32 // the result until the warp waits for it; nil where the next product has taken it
}

// epoch returns the epoch of the product's reads.
func (p *pendingProduct) epoch() uint32 { return uint32(p.step) + 1 }

// productQueue is the products that a warp has started.
type productQueue struct {
	open            []*pendingProduct
	groups          int  // committed
	fenced          bool // there has been a wgmma.fence
	fencedSinceWait bool // there has been one since the last wgmma.wait_group
	steps           int  // of the warpgroup that this warp has executed
	waiting         bool // the wait_group that is being executed has been counted as a step

	spare        []*pendingProduct // to be used again
	accumulators [][]uint32        // to be used again
}

// newProduct returns an empty product.
func (q *productQueue) newProduct() *pendingProduct {
	n := len(q.spare)
	if n == 0 {
		return &pendingProduct{}
	}
	p := q.spare[n-1]
	q.spare = q.spare[:n-1]
	*p = pendingProduct{a: sharedMatrix{runs: p.a.runs[:0]}, start: p.start}
	return p
}

// newAccumulators returns a buffer for a result.
func (q *productQueue) newAccumulators(words int) []uint32 {
	for i, s := range q.accumulators {
		if len(s) == words {
			q.accumulators = slices.Delete(q.accumulators, i, i+1)
			return s
		}
	}
	return make([]uint32, words)
}

// lowerWgmma lowers wgmma.*.
func (c *code) lowerWgmma(in *ptx.Instruction, o *op) error {
	if err := c.requireHopper("wgmma"); err != nil {
		return err
	}
	o.wgmma, o.class = &wgmmaOp{}, count.Sync
	want := 0
	switch strings.Join(in.Modifiers, ".") {
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
		if in.Operands[0].Kind != ptx.ImmOperand || in.Operands[0].Value > maxGroups {
			return fmt.Errorf("it needs a number of groups from 0 to %d", maxGroups)
		}
		o.wgmma.keep = int(in.Operands[0].Value)
	}
	return nil
}

// The findings about the order of wgmma and of the registers that it uses.
var (
	unwaited = finding.Occurrence{Kind: finding.MissingWait, Severity: finding.Error, Missing: finding.ProductWait}
	unfenced = finding.Occurrence{Kind: finding.MissingFence, Severity: finding.Strict, Missing: finding.ProductFence}
)

// maxGroups is the largest operand of wgmma.wait_group.
const maxGroups = 7

// requireHopper returns an error for an instruction that ptxas refuses on other chips.
func (c *code) requireHopper(what string) error {
	if arch := c.program.arch; arch != "sm_90a" && arch != "compute_90a" {
		return fmt.Errorf("unsupported instruction: %s is for sm_90a, not for %s", what, arch)
	}
	return nil
}

// lowerProduct lowers wgmma.mma_async d, a, b-desc, scale-d {, imm-scale-a, imm-scale-b {,
// imm-trans-a} {, imm-trans-b}}.
func (c *code) lowerProduct(in *ptx.Instruction, o *op) error {
	found, err := mma.Lookup(in.Opcode, in.Modifiers)
	if err != nil {
		return err
	}
	p := &productOp{}
	o.wgmma.product, o.mat, o.class, o.run = p, &matrixOp{in: found}, count.Tensor, runWgmma
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

// wgmmaOperands returns the number of operands of a product. Only floats have signs, and only
// 16-bit floats have transpositions.
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

// lowerScale lowers scale-d: a predicate or a constant.
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

// watchRegisters makes every instruction that uses a register of a product check whether the
// product is in flight. It runs when all instructions are lowered.
func (c *code) watchRegisters() {
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
	constants := c.fn.ConstantMoves()
	for i := range c.fn.Code {
		o := &c.ops[i]
		if o.wgmma != nil {
			continue
		}
		var touched []int32
		for j := range c.fn.Code[i].Operands {
			c.fn.Code[i].Operands[j].EachRegister(func(r int) {
				if s := c.regs[r]; s.file == file32 && used[s.index] {
					touched = append(touched, s.index)
				}
			})
		}
		if len(touched) > 0 {
			sets := constants[i]
			o.check(func(w *warp, o *op, mask uint32) { w.touchRegisters(o, touched, sets, mask) })
		}
	}
}

// touchRegisters checks the use of registers of products by another instruction. If the instruction
// only sets them to a constant, the fence may precede it: compilers move the zeros that an
// accumulator starts with past the fence, and ptxas handles that.
func (w *warp) touchRegisters(o *op, registers []int32, constant bool, mask uint32) {
	for _, index := range registers {
		r := &w.frame.products[index]
		if !r.busy() {
			r.touched = r.touched || !constant || !w.wgmma.fencedSinceWait
			continue
		}
		i := slices.IndexFunc(w.wgmma.open, func(p *pendingProduct) bool { return p.frame == w.frame && p.uses(index) })
		w.add(unwaited, o, positionOf(w, w.wgmma.open[i].op), mask, func() string {
			return "uses a register of a wgmma.mma_async in flight: no wgmma.wait_group has waited for its group"
		})
	}
}

func (p *pendingProduct) uses(index int32) bool {
	is := func(s slot) bool { return s.index == index }
	return slices.ContainsFunc(p.op.wgmma.product.d, is) || slices.ContainsFunc(p.op.wgmma.product.a, is)
}

// runWgmmaFence orders earlier uses of registers before the products that follow.
func runWgmmaFence(w *warp, o *op, mask uint32) {
	if !w.gatherForWarpgroup(o, mask) {
		return
	}
	w.takeStep(o, groupStep{op: o})
	w.fenceRegisters()
}

func (w *warp) fenceRegisters() {
	w.wgmma.fenced, w.wgmma.fencedSinceWait = true, true
	for f := w.frame; f != nil; f = f.caller {
		for _, index := range f.code.products {
			f.products[index].touched = false
		}
	}
}

func runWgmmaCommit(w *warp, o *op, mask uint32) {
	if !w.gatherForWarpgroup(o, mask) {
		return
	}
	w.takeStep(o, groupStep{op: o})
	w.wgmma.groups++
}

// runWgmmaWait delivers the results of all groups but the last ones, once all warps of the
// warpgroup have started them.
func runWgmmaWait(w *warp, o *op, mask uint32) {
	if !w.gatherForWarpgroup(o, mask) {
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
	if ready > 0 && !w.allHaveTaken(q.open[ready-1].step) {
		w.halt(wait{kind: waitWarpgroup, op: o})
		return
	}
	q.waiting, q.fencedSinceWait = false, false
	if ready > 0 {
		w.computeProducts(q.open[ready-1].step)
	}
	w.deliverProducts(ready)
}

// runWgmma starts a product.
func runWgmma(w *warp, o *op, mask uint32) {
	if !w.gatherForWarpgroup(o, mask) {
		return
	}
	g := o.wgmma.product
	p := w.wgmma.newProduct()
	p.op, p.frame, p.group, p.add = o, w.frame, w.wgmma.groups, g.add
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
	w.reserveRegisters(p)
	w.wgmma.open = append(w.wgmma.open, p)
	w.startProduct(p)
	w.counters.Product(o.mat.in, w.block.launch.plans[o.number].machine, quarterRows)
}

// uniform returns an operand that must be equal in all lanes.
func (w *warp) uniform(o *op, s slot) uint64 {
	values := &w.R64[s.index]
	first := values[firstLane(w.lanes)]
	for m := w.lanes; m != 0; m &= m - 1 {
		if values[firstLane(m)] != first {
			w.report(finding.Undefined, o, w.lanes, func() string { return "the lanes of the warp have different descriptors" })
			break
		}
	}
	return first
}

func (w *warp) uniformScale(o *op) bool {
	g := o.wgmma.product
	bits := w.Preds[g.scale.index] & w.lanes
	if bits != 0 && bits != w.lanes {
		w.report(finding.Undefined, o, w.lanes, func() string { return "the lanes of the warp have different values of scale-d" })
	}
	return (bits != 0) != g.not
}

// checkRegisters checks that a product may use its registers now.
func (w *warp) checkRegisters(o *op) {
	g, state := o.wgmma.product, w.frame.products
	touched := func(s slot) bool { return state[s.index].touched }
	if !w.wgmma.fenced || slices.ContainsFunc(g.d, touched) || slices.ContainsFunc(g.a, touched) {
		// ptxas injects the fence (its note C7519), so the machine code is the same.
		w.add(unfenced, o, position{}, w.lanes, func() string {
			return "uses registers that other instructions have used, or is the first product, with no wgmma.fence before it"
		})
		w.fenceRegisters() // one report is enough
	}
	follows := w.lastInto(g.d) != nil
	clash := slices.ContainsFunc(g.a, func(s slot) bool { return state[s.index].writes > 0 }) ||
		slices.ContainsFunc(g.d, func(s slot) bool { r := &state[s.index]; return r.reads > 0 || r.writes > 0 && !follows })
	if clash {
		w.add(unwaited, o, positionOf(w, w.wgmma.open[len(w.wgmma.open)-1].op), w.lanes, func() string {
			return "uses registers of another wgmma.mma_async in flight, and not as the same accumulator of the same shape"
		})
		w.deliverProducts(len(w.wgmma.open))
	}
}

// lastInto returns the last product in flight with the same accumulator registers.
func (w *warp) lastInto(d []slot) *pendingProduct {
	for _, p := range slices.Backward(w.wgmma.open) {
		if p.frame == w.frame && slices.Equal(p.op.wgmma.product.d, d) {
			return p
		}
	}
	return nil
}

// reserveRegisters marks the registers of a product as in use, and poisons its accumulator.
func (w *warp) reserveRegisters(p *pendingProduct) {
	g, f := p.op.wgmma.product, w.block.launch.plans[p.op.number].d
	if last := w.lastInto(g.d); last != nil {
		p.c, last.d = last.d, nil // nil where the last product is not computed yet
	} else {
		registers := w.registersOf(p.frame, g.d)
		if p.add {
			p.c = w.wgmma.newAccumulators(f.Words())
			mma.Gather(f, p.c, registers)
		}
		for _, r := range registers {
			for lane := range r {
				r[lane] = poison
			}
		}
	}
	for _, s := range g.d {
		p.frame.products[s.index].writes++
	}
	for _, s := range g.a {
		p.frame.products[s.index].reads++
	}
}

// poison is the value of accumulator registers until the result is delivered. It is NaN as f32 and
// as two f16.
const poison = 0xFFFFFFFF

func (w *warp) registersOf(f *frame, list []slot) []*lanes.V32 {
	w.mats.ptr32 = w.mats.ptr32[:0]
	for _, s := range list {
		w.mats.ptr32 = append(w.mats.ptr32, &f.R32[s.index])
	}
	return w.mats.ptr32
}

// deliverProducts delivers the first n products in flight.
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

// computeProducts computes the products of all warps of the warpgroup up to a step. Warps that have
// diverged compute their own.
func (w *warp) computeProducts(step int) {
	if w.warpgroup().diverged {
		return
	}
	w.block.moment++
	for _, other := range w.siblings() {
		for i, p := range other.wgmma.open {
			if p.step > step {
				break
			}
			if !p.computed {
				other.computeProduct(p, other.wgmma.open[i+1:])
			}
		}
	}
}

// computeProduct computes a product and ends its reads. later are the products in flight after it.
func (w *warp) computeProduct(p *pendingProduct, later []*pendingProduct) {
	g, plan := p.op.wgmma.product, w.block.launch.plans[p.op.number]
	a := resized(&w.mats.a, plan.a.Words())
	if g.a != nil {
		mma.Gather(plan.a, a, w.registersOf(p.frame, g.a))
	} else {
		p.a.expand(w.collect(&p.a), a)
	}
	w.prepareTile(p.b, plan)
	c, d := p.c, p.c
	if d == nil {
		d = w.wgmma.newAccumulators(plan.d.Words())
	}
	if !p.add {
		c = nil
	}
	plan.product.MultiplyPrepared(&w.mats.scratch, d, a, &p.b.ready, c)
	w.endReads(p)
	p.computed = true
	// If a later product adds to this one, the registers stay poisoned.
	for _, next := range later {
		if next.frame == p.frame && slices.Equal(next.op.wgmma.product.d, g.d) {
			next.c = d
			return
		}
	}
	p.d = d
}

// deliverProduct gives the warp the result of a product that is no longer in flight.
func (w *warp) deliverProduct(p *pendingProduct) {
	if !p.computed {
		w.block.moment++
		w.computeProduct(p, w.wgmma.open)
	}
	g := p.op.wgmma.product
	for _, s := range g.d {
		p.frame.products[s.index].writes--
	}
	for _, s := range g.a {
		p.frame.products[s.index].reads--
	}
	if w.block.launch.options.Checks {
		w.clocks.LearnEpoch(w.readAgent(), p.epoch())
	}
	if p.d != nil {
		mma.Scatter(w.block.launch.plans[p.op.number].d, w.registersOf(p.frame, g.d), p.d)
		w.wgmma.accumulators = append(w.wgmma.accumulators, p.d)
		p.d = nil
	}
}

// quarterRows is the number of rows of A and D that a warp computes.
const quarterRows = 16
