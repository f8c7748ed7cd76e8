package spec

import "attune/internal/array"

// Declaration is the problem of a kernel as kernel.toml declares it: arguments, launch, reference,
// tolerance and work.
type Declaration struct {
	Source string // path of the CUDA source, relative to kernel.toml
	Entry  string // the entry function
	Flags  []string
	Axes   []string // in the order of their first appearance in [shapes], then in [axes]
	Args   []Arg    // in the order of the kernel's parameters

	// AxisDefaults are the values of axes that a shape need not give. They are a part of the shape all
	// the same.
	AxisDefaults map[string]int

	FlagsAt string // the line of Flags, such as kernel.toml:3; empty without flags

	Grid, Block [3]*Expr
	Cluster     [3]*Expr // all nil without a cluster
	Shared      *Expr    // bytes of dynamic shared memory; nil for none
	Cooperative bool

	Reference Reference
	Tolerance map[string]OutputTolerance // by output; only those of the file
	FLOPs     *Expr                      // nil if unknown
	Bytes     *Expr                      // nil if unknown
	Peers     []PeerRule
	SHA256    string // of kernel.toml
}

// Role is what a kernel does with an argument.
type Role int

// The roles.
const (
	In      Role = iota // a buffer that the kernel reads
	Out                 // a buffer that the kernel fills
	InOut               // a buffer that the kernel updates in place
	Scratch             // a buffer for the kernel's own use, zero before the first launch or before each
	Scalar              // a value
	Map                 // a tensor map of a buffer
)

// IsBuffer reports whether an argument of the role is the address of a buffer.
func (r Role) IsBuffer() bool { return r <= Scratch }

// Arg is one argument of a declared kernel.
type Arg struct {
	Name  string
	Role  Role
	Type  array.DType // with the defaults of all knobs; ArgsFor gives that of a variant
	Line  int         // in kernel.toml
	Shape []*Expr     // of a buffer
	Zero  bool        // of Scratch: the caller clears it before every launch
	When  *Expr       // of a buffer: where it is 0 the kernel gets a null pointer; nil if there is no condition
	Fill  Fill        // of In and InOut without a file
	File  string      // such as x.npy, x.safetensors or x.safetensors#tensor; {shape} and {seed} are replaced
	Value *Expr       // of a Scalar
	Map   *MapRule    // of a Map

	TypeRule *Expr // over knobs: the index of the type in array.DTypes; nil if all variants have one type
}

// Fill is how the elements of a buffer are drawn.
type Fill struct {
	Kind string // normal, uniform, zeros, ones, iota, integers or offsets
	A, B *Expr  // of uniform, integers and offsets; nil for the others
}

// MapRule describes a tensor map. Type, dimensions and strides are those of its argument.
type MapRule struct {
	Arg     int     // index in Declaration.Args
	Box     []*Expr // innermost dimension first
	Swizzle string
	OOB     string

	SwizzleBytes *Expr // in place of Swizzle; nil without

	// Order has, for each dimension of the map, the dimension of the argument counted from its
	// innermost one. Nil for the same order.
	Order []*Expr
}

// Reference is how the right outputs are computed.
type Reference struct {
	Kind  string // python, source or files
	Path  string // of the file or folder, relative to kernel.toml
	Entry string // of a source

	Grid, Block [3]*Expr // of a source; nil as in [launch]
	Shared      *Expr    // of a source
	Line        int      // in kernel.toml
}

// OutputTolerance limits the errors of one output. An element is bad if
// |got - want| > Abs + Rel·|want|.
type OutputTolerance struct {
	Abs, Rel    float64
	BadFraction float64
	Given       bool // by kernel.toml; false for the default of the output's type
	OneRounding bool // Abs and Rel are those of the output's type, which knobs may decide
}

// PeerRule is a Python function that a bench times beside the kernel.
type PeerRule struct{ Name, File, Function string }
