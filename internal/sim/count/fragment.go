package count

import (
	"attune/internal/ptx"
	"attune/internal/sim/mem"
	"attune/internal/sim/mma"
)

// Lines is a matrix in memory: lines of contiguous bytes.
type Lines struct {
	Space  ptx.Space
	Base   uint64
	Stride int64 // bytes from line to line
	Count  int
	Bytes  int // of a line
}

// Address returns the address of a line.
func (l *Lines) Address(line int) uint64 { return l.Base + uint64(int64(line)*l.Stride) }

// fragmentShape is what one machine instruction of a wmma.load or wmma.store moves. Lanes 4g to
// 4g+3 are group g, as in every fragment.
type fragmentShape struct {
	width int // bytes per lane
	// pitch is 0 where each group accesses one line, with its four lanes side by side. Otherwise
	// each of the four lanes of a group accesses its own line, with the groups side by side in it.
	// pitch is then the distance between these lines.
	pitch  int
	byRows bool // it is an ldmatrix of up to four matrices of eight 16-byte rows
}

// fragmentShapeOf returns what ptxas makes of a wmma.load or wmma.store. It is the same from sm_80
// to sm_90.
//
// A lane holds neighbours along one side of the matrix: K of A and B, N of C and D, but M of C and
// D of m8n32. If memory is contiguous along that side, they are moved together: one register, or
// two of C and D. Otherwise elements of 16 bits are moved in the same way and then transposed
// between the lanes, and all other elements are moved one by one.
//
// space is the state space that the instruction names.
func fragmentShapeOf(in *mma.Instruction, space ptx.Space) fragmentShape {
	bits, sum := in.Type.Bits(), in.Matrix == mma.C || in.Matrix == mma.D
	along := in.Layout == mma.Row
	switch {
	case in.Matrix == mma.B, sum && in.Shape.M == 8 && in.Shape.N == 32:
		along = !along
	}
	switch {
	case bits == 16, bits < 16 && along:
		return fragmentShape{width: 4, byRows: space == ptx.Shared && !sum}
	case along && sum:
		return fragmentShape{width: bits / 4}
	case along:
		return fragmentShape{width: bits / 8}
	case bits < 16:
		return fragmentShape{width: 1, pitch: 4}
	case sum:
		return fragmentShape{width: bits / 8, pitch: 2}
	}
	return fragmentShape{width: bits / 8, pitch: 1}
}

// Fragment counts a wmma.load or wmma.store as the machine instructions that it becomes. space is
// the state space that the instruction names.
func (c *Counters) Fragment(in *mma.Instruction, space ptx.Space, m Lines, d mem.Direction) {
	s := fragmentShapeOf(in, space)
	if s.byRows {
		c.fragmentRows(m, d)
		return
	}
	lines, across, steps := 8, 4*s.width, 1
	if s.pitch > 0 {
		lines, across, steps = 4*s.pitch, 8*s.width, s.pitch
	}
	var addr [32]uint64
	for line := 0; line < m.Count; line += lines {
		for at := 0; at < m.Bytes; at += across {
			for step := range steps {
				for lane := range 32 {
					group, inGroup := lane/4, lane%4
					if s.pitch == 0 {
						addr[lane] = m.Address(line+group) + uint64(at+inGroup*s.width)
					} else {
						addr[lane] = m.Address(line+inGroup*s.pitch+step) + uint64(at+group*s.width)
					}
				}
				c.Access(&addr, m.Space, ^uint32(0), s.width, d)
			}
		}
	}
}

// fragmentRows counts the ldmatrix instructions that load a fragment. Each loads at most four
// matrices of eight 16-byte rows.
func (c *Counters) fragmentRows(m Lines, d mem.Direction) {
	var addr [32]uint64
	rows := 0
	flush := func() {
		if rows > 0 {
			c.MatrixRows(&addr, rows, d)
		}
		rows = 0
	}
	for at := 0; at < m.Bytes; at += MatrixRowBytes {
		for line := range m.Count {
			addr[rows] = m.Address(line) + uint64(at)
			if rows++; rows == 32 {
				flush()
			}
		}
	}
	flush()
}
