package mma

import (
	"fmt"
	"strconv"
	"strings"
)

// Type is the type of the elements of a matrix.
type Type uint8

// The types of elements.
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

// String is the name as PTX has it.
func (t Type) String() string { return types[t].name }

// Bits is the width of an element.
func (t Type) Bits() int { return types[t].bits }

func (t Type) is8BitFloat() bool { return t == E4M3 || t == E5M2 }

// word is the width of what matrices of this type are made of: an element, but for single bits 32 of them.
func (t Type) word() int {
	if t == B1 {
		return 32
	}
	return t.Bits()
}

// Shape is the shape of a product: A is M by K, B is K by N, C and D are M by N.
type Shape struct{ M, N, K int }

// String is the shape as PTX has it.
func (s Shape) String() string {
	if s.K == 0 {
		return fmt.Sprintf("m%dn%d", s.M, s.N)
	}
	return fmt.Sprintf("m%dn%dk%d", s.M, s.N, s.K)
}

// parseShape reads m16n8k16, or m8n8 without a K.
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

// Matrix names the matrices of a product.
type Matrix uint8

// The matrices of D = A·B + C.
const (
	A Matrix = iota
	B
	C
	D
)

// String is the name of the matrix in lower case, as PTX has it.
func (m Matrix) String() string { return "abcd"[m : m+1] }

// Chip is a generation of tensor cores. Generations differ in how they add.
type Chip uint8

// The chips.
const (
	Ampere    Chip = iota // sm_80 to sm_88
	Ada                   // sm_89
	Hopper                // sm_90
	Blackwell             // sm_100 and later; adds as Hopper does
)

var chipNames = [...]string{"Ampere", "Ada", "Hopper", "Blackwell"}

// String is the name of the generation.
func (c Chip) String() string { return chipNames[c] }

// ChipOf is the chip of an architecture such as sm_90a or compute_89.
func ChipOf(arch string) (Chip, error) {
	digits, found := strings.CutPrefix(arch, "sm_")
	if !found {
		digits, found = strings.CutPrefix(arch, "compute_")
	}
	digits = strings.TrimRight(digits, "af")
	n, err := strconv.ParseUint(digits, 10, 16)
	switch {
	case !found || err != nil:
		return 0, fmt.Errorf("architecture %q: want sm_ and a number, such as sm_90a", arch)
	case n < 80:
		return 0, fmt.Errorf("architecture %q: tensor cores before sm_80 are not simulated", arch)
	case n < 89:
		return Ampere, nil
	case n == 89:
		return Ada, nil
	case n < 100:
		return Hopper, nil
	}
	return Blackwell, nil
}
