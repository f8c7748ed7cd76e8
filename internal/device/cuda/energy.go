package cuda

import (
	"math"
	"time"
)

// The energy of a launch is too small for NVML's counter, which on an H200 changes every 100 ms, by
// amounts that differ by up to 30 % under an even load. A job is therefore replayed without pauses
// from one change of the counter to one of the tenth or later. To read the counter takes 4 ms, so
// it is read while replays run: an idle GPU would use energy that belongs to no launch.
const (
	energyBatch = 20e-3 // of replays that are enqueued together
	energyLimit = 3 * time.Second
)

// energySeconds is the least time between the two changes. Tests with a fake GPU shorten it.
var energySeconds = 0.95

// energy measures the joules of one launch. It leaves them out if NVML has no energy counter. With
// a cold L2 it subtracts those of the flush, and with in-out buffers those of their restore.
func (t *timedJob) energy() error {
	launch, err := t.joules(t.graph)
	if err != nil || launch == 0 || t.beforeGraph == nil {
		t.series.Joules = launch
		return err
	}
	before, err := t.joules(t.beforeGraph)
	t.series.Joules = launch - before
	return err
}

// joules is the energy of a graph for each of its launches; 0 if it cannot be measured.
func (t *timedJob) joules(g *graph) (float64, error) {
	seconds, err := t.machine.clock.replay(g, nil)
	if err != nil {
		return 0, err
	}
	before := make([]*graph, int(min(max(math.Ceil(energyBatch/seconds), 1), 1000))-1)
	for i := range before {
		before[i] = g
	}
	meter := energyMeter{read: t.machine.monitor.joules}
	launches, stop := 0, false // launches of the batch before
	read := func() {
		done, ok := meter.add(launches, time.Now())
		stop = done || !ok
	}
	for began := time.Now(); !stop && time.Since(began) < energyLimit; {
		if _, err := t.machine.clock.replay(g, read, before...); err != nil {
			return 0, err
		}
		launches = (len(before) + 1) * g.launches
	}
	return meter.perLaunch, nil
}

// energyMeter finds the changes of an energy counter while launches run.
type energyMeter struct {
	read      func() (joules float64, ok bool)
	first     float64 // reading after the first change
	last      float64
	begun     time.Time // of the first change
	readings  int
	changes   int
	launches  int // since the first change
	perLaunch float64
}

// add takes in launches that have just finished. It is done after enough time between two changes.
func (m *energyMeter) add(launches int, now time.Time) (done, ok bool) {
	joules, ok := m.read()
	if !ok {
		return false, false
	}
	m.launches += launches
	m.readings++
	if m.readings == 1 || joules == m.last {
		m.last = joules
		return false, true
	}
	m.last = joules
	m.changes++
	if m.changes == 1 {
		m.first, m.begun, m.launches = joules, now, 0
		return false, true
	}
	if now.Sub(m.begun).Seconds() < energySeconds {
		return false, true
	}
	m.perLaunch = (joules - m.first) / float64(m.launches)
	return true, true
}
