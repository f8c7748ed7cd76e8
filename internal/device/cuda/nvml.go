package cuda

import (
	"fmt"
	"runtime"

	"github.com/ebitengine/purego"

	"attune/internal/device"
)

// nvml is the part of NVIDIA's management library that attune uses. Each field is called like its function and has its arguments.
type nvml struct {
	nvmlInit_v2                               func() result
	nvmlErrorString                           func(code result) string
	nvmlDeviceGetHandleByUUID                 func(uuid string, gpu *handle) result
	nvmlDeviceGetClockInfo                    func(gpu handle, clock uint32, mhz *uint32) result
	nvmlDeviceGetPowerUsage                   func(gpu handle, milliwatts *uint32) result
	nvmlDeviceGetTemperature                  func(gpu handle, sensor uint32, celsius *uint32) result
	nvmlDeviceGetCurrentClocksThrottleReasons func(gpu handle, reasons *uint64) result
}

// Clocks and sensors, as nvml.h numbers them.
const (
	nvmlClockSM     = 1
	nvmlClockMemory = 2
	nvmlSensorChip  = 0
)

// throttleReasons are those that take clocks away from a kernel. That the GPU is idle, or that somebody has set its clocks, is none of them.
var throttleReasons = []struct {
	bit  uint64
	name string
}{
	{0x04, "power cap"},
	{0x08, "hardware slowdown"},
	{0x20, "heat, by the driver"},
	{0x40, "heat, by the hardware"},
	{0x80, "power brake"},
}

const nvmlLibrary = "libnvidia-ml.so.1"

func (n *nvml) entries() []entry {
	return []entry{
		{"nvmlInit_v2", &n.nvmlInit_v2},
		{"nvmlErrorString", &n.nvmlErrorString},
		{"nvmlDeviceGetHandleByUUID", &n.nvmlDeviceGetHandleByUUID},
		{"nvmlDeviceGetClockInfo", &n.nvmlDeviceGetClockInfo},
		{"nvmlDeviceGetPowerUsage", &n.nvmlDeviceGetPowerUsage},
		{"nvmlDeviceGetTemperature", &n.nvmlDeviceGetTemperature},
		{"nvmlDeviceGetCurrentClocksThrottleReasons", &n.nvmlDeviceGetCurrentClocksThrottleReasons},
	}
}

func loadNVML() (*nvml, error) {
	// What went wrong is asked for in a second call, and the answer is each thread's own.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	lib, err := purego.Dlopen(nvmlLibrary, purego.RTLD_NOW)
	if err != nil {
		return nil, fmt.Errorf("%s is not installed", nvmlLibrary)
	}
	n := &nvml{}
	for _, f := range n.entries() {
		symbol, err := purego.Dlsym(lib, f.name)
		if err != nil {
			return nil, fmt.Errorf("%s has no function %s", nvmlLibrary, f.name)
		}
		purego.RegisterFunc(f.into, symbol)
	}
	return n, nil
}

// monitor reads what a GPU says of itself, as long as it does.
type monitor struct {
	nvml    *nvml
	gpu     handle
	missing string // why nothing is read
}

// newMonitor finds the GPU and reads once: what is denied now is denied later, too.
func newMonitor(load func() (*nvml, error), uuid string) *monitor {
	m := &monitor{}
	var err error
	if m.nvml, err = load(); err != nil {
		m.missing = err.Error()
		return m
	}
	steps := []func() error{
		func() error { return m.failure(m.nvml.nvmlInit_v2(), "start NVML") },
		func() error { return m.failure(m.nvml.nvmlDeviceGetHandleByUUID(uuid, &m.gpu), "find the GPU") },
	}
	if err := repeat(1, steps); err != nil {
		m.missing = err.Error()
		return m
	}
	m.read()
	return m
}

// read is the reading of this moment. A failure is the monitor's end, and missing says why.
func (m *monitor) read() device.Reading {
	if m.missing != "" {
		return device.Reading{}
	}
	var sm, memory, milliwatts, celsius uint32
	var reasons uint64
	for _, q := range []struct {
		code result
		did  string
	}{
		{m.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(m.gpu, &reasons), "ask whether the clocks are throttled"},
		{m.nvml.nvmlDeviceGetClockInfo(m.gpu, nvmlClockSM, &sm), "ask for the clock of the multiprocessors"},
		{m.nvml.nvmlDeviceGetClockInfo(m.gpu, nvmlClockMemory, &memory), "ask for the clock of the memory"},
		{m.nvml.nvmlDeviceGetPowerUsage(m.gpu, &milliwatts), "ask for the power"},
		{m.nvml.nvmlDeviceGetTemperature(m.gpu, nvmlSensorChip, &celsius), "ask for the temperature"},
	} {
		if err := m.failure(q.code, q.did); err != nil {
			m.missing = err.Error()
			return device.Reading{}
		}
	}
	r := device.Reading{ClockMHz: int(sm), MemoryClockMHz: int(memory), PowerWatts: float64(milliwatts) / 1e3, Celsius: int(celsius)}
	for _, reason := range throttleReasons {
		if reasons&reason.bit != 0 {
			r.Throttled = append(r.Throttled, reason.name)
		}
	}
	return r
}

func (m *monitor) failure(code result, did string) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", did, m.nvml.nvmlErrorString(code))
}
