package rule

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// Diagram is a decision diagram of the allowed assignments of a solver's names. A path from the root
// has a value for each name in order, and every path is an allowed assignment. Partial assignments
// that leave the same rules for the names behind them share a node: for a rule on a product the
// product so far is enough. So a diagram counts and draws assignments of which there are far too many
// for a table, and finds those of a rule over many names that an enumeration would not find in time.
type Diagram struct {
	depth int
	nodes []diagramNode // children before parents; the root is the last one
}

type diagramNode struct {
	edges []edge  // sorted by value
	count float64 // of assignments
}

type edge struct {
	value uint16
	to    int32
}

const (
	// maxEdges ends the construction of a diagram: about a second. An edge counts as often as it
	// checks a rule, and a large rule several times.
	maxEdges = 1 << 19
	// maxLevel is the largest number of values that the open nodes of a level may hold.
	maxLevel = 1 << 24
)

// opening is a node of a diagram under construction.
type opening struct {
	prefix []uint16 // the values of one of the paths to it
	left   []string // by rule: what is left of it; ruleHolds if nothing is
	edges  []edge   // to positions of the next level
}

const ruleHolds = "\x00"

// Diagram builds the diagram of all allowed assignments. It is false if it would be too large.
func (s *Solver) Diagram() (*Diagram, bool) {
	b := builder{Solver: s, env: make([]Value, len(s.values)), ranges: make([]Range, len(s.values)), edges: maxEdges, parts: map[*Node]*part{}}
	for at, name := range s.names {
		var values []Value
		for _, value := range s.alone[at] {
			values = append(values, s.values[name][value])
		}
		b.ranges[name] = rangeOf(values)
	}
	if slices.ContainsFunc(s.alone, func(values []uint16) bool { return len(values) == 0 }) {
		return &Diagram{len(s.names), []diagramNode{{}}}, true // also if a constant rule is false
	}
	for _, r := range s.rules {
		b.add(r.root)
	}
	levels := [][]*opening{{{left: make([]string, len(s.rules))}}}
	for at := range s.names {
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
	*Solver
	env    []Value
	ranges []Range // by name: of its value, or of all its values if it is not assigned
	edges  int     // left to try
	parts  map[*Node]*part
}

// part is what a builder knows about a node.
type part struct {
	last  int // position of the last name that it uses
	eval  evaluator
	chain []operand // of a sum or a product of integers, which is exact in any order
}

// operand is a part of a sum or a product.
type operand struct {
	*Node
	minus bool
}

// add examines a node and all below it. No name is assigned yet.
func (b *builder) add(n *Node) *part {
	p := &part{last: -1, eval: compile(n)}
	b.parts[n] = p
	if n.Op == Name {
		p.last = b.place[n.Name]
	}
	for _, arg := range n.Args {
		p.last = max(p.last, b.add(arg).last)
	}
	if n.Op == Multiply || n.Op == Add || n.Op == Subtract {
		operands := flatten(n, n.Op == Multiply, false, nil)
		inexact := func(o operand) bool { limits, known := bound(o.Node, b.ranges); return !known || !limits.low.isInt() }
		if !slices.ContainsFunc(operands, inexact) {
			p.chain = operands
		}
	}
	return p
}

func flatten(n *Node, product, minus bool, out []operand) []operand {
	if (n.Op == Multiply) != product || !product && n.Op != Add && n.Op != Subtract {
		return append(out, operand{n, minus})
	}
	out = flatten(n.Args[0], product, minus, out)
	return flatten(n.Args[1], product, minus != (n.Op == Subtract), out)
}

// level assigns one name in all nodes of a level, and returns the nodes of the next.
func (b *builder) level(at int, nodes []*opening) (next []*opening, ok bool) {
	places := map[string]int32{}
	for _, node := range nodes {
		for i, value := range node.prefix {
			b.set(i, value)
		}
		for _, value := range b.alone[at] {
			if b.edges--; b.edges < 0 || len(next)*(len(b.names)+len(b.rules)) > maxLevel {
				return nil, false
			}
			b.set(at, value)
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

func (b *builder) set(at int, value uint16) {
	name := b.names[at]
	b.env[name] = b.values[name][value]
	b.ranges[name] = rangeOf(b.env[name : name+1])
}

// joined makes a key of texts, each with its length.
func joined(texts []string) string {
	var key []byte
	for _, text := range texts {
		key = append(binary.AppendUvarint(key, uint64(len(text))), text...)
	}
	return string(key)
}

// residual updates what is left of the rules of a name that was assigned. It is false if one of them
// cannot hold any more.
func (b *builder) residual(at int, before []string) ([]string, bool) {
	left := slices.Clone(before)
	checked := 0
	for i, r := range b.rules {
		if left[i] == ruleHolds || !slices.Contains(r.uses, b.names[at]) {
			continue
		}
		if b.edges -= r.weight; checked == 0 {
			b.edges++ // the edge itself
		}
		checked++
		if b.parts[r.root].last <= at {
			if !r.Holds(b.env) {
				return nil, false
			}
			left[i] = ruleHolds
			continue
		}
		switch limits, known := bound(r.root, b.ranges); {
		case known && limits.isFalse():
			return nil, false
		case known && limits.isTrue():
			left[i] = ruleHolds
		default:
			left[i] = string(b.describe(r.root, at, nil))
		}
	}
	return left, true
}

// describe appends the values of the assigned parts of a node. Two assignments of the same names with
// the same description have the same completions.
func (b *builder) describe(n *Node, at int, out []byte) []byte {
	p := b.parts[n]
	switch {
	case p.last <= at:
		return appendValue(out, p.eval(b.env))
	case p.chain != nil:
		return b.describeChain(n.Op == Multiply, p.chain, at, out)
	}
	for _, arg := range n.Args {
		out = b.describe(arg, at, out)
	}
	return out
}

func appendValue(out []byte, v Value) []byte {
	out = binary.AppendVarint(append(out, byte(v.kind)), v.bits)
	return append(binary.AppendUvarint(out, uint64(len(v.text))), v.text...)
}

// describeChain appends one number for all operands that are assigned.
func (b *builder) describeChain(product bool, operands []operand, at int, out []byte) []byte {
	total := Int(0)
	if product {
		total = Int(1)
	}
	for _, o := range operands {
		p := b.parts[o.Node]
		switch {
		case p.last > at:
			out = b.describe(o.Node, at, out)
		case product:
			total = arithmetic(Multiply, total, p.eval(b.env))
		case o.minus:
			total = arithmetic(Subtract, total, p.eval(b.env))
		default:
			total = arithmetic(Add, total, p.eval(b.env))
		}
	}
	return appendValue(out, total)
}

// link turns levels into a diagram, without the nodes that lead nowhere.
func link(levels [][]*opening) *Diagram {
	d := &Diagram{depth: len(levels) - 1}
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

func (d *Diagram) root() *diagramNode { return &d.nodes[len(d.nodes)-1] }

// Size is the number of assignments, rounded if it is over 2^53.
func (d *Diagram) Size() float64 { return d.root().count }

// Has reports whether an assignment is allowed: a row with an index of a value for each position.
func (d *Diagram) Has(row []uint16) bool {
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

// Draw returns an assignment, all equally likely.
func (d *Diagram) Draw(random *rand.Rand) []uint16 {
	row := make([]uint16, 0, d.depth)
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

// Each yields all assignments in order, those from a row on if it is not nil. A row is valid until the
// next one. Each is false if yield stopped it.
func (d *Diagram) Each(from []uint16, yield func([]uint16) bool) bool {
	return d.step(d.root(), make([]uint16, 0, d.depth), from, yield)
}

// step yields the assignments below a node. from is nil if its path has left that of the row.
func (d *Diagram) step(n *diagramNode, row, from []uint16, yield func([]uint16) bool) bool {
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

// Near returns an assignment that differs least from a row and has its value at one position, all such
// equally likely; nil if there is none.
func (d *Diagram) Near(row []uint16, fixed int, random *rand.Rand) []uint16 {
	differences := make([]int, len(d.nodes))
	for i := range differences {
		differences[i] = -1
	}
	ways := make([]float64, len(d.nodes))
	d.nearest(len(d.nodes)-1, 0, row, fixed, differences, ways)
	if ways[len(d.nodes)-1] == 0 {
		return nil
	}
	found := make([]uint16, 0, d.depth)
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
func (d *Diagram) differ(e edge, at int, row []uint16, fixed int) int {
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
func (d *Diagram) nearest(n, at int, row []uint16, fixed int, differences []int, ways []float64) {
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
