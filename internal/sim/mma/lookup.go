package mma

import (
	"fmt"
	"slices"
	"strings"
)

// Op is what an instruction on matrices does.
type Op uint8

// The instructions.
const (
	Sync        Op = iota // mma.sync: a product, a warp
	Warp                  // wmma.mma: a product, a warp, layouts of its own
	Group                 // wgmma.mma_async: a product, four warps
	WarpLoad              // wmma.load
	WarpStore             // wmma.store
	LoadMatrix            // ldmatrix
	StoreMatrix           // stmatrix
	MoveMatrix            // movmatrix
)

var opNames = [...]string{
	"mma.sync", "wmma.mma", "wgmma.mma_async", "wmma.load", "wmma.store", "ldmatrix", "stmatrix", "movmatrix",
}

// String is the name as PTX has it.
func (o Op) String() string { return opNames[o] }

// Layout is the order of the elements of a matrix in memory.
type Layout uint8

// The layouts.
const (
	Row Layout = iota // rows are contiguous
	Col               // columns are contiguous
)

// BitOp is what takes the place of multiplication for single bits, before the ones are counted.
type BitOp uint8

// The operations on bits.
const (
	NoBitOp BitOp = iota
	And
	Xor
)

// Rounding is the rounding of f64 products.
type Rounding uint8

// The roundings.
const (
	Nearest Rounding = iota
	TowardZero
	Down
	Up
)

// Instruction is an instruction on matrices, read from its modifiers.
type Instruction struct {
	Op    Op
	Shape Shape
	Text  string // as it was written, for messages

	// Of a product.
	A, B, C, D       Type
	LayoutA, LayoutB Layout
	Saturate         bool // .satfinite
	BitOp            BitOp
	Rounding         Rounding
	// Negate is for the caller to set where the product of wgmma's imm-scale-a and imm-scale-b is -1.
	Negate bool

	// Of wmma.load and wmma.store.
	Matrix Matrix
	Layout Layout // in memory
	Type   Type

	// Of wmma.load, wmma.store, ldmatrix and stmatrix.
	Space string // "global", "shared", or "" for a generic address

	// Of ldmatrix, stmatrix and movmatrix.
	Count      int // matrices
	Transposed bool
}

// Lookup reads an instruction: an opcode (mma, wmma, wgmma, ldmatrix, stmatrix or movmatrix) and the words after it
// without their dots. As for ptxas, the words come in any order, but types among themselves, and the two layouts, keep
// theirs.
func Lookup(opcode string, modifiers []string) (*Instruction, error) {
	text := strings.Join(append([]string{opcode}, modifiers...), ".")
	in, err := lookup(opcode, sortWords(modifiers))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	in.Text = text
	return in, nil
}

func lookup(opcode string, w *words) (*Instruction, error) {
	if w.take("sp") || w.hasPrefix("sp::") {
		return nil, fmt.Errorf("sparse matrices are not simulated")
	}
	if w.hasPrefix("kind::") || w.take("block_scale") {
		return nil, fmt.Errorf("matrices with .kind or block scaling are not simulated")
	}
	synchronous := w.take("sync") && w.take("aligned")
	in, err := lookupOp(opcode, w)
	switch {
	case err != nil:
		return nil, err
	case !synchronous:
		return nil, fmt.Errorf("want .sync and .aligned")
	case len(w.rest) > 0:
		return nil, fmt.Errorf("modifier .%s is not known here", w.rest[0])
	}
	return in, nil
}

func lookupOp(opcode string, w *words) (*Instruction, error) {
	switch {
	case opcode == "mma":
		return lookupProduct(Sync, w)
	case opcode == "wmma" && w.take("mma"):
		return lookupProduct(Warp, w)
	case opcode == "wgmma" && w.take("mma_async"):
		return lookupProduct(Group, w)
	case opcode == "wmma" && w.take("load"):
		return lookupTransfer(WarpLoad, w, "a", "b", "c")
	case opcode == "wmma" && w.take("store"):
		return lookupTransfer(WarpStore, w, "d")
	case opcode == "ldmatrix":
		return lookupMatrix(LoadMatrix, w)
	case opcode == "stmatrix":
		return lookupMatrix(StoreMatrix, w)
	case opcode == "movmatrix":
		return lookupMatrix(MoveMatrix, w)
	}
	return nil, fmt.Errorf("not an instruction on matrices")
}

// words are the modifiers of an instruction by their kind.
type words struct {
	shapes  []Shape
	types   []Type
	layouts []Layout
	rest    []string // the others, each once
}

func sortWords(modifiers []string) *words {
	w := new(words)
	for _, word := range modifiers {
		if s, ok := parseShape(word); ok {
			w.shapes = append(w.shapes, s)
		} else if t, ok := parseType(word); ok {
			w.types = append(w.types, t)
		} else if word == "row" || word == "col" {
			w.layouts = append(w.layouts, map[string]Layout{"row": Row, "col": Col}[word])
		} else if !slices.Contains(w.rest, word) {
			w.rest = append(w.rest, word)
		}
	}
	return w
}

// take removes a word and says whether it was there.
func (w *words) take(word string) bool {
	at := slices.Index(w.rest, word)
	if at >= 0 {
		w.rest = slices.Delete(w.rest, at, at+1)
	}
	return at >= 0
}

func (w *words) hasPrefix(prefix string) bool {
	return slices.ContainsFunc(w.rest, func(word string) bool { return strings.HasPrefix(word, prefix) })
}

func (w *words) shape() (Shape, error) {
	if len(w.shapes) != 1 {
		return Shape{}, fmt.Errorf("want one shape, such as .m16n8k16, not %d", len(w.shapes))
	}
	return w.shapes[0], nil
}

func (w *words) layout(n int) ([]Layout, error) {
	if len(w.layouts) != n {
		return nil, fmt.Errorf("want %d of .row and .col, not %d", n, len(w.layouts))
	}
	return w.layouts, nil
}

// forms are the products that exist. Where several types of multiplicands stand together, A and B may differ, except in
// wmma. An N of zero stands for all that wgmma has.
var forms = []struct {
	op           Op
	multiplicand []Type
	accumulator  []Type
	shapes       []Shape
}{
	{Sync, []Type{F16}, []Type{F16, F32}, []Shape{{16, 8, 8}, {16, 8, 16}}},
	{Sync, []Type{BF16}, []Type{F32}, []Shape{{16, 8, 8}, {16, 8, 16}}},
	{Sync, []Type{TF32}, []Type{F32}, []Shape{{16, 8, 4}, {16, 8, 8}}},
	{Sync, []Type{E4M3, E5M2}, []Type{F16, F32}, []Shape{{16, 8, 16}, {16, 8, 32}}},
	{Sync, []Type{F64}, []Type{F64}, []Shape{{8, 8, 4}, {16, 8, 4}, {16, 8, 8}, {16, 8, 16}}},
	{Sync, []Type{S8, U8}, []Type{S32}, []Shape{{8, 8, 16}, {16, 8, 16}, {16, 8, 32}}},
	{Sync, []Type{S4, U4}, []Type{S32}, []Shape{{8, 8, 32}, {16, 8, 32}, {16, 8, 64}}},
	{Sync, []Type{B1}, []Type{S32}, []Shape{{8, 8, 128}, {16, 8, 128}, {16, 8, 256}}},

	{Warp, []Type{F16}, []Type{F16, F32}, []Shape{{16, 16, 16}, {8, 32, 16}, {32, 8, 16}}},
	{Warp, []Type{BF16}, []Type{F32}, []Shape{{16, 16, 16}, {8, 32, 16}, {32, 8, 16}}},
	{Warp, []Type{TF32}, []Type{F32}, []Shape{{16, 16, 8}}},
	{Warp, []Type{F64}, []Type{F64}, []Shape{{8, 8, 4}}},
	{Warp, []Type{S8, U8}, []Type{S32}, []Shape{{16, 16, 16}, {8, 32, 16}, {32, 8, 16}}},
	{Warp, []Type{S4, U4}, []Type{S32}, []Shape{{8, 8, 32}}},
	{Warp, []Type{B1}, []Type{S32}, []Shape{{8, 8, 128}}},

	{Group, []Type{F16}, []Type{F16, F32}, []Shape{{64, 0, 16}}},
	{Group, []Type{BF16}, []Type{F32}, []Shape{{64, 0, 16}}},
	{Group, []Type{TF32}, []Type{F32}, []Shape{{64, 0, 8}}},
	{Group, []Type{E4M3, E5M2}, []Type{F16, F32}, []Shape{{64, 0, 32}}},
	{Group, []Type{S8, U8}, []Type{S32}, []Shape{{64, 0, 32}}},
	{Group, []Type{B1}, []Type{S32}, []Shape{{64, 0, 256}}},
}

// wgmmaColumns says whether wgmma has an N: all multiples of 8 for floats, fewer for integers.
func wgmmaColumns(n int, accumulator Type) bool {
	if n < 8 || n > 256 || n%8 != 0 {
		return false
	}
	return accumulator != S32 || n%16 == 0 || n < 32
}

func (in *Instruction) exists() bool {
	for _, f := range forms {
		shape := in.Shape
		if f.op == Group && wgmmaColumns(shape.N, in.D) {
			shape.N = 0
		}
		if f.op == in.Op && slices.Contains(f.multiplicand, in.A) && slices.Contains(f.multiplicand, in.B) &&
			slices.Contains(f.accumulator, in.C) && slices.Contains(f.accumulator, in.D) && slices.Contains(f.shapes, shape) {
			return in.Op == Warp && in.A == in.B || in.Op != Warp && in.C == in.D
		}
	}
	return false
}

func lookupProduct(op Op, w *words) (in *Instruction, err error) {
	in = &Instruction{Op: op}
	if in.Shape, err = w.shape(); err != nil {
		return nil, err
	}
	switch t := w.types; {
	case op == Group && len(t) == 3:
		in.D, in.A, in.B, in.C = t[0], t[1], t[2], t[0]
	case op == Warp && len(t) == 2:
		in.D, in.A, in.B, in.C = t[0], F16, F16, t[1]
	case op != Group && len(t) == 4 && (op != Warp || t[1] != F16):
		in.D, in.A, in.B, in.C = t[0], t[1], t[2], t[3]
	default:
		return nil, fmt.Errorf("%d types are not what this instruction has", len(t))
	}
	if op == Sync && in.A == F16 && in.Shape == (Shape{8, 8, 4}) {
		return nil, fmt.Errorf("four products of 8 by 8 by 4 are a form of sm_70 and are not simulated: use m16n8k8")
	}
	if !in.exists() {
		return nil, fmt.Errorf("no such shape with these types")
	}
	if err := in.setLayouts(w); err != nil {
		return nil, err
	}
	return in, in.setOptions(w)
}

// setLayouts reads the layouts of the multiplicands. Only wmma leaves a choice, and not for what is smaller than a byte.
func (in *Instruction) setLayouts(w *words) error {
	in.LayoutB = Col
	if in.Op == Group {
		_, err := w.layout(0)
		return err
	}
	layouts, err := w.layout(2)
	if err != nil {
		return err
	}
	in.LayoutA, in.LayoutB = layouts[0], layouts[1]
	if (in.Op == Sync || in.A.Bits() < 8) && (in.LayoutA != Row || in.LayoutB != Col) {
		return fmt.Errorf("want the layouts .row.col")
	}
	return nil
}

func (in *Instruction) setOptions(w *words) error {
	if in.A == B1 {
		switch {
		case w.take("and"):
			in.BitOp = And
		case w.take("xor") && in.Op != Group:
			in.BitOp = Xor
		}
		if in.BitOp == NoBitOp || !w.take("popc") {
			return fmt.Errorf("want .and.popc, or .xor.popc where it exists")
		}
		return nil
	}
	in.Saturate = in.D == S32 && w.take("satfinite")
	if in.Op == Warp && in.A == F64 {
		for i, word := range []string{"rn", "rz", "rm", "rp"} {
			if w.take(word) {
				in.Rounding = Rounding(i)
			}
		}
	}
	return nil
}

// takeSpace reads the state space of an address.
func (w *words) takeSpace(spaces ...string) string {
	for _, space := range spaces {
		if w.take(space) {
			return strings.TrimSuffix(space, "::cta")
		}
	}
	return ""
}

// lookupTransfer reads wmma.load and wmma.store.
func lookupTransfer(op Op, w *words, matrices ...string) (in *Instruction, err error) {
	in = &Instruction{Op: op, Space: w.takeSpace("global", "shared", "shared::cta")}
	if in.Shape, err = w.shape(); err != nil {
		return nil, err
	}
	layouts, err := w.layout(1)
	if err != nil {
		return nil, err
	}
	in.Layout = layouts[0]
	if len(w.types) != 1 {
		return nil, fmt.Errorf("want one type, not %d", len(w.types))
	}
	in.Type = w.types[0]
	at := slices.IndexFunc(matrices, w.take)
	if at < 0 {
		return nil, fmt.Errorf("want the matrix: .%s", strings.Join(matrices, ", ."))
	}
	in.Matrix = Matrix(strings.Index("abcd", matrices[at]))
	if !in.transfers() {
		return nil, fmt.Errorf("no such shape with this type")
	}
	if in.Type.Bits() < 8 && in.Layout != map[Matrix]Layout{A: Row, B: Col}[in.Matrix] {
		return nil, fmt.Errorf("want .row for a and .col for b with this type")
	}
	return in, nil
}

// transfers says whether there is a product of wmma that this load or store goes with.
func (in *Instruction) transfers() bool {
	for _, f := range forms {
		of := f.multiplicand
		if in.Matrix == C || in.Matrix == D {
			of = f.accumulator
		}
		if f.op == Warp && slices.Contains(of, in.Type) && slices.Contains(f.shapes, in.Shape) {
			return true
		}
	}
	return false
}

// lookupMatrix reads ldmatrix, stmatrix and movmatrix, for matrices of 8 by 8 elements of 16 bits.
func lookupMatrix(op Op, w *words) (in *Instruction, err error) {
	in = &Instruction{Op: op, Count: 1}
	if in.Shape, err = w.shape(); err != nil {
		return nil, err
	}
	if in.Shape != (Shape{8, 8, 0}) || !w.take("b16") {
		return nil, fmt.Errorf("only matrices .m8n8 of type .b16 are simulated")
	}
	in.Transposed = w.take("trans")
	if op == MoveMatrix {
		if !in.Transposed {
			return nil, fmt.Errorf("want .trans")
		}
		return in, nil
	}
	in.Space = w.takeSpace("shared", "shared::cta")
	for i, word := range []string{"x1", "x2", "x4"} {
		if w.take(word) {
			in.Count = 1 << i
			return in, nil
		}
	}
	return nil, fmt.Errorf("want the number of matrices: .x1, .x2 or .x4")
}
