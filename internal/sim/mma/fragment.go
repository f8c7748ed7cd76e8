package mma

import "math/rand/v2"

// Fragment maps the elements of a matrix to the registers of a warp.
//
// A matrix is a slice with one element per uint32, in the low bits. An f64 takes two words, the low
// half first; 32 elements of B1 share one word. A is stored by rows and B by columns, so K is
// contiguous in both. C and D are stored by rows. For wgmma a fragment belongs to one warp: warp w
// of the four holds rows 16w to 16w+15 of A, C and D.
type Fragment struct {
	Rows, Cols int // of the slice: Rows rows of length Cols
	Registers  int // per lane; 32 bits each, 64 bits for f64
	// Copies is the number of registers that hold each element: more than one for some
	// multiplicands of wmma.
	Copies int

	bits        int  // of a slice element
	perRegister int  // elements per register
	columnMajor bool // rows of the slice are columns of the matrix
	// position[(r*32+l)*perRegister+e] is the index in the slice of element e of register r of lane
	// l.
	position []int32
	// octets is the index of the first of 64 elements: eight rows of eight, of which four lanes hold one.
	// There is one for each register with two elements, or for two registers with one element. It is nil
	// in other layouts.
	octets []int32
}

// Elements returns the number of elements per lane.
func (f *Fragment) Elements() int { return f.Registers * f.perRegister }

// Words returns the length of the slice that holds the matrix.
func (f *Fragment) Words() int { return f.Rows * f.Cols * max(1, f.bits/32) }

// At returns the matrix position of an element of a lane. Elements are counted from the low bits of
// the first register. For B1 it is the position of the first of 32 elements.
func (f *Fragment) At(lane, element int) (row, col int) {
	p := int(f.position[(element/f.perRegister*32+lane)*f.perRegister+element%f.perRegister])
	if f.columnMajor {
		return p % f.Cols, p / f.Cols
	}
	return p / f.Cols, p % f.Cols
}

// Gather collects a matrix from the registers of a warp. With 32-bit registers an f64 comes from
// two of them, the low half first. It reports whether all copies of every element are equal; they
// are, unless the program has changed one of them.
func Gather[W uint32 | uint64](f *Fragment, matrix []uint32, registers []*[32]W) bool {
	if f.bits == 64 {
		for i, p := range f.position {
			matrix[2*p], matrix[2*p+1] = halves(registers, i)
		}
		return true
	}
	if f.octets != nil {
		gatherOctets(f, matrix, registers)
		return true
	}
	mask := uint32(1)<<f.bits - 1
	at := f.position
	if f.perRegister == 1 && f.Copies == 1 {
		for _, register := range registers[:f.Registers] {
			for lane, p := range at[:32] {
				matrix[p] = uint32(register[lane])
			}
			at = at[32:]
		}
		return true
	}
	if f.perRegister == 2 && f.Copies == 1 {
		for _, register := range registers[:f.Registers] {
			for lane, pair := 0, at[:64]; len(pair) >= 2; lane, pair = lane+1, pair[2:] {
				word := uint32(register[lane])
				matrix[pair[0]], matrix[pair[1]] = word&0xFFFF, word>>16
			}
			at = at[64:]
		}
		return true
	}
	for _, register := range registers[:f.Registers] {
		for lane := range register {
			word := uint32(register[lane])
			for range f.perRegister {
				matrix[at[0]] = word & mask
				word >>= f.bits
				at = at[1:]
			}
		}
	}
	return f.Copies == 1 || copiesAgree(f, matrix, registers)
}

// copiesAgree compares every copy of an element in the registers with the one that Gather has taken.
func copiesAgree[W uint32 | uint64](f *Fragment, matrix []uint32, registers []*[32]W) bool {
	mask := uint32(1)<<f.bits - 1
	at := f.position
	for _, register := range registers[:f.Registers] {
		for lane := range register {
			word := uint32(register[lane])
			for _, p := range at[:f.perRegister] {
				if matrix[p] != word&mask {
					return false
				}
				word >>= f.bits
			}
			at = at[f.perRegister:]
		}
	}
	return true
}

// Scatter writes a matrix to the registers of a warp. It is the inverse of Gather.
func Scatter[W uint32 | uint64](f *Fragment, registers []*[32]W, matrix []uint32) {
	if f.bits == 64 {
		for i, p := range f.position {
			setHalves(registers, i, matrix[2*p], matrix[2*p+1])
		}
		return
	}
	if f.octets != nil {
		scatterOctets(f, registers, matrix)
		return
	}
	at := f.position
	if f.perRegister == 1 {
		for _, register := range registers[:f.Registers] {
			for lane, p := range at[:32] {
				register[lane] = W(matrix[p])
			}
			at = at[32:]
		}
		return
	}
	if f.perRegister == 2 {
		for _, register := range registers[:f.Registers] {
			for lane, pair := 0, at[:64]; len(pair) >= 2; lane, pair = lane+1, pair[2:] {
				register[lane] = W(matrix[pair[0]] | matrix[pair[1]]<<16)
			}
			at = at[64:]
		}
		return
	}
	for _, register := range registers[:f.Registers] {
		for lane := range register {
			word := uint32(0)
			for e := range f.perRegister {
				word |= matrix[at[e]] << (e * f.bits)
			}
			register[lane] = W(word)
			at = at[f.perRegister:]
		}
	}
}

// gatherOctets is Gather for a layout with octets.
func gatherOctets[W uint32 | uint64](f *Fragment, matrix []uint32, registers []*[32]W) {
	for i, first := range f.octets {
		at := int(first)
		if f.perRegister == 2 {
			for words := registers[i][:]; len(words) >= 4; words = words[4:] {
				to, from := (*[8]uint32)(matrix[at:]), (*[4]W)(words)
				for j, word := range from {
					to[2*j], to[2*j+1] = uint32(word)&0xFFFF, uint32(word)>>16
				}
				at += f.Cols
			}
			continue
		}
		even, odd := registers[2*i], registers[2*i+1]
		for lane := 0; lane < 32; lane += 4 {
			to, a, b := (*[8]uint32)(matrix[at:]), (*[4]W)(even[lane:]), (*[4]W)(odd[lane:])
			to[0], to[1], to[2], to[3] = uint32(a[0]), uint32(b[0]), uint32(a[1]), uint32(b[1])
			to[4], to[5], to[6], to[7] = uint32(a[2]), uint32(b[2]), uint32(a[3]), uint32(b[3])
			at += f.Cols
		}
	}
}

// scatterOctets is Scatter for a layout with octets.
func scatterOctets[W uint32 | uint64](f *Fragment, registers []*[32]W, matrix []uint32) {
	for i, first := range f.octets {
		at := int(first)
		if f.perRegister == 2 {
			for words := registers[i][:]; len(words) >= 4; words = words[4:] {
				from, to := (*[8]uint32)(matrix[at:]), (*[4]W)(words)
				for j := range to {
					to[j] = W(from[2*j] | from[2*j+1]<<16)
				}
				at += f.Cols
			}
			continue
		}
		even, odd := registers[2*i], registers[2*i+1]
		for lane := 0; lane < 32; lane += 4 {
			from, a, b := (*[8]uint32)(matrix[at:]), (*[4]W)(even[lane:]), (*[4]W)(odd[lane:])
			a[0], b[0], a[1], b[1] = W(from[0]), W(from[1]), W(from[2]), W(from[3])
			a[2], b[2], a[3], b[3] = W(from[4]), W(from[5]), W(from[6]), W(from[7])
			at += f.Cols
		}
	}
}

// findOctets fills octets if the layout has them.
func (f *Fragment) findOctets() {
	each := 3 - f.perRegister // registers of an octet
	if f.bits*f.perRegister != 32 || f.perRegister > 2 || f.Registers%each != 0 {
		return
	}
	var list []int32
	for first := 0; first < f.Registers; first += each {
		start := f.position[first*32*f.perRegister]
		for i := range 64 {
			row, col := i/8, i%8
			register, element := first+col%2*(each-1), col%2*(f.perRegister-1)
			if f.position[(register*32+row*4+col/2)*f.perRegister+element] != start+int32(row*f.Cols+col) {
				return
			}
		}
		list = append(list, start)
	}
	f.octets = list
}

// halves returns the two halves of 64-bit register i/32 of lane i%32, which is a pair of 32-bit
// registers if W is uint32.
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

// Fragment returns the layout of a matrix of the instruction.
//
// The layouts of wmma derive from the seed: instructions whose fragments are interchangeable get
// the same layout from the same seed. B of wgmma is never in registers, so its fragment is nil.
// ldmatrix and stmatrix move Count matrices of 8 by 8, stacked vertically, one register each; they
// ignore the argument. movmatrix moves from A to D.
func (in *Instruction) Fragment(matrix Matrix, seed uint64) *Fragment {
	s := in.Shape
	switch in.Op {
	case LoadMatrix, StoreMatrix, MoveMatrix:
		return matrix8x8Layout(8*in.Count, 8, F16, in.Transposed && (in.Op != MoveMatrix || matrix == D))
	case WMMA:
		return randomLayout(matrix, s, in.typeOf(matrix), in.layoutOf(matrix), seed)
	case WMMALoad, WMMAStore:
		return randomLayout(in.Matrix, s, in.Type, in.Layout, seed)
	}
	rows := min(s.M, 16)
	switch matrix {
	case A:
		return operandLayout(rows, s.K, in.A)
	case B:
		if in.Op == WGMMA {
			return nil
		}
		f := operandLayout(s.N, s.K, in.B)
		f.columnMajor = true
		return f
	}
	return accumulatorLayout(rows, s.N, in.typeOf(matrix))
}

func (in *Instruction) typeOf(m Matrix) Type { return [...]Type{in.A, in.B, in.C, in.D}[m] }

func (in *Instruction) layoutOf(m Matrix) Layout {
	if m == B {
		return in.LayoutB
	}
	return in.LayoutA
}

func newFragment(rows, cols int, t Type, registers int) *Fragment {
	f := &Fragment{Rows: rows, Cols: cols, Registers: registers, Copies: 1, bits: t.word(), perRegister: max(1, 32/t.word())}
	f.position = make([]int32, 32*registers*f.perRegister)
	return f
}

// fillPositions computes the positions from the row and the column of each element.
func (f *Fragment) fillPositions(at func(lane, register, element int) (row, col int)) *Fragment {
	for i := range f.position {
		row, col := at(i/f.perRegister%32, i/(32*f.perRegister), i%f.perRegister)
		f.position[i] = int32(row*f.Cols + col)
	}
	f.findOctets()
	return f
}

// operandLayout is the layout of A, and of B with N in place of M (PTX ISA, Matrix Fragments for
// mma). Lane 4g+t holds the t-th register of row g. With 16 rows, every second register belongs to
// row g+8.
func operandLayout(rows, k int, t Type) *Fragment {
	cols := k * t.Bits() / t.word()
	f := newFragment(rows, cols, t, rows*k*t.Bits()/32/max(32, t.Bits()))
	return f.fillPositions(func(lane, register, element int) (int, int) {
		across := rows / 8
		return lane/4 + 8*(register%across), f.perRegister*(lane%4+4*(register/across)) + element
	})
}

// accumulatorLayout is the layout of C and D. Lane 4g+t holds columns 2t and 2t+1 of row g, then of
// row g+8, then of the next eight columns.
func accumulatorLayout(rows, n int, t Type) *Fragment {
	f := newFragment(rows, n, t, rows*n*t.Bits()/32/max(32, t.Bits()))
	return f.fillPositions(func(lane, register, element int) (int, int) {
		i := register*f.perRegister + element
		pair, across := i/2, rows/8
		return lane/4 + 8*(pair%across), 8*(pair/across) + 2*(lane%4) + i%2
	})
}

// matrix8x8Layout is the layout of 8 by 8 matrices of 16-bit elements. Lane 4g+t holds columns 2t
// and 2t+1 of row g, or of the transposed matrix.
func matrix8x8Layout(rows, cols int, t Type, transposed bool) *Fragment {
	return newFragment(rows, cols, t, rows/8).fillPositions(func(lane, register, element int) (int, int) {
		row, col := lane/4, 2*(lane%4)+element
		if transposed {
			row, col = col, row
		}
		return 8*register + row, col
	})
}

// randomLayout is a layout for wmma: a random permutation in which every element has Copies
// positions.
func randomLayout(m Matrix, s Shape, t Type, layout Layout, seed uint64) *Fragment {
	rows, cols := s.M, s.N
	switch m {
	case A:
		cols = s.K
	case B:
		rows, cols = s.N, s.K
	default:
		m, layout = C, Row // C and D are interchangeable, and wmma.store has both layouts
	}
	elements := rows * cols * t.Bits() / t.word()
	registers := max(1, elements*t.word()/32/max(32, t.Bits()))
	if t == F16 && m != C {
		registers = 8 // for every shape; smaller matrices have several copies
	}
	f := newFragment(rows, elements/rows, t, registers)
	f.columnMajor = m == B
	f.Copies = len(f.position) / elements
	kind := uint64(m)<<40 | uint64(t)<<32 | uint64(layout)<<24 | uint64(s.M)<<16 | uint64(s.N)<<8 | uint64(s.K)
	for i, p := range rand.New(rand.NewPCG(seed, kind)).Perm(len(f.position)) {
		f.position[i] = int32(p % elements)
	}
	return f
}
