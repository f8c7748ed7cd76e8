package audit

import (
	"slices"

	"attune/internal/finding"
	"attune/internal/ptx"
)

// access is a read or a write of local memory, or of memory that a parameter of a function leads to.
type access struct {
	index   int // of the instruction
	at      place
	bytes   int64
	local   bool          // in space .local, and not by a generic address
	callee  *ptx.Function // of a call that gets the address; nil for another instruction
	unknown bool          // a call, which may write wherever an address has escaped to
}

// reads lists the accesses of a function that read. A call reads what its callee needs.
func (s *stack) reads(f *ptx.Function) []access {
	var all []access
	for i := range f.Code {
		in := &f.Code[i]
		if in.Opcode == "call" {
			all = append(all, s.callReads(f, i)...)
			continue
		}
		s.eachAddress(f, i, func(number int, x access) {
			if reads(in, number) {
				all = append(all, x)
			}
		})
	}
	return all
}

// writes lists the accesses of a function that may write.
func (s *stack) writes(f *ptx.Function) []access {
	var all []access
	for i := range f.Code {
		in := &f.Code[i]
		if in.Opcode == "call" {
			all = append(all, access{index: i, unknown: true})
			continue
		}
		s.eachAddress(f, i, func(number int, x access) {
			if writes(in, number) {
				all = append(all, x)
			}
		})
	}
	return all
}

// eachAddress calls do for the address operands of an instruction that may lead to local memory.
func (s *stack) eachAddress(f *ptx.Function, index int, do func(number int, x access)) {
	in := &f.Code[index]
	spaces := spacesOf(in)
	number := 0
	for i := range in.Operands {
		o := &in.Operands[i]
		if o.Kind != ptx.AddrOperand {
			continue
		}
		space := ptx.Generic
		if len(spaces) > 0 {
			space = spaces[min(number, len(spaces)-1)]
		}
		if space == ptx.Local || space == ptx.Generic {
			at := s.of(f, &o.Parts[0]).shift(o.Offset)
			do(number, access{index: index, at: at, bytes: sizeOf(in), local: space == ptx.Local})
		}
		number++
	}
}

// sizeOf is the number of bytes that a load or a store accesses. It is 0 if that is not known.
func sizeOf(in *ptx.Instruction) int64 {
	if in.Opcode != "ld" && in.Opcode != "st" {
		return 0
	}
	size := typeOf(in).Size()
	for words, name := range map[int]string{2: "v2", 4: "v4", 8: "v8"} {
		if slices.Contains(in.Modifiers, name) {
			size *= words
		}
	}
	return int64(size)
}

// callReads lists what the callees of a call read of the caller's local memory.
func (s *stack) callReads(f *ptx.Function, index int) (all []access) {
	in := &f.Code[index]
	callees := in.Callees
	if direct := in.Operands[1].Symbol.Function; direct != nil {
		callees = []*ptx.Function{direct}
	}
	arguments := in.Operands[2].Parts
	for _, callee := range callees {
		for i := range min(len(arguments), len(callee.Params)) {
			if s.needed[callee.Params[i]] {
				at := s.argument(f, &arguments[i])
				at.fixed = false
				all = append(all, access{index: index, at: at, callee: callee})
			}
		}
	}
	return all
}

// traceNeeds finds the parameters that lead to memory which a function reads before it sets it. Its
// caller must have set it.
func (s *stack) traceNeeds(functions []*ptx.Function) {
	for changed := true; changed; {
		changed = false
		for _, f := range functions {
			s.eachUnset(f, func(x access) {
				for _, v := range x.at.bases {
					if v.Space != ptx.Local && !s.needed[v] {
						s.needed[v], changed = true, true
					}
				}
			})
		}
	}
}

// eachUnset calls do for the reads of a function that no path sets before. A path repeats no loop
// around the read: a kernel that looks for a mark at the start of a loop and leaves it at the end
// would find that of an earlier launch.
func (s *stack) eachUnset(f *ptx.Function, do func(access)) {
	all := s.reads(f)
	if len(all) == 0 {
		return
	}
	paths, writes := f.Paths(), s.writes(f)
	for _, x := range all {
		isElsewhere := !x.local && (x.at.other || len(x.at.bases) == 0)
		if isElsewhere || !paths.Reaches(x.index) {
			continue
		}
		before := slices.DeleteFunc(slices.Clone(writes), func(w access) bool { return !paths.MayPrecede(w.index, x.index) })
		if !s.isSet(x, before) {
			do(x)
		}
	}
}

// isSet reports whether the writes can have set all bytes of a read.
func (s *stack) isSet(x access, writes []access) bool {
	isFixed := x.at.fixed && x.bytes > 0
	unset := make([]bool, 1) // one for the whole, if its bytes are not known
	if isFixed {
		unset = make([]bool, x.bytes)
	}
	for i := range unset {
		unset[i] = true
	}
	for _, w := range writes {
		if !s.mayHit(w, x) {
			continue
		}
		if !isFixed || w.unknown || !w.at.fixed || w.bytes == 0 {
			return true
		}
		for i := max(0, w.at.offset-x.at.offset); i < min(x.bytes, w.at.offset+w.bytes-x.at.offset); i++ {
			unset[i] = false
		}
	}
	return !slices.Contains(unset, true)
}

// mayHit reports whether a write may be to a base of a read.
func (s *stack) mayHit(w, x access) bool {
	isEscaped := len(x.at.bases) == 0 || slices.ContainsFunc(x.at.bases, func(v *ptx.Variable) bool { return s.escaped[v] })
	switch {
	case w.unknown:
		return isEscaped
	case len(x.at.bases) == 0:
		return w.local || len(w.at.bases) > 0
	case slices.ContainsFunc(w.at.bases, func(v *ptx.Variable) bool { return slices.Contains(x.at.bases, v) }):
		return true
	}
	// A parameter may lead to what the function has stored the address of, and so may what it loads.
	return len(w.at.bases) == 0 && w.local || isEscaped && (w.at.other || slices.ContainsFunc(w.at.bases, isParameter))
}

func isParameter(v *ptx.Variable) bool { return v.Space != ptx.Local }

// unsetLocal reports reads of local memory that no path sets before. They may return what an earlier
// launch left there. Memory that a parameter leads to is the business of the callers.
func (a *auditor) unsetLocal(f *ptx.Function, s *stack) {
	s.eachUnset(f, func(x access) {
		switch in := &f.Code[x.index]; {
		case slices.ContainsFunc(x.at.bases, isParameter):
		case x.callee != nil:
			a.report(finding.UnsetLocal, f.Name, in, "passes local memory that no path sets before to %s, which reads what an earlier launch left there", x.callee.Name)
		default:
			a.report(finding.UnsetLocal, f.Name, in, "reads local memory that no path sets before, with what an earlier launch left there")
		}
	})
}
