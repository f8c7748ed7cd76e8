package cuda

import (
	"encoding/binary"
	"fmt"
	"math"

	"attune/internal/device"
	"attune/internal/finding"
)

// A timed kernel must do its work in every launch. Two properties show it:
//
//   - The outputs of the last timed launches, on inputs that no launch before the replay had, equal
//     those of a module that has never been timed.
//   - A launch takes no longer if the inputs change and the outputs are poisoned before each launch
//     than without. A kernel that reuses an earlier result, wherever it keeps it, cannot do so then.
//     If it does take longer, it is compared with launches before which the inputs are written again
//     unchanged: what was just written is farther away in the L2 cache. On an H200 that costs a chain
//     of small loads up to 36 %.
const (
	freshReplays = 3 // of a graph in which every launch has new inputs, and of its control

	// freshShare and freshSeconds are by how much a launch on new inputs may be slower. On an H200
	// launches of 2 to 3000 us were slower by up to 5 % and 0.23 us.
	freshShare   = 1.15
	freshSeconds = 0.5e-6
	freshTrials  = 3 // before a slower launch counts as found
)

// check compares the timed outputs, times launches on new inputs and compares their outputs too.
func (t *timedJob) check(plan device.Plan) error {
	found := &device.TimedCheck{}
	t.series.Check = found
	spare, err := t.machine.newCopy(t.job, t.originals)
	defer spare.free(t.machine)
	if err != nil {
		return err
	}
	fresh, unload, err := t.machine.loadFresh(t.job)
	if err != nil {
		return err
	}
	defer unload()
	if err := t.compareCopies(spare, fresh); err != nil || !plan.Fresh {
		return err
	}
	if err := t.timeFresh(); err != nil {
		return err
	}
	return t.compareCopies(spare, fresh)
}

// compareCopies compares every copy with a launch of an untimed module on the same inputs.
func (t *timedJob) compareCopies(spare *bufferCopy, untimed function) error {
	used := min(len(t.copies), t.graph.launches)
	chosen := t.rotator.rotation(0).Shift(0, used) // unknown to the kernel
	for i, c := range t.copies {
		if c.last == (device.Rotation{}) {
			continue // a copy that no launch of the replay used, or several launches changed
		}
		if err := t.compareCopy(c, spare, untimed); err != nil {
			return err
		}
		if i != chosen {
			continue
		}
		outputs, err := device.Outputs(t.machine, c.buffers)
		if err != nil {
			return err
		}
		t.series.Check.Launches = append(t.series.Check.Launches, device.TimedLaunch{Rotation: c.last, Outputs: outputs})
	}
	return nil
}

func (t *timedJob) compareCopy(c, spare *bufferCopy, untimed function) error {
	m, r := t.machine, t.rotator
	count := r.count
	if err := r.set(c.last.Count); err != nil {
		return err
	}
	if err := m.Launch(r.rotate, &helperGrid, r.arguments(spare.all, int(c.last.Step))); err != nil {
		return err
	}
	if err := r.set(count); err != nil {
		return err
	}
	if err := device.Clear(m, spare.buffers); err != nil {
		return err
	}
	if err := m.Launch(untimed, &t.job, spare.args); err != nil {
		return err
	}
	differences, err := r.differences(c.buffers, spare.buffers)
	if err != nil {
		return err
	}
	t.series.Check.Outputs++
	found := device.InspectTimed(t.job.Unordered, c.buffers, differences)
	guards, err := device.InspectGuards(m, c.buffers)
	t.series.Check.Findings = append(t.series.Check.Findings, append(found, guards...)...)
	return err
}

// differences counts the bytes in which buffers of two copies differ.
func (r *rotator) differences(a, b []*device.Buffer) ([]device.Differences, error) {
	var table, result []byte
	for i := range a {
		for _, v := range []uint64{uint64(a[i].Start()), uint64(b[i].Start()), uint64(a[i].Size())} {
			table = binary.LittleEndian.AppendUint64(table, v)
		}
		result = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(result, 0), math.MaxUint64)
	}
	m := r.machine
	memory, err := m.Alloc(max(len(table)+len(result), 1))
	if err != nil {
		return nil, err
	}
	defer m.Free(memory)
	results := memory + device.Address(len(table))
	if err := m.Write(memory, append(table, result...)); err != nil {
		return nil, err
	}
	if err := m.Launch(r.compare, &helperGrid, [][]byte{address(memory), word(len(a)), address(results)}); err != nil {
		return nil, err
	}
	if err := m.Read(result, results); err != nil {
		return nil, err
	}
	all := make([]device.Differences, len(a))
	for i := range all {
		all[i].Bytes = int(binary.LittleEndian.Uint64(result[16*i:]))
		all[i].First = int(binary.LittleEndian.Uint64(result[16*i+8:]))
	}
	return all, nil
}

// timeFresh times launches of which each has new inputs and poisoned outputs. A slower time counts
// after freshTrials measurements, so that a disturbance of the GPU accuses no kernel, and if launches
// on inputs that are written again unchanged are faster.
func (t *timedJob) timeFresh() error {
	fresh, err := t.captureFresh(true)
	if err != nil {
		return err
	}
	defer fresh.drop()
	usual := median(append([]float64{}, t.series.Seconds...))
	if ok, err := t.isAsFast(fresh, usual, freshTrials); ok || err != nil {
		return err
	}
	same, err := t.captureFresh(false)
	if err != nil {
		return err
	}
	defer same.drop()
	rewritten, err := t.freshSeconds(same)
	if err != nil {
		return err
	}
	if ok, err := t.isAsFast(fresh, max(usual, rewritten), 1); ok || err != nil {
		return err
	}
	found := t.series.Check
	found.Findings = append(found.Findings, finding.New(finding.RemembersResults, fmt.Sprintf(
		"a launch takes %.2f us on the inputs of the launch before and %.2f us on new ones: it does not do all its work each time",
		1e6*usual, 1e6*found.FreshSeconds)))
	return nil
}

// isAsFast reports whether a launch on new inputs is as fast as a usual one in one of several trials.
func (t *timedJob) isAsFast(fresh freshGraphs, usual float64, trials int) (bool, error) {
	found := t.series.Check
	for range trials {
		seconds, err := t.freshSeconds(fresh)
		if err != nil {
			return false, err
		}
		if found.FreshSeconds == 0 || seconds < found.FreshSeconds {
			found.FreshSeconds = seconds
		}
		if found.FreshSeconds <= freshShare*usual+freshSeconds {
			return true, nil
		}
	}
	return false, nil
}

// freshGraphs have a write of the inputs before every launch: of the kernel, and, as the control, of
// an empty kernel.
type freshGraphs struct{ kernel, control *graph }

func (g freshGraphs) drop() {
	g.kernel.drop()
	g.control.drop()
}

// captureFresh captures graphs in which the inputs change before every launch and the outputs are
// poisoned, or in which the inputs are written again unchanged.
func (t *timedJob) captureFresh(changes bool) (g freshGraphs, err error) {
	empty, err := t.machine.Load([]byte(emptyPTX), emptyEntry)
	if err != nil {
		return g, fmt.Errorf("timed launches cannot be checked: %w", err)
	}
	if g.kernel, err = t.captureWrites(t.job.Entry, changes, t.launch); err != nil {
		return g, err
	}
	g.control, err = t.captureWrites("writes for "+t.job.Entry, changes, func(c *clock) error { return t.machine.launchEmpty(empty.(function), c) })
	if err != nil {
		g.kernel.drop()
	}
	return g, err
}

func (t *timedJob) captureWrites(name string, changes bool, launch func(*clock) error) (*graph, error) {
	t.next = 0
	step := 0
	write := func() error {
		step++
		c := t.copies[(step-1)%len(t.copies)]
		if !changes {
			return t.rotator.captureRewrite(c)
		}
		if step == 1 {
			if err := t.rotator.captureAdvance(); err != nil {
				return err
			}
		}
		return t.rotator.captureRotate(c, step-1)
	}
	steps := []func() error{write}
	if t.flush != nil {
		steps = append(steps, func() error { return t.flush.write(t.machine.clock) })
	}
	steps = append(steps, func() error { return launch(t.machine.clock) })
	g, err := t.machine.capture(name, t.graph.launches, steps...)
	if err == nil && changes {
		g.rotator = t.rotator // a replay advances it
	}
	return g, err
}

// freshSeconds is the time of a launch after a write of its inputs: the time with the write, less that
// of the write with an empty kernel, plus that of the empty kernel.
func (t *timedJob) freshSeconds(g freshGraphs) (float64, error) {
	var with, without []float64
	for range freshReplays {
		for _, part := range []struct {
			graph *graph
			into  *[]float64
		}{{g.control, &without}, {g.kernel, &with}} {
			seconds, err := t.replay(part.graph, nil, nil)
			if err != nil {
				return 0, err
			}
			*part.into = append(*part.into, seconds)
		}
	}
	n := g.kernel.launches
	for i, c := range t.copies {
		if c.last = (device.Rotation{}); i < n {
			c.last = t.rotator.rotation(n - 1 - (n-1-i)%len(t.copies))
		}
	}
	return median(with) - median(without) + t.empty, nil
}
