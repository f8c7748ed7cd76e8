package mutate

import (
	"math"
	"slices"

	"attune/internal/ptx"
)

// Range is the values that a parameter may have, both ends included.
type Range struct{ Least, Most int64 }

// ranges is what can be said of every register of a function, whatever it is launched with: an interval of its values, found by running the function
// on intervals until nothing changes.
type ranges struct {
	f      *ptx.Function
	params map[string]Range
	starts []int    // the first instructions of the blocks
	before [][]span // the registers before each block; nil where no thread comes
	rounds []int    // how often each block has grown
}

// growths is how often a block may grow by what comes to it; then it grows by powers of two, so that an end is soon found: that of a loop, or none.
const growths = 3

// analyse finds the ranges of a function whose parameters have known ones.
func analyse(f *ptx.Function, params map[string]Range) *ranges {
	r := &ranges{f: f, params: params, starts: blocks(f)}
	r.before, r.rounds = make([][]span, len(r.starts)), make([]int, len(r.starts))
	first := make([]span, len(f.Registers))
	for i, register := range f.Registers {
		first[i] = anyOf(register.Type.Bits())
	}
	if len(r.starts) == 0 {
		return r
	}
	r.before[0] = first
	waiting := []int{0}
	for len(waiting) > 0 {
		block := waiting[0]
		waiting = waiting[1:]
		r.leave(block, func(to int, state []span) {
			if r.enter(to, state) && !slices.Contains(waiting, to) {
				waiting = append(waiting, to)
			}
		})
	}
	// What was taken to grow without end may have one that only now is known.
	for range growths {
		again := make([][]span, len(r.starts))
		again[0] = first
		for block := range r.starts {
			if r.before[block] == nil {
				continue
			}
			r.leave(block, func(to int, state []span) {
				if again[to] == nil {
					again[to] = state
					return
				}
				for i := range state {
					again[to][i] = again[to][i].and(state[i])
				}
			})
		}
		r.before = again
	}
	return r
}

// blocks are the first instructions of the parts of a function that run as a whole.
func blocks(f *ptx.Function) []int {
	leads := make([]bool, len(f.Code)+1)
	leads[0] = true
	for i := range f.Code {
		for _, target := range f.Code[i].Targets {
			leads[target] = true
		}
		if f.Code[i].Targets != nil || ends(&f.Code[i]) {
			leads[i+1] = true
		}
	}
	var starts []int
	for i := range f.Code {
		if leads[i] {
			starts = append(starts, i)
		}
	}
	return starts
}

// ends says whether no thread goes on behind an instruction.
func ends(in *ptx.Instruction) bool {
	return in.Guard < 0 && (in.Opcode == "ret" || in.Opcode == "exit" || in.Opcode == "trap")
}

// enter adds what comes to a block to what is known of it, and says whether that is more.
func (r *ranges) enter(block int, state []span) bool {
	known := r.before[block]
	if known == nil {
		r.before[block] = state
		return true
	}
	more := false
	for i := range state {
		joined := known[i].and(state[i])
		if joined == known[i] {
			continue
		}
		more = true
		if r.rounds[block] >= growths {
			joined = grown(known[i], joined, r.f.Registers[i].Type.Bits())
		}
		known[i] = joined
	}
	if more {
		r.rounds[block]++
	}
	return more
}

// grown is a span that has become another one, with the ends that have moved moved on to the next power of two.
func grown(was, now span, bits int) span {
	all := anyOf(bits)
	if bits == 1 {
		return now
	}
	if now.lo < was.lo {
		end := int64(0)
		if now.lo < 0 {
			end = -1
		}
		for end > now.lo && end > all.lo {
			end *= 2
		}
		now.lo = end
	}
	if now.hi > was.hi {
		end := int64(1)
		for end < now.hi && end < all.hi {
			end = end<<1 | 1
		}
		now.hi = end
	}
	return now
}

// leave runs a block and tells every block that comes next what it is left with.
func (r *ranges) leave(block int, tell func(to int, state []span)) {
	state := slices.Clone(r.before[block])
	next := len(r.f.Code)
	if block+1 < len(r.starts) {
		next = r.starts[block+1]
	}
	for i := r.starts[block]; i < next; i++ {
		r.step(&r.f.Code[i], state)
	}
	last := &r.f.Code[next-1]
	taken := only(1)
	if last.Guard >= 0 {
		taken = state[last.Guard]
		if last.GuardNot {
			taken = span{1 - taken.hi, 1 - taken.lo}
		}
	}
	if last.Targets != nil && taken.hi == 1 {
		for _, target := range last.Targets {
			if target < len(r.f.Code) {
				tell(r.blockAt(target), r.knowing(block, next, state, !last.GuardNot))
			}
		}
	}
	if next < len(r.f.Code) && !ends(last) && (last.Targets == nil || taken.lo == 0) {
		if last.Targets == nil {
			tell(block+1, state)
		} else {
			tell(block+1, r.knowing(block, next, state, last.GuardNot))
		}
	}
}

func (r *ranges) blockAt(target int) int {
	block, _ := slices.BinarySearch(r.starts, target)
	return block
}

var opposite = map[string]string{"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}

// knowing is the state behind a branch, where its guard is known: what was compared for it is then known better.
func (r *ranges) knowing(block, next int, state []span, guard bool) []span {
	state = slices.Clone(state)
	branch := &r.f.Code[next-1]
	if branch.Guard < 0 {
		return state
	}
	state[branch.Guard] = only(0)
	if guard {
		state[branch.Guard] = only(1)
	}
	changed := map[int]bool{}
	for i := next - 2; i >= r.starts[block]; i-- {
		in := &r.f.Code[i]
		if !sets(in, branch.Guard) {
			for _, register := range results(in) {
				changed[register] = true
			}
			continue
		}
		how, bits, signed := comparison(in)
		if how == "" || in.Guard >= 0 || bits > 64 {
			return state
		}
		if !guard {
			how = opposite[how]
		}
		a, b := in.Operands[1], in.Operands[2]
		x, y := r.value(&a, state, bits), r.value(&b, state, bits)
		mirrored := map[string]string{"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}[how]
		if a.Kind == ptx.RegOperand && !changed[a.Register] && (b.Kind != ptx.RegOperand || !changed[b.Register]) {
			state[a.Register] = narrowed(how, signed, x, y)
		}
		if b.Kind == ptx.RegOperand && !changed[b.Register] && (a.Kind != ptx.RegOperand || !changed[a.Register]) {
			state[b.Register] = narrowed(mirrored, signed, y, x)
		}
		return state
	}
	return state
}

// results are the registers that an instruction may write: PTX has them first.
func results(in *ptx.Instruction) []int {
	if len(in.Operands) == 0 {
		return nil
	}
	var all []int
	var collect func(o *ptx.Operand)
	collect = func(o *ptx.Operand) {
		switch o.Kind {
		case ptx.RegOperand:
			all = append(all, o.Register)
		case ptx.VecOperand, ptx.PairOperand, ptx.ListOperand:
			for i := range o.Parts {
				collect(&o.Parts[i])
			}
		}
	}
	collect(&in.Operands[0])
	return all
}

func sets(in *ptx.Instruction, register int) bool { return slices.Contains(results(in), register) }

// comparison is how a setp compares whole numbers; empty for all else.
func comparison(in *ptx.Instruction) (how string, bits int, signed bool) {
	if in.Opcode != "setp" || len(in.Modifiers) != 2 || len(in.Operands) != 3 || in.Operands[0].Kind != ptx.RegOperand {
		return "", 0, false
	}
	if opposite[in.Modifiers[0]] == "" {
		return "", 0, false
	}
	t, ok := wholeType(in.Modifiers[1])
	if !ok {
		return "", 0, false
	}
	return in.Modifiers[0], t.Bits(), t.Signed()
}

// wholeType is a type of whole numbers, or of bits, as wide as this analysis knows them.
func wholeType(name string) (ptx.Type, bool) {
	t, ok := ptx.ParseType(name)
	switch t {
	case ptx.B32, ptx.U32, ptx.S32, ptx.B64, ptx.U64, ptx.S64:
		return t, ok
	}
	return t, false
}

// step is what an instruction does to the registers.
func (r *ranges) step(in *ptx.Instruction, state []span) {
	if result, ok := r.result(in, state); ok {
		register := in.Operands[0].Register
		if in.Guard >= 0 {
			result = result.and(state[register])
		}
		state[register] = result
		return
	}
	for _, register := range results(in) {
		state[register] = anyOf(r.f.Registers[register].Type.Bits())
	}
}

// result is what an instruction gives; not ok for those that this analysis does not know.
func (r *ranges) result(in *ptx.Instruction, state []span) (span, bool) {
	if len(in.Operands) < 2 || in.Operands[0].Kind != ptx.RegOperand || in.Operands[0].Negated {
		return span{}, false
	}
	if how, bits, signed := comparison(in); how != "" {
		return compared(how, signed, r.value(&in.Operands[1], state, bits), r.value(&in.Operands[2], state, bits)), true
	}
	if len(in.Modifiers) == 0 {
		return span{}, false
	}
	t, ok := wholeType(in.Modifiers[len(in.Modifiers)-1])
	if !ok {
		return span{}, false
	}
	bits, written := t.Bits(), r.f.Registers[in.Operands[0].Register].Type.Bits()
	operand := func(i int) span { return r.value(&in.Operands[i], state, bits) }
	switch words := in.Modifiers[:len(in.Modifiers)-1]; {
	case in.Opcode == "cvt" && len(words) == 1:
		return r.converted(in, state)
	case in.Opcode == "mul" && len(words) == 1 && words[0] == "wide" && len(in.Operands) == 3 && bits == 32 && written == 64:
		return widened(t.Signed(), operand(1), operand(2)), true
	case written != bits:
	case in.Opcode == "ld" && len(words) == 1 && words[0] == "param" && bits == 32:
		return r.parameter(&in.Operands[1]), true
	case in.Opcode == "mov" && len(words) == 0:
		return operand(1), true
	case in.Opcode == "selp" && len(words) == 0 && len(in.Operands) == 4:
		return selected(r.value(&in.Operands[3], state, 1), operand(1), operand(2)), true
	case len(in.Operands) == 3 && (len(words) == 0 || in.Opcode == "mul" && len(words) == 1 && words[0] == "lo"):
		switch in.Opcode {
		case "shl", "shr":
			return arithmetic(in.Opcode, bits, t.Signed(), operand(1), r.value(&in.Operands[2], state, 32)), true
		case "add", "sub", "min", "max", "and", "or", "xor", "div", "rem", "mul":
			return arithmetic(in.Opcode, bits, t.Signed(), operand(1), operand(2)), true
		}
	case in.Opcode == "mad" && len(words) == 1 && words[0] == "lo" && len(in.Operands) == 4:
		return arithmetic("add", bits, t.Signed(), arithmetic("mul", bits, t.Signed(), operand(1), operand(2)), operand(3)), true
	}
	return span{}, false
}

// converted widens or narrows a whole number.
func (r *ranges) converted(in *ptx.Instruction, state []span) (span, bool) {
	to, ok := wholeType(in.Modifiers[0])
	from, known := wholeType(in.Modifiers[1])
	if !ok || !known || r.f.Registers[in.Operands[0].Register].Type.Bits() != to.Bits() {
		return span{}, false
	}
	value := r.value(&in.Operands[1], state, from.Bits())
	if to.Bits() > from.Bits() && !from.Signed() {
		value = value.unsigned()
	}
	return value.within(to.Bits()), true
}

// widened is the whole product of two numbers of 32 bits.
func widened(signed bool, a, b span) span {
	if !signed {
		a, b = a.unsigned(), b.unsigned()
		if a.hi > 0 && b.hi > math.MaxInt64/a.hi {
			return anyOf(64)
		}
	}
	return over(a, b, func(x, y int64) int64 { return x * y })
}

func selected(p, yes, no span) span {
	switch p {
	case only(1):
		return yes
	case only(0):
		return no
	}
	return yes.and(no)
}

// value is what an operand may be.
func (r *ranges) value(o *ptx.Operand, state []span, bits int) span {
	switch o.Kind {
	case ptx.RegOperand:
		value := state[o.Register]
		if r.f.Registers[o.Register].Type.Bits() != bits {
			return anyOf(bits)
		}
		if o.Negated {
			return span{1 - value.hi, 1 - value.lo}
		}
		return value
	case ptx.ImmOperand:
		if o.Number == ptx.Integer {
			if bits == 32 {
				return only(int64(int32(uint32(o.Value))))
			}
			return only(int64(o.Value))
		}
	case ptx.SpecialOperand:
		if bits == 32 {
			return r.special(o.Special)
		}
	}
	return anyOf(bits)
}

// parameter is what a parameter may be, if it is one and read from its beginning.
func (r *ranges) parameter(o *ptx.Operand) span {
	if o.Kind == ptx.AddrOperand && len(o.Parts) == 1 && o.Offset == 0 && o.Parts[0].Kind == ptx.SymOperand && o.Parts[0].Offset == 0 {
		if v := o.Parts[0].Symbol.Variable; v != nil {
			if known, ok := r.params[v.Name]; ok {
				return span{known.Least, known.Most}
			}
		}
	}
	return anyOf(32)
}

// special is what a special register may be, on any device: CUDA bounds blocks and grids, .maxntid the threads of a block in all, and .reqntid says
// what it has.
func (r *ranges) special(name string) span {
	threads := [3]int64{1024, 1024, 64}
	most := int64(1)
	for _, n := range r.f.MaxThreads {
		most *= int64(n) // zeros where it is not given
	}
	for i := range threads {
		if most > 0 {
			threads[i] = min(threads[i], most)
		}
		if r.f.RequiredThreads[i] > 0 {
			threads[i] = int64(r.f.RequiredThreads[i])
		}
	}
	blocks := [3]int64{1<<31 - 1, 65535, 65535}
	switch name {
	case "laneid":
		return span{0, 31}
	case "tid.x", "tid.y", "tid.z":
		return span{0, threads[name[4]-'x'] - 1}
	case "ntid.x", "ntid.y", "ntid.z":
		return span{1, threads[name[5]-'x']}
	case "ctaid.x", "ctaid.y", "ctaid.z":
		return span{0, blocks[name[6]-'x'] - 1}
	case "nctaid.x", "nctaid.y", "nctaid.z":
		return span{1, blocks[name[7]-'x']}
	}
	return anyOf(32)
}
