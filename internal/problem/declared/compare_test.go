package declared

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"attune/internal/array"
	"attune/internal/problem"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

var inf, nan = math.Inf(1), math.NaN()

// given is the reference of one output, with values that a reference returned.
func given(t *testing.T, dtype array.DType, tolerance *spec.OutputTolerance, right *array.Array) (*reference, problem.Build, error) {
	t.Helper()
	p := load(t, strings.ReplaceAll(scale, `"f32"`, `"`+string(dtype)+`"`), map[string]string{"reference.py": ""})
	if tolerance != nil {
		p.Declaration.Tolerance = map[string]spec.OutputTolerance{"y": *tolerance}
	}
	refs := p.References(problem.Options{}).(*references)
	w, err := newWanted(p.Args[1], p.tolerance(p.Args[1]), []int{2, 3}, right)
	if err != nil {
		return nil, problem.Build{}, err
	}
	i := p.instance(0)
	b, err := p.buffers(p.defaults(i.Shape), i.Shape)
	if err != nil {
		t.Fatal(err)
	}
	arrays, err := refs.arrays(i, b)
	if err != nil {
		t.Fatal(err)
	}
	ref := &reference{refs, t.Context(), i, map[string]*answer{b.key(): {arrays: arrays, want: []*wanted{nil, w, nil}}}}
	return ref, problem.Build{Variant: p.kernel.Stages[0].Variant(), Image: &toolchain.Image{}}, nil
}

func TestCompareFloats(t *testing.T) {
	loose := &spec.OutputTolerance{Abs: 0.1, Rel: 0.01, Given: true}
	for _, c := range []struct {
		name      string
		dtype     array.DType
		tolerance *spec.OutputTolerance
		want, got []float64
		wrong     string // of Judge; empty for a right output
	}{
		{"equal", array.F32, nil, []float64{1, 2, 3, 4, 5, 6}, []float64{1, 2, 3, 4, 5, 6}, ""},
		{"one rounding", array.F16, nil, []float64{1 + 0x1p-12, 2, 3, 4, 5, 6}, []float64{1, 2, 3, 4, 5, 6}, ""},
		{
			"two roundings", array.F16, nil,
			[]float64{1, 2, 3, 4, 5, 6},
			[]float64{1, 2, 3, 4 + 0x1p-8, 5, 6},
			"y: 1 of 6 elements are bad (0 allowed), the worst y[1, 0]: got 4.00390625, want 4, tolerance 0.00195; y has no [tolerance]: the default is one rounding to f16 (rel 5e-04)",
		},
		{"NaN and infinities", array.F32, nil, []float64{nan, inf, -inf, 0, 0, 0}, []float64{nan, inf, -inf, 0, 0, 0}, ""},
		{"all NaN", array.F32, nil, []float64{nan, nan, nan, nan, nan, nan}, []float64{nan, nan, nan, nan, nan, nan}, ""},
		{"overflow", array.F16, nil, []float64{1e6, -1e6, 65519, 0, 0, 0}, []float64{inf, -inf, 65504, 0, 0, 0}, ""},
		{"overflow with a tolerance", array.F16, loose, []float64{1e6, 0, 0, 0, 0, 0}, []float64{inf, 0, 0, 0, 0, 0}, ""},
		{"saturation", array.E4M3, nil, []float64{500, -1e9, 0, 0, 0, 0}, []float64{448, -448, 0, 0, 0, 0}, ""},
		{"wrong overflow", array.F16, loose, []float64{100, 0, 0, 0, 0, 0}, []float64{inf, 0, 0, 0, 0, 0}, "y: 1 of 6 elements are bad (0 allowed), 1 of them not finite (0 allowed), the first y[0, 0]: got +Inf, want 100"},
		{"NaN of the kernel", array.F32, loose, []float64{1, 2, 3, 4, 5, 6}, []float64{1, 2, nan, 4, nan, 6}, "y: 2 of 6 elements are bad (0 allowed), 2 of them not finite (0 allowed), the first y[0, 2]: got NaN, want 3"},
		// The tolerance of an infinite element is infinite; it must not excuse the output.
		{"infinity of the reference", array.F32, loose, []float64{inf, -inf, inf, 0, 0, 0}, []float64{0, inf, inf, 0, 0, 0}, "y: 2 of 6 elements are bad (0 allowed), 2 of them not finite (0 allowed), the first y[0, 0]: got 0, want +Inf"},
		{"infinity of the reference, rel 0", array.F32, &spec.OutputTolerance{Abs: 1, Given: true}, []float64{inf, 0, 0, 0, 0, 0}, []float64{inf, 0, 0, 0, 0, 0}, ""},
		{"infinite tolerance", array.F64, &spec.OutputTolerance{Rel: 10, Given: true}, []float64{1e308, 1e308, 0, 0, 0, 0}, []float64{inf, -1e308, 0, 0, 0, 0}, "y: 1 of 6 elements are bad (0 allowed), 1 of them not finite (0 allowed), the first y[0, 0]: got +Inf, want 1e+308"},
		{"infinite error", array.F64, loose, []float64{1.5e308, 0, 0, 0, 0, 0}, []float64{-1.5e308, 0, 0, 0, 0, 0}, "y: 1 of 6 elements are bad (0 allowed), the worst y[0, 0]: got -1.5e+308, want 1.5e+308, tolerance 1.5e+306"},
		{"saturated infinity", array.E4M3, nil, []float64{inf, 0, 0, 0, 0, 0}, []float64{448, 0, 0, 0, 0, 0}, ""},
		// bad_fraction does not excuse NaN.
		{"NaN within the share", array.F32, &spec.OutputTolerance{BadFraction: 0.5, Given: true}, []float64{1, 2, 3, 4, 5, 6}, []float64{1, 2, nan, 4, 5, 6}, "y: 1 of 6 elements are bad (3 allowed), 1 of them not finite (0 allowed), the first y[0, 2]: got NaN, want 3"},
		// The element with the largest error is within its tolerance; the bad one is named.
		{"the worst", array.F32, loose, []float64{1000, 1, 0, 0, 0, 0}, []float64{1005, 2, 0, 0, 0, 0}, "y: 1 of 6 elements are bad (0 allowed), the worst y[0, 1]: got 2, want 1, tolerance 0.11"},
		{"a share", array.F32, &spec.OutputTolerance{BadFraction: 0.34, Given: true}, []float64{1, 2, 3, 4, 5, 6}, []float64{2, 3, 3, 4, 5, 6}, ""},
		{
			"over the share", array.F32, &spec.OutputTolerance{BadFraction: 0.34, Given: true},
			[]float64{1, 2, 3, 4, 5, 6},
			[]float64{2, 3, 6, 4, 5, 6},
			"y: 3 of 6 elements are bad (2 allowed), the worst y[0, 2]: got 6, want 3, tolerance 0",
		},
		{"integers with a tolerance", array.I32, &spec.OutputTolerance{Abs: 1, Given: true}, []float64{1.5, 2, 3, 4, 5, 6}, []float64{1, 3, 3, 4, 5, 6}, ""},
		{"large values", array.F64, loose, []float64{1e300, 1e300, 0, 0, 0, 0}, []float64{1e300, 1e300, 0, 0, 0, 0}, ""},
	} {
		ref, b, err := given(t, c.dtype, c.tolerance, array.FromFloats(array.F64, []int{2, 3}, c.want))
		if err != nil {
			t.Fatal(err)
		}
		result, err := ref.Compare(b, [][]byte{array.FromFloats(c.dtype, []int{2, 3}, c.got).Data})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, figure := range []float64{result.MaxErr, result.MeanErr, result.Cosine, result.BadFraction, result.Worst.Got, result.Worst.Want} {
			if math.IsNaN(figure) || math.IsInf(figure, 0) {
				t.Errorf("%s: %+v is no JSON", c.name, result.Errors)
			}
		}
		limits, wrong := ref.Judge(b, result, 1)
		if text := strings.Join(wrong, "\n"); text != c.wrong {
			t.Errorf("%s: %q; want %q", c.name, text, c.wrong)
		}
		if got := limits.Outputs["y"]; c.tolerance != nil && got.Abs != c.tolerance.Abs || len(result.Outputs) != 1 || result.Outputs[0].Name != "y" {
			t.Errorf("%s: limits %+v, outputs %+v", c.name, limits, result.Outputs)
		}
	}
}

// A NaN of the reference where the kernel has a number says nothing about the kernel.
func TestNaNOfTheReference(t *testing.T) {
	ref, b, err := given(t, array.F32, nil, array.FromFloats(array.F64, []int{2, 3}, []float64{0, 0, 0, 0, 0, nan}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = ref.Compare(b, [][]byte{array.FromFloats(array.F32, []int{2, 3}, []float64{0, 0, 0, 0, 0, 0.25}).Data})
	const want = "reference.py: returned NaN for y[1, 2], where the kernel has 0.25"
	if known := new(*problem.ReferenceError); !errors.As(err, known) || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// ints is an array of six integers.
func ints(dtype array.DType, values ...int64) *array.Array {
	a := &array.Array{Type: dtype, Shape: []int{2, 3}}
	for _, x := range values {
		data := make([]byte, 8)
		for i := range data {
			data[i] = byte(x >> (8 * i))
		}
		a.Data = append(a.Data, data[:dtype.Bytes()]...)
	}
	return a
}

// A tolerance of integers is exact where float64 is not.
func TestIntegersWithATolerance(t *testing.T) {
	const big = 1 << 53 // the next integer is no float64
	for _, c := range []struct {
		name      string
		dtype     array.DType
		abs, rel  float64
		want, got int64
		wrong     string
	}{
		{"one apart", array.I64, 0.5, 0, big, big + 1, "got 9007199254740993, want 9007199254740992, tolerance 0.5"},
		{"one allowed", array.I64, 1, 0, big, big + 1, ""},
		{"two of one", array.U64, 1, 0, big + 1, big + 3, "got 9007199254740995, want 9007199254740993, tolerance 1"},
		{"below the tolerance", array.I64, 10, 0, big + 1, big + 3, ""},
		{"relative", array.I64, 0, 0x1p-53, -big, -big - 1, ""},
		{"relative, one more", array.I64, 0, 0x1p-53, -big, -big - 2, "got -9007199254740994, want -9007199254740992, tolerance 1"},
		// The bound is 3 + 2^-52, too near to 3 for float64.
		{"just below", array.U64, 3, 0x1p-116, -1, -4, ""},
		{"u64", array.U64, 1, 0, -1, -3, "got 18446744073709551613, want 18446744073709551615, tolerance 1"},
		{"the whole range", array.I64, 0x1p63, 0, math.MinInt64, math.MaxInt64, "got 9223372036854775807, want -9223372036854775808, tolerance 9.22e+18"},
	} {
		right := array.I64
		if c.dtype == array.U64 {
			right = array.U64
		}
		ref, b, err := given(t, c.dtype, &spec.OutputTolerance{Abs: c.abs, Rel: c.rel, Given: true}, ints(right, c.want, 0, 0, 0, 0, 0))
		if err != nil {
			t.Fatal(err)
		}
		result, err := ref.Compare(b, [][]byte{ints(c.dtype, c.got, 0, 0, 0, 0, 0).Data})
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if c.wrong != "" {
			want = "y: 1 of 6 elements are bad (0 allowed), the worst y[0, 0]: " + c.wrong
		}
		if _, wrong := ref.Judge(b, result, 1); strings.Join(wrong, "\n") != want {
			t.Errorf("%s: %q; want %q", c.name, wrong, want)
		}
	}
	// A right value that the type cannot hold saturates, as a float does.
	ref, b, err := given(t, array.U8, &spec.OutputTolerance{Abs: 1, Given: true}, ints(array.I64, 300, -1, 0, 0, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	if result, err := ref.Compare(b, [][]byte{{255, 0, 0, 0, 0, 0}}); err != nil || result.Bad > 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestCompareIntegers(t *testing.T) {
	const big = 1<<62 + 1
	for _, c := range []struct {
		name   string
		dtype  array.DType
		right  *array.Array
		got    *array.Array
		wrong  string // of Judge, or the error of the reference
		maxErr float64
	}{
		{"equal", array.I8, ints(array.I64, -128, 127, 0, 0, 0, 0), ints(array.I8, -128, 127, 0, 0, 0, 0), "", 0},
		{"floats", array.I32, array.FromFloats(array.F64, []int{2, 3}, []float64{-5, 7, 0, 0, 0, 0}), ints(array.I32, -5, 7, 0, 0, 0, 0), "", 0},
		{"beyond 2^53", array.I64, ints(array.I64, big, 0, 0, 0, 0, 0), ints(array.I64, big-1, 0, 0, 0, 0, 0), "y: 1 of 6 elements are bad (0 allowed), the worst y[0, 0]: got 4611686018427387904, want 4611686018427387905, tolerance 0", 1},
		{"the largest", array.U64, ints(array.U64, -1, 0, 0, 0, 0, 0), ints(array.U64, -1, 0, 0, 0, 0, 0), "", 0},
		{"far apart", array.U64, ints(array.U64, -1, 0, 0, 0, 0, 0), ints(array.U64, 0, 0, 0, 0, 0, 0), "y: 1 of 6 elements are bad (0 allowed), the worst y[0, 0]: got 0, want 18446744073709551615, tolerance 0", 0x1p64},
		{"signs", array.I64, ints(array.I64, math.MinInt64, 0, 0, 0, 0, 0), ints(array.I64, math.MaxInt64, 0, 0, 0, 0, 0), "y: 1 of 6 elements are bad (0 allowed), the worst y[0, 0]: got 9223372036854775807, want -9223372036854775808, tolerance 0", 0x1p64},
		{"2^63", array.U64, array.FromFloats(array.F64, []int{2, 3}, []float64{0x1p63, 0, 0, 0, 0, 0}), ints(array.U64, math.MinInt64, 0, 0, 0, 0, 0), "", 0},
		{"too large", array.U8, ints(array.I64, 0, 256, 0, 0, 0, 0), nil, "returned 256 for y[0, 1], out of the range 0 to 255 of u8; give y a [tolerance], or return what the kernel must store", 0},
		{"negative", array.U8, ints(array.I64, 0, -1, 0, 0, 0, 0), nil, "returned -1 for y[0, 1], out of the range 0 to 255 of u8; give y a [tolerance], or return what the kernel must store", 0},
		{"2^63 of i64", array.I64, ints(array.U64, math.MinInt64, 0, 0, 0, 0, 0), nil, "returned 9223372036854775808 for y[0, 0], out of the range -9223372036854775808 to 9223372036854775807 of i64; give y a [tolerance], or return what the kernel must store", 0},
		{"a fraction", array.I32, array.FromFloats(array.F64, []int{2, 3}, []float64{0, 0, 2.5, 0, 0, 0}), nil, "returned 2.5 for y[0, 2], which is no i32; give y a [tolerance], or return integers", 0},
		{"an infinity", array.I32, array.FromFloats(array.F64, []int{2, 3}, []float64{0, 0, inf, 0, 0, 0}), nil, "returned +Inf for y[0, 2], which is no i32; give y a [tolerance], or return integers", 0},
		{"NaN", array.I32, array.FromFloats(array.F64, []int{2, 3}, []float64{0, 0, nan, 0, 0, 0}), nil, "returned NaN for y[0, 2], which is no i32; give y a [tolerance], or return integers", 0},
		{"2^64", array.U64, array.FromFloats(array.F64, []int{2, 3}, []float64{0x1p64, 0, 0, 0, 0, 0}), nil, "returned 1.8446744073709552e+19 for y[0, 0], out of the range 0 to 18446744073709551615 of u64; give y a [tolerance], or return what the kernel must store", 0},
		{"2^63 of i64 as a float", array.I64, array.FromFloats(array.F64, []int{2, 3}, []float64{0x1p63, 0, 0, 0, 0, 0}), nil, "returned 9.223372036854776e+18 for y[0, 0], out of the range -9223372036854775808 to 9223372036854775807 of i64; give y a [tolerance], or return what the kernel must store", 0},
	} {
		ref, b, err := given(t, c.dtype, nil, c.right)
		if err != nil {
			if err.Error() != c.wrong {
				t.Errorf("%s: %v; want %s", c.name, err, c.wrong)
			}
			continue
		}
		result, err := ref.Compare(b, [][]byte{c.got.Data})
		if err != nil {
			t.Fatal(err)
		}
		_, wrong := ref.Judge(b, result, 1)
		if text := strings.Join(wrong, "\n"); text != c.wrong || result.MaxErr != c.maxErr {
			t.Errorf("%s: %s, %g; want %s, %g", c.name, text, result.MaxErr, c.wrong, c.maxErr)
		}
		values := c.got.Floats()
		if peer, err := ref.CompareValues(map[string][]float64{"y": values}); err != nil || (peer.Bad > 0) != (c.maxErr > 1) {
			t.Errorf("%s: a peer with the same values has %+v, %v", c.name, peer, err)
		} else if _, wrong := ref.Judge(problem.Build{}, peer, 1); (len(wrong) > 0) != (peer.Bad > 0) {
			t.Errorf("%s: a peer is judged as %q", c.name, wrong)
		}
	}
}

func TestPeerWithoutAnOutput(t *testing.T) {
	ref, _, err := given(t, array.F32, nil, array.FromFloats(array.F64, []int{2, 3}, make([]float64, 6)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ref.CompareValues(nil); err == nil || err.Error() != "it has 0 elements of y; want 6" {
		t.Error(err)
	}
	data := ref.Peer()
	if data.Axes["rows"] != 2 || data.Axes["n"] != 3 || len(data.Arrays) != 1 || len(data.Outputs) != 1 || data.Outputs[0].Name != "y" || !slices.Equal(data.Outputs[0].Shape, []int{2, 3}) {
		t.Errorf("%+v", data)
	}
	if c := ref.Coverage(); c.Rows != 6 || !c.Whole() || ref.InputCost() != nil || ref.Instance().Seed != 0 {
		t.Errorf("%v", c)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	_, _ = ref.Compare(problem.Build{Variant: ref.refs.kernel.Stages[0].Variant()}, nil)
}
