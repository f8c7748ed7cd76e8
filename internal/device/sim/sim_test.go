package sim_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"attune/internal/crash"
	"attune/internal/device"
	"attune/internal/device/sim"
	"attune/internal/finding"
	"attune/internal/tensormap"
)

// kernel returns k(in, out, n): thread i < n of 32 writes out[i] = 2*in[i] and then executes more.
func kernel(more string) []byte {
	return []byte(`.version 8.0
.target sm_80
.address_size 64
.shared .align 4 .b8 s[256];
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n)
{
	.reg .pred %p<4>;
	.reg .b32 %r<8>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [in];
	ld.param.u64 %rd2, [out];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %tid.x;
	mul.wide.u32 %rd3, %r2, 4;
	add.s64 %rd4, %rd1, %rd3;
	add.s64 %rd5, %rd2, %rd3;
	setp.ge.u32 %p1, %r2, %r1;
	@%p1 bra MORE;
	ld.global.u32 %r3, [%rd4];
	add.u32 %r3, %r3, %r3;
	st.global.u32 [%rd5], %r3;
MORE:
` + more + `
	ret;
}
`)
}

const threads = 32

func newJob(image []byte, n int32) device.Job {
	var in []byte
	for i := range uint32(threads) {
		in = binary.LittleEndian.AppendUint32(in, i+1)
	}
	return device.Job{
		Image: image, Entry: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{threads, 1, 1},
		Args: []device.Arg{device.In(in), device.Out(4 * threads), device.Int32(n)},
	}
}

func doubled() []byte {
	var out []byte
	for i := range uint32(threads) {
		out = binary.LittleEndian.AppendUint32(out, 2*i+2)
	}
	return out
}

func TestFacts(t *testing.T) {
	d := sim.Open(sim.Options{})
	if f := d.Facts(); f.Kind != "sim" || f.Name == "" || f.Arch != "" {
		t.Errorf("the facts are %+v", f)
	}
	if series, err := d.Time(t.Context(), nil, device.Plan{}); !errors.Is(err, device.ErrNoClock) || series != nil {
		t.Errorf("a time: %v, %v", series, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestOutcome(t *testing.T) {
	d := sim.Open(sim.Options{Schedules: 3, Checks: true})
	for range 2 { // the second time the program is cached
		outcome, err := d.Run(t.Context(), newJob(kernel(""), threads))
		if err != nil {
			t.Fatal(err)
		}
		if len(outcome.Outputs) != 1 || !bytes.Equal(outcome.Outputs[0], doubled()) || len(outcome.Findings) > 0 {
			t.Errorf("outputs %x, findings %v", outcome.Outputs, outcome.Findings)
		}
	}
	outcome, err := d.Run(t.Context(), newJob(kernel("\tst.shared.u32 [s], 1;"), threads))
	if err != nil || outcome.Loaded.StaticSharedBytes != 256 {
		t.Errorf("loaded: %+v, %v", outcome, err)
	}
}

// TestFindings tests the findings of every device, and those of the checkers.
func TestFindings(t *testing.T) {
	check := func(name, more string, n int32, o sim.Options, want ...finding.Kind) {
		t.Helper()
		outcome, err := sim.Open(o).Run(t.Context(), newJob(kernel(more), n))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		var got []finding.Kind
		for _, f := range outcome.Findings {
			got = append(got, f.Kind)
			if f.Text() == "" {
				t.Errorf("%s: a finding without a text: %v", name, f)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: findings %v, want %v", name, outcome.Findings, want)
		}
	}
	checked := sim.Options{Checks: true}
	check("nothing", "", threads, checked)
	check("output left unwritten", "", threads-1, checked, finding.Unwritten)
	check("output past its end", "\tst.global.u32 [%rd5+4], %r2;", 0, checked, "out-of-bounds", finding.Unwritten)
	check("input changed", "\tst.global.u32 [%rd4], %r2;", threads, checked, finding.InputChanged)
	check("input changed, without checkers", "\tst.global.u32 [%rd4], %r2;", threads, sim.Options{}, finding.InputChanged)
	check("output left unwritten, without checkers", "", threads-1, sim.Options{})
	check("a race", "\tst.shared.u32 [s], %r2;", threads, checked, "race")
	check("a race under every schedule", "\tst.shared.u32 [s], %r2;", threads, sim.Options{Checks: true, Schedules: 5}, "race")
	check("a race, without checkers", "\tst.shared.u32 [s], %r2;", threads, sim.Options{})
	// Warps draw tickets, so the output depends on the schedule.
	racing := newJob([]byte(strings.Replace(string(kernel(`	setp.ne.u32 %p2, %r2, %r1;
	@%p2 bra END;
	st.global.u32 [%rd2], %r2;
END:`)), "add.u32 %r3, %r3, %r3;", "atom.shared.add.u32 %r3, [s], 1;", 1)), threads)
	racing.Block[0], racing.Args[0], racing.Args[1] = 96, device.In(make([]byte, 4*96)), device.Out(4*96)
	racing.Args[2] = device.Int32(96)
	outcome, err := sim.Open(sim.Options{Schedules: 8}).Run(t.Context(), racing)
	if err != nil || len(outcome.Findings) != 1 || outcome.Findings[0].Kind != finding.NotRepeatable {
		t.Errorf("an output that depends on the schedule: %+v, %v", outcome, err)
	}
	racing.Unordered = true
	outcome, err = sim.Open(sim.Options{Schedules: 8}).Run(t.Context(), racing)
	if err != nil || len(outcome.Findings) > 0 || len(outcome.Rescheduled) == 0 {
		t.Fatalf("an unordered job: %+v, %v", outcome, err)
	}
	if other := outcome.Rescheduled[0].Outputs; len(other) != 1 || bytes.Equal(other[0], outcome.Outputs[0]) {
		t.Errorf("an unordered job: %+v", outcome)
	}
}

// TestNotes checks that a strict finding is a note, and a finding with the option Strict. A load of
// unwritten memory that no instruction uses is one.
func TestNotes(t *testing.T) {
	for _, strict := range []bool{false, true} {
		outcome, err := sim.Open(sim.Options{Checks: true, Strict: strict, Schedules: 3}).Run(t.Context(), newJob(kernel("\tld.shared.u32 %r4, [s];"), threads))
		if err != nil {
			t.Fatal(err)
		}
		list, none := outcome.Notes, outcome.Findings
		if strict {
			list, none = none, list
		}
		if len(none) > 0 || len(list) != 1 || list[0].Kind != "uninitialized" || !strings.Contains(list[0].Text(), "no instruction uses the value") {
			t.Errorf("strict %v: findings %v, notes %v", strict, outcome.Findings, outcome.Notes)
		}
	}
}

// TestUnsupported tests PTX that the simulator does not support. It is not a fault of the kernel.
func TestUnsupported(t *testing.T) {
	check := func(name string, image []byte, want ...string) {
		t.Helper()
		outcome, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), newJob(image, threads))
		var unsupported *device.Unsupported
		if !errors.As(err, &unsupported) {
			t.Errorf("%s: %v, %v", name, outcome, err)
			return
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: error %q does not contain %q", name, err, text)
			}
		}
	}
	check("wgmma", kernel("\twgmma.fence.sync.aligned;"), "the simulator cannot run the PTX", "PTX line 23", "wgmma.fence")
	other := append(kernel(""), []byte(strings.Replace(string(kernel("\twgmma.fence.sync.aligned;")), ".visible .entry k(", ".visible .entry hopper(", 1))...)
	two := []byte(strings.Replace(string(other), "}\n.version 8.0\n.target sm_80\n.address_size 64\n.shared .align 4 .b8 s[256];\n", "}\n", 1))
	if _, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), newJob(two, threads)); err != nil {
		t.Errorf("the unsupported instruction is in another entry, but the error is %v", err)
	}
	job := newJob(two, threads)
	job.Entry = "hopper"
	var unsupported *device.Unsupported
	if _, err := sim.Open(sim.Options{Checks: true}).Run(t.Context(), job); !errors.As(err, &unsupported) {
		t.Errorf("error of an entry that is not supported: %v", err)
	}
	check("no PTX", []byte("\x7fELF"), "the simulator cannot read the PTX")
}

func TestFaults(t *testing.T) {
	job := newJob(kernel("\ttrap;"), threads)
	_, err := sim.Open(sim.Options{}).Run(t.Context(), job)
	var fault *device.Fault
	if !errors.As(err, &fault) || !strings.Contains(fault.Text, "trap") {
		t.Errorf("error of trap: %v", err)
	}
	job = newJob(kernel(""), threads)
	job.Args = job.Args[:2]
	// The job is wrong, not the kernel: no kernel has run.
	_, err = sim.Open(sim.Options{}).Run(t.Context(), job)
	if device.Classify(err) != device.OtherFailure || !strings.Contains(err.Error(), "2 arguments; the kernel takes 3 parameters") {
		t.Errorf("error of too few arguments: %v", err)
	}
	job = newJob(kernel(""), threads)
	job.Entry = "q"
	if _, err = sim.Open(sim.Options{}).Run(t.Context(), job); err == nil || !strings.Contains(err.Error(), `no entry function "q"`) {
		t.Errorf("error of an unknown entry: %v", err)
	}
	job = newJob(kernel(""), threads)
	job.Args[1] = device.Arg{}
	if _, err = sim.Open(sim.Options{}).Run(t.Context(), job); err == nil || !strings.Contains(err.Error(), "argument 1 must be exactly one of") {
		t.Errorf("error of an empty argument: %v", err)
	}
}

func TestEndlessKernel(t *testing.T) {
	job := newJob(kernel("LOOP:\n\tadd.u32 %r3, %r3, 1;\n\tbra LOOP;"), threads)
	_, err := sim.Open(sim.Options{Limit: 10 * time.Millisecond}).Run(t.Context(), job)
	var timeout *device.Timeout
	if !errors.As(err, &timeout) || timeout.Limit != 10*time.Millisecond {
		t.Errorf("error of an endless kernel: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sim.Open(sim.Options{Limit: time.Hour}).Run(ctx, job); !errors.Is(err, context.Canceled) {
		t.Errorf("error of a cancelled job: %v", err)
	}
}

func TestPrintf(t *testing.T) {
	image := []byte(strings.Replace(string(kernel(`	.local .align 8 .b8 l[8];
	.param .b64 f; .param .b64 a; .param .b32 r;
	mov.u64 %rd6, text;
	cvta.global.u64 %rd6, %rd6;
	st.param.b64 [f], %rd6;
	mov.u64 %rd7, l;
	cvta.local.u64 %rd7, %rd7;
	st.param.b64 [a], %rd7;
	st.local.u32 [l], %r2;
	setp.ne.u32 %p2, %r2, 7;
	@%p2 bra END;
	call (r), vprintf, (f, a);
END:`)), ".shared", ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n.global .b8 text[] = {116, 61, 37, 100, 0};\n.shared", 1))
	var printed []string
	d := sim.Open(sim.Options{Checks: true, Printf: func(text string) { printed = append(printed, text) }})
	if outcome, err := d.Run(t.Context(), newJob(image, threads)); err != nil || len(outcome.Findings) > 0 || fmt.Sprint(printed) != "[t=7]" {
		t.Errorf("printed %q; %+v, %v", printed, outcome, err)
	}
}

// TestCounters checks that the counters have the names of Nsight Compute and count one launch,
// whatever the number of schedules.
func TestCounters(t *testing.T) {
	image := kernel(`
	mov.u64 %rd6, s;
	cvta.to.shared.u64 %rd6, %rd6;
	and.b32 %r4, %r2, 1;
	mul.wide.u32 %rd7, %r4, 128;
	add.s64 %rd6, %rd6, %rd7;
	bar.sync 0;
	ld.volatile.shared.u32 %r5, [%rd6];`)
	for _, schedules := range []int{1, 3} {
		outcome, err := sim.Open(sim.Options{Schedules: schedules}).Run(t.Context(), newJob(image, threads))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]float64{
			"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum":                  1,
			"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum":                   4,
			"l1tex__t_requests_pipe_lsu_mem_global_op_st.sum":                  1,
			"l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum":                   4,
			"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum":         1, // two words of one bank
			"sm__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": 0,
			"memory_l1_wavefronts_shared":                                      2,
			"memory_l2_theoretical_sectors_global":                             8,
			"sm__inst_executed_pipe_tensor_op_hmma.sum":                        0,
			"sim__inst_executed_op_shared_ld.sum":                              1,
			"sim__inst_executed_op_bar.sum":                                    1,
			"sim__data_bytes_mem_global.sum":                                   256,
		} {
			if got, ok := outcome.Counters[name]; !ok || got != want {
				t.Errorf("%d schedules: %s is %g; want %g", schedules, name, got, want)
			}
		}
		total := 0.0
		for name, n := range outcome.Counters {
			if strings.HasPrefix(name, "sim__inst_executed_class_") {
				total += n
			}
		}
		if all := outcome.Counters["sim__inst_executed.sum"]; total != all || all < 19 {
			t.Errorf("%d schedules: %g instructions, %g by class", schedules, all, total)
		}
		if _, ok := outcome.Counters["gpu__time_duration.sum"]; ok {
			t.Error("the simulator reports a time")
		}
	}
}

// hopper is h(out, n, in, tensor) for a cluster of two blocks. Each block loads its own row of 16
// bytes of the tensor, and writes the other block's row to its row of out. The tensor map in
// follows a word, so that its offset depends on its alignment.
const hopper = `.version 8.0
.target sm_90a
.address_size 64
.visible .entry h(.param .u64 out, .param .u32 n, .param .align 64 .b8 in[128], .param .u64 tensor)
{
	.reg .pred %p<4>;
	.reg .b32 %r<16>;
	.reg .b64 %rd<8>;
	.shared .align 128 .b8 box[16];
	.shared .align 8 .b64 full;
	mov.u32 %r1, %cluster_ctarank;
	mov.u32 %r2, box;
	mov.u32 %r3, full;
	mov.b64 %rd1, in;
	cvta.param.u64 %rd2, %rd1;
	mbarrier.init.shared.b64 [%r3], 1;
	fence.mbarrier_init.release.cluster;
	mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 16;
	mov.u32 %r4, 0;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd2, {%r4, %r1}], [%r3];
WAIT:
	mbarrier.try_wait.parity.shared.b64 %p1, [%r3], 0;
	@!%p1 bra WAIT;
	barrier.cluster.arrive;
	barrier.cluster.wait;
	xor.b32 %r5, %r1, 1;
	mapa.shared::cluster.u32 %r6, %r2, %r5;
	ld.shared::cluster.v4.u32 {%r7, %r8, %r9, %r10}, [%r6];
	barrier.cluster.arrive;
	barrier.cluster.wait;
	ld.param.u64 %rd3, [out];
	mul.wide.u32 %rd4, %r1, 16;
	add.s64 %rd5, %rd3, %rd4;
	st.global.v4.u32 [%rd5], {%r7, %r8, %r9, %r10};
	ret;
}
`

func hopperJob() device.Job {
	in := make([]byte, 2*32)
	for i := range in {
		in[i] = byte(i)
	}
	m := tensormap.Map{Type: "u8", Dims: []int{16, 2}, Strides: []int{32}, Box: []int{16, 1}}
	return device.Job{
		Image: []byte(hopper),
		Entry: "h", Grid: [3]int{2, 1, 1}, Block: [3]int{1, 1, 1}, Cluster: [3]int{2, 1, 1},
		Args: []device.Arg{device.Out(32), device.Int32(1), {TensorMap: &device.TensorMap{Arg: 3, Map: m}}, device.In(in)},
	}
}

func TestClustersAndTensorMaps(t *testing.T) {
	d := sim.Open(sim.Options{Schedules: 3, Checks: true})
	job := hopperJob()
	outcome, err := d.Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	in := job.Args[3].Input
	if want := append(bytes.Clone(in[32:48]), in[:16]...); len(outcome.Findings) > 0 || !bytes.Equal(outcome.Outputs[0], want) {
		t.Errorf("findings %v, output %x, want %x", outcome.Findings, outcome.Outputs[0], want)
	}
	job = hopperJob()
	job.Args[2].TensorMap.Box[0] = 24
	const refused = "job h: argument 2: a tensor map of argument 3: a row of its box has 24 bytes"
	if _, err := d.Run(t.Context(), job); err == nil || !strings.Contains(err.Error(), refused) {
		t.Errorf("error of a map that the driver refuses: %v", err)
	}
	job = hopperJob()
	job.Args[2].TensorMap.Interleave = "16B"
	if _, err := d.Run(t.Context(), job); !errors.As(err, new(*device.Unsupported)) {
		t.Errorf("error of a map that is not simulated: %v; want device.Unsupported", err)
	}
	job = hopperJob()
	job.Args[2] = device.Int32(0)
	if _, err := d.Run(t.Context(), job); err == nil || !strings.Contains(err.Error(), "argument 2 has 4 bytes; the parameter in has 128") {
		t.Errorf("error of a number instead of a map: %v", err)
	}
}

// TestPanic checks that a panic in the simulator is not reported as a fault of the kernel.
func TestPanic(t *testing.T) {
	image := bytes.Replace(kernel(`
	.param .b64 f; .param .b64 a; .param .b32 r;
	mov.u64 %rd6, text;
	cvta.global.u64 %rd6, %rd6;
	st.param.b64 [f], %rd6;
	st.param.b64 [a], 0;
	call (r), vprintf, (f, a);`), []byte(".shared"), []byte(`.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[] = {104,105,10,0};
.shared`), 1)
	d := sim.Open(sim.Options{Printf: func(string) { panic("a defect") }})
	_, err := d.Run(t.Context(), newJob(image, threads))
	var p *crash.Panic
	if !errors.As(err, &p) || device.Classify(err) != device.OtherFailure || !strings.Contains(err.Error(), "call (r), vprintf") {
		t.Errorf("error %v", err)
	}
}

// TestExecuted counts the instructions of a loop that runs 5 times, in all blocks and in a sample.
func TestExecuted(t *testing.T) {
	image := kernel(`
	mov.u32 %r4, 0;
LOOP:
	add.u32 %r4, %r4, 1;
	bar.sync 0;
	setp.lt.u32 %p2, %r4, 5;
	@%p2 bra LOOP;`)
	job := newJob(image, threads)
	job.Grid[0] = 6
	d := sim.Open(sim.Options{Schedules: 1, Executed: true})
	for sample, blocks := range map[int]uint64{0: 6, 2: 2} {
		job.Sample = sample
		outcome, err := d.Run(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		if got := outcome.Counters["sim__inst_executed_op_bar.sum"]; got != float64(5*blocks) {
			t.Errorf("%d blocks: %v barriers", blocks, got)
		}
		total := uint64(0)
		for _, n := range outcome.Covered.Executed {
			total += n
		}
		if got := uint64(outcome.Counters["sim__inst_executed.sum"]); total != got || slices.Max(outcome.Covered.Executed) != 5*blocks {
			t.Errorf("%d blocks: %d instructions, %d counted; %v", blocks, got, total, outcome.Covered.Executed)
		}
	}
	job.Sample = 0
	if outcome, err := sim.Open(sim.Options{}).Run(t.Context(), job); err != nil || outcome.Covered.Executed != nil {
		t.Errorf("counted without the option: %v", err)
	}
}
