package mma

import (
	"math"

	"attune/internal/fp8"
)

// format takes the elements of a floating-point type apart. The high bits of a code, sign and exponent, choose a binade;
// the others count units in it.
type format struct {
	ignored  uint   // low bits that the chip does not look at
	mantissa uint   // bits that count
	counted  uint32 // a mask of them
	binades  []binade
	table    *[256]element // of all codes, where they have 8 bits
}

// element is a number taken apart.
type element struct {
	value    float32
	exponent int32
}

// binade is the numbers of one sign and exponent: (hidden + mantissa) * unit.
type binade struct {
	unit     float32
	hidden   int32
	exponent int32 // as the format has it: of subnormal numbers, that of the smallest normal one
}

// The formats. E5M2 is an f16 without its low bits and has the same exponents once it is widened; E4M3 then has no
// subnormal numbers any more.
var (
	formatF16      = newFormat(5, 10, 0)
	formatBF16     = newFormat(8, 7, 0)
	formatTF32     = newFormat(8, 10, 13)
	formatE5M2     = newFormat(5, 2, 0).tabled()
	formatE4M3     = formatOfE4M3(-6).tabled()
	formatWideE4M3 = formatOfE4M3(float16MinimumExp).tabled()
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

// newFormat is a format as IEEE 754 has them.
func newFormat(exponentBits, mantissa, ignored uint) *format {
	f := &format{ignored: ignored, mantissa: mantissa, counted: 1<<mantissa - 1, binades: make([]binade, 2<<exponentBits)}
	last := 1<<exponentBits - 1
	for i := range f.binades {
		field := i & last
		b := binade{hidden: 1 << mantissa, exponent: int32(max(field, 1) - last/2)}
		if field == 0 {
			b.hidden = 0
		}
		unit := math.Ldexp(1, int(b.exponent)-int(mantissa))
		if field == last {
			b.exponent, unit = infiniteExponent, math.Inf(1)
		}
		if i > last {
			unit = -unit
		}
		b.unit = float32(unit)
		f.binades[i] = b
	}
	return f
}

// formatOfE4M3 gives every code a binade of its own, because the last one has seven numbers and a NaN.
func formatOfE4M3(least int) *format {
	f := &format{binades: make([]binade, 256)}
	for code := range f.binades {
		value := fp8.E4M3(code).Float32()
		b := binade{unit: value, hidden: 1}
		switch {
		case value != value:
			b.exponent = infiniteExponent
		case value == 0:
			b.unit, b.hidden = float32(math.Copysign(1, float64(value))), 0
		default:
			b.exponent = int32(max(math.Ilogb(float64(value)), least))
		}
		f.binades[code] = b
	}
	return f
}

// tabled has all elements ready.
func (f *format) tabled() *format {
	f.table = new([256]element)
	for code := range f.table {
		f.table[code].value, f.table[code].exponent = split[float32](f, uint32(code))
	}
	return f
}

// split is the value of a code and its exponent.
func split[T float32 | float64](f *format, code uint32) (T, int32) {
	code >>= f.ignored & 31
	b := &f.binades[code>>(f.mantissa&31)&uint32(len(f.binades)-1)]
	rest := int32(code & f.counted)
	units := b.hidden + rest
	switch {
	case units == 0:
		return T(b.unit) * 0, zeroExponent
	case b.exponent == infiniteExponent && rest != 0:
		return T(math.NaN()), infiniteExponent
	}
	return T(units) * T(b.unit), b.exponent
}
