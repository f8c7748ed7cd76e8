package ptx

// Module is one parsed PTX file.
type Module struct {
	Version   [2]int // such as 9, 0
	Target    string // such as sm_90a; the first of the list
	Files     map[int]string
	Variables []*Variable // module scope, in source order
	Functions []*Function // in source order; a declared and defined function appears once
}

// Function is a kernel entry (.entry) or a device function (.func).
type Function struct {
	Name     string
	Entry    bool
	External bool // declared with .extern and without a body in this module
	Line     int

	Params  []*Variable // space Param, or space Reg for a .func with register parameters
	Returns []*Variable

	Registers []Register  // of all scopes; operands refer to them by index
	Variables []*Variable // declared in the body: shared, local, and param for calls
	Code      []Instruction

	MaxThreads      [3]int // .maxntid; zeros if absent
	RequiredThreads [3]int // .reqntid
	MinBlocks       int    // .minnctapersm
	MaxRegisters    int    // .maxnreg
	ClusterBlocks   [3]int // .reqnctapercluster
	ExplicitCluster bool   // .explicitcluster: the launch must specify a cluster size
}

// Register is one scalar register of a function.
type Register struct {
	Name string
	Type Type
}

// Variable is a named piece of memory or a parameter.
type Variable struct {
	Name    string
	Space   Space
	Type    Type // of one vector component
	Vector  int  // components per element: 1, 2 or 4
	Count   int  // elements; 1 for a scalar, 0 for an array of unknown size (extern shared)
	IsArray bool
	Align   int // in bytes; natural alignment if the text has no .align
	Extern  bool
	Visible bool
	Managed bool // the host accesses it too
	Line    int

	Init        []byte       // leading bytes of the initial value, the rest is zero; nil without initialiser
	Relocations []Relocation // addresses inside Init
	// Register is the index of the register that holds a parameter of space Reg; -1 otherwise.
	Register int
}

// Size is the size in bytes; 0 for an array of unknown size.
func (v *Variable) Size() int { return v.Count * v.Vector * v.Type.Size() }

// Relocation is an address inside an initialiser.
type Relocation struct {
	Offset  int // in Init
	Size    int // bytes to write there
	Shift   int // right shift of the address, in bits: 8 for 0xFF00(x), which stores the second byte
	Symbol  Symbol
	Addend  int64
	Generic bool // generic(x): convert to a generic address
}

// Symbol is the object that a name of the module refers to. Exactly one field is set.
type Symbol struct {
	Variable *Variable
	Function *Function
}

// line returns the line of the declaration.
func (s Symbol) line() int {
	if s.Variable != nil {
		return s.Variable.Line
	}
	return s.Function.Line
}

// Instruction is one instruction with resolved operands.
type Instruction struct {
	Line     int // in the PTX text
	Location *Location
	Guard    int  // index of the guard predicate register, or -1
	GuardNot bool // @!p
	Opcode   string
	// Modifiers are the dotted words after the opcode, without dots, such as "global", "v4", "u32"
	// or "shared::cta". Instructions share the slice; do not modify it.
	Modifiers []string
	// Operands are in source order, without labels. A call always has three: the list of return
	// values, the callee, and the list of arguments.
	Operands []Operand
	// Targets are the indexes of the possible branch targets: one for bra, the whole list for
	// brx.idx. A target may be len(Code), the end of the function.
	Targets []int
	// Callees are the possible callees of an indirect call (.calltargets); nil if unknown.
	Callees []*Function
	// Prototype is the prototype of an indirect call (.callprototype), parameters and returns only;
	// nil for direct calls.
	Prototype *Function

	source string // source text from the guard up to the semicolon
}

// Location is a position in the CUDA source of a kernel, from .loc.
type Location struct {
	File, Line, Column int
	Function           string    // name of the inlined function, or empty
	Inlined            *Location // call site at which that function was inlined
}

// OperandKind is the kind of an operand; it decides which fields of Operand are set.
type OperandKind uint8

// The kinds of operands.
const (
	NoOperand  OperandKind = iota
	RegOperand             // a register: Register; Negated for !p
	ImmOperand             // an immediate: Value, Number
	VecOperand             // {a, b, ...}: Parts; also a vector register and %tid without component
	// AddrOperand is [base+offset]: Parts[0] is the base (register, symbol or immediate), and
	// Offset is added to it. Parts[1:] are the other operands in the brackets, such as tensor
	// coordinates.
	AddrOperand
	SymOperand     // the address of a variable or a function: Symbol, with Offset
	SpecialOperand // a special register: Special, such as "tid.x", "laneid", "clock64"
	PairOperand    // p|q: Parts
	SinkOperand    // _
	ListOperand    // (a, b): Parts, the arguments or returns of a call
)

// Number is the written form of an immediate. The form decides the conversion to the instruction's
// type (PTX ISA, Constants).
type Number uint8

// The forms of immediates.
const (
	Integer Number = iota // Value is the 64-bit two's complement
	Float32               // 0fXXXXXXXX: Value is the binary32 encoding
	Float64               // 0dXXXXXXXXXXXXXXXX or decimal: Value is the binary64 encoding
)

// Operand is one operand of an instruction.
type Operand struct {
	Kind     OperandKind
	Register int
	Negated  bool
	Number   Number
	Value    uint64
	Symbol   Symbol
	Element  bool // of a SymOperand: it is an element of an array, arr[i], which ld and st access
	Offset   int64
	Special  string
	Parts    []Operand
}
