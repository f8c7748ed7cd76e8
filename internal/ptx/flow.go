package ptx

import "slices"

// Reconvergence says where the threads of a warp that a branch has parted come together again: for every instruction that can go
// to more than one place, the index of its immediate post-dominator, which is the first instruction that every path from it to
// the end passes; len(Code) where that is the end itself, and -1 for other instructions.
//
// Paths end at ret, exit and trap without a guard. With a guard they take threads away, and those that remain go on. Calls come
// back. Code that cannot reach the end, such as a loop for ever, is given a way out: the block of such a loop that stands last
// in the text counts as if it could leave, so that branches inside of the loop come together before its next round.
func (f *Function) Reconvergence() []int {
	result := make([]int, len(f.Code))
	g := f.flow()
	g.openLoops()
	dominators := g.postDominators()
	for i := range f.Code {
		result[i] = -1
		if f.Code[i].parts() {
			result[i] = g.first[dominators[g.blockOf[i]]]
		}
	}
	return result
}

// parts says whether an instruction can send threads to different places.
func (in *Instruction) parts() bool {
	return in.Opcode == "brx" || in.Opcode == "bra" && in.Guard >= 0
}

// ends says whether no thread goes on behind an instruction.
func (in *Instruction) ends() bool {
	if in.Guard >= 0 {
		return false
	}
	switch in.Opcode {
	case "ret", "exit", "trap":
		return true
	}
	return false
}

// flow is the graph of the basic blocks of a function. The last block is the end, which has no instructions.
type flow struct {
	first      []int // the first instruction of a block
	blockOf    []int // of an instruction
	next, from [][]int
}

func (f *Function) flow() *flow {
	size := len(f.Code)
	leads := make([]bool, size+1)
	leads[0], leads[size] = true, true
	for i := range f.Code {
		in := &f.Code[i]
		for _, target := range in.Targets {
			leads[target] = true
		}
		if in.Targets != nil || in.ends() {
			leads[i+1] = true
		}
	}
	g := &flow{blockOf: make([]int, size+1)}
	for i, leads := range leads {
		if leads {
			g.first = append(g.first, i)
		}
		g.blockOf[i] = len(g.first) - 1
	}
	g.next, g.from = make([][]int, len(g.first)), make([][]int, len(g.first))
	for block := range g.end() {
		last := &f.Code[g.first[block+1]-1]
		for _, target := range last.Targets {
			g.connect(block, g.blockOf[target])
		}
		switch {
		case last.ends():
			g.connect(block, g.end())
		case last.Targets == nil || last.Guard >= 0:
			g.connect(block, block+1)
		}
	}
	return g
}

func (g *flow) end() int { return len(g.first) - 1 }

func (g *flow) connect(from, to int) {
	g.next[from] = append(g.next[from], to)
	g.from[to] = append(g.from[to], from)
}

// openLoops connects the end with code that cannot reach it: with one block of every set of blocks that reach each other and
// nothing else.
func (g *flow) openLoops() {
	size := len(g.first)
	reaches, seen := make([]bool, size), make([]bool, size)
	walk(g.from, g.end(), reaches, nil)
	copy(seen, reaches)
	var order []int
	for block := range size {
		order = walk(g.from, block, seen, order)
	}
	// Walked against the arrows, the block that is left last belongs to a set that no arrow leaves.
	inside := make([]bool, size)
	for i := len(order) - 1; i >= 0; i-- {
		if block := order[i]; !reaches[block] {
			g.connect(slices.Max(walk(g.next, block, inside, nil)), g.end())
			walk(g.from, block, reaches, nil)
		}
	}
}

// walk goes from a block along the edges to all that have not been seen, and adds them to an order in which each stands behind
// those it leads to.
func walk(edges [][]int, start int, seen []bool, order []int) []int {
	if seen[start] {
		return order
	}
	type step struct{ block, edge int }
	path := []step{{start, 0}}
	seen[start] = true
	for len(path) > 0 {
		at := &path[len(path)-1]
		if at.edge == len(edges[at.block]) {
			order = append(order, at.block)
			path = path[:len(path)-1]
			continue
		}
		block := edges[at.block][at.edge]
		at.edge++
		if !seen[block] {
			seen[block] = true
			path = append(path, step{block, 0})
		}
	}
	return order
}

// postDominators are the immediate post-dominators of the blocks, by the algorithm of Cooper, Harvey and Kennedy on the reversed
// graph.
func (g *flow) postDominators() []int {
	order := walk(g.from, g.end(), make([]bool, len(g.first)), nil)
	rank := make([]int, len(g.first)) // in the order; the end has the highest
	dominators := make([]int, len(g.first))
	for i, block := range order {
		rank[block] = i
		dominators[block] = -1
	}
	dominators[g.end()] = g.end()
	common := func(a, b int) int {
		for a != b {
			for rank[a] < rank[b] {
				a = dominators[a]
			}
			for rank[b] < rank[a] {
				b = dominators[b]
			}
		}
		return a
	}
	for changed := true; changed; {
		changed = false
		for i := len(order) - 2; i >= 0; i-- {
			block, dominator := order[i], -1
			for _, next := range g.next[block] {
				switch {
				case dominators[next] < 0:
				case dominator < 0:
					dominator = next
				default:
					dominator = common(dominator, next)
				}
			}
			if dominators[block] != dominator {
				dominators[block] = dominator
				changed = true
			}
		}
	}
	return dominators
}
