package sim

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/mem"
)

func (c *code) lowerCall(in *ptx.Instruction, o *op) error {
	if len(in.Operands) != 3 {
		return fmt.Errorf("it has %d parts, want 3", len(in.Operands))
	}
	var err error
	for _, r := range in.Operands[0].Parts {
		if v := r.Symbol.Variable; r.Kind != ptx.RegOperand && (r.Kind != ptx.SymOperand || v == nil || v.Space != ptx.Param) {
			return fmt.Errorf("a result must go to a register or a .param variable")
		}
	}
	if o.ctl.returns, err = c.callParams(in.Operands[0].Parts); err != nil {
		return err
	}
	if o.ctl.args, err = c.callParams(in.Operands[2].Parts); err != nil {
		return err
	}
	o.run = runCall
	target := in.Operands[1]
	if target.Kind == ptx.RegOperand {
		o.ctl.index = c.regs[target.Register]
		if o.ctl.index.file != file64 {
			return fmt.Errorf("the address of a function must have 64 bits")
		}
		return nil
	}
	callee := target.Symbol.Function
	o.ctl.callee = callee
	switch {
	case callee == nil:
		return fmt.Errorf("it calls something that is not a function")
	case callee.Entry:
		return fmt.Errorf("it calls %s, which is an entry function", callee.Name)
	case callee.External:
		system, ok := systemCalls[callee.Name]
		if !ok && launchesKernels(callee.Name) {
			return fmt.Errorf("%s: dynamic parallelism, a launch by a kernel, is not simulated", callee.Name)
		}
		if !ok {
			return fmt.Errorf("the function %s is declared and not defined", callee.Name)
		}
		if !sizesAre(callee.Params, system.params) || !sizesAre(callee.Returns, system.returns) {
			return fmt.Errorf("%s is declared with other parameters; declare it as %s", callee.Name, system.declaration())
		}
		o.run = system.run
	}
	return c.checkCall(o.ctl, callee)
}

// systemCall is a function that the driver provides, with the sizes of its parameters and results
// in bytes.
type systemCall struct {
	name            string
	params, returns []int
	run             func(w *warp, o *op, mask uint32)
}

var systemCalls = map[string]systemCall{
	"vprintf":      {"vprintf", []int{8, 8}, []int{4}, runPrintf},
	"__assertfail": {"__assertfail", []int{8, 8, 4, 8, 8}, nil, runAssert},
	"malloc":       {"malloc", []int{8}, []int{8}, runMalloc},
	"free":         {"free", []int{8}, nil, runFree},
}

// launchesKernels reports whether a function is one of CUDA's device runtime, by which kernels launch
// kernels.
func launchesKernels(name string) bool {
	name = strings.TrimLeft(name, "_")
	return slices.ContainsFunc([]string{"cudaLaunchDevice", "cudaGetParameterBuffer", "cudaDeviceSynchronize", "cudaCDP2", "cudaStream", "cudaEvent"},
		func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// declaration returns the declaration of the function as compilers write it.
func (s systemCall) declaration() string {
	list := func(sizes []int) string {
		var all []string
		for i, n := range sizes {
			all = append(all, fmt.Sprintf(".param .b%d p%d", 8*n, i))
		}
		return "(" + strings.Join(all, ", ") + ")"
	}
	text := ".extern .func "
	if len(s.returns) > 0 {
		text += strings.ReplaceAll(list(s.returns), " p", " r") + " "
	}
	return text + s.name + " " + list(s.params)
}

// sizesAre reports whether variables have these sizes in bytes.
func sizesAre(variables []*ptx.Variable, sizes []int) bool {
	return slices.EqualFunc(variables, sizes, func(v *ptx.Variable, n int) bool { return v.Size() == n })
}

func (c *code) checkCall(call *controlOp, callee *ptx.Function) error {
	if len(call.args) != len(callee.Params) || len(call.returns) != len(callee.Returns) {
		return fmt.Errorf("%s takes %d arguments and returns %d values, and the call has %d and %d", callee.Name, len(callee.Params), len(callee.Returns),
			len(call.args), len(call.returns))
	}
	for i, v := range callee.Params {
		if have := call.args[i]; have.slot.file == noFile && v.Space == ptx.Param && have.size != v.Size() {
			return fmt.Errorf("%s takes %d bytes as argument %d, and the call has %d", callee.Name, v.Size(), i, have.size)
		}
	}
	for i, v := range callee.Returns {
		if have := call.returns[i]; have.slot.file == noFile && v.Space == ptx.Param && have.size != v.Size() {
			return fmt.Errorf("%s returns %d bytes as result %d, and the call has %d", callee.Name, v.Size(), i, have.size)
		}
	}
	return nil
}

func (c *code) paramVariable(v *ptx.Variable) callParam {
	return callParam{at: c.paramAt[v], size: v.Size()}
}

func (c *code) callParams(list []ptx.Operand) ([]callParam, error) {
	var all []callParam
	for _, o := range list {
		if v := o.Symbol.Variable; o.Kind == ptx.SymOperand && v != nil && v.Space == ptx.Param {
			if _, isEntry := c.entryParam[v]; isEntry {
				return nil, fmt.Errorf("the parameter %s of the entry cannot be passed to a call; load it and store it in a .param variable of the call", v.Name)
			}
			all = append(all, c.paramVariable(v))
			continue
		}
		t := ptx.B64
		if o.Kind == ptx.RegOperand {
			if t = c.fn.Registers[o.Register].Type; t.Bits() > 64 {
				return nil, fmt.Errorf("a register of %d bits cannot be passed to a call; use a .param variable", t.Bits())
			}
		}
		s, err := c.source(o, t)
		if err != nil {
			return nil, err
		}
		all = append(all, callParam{slot: s})
	}
	return all, nil
}

// runCall enters a function. An indirect call whose lanes call different functions is executed
// function by function.
func runCall(w *warp, o *op, mask uint32) {
	callee := o.ctl.callee
	if callee == nil {
		var lanes uint32
		if callee, lanes = w.indirect(o, mask); callee == nil {
			return
		}
		mask = lanes
	}
	if depth(w.frame) >= maxFrames {
		w.block.abort(fmt.Errorf("%s calls itself more than %d deep", callee.Name, maxFrames))
		return
	}
	// All lanes reconverge after the call: lanes that do not make it, that make another one, or
	// that return early.
	back := w.pc
	w.setReconvergence(back)
	if rest := w.lanes &^ mask; rest != 0 {
		other := &laneGroup{pc: back, lanes: rest, frame: w.frame, reconv: w.reconv}
		if o.ctl.callee == nil {
			other.pc = back - 1
			if guarded := w.guarded(o) & rest; guarded != rest {
				w.groups = append(w.groups, &laneGroup{pc: back, lanes: rest &^ guarded, frame: w.frame, reconv: w.reconv})
				other.lanes = guarded
			}
		}
		if other.lanes != 0 {
			w.groups = append(w.groups, other)
		}
		w.lanes = mask
	}
	f := w.newFrame(w.block.launch.program.codes[callee], w.frame)
	f.back, f.call = back, o.ctl
	w.taintUnset(f, mask)
	copyArguments(f, mask)
	if f.code.localSize > 0 {
		for m := mask; m != 0; m &= m - 1 {
			w.local[firstLane(m)].Forget(f.local, f.local+f.code.localSize)
		}
	}
	w.enter(f)
	w.pc = 0
	w.setReconvPC()
}

// guarded returns the lanes for which the guard of an operation holds.
func (w *warp) guarded(o *op) uint32 {
	if o.guard < 0 {
		return everyLane
	}
	if o.guardNot {
		return ^w.Preds[o.guard]
	}
	return w.Preds[o.guard]
}

// maxFrames bounds recursion.
const maxFrames = 4096

func depth(f *frame) int {
	n := 0
	for ; f != nil; f = f.caller {
		n++
	}
	return n
}

// indirect finds the function that the first lane calls, and the lanes that call the same.
func (w *warp) indirect(o *op, mask uint32) (*ptx.Function, uint32) {
	addresses := &w.R64[o.ctl.index.index]
	address := addresses[firstLane(mask)]
	same := uint32(0)
	for m := mask; m != 0; m &= m - 1 {
		if lane := firstLane(m); addresses[lane] == address {
			same |= 1 << lane
		}
	}
	for f, c := range w.block.launch.program.codes {
		if mem.FunctionAddress(c.number) == address && len(o.ctl.args) == len(f.Params) && len(o.ctl.returns) == len(f.Returns) && !f.External && !f.Entry {
			return f, same
		}
	}
	w.block.abort(fmt.Errorf("an indirect call at %s goes to %#x, which is not a function with such parameters", positionOf(w, o).place(), address))
	return nil, 0
}

// copyArguments copies the caller's arguments into a frame.
func copyArguments(f *frame, mask uint32) {
	for i, p := range f.code.fn.Params {
		to := f.own(p)
		for m := mask; m != 0; m &= m - 1 {
			lane := firstLane(m)
			setParam(f, to, lane, paramValue(f.caller, f.call.args[i], lane))
		}
	}
}

// copyReturns copies the results of a function to its caller.
func copyReturns(f *frame, mask uint32) {
	for i, p := range f.code.fn.Returns {
		from := f.own(p)
		for m := mask; m != 0; m &= m - 1 {
			lane := firstLane(m)
			setParam(f.caller, f.call.returns[i], lane, paramValue(f, from, lane))
		}
	}
}

// own returns a parameter or a result of the frame's function.
func (f *frame) own(p *ptx.Variable) callParam {
	if p.Space == ptx.Reg {
		return callParam{slot: f.code.regs[p.Register]}
	}
	return f.code.paramVariable(p)
}

// paramValue reads a parameter as bytes.
func paramValue(f *frame, p callParam, lane int) []byte {
	if p.slot.file != noFile {
		return littleEndian(f.lane(p.slot, lane), 8)
	}
	return f.param(p.at, p.size, lane)
}

func setParam(f *frame, p callParam, lane int, value []byte) {
	if p.slot.file != noFile {
		f.setLane(p.slot, lane, fromLittleEndian(value))
		return
	}
	copy(f.param(p.at, p.size, lane), value)
}

// param returns the bytes of a .param variable in one lane.
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

// runAssert runs __assertfail(message, file, line, function, size of a character), which a failed
// assert calls.
func runAssert(w *warp, o *op, mask uint32) {
	lane := firstLane(mask)
	args := o.ctl.args
	text := func(i int) string { return w.cString(o, lane, fromLittleEndian(paramValue(w.frame, args[i], lane))) }
	line := uint32(fromLittleEndian(paramValue(w.frame, args[2], lane)))
	who := w.threads(mask)
	what := fmt.Sprintf("the kernel's assertion `%s` failed in %s:%d, %s, in %s", text(0), text(1), line, text(3), who)
	detail := fmt.Sprintf("%s: `%s` is false, in %s", who, text(0), text(3))
	w.block.abort(&AbortError{Where: positionOf(w, o).place(), Text: what, Detail: detail, Assert: true})
}

// runMalloc runs malloc(size). It returns a null pointer where the heap has no room.
func runMalloc(w *warp, o *op, mask uint32) {
	r := w.block.launch
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		size := fromLittleEndian(paramValue(w.frame, o.ctl.args[0], lane))
		address := uint64(0)
		if r.heap.Take(size) {
			name := fmt.Sprintf("the allocation of thread %d of block %v at %s", w.index*32+lane, w.block.at, positionOf(w, o).place())
			var err error
			if address, err = r.memory.Alloc(finding.Variable{Name: name}, int(size)); err != nil {
				w.block.abort(err)
				return
			}
			r.heap.Add(address)
		}
		setParam(w.frame, o.ctl.returns[0], lane, littleEndian(address, 8))
	}
}

// runFree runs free(address).
func runFree(w *warp, o *op, mask uint32) {
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		address := fromLittleEndian(paramValue(w.frame, o.ctl.args[0], lane))
		if address == 0 {
			continue
		}
		b := w.block.launch.memory.Find(address)
		if b == nil || b.Base != address || !w.block.launch.heap.Has(address) || !b.Free() {
			w.report(finding.Undefined, o, 1<<lane, func() string { return fmt.Sprintf("frees %#x, which is not an allocation", address) })
			continue
		}
		w.block.launch.heap.Give(len(b.Data))
	}
}

// peek reads memory at a generic address. Without memory it returns zeros.
func (w *warp) peek(o *op, lane int, address uint64, size int) []byte {
	space, at := mem.FromGeneric(address)
	data := w.access(o, accessInfo{space: space, bytes: size}, at, lane, mem.Read)
	if data == nil {
		return w.zeros[:size]
	}
	return data
}

func (w *warp) cString(o *op, lane int, address uint64) string {
	var text []byte
	const most = 4096
	for len(text) < most {
		b := w.peek(o, lane, address+uint64(len(text)), 1)[0]
		if b == 0 {
			break
		}
		text = append(text, b)
	}
	return string(text)
}
