package sdpa

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"attune/internal/tensor"
)

func small(t *testing.T) (q, k, v, o *Tensor) {
	t.Helper()
	return randomInputs(t, tensor.Shape{Batch: 2, Heads: 4, KVHeads: 2, SeqQ: 5, SeqK: 7, HeadDim: 8}, E4M3, FP16)
}

// Every wrong argument is an error that names it.
func TestForwardErrors(t *testing.T) {
	nan := math.NaN()
	type arguments struct{ q, k, v, o *Tensor }
	for _, test := range []struct {
		name   string
		break_ func(p *Problem, a *arguments)
		want   string
	}{
		{"nil q", func(_ *Problem, a *arguments) { a.q = nil }, "q is nil"},
		{"nil o", func(_ *Problem, a *arguments) { a.o = nil }, "o is nil"},
		{"no dtype", func(_ *Problem, a *arguments) { a.k.DType = 0 }, "k: the dtype is DType(0); want E4M3"},
		{"an extent of 0", func(_ *Problem, a *arguments) { a.v.Shape[2] = 0 }, "v: the shape [2 2 0 8] has rows 0; want 1 to"},
		{"a negative extent", func(_ *Problem, a *arguments) { a.q.Shape[0] = -1 }, "q: the shape [-1 4 5 8] has batch -1"},
		{"a huge shape", func(_ *Problem, a *arguments) { a.q.Shape = [4]int{1 << 20, 1 << 20, 1, 1} }, "more than 2^31 elements"},
		{"short data", func(_ *Problem, a *arguments) { a.v.Data = a.v.Data[1:] }, "v has 223 bytes of data; E4M3 of the shape [2 2 7 8] has 224"},
		{"k of another dtype", func(_ *Problem, a *arguments) { a.k.DType, a.k.Descale, a.k.Data = FP16, nil, make([]byte, 448) }, "k is FP16 and q is E4M3"},
		{"E4M3 output", func(_ *Problem, a *arguments) { a.o.DType, a.o.Data = E4M3, a.o.Data[:320] }, "o is E4M3; an output is FP16"},
		{"another batch", func(_ *Problem, a *arguments) { a.k.Shape, a.k.Descale = [4]int{1, 4, 7, 8}, nil }, "k has the shape [1 4 7 8] and q [2 4 5 8]"},
		{"another head dim", func(_ *Problem, a *arguments) { a.k.Shape = [4]int{2, 2, 8, 7} }, "batch and head dim must agree"},
		{"v unlike k", func(_ *Problem, a *arguments) { a.v.Shape = [4]int{2, 2, 8, 7} }, "v has the shape [2 2 8 7] and k [2 2 7 8]"},
		{"o unlike q", func(_ *Problem, a *arguments) { a.o.Shape = [4]int{2, 5, 4, 8} }, "o has the shape [2 5 4 8] and q [2 4 5 8]"},
		{
			"heads that do not divide", func(_ *Problem, a *arguments) {
				for _, x := range []*Tensor{a.k, a.v} {
					*x = Tensor{DType: E4M3, Shape: [4]int{2, 3, 1, 8}, Data: make([]byte, 48)}
				}
			}, "k and v have 3 heads, which do not divide the 4 heads of q",
		},
		{
			"a huge head dim", func(_ *Problem, a *arguments) {
				for _, x := range []**Tensor{&a.q, &a.k, &a.v, &a.o} {
					*x = &Tensor{DType: FP16, Shape: [4]int{1, 1, 1, 16385}, Data: make([]byte, 2*16385)}
				}
			}, "the head dim is 16385; want at most 16384",
		},
		{"few factors", func(_ *Problem, a *arguments) { a.q.Descale = a.q.Descale[:7] }, "q has 7 descale factors; 2 batches of 4 heads have 8"},
		{"a negative factor", func(_ *Problem, a *arguments) { a.k.Descale[1] = -1 }, "k: descale factor 1 is -1"},
		{"factors of an FP16 tensor", func(_ *Problem, a *arguments) { a.o.Descale = make([]float32, 8) }, "o is FP16 and has descale factors"},
		{"a negative scale", func(p *Problem, _ *arguments) { p.Scale = -1 }, "Scale is -1"},
		{"NaN as scale", func(p *Problem, _ *arguments) { p.Scale = nan }, "Scale is NaN"},
		{"a negative softcap", func(p *Problem, _ *arguments) { p.Softcap = -1 }, "Softcap is -1; want a positive number"},
		{"NaN as softcap", func(p *Problem, _ *arguments) { p.Softcap = nan }, "Softcap is NaN"},
		{"a softcap beyond float32", func(p *Problem, _ *arguments) { p.Softcap = 1e39 }, "Softcap is 1e+39"},
		{"few slopes", func(p *Problem, _ *arguments) { p.AlibiSlopes = make([]float32, 3) }, "AlibiSlopes has 3 slopes; want one for each of 4 heads, or for each of 4 heads of 2 sequences"},
		{"NaN as slope", func(p *Problem, _ *arguments) { p.AlibiSlopes = []float32{0, 0, 0, float32(nan)} }, "slope 3 of AlibiSlopes is NaN; want a finite number"},
		{"an infinite slope", func(p *Problem, _ *arguments) { p.AlibiSlopes = []float32{float32(math.Inf(-1)), 0, 0, 0} }, "slope 0 of AlibiSlopes is -Inf"},
		{"few words of a tree", func(p *Problem, _ *arguments) { p.TreeMask = make([]uint64, 1) }, "TreeMask has 1 words; q has "},
		{"a causal tree", func(p *Problem, _ *arguments) { p.Causal, p.TreeMask = true, []uint64{1} }, "TreeMask with Causal or Window"},
		{"a tree in a window", func(p *Problem, _ *arguments) { p.Window, p.TreeMask = &Window{-1, 3}, []uint64{1} }, "TreeMask with Causal or Window"},
		{"few sinks", func(p *Problem, _ *arguments) { p.Sinks = make([]float32, 2) }, "Sinks has 2 logits; q has 4 heads"},
		{"NaN as sink", func(p *Problem, _ *arguments) { p.Sinks = []float32{0, 0, float32(nan), 0} }, "sink 2 is NaN"},
		{"few lengths", func(p *Problem, _ *arguments) { p.KeyLengths = []int{1} }, "KeyLengths has 1 lengths; the batch has 2 sequences"},
		{"a long length", func(p *Problem, _ *arguments) { p.QueryLengths = []int{5, 6} }, "length 1 of QueryLengths is 6; want 0 to 5"},
		{"a negative length", func(p *Problem, _ *arguments) { p.KeyLengths = []int{-1, 6} }, "length 0 of KeyLengths is -1; want 0 to 7"},
		{"a precision that does not exist", func(p *Problem, _ *arguments) { p.Precision = 3 }, "Precision is 3; want PrecisionAuto, PrecisionFP8 or Precision16"},
		{"16 bits of E4M3", func(p *Problem, _ *arguments) { p.Precision = Precision16 }, "Precision is Precision16, q E4M3 and k E4M3"},
		{"short LSE", func(p *Problem, _ *arguments) { p.LSE = make([]float32, 39) }, "LSE has 39 elements; 2 batches of 4 heads and 5 queries have 40"},
	} {
		var p Problem
		var a arguments
		a.q, a.k, a.v, a.o = small(t)
		test.break_(&p, &a)
		err := Forward(t.Context(), CPU(), p, a.q, a.k, a.v, a.o)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "sdpa: ") {
			t.Errorf("%s: error %v, want %q", test.name, err, test.want)
		}
	}
}

// A nil argument is an error too, in each of its forms.
func TestForwardNil(t *testing.T) {
	q, k, v, o := small(t)
	var none context.Context
	if err := Forward(none, CPU(), Problem{}, q, k, v, o); err == nil || !strings.Contains(err.Error(), "ctx is nil") {
		t.Errorf("no context: %v", err)
	}
	if err := Forward(t.Context(), nil, Problem{}, q, k, v, o); err == nil || !strings.Contains(err.Error(), "dev is nil") {
		t.Errorf("no device: %v", err)
	}
	if err := Forward(t.Context(), CPU(), Problem{}, q, nil, v, o); err == nil || !strings.Contains(err.Error(), "k is nil") {
		t.Errorf("a nil interface: %v", err)
	}
	if err := Forward(t.Context(), CPU(), Problem{}, q, (*DeviceTensor)(nil), v, o); err == nil || !strings.Contains(err.Error(), "k is nil") {
		t.Errorf("a nil device tensor: %v", err)
	}
}

// A tensor of another device, a freed one and a closed device are errors.
func TestDeviceErrors(t *testing.T) {
	one, other := CPU(), CPU()
	q, k, v, o := small(t)
	x, err := one.Upload(q)
	if err != nil {
		t.Fatal(err)
	}
	if err := Forward(t.Context(), other, Problem{}, x, k, v, o); err == nil || !strings.Contains(err.Error(), "q is on another device") {
		t.Errorf("a tensor of another device: %v", err)
	}
	if err := Forward(t.Context(), one, Problem{}, x, k, v, o); err != nil {
		t.Error(err)
	}
	if x.DType() != E4M3 || x.Shape() != q.Shape {
		t.Errorf("the device tensor is %s %v", x.DType(), x.Shape())
	}
	for range 2 {
		if err := x.Free(); err != nil {
			t.Error(err)
		}
	}
	if err := Forward(t.Context(), one, Problem{}, x, k, v, o); !errors.Is(err, ErrClosed) {
		t.Errorf("a freed tensor: %v", err)
	}
	if _, err := x.Download(); !errors.Is(err, ErrClosed) {
		t.Errorf("Download of a freed tensor: %v", err)
	}
	kept, err := one.Upload(q)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := one.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := Forward(t.Context(), one, Problem{}, q, k, v, o); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed device: %v", err)
	}
	if err := one.Supports(Problem{}, q, k, v, o); !errors.Is(err, ErrClosed) {
		t.Errorf("Supports of a closed device: %v", err)
	}
	_, uploadErr := one.Upload(q)
	_, downloadErr := kept.Download()
	if !errors.Is(uploadErr, ErrClosed) || !errors.Is(downloadErr, ErrClosed) || kept.Free() != nil {
		t.Errorf("after Close: %v, %v", uploadErr, downloadErr)
	}
	var none *DeviceTensor
	if _, err := none.Download(); err == nil || none.Free() != nil {
		t.Error("a nil device tensor")
	}
	if _, err := other.Upload(nil); err == nil {
		t.Error("Upload of nil is no error")
	}
	if _, err := other.Alloc(FP16, [4]int{1, 0, 1, 1}); err == nil || !strings.Contains(err.Error(), "heads 0") {
		t.Errorf("Alloc of nothing: %v", err)
	}
	if err := other.Supports(Problem{}, q, k, v, o); err != nil {
		t.Errorf("the CPU supports everything, but: %v", err)
	}
}

// Device tensors on the CPU are copies: the host's may change, and the output is downloaded.
func TestDeviceTensorsOnCPU(t *testing.T) {
	d := CPU()
	q, k, v, o := small(t)
	want := forward(t, Problem{Causal: true}, q, k, v, o)
	var remote [3]*DeviceTensor
	for i, x := range []*Tensor{q, k, v} {
		var err error
		if remote[i], err = d.Upload(x); err != nil {
			t.Fatal(err)
		}
		clear(x.Data)
	}
	on, err := d.Alloc(FP16, q.Shape)
	if err != nil {
		t.Fatal(err)
	}
	if err := Forward(t.Context(), d, Problem{Causal: true}, remote[0], remote[1], remote[2], on); err != nil {
		t.Fatal(err)
	}
	got, err := on.Download()
	if err != nil {
		t.Fatal(err)
	}
	near(t, "o", floats(t, got), widened(want), 0)
}

// A device serves several goroutines, and Close waits for them.
func TestConcurrentCalls(t *testing.T) {
	d := CPU()
	q, k, v, o := small(t)
	want := forward(t, Problem{}, q, k, v, o)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			out := o.clone()
			for range 25 {
				if err := Forward(t.Context(), d, Problem{}, q, k, v, out); err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}
			if got, err := out.Float32s(); err != nil || len(got) != len(want) {
				t.Error(err)
			}
		})
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	group.Wait()
}

// No arguments make Forward panic, and whatever it accepts it computes.
func FuzzForward(f *testing.F) {
	f.Add(1, 2, 1, 3, 4, 8, uint8(1), uint8(2), 3, -1, 2, 3, 0.5, uint8(0))
	f.Add(2, 4, 2, 30, 50, 64, uint8(4), uint8(4), 0, 0, 9, 9, 0.0, uint8(1))
	f.Add(2, 4, 2, 30, 50, 64, uint8(4), uint8(4), 0, 0, 9, 9, 0.3, uint8(25))
	f.Add(2, 4, 2, 30, 50, 64, uint8(4), uint8(4), -1, -1, 9, 9, 0.3, uint8(96))
	f.Add(1<<24, 1<<24, 3, -5, 0, 1, uint8(0), uint8(9), math.MaxInt, math.MinInt, -1, math.MaxInt, math.NaN(), uint8(7))
	f.Fuzz(func(t *testing.T, batch, heads, kvHeads, queries, keys, dim int, in, out uint8,
		left, right, queryLength, keyLength int, scale float64, options uint8,
	) {
		make4 := func(dtype DType, shape [4]int) *Tensor {
			x := &Tensor{DType: dtype, Shape: shape}
			if n, err := checkShape(dtype, shape); err == nil && n < 1<<16 {
				x.Data = make([]byte, n*dtype.Bytes())
				for i := range x.Data {
					x.Data[i] = byte(i * 37 % 251)
				}
			}
			return x
		}
		kv := [4]int{batch, kvHeads, keys, dim}
		q, k, v := make4(DType(in), [4]int{batch, heads, queries, dim}), make4(DType(in), kv), make4(DType(in), kv)
		o := make4(DType(out), q.Shape)
		p := Problem{Causal: options&1 > 0, Scale: scale}
		if options&2 > 0 {
			p.Window = &Window{left, right}
		}
		if options&4 > 0 {
			p.QueryLengths, p.KeyLengths = []int{queryLength}, []int{keyLength}
		}
		if options&8 > 0 {
			p.LSE = make([]float32, max(0, min(heads, 1<<8)*min(queries, 1<<8)))
			p.Sinks = []float32{float32(scale)}
		}
		if options&16 > 0 {
			p.Softcap = scale
		}
		if options&32 > 0 {
			p.AlibiSlopes = slices.Repeat([]float32{float32(scale)}, max(0, min(heads, 1<<8)))
		}
		if options&64 > 0 {
			p.TreeMask = slices.Repeat([]uint64{math.Float64bits(scale)}, max(0, min(batch, 1<<4)*min(queries, 1<<8)))
		}
		if err := Forward(t.Context(), CPU(), p, q, k, v, o); err != nil && !strings.HasPrefix(err.Error(), "sdpa: ") {
			t.Errorf("error %v", err)
		}
	})
}

// An output that is an input too would be read after it is written.
func TestSharedOutput(t *testing.T) {
	q, k, v, o := randomInputs(t, tensor.Shape{Batch: 1, Heads: 2, SeqQ: 9, SeqK: 9, HeadDim: 16}, FP32, FP32)
	for name, x := range map[string]*Tensor{"q": q, "k": k, "v": v} {
		want := fmt.Sprintf("sdpa: o shares memory with %s; it is written while %s is read", name, name)
		if err := Forward(t.Context(), CPU(), Problem{}, q, k, v, x); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if err := Forward(t.Context(), CPU(), Problem{}, q, q, q, o); err != nil {
		t.Errorf("inputs may share memory: %v", err)
	}
}

// The usual `defer dev.Close()` before the error is looked at does no harm.
func TestNilDevice(t *testing.T) {
	var dev *Device
	if dev.Name() != "" || dev.Close() != nil {
		t.Error("a nil device has a name, or an error of Close")
	}
}
