package mutate

import (
	"math"
	"slices"

	"attune/internal/ptx"
)

// Range is the range of values of a parameter, both ends included.
type Range struct{ Min, Max int64 }

// rangeAnalysis is an interval analysis of a function. It finds an interval for every register that
// holds on every launch within the parameter ranges, by abstract interpretation up to a fixed
// point.
type rangeAnalysis struct {
	f       *ptx.Function
	params  map[string]Range
	starts  []int        // first instructions of the basic blocks
	before  [][]interval // registers at the start of each block; nil for unreachable blocks
	growths []int        // how often the state of each block has grown
}

// growthsBeforeWidening is how often a block's state may grow exactly. After that, bounds are
// widened to powers of two, so that the analysis of a loop terminates soon.
const growthsBeforeWidening = 3

// analyse computes the intervals of a function with the given parameter ranges.
func analyse(f *ptx.Function, params map[string]Range) *rangeAnalysis {
	r := &rangeAnalysis{f: f, params: params, starts: blockStarts(f)}
	r.before, r.growths = make([][]interval, len(r.starts)), make([]int, len(r.starts))
	first := make([]interval, len(f.Registers))
	for i, register := range f.Registers {
		first[i] = fullInterval(register.Type.Bits())
	}
	if len(r.starts) == 0 {
		return r
	}
	r.before[0] = first
	worklist := []int{0}
	for len(worklist) > 0 {
		block := worklist[0]
		worklist = worklist[1:]
		r.propagate(block, func(to int, state []interval) {
			if r.join(to, state) && !slices.Contains(worklist, to) {
				worklist = append(worklist, to)
			}
		})
	}
	// Narrow the widened bounds: recompute each state from its predecessors a few times.
	for range growthsBeforeWidening {
		narrowed := make([][]interval, len(r.starts))
		narrowed[0] = first
		for block := range r.starts {
			if r.before[block] == nil {
				continue
			}
			r.propagate(block, func(to int, state []interval) {
				if narrowed[to] == nil {
					narrowed[to] = state
					return
				}
				for i := range state {
					narrowed[to][i] = narrowed[to][i].hull(state[i])
				}
			})
		}
		r.before = narrowed
	}
	return r
}

// blockStarts returns the first instructions of the basic blocks.
func blockStarts(f *ptx.Function) []int {
	isLeader := make([]bool, len(f.Code)+1)
	isLeader[0] = true
	for i := range f.Code {
		for _, target := range f.Code[i].Targets {
			isLeader[target] = true
		}
		if f.Code[i].Targets != nil || endsThread(&f.Code[i]) {
			isLeader[i+1] = true
		}
	}
	var starts []int
	for i := range f.Code {
		if isLeader[i] {
			starts = append(starts, i)
		}
	}
	return starts
}

// endsThread reports whether no thread continues after the instruction.
func endsThread(in *ptx.Instruction) bool {
	return in.Guard < 0 && (in.Opcode == "ret" || in.Opcode == "exit" || in.Opcode == "trap")
}

// join merges a state into the state of a block and reports whether that has grown.
func (r *rangeAnalysis) join(block int, state []interval) bool {
	known := r.before[block]
	if known == nil {
		r.before[block] = state
		return true
	}
	more := false
	for i := range state {
		joined := known[i].hull(state[i])
		if joined == known[i] {
			continue
		}
		more = true
		if r.growths[block] >= growthsBeforeWidening {
			joined = widen(known[i], joined, r.f.Registers[i].Type.Bits())
		}
		known[i] = joined
	}
	if more {
		r.growths[block]++
	}
	return more
}

// widen moves the bounds that have grown to the next power of two.
func widen(was, now interval, bits int) interval {
	all := fullInterval(bits)
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

// propagate interprets a block and calls visit with the final state for every successor.
func (r *rangeAnalysis) propagate(block int, visit func(to int, state []interval)) {
	state := slices.Clone(r.before[block])
	next := r.blockEnd(block)
	for i := r.starts[block]; i < next; i++ {
		r.step(&r.f.Code[i], state)
	}
	last := &r.f.Code[next-1]
	taken := singleton(1)
	if last.Guard >= 0 {
		taken = state[last.Guard]
		if last.GuardNot {
			taken = interval{1 - taken.hi, 1 - taken.lo}
		}
	}
	if last.Targets != nil && taken.hi == 1 {
		for _, target := range last.Targets {
			if target < len(r.f.Code) {
				visit(r.blockAt(target), r.refine(block, next, state, !last.GuardNot))
			}
		}
	}
	if next < len(r.f.Code) && !endsThread(last) && (last.Targets == nil || taken.lo == 0) {
		if last.Targets == nil {
			visit(block+1, state)
		} else {
			visit(block+1, r.refine(block, next, state, last.GuardNot))
		}
	}
}

// blockEnd returns the index after the last instruction of a block.
func (r *rangeAnalysis) blockEnd(block int) int {
	if block+1 < len(r.starts) {
		return r.starts[block+1]
	}
	return len(r.f.Code)
}

func (r *rangeAnalysis) blockAt(target int) int {
	block, _ := slices.BinarySearch(r.starts, target)
	return block
}

var inverseComparison = map[string]string{"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}

// refine returns the state after a branch whose guard has a known value. The comparison that set
// the guard then narrows the compared registers.
func (r *rangeAnalysis) refine(block, next int, state []interval, guard bool) []interval {
	state = slices.Clone(state)
	branch := &r.f.Code[next-1]
	if branch.Guard < 0 {
		return state
	}
	state[branch.Guard] = singleton(0)
	if guard {
		state[branch.Guard] = singleton(1)
	}
	changed := map[int]bool{}
	for i := next - 2; i >= r.starts[block]; i-- {
		in := &r.f.Code[i]
		if !writes(in, branch.Guard) {
			for _, register := range writtenRegisters(in) {
				changed[register] = true
			}
			continue
		}
		operator, bits, signed := comparison(in)
		if operator == "" || in.Guard >= 0 || bits > 64 {
			return state
		}
		if !guard {
			operator = inverseComparison[operator]
		}
		a, b := in.Operands[1], in.Operands[2]
		x, y := r.value(&a, state, bits), r.value(&b, state, bits)
		mirrored := map[string]string{"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}[operator]
		if a.Kind == ptx.RegOperand && !changed[a.Register] && (b.Kind != ptx.RegOperand || !changed[b.Register]) {
			state[a.Register] = refineInterval(operator, signed, x, y)
		}
		if b.Kind == ptx.RegOperand && !changed[b.Register] && (a.Kind != ptx.RegOperand || !changed[a.Register]) {
			state[b.Register] = refineInterval(mirrored, signed, y, x)
		}
		return state
	}
	return state
}

// writtenRegisters returns the registers that an instruction may write, which are in its first
// operand.
func writtenRegisters(in *ptx.Instruction) []int {
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

func writes(in *ptx.Instruction, register int) bool {
	return slices.Contains(writtenRegisters(in), register)
}

// comparison returns the operator, width and signedness of an integer setp; "" for other
// instructions.
func comparison(in *ptx.Instruction) (operator string, bits int, signed bool) {
	if in.Opcode != "setp" || len(in.Modifiers) != 2 || len(in.Operands) != 3 || in.Operands[0].Kind != ptx.RegOperand {
		return "", 0, false
	}
	if inverseComparison[in.Modifiers[0]] == "" {
		return "", 0, false
	}
	t, ok := integerType(in.Modifiers[1])
	if !ok {
		return "", 0, false
	}
	return in.Modifiers[0], t.Bits(), t.Signed()
}

// integerType parses an integer or bit type of 32 or 64 bits; the analysis knows no other widths.
func integerType(name string) (ptx.Type, bool) {
	t, ok := ptx.ParseType(name)
	switch t {
	case ptx.B32, ptx.U32, ptx.S32, ptx.B64, ptx.U64, ptx.S64:
		return t, ok
	}
	return t, false
}

// step applies an instruction to the registers.
func (r *rangeAnalysis) step(in *ptx.Instruction, state []interval) {
	if result, ok := r.result(in, state); ok {
		register := in.Operands[0].Register
		if in.Guard >= 0 {
			result = result.hull(state[register])
		}
		state[register] = result
		return
	}
	for _, register := range writtenRegisters(in) {
		state[register] = fullInterval(r.f.Registers[register].Type.Bits())
	}
}

// result returns the interval of an instruction's result; not ok for instructions that the analysis
// does not know.
func (r *rangeAnalysis) result(in *ptx.Instruction, state []interval) (interval, bool) {
	if len(in.Operands) < 2 || in.Operands[0].Kind != ptx.RegOperand || in.Operands[0].Negated {
		return interval{}, false
	}
	if operator, bits, signed := comparison(in); operator != "" {
		return compareIntervals(operator, signed, r.value(&in.Operands[1], state, bits), r.value(&in.Operands[2], state, bits)), true
	}
	if len(in.Modifiers) == 0 {
		return interval{}, false
	}
	t, ok := integerType(in.Modifiers[len(in.Modifiers)-1])
	if !ok {
		return interval{}, false
	}
	bits, written := t.Bits(), r.f.Registers[in.Operands[0].Register].Type.Bits()
	operand := func(i int) interval { return r.value(&in.Operands[i], state, bits) }
	switch words := in.Modifiers[:len(in.Modifiers)-1]; {
	case in.Opcode == "cvt" && len(words) == 1:
		return r.convert(in, state)
	case in.Opcode == "mul" && len(words) == 1 && words[0] == "wide" && len(in.Operands) == 3 && bits == 32 && written == 64:
		return wideProduct(t.Signed(), operand(1), operand(2)), true
	case written != bits:
	case in.Opcode == "ld" && len(words) == 1 && words[0] == "param" && bits == 32:
		return r.parameter(&in.Operands[1]), true
	case in.Opcode == "mov" && len(words) == 0:
		return operand(1), true
	case in.Opcode == "selp" && len(words) == 0 && len(in.Operands) == 4:
		return selectInterval(r.value(&in.Operands[3], state, 1), operand(1), operand(2)), true
	case len(in.Operands) == 3 && (len(words) == 0 || in.Opcode == "mul" && len(words) == 1 && words[0] == "lo"):
		switch in.Opcode {
		case "shl", "shr":
			return applyArithmetic(in.Opcode, bits, t.Signed(), operand(1), r.value(&in.Operands[2], state, 32)), true
		case "add", "sub", "min", "max", "and", "or", "xor", "div", "rem", "mul":
			return applyArithmetic(in.Opcode, bits, t.Signed(), operand(1), operand(2)), true
		}
	case in.Opcode == "mad" && len(words) == 1 && words[0] == "lo" && len(in.Operands) == 4:
		return applyArithmetic("add", bits, t.Signed(), applyArithmetic("mul", bits, t.Signed(), operand(1), operand(2)), operand(3)), true
	}
	return interval{}, false
}

// convert widens or truncates an integer.
func (r *rangeAnalysis) convert(in *ptx.Instruction, state []interval) (interval, bool) {
	to, ok := integerType(in.Modifiers[0])
	from, known := integerType(in.Modifiers[1])
	if !ok || !known || r.f.Registers[in.Operands[0].Register].Type.Bits() != to.Bits() {
		return interval{}, false
	}
	value := r.value(&in.Operands[1], state, from.Bits())
	if to.Bits() > from.Bits() && !from.Signed() {
		value = value.unsigned()
	}
	return value.fit(to.Bits()), true
}

// wideProduct is the 64-bit product of two 32-bit values.
func wideProduct(signed bool, a, b interval) interval {
	if !signed {
		a, b = a.unsigned(), b.unsigned()
		if a.hi > 0 && b.hi > math.MaxInt64/a.hi {
			return fullInterval(64)
		}
	}
	return cornerHull(a, b, func(x, y int64) int64 { return x * y })
}

func selectInterval(p, yes, no interval) interval {
	switch p {
	case singleton(1):
		return yes
	case singleton(0):
		return no
	}
	return yes.hull(no)
}

// value returns the interval of an operand.
func (r *rangeAnalysis) value(o *ptx.Operand, state []interval, bits int) interval {
	switch o.Kind {
	case ptx.RegOperand:
		value := state[o.Register]
		if r.f.Registers[o.Register].Type.Bits() != bits {
			return fullInterval(bits)
		}
		if o.Negated {
			return interval{1 - value.hi, 1 - value.lo}
		}
		return value
	case ptx.ImmOperand:
		if o.Number == ptx.Integer {
			if bits == 32 {
				return singleton(int64(int32(uint32(o.Value))))
			}
			return singleton(int64(o.Value))
		}
	case ptx.SpecialOperand:
		if bits == 32 {
			return r.special(o.Special)
		}
	}
	return fullInterval(bits)
}

// parameter returns the interval of a parameter that is read at offset 0; the full interval
// otherwise.
func (r *rangeAnalysis) parameter(o *ptx.Operand) interval {
	if o.Kind == ptx.AddrOperand && len(o.Parts) == 1 && o.Offset == 0 && o.Parts[0].Kind == ptx.SymOperand && o.Parts[0].Offset == 0 {
		if v := o.Parts[0].Symbol.Variable; v != nil {
			if known, ok := r.params[v.Name]; ok {
				return interval{known.Min, known.Max}
			}
		}
	}
	return fullInterval(32)
}

// special returns the interval of a special register on any device. CUDA limits the sizes of blocks
// and grids, .maxntid limits the threads of a block, and .reqntid fixes them.
func (r *rangeAnalysis) special(name string) interval {
	threads := [3]int64{1024, 1024, 64}
	most := int64(1)
	for _, n := range r.f.MaxThreads {
		most *= int64(n) // 0 without .maxntid
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
		return interval{0, 31}
	case "tid.x", "tid.y", "tid.z":
		return interval{0, threads[name[4]-'x'] - 1}
	case "ntid.x", "ntid.y", "ntid.z":
		return interval{1, threads[name[5]-'x']}
	case "ctaid.x", "ctaid.y", "ctaid.z":
		return interval{0, blocks[name[6]-'x'] - 1}
	case "nctaid.x", "nctaid.y", "nctaid.z":
		return interval{1, blocks[name[7]-'x']}
	}
	return fullInterval(32)
}
