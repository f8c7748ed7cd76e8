package device_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/device/devicetest"
	"attune/internal/finding"
	"attune/internal/tensormap"
)

// The kernels of these tests take an input, an output and the size of both.
const size = 64

// increment is a correct kernel: every byte of the output is the byte of the input plus one.
func increment(l *devicetest.Launch) error {
	in, out := l.At(l.Pointer(0), l.Int(2)), l.At(l.Pointer(1), l.Int(2))
	for i := range in {
		out[i] = in[i] + 1
	}
	return nil
}

// incrementThen is increment followed by a misbehaviour. more gets the addresses of input and
// output.
func incrementThen(more func(l *devicetest.Launch, in, out device.Address)) devicetest.Kernel {
	return func(l *devicetest.Launch) error {
		if err := increment(l); err != nil {
			return err
		}
		more(l, l.Pointer(0), l.Pointer(1))
		return nil
	}
}

func fill(data []byte, value byte) {
	for i := range data {
		data[i] = value
	}
}

func newJob() device.Job {
	input := make([]byte, size)
	for i := range input {
		input[i] = byte(3 * i)
	}
	return device.Job{
		Image: []byte("an image"), Entry: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1},
		Args: []device.Arg{device.In(input), device.Out(size), device.Int32(size)},
	}
}

func newMachine(k devicetest.Kernel) *devicetest.Machine {
	return &devicetest.Machine{Kernels: map[string]devicetest.Kernel{"k": k}}
}

func TestCorrectKernel(t *testing.T) {
	m := newMachine(increment)
	job := newJob()
	got, err := device.Run(m, job)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, size)
	for i, b := range job.Args[0].Input {
		want[i] = b + 1
	}
	wanted := &device.Outcome{Outputs: [][]byte{want}, Loaded: device.Attributes{Registers: 32, MaxThreads: 1024}}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Error(diff)
	}
	if m.Launches != 2 || m.Allocated() != 0 {
		t.Errorf("%d launches and %d buffers not freed; want 2 and none", m.Launches, m.Allocated())
	}
}

func TestLaunchIsPassedOn(t *testing.T) {
	job := newJob()
	job.Grid, job.Block, job.Cluster, job.DynamicSharedBytes = [3]int{2, 3, 4}, [3]int{5, 6, 7}, [3]int{2, 1, 4}, 8
	job.Args = append(job.Args, device.Int32(-9), device.Float32(1.5), device.Arg{Scalar: binary.LittleEndian.AppendUint64(nil, 10)})
	_, err := device.Run(newMachine(func(l *devicetest.Launch) error {
		got := fmt.Sprint(l.Job.Grid, l.Job.Block, l.Job.Cluster, l.Job.DynamicSharedBytes, l.Args[3:])
		scalars := [][]byte{{0xF7, 0xFF, 0xFF, 0xFF}, {0, 0, 0xC0, 0x3F}, {10, 0, 0, 0, 0, 0, 0, 0}}
		if want := fmt.Sprint(job.Grid, job.Block, job.Cluster, 8, scalars); got != want {
			t.Errorf("the kernel saw %s; want %s", got, want)
		}
		for i := range 2 {
			if l.Pointer(i)%4096 != 0 {
				t.Errorf("argument %d is at %#x: the guard broke its alignment", i, l.Pointer(i))
			}
		}
		return increment(l)
	}), job)
	if err != nil {
		t.Fatal(err)
	}
}

// mapOf is a tensor map of the buffer of an argument: 4 rows of 16 bytes, in boxes of 2 rows.
func mapOf(arg int) *device.TensorMap {
	return &device.TensorMap{Arg: arg, Map: tensormap.Map{Type: "u8", Dims: []int{16, 4}, Strides: []int{16}, Box: []int{16, 2}, Swizzle: "32B"}}
}

// A tensor map points to the buffer of this launch, whether the buffer's argument is before or
// after.
func TestTensorMaps(t *testing.T) {
	job := newJob()
	job.Args = append([]device.Arg{{TensorMap: mapOf(2)}}, append(job.Args, device.Arg{TensorMap: mapOf(1)})...)
	got, err := device.Run(newMachine(func(l *devicetest.Launch) error {
		for i, of := range map[int]int{0: 2, 4: 1} {
			m := l.Map(i)
			if m.Address != l.Pointer(of) {
				t.Errorf("argument %d is a map of %#x, argument %d is at %#x", i, m.Address, of, l.Pointer(of))
			}
			if diff := cmp.Diff(mapOf(of).Map, m.Map); diff != "" {
				t.Error(diff)
			}
		}
		l.Args = l.Args[1:]
		return increment(l)
	}), job)
	if err != nil || len(got.Findings) > 0 || len(got.Outputs) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	m := newMachine(increment)
	m.FailMap = errors.New("no such box")
	if _, err := device.Run(m, job); err == nil || err.Error() != "argument 0: no such box" || m.Allocated() != 0 {
		t.Errorf("got %v, with %d buffers not freed", err, m.Allocated())
	}
}

// findingCase is a kernel and the findings that Run must report for it.
type findingCase struct {
	name   string
	kernel devicetest.Kernel
	want   []finding.Finding
}

func TestWritesOutside(t *testing.T) {
	checkFindings(t, []findingCase{
		{"past the end of the output", incrementThen(func(l *devicetest.Launch, _, out device.Address) {
			fill(l.At(out+size, 12), 0)
		}), []finding.Finding{devicetest.Found(finding.WroteOutside, "argument 1: 12 bytes written past its end (it has 64), the first at byte 64")}},
		{"past the end, with a gap", incrementThen(func(l *devicetest.Launch, _, out device.Address) {
			fill(l.At(out+size+100, 1), 0)
			fill(l.At(out+size+4095, 1), 0)
		}), []finding.Finding{devicetest.Found(finding.WroteOutside, "argument 1: 2 bytes written past its end (it has 64), the first at byte 164")}},
		{"before the start", incrementThen(func(l *devicetest.Launch, _, out device.Address) {
			fill(l.At(out-8, 4), 0)
		}), []finding.Finding{devicetest.Found(finding.WroteOutside, "argument 1: 4 bytes written before its start, the first at byte -8")}},
		{"on both sides of an input", incrementThen(func(l *devicetest.Launch, in, _ device.Address) {
			fill(l.At(in+size, 1), 0)
			fill(l.At(in-4096, 1), 0)
		}), []finding.Finding{
			devicetest.Found(finding.WroteOutside, "argument 0: 1 bytes written past its end (it has 64), the first at byte 64"),
			devicetest.Found(finding.WroteOutside, "argument 0: 1 bytes written before its start, the first at byte -4096"),
		}},
		{"past the end, with every byte value", incrementThen(func(l *devicetest.Launch, _, out device.Address) {
			for i := range l.At(out+size, 256) {
				l.At(out+size, 256)[i] = byte(i)
			}
		}), []finding.Finding{devicetest.Found(finding.WroteOutside, "argument 1: 256 bytes written past its end (it has 64), the first at byte 64")}},
		{"outside in one launch only", incrementThen(func(l *devicetest.Launch, _, out device.Address) {
			if launch()%2 == 1 {
				fill(l.At(out+size, 3), 0)
			}
		}), []finding.Finding{devicetest.Found(finding.WroteOutside, "argument 1: 3 bytes written past its end (it has 64), the first at byte 64")}},
	})
}

func TestInputsAndOutputs(t *testing.T) {
	checkFindings(t, []findingCase{
		{"input changed", incrementThen(func(l *devicetest.Launch, in, _ device.Address) {
			l.At(in, size)[7] ^= 1
			l.At(in, size)[9] ^= 1
		}), []finding.Finding{devicetest.Found(finding.InputChanged, "argument 0: 2 bytes of an input changed, the first at byte 7")}},
		{"input changed by the second launch only", incrementThen(func(l *devicetest.Launch, in, _ device.Address) {
			if launch()%2 == 1 {
				l.At(in, size)[3] ^= 1
			}
		}), []finding.Finding{devicetest.Found(finding.InputChanged, "argument 0: 1 bytes of an input changed, the first at byte 3")}},
		{"unwritten", func(l *devicetest.Launch) error {
			fill(l.At(l.Pointer(1), size)[:60], 0)
			return nil
		}, []finding.Finding{devicetest.Found(finding.Unwritten, "argument 1: 4 of 64 bytes never written, the first at byte 60")}},
		{
			"nothing written", func(*devicetest.Launch) error { return nil },
			[]finding.Finding{devicetest.Found(finding.Unwritten, "argument 1: 64 of 64 bytes never written, the first at byte 0")},
		},
		{"the poisons themselves, written", func(l *devicetest.Launch) error {
			fill(l.At(l.Pointer(1), size)[:32], 0xFF)
			fill(l.At(l.Pointer(1), size)[32:], 0x7F)
			return nil
		}, nil},
		{"not repeatable", incrementThen(func(l *devicetest.Launch, _, out device.Address) {
			fill(l.At(out, size)[20:22], byte(launch()))
		}), []finding.Finding{
			devicetest.Found(finding.NotRepeatable, "argument 1: 2 bytes differ between two launches on the same input, the first at byte 20"),
		}},
		{"partly unwritten and not repeatable", func(l *devicetest.Launch) error {
			out := l.At(l.Pointer(1), size)
			fill(out[8:], 0)
			out[30] = byte(launch())
			return nil
		}, []finding.Finding{
			devicetest.Found(finding.Unwritten, "argument 1: 8 of 64 bytes never written, the first at byte 0"),
			devicetest.Found(finding.NotRepeatable, "argument 1: 1 bytes differ between two launches on the same input, the first at byte 30"),
		}},
		{"unwritten by one launch only", incrementThen(func(l *devicetest.Launch, _, out device.Address) {
			if launch()%2 == 0 {
				l.At(out, size)[5] = 0xFF // the poison of the first launch
			}
		}), []finding.Finding{
			devicetest.Found(finding.NotRepeatable, "argument 1: 1 bytes differ between two launches on the same input, the first at byte 5"),
		}},
	})
}

// An unordered job may differ from launch to launch; its other findings stay.
func TestUnordered(t *testing.T) {
	launches = 0
	m := newMachine(func(l *devicetest.Launch) error {
		out := l.At(l.Pointer(1), size)
		fill(out[8:], 0)
		out[30] = byte(launch())
		return nil
	})
	job := newJob()
	job.Unordered = true
	got, err := device.Run(m, job)
	want := []finding.Finding{devicetest.Found(finding.Unwritten, "argument 1: 8 of 64 bytes never written, the first at byte 0")}
	if diff := cmp.Diff(want, got.Findings); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if len(got.Repeated) != 1 || len(got.Repeated[0]) != 1 || got.Repeated[0][0][30] == got.Outputs[0][30] {
		t.Errorf("the second launch is left out: %v", got.Repeated)
	}
}

func TestScalarSizes(t *testing.T) {
	for bytes := range 17 {
		job := newJob()
		job.Args[2] = device.Arg{Scalar: make([]byte, bytes)}
		valid := bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8
		if err := job.Check(); (err == nil) != valid {
			t.Errorf("a scalar of %d bytes: %v", bytes, err)
		}
	}
}

func checkFindings(t *testing.T, cases []findingCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			launches = 0
			m := newMachine(c.kernel)
			got, err := device.Run(m, newJob())
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Findings)+len(c.want) > 0 {
				if diff := cmp.Diff(c.want, got.Findings); diff != "" {
					t.Error(diff)
				}
			}
			if m.Allocated() != 0 {
				t.Errorf("%d buffers were not freed", m.Allocated())
			}
		})
	}
}

// launch counts launches, so that kernels can behave differently from launch to launch.
func launch() int { launches++; return launches - 1 }

var launches int

func TestOutputsAreOfTheFirstLaunch(t *testing.T) {
	launches = 0
	got, err := device.Run(newMachine(func(l *devicetest.Launch) error {
		fill(l.At(l.Pointer(1), size), byte(10+launch()))
		return nil
	}), newJob())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]byte{bytes.Repeat([]byte{10}, size)}, got.Outputs); diff != "" {
		t.Error(diff)
	}
}

// Each launch has fresh inputs and guards, even if the launch before overwrote them.
func TestSecondLaunchHasFreshBuffers(t *testing.T) {
	job := newJob()
	got, err := device.Run(newMachine(func(l *devicetest.Launch) error {
		if in := l.At(l.Pointer(0), size); !bytes.Equal(in, job.Args[0].Input) {
			t.Errorf("a launch found the input changed: % x", in)
		}
		for _, i := range []int{0, 1} {
			around := l.At(l.Pointer(i)-1, size+2)
			if around[0] == 0 || around[size+1] == 0 {
				t.Errorf("a launch found the guards of argument %d changed", i)
			}
		}
		if out := l.At(l.Pointer(1), size); out[0] != out[size-1] || out[0] == 1 {
			t.Errorf("a launch found an earlier result in the output: % x", out)
		}
		fill(l.At(l.Pointer(0)-1, size+2), 0)
		fill(l.At(l.Pointer(1)-1, size+2), 0)
		fill(l.At(l.Pointer(1), size), 1)
		return nil
	}), job)
	if err != nil {
		t.Fatal(err)
	}
	if job.Args[0].Input[1] != 3 {
		t.Error("the caller's own input was changed")
	}
	if len(got.Findings) != 5 {
		t.Errorf("findings %v; want both sides of both buffers, and the input", got.Findings)
	}
}

func TestOutputsInOrder(t *testing.T) {
	job := newJob()
	job.Args = []device.Arg{device.Out(3), device.In([]byte{7}), device.Out(2)}
	got, err := device.Run(newMachine(func(l *devicetest.Launch) error {
		fill(l.At(l.Pointer(0), 3), 1)
		fill(l.At(l.Pointer(2), 2), 2)
		return nil
	}), job)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]byte{{1, 1, 1}, {2, 2}}, got.Outputs); diff != "" {
		t.Error(diff)
	}
}

// An in-out buffer has the same bytes before each launch and is returned. The kernel need not write
// all of it.
func TestInOut(t *testing.T) {
	job := newJob()
	initial := []byte{1, 2, 0xFF, 4}
	job.Args = []device.Arg{{InOut: initial}, device.Out(1)}
	add := func(more func(l *devicetest.Launch, data []byte)) devicetest.Kernel {
		return func(l *devicetest.Launch) error {
			data := l.At(l.Pointer(0), 4)
			data[0] += 10
			fill(l.At(l.Pointer(1), 1), 9)
			more(l, data)
			return nil
		}
	}
	check := func(name string, more func(l *devicetest.Launch, data []byte), want ...finding.Finding) {
		t.Helper()
		launches = 0
		got, err := device.Run(newMachine(add(more)), job)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([][]byte{{11, 2, 0xFF, 4}, {9}}, got.Outputs); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(want, got.Findings); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	check("changed", func(*devicetest.Launch, []byte) {})
	// 0xFF and 0x7F are the two poisons: in an output, this byte would count as unwritten.
	check("changed from launch to launch", func(_ *devicetest.Launch, data []byte) { data[2] -= byte(0x80 * launch()) },
		devicetest.Found(finding.NotRepeatable, "argument 0: 1 bytes differ between two launches on the same input, the first at byte 2"))
	check("past its end", func(l *devicetest.Launch, _ []byte) { l.At(l.Pointer(0)+4, 1)[0] = 0 },
		devicetest.Found(finding.WroteOutside, "argument 0: 1 bytes written past its end (it has 4), the first at byte 4"))
	if initial[0] != 1 {
		t.Error("the caller's own bytes were changed")
	}
}

// Scratch is zero before the first launch, and the launches after it find what was left. It is no
// output, and only writes outside of it are findings.
func TestScratch(t *testing.T) {
	var seen []byte
	m := newMachine(incrementThen(func(l *devicetest.Launch, _, _ device.Address) {
		scratch := l.At(l.Pointer(3), size)
		seen = append(seen, scratch[0])
		scratch[0]++
	}))
	job := newJob()
	job.Args = append(job.Args, device.Arg{Scratch: size})
	job.Relaunches = []device.Relaunch{{Inputs: [][]byte{job.Args[0].Input}}}
	got, err := device.Run(m, job)
	if err != nil || len(got.Findings) > 0 || len(got.Outputs) != 1 || len(got.Relaunched[0]) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if !bytes.Equal(seen, []byte{0, 1, 2}) {
		t.Errorf("the launches find %v; want 0, 1 and 2", seen)
	}
	seen = nil
	job.Args[3].Zero = true
	got, err = device.Run(m, job)
	if err != nil || len(got.Findings) > 0 || !bytes.Equal(seen, []byte{0, 0, 0}) {
		t.Errorf("cleared before every launch: the launches find %v; %+v, %v", seen, got, err)
	}
	job.Args[3].Zero = false
	m = newMachine(incrementThen(func(l *devicetest.Launch, _, _ device.Address) { l.At(l.Pointer(3), size+1)[size]++ }))
	got, err = device.Run(m, job)
	if err != nil || len(got.Findings) == 0 || got.Findings[0].Kind != finding.WroteOutside {
		t.Errorf("%+v, %v; want a write outside", got, err)
	}
}

func TestFindingsAreCapped(t *testing.T) {
	job := newJob()
	job.Args = nil
	for range 6 {
		job.Args = append(job.Args, device.Out(4))
	}
	got, err := device.Run(newMachine(func(l *devicetest.Launch) error {
		for i := range l.Args {
			fill(l.At(l.Pointer(i)+4, 1), 0)
		}
		return nil
	}), job)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Findings) != 8 { // of 12
		t.Errorf("%d findings; want the first 8", len(got.Findings))
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(l *devicetest.Launch) error
	}{
		{"a launch error", func(*devicetest.Launch) error {
			return &device.Fault{Code: "ILLEGAL_ADDRESS", Text: "an illegal memory access was encountered", Operation: "run the kernel"}
		}},
		{"far from any buffer", func(l *devicetest.Launch) error { l.At(l.Pointer(1)+1<<40, 1)[0] = 0; return nil }},
		{"at address 0", func(l *devicetest.Launch) error { l.At(0, 4)[0] = 0; return nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(c.run)
			got, err := device.Run(m, newJob())
			var fault *device.Fault
			if !errors.As(err, &fault) || fault.Code != "ILLEGAL_ADDRESS" {
				t.Errorf("got %v, %v; want an ILLEGAL_ADDRESS fault", got, err)
			}
			if m.Launches != 1 || m.Allocated() != 0 {
				t.Errorf("%d launches and %d buffers not freed; want 1 and none", m.Launches, m.Allocated())
			}
		})
	}
}

func TestFaultText(t *testing.T) {
	err := &device.Fault{Code: "CUDA_ERROR_ILLEGAL_ADDRESS", Text: "an illegal memory access was encountered", Operation: "run the kernel"}
	want := "run the kernel: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)"
	if err.Error() != want {
		t.Errorf("got %q; want %q", err, want)
	}
}

// Run returns every error of the machine and frees all buffers.
func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(m *devicetest.Machine, job *device.Job)
		want   string
	}{
		{"no such entry", func(_ *devicetest.Machine, job *device.Job) { job.Entry = "other" }, "find the function other: NOT_FOUND"},
		{"no attributes", func(m *devicetest.Machine, _ *device.Job) { m.Attributes = errors.New("no attributes") }, "no attributes"},
		{"first allocation", func(m *devicetest.Machine, _ *device.Job) { m.FailAlloc = 1 }, "argument 0, 64 bytes: out of memory"},
		{"second allocation", func(m *devicetest.Machine, _ *device.Job) { m.FailAlloc = 2 }, "argument 1, 64 bytes: out of memory"},
		{"first write", func(m *devicetest.Machine, _ *device.Job) { m.FailWrite = 1 }, "the write failed"},
		{"second guard", func(m *devicetest.Machine, _ *device.Job) { m.FailWrite = 2 }, "the write failed"},
		{"contents of an input", func(m *devicetest.Machine, _ *device.Job) { m.FailWrite = 3 }, "the write failed"},
		{"poison of an output", func(m *devicetest.Machine, _ *device.Job) { m.FailWrite = 6 }, "the write failed"},
		{"write before the second launch", func(m *devicetest.Machine, _ *device.Job) { m.FailWrite = 7 }, "the write failed"},
		{"first read", func(m *devicetest.Machine, _ *device.Job) { m.FailRead = 1 }, "the read failed"},
		{"last read", func(m *devicetest.Machine, _ *device.Job) { m.FailRead = 4 }, "the read failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, job := newMachine(increment), newJob()
			c.change(m, &job)
			got, err := device.Run(m, job)
			if err == nil || !strings.Contains(err.Error(), c.want) || got != nil {
				t.Errorf("got %v, %v; want an error with %q", got, err, c.want)
			}
			if m.Allocated() != 0 {
				t.Errorf("%d buffers were not freed", m.Allocated())
			}
		})
	}
}

// badJob is a mistake in a job and the error that it must cause.
type badJob struct {
	name   string
	change func(job *device.Job)
	want   string
}

func TestBadGeometry(t *testing.T) {
	checkBadJobs(t, []badJob{
		{"no grid", func(j *device.Job) { j.Grid[0] = 0 }, "job k: grid x is 0; want 1 to 2147483647"},
		{"negative grid", func(j *device.Job) { j.Grid[2] = -1 }, "job k: grid z is -1"},
		{"a grid that 32 bits would truncate to 1", func(j *device.Job) { j.Grid[1] = 1<<32 + 1 }, "job k: grid y is 4294967297"},
		{"no block", func(j *device.Job) { j.Block = [3]int{} }, "job k: block x is 0"},
		{"a block of depth 0", func(j *device.Job) { j.Block[2] = 0 }, "job k: block z is 0"},
		{"negative shared memory", func(j *device.Job) { j.DynamicSharedBytes = -1 }, "job k: -1 bytes of dynamic shared memory"},
		{
			"too much shared memory", func(j *device.Job) { j.DynamicSharedBytes = math.MaxInt32 + 1 },
			"job k: 2147483648 bytes of dynamic shared memory",
		},
		{
			"half a cluster", func(j *device.Job) { j.Grid[0], j.Cluster = 2, [3]int{2, 0, 1} },
			"job k: cluster [2 0 1]; want 1 to 16 blocks in each dimension",
		},
		{"a wide cluster", func(j *device.Job) { j.Grid[0], j.Cluster = 32, [3]int{32, 1, 1} }, "job k: cluster [32 1 1]; want"},
		{
			"a large cluster", func(j *device.Job) { j.Grid, j.Cluster = [3]int{8, 4, 1}, [3]int{8, 4, 1} },
			"job k: clusters of 32 blocks; want at most 16",
		},
		{
			"a grid that clusters do not fill", func(j *device.Job) { j.Grid, j.Cluster = [3]int{4, 3, 1}, [3]int{2, 2, 1} },
			"job k: grid [4 3 1] is not a multiple of cluster [2 2 1]",
		},
	})
}

func TestBadArguments(t *testing.T) {
	const badArg = "must be exactly one of: a non-empty input, an output of at least 1 byte, " +
		"a non-empty in-out buffer, scratch of at least 1 byte, a scalar of 1, 2, 4 or 8 bytes, a tensor map"
	checkBadJobs(t, []badJob{
		{
			"a map of a missing argument", func(j *device.Job) { j.Args[2] = device.Arg{TensorMap: mapOf(3)} },
			"job k: argument 2: a tensor map of argument 3: that argument is not a buffer",
		},
		{"a map of argument -1", func(j *device.Job) { j.Args[2] = device.Arg{TensorMap: mapOf(-1)} }, "argument -1: that argument is not a buffer"},
		{"a map of itself", func(j *device.Job) { j.Args[2] = device.Arg{TensorMap: mapOf(2)} }, "argument 2: that argument is not a buffer"},
		{
			"a map with an unaligned stride", func(j *device.Job) {
				j.Args[2] = device.Arg{TensorMap: mapOf(1)}
				j.Args[2].TensorMap.Strides[0] = 24
			}, "job k: argument 2: a tensor map of argument 1: its stride 0 is 24 bytes, want a multiple of 16",
		},
		{
			"a map that is too long", func(j *device.Job) {
				j.Args[2] = device.Arg{TensorMap: mapOf(1)}
				j.Args[2].TensorMap.Dims[1] = 5
			}, "the map covers 80 bytes, the buffer has 64",
		},
		{"a map and a scalar", func(j *device.Job) { j.Args[2].TensorMap = mapOf(1) }, "job k: argument 2 " + badArg},
		{"a map and an output", func(j *device.Job) { j.Args[1].TensorMap = mapOf(0) }, "job k: argument 1 " + badArg},
		{"a map and an input", func(j *device.Job) { j.Args[0].TensorMap = mapOf(1) }, "job k: argument 0 " + badArg},
		{"no field set", func(j *device.Job) { j.Args[1] = device.Arg{} }, "job k: argument 1 " + badArg},
		{"negative output", func(j *device.Job) { j.Args[1] = device.Out(-1) }, "job k: argument 1 " + badArg},
		{"empty input", func(j *device.Job) { j.Args[0] = device.In([]byte{}) }, "job k: argument 0 " + badArg},
		{"empty in-out", func(j *device.Job) { j.Args[0] = device.Arg{InOut: []byte{}} }, "job k: argument 0 " + badArg},
		{"in-out and input", func(j *device.Job) { j.Args[0].InOut = []byte{1} }, "job k: argument 0 " + badArg},
		{"in-out and output", func(j *device.Job) { j.Args[1].InOut = []byte{1} }, "job k: argument 1 " + badArg},
		{"input and output", func(j *device.Job) { j.Args[0].Output = 1 }, "job k: argument 0 " + badArg},
		{"input and scalar", func(j *device.Job) { j.Args[0].Scalar = make([]byte, 4) }, "job k: argument 0 " + badArg},
		{"scalar and output", func(j *device.Job) { j.Args[2].Output = 1 }, "job k: argument 2 " + badArg},
		{"empty scalar", func(j *device.Job) { j.Args[2].Scalar = []byte{} }, "job k: argument 2 " + badArg},
		{"scalar of three bytes", func(j *device.Job) { j.Args[2].Scalar = []byte{1, 2, 3} }, "job k: argument 2 " + badArg},
	})
}

// checkBadJobs runs the jobs. Neither Run nor Bind may accept them, launch or keep memory.
func checkBadJobs(t *testing.T, jobs []badJob) {
	t.Helper()
	for _, c := range jobs {
		t.Run(c.name, func(t *testing.T) {
			m, job := newMachine(increment), newJob()
			c.change(&job)
			_, err := device.Run(m, job)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want an error with %q", err, c.want)
			}
			if m.Launches != 0 || m.Allocated() != 0 {
				t.Errorf("%d launches, %d buffers not freed; want none of either", m.Launches, m.Allocated())
			}
			if _, _, err := device.Bind(m, job); err == nil {
				t.Error("Bind accepts the job")
			}
		})
	}
}

// Large outputs are poisoned in several writes that together cover every byte.
func TestLargeOutputs(t *testing.T) {
	const piece = 1 << 20
	for _, bytes := range []int{piece - 1, piece, piece + 1, 3*piece + 5} {
		for _, left := range []int{0, bytes / 2, bytes - 1} {
			job := newJob()
			job.Args[1] = device.Out(bytes)
			got, err := device.Run(newMachine(func(l *devicetest.Launch) error {
				out := l.At(l.Pointer(1), bytes)
				kept := out[left]
				clear(out)
				out[left] = kept
				return nil
			}), job)
			if err != nil {
				t.Fatal(err)
			}
			want := []finding.Finding{devicetest.Found(finding.Unwritten, fmt.Sprintf("argument 1: 1 of %d bytes never written, the first at byte %d", bytes, left))}
			if diff := cmp.Diff(want, got.Findings); diff != "" {
				t.Errorf("%d bytes without byte %d: %s", bytes, left, diff)
			}
		}
	}
}
