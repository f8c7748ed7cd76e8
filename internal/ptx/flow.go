package ptx

import "slices"

// Reconvergence returns, for every instruction that can diverge, the index at which the threads of
// the warp reconverge. That is the immediate post-dominator: the first instruction on every path
// from the branch to the end. The index is len(Code) if only the end itself qualifies. It is -1 for
// instructions that cannot diverge.
//
// Paths end at ret, exit and trap without a guard. A guarded one removes threads, and the other
// threads continue. Calls return. An endless loop cannot reach the end. For it, the last block of
// the loop in the text counts as an exit, so branches inside the loop reconverge before its next
// iteration.
func (f *Function) Reconvergence() []int {
	result := make([]int, len(f.Code))
	g := f.flowGraph()
	g.addLoopExits()
	dominators := g.postDominators()
	for i := range f.Code {
		result[i] = -1
		if f.Code[i].diverges() {
			result[i] = g.first[dominators[g.blockOf[i]]]
		}
	}
	return result
}

// diverges reports whether an instruction can send threads of a warp to different targets.
func (in *Instruction) diverges() bool {
	return in.Opcode == "brx" || in.Opcode == "bra" && in.Guard >= 0
}

// endsThread reports whether no thread continues after the instruction.
func (in *Instruction) endsThread() bool {
	if in.Guard >= 0 {
		return false
	}
	switch in.Opcode {
	case "ret", "exit", "trap":
		return true
	}
	return false
}

// flowGraph is the control-flow graph over basic blocks. The last block is the end of the function
// and has no instructions.
type flowGraph struct {
	first                    []int // first instruction of a block
	blockOf                  []int // block of an instruction
	successors, predecessors [][]int
}

func (f *Function) flowGraph() *flowGraph {
	size := len(f.Code)
	isLeader := make([]bool, size+1)
	isLeader[0], isLeader[size] = true, true
	for i := range f.Code {
		in := &f.Code[i]
		for _, target := range in.Targets {
			isLeader[target] = true
		}
		if in.Targets != nil || in.endsThread() {
			isLeader[i+1] = true
		}
	}
	g := &flowGraph{blockOf: make([]int, size+1)}
	for i, leader := range isLeader {
		if leader {
			g.first = append(g.first, i)
		}
		g.blockOf[i] = len(g.first) - 1
	}
	g.successors, g.predecessors = make([][]int, len(g.first)), make([][]int, len(g.first))
	for block := range g.end() {
		last := &f.Code[g.first[block+1]-1]
		for _, target := range last.Targets {
			g.addEdge(block, g.blockOf[target])
		}
		switch {
		case last.endsThread():
			g.addEdge(block, g.end())
		case last.Targets == nil || last.Guard >= 0:
			g.addEdge(block, block+1)
		}
	}
	return g
}

func (g *flowGraph) end() int { return len(g.first) - 1 }

func (g *flowGraph) addEdge(from, to int) {
	g.successors[from] = append(g.successors[from], to)
	g.predecessors[to] = append(g.predecessors[to], from)
}

// addLoopExits makes the end reachable from every block. It adds one edge to the end from each
// strongly connected component that no edge leaves.
func (g *flowGraph) addLoopExits() {
	size := len(g.first)
	reaches, seen := make([]bool, size), make([]bool, size)
	postorder(g.predecessors, g.end(), reaches, nil)
	copy(seen, reaches)
	var order []int
	for block := range size {
		order = postorder(g.predecessors, block, seen, order)
	}
	// The postorder follows predecessors. Its last unvisited block therefore lies in a component
	// that no edge leaves.
	inside := make([]bool, size)
	for i := len(order) - 1; i >= 0; i-- {
		if block := order[i]; !reaches[block] {
			g.addEdge(slices.Max(postorder(g.successors, block, inside, nil)), g.end())
			postorder(g.predecessors, block, reaches, nil)
		}
	}
}

// postorder visits all unseen blocks that are reachable from start and appends them in postorder:
// each block follows the blocks that it leads to.
func postorder(edges [][]int, start int, seen []bool, order []int) []int {
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

// postDominators returns the immediate post-dominators of the blocks, by the algorithm of Cooper,
// Harvey and Kennedy on the reversed graph.
func (g *flowGraph) postDominators() []int {
	order := postorder(g.predecessors, g.end(), make([]bool, len(g.first)), nil)
	rank := make([]int, len(g.first)) // position in the postorder; the end has the highest
	dominators := make([]int, len(g.first))
	for i, block := range order {
		rank[block] = i
		dominators[block] = -1
	}
	dominators[g.end()] = g.end()
	nearestCommon := func(a, b int) int {
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
			for _, next := range g.successors[block] {
				switch {
				case dominators[next] < 0:
				case dominator < 0:
					dominator = next
				default:
					dominator = nearestCommon(dominator, next)
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
