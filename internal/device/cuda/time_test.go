//go:build linux

package cuda

import (
	"bytes"
	gocmp "cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/device"
)

var about = cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-3*math.Abs(b) })

func TestTimeWithColdL2(t *testing.T) {
	f := newFakeWith("k")
	f.kernels["k"].milliseconds, f.flushes = 0.01, 0.035
	got, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 2, ColdL2: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []device.Series{{
		Seconds: []float64{10e-6, 10e-6}, WithFlush: []float64{45e-6, 45e-6}, Flush: []float64{35e-6, 35e-6}, LaunchesPerSample: 50,
		Single: []float64{10e-6, 10e-6}, Unwatched: "there is no NVML here", // a single launch comes after a flush, which is not timed
		Copies: 4,
	}}
	if diff := cmp.Diff(want, got, about, cmpopts.IgnoreFields(device.Series{}, "WarmSeconds")); diff != "" {
		t.Error(diff)
	}
	var graphs []string
	for _, call := range f.calls {
		if strings.Contains(call, " x ") {
			graphs = append(graphs, call)
		}
	}
	sample := []string{"50 x flush k", "50 x flush k", "50 x flush", "50 x flush"} // each after one that is not looked at
	if diff := cmp.Diff(slices.Concat(sample, sample), graphs[len(graphs)-8:]); diff != "" {
		t.Error(diff)
	}
	f.nothingLeft(t)
}

// A flush that was slow once, or a clock that has changed for good, is not put down to the kernel.
func TestTakeOff(t *testing.T) {
	check := func(what string, withFlush, flush [2][]float64, want [2][]float64) {
		t.Helper()
		var ready []*timed
		for i := range withFlush {
			ready = append(ready, &timed{series: device.Series{WithFlush: withFlush[i], Flush: flush[i]}})
		}
		if err := takeOff(ready); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for i, t1 := range ready {
			if diff := cmp.Diff(want[i], t1.series.Seconds, about); diff != "" {
				t.Errorf("%s, job %d: %s", what, i, diff)
			}
		}
	}
	steady := [2][]float64{{50, 50, 50, 50}, {60, 60, 60, 60}}
	own := [2][]float64{{10, 10, 10, 10}, {20, 20, 20, 20}}
	check("steady", steady, [2][]float64{{40, 40, 40, 40}, {40, 40, 40, 40}}, own)
	check("one slow flush", steady, [2][]float64{{40, 200, 40, 40}, {40, 40, 40, 40}}, own)
	check("a step", [2][]float64{{50, 50, 50, 60, 60, 60}, {60, 60, 60, 70, 70, 70}}, [2][]float64{{40, 40, 40, 50, 50, 50}, {40, 40, 40, 50, 50, 50}},
		[2][]float64{{10, 10, 10, 10, 10, 10}, {20, 20, 20, 20, 20, 20}})
}

// The GPU rests before each sample of each job.
func TestRest(t *testing.T) {
	const rest, samples = 2 * time.Millisecond, 3
	f := newFakeWith("k", emptyEntry)
	f.kernels["k"].milliseconds = 0.01
	m, begun := f.open(t), time.Now()
	if _, err := m.Time([]device.Job{newJob("k"), newJob("k")}, device.Plan{Samples: samples, Rest: rest}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 2*samples*rest {
		t.Errorf("it took %s; want %s at least", took, 2*samples*rest)
	}
	f.nothingLeft(t)
}

// A graph has as many launches as take five milliseconds, as the plan allows, and at least one. An empty node is one of as many as the plan allows.
func TestLaunchesOfAGraph(t *testing.T) {
	for _, c := range []struct {
		milliseconds, flush float64
		most, want          int
	}{
		{0.01, 0, 0, 50},
		{0.01, 0, 50, 50},
		{0.01, 0, 1, 1},
		{0.01, 0, 10, 10},
		{0.0045, 0, 1000, 1000},
		{0.03, 0, 1000, 166},
		{0.3, 0, 0, 16},
		{0.3, 0, 10, 10},
		{3, 0, 0, 1},
		{30, 0, 1000, 1},
		{0.01, 0.035, 0, 50},
		{0.01, 0.035, 1000, 111},
		{0.2, 0.035, 0, 21},
	} {
		f := newFakeWith("k", emptyEntry)
		f.kernels["k"].milliseconds, f.flushes = c.milliseconds, c.flush
		got, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 1, Launches: c.most, ColdL2: c.flush > 0})
		if err != nil {
			t.Fatal(err)
		}
		steps := "k"
		if c.flush > 0 {
			steps = "flush k"
		}
		if graph := fmt.Sprintf("%d x %s", c.want, steps); got[0].LaunchesPerSample != c.want || f.count(graph) == 0 {
			t.Errorf("%g ms and a flush of %g ms, %d at most: %d launches a sample, %d replays of %q; want %d launches",
				c.milliseconds, c.flush, c.most, got[0].LaunchesPerSample, f.count(graph), graph, c.want)
		}
		if graph := fmt.Sprintf("%d x %s", gocmp.Or(c.most, 50), emptyEntry); f.count(graph) != 2*emptyReplays {
			t.Errorf("%d at most: %d replays of %q; want %d", c.most, f.count(graph), graph, 2*emptyReplays)
		}
		f.nothingLeft(t)
	}
}

// The launches of a graph take the copies of the buffers in turns, and each copy holds the job's inputs.
func TestCopies(t *testing.T) {
	f := newFakeWith("k")
	var first []uint64
	launch := f.cuLaunchKernelEx
	f.cuLaunchKernelEx = func(config *launchConfig, k handle, params *unsafe.Pointer, extra uintptr) result {
		if f.captures {
			first = append(first, **(**uint64)(unsafe.Pointer(params)))
		}
		return launch(config, k, params, extra)
	}
	job := newJob("k")
	synchronize := f.cuEventSynchronize
	f.cuEventSynchronize = func(event handle) result {
		for _, address := range first {
			if !bytes.Equal(f.at(address)[:len(job.Args[0].Input)], job.Args[0].Input) {
				t.Errorf("the copy at %#x does not hold the input", address)
			}
		}
		first = first[max(0, len(first)-50):]
		return synchronize(event)
	}
	if _, err := f.open(t).Time([]device.Job{job}, device.Plan{Samples: 1}); err != nil {
		t.Fatal(err)
	}
	if len(first) != 50 || first[0] == first[1] || first[0] == first[2] || first[0] == first[3] || first[0] != first[4] || first[3] != first[7] {
		t.Errorf("the launches of the graph begin with %#x", first)
	}
	f.nothingLeft(t)
}

// With a warm L2 the copies leave most of it free; with a cold one there are always two.
func TestNumberOfCopies(t *testing.T) {
	m := newFakeWith("k").open(t)
	for _, c := range []struct {
		megabytes, warm, cold int
	}{{1, 4, 4}, {3, 4, 4}, {4, 3, 3}, {7, 2, 2}, {8, 1, 2}, {1000, 1, 2}} {
		job := device.Job{Args: []device.Arg{device.In(make([]byte, c.megabytes<<19)), device.Out(c.megabytes << 19), device.Int32(1)}}
		if warm, cold := m.copies(job, false), m.copies(job, true); warm != c.warm || cold != c.cold {
			t.Errorf("%d MB of buffers, %d MB of L2: %d copies warm and %d cold; want %d and %d", c.megabytes, m.facts.L2Bytes>>20, warm, cold, c.warm, c.cold)
		}
	}
	m.facts.L2Bytes = 0
	if n := m.copies(newJob("k"), false); n != 1 {
		t.Errorf("%d copies for an L2 of unknown size", n)
	}
}

// A kernel that becomes faster as the clocks rise is not sampled before they have. One that never comes to rest is sampled all the same, and it is
// said.
func TestWarmUp(t *testing.T) {
	check := func(what string, seconds func(now float64) float64, stable bool, least, most float64) {
		t.Helper()
		f := newFakeWith("k")
		k := f.kernels["k"]
		replay := f.cuGraphLaunch
		f.cuGraphLaunch = func(exec, stream handle) result {
			k.milliseconds = 1e3 * seconds(f.now/1e3)
			return replay(exec, stream)
		}
		got, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 1})
		if err != nil {
			t.Fatal(err)
		}
		if s := got[0]; s.Unstable == stable || s.WarmSeconds < least || s.WarmSeconds > most {
			t.Errorf("%s: unstable %t after %.3f s; want %t within %g to %g s", what, s.Unstable, s.WarmSeconds, !stable, least, most)
		}
	}
	check("steady", func(float64) float64 { return 20e-6 }, true, 2*windowSeconds, 2.2*windowSeconds)
	check("clocks that rise for 0.3 s", func(now float64) float64 { return 20e-6 * (1 + max(0, 0.3-now)) }, true, 0.3, 0.45)
	check("clocks that fall for ever", func(now float64) float64 { return 20e-6 * (1 + now) }, false, mostWarmSeconds, mostWarmSeconds+3*windowSeconds)
	check("a kernel of 0.4 s", func(float64) float64 { return 0.4 }, true, 6*0.4-1e-3, 6*0.4+1e-3)
}

// A replay that lasts long has no other before it.
func TestLongReplaysHaveNoLead(t *testing.T) {
	for milliseconds, want := range map[float64]int{1: 2, 30: 1} {
		f := newFakeWith("k")
		f.kernels["k"].milliseconds = milliseconds
		m := f.open(t)
		replays := func(samples int) int {
			f.calls = nil
			if _, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: samples}); err != nil {
				t.Fatal(err)
			}
			return f.count("cuGraphLaunch")
		}
		if got := replays(2) - replays(1); got != want {
			t.Errorf("a sample of %g ms is %d replays; want %d", milliseconds, got, want)
		}
	}
}

// What the flush writes is more than L2 holds: the fake looks at the size of the memory.
func TestFlushIsLargerThanL2(t *testing.T) {
	f := newFakeWith("k")
	m := f.open(t)
	flush, err := m.newFlush(device.Plan{ColdL2: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := int64(len(f.at(uint64(flush.address)))); got != 120<<20 || got != flush.bytes {
		t.Errorf("%d bytes of memory for a flush of %d; L2 has %d", got, flush.bytes, m.facts.L2Bytes)
	}
	flush.free()
	f.nothingLeft(t)
}

func TestColdTimeFails(t *testing.T) {
	check := func(what, want string, spoil func(f *fake, m *Machine)) {
		t.Helper()
		f := newFakeWith("k")
		f.kernels["k"].milliseconds, f.flushes = 0.01, 0.04
		m := f.open(t)
		spoil(f, m)
		_, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: 1, ColdL2: true})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v; want %q", what, err, want)
		}
		f.nothingLeft(t)
	}
	check("no size of L2", "does not say how large L2 is", func(_ *fake, m *Machine) { m.facts.L2Bytes = 0 })
	check("no memory", "flush L2: take 125829120 bytes of GPU memory", func(f *fake, _ *Machine) { f.fails["cuMemAlloc_v2"] = 2 })
	check("a flush that fails", "flush L2: CUDA_ERROR_ILLEGAL_ADDRESS", func(f *fake, _ *Machine) { f.fails["cuMemsetD32Async"] = illegalAddress })
	check("a kernel that is lost in the flush", "too short to be timed cold; use --l2 warm", func(f *fake, _ *Machine) { f.kernels["k"].milliseconds = 0 })
}

func TestEmptyNode(t *testing.T) {
	f := newFakeWith("k", emptyEntry)
	f.kernels["k"].milliseconds, f.kernels[emptyEntry].milliseconds = 0.01, 0.0006
	got, err := f.open(t).Time([]device.Job{newJob("k"), newJob("k")}, device.Plan{Samples: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range got {
		if s.EmptyNode == nil || math.Abs(*s.EmptyNode-0.6e-6) > 1e-9 || math.Abs(s.Seconds[0]-10e-6) > 1e-8 {
			t.Errorf("series %d: an empty node of %v s, a launch of %v s; want 0.6 us, taken off nothing", i, s.EmptyNode, s.Seconds)
		}
	}
	if n := f.count("50 x " + emptyEntry); n != 2*emptyReplays {
		t.Errorf("%d replays of empty nodes; want %d, once a timing, each after one that is not looked at", n, 2*emptyReplays)
	}
	f.nothingLeft(t)
}

// A driver that cannot run the empty kernel is no reason to throw times away.
func TestNoEmptyNode(t *testing.T) {
	f := newFakeWith("k", emptyEntry)
	f.kernels[emptyEntry].milliseconds = 0 // the events say nothing
	got, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 1})
	if err != nil || got[0].EmptyNode != nil || len(got[0].Seconds) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	f.nothingLeft(t)
}

func TestSinglesAreLimited(t *testing.T) {
	f := newFakeWith("k")
	got, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: maxSingles + 5})
	if err != nil || len(got[0].Single) != maxSingles || len(got[0].Seconds) != maxSingles+5 {
		t.Errorf("%+v, %v", got, err)
	}
}

// fakeNVML answers for one GPU; reasons are those of each reading in turn, and then the last again.
type fakeNVML struct {
	reasons []uint64
	fails   map[string]result
	reads   int
}

func (n *fakeNVML) library() *nvml {
	value := func(name string, into *uint32, v uint32) result { *into = v; return n.fails[name] }
	return &nvml{
		nvmlInit_v2:     func() result { return n.fails["init"] },
		nvmlErrorString: func(code result) string { return map[result]string{4: "Insufficient Permissions"}[code] },
		nvmlDeviceGetHandleByUUID: func(uuid string, gpu *handle) result {
			if uuid != "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f" {
				return 6
			}
			*gpu = 77
			return n.fails["handle"]
		},
		nvmlDeviceGetClockInfo: func(gpu handle, clock uint32, mhz *uint32) result {
			if gpu != 77 {
				return 2
			}
			return value("clock", mhz, map[uint32]uint32{nvmlClockSM: 1980, nvmlClockMemory: 3201}[clock])
		},
		nvmlDeviceGetPowerUsage:  func(_ handle, mw *uint32) result { return value("power", mw, 412500) },
		nvmlDeviceGetTemperature: func(_ handle, _ uint32, c *uint32) result { return value("temperature", c, 45) },
		nvmlDeviceGetCurrentClocksThrottleReasons: func(_ handle, reasons *uint64) result {
			if len(n.reasons) > 0 {
				*reasons = n.reasons[min(n.reads, len(n.reasons)-1)]
			}
			n.reads++
			return n.fails["reasons"]
		},
	}
}

func TestReadings(t *testing.T) {
	f := newFakeWith("k")
	// The first reading is the trial of the opening. Idle (1), clocks set by somebody (2) and sync boost (0x10) are no throttling.
	n := &fakeNVML{reasons: []uint64{0x1, 0x0, 0x13, 0x4 | 0x40, 0x20 | 0x1}}
	f.nvml = n.library()
	m := f.open(t)
	got, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: 4})
	if err != nil {
		t.Fatal(err)
	}
	reading := func(throttled ...string) device.Reading {
		return device.Reading{ClockMHz: 1980, MemoryClockMHz: 3201, PowerWatts: 412.5, Celsius: 45, Throttled: throttled}
	}
	want := []device.Reading{reading(), reading(), reading("power cap", "heat, by the hardware"), reading("heat, by the driver")}
	if diff := cmp.Diff(want, got[0].Readings); diff != "" || got[0].Unwatched != "" || len(got[0].Seconds) != 4 {
		t.Errorf("%s\n%+v", diff, got[0])
	}
	if _, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: 1}); err != nil || n.reads != 6 {
		t.Errorf("%v, %d readings; want 6 with one more sample", err, n.reads)
	}
}

func TestNoReadings(t *testing.T) {
	for fails, want := range map[string]string{
		"init": "start NVML", "handle": "find the GPU", "reasons": "ask whether the clocks are throttled",
		"clock": "ask for the clock of the multiprocessors", "power": "ask for the power", "temperature": "ask for the temperature",
	} {
		f := newFakeWith("k")
		n := &fakeNVML{fails: map[string]result{fails: 4}}
		f.nvml = n.library()
		got, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 3})
		if err != nil || got[0].Readings != nil || got[0].Unwatched != want+": Insufficient Permissions" || n.reads > 1 {
			t.Errorf("%s is denied: %+v, %v after %d readings", fails, got, err, n.reads)
		}
	}
}

// A monitor that stops half-way leaves no half of the readings.
func TestReadingsStop(t *testing.T) {
	f := newFakeWith("k")
	n := &fakeNVML{fails: map[string]result{}}
	f.nvml = n.library()
	power := f.nvml.nvmlDeviceGetPowerUsage
	f.nvml.nvmlDeviceGetPowerUsage = func(gpu handle, mw *uint32) result {
		if n.reads == 3 {
			return 4
		}
		return power(gpu, mw)
	}
	got, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 5})
	if err != nil || got[0].Readings != nil || got[0].Unwatched != "ask for the power: Insufficient Permissions" || len(got[0].Seconds) != 5 || n.reads != 3 {
		t.Errorf("%+v, %v after %d readings", got, err, n.reads)
	}
}

// A GPU that is not there cannot be watched, and on a machine without NVML none can.
func TestNothingToWatch(t *testing.T) {
	if m := newMonitor(loadNVML, "GPU-none"); m.missing == "" {
		t.Error("a GPU that is not there is watched")
	}
}
