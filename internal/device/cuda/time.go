package cuda

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"attune/internal/device"
)

// How samples are taken. A sample is one replay of a graph of equal launches, so that the gaps between launches from the host are
// not in it; it lasts long enough for the clock of events (half a microsecond) not to matter.
const (
	sampleSeconds = 1e-3  // what one replay should take
	maxLaunches   = 50    // in a graph
	warmSeconds   = 50e-3 // of each job, before the first sample
	trialReplays  = 3
	emptyReplays  = 15
	maxSingles    = 30 // single launches of each job
)

// timed is one job made ready for replay.
type timed struct {
	machine  *Machine
	function function
	job      device.Job
	buffers  []*device.Buffer
	args     [][]byte
	graph    *graph
	flush    *flush // nil where L2 stays warm
	flushing *graph // as many flushes as the other graph has, and nothing else
	series   device.Series
}

// Time replays the jobs in turns, forwards and backwards (A B, B A, ...), so that drift of clocks and heat meets all of them alike.
func (m *Machine) Time(jobs []device.Job, plan device.Plan) ([]device.Series, error) {
	if m.clock == nil {
		var err error
		if m.clock, err = m.newClock(); err != nil {
			return nil, err
		}
	}
	if m.monitor == nil {
		m.monitor = newMonitor(m.loadNVML, m.facts.UUID)
	}
	flush, err := m.newFlush(plan)
	if err != nil {
		return nil, err
	}
	defer flush.free()
	var ready []*timed
	defer func() {
		for _, t := range ready {
			t.free()
		}
	}()
	for _, job := range jobs {
		t, err := m.prepare(job, flush)
		if t != nil {
			ready = append(ready, t)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := inTurns(ready, plan.Samples, (*timed).sample); err != nil {
		return nil, err
	}
	if err := inTurns(ready, min(plan.Samples, maxSingles), (*timed).single); err != nil {
		return nil, err
	}
	empty := m.emptyNode()
	var all []device.Series
	for _, t := range ready {
		t.series.LaunchesPerSample, t.series.EmptyNode = t.graph.launches, empty
		if t.series.Unwatched = m.monitor.missing; t.series.Unwatched != "" {
			t.series.Readings = nil // one that has stopped half-way says nothing of the rest
		}
		all = append(all, t.series)
	}
	return all, nil
}

// inTurns has every job do something so many times.
func inTurns(ready []*timed, times int, do func(*timed) error) error {
	order := slices.Clone(ready)
	for range times {
		for _, t := range order {
			if err := do(t); err != nil {
				return err
			}
		}
		slices.Reverse(order)
	}
	return nil
}

// prepare binds a job's memory, finds out how long it takes, builds its graphs and warms it up.
func (m *Machine) prepare(job device.Job, flush *flush) (*timed, error) {
	f, err := m.Load(job.Image, job.Entry)
	if err != nil {
		return nil, err
	}
	t := &timed{machine: m, function: f.(function), job: job, flush: flush}
	t.buffers, t.args, err = device.Bind(m, job)
	if err != nil {
		return t, err
	}
	// The first launch pays for what the driver puts off; it is not looked at.
	if err := m.Launch(f, job.Grid, job.Block, job.DynamicSharedBytes, t.args); err != nil {
		return t, err
	}
	if err := t.record(1); err != nil {
		return t, err
	}
	once := math.Inf(1)
	for range trialReplays {
		seconds, err := m.clock.replay(t.graph, nil)
		if err != nil {
			return t, err
		}
		once = min(once, seconds)
	}
	if err := t.record(int(min(max(sampleSeconds/once, 1), maxLaunches))); err != nil {
		return t, err
	}
	for spent := 0.0; spent < warmSeconds; {
		seconds, err := m.clock.replay(t.graph, nil)
		if err != nil {
			return t, err
		}
		spent += seconds
	}
	return t, nil
}

// record makes the job's graphs, of n launches.
func (t *timed) record(n int) error {
	t.dropGraphs()
	steps := []func() error{t.launch}
	var err error
	if t.flush != nil {
		if t.flushing, err = t.machine.record("the flush of L2", n, t.flush.write); err != nil {
			return err
		}
		steps = []func() error{t.flush.write, t.launch}
	}
	t.graph, err = t.machine.record(t.job.Entry, n, steps...)
	return err
}

// launch starts the job on the clock's stream, or adds it to the graph that is being captured there. The owner calls it.
func (t *timed) launch() error {
	return t.machine.launch(t.function, t.machine.clock.stream, t.job.Grid, t.job.Block, t.job.DynamicSharedBytes, t.args)
}

// sample replays once and keeps the time, and what the GPU said of itself meanwhile.
func (t *timed) sample() error {
	var reading device.Reading
	clock, s := t.machine.clock, &t.series
	seconds, err := clock.replay(t.graph, func() { reading = t.machine.monitor.read() })
	if err != nil {
		return err
	}
	s.Readings = append(s.Readings, reading)
	seconds /= float64(t.graph.launches)
	if t.flush != nil {
		alone, err := clock.replay(t.flushing, nil)
		if err != nil {
			return err
		}
		alone /= float64(t.flushing.launches)
		s.WithFlush, s.Flush = append(s.WithFlush, seconds), append(s.Flush, alone)
		if seconds -= alone; seconds <= 0 {
			return fmt.Errorf("%s takes no longer with a flush of L2 before it than the flush alone (%.2f us): it is too short to be timed cold; use --l2 warm",
				t.job.Entry, 1e6*alone)
		}
	}
	s.Seconds = append(s.Seconds, seconds)
	return nil
}

// single times one launch that is in no graph.
func (t *timed) single() error {
	var before []func() error
	if t.flush != nil {
		before = append(before, t.flush.write)
	}
	seconds, err := t.machine.clock.between(t.job.Entry, "time a launch of", before, t.launch, nil)
	t.series.Single = append(t.series.Single, seconds)
	return err
}

func (t *timed) dropGraphs() {
	t.graph.drop()
	t.flushing.drop()
	t.graph, t.flushing = nil, nil
}

func (t *timed) free() {
	t.dropGraphs()
	for _, b := range t.buffers {
		_ = b.Free(t.machine) // after a fault nothing can be freed
	}
}

// graph is steps that are replayed as one.
type graph struct {
	machine  *Machine
	exec     handle // CUgraphExec
	of       string
	launches int
}

// record captures n times the given steps as a graph.
func (m *Machine) record(of string, n int, steps ...func() error) (*graph, error) {
	d, stream := m.driver, m.clock.stream
	g := &graph{machine: m, of: of, launches: n}
	err := m.do(func() error {
		if err := d.fault(d.cuStreamBeginCapture_v2(stream, captureThreadLocal), "begin to capture a graph"); err != nil {
			return err
		}
		stepErr := repeat(n, steps)
		var captured handle
		err := d.fault(d.cuStreamEndCapture(stream, &captured), "capture a graph")
		if captured != 0 {
			defer d.cuGraphDestroy(captured)
		}
		if stepErr != nil {
			return stepErr
		}
		if err != nil {
			return err
		}
		return d.fault(d.cuGraphInstantiateWithFlags(&g.exec, captured, 0), "make a graph ready")
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

func repeat(n int, steps []func() error) error {
	for range n {
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *graph) drop() {
	if g != nil {
		_ = g.machine.do(func() error { g.machine.driver.cuGraphExecDestroy(g.exec); return nil })
	}
}

// flush is memory that L2 cannot hold. Writing all of it leaves nothing else there.
type flush struct {
	machine *Machine
	address device.Address
	bytes   int64
}

// flushShare is how many times L2 the flush writes: its lines are not replaced in the order of their age.
const flushShare = 2

// newFlush takes the memory, if the plan wants a cold L2.
func (m *Machine) newFlush(plan device.Plan) (*flush, error) {
	if !plan.ColdL2 {
		return nil, nil
	}
	if m.facts.L2Bytes <= 0 {
		return nil, errors.New("the driver does not say how large L2 is, so that it cannot be flushed; use --l2 warm")
	}
	f := &flush{machine: m, bytes: flushShare * m.facts.L2Bytes}
	var err error
	if f.address, err = m.Alloc(int(f.bytes)); err != nil {
		return nil, fmt.Errorf("flush L2: %w", err)
	}
	return f, nil
}

// write is one flush on the clock's stream. The owner calls it.
func (f *flush) write() error {
	d := f.machine.driver
	return d.failure(d.cuMemsetD32Async(uint64(f.address), 0, uint64(f.bytes/4), f.machine.clock.stream), "flush L2")
}

func (f *flush) free() {
	if f != nil {
		_ = f.machine.Free(f.address) // after a fault nothing can be freed
	}
}

// emptyPTX is a kernel that does nothing: what is left is what a node of a graph costs.
const emptyPTX = `.version 7.0
.target sm_80
.address_size 64
.visible .entry ` + emptyEntry + `()
{
	ret;
}
`

const emptyEntry = "attune_empty"

// emptyNode is the seconds of a node that does nothing, in a graph as long as those of the shortest kernels: the median of some replays. It is nil where
// it cannot be had, such as with a driver that has no compiler; that says nothing against a kernel.
func (m *Machine) emptyNode() *float64 {
	f, err := m.Load([]byte(emptyPTX), emptyEntry)
	if err != nil {
		return nil
	}
	g, err := m.record(emptyEntry, maxLaunches, func() error {
		return m.launch(f.(function), m.clock.stream, [3]int{1, 1, 1}, [3]int{1, 1, 1}, 0, nil)
	})
	if err != nil {
		return nil
	}
	defer g.drop()
	var all []float64
	for range emptyReplays {
		seconds, err := m.clock.replay(g, nil)
		if err != nil {
			return nil
		}
		all = append(all, seconds/maxLaunches)
	}
	slices.Sort(all)
	return &all[len(all)/2]
}

// clock is a stream with two events on it.
type clock struct {
	machine            *Machine
	stream, start, end handle
}

func (m *Machine) newClock() (*clock, error) {
	c := &clock{machine: m}
	d := m.driver
	err := m.do(func() error {
		for _, step := range []struct {
			code result
			did  string
		}{
			{d.cuStreamCreate(&c.stream, streamNonBlocking), "make a stream"},
			{d.cuEventCreate(&c.start, 0), "make an event"},
			{d.cuEventCreate(&c.end, 0), "make an event"},
		} {
			if err := d.failure(step.code, step.did); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// replay runs a graph once and returns the seconds between the events around it. What is to happen meanwhile is done while the GPU works.
func (c *clock) replay(g *graph, meanwhile func()) (float64, error) {
	d := c.machine.driver
	launch := func() error { return d.fault(d.cuGraphLaunch(g.exec, c.stream), "replay a graph of "+g.of) }
	return c.between(g.of, "replay a graph of", nil, launch, meanwhile)
}

// between is the seconds that the GPU takes for some work, by the events around it. What goes before it is not in them.
func (c *clock) between(of, doing string, before []func() error, work func() error, meanwhile func()) (float64, error) {
	d, did := c.machine.driver, doing+" "+of
	var milliseconds float32
	step := func(f func() result) func() error {
		return func() error { return d.fault(f(), did) }
	}
	steps := append(before,
		step(func() result { return d.cuEventRecord(c.start, c.stream) }),
		work,
		step(func() result { return d.cuEventRecord(c.end, c.stream) }),
		func() error {
			if meanwhile != nil {
				meanwhile()
			}
			return nil
		},
		step(func() result { return d.cuEventSynchronize(c.end) }),
		step(func() result { return d.cuEventElapsedTime(&milliseconds, c.start, c.end) }),
	)
	err := c.machine.do(func() error { return repeat(1, steps) })
	if err == nil && milliseconds <= 0 {
		err = fmt.Errorf("%s: the events say %g ms", did, milliseconds)
	}
	return float64(milliseconds) / 1e3, err
}
