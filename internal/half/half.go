package half

import (
	"encoding/binary"
	"math"
)

// Float16 is the code of a number with five exponent bits and ten mantissa bits.
type Float16 uint16

// BFloat16 is the code of a number with eight exponent bits and seven mantissa bits.
type BFloat16 uint16

// NaN is what narrowing makes of every NaN, in both formats.
const NaN = 0x7FFF

// Float16FromFloat32 rounds to nearest even; what rounds to 65536 or more becomes an infinity.
func Float16FromFloat32(x float32) Float16 { return Float16FromFloat64(float64(x)) }

// Float16FromFloat64 is Float16FromFloat32 for a float64, which it does not round to float32 on the way.
//
// The float64 adder does the rounding. With one unit in the last place of the result being 2^u, x + 2^(u+52) has
// exactly that as its own last place, and its low bits count the units. The count carries into the exponent by itself,
// up to infinity, because neighbouring codes are neighbouring numbers.
func Float16FromFloat64(x float64) Float16 {
	const (
		minExponent  = -14 // of the smallest normal number, and the scale of the subnormals
		mantissaBits = 10
		infinite     = (16 + 1023) << 52 // 65536, whose code is that of infinity
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

// Float32 is the value of the code, exactly.
func (h Float16) Float32() float32 {
	// The fields lie as in a float32 but for the bias, which the product corrects, for subnormals as well.
	const rebias = 0x1p112
	value := math.Float32frombits(uint32(h&0x7FFF)<<13) * rebias
	bits := math.Float32bits(value) | uint32(h&0x8000)<<16
	if h&0x7C00 == 0x7C00 {
		bits |= 0x7F800000
	}
	return math.Float32frombits(bits)
}

// BFloat16FromFloat32 rounds to nearest even; what is too large becomes an infinity.
func BFloat16FromFloat32(x float32) BFloat16 {
	if x != x {
		return NaN
	}
	bits := math.Float32bits(x)
	// Just under half a unit, or exactly half where the last bit kept is odd, carries upwards when it should.
	return BFloat16((bits + 0x7FFF + bits>>16&1) >> 16)
}

// Float32 is the value of the code, exactly.
func (b BFloat16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// DecodeBFloat16 reads BFloat16 codes as DecodeFloat16 reads Float16's.
func DecodeBFloat16(memory []byte) []float64 {
	values := make([]float64, len(memory)/2)
	for i := range values {
		values[i] = float64(BFloat16(binary.LittleEndian.Uint16(memory[2*i:])).Float32())
	}
	return values
}

// DecodeFloat16 reads Float16 codes as a GPU leaves them in memory: two bytes each, the low one first. A last odd byte
// is ignored.
func DecodeFloat16(memory []byte) []float64 {
	values := make([]float64, len(memory)/2)
	for i := range values {
		values[i] = float64(Float16(binary.LittleEndian.Uint16(memory[2*i:])).Float32())
	}
	return values
}
