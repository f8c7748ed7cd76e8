//go:build linux || darwin

package sdpa

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"attune/internal/device"
	"attune/internal/tensor"
)

// openGPU opens the first GPU, or skips the test.
func openGPU(t *testing.T) *Device {
	t.Helper()
	d, err := GPU(0)
	if errors.Is(err, ErrNoGPU) || errors.Is(err, ErrUnsupported) {
		t.Skip(err) // it says what there is instead
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// On a GPU host and device tensors give the bits that the lab gives, and the CPU agrees.
func TestForwardOnGPU(t *testing.T) {
	d := openGPU(t)
	t.Log(d.Name())
	run := func(job device.Job) (*device.Outcome, error) { return device.Run(d.gpu.(*gpu).machine, job) }
	for _, text := range []string{
		"1x1x32x64", "1x8x512x64", "2x8x300x128:kv=1000:causal", "1x32x2048x128:kvheads=8:causal", "2x4x257x256:kv=513",
		"2x16x4096x64",
	} {
		shape, err := tensor.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		in := tensor.Draw(shape, 2, tensor.Options{})
		q, k, v := labTensors(in)
		p := Problem{Causal: shape.Causal}
		want := labOutput(t, d, run, in)
		checkDevice(t, d, text, q, k, v, p, want)
		if shape.FLOPs() > 1e10 {
			continue
		}
		o := &Tensor{DType: FP16, Shape: q.Shape, Data: want}
		got := floats(t, o)
		forward(t, p, q, k, v, o)
		// P in E4M3 costs up to 2^-4 of a value, less where many keys share the weight.
		near(t, text, got, widened(floats(t, o)), 0.3)
	}
}

// A GPU reports what it does not support, and serves several goroutines.
func TestErrorsOnGPU(t *testing.T) {
	d := openGPU(t)
	q, k, v, o := randomInputs(t, tensor.Shape{Batch: 1, Heads: 2, SeqQ: 64, SeqK: 64, HeadDim: 64}, E4M3, FP16)
	if err := Forward(t.Context(), d, Problem{QueryLengths: []int{9}}, q, k, v, o); !errors.Is(err, ErrUnsupported) {
		t.Errorf("lengths of queries: %v", err)
	}
	if err := Forward(t.Context(), d, Problem{QueryLengths: []int{9}, Fallback: true}, q, k, v, o); err != nil {
		t.Errorf("lengths of queries with a fallback: %v", err)
	}
	if _, err := GPU(99); !errors.Is(err, ErrNoGPU) || !strings.Contains(err.Error(), "cuda:99") {
		t.Errorf("GPU 99: %v", err)
	}
	if _, err := d.Alloc(FP32, [4]int{1 << 4, 1 << 8, 1 << 8, 1 << 8}); err != nil {
		t.Errorf("1 GB: %v", err)
	}
	other, err := CPU().Upload(q)
	if err != nil {
		t.Fatal(err)
	}
	if err := Forward(t.Context(), d, Problem{}, other, k, v, o); err == nil || !strings.Contains(err.Error(), "q is on another device") {
		t.Errorf("a tensor of the CPU: %v", err)
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			out := o.clone()
			for range 20 {
				if err := Forward(t.Context(), d, Problem{}, q, k, v, out); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// The time of a call, for the documentation.
func TestTimeOnGPU(t *testing.T) {
	d := openGPU(t)
	q, k, v, o := randomInputs(t, tensor.Shape{Batch: 1, Heads: 8, SeqQ: 2048, SeqK: 2048, HeadDim: 64}, E4M3, FP16)
	var remote [4]*DeviceTensor
	for i, x := range []*Tensor{q, k, v, o} {
		var err error
		if remote[i], err = d.Upload(x); err != nil {
			t.Fatal(err)
		}
	}
	for name, x := range map[string][4]Operand{"host": {q, k, v, o}, "device": {remote[0], remote[1], remote[2], remote[3]}} {
		const calls = 200
		var start time.Time
		for i := range calls + 10 {
			if i == 10 {
				start = time.Now()
			}
			if err := Forward(t.Context(), d, Problem{}, x[0], x[1], x[2], x[3]); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("1x8x2048x64, %s tensors: %.1f us a call", name, time.Since(start).Seconds()/calls*1e6)
	}
}
