package array

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
)

func draw(t *testing.T, dtype DType, n int, fill string, a, b float64, seed uint64, name string) *Array {
	t.Helper()
	drawn, err := Draw(dtype, []int{n}, fill, a, b, seed, name)
	if err != nil {
		t.Fatal(err)
	}
	return drawn
}

// Recorded runs are repeated from their seeds, so these digests must never change. If one changes,
// Draw is broken; do not update the digest.
func TestDrawIsPinned(t *testing.T) {
	for _, c := range []struct {
		dtype DType
		fill  string
		a, b  float64
		want  string
	}{
		{F32, "normal", 0, 0, "3c376fac164e7f0df3ae76af74050b5e0780c6b3fa8332c51e44fb2f97504e2b"},
		{F64, "normal", 0, 0, "73295961e2781d35a7b1c74974ab64f9ebdf114789c7a4574f31abffa232f5fc"},
		{E4M3, "normal", 0, 0, "b97f5b4f406b4b6f7ab49e31d0541cd18e33f45fe7c7ff72950a2762ebd232a8"},
		{F16, "uniform", 0.5, 1.5, "b2b1459347edaa41a52919c881a25738c65f9d16398fd20806e904abb93828df"},
		{BF16, "integers", -8, 8, "40fb6ab4c76a587defa68c7833c113f63bcac2fd601752025b8437f8c41e10a5"},
		{I32, "integers", -100, 1000, "e24a723888399b043ac7140b333975524113b53b4ebecd4d5485658d263d85d8"},
		{U64, "integers", 0, 0x1p64, "a5b1bdcb75a5388f0ba3d0486728d1ac151e12692550a60d5d4a74c182f251ad"},
		{F32, "iota", 0, 0, "9428f069e7c942bf3661ca70f98aa3090d47d79d8f458885ea306a6503dea0d3"},
	} {
		drawn := draw(t, c.dtype, 200_000, c.fill, c.a, c.b, 3, "x")
		if got := fmt.Sprintf("%x", sha256.Sum256(drawn.Data)); got != c.want {
			t.Errorf("%s %s: digest %s, want %s", c.dtype, c.fill, got, c.want)
		}
	}
}

func TestDrawDependsOnSeedAndNameOnly(t *testing.T) {
	const n = 150_000
	want := draw(t, F32, n, "normal", 0, 0, 1, "x")
	for _, cores := range []int{1, 3} {
		before := runtime.GOMAXPROCS(cores)
		got := draw(t, F32, n, "normal", 0, 0, 1, "x")
		runtime.GOMAXPROCS(before)
		if !bytes.Equal(got.Data, want.Data) || got.Name != "x" {
			t.Errorf("with %d cores the values differ", cores)
		}
	}
	other := draw(t, F32, n, "normal", 0, 0, 1, "y")
	next := draw(t, F32, n, "normal", 0, 0, 2, "x")
	block := want.Data[4*drawBlock:][:4096]
	if bytes.Equal(other.Data, want.Data) || bytes.Equal(next.Data, want.Data) || bytes.Equal(block, want.Data[:4096]) {
		t.Error("the values do not depend on the name, the seed and the block")
	}
}

func TestDrawDistributions(t *testing.T) {
	const n = 100_000
	for _, c := range []struct {
		dtype                    DType
		fill                     string
		a, b                     float64
		mean, deviation, low, up float64
	}{
		{F32, "normal", 0, 0, 0, 1, -6, 6},
		{F64, "normal", 0, 0, 0, 1, -6, 6},
		{F64, "uniform", -1, 3, 1, 4 / math.Sqrt(12), -1, 3},
		{F16, "uniform", 2, 2, 2, 0, 2, 2},
		{I8, "integers", -128, 128, -0.5, 256 / math.Sqrt(12), -128, 127},
		{U32, "integers", 5, 6, 5, 0, 5, 5},
		{F32, "integers", -2, 2, -0.5, math.Sqrt(1.25), -2, 1},
		{F32, "zeros", 0, 0, 0, 0, 0, 0},
		{I64, "ones", 0, 0, 1, 0, 1, 1},
		{E5M2, "ones", 0, 0, 1, 0, 1, 1},
	} {
		values := draw(t, c.dtype, n, c.fill, c.a, c.b, 0, "x").Floats()
		sum, squares := 0.0, 0.0
		for _, x := range values {
			sum += x
			squares += (x - c.mean) * (x - c.mean)
		}
		mean, deviation := sum/n, math.Sqrt(squares/n)
		if slack := 5 * c.deviation / math.Sqrt(n); math.Abs(mean-c.mean) > slack || math.Abs(deviation-c.deviation) > slack {
			t.Errorf("%s %s: mean %g, deviation %g; want %g and %g", c.dtype, c.fill, mean, deviation, c.mean, c.deviation)
		}
		if low, up := slices.Min(values), slices.Max(values); low < c.low || up > c.up {
			t.Errorf("%s %s: %g to %g; want %g to %g", c.dtype, c.fill, low, up, c.low, c.up)
		}
	}
}

func TestDrawIota(t *testing.T) {
	for _, dtype := range []DType{F64, F32, I32, U32, I64, U64} {
		values := draw(t, dtype, 70_000, "iota", 0, 0, 0, "x").Floats()
		for i, x := range values {
			if x != float64(i) {
				t.Fatalf("%s: element %d is %g", dtype, i, x)
			}
		}
	}
	if got := draw(t, U8, 256, "iota", 0, 0, 0, "x").Ints(); got[255] != 255 {
		t.Errorf("u8 ends with %d", got[255])
	}
}

// Offsets begin and end at the two numbers, do not decrease, and depend on the seed.
func TestDrawOffsets(t *testing.T) {
	for _, dtype := range []DType{I8, I32, U32, I64, U64} {
		values := draw(t, dtype, 70_000, "offsets", 3, 100, 0, "x").Ints()
		if values[0] != 3 || values[len(values)-1] != 100 || !slices.IsSorted(values) {
			t.Errorf("%s: from %d to %d, sorted %v", dtype, values[0], values[len(values)-1], slices.IsSorted(values))
		}
		if distinct := len(slices.Compact(values)); distinct != 98 {
			t.Errorf("%s: %d numbers of 98", dtype, distinct)
		}
	}
	if a, b := draw(t, I32, 9, "offsets", -50, 50, 0, "x"), draw(t, I32, 9, "offsets", -50, 50, 1, "x"); bytes.Equal(a.Data, b.Data) {
		t.Error("two seeds have the same offsets")
	}
	if got := draw(t, I32, 1, "offsets", 2, 5, 0, "x").Ints(); got[0] != 5 {
		t.Errorf("a single offset is %d", got[0])
	}
	if got := draw(t, I32, 0, "offsets", 2, 5, 0, "x").Ints(); len(got) != 0 {
		t.Errorf("no offsets are %v", got)
	}
}

// A range of all integers of 64 bits reaches both ends.
func TestDrawWholeRange(t *testing.T) {
	for dtype, limits := range map[DType][2]float64{I64: {-0x1p63, 0x1p63}, U64: {0, 0x1p64}} {
		values := draw(t, dtype, 10_000, "integers", limits[0], limits[1], 0, "x").Floats()
		width := limits[1] - limits[0]
		if low, up := slices.Min(values), slices.Max(values); low > limits[0]+width/100 || up < limits[1]-width/100 {
			t.Errorf("%s: %g to %g", dtype, low, up)
		}
	}
}

// The values of F64 have bits below those of float32.
func TestDrawF64HasAllBits(t *testing.T) {
	for _, x := range draw(t, F64, 100, "normal", 0, 0, 0, "x").Floats() {
		if x == float64(float32(x)) {
			t.Errorf("%v is a float32", x)
		}
	}
}

func TestDrawRefuses(t *testing.T) {
	for _, c := range []struct {
		dtype DType
		shape []int
		fill  string
		a, b  float64
		want  string
	}{
		{"f8", []int{1}, "normal", 0, 0, `unknown type "f8"; there are f64, f32, f16, bf16, e4m3, e5m2, i8, u8, i32, u32, i64, u64`},
		{F32, []int{1}, "gauss", 0, 0, `unknown fill "gauss"; there are normal, uniform, zeros, ones, iota, integers, offsets`},
		{F32, []int{-1}, "normal", 0, 0, "the shape [-1] is no size of an array"},
		{F32, []int{1 << 31, 1 << 31}, "normal", 0, 0, "the shape [2147483648 2147483648] is no size of an array"},
		{I32, []int{1}, "normal", 0, 0, "normal draws real numbers, and i32 is an integer type; use integers(a, b)"},
		{F16, []int{1}, "uniform", 0, 1e5, "uniform(0, 100000) is no range of f16"},
		{F32, []int{1}, "uniform", 1, 0, "uniform(1, 0) is no range of f32"},
		{F64, []int{1}, "uniform", nan, 0, "uniform(NaN, 0) is no range of f64"},
		{F64, []int{1}, "uniform", -1.7e308, 1.7e308, "uniform(-1.7e+308, 1.7e+308) is no range of f64"},
		{U8, []int{257}, "iota", 0, 0, "iota of 257 elements exceeds u8, whose largest value is 255; use integers(a, b)"},
		{F16, []int{65536}, "iota", 0, 0, "iota of 65536 elements exceeds f16, whose largest value is 65504; use integers(a, b)"},
		{F32, []int{2}, "offsets", 0, 1, "offsets are integers, and f32 is a floating-point type"},
		{I32, []int{2}, "offsets", 2, 1, "offsets(2, 1): want two integers, the first not above the second"},
		{I32, []int{2}, "offsets", 0, 1.5, "offsets(0, 1.5): want two integers, the first not above the second"},
		{I8, []int{2}, "offsets", 0, 128, "offsets(0, 128) exceeds i8, which has -128 to 127"},
		{U64, []int{2}, "offsets", 0, 0x1p60, "offsets(0, 1152921504606846976) exceeds u64, which has 0 to 9007199254740992"},
		{I32, []int{1}, "integers", 1, 1, "integers(1, 1): want two integers, the first below the second"},
		{I32, []int{1}, "integers", 0.5, 2, "integers(0.5, 2): want two integers, the first below the second"},
		{I8, []int{1}, "integers", -129, 2, "integers(-129, 2) exceeds i8, which has -128 to 127"},
		{U8, []int{1}, "integers", 0, 257, "integers(0, 257) exceeds u8, which has 0 to 255"},
		{F16, []int{1}, "integers", 0, 70000, "integers(0, 70000) exceeds f16, which has -65504 to 65504"},
	} {
		if _, err := Draw(c.dtype, c.shape, c.fill, c.a, c.b, 0, "x"); err == nil || err.Error() != c.want {
			t.Errorf("%v; want %s", err, c.want)
		}
	}
	if empty := draw(t, F32, 0, "iota", 0, 0, 0, "x"); empty.Len() != 0 {
		t.Errorf("an empty array has %d elements", empty.Len())
	}
}
