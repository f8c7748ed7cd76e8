package sim

import (
	"encoding/binary"
	"fmt"

	"attune/internal/ptx"
	"attune/internal/sim/mma"
)

// matrixOp is an operation on matrices, which a warp does as a whole.
type matrixOp struct {
	in         *mma.Instruction
	d, a, b, c []slot // registers
	addr       *memOp
	stride     slot // of wmma.load and wmma.store, in elements; noFile where rows follow each other
}

// matrixPlan is what an operation on matrices needs that depends on the launch: the layouts, and the arithmetic.
type matrixPlan struct {
	d, a, b, c *mma.Fragment
	product    *mma.Product
	machine    machineProduct
}

// planMatrices makes the plans of all operations on matrices.
func (r *launch) planMatrices() error {
	same := map[mma.Instruction]*matrixPlan{} // of those that are written several times
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
					return fmt.Errorf("%s: %w", spot{c, int32(i)}.place(), err)
				}
				same[*o.mat.in] = plan
			}
			plan.machine = machineProductOf(o.mat.in, archNumber(r.program.arch))
			r.plans[o.number] = plan
		}
	}
	return nil
}

func (r *launch) planMatrix(in *mma.Instruction) (*matrixPlan, error) {
	seed := r.options.Seed
	p := &matrixPlan{}
	switch in.Op {
	case mma.Sync, mma.Warp:
		p.a, p.b, p.c, p.d = in.Fragment(mma.A, seed), in.Fragment(mma.B, seed), in.Fragment(mma.C, seed), in.Fragment(mma.D, seed)
		product, err := in.Product(r.chip, r.options.Tensor)
		p.product = product
		return p, err
	case mma.Group:
		quarter := *in
		quarter.Shape.M = quarterRows
		p.a, p.d = in.Fragment(mma.A, seed), in.Fragment(mma.D, seed)
		product, err := quarter.Product(r.chip, r.options.Tensor)
		p.product = product
		return p, err
	case mma.WarpLoad, mma.WarpStore:
		p.d = in.Fragment(in.Matrix, seed)
	default:
		p.a, p.d = in.Fragment(mma.A, seed), in.Fragment(mma.D, seed)
	}
	return p, nil
}

// lowerMatrix turns an instruction on matrices into an operation.
func (c *code) lowerMatrix(in *ptx.Instruction, o *op) error {
	found, err := mma.Lookup(in.Opcode, in.Modifiers)
	if err != nil {
		return err
	}
	m := &matrixOp{in: found}
	o.mat, o.class = m, classTensor
	switch found.Op {
	case mma.Sync, mma.Warp:
		o.run = runProduct
		return c.matrixRegisters(m, in, map[int]*[]slot{0: &m.d, 1: &m.a, 2: &m.b, 3: &m.c})
	case mma.WarpLoad:
		o.run = runFragmentLoad
		return c.lowerFragment(m, in, 1, 0)
	case mma.WarpStore:
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

// matrixRegisters finds the registers of operands, by their index.
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

// checkMatrixRegisters compares the number of registers with what the layout wants.
func (c *code) checkMatrixRegisters(m *matrixOp) error {
	check := func(list []slot, f *mma.Fragment, name string) error {
		if list != nil && len(list) != f.Registers {
			return fmt.Errorf("%s has %d registers, want %d", name, len(list), f.Registers)
		}
		return nil
	}
	switch m.in.Op {
	case mma.Sync, mma.Warp:
		for _, x := range []struct {
			list []slot
			m    mma.Matrix
		}{{m.d, mma.D}, {m.a, mma.A}, {m.b, mma.B}, {m.c, mma.C}} {
			if err := check(x.list, m.in.Fragment(x.m, 0), x.m.String()); err != nil {
				return err
			}
		}
	case mma.WarpLoad, mma.WarpStore:
		return check(m.d, m.in.Fragment(m.in.Matrix, 0), "it")
	default:
		return check(m.d, m.in.Fragment(mma.D, 0), "it")
	}
	return nil
}

var matrixSpaces = map[string]ptx.Space{"": ptx.Generic, "global": ptx.Global, "shared": ptx.Shared}

// lowerFragment is wmma.load and wmma.store: registers, [address] {, stride}.
func (c *code) lowerFragment(m *matrixOp, in *ptx.Instruction, address, registers int) error {
	m.addr = &memOp{what: in.Opcode, space: matrixSpaces[m.in.Space], bytes: 1}
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

// lowerRows is ldmatrix and stmatrix.
func (c *code) lowerRows(m *matrixOp, in *ptx.Instruction, address, registers int) error {
	m.addr = &memOp{what: in.Opcode, space: matrixSpaces[m.in.Space], bytes: matrixRowBytes}
	if len(in.Operands) != 2 {
		return fmt.Errorf("it has %d operands, want 2", len(in.Operands))
	}
	if err := c.lowerAddress(m.addr, in.Operands[address]); err != nil {
		return err
	}
	return c.matrixRegisters(m, in, map[int]*[]slot{registers: &m.d})
}

// wholeWarp checks that all lanes take part in an operation that a warp does as a whole, and says whether it can be done now.
func (w *warp) wholeWarp(o *op, mask uint32) bool {
	if mask == everyLane {
		return true
	}
	mask, all := w.assemble(o, mask)
	if all && mask != everyLane {
		w.report(Undefined, o, mask, func() string {
			return fmt.Sprintf("only %s of the warp are here, and the instruction is for all 32 lanes together", lanesText(mask))
		})
	}
	return all
}

// matrices is the room a warp computes in.
type matrices struct {
	scratch    mma.Scratch
	a, b, c, d []uint32
	raw        []byte // of shared memory
	r32        []*v32
	r64        []*v64
}

func room(buffer *[]uint32, n int) []uint32 {
	if cap(*buffer) < n {
		*buffer = make([]uint32, n)
	}
	return (*buffer)[:n]
}

// gatherMatrix collects a matrix from registers.
func (w *warp) gatherMatrix(o *op, f *mma.Fragment, registers []slot, into []uint32) {
	same := true
	if registers[0].file == file64 {
		w.mats.r64 = w.mats.r64[:0]
		for _, s := range registers {
			w.mats.r64 = append(w.mats.r64, &w.r64[s.index])
		}
		same = mma.Gather(f, into, w.mats.r64)
	} else {
		w.mats.r32 = w.mats.r32[:0]
		for _, s := range registers {
			w.mats.r32 = append(w.mats.r32, &w.r32[s.index])
		}
		same = mma.Gather(f, into, w.mats.r32)
	}
	if !same {
		w.report(Undefined, o, w.lanes, func() string {
			return "the copies of an element that a fragment holds differ: somebody has treated them differently"
		})
	}
}

// scatterMatrix puts a matrix into registers.
func (w *warp) scatterMatrix(f *mma.Fragment, registers []slot, matrix []uint32) {
	if registers[0].file == file64 {
		w.mats.r64 = w.mats.r64[:0]
		for _, s := range registers {
			w.mats.r64 = append(w.mats.r64, &w.r64[s.index])
		}
		mma.Scatter(f, w.mats.r64, matrix)
		return
	}
	w.mats.r32 = w.mats.r32[:0]
	for _, s := range registers {
		w.mats.r32 = append(w.mats.r32, &w.r32[s.index])
	}
	mma.Scatter(f, w.mats.r32, matrix)
}

func runProduct(w *warp, o *op, mask uint32) {
	if !w.wholeWarp(o, mask) {
		return
	}
	m, p := o.mat, w.block.launch.plans[o.number]
	a, b := room(&w.mats.a, p.a.Words()), room(&w.mats.b, p.b.Words())
	c, d := room(&w.mats.c, p.c.Words()), room(&w.mats.d, p.d.Words())
	w.gatherMatrix(o, p.a, m.a, a)
	w.gatherMatrix(o, p.b, m.b, b)
	w.gatherMatrix(o, p.c, m.c, c)
	p.product.Multiply(&w.mats.scratch, d, a, b, c)
	w.scatterMatrix(p.d, m.d, d)
	w.countProduct(o, m.in.Shape.M)
}

// matrixRowBytes is a row of the matrices of ldmatrix and stmatrix.
const matrixRowBytes = 16

func runLoadMatrix(w *warp, o *op, mask uint32) {
	if !w.wholeWarp(o, mask) {
		return
	}
	m, p := o.mat, w.block.launch.plans[o.number]
	rows := 8 * m.in.Count
	w.rowAddresses(m, rows)
	w.countMatrixRows(rows, reading)
	matrix := room(&w.mats.d, p.d.Words())
	for row := range rows {
		data := w.reachAt(o, accessOf{what: m.addr.what, space: ptx.Shared, bytes: matrixRowBytes, flags: whole}, w.addr[row], allLanes, reading)
		for col := range 8 {
			value := uint32(0)
			if data != nil {
				value = uint32(binary.LittleEndian.Uint16(data[2*col:]))
			}
			matrix[row*8+col] = value
		}
	}
	w.scatterMatrix(p.d, m.d, matrix)
}

func runStoreMatrix(w *warp, o *op, mask uint32) {
	if !w.wholeWarp(o, mask) {
		return
	}
	m, p := o.mat, w.block.launch.plans[o.number]
	rows := 8 * m.in.Count
	w.rowAddresses(m, rows)
	w.countMatrixRows(rows, writing)
	matrix := room(&w.mats.d, p.d.Words())
	w.gatherMatrix(o, p.d, m.d, matrix)
	for row := range rows {
		for col := range 8 {
			binary.LittleEndian.PutUint16(w.value[2*col:], uint16(matrix[row*8+col]))
		}
		if data := w.reachAt(o, accessOf{what: m.addr.what, space: ptx.Shared, bytes: matrixRowBytes}, w.addr[row], allLanes, writing); data != nil {
			copy(data, w.value[:matrixRowBytes])
		}
	}
	w.block.changes++
}

func rowMask(rows int) uint32 { return uint32(1<<rows - 1) }

// rowAddresses computes the addresses that the first lanes hold, a row each.
func (w *warp) rowAddresses(m *matrixOp, rows int) {
	w.addresses(m.addr, everyLane)
	w.toShared(m.addr, rowMask(rows))
}

func runMoveMatrix(w *warp, o *op, mask uint32) {
	if !w.wholeWarp(o, mask) {
		return
	}
	m, p := o.mat, w.block.launch.plans[o.number]
	matrix := room(&w.mats.a, p.a.Words())
	w.gatherMatrix(o, p.a, m.a, matrix)
	w.scatterMatrix(p.d, m.d, matrix)
}

// fragmentRuns is how a fragment's matrix lies in memory: in lines of n contiguous elements.
type fragmentRuns struct {
	space    ptx.Space
	base     uint64
	stride   int64 // bytes from line to line
	lines, n int
	// Where the first element of the first line lies in the matrix's slice is 0; that of the next line is next further, and the next one of the line step.
	next, step int
}

func (r *fragmentRuns) address(line int) uint64 { return r.base + uint64(int64(line)*r.stride) }

func (w *warp) fragmentRuns(o *op, f *mma.Fragment) fragmentRuns {
	m := o.mat
	w.addresses(m.addr, everyLane)
	lane := firstLane(w.lanes)
	// The slice holds A and C by rows and B by columns; what is contiguous in memory is a row of the slice, or a column.
	r := fragmentRuns{space: m.addr.space, base: w.addr[lane], lines: f.Rows, n: f.Cols, next: f.Cols, step: 1}
	if r.space == ptx.Generic {
		r.space, r.base = ofGeneric(r.base)
	}
	if (m.in.Layout == mma.Row) == (m.in.Matrix == mma.B) {
		r.lines, r.n, r.next, r.step = f.Cols, f.Rows, 1, f.Cols
	}
	stride := r.n * unitBits(m.in.Type) / m.in.Type.Bits()
	if m.stride.file != noFile {
		stride = int(int32(w.r32[m.stride.index][lane]))
	}
	r.stride = int64(stride) * int64(m.in.Type.Bits()) / 8
	return r
}

// memoryRows visits the lines of a fragment's matrix in memory: the address of each, and where its first element lies in the matrix's slice and how far
// apart the next ones are.
func (w *warp) memoryRows(o *op, f *mma.Fragment, visit func(address uint64, space ptx.Space, first, step, n int)) {
	r := w.fragmentRuns(o, f)
	for line := range r.lines {
		visit(r.address(line), r.space, line*r.next, r.step, r.n)
	}
}

// unitBits is the width of what a matrix's slice is made of: an element, or 32 single bits.
func unitBits(t mma.Type) int {
	if t == mma.B1 {
		return 32
	}
	return t.Bits()
}

// unit reads one of them.
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
	w.countFragment(o, p.d, reading)
	matrix := room(&w.mats.d, p.d.Words())
	bits, each := unitBits(m.in.Type), max(1, m.in.Type.Bits()/32)
	w.memoryRows(o, p.d, func(address uint64, space ptx.Space, first, step, n int) {
		a := accessOf{what: m.addr.what, space: space, bytes: n * bits / 8, flags: whole}
		data := w.reachRun(o, a, address, reading)
		for i := range n * each {
			value := uint32(0)
			if data != nil {
				value = unit(data, bits/each, i)
			}
			matrix[(first+i/each*step)*each+i%each] = value
		}
	})
	w.scatterMatrix(p.d, m.d, matrix)
}

func runFragmentStore(w *warp, o *op, mask uint32) {
	if !w.wholeWarp(o, mask) {
		return
	}
	m, p := o.mat, w.block.launch.plans[o.number]
	w.countFragment(o, p.d, writing)
	matrix := room(&w.mats.d, p.d.Words())
	w.gatherMatrix(o, p.d, m.d, matrix)
	bits, each := unitBits(m.in.Type), max(1, m.in.Type.Bits()/32)
	w.memoryRows(o, p.d, func(address uint64, space ptx.Space, first, step, n int) {
		a := accessOf{what: m.addr.what, space: space, bytes: n * bits / 8}
		for i := range n * each {
			setUnit(w.value[:], bits/each, i, matrix[(first+i/each*step)*each+i%each])
		}
		if data := w.reachRun(o, a, address, writing); data != nil {
			copy(data, w.value[:a.bytes])
		}
	})
	w.block.changes++
}

// reachRun is an access of the whole warp to a run of bytes, whose alignment is that of 16 bytes at most.
func (w *warp) reachRun(o *op, a accessOf, address uint64, d direction) []byte {
	if align := uint64(min(a.bytes, 16)); address%align == 0 {
		a.loose = true
	}
	return w.reachAt(o, a, address, allLanes, d)
}
