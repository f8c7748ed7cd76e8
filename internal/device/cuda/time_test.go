//go:build linux

package cuda

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		Seconds: []float64{10e-6, 10e-6}, WithFlush: []float64{45e-6, 45e-6}, Flush: []float64{35e-6, 35e-6}, LaunchesPerSample: 22,
		Single: []float64{10e-6, 10e-6}, Unwatched: "there is no NVML here", // a single launch comes after a flush, which is not timed
	}}
	if diff := cmp.Diff(want, got, about); diff != "" {
		t.Error(diff)
	}
	var graphs []string
	for _, call := range f.calls {
		if strings.Contains(call, " x ") {
			graphs = append(graphs, call)
		}
	}
	if diff := cmp.Diff([]string{"22 x flush k", "22 x flush", "22 x flush k", "22 x flush"}, graphs[len(graphs)-4:]); diff != "" {
		t.Error(diff)
	}
	f.nothingLeft(t)
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
	if n := f.count("50 x " + emptyEntry); n != emptyReplays {
		t.Errorf("%d replays of empty nodes; want %d, once a timing", n, emptyReplays)
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
