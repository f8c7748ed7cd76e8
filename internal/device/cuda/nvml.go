package cuda

import (
	"fmt"
	"runtime"

	"github.com/ebitengine/purego"

	"attune/internal/device"
)

// nvml is the part of NVIDIA's management library that attune uses. Each field has the name and the
// arguments of its C function.
type nvml struct {
	nvmlInit_v2                               func() result
	nvmlErrorString                           func(code result) string
	nvmlDeviceGetHandleByUUID                 func(uuid string, gpu *handle) result
	nvmlDeviceGetClockInfo                    func(gpu handle, clock uint32, mhz *uint32) result
	nvmlDeviceGetPowerUsage                   func(gpu handle, milliwatts *uint32) result
	nvmlDeviceGetTemperature                  func(gpu handle, sensor uint32, celsius *uint32) result
	nvmlDeviceGetCurrentClocksThrottleReasons func(gpu handle, reasons *uint64) result
	nvmlDeviceGetTotalEnergyConsumption       func(gpu handle, millijoules *uint64) result
}

// Clocks and sensors. The values are those of nvml.h.
const (
	nvmlClockSM     = 1
	nvmlClockMemory = 2
	nvmlSensorChip  = 0
)

// throttleReasons are the reasons that reduce the clocks of a running kernel. An idle GPU and
// clocks that a user has set are not throttling.
var throttleReasons = []struct {
	bit  uint64
	name string
}{
	{0x04, "power cap"},
	{0x08, "hardware slowdown"},
	{0x20, "software thermal slowdown"},
	{0x40, "hardware thermal slowdown"},
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
		{"nvmlDeviceGetTotalEnergyConsumption", &n.nvmlDeviceGetTotalEnergyConsumption},
	}
}

func loadNVML() (*nvml, error) {
	// purego reads the error of dlopen with a second call, dlerror, and dlerror is per thread.
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

// monitor reads the state of a GPU through NVML. It stops at the first failure.
type monitor struct {
	nvml    *nvml
	gpu     handle
	missing string // why there are no readings; empty while the monitor works
}

// newMonitor finds the GPU and makes one trial reading, so that a missing permission is known
// before the first sample.
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

// read reads the present state. A failure stops the monitor and sets missing.
func (m *monitor) read() device.Reading {
	if m.missing != "" {
		return device.Reading{}
	}
	var sm, memory, milliwatts, celsius uint32
	var reasons uint64
	for _, query := range []struct {
		code      result
		operation string
	}{
		{m.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(m.gpu, &reasons), "read the throttle reasons"},
		{m.nvml.nvmlDeviceGetClockInfo(m.gpu, nvmlClockSM, &sm), "read the SM clock"},
		{m.nvml.nvmlDeviceGetClockInfo(m.gpu, nvmlClockMemory, &memory), "read the memory clock"},
		{m.nvml.nvmlDeviceGetPowerUsage(m.gpu, &milliwatts), "read the power"},
		{m.nvml.nvmlDeviceGetTemperature(m.gpu, nvmlSensorChip, &celsius), "read the temperature"},
	} {
		if err := m.failure(query.code, query.operation); err != nil {
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

// joules is the energy that the GPU has used since the driver was loaded. It fails on a GPU without
// an energy counter; the monitor goes on.
func (m *monitor) joules() (float64, bool) {
	if m.missing != "" {
		return 0, false
	}
	var millijoules uint64
	code := m.nvml.nvmlDeviceGetTotalEnergyConsumption(m.gpu, &millijoules)
	return float64(millijoules) / 1e3, code == 0
}

func (m *monitor) failure(code result, operation string) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", operation, m.nvml.nvmlErrorString(code))
}
