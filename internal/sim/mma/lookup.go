package mma

import (
	"fmt"
	"slices"
	"strings"
)

// Op is a kind of matrix instruction.
type Op uint8

// The instructions.
const (
	MMASync     Op = iota // mma.sync: product of one warp
	WMMA                  // wmma.mma: product of one warp with opaque fragment layouts
	WGMMA                 // wgmma.mma_async: product of four warps
	WMMALoad              // wmma.load
	WMMAStore             // wmma.store
	LoadMatrix            // ldmatrix
	StoreMatrix           // stmatrix
	MoveMatrix            // movmatrix
)

var opNames = [...]string{
	"mma.sync", "wmma.mma", "wgmma.mma_async", "wmma.load", "wmma.store", "ldmatrix", "stmatrix", "movmatrix",
}

// String returns the PTX name of the instruction.
func (o Op) String() string { return opNames[o] }

// Layout is the order of matrix elements in memory.
type Layout uint8

// The layouts.
const (
	Row Layout = iota // rows are contiguous
	Col               // columns are contiguous
)

// BitOp replaces the multiplication of single-bit elements. The set bits of its result are counted.
type BitOp uint8

// The operations on bits.
const (
	NoBitOp BitOp = iota
	And
	Xor
)

// Rounding is the rounding mode of f64 products.
type Rounding uint8

// The rounding modes: .rn, .rz, .rm and .rp.
const (
	Nearest Rounding = iota
	TowardZero
	Down
	Up
)

// Instruction is a matrix instruction, parsed from its modifiers.
type Instruction struct {
	Op    Op
	Shape Shape
	Text  string // as written, for error messages

	// Set for products.
	A, B, C, D       Type
	LayoutA, LayoutB Layout
	Saturate         bool // .satfinite
	BitOp            BitOp
	Rounding         Rounding
	// Negate must be set by the caller if the product of wgmma's imm-scale-a and imm-scale-b is -1.
	Negate bool

	// Set for wmma.load and wmma.store.
	Matrix Matrix
	Layout Layout // in memory
	Type   Type

	// Set for wmma.load, wmma.store, ldmatrix and stmatrix.
	Space string // "global", "shared", or "" for a generic address

	// Set for ldmatrix, stmatrix and movmatrix.
	Count      int // number of matrices
	Transposed bool
}

// Lookup parses an instruction: an opcode (mma, wmma, wgmma, ldmatrix, stmatrix or movmatrix) and
// its modifiers without dots. As in ptxas, modifiers may be in any order, except that types and the
// two layouts keep their relative order.
func Lookup(opcode string, modifiers []string) (*Instruction, error) {
	text := strings.Join(append([]string{opcode}, modifiers...), ".")
	in, err := lookup(opcode, classifyModifiers(modifiers))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	in.Text = text
	return in, nil
}

func lookup(opcode string, w *modifierSet) (*Instruction, error) {
	if w.consume("sp") || w.hasPrefix("sp::") {
		return nil, fmt.Errorf("sparse matrix products are not simulated; use the dense form")
	}
	if w.hasPrefix("kind::") || w.consume("block_scale") {
		return nil, fmt.Errorf("products with .kind or block scaling are not simulated")
	}
	synchronous := w.consume("sync") && w.consume("aligned")
	in, err := lookupOp(opcode, w)
	switch {
	case err != nil:
		return nil, err
	case !synchronous:
		return nil, fmt.Errorf("a required modifier is missing; want .sync and .aligned")
	case len(w.others) > 0:
		return nil, fmt.Errorf("unexpected modifier .%s; remove it", w.others[0])
	}
	return in, nil
}

func lookupOp(opcode string, w *modifierSet) (*Instruction, error) {
	switch {
	case opcode == "mma":
		return lookupProduct(MMASync, w)
	case opcode == "wmma" && w.consume("mma"):
		return lookupProduct(WMMA, w)
	case opcode == "wgmma" && w.consume("mma_async"):
		return lookupProduct(WGMMA, w)
	case opcode == "wmma" && w.consume("load"):
		return lookupTransfer(WMMALoad, w, "a", "b", "c")
	case opcode == "wmma" && w.consume("store"):
		return lookupTransfer(WMMAStore, w, "d")
	case opcode == "ldmatrix":
		return lookupMatrix(LoadMatrix, w)
	case opcode == "stmatrix":
		return lookupMatrix(StoreMatrix, w)
	case opcode == "movmatrix":
		return lookupMatrix(MoveMatrix, w)
	}
	return nil, fmt.Errorf("not a supported matrix instruction; want mma, wmma, wgmma.mma_async, ldmatrix, stmatrix or movmatrix")
}

// modifierSet groups the modifiers of an instruction by kind.
type modifierSet struct {
	shapes  []Shape
	types   []Type
	layouts []Layout
	others  []string // without duplicates
}

func classifyModifiers(modifiers []string) *modifierSet {
	w := new(modifierSet)
	for _, word := range modifiers {
		if s, ok := parseShape(word); ok {
			w.shapes = append(w.shapes, s)
		} else if t, ok := parseType(word); ok {
			w.types = append(w.types, t)
		} else if word == "row" || word == "col" {
			w.layouts = append(w.layouts, map[string]Layout{"row": Row, "col": Col}[word])
		} else if !slices.Contains(w.others, word) {
			w.others = append(w.others, word)
		}
	}
	return w
}

// consume removes a modifier and reports whether it was present.
func (w *modifierSet) consume(word string) bool {
	at := slices.Index(w.others, word)
	if at >= 0 {
		w.others = slices.Delete(w.others, at, at+1)
	}
	return at >= 0
}

func (w *modifierSet) hasPrefix(prefix string) bool {
	return slices.ContainsFunc(w.others, func(word string) bool { return strings.HasPrefix(word, prefix) })
}

func (w *modifierSet) shape() (Shape, error) {
	if len(w.shapes) != 1 {
		return Shape{}, fmt.Errorf("found %d shapes; want one, such as .m16n8k16", len(w.shapes))
	}
	return w.shapes[0], nil
}

func (w *modifierSet) layout(n int) ([]Layout, error) {
	if len(w.layouts) != n {
		return nil, fmt.Errorf("found %d layouts; want %d of .row and .col", len(w.layouts), n)
	}
	return w.layouts, nil
}

// forms lists the supported products. If a row has several multiplicand types, A and B may differ,
// except in wmma. N = 0 stands for every N of wgmma.
var forms = []struct {
	op           Op
	multiplicand []Type
	accumulator  []Type
	shapes       []Shape
}{
	{MMASync, []Type{F16}, []Type{F16, F32}, []Shape{{16, 8, 8}, {16, 8, 16}}},
	{MMASync, []Type{BF16}, []Type{F32}, []Shape{{16, 8, 8}, {16, 8, 16}}},
	{MMASync, []Type{TF32}, []Type{F32}, []Shape{{16, 8, 4}, {16, 8, 8}}},
	{MMASync, []Type{E4M3, E5M2}, []Type{F16, F32}, []Shape{{16, 8, 16}, {16, 8, 32}}},
	{MMASync, []Type{F64}, []Type{F64}, []Shape{{8, 8, 4}, {16, 8, 4}, {16, 8, 8}, {16, 8, 16}}},
	{MMASync, []Type{S8, U8}, []Type{S32}, []Shape{{8, 8, 16}, {16, 8, 16}, {16, 8, 32}}},
	{MMASync, []Type{S4, U4}, []Type{S32}, []Shape{{8, 8, 32}, {16, 8, 32}, {16, 8, 64}}},
	{MMASync, []Type{B1}, []Type{S32}, []Shape{{8, 8, 128}, {16, 8, 128}, {16, 8, 256}}},

	{WMMA, []Type{F16}, []Type{F16, F32}, []Shape{{16, 16, 16}, {8, 32, 16}, {32, 8, 16}}},
	{WMMA, []Type{BF16}, []Type{F32}, []Shape{{16, 16, 16}, {8, 32, 16}, {32, 8, 16}}},
	{WMMA, []Type{TF32}, []Type{F32}, []Shape{{16, 16, 8}}},
	{WMMA, []Type{F64}, []Type{F64}, []Shape{{8, 8, 4}}},
	{WMMA, []Type{S8, U8}, []Type{S32}, []Shape{{16, 16, 16}, {8, 32, 16}, {32, 8, 16}}},
	{WMMA, []Type{S4, U4}, []Type{S32}, []Shape{{8, 8, 32}}},
	{WMMA, []Type{B1}, []Type{S32}, []Shape{{8, 8, 128}}},

	{WGMMA, []Type{F16}, []Type{F16, F32}, []Shape{{64, 0, 16}}},
	{WGMMA, []Type{BF16}, []Type{F32}, []Shape{{64, 0, 16}}},
	{WGMMA, []Type{TF32}, []Type{F32}, []Shape{{64, 0, 8}}},
	{WGMMA, []Type{E4M3, E5M2}, []Type{F16, F32}, []Shape{{64, 0, 32}}},
	{WGMMA, []Type{S8, U8}, []Type{S32}, []Shape{{64, 0, 32}}},
	{WGMMA, []Type{B1}, []Type{S32}, []Shape{{64, 0, 256}}},
}

// wgmmaColumns reports whether wgmma supports this N: all multiples of 8 up to 256 for floating
// point, fewer for integers.
func wgmmaColumns(n int, accumulator Type) bool {
	if n < 8 || n > 256 || n%8 != 0 {
		return false
	}
	return accumulator != S32 || n%16 == 0 || n < 32
}

func (in *Instruction) exists() bool {
	for _, f := range forms {
		shape := in.Shape
		if f.op == WGMMA && wgmmaColumns(shape.N, in.D) {
			shape.N = 0
		}
		if f.op == in.Op && slices.Contains(f.multiplicand, in.A) && slices.Contains(f.multiplicand, in.B) &&
			slices.Contains(f.accumulator, in.C) && slices.Contains(f.accumulator, in.D) && slices.Contains(f.shapes, shape) {
			return in.Op == WMMA && in.A == in.B || in.Op != WMMA && in.C == in.D
		}
	}
	return false
}

func lookupProduct(op Op, w *modifierSet) (in *Instruction, err error) {
	in = &Instruction{Op: op}
	if in.Shape, err = w.shape(); err != nil {
		return nil, err
	}
	switch t := w.types; {
	case op == WGMMA && len(t) == 3:
		in.D, in.A, in.B, in.C = t[0], t[1], t[2], t[0]
	case op == WMMA && len(t) == 2:
		in.D, in.A, in.B, in.C = t[0], F16, F16, t[1]
	case op != WGMMA && len(t) == 4 && (op != WMMA || t[1] != F16):
		in.D, in.A, in.B, in.C = t[0], t[1], t[2], t[3]
	default:
		return nil, fmt.Errorf("found %d types; wgmma has 3, mma has 4, wmma has 4, or 2 with f16", len(t))
	}
	if op == MMASync && in.A == F16 && in.Shape == (Shape{8, 8, 4}) {
		return nil, fmt.Errorf("m8n8k4 with f16 is a form of sm_70 and is not simulated; use m16n8k8")
	}
	if !in.exists() {
		return nil, fmt.Errorf("no such shape with these types exists")
	}
	if err := in.setLayouts(w); err != nil {
		return nil, err
	}
	return in, in.setArithmeticModifiers(w)
}

// setLayouts reads the layouts of the multiplicands. Only wmma with elements of at least one byte
// leaves a choice.
func (in *Instruction) setLayouts(w *modifierSet) error {
	in.LayoutB = Col
	if in.Op == WGMMA {
		_, err := w.layout(0)
		return err
	}
	layouts, err := w.layout(2)
	if err != nil {
		return err
	}
	in.LayoutA, in.LayoutB = layouts[0], layouts[1]
	if (in.Op == MMASync || in.A.Bits() < 8) && (in.LayoutA != Row || in.LayoutB != Col) {
		return fmt.Errorf("unsupported layouts; want .row.col")
	}
	return nil
}

// setArithmeticModifiers reads the bit operation, .satfinite and the rounding mode.
func (in *Instruction) setArithmeticModifiers(w *modifierSet) error {
	if in.A == B1 {
		switch {
		case w.consume("and"):
			in.BitOp = And
		case w.consume("xor") && in.Op != WGMMA:
			in.BitOp = Xor
		}
		if in.BitOp == NoBitOp || !w.consume("popc") {
			return fmt.Errorf("no supported bit operation; want .and.popc, or .xor.popc with mma and wmma")
		}
		return nil
	}
	in.Saturate = in.D == S32 && w.consume("satfinite")
	if in.Op == WMMA && in.A == F64 {
		for i, word := range []string{"rn", "rz", "rm", "rp"} {
			if w.consume(word) {
				in.Rounding = Rounding(i)
			}
		}
	}
	return nil
}

// consumeSpace removes and returns the state space of an address.
func (w *modifierSet) consumeSpace(spaces ...string) string {
	for _, space := range spaces {
		if w.consume(space) {
			return strings.TrimSuffix(space, "::cta")
		}
	}
	return ""
}

// lookupTransfer reads wmma.load and wmma.store.
func lookupTransfer(op Op, w *modifierSet, matrices ...string) (in *Instruction, err error) {
	in = &Instruction{Op: op, Space: w.consumeSpace("global", "shared", "shared::cta")}
	if in.Shape, err = w.shape(); err != nil {
		return nil, err
	}
	layouts, err := w.layout(1)
	if err != nil {
		return nil, err
	}
	in.Layout = layouts[0]
	if len(w.types) != 1 {
		return nil, fmt.Errorf("found %d types; want one type", len(w.types))
	}
	in.Type = w.types[0]
	at := slices.IndexFunc(matrices, w.consume)
	if at < 0 {
		return nil, fmt.Errorf("no matrix named; want the matrix: .%s", strings.Join(matrices, ", ."))
	}
	in.Matrix = Matrix(strings.Index("abcd", matrices[at]))
	if !in.hasProduct() {
		return nil, fmt.Errorf("no such shape with this type exists")
	}
	if in.Type.Bits() < 8 && in.Layout != map[Matrix]Layout{A: Row, B: Col}[in.Matrix] {
		return nil, fmt.Errorf("unsupported layout; with this type want .row for a and .col for b")
	}
	return in, nil
}

// hasProduct reports whether a wmma product exists whose fragments this load or store can move.
func (in *Instruction) hasProduct() bool {
	for _, f := range forms {
		of := f.multiplicand
		if in.Matrix == C || in.Matrix == D {
			of = f.accumulator
		}
		if f.op == WMMA && slices.Contains(of, in.Type) && slices.Contains(f.shapes, in.Shape) {
			return true
		}
	}
	return false
}

// lookupMatrix reads ldmatrix, stmatrix and movmatrix on 8 by 8 matrices of 16-bit elements.
func lookupMatrix(op Op, w *modifierSet) (in *Instruction, err error) {
	in = &Instruction{Op: op, Count: 1}
	if in.Shape, err = w.shape(); err != nil {
		return nil, err
	}
	if in.Shape != (Shape{8, 8, 0}) || !w.consume("b16") {
		return nil, fmt.Errorf("only .m8n8 matrices of type .b16 are simulated")
	}
	in.Transposed = w.consume("trans")
	if op == MoveMatrix {
		if !in.Transposed {
			return nil, fmt.Errorf("movmatrix needs .trans")
		}
		return in, nil
	}
	in.Space = w.consumeSpace("shared", "shared::cta")
	for i, word := range []string{"x1", "x2", "x4"} {
		if w.consume(word) {
			in.Count = 1 << i
			return in, nil
		}
	}
	return nil, fmt.Errorf("no matrix count; want .x1, .x2 or .x4")
}
