package ptx

// Space is a PTX state space.
type Space uint8

// The state spaces.
const (
	Generic Space = iota
	Reg
	Const
	Global
	Local
	Param
	Shared
)

var spaceNames = [...]string{"generic", "reg", "const", "global", "local", "param", "shared"}

// String returns the PTX name of the space, without the dot.
func (s Space) String() string { return spaceNames[s] }

// Type is the fundamental or packed type of a register, a variable or an instruction.
type Type uint8

// The types.
const (
	NoType Type = iota
	Pred
	B8
	B16
	B32
	B64
	B128
	U8
	U16
	U32
	U64
	S8
	S16
	S32
	S64
	F16
	F16x2
	BF16
	BF16x2
	TF32
	F32
	F64
	U16x2
	S16x2
	E4M3
	E5M2
	E4M3x2
	E5M2x2
)

var types = [...]struct {
	name string
	bits int
}{
	NoType: {"none", 0}, Pred: {"pred", 1},
	B8: {"b8", 8}, B16: {"b16", 16}, B32: {"b32", 32}, B64: {"b64", 64}, B128: {"b128", 128},
	U8: {"u8", 8}, U16: {"u16", 16}, U32: {"u32", 32}, U64: {"u64", 64},
	S8: {"s8", 8}, S16: {"s16", 16}, S32: {"s32", 32}, S64: {"s64", 64},
	F16: {"f16", 16}, F16x2: {"f16x2", 32}, BF16: {"bf16", 16}, BF16x2: {"bf16x2", 32}, TF32: {"tf32", 32}, F32: {"f32", 32}, F64: {"f64", 64},
	U16x2: {"u16x2", 32}, S16x2: {"s16x2", 32}, E4M3: {"e4m3", 8}, E5M2: {"e5m2", 8}, E4M3x2: {"e4m3x2", 16}, E5M2x2: {"e5m2x2", 16},
}

// ParseType returns the type with the given PTX name, without the dot.
func ParseType(name string) (Type, bool) {
	for t, known := range types {
		if known.name == name && t != int(NoType) {
			return Type(t), true
		}
	}
	return NoType, false
}

// String returns the PTX name of the type, without the dot.
func (t Type) String() string { return types[t].name }

// Bits returns the width in bits; 1 for a predicate.
func (t Type) Bits() int { return types[t].bits }

// Size returns the width in bytes; 0 for a predicate, which has no form in memory.
func (t Type) Size() int { return types[t].bits / 8 }

// Signed reports whether the type is a signed integer.
func (t Type) Signed() bool { return t == S8 || t == S16 || t == S32 || t == S64 }
