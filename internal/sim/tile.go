package sim

import (
	"bytes"
	"encoding/binary"

	"attune/internal/sim/mma"
)

// The operands of products in shared memory.

// sharedMatrix is a matrix in shared memory: its rows from one on, each of a number of units (elements, or 32 single bits).
type sharedMatrix struct {
	rows, units, unitBits int
	transposed            bool
	runs                  []uint32 // addresses of what lies together, 16 bytes each, row by row
	low, high             uint32   // of its first byte, and of the one behind the last
}

// runBytes is how many bytes of a matrix lie one after the other.
const runBytes = granule

// place finds the runs of a matrix.
func (m *sharedMatrix) place(d mma.Descriptor, t mma.Type, transposed bool, first, rows, k int) {
	m.rows, m.units, m.unitBits, m.transposed = rows, k*t.Bits()/unitBits(t), unitBits(t), transposed
	m.runs, m.low, m.high = m.runs[:0], ^uint32(0), 0
	at := d.Shared(t, transposed)
	down, right := m.run()
	for row := 0; row < rows; row += down {
		for col := 0; col < m.units; col += right {
			address := at.Address(first+row, col)
			m.runs = append(m.runs, address)
			m.low, m.high = min(m.low, address), max(m.high, address+runBytes)
		}
	}
}

// run is how many rows and columns of the matrix a run has.
func (m *sharedMatrix) run() (rows, cols int) {
	n := runBytes * 8 / m.unitBits
	if m.transposed {
		return n, 1
	}
	return 1, n
}

// within says whether all of a matrix lies inside of shared memory.
func (m *sharedMatrix) within(s *sharedMemory) bool {
	return uint64(m.low) >= s.first && uint64(m.high) <= s.first+uint64(len(s.data))
}

// expand makes units of the bytes of a matrix's runs.
func (m *sharedMatrix) expand(raw []byte, into []uint32) {
	if m.unitBits == 8 && !m.transposed {
		into = into[:len(raw)]
		for i, b := range raw {
			into[i] = uint32(b)
		}
		return
	}
	step := 1
	if m.transposed {
		step = m.units
	}
	down, right := m.run()
	for row := 0; row < m.rows; row += down {
		for col := 0; col < m.units; col += right {
			for i := range down * right {
				into[row*m.units+col+i*step] = unit(raw, m.unitBits, i)
			}
			raw = raw[runBytes:]
		}
	}
}

// tile is a B in shared memory, which all warps of a warpgroup read, and what it was when it was last taken apart: for as long as it is the same, that is
// done once.
type tile struct {
	sharedMatrix
	raw   []byte
	ready mma.Operand
}

// tileKey is what decides where a B lies and what it is.
type tileKey struct {
	descriptor mma.Descriptor
	plan       *matrixPlan
	transposed bool
}

// tiles are those that blocks have used. They serve one goroutine.
type tiles map[tileKey]*tile

// mostTiles bounds them. Kernels have a few stages of a few steps each.
const mostTiles = 64

// placeOperands finds out where the operands of a product lie.
func (w *warp) placeOperands(p *pendingProduct) {
	in, g := p.op.mat.in, p.op.wgmma.product
	if g.a == nil {
		p.a.place(p.descA, in.A, g.transA, w.index%groupWarps*quarterRows, quarterRows, in.Shape.K)
	}
	key := tileKey{p.descB, w.block.launch.plans[p.op.number], g.transB}
	known := w.block.tiles
	if p.b = known[key]; p.b == nil {
		if len(known) >= mostTiles {
			clear(known)
		}
		p.b = &tile{}
		p.b.place(p.descB, in.B, g.transB, 0, in.Shape.N, in.Shape.K)
		known[key] = p.b
	}
}

// collect gives the bytes of a matrix, run by run; what lies outside, which has been reported, is zero. They hold until the next are collected.
func (w *warp) collect(m *sharedMatrix) []byte {
	s := &w.block.shared
	n := len(m.runs) * runBytes
	if cap(w.mats.raw) < n {
		w.mats.raw = make([]byte, n)
	}
	raw := w.mats.raw[:n]
	within := m.within(s)
	for i, address := range m.runs {
		to := raw[i*runBytes:][:runBytes]
		if at := uint64(address) - s.first; within || s.holds(uint64(address), runBytes) {
			copy(to, s.data[at:at+runBytes])
		} else {
			clear(to)
		}
	}
	return raw
}

// makeReady takes a tile apart, unless it holds what it held the last time.
func (w *warp) makeReady(t *tile, plan *matrixPlan) {
	raw := w.collect(&t.sharedMatrix)
	if bytes.Equal(raw, t.raw) {
		return
	}
	t.raw = append(t.raw[:0], raw...)
	units := room(&w.mats.b, t.rows*t.units)
	t.expand(raw, units)
	plan.product.Prepare(&t.ready, units)
}

// operands are the matrices that a product reads from shared memory.
func (p *pendingProduct) operands() [2]*sharedMatrix {
	return [2]*sharedMatrix{&p.a, &p.b.sharedMatrix} // an A in registers has no runs
}

// beginReads checks what a product reads from shared memory. From now until it has been waited for, nobody may write there.
func (w *warp) beginReads(p *pendingProduct) {
	if !w.block.launch.options.Checks {
		return
	}
	s := &w.block.shared
	me := w.observer(p.op, allLanes, asyncRead)
	var clean access
	for _, m := range p.operands() {
		whole := m.within(s) && s.first%granule == 0
		for _, address := range m.runs {
			if whole {
				at := uint64(address) - s.first
				if allWritten(s.marks[at:at+runBytes]) && s.shadow.readGranule(int(at)/granule, &me, &clean) {
					continue
				}
			}
			w.readAsync(p.op, "wgmma", uint64(address), runBytes)
		}
	}
	w.knows.epoch++ // so that these reads are told from those of the next product
}

// allWritten says whether somebody has written each of 16 bytes, and they are nothing special.
func allWritten(marks []byte) bool {
	const all = 0x0101010101010101 * uint64(written)
	return binary.LittleEndian.Uint64(marks) == all && binary.LittleEndian.Uint64(marks[8:]) == all
}

// endReads makes the reads of a product those of its warp, now.
func (w *warp) endReads(p *pendingProduct) {
	if !w.block.launch.options.Checks {
		return
	}
	s := &w.block.shared
	me := w.observer(p.op, allLanes, 0).access
	me.epoch = p.epoch
	for _, m := range p.operands() {
		for _, address := range m.runs {
			if s.holds(uint64(address), runBytes) {
				s.shadow.settleReads(int(uint64(address)-s.first), runBytes, &me, w.knows.epoch)
			}
		}
	}
}

// holds says whether bytes lie inside.
func (s *sharedMemory) holds(address uint64, size int) bool {
	return address >= s.first && address-s.first+uint64(size) <= uint64(len(s.data))
}
