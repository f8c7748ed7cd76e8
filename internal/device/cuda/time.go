package cuda

import (
	"fmt"
	"math"
	"slices"
	"time"

	"attune/internal/device"
)

// A sample is one replay of a graph of equal launches, so it contains no gaps between launches from
// the host. A replay of sampleSeconds makes the start of the graph (4 to 5 us) and the resolution
// of events (0.5 us) negligible. A lead-in replay runs right before the sample: the host enqueues
// the sample while the lead-in runs, so the GPU does not wait for the host between the events.
const (
	sampleSeconds = 5e-3  // target of one replay; the plan's launch limit may make it shorter
	longSeconds   = 20e-3 // a replay of this length needs no lead-in: host time is negligible
	trialReplays  = 3
	emptyReplays  = 15
	maxSingles    = 30 // single launches of each job
)

// A job is warmed up until the medians of two consecutive windows of replays agree.
const (
	windowSeconds  = 25e-3 // minimum of a window
	windowReplays  = 3     // minimum of a window
	stableShare    = 0.005 // largest relative difference of two medians
	maxWarmSeconds = 1.0   // after this a job is sampled as it is and marked unstable
)

// Launches rotate through several copies of a job's buffers, because a real caller's inputs are at
// new addresses too: a kernel must not profit from the addresses of the launch before. With a warm
// L2 the copies may use only a part of it, or it would not stay warm.
const (
	maxCopies     = 4
	copiesL2Share = 4 // the copies use at most 1/4 of L2
)

// timedJob is one job made ready for replay.
type timedJob struct {
	machine     *Machine
	function    function
	unload      func() // of the module, which no earlier launch has used
	job         device.Job
	originals   []*device.Buffer // inputs without rotation
	copies      []*bufferCopy
	next        int  // copy of the next launch
	leadIn      bool // a sample needs a lead-in replay
	graph       *graph
	rotator     *rotator
	rotateGraph *graph    // new inputs for all copies, and poisoned outputs
	flush       *flush    // nil with a warm L2
	beforeGraph *graph    // the flushes and restores of graph, without the launches; nil without any
	with, alone []float64 // seconds of graph and of beforeGraph, for each sample
	empty       float64
	series      device.Series
}

// Time samples the jobs interleaved, in ABBA order: forwards in one round and backwards in the
// next. Drift of clocks and temperature then affects all jobs equally.
func (m *Machine) Time(jobs []device.Job, plan device.Plan) ([]device.Series, error) {
	if err := m.makeClocks(); err != nil {
		return nil, err
	}
	if m.monitor == nil {
		m.monitor = newMonitor(m.loadNVML, m.facts.UUID)
	}
	flush, err := m.newFlush(plan)
	if err != nil {
		return nil, err
	}
	defer flush.free()
	rotator, err := m.newRotator(plan.Secret)
	defer rotator.free()
	if err != nil {
		return nil, err
	}
	var ready []*timedJob
	defer func() {
		for _, t := range ready {
			t.free()
		}
	}()
	prepare := m.prepare
	if plan.Estimate {
		prepare = m.prepareEstimate
	}
	for _, job := range jobs {
		t, err := prepare(job, rotator, flush, plan.LaunchLimit())
		if t != nil {
			ready = append(ready, t)
		}
		if err != nil {
			return nil, err
		}
	}
	if plan.Estimate {
		return estimate(ready, plan)
	}
	if err := measure(ready, plan); err != nil {
		return nil, err
	}
	empty, err := m.emptyNode(plan.LaunchLimit())
	if err != nil {
		return nil, err
	}
	var all []device.Series
	for _, t := range ready {
		t.empty = empty
		if err := t.check(plan); err != nil {
			return nil, err
		}
		if plan.Energy {
			if err := t.energy(); err != nil {
				return nil, err
			}
		}
		t.series.LaunchesPerSample, t.series.EmptyNode = t.graph.launches, &empty
		if t.series.NoReadings = m.monitor.missing; t.series.NoReadings != "" {
			t.series.Readings = nil // a monitor that failed midway has no readings for the rest
		}
		all = append(all, t.series)
	}
	return all, nil
}

// makeClocks makes the clocks of graph replays and of direct launches, once.
func (m *Machine) makeClocks() error {
	var err error
	if m.clock == nil {
		if m.clock, err = m.newClock(true); err != nil {
			return err
		}
	}
	if m.directClock == nil {
		m.directClock, err = m.newClock(false)
	}
	return err
}

// measure takes the single launches and the samples of all jobs. The samples come last, so that the
// outputs to check are those of replays.
func measure(ready []*timedJob, plan device.Plan) error {
	if err := interleave(ready, min(plan.Samples, maxSingles), (*timedJob).single); err != nil {
		return err
	}
	sample := func(t *timedJob) error {
		time.Sleep(plan.Rest)
		if err := t.load(plan.Load); err != nil {
			return err
		}
		return t.sample()
	}
	if err := interleave(ready, plan.Samples, sample); err != nil {
		return err
	}
	for _, t := range ready {
		if plan.ColdL2 {
			t.series.WithFlush, t.series.Flush = t.with, t.alone
		}
		if err := t.subtract(ready); err != nil {
			return err
		}
	}
	return nil
}

// load replays the job without pauses for a time.
func (t *timedJob) load(duration time.Duration) error {
	for left := duration.Seconds(); left > 0; {
		seconds, err := t.machine.clock.replay(t.graph, nil, t.graph)
		if err != nil {
			return err
		}
		left -= 2 * seconds
	}
	return nil
}

// interleave calls do for every job in each round, in ABBA order.
func interleave(ready []*timedJob, rounds int, do func(*timedJob) error) error {
	order := slices.Clone(ready)
	for range rounds {
		for _, t := range order {
			if err := do(t); err != nil {
				return err
			}
		}
		slices.Reverse(order)
	}
	return nil
}

// prepare binds a job's memory, estimates its time, captures its graphs and warms it up.
func (m *Machine) prepare(job device.Job, rotator *rotator, flush *flush, maxLaunches int) (*timedJob, error) {
	t := &timedJob{machine: m, job: job, rotator: rotator, flush: flush}
	var err error
	if t.function, t.unload, err = m.loadFresh(job); err != nil {
		return nil, err
	}
	if err := t.bind(m.copies(job, flush != nil)); err != nil {
		return t, err
	}
	// The first launch includes the driver's deferred loading, so it is not timed.
	if err := m.Launch(t.function, &job, t.copies[0].args); err != nil {
		return t, err
	}
	if err := t.capture(1); err != nil {
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
	t.leadIn = once < longSeconds
	if err := t.capture(int(min(max(sampleSeconds/once, 1), float64(maxLaunches)))); err != nil {
		return t, err
	}
	return t, t.warmUp()
}

// prepareEstimate binds a job's memory and launches it once.
func (m *Machine) prepareEstimate(job device.Job, rotator *rotator, flush *flush, _ int) (*timedJob, error) {
	t := &timedJob{machine: m, job: job, rotator: rotator, flush: flush}
	var err error
	if t.function, t.unload, err = m.loadFresh(job); err != nil {
		return nil, err
	}
	if err := t.bind(1); err != nil {
		return t, err
	}
	return t, m.Launch(t.function, &job, t.copies[0].args)
}

// estimate takes single launches of all jobs.
func estimate(ready []*timedJob, plan device.Plan) ([]device.Series, error) {
	if err := interleave(ready, plan.Samples, (*timedJob).single); err != nil {
		return nil, err
	}
	var all []device.Series
	for _, t := range ready {
		all = append(all, t.series)
	}
	return all, nil
}

// copies is the number of copies of a job's buffers. With a cold L2 there are at least two: the
// flush evicts every copy, so they need not fit.
func (m *Machine) copies(job device.Job, cold bool) int {
	bytes := int64(1)
	for _, arg := range job.Args {
		bytes += int64(arg.BufferBytes())
	}
	least := int64(1)
	if cold {
		least = 2
	}
	return int(min(max(m.facts.L2Bytes/copiesL2Share/bytes, least), maxCopies))
}

// bind allocates the originals and n copies of the job's buffers.
func (t *timedJob) bind(n int) error {
	var err error
	if t.originals, _, err = device.Bind(t.machine, t.job); err != nil {
		return err
	}
	for range n {
		c, err := t.machine.newCopy(t.job, t.originals)
		t.copies = append(t.copies, c)
		if err != nil {
			return err
		}
	}
	t.series.Copies, t.series.Restored = n, t.restores()
	return nil
}

// warmUp replays until the time reaches a steady state.
func (t *timedJob) warmUp() error {
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
		if t.series.WarmSeconds >= maxWarmSeconds {
			t.series.Unstable = true
			return nil
		}
		before = now
	}
}

// window replays for one window and returns the median time of a replay in seconds.
func (t *timedJob) window() (float64, error) {
	var all []float64
	for spent := 0.0; spent < windowSeconds || len(all) < windowReplays; {
		seconds, err := t.machine.clock.replay(t.graph, nil)
		if err != nil {
			return 0, err
		}
		all, spent = append(all, seconds), spent+seconds
		t.series.WarmSeconds += seconds
	}
	return median(all), nil
}

// median is the middle value, or the larger of two. It sorts its argument.
func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// capture captures the job's graphs, of n launches.
func (t *timedJob) capture(n int) error {
	t.dropGraphs()
	t.next = 0
	launch := func() error { return t.launch(t.machine.clock) }
	var err error
	if before := t.beforeLaunch(); len(before) > 0 {
		if t.beforeGraph, err = t.machine.capture(t.beforeName(), n, before...); err != nil {
			return err
		}
	}
	steps := append(t.beforeLaunch(), launch)
	if t.rotateGraph, err = t.captureRotation(); err != nil {
		return err
	}
	t.graph, err = t.machine.capture(t.job.Entry, n, steps...)
	return err
}

// captureRotation captures the rotation of all copies.
func (t *timedJob) captureRotation() (*graph, error) {
	g, err := t.machine.capture("the rotation of inputs", 1, func() error {
		if err := t.rotator.captureAdvance(); err != nil {
			return err
		}
		for i, c := range t.copies {
			if err := t.rotator.captureRotate(c, i); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		g.rotator = t.rotator
	}
	return g, err
}

// launch starts the job on a clock's stream with the next copy of its buffers. During a capture it
// adds the job to the graph instead. It clears the scratch that every launch must find zero first: a
// caller needs that time too, so it is a part of what is timed. It must run on the owner goroutine.
func (t *timedJob) launch(c *clock) error {
	copy := t.copies[t.next]
	t.next = (t.next + 1) % len(t.copies)
	d := t.machine.driver
	for _, b := range copy.buffers {
		if !b.IsCleared() {
			continue
		}
		if err := d.failure(d.cuMemsetD8Async(uint64(b.Start()), 0, uint64(b.Size()), c.stream), "clear scratch"); err != nil {
			return err
		}
	}
	return t.machine.launch(t.function, c.stream, &t.job, copy.args)
}

// sample adds the time of one replay and a reading of the GPU during it. The inputs are rotated and
// the outputs poisoned right before. It times a flush of L2 alone right after, and a restore of
// in-out buffers right before: after the sample it would overwrite what the launches have written.
func (t *timedJob) sample() error {
	var reading device.Reading
	if t.restores() {
		if err := t.sampleBefore(); err != nil {
			return err
		}
	}
	seconds, err := t.replay(t.graph, t.rotateGraph, func() { reading = t.machine.monitor.read() })
	if err != nil {
		return err
	}
	for i, c := range t.copies {
		if c.last = (device.Rotation{}); i < t.graph.launches {
			c.last = t.rotator.rotation(i)
		}
	}
	s := &t.series
	s.Readings = append(s.Readings, reading)
	if t.beforeGraph == nil {
		s.Seconds = append(s.Seconds, seconds)
		return nil
	}
	t.with = append(t.with, seconds)
	if t.restores() {
		return nil
	}
	return t.sampleBefore()
}

// sampleBefore adds the time of the steps before a launch, without the launch.
func (t *timedJob) sampleBefore() error {
	seconds, err := t.replay(t.beforeGraph, nil, nil)
	t.alone = append(t.alone, seconds)
	return err
}

// beforeName names the steps before a launch in errors.
func (t *timedJob) beforeName() string {
	if t.restores() {
		return "the restore of in-out buffers"
	}
	return "the flush of L2"
}

// replay returns the seconds per launch of one replay. A rotation that is not nil comes between the
// lead-in and the replay.
func (t *timedJob) replay(g, rotation *graph, during func()) (float64, error) {
	var before []*graph
	if t.leadIn {
		before = append(before, g)
	}
	if rotation != nil {
		before = append(before, rotation)
	}
	seconds, err := t.machine.clock.replay(g, during, before...)
	return seconds / float64(g.launches), err
}

// subtract computes the samples of a job with a flush or a restore before each launch. It subtracts
// the median of their times in the round and its two neighbours: the median follows the clocks, and
// a single slow flush does not make a launch look short. Flushes are equal, so that those of all
// jobs count; restores differ.
func (t *timedJob) subtract(ready []*timedJob) error {
	alike := ready
	if t.restores() {
		alike = []*timedJob{t}
	}
	for round, with := range t.with {
		var near []float64
		for _, other := range alike {
			if other == t || !other.restores() {
				near = append(near, other.alone[max(0, round-1):min(round+2, len(other.alone))]...)
			}
		}
		before := median(near)
		if with <= before {
			if t.flush == nil {
				return fmt.Errorf("%s with the restore of its in-out buffers takes no longer than the restore alone (%.2f us): "+
					"it is too short to be timed; choose a larger shape", t.job.Entry, 1e6*before)
			}
			return fmt.Errorf("%s with a flush of L2 takes no longer than the flush alone (%.2f us): "+
				"it is too short to be timed cold; use --l2 warm", t.job.Entry, 1e6*before)
		}
		t.series.Seconds = append(t.series.Seconds, with-before)
	}
	return nil
}

// single times one launch outside a graph, on the default stream. After some 15 direct launches on
// a stream of our own, be it the one of the replays or another, every launch of every later replay
// takes 0.17 us more (H200, driver 580).
func (t *timedJob) single() error {
	direct := t.machine.directClock
	var before []func() error
	if t.restores() {
		copy := t.next
		before = append(before, func() error { return t.restore(direct, copy) })
	}
	if t.flush != nil {
		before = append(before, func() error { return t.flush.write(direct) })
	}
	launch := func() error { return t.launch(direct) }
	seconds, err := direct.elapsed("time a launch of "+t.job.Entry, before, launch, nil)
	t.series.Single = append(t.series.Single, seconds)
	return err
}

func (t *timedJob) dropGraphs() {
	for _, g := range []**graph{&t.graph, &t.rotateGraph, &t.beforeGraph} {
		(*g).drop()
		*g = nil
	}
}

func (t *timedJob) free() {
	t.dropGraphs()
	for _, c := range t.copies {
		c.free(t.machine)
	}
	for _, b := range t.originals {
		_ = b.Free(t.machine) // fails after a fault; the caller returns the fault itself
	}
	t.unload()
}
