package sim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"attune/internal/coverage"
	"attune/internal/crash"
	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim"
	"attune/internal/sim/mem"
	"attune/internal/sim/mma"
)

// Options are the options of the device.
type Options struct {
	Schedules int // 0 for as many as the kernel needs
	// Least is the least number of schedules of a launch that is not long, where Schedules is 0.
	Least  int
	Checks bool
	Strict bool // strict findings are findings; otherwise they are notes
	Tensor mma.Mode
	Limit  time.Duration // of one job; 0 for none
	Memory int           // of one simulation, in bytes; 0 for the default
	Printf func(string)
	// Executed counts how often warps execute each instruction, for Outcome.Covered.
	Executed bool
	// AddressSeed chooses the addresses of buffers. 0 is a fixed place.
	AddressSeed uint64
}

// Device is the simulator.
type Device struct {
	options  Options
	programs map[string]*sim.Program // by PTX
}

var _ device.Device = (*Device)(nil)

// Open makes a simulator device.
func Open(o Options) *Device {
	return &Device{options: o, programs: map[string]*sim.Program{}}
}

// multiprocessors is 2, so that a persistent kernel has several blocks and each still takes several
// tiles. With one block, no test would notice a block that starts with the wrong tile.
const multiprocessors = 2

// Facts describes the simulator. It has no architecture of its own: the PTX decides which chip's
// arithmetic it uses.
func (d *Device) Facts() device.Facts {
	return device.Facts{Kind: "sim", Name: "PTX simulator", Multiprocessors: multiprocessors}
}

// BufferBytes is how many bytes of buffers a job may have with a limit of memory, in bytes; 0 is the
// default. Each byte takes a byte of marks besides.
func BufferBytes(memory int) int { return cmp.Or(memory, mem.DefaultLimit) / 2 }

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
	if job.Sample > 0 {
		return d.sample(ctx, program, job)
	}
	outcome := &device.Outcome{Covered: &coverage.Launches{}, Loaded: device.Attributes{StaticSharedBytes: program.SharedBytes()}, Schedules: max(d.options.Schedules, 1)}
	reported := map[string]bool{}
	for seed := uint64(0); seed < uint64(outcome.Schedules); seed++ {
		r, err := d.newResident(program, job, seed)
		if err != nil {
			return nil, err
		}
		if err := (&sequence{d, r, outcome, reported}).run(ctx); err != nil {
			return nil, err
		}
	}
	return outcome, nil
}

// sample runs some blocks of a job once. Its outcome has no outputs, and the counters of these blocks.
func (d *Device) sample(ctx context.Context, program *sim.Program, job device.Job) (*device.Outcome, error) {
	r, err := d.newResident(program, job, 0)
	if err != nil {
		return nil, err
	}
	result, err := program.Run(ctx, r.memory, r.call(), sim.Options{Checks: d.options.Checks, Tensor: d.options.Tensor, Instance: &r.instance, Sample: job.Sample, Executed: d.options.Executed})
	if errors.Is(err, sim.ErrCommunicates) {
		return nil, &device.Unsupported{Why: err.Error()}
	}
	if err != nil {
		return nil, kernelError(ctx, err)
	}
	outcome := &device.Outcome{Covered: &coverage.Launches{}, Schedules: 1, Counters: named(&result.Counters)}
	d.add(outcome, &launched{findings: result.Findings, covered: result.Covered}, map[string]bool{})
	return outcome, nil
}

func (d *Device) load(image []byte) (program *sim.Program, err error) {
	defer crash.Catch(&err, func() string { return "the reader of the PTX" })
	if p := d.programs[string(image)]; p != nil {
		return p, nil
	}
	module, err := ptx.Parse(image)
	if err != nil {
		return nil, &device.Unsupported{Why: fmt.Sprintf("the simulator cannot read the PTX: %v", err)}
	}
	p, err := sim.Load(module, "")
	if err != nil {
		return nil, unsupported(err)
	}
	d.programs[string(image)] = p
	return p, nil
}

// add adds the instructions that a launch has executed, and its findings that are not reported yet. Strict
// ones are notes, unless they fail.
func (d *Device) add(outcome *device.Outcome, l *launched, reported map[string]bool) {
	outcome.Covered.Add(l.covered)
	for _, f := range l.findings {
		key := f.Key()
		switch {
		case reported[key]:
			continue
		case d.isNote(f):
			outcome.Notes = append(outcome.Notes, f)
		default:
			outcome.Findings = append(outcome.Findings, f)
		}
		reported[key] = true
	}
}

// isNote reports whether a finding fails nothing.
func (d *Device) isNote(f finding.Finding) bool {
	return f.Severity == finding.Note || f.Severity == finding.Strict && !d.options.Strict
}

// resident is a job in a memory of its own: its buffers and the variables of its module.
type resident struct {
	program  *sim.Program
	instance sim.Instance
	memory   *mem.Memory
	job      device.Job
	values   [][]byte // of the arguments
	buffers  []uint64 // by argument
	params   []byte
	schedule uint64

	relaunches int  // after the first launch
	hasState   bool // a launch has left something that a later one can read
}

// newResident places a job in memory. Its addresses differ between schedules, so that an output
// that depends on them is not repeatable.
func (d *Device) newResident(program *sim.Program, job device.Job, schedule uint64) (*resident, error) {
	r := &resident{program: program, memory: mem.NewLimited(d.options.Memory), job: job, schedule: schedule}
	if seed := d.options.AddressSeed; seed != 0 {
		r.memory.Scatter(seed, schedule)
	}
	var err error
	if r.values, r.buffers, err = bind(r.memory, job); err != nil {
		return nil, err
	}
	r.params, err = program.Params(job.Entry, r.values) // an error is a mistake in the job; no kernel has run
	return r, err
}

// call is the launch of the job.
func (r *resident) call() sim.Launch {
	job := &r.job
	return sim.Launch{
		Entry: job.Entry, Grid: job.Grid, Block: job.Block, Cluster: job.Cluster, DynamicShared: job.DynamicSharedBytes, Params: r.params,
		Cooperative: job.Cooperative,
	}
}

// launch runs a job once.
func (d *Device) launch(ctx context.Context, r *resident) (*launched, error) {
	result, err := r.program.Run(ctx, r.memory, r.call(), sim.Options{Seed: r.schedule, Checks: d.options.Checks, Tensor: d.options.Tensor, Printf: d.options.Printf, Instance: &r.instance, Residency: true, Executed: d.options.Executed})
	if err != nil {
		err = kernelError(ctx, err)
		if fault, ok := errors.AsType[*device.Fault](err); ok && r.current() != (finding.Launch{}) {
			fault.Operation += " in " + r.current().String()
		}
		return nil, err
	}
	l := &launched{counters: named(&result.Counters), instructions: result.Counters.WarpInstructions(), schedules: result.Schedules, covered: result.Covered, stale: result.Stale}
	var found []finding.Finding
	l.outputs, found, err = r.collect(d.options.Checks, result.Findings)
	for _, f := range append(result.Findings, found...) {
		f.Launch = r.current()
		l.findings = append(l.findings, f)
	}
	if l.stale != nil {
		l.stale.Launch = r.current()
	}
	r.endLaunch()
	return l, err
}

// current identifies the last launch in findings.
func (r *resident) current() finding.Launch {
	return finding.Launch{Relaunch: r.relaunches, Inputs: r.job.Inputs, Schedule: int(r.schedule)}
}

// endLaunch notes whether the launch has left anything that a later one can read: written variables
// of the module, or scratch that is not zero as before the first launch.
func (r *resident) endLaunch() {
	written := r.instance.EndLaunch(r.memory)
	r.hasState = written || r.memory.LeftInScratch()
}

// kernelError distinguishes a fault of the kernel from a cancelled context, from PTX that is not
// supported, and from a panic in the simulator.
func kernelError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		var timeout *device.Timeout
		if interrupted, ok := errors.AsType[*sim.InterruptedError](err); ok && errors.As(cause, &timeout) {
			return &device.Timeout{Limit: timeout.Limit, Where: interrupted.Where}
		}
		return cause
	}
	if _, ok := errors.AsType[*sim.UnsupportedError](err); ok {
		return unsupported(err)
	}
	if _, ok := errors.AsType[*sim.LimitError](err); ok {
		return &device.Unsupported{Why: err.Error(), Large: true}
	}
	if _, ok := errors.AsType[*crash.Panic](err); ok {
		return err // the kernel is not at fault
	}
	return &device.Fault{Code: "simulator", Text: err.Error(), Operation: "run the kernel"}
}

// unsupported is the error of PTX that the simulator cannot run.
func unsupported(err error) error {
	refused := &device.Unsupported{Why: fmt.Sprintf("the simulator cannot run the PTX: %v", err)}
	if instruction, ok := errors.AsType[*sim.UnsupportedError](err); ok {
		refused.What = instruction.Family()
	}
	return refused
}

// bind allocates the buffers of a job and returns the values of all arguments.
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
			return nil, nil, &device.Unsupported{Why: fmt.Sprintf("%s: %v", arg.Variable(i), err)}
		}
	}
	return values, buffers, nil
}

// place allocates the buffer of an argument, with its bytes. An output stays uninitialised.
func place(memory *mem.Memory, index int, arg device.Arg) (uint64, error) {
	if arg.Scratch > 0 {
		return memory.AllocScratch(arg.Variable(index), arg.BufferBytes(), arg.Zero)
	}
	base, err := memory.Alloc(arg.Variable(index), arg.BufferBytes())
	switch {
	case err != nil || arg.Output > 0:
		return base, err
	case arg.Input != nil:
		return base, errors.Join(memory.Write(base, arg.Input), memory.Protect(base))
	}
	return base, memory.Write(base, arg.InOut)
}

// collect reads the buffers back. Outputs must be written completely, and inputs must be unchanged.
// The checkers may have found the write to an input itself.
func (r *resident) collect(checks bool, found []finding.Finding) (outputs [][]byte, findings []finding.Finding, err error) {
	never := "never written"
	if r.relaunches > 0 {
		never = "not written"
	}
	for i, arg := range r.job.Args {
		if !arg.IsBuffer() || arg.Scratch > 0 {
			continue
		}
		data := make([]byte, arg.BufferBytes())
		if err := r.memory.Read(data, r.buffers[i]); err != nil {
			return nil, nil, err
		}
		if arg.Input != nil {
			known := slices.ContainsFunc(found, func(f finding.Finding) bool { return f.Is(finding.InputChanged) && f.Variable.Index == i })
			if !known && !bytes.Equal(data, arg.Input) {
				findings = append(findings, finding.Of(finding.InputChanged, arg.Variable(i), arg.Variable(i).String()+": an input was changed"))
			}
			continue
		}
		outputs = append(outputs, data)
		if n, first := r.memory.Unwritten(r.buffers[i]); checks && n > 0 && arg.InOut == nil {
			text := fmt.Sprintf("%s: %d of %d bytes %s, the first at byte %d", arg.Variable(i), n, len(data), never, first)
			findings = append(findings, finding.Of(finding.Unwritten, arg.Variable(i), text))
		}
	}
	return outputs, findings, nil
}
