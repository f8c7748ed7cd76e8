package sdpa

import (
	"context"
	"runtime"
	"sync/atomic"

	"attune/internal/crash"
)

const (
	// scoreElements are the scores of a block, 12 KB, which stay in the L1 cache. They determine its
	// number of keys: 128 with 24 lanes, 64 with 48. K and V of a block, as float32, stay in the L2
	// cache while all panels of a task use them.
	scoreElements = 3072
	// maxPanels are the panels of a task. A task converts K and V to float32 for itself, which costs as
	// much as some rows, so it has many rows as long as every core gets several tasks.
	maxPanels    = 8
	tasksPerCore = 4
	// minSplitKeys are the least keys of a split, for which its copy of the queries is no matter.
	minSplitKeys = 512
)

// division is how a call is divided into tasks for a number of cores.
type division struct {
	*vectorSet
	panels   int // of a task
	perHead  int // tasks of a K/V head
	splits   int // of the keys of a task; more than 1 only where there are few tasks
	headRows int // query rows that share a K/V head
	heads    int // K/V heads over all batches
}

func newDivision(c *call, cores int) division {
	d := division{headRows: c.group() * c.queries, heads: c.batch * c.kvHeads, splits: 1}
	d.vectorSet = vectors.forRows(d.headRows)
	panels := ceilDiv(d.headRows, d.lanes)
	d.panels = min(max(ceilDiv(d.heads*panels, tasksPerCore*cores), 1), maxPanels)
	d.perHead = ceilDiv(panels, d.panels)
	if tasks := d.heads * d.perHead; tasks < cores {
		d.splits = max(min(ceilDiv(2*cores, tasks), c.keys/minSplitKeys), 1)
	}
	return d
}

// task is rows of a K/V head, counted over all batches, and a part of the keys.
type task struct {
	kvHead, first, rows int
	from, to            int      // keys
	split               int      // the index of the part
	partial             *partial // nil if there is one part
}

// task returns the i-th task. The last rows of a causal head see the most keys. They start first, so
// that no core is left with a long task at the end.
func (d *division) task(i, keys int, partials []partial) task {
	split, i := i%d.splits, i/d.splits
	first := (d.perHead - 1 - i%d.perHead) * d.panels * d.lanes
	t := task{
		kvHead: i / d.perHead, first: first, rows: min(d.panels*d.lanes, d.headRows-first),
		from: keys * split / d.splits, to: keys * (split + 1) / d.splits, split: split,
	}
	if d.splits > 1 {
		t.partial = &partials[i]
	}
	return t
}

// attendCPU computes a call on all cores. Its tensors are in host memory and checked.
func attendCPU(ctx context.Context, c *call, q, k, v, o *Tensor) error {
	cores := runtime.GOMAXPROCS(0)
	d := newDivision(c, cores)
	var partials []partial
	if d.splits > 1 {
		partials = make([]partial, d.heads*d.perHead)
		for i := range partials {
			partials[i].init(&d)
		}
	}
	tasks := d.heads * d.perHead * d.splits
	var next atomic.Int64
	var workers crash.Group
	for range min(tasks, cores) {
		workers.Go(func() {
			w := newWorker(c, d.vectorSet, q, k, v, o)
			defer w.release()
			for i := int(next.Add(1)) - 1; i < tasks && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				w.attend(ctx, d.task(i, c.keys, partials))
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

func ceilDiv(n, by int) int { return (n + by - 1) / by }
