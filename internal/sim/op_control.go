package sim

import (
	"fmt"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/count"
)

// controlOp is a branch or a call.
type controlOp struct {
	targets  []int32
	reconvPC int32 // where the sides of a branch reconverge
	index    slot  // of brx.idx, or the address of an indirect call

	callee  *ptx.Function // of a direct call; nil otherwise
	returns []callParam
	args    []callParam
}

// callParam is a parameter of a call: a .param variable of the caller, or a register or a constant.
type callParam struct {
	at, size int // of a variable: offset and size in the parameters of a lane
	slot     slot
}

// lowerControl lowers branches, calls and ends.
func (c *code) lowerControl(in *ptx.Instruction, o *op, pc int) error {
	o.class = count.Control
	o.ctl = &controlOp{reconvPC: int32(c.reconvergence[pc])}
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
	if mask == w.lanes {
		w.pc = o.a
		return
	}
	w.diverge(mask, o.a, o.ctl.reconvPC)
}

// runIndexedBranch sends each lane to the target of its index.
func runIndexedBranch(w *warp, o *op, mask uint32) {
	index := &w.R32[o.ctl.index.index]
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
		w.report(finding.Undefined, o, wrong, func() string {
			return fmt.Sprintf("branches to target %d of a list of %d; the thread ends here", index[firstLane(wrong)], len(o.ctl.targets))
		})
		w.end(wrong)
	}
	if len(sides) == 0 {
		return
	}
	if len(sides) > 1 {
		w.setReconvergence(o.ctl.reconvPC)
		for _, s := range sides[1:] {
			w.groups = append(w.groups, &laneGroup{pc: s.target, lanes: s.lanes, frame: w.frame, reconv: w.reconv})
		}
		w.lanes = sides[0].lanes
	}
	w.pc = sides[0].target
}

// runReturn returns from a call, or ends the thread where there is no caller. Lanes of a group may
// return at different times. Each part continues by itself and reconverges with the others after
// the call.
func runReturn(w *warp, _ *op, mask uint32) {
	f := w.frame
	if f.caller == nil {
		w.end(mask)
		return
	}
	copyReturns(f, mask)
	if rest := w.lanes &^ mask; rest != 0 {
		// The reconvergence point of the call waits for the lanes that are still inside.
		w.groups = append(w.groups, &laneGroup{pc: w.pc, lanes: rest, frame: f, reconv: w.reconv})
		w.lanes = mask
	}
	w.unwind(f)
	w.enter(f.caller)
	w.pc = f.back
	w.setReconvPC()
}

// unwind removes the running lanes from the reconvergence points inside a function that they return
// from early, so that the other lanes do not wait for them.
func (w *warp) unwind(f *frame) {
	for r := w.reconv; r != nil && r.frame == f; r = r.outer {
		r.expected &^= w.lanes
		if r.arrived != 0 && r.arrived == r.expected {
			w.groups = append(w.groups, r.takeArrived())
		}
		w.reconv = r.outer
	}
}

// AbortError is the error of a launch that the kernel has ended: by trap, or by an assertion.
type AbortError struct {
	Where  finding.Place
	Text   string
	Detail string // the threads, and what they did
	Assert bool
}

func (e *AbortError) Error() string { return e.Text }

func runTrap(w *warp, o *op, mask uint32) {
	where := positionOf(w, o).place()
	who := w.threads(mask) + w.block.launch.missingGrid()
	w.block.abort(&AbortError{Where: where, Text: fmt.Sprintf("the kernel executed trap at %s, in %s", where, who), Detail: who + ": executes trap"})
}
