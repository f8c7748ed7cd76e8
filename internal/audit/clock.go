package audit

import (
	"slices"

	"attune/internal/finding"
	"attune/internal/ptx"
)

// waits finds the reads of clocks that only decide how long a thread sleeps. The waits of
// cuda::barrier and cuda::pipeline do that: they sleep the longer, the longer they have waited.
//
// A kernel must not see the time by it. So a value of a clock may only be subtracted from another of
// the same clock, and the difference may only be an operand of nanosleep or choose between ways that
// meet again behind nothing but nanosleep and arithmetic. A loop that ends by the time is none of
// these, and neither is a wait that gives up.
func waits(f *ptx.Function) map[*ptx.Instruction]bool {
	all := map[*ptx.Instruction]bool{}
	var reconvergence []int
	for i := range f.Code {
		clock := clockRead(&f.Code[i])
		if clock == "" {
			continue
		}
		if reconvergence == nil {
			reconvergence = f.Reconvergence()
		}
		w := &wait{
			f: f, reconvergence: reconvergence, times: clockRegisters(f, clock), started: make([]bool, len(f.Registers)),
			elapsed: make([]bool, len(f.Registers)),
		}
		if w.follow(f.Code[i].Operands[0].Register) {
			all[&f.Code[i]] = true
		}
	}
	return all
}

// clockRead is the clock that an instruction copies to a register. It is empty for another
// instruction.
func clockRead(in *ptx.Instruction) string {
	if in.Opcode != "mov" || in.Guard >= 0 || len(in.Operands) != 2 || in.Operands[0].Kind != ptx.RegOperand ||
		in.Operands[1].Kind != ptx.SpecialOperand {
		return ""
	}
	if kind, _ := register(in.Operands[1].Special); kind != finding.Clock {
		return ""
	}
	return in.Operands[1].Special
}

// clockRegisters finds the registers that have nothing but values of a clock. A register that some
// path leaves unset is none: a difference to it would be the time itself.
func clockRegisters(f *ptx.Function, clock string) []bool {
	times := setRegisters(f)
	for _, p := range f.Params {
		if p.Space == ptx.Reg {
			times[p.Register] = false
		}
	}
	for _, r := range f.Liveness().UnsetRegisters(f) {
		times[r] = false
	}
	for changed := true; changed; {
		changed = false
		for i := range f.Code {
			in := &f.Code[i]
			if clockRead(in) == clock || isCopy(in) && times[in.Operands[1].Register] {
				continue
			}
			in.EachAccess(func(r int, writes bool) {
				if writes && times[r] {
					times[r], changed = false, true
				}
			})
		}
	}
	return times
}

// isCopy reports whether an instruction always copies a register to another.
func isCopy(in *ptx.Instruction) bool {
	return in.Opcode == "mov" && in.Guard < 0 && len(in.Operands) == 2 && in.Operands[0].Kind == ptx.RegOperand &&
		in.Operands[1].Kind == ptx.RegOperand
}

// wait follows the value of one read of a clock.
type wait struct {
	f             *ptx.Function
	reconvergence []int
	times         []bool // registers that have nothing but values of the clock
	started       []bool // those of them that may have the value
	elapsed       []bool // registers that depend on a difference to it
	sleeps        bool   // an operand of nanosleep, or whether it executes, depends on the difference
	changed       bool
}

// follow reports whether the value in a register only decides how long a thread sleeps.
func (w *wait) follow(register int) bool {
	if !w.times[register] {
		return false
	}
	w.started[register] = true
	for w.changed = true; w.changed; {
		w.changed = false
		for i := range w.f.Code {
			if !w.step(i) {
				return false
			}
		}
	}
	return w.sleeps && !slices.ContainsFunc(w.f.Returns, func(v *ptx.Variable) bool {
		return v.Space == ptx.Reg && (w.started[v.Register] || w.elapsed[v.Register])
	})
}

// step applies one instruction, and reports whether it tells nothing about the time.
func (w *wait) step(index int) bool {
	in := &w.f.Code[index]
	isStarted, isElapsed := false, false
	in.EachAccess(func(r int, writes bool) {
		isStarted = isStarted || !writes && w.started[r]
		isElapsed = isElapsed || !writes && w.elapsed[r]
	})
	switch {
	case isStarted && isCopy(in):
		to := in.Operands[0].Register
		w.add(w.started, to)
		return w.times[to]
	case isStarted && !w.isDifference(in):
		return false
	case isStarted, isElapsed && in.Opcode != "bra":
		return w.spread(in)
	case isElapsed:
		return w.branch(index)
	}
	return true
}

func (w *wait) add(set []bool, r int) {
	w.changed = w.changed || !set[r]
	set[r] = true
}

// isDifference reports whether an instruction subtracts two values of the clock.
func (w *wait) isDifference(in *ptx.Instruction) bool {
	isTime := func(o *ptx.Operand) bool { return o.Kind == ptx.RegOperand && w.times[o.Register] }
	return in.Opcode == "sub" && in.Guard < 0 && len(in.Operands) == 3 && len(in.Modifiers) == 1 && isTime(&in.Operands[1]) && isTime(&in.Operands[2])
}

// spread marks the results of an instruction that depends on the elapsed time. It returns false if
// the instruction does more than arithmetic and sleeping.
func (w *wait) spread(in *ptx.Instruction) bool {
	if slices.Contains(in.Modifiers, "cc") { // the carry flag is no register
		return false
	}
	switch in.Opcode {
	case "nanosleep":
		w.sleeps = true
		return true
	case "abs", "add", "and", "bfe", "cvt", "mad", "max", "min", "mov", "mul", "neg", "not", "or", "rem", "selp", "setp", "shl", "shr", "sub", "xor":
	default:
		return false
	}
	in.EachAccess(func(r int, writes bool) {
		if writes && !w.times[r] { // another value of the clock is followed by itself
			w.add(w.elapsed, r)
		}
	})
	return true
}

// branch applies a branch that depends on the elapsed time. Everything up to where its ways meet
// depends on it too.
func (w *wait) branch(index int) bool {
	seen := map[int]bool{}
	pending := []int{index + 1, w.f.Code[index].Targets[0]}
	for len(pending) > 0 {
		i := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if i == w.reconvergence[index] || seen[i] {
			continue
		}
		if i == index || i >= len(w.f.Code) {
			return false // a loop that ends by the time
		}
		seen[i] = true
		in := &w.f.Code[i]
		if in.Opcode != "bra" && !w.spread(in) {
			return false
		}
		pending = append(pending, in.Targets...)
		if in.Targets == nil || in.Guard >= 0 {
			pending = append(pending, i+1)
		}
	}
	return true
}
