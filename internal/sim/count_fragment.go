package sim

import (
	"attune/internal/ptx"
	"attune/internal/sim/mma"
)

// fragmentShape is what one machine instruction of a wmma.load or wmma.store moves. Lanes 4g to 4g+3 are group g, as everywhere on the tensor cores.
type fragmentShape struct {
	width int // bytes of a lane
	// pitch is 0 where a group has a line of memory, and its four lanes follow each other in it. Else each of the four lanes of a group has a line, so
	// many apart, and the groups follow each other in it.
	pitch  int
	byRows bool // it is an ldmatrix, of up to four matrices of eight rows of 16 bytes
}

// fragmentShapeOf says what ptxas makes of a wmma.load or wmma.store, which is the same from sm_80 to sm_90. What a lane holds are neighbours along
// one side of the matrix: K of what is multiplied, N of sums, M of sums of m8n32. Where memory runs along that side they are moved together: a
// register full, or two of sums. Where it runs across, elements of 16 bits are moved all the same and then transposed between the lanes; others go
// one by one.
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

// countFragment counts a wmma.load or wmma.store as the machine instructions that it becomes.
func (w *warp) countFragment(o *op, f *mma.Fragment, d direction) {
	r := w.fragmentRuns(o, f)
	s := fragmentShapeOf(o.mat.in, o.mat.addr.space)
	length := r.n * unitBits(o.mat.in.Type) / 8
	if s.byRows {
		w.countFragmentRows(r, length, d)
		return
	}
	lines, across, steps := 8, 4*s.width, 1
	if s.pitch > 0 {
		lines, across, steps = 4*s.pitch, 8*s.width, s.pitch
	}
	access := &memOp{bytes: s.width}
	for line := 0; line < r.lines; line += lines {
		for at := 0; at < length; at += across {
			for step := range steps {
				for lane := range 32 {
					group, inGroup := lane/4, lane%4
					if s.pitch == 0 {
						w.addr[lane] = r.address(line+group) + uint64(at+inGroup*s.width)
					} else {
						w.addr[lane] = r.address(line+inGroup*s.pitch+step) + uint64(at+group*s.width)
					}
				}
				w.countAccess(access, r.space, everyLane, d)
			}
		}
	}
}

// countFragmentRows counts the ldmatrix instructions that fetch a fragment, four matrices of eight rows of 16 bytes each at the most.
func (w *warp) countFragmentRows(r fragmentRuns, length int, d direction) {
	rows := 0
	flush := func() {
		if rows > 0 {
			w.countMatrixRows(rows, d)
		}
		rows = 0
	}
	for at := 0; at < length; at += matrixRowBytes {
		for line := range r.lines {
			w.addr[rows] = r.address(line) + uint64(at)
			if rows++; rows == 32 {
				flush()
			}
		}
	}
	flush()
}
