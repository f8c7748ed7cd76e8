package sim

import (
	"bytes"
	"slices"

	"attune/internal/sim/mem"
	"attune/internal/sim/mma"
	"attune/internal/sim/order"
)

// Operands of warpgroup products in shared memory.

// sharedMatrix is a range of rows of a matrix in shared memory. A row has a number of units:
// elements, or 32 single bits.
type sharedMatrix struct {
	rows, units, unitBits int
	transposed            bool
	runs                  []uint32 // addresses of its contiguous runs of 16 bytes, row by row
	low, high             uint32   // address of the first byte, and of the byte after the last
}

// runBytes is the size of a contiguous run: a row of a core matrix.
const runBytes = order.Granule

// place computes the runs of a matrix.
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

// run returns the numbers of rows and columns of the matrix that a run covers.
func (m *sharedMatrix) run() (rows, cols int) {
	n := runBytes * 8 / m.unitBits
	if m.transposed {
		return n, 1
	}
	return 1, n
}

// within reports whether the whole matrix lies inside shared memory.
func (m *sharedMatrix) within(s *mem.Shared) bool {
	return uint64(m.low) >= s.First && uint64(m.high) <= s.First+uint64(len(s.Data))
}

// expand converts the bytes of the runs to units.
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

// tile is an operand B in shared memory, which all warps of a warpgroup read. It is prepared for
// the arithmetic once for as long as its bytes stay the same.
type tile struct {
	sharedMatrix
	raw   []byte
	ready mma.Operand

	checked tileCheck // when its bytes were compared last
}

// tileCheck is a moment in which products are computed: shared memory does not change in it.
type tileCheck struct {
	block  *block
	moment uint64
}

// tileKey determines the location and the layout of a B.
type tileKey struct {
	descriptor mma.Descriptor
	plan       *matrixPlan
	transposed bool
}

// tiles are the tiles that blocks have used. Only one goroutine uses them.
type tiles map[tileKey]*tile

// maxTiles bounds their number. Kernels have a few pipeline stages of a few steps each.
const maxTiles = 64

// placeOperands locates the operands of a product in shared memory.
func (w *warp) placeOperands(p *pendingProduct) {
	in, g := p.op.mat.in, p.op.wgmma.product
	if g.a == nil {
		p.a.place(p.descA, in.A, g.transA, w.index%groupWarps*quarterRows, quarterRows, in.Shape.K)
	}
	key := tileKey{p.descB, w.block.launch.plans[p.op.number], g.transB}
	known := w.block.tiles
	if p.b = known[key]; p.b == nil {
		if len(known) >= maxTiles {
			clear(known)
		}
		p.b = &tile{}
		p.b.place(p.descB, in.B, g.transB, 0, in.Shape.N, in.Shape.K)
		known[key] = p.b
	}
}

// collect returns the bytes of a matrix, run by run. Runs outside of shared memory, which have been
// reported, are zero. The result is valid until the next call.
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
		if at := uint64(address) - s.First; within || s.Holds(uint64(address), runBytes) {
			copy(to, s.Data[at:at+runBytes])
		} else {
			clear(to)
		}
	}
	return raw
}

// prepareTile prepares a tile for the arithmetic, unless its bytes are the same as the last time.
func (w *warp) prepareTile(t *tile, plan *matrixPlan) {
	now := tileCheck{w.block, w.block.moment}
	if t.checked == now {
		return
	}
	t.checked = now
	raw := w.collect(&t.sharedMatrix)
	if bytes.Equal(raw, t.raw) {
		return
	}
	t.raw = append(t.raw[:0], raw...)
	units := resized(&w.mats.b, t.rows*t.units)
	t.expand(raw, units)
	plan.product.Prepare(&t.ready, units)
}

// The reads of a product are accesses of the warpgroup, not of its warps. On an H200 the four warps
// start together, and the wait of one warp means that the reads of all four are over. The epoch of
// a read is the warpgroup's step.

// readStamp returns the access as which the reads of a product are remembered.
func (w *warp) readStamp(p *pendingProduct) order.Access {
	return order.Access{
		Epoch: p.epoch(), Op: p.op.number, Block: uint32(w.block.index), Warp: uint16(w.readAgent()), Lane: allLanes, Flags: order.WarpRead | order.Present,
	}
}

// startProduct notes that the warp has started a product. When the last warp of the warpgroup does
// so, the reads of all four begin. They see what each warp had done when it started.
func (w *warp) startProduct(p *pendingProduct) {
	if !w.block.launch.options.Checks {
		return
	}
	w.clocks.Start(&p.start, w.alive)
	w.clocks.LearnEpoch(w.readAgent()+1, p.epoch())
	switch {
	case w.warpgroup().diverged:
		w.beginReads(p, &[groupWarps]*pendingProduct{p})
	case w.allHaveTaken(p.step):
		var group [groupWarps]*pendingProduct
		for i, other := range w.siblings() {
			for _, q := range slices.Backward(other.wgmma.open) {
				if q.step == p.step {
					group[i] = q
				}
			}
		}
		w.beginReads(p, &group)
	}
}

// beginReads checks what the products of a warpgroup read from shared memory: a B, and the A of
// each warp. Until a wait for the product, no thread may write there.
func (w *warp) beginReads(p *pendingProduct, group *[groupWarps]*pendingProduct) {
	var clocks [groupWarps]*order.Clock
	for i, q := range group {
		if q != nil {
			clocks[i] = &q.start
		}
	}
	me, stamp := w.observer(p.op, allLanes, order.WarpRead), w.readStamp(p)
	me.Together(&clocks)
	reads := w.block.shared.Shadow.NewReads(&me, &stamp)
	w.readMatrix(p.op, &p.b.sharedMatrix, &me, &stamp, &reads)
	for _, q := range group {
		if q != nil {
			w.readMatrix(p.op, &q.a, &me, &stamp, &reads)
		}
	}
	reads.Close()
}

// readMatrix checks the read of one matrix.
func (w *warp) readMatrix(o *op, m *sharedMatrix, me *order.Observer, stamp *order.Access, reads *order.Reads) {
	s := &w.block.shared
	whole := m.within(s) && s.First%order.Granule == 0
	for _, address := range m.runs {
		if whole {
			at := uint64(address) - s.First
			if mem.AllWritten16(s.Marks[at:at+runBytes]) && reads.Granule(int(at)/order.Granule) {
				continue
			}
		}
		w.readAsync(o, uint64(address), runBytes, me, *stamp)
	}
}

// endReads ends the pending reads of a product. B is the same for all warps of the warpgroup, so
// its reads end once.
func (w *warp) endReads(p *pendingProduct) {
	if !w.block.launch.options.Checks {
		return
	}
	s, g := &w.block.shared, w.warpgroup()
	settled := s.Shadow.NewSettled(w.readStamp(p))
	settle := func(m *sharedMatrix) {
		for _, address := range m.runs {
			if s.Holds(uint64(address), runBytes) {
				settled.Range(int(uint64(address)-s.First), runBytes)
			}
		}
	}
	settle(&p.a)
	if ended := &g.ended[p.step%endedReads]; *ended != (endedRead{p.step, p.b}) {
		*ended = endedRead{p.step, p.b}
		settle(&p.b.sharedMatrix)
	}
	settled.Close()
}
