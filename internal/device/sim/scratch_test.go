package sim_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/device/sim"
	"attune/internal/finding"
)

// scratchKernel is k(in, out, scratch) with 4 blocks of one warp. %rd4, %rd5 and %rd6 are the
// addresses of the thread's words in the three, %r1 is the block, %r2 the thread of the grid, %r3 its
// input. WORK sets %r4 to 2*%r3, slowly.
func scratchKernel(body string) []byte {
	const work = "mov.u32 %r4, 0;\n mov.u32 %r5, 0;\nLOOP$: add.u32 %r5, %r5, 1;\n setp.lt.u32 %p1, %r5, 100;\n @%p1 bra LOOP$;\n add.u32 %r4, %r3, %r3;\n"
	for i := 0; strings.Contains(body, "WORK"); i++ {
		body = strings.Replace(body, "WORK", strings.ReplaceAll(work, "$", string(rune('A'+i))), 1)
	}
	return []byte(`.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u64 scratch)
{
	.reg .pred %p<9>;
	.reg .b32 %r<20>;
	.reg .b64 %rd<20>;
	ld.param.u64 %rd1, [in];
	ld.param.u64 %rd2, [out];
	ld.param.u64 %rd3, [scratch];
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r0, %tid.x;
	mad.lo.u32 %r2, %r1, 32, %r0;
	mul.wide.u32 %rd10, %r2, 4;
	add.s64 %rd4, %rd1, %rd10;
	add.s64 %rd5, %rd2, %rd10;
	add.s64 %rd6, %rd3, %rd10;
	ld.global.u32 %r3, [%rd4];
	setp.eq.u32 %p0, %r0, 0;
` + body + `
	ret;
}
`)
}

const (
	scratchBlocks = 4
	scratchWords  = 32 * scratchBlocks
)

// words are the little-endian bytes of numbers from first on.
func words(first uint32) []byte {
	var data []byte
	for i := range uint32(scratchWords) {
		data = binary.LittleEndian.AppendUint32(data, first+i)
	}
	return data
}

// scratchJob launches a kernel with scratch on the numbers from 1 on, then on others and on the first
// again.
func scratchJob(body string) device.Job {
	scratch := device.Arg{Scratch: 4 * (2*scratchWords + 64), Name: "work"}
	return device.Job{
		Image: scratchKernel(body), Entry: "k", Grid: [3]int{scratchBlocks, 1, 1}, Block: [3]int{32, 1, 1},
		Args:       []device.Arg{device.In(words(1)), device.Out(4 * scratchWords), scratch},
		Relaunches: []device.Relaunch{{Inputs: [][]byte{words(1000)}}, {Inputs: [][]byte{words(1)}}},
	}
}

const storeResult = "st.global.u32 [%rd5], %r4;\n"

// The cheats keep results, or a count of launches, in scratch. Flags and keys are behind the words of
// the threads.
var cheats = map[string]string{
	"the result, whole": "ld.global.u32 %r6, [%rd6+512];\n setp.ne.u32 %p2, %r6, 0;\n ld.global.u32 %r4, [%rd6];\n @%p2 bra DONE;\n WORK " +
		"st.global.u32 [%rd6], %r4;\n st.global.u32 [%rd6+512], 1;\nDONE:\n" + storeResult,
	"the result by the input": "ld.global.u32 %r6, [%rd6+512];\n setp.eq.u32 %p2, %r6, %r3;\n ld.global.u32 %r4, [%rd6];\n @%p2 bra DONE;\n WORK " +
		"st.global.u32 [%rd6], %r4;\n st.global.u32 [%rd6+512], %r3;\nDONE:\n" + storeResult,
	"the result by the pointer": "cvt.u32.u64 %r7, %rd4;\n ld.global.u32 %r6, [%rd6+512];\n setp.eq.u32 %p2, %r6, %r7;\n ld.global.u32 %r4, [%rd6];\n" +
		"@%p2 bra DONE;\n WORK st.global.u32 [%rd6], %r4;\n st.global.u32 [%rd6+512], %r7;\nDONE:\n" + storeResult,
	"the result of one block": "setp.ne.u32 %p3, %r1, 3;\n @%p3 bra HONEST;\n ld.global.u32 %r6, [%rd6+512];\n setp.eq.u32 %p2, %r6, %r3;\n" +
		"ld.global.u32 %r4, [%rd6];\n @%p2 bra DONE;\nHONEST:\n WORK @%p3 bra DONE;\n st.global.u32 [%rd6], %r4;\n st.global.u32 [%rd6+512], %r3;\nDONE:\n" + storeResult,
	"no work from the second launch on": "ld.global.u32 %r6, [%rd6+512];\n add.u32 %r7, %r6, 1;\n st.global.u32 [%rd6+512], %r7;\n" +
		"setp.ge.u32 %p2, %r6, 1;\n @%p2 bra DONE;\n WORK" + storeResult + "DONE:",
	"another result from the third launch on": "ld.global.u32 %r6, [%rd6+512];\n add.u32 %r7, %r6, 1;\n st.global.u32 [%rd6+512], %r7;\n" +
		"WORK setp.ge.u32 %p2, %r6, 2;\n @%p2 add.u32 %r4, %r4, 1;\n" + storeResult,
	"a count that matters in the hundredth launch": "ld.global.u32 %r6, [%rd6+512];\n add.u32 %r7, %r6, 1;\n st.global.u32 [%rd6+512], %r7;\n" +
		"WORK setp.ge.u32 %p2, %r6, 99;\n @%p2 add.u32 %r4, %r4, 1;\n" + storeResult,
}

// A kernel that keeps anything in scratch which a later launch reads is found, with its line and the
// argument.
func TestScratchCheats(t *testing.T) {
	for name, body := range cheats {
		got, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), scratchJob(body))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		at := slices.IndexFunc(got.Findings, func(f finding.Finding) bool { return f.Kind == finding.KeptMemory })
		if at < 0 {
			t.Errorf("%s: %v", name, got.Findings)
			continue
		}
		if f := got.Findings[at]; f.Variable.Name != "work" || f.Launch.Relaunch != 1 || f.Where.PTXLine == 0 ||
			!strings.Contains(f.Text(), `in relaunch 1): thread `) || !strings.Contains(f.Detail, `of argument 2 "work"`) {
			t.Errorf("%s: %s", name, f)
		}
	}
}

// Without checkers the results and the number of instructions show a kernel that keeps results. The
// launches on inputs A and B are in the order A, A, B, B, A, so that a cache of the last launch is used.
func TestScratchCheatsUnchecked(t *testing.T) {
	for name, want := range map[string]finding.Kind{
		"the result, whole":                       finding.RemembersResults,
		"the result by the input":                 finding.RemembersResults,
		"the result by the pointer":               finding.RemembersResults,
		"the result of one block":                 finding.RemembersResults,
		"no work from the second launch on":       finding.RemembersResults,
		"another result from the third launch on": finding.NotRepeatable,
	} {
		job := scratchJob(cheats[name])
		got, err := sim.Open(sim.Options{}).Run(t.Context(), job)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		differs := !slices.Equal(got.Outputs[0], got.Relaunched[1][0]) // which the caller compares
		if !slices.Contains(kindsOf(got), want) && !(want == finding.NotRepeatable && differs) {
			t.Errorf("%s: %v", name, got.Findings)
		}
	}
}

// partialSums stores the sum of each block's inputs, and the last block adds them up, in the order of
// blocks. RESET stands where that block may reset the counter.
const partialSums = `
	@!%p0 bra END;
	st.volatile.global.u32 [%rd6], %r3;
	fence.acq_rel.gpu;
	atom.acq_rel.gpu.global.add.u32 %r6, [%rd3+512], 1;
	mov.u32 %r7, 0;
	st.global.u32 [%rd5], %r7;
	setp.ne.u32 %p2, %r6, 3;
	@%p2 bra END;
	ld.volatile.global.u32 %r8, [%rd3];
	ld.volatile.global.u32 %r9, [%rd3+128];
	add.u32 %r8, %r8, %r9;
	st.global.u32 [%rd5+4], %r8;
	RESET
END:`

// lookBack is a scan over the blocks: each takes a ticket, publishes its own input, and adds up those
// of the blocks before it. RESET stands where the last block to end may reset the state.
const lookBack = `
	@!%p0 bra END;
	atom.acq_rel.gpu.global.add.u32 %r6, [%rd3+512], 1;
	mul.wide.u32 %rd11, %r6, 128;
	add.s64 %rd12, %rd1, %rd11;
	ld.global.u32 %r3, [%rd12];
	mul.wide.u32 %rd11, %r6, 4;
	add.s64 %rd7, %rd3, %rd11;
	add.s64 %rd13, %rd2, %rd11;
	st.release.gpu.global.u32 [%rd7], %r3;
	mov.u32 %r4, %r3;
BEFORE:
	setp.eq.u32 %p2, %r6, 0;
	@%p2 bra DONE;
	sub.u32 %r6, %r6, 1;
	add.s64 %rd7, %rd7, -4;
WAIT:
	ld.acquire.gpu.global.u32 %r8, [%rd7];
	setp.eq.u32 %p3, %r8, 0;
	@%p3 bra WAIT;
	add.u32 %r4, %r4, %r8;
	bra BEFORE;
DONE:
	st.global.u32 [%rd13], %r4;
	atom.acq_rel.gpu.global.add.u32 %r9, [%rd3+516], 1;
	setp.ne.u32 %p4, %r9, 3;
	@%p4 bra END;
	st.global.u32 [%rd3+516], 0;
	st.global.u32 [%rd3+512], 0;
	RESET
END:`

func lookBackJob(reset string) device.Job {
	job := scratchJob(strings.Replace(lookBack, "RESET", reset, 1))
	job.Args[1].Output = 4 * scratchBlocks
	return job
}

const resetLookBack = "st.global.u32 [%rd3], 0;\n st.global.u32 [%rd3+4], 0;\n st.global.u32 [%rd3+8], 0;\n st.global.u32 [%rd3+12], 0;"

// Kernels that leave scratch usable pass, and what they read before they write it is a note. So does one
// that writes all of its workspace before it reads it.
func TestScratchInUse(t *testing.T) {
	sums := func(reset string) device.Job {
		job := scratchJob(strings.Replace(partialSums, "RESET", reset, 1))
		job.Args[1] = device.Arg{InOut: make([]byte, 4*scratchWords)}
		for i := range job.Relaunches {
			job.Relaunches[i].Inputs = append(job.Relaunches[i].Inputs, make([]byte, 4*scratchWords))
		}
		return job
	}
	for _, c := range []struct {
		name  string
		job   device.Job
		notes int // lines that read what the launch has not written
		want  []finding.Kind
	}{
		{"a workspace", scratchJob("st.global.u32 [%rd6], %r3;\n ld.global.u32 %r4, [%rd6];\n add.u32 %r4, %r4, %r4;\n" + storeResult), 0, nil},
		{"a counter that returns to zero", sums("st.global.u32 [%rd3+512], 0;"), 1, nil},
		{"a counter that does not", sums(""), 1, []finding.Kind{finding.KeptMemory, finding.NotRepeatable}},
		{"look-back that is reset", lookBackJob(resetLookBack), 2, nil},
	} {
		got, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), c.job)
		if err != nil || !slices.Equal(kindsOf(got), c.want) || len(got.Notes) != c.notes {
			t.Errorf("%s: %v; notes %v; %v", c.name, got.Findings, got.Notes, err)
			continue
		}
		for _, f := range got.Notes {
			if f.Kind != finding.KeptMemory || f.Severity != finding.Note || f.Variable.Name != "work" || f.Where.PTXLine == 0 {
				t.Errorf("%s: the note is %s", c.name, f)
			}
		}
	}
}

// A look-back whose state is not reset is right under schedules 0 and 1, in every launch. The third
// schedule lets a block run ahead of the one before it, and finds the state of the launch before.
func TestStaleLookBack(t *testing.T) {
	job := lookBackJob("")
	got, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), job)
	if err != nil || got.Schedules != 3 || !slices.Contains(kindsOf(got), finding.KeptMemory) {
		t.Fatalf("%v, %v", got, err)
	}
	if text := got.Findings[0].Text(); !strings.Contains(text, "in relaunch 1, schedule 2") {
		t.Errorf("the finding is %s", text)
	}
	wrong := slices.IndexFunc(got.Rescheduled, func(r device.Rescheduled) bool { return r.Relaunch == 1 })
	if wrong < 0 || got.Rescheduled[wrong].Difference.Launch != (finding.Launch{Relaunch: 2, Schedule: 2}) {
		t.Errorf("no wrong result of the relaunch on other inputs: %+v", got.Rescheduled)
	}
	if got, err := sim.Open(sim.Options{Checks: true, Schedules: 2}).Run(t.Context(), job); err != nil || len(got.Findings) > 0 {
		t.Errorf("under two schedules: %v, %v", got, err)
	}
	if got, err := sim.Open(sim.Options{Schedules: 3}).Run(t.Context(), job); err != nil || !slices.Contains(kindsOf(got), finding.NotRepeatable) ||
		!strings.HasPrefix(got.Findings[0].Text(), "in relaunch 2, schedule 2: argument 1: ") {
		t.Errorf("without checkers: %v, %v", got, err)
	}
}

// Scratch that is cleared before every launch has no state: the same kernels are right.
func TestClearedScratch(t *testing.T) {
	for name, job := range map[string]device.Job{
		"a flag": scratchJob(cheats["the result, whole"]), "a count": scratchJob(cheats["another result from the third launch on"]), "look-back": lookBackJob(""),
	} {
		job.Args[2].Zero = true
		got, err := sim.Open(sim.Options{Checks: true, Schedules: 3}).Run(t.Context(), job)
		if err != nil || len(got.Findings)+len(got.Notes) > 0 || !slices.Equal(got.Outputs[0], got.Relaunched[1][0]) || slices.Equal(got.Outputs[0], got.Relaunched[0][0]) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	job := scratchJob("")
	if job.Args[0].Zero = true; job.Check() == nil {
		t.Error("an input that is cleared is accepted")
	}
}

// A write to an input is found where it is, even if the bytes have their values again at the end.
func TestRestoredInput(t *testing.T) {
	for name, body := range map[string]string{
		"changed and restored": "st.global.u32 [%rd4], 7;\n st.global.u32 [%rd4], %r3;\n",
		"the same value":       "st.global.u32 [%rd4], %r3;\n",
		"an atomic operation":  "atom.global.add.u32 %r9, [%rd4], 0;\n",
	} {
		got, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), scratchJob(body+"WORK"+storeResult))
		if err != nil || !slices.Contains(kindsOf(got), finding.InputChanged) || got.Findings[0].Where.PTXLine == 0 ||
			!strings.Contains(got.Findings[0].Detail, "4 bytes of argument 0, an input") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
