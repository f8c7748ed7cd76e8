package ptx

import "slices"

// Paths says which instructions may precede others on the way from the start of a function.
//
// A path repeats no loop around the instruction that it leads to, so an instruction behind that one
// in the body of a loop does not precede it. Other loops on the way may repeat.
type Paths struct {
	graph     *flowGraph
	reachable []bool         // blocks, from the start of the function
	before    map[int][]bool // blocks that precede a block; computed when needed
}

// Paths finds the paths of a function.
func (f *Function) Paths() *Paths {
	p := &Paths{graph: f.flowGraph(), before: map[int][]bool{}}
	p.reachable = make([]bool, len(p.graph.first))
	postorder(p.graph.successors, 0, p.reachable, nil)
	return p
}

// Reaches reports whether some path leads to an instruction.
func (p *Paths) Reaches(index int) bool { return p.reachable[p.graph.blockOf[index]] }

// MayPrecede reports whether some path to the instruction at index leads over the one at earlier.
func (p *Paths) MayPrecede(earlier, index int) bool {
	from, to := p.graph.blockOf[earlier], p.graph.blockOf[index]
	if from == to {
		return earlier < index && p.reachable[to]
	}
	if p.before[to] == nil {
		p.before[to] = p.blocksBefore(to)
	}
	return p.before[to][from]
}

// blocksBefore finds the blocks that precede a block. It removes the edges that repeat a loop around
// the block, from the outermost loop to the innermost. What then leads to the block precedes it.
func (p *Paths) blocksBefore(block int) []bool {
	predecessors, successors := cloneEdges(p.graph.predecessors), cloneEdges(p.graph.successors)
	for {
		loop := component(predecessors, successors, block)
		heads := p.heads(loop)
		if !slices.Contains(loop, true) || len(heads) == 0 {
			break
		}
		for _, head := range heads {
			predecessors[head] = slices.DeleteFunc(predecessors[head], func(from int) bool { return loop[from] })
		}
		for from := range successors {
			if loop[from] {
				successors[from] = slices.DeleteFunc(successors[from], func(to int) bool { return slices.Contains(heads, to) })
			}
		}
	}
	before := make([]bool, len(p.graph.first))
	postorder(predecessors, block, before, nil)
	for i := range before {
		before[i] = before[i] && i != block && p.reachable[i]
	}
	return before
}

// heads lists the blocks by which paths enter a loop. A loop of structured code has one.
func (p *Paths) heads(loop []bool) []int {
	var heads []int
	for block, inside := range loop {
		isOutside := func(from int) bool { return !loop[from] && p.reachable[from] }
		if inside && (block == 0 || slices.ContainsFunc(p.graph.predecessors[block], isOutside)) {
			heads = append(heads, block)
		}
	}
	return heads
}

// component marks the blocks that lie on a cycle with a block. It marks none if there is no cycle.
func component(predecessors, successors [][]int, block int) []bool {
	marks, reaches := make([]bool, len(successors)), make([]bool, len(successors))
	for _, next := range successors[block] {
		postorder(successors, next, marks, nil)
	}
	if !marks[block] {
		return make([]bool, len(successors))
	}
	postorder(predecessors, block, reaches, nil)
	for i := range marks {
		marks[i] = marks[i] && reaches[i]
	}
	return marks
}

func cloneEdges(edges [][]int) [][]int {
	all := make([][]int, len(edges))
	for i := range edges {
		all[i] = slices.Clone(edges[i])
	}
	return all
}
