package fp8

import "math"

// E4M3 is a code of the format S.EEEE.MMM with bias 7; S.1111.111 is NaN and there is no infinity.
type E4M3 uint8

// E5M2 is a code of the format S.EEEEE.MM with bias 15, infinities and NaNs as in IEEE 754.
type E5M2 uint8

// NaN is the code that every NaN is encoded as, in both formats.
const NaN = 0x7F

const (
	// MaxE4M3 is the largest E4M3 value.
	MaxE4M3 = 448
	// MaxE5M2 is the largest finite E5M2 value.
	MaxE5M2 = 57344
)

// E4M3FromFloat32 rounds to nearest even and saturates: magnitudes above 448 become 448.
func E4M3FromFloat32(x float32) E4M3 { return E4M3FromFloat64(float64(x)) }

// E4M3FromFloat64 encodes a float64 like E4M3FromFloat32, with a single rounding.
func E4M3FromFloat64(x float64) E4M3 { return E4M3(e4m3.encode(x)) }

// E5M2FromFloat32 rounds to nearest even and saturates: magnitudes above 57344 become 57344.
func E5M2FromFloat32(x float32) E5M2 { return E5M2FromFloat64(float64(x)) }

// E5M2FromFloat64 encodes a float64 like E5M2FromFloat32, with a single rounding.
func E5M2FromFloat64(x float64) E5M2 { return E5M2(e5m2.encode(x)) }

// Float32 returns the exact value of the code.
func (c E4M3) Float32() float32 { return e4m3Values[c] }

// Float32 returns the exact value of the code.
func (c E5M2) Float32() float32 { return e5m2Values[c] }

// format holds the parameters that distinguish the two formats.
type format struct {
	mantissaBits int
	minExponent  int     // exponent of the smallest normal value and of the subnormals
	largest      float64 // the largest finite value
}

var (
	e4m3 = format{mantissaBits: 3, minExponent: -6, largest: MaxE4M3}
	e5m2 = format{mantissaBits: 2, minExponent: -14, largest: MaxE5M2}

	e4m3Values = e4m3.values(0x7F, 0xFF)
	e5m2Values = e5m2.values(0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF)
)

// encode uses the float64 adder to round. If one unit in the last place of the code is 2^u, then x
// + 2^(u+52) is a float64 whose last place is also 2^u. The sum is therefore rounded to nearest
// even at that place, and its low bits count units. A count that overflows the mantissa carries
// into the exponent correctly, because neighbouring codes encode neighbouring values.
func (f *format) encode(x float64) uint8 {
	bits := math.Float64bits(x)
	sign, magnitude := uint8(bits>>56)&0x80, bits&^(1<<63)
	if magnitude > math.Float64bits(f.largest) {
		if x != x {
			return NaN
		}
		magnitude = math.Float64bits(f.largest)
	}
	exponent := max(int(magnitude>>52)-1023, f.minExponent)
	unit := exponent - f.mantissaBits
	units := math.Float64bits(math.Float64frombits(magnitude) + powerOfTwo(unit+52))
	return sign | (uint8((exponent-f.minExponent)<<f.mantissaBits) + uint8(units))
}

// values returns the value of every code; nans lists the codes of NaN.
func (f format) values(nans ...uint8) (table [256]float32) {
	for code := range 128 {
		exponent, units := code>>f.mantissaBits, code&(1<<f.mantissaBits-1)
		if exponent == 0 {
			exponent = 1 // subnormal: same scale as the first binade, no leading bit
		} else {
			units += 1 << f.mantissaBits
		}
		value := math.Ldexp(float64(units), f.minExponent-1+exponent-f.mantissaBits)
		if value > f.largest {
			value = math.Inf(1) // NaN codes are overwritten below
		}
		table[code] = float32(value)
		table[code|0x80] = float32(math.Copysign(value, -1))
	}
	for _, code := range nans {
		table[code] = float32(math.NaN())
	}
	return table
}

func powerOfTwo(exponent int) float64 { return math.Float64frombits(uint64(exponent+1023) << 52) }
