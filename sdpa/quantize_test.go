package sdpa

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/tensor"
)

// reference runs the reference of the kernel quantize on three tensors and writes its outputs.
const reference = `
import sys
sys.path.insert(0, "../kernels/quantize")
import numpy as np
from reference import reference
folder, batch, heads, kv, rows, keys, dim, smooth, hadamard = sys.argv[1], *map(int, sys.argv[2:])
inputs = {}
for name, shape in (("q", (batch, heads, rows, dim)), ("k", (batch, kv, keys, dim)), ("v", (batch, kv, keys, dim))):
    inputs[name] = np.fromfile(folder + "/" + name, np.float16).reshape(shape)
out = reference({"bshd": 0, "dim": dim, "bf16": 0, "smooth": smooth, "hadamard": hadamard, "mean": 1, "copies": 1}, inputs)
for name, x in out.items():
    np.asarray(x, np.float32).tofile(folder + "/" + name)
`

// Codes, factors and means are those of the kernel's reference, bit for bit.
func TestQuantizeAgainstReference(t *testing.T) {
	python := "python3"
	if p := os.Getenv("ATTUNE_PYTHON"); p != "" {
		python = p
	}
	if out, err := exec.Command(python, "-c", "import numpy").CombinedOutput(); err != nil {
		t.Skipf("no Python with numpy: %v %s", err, out)
	}
	shape := tensor.Shape{Batch: 2, Heads: 4, KVHeads: 2, SeqQ: 9, SeqK: 33, HeadDim: 16}
	for _, steps := range []Steps{{}, {SmoothK: true}, {Hadamard: true}, {SmoothK: true, Hadamard: true}} {
		q, k, v, _ := randomInputs(t, shape, FP16, FP16)
		for i := range v.Data[:66] { // a head of zeros, but for infinities and NaN
			v.Data[i] = 0
		}
		if !steps.Hadamard && !steps.SmoothK {
			copy(v.Data[100:], []byte{0, 0x7C, 0, 0xFC, 1, 0x7C})
		}
		folder := t.TempDir()
		for name, x := range map[string]*Tensor{"q": q, "k": k, "v": v} {
			if err := os.WriteFile(filepath.Join(folder, name), x.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		flag := map[bool]string{false: "0", true: "1"}
		cmd := exec.Command(python, "-W", "ignore", "-c", reference, folder, "2", "4", "2", "9", "33", "16", flag[steps.SmoothK], flag[steps.Hadamard])
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		mean := make([]float32, 2*2*16)
		for name, x := range map[string]*Tensor{"q": q, "k": k, "v": v} {
			own := Steps{Hadamard: steps.Hadamard && name != "v", SmoothK: steps.SmoothK && name == "k"}
			if name == "k" {
				own.Mean = mean
			}
			y, err := Quantize(x, own)
			if err != nil {
				t.Fatal(err)
			}
			codes := make([]float32, len(y.Data))
			vectors.widen(codes, y.Data, E4M3)
			same(t, fmt.Sprintf("%+v %s", own, name), codes, readFloats(t, folder, "y_"+name))
			same(t, fmt.Sprintf("%+v descale of %s", own, name), y.Descale, readFloats(t, folder, "descale_"+name))
		}
		same(t, "mean_k", mean, readFloats(t, folder, "mean_k"))
	}
}

func readFloats(t *testing.T, folder, name string) []float32 {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, len(data)/4)
	widenGo(values, data, FP32)
	return values
}

func same(t *testing.T, name string, got, want []float32) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(a, b float32) bool { return a == b || a != a && b != b }) {
		t.Errorf("%s:\n%v, want\n%v", name, got, want)
	}
}

// Neither step changes attention by more than the quantisation costs, and both reduce that cost for
// keys with an offset and an outlier. The means correct the log-sum-exp.
func TestQuantizeSteps(t *testing.T) {
	shape := tensor.Shape{Batch: 1, Heads: 2, SeqQ: 40, SeqK: 60, HeadDim: 32}
	q, k, v, o := randomInputs(t, shape, FP32, FP32)
	values := floats(t, k)
	for i := range values {
		values[i] += float32(20 * (i % 32 % 3))
		if i%32 == 5 {
			values[i] *= 2
		}
	}
	vectors.narrow(k.Data, values, FP32)
	exact := Problem{LSE: make([]float32, shape.Rows())}
	want := forward(t, exact, q, k, v, o)
	cost := func(s Steps) (float64, []float32) {
		qs, err := Quantize(q, Steps{Hadamard: s.Hadamard})
		if err != nil {
			t.Fatal(err)
		}
		ks, err := Quantize(k, s)
		if err != nil {
			t.Fatal(err)
		}
		vs, err := Quantize(v, Steps{})
		if err != nil {
			t.Fatal(err)
		}
		p := Problem{LSE: make([]float32, shape.Rows())}
		worst := 0.0
		for i, x := range forward(t, p, qs, ks, vs, o) {
			worst = max(worst, math.Abs(float64(x-want[i])))
		}
		return worst, p.LSE
	}
	plain, _ := cost(Steps{})
	mean := make([]float32, 2*32)
	smooth, lse := cost(Steps{SmoothK: true, Hadamard: true, Mean: mean})
	if smooth > plain/2 {
		t.Errorf("the error is %v, and %v without steps", smooth, plain)
	}
	queries := floats(t, q)
	for row, x := range lse {
		shift := 0.0
		for d := range 32 {
			shift += float64(queries[row*32+d]) * float64(mean[row/40*32+d]) / math.Sqrt(32)
		}
		if got := float64(x) + shift; math.Abs(got-float64(exact.LSE[row])) > 1.5 {
			t.Fatalf("row %d: the log-sum-exp is %v, want %v", row, got, exact.LSE[row])
		}
	}
}

// A quantised tensor may be quantised again, with the same values.
func TestQuantizeTwice(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 9))
	x := randomTensor(t, random, BF16, [4]int{2, 3, 8, 8})
	once, err := Quantize(x, Steps{})
	if err != nil {
		t.Fatal(err)
	}
	twice, err := Quantize(once, Steps{})
	if err != nil || !bytes.Equal(once.Data, twice.Data) {
		t.Errorf("other codes (%v)", err)
	}
}

func TestQuantizeErrors(t *testing.T) {
	x := randomTensor(t, rand.New(rand.NewPCG(1, 1)), FP16, [4]int{1, 2, 3, 12})
	for want, f := range map[string]func() (*Tensor, error){
		"tensor is nil":                      func() (*Tensor, error) { return Quantize(nil, Steps{}) },
		"power of two; it is 12":             func() (*Tensor, error) { return Quantize(x, Steps{Hadamard: true}) },
		"Mean has 23 elements":               func() (*Tensor, error) { return Quantize(x, Steps{Mean: make([]float32, 23)}) },
		"71 values; the shape [1 2 3 12]":    func() (*Tensor, error) { return FromFloat32(FP16, x.Shape, make([]float32, 71)) },
		"new tensor: the dtype is DType(77)": func() (*Tensor, error) { return FromFloat32(77, x.Shape, nil) },
	} {
		if _, err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := (&Tensor{}).Float32s(); err == nil {
		t.Error("Float32s of no tensor is no error")
	}
	if DType(0).Bytes() != 0 || DType(9).String() != "DType(9)" {
		t.Error("an unknown format has a size or a name")
	}
}
