package mma

import "math/rand/v2"

// Fragment says where the elements of a matrix lie in the registers of a warp.
//
// Matrices are slices of elements, each element's bits in the low bits of one uint32; an f64 takes two, the low half
// first, and 32 single bits share one. A lies row by row. B lies column by column, so that K runs fastest in both. C and D
// lie row by row. For wgmma a fragment is one warp's: warp w of the four holds rows 16w to 16w+15 of A, C and D.
type Fragment struct {
	Rows, Cols int // of the matrix as it lies in its slice: rows of length Cols
	Registers  int // each lane's; of 32 bits, or of 64 for f64
	// Copies is how many times each element is held: more than once for some multiplicands of wmma.
	Copies int

	bits     int     // of an element, or of 32 single bits
	each     int     // elements in a register
	position []int32 // in the matrix of element e of register r of lane l: [(r*32+l)*each+e]
	columns  bool    // rows of the slice are columns of the matrix
}

// Elements is the number of elements of a lane.
func (f *Fragment) Elements() int { return f.Registers * f.each }

// Words is the length of the slice that holds the matrix.
func (f *Fragment) Words() int { return f.Rows * f.Cols * max(1, f.bits/32) }

// At is the place in the matrix of an element of a lane; elements are counted from the low bits of the first register.
// Of single bits it is the place of the first of 32.
func (f *Fragment) At(lane, element int) (row, col int) {
	p := int(f.position[(element/f.each*32+lane)*f.each+element%f.each])
	if f.columns {
		return p % f.Cols, p / f.Cols
	}
	return p / f.Cols, p % f.Cols
}

// Gather collects a matrix from the registers of a warp. With registers of 32 bits an f64 comes from two of them, the low
// half first. It says whether all copies of every element are the same, which they are unless a program has treated
// them differently.
func Gather[W uint32 | uint64](f *Fragment, matrix []uint32, registers []*[32]W) bool {
	if f.bits == 64 {
		for i, p := range f.position {
			matrix[2*p], matrix[2*p+1] = halves(registers, i)
		}
		return true
	}
	mask := uint32(1)<<f.bits - 1
	at := f.position
	for _, register := range registers[:f.Registers] {
		for lane := range register {
			word := uint32(register[lane])
			for range f.each {
				matrix[at[0]] = word & mask
				word >>= f.bits
				at = at[1:]
			}
		}
	}
	return f.Copies == 1 || f.agree(func(i int) bool {
		word := uint32(registers[i/(32*f.each)][i/f.each%32])
		return word>>(i%f.each*f.bits)&mask == matrix[f.position[i]]
	})
}

func (f *Fragment) agree(same func(i int) bool) bool {
	for i := range f.position {
		if !same(i) {
			return false
		}
	}
	return true
}

// Scatter puts a matrix into the registers of a warp. It is the inverse of Gather.
func Scatter[W uint32 | uint64](f *Fragment, registers []*[32]W, matrix []uint32) {
	if f.bits == 64 {
		for i, p := range f.position {
			setHalves(registers, i, matrix[2*p], matrix[2*p+1])
		}
		return
	}
	at := f.position
	for _, register := range registers[:f.Registers] {
		for lane := range register {
			word := uint32(0)
			for e := range f.each {
				word |= matrix[at[e]] << (e * f.bits)
			}
			register[lane] = W(word)
			at = at[f.each:]
		}
	}
}

// halves are those of 64-bit register i/32 of lane i%32, which with 32-bit registers is a pair.
func halves[W uint32 | uint64](registers []*[32]W, i int) (low, high uint32) {
	if half := ^W(0) == W(^uint32(0)); half {
		return uint32(registers[i/32*2][i%32]), uint32(registers[i/32*2+1][i%32])
	}
	value := uint64(registers[i/32][i%32])
	return uint32(value), uint32(value >> 32)
}

func setHalves[W uint32 | uint64](registers []*[32]W, i int, low, high uint32) {
	if half := ^W(0) == W(^uint32(0)); half {
		registers[i/32*2][i%32], registers[i/32*2+1][i%32] = W(low), W(high)
		return
	}
	registers[i/32][i%32] = W(uint64(high)<<32 | uint64(low))
}

// Fragment is the layout of a matrix of the instruction. The seed is for wmma, whose layouts are drawn from it: the same
// seed gives the same layout to all instructions whose fragments may be exchanged. It is nil for B of wgmma, which is
// never in registers. ldmatrix and stmatrix have Count matrices of 8 by 8, one below the other, a register each, and the
// argument makes no difference; movmatrix goes from A to D.
func (in *Instruction) Fragment(matrix Matrix, seed uint64) *Fragment {
	s := in.Shape
	switch in.Op {
	case LoadMatrix, StoreMatrix, MoveMatrix:
		return pairs(8*in.Count, 8, F16, in.Transposed && (in.Op != MoveMatrix || matrix == D))
	case Warp:
		return drawn(matrix, s, in.typeOf(matrix), in.layoutOf(matrix), seed)
	case WarpLoad, WarpStore:
		return drawn(in.Matrix, s, in.Type, in.Layout, seed)
	}
	rows := min(s.M, 16)
	switch matrix {
	case A:
		return multiplicand(rows, s.K, in.A)
	case B:
		if in.Op == Group {
			return nil
		}
		f := multiplicand(s.N, s.K, in.B)
		f.columns = true
		return f
	}
	return accumulator(rows, s.N, in.typeOf(matrix))
}

func (in *Instruction) typeOf(m Matrix) Type { return [...]Type{in.A, in.B, in.C, in.D}[m] }

func (in *Instruction) layoutOf(m Matrix) Layout {
	if m == B {
		return in.LayoutB
	}
	return in.LayoutA
}

func newFragment(rows, cols int, t Type, registers int) *Fragment {
	f := &Fragment{Rows: rows, Cols: cols, Registers: registers, Copies: 1, bits: t.word(), each: max(1, 32/t.word())}
	f.position = make([]int32, 32*registers*f.each)
	return f
}

// place fills in the positions from the row and the column of each element.
func (f *Fragment) place(at func(lane, register, element int) (row, col int)) *Fragment {
	for i := range f.position {
		row, col := at(i/f.each%32, i/(32*f.each), i%f.each)
		f.position[i] = int32(row*f.Cols + col)
	}
	return f
}

// multiplicand is the layout of A, and of B with N in place of M: lane 4g+t holds the t-th register of row g (and, of 16
// rows, of row g+8 in every second register).
func multiplicand(rows, k int, t Type) *Fragment {
	cols := k * t.Bits() / t.word()
	f := newFragment(rows, cols, t, rows*k*t.Bits()/32/max(32, t.Bits()))
	return f.place(func(lane, register, element int) (int, int) {
		across := rows / 8
		return lane/4 + 8*(register%across), f.each*(lane%4+4*(register/across)) + element
	})
}

// accumulator is the layout of C and D: lane 4g+t holds columns 2t and 2t+1 of row g, then of row g+8, then of the next
// eight columns.
func accumulator(rows, n int, t Type) *Fragment {
	f := newFragment(rows, n, t, rows*n*t.Bits()/32/max(32, t.Bits()))
	return f.place(func(lane, register, element int) (int, int) {
		i := register*f.each + element
		pair, across := i/2, rows/8
		return lane/4 + 8*(pair%across), 8*(pair/across) + 2*(lane%4) + i%2
	})
}

// pairs is the layout of matrices of 8 by 8 elements of 16 bits: lane 4g+t holds columns 2t and 2t+1 of row g, or of the
// transposed matrix.
func pairs(rows, cols int, t Type, transposed bool) *Fragment {
	return newFragment(rows, cols, t, rows/8).place(func(lane, register, element int) (int, int) {
		row, col := lane/4, 2*(lane%4)+element
		if transposed {
			row, col = col, row
		}
		return 8*register + row, col
	})
}

// drawn is a layout for wmma: every element in as many places as there are copies, at random.
func drawn(m Matrix, s Shape, t Type, layout Layout, seed uint64) *Fragment {
	rows, cols := s.M, s.N
	switch m {
	case A:
		cols = s.K
	case B:
		rows, cols = s.N, s.K
	default:
		m, layout = C, Row // C and D may be exchanged, and are stored in either layout
	}
	elements := rows * cols * t.Bits() / t.word()
	registers := max(1, elements*t.word()/32/max(32, t.Bits()))
	if t == F16 && m != C {
		registers = 8 // for every shape: what is smaller is held several times
	}
	f := newFragment(rows, elements/rows, t, registers)
	f.columns = m == B
	f.Copies = len(f.position) / elements
	kind := uint64(m)<<40 | uint64(t)<<32 | uint64(layout)<<24 | uint64(s.M)<<16 | uint64(s.N)<<8 | uint64(s.K)
	for i, p := range rand.New(rand.NewPCG(seed, kind)).Perm(len(f.position)) {
		f.position[i] = int32(p % elements)
	}
	return f
}
