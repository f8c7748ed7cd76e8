package sim_test

import (
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/device/sim"
	"attune/internal/finding"
)

// meeting is a kernel of one thread per block. It counts itself in the buffer, waits until as many
// blocks as the grid has are counted, and stores its 8-bit argument.
const meeting = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 count, .param .u64 out, .param .u8 value)
{
	.reg .pred %p<2>;
	.reg .b16 %h<2>;
	.reg .b32 %r<6>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [count];
	ld.param.u64 %rd2, [out];
	ld.param.u8 %h1, [value];
	mov.u32 %r1, %nctaid.x;
	atom.acq_rel.gpu.global.add.u32 %r2, [%rd1], 1;
WAIT:
	ld.acquire.gpu.global.u32 %r3, [%rd1];
	setp.lt.u32 %p1, %r3, %r1;
	@%p1 bra WAIT;
	mov.u32 %r4, %ctaid.x;
	cvt.u64.u32 %rd3, %r4;
	add.s64 %rd4, %rd2, %rd3;
	st.global.u8 [%rd4], %h1;
	ret;
}
`

func TestCooperativeGrid(t *testing.T) {
	job := func(blocks int) device.Job {
		return device.Job{
			Image: []byte(meeting), Entry: "k", Grid: [3]int{blocks, 1, 1}, Block: [3]int{1, 1, 1}, Cooperative: true,
			Args: []device.Arg{{InOut: make([]byte, 4)}, device.Out(blocks), {Scalar: []byte{7}}},
		}
	}
	d := sim.Open(sim.Options{Checks: true, Schedules: 2})
	outcome, err := d.Run(t.Context(), job(200))
	if err != nil || len(outcome.Findings) > 0 || strings.Trim(string(outcome.Outputs[1]), "\a") != "" {
		t.Errorf("%+v, %v", outcome, err)
	}
	_, err = d.Run(t.Context(), job(5000))
	if device.Classify(err) != device.KernelFault || !strings.Contains(err.Error(), "launch k: a cooperative grid of 5000 blocks; at most 4096 can be resident at once") {
		t.Errorf("too many blocks: %v", err)
	}
}

// A launch that is not cooperative must not wait for blocks that start later.
func TestLaterBlock(t *testing.T) {
	job := device.Job{
		Image: []byte(meeting), Entry: "k", Grid: [3]int{4, 1, 1}, Block: [3]int{1, 1, 1},
		Args: []device.Arg{{InOut: make([]byte, 4)}, device.Out(4), {Scalar: []byte{7}}},
	}
	got, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), job)
	if err != nil || len(got.Findings) != 1 || got.Findings[0].Severity != finding.Error || got.Findings[0].Missing != finding.CooperativeLaunch ||
		!strings.Contains(got.Findings[0].Remedy(), "cooperative = true in [launch]") {
		t.Errorf("%+v, %v", got, err)
	}
}
