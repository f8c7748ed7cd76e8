package sim

import (
	"fmt"

	"attune/internal/ptx"
)

// layout is where the shared variables of an entry function lie: those that it uses, by itself or in what it calls. Between them are gaps, so that an index
// that is off by a few does not find the neighbour, and each begins where a compiler would put the first one.
type layout struct {
	at      []int // of the program's shared variables; -1 for those that are not used
	end     int   // of the last, with its gap
	align   int   // the largest that one asks for
	dynamic int   // alignment of the dynamic part
	plain   int   // bytes without gaps
	talks   bool  // blocks may speak to each other
}

const sharedGap = 128

func isDynamic(v *ptx.Variable) bool { return v.Extern || v.Count == 0 }

func (p *Program) layout(entry *ptx.Function) *layout {
	l := &layout{at: make([]int, len(p.shared)), align: 16, dynamic: 16}
	reached, used := p.reached(entry)
	for f := range reached {
		l.talks = l.talks || p.codes[f].talks
	}
	for i, v := range p.shared {
		l.at[i] = -1
		if !used[v] {
			continue
		}
		l.at[i] = alignUp(l.end, max(v.Align, sharedGap))
		l.end = l.at[i] + v.Size() + sharedGap
		l.align = max(l.align, v.Align)
		l.plain = alignUp(l.plain, v.Align) + v.Size()
	}
	for v := range used {
		if isDynamic(v) {
			l.dynamic = max(l.dynamic, v.Align)
		}
	}
	l.align = max(l.align, l.dynamic)
	return l
}

// dynamicAt is where dynamic shared memory begins, behind the variables.
func (l *layout) dynamicAt() int { return alignUp(l.end, l.dynamic) }

// mark marks the gaps.
func (l *layout) mark(p *Program, marks []byte) {
	fill(marks[:l.dynamicAt()], gapBit)
	for i, at := range l.at {
		if at >= 0 {
			clear(marks[at : at+p.shared[i].Size()])
		}
	}
}

// reached is the functions that a function may call, itself among them, and the shared variables that they use.
func (p *Program) reached(entry *ptx.Function) (seen map[*ptx.Function]bool, used map[*ptx.Variable]bool) {
	seen, used = map[*ptx.Function]bool{}, map[*ptx.Variable]bool{}
	var visit func(f *ptx.Function)
	var operand func(o *ptx.Operand)
	operand = func(o *ptx.Operand) {
		if v := o.Symbol.Variable; v != nil && v.Space == ptx.Shared {
			used[v] = true
		}
		if f := o.Symbol.Function; f != nil {
			visit(f)
		}
		for i := range o.Parts {
			operand(&o.Parts[i])
		}
	}
	visit = func(f *ptx.Function) {
		if seen[f] {
			return
		}
		seen[f] = true
		for i := range f.Code {
			in := &f.Code[i]
			if in.Opcode == "call" && in.Operands[1].Kind == ptx.RegOperand { // it may go anywhere
				for _, other := range p.module.Functions {
					if !other.Entry {
						visit(other)
					}
				}
			}
			for j := range in.Operands {
				operand(&in.Operands[j])
			}
		}
	}
	visit(entry)
	return seen, used
}

// sharedName is the variable that a byte of shared memory belongs to, or the one behind which it lies with some bytes more.
func (w *warp) sharedName(offset, more int) string {
	r := w.block.launch
	if at := r.layout.dynamicAt(); offset >= at {
		return fmt.Sprintf("byte %d of the dynamic part", offset-at)
	}
	text, nearest := "between variables", -1
	for i, at := range r.layout.at {
		v := r.program.shared[i]
		switch {
		case at < 0 || offset < at || at < nearest:
		case offset < at+v.Size():
			return fmt.Sprintf("%s+%d", v.Name, offset-at)
		default:
			nearest, text = at, fmt.Sprintf("%d bytes past the end of %s (%d bytes)", offset-at-v.Size()+more, v.Name, v.Size())
		}
	}
	return text
}
