//go:build linux

package cuda

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
)

// fakeNVML is NVML for one GPU. reasons are the throttle reasons of successive readings; the last
// one repeats.
type fakeNVML struct {
	reasons []uint64
	energy  func() float64 // joules so far; nil for a GPU without this counter
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
		nvmlDeviceGetTotalEnergyConsumption: func(_ handle, millijoules *uint64) result {
			if n.energy == nil {
				return 3
			}
			*millijoules = uint64(1e3 * n.energy())
			return n.fails["energy"]
		},
	}
}

func TestReadings(t *testing.T) {
	f := newFakeWith("k")
	// The first reading is the trial reading. Idle (1), user-set clocks (2) and sync boost (0x10)
	// are not throttling.
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
	want := []device.Reading{reading(), reading(), reading("power cap", "hardware thermal slowdown"), reading("software thermal slowdown")}
	if diff := cmp.Diff(want, got[0].Readings); diff != "" || got[0].NoReadings != "" || len(got[0].Seconds) != 4 {
		t.Errorf("%s\n%+v", diff, got[0])
	}
	if _, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: 1}); err != nil || n.reads != 6 {
		t.Errorf("%v, %d readings; want 6 with one more sample", err, n.reads)
	}
}

func TestNoReadings(t *testing.T) {
	for fails, want := range map[string]string{
		"init": "start NVML", "handle": "find the GPU", "reasons": "read the throttle reasons",
		"clock": "read the SM clock", "power": "read the power", "temperature": "read the temperature",
	} {
		f := newFakeWith("k")
		n := &fakeNVML{fails: map[string]result{fails: 4}}
		f.nvml = n.library()
		got, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 3})
		if err != nil || got[0].Readings != nil || got[0].NoReadings != want+": Insufficient Permissions" || n.reads > 1 {
			t.Errorf("%s is denied: %+v, %v after %d readings", fails, got, err, n.reads)
		}
	}
}

// A monitor that stops midway leaves no partial readings.
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
	if err != nil || got[0].Readings != nil || got[0].NoReadings != "read the power: Insufficient Permissions" || len(got[0].Seconds) != 5 || n.reads != 3 {
		t.Errorf("%+v, %v after %d readings", got, err, n.reads)
	}
}

// An unknown GPU cannot be monitored; on a machine without NVML no GPU can.
func TestMonitorOfUnknownGPU(t *testing.T) {
	if m := newMonitor(loadNVML, "GPU-none"); m.missing == "" {
		t.Error("an unknown GPU is monitored")
	}
}
