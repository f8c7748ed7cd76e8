package lab

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/finding"
	"attune/internal/run"
)

// sumSource adds floats in the order in which threads win a compare-and-swap.
const sumSource = `extern "C" __global__ void sum(const float *x, float *y, int n) {
  for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += 64 * gridDim.x) {
    int *p = (int *)y, seen = *(volatile int *)p, old;
    do {
      old = seen;
      seen = atomicCAS(p, old, __float_as_int(__int_as_float(old) + x[i]));
    } while (seen != old);
  }
}
`

const sumSpec = `name = "sum"
[shapes]
small = { n = 1000 }
[[arg]]
name = "x"
type = "f32"
shape = ["n"]
[[arg]]
name = "y"
type = "f32"
shape = ["1"]
inout = true
fill = "zeros"
[[arg]]
name = "n"
type = "i32"
value = "n"
[launch]
grid = 4
block = 64
[reference]
python = "reference.py"
[tolerance]
y = { abs = 1e-3 }
[[knob]]
name = "UNUSED_KNOB"
values = [0, 1]
default = 0
`

// newSum is a lab for the sum under several schedules.
func newSum(t *testing.T, toml string) *setup {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kernel.toml": toml, "sum.cu": sumSource,
		"reference.py": "def reference(axes, inputs):\n    return {'y': inputs['x'].astype(float).sum(keepdims=True)}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newDeclared(t, dir)
	o := simdevice.Options{Checks: true, Limit: time.Minute, Schedules: 6}
	open := func(context.Context) (device.Device, error) { return simdevice.Open(o), nil }
	s.Device = Simulator(simdevice.Open(o).Facts(), open, run.Simulation{Schedules: o.Schedules, Checks: true, Tensor: run.ExactTensor})
	return s
}

// A kernel whose result depends on the order of its sums by design needs an allowance. Its launches
// are then compared within the tolerance.
func TestNotRepeatableIsAllowed(t *testing.T) {
	t.Parallel()
	s := newSum(t, sumSpec)
	r := s.runOne(s.declaredRequest("sum"))
	expectOutcome(t, r, incorrect)
	expectReason(t, r.Reasons.Correctness, `, the first at byte 0; if the order of its sums is free by design, write allow = ["not-repeatable"] in kernel.toml`)

	s = newSum(t, `allow = ["not-repeatable"]`+"\n"+sumSpec)
	r = s.runOne(s.declaredRequest("sum"))
	expectOutcome(t, r, rightOnTheSimulator)
	const note = "kernel.toml allows not-repeatable: launches and schedules are compared with the reference, not bit for bit"
	if notes := r.Correctness[0].Notes; len(notes) != 1 || notes[0].Kind != finding.UnorderedSums || notes[0].Text() != note {
		t.Errorf("the notes are %+v", notes)
	}

	s = newSum(t, `allow = ["not-repeatable"]`+"\n"+strings.Replace(sumSpec, "1e-3", "1e-9", 1))
	r = s.runOne(s.declaredRequest("sum"))
	expectOutcome(t, r, incorrect)
}

// The allowance of a knob does not reach the default of the knob, although the code is the same.
func TestNotRepeatableOfAKnob(t *testing.T) {
	t.Parallel()
	s := newSum(t, sumSpec+"allow = [\"not-repeatable\"]\n")
	if err := s.run(s.declaredRequest("sum+UNUSED_KNOB=1", "sum")); err != nil {
		t.Fatal(err)
	}
	expectOutcome(t, s.runs[0], rightOnTheSimulator)
	if expectOutcome(t, s.runs[1], incorrect); s.runs[1].MeasuredAs != nil {
		t.Errorf("it reuses the results of %s", s.runs[1].MeasuredAs.Variant)
	}
}

// A reference that returns other results for equal inputs is at fault, not the kernel.
func TestRunWithAReferenceWithState(t *testing.T) {
	t.Parallel()
	s := newRMSNorm(t, "reference.py", "return {", "global calls\n    calls = globals().get('calls', -1) + 1\n    scale = scale + calls\n    return {")
	r := s.runOne(s.declaredRequest("rmsnorm"))
	expectOutcome(t, r, "not-measured pass/not-measured/not-measured/not-measured")
	if !strings.HasSuffix(r.ReferenceError, " for equal inputs; compute it from axes and inputs alone") {
		t.Errorf("the reference has the error %q", r.ReferenceError)
	}
}

// A kernel that compiles and has more registers than a block of a chip is not launched.
func TestRunWithTooManyRegisters(t *testing.T) {
	t.Parallel()
	s := newDoubling(t, &doubling{threads: 1 << 20})
	r := s.runOne(s.doublingRequest("plain"))
	expectOutcome(t, r, "over-budget fail/not-measured/not-measured/not-measured")
	expectReason(t, r.Reasons.Resources, " registers, and a block has at most 65536; launch smaller blocks")
}
