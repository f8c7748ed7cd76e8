package sim_test

import (
	"strings"
	"testing"
	"time"

	"attune/internal/device"
	"attune/internal/device/sim"
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

// A timeout says where the kernel was.
func TestTimeoutPlace(t *testing.T) {
	job := newJob(kernel("L: add.u32 %r1, %r1, 1;\n st.global.u32 [%rd5], %r1;\n bra L;"), threads)
	_, err := sim.Open(sim.Options{Checks: true, Limit: 100 * time.Millisecond}).Run(t.Context(), job)
	if device.Classify(err) != device.KernelTimeout || !strings.Contains(err.Error(), "it was ended; block [0 0 0] was at warp 0 (all lanes) at ptx:") {
		t.Error(err)
	}
}
