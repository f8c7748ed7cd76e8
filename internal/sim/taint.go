package sim

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

// Uninitialised values.
//
// Compilers load speculatively: they hoist a load above its condition and discard the value with
// selp. A load of bytes that were never written is therefore no defect. It taints its registers,
// lane by lane and bit by bit. Arithmetic passes the taint on, and a store to local or to shared
// memory leaves its bytes unwritten. Shuffles, ldmatrix and mma.sync pass it on as well: a kernel may
// multiply padded rows and discard the result. A finding is made where the value is used: as an
// address, in a predicate that decides a branch or an access, in a store to global memory, in another
// operation of several lanes, or as an argument of a call. It names the load and the use.
//
// The tainted bits of a result are exact for selections, and for operations of which each bit of the
// result depends on one bit of an operand (taint_bits.go). Otherwise a result is tainted if any
// operand is. A load whose register no instruction reads is reported at once, as a strict finding: it
// is harmless.
//
// A load that races with a store of its block taints its registers in the same way (racingLoad). The
// race is strict until the value is used: compilers let all threads load what one of them stores back.
// A store to shared or local memory is a use of such a value. Where the load comes first, its value has
// gone on without taint; then the instructions that use it decide (onlyStored).
//
// Registers start tainted too, if some path reads them before it sets them. Compilers leave such
// registers where the value does not matter, so an argument of a call is no use. Taint ends at the
// start of a basic block where the register is dead.
//
// A warp without tainted registers pays for one comparison per instruction. With some, an instruction
// that accesses none of them passes nothing on, and runs of such instructions stay runs.

// taint has the tainted registers of a frame.
type taint struct {
	r32, r64, preds          []uint32 // lanes, by register
	from32, from64, fromPred []*unwrittenLoad
	tainted                  []slot         // registers with tainted lanes, and some that had
	listed                   [files][]bool  // those, by register
	live                     int            // registers with tainted lanes
	version                  uint64         // of the set of these registers
	runs                     []untaintedRun // by the first instruction
	loads                    map[int32]*unwrittenLoad
	bits                     map[slot]*[32]uint64 // tainted bits of each tainted lane; no entry for a register where they are all
	spare                    []*[32]uint64
}

// unwrittenLoad is where a tainted value comes from: a load of unwritten bytes, or a register that
// was never set. The text of a load is that of a warp's first.
type unwrittenLoad struct {
	op       *op // nil for a register
	variable finding.Variable
	text     string
	race     func() // of a load that races with a store: reports it as an error
}

// isUnset reports whether the value is that of a register that was never set.
func (u *unwrittenLoad) isUnset() bool { return u.op == nil }

// at returns the tainted lanes of a register and where they come from. Both are nil for a constant
// or a special register, which is never tainted.
func (t *taint) at(s slot) (*uint32, **unwrittenLoad) {
	switch {
	case s.file == file32 && int(s.index) < len(t.r32):
		return &t.r32[s.index], &t.from32[s.index]
	case s.file == file64 && int(s.index) < len(t.r64):
		return &t.r64[s.index], &t.from64[s.index]
	case s.file == filePred:
		return &t.preds[s.index], &t.fromPred[s.index]
	}
	return nil, nil
}

// lanes returns the tainted lanes of a register.
func (t *taint) lanes(s slot) uint32 {
	if mask, _ := t.at(s); mask != nil {
		return *mask
	}
	return 0
}

// set makes exactly some of the lanes of mask tainted.
func (t *taint) set(s slot, mask, tainted uint32, from *unwrittenLoad) {
	at, origin := t.at(s)
	if at == nil {
		return
	}
	before := *at
	*at = before&^mask | tainted&mask
	if tainted&mask != 0 {
		*origin = from
	}
	t.setAllBits(s, tainted&mask)
	switch {
	case before == 0 && *at != 0:
		t.live++
		t.version++
		if listed := &t.listed[s.file][s.index]; !*listed {
			*listed = true
			t.tainted = append(t.tainted, s)
		}
	case before != 0 && *at == 0:
		t.live--
		t.version++
		t.dropBits(s)
	}
}

// liveTaint returns the frame's taint if it has tainted registers, else nil.
func (f *frame) liveTaint() *taint {
	if f.taint == nil || f.taint.live == 0 {
		return nil
	}
	return f.taint
}

// readUnwritten handles a read of bytes that were never written.
func (w *warp) readUnwritten(o *op, a accessInfo, marks []byte, address uint64, lane int, d mem.Direction) {
	first := address + uint64(bytes.IndexByte(marks, mem.Unwritten))
	text := func() string {
		return fmt.Sprintf("%s %d bytes; %s", d, a.bytes, w.describeUnwritten(a.space, first))
	}
	if !a.taints {
		w.reportMemory(finding.Occurrence{Kind: finding.Uninitialized}, o, position{}, lane, a.space, address, text)
		return
	}
	mask := w.laneBit(lane)
	if lane == allLanes {
		mask &= w.sharing
	}
	unused := false
	for i := range o.mem.regs {
		e := &o.mem.regs[i]
		switch {
		case bytes.IndexByte(marks[i*o.mem.size:(i+1)*o.mem.size], mem.Unwritten) < 0:
		case e.unused:
			unused = true
		default:
			t := w.frame.newTaint()
			t.set(e.slot, mask, mask, t.load(w, o, mask, a.space, address, text))
			t.taintLoaded(e, marks[i*o.mem.size:(i+1)*o.mem.size], mask)
		}
	}
	if unused {
		w.reportMemory(finding.Occurrence{Kind: finding.Uninitialized, Severity: finding.Strict}, o, position{}, lane, a.space, address,
			func() string { return text() + "; no instruction uses the value" })
	}
	w.taint = w.frame.liveTaint()
}

// racingLoad taints the registers of a load that races with an earlier store, in the lanes of the access
// but the one that stored. report is called when a value is used.
func (w *warp) racingLoad(o *op, lane int, stored *order.Access, report func()) {
	mask := w.laneBit(lane)
	if lane == allLanes {
		mask &= w.sharing
	}
	if int(stored.Warp) == w.index && stored.Lane < order.AllLanes {
		mask &^= stored.Lanes()
	}
	from := &unwrittenLoad{op: o, race: report}
	for i := range o.mem.regs {
		if e := &o.mem.regs[i]; !e.unused {
			w.frame.newTaint().set(e.slot, mask, mask, from)
		}
	}
	w.taint = w.frame.liveTaint()
}

// onlyStored reports whether stores are the only uses of what racing threads have loaded before, and
// none of the threads has executed one. The warp w now stores, by lane.
func (w *warp) onlyStored(c order.Conflict, o *op, lane int) bool {
	b := w.block
	if !c.Read || uint64(c.Earlier.Block) != b.index || int(c.Earlier.Warp) >= len(b.warps) {
		return false
	}
	reader, load := b.warps[c.Earlier.Warp], b.launch.program.ops[c.Earlier.Op]
	if load.code != w.frame.code || reader.frame == nil || reader.frame.code != load.code {
		return false
	}
	lanes, next := c.Lanes, load.code.base+reader.pc
	if reader == w {
		lanes, next = lanes&^w.laneBit(lane), o.number+1
	}
	stores := load.code.storesOf(load.pc)
	for _, s := range stores {
		isKnown := reader.alive == 0 || len(reader.groups) == 0 && s.number < next || reader == w && s.guard == o.guard
		if s.guard < 0 || !isKnown || reader.guarded(s)&lanes != 0 {
			return false
		}
	}
	return len(stores) > 0
}

// storesOf returns the stores of the value of a load, or of what arithmetic makes of it. It returns none
// if the value has another use.
func (c *code) storesOf(load int32) []*op {
	if known, ok := c.stores.Load(load); ok {
		return known.([]*op)
	}
	stores := c.findStores(load)
	c.stores.Store(load, stores)
	return stores
}

func (c *code) findStores(load int32) []*op {
	if c.ops[load].mem == nil || !c.ops[load].mem.taints {
		return nil
	}
	derived := map[slot]bool{}
	for _, s := range c.flow(int(load)).dst {
		derived[s] = true
	}
	isDerived := func(s slot) bool { return derived[s] }
	var stores []*op
	for changed := true; changed; {
		changed = false
		for i := range c.fn.Code {
			o, f := &c.ops[i], c.flow(i)
			guarded := o.guard >= 0 && derived[slot{filePred, o.guard}]
			switch {
			case !guarded && !slices.ContainsFunc(f.src, isDerived) && !slices.ContainsFunc(f.addresses, isDerived):
			case f.pure:
				for _, s := range f.dst {
					changed = changed || !derived[s]
					derived[s] = true
				}
			case guarded || !o.isStore() || slices.ContainsFunc(f.addresses, isDerived):
				return nil
			case !slices.Contains(stores, o):
				stores = append(stores, o)
			}
		}
	}
	return stores
}

// isRacing reports whether the tainted value of a register comes from a load that races.
func (t *taint) isRacing(s slot) bool {
	_, origin := t.at(s)
	return (*origin).race != nil
}

// load returns the description of a load of unwritten bytes.
func (t *taint) load(w *warp, o *op, lanes uint32, space ptx.Space, address uint64, text func() string) *unwrittenLoad {
	from := t.loads[o.number]
	if from == nil {
		from = &unwrittenLoad{op: o, variable: w.block.variable(o, space, address), text: w.threads(lanes) + ": " + text()}
		if t.loads == nil {
			t.loads = map[int32]*unwrittenLoad{}
		}
		t.loads[o.number] = from
	}
	return from
}

// newTaint returns the frame's taint, and makes it where there is none.
func (f *frame) newTaint() *taint {
	if f.taint == nil {
		c := f.code
		f.taint = &taint{
			r32: make([]uint32, c.tail32), r64: make([]uint32, c.tail64), preds: make([]uint32, c.nPred),
			from32: make([]*unwrittenLoad, c.tail32), from64: make([]*unwrittenLoad, c.tail64), fromPred: make([]*unwrittenLoad, c.nPred),
			listed: [files][]bool{file32: make([]bool, c.tail32), file64: make([]bool, c.tail64), filePred: make([]bool, c.nPred)},
			runs:   make([]untaintedRun, len(c.ops)), version: 1,
		}
	}
	return f.taint
}

// reset forgets all taint, for the next block.
func (t *taint) reset() {
	if t == nil {
		return
	}
	for _, s := range t.tainted {
		t.set(s, everyLane, 0, nil)
		t.listed[s.file][s.index] = false
	}
	t.tainted = t.tainted[:0]
	clear(t.loads)
}

// unset has the registers of a function that may be read before they are set, and where registers
// are live.
type unset struct {
	once      sync.Once
	registers []unsetRegister
	liveness  *ptx.Liveness
	register  [files][]int // of the function, by slot
}

type unsetRegister struct {
	slot slot
	from *unwrittenLoad
}

func (c *code) unset() *unset {
	c.unsets.once.Do(func() {
		u := &c.unsets
		u.liveness = c.fn.Liveness()
		u.register = [files][]int{file32: make([]int, c.n32), file64: make([]int, c.n64), filePred: make([]int, c.nPred)}
		for r, s := range c.regs {
			u.register[s.file][s.index] = r
		}
		for _, r := range u.liveness.UnsetRegisters(c.fn) {
			from := &unwrittenLoad{text: "the register " + c.fn.Registers[r].Name + " was never set"}
			u.registers = append(u.registers, unsetRegister{c.regs[r], from})
		}
	})
	return &c.unsets
}

// taintUnset taints the registers of a new frame that may be read before they are set.
func (w *warp) taintUnset(f *frame, lanes uint32) {
	if !w.block.launch.options.Checks {
		return
	}
	for _, r := range f.code.unset().registers {
		f.newTaint().set(r.slot, lanes, lanes, r.from)
	}
}

// dropDead ends the taint of registers that are dead at the start of a basic block, in the lanes
// that run.
func (w *warp) dropDead(t *taint, pc int) {
	u := w.frame.code.unset()
	if !u.liveness.Start(pc) {
		return
	}
	kept := t.tainted[:0]
	for _, s := range t.tainted {
		if !u.liveness.Live(u.register[s.file][s.index], pc) {
			t.set(s, w.lanes, 0, nil)
		}
		if t.lanes(s) != 0 {
			kept = append(kept, s)
		} else {
			t.listed[s.file][s.index] = false
		}
	}
	t.tainted = kept
}

// flow is how an instruction uses registers.
type flow struct {
	pure      bool   // it only computes registers of the same lane
	dst, src  []slot // results and operands
	addresses []slot // registers of addresses
	data      int    // of a bitwise operation or a selection: the number of operands that are data, not control
	upward    bool   // a sum or a product of integers: no bit of the result depends on a higher bit of an operand
	shuffles  bool   // shfl: the first operand goes to other lanes
	combines  string // of setp with a third operand: how it is combined with the comparison
}

// flows are the flows of a function, made on first use.
type flows struct {
	once sync.Once
	list []flow
}

// dataOperands lists the operations of which each bit of the result depends on one bit of each data
// operand at most.
var dataOperands = map[string]int{
	"and": 2, "or": 2, "xor": 2, "not": 1, "lop3": 3, "selp": 2, "slct": 2, "prmt": 2, "bfi": 2, "bfe": 1, "brev": 1, "shl": 1, "shr": 1, "shf": 2,
}

func (c *code) flow(pc int) *flow {
	c.flows.once.Do(func() {
		c.flows.list = make([]flow, len(c.ops))
		for i := range c.fn.Code {
			c.flows.list[i] = c.newFlow(&c.fn.Code[i], &c.ops[i])
		}
	})
	return &c.flows.list[pc]
}

func (c *code) newFlow(in *ptx.Instruction, o *op) flow {
	f := flow{data: dataOperands[in.Opcode], shuffles: in.Opcode == "shfl"}
	switch in.Opcode {
	case "shfl", "vote", "match", "redux", "elect", "activemask", "setmaxnreg":
	case "prefetch", "prefetchu", "nanosleep", "applypriority": // nothing depends on their operands
		return f
	default:
		if a := o.alu; a != nil && !isFloat(a.Result) && a.Carry == nil {
			saturates := slices.Contains(in.Modifiers, "sat")
			if in.Opcode == "cvt" && !isFloat(a.Args[0]) && !saturates {
				f.data = 1
			}
			f.upward = !saturates && !slices.Contains(in.Modifiers, "hi") && slices.Contains([]string{"add", "sub", "mul", "mad", "neg"}, in.Opcode)
		}
		f.pure = o.mem == nil && o.sync == nil && o.ctl == nil && o.mat == nil && o.wgmma == nil && o.texture == nil
	}
	operands := in.Operands
	if i := slices.IndexFunc(in.Modifiers, func(m string) bool { return m == "and" || m == "or" }); i >= 0 && in.Opcode == "setp" {
		f.combines = in.Modifiers[i]
	}
	if in.HasResult() || in.Opcode == "call" {
		operands[0].EachRegister(func(r int) { f.dst = append(f.dst, c.regs[r]) })
		operands = operands[1:]
	}
	for i := range operands {
		list := &f.src
		if operands[i].Kind == ptx.AddrOperand {
			list = &f.addresses
		}
		operands[i].EachRegister(func(r int) { *list = append(*list, c.regs[r]) })
	}
	return f
}

// passTaint follows tainted values through the next instruction, before it runs. mask are the lanes
// that execute it.
func (w *warp) passTaint(o *op, mask uint32) {
	t := w.taint
	pc := int(o.number - w.frame.code.base)
	if pc >= len(w.frame.code.fn.Code) {
		return
	}
	w.dropDead(t, pc)
	f := w.frame.code.flow(pc)
	guard := slot{}
	if o.guard >= 0 {
		guard = slot{filePred, o.guard}
	}
	if t.lanes(guard) == 0 && (mask == 0 || !t.touches(f)) {
		w.taint = w.frame.liveTaint()
		return
	}
	inDoubt := t.lanes(guard) & w.lanes // it is open whether they execute the instruction
	switch {
	case f.pure:
		w.passToResult(t, o, f, mask, guard, inDoubt)
	case o.mat != nil && w.passMatrix(t, o, mask):
	default:
		w.useTainted(guard, inDoubt, o, useOf(o))
		for _, s := range f.addresses {
			w.useTainted(s, mask, o, "its address")
		}
		shuffled, from := w.useOperands(t, o, f, mask)
		for _, s := range f.dst {
			t.set(s, mask, shuffled, from)
		}
	}
	w.taint = w.frame.liveTaint()
}

// touches reports whether an instruction accesses a tainted register, its guard apart.
func (t *taint) touches(f *flow) bool {
	for _, list := range [...][]slot{f.src, f.dst, f.addresses} {
		for _, s := range list {
			if t.lanes(s) != 0 {
				return true
			}
		}
	}
	return false
}

// untaintedRun is how many operations of a run access no register of a set of tainted ones.
type untaintedRun struct {
	version uint64 // of the set
	n       int
}

// untaintedRun returns how many operations of the run that begins at o, which have no guards, access no
// tainted register. All lanes execute them. Where the same registers are tainted as the last time, the
// result is the same: none of them is dead at the start of the run.
func (w *warp) untaintedRun(o *op) int {
	t, first := w.taint, int(o.number-w.frame.code.base)
	run := &t.runs[first]
	if run.version == t.version {
		return run.n
	}
	w.dropDead(t, first)
	*run = untaintedRun{t.version, w.countUntainted(first, int(o.runLength))}
	return run.n
}

// countUntainted returns how many of n operations access no tainted register. A basic block may begin
// with the first only.
func (w *warp) countUntainted(first, n int) int {
	c := w.frame.code
	for i := range n {
		if w.taint.touches(c.flow(first+i)) || i > 0 && c.unset().liveness.Start(first+i) {
			return i
		}
	}
	return n
}

// storesTaint reports whether a store has a tainted operand.
func (w *warp) storesTaint(m *memOp) bool {
	if w.taint == nil {
		return false
	}
	return slices.ContainsFunc(m.regs, func(e element) bool { return w.taint.lanes(e.slot) != 0 })
}

// passToResult sets the taint of the results of an operation on each lane by itself.
func (w *warp) passToResult(t *taint, o *op, f *flow, mask uint32, guard slot, inDoubt uint32) {
	var tainted uint32
	var from *unwrittenLoad
	for _, s := range f.src {
		if m := t.lanes(s) & mask; m != 0 {
			tainted |= m
			_, origin := t.at(s)
			from = *origin
		}
	}
	if inDoubt != 0 {
		_, origin := t.at(guard)
		from = *origin
	}
	var undefined [32]uint64 // bits of the result of an operation, or of a mov
	var high [32]uint64      // bits of a mov of 128 bits
	byBit := o.alu != nil || o.mov != nil
	if byBit {
		for m := tainted; m != 0; m &= m - 1 {
			lane := firstLane(m)
			if o.mov != nil {
				undefined[lane], high[lane] = t.gather(o.mov, lane)
			} else if undefined[lane] = w.undefinedResult(t, o.alu, f, lane); undefined[lane] == 0 {
				tainted &^= 1 << lane
			}
		}
	}
	if o.mov != nil {
		for _, p := range o.mov.dst {
			t.scatter(&p, mask, tainted, &undefined, &high, from)
			t.set(p.slot, inDoubt, inDoubt, from)
		}
		return
	}
	for _, s := range f.dst {
		t.set(s, mask|inDoubt, tainted|inDoubt, from)
		if byBit && s.file != filePred {
			t.setBits(s, tainted&^inDoubt, &undefined)
		}
	}
}

// useOperands reports the operands of an instruction that are tainted. A store decides itself, when
// the state space of its address is known (storeTainted). The accumulator of a product counts if it
// is added to. It returns the lanes of a shuffle that get an unset value.
func (w *warp) useOperands(t *taint, o *op, f *flow, mask uint32) (shuffled uint32, from *unwrittenLoad) {
	if o.isStore() && o.mem.param == nil {
		return 0, nil
	}
	if o.wgmma != nil && o.wgmma.product != nil {
		g := o.wgmma.product
		if g.add || g.scale.file == filePred && (w.Preds[g.scale.index]&w.lanes != 0) != g.not {
			for _, s := range g.d {
				w.useTainted(s, mask, o, "its accumulator")
			}
		}
	}
	for i, s := range f.src {
		lanes, origin := t.at(s)
		switch {
		case lanes == nil || *lanes&mask == 0:
		case f.shuffles && i == 0:
			shuffled, from = w.shuffledTaint(o, *lanes, mask), *origin
		case (*origin).isUnset() && o.isStore():
		default:
			w.useTainted(s, mask, o, "an operand")
		}
	}
	return shuffled, from
}

// shuffledTaint returns the lanes that a shuffle gives a tainted value to. The values of lanes that are
// elsewhere are not known yet, and do not count.
func (w *warp) shuffledTaint(o *op, tainted, mask uint32) uint32 {
	s, lanes := o.sync, uint32(0)
	where, limit := &w.R32[s.b.index], &w.R32[s.mask.index]
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		source, inside := shuffleSource(s.kind, uint32(lane), where[lane]&31, limit[lane])
		if !inside {
			source = uint32(lane)
		}
		lanes |= (tainted & mask) >> (source & 31) & 1 << lane
	}
	return lanes
}

// useOf says what the guard of an instruction decides.
func useOf(o *op) string {
	if o.ctl != nil && len(o.ctl.targets) > 0 {
		return "the condition of the branch"
	}
	return "its condition"
}

func (o *op) isStore() bool {
	return o.mem != nil && o.mem.atomic == nil && o.sync == nil && o.mem.stores
}

// useTainted reports the use of a register in lanes where it is tainted. The taint ends there: one
// report is enough.
func (w *warp) useTainted(s slot, mask uint32, o *op, as string) {
	t := w.frame.taint
	lanes := t.lanes(s) & mask
	if lanes == 0 {
		return
	}
	_, origin := t.at(s)
	from := *origin
	if from.race != nil {
		from.race()
		t.end(from, lanes)
		return
	}
	for m := lanes; m != 0; m &= m - 1 {
		if from.isUnset() {
			w.report(finding.Uninitialized, o, 1<<firstLane(m), func() string { return from.text + "; the value is " + as })
			continue
		}
		occurrence := finding.Occurrence{Kind: finding.Uninitialized, Severity: finding.Error}
		w.block.add(occurrence, positionOf(w, from.op), positionOf(w, o), func(f *finding.Finding) {
			f.Variable = from.variable
			f.Detail = fmt.Sprintf("%s; thread %d uses the value: it is %s", from.text, w.index*32+firstLane(m), as)
		})
	}
	if from.isUnset() {
		t.end(from, lanes)
	}
	t.set(s, mask, 0, nil)
}

// end ends the taint of all values that come from one load, or from a register that was never set. One
// report of it is enough.
func (t *taint) end(from *unwrittenLoad, lanes uint32) {
	for _, s := range t.tainted {
		if _, origin := t.at(s); *origin == from {
			t.set(s, lanes, 0, nil)
		}
	}
}

// storeTainted handles the store of tainted values by a lane. Local and shared memory stay unwritten:
// the value is undefined for a thread that loads it, and only its use is a defect. Other stores are
// uses.
func (w *warp) storeTainted(o *op, space ptx.Space, address uint64, marks []byte, lane int) {
	if !o.isStore() {
		return
	}
	for i := range o.mem.regs {
		s := o.mem.regs[i].slot
		switch {
		case w.taint == nil || w.taint.lanes(s)>>lane&1 == 0:
		case w.taint.isRacing(s):
			w.useTainted(s, 1<<lane, o, "stored")
			w.taint = w.frame.liveTaint()
		case space == ptx.Local || space == ptx.Shared:
			undefined := w.taint.undefined(s, lane)
			for j := range o.mem.size {
				if undefined>>(8*min(j, 7))&0xFF == 0 {
					continue
				}
				if at := i*o.mem.size + j; marks[at] == mem.Written {
					marks[at] = mem.Unwritten
					w.noteUndefinedStore(o, space, address+uint64(at), lane)
				}
			}
		case o.mem.size < 8 && w.taint.undefined(s, lane)&(1<<(8*o.mem.size)-1) == 0: // of a wider register
		default:
			w.useTainted(s, 1<<lane, o, "stored")
			w.taint = w.frame.liveTaint()
		}
	}
}
