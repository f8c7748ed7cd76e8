package mma

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"attune/internal/arch"
)

// Type is the element type of a matrix.
type Type uint8

// The element types.
const (
	NoType Type = iota
	F16
	BF16
	TF32
	F32
	F64
	E4M3
	E5M2
	S8
	U8
	S4
	U4
	B1
	S32
)

var types = [...]struct {
	name string
	bits int
}{
	NoType: {"none", 0},
	F16:    {"f16", 16}, BF16: {"bf16", 16}, TF32: {"tf32", 32}, F32: {"f32", 32}, F64: {"f64", 64},
	E4M3: {"e4m3", 8}, E5M2: {"e5m2", 8},
	S8: {"s8", 8}, U8: {"u8", 8}, S4: {"s4", 4}, U4: {"u4", 4}, B1: {"b1", 1}, S32: {"s32", 32},
}

func parseType(name string) (Type, bool) {
	for t, known := range types {
		if known.name == name && t != int(NoType) {
			return Type(t), true
		}
	}
	return NoType, false
}

// String returns the PTX name of the type.
func (t Type) String() string { return types[t].name }

// Bits returns the width of an element.
func (t Type) Bits() int { return types[t].bits }

func (t Type) is8BitFloat() bool { return t == E4M3 || t == E5M2 }

// word returns the width of a slice element: one matrix element, or 32 elements of B1.
func (t Type) word() int {
	if t == B1 {
		return 32
	}
	return t.Bits()
}

// Shape is the shape of a product: A is M by K, B is K by N, C and D are M by N.
type Shape struct{ M, N, K int }

// String returns the PTX name of the shape.
func (s Shape) String() string {
	if s.K == 0 {
		return fmt.Sprintf("m%dn%d", s.M, s.N)
	}
	return fmt.Sprintf("m%dn%dk%d", s.M, s.N, s.K)
}

// parseShape parses m16n8k16, or m8n8 without K.
func parseShape(word string) (s Shape, ok bool) {
	for _, part := range []struct {
		letter string
		into   *int
	}{{"k", &s.K}, {"n", &s.N}, {"m", &s.M}} {
		before, digits, found := strings.Cut(word, part.letter)
		if !found && part.letter == "k" {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 16)
		if !found || err != nil || n == 0 || digits[0] < '1' || digits[0] > '9' {
			return Shape{}, false
		}
		*part.into, word = int(n), before
	}
	return s, word == ""
}

// Matrix is one of the matrices of a product.
type Matrix uint8

// The matrices of D = A·B + C.
const (
	A Matrix = iota
	B
	C
	D
)

// String returns the PTX name of the matrix, in lower case.
func (m Matrix) String() string { return "abcd"[m : m+1] }

// Chip is a tensor core generation. Generations differ in how they add.
type Chip uint8

// The generations.
const (
	Ampere    Chip = iota // sm_80 to sm_88
	Ada                   // sm_89
	Hopper                // sm_90
	Blackwell             // sm_100 to sm_110; adds like Hopper
	// Workstation is Blackwell from sm_120 on, whose mma.sync has FP8. That its FP8 sums keep all bits of
	// FP32 was reported and not measured here.
	Workstation
)

var chipNames = [...]string{"Ampere", "Ada", "Hopper", "Blackwell", "Blackwell sm_120"}

// String returns the name of the generation.
func (c Chip) String() string { return chipNames[c] }

// ErrNotSimulated is wrapped by the error of an architecture whose arithmetic is not known.
var ErrNotSimulated = errors.New("is not simulated")

// ChipOf returns the generation of an architecture such as sm_90a or compute_89.
func ChipOf(name string) (Chip, error) {
	digits, found := strings.CutPrefix(name, "sm_")
	if !found {
		digits, found = strings.CutPrefix(name, "compute_")
	}
	digits = strings.TrimRight(digits, "af")
	n, err := strconv.ParseUint(digits, 10, 16)
	switch {
	case !found || err != nil:
		return 0, fmt.Errorf("architecture %q is malformed; want sm_ and a number, such as sm_90a", name)
	case n < arch.FirstSimulated:
		return 0, fmt.Errorf("%s %w; the simulator runs %s", name, ErrNotSimulated, arch.SimulatedText)
	case n < 89:
		return Ampere, nil
	case n == 89:
		return Ada, nil
	case n < 100:
		return Hopper, nil
	case n < 120:
		return Blackwell, nil
	}
	return Workstation, nil
}
