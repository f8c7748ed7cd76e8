package fp8

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// codec is a format under test together with a table of its values from an independent source.
type codec struct {
	name     string
	table    [256]float64
	largest  uint8 // code of the largest finite value
	encode   func(float32) uint8
	encode64 func(float64) uint8
	decode   func(uint8) float32
}

func codecs(t testing.TB) []codec {
	t.Helper()
	return []codec{
		{
			name: "e4m3", table: readTable(t, "e4m3.txt"), largest: 0x7E,
			encode:   func(x float32) uint8 { return uint8(E4M3FromFloat32(x)) },
			encode64: func(x float64) uint8 { return uint8(E4M3FromFloat64(x)) },
			decode:   func(c uint8) float32 { return E4M3(c).Float32() },
		},
		{
			name: "e5m2", table: readTable(t, "e5m2.txt"), largest: 0x7B,
			encode:   func(x float32) uint8 { return uint8(E5M2FromFloat32(x)) },
			encode64: func(x float64) uint8 { return uint8(E5M2FromFloat64(x)) },
			decode:   func(c uint8) float32 { return E5M2(c).Float32() },
		},
	}
}

func readTable(t testing.TB, name string) (table [256]float64) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	seen := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		code, value, _ := strings.Cut(lines.Text(), " ")
		c, err := strconv.ParseUint(code, 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		if table[c], err = strconv.ParseFloat(value, 64); err != nil {
			t.Fatal(err)
		}
		seen++
	}
	if seen != 256 {
		t.Fatalf("%s has %d codes, want 256", name, seen)
	}
	return table
}

// nearest rounds by definition: it searches all finite codes and takes the even one on a tie.
func (c codec) nearest(x float64) uint8 {
	if math.IsNaN(x) {
		return 0x7F
	}
	best, bestDistance := uint8(0), math.Inf(1)
	for code := uint8(0); code <= c.largest; code++ {
		distance := math.Abs(math.Min(math.Abs(x), c.table[c.largest]) - c.table[code])
		if distance < bestDistance || distance == bestDistance && code%2 == 0 {
			best, bestDistance = code, distance
		}
	}
	if math.Signbit(x) {
		best |= 0x80
	}
	return best
}

func TestDecodeEveryCode(t *testing.T) {
	for _, c := range codecs(t) {
		for code := range 256 {
			got, want := float64(c.decode(uint8(code))), c.table[code]
			if math.IsNaN(want) != math.IsNaN(got) ||
				!math.IsNaN(want) && math.Float64bits(got) != math.Float64bits(want) {
				t.Errorf("%s: code %#02x decodes to %v, want %v", c.name, code, got, want)
			}
		}
	}
}

func TestEncodeEveryValue(t *testing.T) {
	for _, c := range codecs(t) {
		for code := range 256 {
			value, want := c.table[code], uint8(code)
			switch {
			case math.IsNaN(value):
				want = 0x7F
			case math.IsInf(value, 0):
				want = c.largest | uint8(code)&0x80
			}
			if got := c.encode(float32(value)); got != want {
				t.Errorf("%s: %v is encoded as %#02x, want %#02x", c.name, value, got, want)
			}
		}
	}
}

// The midpoint between two neighbouring codes rounds to the even code; one float step beside it
// rounds to the nearer code.
func TestRoundingBoundaries(t *testing.T) {
	for _, c := range codecs(t) {
		for _, sign := range []uint8{0, 0x80} {
			check := func(x float64, want uint8) {
				t.Helper()
				x = math.Copysign(x, 1-2*float64(sign>>7))
				if float64(float32(x)) == x {
					if got := c.encode(float32(x)); got != want|sign {
						t.Errorf("%s: float32 %v is encoded as %#02x, want %#02x", c.name, x, got, want|sign)
					}
				}
				if got := c.encode64(x); got != want|sign {
					t.Errorf("%s: float64 %v is encoded as %#02x, want %#02x", c.name, x, got, want|sign)
				}
			}
			for low := uint8(0); low < c.largest; low++ {
				middle := (c.table[low] + c.table[low+1]) / 2
				check(middle, low+low%2)
				check(float64(math.Nextafter32(float32(middle), 0)), low)
				check(float64(math.Nextafter32(float32(middle), math.MaxFloat32)), low+1)
				check(math.Nextafter(middle, 0), low)
				check(math.Nextafter(middle, math.MaxFloat64), low+1)
			}
			beyond := c.table[c.largest] + (c.table[c.largest]-c.table[c.largest-1])/2
			for _, x := range []float64{
				c.table[c.largest], math.Nextafter(c.table[c.largest], math.Inf(1)), beyond,
				float64(math.Nextafter32(float32(beyond), math.MaxFloat32)), 2 * beyond,
				math.MaxFloat32, math.MaxFloat64, math.Inf(1),
			} {
				check(x, c.largest)
			}
			for _, x := range []float64{0, math.SmallestNonzeroFloat32, math.SmallestNonzeroFloat64, 0x1p-126, 0x1p-1022} {
				check(x, 0)
			}
		}
		for _, nan := range []uint32{0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF} {
			if got := c.encode(math.Float32frombits(nan)); got != 0x7F {
				t.Errorf("%s: the NaN %#08x is encoded as %#02x, want 0x7f", c.name, nan, got)
			}
		}
	}
}

func TestEncodingIsMonotonic(t *testing.T) {
	for _, c := range codecs(t) {
		previous := math.Inf(-1)
		// Every 4099th float32 from -Inf to +Inf. 4099 is prime, so that no bit pattern repeats.
		for step := int64(-0x7F800000); step <= 0x7F800000; step += 4099 {
			x := math.Float32frombits(uint32(max(step, -step)))
			if step < 0 {
				x = -x
			}
			value := float64(c.decode(c.encode(x)))
			if value < previous {
				t.Fatalf("%s: %v is encoded as %v, less than the code of a smaller value, %v", c.name, x, value, previous)
			}
			previous = value
		}
	}
}

func FuzzEncodeNearest(f *testing.F) {
	for _, x := range []float64{0, 0.40625, 12.9, -17, 464, 61440, 0x1p-10, 0x1.8p-9, math.Inf(-1), math.NaN()} {
		f.Add(math.Float64bits(x))
	}
	all := codecs(f)
	f.Fuzz(func(t *testing.T, bits uint64) {
		// The value itself, and the value folded into the range where codes are dense.
		x := math.Float64frombits(bits)
		folded := math.Ldexp(math.Float64frombits(bits&(1<<52-1)|1023<<52), int(bits>>52)%40-20)
		for _, c := range all {
			for _, x := range []float64{x, folded, -folded} {
				if got, want := c.encode64(x), c.nearest(x); got != want {
					t.Errorf("%s: float64 %v (%x) is encoded as %#02x, want %#02x", c.name, x, x, got, want)
				}
				narrow := float32(x)
				if got, want := c.encode(narrow), c.nearest(float64(narrow)); got != want {
					t.Errorf("%s: float32 %v (%x) is encoded as %#02x, want %#02x", c.name, narrow, narrow, got, want)
				}
			}
		}
	})
}

// 0.40625 is encoded as 0x2D and 12.9 as 0x55, by the definition of the format in the PTX ISA.
func Example() {
	fmt.Printf("%#x %#x %v\n", E4M3FromFloat32(0.40625), E4M3FromFloat32(12.9), E4M3(0x55).Float32())
	// Output: 0x2d 0x55 13
}

var sink uint8

func BenchmarkE4M3FromFloat32(b *testing.B) {
	values := make([]float32, 4096)
	for i := range values {
		values[i] = float32(math.Sin(float64(i)) * 400)
	}
	b.SetBytes(int64(len(values)))
	for b.Loop() {
		for _, v := range values {
			sink += uint8(E4M3FromFloat32(v))
		}
	}
}
