package devicetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	"attune/internal/device"
	"attune/internal/finding"
)

// GPU stands for a machine with a GPU. Its devices compute outputs on the CPU from the arguments of
// a job, and take times that the test sets.
type GPU struct {
	Facts      device.Facts
	Variants   map[string]string    // by image
	Behaviours map[string]Behaviour // by variant; without an entry it is correct and takes 10 us
	Compute    func(context.Context, device.Job) ([]byte, error)

	Opened  int
	Closed  int
	Planned []device.Plan // of each timing
	Ran     []string      // variants of each job
	Timed   []string      // variants of each timing, with commas
}

// Behaviour is what the kernel of a variant does.
type Behaviour struct {
	Seconds  float64                      // per launch; 0 for 10 us
	OfJob    func(device.Job) float64     // seconds per launch of a job; may be nil
	Noise    float64                      // relative standard deviation of the times
	Output   func(out []byte)             // changes the output
	Relaunch func(number int, out []byte) // changes the output of a relaunch, counted from 0
	Repeated func(out []byte)             // changes the output of the second launch of an unordered job
	Findings []finding.Finding
	Launch   func(number int) error // called before each problem, counted from 0
	Timing   error
	TimingOf func() error // called for each timing; may be nil

	Timed   func(out []byte)         // changes the output of timed launches
	Found   []finding.Finding        // about timed launches
	Process func(number int) float64 // factor of the times in a process, counted from 1
	Joules  float64

	Throttled []int // samples of each timing in which the GPU is throttled; they take twice as long
}

// NewGPU has an architecture, one multiprocessor and no variants.
func NewGPU(arch string, compute func(context.Context, device.Job) ([]byte, error)) *GPU {
	return &GPU{
		Facts:    device.Facts{Kind: "cuda", Name: "a fake", Arch: arch, Multiprocessors: 1},
		Variants: map[string]string{}, Behaviours: map[string]Behaviour{}, Compute: compute,
	}
}

// Open opens a device.
func (g *GPU) Open(context.Context) (device.Device, error) {
	g.Opened++
	return &Device{GPU: g}, nil
}

// Device is one opened device.
type Device struct {
	GPU      *GPU
	launches int
	lost     bool
	shut     bool
}

// Facts are those of the GPU.
func (d *Device) Facts() device.Facts { return d.GPU.Facts }

// Close counts the devices that are closed.
func (d *Device) Close() error {
	if !d.shut {
		d.shut = true
		d.GPU.Closed++
	}
	return nil
}

var errLost = errors.New("the device was lost to an earlier failure")

// usable refuses the use of a lost device.
func (d *Device) usable(err error) error {
	if d.lost || d.shut {
		return errLost
	}
	d.lost = err != nil && !errors.Is(err, device.ErrNoClock) && device.Classify(err) != device.KernelUnsupported
	return err
}

func (d *Device) of(job device.Job) Behaviour {
	name, known := d.GPU.Variants[string(job.Image)]
	if !known {
		panic("BUG: a test ran an image that it did not declare")
	}
	return d.GPU.Behaviours[name]
}

// Run runs a job and its relaunches.
func (d *Device) Run(ctx context.Context, job device.Job) (*device.Outcome, error) {
	b := d.of(job)
	d.GPU.Ran = append(d.GPU.Ran, d.GPU.Variants[string(job.Image)])
	if b.Launch != nil {
		if err := d.usable(b.Launch(d.launches)); err != nil {
			return nil, err
		}
	}
	d.launches++
	if err := errors.Join(d.usable(nil), ctx.Err()); err != nil {
		return nil, err
	}
	out, err := d.GPU.Compute(ctx, job)
	if err != nil {
		return nil, err
	}
	if b.Output != nil {
		b.Output(out)
	}
	outcome := &device.Outcome{Outputs: [][]byte{out}, Findings: b.Findings, Loaded: device.Attributes{Registers: 42, MaxThreads: 256}}
	if job.Unordered && b.Repeated != nil {
		again := slices.Clone(out)
		b.Repeated(again)
		outcome.AddRepeated([][]byte{again})
	}
	for i, r := range job.Relaunches {
		next, err := job.Relaunched(r)
		if err != nil {
			return nil, err
		}
		if out, err = d.GPU.Compute(ctx, next); err != nil {
			return nil, err
		}
		if b.Output != nil {
			b.Output(out)
		}
		if b.Relaunch != nil {
			b.Relaunch(i, out)
		}
		outcome.Relaunched = append(outcome.Relaunched, [][]byte{out})
	}
	return outcome, nil
}

// Time takes the times of the behaviours.
func (d *Device) Time(ctx context.Context, jobs []device.Job, plan device.Plan) ([]device.Series, error) {
	d.GPU.Planned = append(d.GPU.Planned, plan)
	var names []string
	for _, job := range jobs {
		names = append(names, d.GPU.Variants[string(job.Image)])
	}
	d.GPU.Timed = append(d.GPU.Timed, strings.Join(names, ","))
	var all []device.Series
	for i, job := range jobs {
		b := d.of(job)
		if b.TimingOf != nil {
			b.Timing = b.TimingOf()
		}
		if err := errors.Join(d.usable(b.Timing), ctx.Err()); err != nil {
			return nil, err
		}
		if b.Seconds == 0 {
			b.Seconds = 10e-6
		}
		if b.OfJob != nil {
			b.Seconds = b.OfJob(job)
		}
		if plan.Estimate {
			all = append(all, device.Series{Single: []float64{b.Seconds + 4e-6}})
			continue
		}
		series := b.series(plan, rand.New(rand.NewPCG(7, uint64(i))))
		if b.Process != nil {
			for i := range series.Seconds {
				series.Seconds[i] *= b.Process(d.GPU.Opened)
			}
		}
		var err error
		if series.Check, err = b.check(ctx, d.GPU.Compute, job, plan); err != nil {
			return nil, err
		}
		all = append(all, series)
	}
	return all, nil
}

// series are the samples of one job.
func (b Behaviour) series(plan device.Plan, random *rand.Rand) device.Series {
	series := device.Series{LaunchesPerSample: plan.LaunchLimit(), Copies: 4}
	for i := range plan.Samples {
		seconds := b.Seconds * (1 + b.Noise*random.NormFloat64())
		reading := device.Reading{ClockMHz: 1980, MemoryClockMHz: 3201, PowerWatts: 300, Celsius: 40}
		if slices.Contains(b.Throttled, i) {
			seconds, reading.ClockMHz, reading.Throttled = 2*seconds, 990, []string{"power cap"}
		}
		series.Seconds, series.Readings = append(series.Seconds, seconds), append(series.Readings, reading)
	}
	empty := 0.6e-6
	series.EmptyNode, series.Single = &empty, []float64{b.Seconds + 4e-6}
	if plan.ColdL2 {
		series.Flush = []float64{40e-6}
		series.WithFlush = []float64{40e-6 + b.Seconds}
	}
	if plan.Energy {
		series.Joules = b.Joules
	}
	return series
}

// check is what the device reports about the timed launches: one with its output.
func (b Behaviour) check(ctx context.Context, compute func(context.Context, device.Job) ([]byte, error), job device.Job, plan device.Plan) (*device.TimedCheck, error) {
	rotation := device.Rotation{Secret: plan.Secret, Count: 3, Step: 1}
	out, err := compute(ctx, job.Rotate(rotation))
	if err != nil {
		return nil, err
	}
	if b.Timed != nil {
		b.Timed(out)
	}
	return &device.TimedCheck{Outputs: 1, Findings: b.Found, Launches: []device.TimedLaunch{{Rotation: rotation, Outputs: [][]byte{out}}}}, nil
}
