package ptx

import "slices"

// Liveness says where the values of registers may still be read.
//
// Most registers of a compiled function are set and read within one basic block. They are dead at
// the start of every block, so only the others are followed.
type Liveness struct {
	graph  *flowGraph
	number []int32    // of a followed register in the sets; -1 for the others
	live   [][]uint64 // sets of registers, by block
}

// Liveness computes where registers are live.
func (f *Function) Liveness() *Liveness {
	l := &Liveness{graph: f.flowGraph(), number: f.crossingRegisters()}
	words := (int(slices.Max(append(l.number, -1))) + 64) / 64
	sets := make([]uint64, 2*words*len(l.graph.first))
	next := func() []uint64 {
		set := sets[:words:words]
		sets = sets[words:]
		return set
	}
	killed := make([][]uint64, len(l.graph.first))
	for b := range l.graph.first {
		l.live, killed[b] = append(l.live, next()), next()
	}
	for b := range l.graph.end() {
		l.scan(f.Code[l.graph.first[b]:l.graph.first[b+1]], l.live[b], killed[b])
	}
	for changed := true; changed; {
		changed = false
		for b := l.graph.end() - 1; b >= 0; b-- {
			for _, s := range l.graph.successors[b] {
				changed = addExcept(l.live[b], l.live[s], killed[b]) || changed
			}
		}
	}
	return l
}

// addExcept adds what is in from and not in except, and reports whether the set has changed.
func addExcept(set, from, except []uint64) bool {
	changed := false
	for i := range set {
		if add := from[i] &^ except[i] &^ set[i]; add != 0 {
			set[i] |= add
			changed = true
		}
	}
	return changed
}

// scan finds the registers that a block reads before it sets them, and those that it sets. A guarded
// instruction may leave a register as it was.
func (l *Liveness) scan(code []Instruction, read, set []uint64) {
	for i := range code {
		in := &code[i]
		in.EachAccess(func(r int, writes bool) {
			n := l.number[r]
			if n < 0 {
				return
			}
			word, bit := n/64, uint64(1)<<(n%64)
			switch {
			case !writes && set[word]&bit == 0:
				read[word] |= bit
			case writes && in.Guard < 0:
				set[word] |= bit
			}
		})
	}
}

// Start reports whether an instruction is the first of a basic block.
func (l *Liveness) Start(index int) bool { return l.graph.first[l.graph.blockOf[index]] == index }

// Live reports whether a register is live at the start of the basic block of an instruction.
func (l *Liveness) Live(register, index int) bool {
	n := l.number[register]
	return n >= 0 && l.live[l.graph.blockOf[index]][n/64]>>(n%64)&1 != 0
}

// UnsetRegisters lists the registers that some path from the start of the function reads before it
// sets them. Parameters in registers are set by the caller.
func (l *Liveness) UnsetRegisters(f *Function) []int {
	var list []int
	for r := range l.number {
		isParam := slices.ContainsFunc(f.Params, func(v *Variable) bool { return v.Space == Reg && v.Register == r })
		if l.Live(r, 0) && !isParam {
			list = append(list, r)
		}
	}
	return list
}

// crossingRegisters numbers the registers that may carry a value from one basic block to another:
// all but those that are accessed in one block only, and set there before they are read.
func (f *Function) crossingRegisters() []int32 {
	const unseen, local, crossing = -1, 0, 1
	number := make([]int32, len(f.Registers))
	blocks := make([]int32, len(f.Registers))
	for r := range number {
		number[r] = unseen
	}
	block := int32(0)
	leaders := f.flowGraph().blockOf
	for i := range f.Code {
		in := &f.Code[i]
		block = int32(leaders[i])
		in.EachAccess(func(r int, writes bool) {
			switch {
			case number[r] == unseen && writes && in.Guard < 0:
				number[r], blocks[r] = local, block
			case number[r] == unseen || blocks[r] != block:
				number[r] = crossing
			}
		})
	}
	n := int32(0)
	for r := range number {
		if number[r] != crossing {
			number[r] = -1
			continue
		}
		number[r] = n
		n++
	}
	return number
}

// EachAccess calls f for every register that the instruction reads, and then for those that it
// writes.
func (in *Instruction) EachAccess(f func(register int, writes bool)) {
	if in.Guard >= 0 {
		f(in.Guard, false)
	}
	sources := in.Operands
	results := in.HasResult() || in.Opcode == "call" && len(in.Operands) > 0
	if results && in.Opcode != "wgmma" { // a product may add to its result
		sources = sources[1:]
	}
	for i := range sources {
		sources[i].EachRegister(func(r int) { f(r, false) })
	}
	if results {
		in.Operands[0].EachRegister(func(r int) { f(r, true) })
	}
}
