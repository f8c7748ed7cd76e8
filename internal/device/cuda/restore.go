package cuda

import (
	"slices"

	"attune/internal/device"
)

// A launch that changes an in-out buffer leaves other contents to the next one: a work queue that is
// empty, or sums that grow. Every launch of a graph is therefore preceded by a restore of its in-out
// buffers. The restores alone are replayed right before a sample and subtracted from it, as a flush
// of L2 is.

// restores reports whether the job has in-out buffers.
func (t *timedJob) restores() bool {
	return slices.ContainsFunc(t.job.Args, func(a device.Arg) bool { return a.InOut != nil })
}

// restoreGrid is the launch of a restore. That of a counter needs one block; a large grid would only add
// to what is subtracted.
func restoreGrid(bytes int) device.Job {
	const bytesPerBlock = 256 * 16
	grid := device.Job{Grid: helperGrid.Grid, Block: helperGrid.Block}
	grid.Grid[0] = min(max(bytes/bytesPerBlock, 1), helperGrid.Grid[0])
	return grid
}

// restore starts the restore of a copy on a clock's stream, or adds it to the graph that is being
// captured. It must run on the owner goroutine.
func (t *timedJob) restore(on *clock, copy int) error {
	c, r := t.copies[copy], t.rotator
	return t.machine.launch(r.rotate, on.stream, &c.restoreGrid, r.arguments(c.inOuts, 0))
}

// beforeLaunch are the steps of a graph before each launch, whose time is subtracted: the restore
// of in-out buffers and the flush of L2. They count the copies as launch does.
func (t *timedJob) beforeLaunch() []func() error {
	var steps []func() error
	if t.restores() {
		next := 0
		steps = append(steps, func() error {
			next = (next + 1) % len(t.copies)
			return t.restore(t.machine.clock, (next+len(t.copies)-1)%len(t.copies))
		})
	}
	if t.flush != nil {
		steps = append(steps, func() error { return t.flush.write(t.machine.clock) })
	}
	return steps
}
