package cuda

import (
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
)

// timed is one job made ready for replay.
type timed struct {
	machine  *Machine
	function function
	job      device.Job
	buffers  []*device.Buffer
	args     [][]byte
	graph    handle // CUgraphExec
	launches int
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
	clock := m.clock
	var ready []*timed
	defer func() {
		for _, t := range ready {
			t.free()
		}
	}()
	for _, job := range jobs {
		t, err := m.prepare(job, clock)
		if t != nil {
			ready = append(ready, t)
		}
		if err != nil {
			return nil, err
		}
	}
	order := slices.Clone(ready)
	for range plan.Samples {
		for _, t := range order {
			seconds, err := clock.replay(t)
			if err != nil {
				return nil, err
			}
			t.series.Seconds = append(t.series.Seconds, seconds/float64(t.launches))
		}
		slices.Reverse(order)
	}
	var all []device.Series
	for _, t := range ready {
		t.series.LaunchesPerSample = t.launches
		all = append(all, t.series)
	}
	return all, nil
}

// prepare binds a job's memory, finds out how long it takes, builds its graph and warms it up.
func (m *Machine) prepare(job device.Job, clock *clock) (*timed, error) {
	f, err := m.Load(job.Image, job.Entry)
	if err != nil {
		return nil, err
	}
	t := &timed{machine: m, function: f.(function), job: job}
	t.buffers, t.args, err = device.Bind(m, job)
	if err != nil {
		return t, err
	}
	// The first launch pays for what the driver puts off; it is not looked at.
	if err := m.Launch(f, &job, t.args); err != nil {
		return t, err
	}
	if err := t.record(clock.stream, 1); err != nil {
		return t, err
	}
	once := math.Inf(1)
	for range trialReplays {
		seconds, err := clock.replay(t)
		if err != nil {
			return t, err
		}
		once = min(once, seconds)
	}
	launches := int(min(max(sampleSeconds/once, 1), maxLaunches))
	if err := t.record(clock.stream, launches); err != nil {
		return t, err
	}
	for spent := 0.0; spent < warmSeconds; {
		seconds, err := clock.replay(t)
		if err != nil {
			return t, err
		}
		spent += seconds
	}
	return t, nil
}

// record captures n launches as a graph.
func (t *timed) record(stream handle, n int) error {
	m, d := t.machine, t.machine.driver
	return m.do(func() error {
		t.dropGraph()
		if err := d.fault(d.cuStreamBeginCapture_v2(stream, captureThreadLocal), "begin to capture a graph"); err != nil {
			return err
		}
		var launchErr error
		for range n {
			if launchErr = m.launch(t.function, stream, &t.job, t.args); launchErr != nil {
				break
			}
		}
		var graph handle
		err := d.fault(d.cuStreamEndCapture(stream, &graph), "capture a graph")
		if graph != 0 {
			defer d.cuGraphDestroy(graph)
		}
		if launchErr != nil {
			return launchErr
		}
		if err != nil {
			return err
		}
		t.launches = n
		return d.fault(d.cuGraphInstantiateWithFlags(&t.graph, graph, 0), "make a graph ready")
	})
}

func (t *timed) dropGraph() {
	if t.graph != 0 {
		t.machine.driver.cuGraphExecDestroy(t.graph)
		t.graph = 0
	}
}

func (t *timed) free() {
	_ = t.machine.do(func() error { t.dropGraph(); return nil })
	for _, b := range t.buffers {
		_ = b.Free(t.machine) // after a fault nothing can be freed
	}
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

// replay runs a graph once and returns the seconds between the events around it.
func (c *clock) replay(t *timed) (float64, error) {
	d := c.machine.driver
	var milliseconds float32
	err := c.machine.do(func() error {
		for _, step := range []func() result{
			func() result { return d.cuEventRecord(c.start, c.stream) },
			func() result { return d.cuGraphLaunch(t.graph, c.stream) },
			func() result { return d.cuEventRecord(c.end, c.stream) },
			func() result { return d.cuEventSynchronize(c.end) },
			func() result { return d.cuEventElapsedTime(&milliseconds, c.start, c.end) },
		} {
			if err := d.fault(step(), "replay a graph of "+t.job.Entry); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && milliseconds <= 0 {
		err = fmt.Errorf("replay a graph of %s: the events say %g ms", t.job.Entry, milliseconds)
	}
	return float64(milliseconds) / 1e3, err
}
