package rule

import (
	"slices"
)

// Rule is a compiled expression over names. It is immutable and safe for concurrent use.
type Rule struct {
	text string
	root *Node
	uses []int
	eval evaluator

	// weight is how often a check of the rule counts in the limits of the solver: a rule of thousands
	// of operations would otherwise take minutes.
	weight int
}

// parts is the number of operations, names and literals of a rule that counts once.
const parts = 32

func newRule(text string, root *Node) *Rule {
	r := &Rule{text: text, root: root, eval: compile(root)}
	size := 0
	root.walk(func(n *Node) {
		size++
		if n.Op == Name {
			r.uses = append(r.uses, n.Name)
		}
	})
	slices.Sort(r.uses)
	r.uses = slices.Compact(r.uses)
	r.weight = 1 + size/parts
	return r
}

// String returns the text of the rule.
func (r *Rule) String() string { return r.text }

// Uses returns the indices of the names that the rule uses, ascending. They are not to be changed.
func (r *Rule) Uses() []int { return r.uses }

// Eval evaluates the rule. values has a value for each name of the vocabulary, of which only those
// that the rule uses matter. A rule that cannot be evaluated, for example because it divides by
// zero, gives a Value with an Err.
func (r *Rule) Eval(values []Value) Value { return r.eval(values) }

// Holds reports whether the rule is true. A rule that cannot be evaluated is not.
func (r *Rule) Holds(values []Value) bool {
	v := r.eval(values)
	return v.kind != badKind && v.Truth()
}

// Terms returns the operands of a conjunction as rules of the same text, because a solver can check
// each as soon as its names are assigned. A conjunction in parentheses is one term.
func (r *Rule) Terms() []*Rule {
	var terms []*Rule
	var split func(n *Node)
	split = func(n *Node) {
		if n.Op != And || n.grouped {
			terms = append(terms, newRule(r.text, n))
			return
		}
		split(n.Args[0])
		split(n.Args[1])
	}
	split(r.root)
	return terms
}

// Rename returns the rule in another vocabulary: name i becomes name to[i].
func (r *Rule) Rename(to []int) *Rule {
	var rename func(n *Node) *Node
	rename = func(n *Node) *Node {
		renamed := *n
		if n.Op == Name {
			renamed.Name = to[n.Name]
		}
		renamed.Args = nil
		for _, arg := range n.Args {
			renamed.Args = append(renamed.Args, rename(arg))
		}
		return &renamed
	}
	return newRule(r.text, rename(r.root))
}
