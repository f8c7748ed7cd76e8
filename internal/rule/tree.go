package rule

// Node is a part of a rule: an operation and its operands.
type Node struct {
	Op     Op
	Args   []*Node
	Value  Value // of a Constant
	Name   int   // of a Name: its index in the vocabulary
	Column int   // where it begins in the text, from 1

	grouped bool // a conjunction in parentheses, which stays one term
}

// Op is an operation.
type Op string

// The operations. Membership has the value and then the items of the list. Choice has the condition,
// the value if it is true, and the value if it is false.
const (
	Constant Op = "constant"
	Name     Op = "name"

	And        Op = "and"
	Or         Op = "or"
	Not        Op = "not"
	Choice     Op = "if"
	Membership Op = "in"

	Equal        Op = "=="
	NotEqual     Op = "!="
	Less         Op = "<"
	LessEqual    Op = "<="
	Greater      Op = ">"
	GreaterEqual Op = ">="

	Add         Op = "+"
	Subtract    Op = "-"
	Multiply    Op = "*"
	Divide      Op = "/"
	FloorDivide Op = "//"
	Modulo      Op = "%"
	ShiftLeft   Op = "<<"
	ShiftRight  Op = ">>"
	BitAnd      Op = "&"
	BitOr       Op = "|"
	BitXor      Op = "^"

	Plus   Op = "unary +"
	Minus  Op = "unary -"
	Invert Op = "unary ~"

	Min        Op = "min"
	Max        Op = "max"
	Abs        Op = "abs"
	ToInt      Op = "int"
	ToFloat    Op = "float"
	Ceil       Op = "ceil"
	Floor      Op = "floor"
	SquareRoot Op = "sqrt"

	// Those of imported rules only.
	Power  Op = "pow"
	Round  Op = "round"
	Log    Op = "log"
	Log2   Op = "log2"
	Number Op = "number" // an integer for a boolean; any other value as it is
)

// text is the operator as it is written.
func (op Op) text() string {
	switch op {
	case Plus:
		return "+"
	case Minus:
		return "-"
	case Invert:
		return "~"
	}
	return string(op)
}

func (op Op) isComparison() bool {
	switch op {
	case Equal, NotEqual, Less, LessEqual, Greater, GreaterEqual:
		return true
	}
	return false
}

// walk visits a node and all below it.
func (n *Node) walk(visit func(*Node)) {
	visit(n)
	for _, arg := range n.Args {
		arg.walk(visit)
	}
}
