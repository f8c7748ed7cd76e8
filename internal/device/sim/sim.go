// Package sim runs jobs on the PTX simulator, behind the same interface as a GPU.
//
// It is the stricter device: every job runs under all checkers, and their findings are part of its outcome. Instead of launching twice, it runs the
// job under several schedules, each on fresh memory, and the answers must agree bit for bit. It has no clock: how long a kernel takes here says nothing
// about a GPU.
package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"attune/internal/device"
	"attune/internal/ptx"
	"attune/internal/sim"
	"attune/internal/sim/mem"
	"attune/internal/sim/mma"
)

// Options say how jobs are run.
type Options struct {
	Schedules int // 1 at least
	Checks    bool
	Tensor    mma.Mode
	Limit     time.Duration // for one job
	Printf    func(string)
}

// Device is the simulator.
type Device struct {
	options  Options
	programs map[string]*sim.Program // by PTX
}

var _ device.Device = (*Device)(nil)

// Open makes a simulator.
func Open(o Options) *Device {
	o.Schedules = max(o.Schedules, 1)
	return &Device{options: o, programs: map[string]*sim.Program{}}
}

// multiprocessors is two, so that blocks which stay and take tile after tile are several, and still take more than one each: with one alone nobody
// would see a block that begins with the wrong tile.
const multiprocessors = 2

// Facts describes the simulator. It is of no one architecture: the PTX says which chip's arithmetic it wants.
func (d *Device) Facts() device.Facts {
	return device.Facts{Kind: "sim", Name: "PTX simulator", Multiprocessors: multiprocessors}
}

// Time returns device.ErrNoClock.
func (d *Device) Time(context.Context, []device.Job, device.Plan) ([]device.Series, error) {
	return nil, device.ErrNoClock
}

// Close does nothing.
func (d *Device) Close() error { return nil }

// Run runs a job under every schedule.
func (d *Device) Run(ctx context.Context, job device.Job) (*device.Outcome, error) {
	if err := job.Check(); err != nil {
		return nil, err
	}
	program, err := d.load(job.Image)
	if err != nil {
		return nil, err
	}
	if d.options.Limit > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, d.options.Limit, &device.Timeout{Limit: d.options.Limit})
		defer cancel()
		ctx = limited
	}
	outcome := &device.Outcome{Loaded: device.Attributes{StaticSharedBytes: program.SharedBytes()}}
	told := map[string]bool{}
	for seed := range d.options.Schedules {
		outputs, findings, counters, err := d.launch(ctx, program, job, uint64(seed))
		if err != nil {
			return nil, err
		}
		for _, f := range findings {
			if !told[f.key] {
				told[f.key] = true
				outcome.Findings = append(outcome.Findings, f.Finding)
			}
		}
		if seed == 0 {
			outcome.Outputs, outcome.Counters = outputs, counters
			continue
		}
		for i := range outputs {
			if !bytes.Equal(outputs[i], outcome.Outputs[i]) && !told[device.NotRepeatable] {
				told[device.NotRepeatable] = true
				outcome.Findings = append(outcome.Findings, device.Finding{
					Kind: device.NotRepeatable,
					Text: fmt.Sprintf("output %d differs between schedule 0 and schedule %d", i, seed),
				})
			}
		}
	}
	return outcome, nil
}

func (d *Device) load(image []byte) (*sim.Program, error) {
	if p := d.programs[string(image)]; p != nil {
		return p, nil
	}
	module, err := ptx.Parse(image)
	if err != nil {
		return nil, &device.Unsupported{Why: fmt.Sprintf("the simulator cannot read the PTX: %v", err)}
	}
	p, err := sim.Load(module, "")
	if err != nil {
		return nil, &device.Unsupported{Why: fmt.Sprintf("the simulator cannot run the PTX: %v", err)}
	}
	d.programs[string(image)] = p
	return p, nil
}

// found is a finding with what it has in common with the same one under another schedule, where addresses and counts are others.
type found struct {
	device.Finding
	key string
}

// launch runs a job once, on memory of its own.
func (d *Device) launch(ctx context.Context, program *sim.Program, job device.Job, seed uint64) (
	[][]byte, []found, device.Counters, error,
) {
	memory := mem.NewMemory()
	values, buffers, err := bind(memory, job)
	if err != nil {
		return nil, nil, nil, err
	}
	params, err := program.Params(job.Entry, values)
	if err != nil {
		return nil, nil, nil, kernelError(ctx, err)
	}
	result, err := program.Run(ctx, memory, sim.Launch{
		Entry: job.Entry, Grid: job.Grid, Block: job.Block, Cluster: job.Cluster, DynamicShared: job.DynamicSharedBytes, Params: params,
	}, sim.Options{Seed: seed, Checks: d.options.Checks, Tensor: d.options.Tensor, Printf: d.options.Printf})
	if err != nil {
		return nil, nil, nil, kernelError(ctx, err)
	}
	var findings []found
	for _, f := range result.Findings {
		findings = append(findings, found{device.Finding{Kind: string(f.Kind), Text: f.String()}, f.Key()})
	}
	outputs, more, err := collect(memory, job, buffers, d.options.Checks)
	for _, f := range more {
		findings = append(findings, found{f, f.Kind + f.Text})
	}
	return outputs, findings, counted(&result.Counters), err
}

// kernelError tells what a kernel did from what was done to it.
func kernelError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if unsupported, ok := errors.AsType[*sim.UnsupportedError](err); ok {
		return &device.Unsupported{Why: fmt.Sprintf("the simulator cannot run the PTX: %v", unsupported)}
	}
	return &device.Fault{Code: "simulator", Text: err.Error(), Did: "run the kernel"}
}

// bind makes the buffers of a job and gives the values of all arguments.
func bind(memory *mem.Memory, job device.Job) (values [][]byte, buffers []uint64, err error) {
	values, buffers = make([][]byte, len(job.Args)), make([]uint64, len(job.Args))
	for i, arg := range job.Args {
		values[i] = arg.Scalar
		if !arg.IsBuffer() {
			continue
		}
		if buffers[i], err = place(memory, i, arg); err != nil {
			return nil, nil, err
		}
		values[i] = binary.LittleEndian.AppendUint64(nil, buffers[i])
	}
	for i, arg := range job.Args {
		if arg.TensorMap == nil {
			continue
		}
		t := mem.TensorMap{Map: arg.TensorMap.Map, Address: buffers[arg.TensorMap.Arg]}
		if values[i], err = t.Encode(); err != nil {
			return nil, nil, &device.Unsupported{Why: fmt.Sprintf("argument %d: %v", i, err)}
		}
	}
	return values, buffers, nil
}

// place makes the buffer of an argument: with its bytes, or, for an output, one that nobody has written.
func place(memory *mem.Memory, index int, arg device.Arg) (uint64, error) {
	base, err := memory.Alloc(fmt.Sprintf("argument %d", index), arg.BufferBytes())
	if err != nil || arg.Output > 0 {
		return base, err
	}
	return base, memory.Write(base, append(arg.Input, arg.InOut...)) // one of the two is nil
}

// collect reads the buffers back: outputs, which must be written whole, and inputs, which must be as they were.
func collect(memory *mem.Memory, job device.Job, buffers []uint64, checks bool) (outputs [][]byte, findings []device.Finding, err error) {
	for i, arg := range job.Args {
		if !arg.IsBuffer() {
			continue
		}
		data := make([]byte, arg.BufferBytes())
		if err := memory.Read(data, buffers[i]); err != nil {
			return nil, nil, err
		}
		if arg.Input != nil {
			if !bytes.Equal(data, arg.Input) {
				findings = append(findings, device.Finding{Kind: device.InputChanged, Text: fmt.Sprintf("argument %d: an input was changed", i)})
			}
			continue
		}
		outputs = append(outputs, data)
		if n, first := memory.Unwritten(buffers[i]); checks && n > 0 && arg.InOut == nil {
			findings = append(findings, device.Finding{
				Kind: device.Unwritten, Text: fmt.Sprintf("argument %d: %d of %d bytes never written, the first at byte %d", i, n, len(data), first),
			})
		}
	}
	return outputs, findings, nil
}
