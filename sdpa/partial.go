package sdpa

import (
	"slices"
	"sync/atomic"
)

// partial collects the softmax of rows whose keys are split over several tasks.
type partial struct {
	lanes int
	left  atomic.Int32 // tasks that are not done
	parts [][]part     // [split][panel]
}

type part struct {
	state
	sums []float32
}

func (c *partial) init(d *division) {
	c.lanes = d.lanes
	c.left.Store(int32(d.splits))
	c.parts = make([][]part, d.splits)
}

// merge adds the panels of one task. The last task receives the merged panels, in the order of the
// splits, so that the bits do not depend on which task is last.
func (c *partial) merge(panels []panel, split int) (last bool) {
	for i := range panels {
		c.parts[split] = append(c.parts[split], part{panels[i].state, slices.Clone(panels[i].sums)})
	}
	if c.left.Add(-1) > 0 {
		return false
	}
	for i := range panels {
		p := &panels[i]
		p.state = c.parts[0][i].state
		copy(p.sums, c.parts[0][i].sums)
		for _, other := range c.parts[1:] {
			p.add(&other[i], c.lanes)
		}
	}
	return true
}

// add adds the softmax of other keys of the same rows.
func (p *panel) add(other *part, lanes int) {
	var mine, theirs [maxLanes]float32 // rescale factors
	for lane := range lanes {
		rowMax := max(p.rowMax[lane], other.rowMax[lane])
		mine[lane], theirs[lane] = exp2Go(p.rowMax[lane]-rowMax), exp2Go(other.rowMax[lane]-rowMax)
		p.rowMax[lane] = rowMax
		p.rowSum[lane] = p.rowSum[lane]*mine[lane] + other.rowSum[lane]*theirs[lane]
	}
	for i := range p.sums {
		p.sums[i] = p.sums[i]*mine[i%lanes] + other.sums[i]*theirs[i%lanes]
	}
}
