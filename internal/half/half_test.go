package half

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// value decodes a code by the definition of the format.
func value(code uint16, exponentBits, mantissaBits int) float64 {
	bias := 1<<(exponentBits-1) - 1
	mantissa := float64(code & (1<<mantissaBits - 1))
	exponent := int(code>>mantissaBits) & (1<<exponentBits - 1)
	var v float64
	switch {
	case exponent == 1<<exponentBits-1 && mantissa != 0:
		return math.NaN()
	case exponent == 1<<exponentBits-1:
		v = math.Inf(1)
	case exponent == 0:
		v = math.Ldexp(mantissa, 1-bias-mantissaBits)
	default:
		v = math.Ldexp(mantissa+math.Ldexp(1, mantissaBits), exponent-bias-mantissaBits)
	}
	if code>>15 == 1 {
		v = math.Copysign(v, -1)
	}
	return v
}

func TestEveryCode(t *testing.T) {
	check := func(name string, code uint16, got float32, back uint16, want float64) {
		t.Helper()
		if math.IsNaN(want) {
			if got == got || back != 0x7FFF {
				t.Errorf("%s %#04x is %v and narrows to %#04x, want NaN and 0x7fff", name, code, got, back)
			}
		} else if math.Float64bits(float64(got)) != math.Float64bits(want) || back != code {
			t.Errorf("%s %#04x is %v and narrows to %#04x, want %v and the same code", name, code, got, back, want)
		}
	}
	for i := range 1 << 16 {
		code := uint16(i)
		f := Float16(code).Float32()
		check("float16", code, f, uint16(Float16FromFloat32(f)), value(code, 5, 10))
		b := BFloat16(code).Float32()
		check("bfloat16", code, b, uint16(BFloat16FromFloat32(b)), value(code, 8, 7))
	}
}

// The midpoint between two neighbouring codes rounds to the even code; one float step beside it
// rounds to the nearer code. For the last pair, the largest finite value and infinity, the midpoint
// lies where the next finite value would put it.
func TestRoundingBoundaries(t *testing.T) {
	midpoint := func(low uint16, exponentBits, mantissaBits int) float64 {
		here, next := value(low, exponentBits, mantissaBits), value(low+1, exponentBits, mantissaBits)
		if math.IsInf(next, 1) {
			next = 2*here - value(low-1, exponentBits, mantissaBits)
		}
		return here + (next-here)/2
	}
	for _, sign := range []uint16{0, 0x8000} {
		signed := func(x float64) float64 { return math.Copysign(x, 1-2*float64(sign>>15)) }
		check := func(name string, x float64, got, want uint16) {
			t.Helper()
			if got != want|sign {
				t.Errorf("%s of %v (%x) is %#04x, want %#04x", name, signed(x), signed(x), got, want|sign)
			}
		}
		checkFloat16 := func(x float64, want uint16) {
			t.Helper()
			if narrow := float32(signed(x)); float64(narrow) == signed(x) {
				check("float16 from float32", x, uint16(Float16FromFloat32(narrow)), want)
			}
			check("float16 from float64", x, uint16(Float16FromFloat64(signed(x))), want)
		}
		for low := range uint16(0x7C00) {
			middle := midpoint(low, 5, 10)
			checkFloat16(middle, low+low%2)
			checkFloat16(float64(math.Nextafter32(float32(middle), 0)), low)
			checkFloat16(float64(math.Nextafter32(float32(middle), math.MaxFloat32)), low+1)
			checkFloat16(math.Nextafter(middle, 0), low)
			checkFloat16(math.Nextafter(middle, math.MaxFloat64), low+1)
		}
		checkBFloat16 := func(x float32, want uint16) {
			t.Helper()
			check("bfloat16", float64(x), uint16(BFloat16FromFloat32(float32(signed(float64(x))))), want)
		}
		for low := range uint16(0x7F80) {
			middle := float32(midpoint(low, 8, 7))
			checkBFloat16(middle, low+low%2)
			checkBFloat16(math.Nextafter32(middle, 0), low)
			checkBFloat16(math.Nextafter32(middle, math.MaxFloat32), low+1)
		}
		for _, x := range []float64{65520, 65536, 65537, 100000, 131072, 1e30, math.MaxFloat64, math.Inf(1)} {
			checkFloat16(x, 0x7C00)
		}
		for _, x := range []float64{0, math.SmallestNonzeroFloat64, 0x1p-1022, math.SmallestNonzeroFloat32, 0x1p-25} {
			checkFloat16(x, 0)
		}
		checkBFloat16(math.MaxFloat32, 0x7F80)
		checkBFloat16(float32(math.Inf(1)), 0x7F80)
	}
}

func TestNaNIsCanonical(t *testing.T) {
	for _, bits := range []uint32{0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF} {
		nan := math.Float32frombits(bits)
		if f, b := Float16FromFloat32(nan), BFloat16FromFloat32(nan); f != 0x7FFF || b != 0x7FFF {
			t.Errorf("NaN %#08x is %#04x as float16 and %#04x as bfloat16, want 0x7fff", bits, f, b)
		}
	}
}

// A value above a Float16 tie by less than a float32 can represent must not be rounded onto the tie
// first.
func TestFloat64RoundsOnce(t *testing.T) {
	x := 1 + 0x1p-11 + 0x1p-40
	if got := Float16FromFloat64(x); got != 0x3C01 {
		t.Errorf("%x rounds to %#04x, want 0x3c01", x, got)
	}
	if got := Float16FromFloat32(float32(x)); got != 0x3C00 {
		t.Errorf("%x through float32 rounds to %#04x, want the tie's even neighbour 0x3c00", x, got)
	}
}

func TestDecodeFloat16(t *testing.T) {
	got := DecodeFloat16([]byte{0x00, 0x3C, 0x01, 0x80, 0x00, 0xFC, 0x77})
	if diff := cmp.Diff([]float64{1, -0x1p-24, math.Inf(-1)}, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestDecodeBFloat16(t *testing.T) {
	got := DecodeBFloat16([]byte{0x80, 0x3F, 0x01, 0x80, 0x80, 0xFF, 0x77})
	if diff := cmp.Diff([]float64{1, -0x1p-133, math.Inf(-1)}, got); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

func TestNoAllocation(t *testing.T) {
	x := float32(1)
	allocs := testing.AllocsPerRun(100, func() {
		x = Float16FromFloat32(x).Float32() + BFloat16FromFloat32(x).Float32()
	})
	if allocs != 0 {
		t.Errorf("%v allocations per conversion, want none", allocs)
	}
}

var sink uint16

func BenchmarkFloat16FromFloat32(b *testing.B) {
	values := make([]float32, 4096)
	for i := range values {
		values[i] = float32(math.Sin(float64(i)))
	}
	b.SetBytes(int64(2 * len(values)))
	for b.Loop() {
		for _, v := range values {
			sink += uint16(Float16FromFloat32(v))
		}
	}
}
