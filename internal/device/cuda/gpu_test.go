//go:build linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/device/devicetest"
	"attune/internal/device/isolate"
	"attune/internal/finding"
)

// The tests in this file need a GPU and are skipped without one. Their kernels are handwritten PTX.
const ptx = `
.version 7.0
.target sm_80
.address_size 64

// add: c[i] = a[i] + b[i] for n floats.
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<6>;
	.reg .f32 %f<4>;
	.reg .b64 %rd<8>;
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %ntid.x;
	mov.u32 %r3, %tid.x;
	mad.lo.s32 %r4, %r1, %r2, %r3;
	ld.param.u32 %r5, [n];
	setp.ge.u32 %p1, %r4, %r5;
	@%p1 bra DONE;
	ld.param.u64 %rd1, [a];
	ld.param.u64 %rd2, [b];
	ld.param.u64 %rd3, [c];
	mul.wide.u32 %rd4, %r4, 4;
	add.s64 %rd5, %rd1, %rd4;
	add.s64 %rd6, %rd2, %rd4;
	add.s64 %rd7, %rd3, %rd4;
	ld.global.f32 %f1, [%rd5];
	ld.global.f32 %f2, [%rd6];
	add.f32 %f3, %f1, %f2;
	st.global.f32 [%rd7], %f3;
DONE:
	ret;
}

// poke writes 7 to the start of the output and to the address "away" bytes after it.
.visible .entry poke(.param .u64 out, .param .u64 away)
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [out];
	ld.param.u64 %rd2, [away];
	add.s64 %rd3, %rd1, %rd2;
	mov.u32 %r1, 7;
	st.global.u32 [%rd1], %r1;
	st.global.u32 [%rd3], %r1;
	ret;
}

// far passes a number through the last 4 of n bytes of dynamic shared memory.
.extern .shared .align 4 .b8 room[];
.visible .entry far(.param .u64 out, .param .u32 n)
{
	.reg .b32 %r<6>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [out];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, room;
	add.s32 %r3, %r2, %r1;
	mov.u32 %r4, 12345;
	st.volatile.shared.u32 [%r3+-4], %r4;
	ld.volatile.shared.u32 %r5, [%r3+-4];
	st.global.u32 [%rd1], %r5;
	ret;
}

// work does n dependent steps.
.visible .entry work(.param .u64 out, .param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<3>;
	.reg .f32 %f<2>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [out];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, 0;
	mov.f32 %f1, 0f3F800000;
STEP:
	fma.rn.f32 %f1, %f1, 0f3F7FFFFF, 0f3F000000;
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, %r1;
	@%p1 bra STEP;
	st.global.f32 [%rd1], %f1;
	ret;
}

// tire writes 7, but only in the first 10 launches of its module.
.global .u32 launches = 0;
.visible .entry tire(.param .u64 out)
{
	.reg .pred %p<2>;
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [out];
	atom.global.add.u32 %r1, [launches], 1;
	setp.ge.u32 %p1, %r1, 10;
	@%p1 bra TIRED;
	mov.u32 %r1, 7;
	st.global.u32 [%rd1], %r1;
TIRED:
	ret;
}

// hang waits for a value that never arrives.
.visible .entry hang(.param .u64 out)
{
	.reg .pred %p<2>;
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [out];
WAIT:
	ld.volatile.global.u32 %r1, [%rd1];
	setp.ne.u32 %p1, %r1, 0;
	@%p1 bra WAIT;
	ret;
}
`

// openGPU opens the first GPU.
func openGPU(t *testing.T) *Machine {
	t.Helper()
	m, err := Open(0)
	if errors.Is(err, device.ErrNoDevice) {
		t.Skip(err) // it begins with "no GPU: "
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// startGPU opens the first GPU in a child process, for kernels that lose their device.
func startGPU(t *testing.T, limit time.Duration) *isolate.Device {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d, err := isolate.Start(t.Context(), isolate.Options{Command: []string{self, serverArg}, Limit: limit, Stderr: os.Stderr})
	if errors.Is(err, device.ErrNoDevice) {
		t.Skip(err) // it begins with "no GPU: "
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func gpuJob(entry string, args ...device.Arg) device.Job {
	return device.Job{Image: []byte(ptx), Entry: entry, Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Args: args}
}

func long(v uint64) device.Arg { return device.Arg{Scalar: binary.LittleEndian.AppendUint64(nil, v)} }

func floats(n int, value func(i int) float32) []byte {
	var data []byte
	for i := range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(value(i)))
	}
	return data
}

func TestGPUFacts(t *testing.T) {
	f := openGPU(t).Facts()
	archForm, driverForm := regexp.MustCompile(`^sm_\d{2,3}$`), regexp.MustCompile(`^(\d+(\.\d+)+, )?CUDA \d+\.\d+$`)
	if f.Kind != "cuda" || f.Name == "" || !uuidForm.MatchString(f.UUID) || !archForm.MatchString(f.Arch) || !driverForm.MatchString(f.Driver) {
		t.Errorf("facts %+v", f)
	}
	for name, value := range map[string]int64{
		"multiprocessors": int64(f.Multiprocessors), "memory": f.MemoryBytes >> 20, "L2": f.L2Bytes >> 10,
		"shared memory": int64(f.SharedBlockLimit) >> 10, "clock": int64(f.ClockKHz), "memory clock": int64(f.MemoryClockKHz),
	} {
		if value < 1 {
			t.Errorf("%s: %d in %+v", name, value, f)
		}
	}
}

func TestGPUIndexOutOfRange(t *testing.T) {
	openGPU(t)
	if _, err := Open(1000); !errors.Is(err, device.ErrNoDevice) {
		t.Errorf("cuda:1000: %v; want ErrNoDevice", err)
	}
}

func TestGPUAdd(t *testing.T) {
	m := openGPU(t)
	const n = 1000 // not a whole number of blocks
	job := gpuJob("add", device.In(floats(n, func(i int) float32 { return float32(i) })),
		device.In(floats(n, func(i int) float32 { return float32(3 * i) })), device.Out(4*n), device.Int32(n))
	job.Grid[0], job.Block[0] = 8, 128
	got, err := device.Run(m, job)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]byte{floats(n, func(i int) float32 { return float32(4 * i) })}
	if diff := cmp.Diff(want, got.Outputs); diff != "" || len(got.Findings) > 0 {
		t.Errorf("findings %v, outputs %s", got.Findings, diff)
	}
	if got.Loaded.Registers < 1 || got.Loaded.MaxThreads < 128 || got.Loaded.LocalBytes != 0 || got.Loaded.StaticSharedBytes != 0 {
		t.Errorf("attributes %+v", got.Loaded)
	}
}

func TestGPUFindings(t *testing.T) {
	m := openGPU(t)
	back := uint64(math.MaxUint64 - 15) // -16
	for _, c := range []struct {
		job  device.Job
		want []finding.Finding
	}{
		{
			gpuJob("poke", device.Out(4), long(4)),
			[]finding.Finding{devicetest.Found(finding.WroteOutside, "argument 0: 4 bytes written past its end (it has 4), the first at byte 4")},
		},
		{
			gpuJob("poke", device.Out(4), long(back)),
			[]finding.Finding{devicetest.Found(finding.WroteOutside, "argument 0: 4 bytes written before its start, the first at byte -16")},
		},
		{
			gpuJob("poke", device.Out(8), long(0)),
			[]finding.Finding{devicetest.Found(finding.Unwritten, "argument 0: 4 of 8 bytes never written, the first at byte 4")},
		},
		{
			gpuJob("poke", device.In([]byte{1, 2, 3, 4}), long(0)),
			[]finding.Finding{devicetest.Found(finding.InputChanged, "argument 0: 4 bytes of an input changed, the first at byte 0")},
		},
	} {
		got, err := device.Run(m, c.job)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got.Findings); diff != "" {
			t.Error(diff)
		}
	}
}

func TestGPUDynamicSharedMemory(t *testing.T) {
	m := openGPU(t)
	run := func(bytes int) (*device.Outcome, error) {
		job := gpuJob("far", device.Out(4), device.Int32(int32(bytes)))
		job.DynamicSharedBytes = bytes
		return device.Run(m, job)
	}
	for _, bytes := range []int{1 << 10, 48 << 10, 64 << 10, m.Facts().SharedBlockLimit} {
		got, err := run(bytes)
		if err != nil {
			t.Errorf("%d bytes: %v", bytes, err)
		} else if binary.LittleEndian.Uint32(got.Outputs[0]) != 12345 {
			t.Errorf("%d bytes: got %v", bytes, got.Outputs)
		}
	}
	over := m.Facts().SharedBlockLimit + 1024
	if _, err := run(over); !isFault(err, "CUDA_ERROR_INVALID_VALUE") {
		t.Errorf("%d bytes: %v; want CUDA_ERROR_INVALID_VALUE", over, err)
	}
}

func TestGPUBadImages(t *testing.T) {
	m := openGPU(t)
	job := gpuJob("poke", device.Out(4), long(0))
	run := func(image string) error {
		job.Image = []byte(image)
		_, err := device.Run(m, job)
		return err
	}
	err := run(strings.ReplaceAll(ptx, "st.global.u32 [%rd3], %r1;", "st.global.u32 [%rd3] %r1;"))
	if !isFault(err, "CUDA_ERROR_INVALID_PTX") || !regexp.MustCompile(`driver log: .*line \d+`).MatchString(err.Error()) {
		t.Errorf("a syntax error: %v; want CUDA_ERROR_INVALID_PTX and the line", err)
	}
	if err := run("no PTX at all"); !errors.As(err, new(*device.Fault)) {
		t.Errorf("no PTX: %v; want a fault", err)
	}
	// A driver that is too old is not the kernel's fault.
	err = run(strings.ReplaceAll(ptx, ".version 7.0", ".version 99.0"))
	if err == nil || errors.As(err, new(*device.Fault)) || !strings.Contains(err.Error(), "CUDA_ERROR_UNSUPPORTED_PTX_VERSION") {
		t.Errorf("PTX of a newer CUDA: %v; want CUDA_ERROR_UNSUPPORTED_PTX_VERSION, not as a fault", err)
	}
	job.Entry = "missing"
	if err := run(ptx); !isFault(err, "CUDA_ERROR_NOT_FOUND") || !strings.Contains(err.Error(), "find the function missing in the image") {
		t.Errorf("no such entry: %v", err)
	}
	job.Entry = "poke"
	if err := run(ptx); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestGPUTooMuchMemory(t *testing.T) {
	_, err := device.Run(openGPU(t), gpuJob("poke", device.Out(1<<46), long(0)))
	if err == nil || errors.As(err, new(*device.Fault)) || !strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY") {
		t.Errorf("got %v; want CUDA_ERROR_OUT_OF_MEMORY, not as a fault", err)
	}
}

func TestGPUTooManyThreads(t *testing.T) {
	job := gpuJob("poke", device.Out(4), long(0))
	job.Block[0] = 4096
	_, err := device.Run(openGPU(t), job)
	if !errors.As(err, new(*device.Fault)) || !strings.HasPrefix(err.Error(), "launch the kernel: ") {
		t.Errorf("got %v; want a fault of the launch", err)
	}
}

func TestGPUTime(t *testing.T) {
	m := openGPU(t)
	const steps = 50_000
	jobs := []device.Job{
		gpuJob("work", device.Out(4), device.Int32(steps)),
		gpuJob("work", device.Out(4), device.Int32(4*steps)),
	}
	for range 2 { // the second timing reuses the clock of the first
		got, err := m.Time(jobs, device.Plan{Samples: 15})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 {
			t.Fatalf("%d series; want 2", len(got))
		}
		var medians [2]float64
		for i, s := range got {
			if len(s.Seconds) != 15 || s.LaunchesPerSample < 1 || slices.Min(s.Seconds) <= 0 {
				t.Errorf("series %d: %+v", i, s)
			}
			medians[i] = median(slices.Clone(s.Seconds))
		}
		if medians[1] < 2*medians[0] {
			t.Errorf("four times the work took %g s, the work once took %g s", medians[1], medians[0])
		}
	}
}

// With a cold L2 the series has both raw times, and they add up. An empty node takes less than a
// kernel that works.
func TestGPUTimeCold(t *testing.T) {
	m := openGPU(t)
	got, err := m.Time([]device.Job{gpuJob("work", device.Out(4), device.Int32(50_000))}, device.Plan{Samples: 15, ColdL2: true})
	if err != nil {
		t.Fatal(err)
	}
	s := got[0]
	for i := range s.Seconds {
		if off := s.WithFlush[i] - s.Seconds[i]; s.Seconds[i] <= 0 || s.Flush[i] <= 0 || off < slices.Min(s.Flush)*(1-1e-9) || off > slices.Max(s.Flush)*(1+1e-9) {
			t.Errorf("sample %d: %g s with the flush, %g s of the flush alone, %g s of the launch", i, s.WithFlush[i], s.Flush[i], s.Seconds[i])
		}
	}
	if s.Copies < 2 || s.WarmSeconds < 2*windowSeconds {
		t.Errorf("%d copies, %g s of warm-up", s.Copies, s.WarmSeconds)
	}
	t.Logf("a flush %g s, %g s of warm-up, unstable %t", slices.Min(s.Flush), s.WarmSeconds, s.Unstable)
	if s.EmptyNode == nil || *s.EmptyNode <= 0 || *s.EmptyNode >= slices.Min(s.Seconds) || len(s.Single) != 15 {
		t.Errorf("an empty node of %v s, %d single launches, samples %v", s.EmptyNode, len(s.Single), s.Seconds)
	}
	if s.NoReadings != "" {
		t.Logf("no readings: %s", s.NoReadings)
	} else if len(s.Readings) != 15 || s.Readings[0].ClockMHz <= 0 || s.Readings[0].Celsius <= 0 {
		t.Errorf("readings %+v", s.Readings)
	}
}

// A memory-bound kernel is faster with a warm L2: it reads 2 MB from L2 instead of from DRAM.
func TestGPUColdIsSlower(t *testing.T) {
	m := openGPU(t)
	const n = 1 << 18
	job := gpuJob("add", device.In(make([]byte, 4*n)), device.In(make([]byte, 4*n)), device.Out(4*n), device.Int32(n))
	job.Grid, job.Block = [3]int{n / 256, 1, 1}, [3]int{256, 1, 1}
	var medians [2]float64
	for i, cold := range []bool{false, true} {
		got, err := m.Time([]device.Job{job}, device.Plan{Samples: 15, ColdL2: cold})
		if err != nil {
			t.Fatal(err)
		}
		medians[i] = median(got[0].Seconds)
	}
	t.Logf("warm %g s, cold %g s", medians[0], medians[1])
	if medians[1] < 1.1*medians[0] {
		t.Errorf("cold %g s, warm %g s", medians[1], medians[0])
	}
}

// The timed launches of a correct kernel have the outputs of their rotated inputs.
func TestGPUTimedCheck(t *testing.T) {
	m := openGPU(t)
	const n = 1 << 18
	job := gpuJob("add", device.Rotating(floats(n, func(i int) float32 { return float32(i) }), 16),
		device.Rotating(floats(n, func(i int) float32 { return float32(3 * i) }), 4), device.Out(4*n), device.Int32(n))
	job.Grid, job.Block = [3]int{n / 256, 1, 1}, [3]int{256, 1, 1}
	for _, cold := range []bool{false, true} {
		got, err := m.Time([]device.Job{job}, device.Plan{Samples: 5, ColdL2: cold, Secret: secret, Fresh: true})
		if err != nil {
			t.Fatal(err)
		}
		s, check := got[0], got[0].Check
		t.Logf("cold L2 %t: %g s, on new inputs %g s", cold, median(slices.Clone(s.Seconds)), check.FreshSeconds)
		if len(check.Findings) > 0 || check.Outputs != 2*s.Copies || check.FreshSeconds <= 0 || len(check.Launches) != 2 {
			t.Errorf("cold L2 %t, %d copies: %d outputs, %d launches, findings %v", cold, s.Copies, check.Outputs, len(check.Launches), check.Findings)
		}
		for _, l := range check.Launches {
			rotated := job.Rotate(l.Rotation).Args
			sum := func(i int) float32 {
				a, b := binary.LittleEndian.Uint32(rotated[0].Input[4*i:]), binary.LittleEndian.Uint32(rotated[1].Input[4*i:])
				return math.Float32frombits(a) + math.Float32frombits(b)
			}
			if !bytes.Equal(l.Outputs[0], floats(n, sum)) {
				t.Errorf("cold L2 %t: the output after %+v is wrong", cold, l.Rotation)
			}
		}
	}
}

func TestGPUTimedCheat(t *testing.T) {
	m := openGPU(t)
	job := gpuJob("tire", device.Out(4))
	if got, err := device.Run(m, job); err != nil || len(got.Findings) > 0 {
		t.Fatalf("untimed: %+v, %v", got, err)
	}
	got, err := m.Time([]device.Job{job}, device.Plan{Samples: 2, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	if found := kinds(got[0].Check.Findings); !slices.Equal(found, []finding.Kind{finding.TimedOutputDiffers}) {
		t.Errorf("findings %v; want %s", got[0].Check.Findings, finding.TimedOutputDiffers)
	}
}

func TestGPUIllegalAddress(t *testing.T) {
	d := startGPU(t, time.Minute)
	if got, err := d.Run(t.Context(), gpuJob("poke", device.Out(4), long(0))); err != nil || len(got.Findings) > 0 {
		t.Fatalf("a correct kernel: %v, %v", got, err)
	}
	_, err := d.Run(t.Context(), gpuJob("poke", device.Out(4), long(1<<40)))
	if !isFault(err, "CUDA_ERROR_ILLEGAL_ADDRESS") {
		t.Errorf("got %v; want CUDA_ERROR_ILLEGAL_ADDRESS", err)
	}
	if _, err := d.Run(t.Context(), gpuJob("poke", device.Out(4), long(0))); !errors.Is(err, isolate.ErrDeviceLost) {
		t.Errorf("afterwards: %v; want ErrUsedUp", err)
	}
	if _, err := startGPU(t, time.Minute).Run(t.Context(), gpuJob("poke", device.Out(4), long(0))); err != nil {
		t.Errorf("the next child: %v", err)
	}
}

func TestGPUHang(t *testing.T) {
	d := startGPU(t, 10*time.Second)
	_, err := d.Run(t.Context(), gpuJob("hang", device.Out(4)))
	if !errors.As(err, new(*device.Timeout)) {
		t.Errorf("got %v; want a timeout", err)
	}
	d.Close()
	if _, err := startGPU(t, time.Minute).Run(t.Context(), gpuJob("poke", device.Out(4), long(0))); err != nil {
		t.Errorf("the next child: %v", err)
	}
}
