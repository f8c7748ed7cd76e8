package sim_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"attune/internal/device"
	"attune/internal/device/sim"
	"attune/internal/finding"
)

// tickets is a kernel of one thread per block, which stores its index where its ticket says.
const tickets = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 count, .param .u64 out)
{
	.reg .b32 %r<3>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [count];
	ld.param.u64 %rd2, [out];
	mov.u32 %r1, %ctaid.x;
	atom.global.add.u32 %r2, [%rd1], 1;
	MORE
	mad.wide.u32 %rd3, %r2, 4, %rd2;
	st.global.u32 [%rd3], %r1;
	ret;
}
`

func ticketJob(more string) device.Job {
	return device.Job{
		Image: []byte(strings.Replace(tickets, "MORE", more, 1)), Entry: "k", Grid: [3]int{4, 1, 1}, Block: [3]int{1, 1, 1},
		Args: []device.Arg{{InOut: make([]byte, 4)}, device.Out(16)},
	}
}

// A kernel whose blocks communicate runs under several schedules by default. What differs is for the
// caller to judge, unless the number of schedules was asked for.
func TestAutomaticSchedules(t *testing.T) {
	const difference = "argument 1: 4 of 16 bytes differ between schedule 0 and schedule 1, the first at byte 0"
	run := func(schedules int, job device.Job) *device.Outcome {
		t.Helper()
		outcome, err := sim.Open(sim.Options{Checks: true, Schedules: schedules}).Run(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		return outcome
	}
	got := run(0, ticketJob(""))
	if got.Schedules != 2 || len(got.Findings) > 0 || len(got.Rescheduled) != 1 || got.Rescheduled[0].Difference.Text() != difference || got.Rescheduled[0].Outputs[1][0] != 3 {
		t.Errorf("automatic: %+v", got)
	}
	got = run(2, ticketJob(""))
	if got.Schedules != 2 || len(got.Rescheduled) > 0 || len(got.Findings) != 1 || got.Findings[0].Text() != difference {
		t.Errorf("two: %+v", got)
	}
	if got = run(1, ticketJob("")); got.Schedules != 1 || len(got.Findings) > 0 {
		t.Errorf("one: %+v", got)
	}
	unordered := ticketJob("")
	unordered.Unordered = true
	if got = run(2, unordered); len(got.Findings) > 0 || len(got.Rescheduled) != 1 {
		t.Errorf("unordered: %+v", got)
	}
	// A launch that is wrong already needs no more schedules, and blocks that do not communicate none.
	if got = run(0, ticketJob("st.global.u32 [%rd2+16], 0;")); got.Schedules != 1 || len(got.Findings) == 0 {
		t.Errorf("wrong: %+v", got)
	}
	if got = run(0, newJob(kernel(""), threads)); got.Schedules != 1 {
		t.Errorf("no communication: %+v", got)
	}
}

// message is a kernel of two blocks. The first writes a value and then a flag, both volatile; the second
// waits for the flag and copies the value.
const message = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 words, .param .u64 out)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<4>;
	.reg .pred %p<3>;
	ld.param.u64 %rd1, [words];
	ld.param.u64 %rd2, [out];
	mov.u32 %r1, %ctaid.x;
	setp.ne.u32 %p1, %r1, 0;
	@%p1 bra READER;
	st.volatile.global.u32 [%rd1], 42;
	WRITTEN
	st.volatile.global.u32 [%rd1+4], 1;
	ret;
READER:
	ld.volatile.global.u32 %r2, [%rd1+4];
	setp.eq.u32 %p2, %r2, 0;
	@%p2 bra READER;
	READ
	ld.volatile.global.u32 %r3, [%rd1];
	st.global.u32 [%rd2], %r3;
	ret;
}
`

// A value that arrives without a fence is the old one under another schedule, and the load of it is the
// cause that is reported with the output.
func TestStaleLoad(t *testing.T) {
	for _, c := range []struct {
		written, read string
		stale         bool
	}{{"", "", true}, {"membar.gl;", "", true}, {"", "membar.gl;", true}, {"membar.gl;", "membar.gl;", false}} {
		image := strings.NewReplacer("WRITTEN", c.written, "READ\n", c.read+"\n").Replace(message)
		job := device.Job{
			Image: []byte(image), Entry: "k", Grid: [3]int{2, 1, 1}, Block: [3]int{1, 1, 1}, Cooperative: true,
			Args: []device.Arg{{Scratch: 8, Zero: true}, device.Out(4)},
		}
		got, err := sim.Open(sim.Options{Checks: true, Least: 4}).Run(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Findings) > 0 || got.Outputs[0][0] != 42 || c.stale != (len(got.Rescheduled) > 0) {
			t.Errorf("%q, %q: %+v", c.written, c.read, got)
		}
		for _, other := range got.Rescheduled {
			if f := other.Cause; f == nil || !f.Is(finding.Race) || f.Launch.Schedule == 0 || !strings.HasPrefix(f.Where.PTX, "ld.volatile") ||
				!strings.HasSuffix(f.Other.PTX, ", 42") || f.Variable.Index != 0 {
				t.Errorf("%q, %q: the cause is %v", c.written, c.read, f)
			}
		}
		got, err = sim.Open(sim.Options{Checks: true, Schedules: 4}).Run(t.Context(), job)
		if err != nil || c.stale && (len(got.Findings) != 2 || !got.Findings[0].Is(finding.Race) || !got.Findings[1].Is(finding.NotRepeatable)) {
			t.Errorf("%q, %q, four schedules: %+v, %v", c.written, c.read, got.Findings, err)
		}
	}
}

// A timeout says where the kernel was.
func TestTimeoutPlace(t *testing.T) {
	job := newJob(kernel("L: add.u32 %r1, %r1, 1;\n st.global.u32 [%rd5], %r1;\n bra L;"), threads)
	_, err := sim.Open(sim.Options{Checks: true, Limit: 100 * time.Millisecond}).Run(t.Context(), job)
	if device.Classify(err) != device.KernelTimeout || !strings.Contains(err.Error(), "it was ended; block [0 0 0] was at warp 0 (all lanes) at ptx:") {
		t.Error(err)
	}
}

// A kernel that takes more memory than a simulation may hold is not at fault: a smaller shape may do.
func TestMemoryOfSimulation(t *testing.T) {
	const text = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
	.reg .b32 %r<5>;
	.reg .b64 %rd<4>;
	.reg .pred %p<2>;
	ld.param.u64 %rd1, [out];
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %tid.x;
	mad.lo.u32 %r3, %r1, 1024, %r2;
	mul.wide.u32 %rd2, %r3, 4;
	add.u64 %rd3, %rd1, %rd2;
	mov.u32 %r4, 0;
L:
	st.global.u32 [%rd3], %r4;
	add.u32 %r4, %r4, 1;
	setp.lt.u32 %p1, %r4, 4;
	@%p1 bra L;
	ret;
}
`
	job := device.Job{Image: []byte(text), Entry: "k", Grid: [3]int{1024, 1, 1}, Block: [3]int{1024, 1, 1}, Args: []device.Arg{device.Out(4 << 20)}}
	_, err := sim.Open(sim.Options{Checks: true, Memory: 40 << 20}).Run(t.Context(), job)
	var refused *device.Unsupported
	if !errors.As(err, &refused) || !refused.Large || !strings.Contains(refused.Why, "--memory MIB") {
		t.Error(err)
	}
	if _, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), job); err != nil {
		t.Error(err)
	}
}
