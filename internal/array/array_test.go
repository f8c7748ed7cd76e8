package array

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
)

var inf, nan = math.Inf(1), math.NaN()

// equalFloats compares values, where NaN equals NaN and -0 differs from 0.
func equalFloats(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool {
		return x != x && y != y || math.Float64bits(x) == math.Float64bits(y)
	})
}

func TestFromFloatsRounds(t *testing.T) {
	for _, c := range []struct {
		dtype     DType
		in, want  []float64
		wantBytes []byte
	}{
		{F64, []float64{1.0000000000000002, math.Copysign(0, -1), nan, -inf}, []float64{1.0000000000000002, math.Copysign(0, -1), nan, -inf}, nil},
		{F32, []float64{1 + 0x1p-24, 1 + 0x1.8p-23, 1e300, nan}, []float64{1, 1 + 0x1p-22, inf, nan}, nil},
		{F16, []float64{1 + 0x1p-11, 65519, 65520, -inf, 0x1p-25}, []float64{1, 65504, inf, -inf, 0}, nil},
		// A rounding to float32 and a second one to BF16 would give 1 for the first.
		{BF16, []float64{1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8, -(1 + 0x1.8p-7 - 0x1p-40), 1e300, nan, 0x1p-134}, []float64{1 + 0x1p-7, 1, -(1 + 0x1p-7), inf, nan, 0}, nil},
		{E4M3, []float64{448, 500, -inf, 1.0625, nan, 0x1p-10}, []float64{448, 448, -448, 1, nan, 0}, nil},
		{E5M2, []float64{57344, 1e9, inf, -inf, 1.125, nan}, []float64{57344, 57344, inf, -inf, 1, nan}, nil},
		{I8, []float64{-129, 127.5, 0.5, 1.5, nan, -3}, []float64{-128, 127, 0, 2, 0, -3}, nil},
		{U8, []float64{-1, 256, 7}, []float64{0, 255, 7}, nil},
		{I32, []float64{-0x1p31, 0x1p31, -5}, []float64{-0x1p31, 0x1p31 - 1, -5}, []byte{0, 0, 0, 0x80, 0xff, 0xff, 0xff, 0x7f, 0xfb, 0xff, 0xff, 0xff}},
		{U32, []float64{0x1p32, 0x1p31}, []float64{0x1p32 - 1, 0x1p31}, nil},
		{I64, []float64{-0x1p63, -inf, inf, 12}, []float64{-0x1p63, -0x1p63, 0x1p63, 12}, nil},
		{U64, []float64{0x1p63, inf, 12}, []float64{0x1p63, 0x1p64, 12}, nil},
	} {
		a := FromFloats(c.dtype, []int{len(c.in)}, c.in)
		if got := a.Floats(); !equalFloats(got, c.want) || a.Len() != len(c.in) || len(a.Data) != len(c.in)*c.dtype.Bytes() {
			t.Errorf("%s of %v is %v; want %v", c.dtype, c.in, got, c.want)
		}
		if c.wantBytes != nil && !bytes.Equal(a.Data, c.wantBytes) {
			t.Errorf("%s of %v is %x; want %x", c.dtype, c.in, a.Data, c.wantBytes)
		}
	}
}

// Every code of the small formats survives decoding and encoding, but for the payload of a NaN.
func TestCodesSurvive(t *testing.T) {
	for _, dtype := range []DType{F16, BF16, E4M3, E5M2, I8, U8} {
		codes := make([]byte, 0, 1<<17)
		for code := range 1 << (8 * dtype.Bytes()) {
			codes = append(codes, []byte{byte(code), byte(code >> 8)}[:dtype.Bytes()]...)
		}
		a := &Array{Type: dtype, Shape: []int{len(codes) / dtype.Bytes()}, Data: codes}
		values := a.Floats()
		back := FromFloats(dtype, a.Shape, values)
		for i, x := range values {
			if n := dtype.Bytes(); x == x && !bytes.Equal(back.Data[n*i:][:n], codes[n*i:][:n]) {
				t.Errorf("%s %x is %v and becomes %x", dtype, codes[n*i:][:n], x, back.Data[n*i:][:n])
			}
		}
	}
}

func TestInts(t *testing.T) {
	for dtype, want := range map[DType][]int64{
		I8: {-1, 127}, U8: {255, 127}, I32: {-1, 0x7fffffff}, U32: {0xffffffff, 0x7fffffff},
		I64: {-1, math.MaxInt64}, U64: {-1, math.MaxInt64},
	} {
		data := bytes.Repeat([]byte{0xff}, 2*dtype.Bytes())
		data[len(data)-1] = 0x7f
		if got := (&Array{Type: dtype, Shape: []int{2}, Data: data}).Ints(); !slices.Equal(got, want) {
			t.Errorf("%s is %v; want %v", dtype, got, want)
		}
	}
}

func TestScalar(t *testing.T) {
	for _, c := range []struct {
		dtype   DType
		real    float64
		integer int64
		want    string // or the error
	}{
		{F64, 1.5, 0, "\x00\x00\x00\x00\x00\x00\xf8\x3f"},
		{F32, 1e-5, 7, "\xac\xc5\x27\x37"},
		{F32, 3.4028235e38, 0, "\xff\xff\x7f\x7f"},
		{F32, inf, 0, "\x00\x00\x80\x7f"},
		{F32, 1e39, 0, "1e+39 does not fit f32, whose largest value is 3.4028234663852886e+38"},
		{F16, 65520, 0, "65520 does not fit f16, whose largest value is 65504"},
		{BF16, -2, 0, "\x00\xc0"},
		{E4M3, 448, 0, "\x7e"},
		{E4M3, 449, 0, "449 does not fit e4m3, whose largest value is 448"},
		{E4M3, inf, 0, "+Inf does not fit e4m3, whose largest value is 448"},
		{E4M3, nan, 0, "\x7f"},
		{E5M2, inf, 0, "\x7c"},
		{E5M2, 60000, 0, "60000 does not fit e5m2, whose largest value is 57344"},
		{I8, 0, -128, "\x80"},
		{I8, 0, 128, "128 does not fit i8, which has -128 to 127"},
		{U8, 0, 255, "\xff"},
		{U8, 0, -1, "-1 does not fit u8, which has 0 to 255"},
		{I32, 0, -2, "\xfe\xff\xff\xff"},
		{U32, 0, 1 << 32, "4294967296 does not fit u32, which has 0 to 4294967295"},
		{I64, 0, math.MinInt64, "\x00\x00\x00\x00\x00\x00\x00\x80"},
		{U64, 0, math.MaxInt64, "\xff\xff\xff\xff\xff\xff\xff\x7f"},
	} {
		got, err := Scalar(c.dtype, c.real, c.integer)
		if err != nil && err.Error() != c.want || err == nil && string(got) != c.want {
			t.Errorf("%s of %g or %d is %q, %v; want %q", c.dtype, c.real, c.integer, got, err, c.want)
		}
	}
}

func TestConvert(t *testing.T) {
	reals := FromFloats(F64, []int{2, 1}, []float64{1 + 0x1p-8 + 0x1p-40, -2})
	for _, dtype := range []DType{F64, F32, F16, BF16, E4M3, E5M2} {
		want := FromFloats(dtype, reals.Shape, reals.Floats())
		if got, err := reals.Convert(dtype); err != nil || !bytes.Equal(got.Data, want.Data) || got.Type != dtype || !slices.Equal(got.Shape, want.Shape) {
			t.Errorf("as %s: %v, %v; want %v", dtype, got, err, want)
		}
	}
	codes := &Array{Type: U8, Shape: []int{1, 2}, Data: []byte{0x80, 0x3f}}
	if got, err := codes.Convert(E4M3); err != nil || !slices.Equal(got.Floats(), []float64{math.Copysign(0, -1), 0x1.ep0}) {
		t.Errorf("the codes are %v, %v", got, err)
	}
	if got, err := codes.Convert(BF16); err != nil || !slices.Equal(got.Floats(), []float64{1}) || !slices.Equal(got.Shape, []int{1}) || codes.Type != U8 {
		t.Errorf("the bits of a bf16 are %v, %v", got, err)
	}
	for dtype, want := range map[DType]string{
		F16: "its elements are u8, not f16; save the array as f16 or f32",
		I32: "its elements are u8, not i32; save the array as i32",
	} {
		if _, err := codes.Convert(dtype); err == nil || err.Error() != want {
			t.Errorf("to %s: %v", dtype, err)
		}
	}
	for dtype, want := range map[DType]string{BF16: "save the array as f32, or its bits as uint16", E4M3: "save the array as f32, or its bits as uint8"} {
		if _, err := (&Array{Type: I32, Shape: []int{1}, Data: make([]byte, 4)}).Convert(dtype); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("to %s: %v", dtype, err)
		}
	}
}
