package sim_test

import (
	"bytes"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/device/sim"
)

// counting is a kernel that adds the number of the launch to its output.
func counting() []byte {
	text := string(kernel("bar.sync 0;\n setp.ne.u32 %p2, %r2, 0;\n @%p2 bra END;\n ld.global.u32 %r5, [launches];\n add.u32 %r5, %r5, 1;\n" +
		"st.global.u32 [launches], %r5;\nEND:"))
	text = strings.Replace(text, ".visible", ".global .align 4 .u32 launches = 7;\n.visible", 1)
	return []byte(strings.Replace(text, "add.u32 %r3, %r3, %r3;", "ld.global.u32 %r4, [launches];\n add.u32 %r3, %r3, %r4;", 1))
}

// The variables of the module keep their values between the launches of one job, and no longer.
func TestRelaunches(t *testing.T) {
	job := newJob(counting(), threads)
	zeros := make([]byte, 4*threads)
	job.Relaunches = []device.Relaunch{{Inputs: [][]byte{zeros}}, {Inputs: [][]byte{job.Args[0].Input}}}
	d := sim.Open(sim.Options{Checks: true, Schedules: 2})
	for range 2 {
		got, err := d.Run(t.Context(), job)
		if err != nil || len(got.Relaunched) != 2 || len(got.Findings) > 0 {
			t.Fatalf("got %+v, %v", got, err)
		}
		for i, want := range []byte{8, 8, 10} { // 1 + 7, 0 + 8, 1 + 9
			output := append([][][]byte{got.Outputs}, got.Relaunched...)[i][0]
			if output[0] != want {
				t.Errorf("launch %d: got %d, want %d", i, output[0], want)
			}
		}
	}
}

// A relaunch leaves the output in place and finds a changed input.
func TestFindingsOfRelaunches(t *testing.T) {
	job := newJob(kernel("st.global.u32 [%rd4], 0;"), 0)
	job.Args[0].Input = make([]byte, 4*threads)
	job.Args = append(job.Args[:1], device.Arg{InOut: bytes.Repeat([]byte{3}, 4*threads)}, job.Args[2])
	job.Relaunches = []device.Relaunch{{Inputs: [][]byte{bytes.Repeat([]byte{1}, 4*threads), bytes.Repeat([]byte{4}, 4*threads)}}}
	got, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), job)
	if err != nil || len(got.Findings) != 1 || got.Findings[0].Kind != device.InputChanged || got.Relaunched[0][0][0] != 4 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestRelaunchErrors(t *testing.T) {
	job := newJob(kernel(""), threads)
	job.Relaunches = []device.Relaunch{{}}
	if _, err := sim.Open(sim.Options{}).Run(t.Context(), job); err == nil || !strings.Contains(err.Error(), "a relaunch needs 128 bytes") {
		t.Errorf("got %v", err)
	}
	job = newJob(kernel("setp.eq.u32 %p2, %r3, 0;\n @%p2 trap;"), threads)
	job.Relaunches = []device.Relaunch{{Inputs: [][]byte{make([]byte, 4*threads)}}}
	if _, err := sim.Open(sim.Options{}).Run(t.Context(), job); device.Classify(err) != device.KernelFault {
		t.Errorf("a fault of the relaunch: %v", err)
	}
}
