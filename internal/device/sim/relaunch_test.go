package sim_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/device/sim"
	"attune/internal/finding"
)

// counting is a kernel that adds the number of the launch to its output.
func counting() []byte {
	text := string(kernel("bar.sync 0;\n setp.ne.u32 %p2, %r2, 0;\n @%p2 bra END;\n ld.global.u32 %r5, [launches];\n add.u32 %r5, %r5, 1;\n" +
		"st.global.u32 [launches], %r5;\nEND:"))
	text = strings.Replace(text, ".visible", ".global .align 4 .u32 launches = 7;\n.visible", 1)
	return []byte(strings.Replace(text, "add.u32 %r3, %r3, %r3;", "ld.global.u32 %r4, [launches];\n add.u32 %r3, %r3, %r4;", 1))
}

// The variables of the module keep their values between the launches of one job, and no longer. The
// first launch has written one, so there is a launch on the same inputs before the relaunches, and one
// after the first of them. What the kernel reads there is from an earlier launch.
func TestRelaunches(t *testing.T) {
	job := newJob(counting(), threads)
	zeros := make([]byte, 4*threads)
	job.Relaunches = []device.Relaunch{{Inputs: [][]byte{zeros}}, {Inputs: [][]byte{job.Args[0].Input}}}
	d := sim.Open(sim.Options{Checks: true, Schedules: 2})
	for range 2 {
		got, err := d.Run(t.Context(), job)
		if err != nil || len(got.Relaunched) != 2 || !slices.Equal(kindsOf(got), []finding.Kind{finding.KeptMemory, finding.KeptMemory, finding.NotRepeatable}) {
			t.Fatalf("got %+v, %v", got, err)
		}
		if text := got.Findings[0].Text(); !strings.HasSuffix(text, "reads 4 bytes; an earlier launch has written byte 0 of the variable launches") {
			t.Errorf("the first finding is %s", text)
		}
		for i, want := range []byte{8, 9, 12} { // 1 + 7, 0 + 9, 1 + 11
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
	if err != nil || len(got.Findings) != 1 || got.Findings[0].Kind != finding.InputChanged || got.Relaunched[0][0][0] != 4 {
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

func kindsOf(o *device.Outcome) []finding.Kind {
	var kinds []finding.Kind
	for _, f := range o.Findings {
		kinds = append(kinds, f.Kind)
	}
	return kinds
}

// variable is a kernel with a body and a variable of the module.
func variable(body string) []byte {
	return []byte(strings.Replace(string(kernel("setp.eq.u32 %p3, %r2, 0;\n"+body)), ".visible", ".global .align 4 .u32 flag;\n.visible", 1))
}

// A kernel that does less on the same inputs has kept results, however it finds them.
func TestRemembersResults(t *testing.T) {
	loop := "mov.u32 %r5, 0;\nLOOP: add.u32 %r5, %r5, 1;\n setp.lt.u32 %p2, %r5, 200;\n @%p2 bra LOOP;\n"
	skipping := variable("ld.global.u32 %r5, [flag];\n setp.ne.u32 %p2, %r5, 0;\n @%p2 bra END;\n" + loop + "END: bar.sync 0;\n @%p3 st.global.u32 [flag], 1;\n")
	got, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), newJob(skipping, threads))
	if err != nil || !slices.Contains(kindsOf(got), finding.RemembersResults) || got.Relaunched != nil {
		t.Fatalf("got %+v, %v", kindsOf(got), err)
	}
	text := got.Findings[len(got.Findings)-1].Text()
	if !strings.HasPrefix(text, "relaunched with the first inputs it executes ") || !strings.Contains(text, " warp instructions, in the first launch 6") {
		t.Errorf("the finding is %s", text)
	}
	for name, image := range map[string][]byte{
		"no state":                 kernel(loop),
		"a variable that is set":   variable(loop + "@%p3 st.global.u32 [flag], 1;\n @%p3 ld.global.u32 %r5, [flag];\n"),
		"a variable that is read":  variable(loop + "ld.global.u32 %r5, [flag];\n"),
		"the same work with state": variable(loop + "@%p3 st.global.u32 [flag], %r5;\n"),
	} {
		if got, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), newJob(image, threads)); err != nil || len(got.Findings) > 0 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if got, err := sim.Open(sim.Options{}).Run(t.Context(), newJob(skipping, threads)); err != nil || len(got.Findings) > 0 {
		t.Errorf("without checkers: %v, %v", got, err)
	}
	trap := variable("ld.global.u32 %r5, [flag];\n setp.ne.u32 %p2, %r5, 0;\n @%p2 trap;\n bar.sync 0;\n @%p3 st.global.u32 [flag], 1;\n")
	if _, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), newJob(trap, threads)); device.Classify(err) != device.KernelFault {
		t.Errorf("a fault of the second launch: %v", err)
	}
}

// A relaunch has scalars of its own.
func TestScalarsOfRelaunches(t *testing.T) {
	job := newJob(kernel(""), threads)
	first := job.Args[len(job.Args)-1].Scalar
	job.Relaunches = []device.Relaunch{{Inputs: [][]byte{job.Args[0].Input}, Scalars: [][]byte{make([]byte, len(first))}}}
	got, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), job)
	// With a length of 0 the kernel writes nothing, and the output of the first launch stays.
	if err != nil || !slices.Equal(kindsOf(got), []finding.Kind{finding.Unwritten}) || !strings.Contains(got.Findings[0].Text(), "in relaunch 1: argument 1: 128 of 128 bytes not written") {
		t.Errorf("got %v, %v", got, err)
	}
}

// Addresses are those of the seed. They differ between schedules, so that an output with an address
// in it is not repeatable.
func TestAddressSeed(t *testing.T) {
	image := kernel("cvt.u32.u64 %r3, %rd1;\n st.global.u32 [%rd5], %r3;")
	address := func(o sim.Options) (*device.Outcome, string) {
		t.Helper()
		o.Checks = true
		got, err := sim.Open(o).Run(t.Context(), newJob(image, threads))
		if err != nil {
			t.Fatal(err)
		}
		return got, string(got.Outputs[0][:4])
	}
	_, fixed := address(sim.Options{})
	_, one := address(sim.Options{AddressSeed: 1})
	_, again := address(sim.Options{AddressSeed: 1})
	if fixed == one || one != again {
		t.Errorf("the addresses end in %x, %x and %x", fixed, one, again)
	}
	if got, _ := address(sim.Options{AddressSeed: 1, Schedules: 2}); !slices.Equal(kindsOf(got), []finding.Kind{finding.NotRepeatable}) {
		t.Errorf("two schedules: %v", got.Findings)
	}
}
