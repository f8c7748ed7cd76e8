package sdpa

import (
	"context"
	"math"
	"sync"
)

// worker has the working memory of one core.
type worker struct {
	*call
	*vectorSet
	q, k, v, o *Tensor
	width      int // the head dim of v, rounded up to whole tiles
	stride     int // of the rows of values
	block      int // keys of a block
	*memory
	panels [maxPanels]panel
}

// memory is the part of a worker that is large.
type memory struct {
	floats []float32

	keyRows   []float32 // [block+tileRows][dim]
	valueRows []float32 // [block][stride]
	scores    []float32 // [block+tileRows][lanes]: scores, then their exponentials
	rows      []float32 // [lanes][dim] or [lanes][vDim]: rows of q or o
}

// memories keeps the memory of finished calls for later ones.
var memories = sync.Pool{New: func() any { return new(memory) }}

// panel is as many query rows as there are lanes, which share a K/V head, and their online softmax.
type panel struct {
	queries []float32 // [dim][lanes], times all factors of the scores
	sums    []float32 // [width][lanes]: sum of exponentials times values
	rows    int       // used lanes; the others compute something that nobody reads
	from    [maxLanes]int
	to      [maxLanes]int // keys that a row sees
	biases  [maxLanes]laneBias
	state

	first, last       int // keys that any row sees
	allFrom, allUntil int // keys that all rows see
}

// laneBias is what ALiBi and the mask of a tree need of a row.
type laneBias struct {
	slope      float32 // times log2(e)
	position   int     // the key of the query itself
	seen       uint64  // tokens of the tree
	firstToken int     // the key of bit 0
}

// line is a cache line in elements. No vector of an array that begins with a line spans two lines.
const line = 16

// spread is what the rows of values have beyond whole tiles. Without it, rows of 512 bytes would
// all fall into few sets of the L1 cache.
const spread = 16

func newWorker(c *call, set *vectorSet, q, k, v, o *Tensor) *worker {
	w := &worker{call: c, vectorSet: set, q: q, k: k, v: v, o: o, width: ceilDiv(c.vDim, tileRows) * tileRows}
	w.stride, w.block = w.width+spread, scoreElements/w.lanes
	w.memory = memories.Get().(*memory)
	sizes := []int{(w.block + tileRows) * c.dim, w.block * w.stride, (w.block + tileRows) * w.lanes, w.lanes * max(c.dim, c.vDim)}
	total := maxPanels*(c.dim+w.width)*w.lanes + (len(sizes)+2*maxPanels)*line
	for _, n := range sizes {
		total += n
	}
	if cap(w.floats) < total {
		w.floats = make([]float32, total)
	}
	rest := w.floats[:total]
	take := func(n int) []float32 {
		part := rest[:n:n]
		rest = rest[min(ceilDiv(n, line)*line, len(rest)):]
		return part
	}
	w.keyRows, w.valueRows, w.scores, w.rows = take(sizes[0]), take(sizes[1]), take(sizes[2]), take(sizes[3])
	for i := range w.panels {
		w.panels[i].queries, w.panels[i].sums = take(c.dim*w.lanes), take(w.width*w.lanes)
	}
	return w
}

func (w *worker) release() { memories.Put(w.memory) }

// attend computes a task. Row r of a K/V head belongs to query head r / queries of its group.
func (w *worker) attend(ctx context.Context, t task) {
	panels := w.panels[:ceilDiv(t.rows, w.lanes)]
	start, end := w.keys, 0
	for i := range panels {
		p := &panels[i]
		w.load(p, &t, i*w.lanes)
		start, end = min(start, p.first), max(end, p.last)
	}
	for ; start < end; start += w.block {
		if ctx.Err() != nil {
			return
		}
		n := min(w.block, end-start)
		w.loadBlock(t.kvHead, start, n)
		for i := range panels {
			p := &panels[i]
			if from, to := max(start, p.first), min(start+n, p.last); from < to {
				w.attendBlock(p, start, from, to)
			}
		}
	}
	if t.partial != nil && !t.partial.merge(panels, t.split) {
		return // another task of these rows is not done
	}
	for i := range panels {
		w.store(&panels[i], t.kvHead, t.first+i*w.lanes)
	}
}

// place finds a row of a K/V head: its batch, its query head over all batches, its query.
func (w *worker) place(kvHead, row int) (batch, head, query int) {
	return kvHead / w.kvHeads, kvHead*w.group() + row/w.queries, row % w.queries
}

// load transposes the queries of a panel and initialises its softmax. All factors of a score go
// into the queries: both descale factors, the scale, and log2(e), because exponentials are powers
// of two.
func (w *worker) load(p *panel, t *task, skip int) {
	clear(p.sums)
	kvHead, first, rows := t.kvHead, t.first+skip, min(w.lanes, t.rows-skip)
	p.rows, p.first, p.last, p.allFrom, p.allUntil = rows, w.keys, 0, 0, w.keys
	p.rescale = ones // for lanes that the vectors do not have
	size := w.dim * w.q.DType.Bytes()
	var factors [maxLanes]float32 // 0 for w.lanes without a row
	for lane := range rows {
		batch, head, query := w.place(kvHead, first+lane)
		factors[lane] = float32(float64(w.q.descale(head)) * float64(w.k.descale(kvHead)) * w.scale * math.Log2E)
		w.widen(w.rows[lane*w.dim:][:w.dim], w.q.Data[(head*w.queries+query)*size:][:size], w.q.DType)
		from, to := w.visible(batch, query)
		seesNone := from >= to // of all its keys
		from, to = max(from, t.from), min(to, t.to)
		p.from[lane], p.to[lane] = from, to
		p.allFrom, p.allUntil = max(p.allFrom, from), min(p.allUntil, to)
		if w.AlibiSlopes != nil || w.TreeMask != nil {
			p.biases[lane] = w.bias(batch, head, query)
		}
		if w.TreeMask != nil {
			p.allUntil = min(p.allUntil, p.biases[lane].firstToken)
		}
		if from < to {
			p.first, p.last = min(p.first, from), max(p.last, to)
		}
		p.rowMax[lane], p.rowSum[lane] = -math.MaxFloat32, 0
		if w.Sinks == nil || math.IsInf(float64(w.Sinks[head%w.heads]), -1) || t.split > 0 || seesNone {
			continue
		}
		p.rowMax[lane], p.rowSum[lane] = float32(float64(w.Sinks[head%w.heads])*math.Log2E), 1
	}
	clear(w.rows[rows*w.dim:])
	for lane := rows; lane < w.lanes; lane++ {
		p.rowMax[lane], p.rowSum[lane] = 0, 0
	}
	w.transpose(p.queries, w.lanes, w.rows, w.dim, w.lanes, w.dim)
	w.rescale(p.queries, &factors)
}

// bias is what ALiBi and the mask of a tree need of a row.
func (w *worker) bias(batch, head, query int) laneBias {
	queries, keys := w.lengthsOf(batch)
	b := laneBias{position: query + keys - queries, firstToken: keys - queries}
	if n := len(w.AlibiSlopes); n > 0 { // of a head in each sequence, or in all
		b.slope = float32(float64(w.AlibiSlopes[head%n]) * math.Log2E)
	}
	if w.TreeMask != nil {
		b.seen = w.TreeMask[batch*w.queries+query]
	}
	return b
}

// loadBlock converts a block of K and V of a head to float32, without their descale factors.
func (w *worker) loadBlock(kvHead, start, n int) {
	first, size, vSize := kvHead*w.keys+start, w.dim*w.k.DType.Bytes(), w.vDim*w.v.DType.Bytes()
	w.widen(w.keyRows[:n*w.dim], w.k.Data[first*size:][:n*size], w.k.DType)
	for i := range n {
		w.widen(w.valueRows[i*w.stride:][:w.vDim], w.v.Data[(first+i)*vSize:][:vSize], w.v.DType)
	}
}

// ones are the rescale factors of a block that does not raise any row max.
var ones = func() (f [maxLanes]float32) {
	for i := range f {
		f[i] = 1
	}
	return f
}()

// attendBlock adds the keys from a block that begins at start to the softmax of a panel. The last
// tile of scores may have rows behind the keys, which nothing reads.
func (w *worker) attendBlock(p *panel, start, from, to int) {
	n := to - from
	keys, values := w.keyRows[(from-start)*w.dim:], w.valueRows[(from-start)*w.stride:]
	w.product(w.scores, keys, w.dim, 1, tileRows*w.dim, p.queries, w.dim, ceilDiv(n, tileRows), false)
	if w.Softcap != 0 {
		w.capScores(p, n)
	}
	if w.AlibiSlopes != nil {
		w.addAlibi(p, from, to)
	}
	if p.allFrom > from || p.allUntil < to {
		w.mask(p, from, to)
	}
	w.softmax(w.scores, n, &p.state)
	if p.rescale != ones {
		w.rescale(p.sums, &p.rescale)
	}
	w.product(p.sums, values, 1, w.stride, tileRows, w.scores, n, w.width/tileRows, true)
}

// capScores applies the softcap to the scores of a panel and n keys, which are in units of log2.
func (w *worker) capScores(p *panel, n int) {
	limit := float32(min(w.Softcap*math.Log2E, math.MaxFloat32))
	inverse := 1 / limit
	for key := range n {
		row := w.scores[key*w.lanes:][:p.rows]
		for lane, x := range row {
			row[lane] = limit * tanhGo(x*inverse)
		}
	}
}

// addAlibi subtracts from the scores of a panel, which are in units of log2, a slope times the distance
// of the key from the query.
func (w *worker) addAlibi(p *panel, from, to int) {
	for lane := range p.rows {
		bias := &p.biases[lane]
		for key := from; key < to; key++ {
			distance := max(bias.position-key, key-bias.position)
			w.scores[(key-from)*w.lanes+lane] -= bias.slope * float32(distance)
		}
	}
}

// mask sets the scores of keys that a row does not see to -Inf.
func (w *worker) mask(p *panel, from, to int) {
	hide := float32(math.Inf(-1))
	for lane := range p.rows {
		for key := from; key < min(p.from[lane], to); key++ {
			w.scores[(key-from)*w.lanes+lane] = hide
		}
		for key := max(p.to[lane], from); key < to; key++ {
			w.scores[(key-from)*w.lanes+lane] = hide
		}
		if w.TreeMask == nil {
			continue
		}
		bias := &p.biases[lane]
		for key := max(bias.firstToken, from); key < min(p.to[lane], to); key++ {
			if bias.seen>>uint(key-bias.firstToken)&1 == 0 {
				w.scores[(key-from)*w.lanes+lane] = hide
			}
		}
	}
}

// store normalises the rows of a panel and writes them to the output.
func (w *worker) store(p *panel, kvHead, first int) {
	var factors [maxLanes]float32 // 0 for a row that sees no key
	for lane, sum := range p.rowSum[:p.rows] {
		if sum != 0 {
			factors[lane] = float32(float64(w.v.descale(kvHead)) / float64(sum))
		}
	}
	w.rescale(p.sums[:w.vDim*w.lanes], &factors)
	w.transpose(w.rows, w.vDim, p.sums, w.lanes, w.vDim, w.lanes)
	size := w.vDim * w.o.DType.Bytes()
	for lane := range p.rows {
		_, head, query := w.place(kvHead, first+lane)
		at := head*w.queries + query
		w.narrow(w.o.Data[at*size:][:size], w.rows[lane*w.vDim:][:w.vDim], w.o.DType)
		if w.LSE != nil {
			w.LSE[at] = float32((float64(p.rowMax[lane]) + math.Log2(float64(p.rowSum[lane]))) * math.Ln2)
		}
	}
}
