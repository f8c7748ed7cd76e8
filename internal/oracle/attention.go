package oracle

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"attune/internal/tensor"
)

const (
	blockRows = 32  // query rows looked at together; a multiple of tileRows
	blockKeys = 128 // keys looked at before moving on, so that scores stay in the first cache; a multiple of tileCols

	// A task is query rows of one head. Its keys and values are widened and packed for it alone, block after block, which costs as
	// much as some tens of rows: it has many of them where there are enough for everybody.
	tasksPerCore = 4
	mostOfTask   = 8 * blockRows // whose sums stay in the second cache
	leastOfTask  = 4 * blockRows
)

// Attention is softmax(q·kᵀ/√HeadDim)·v of each head, for finite inputs. All tensors are [batch, head, row, dim], k and v
// with the heads that the shape says they have. A query row that sees no key gives zeros. Once ctx is done it stops and
// says so.
func Attention(ctx context.Context, q, k, v []float64, shape tensor.Shape) ([]float64, error) {
	for _, input := range []struct {
		name   string
		values []float64
		rows   int // of all heads
	}{{"q", q, shape.Rows()}, {"k", k, shape.KVHeadCount() * shape.SeqK}, {"v", v, shape.KVHeadCount() * shape.SeqK}} {
		if want := input.rows * shape.HeadDim; len(input.values) != want {
			return nil, fmt.Errorf("attention over %v: %s has %d elements, want %d", shape, input.name, len(input.values), want)
		}
	}
	a, err := attention(ctx, plainRows(q, shape.SeqQ, shape), plainRows(k, shape.SeqK, shape), plainRows(v, shape.SeqK, shape), shape, nil)
	return a.out, err
}

// plainRows gives rows of a tensor that has so many in each head.
func plainRows[T float32 | float64](values []T, rows int, shape tensor.Shape) source {
	return func(into []float64, head, first int) {
		for i, v := range values[(head*rows+first)*shape.HeadDim:][:len(into)] {
			into[i] = float64(v)
		}
	}
}

// answer is what attention gives of the rows that were asked for: the output, [row, dim], and beside it the logarithm of the sum of exp(score) of each,
// which is minus infinity for a row that sees no key.
type answer struct {
	out, lse []float64
}

// source writes rows of one head into a slice, from one of them on and as many as it has room for, so that inputs of any form need not be widened to
// float64 all at once.
type source func(into []float64, head, first int)

func attention(ctx context.Context, q, k, v source, shape tensor.Shape, rows Rows) (answer, error) {
	count := rows.Len(shape)
	a := answer{make([]float64, count*shape.HeadDim), make([]float64, count)}
	share := ceilDiv(count, tasksPerCore*runtime.GOMAXPROCS(0)*blockRows) * blockRows
	tasks := rows.Spans(shape, min(max(share, leastOfTask), mostOfTask))
	onAllCores(len(tasks), func() func(int) {
		w := newWorker(shape, rows, q, k, v)
		return func(task int) {
			if ctx.Err() == nil {
				w.attend(ctx, tasks[task], a)
			}
		}
	})
	if err := context.Cause(ctx); err != nil {
		return answer{}, fmt.Errorf("attention over %v: %w", shape, err)
	}
	return a, nil
}

// onAllCores does tasks by their numbers. Each of those who work at the same time has a function of its own for it, with what memory it needs.
func onAllCores(tasks int, worker func() func(task int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
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

// worker holds one block of keys and values, packed for tile, and the state of the query rows of a task.
type worker struct {
	shape   tensor.Shape
	rows    Rows
	q, k, v source

	keys   []float64 // [blockKeys / tileCols][HeadDim][tileCols]: panels of tileCols keys
	values []float64 // [HeadDim / tileCols, rounded up][blockKeys][tileCols]: panels of tileCols dims
	plain  []float64 // [blockKeys][HeadDim]: keys or values before they are packed
	width  int       // HeadDim, rounded up to tileCols
	scores []float64 // [blockRows][blockKeys]: scores of a block of rows, then their exponentials

	// Of each row of the task; there may be more of them than there are rows.
	queries []float64 // [row][HeadDim]
	sums    []float64 // [row][width]: exponentials times the values so far
	seen    []int     // keys that the row sees
	largest []float64 // score so far
	total   []float64 // sum of the exponentials so far
}

func newWorker(shape tensor.Shape, rows Rows, q, k, v source) *worker {
	width := ceilDiv(shape.HeadDim, tileCols) * tileCols
	return &worker{
		shape: shape, rows: rows, q: q, k: k, v: v,
		keys:    make([]float64, blockKeys*shape.HeadDim),
		values:  make([]float64, blockKeys*width),
		plain:   make([]float64, blockKeys*shape.HeadDim),
		width:   width,
		scores:  make([]float64, blockRows*blockKeys),
		queries: make([]float64, mostOfTask*shape.HeadDim),
		sums:    make([]float64, mostOfTask*width),
		seen:    make([]int, mostOfTask),
		largest: make([]float64, mostOfTask),
		total:   make([]float64, mostOfTask),
	}
}

// attend computes the output of a task, keys block by keys block.
func (w *worker) attend(ctx context.Context, t Span, a answer) {
	rows := t.To - t.From
	w.begin(t, rows)
	visible := w.seen[rows-1] // by the last row, which sees most
	for start := 0; start < visible; start += blockKeys {
		if ctx.Err() != nil {
			return
		}
		w.pack(t.Head/w.shape.Group(), start, min(blockKeys, visible-start))
		for first := 0; first < rows; first += blockRows {
			last := min(first+blockRows, rows) - 1
			if keys := min(blockKeys, w.seen[last]-start); keys > 0 {
				w.attendBlock(first, last+1-first, start, keys)
			}
		}
	}
	w.end(t.From, rows, a)
}

// begin takes the queries of a task.
func (w *worker) begin(t Span, rows int) {
	clear(w.sums)
	clear(w.total)
	dims := w.shape.HeadDim
	for row := range rows {
		number := w.rows.At(t.From+row) - t.Head*w.shape.SeqQ
		w.q(w.queries[row*dims:][:dims], t.Head, number)
		w.seen[row] = w.shape.Visible(number)
		w.largest[row] = math.Inf(-1)
	}
}

// pack makes panels of so many keys and values of a K/V head. What pads the dims stays zero. Keys behind the last may be those of a
// block before: their scores are not looked at.
func (w *worker) pack(kvHead, start, keys int) {
	dims := w.shape.HeadDim
	plain := w.plain[:keys*dims]
	w.k(plain, kvHead, start)
	for key := range keys {
		panel := w.keys[key/tileCols*tileCols*dims+key%tileCols:]
		for dim, x := range plain[key*dims:][:dims] {
			panel[dim*tileCols] = x
		}
	}
	w.v(plain, kvHead, start)
	for key := range keys {
		row := plain[key*dims:][:dims]
		for dim := 0; dim < dims; dim += tileCols {
			copy(w.values[dim*blockKeys+key*tileCols:][:tileCols], row[dim:])
		}
	}
}

// attendBlock looks at so many keys for a block of rows of the task.
func (w *worker) attendBlock(first, rows, start, keys int) {
	w.score(first, rows, keys)
	for row := range rows {
		w.exponentiate(first, row, min(keys, w.seen[first+row]-start))
	}
	w.accumulate(first, rows, keys)
}

// end writes the answers of a task whose first row stands at a place.
func (w *worker) end(place, rows int, a answer) {
	dims := w.shape.HeadDim
	for row := range rows {
		at := place + row
		a.lse[at] = w.largest[row]/math.Sqrt(float64(dims)) + math.Log(w.total[row])
		if w.total[row] == 0 {
			continue // saw no key
		}
		into := a.out[at*dims:][:dims]
		for dim := range into {
			into[dim] = w.sums[row*w.width+dim] / w.total[row]
		}
	}
}

// score writes q·k of a block of rows into scores.
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

// exponentiate turns the scores of one row of a block into exp((score - largest)/√HeadDim), where the row sees that many keys of
// the block, and zero behind them. If the largest score has grown, what was summed so far is scaled down to it.
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

	largest := w.largest[row]
	for _, s := range scores {
		if s > largest {
			largest = s
		}
	}
	total := w.total[row]
	if largest > w.largest[row] {
		shrink := expOfNegative((w.largest[row] - largest) * scale)
		total *= shrink
		sums := w.sums[row*w.width:][:w.width]
		for dim := range sums {
			sums[dim] *= shrink
		}
	}
	for i, s := range scores {
		e := expOfNegative((s - largest) * scale)
		scores[i] = e
		total += e
	}
	w.largest[row], w.total[row] = largest, total
}

// accumulate adds the exponentials of the block times its values to sums.
func (w *worker) accumulate(first, rows, keys int) {
	for dim := 0; dim < w.width; dim += tileCols {
		panel := w.values[dim*blockKeys:]
		for row := 0; row < rows; row += tileRows {
			tile(w.sums[(first+row)*w.width+dim:], w.width, w.scores[row*blockKeys:], blockKeys, panel, keys)
		}
	}
}

func ceilDiv(n, by int) int { return (n + by - 1) / by }
