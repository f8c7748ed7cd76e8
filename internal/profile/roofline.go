package profile

import (
	"errors"
	"fmt"

	"attune/internal/arch"
	"attune/internal/device"
)

// Roofline is the point of a launch and the ceilings of its device.
type Roofline struct {
	Device  string    `json:"device"`
	Memory  Ceiling   `json:"memory"`  // bytes per second
	Compute []Ceiling `json:"compute"` // FLOPs per second, the highest last
	Point   Point     `json:"point"`
}

// Ceiling is an upper limit of a rate on a device.
type Ceiling struct {
	Name      string  `json:"name"`
	PerSecond float64 `json:"per_second"`
	Basis     string  `json:"basis"` // how it was measured or computed
}

// Point is a launch: FLOPs of the problem per byte from DRAM, and FLOPs per second.
type Point struct {
	Intensity float64 `json:"flops_per_byte"`
	PerSecond float64 `json:"flops_per_second"`
}

// Limit is the lower of the memory ceiling at this intensity and the highest compute ceiling.
func (r *Roofline) Limit(intensity float64) float64 {
	return min(intensity*r.Memory.PerSecond, r.Compute[len(r.Compute)-1].PerSecond)
}

// NewRoofline computes the roofline of a launch. It fails if the time, the bytes or a ceiling is
// not known.
func NewRoofline(facts device.Facts, flops float64, v Values) (*Roofline, error) {
	time, bytes := v[Time]/1e9, v[DRAMBytes]
	if time <= 0 || bytes <= 0 {
		return nil, errors.New("a roofline needs the time and the bytes from DRAM, which were not measured")
	}
	r := &Roofline{Device: facts.Name, Point: Point{Intensity: flops / bytes, PerSecond: flops / time}}
	if m, ok := measuredCeilings[facts.Name]; ok {
		r.Memory, r.Compute = m.memory, m.compute
		return r, nil
	}
	if v[DRAMBusy] <= 0 {
		return nil, fmt.Errorf("a roofline needs the bandwidth of %s, which was not measured and does not follow from the profile", facts.Name)
	}
	r.Memory = Ceiling{"DRAM", bytes / time / (v[DRAMBusy] / 100), "computed: bytes per second / share of peak in the profile"}
	if r.Compute = computedCeilings(facts); r.Compute == nil {
		return nil, fmt.Errorf("a roofline needs the rate of the tensor cores of %s; %s is unknown", facts.Name, facts.Arch)
	}
	return r, nil
}

// measuredCeilings are the rates of the best library calls on a device, by its name.
var measuredCeilings = map[string]struct {
	memory  Ceiling
	compute []Ceiling
}{
	"NVIDIA H200": {
		memory: Ceiling{"DRAM", 4.22e12, "measured: a copy, bytes read and written"},
		compute: []Ceiling{
			{"FP16", 784e12, "measured: a bfloat16 GEMM"},
			{"FP8", 1468e12, "measured: an E4M3 GEMM"},
		},
	},
}

// computedCeilings are the theoretical peaks of the tensor cores at the maximum clock. Real kernels
// stay well below.
func computedCeilings(facts device.Facts) []Ceiling {
	rates, ok := arch.RatesOf(facts.Arch)
	half, narrow := rates.Peak()
	cycles := float64(facts.Multiprocessors) * float64(facts.ClockKHz) * 1e3
	if !ok || cycles <= 0 {
		return nil
	}
	var all []Ceiling
	for _, c := range []struct {
		name string
		rate float64
	}{{"FP16", half}, {"FP8", narrow}} {
		if c.rate > 0 {
			basis := fmt.Sprintf("computed: %d multiprocessors x %.2f GHz x %.0f FLOPs", facts.Multiprocessors, float64(facts.ClockKHz)/1e6, c.rate)
			all = append(all, Ceiling{c.name, cycles * c.rate, basis})
		}
	}
	return all
}
