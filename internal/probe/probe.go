package probe

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"attune/internal/arch"
	"attune/internal/device"
)

// Probe are the measured rates of a GPU.
type Probe struct {
	Rates []Rate `json:"rates"`

	StartGHz    float64 `json:"clock_start_ghz"`         // of the multiprocessors, in the first products
	LoadedGHz   float64 `json:"clock_loaded_ghz"`        // behind LoadSeconds of products
	LoadSeconds float64 `json:"load_seconds"`            // 0: not measured
	Watts       float64 `json:"power_w,omitempty"`       // then
	Throttled   string  `json:"throttled,omitempty"`     // why the driver reduced the clock then
	CopyGBs     float64 `json:"dram_copy_gb_per_s"`      // bytes read and written
	L2GBs       float64 `json:"l2_read_gb_per_s"`        // of a buffer that L2 holds
	L2PerClock  float64 `json:"l2_read_bytes_per_clock"` // and multiprocessor
}

// Rate is a rate of a multiprocessor.
type Rate struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	PerClock float64 `json:"per_clock"` // and multiprocessor
}

// Options say how long the probe may take.
type Options struct {
	Load     time.Duration // of the products before the clock is read; 0 leaves it out
	Progress func(step string)
}

// Steps of the loops: a millisecond or two, so that the start of a block does not matter.
const (
	productSteps = 4000
	ex2Steps     = 2000
	sampleCount  = 5
)

const (
	productUnit = "FLOP/clock/SM"
	ex2Unit     = "lanes/clock/SM"
)

// Measure measures the rates of a device. Kinds of products that the GPU or its driver does not have are
// left out.
func Measure(ctx context.Context, d device.Device, o Options) (*Probe, error) {
	p := &Probe{}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	number, _ := arch.Number(d.Facts().Arch)
	for _, kind := range products {
		if kind.least > number {
			continue
		}
		o.Progress("the rate of " + kind.name)
		job := productJob(kind, d.Facts(), productSteps)
		cycles, ghz, err := loop(ctx, d, job)
		if err != nil && ctx.Err() == nil && !device.Classify(err).LosesDevice() && kind.least > 80 {
			continue // the driver is older than this kind
		}
		if err != nil {
			return nil, fmt.Errorf("the rate of %s: %w", kind.name, err)
		}
		if p.StartGHz == 0 {
			p.StartGHz = round(ghz)
		}
		p.Rates = append(p.Rates, Rate{kind.name, productUnit, round(kind.flops(productSteps) / cycles)})
	}
	o.Progress("the rate of exponentials")
	cycles, _, err := loop(ctx, d, ex2Job(d.Facts(), ex2Steps))
	if err != nil {
		return nil, fmt.Errorf("the rate of exponentials: %w", err)
	}
	p.Rates = append(p.Rates, Rate{ex2Entry, ex2Unit, round(32 * ex2Warps * ex2Chains * ex2Steps / cycles)})
	if err := p.memories(ctx, d, o); err != nil {
		return nil, err
	}
	return p, p.load(ctx, d, o)
}

// loop runs a job of a timed loop. It returns the cycles of the slowest block and the clock in GHz.
func loop(ctx context.Context, d device.Device, job device.Job) (cycles, ghz float64, err error) {
	outcome, err := d.Run(ctx, job)
	if err != nil {
		return 0, 0, err
	}
	if len(outcome.Findings) > 0 {
		return 0, 0, fmt.Errorf("the probe is wrong: %s", outcome.Findings[0].Detail)
	}
	times, nanoseconds := outcome.Outputs[0], 0.0
	for at := 0; at+16 <= len(times); at += 16 {
		cycles = max(cycles, float64(binary.LittleEndian.Uint64(times[at:])))
		nanoseconds = max(nanoseconds, float64(binary.LittleEndian.Uint64(times[at+8:])))
	}
	if cycles == 0 || nanoseconds == 0 {
		return 0, 0, fmt.Errorf("the clock of the GPU stands still: %v cycles in %v ns", cycles, nanoseconds)
	}
	return cycles, cycles / nanoseconds, nil
}

// productJob is a block of products on each multiprocessor. Its operands are small random numbers.
func productJob(p product, facts device.Facts, steps int) device.Job {
	return timedJob(p.ptx(), p.name, productWarps, facts, steps)
}

func ex2Job(facts device.Facts, steps int) device.Job {
	return timedJob(ex2PTX(), ex2Entry, ex2Warps, facts, steps)
}

// operandBytes are those of a thread.
const operandBytes = 32

func timedJob(ptx, entry string, warps int, facts device.Facts, steps int) device.Job {
	threads, blocks := 32*warps, max(1, facts.Multiprocessors)
	operands := make([]byte, threads*operandBytes)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // operands
	for i := range operands {
		operands[i] = byte(random.IntN(0x30)) // finite in all formats
	}
	return device.Job{
		Image: []byte(ptx), Entry: entry, Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}, Unordered: true,
		Args: []device.Arg{device.In(operands), device.Out(16 * blocks), device.Out(4 * blocks * threads), device.Int32(int32(steps))},
	}
}

// memories times a copy of more than L2 holds, and reads of less.
func (p *Probe) memories(ctx context.Context, d device.Device, o Options) error {
	facts := d.Facts()
	l2 := max(int(facts.L2Bytes), 4<<20)
	large := min(6*l2, 384<<20)
	if facts.MemoryBytes > 0 {
		large = min(large, int(facts.MemoryBytes/16))
	}
	o.Progress("the bandwidth of DRAM")
	job, bytes := memoryJob(copyEntry, facts, large, 1)
	seconds, _, err := median(ctx, d, job)
	if err != nil {
		return fmt.Errorf("the bandwidth of DRAM: %w", err)
	}
	p.CopyGBs = round(2 * float64(bytes) / seconds / 1e9)
	o.Progress("the bandwidth of L2")
	const times = 20
	job, bytes = memoryJob(readEntry, facts, l2/8, times)
	seconds, ghz, err := median(ctx, d, job)
	if err != nil {
		return fmt.Errorf("the bandwidth of L2: %w", err)
	}
	p.L2GBs = round(times * float64(bytes) / seconds / 1e9)
	if ghz == 0 {
		ghz = p.StartGHz
	}
	p.L2PerClock = round(p.L2GBs / ghz / float64(max(1, facts.Multiprocessors)))
	return nil
}

// memoryJob is a job on about as many bytes, and how many these are.
func memoryJob(entry string, facts device.Facts, bytes, times int) (device.Job, int) {
	const threads = 32 * memoryWarps
	blocks := max(1, facts.Multiprocessors) * blocksOfMemory
	unit := blocks * threads * 16 * memoryLoads
	bytes = max(1, bytes/unit) * unit
	out := device.Arg{Scratch: bytes}
	if entry == readEntry {
		out = device.Out(4 * blocks * threads)
	}
	data := make([]byte, bytes)
	rand.NewChaCha8([32]byte{}).Read(data) //nolint:errcheck // it always returns nil
	scalar := device.Arg{Scalar: binary.LittleEndian.AppendUint64(nil, uint64(bytes))}
	return device.Job{
		Image: []byte(memoryPTX()), Entry: entry, Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}, Unordered: true,
		Args: []device.Arg{device.In(data), out, scalar, device.Int32(int32(times))},
	}, bytes
}

// blocksOfMemory are the blocks of the memory kernels on a multiprocessor: as many as one of 48 warps holds.
const blocksOfMemory = 6

// median is the time of a launch in seconds, and the clock then, which is 0 if it is unknown.
func median(ctx context.Context, d device.Device, job device.Job) (seconds, ghz float64, err error) {
	series, err := d.Time(ctx, []device.Job{job}, device.Plan{Samples: sampleCount})
	if err != nil {
		return 0, 0, err
	}
	all := slices.Sorted(slices.Values(series[0].Seconds))
	if readings := series[0].Readings; len(readings) > 0 {
		ghz = float64(readings[len(readings)-1].ClockMHz) / 1e3
	}
	return all[len(all)/2], ghz, nil
}

// load reads the clock behind products without a pause. The driver's monitor has it; without one it is
// the cycles of a launch by its time.
func (p *Probe) load(ctx context.Context, d device.Device, o Options) error {
	if o.Load <= 0 {
		return nil
	}
	o.Progress(fmt.Sprintf("the clock behind %.0f s of products", o.Load.Seconds()))
	job := productJob(products[0], d.Facts(), productSteps)
	series, err := d.Time(ctx, []device.Job{job}, device.Plan{Samples: 1, Load: o.Load})
	if err != nil {
		return fmt.Errorf("the clock under load: %w", err)
	}
	cycles, _, err := loop(ctx, d, job)
	if err != nil {
		return err
	}
	p.LoadSeconds, p.LoadedGHz = o.Load.Seconds(), round(cycles/series[0].Seconds[0]/1e9)
	if readings := series[0].Readings; len(readings) > 0 {
		last := readings[len(readings)-1]
		p.LoadedGHz, p.Watts = round(float64(last.ClockMHz)/1e3), last.PowerWatts
		if len(last.Throttled) > 0 {
			p.Throttled = last.Throttled[0]
		}
	}
	return nil
}

// Of is the rate of a name; 0 if it was not measured.
func (p *Probe) Of(name string) float64 {
	for _, r := range p.Rates {
		if r.Name == name {
			return r.PerClock
		}
	}
	return 0
}

// round keeps four digits: the measurement has no more.
func round(x float64) float64 {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}
