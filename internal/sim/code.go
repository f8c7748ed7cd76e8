package sim

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/lanes"
	"attune/internal/sim/mem"
)

// code is a lowered function.
type code struct {
	program       *Program
	fn            *ptx.Function
	number        int // of the function, for its address
	ops           []op
	laneOps       []lanes.Op // the compact forms of the operations
	base          int32      // number of its first operation
	reconvergence []int      // where diverged lanes reconverge, by instruction
	products      []int32    // 32-bit registers that wgmma.mma_async uses
	lines         []int      // numbers of the source lines, by instruction

	// Analyses of the function's registers, made on first use.
	copied, unused []bool
	read, expected []bool
	tested         []bool
	onlyConstant   []bool
	flows          flows    // how instructions use registers (taint.go)
	unsets         unset    // registers that may be read before they are set (taint.go)
	stores         sync.Map // of the values of loads (taint.go)

	n32, n64, nPred int
	regs            []slot // of the function's registers
	// Constants and special registers follow the registers of a frame, so that every operand is a
	// register.
	tail32, tail64 int // where they begin
	constants      []constant
	specials       []specialSlot
	constSlots     map[constKey]slot
	specialSlots   map[string]slot

	localAt    map[*ptx.Variable]int
	locals     []localVariable // in the order of their places
	localSize  int             // with the gaps between them
	localBytes int             // without
	localAlign int
	paramAt    map[*ptx.Variable]int // byte offsets of .param variables in a lane's parameters
	paramSize  int
	entryParam map[*ptx.Variable]int // byte offsets of an entry's parameters in those of the launch
	entrySize  int

	communicates bool  // blocks may communicate through global memory, so they run interleaved
	loadsStrong  bool  // it loads global memory by volatile, relaxed or acquire operations (weak.go)
	exchanges    bool  // what it does may depend on the order of other blocks' accesses (schedule.go)
	refused      error // why the function cannot run
}

// localVariable is a variable in local memory, with its place in those of the function.
type localVariable struct {
	name     string
	at, size int
}

// slot is where an operand lives: a register of 32 or 64 bits per lane, or a predicate.
type slot struct {
	file  file
	index int32
}

type file uint8

const (
	noFile file = iota
	file32
	file64
	filePred
	files
)

// constant is a slot with the same value in every lane.
type constant struct {
	slot slot
	constKey
}

type constKey struct {
	file  file
	value uint64
	base  addressBase // what is added to the value at launch
	index int         // of a global or shared variable
}

// addressBase is what an address is relative to.
type addressBase uint8

const (
	baseZero    addressBase = iota
	baseShared              // a static shared variable
	baseDynamic             // dynamic shared memory
	baseGlobal              // a variable of the module in global memory
	baseLocal               // the local variables of the frame
)

type specialSlot struct {
	index int32 // in the 32-bit registers
	name  string
}

// op is a lowered instruction. Exactly one of the family fields is set where the family needs one.
type op struct {
	run      func(w *warp, o *op, mask uint32)
	guard    int32 // index of a predicate, or -1
	guardNot bool
	ends     bool // it ends the thread, if the function is the entry
	class    count.Class
	number   int32 // in the program

	runLength int32       // of the run of lane operations that begins here; 0 for none
	tally     count.Tally // the instructions of that run
	lane      lanes.Op    // compact form; code None for an operation without
	laneDst   slot
	checked   bool // a checker runs before it

	d, a    int32 // indexes of predicates, or the target of a branch
	alu     *aluOp
	mov     *movOp
	mem     *memOp
	ctl     *controlOp
	sync    *syncOp
	mat     *matrixOp
	wgmma   *wgmmaOp
	texture *textureOp
}

// check makes the operation call a checker before it runs. The compact form has no checker, so a
// checked operation is executed by itself.
func (o *op) check(checker func(w *warp, o *op, mask uint32)) {
	run := o.run
	o.checked = true
	o.run = func(w *warp, o *op, mask uint32) {
		if w.block.launch.options.Checks {
			checker(w, o, mask)
		}
		run(w, o, mask)
	}
}

// lower lowers the instructions of a function.
func (c *code) lower() error {
	c.base = int32(len(c.program.ops))
	c.constSlots = map[constKey]slot{}
	c.specialSlots = map[string]slot{}
	c.placeRegisters()
	c.tail32, c.tail64 = c.n32, c.n64
	if err := c.placeMemory(); err != nil {
		return err
	}
	c.reconvergence = c.fn.Reconvergence()
	c.numberLines()
	c.ops = make([]op, len(c.fn.Code)+1)
	for i := range c.fn.Code {
		c.program.ops = append(c.program.ops, position{c, int32(i)})
		in := &c.fn.Code[i]
		o := &c.ops[i]
		o.number = c.base + int32(i)
		o.guard = -1
		if in.Guard >= 0 {
			o.guard, o.guardNot = c.regs[in.Guard].index, in.GuardNot
		}
		if err := c.lowerInstruction(in, o, i); err != nil {
			return &UnsupportedError{Line: in.Line, Text: c.fn.Text(i), Why: err.Error()}
		}
	}
	c.watchRegisters()
	// The end of the code is a return.
	c.program.ops = append(c.program.ops, position{c, int32(len(c.fn.Code))})
	end := &c.ops[len(c.fn.Code)]
	*end = op{run: runReturn, ends: true, guard: -1, number: c.base + int32(len(c.fn.Code)), class: count.Control}
	c.findRuns()
	return nil
}

// placeRegisters gives every register of the function a slot.
func (c *code) placeRegisters() {
	c.regs = make([]slot, len(c.fn.Registers))
	for i, r := range c.fn.Registers {
		c.regs[i] = c.newSlot(r.Type)
	}
}

func (c *code) newSlot(t ptx.Type) slot {
	switch {
	case t == ptx.Pred:
		c.nPred++
		return slot{filePred, int32(c.nPred - 1)}
	case t.Bits() <= 32:
		c.n32++
		return slot{file32, int32(c.n32 - 1)}
	case t.Bits() == 128: // two neighbours, the low half first
		c.n64 += 2
		return slot{file64, int32(c.n64 - 2)}
	}
	c.n64++
	return slot{file64, int32(c.n64 - 1)}
}

// placeMemory lays out the function's local variables and parameters.
func (c *code) placeMemory() error {
	c.localAt, c.paramAt, c.entryParam = map[*ptx.Variable]int{}, map[*ptx.Variable]int{}, map[*ptx.Variable]int{}
	align := 0
	place := func(at map[*ptx.Variable]int, size *int, v *ptx.Variable) {
		align = max(align, v.Align)
		*size = mem.AlignUp(*size, v.Align)
		at[v] = *size
		*size += v.Size()
	}
	for _, v := range c.fn.Variables {
		switch v.Space {
		case ptx.Local:
			if len(c.locals) > 0 {
				c.localSize += localGap
			}
			place(c.localAt, &c.localSize, v)
			c.locals = append(c.locals, localVariable{v.Name, c.localAt[v], v.Size()})
			c.localBytes = mem.AlignUp(c.localBytes, v.Align) + v.Size()
			c.localAlign = max(c.localAlign, v.Align)
		case ptx.Param:
			place(c.paramAt, &c.paramSize, v)
		}
	}
	for _, v := range append(slices.Clone(c.fn.Params), c.fn.Returns...) {
		switch {
		case v.Space != ptx.Param:
		case c.fn.Entry:
			place(c.entryParam, &c.entrySize, v)
		default:
			place(c.paramAt, &c.paramSize, v)
		}
	}
	for _, limit := range []struct {
		what      string
		have, max int
	}{
		{"alignment", align, maxAlign},
		{"local variables", c.localBytes, maxLocal},
		{"parameters", c.entrySize, maxParams},
		{"parameters of calls", c.paramSize, maxCallParams},
	} {
		if limit.have > limit.max {
			return &UnsupportedError{
				Line: c.fn.Line, Text: "the function " + c.fn.Name, Why: fmt.Sprintf("%d bytes of %s; %d are allowed", limit.have, limit.what, limit.max),
			}
		}
	}
	return nil
}

// constant returns a slot that holds a value in every lane.
func (c *code) constant(f file, value uint64) slot {
	return c.constantFor(constKey{file: f, value: value})
}

func (c *code) constantFor(key constKey) slot {
	if s, ok := c.constSlots[key]; ok {
		return s
	}
	t := ptx.B64
	if key.file == file32 {
		t = ptx.B32
	}
	s := c.newSlot(t)
	c.constSlots[key] = s
	c.constants = append(c.constants, constant{s, key})
	return s
}

// fileOf returns the register file for values of a type.
func fileOf(t ptx.Type) file {
	switch {
	case t == ptx.Pred:
		return filePred
	case t.Bits() <= 32:
		return file32
	}
	return file64
}

// source returns the slot of a source operand of a type. A register must be in the file of the
// type.
func (c *code) source(o ptx.Operand, t ptx.Type) (slot, error) {
	s, err := c.sourceOfAnyWidth(o, t)
	if err == nil && o.Kind == ptx.RegOperand && s.file != fileOf(t) {
		return slot{}, fmt.Errorf("the register %s cannot be used as a .%s", c.fn.Registers[o.Register].Name, t)
	}
	return s, err
}

// sourceOfAnyWidth is source for operations that accept a wider register.
func (c *code) sourceOfAnyWidth(o ptx.Operand, t ptx.Type) (slot, error) {
	switch o.Kind {
	case ptx.RegOperand:
		s := c.regs[o.Register]
		if o.Negated {
			return slot{}, fmt.Errorf("a negated predicate is not allowed here")
		}
		return s, nil
	case ptx.ImmOperand:
		value, err := immediate(o, t)
		if err != nil {
			return slot{}, err
		}
		f := fileOf(t)
		if f == filePred {
			f = file32
		}
		return c.constant(f, value), nil
	case ptx.SpecialOperand:
		return c.special(o.Special, t)
	case ptx.SymOperand:
		return c.symbol(o, fileOf(t))
	}
	return slot{}, fmt.Errorf("an operand of this kind is not allowed here")
}

// register returns the slot of a register operand of a type.
func (c *code) register(o ptx.Operand, t ptx.Type) (slot, error) {
	if o.Kind != ptx.RegOperand {
		return slot{}, fmt.Errorf("it needs a register for a .%s", t)
	}
	return c.source(o, t)
}

// predicate returns the slot of a predicate operand.
func (c *code) predicate(o ptx.Operand) (slot, error) {
	if o.Kind != ptx.RegOperand || c.regs[o.Register].file != filePred {
		return slot{}, fmt.Errorf("it needs a predicate here")
	}
	return c.regs[o.Register], nil
}

// immediate converts a constant to the type of an instruction.
func immediate(o ptx.Operand, t ptx.Type) (uint64, error) {
	bits := t.Bits()
	switch {
	case o.Number == ptx.Float64 && t == ptx.F32:
		return uint64(math.Float32bits(float32(math.Float64frombits(o.Value)))), nil
	case o.Number == ptx.Float64 && bits == 64, o.Number == ptx.Float32 && bits == 32, o.Number == ptx.Integer && bits == 64:
		return o.Value, nil
	case o.Number == ptx.Float32 && t == ptx.F64:
		return math.Float64bits(float64(math.Float32frombits(uint32(o.Value)))), nil
	case o.Number == ptx.Integer && t == ptx.Pred:
		return o.Value & 1, nil
	case o.Number == ptx.Integer:
		return o.Value & (1<<bits - 1), nil
	}
	return 0, fmt.Errorf("a constant of this form cannot be a .%s", t)
}

// special returns the slot of a special register. The ones that change while a kernel runs are read
// by mov only.
func (c *code) special(name string, t ptx.Type) (slot, error) {
	if !specialNames[name] {
		return slot{}, fmt.Errorf("unsupported special register %%%s", name)
	}
	if name == "gridid" && t.Bits() == 64 { // there is one grid
		return c.constant(file64, 0), nil
	}
	if t.Bits() != 32 && t.Bits() != 16 {
		return slot{}, fmt.Errorf("%%%s is a register of 32 bits", name)
	}
	if s, ok := c.specialSlots[name]; ok {
		return s, nil
	}
	s := c.newSlot(ptx.B32)
	c.specialSlots[name] = s
	c.specials = append(c.specials, specialSlot{s.index, name})
	return s, nil
}

// symbol returns a slot with the address of a variable or a function in its own state space.
func (c *code) symbol(o ptx.Operand, f file) (slot, error) {
	if o.Symbol.Function != nil {
		return c.constant(f, mem.FunctionAddress(c.program.codes[o.Symbol.Function].number)), nil
	}
	v := o.Symbol.Variable
	key := constKey{file: f}
	offset := 0
	switch v.Space {
	case ptx.Shared:
		key.base, key.index = baseShared, slices.Index(c.program.static, v)
		if mem.IsDynamic(v) {
			key.base = baseDynamic
		}
	case ptx.Const:
		offset = c.program.constants.Variables()[v]
	case ptx.Global:
		key.base, key.index = baseGlobal, slices.Index(c.program.globals, v)
	case ptx.Local:
		key.base, offset = baseLocal, c.localAt[v]
	case ptx.Param:
		at, ok := c.entryParam[v]
		if !ok {
			return slot{}, fmt.Errorf("the address of the parameter %s cannot be taken", v.Name)
		}
		offset = at
	default:
		return slot{}, fmt.Errorf("the address of %s cannot be taken", v.Name)
	}
	key.value = uint64(int64(offset) + o.Offset)
	return c.constantFor(key), nil
}

// isRead reports whether any instruction reads a register of an operand.
func (c *code) isRead(o *ptx.Operand) bool {
	if c.read == nil {
		c.read = c.fn.ReadRegisters()
	}
	return o.HasRegister(c.read)
}

// isTested reports whether any instruction reads a register, as an operand or as its guard.
func (c *code) isTested(register int) bool {
	if c.tested == nil {
		c.tested = c.fn.TestedRegisters()
	}
	return c.tested[register]
}

// isExpected reports whether a compare-and-swap expects the value that is loaded to an operand.
func (c *code) isExpected(o *ptx.Operand) bool {
	if c.expected == nil {
		c.expected = c.fn.ExpectedRegisters()
	}
	return o.HasRegister(c.expected)
}

// isConstant reports whether an operand is a constant, or a register that only holds constants.
func (c *code) isConstant(o *ptx.Operand) bool {
	if o.Kind != ptx.RegOperand {
		return o.Kind == ptx.ImmOperand
	}
	if c.onlyConstant == nil {
		c.onlyConstant = c.fn.ConstantRegisters()
	}
	return c.onlyConstant[o.Register]
}

// isOnlyCopied reports whether the value that is loaded to an operand is only copied. A load that
// names its state space is deliberate, even if the value is not used.
func (c *code) isOnlyCopied(o ptx.Operand, space ptx.Space) bool {
	if c.copied == nil {
		c.copied, c.unused = c.fn.CopiedRegisters()
	}
	only := true
	o.EachRegister(func(r int) { only = only && c.copied[r] && (space == ptx.Generic || !c.unused[r]) })
	return only
}
