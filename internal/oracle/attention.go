package oracle

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"attune/internal/crash"
	"attune/internal/tensor"
)

const (
	blockRows = 32  // query rows of a score block; a multiple of tileRows
	blockKeys = 128 // keys of a score block, which fits the L1 cache; a multiple of tileCols

	// A task is a range of query rows of one head. It widens and packs the keys and values it
	// needs, which costs as much as some tens of query rows. A task therefore has many rows, as
	// long as every core gets several tasks.
	tasksPerCore = 4
	maxTaskRows  = 8 * blockRows // the accumulators of which fit the L2 cache
	minTaskRows  = 4 * blockRows
)

// Attention returns softmax(q·kᵀ/√HeadDim)·v for each head, for finite inputs. All tensors are
// [batch, head, row, dim]; k and v have shape.KVHeadCount heads. A query row that sees no key gives
// zeros. It stops with an error once ctx is done.
func Attention(ctx context.Context, q, k, v []float64, shape tensor.Shape) ([]float64, error) {
	for _, input := range []struct {
		name   string
		values []float64
		rows   int // over all heads
	}{{"q", q, shape.Rows()}, {"k", k, shape.KVHeadCount() * shape.SeqK}, {"v", v, shape.KVHeadCount() * shape.SeqK}} {
		if want := input.rows * shape.HeadDim; len(input.values) != want {
			return nil, fmt.Errorf("attention over %v: %s has %d elements, want %d", shape, input.name, len(input.values), want)
		}
	}
	result, err := attention(ctx, floatRows(q, shape.SeqQ, shape), floatRows(k, shape.SeqK, shape), floatRows(v, shape.SeqK, shape), shape, nil)
	return result.out, err
}

// floatRows is the source of a tensor of floats with a given number of rows per head.
func floatRows[T float32 | float64](values []T, rows int, shape tensor.Shape) source {
	return func(into []float64, head, first int) {
		for i, v := range values[(head*rows+first)*shape.HeadDim:][:len(into)] {
			into[i] = float64(v)
		}
	}
}

// result is the output of attention for the requested rows, [row, dim], and the natural logarithm
// of each row's sum of exp(score), which is -Inf for a row that sees no key.
type result struct {
	out, lse []float64
}

// source fills a slice with rows of one head, beginning at row first. It widens them to float64, so
// that a whole tensor is never widened at once.
type source func(into []float64, head, first int)

func attention(ctx context.Context, q, k, v source, shape tensor.Shape, rows Rows) (result, error) {
	count := rows.Len(shape)
	r := result{make([]float64, count*shape.HeadDim), make([]float64, count)}
	taskRows := ceilDiv(count, tasksPerCore*runtime.GOMAXPROCS(0)*blockRows) * blockRows
	taskRows = min(max(taskRows, minTaskRows), maxTaskRows)
	tasks := rows.Spans(shape, taskRows)
	onAllCores(len(tasks), func() func(int) {
		w := newWorker(shape, rows, taskRows, q, k, v)
		return func(task int) {
			if ctx.Err() == nil {
				w.attend(ctx, tasks[task], r)
			}
		}
	})
	if err := context.Cause(ctx); err != nil {
		return result{}, fmt.Errorf("attention over %v: %w", shape, err)
	}
	return r, nil
}

// onAllCores runs tasks 0 to tasks-1 on all cores. Each core calls worker once, for a function with
// working memory of its own that runs a task.
func onAllCores(tasks int, worker func() func(task int)) {
	var next atomic.Int64
	var workers crash.Group
	for range min(tasks, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			do := worker()
			for task := int(next.Add(1)) - 1; task < tasks; task = int(next.Add(1)) - 1 {
				do(task)
			}
		})
	}
	workers.Wait()
}

// worker holds one block of keys and values, packed for tile, and the online-softmax state of the
// query rows of a task.
type worker struct {
	shape   tensor.Shape
	rows    Rows
	q, k, v source

	keys     []float64 // [blockKeys/tileCols][HeadDim][tileCols]: panels of tileCols keys
	values   []float64 // [width/tileCols][blockKeys][tileCols]: panels of tileCols dims
	rowMajor []float64 // [blockKeys][HeadDim]: keys or values before packing
	width    int       // HeadDim rounded up to a multiple of tileCols
	scores   []float64 // [blockRows][blockKeys]: scores, then their exponentials

	// State per row of the task; allocated for the rows of the largest one.
	queries []float64 // [row][HeadDim]
	sums    []float64 // [row][width]: accumulated exponentials times values
	visible []int     // number of keys that the row sees
	rowMax  []float64 // largest score so far, before division by √HeadDim
	rowSum  []float64 // sum of exponentials so far
}

func newWorker(shape tensor.Shape, rows Rows, taskRows int, q, k, v source) *worker {
	width := ceilDiv(shape.HeadDim, tileCols) * tileCols
	return &worker{
		shape: shape, rows: rows, q: q, k: k, v: v,
		keys:     make([]float64, blockKeys*shape.HeadDim),
		values:   make([]float64, blockKeys*width),
		rowMajor: make([]float64, blockKeys*shape.HeadDim),
		width:    width,
		scores:   make([]float64, blockRows*blockKeys),
		queries:  make([]float64, taskRows*shape.HeadDim),
		sums:     make([]float64, taskRows*width),
		visible:  make([]int, taskRows),
		rowMax:   make([]float64, taskRows),
		rowSum:   make([]float64, taskRows),
	}
}

// attend computes the output of a task, one block of keys after the other.
func (w *worker) attend(ctx context.Context, t Span, r result) {
	rows := t.To - t.From
	w.load(t, rows)
	visible := w.visible[rows-1] // the last row sees the most keys
	for start := 0; start < visible; start += blockKeys {
		if ctx.Err() != nil {
			return
		}
		w.pack(t.Head/w.shape.Group(), start, min(blockKeys, visible-start))
		for first := 0; first < rows; first += blockRows {
			last := min(first+blockRows, rows) - 1
			if keys := min(blockKeys, w.visible[last]-start); keys > 0 {
				w.attendBlock(first, last+1-first, start, keys)
			}
		}
	}
	w.store(t.From, rows, r)
}

// load reads the queries of a task and initialises its softmax state.
func (w *worker) load(t Span, rows int) {
	clear(w.sums)
	clear(w.rowSum)
	dims := w.shape.HeadDim
	for row := range rows {
		index := w.rows.At(t.From+row) - t.Head*w.shape.SeqQ // within the head
		w.q(w.queries[row*dims:][:dims], t.Head, index)
		w.visible[row] = w.shape.Visible(index)
		w.rowMax[row] = math.Inf(-1)
	}
}

// pack packs a block of keys and values of a K/V head into panels. The padding of the dims stays
// zero. Panel entries behind the last key may be left from an earlier block; their scores are never
// read.
func (w *worker) pack(kvHead, start, keys int) {
	dims := w.shape.HeadDim
	rowMajor := w.rowMajor[:keys*dims]
	w.k(rowMajor, kvHead, start)
	for key := range keys {
		panel := w.keys[key/tileCols*tileCols*dims+key%tileCols:]
		for dim, x := range rowMajor[key*dims:][:dims] {
			panel[dim*tileCols] = x
		}
	}
	w.v(rowMajor, kvHead, start)
	for key := range keys {
		row := rowMajor[key*dims:][:dims]
		for dim := 0; dim < dims; dim += tileCols {
			copy(w.values[dim*blockKeys+key*tileCols:][:tileCols], row[dim:])
		}
	}
}

// attendBlock adds a block of keys to the state of a block of rows of the task.
func (w *worker) attendBlock(first, rows, start, keys int) {
	w.score(first, rows, keys)
	for row := range rows {
		w.exponentiate(first, row, min(keys, w.visible[first+row]-start))
	}
	w.accumulate(first, rows, keys)
}

// store normalises the rows of a task and writes them to the result, beginning at position first.
func (w *worker) store(first, rows int, r result) {
	dims := w.shape.HeadDim
	for row := range rows {
		at := first + row
		r.lse[at] = w.rowMax[row]/math.Sqrt(float64(dims)) + math.Log(w.rowSum[row])
		if w.rowSum[row] == 0 {
			continue // the row sees no key
		}
		into := r.out[at*dims:][:dims]
		for dim := range into {
			into[dim] = w.sums[row*w.width+dim] / w.rowSum[row]
		}
	}
}

// score computes q·k for a block of rows and keys.
func (w *worker) score(first, rows, keys int) {
	clear(w.scores)
	dims := w.shape.HeadDim
	for key := 0; key < keys; key += tileCols {
		panel := w.keys[key*dims:]
		for row := 0; row < rows; row += tileRows {
			tile(w.scores[row*blockKeys+key:], blockKeys, w.queries[(first+row)*dims:], dims, panel, dims)
		}
	}
}

// exponentiate replaces the scores of one row by exp((score - rowMax)/√HeadDim) for the visible
// keys of the block, and by zero for the others. If the row max grows, it rescales the sums so far.
func (w *worker) exponentiate(first, row, visible int) {
	scores := w.scores[row*blockKeys:][:blockKeys]
	row += first
	if visible <= 0 {
		clear(scores)
		return
	}
	clear(scores[visible:])
	scores = scores[:visible]
	scale := 1 / math.Sqrt(float64(w.shape.HeadDim))

	rowMax := w.rowMax[row]
	for _, s := range scores {
		if s > rowMax {
			rowMax = s
		}
	}
	rowSum := w.rowSum[row]
	if rowMax > w.rowMax[row] {
		rescale := expNonPositive((w.rowMax[row] - rowMax) * scale)
		rowSum *= rescale
		sums := w.sums[row*w.width:][:w.width]
		for dim := range sums {
			sums[dim] *= rescale
		}
	}
	for i, s := range scores {
		e := expNonPositive((s - rowMax) * scale)
		scores[i] = e
		rowSum += e
	}
	w.rowMax[row], w.rowSum[row] = rowMax, rowSum
}

// accumulate adds the exponentials of the block times its values to the sums.
func (w *worker) accumulate(first, rows, keys int) {
	for dim := 0; dim < w.width; dim += tileCols {
		panel := w.values[dim*blockKeys:]
		for row := 0; row < rows; row += tileRows {
			tile(w.sums[(first+row)*w.width+dim:], w.width, w.scores[row*blockKeys:], blockKeys, panel, keys)
		}
	}
}

func ceilDiv(n, by int) int { return (n + by - 1) / by }
