package mma

import (
	"math"
	"math/bits"

	"attune/internal/fp8"
)

// format decodes the elements of a floating-point type. The high bits of an encoding, sign and
// exponent, select a binade; the low bits count units in it.
type format struct {
	ignored      uint // low bits that the hardware ignores (tf32)
	mantissa     uint // mantissa bits
	mantissaMask uint32
	binades      []binade
	table        *[256]element // all encodings of an 8-bit format; nil otherwise
	shift        uint          // of a 16-bit format: from an encoding to a float32 with a wrong bias; else 0
	rebias       float32       // corrects the bias
}

// element is a decoded element.
type element struct {
	value    float32
	exponent int16
	last     int16 // exponent of the last bit that is set; noLastBit for zero
}

// binade holds the numbers of one sign and exponent: (hidden + mantissa) · unit.
type binade struct {
	unit     float32
	hidden   int32
	exponent int32 // of the format; for subnormals, that of the smallest normal number
}

// The formats. Widened to f16, E5M2 keeps its exponents and E4M3 has no subnormals (plan.emulated).
var (
	formatF16      = newFormat(5, 10, 0).shifted(13, 0x1p112)
	formatBF16     = newFormat(8, 7, 0).shifted(16, 1)
	formatTF32     = newFormat(8, 10, 13)
	formatE5M2     = newFormat(5, 2, 0).withTable()
	formatE4M3     = formatOfE4M3(-6).withTable()
	formatWideE4M3 = formatOfE4M3(float16MinimumExp).withTable()
)

func (p *Product) formatOf(t Type) *format {
	switch t {
	case F16:
		return formatF16
	case BF16:
		return formatBF16
	case TF32:
		return formatTF32
	case E5M2:
		return formatE5M2
	}
	if p.plan.emulated {
		return formatWideE4M3
	}
	return formatE4M3
}

// newFormat builds an IEEE 754 format.
func newFormat(exponentBits, mantissa, ignored uint) *format {
	f := &format{ignored: ignored, mantissa: mantissa, mantissaMask: 1<<mantissa - 1, binades: make([]binade, 2<<exponentBits)}
	last := 1<<exponentBits - 1
	for i := range f.binades {
		field := i & last
		b := binade{hidden: 1 << mantissa, exponent: int32(max(field, 1) - last/2)}
		if field == 0 {
			b.hidden = 0
		}
		unit := math.Ldexp(1, int(b.exponent)-int(mantissa))
		if field == last {
			b.exponent, unit = nonFiniteExponent, math.Inf(1)
		}
		if i > last {
			unit = -unit
		}
		b.unit = float32(unit)
		f.binades[i] = b
	}
	return f
}

// formatOfE4M3 gives every encoding its own binade, because the last binade has seven numbers and a
// NaN.
func formatOfE4M3(least int) *format {
	f := &format{binades: make([]binade, 256)}
	for code := range f.binades {
		value := fp8.E4M3(code).Float32()
		b := binade{unit: value, hidden: 1}
		switch {
		case value != value:
			b.exponent = nonFiniteExponent
		case value == 0:
			b.unit, b.hidden = float32(math.Copysign(1, float64(value))), 0
		default:
			b.exponent = int32(max(math.Ilogb(float64(value)), least))
		}
		f.binades[code] = b
	}
	return f
}

// withTable precomputes all 256 elements.
func (f *format) withTable() *format {
	f.table = new([256]element)
	for code := range f.table {
		value, exponent := decodeElement[float32](f, uint32(code))
		last := noLastBit
		if mantissa, power := math.Frexp(float64(value)); exponent == nonFiniteExponent {
			last = anyLastBit
		} else if value != 0 {
			last = power - 53 + bits.TrailingZeros64(uint64(math.Abs(math.Ldexp(mantissa, 53))))
		}
		f.table[code] = element{value, int16(exponent), int16(last)}
	}
	return f
}

// shifted sets how an encoding becomes a float32.
func (f *format) shifted(shift uint, rebias float32) *format {
	f.shift, f.rebias = shift, rebias
	return f
}

// decodeShifted is decodeElement for a format of 16 bits.
func (f *format) decodeShifted(code uint32) (float32, int32) {
	magnitude := code & 0x7FFF
	exponent := f.binades[code>>(f.mantissa&31)&uint32(len(f.binades)-1)].exponent
	if magnitude == 0 || exponent == nonFiniteExponent {
		return decodeElement[float32](f, code)
	}
	value := math.Float32frombits(magnitude<<(f.shift&31)) * f.rebias
	return math.Float32frombits(math.Float32bits(value) | code<<16&(1<<31)), exponent
}

// decodeElement returns the value of an encoding and its exponent.
func decodeElement[T float32 | float64](f *format, code uint32) (T, int32) {
	code >>= f.ignored & 31
	b := &f.binades[code>>(f.mantissa&31)&uint32(len(f.binades)-1)]
	rest := int32(code & f.mantissaMask)
	units := b.hidden + rest
	switch {
	case units == 0:
		return T(b.unit) * 0, zeroExponent
	case b.exponent == nonFiniteExponent && rest != 0:
		return T(math.NaN()), nonFiniteExponent
	}
	return T(units) * T(b.unit), b.exponent
}
