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

// addRestore gives a copy the table of its in-out buffers.
func (c *bufferCopy) addRestore(m *Machine, job device.Job, originals []*device.Buffer) error {
	var own, from []*device.Buffer
	bytes := 0
	for i, b := range c.buffers {
		if b.IsInOut() {
			own, from = append(own, b), append(from, originals[i])
			bytes += b.Size()
		}
	}
	if len(own) == 0 {
		return nil
	}
	table := device.RotationTable(job, own, from)
	var err error
	if c.restoreTable, err = m.Alloc(len(table)); err != nil {
		return err
	}
	// A restore of a counter needs one block; a large grid would only add to what is subtracted.
	const bytesPerBlock = 256 * 16
	c.restoreCount, c.restoreGrid = len(own), device.Job{Grid: helperGrid.Grid, Block: helperGrid.Block}
	c.restoreGrid.Grid[0] = min(max(bytes/bytesPerBlock, 1), helperGrid.Grid[0])
	return m.Write(c.restoreTable, table)
}

// restore starts the restore of a copy on a clock's stream, or adds it to the graph that is being
// captured. It must run on the owner goroutine.
func (t *timedJob) restore(on *clock, copy int) error {
	c, r := t.copies[copy], t.rotator
	args := [][]byte{address(c.restoreTable), word(c.restoreCount), address(r.state), word(0)}
	return t.machine.launch(r.rotate, on.stream, &c.restoreGrid, args)
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
