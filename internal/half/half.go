package half

import (
	"encoding/binary"
	"math"
)

// Float16 is a code with five exponent bits and ten mantissa bits.
type Float16 uint16

// BFloat16 is a code with eight exponent bits and seven mantissa bits.
type BFloat16 uint16

// NaN is the code that every NaN is narrowed to, in both formats.
const NaN = 0x7FFF

// Float16FromFloat32 rounds to nearest even; values that round to 65536 or more become infinity.
func Float16FromFloat32(x float32) Float16 { return Float16FromFloat64(float64(x)) }

// Float16FromFloat64 narrows a float64 like Float16FromFloat32, with a single rounding.
//
// The float64 adder does the rounding. If one unit in the last place of the result is 2^u, then x +
// 2^(u+52) is a float64 whose last place is also 2^u, and its low bits count units. A count that
// overflows the mantissa carries into the exponent correctly, up to infinity, because neighbouring
// codes encode neighbouring values.
func Float16FromFloat64(x float64) Float16 {
	const (
		minExponent  = -14 // exponent of the smallest normal value and of the subnormals
		mantissaBits = 10
		infinite     = (16 + 1023) << 52 // float64 bits of 65536, which rounds to infinity
	)
	bits := math.Float64bits(x)
	sign, magnitude := uint16(bits>>48)&0x8000, bits&^(1<<63)
	if magnitude > infinite {
		if x != x {
			return NaN
		}
		magnitude = infinite
	}
	exponent := max(int(magnitude>>52)-1023, minExponent)
	shifter := math.Float64frombits(uint64(exponent-mantissaBits+52+1023) << 52)
	units := math.Float64bits(math.Float64frombits(magnitude) + shifter)
	return Float16(sign | (uint16((exponent-minExponent)<<mantissaBits) + uint16(units)))
}

// Float32 returns the exact value of the code.
func (h Float16) Float32() float32 {
	// Shifted into place, the fields form a float32 with a wrong exponent bias. The product
	// corrects the bias, for subnormals as well.
	const rebias = 0x1p112
	value := math.Float32frombits(uint32(h&0x7FFF)<<13) * rebias
	bits := math.Float32bits(value) | uint32(h&0x8000)<<16
	if h&0x7C00 == 0x7C00 {
		bits |= 0x7F800000
	}
	return math.Float32frombits(bits)
}

// BFloat16FromFloat32 rounds to nearest even; values that are too large become infinity.
func BFloat16FromFloat32(x float32) BFloat16 {
	if x != x {
		return NaN
	}
	bits := math.Float32bits(x)
	// Round to nearest even: add just under half a unit, or exactly half if the last kept bit is
	// odd.
	return BFloat16((bits + 0x7FFF + bits>>16&1) >> 16)
}

// Float32 returns the exact value of the code.
func (b BFloat16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// DecodeBFloat16 reads little-endian BFloat16 codes from memory. A trailing odd byte is ignored.
func DecodeBFloat16(memory []byte) []float64 {
	values := make([]float64, len(memory)/2)
	for i := range values {
		values[i] = float64(BFloat16(binary.LittleEndian.Uint16(memory[2*i:])).Float32())
	}
	return values
}

// DecodeFloat16 reads little-endian Float16 codes from memory. A trailing odd byte is ignored.
func DecodeFloat16(memory []byte) []float64 {
	values := make([]float64, len(memory)/2)
	for i := range values {
		values[i] = float64(Float16(binary.LittleEndian.Uint16(memory[2*i:])).Float32())
	}
	return values
}
