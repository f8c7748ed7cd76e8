package sim

import (
	"fmt"

	"attune/internal/ptx"
)

// controlOp is a branch or a call.
type controlOp struct {
	targets []int32
	meet    int32 // where the sides of a branch meet
	index   slot  // of brx.idx, or the address of an indirect call

	callee  *ptx.Function // of a direct call; nil otherwise
	returns []passed
	args    []passed
}

// passed is a parameter of a call: a .param variable of the caller, or a register or constant.
type passed struct {
	at, size int // of a variable, in the parameters of a lane
	slot     slot
}

// lowerControl turns branches, calls and ends into operations.
func (c *code) lowerControl(in *ptx.Instruction, o *op, pc int) error {
	o.class = classControl
	o.ctl = &controlOp{meet: int32(c.meet[pc])}
	for _, t := range in.Targets {
		o.ctl.targets = append(o.ctl.targets, int32(t))
	}
	switch in.Opcode {
	case "bra":
		o.a = o.ctl.targets[0]
		o.run = runBranch
		return nil
	case "brx":
		s, err := c.source(in.Operands[0], ptx.U32)
		o.ctl.index, o.run = s, runIndexedBranch
		return err
	case "ret":
		o.run, o.ends = runReturn, in.Guard < 0
		return nil
	case "exit":
		o.ends = in.Guard < 0
		o.run = func(w *warp, _ *op, mask uint32) { w.end(mask) }
		return nil
	case "trap":
		o.run = runTrap
		return nil
	case "call":
		return c.lowerCall(in, o)
	}
	return fmt.Errorf("unsupported instruction")
}

func runBranch(w *warp, o *op, mask uint32) {
	switch {
	case mask == w.lanes:
		w.pc = o.a
	default:
		w.split(mask, o.a, o.ctl.meet)
	}
}

// runIndexedBranch sends each lane to the target of its index.
func runIndexedBranch(w *warp, o *op, mask uint32) {
	index := &w.r32[o.ctl.index.index]
	type side struct {
		target int32
		lanes  uint32
	}
	var sides []side
	add := func(target int32, lane int) {
		for i := range sides {
			if sides[i].target == target {
				sides[i].lanes |= 1 << lane
				return
			}
		}
		sides = append(sides, side{target, 1 << lane})
	}
	wrong := uint32(0)
	for m := w.lanes; m != 0; m &= m - 1 {
		lane := firstLane(m)
		switch {
		case mask>>lane&1 == 0:
			add(w.pc, lane)
		case int(index[lane]) >= len(o.ctl.targets):
			wrong |= 1 << lane
		default:
			add(o.ctl.targets[index[lane]], lane)
		}
	}
	if wrong != 0 {
		w.report(Undefined, o, wrong, func() string {
			return fmt.Sprintf("branch %d of a list of %d; the thread ends here", index[firstLane(wrong)], len(o.ctl.targets))
		})
		w.end(wrong)
	}
	if len(sides) == 0 {
		return
	}
	if len(sides) > 1 {
		w.joinAt(o.ctl.meet)
		for _, s := range sides[1:] {
			w.groups = append(w.groups, &group{pc: s.target, lanes: s.lanes, frame: w.frame, join: w.join})
		}
		w.lanes = sides[0].lanes
	}
	w.pc = sides[0].target
}

// joinAt has the running group and what parts from it meet at an instruction.
func (w *warp) joinAt(pc int32) {
	if w.join == nil || w.join.frame != w.frame || w.join.pc != pc {
		w.join = &junction{pc: pc, frame: w.frame, want: w.lanes, outside: w.join}
		w.setJoin()
	}
}

// runReturn ends the call, or the thread where there is no caller. Lanes of a group may return at different times: each part goes on by itself and
// meets the others where the caller's code has them meet.
func runReturn(w *warp, _ *op, mask uint32) {
	f := w.frame
	if f.caller == nil {
		w.end(mask)
		return
	}
	copyReturns(f, mask)
	if rest := w.lanes &^ mask; rest != 0 {
		// The junction of the call waits for the lanes that are still inside.
		w.groups = append(w.groups, &group{pc: w.pc, lanes: rest, frame: f, join: w.join})
		w.lanes = mask
	}
	w.unwind(f)
	w.enter(f.caller)
	w.pc = f.back
	w.setJoin()
}

// unwind leaves the junctions inside of a function that lanes return from early: the others do not wait for them there.
func (w *warp) unwind(f *frame) {
	for j := w.join; j != nil && j.frame == f; j = j.outside {
		j.want &^= w.lanes
		if j.have != 0 && j.have == j.want {
			w.groups = append(w.groups, &group{pc: j.pc, lanes: j.have, frame: j.frame, join: j.outside})
			j.have = 0
		}
		w.join = j.outside
	}
}

func runTrap(w *warp, o *op, mask uint32) {
	w.block.abort(fmt.Errorf("the kernel executed trap at %s, in %s", spotOf(w, o).place(), w.threads(mask)))
}

// runAssert is __assertfail(message, file, line, function, size of a character), which a failed assert calls.
func runAssert(w *warp, o *op, mask uint32) {
	lane := firstLane(mask)
	args := o.ctl.args
	if len(args) < 4 {
		runTrap(w, o, mask)
		return
	}
	text := func(i int) string { return w.cString(o, lane, fromLittleEndian(paramValue(w.frame, args[i], lane))) }
	line := uint32(fromLittleEndian(paramValue(w.frame, args[2], lane)))
	w.block.abort(fmt.Errorf("the kernel's assertion `%s` failed in %s:%d, %s, in %s", text(0), text(1), line, text(3), w.threads(mask)))
}

// lowerCall turns a call into an operation.
func (c *code) lowerCall(in *ptx.Instruction, o *op) error {
	if len(in.Operands) != 3 {
		return fmt.Errorf("it has %d parts, want 3", len(in.Operands))
	}
	var err error
	if o.ctl.returns, err = c.passed(in.Operands[0].Parts); err != nil {
		return err
	}
	if o.ctl.args, err = c.passed(in.Operands[2].Parts); err != nil {
		return err
	}
	o.run = runCall
	target := in.Operands[1]
	if target.Kind == ptx.RegOperand {
		o.ctl.index = c.regs[target.Register]
		if o.ctl.index.file != file64 {
			return fmt.Errorf("the address of a function has 64 bits")
		}
		return nil
	}
	o.ctl.callee = target.Symbol.Function
	switch {
	case o.ctl.callee == nil:
		return fmt.Errorf("it calls something that is no function")
	case o.ctl.callee.External && o.ctl.callee.Name == "vprintf":
		o.run = runPrintf
	case o.ctl.callee.External && o.ctl.callee.Name == "__assertfail":
		o.run = runAssert
	case o.ctl.callee.External && o.ctl.callee.Name == "malloc":
		o.run = runMalloc
	case o.ctl.callee.External && o.ctl.callee.Name == "free":
		o.run = runFree
	case o.ctl.callee.External:
		return fmt.Errorf("the function %s is declared and not defined", o.ctl.callee.Name)
	}
	return c.checkCall(o.ctl, o.ctl.callee)
}

func (c *code) checkCall(call *controlOp, callee *ptx.Function) error {
	if len(call.args) != len(callee.Params) || len(call.returns) != len(callee.Returns) {
		return fmt.Errorf("%s takes %d arguments and gives %d, and the call has %d and %d", callee.Name, len(callee.Params), len(callee.Returns),
			len(call.args), len(call.returns))
	}
	return nil
}

func (c *code) passedVariable(v *ptx.Variable) passed {
	return passed{at: c.paramAt[v], size: v.Size()}
}

func (c *code) passed(list []ptx.Operand) ([]passed, error) {
	var all []passed
	for _, o := range list {
		if o.Kind == ptx.SymOperand && o.Symbol.Variable != nil && o.Symbol.Variable.Space == ptx.Param {
			all = append(all, c.passedVariable(o.Symbol.Variable))
			continue
		}
		t := ptx.B64
		if o.Kind == ptx.RegOperand {
			t = c.fn.Registers[o.Register].Type
		}
		s, err := c.source(o, t)
		if err != nil {
			return nil, err
		}
		all = append(all, passed{slot: s})
	}
	return all, nil
}

// runCall enters a function. An indirect call whose lanes go to different functions is made function by function.
func runCall(w *warp, o *op, mask uint32) {
	callee := o.ctl.callee
	if callee == nil {
		var lanes uint32
		if callee, lanes = w.indirect(o, mask); callee == nil {
			return
		}
		mask = lanes
	}
	if depth(w.frame) >= mostFrames {
		w.block.abort(fmt.Errorf("%s calls itself more than %d deep", callee.Name, mostFrames))
		return
	}
	// All meet behind the call: lanes that do not make it, that make another one, and those that return early.
	back := w.pc
	w.joinAt(back)
	if rest := w.lanes &^ mask; rest != 0 {
		other := &group{pc: back, lanes: rest, frame: w.frame, join: w.join}
		if o.ctl.callee == nil {
			other.pc = back - 1
			if guarded := w.guarded(o) & rest; guarded != rest {
				w.groups = append(w.groups, &group{pc: back, lanes: rest &^ guarded, frame: w.frame, join: w.join})
				other.lanes = guarded
			}
		}
		if other.lanes != 0 {
			w.groups = append(w.groups, other)
		}
		w.lanes = mask
	}
	f := w.block.newFrame(w, w.block.launch.program.codes[callee], w.frame)
	f.back, f.call = back, o.ctl
	copyArguments(f, mask)
	if f.code.localSize > 0 {
		for m := mask; m != 0; m &= m - 1 {
			w.local[firstLane(m)].forget(f)
		}
	}
	w.enter(f)
	w.pc = 0
	w.setJoin()
}

// guarded is the lanes for which the guard of an operation holds.
func (w *warp) guarded(o *op) uint32 {
	if o.guard < 0 {
		return everyLane
	}
	if o.guardNot {
		return ^w.preds[o.guard]
	}
	return w.preds[o.guard]
}

// mostFrames bounds recursion.
const mostFrames = 4096

func depth(f *frame) int {
	n := 0
	for ; f != nil; f = f.caller {
		n++
	}
	return n
}

// indirect finds the function that the first lane calls, and the lanes that call the same.
func (w *warp) indirect(o *op, mask uint32) (*ptx.Function, uint32) {
	addresses := &w.r64[o.ctl.index.index]
	address := addresses[firstLane(mask)]
	same := uint32(0)
	for m := mask; m != 0; m &= m - 1 {
		if lane := firstLane(m); addresses[lane] == address {
			same |= 1 << lane
		}
	}
	for f, c := range w.block.launch.program.codes {
		if functionAddress(c.number) == address && len(o.ctl.args) == len(f.Params) && len(o.ctl.returns) == len(f.Returns) && !f.External {
			return f, same
		}
	}
	w.block.abort(fmt.Errorf("an indirect call at %s goes to %#x, where there is no function with such parameters", spotOf(w, o).place(), address))
	return nil, 0
}

// copyArguments brings the caller's arguments into a frame.
func copyArguments(f *frame, mask uint32) {
	for i, p := range f.code.fn.Params {
		to := f.own(p)
		for m := mask; m != 0; m &= m - 1 {
			lane := firstLane(m)
			setParam(f, to, lane, paramValue(f.caller, f.call.args[i], lane))
		}
	}
}

// copyReturns brings the results of a function to its caller.
func copyReturns(f *frame, mask uint32) {
	for i, p := range f.code.fn.Returns {
		from := f.own(p)
		for m := mask; m != 0; m &= m - 1 {
			lane := firstLane(m)
			setParam(f.caller, f.call.returns[i], lane, paramValue(f, from, lane))
		}
	}
}

// own is a parameter or a result of the function that a frame is of.
func (f *frame) own(p *ptx.Variable) passed {
	if p.Space == ptx.Reg {
		return passed{slot: f.code.regs[p.Register]}
	}
	return f.code.passedVariable(p)
}

// paramValue reads a parameter as bytes.
func paramValue(f *frame, p passed, lane int) []byte {
	if p.slot.file != noFile {
		return littleEndian(f.lane(p.slot, lane), 8)
	}
	return f.param(p.at, p.size, lane)
}

func setParam(f *frame, p passed, lane int, value []byte) {
	if p.slot.file != noFile {
		f.setLane(p.slot, lane, fromLittleEndian(value))
		return
	}
	copy(f.param(p.at, p.size, lane), value)
}

// param is the bytes of a .param variable in one lane.
func (f *frame) param(at, size, lane int) []byte {
	at += lane * f.code.paramSize
	return f.params[at : at+size]
}

func littleEndian(value uint64, size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(value >> (8 * i))
	}
	return data
}

func fromLittleEndian(data []byte) uint64 {
	value := uint64(0)
	for i, b := range data[:min(8, len(data))] {
		value |= uint64(b) << (8 * i)
	}
	return value
}
