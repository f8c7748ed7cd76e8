package tune

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// diagram is a decision diagram of the allowed combinations of some knobs. A path from the root has
// a value for each knob in order, and every path is an allowed combination. Partial assignments that
// leave the same rules for the knobs behind them share a node: for a rule on a product the product
// so far is enough. So a diagram counts and draws combinations of which there are far too many for a
// table.
type diagram struct {
	depth int
	nodes []diagramNode // children before parents; the root is the last one
}

type diagramNode struct {
	edges []edge  // sorted by value
	count float64 // combinations
}

type edge struct {
	value uint16
	to    int32
}

const (
	// maxEdges ends the construction of a diagram: about a second.
	maxEdges = 1 << 19
	// maxLevel is the largest number of values that the open nodes of a level may hold.
	maxLevel = 1 << 24
)

// opening is a node of a diagram under construction.
type opening struct {
	prefix Point    // the values of one of the paths to it
	left   []string // by rule: what is left of it; ruleHolds if nothing is
	edges  []edge   // to positions of the next level
}

const ruleHolds = "\x00"

// newDiagram builds the diagram of a solver's knobs. It is false if it would be too large.
func newDiagram(s *solver) (*diagram, bool) {
	a := &assignment{env: make([]Value, s.slots), assigned: make([]bool, len(s.all)), ranges: make([]bounds, len(s.all))}
	for i, knob := range s.knobs {
		var values []Value
		for _, v := range s.alone[i] {
			values = append(values, s.all[knob].Values[v])
		}
		a.ranges[knob] = rangeOfValues(values)
	}
	b := builder{solver: s, assignment: a, edges: maxEdges, chains: map[*node][]operand{}}
	for _, rule := range s.rules {
		b.findChains(rule.value)
	}
	levels := [][]*opening{{{left: make([]string, len(s.rules))}}}
	if slices.ContainsFunc(s.alone, func(values Point) bool { return len(values) == 0 }) {
		return &diagram{len(s.knobs), []diagramNode{{}}}, true // also if a constant rule is false
	}
	for at := range s.knobs {
		next, ok := b.level(at, levels[at])
		if !ok {
			return nil, false
		}
		levels = append(levels, next)
	}
	return link(levels), true
}

// builder builds a diagram level by level.
type builder struct {
	*solver
	*assignment
	edges  int                 // left to try
	chains map[*node][]operand // sums and products of integers that are exact in any order
}

// level assigns one knob in all nodes of a level, and returns the nodes of the next.
func (b *builder) level(at int, nodes []*opening) (next []*opening, ok bool) {
	places := map[string]int32{}
	b.assigned[b.knobs[at]] = true
	for _, node := range nodes {
		for i, value := range node.prefix {
			knob := b.knobs[i]
			b.env[knob] = b.all[knob].Values[value]
		}
		for _, value := range b.alone[at] {
			if b.edges--; b.edges < 0 || len(next)*(len(b.knobs)+len(b.rules)) > maxLevel {
				return nil, false
			}
			b.env[b.knobs[at]] = b.all[b.knobs[at]].Values[value]
			left, ok := b.residual(at, node.left)
			if !ok {
				continue
			}
			key := joined(left)
			place, known := places[key]
			if !known {
				place = int32(len(next))
				places[key] = place
				next = append(next, &opening{prefix: append(slices.Clone(node.prefix), value), left: left})
			}
			node.edges = append(node.edges, edge{value, place})
		}
		node.prefix, node.left = nil, nil
	}
	return next, true
}

// joined makes a key of texts, each with its length.
func joined(texts []string) string {
	var key []byte
	for _, text := range texts {
		key = append(binary.AppendUvarint(key, uint64(len(text))), text...)
	}
	return string(key)
}

// residual updates what is left of the rules of a knob that was assigned. It is false if one of them
// cannot hold any more.
func (b *builder) residual(at int, before []string) ([]string, bool) {
	left := slices.Clone(before)
	for i, rule := range b.rules {
		if left[i] == ruleHolds || !slices.Contains(rule.uses, b.knobs[at]) {
			continue
		}
		switch known, failed := b.bounds(rule.value); {
		case failed || known.isFalse():
			return nil, false
		case known.isTrue():
			left[i] = ruleHolds
		case b.assignment.complete(rule.value): // its value is a text
			if !rule.holds(b.env) {
				return nil, false
			}
			left[i] = ruleHolds
		default:
			left[i] = string(b.describe(rule.value, nil))
		}
	}
	return left, true
}

// describe appends the values of the assigned parts of a node. Two assignments of the same knobs
// with the same description have the same completions.
func (b *builder) describe(n *node, out []byte) []byte {
	if b.assignment.complete(n) {
		return appendValue(out, n.eval(b.env))
	}
	if n.op == opaqueNode {
		for _, knob := range n.uses {
			if b.assigned[knob] {
				out = appendValue(out, b.env[knob])
			}
		}
		return out
	}
	if operands := b.chains[n]; operands != nil {
		return b.describeChain(n.name == "*", operands, out)
	}
	for _, arg := range n.args {
		out = b.describe(arg, out)
	}
	return out
}

func appendValue(out []byte, v Value) []byte {
	out = binary.AppendVarint(append(out, byte(v.kind)), v.bits)
	return append(binary.AppendUvarint(out, uint64(len(v.text))), v.text...)
}

// operand is a part of a sum or a product.
type operand struct {
	*node
	minus bool
}

// findChains finds the chains below a node. No knob is assigned yet.
func (b *builder) findChains(n *node) {
	if n.op == arithmeticNode && (n.name == "*" || n.name == "+" || n.name == "-") {
		operands := flatten(n, n.name == "*", false, nil)
		sum, product, whole := 0.0, 1.0, true
		for _, o := range operands {
			known, _ := b.bounds(o.node)
			size := max(-known.low, known.high, 1)
			sum, product, whole = sum+size, product*size, whole && known.whole
		}
		if whole && sum <= 1<<62 && (n.name != "*" || product <= 1<<62) {
			b.chains[n] = operands
		}
	}
	for _, arg := range n.args {
		b.findChains(arg)
	}
}

func flatten(n *node, product, minus bool, out []operand) []operand {
	same := n.op == arithmeticNode && (n.name == "*") == product && (product || n.name == "+" || n.name == "-")
	if !same {
		return append(out, operand{n, minus})
	}
	out = flatten(n.args[0], product, minus, out)
	return flatten(n.args[1], product, minus != (n.name == "-"), out)
}

// describeChain appends one number for all operands that are assigned.
func (b *builder) describeChain(product bool, operands []operand, out []byte) []byte {
	sum, factor := int64(0), int64(1)
	for _, o := range operands {
		if !b.assignment.complete(o.node) {
			out = b.describe(o.node, out)
			continue
		}
		v := o.eval(b.env).bits
		factor *= v
		if o.minus {
			v = -v
		}
		sum += v
	}
	if product {
		return appendValue(out, Int(factor))
	}
	return appendValue(out, Int(sum))
}

// link turns levels into a diagram, without the nodes that lead nowhere.
func link(levels [][]*opening) *diagram {
	d := &diagram{depth: len(levels) - 1}
	below := make([]int32, len(levels[d.depth])) // by position in the level: the node, -1 if there is none
	if len(below) > 0 {                          // all rules hold, so that all paths end in one node
		d.nodes = append(d.nodes, diagramNode{count: 1})
	}
	for at := d.depth - 1; at >= 0; at-- {
		places := make([]int32, len(levels[at]))
		for i, open := range levels[at] {
			node := diagramNode{}
			for _, e := range open.edges {
				if to := below[e.to]; to >= 0 {
					node.edges = append(node.edges, edge{e.value, to})
					node.count += d.nodes[to].count
				}
			}
			places[i] = -1
			if node.count > 0 || at == 0 {
				places[i] = int32(len(d.nodes))
				d.nodes = append(d.nodes, node)
			}
		}
		below = places
	}
	return d
}

func (d *diagram) root() *diagramNode { return &d.nodes[len(d.nodes)-1] }

// size is the number of combinations, rounded if it is over 2^53.
func (d *diagram) size() float64 { return d.root().count }

// has reports whether a combination is allowed.
func (d *diagram) has(row Point) bool {
	n := d.root()
	for _, value := range row {
		i, found := slices.BinarySearchFunc(n.edges, value, func(e edge, v uint16) int { return int(e.value) - int(v) })
		if !found {
			return false
		}
		n = &d.nodes[n.edges[i].to]
	}
	return true
}

// draw returns a combination, all equally likely.
func (d *diagram) draw(random *rand.Rand) Point {
	row := make(Point, 0, d.depth)
	for n := d.root(); len(row) < d.depth; {
		at := random.Float64() * n.count
		i := 0
		for ; i < len(n.edges)-1; i++ {
			if at -= d.nodes[n.edges[i].to].count; at < 0 {
				break
			}
		}
		row = append(row, n.edges[i].value)
		n = &d.nodes[n.edges[i].to]
	}
	return row
}

// visit yields all combinations in order, those from a row on if it is not nil. It is false if yield
// stopped it.
func (d *diagram) visit(from Point, yield func(Point) bool) bool {
	return d.step(d.root(), make(Point, 0, d.depth), from, yield)
}

// step yields the combinations below a node. from is nil if its path has left that of the row.
func (d *diagram) step(n *diagramNode, row, from Point, yield func(Point) bool) bool {
	at := len(row)
	if at == d.depth {
		return yield(row)
	}
	for _, e := range n.edges {
		rest := from
		if from != nil {
			if e.value < from[at] {
				continue
			}
			if e.value > from[at] {
				rest = nil
			}
		}
		if !d.step(&d.nodes[e.to], append(row, e.value), rest, yield) {
			return false
		}
	}
	return true
}

// near returns a combination that differs least from a row and has its value at one position, all
// such equally likely; nil if there is none.
func (d *diagram) near(row Point, fixed int, random *rand.Rand) Point {
	differences := make([]int, len(d.nodes))
	for i := range differences {
		differences[i] = -1
	}
	ways := make([]float64, len(d.nodes))
	d.nearest(len(d.nodes)-1, 0, row, fixed, differences, ways)
	if ways[len(d.nodes)-1] == 0 {
		return nil
	}
	found := make(Point, 0, d.depth)
	for n := len(d.nodes) - 1; len(found) < d.depth; {
		at := len(found)
		pick, weight := edge{}, 0.0
		for _, e := range d.nodes[n].edges {
			if w := ways[e.to]; w > 0 && d.differ(e, at, row, fixed)+differences[e.to] == differences[n] {
				if weight += w; random.Float64()*weight < w {
					pick = e
				}
			}
		}
		found = append(found, pick.value)
		n = int(pick.to)
	}
	return found
}

// differ is the number of differences of an edge; one that is not possible has more than any path.
func (d *diagram) differ(e edge, at int, row Point, fixed int) int {
	switch {
	case e.value == row[at]:
		return 0
	case at == fixed:
		return d.depth + 1
	}
	return 1
}

// nearest fills in, for the nodes below one, the fewest differences of a path and the number of such
// paths.
func (d *diagram) nearest(n, at int, row Point, fixed int, differences []int, ways []float64) {
	if differences[n] >= 0 {
		return
	}
	if at == d.depth {
		differences[n], ways[n] = 0, 1
		return
	}
	least := d.depth + 1
	for _, e := range d.nodes[n].edges {
		d.nearest(int(e.to), at+1, row, fixed, differences, ways)
		if here := d.differ(e, at, row, fixed) + differences[e.to]; here < least {
			least, ways[n] = here, ways[e.to]
		} else if here == least && here <= d.depth {
			ways[n] += ways[e.to]
		}
	}
	differences[n] = least
}
