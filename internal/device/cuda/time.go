package cuda

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"attune/internal/device"
)

// How samples are taken. A sample is one replay of a graph of equal launches, so that the gaps between launches from the host are not in it; it lasts
// long enough for the start of the graph (4 to 5 us) and the clock of events (half a microsecond) not to matter. Another replay goes right before it:
// the host has put the sample behind it when it ends, so that nothing waits for the host between the events.
const (
	sampleSeconds = 5e-3  // what one replay should take, as far as the plan has launches for it
	longSeconds   = 20e-3 // a replay so long needs no other before it: what the host takes is nothing beside it
	trialReplays  = 3
	emptyReplays  = 15
	maxSingles    = 30 // single launches of each job
)

// How a job is warmed up: until the medians of two windows that follow each other agree.
const (
	windowSeconds   = 25e-3 // of replays, at least
	windowReplays   = 3     // at least
	stableShare     = 0.005 // what two medians may differ by
	mostWarmSeconds = 1.0   // a job that still moves after this much is sampled as it is, and said to
)

// Launches take several copies of a job's buffers in turns, as inputs come in life: a kernel gains nothing by the addresses of the launch before.
// With a warm L2 all copies together must leave most of it free, or it would not be warm.
const (
	maxCopies   = 4
	copiesShare = 4 // they take a quarter of L2 at most
)

// timed is one job made ready for replay.
type timed struct {
	machine  *Machine
	function function
	job      device.Job
	buffers  []*device.Buffer
	args     [][][]byte // of each copy
	next     int        // copy to be launched with
	lead     bool       // another replay goes before a sample
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
		t, err := m.prepare(job, flush, plan.MostLaunches())
		if t != nil {
			ready = append(ready, t)
		}
		if err != nil {
			return nil, err
		}
	}
	sample := func(t *timed) error {
		time.Sleep(plan.Rest)
		return t.sample()
	}
	if err := inTurns(ready, plan.Samples, sample); err != nil {
		return nil, err
	}
	if flush != nil {
		if err := takeOff(ready); err != nil {
			return nil, err
		}
	}
	if err := inTurns(ready, min(plan.Samples, maxSingles), (*timed).single); err != nil {
		return nil, err
	}
	empty := m.emptyNode(plan.MostLaunches())
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

// prepare binds a job's memory, finds out how long it takes, builds its graphs, of so many launches at most, and warms it up.
func (m *Machine) prepare(job device.Job, flush *flush, mostLaunches int) (*timed, error) {
	f, err := m.Load(job.Image, job.Entry)
	if err != nil {
		return nil, err
	}
	t := &timed{machine: m, function: f.(function), job: job, flush: flush}
	if err := t.bind(m.copies(job, flush != nil)); err != nil {
		return t, err
	}
	// The first launch pays for what the driver puts off; it is not looked at.
	if err := m.Launch(f, &job, t.args[0]); err != nil {
		return t, err
	}
	if err := t.record(1); err != nil {
		return t, err
	}
	once := math.Inf(1)
	for range trialReplays {
		seconds, err := m.clock.replay(t.graph, nil, nil)
		if err != nil {
			return t, err
		}
		once = min(once, seconds)
	}
	t.lead = once < longSeconds
	if err := t.record(int(min(max(sampleSeconds/once, 1), float64(mostLaunches)))); err != nil {
		return t, err
	}
	return t, t.warmUp()
}

// copies is how many copies of its buffers a job is timed with. A cold L2 has nothing of any of them.
func (m *Machine) copies(job device.Job, cold bool) int {
	bytes := int64(1)
	for _, arg := range job.Args {
		bytes += int64(len(arg.Input) + arg.Output)
	}
	least := int64(1)
	if cold {
		least = 2
	}
	return int(min(max(m.facts.L2Bytes/copiesShare/bytes, least), maxCopies))
}

// bind places so many copies of the job's buffers.
func (t *timed) bind(copies int) error {
	for range copies {
		buffers, args, err := device.Bind(t.machine, t.job)
		t.buffers, t.args = append(t.buffers, buffers...), append(t.args, args)
		if err != nil {
			return err
		}
	}
	t.series.Copies = copies
	return nil
}

// warmUp replays until the times stand still.
func (t *timed) warmUp() error {
	before, err := t.window()
	if err != nil {
		return err
	}
	for {
		now, err := t.window()
		if err != nil {
			return err
		}
		if math.Abs(now-before) <= stableShare*before {
			return nil
		}
		if t.series.WarmSeconds >= mostWarmSeconds {
			t.series.Unstable = true
			return nil
		}
		before = now
	}
}

// window replays for a while and gives the median time of a replay.
func (t *timed) window() (float64, error) {
	var all []float64
	for spent := 0.0; spent < windowSeconds || len(all) < windowReplays; {
		seconds, err := t.machine.clock.replay(t.graph, nil, nil)
		if err != nil {
			return 0, err
		}
		all, spent = append(all, seconds), spent+seconds
		t.series.WarmSeconds += seconds
	}
	return middle(all), nil
}

// middle is the median, or the upper of two.
func middle(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// record makes the job's graphs, of n launches.
func (t *timed) record(n int) error {
	t.dropGraphs()
	t.next = 0
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

// launch starts the job on the clock's stream with the next copy of its buffers, or adds it to the graph that is being captured there. The owner
// calls it.
func (t *timed) launch() error {
	args := t.args[t.next]
	t.next = (t.next + 1) % len(t.args)
	return t.machine.launch(t.function, t.machine.clock.stream, &t.job, args)
}

// sample replays once and keeps the time, and what the GPU said of itself meanwhile. With a cold L2 the flush alone comes next to it.
func (t *timed) sample() error {
	var reading device.Reading
	s := &t.series
	seconds, err := t.replay(t.graph, func() { reading = t.machine.monitor.read() })
	if err != nil {
		return err
	}
	s.Readings = append(s.Readings, reading)
	if t.flush == nil {
		s.Seconds = append(s.Seconds, seconds)
		return nil
	}
	alone, err := t.replay(t.flushing, nil)
	s.WithFlush, s.Flush = append(s.WithFlush, seconds), append(s.Flush, alone)
	return err
}

// replay is the seconds of one of a graph's launches.
func (t *timed) replay(g *graph, meanwhile func()) (float64, error) {
	var lead *graph
	if t.lead {
		lead = g
	}
	seconds, err := t.machine.clock.replay(g, lead, meanwhile)
	return seconds / float64(g.launches), err
}

// takeOff makes times of samples that have a flush in them. What is taken off is the median of all flushes of the round and of those next to it: it
// follows the clocks, and one flush that took long does not make a launch look short.
func takeOff(ready []*timed) error {
	for round := range ready[0].series.WithFlush {
		var near []float64
		for _, t := range ready {
			near = append(near, t.series.Flush[max(0, round-1):min(round+2, len(t.series.Flush))]...)
		}
		flush := middle(near)
		for _, t := range ready {
			seconds := t.series.WithFlush[round] - flush
			if seconds <= 0 {
				return fmt.Errorf("%s takes no longer with a flush of L2 before it than the flush alone (%.2f us): "+
					"it is too short to be timed cold; use --l2 warm", t.job.Entry, 1e6*flush)
			}
			t.series.Seconds = append(t.series.Seconds, seconds)
		}
	}
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

// emptyNode is the seconds of a node that does nothing, in a graph as long as those of the shortest kernels: the median of some replays. It is nil
// where it cannot be had, such as with a driver that has no compiler; that says nothing against a kernel.
func (m *Machine) emptyNode(launches int) *float64 {
	f, err := m.Load([]byte(emptyPTX), emptyEntry)
	if err != nil {
		return nil
	}
	job := device.Job{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}}
	g, err := m.record(emptyEntry, launches, func() error { return m.launch(f.(function), m.clock.stream, &job, nil) })
	if err != nil {
		return nil
	}
	defer g.drop()
	var all []float64
	for range emptyReplays {
		seconds, err := m.clock.replay(g, g, nil)
		if err != nil {
			return nil
		}
		all = append(all, seconds/float64(launches))
	}
	empty := middle(all)
	return &empty
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

// replay runs a graph once and returns the seconds between the events around it. A lead, where there is one, runs right before. What is to happen
// meanwhile is done while the GPU works.
func (c *clock) replay(g, lead *graph, meanwhile func()) (float64, error) {
	launch := func(g *graph) func() error {
		d := c.machine.driver
		return func() error { return d.fault(d.cuGraphLaunch(g.exec, c.stream), "replay a graph of "+g.of) }
	}
	var before []func() error
	if lead != nil {
		before = append(before, launch(lead))
	}
	return c.between(g.of, "replay a graph of", before, launch(g), meanwhile)
}

// between is the seconds that the GPU takes for some work, by the events around it. What goes before it is not in them.
func (c *clock) between(of, doing string, before []func() error, work func() error, meanwhile func()) (float64, error) {
	d, did := c.machine.driver, doing+" "+of
	var milliseconds float32
	step := func(f func() result) func() error {
		return func() error { return d.fault(f(), did) }
	}
	steps := append(slices.Clone(before),
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
