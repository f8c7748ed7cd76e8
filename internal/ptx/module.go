package ptx

// Module is one PTX file.
type Module struct {
	Version   [2]int // such as 9, 0
	Target    string // such as sm_90a; the first of the list
	Files     map[int]string
	Variables []*Variable // of module scope, in the order of the text
	Functions []*Function // in the order of the text; one that is declared and defined stands once
}

// Function is an entry or a device function.
type Function struct {
	Name     string
	Entry    bool
	External bool // declared only: .extern, with no body anywhere in the module
	Line     int

	Params  []*Variable // of space Param, or of space Reg for .func with register parameters
	Returns []*Variable

	Registers []Register  // all of them, those of inner scopes too; operands refer to them by index
	Variables []*Variable // declared in the body: shared, local, and param for calls
	Code      []Instruction

	MaxThreads      [3]int // .maxntid; zeros where it is not given
	RequiredThreads [3]int // .reqntid
	MinBlocks       int    // .minnctapersm
	MaxRegisters    int    // .maxnreg
	ClusterBlocks   [3]int // .reqnctapercluster
	ExplicitCluster bool   // .explicitcluster: it has to be launched with clusters
}

// Register is a register of a function.
type Register struct {
	Name string
	Type Type
}

// Variable is a named piece of memory, or a parameter.
type Variable struct {
	Name    string
	Space   Space
	Type    Type // of an element
	Vector  int  // 1, 2 or 4 values an element
	Count   int  // elements; 1 for a scalar, 0 for an array of unknown size (extern shared)
	IsArray bool
	Align   int // in bytes; the natural one where none is given
	Extern  bool
	Visible bool
	Line    int

	Init    []byte       // the first bytes of its value; the rest is zero. nil where there is no initialiser
	Pointed []Relocation // where Init holds addresses
	// Register is the index of the register that holds a parameter of space Reg; -1 for everything else.
	Register int
}

// Size is the number of bytes of a variable; 0 for an array of unknown size.
func (v *Variable) Size() int { return v.Count * v.Vector * v.Type.Size() }

// Relocation is an address inside of an initialiser.
type Relocation struct {
	Offset  int // in Init
	Size    int // bytes to write there
	Shift   int // bits to shift the address right by before that: 0xFF00(x) writes its second byte
	Symbol  Symbol
	Addend  int64
	Generic bool // generic(x): an address of the generic space
}

// Symbol is what a name of the module stands for: exactly one field is set.
type Symbol struct {
	Variable *Variable
	Function *Function
}

// Instruction is one instruction, resolved.
type Instruction struct {
	Line     int // in the text of the module
	Location *Location
	Guard    int  // index of the predicate register before it, or -1
	GuardNot bool // @!p
	Opcode   string
	// Modifiers are the rest of the opcode's words, without dots, such as "global", "v4", "u32" or "shared::cta". Instructions
	// share them.
	Modifiers []string
	// Operands are in the order of the text, without labels. Those of call are always three: a list of returns, the callee, and
	// a list of arguments.
	Operands []Operand
	// Targets are the instructions that a branch may go to: one for bra, those of the list for brx.idx. A target may be
	// len(Code), the end.
	Targets []int
	// Callees are the functions that an indirect call may reach (.calltargets); nil where the text does not say.
	Callees []*Function
	// Prototype is the prototype of an indirect call (.callprototype), its parameters only; nil for direct calls.
	Prototype *Function

	source string // as it was written, from the guard to before the semicolon
}

// Location is a place in the source of a kernel, from .loc.
type Location struct {
	File, Line, Column int
	Function           string    // of the inlined function whose code this is; empty otherwise
	Inlined            *Location // where that function was inlined
}

// OperandKind says what an operand is.
type OperandKind uint8

// The kinds of operands.
const (
	NoOperand  OperandKind = iota
	RegOperand             // a register: Register; Negated for !p
	ImmOperand             // a constant: Value, Number
	VecOperand             // {a, b, ...}: Parts; a vector register and a whole %tid too
	// AddrOperand is [base+offset]: Parts[0] is the base (register, symbol or constant), to which Offset is to be added;
	// Parts[1:] are what follows in the brackets, such as the coordinates of a tensor.
	AddrOperand
	SymOperand     // the address of a variable or a function: Symbol, with Offset
	SpecialOperand // a special register: Special, such as "tid.x", "laneid", "clock64"
	PairOperand    // p|q: Parts
	SinkOperand    // _
	ListOperand    // (a, b): Parts, the parameters of a call
)

// Number says how a constant was written, which decides how it is converted to the type of an instruction.
type Number uint8

// The forms of constants.
const (
	Integer Number = iota // Value is its two's complement in 64 bits
	Float32               // 0fXXXXXXXX: Value is the code
	Float64               // 0dXXXXXXXXXXXXXXXX or a decimal fraction: Value is the code
)

// Operand is one operand of an instruction.
type Operand struct {
	Kind     OperandKind
	Register int
	Negated  bool
	Number   Number
	Value    uint64
	Symbol   Symbol
	Offset   int64
	Special  string
	Parts    []Operand
}
