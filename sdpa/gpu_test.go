//go:build linux || darwin

package sdpa

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/device/sim"
	"attune/internal/form"
	"attune/internal/problem"
	"attune/internal/problem/attention"
	"attune/internal/tensor"
	"attune/internal/tensormap"
)

// simMachine is a GPU whose memory is a map and whose kernels run on the simulator.
type simMachine struct {
	facts  device.Facts
	memory map[device.Address][]byte
	next   device.Address
	copies int // bytes that were written
	writes int
	// failWrite is the number of a write that fails.
	failWrite int
	closed    bool
	launches  []string         // entry functions
	fail      map[string]error // by operation
}

func newSimMachine() *simMachine {
	facts := sim.Open(sim.Options{}).Facts()
	facts.Name, facts.Arch = "simulated H200", "sm_90"
	return &simMachine{facts: facts, memory: map[device.Address][]byte{}, next: 1 << 20, fail: map[string]error{}}
}

func (m *simMachine) Facts() device.Facts { return m.facts }

type simFunction struct{ image []byte }

func (simFunction) Attributes() (device.Attributes, error) { return device.Attributes{}, nil }

func (m *simMachine) Load(image []byte, _ string) (device.Function, error) {
	return simFunction{image}, m.fail["load"]
}

func (m *simMachine) Alloc(size int) (device.Address, error) {
	if err := m.fail["alloc"]; err != nil {
		return 0, err
	}
	m.next += 1 << 30
	m.memory[m.next] = make([]byte, size)
	return m.next, nil
}

func (m *simMachine) Free(a device.Address) error {
	if m.memory[a] == nil {
		return fmt.Errorf("%#x is not allocated", a)
	}
	delete(m.memory, a)
	return m.fail["free"]
}

// at is a part of a buffer.
func (m *simMachine) at(a device.Address, bytes int) []byte {
	const apart = 1 << 30 // as Alloc leaves between buffers
	base := a - a%apart + (1<<20)%apart
	return m.memory[base][a-base:][:bytes]
}

func (m *simMachine) Write(to device.Address, data []byte) error {
	m.copies += len(data)
	m.writes++
	copy(m.at(to, len(data)), data)
	if m.writes == m.failWrite {
		return errors.New("this write fails")
	}
	return m.fail["write"]
}

func (m *simMachine) Read(data []byte, from device.Address) error {
	copy(data, m.memory[from][:len(data)])
	return m.fail["read"]
}

func (m *simMachine) EncodeTensorMap(*tensormap.Map, device.Address) ([]byte, error) {
	return make([]byte, tensormap.Bytes), m.fail["map"]
}

func (m *simMachine) Launch(f device.Function, job *device.Job, args [][]byte) error {
	if err := m.fail["launch"]; err != nil {
		return err
	}
	run := *job
	run.Image = f.(simFunction).image
	run.Args = nil
	var buffers [][]byte
	for i, arg := range job.Args {
		if arg.IsBuffer() {
			memory := m.at(device.Address(binary.LittleEndian.Uint64(args[i])), arg.BufferBytes())
			buffers = append(buffers, memory)
			arg = device.Arg{Name: arg.Name, InOut: memory}
		}
		run.Args = append(run.Args, arg)
	}
	m.launches = append(m.launches, job.Entry)
	outcome, err := sim.Open(sim.Options{Schedules: 1}).Run(context.Background(), run)
	if err != nil {
		return err
	}
	for i, memory := range buffers {
		copy(memory, outcome.Outputs[i])
	}
	if len(outcome.Findings) > 0 {
		return fmt.Errorf("the simulator reports %+v", outcome.Findings)
	}
	return nil
}

func (m *simMachine) Close() error {
	m.closed = true
	return m.fail["close"]
}

// openSim opens a simulated GPU.
func openSim(t *testing.T) (*Device, *simMachine) {
	t.Helper()
	m := newSimMachine()
	d, err := newGPU(m)
	if err != nil {
		t.Fatal(err)
	}
	return d, m
}

// labOutput is what the lab computes for inputs.
func labOutput(t *testing.T, d *Device, run func(device.Job) (*device.Outcome, error), in *tensor.Inputs) []byte {
	t.Helper()
	g, s := d.gpu.(*gpu), in.Shape
	plan, err := g.table.Plan(form.Problem{
		Batch: s.Batch, Heads: s.Heads, KVHeads: s.Heads / s.Group(), Queries: s.SeqQ, Keys: s.SeqK, HeadDim: s.HeadDim, Causal: s.Causal, WindowLeft: -1, WindowRight: -1,
		Q: form.Tensor{Type: array.E4M3}, K: form.Tensor{Type: array.E4M3}, V: form.Tensor{Type: array.E4M3}, O: form.Tensor{Type: array.F16},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := g.load(t.Context(), plan.Form)
	if err != nil || l.Kernel != form.DenseKernel {
		t.Fatalf("the form of %s is %s, error %v", s, plan.Form.Variant(), err)
	}
	outcome, err := run(attention.Job(problem.Build{Image: l.Image, Code: l.Image.PTX}, g.machine.Facts(), in))
	if err != nil {
		t.Fatal(err)
	}
	return outcome.Outputs[0]
}

// Host tensors and device tensors give the bits that the lab gives for the same inputs.
func TestGPUOnSimulator(t *testing.T) {
	d, m := openSim(t)
	run := func(job device.Job) (*device.Outcome, error) {
		return sim.Open(sim.Options{Schedules: 1}).Run(t.Context(), job)
	}
	for _, text := range []string{"1x2x33x64", "1x4x20x64:kv=70:kvheads=2:causal", "1x1x20x128:kv=40", "1x1x70x256:causal"} {
		shape, err := tensor.ParseShape(text)
		if err != nil {
			t.Fatal(err)
		}
		if testing.Short() && shape.HeadDim > 64 {
			continue
		}
		in := tensor.Draw(shape, 1, tensor.Options{})
		q, k, v := labTensors(in)
		want := labOutput(t, d, run, in)
		checkDevice(t, d, text, q, k, v, Problem{Causal: shape.Causal}, want)
	}
	if err := d.Close(); err != nil || !m.closed || len(m.memory) > 0 {
		t.Errorf("after Close: error %v, closed %t, %d buffers are left", err, m.closed, len(m.memory))
	}
	if err := d.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// checkDevice compares Forward on a device with wanted bits: with host tensors, with device tensors,
// and mixed.
func checkDevice(t *testing.T, d *Device, name string, q, k, v *Tensor, p Problem, want []byte) {
	t.Helper()
	var remote [3]*DeviceTensor
	for i, x := range []*Tensor{q, k, v} {
		var err error
		if remote[i], err = d.Upload(x); err != nil {
			t.Fatal(err)
		}
		defer remote[i].Free()
	}
	on, err := d.Alloc(FP16, q.Shape)
	if err != nil {
		t.Fatal(err)
	}
	defer on.Free()
	o, err := NewTensor(FP16, q.Shape)
	if err != nil {
		t.Fatal(err)
	}
	for kind, x := range map[string][4]Operand{
		"host": {q, k, v, o}, "device": {remote[0], remote[1], remote[2], on}, "mixed": {q, remote[1], v, on},
	} {
		clear(o.Data)
		if err := d.Supports(p, x[0], x[1], x[2], x[3]); err != nil {
			t.Errorf("%s, %s tensors: %v", name, kind, err)
		}
		if err := Forward(t.Context(), d, p, x[0], x[1], x[2], x[3]); err != nil {
			t.Fatalf("%s, %s tensors: %v", name, kind, err)
		}
		got := o
		if x[3] == Operand(on) {
			if got, err = on.Download(); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got.Data, want) {
			t.Errorf("%s: %s tensors give other bits than the lab", name, kind)
		}
	}
}

// Device tensors are not copied again, and host tensors reuse their memory.
func TestGPUCopies(t *testing.T) {
	d, m := openSim(t)
	q, k, v, o := randomInputs(t, tensor.Shape{Batch: 1, Heads: 2, SeqQ: 16, SeqK: 16, HeadDim: 64}, E4M3, FP16)
	var remote [4]*DeviceTensor
	for i, x := range []*Tensor{q, k, v, o} {
		var err error
		if remote[i], err = d.Upload(x); err != nil {
			t.Fatal(err)
		}
	}
	copied := 0
	for i := range 3 {
		if i == 1 { // the first call has made a workspace
			copied = m.copies
		}
		if err := Forward(t.Context(), d, Problem{}, remote[0], remote[1], remote[2], remote[3]); err != nil {
			t.Fatal(err)
		}
	}
	if m.copies != copied {
		t.Errorf("%d bytes were copied", m.copies-copied)
	}
	buffers := 0
	for i := range 3 {
		if err := Forward(t.Context(), d, Problem{}, q, k, v, o); err != nil {
			t.Fatal(err)
		}
		if i > 0 && len(m.memory) != buffers {
			t.Errorf("%d buffers after call %d, %d before", len(m.memory), i, buffers)
		}
		buffers = len(m.memory)
	}
	back, err := remote[0].Download()
	if err != nil || !bytes.Equal(back.Data, q.Data) || len(back.Descale) != 2 {
		t.Errorf("q came back as %+v, %v", back, err)
	}
}

// What the selection cannot compute is an error that names the option; with Fallback, or on a
// device of Auto, the CPU computes it.
func TestGPUUnsupported(t *testing.T) {
	d, _ := openSim(t)
	shape := tensor.Shape{Batch: 1, Heads: 2, SeqQ: 16, SeqK: 16, HeadDim: 64}
	inputs := func(t2, out DType, dim int) [4]*Tensor {
		s := shape
		s.HeadDim = dim
		q, k, v, o := randomInputs(t, s, t2, out)
		return [4]*Tensor{q, k, v, o}
	}
	for name, test := range map[string]struct {
		problem Problem
		tensors [4]*Tensor
	}{
		"q is FP32 and k FP32": {Problem{}, inputs(FP32, FP16, 64)},
		"o is FP32":            {Problem{}, inputs(E4M3, FP32, 64)},
		"QueryLengths":         {Problem{QueryLengths: []int{9}}, inputs(E4M3, FP16, 64)},
		"no form in 16 bits has o of another type":    {Problem{Precision: Precision16, Window: &Window{3, 1}}, inputs(BF16, FP16, 64)},
		"with a softcap all are F16 or all BF16":      {Problem{Softcap: 30}, inputs(E4M3, FP16, 64)},
		"with ALiBi slopes all are F16 or all BF16":   {Problem{AlibiSlopes: make([]float32, 2)}, inputs(E4M3, FP16, 64)},
		"head dim is 96; the kernels have 64 128 256": {Problem{}, inputs(E4M3, FP16, 96)},
	} {
		q, k, v, o := test.tensors[0], test.tensors[1], test.tensors[2], test.tensors[3]
		err := Forward(t.Context(), d, test.problem, q, k, v, o)
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
		if err := d.Supports(test.problem, q, k, v, o); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%s: Supports returns %v", name, err)
		}
		if err := Forward(t.Context(), CPU(), test.problem, q, k, v, o); err != nil {
			t.Fatal(err)
		}
		want := bytes.Clone(o.Data)
		on, err := d.Upload(o)
		if err != nil {
			t.Fatal(err)
		}
		test.problem.Fallback = true
		if err := Forward(t.Context(), d, test.problem, q, k, v, on); err != nil {
			t.Fatal(err)
		}
		if got, err := on.Download(); err != nil || !bytes.Equal(got.Data, want) {
			t.Errorf("%s: the fallback is not what the CPU computes (%v)", name, err)
		}
		test.problem.Fallback = false
		first := func(int) (*Device, error) { return d, nil }
		if _, err := auto(first); err != nil {
			t.Fatal(err)
		}
		clear(o.Data)
		if err := Forward(t.Context(), d, test.problem, q, k, v, o); err != nil || !bytes.Equal(o.Data, want) {
			t.Errorf("%s: a device of Auto does not fall back (%v)", name, err)
		}
		d.fallback = false
	}
}

// Options that change nothing are no obstacle, and a grid of grouped heads has a limit.
func TestGPULimits(t *testing.T) {
	d, _ := openSim(t)
	q, k, v, o := randomInputs(t, tensor.Shape{Batch: 1, Heads: 2, SeqQ: 16, SeqK: 16, HeadDim: 64}, E4M3, FP16)
	x := [4]*Tensor{q, k, v, o}
	for _, p := range []Problem{
		{Window: &Window{-1, -5}},
		{Window: &Window{32, math.MaxInt}},
		{Window: &Window{-1, 0}},
		{Causal: true, Window: &Window{99, 3}},
		{KeyLengths: []int{16}, QueryLengths: []int{16}},
	} {
		if err := Forward(t.Context(), d, p, x[0], x[1], x[2], x[3]); err != nil {
			t.Errorf("%+v, window %+v: %v", p, p.Window, err)
		}
		got := floats(t, o)
		want, _ := naive(t, p, q, k, v, func(batch, query, key int) bool {
			return seen(p, tensor.Shape{SeqQ: 16, SeqK: 16}, batch, query, key)
		})
		near(t, fmt.Sprintf("%+v", p), got, want, 0.2) // P is rounded to E4M3
	}
	for i, dtype := range []DType{E4M3, E4M3, E4M3, FP16} {
		var err error
		if x[i], err = NewTensor(dtype, [4]int{1, []int{140000, 70000, 70000, 140000}[i], 1, 64}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Supports(Problem{}, x[0], x[1], x[2], x[3]); !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "grid") {
		t.Errorf("too many heads: %v", err)
	}
}

// ATTUNE_ARCH names an earlier architecture than that of the GPU.
func TestNamedArch(t *testing.T) {
	for named, want := range map[string]string{"": "sm_90", "sm_80": "sm_80", "sm_89": "sm_89", "sm_90": "sm_90", "sm_75": "", "sm_91": "", "sm_90a": "", "80": "", "x": ""} {
		t.Setenv("ATTUNE_ARCH", named)
		if d, _ := newGPU(newSimMachine()); (d == nil) != (want == "") {
			t.Errorf("%q: the device is %v", named, d)
		}
	}
}

// Auto passes over GPUs without kernels and reports broken ones.
func TestAuto(t *testing.T) {
	old := newSimMachine()
	old.facts.Arch = "sm_75"
	_, unsupported := newGPU(old)
	if !errors.Is(unsupported, ErrUnsupported) || !strings.Contains(unsupported.Error(), "sm_75 and the kernels are for sm_80 and later") {
		t.Errorf("a GPU of another architecture: %v", unsupported)
	}
	second, _ := openSim(t)
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		answers []error
		want    string
		err     error
	}{
		"no GPU":              {[]error{ErrNoGPU}, "CPU, " + vectors.name, nil},
		"the second":          {[]error{unsupported, nil}, second.name, nil},
		"none with kernels":   {[]error{unsupported, unsupported, ErrNoGPU}, "CPU, " + vectors.name, nil},
		"the first is broken": {[]error{broken, nil}, "", broken},
	} {
		d, err := auto(func(index int) (*Device, error) {
			if test.answers[index] != nil {
				return nil, test.answers[index]
			}
			return second, nil
		})
		if !errors.Is(err, test.err) || err == nil && d.Name() != test.want {
			t.Errorf("%s: %v, %v", name, d, err)
		}
	}
}

// Errors of the driver reach the caller, whatever fails, and leak no memory.
func TestGPUFailures(t *testing.T) {
	q, k, v, o := randomInputs(t, tensor.Shape{Batch: 1, Heads: 1, SeqQ: 8, SeqK: 8, HeadDim: 256 /* a form with tensor maps */}, E4M3, FP16)
	for _, operation := range []string{"load", "alloc", "write", "read", "map", "launch"} {
		d, m := openSim(t)
		m.fail[operation] = errors.New("the driver says no")
		if err := Forward(t.Context(), d, Problem{}, q, k, v, o); !errors.Is(err, m.fail[operation]) {
			t.Errorf("%s fails: error %v", operation, err)
		}
		if x, err := d.Upload(q); operation == "write" || operation == "alloc" {
			if !errors.Is(err, m.fail[operation]) {
				t.Errorf("%s fails: Upload returns %v", operation, err)
			}
		} else if _, err := x.Download(); operation == "read" && !errors.Is(err, m.fail["read"]) {
			t.Errorf("Download returns %v", err)
		}
		delete(m.fail, operation)
		if err := Forward(t.Context(), d, Problem{}, q, k, v, o); err != nil {
			t.Errorf("after %s has failed: %v", operation, err)
		}
		if err := d.Close(); err != nil || len(m.memory) > 0 {
			t.Errorf("after %s has failed: Close returns %v, and %d buffers are left", operation, err, len(m.memory))
		}
	}
}

// After the fault of a kernel the device refuses further calls, with the reason.
func TestGPULost(t *testing.T) {
	d, m := openSim(t)
	q, k, v, o := randomInputs(t, tensor.Shape{Batch: 1, Heads: 1, SeqQ: 8, SeqK: 8, HeadDim: 64}, E4M3, FP16)
	fault := &device.Fault{Code: "CUDA_ERROR_ILLEGAL_ADDRESS", Operation: "run the kernel"}
	m.fail["launch"], m.fail["free"] = fault, errors.New("lost")
	for range 2 {
		if err := Forward(t.Context(), d, Problem{}, q, k, v, o); !errors.Is(err, fault) {
			t.Errorf("error %v", err)
		}
	}
	if err := Forward(t.Context(), d, Problem{}, q, k, v, o); !strings.Contains(err.Error(), "start the program again") {
		t.Errorf("error %v", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
