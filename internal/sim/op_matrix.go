package sim

import (
	"encoding/binary"
	"fmt"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/lanes"
	"attune/internal/sim/mem"
	"attune/internal/sim/mma"
	"attune/internal/sim/order"
)

// matrixOp is an operation on matrices, which a warp executes as a whole.
type matrixOp struct {
	in         *mma.Instruction
	d, a, b, c []slot // registers
	addr       *memOp
	stride     slot // of wmma.load and wmma.store, in elements; noFile for contiguous rows
}

// matrixPlan is the part of a matrix operation that depends on the launch: fragment layouts and
// arithmetic.
type matrixPlan struct {
	d, a, b, c *mma.Fragment
	product    *mma.Product
	machine    count.MachineProduct
}

// planMatrices makes the plans of all matrix operations.
func (r *launch) planMatrices() error {
	same := map[mma.Instruction]*matrixPlan{} // equal instructions share a plan
	for _, c := range r.program.codes {
		for i := range c.ops {
			o := &c.ops[i]
			if o.mat == nil {
				continue
			}
			plan := same[*o.mat.in]
			if plan == nil {
				var err error
				if plan, err = r.planMatrix(o.mat.in); err != nil {
					return fmt.Errorf("%s: %w", position{c, int32(i)}.place(), err)
				}
				same[*o.mat.in] = plan
			}
			plan.machine = count.MachineProductOf(o.mat.in, r.program.arch)
			r.plans[o.number] = plan
		}
	}
	return nil
}

func (r *launch) planMatrix(in *mma.Instruction) (*matrixPlan, error) {
	seed := r.options.Seed
	p := &matrixPlan{}
	switch in.Op {
	case mma.MMASync, mma.WMMA:
		p.a, p.b, p.c, p.d = in.Fragment(mma.A, seed), in.Fragment(mma.B, seed), in.Fragment(mma.C, seed), in.Fragment(mma.D, seed)
		product, err := in.Product(r.chip, r.options.Tensor)
		p.product = product
		return p, err
	case mma.WGMMA:
		quarter := *in
		quarter.Shape.M = quarterRows
		p.a, p.d = in.Fragment(mma.A, seed), in.Fragment(mma.D, seed)
		product, err := quarter.Product(r.chip, r.options.Tensor)
		p.product = product
		return p, err
	case mma.WMMALoad, mma.WMMAStore:
		p.d = in.Fragment(in.Matrix, seed)
	default:
		p.a, p.d = in.Fragment(mma.A, seed), in.Fragment(mma.D, seed)
	}
	return p, nil
}

// lowerMatrix lowers ldmatrix, stmatrix, movmatrix, mma and wmma.
func (c *code) lowerMatrix(in *ptx.Instruction, o *op) error {
	found, err := mma.Lookup(in.Opcode, in.Modifiers)
	if err != nil {
		return err
	}
	m := &matrixOp{in: found}
	o.mat, o.class = m, count.Tensor
	switch found.Op {
	case mma.MMASync, mma.WMMA:
		o.run = runProduct
		return c.matrixRegisters(m, in, map[int]*[]slot{0: &m.d, 1: &m.a, 2: &m.b, 3: &m.c})
	case mma.WMMALoad:
		o.run = runFragmentLoad
		return c.lowerFragment(m, in, 1, 0)
	case mma.WMMAStore:
		o.run = runFragmentStore
		return c.lowerFragment(m, in, 0, 1)
	case mma.LoadMatrix:
		o.run = runLoadMatrix
		return c.lowerRows(m, in, 1, 0)
	case mma.StoreMatrix:
		o.run = runStoreMatrix
		return c.lowerRows(m, in, 0, 1)
	case mma.MoveMatrix:
		o.run = runMoveMatrix
		return c.matrixRegisters(m, in, map[int]*[]slot{0: &m.d, 1: &m.a})
	}
	return fmt.Errorf("unsupported instruction")
}

// matrixRegisters finds the registers of matrix operands, by the index of the operand.
func (c *code) matrixRegisters(m *matrixOp, in *ptx.Instruction, into map[int]*[]slot) error {
	for i, list := range into {
		if i >= len(in.Operands) {
			return fmt.Errorf("it has %d operands", len(in.Operands))
		}
		parts := []ptx.Operand{in.Operands[i]}
		if in.Operands[i].Kind == ptx.VecOperand {
			parts = in.Operands[i].Parts
		}
		for _, p := range parts {
			t := ptx.B32
			if p.Kind == ptx.RegOperand && c.regs[p.Register].file == file64 || m.in.D == mma.F64 {
				t = ptx.B64
			}
			s, err := c.source(p, t)
			if err != nil {
				return err
			}
			if *list = append(*list, s); s.file != (*list)[0].file {
				return fmt.Errorf("its registers are of different widths")
			}
		}
	}
	return c.checkMatrixRegisters(m)
}

// checkMatrixRegisters compares the numbers of registers with those of the layouts.
func (c *code) checkMatrixRegisters(m *matrixOp) error {
	check := func(list []slot, f *mma.Fragment, name string) error {
		if list != nil && len(list) != f.Registers {
			return fmt.Errorf("%s has %d registers, want %d", name, len(list), f.Registers)
		}
		return nil
	}
	switch m.in.Op {
	case mma.MMASync, mma.WMMA:
		for _, x := range []struct {
			list []slot
			m    mma.Matrix
		}{{m.d, mma.D}, {m.a, mma.A}, {m.b, mma.B}, {m.c, mma.C}} {
			if err := check(x.list, m.in.Fragment(x.m, 0), x.m.String()); err != nil {
				return err
			}
		}
	case mma.WMMALoad, mma.WMMAStore:
		return check(m.d, m.in.Fragment(m.in.Matrix, 0), "it")
	default:
		return check(m.d, m.in.Fragment(mma.D, 0), "it")
	}
	return nil
}

var matrixSpaces = map[string]ptx.Space{"": ptx.Generic, "global": ptx.Global, "shared": ptx.Shared}

// lowerFragment lowers wmma.load and wmma.store: registers, [address] {, stride}.
func (c *code) lowerFragment(m *matrixOp, in *ptx.Instruction, address, registers int) error {
	m.addr = &memOp{space: matrixSpaces[m.in.Space], bytes: 1}
	if len(in.Operands) < 2 || len(in.Operands) > 3 {
		return fmt.Errorf("it has %d operands", len(in.Operands))
	}
	if err := c.lowerAddress(m.addr, in.Operands[address]); err != nil {
		return err
	}
	if len(in.Operands) == 3 {
		s, err := c.source(in.Operands[2], ptx.U32)
		if err != nil {
			return err
		}
		m.stride = s
	}
	return c.matrixRegisters(m, in, map[int]*[]slot{registers: &m.d})
}

// lowerRows lowers ldmatrix and stmatrix.
func (c *code) lowerRows(m *matrixOp, in *ptx.Instruction, address, registers int) error {
	m.addr = &memOp{space: matrixSpaces[m.in.Space], bytes: count.MatrixRowBytes}
	if len(in.Operands) != 2 {
		return fmt.Errorf("it has %d operands, want 2", len(in.Operands))
	}
	if err := c.lowerAddress(m.addr, in.Operands[address]); err != nil {
		return err
	}
	return c.matrixRegisters(m, in, map[int]*[]slot{registers: &m.d})
}

// wholeWarp checks that all 32 lanes execute an operation of the whole warp, and reports whether it
// can be executed now.
func (w *warp) wholeWarp(o *op, mask uint32) bool {
	if mask == everyLane {
		return true
	}
	mask, ready := w.gatherWarp(o, mask)
	if ready && mask != everyLane {
		w.report(finding.Undefined, o, mask, func() string {
			return fmt.Sprintf("only %s of the warp execute an instruction that all 32 lanes must execute together", lanesText(mask))
		})
	}
	return ready
}

// matrices has the buffers that a warp computes in.
type matrices struct {
	scratch    mma.Scratch
	a, b, c, d []uint32
	raw        []byte       // of shared memory
	ptr32      []*lanes.V32 // registers of a fragment
	ptr64      []*lanes.V64
}

// resized returns a buffer of n words, and makes it longer where needed.
func resized(buffer *[]uint32, n int) []uint32 {
	if cap(*buffer) < n {
		*buffer = make([]uint32, n)
	}
	return (*buffer)[:n]
}

// gatherMatrix reads a matrix from registers. It reports whether all copies of every element are equal.
func (w *warp) gatherMatrix(o *op, f *mma.Fragment, registers []slot, into []uint32) (same bool) {
	if registers[0].file == file64 {
		w.mats.ptr64 = w.mats.ptr64[:0]
		for _, s := range registers {
			w.mats.ptr64 = append(w.mats.ptr64, &w.R64[s.index])
		}
		same = mma.Gather(f, into, w.mats.ptr64)
	} else {
		w.mats.ptr32 = w.mats.ptr32[:0]
		for _, s := range registers {
			w.mats.ptr32 = append(w.mats.ptr32, &w.R32[s.index])
		}
		same = mma.Gather(f, into, w.mats.ptr32)
	}
	if !same {
		w.report(finding.Undefined, o, w.lanes, func() string {
			return "a fragment holds several copies of an element, and they differ"
		})
	}
	return same
}

// scatterMatrix writes a matrix to registers.
func (w *warp) scatterMatrix(f *mma.Fragment, registers []slot, matrix []uint32) {
	if registers[0].file == file64 {
		w.mats.ptr64 = w.mats.ptr64[:0]
		for _, s := range registers {
			w.mats.ptr64 = append(w.mats.ptr64, &w.R64[s.index])
		}
		mma.Scatter(f, w.mats.ptr64, matrix)
		return
	}
	w.mats.ptr32 = w.mats.ptr32[:0]
	for _, s := range registers {
		w.mats.ptr32 = append(w.mats.ptr32, &w.R32[s.index])
	}
	mma.Scatter(f, w.mats.ptr32, matrix)
}

func runProduct(w *warp, o *op, mask uint32) {
	if !w.wholeWarp(o, mask) {
		return
	}
	m, p := o.mat, w.block.launch.plans[o.number]
	a, b := w.keptOperand(o, p, mma.A), w.keptOperand(o, p, mma.B)
	c, d := resized(&w.mats.c, p.c.Words()), resized(&w.mats.d, p.d.Words())
	w.gatherMatrix(o, p.c, m.c, c)
	p.product.MultiplyOperands(&w.mats.scratch, d, a, b, c)
	w.scatterMatrix(p.d, m.d, d)
	w.counters.Product(m.in, p.machine, m.in.Shape.M)
}

// keptOperand is an operand of a product that was decoded from registers.
type keptOperand struct {
	plan  *matrixPlan
	raw   []lanes.V32
	ready mma.Operand
}

// keptOperands are the operands that products have decoded last, by their first register. A kernel
// that multiplies a row of fragments by a column decodes each of them once. Only one goroutine uses
// them.
type keptOperands struct{ a, b [32]keptOperand }

// keptOperand returns an operand of a product, decoded. It decodes the registers anew unless they have
// the values of the last time.
func (w *warp) keptOperand(o *op, p *matrixPlan, matrix mma.Matrix) *mma.Operand {
	f, registers, kept := p.a, o.mat.a, &w.block.operands.a
	if matrix == mma.B {
		f, registers, kept = p.b, o.mat.b, &w.block.operands.b
	}
	k := &kept[uint(registers[0].index)%uint(len(kept))]
	if k.plan == p && w.holds(registers, k.raw) {
		return &k.ready
	}
	units := resized(&w.mats.a, f.Words())
	same := w.gatherMatrix(o, f, registers, units)
	if matrix == mma.A {
		p.product.PrepareA(&k.ready, units)
	} else {
		p.product.Prepare(&k.ready, units)
	}
	k.plan, k.raw = p, k.raw[:0]
	if !same || registers[0].file != file32 { // which is reported each time
		k.plan = nil
		return &k.ready
	}
	for _, s := range registers {
		k.raw = append(k.raw, w.R32[s.index])
	}
	return &k.ready
}

// holds reports whether registers have the given values.
func (w *warp) holds(registers []slot, raw []lanes.V32) bool {
	for i, s := range registers {
		if s.file != file32 || w.R32[s.index] != raw[i] {
			return false
		}
	}
	return true
}

func runLoadMatrix(w *warp, o *op, mask uint32) {
	if !w.wholeWarp(o, mask) {
		return
	}
	m, p := o.mat, w.block.launch.plans[o.number]
	rows := 8 * m.in.Count
	w.rowAddresses(m, rows)
	w.counters.MatrixRows(&w.addr, rows, mem.Read)
	matrix := resized(&w.mats.d, p.d.Words())
	win := w.openRows(o)
	var unwritten [32]uint16 // bytes of each row
	tainted := false
	for row := range rows {
		var data []byte
		if win != nil {
			data = win.readRow(w.addr[row], count.MatrixRowBytes)
		}
		if data == nil {
			data = w.access(o, accessInfo{space: ptx.Shared, bytes: count.MatrixRowBytes, flags: order.WarpWide, carries: true}, w.addr[row], allLanes, mem.Read)
			unwritten[row] = w.unwrittenOf(w.addr[row])
			tainted = tainted || unwritten[row] != 0
		}
		if data == nil {
			data = w.zeros[:count.MatrixRowBytes]
		}
		if m.in.Transposed {
			for col := range 8 {
				matrix[row*8+col] = uint32(binary.LittleEndian.Uint16(data[2*col:]))
			}
			continue
		}
		to, from := (*[4]uint32)(w.R32[m.d[row/8].index][row%8*4:]), (*[count.MatrixRowBytes]byte)(data)
		for i := range to {
			to[i] = binary.LittleEndian.Uint32(from[4*i:])
		}
	}
	if m.in.Transposed {
		w.scatterMatrix(p.d, m.d, matrix)
	}
	if tainted {
		w.taintMatrix(o, &unwritten)
	}
}

// unwrittenOf returns which of the 16 bytes at an address of the block's shared memory were never
// written.
func (w *warp) unwrittenOf(address uint64) (bytes uint16) {
	s := &w.block.shared
	if !w.block.launch.options.Checks || !s.Holds(address, count.MatrixRowBytes) {
		return 0
	}
	for i, m := range s.Marks[address-s.First:][:count.MatrixRowBytes] {
		if m == mem.Unwritten {
			bytes |= 1 << i
		}
	}
	return bytes
}

func runStoreMatrix(w *warp, o *op, mask uint32) {
	if !w.wholeWarp(o, mask) {
		return
	}
	m, p := o.mat, w.block.launch.plans[o.number]
	rows := 8 * m.in.Count
	w.rowAddresses(m, rows)
	w.counters.MatrixRows(&w.addr, rows, mem.Write)
	matrix := resized(&w.mats.d, p.d.Words())
	w.gatherMatrix(o, p.d, m.d, matrix)
	for row := range rows {
		for col := range 8 {
			binary.LittleEndian.PutUint16(w.value[2*col:], uint16(matrix[row*8+col]))
		}
		if data := w.access(o, accessInfo{space: ptx.Shared, bytes: count.MatrixRowBytes}, w.addr[row], allLanes, mem.Write); data != nil {
			copy(data, w.value[:count.MatrixRowBytes])
		}
	}
	if w.taint != nil {
		w.storeTaintedMatrix(o, p.d)
	}
	w.block.changes++
}

func rowMask(rows int) uint32 { return uint32(1<<rows - 1) }

// rowAddresses computes the addresses of the rows, which the first lanes have.
func (w *warp) rowAddresses(m *matrixOp, rows int) {
	w.computeAddresses(m.addr)
	w.toShared(m.addr, rowMask(rows))
}

func runMoveMatrix(w *warp, o *op, mask uint32) {
	if !w.wholeWarp(o, mask) {
		return
	}
	m, p := o.mat, w.block.launch.plans[o.number]
	matrix := resized(&w.mats.a, p.a.Words())
	w.gatherMatrix(o, p.a, m.a, matrix)
	w.scatterMatrix(p.d, m.d, matrix)
}

// fragmentRuns is how a fragment's matrix lies in memory: in lines of n contiguous elements.
type fragmentRuns struct {
	space    ptx.Space
	base     uint64
	stride   int64 // bytes from line to line
	lines, n int
	// Index distances in the matrix's slice: from line to line, and between elements of a line.
	next, step int
}

func (r *fragmentRuns) address(line int) uint64 { return r.base + uint64(int64(line)*r.stride) }

func (w *warp) fragmentRuns(o *op, f *mma.Fragment) fragmentRuns {
	m := o.mat
	w.computeAddresses(m.addr)
	lane := firstLane(w.lanes)
	// The slice holds A and C by rows and B by columns. A line in memory is a row or a column of
	// it.
	r := fragmentRuns{space: m.addr.space, base: w.addr[lane], lines: f.Rows, n: f.Cols, next: f.Cols, step: 1}
	if r.space == ptx.Generic {
		r.space, r.base = mem.FromGeneric(r.base)
	}
	if (m.in.Layout == mma.Row) == (m.in.Matrix == mma.B) {
		r.lines, r.n, r.next, r.step = f.Cols, f.Rows, 1, f.Cols
	}
	stride := r.n * unitBits(m.in.Type) / m.in.Type.Bits()
	if m.stride.file != noFile {
		stride = int(int32(w.R32[m.stride.index][lane]))
	}
	r.stride = int64(stride) * int64(m.in.Type.Bits()) / 8
	return r
}

// memoryRows visits the lines of a fragment's matrix in memory. first and step are the index of the
// first element in the matrix's slice, and the distance to the next.
func (w *warp) memoryRows(o *op, f *mma.Fragment, visit func(address uint64, space ptx.Space, first, step, n int)) {
	r := w.fragmentRuns(o, f)
	for line := range r.lines {
		visit(r.address(line), r.space, line*r.next, r.step, r.n)
	}
}

// unitBits is the width of a unit of a matrix's slice: an element, or 32 single bits.
func unitBits(t mma.Type) int {
	if t == mma.B1 {
		return 32
	}
	return t.Bits()
}

// unit reads a unit.
func unit(data []byte, bits, i int) uint32 {
	switch bits {
	case 4:
		return uint32(data[i/2] >> (i % 2 * 4) & 15)
	case 8:
		return uint32(data[i])
	case 16:
		return uint32(binary.LittleEndian.Uint16(data[2*i:]))
	}
	return binary.LittleEndian.Uint32(data[4*i:])
}

func setUnit(data []byte, bits, i int, value uint32) {
	switch bits {
	case 16:
		binary.LittleEndian.PutUint16(data[2*i:], uint16(value))
	default:
		binary.LittleEndian.PutUint32(data[4*i:], value)
	}
}

func runFragmentLoad(w *warp, o *op, mask uint32) {
	if !w.wholeWarp(o, mask) {
		return
	}
	m, p := o.mat, w.block.launch.plans[o.number]
	w.countFragment(o, p.d, mem.Read)
	matrix := resized(&w.mats.d, p.d.Words())
	bits := unitBits(m.in.Type)
	win := w.openRows(o)
	w.memoryRows(o, p.d, func(address uint64, space ptx.Space, first, step, n int) {
		a := accessInfo{space: space, bytes: n * bits / 8, flags: order.WarpWide}
		var data []byte
		if win != nil && space == ptx.Shared {
			data = win.readRow(address, a.bytes)
		}
		if data == nil {
			data = w.accessRun(o, a, address, mem.Read)
		}
		spreadUnits(matrix, data, bits, first, step, n)
	})
	w.scatterMatrix(p.d, m.d, matrix)
}

// spreadUnits reads n units of a line in memory into a matrix's slice, step units apart. Units beyond the
// data are zero.
func spreadUnits(matrix []uint32, data []byte, bits, first, step, n int) {
	switch {
	case len(data) < n*bits/8:
		for i := range n * max(1, bits/32) {
			each := max(1, bits/32)
			matrix[(first+i/each*step)*each+i%each] = 0
		}
	case bits == 16:
		for at := first; len(data) >= 2; at, data = at+step, data[2:] {
			matrix[at] = uint32(binary.LittleEndian.Uint16(data))
		}
	case bits == 32:
		for at := first; len(data) >= 4; at, data = at+step, data[4:] {
			matrix[at] = binary.LittleEndian.Uint32(data)
		}
	case bits == 64:
		for at := first; len(data) >= 8; at, data = at+step, data[8:] {
			matrix[2*at], matrix[2*at+1] = binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint32(data[4:])
		}
	default:
		for i := range n {
			matrix[first+i*step] = unit(data, bits, i)
		}
	}
}

func runFragmentStore(w *warp, o *op, mask uint32) {
	if !w.wholeWarp(o, mask) {
		return
	}
	m, p := o.mat, w.block.launch.plans[o.number]
	w.countFragment(o, p.d, mem.Write)
	matrix := resized(&w.mats.d, p.d.Words())
	w.gatherMatrix(o, p.d, m.d, matrix)
	bits, each := unitBits(m.in.Type), max(1, m.in.Type.Bits()/32)
	w.memoryRows(o, p.d, func(address uint64, space ptx.Space, first, step, n int) {
		a := accessInfo{space: space, bytes: n * bits / 8}
		for i := range n * each {
			setUnit(w.value[:], bits/each, i, matrix[(first+i/each*step)*each+i%each])
		}
		if data := w.accessRun(o, a, address, mem.Write); data != nil {
			copy(data, w.value[:a.bytes])
		}
	})
	w.block.changes++
}

// accessRun is an access of the whole warp to a run of bytes. It needs an alignment of at most 16
// bytes.
func (w *warp) accessRun(o *op, a accessInfo, address uint64, d mem.Direction) []byte {
	if align := uint64(min(a.bytes, 16)); address%align == 0 {
		a.aligned = true
	}
	return w.access(o, a, address, allLanes, d)
}

// countedFragment is what the counts of a wmma.load or wmma.store depend on: of the address the place in
// a row of banks, which has whole sectors.
type countedFragment struct {
	in     *mma.Instruction
	space  ptx.Space
	place  uint64
	stride int64
}

// maxCountedFragments bounds the number of counts that are kept.
const maxCountedFragments = 1024

// countFragment counts a wmma.load or wmma.store.
func (w *warp) countFragment(o *op, f *mma.Fragment, d mem.Direction) {
	const bankRow = 128
	in, r, known := o.mat.in, w.fragmentRuns(o, f), w.block.fragments
	key := countedFragment{in, r.space, r.base % bankRow, r.stride}
	c := known[key]
	if c == nil {
		if len(known) >= maxCountedFragments {
			clear(known)
		}
		c = &count.Counters{}
		lines := count.Lines{Space: r.space, Base: r.base, Stride: r.stride, Count: r.lines, Bytes: r.n * unitBits(in.Type) / 8}
		c.Fragment(in, o.mat.addr.space, lines, d)
		known[key] = c
	}
	w.counters.Add(c)
}
