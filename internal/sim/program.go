package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"attune/internal/ptx"
)

// Program is a PTX module that can be run.
type Program struct {
	module *ptx.Module
	arch   string
	codes  map[*ptx.Function]*code
	ops    []spot // by the number of an operation

	shared        []*ptx.Variable // static shared variables
	sharedPlain   int             // bytes of them, as a compiler lays them out
	constants     []byte
	constantBytes int
	constantMarks []byte // which of them belong to variables
	constantAt    map[*ptx.Variable]int
	globals       []*ptx.Variable

	lines  int // source lines so far
	lineOf map[string]int
}

// code is a function made ready.
type code struct {
	program        *Program
	fn             *ptx.Function
	ops            []op
	lanes          []laneOp // the operations in compact form, where they have one
	base           int32    // number of its first operation
	meet           []int    // where lanes meet again, by instruction
	copied, unused []bool   // of registers (copied); nil as long as nobody has asked
	read, guessed  []bool   // of registers (readRegisters, guesses); nil likewise
	onlyConstant   []bool   // of registers (constantRegisters); nil likewise
	products       []int32  // 32-bit registers that wgmma.mma_async uses
	lines          []int    // numbers of the source lines, by instruction

	n32, n64, nPred int
	regs            []slot // of the function's registers
	// Behind the registers of a frame stand constants and special registers, so that every operand is a register.
	tail32, tail64 int // where they begin
	constants      []constant
	specials       []specialSlot
	constSlots     map[constKey]slot
	specialSlots   map[string]slot

	localAt    map[*ptx.Variable]int
	localSize  int
	localAlign int
	paramAt    map[*ptx.Variable]int // of .param variables of the function, a byte offset in the frame
	paramSize  int
	entryParam map[*ptx.Variable]int // of an entry's parameters, in the launch's parameter bytes
	entrySize  int
	number     int // of the function, for its address

	talks   bool  // blocks may speak to each other through global memory: they then run in turns
	refused error // why it cannot be run
}

// slot is where an operand lives: a register of 32 or 64 bits a lane, or a predicate.
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
)

// constant is a slot with one value in every lane.
type constant struct {
	slot slot
	constKey
}

type constKey struct {
	file  file
	value uint64
	from  origin // what is added to the value once it is known
	index int    // of a global or shared variable
}

// origin is where an address is counted from.
type origin uint8

const (
	fromZero    origin = iota
	fromShared         // the block's shared variables
	fromDynamic        // the dynamic shared memory behind them
	fromGlobal         // a variable of the module in global memory
	fromLocal          // the local variables of the function's frame
)

type specialSlot struct {
	index int32 // in the 32-bit registers
	name  string
}

// op is an operation: an instruction with everything decided that can be.
type op struct {
	run      func(w *warp, o *op, mask uint32)
	guard    int32 // index of a predicate, or -1
	guardNot bool
	ends     bool // the thread, where it is one of the entry function
	class    class
	number   int32 // in the program

	runLength int32 // of the run that begins here; 0 where none does (lanes.go)
	ahead     tally // what that run counts
	lane      laneOp
	laneTo    slot // where its result goes
	watched   bool // it touches registers of products (wgmma.go)

	d, a  int32 // indexes of predicates, or the target of a branch
	alu   *aluOp
	mov   *movOp
	mem   *memOp
	ctl   *controlOp
	sync  *syncOp
	mat   *matrixOp
	wgmma *wgmmaOp
}

// Load makes a module ready for an architecture (sm_89; the module's own where it is empty). What is not supported is an error that names the
// instruction; where other entry functions do without it, it is one of Run for those that do not.
func Load(module *ptx.Module, arch string) (*Program, error) {
	if arch == "" {
		arch = module.Target
	}
	p := &Program{
		module: module, arch: arch, codes: map[*ptx.Function]*code{}, constantAt: map[*ptx.Variable]int{}, lineOf: map[string]int{},
	}
	p.ops = append(p.ops, spot{}) // number 0 is none
	for _, v := range module.Variables {
		if err := p.placeVariable(v); err != nil {
			return nil, err
		}
	}
	for i, f := range module.Functions {
		c := &code{program: p, fn: f, number: i}
		p.codes[f] = c
		for _, v := range f.Variables {
			if v.Space == ptx.Local || v.Space == ptx.Param {
				continue
			}
			if err := p.placeVariable(v); err != nil {
				return nil, err
			}
		}
	}
	for _, f := range module.Functions {
		p.codes[f].refused = p.codes[f].lower()
	}
	return p, p.refusal()
}

// refusal is why no entry function can be run; nil when one can, or when there is none.
func (p *Program) refusal() error {
	var first error
	for _, f := range p.module.Functions {
		if !f.Entry {
			continue
		}
		err := p.refused(f)
		if err == nil {
			return nil
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// refused is why an entry function cannot be run: what it, or a function that it may call, has in it.
func (p *Program) refused(entry *ptx.Function) error {
	reached, _ := p.reached(entry)
	for _, f := range p.module.Functions {
		if err := p.codes[f].refused; reached[f] && err != nil {
			return err
		}
	}
	return nil
}

// constGap lies between constants, so that an index that is off by a few does not find the neighbour.
const constGap = 256

// What a module and a function may have at most, as the chips and their compiler allow.
const (
	mostConstants = 64 << 10
	mostLocal     = 512 << 10
	mostParams    = 32 << 10

	mostCallParams = 1 << 20 // of all calls that a function makes
)

// placeVariable gives a variable of the module its place.
func (p *Program) placeVariable(v *ptx.Variable) error {
	refused := func(why string) error {
		return &UnsupportedError{Line: v.Line, Text: "the variable " + v.Name, Why: why}
	}
	switch v.Space {
	case ptx.Shared:
		if !isDynamic(v) {
			p.shared = append(p.shared, v)
			p.sharedPlain = alignUp(p.sharedPlain, v.Align) + v.Size()
		}
	case ptx.Const:
		if v.Extern {
			return refused("it is declared and not defined")
		}
		if p.constantBytes += v.Size(); p.constantBytes > mostConstants {
			return refused(fmt.Sprintf("with it there are %d bytes of constants; %d are allowed", p.constantBytes, mostConstants))
		}
		at := alignUp(len(p.constants), max(v.Align, 4))
		p.constants = append(p.constants, make([]byte, at-len(p.constants)+v.Size()+constGap)...)
		for len(p.constantMarks) < len(p.constants) {
			p.constantMarks = append(p.constantMarks, gapBit)
		}
		fill(p.constantMarks[at:at+v.Size()], written)
		copy(p.constants[at:], v.Init)
		p.constantAt[v] = at
	case ptx.Global:
		if v.Extern {
			return refused("it is declared and not defined")
		}
		p.globals = append(p.globals, v)
	default:
		return refused("a variable of space ." + v.Space.String() + " cannot stand outside of a function")
	}
	return nil
}

func alignUp(n, align int) int { return (n + align - 1) / align * align }

// SharedBytes is the static shared memory of a block.
func (p *Program) SharedBytes() int { return p.sharedPlain }

// Entry finds an entry function; with no name, the only one.
func (p *Program) Entry(name string) (*ptx.Function, error) {
	var entries []string
	var only *ptx.Function
	for _, f := range p.module.Functions {
		if !f.Entry {
			continue
		}
		if f.Name == name {
			return f, nil
		}
		entries = append(entries, f.Name)
		only = f
	}
	if name == "" && len(entries) == 1 {
		return only, nil
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("the PTX has no entry function")
	}
	return nil, fmt.Errorf("the PTX has no entry function %q; it has %s", name, strings.Join(entries, ", "))
}

// UnsupportedError names an instruction that the simulator does not run.
type UnsupportedError struct {
	Line int
	Text string // the instruction
	Why  string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("PTX line %d: %s: %s", e.Line, e.Text, e.Why)
}

// lower turns the instructions of a function into operations.
func (c *code) lower() error {
	c.base = int32(len(c.program.ops))
	c.constSlots = map[constKey]slot{}
	c.specialSlots = map[string]slot{}
	c.placeRegisters()
	c.tail32, c.tail64 = c.n32, c.n64
	if err := c.placeMemory(); err != nil {
		return err
	}
	c.meet = c.fn.Reconvergence()
	c.numberLines()
	c.ops = make([]op, len(c.fn.Code)+1)
	for i := range c.fn.Code {
		c.program.ops = append(c.program.ops, spot{c, int32(i)})
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
	c.watchProducts()
	// Running off the end is a return.
	c.program.ops = append(c.program.ops, spot{c, int32(len(c.fn.Code))})
	end := &c.ops[len(c.fn.Code)]
	*end = op{run: runReturn, ends: true, guard: -1, number: c.base + int32(len(c.fn.Code)), class: classControl}
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
	place := func(at map[*ptx.Variable]int, size *int, v *ptx.Variable) {
		*size = alignUp(*size, v.Align)
		at[v] = *size
		*size += v.Size()
	}
	for _, v := range c.fn.Variables {
		switch v.Space {
		case ptx.Local:
			place(c.localAt, &c.localSize, v)
			c.localAlign = max(c.localAlign, v.Align)
		case ptx.Param:
			place(c.paramAt, &c.paramSize, v)
		}
	}
	for _, v := range append(append([]*ptx.Variable(nil), c.fn.Params...), c.fn.Returns...) {
		switch {
		case v.Space != ptx.Param:
		case c.fn.Entry:
			place(c.entryParam, &c.entrySize, v)
		default:
			place(c.paramAt, &c.paramSize, v)
		}
	}
	for _, limit := range []struct {
		what       string
		have, most int
	}{{"local variables", c.localSize, mostLocal}, {"parameters", c.entrySize, mostParams}, {"parameters of calls", c.paramSize, mostCallParams}} {
		if limit.have > limit.most {
			return &UnsupportedError{
				Line: c.fn.Line, Text: "the function " + c.fn.Name, Why: fmt.Sprintf("%d bytes of %s; %d are allowed", limit.have, limit.what, limit.most),
			}
		}
	}
	return nil
}

// constant gives a slot that holds a value in every lane.
func (c *code) constant(f file, value uint64) slot {
	return c.constantFrom(constKey{file: f, value: value})
}

func (c *code) constantFrom(key constKey) slot {
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

// fileOf is where values of a type live.
func fileOf(t ptx.Type) file {
	switch {
	case t == ptx.Pred:
		return filePred
	case t.Bits() <= 32:
		return file32
	}
	return file64
}

// source gives the slot of a source operand that an instruction reads as a type. A register has to be as wide as the type, or in the same file.
func (c *code) source(o ptx.Operand, t ptx.Type) (slot, error) {
	s, err := c.sourceOfAnyWidth(o, t)
	if err == nil && o.Kind == ptx.RegOperand && s.file != fileOf(t) {
		return slot{}, fmt.Errorf("the register %s stands where a .%s is wanted", c.fn.Registers[o.Register].Name, t)
	}
	return s, err
}

// sourceOfAnyWidth is source for operations that take what they need from a register.
func (c *code) sourceOfAnyWidth(o ptx.Operand, t ptx.Type) (slot, error) {
	switch o.Kind {
	case ptx.RegOperand:
		s := c.regs[o.Register]
		if o.Negated {
			return slot{}, fmt.Errorf("a negated predicate cannot stand here")
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
	return slot{}, fmt.Errorf("an operand of this kind cannot stand here")
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
	return 0, fmt.Errorf("a constant of this form has no .%s", t)
}

// special gives the slot of a special register; those that change while a kernel runs are read by mov alone.
func (c *code) special(name string, t ptx.Type) (slot, error) {
	if !knownSpecial(name) {
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

// symbol gives a slot with the address of a variable or a function in its own state space.
func (c *code) symbol(o ptx.Operand, f file) (slot, error) {
	if o.Symbol.Function != nil {
		return c.constant(f, functionAddress(c.program.codes[o.Symbol.Function].number)), nil
	}
	v := o.Symbol.Variable
	key := constKey{file: f}
	offset := 0
	switch v.Space {
	case ptx.Shared:
		key.from, key.index = fromShared, slices.Index(c.program.shared, v)
		if isDynamic(v) {
			key.from = fromDynamic
		}
	case ptx.Const:
		offset = c.program.constantAt[v]
	case ptx.Global:
		key.from, key.index = fromGlobal, slices.Index(c.program.globals, v)
	case ptx.Local:
		key.from, offset = fromLocal, c.localAt[v]
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
	return c.constantFrom(key), nil
}

// Functions have addresses that no memory has.
const functionWindow = 5 << windowShift

func functionAddress(number int) uint64 { return functionWindow + uint64(number)*16 }
