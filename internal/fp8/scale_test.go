package fp8

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDescale(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, test := range []struct {
		name   string
		values []float32
		want   float32
	}{
		{"largest magnitude", []float32{1, -896, 3}, 2},
		{"no values", nil, 1},
		{"zeros", []float32{0, float32(math.Copysign(0, -1))}, 1},
		{"non-finite values ignored", []float32{448, inf, -inf, nan}, 1},
		{"nothing finite", []float32{nan, inf}, 1},
		{"largest float32", []float32{math.MaxFloat32}, float32(math.MaxFloat32 / 448.0)},
		{"smallest amax at full precision", []float32{448 * 0x1p-126}, 0x1p-126},
		{"just below it", []float32{447 * 0x1p-126}, 0x1p-126},
		{"subnormal", []float32{math.SmallestNonzeroFloat32}, 0x1p-126},
	} {
		if got := Descale(test.values); got != test.want {
			t.Errorf("%s: descale %v, want %v", test.name, got, test.want)
		}
	}
}

func TestScaleNames(t *testing.T) {
	if got := PerHead.String() + " " + PerTensor.String(); got != "per-head per-tensor" {
		t.Errorf("names %q", got)
	}
}

// At every scale of the values, the largest is encoded as 448 and each error is at most half a unit
// in the last place of the code.
func TestQuantizeAcrossScales(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for exponent := -117; exponent <= 127; exponent++ {
		values := make([]float32, 100)
		for i := range values {
			values[i] = float32(math.Ldexp(random.Float64()*2-1, exponent))
		}
		values[17] = float32(math.Ldexp(1, exponent))
		descale := Descale(values)
		codes, back := make([]byte, len(values)), make([]float64, len(values))
		Quantize(codes, values, descale)
		Dequantize(back, codes, descale)
		if codes[17] != 0x7E {
			t.Errorf("2^%d: the largest value has code %#02x, want 0x7e (448)", exponent, codes[17])
		}
		for i, v := range values {
			x := float64(v)
			// Half a unit in the last place of a normal or a subnormal value.
			half := math.Max(math.Abs(x)/16, 0x1p-10*float64(descale))
			if off := math.Abs(back[i] - x); off > half*(1+1e-6) {
				t.Errorf("2^%d: %v comes back as %v, off by %v, more than %v", exponent, v, back[i], off, half)
			}
		}
	}
}

// Quantize rounds the exact quotient once, ties to even. The values lie next to ties, where a
// second rounding would change the code.
func TestQuantizeRoundsOnce(t *testing.T) {
	c := codecs(t)[0]
	random := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		low := uint8(random.IntN(int(c.largest)))
		middle := (c.table[low] + c.table[low+1]) / 2
		descale := float32(math.Ldexp(1+random.Float64(), random.IntN(40)-20))
		x := float32(middle * float64(descale))
		for range random.IntN(3) {
			x = math.Nextafter32(x, float32(random.IntN(2))*math.MaxFloat32)
		}
		tie := new(big.Float).SetPrec(200).Mul(big.NewFloat(middle), big.NewFloat(float64(descale)))
		want := low
		if side := big.NewFloat(float64(x)).Cmp(tie); side > 0 || side == 0 && low%2 == 1 {
			want++
		}
		var code [1]byte
		if Quantize(code[:], []float32{x}, descale); code[0] != want {
			t.Fatalf("%v / %v is encoded as %#02x, want %#02x", x, descale, code[0], want)
		}
	}
}

func TestQuantizeNonFinite(t *testing.T) {
	inf := float32(math.Inf(1))
	codes := make([]byte, 3)
	Quantize(codes, []float32{inf, -inf, float32(math.NaN())}, 2)
	if diff := cmp.Diff([]byte{0x7E, 0xFE, 0x7F}, codes); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
}

// Quantize agrees with E4M3FromFloat64 at every code and every tie, next to them, and at the ends
// of the normal, subnormal and saturated ranges, for both signs.
func TestQuantizeMatchesEncode(t *testing.T) {
	c := codecs(t)[0]
	values := []float32{0, 1e-30, 448.0001, 463, 464, 465, 1e30}
	for low := uint8(0); low < c.largest; low++ {
		values = append(values, float32(c.table[low]), float32((c.table[low]+c.table[low+1])/2))
	}
	for _, x := range values {
		values = append(values, math.Nextafter32(x, 0), math.Nextafter32(x, math.MaxFloat32))
	}
	for _, x := range values {
		values = append(values, -x)
	}
	for _, descale := range []float32{1, 0x1p-20, 0x1p+10, 0.0117} {
		scaled, codes := make([]float32, len(values)), make([]byte, len(values))
		for i, x := range values {
			scaled[i] = x * descale
		}
		Quantize(codes, scaled, descale)
		for i, x := range scaled {
			if want := byte(E4M3FromFloat64(float64(x) / float64(descale))); codes[i] != want {
				t.Errorf("%v / %v is encoded as %#02x, want %#02x", x, descale, codes[i], want)
			}
		}
	}
}

func BenchmarkQuantize(b *testing.B) {
	values, codes := make([]float32, 1<<16), make([]byte, 1<<16)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range values {
		values[i] = float32(random.NormFloat64())
	}
	descale := Descale(values)
	b.SetBytes(int64(len(values)))
	for b.Loop() {
		Quantize(codes, values, descale)
	}
}
