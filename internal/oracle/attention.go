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

	headsPerCore = 8 // from which on a task is a whole head
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
	plain := func(values []float64) source {
		return func(into []float64, head int) { copy(into, values[head*len(into):]) }
	}
	a, err := attention(ctx, plain(q), plain(k), plain(v), shape, nil)
	return a.out, err
}

// answer is what attention gives of the rows that were asked for: the output, [row, dim], and beside it the logarithm of the sum of exp(score) of each,
// which is minus infinity for a row that sees no key.
type answer struct {
	out, lse []float64
}

// source writes the values of one head into a slice of that length, so that inputs of any form need not be widened to
// float64 all at once.
type source func(into []float64, head int)

func attention(ctx context.Context, q, k, v source, shape tensor.Shape, rows Rows) (answer, error) {
	count := rows.Len(shape)
	a := answer{make([]float64, count*shape.HeadDim), make([]float64, count)}
	// Whoever takes rows of a head packs its keys and values first. With heads enough for everybody, nobody packs what another has packed.
	cores := runtime.GOMAXPROCS(0)
	most := blockRows
	if shape.HeadCount() >= headsPerCore*cores {
		most = shape.SeqQ
	}
	tasks := rows.Spans(shape, most)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(len(tasks), cores) {
		workers.Go(func() {
			w := newWorker(shape, rows)
			for task := int(next.Add(1)) - 1; task < len(tasks) && ctx.Err() == nil; task = int(next.Add(1)) - 1 {
				t := tasks[task]
				w.load(t.Head, q, k, v)
				for ; t.From < t.To; t.From += blockRows {
					w.attend(ctx, t.From, min(blockRows, t.To-t.From), a)
				}
			}
		})
	}
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return answer{}, fmt.Errorf("attention over %v: %w", shape, err)
	}
	return a, nil
}

// worker holds one head, packed for tile, and the state of one block of query rows.
type worker struct {
	shape  tensor.Shape
	rows   Rows
	head   int // which one is loaded; -1 before the first
	kvHead int // whose keys and values are; -1 before the first

	queries []float64 // [SeqQ][HeadDim]
	keys    []float64 // [SeqK / tileCols, rounded up][HeadDim][tileCols]: panels of tileCols keys
	values  []float64 // [HeadDim / tileCols, rounded up][SeqK][tileCols]: panels of tileCols dims
	plain   []float64 // [SeqK][HeadDim]: a head before it is packed

	block   []float64      // [blockRows][HeadDim]: the queries that are looked at
	seen    [blockRows]int // keys that each of them sees
	scores  []float64      // [blockRows][blockKeys]: scores, then their exponentials
	sums    []float64      // [blockRows][width]: those times the values so far
	width   int            // HeadDim, rounded up to tileCols
	largest [blockRows]float64
	total   [blockRows]float64 // sum of the exponentials so far
}

func newWorker(shape tensor.Shape, rows Rows) *worker {
	width := ceilDiv(shape.HeadDim, tileCols) * tileCols
	return &worker{
		shape:   shape,
		rows:    rows,
		head:    -1,
		kvHead:  -1,
		queries: make([]float64, shape.SeqQ*shape.HeadDim),
		block:   make([]float64, blockRows*shape.HeadDim),
		keys:    make([]float64, ceilDiv(shape.SeqK, tileCols)*tileCols*shape.HeadDim),
		values:  make([]float64, shape.SeqK*width),
		plain:   make([]float64, shape.SeqK*shape.HeadDim),
		scores:  make([]float64, blockRows*blockKeys),
		sums:    make([]float64, blockRows*width),
		width:   width,
	}
}

// load packs a head, unless it is there already.
func (w *worker) load(head int, q, k, v source) {
	if head != w.head {
		w.head = head
		q(w.queries, head)
	}
	if kvHead := head / w.shape.Group(); kvHead != w.kvHead {
		w.kvHead = kvHead
		w.pack(kvHead, k, v)
	}
}

// pack makes panels of the keys and values of a K/V head. What pads them stays zero.
func (w *worker) pack(kvHead int, k, v source) {
	dims := w.shape.HeadDim
	k(w.plain, kvHead)
	for key := range w.shape.SeqK {
		panel := w.keys[key/tileCols*tileCols*dims+key%tileCols:]
		for dim, x := range w.plain[key*dims:][:dims] {
			panel[dim*tileCols] = x
		}
	}
	v(w.plain, kvHead)
	for key := range w.shape.SeqK {
		row := w.plain[key*dims:][:dims]
		for dim := 0; dim < dims; dim += tileCols {
			copy(w.values[dim*w.shape.SeqK+key*tileCols:][:tileCols], row[dim:])
		}
	}
}

// attend computes the output of so many rows of the head from a place on, keys block by keys block.
func (w *worker) attend(ctx context.Context, first, rows int, a answer) {
	clear(w.sums)
	clear(w.total[:])
	for row := range w.largest {
		w.largest[row] = math.Inf(-1)
	}
	dims := w.shape.HeadDim
	for row := range rows {
		number := w.rows.At(first+row) - w.head*w.shape.SeqQ
		copy(w.block[row*dims:][:dims], w.queries[number*dims:])
		w.seen[row] = w.shape.Visible(number)
	}
	visible := w.seen[rows-1] // by the last row, which sees most
	for start := 0; start < visible; start += blockKeys {
		if ctx.Err() != nil {
			return
		}
		keys := min(blockKeys, visible-start)
		w.score(rows, start, keys)
		for row := range rows {
			w.exponentiate(row, min(keys, w.seen[row]-start))
		}
		w.accumulate(rows, start, keys)
	}
	for row := range rows {
		at := first + row
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

// score writes q·k of the block into scores.
func (w *worker) score(rows, start, keys int) {
	clear(w.scores)
	dims := w.shape.HeadDim
	for key := 0; key < keys; key += tileCols {
		panel := w.keys[(start+key)*dims:]
		for row := 0; row < rows; row += tileRows {
			tile(w.scores[row*blockKeys+key:], blockKeys, w.block[row*dims:], dims, panel, dims)
		}
	}
}

// exponentiate turns the scores of one row into exp((score - largest)/√HeadDim), where the row sees that many keys of
// the block, and zero behind them. If the largest score has grown, what was summed so far is scaled down to it.
func (w *worker) exponentiate(row, visible int) {
	scores := w.scores[row*blockKeys:][:blockKeys]
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
func (w *worker) accumulate(rows, start, keys int) {
	for dim := 0; dim < w.width; dim += tileCols {
		panel := w.values[dim*w.shape.SeqK+start*tileCols:]
		for row := 0; row < rows; row += tileRows {
			tile(w.sums[row*w.width+dim:], w.width, w.scores[row*blockKeys:], blockKeys, panel, keys)
		}
	}
}

func ceilDiv(n, by int) int { return (n + by - 1) / by }
