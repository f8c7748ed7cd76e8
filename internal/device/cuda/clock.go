package cuda

import (
	"fmt"
	"slices"
)

// clock is a stream and the two events that time the work on it.
type clock struct {
	machine            *Machine
	stream, start, end handle
}

// newClock makes a clock on a stream of its own, or on the default stream.
func (m *Machine) newClock(own bool) (*clock, error) {
	c := &clock{machine: m}
	d := m.driver
	err := m.do(func() error {
		if own {
			if err := d.failure(d.cuStreamCreate(&c.stream, streamNonBlocking), "make a stream"); err != nil {
				return err
			}
		}
		for _, event := range []*handle{&c.start, &c.end} {
			if err := d.failure(d.cuEventCreate(event, 0), "make an event"); err != nil {
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

// replay runs a graph once and returns its time in seconds. The graphs before it run right before
// and are not timed. during runs on the host while the GPU works.
func (c *clock) replay(g *graph, during func(), before ...*graph) (float64, error) {
	operation := "replay a graph of " + g.name
	launch := func(g *graph) func() error {
		d := c.machine.driver
		return func() error {
			if g.rotator != nil {
				g.rotator.count++
			}
			return d.fault(d.cuGraphLaunch(g.exec, c.stream), operation)
		}
	}
	var untimed []func() error
	for _, g := range before {
		untimed = append(untimed, launch(g))
	}
	return c.elapsed(operation, untimed, launch(g), during)
}

// elapsed returns the GPU's time for work in seconds, between two events. The steps before it are
// not timed.
func (c *clock) elapsed(operation string, before []func() error, work func() error, during func()) (float64, error) {
	d := c.machine.driver
	var milliseconds float32
	step := func(f func() result) func() error {
		return func() error { return d.fault(f(), operation) }
	}
	steps := append(slices.Clone(before),
		step(func() result { return d.cuEventRecord(c.start, c.stream) }),
		work,
		step(func() result { return d.cuEventRecord(c.end, c.stream) }),
		func() error {
			if during != nil {
				during()
			}
			return nil
		},
		step(func() result { return d.cuEventSynchronize(c.end) }),
		step(func() result { return d.cuEventElapsedTime(&milliseconds, c.start, c.end) }),
	)
	err := c.machine.do(func() error { return repeat(1, steps) })
	if err == nil && milliseconds <= 0 {
		err = fmt.Errorf("%s: the events measured %g ms", operation, milliseconds)
	}
	return float64(milliseconds) / 1e3, err
}
