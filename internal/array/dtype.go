package array

import (
	"fmt"
	"math"
	"strings"
)

// DType is the number format of an element.
type DType string

// The number formats.
const (
	F64  DType = "f64"
	F32  DType = "f32"
	F16  DType = "f16"
	BF16 DType = "bf16"
	E4M3 DType = "e4m3"
	E5M2 DType = "e5m2"
	I8   DType = "i8"
	U8   DType = "u8"
	I32  DType = "i32"
	U32  DType = "u32"
	I64  DType = "i64"
	U64  DType = "u64"
)

// DTypes lists all number formats.
var DTypes = []DType{F64, F32, F16, BF16, E4M3, E5M2, I8, U8, I32, U32, I64, U64}

// format describes a number format. bits is the significand of a float with its implicit bit, and
// least the exponent of the least subnormal.
type format struct {
	bytes       int
	bits, least int
	signed      bool
}

var formats = map[DType]format{
	F64: {8, 53, -1074, true}, F32: {4, 24, -149, true}, F16: {2, 11, -24, true}, BF16: {2, 8, -133, true},
	E4M3: {1, 4, -9, true}, E5M2: {1, 3, -16, true},
	I8: {bytes: 1, signed: true}, U8: {bytes: 1}, I32: {bytes: 4, signed: true}, U32: {bytes: 4},
	I64: {bytes: 8, signed: true}, U64: {bytes: 8},
}

// typeNames lists the number formats for messages.
func typeNames() string {
	names := make([]string, len(DTypes))
	for i, t := range DTypes {
		names[i] = string(t)
	}
	return strings.Join(names, ", ")
}

// ParseDType returns the number format of a name.
func ParseDType(name string) (DType, error) {
	if t := DType(name); t.Bytes() > 0 {
		return t, nil
	}
	return "", fmt.Errorf("unknown type %q; there are %s", name, typeNames())
}

// Bytes is the size of an element.
func (t DType) Bytes() int { return formats[t].bytes }

// Float reports whether elements are floating-point numbers.
func (t DType) Float() bool { return formats[t].bits > 0 }

// Signed reports whether elements can be negative.
func (t DType) Signed() bool { return formats[t].signed }

// Rounding bounds the error of one rounding to the format: half of the least subnormal, and half a
// unit in the last place relative to the value. Integers have no rounding error. For F64 the
// absolute bound is the least subnormal, because half of it is no float64.
func (t DType) Rounding() (abs, rel float64) {
	f := formats[t]
	if f.bits == 0 {
		return 0, 0
	}
	return math.Ldexp(1, max(f.least-1, -1074)), math.Ldexp(1, -f.bits)
}

// TensorMapType is the name of the format in a tensor map, which has no 8-bit floats.
func (t DType) TensorMapType() string {
	switch t {
	case E4M3, E5M2, I8:
		return "u8"
	case I32:
		return "s32"
	case I64:
		return "s64"
	}
	return string(t)
}
