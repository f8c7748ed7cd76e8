package oracle

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"attune/internal/tensor"
)

// Rows are the query rows that an answer is wanted for, by their numbers among those of all batches and heads, rising. Nil is every row.
type Rows []int

// MostWork is how many multiply-adds a whole answer may take where a sample of its rows would do: a second or two of two cores, for each of the two
// answers that make a reference.
const MostWork = 2e10

const (
	// sampledRows are in a sample, over all heads, where that is not too much work.
	sampledRows = 4096
	// leastOfHead are of each head, however many heads there are.
	leastOfHead = 16
	// tileEdge is where kernels begin a tile of query rows, or half of one, or a quarter.
	tileEdge = 64
)

// Sample is nil for a problem of at most so many multiply-adds, which is to be answered whole. Of a larger one it is rows of every head: the first and the
// last, those on both sides of the edges of tiles at both ends, and between them one of each of many equal stretches, drawn from the seed. It is the same on
// every machine.
func Sample(shape tensor.Shape, seed uint64, most float64) Rows {
	if shape.FLOPs()/2 <= most {
		return nil
	}
	ofRow := 2 * float64(shape.SeqK) * float64(shape.HeadDim)
	ofHead := max(leastOfHead, int(min(sampledRows, most/ofRow))/shape.HeadCount())
	if ofHead >= shape.SeqQ {
		return nil
	}
	var rows Rows
	for head := range shape.HeadCount() {
		for _, row := range sampleHead(shape.SeqQ, ofHead, rand.NewPCG(seed, uint64(head))) {
			rows = append(rows, head*shape.SeqQ+row)
		}
	}
	return rows
}

// sampleHead chooses rows of one head. Where a stretch gives a row at an edge, it gives none of its own.
func sampleHead(length, wanted int, random *rand.PCG) []int {
	last := (length - 1) / tileEdge * tileEdge
	var rows []int
	for _, row := range []int{0, tileEdge - 1, tileEdge, 2*tileEdge - 1, 2 * tileEdge, last - 1, last, length - 1} {
		if 0 <= row && row < length {
			rows = append(rows, row)
		}
	}
	stretches := max(0, wanted-len(rows))
	for i := range stretches {
		from, to := length*i/stretches, length*(i+1)/stretches
		within, _ := bits.Mul64(random.Uint64(), uint64(to-from))
		rows = append(rows, from+int(within))
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

// Len is how many rows of a shape these are.
func (r Rows) Len(shape tensor.Shape) int {
	if r == nil {
		return shape.Rows()
	}
	return len(r)
}

// Checked says how much of an answer is held against the right one.
func (r Rows) Checked(shape tensor.Shape) Checked { return Checked{r.Len(shape), shape.Rows()} }

// Checked is how many rows of an answer were held against the right one, of how many.
type Checked struct {
	Rows int `json:"rows_checked"`
	Of   int `json:"rows"`
}

// Whole says whether all were.
func (c Checked) Whole() bool { return c.Rows == c.Of }

func (c Checked) String() string {
	if c.Whole() {
		return fmt.Sprintf("all %d rows", c.Of)
	}
	return fmt.Sprintf("%d of %d rows", c.Rows, c.Of)
}

// Take takes rows out of an output of the whole problem, [batch, head, row], in which each has so many elements: numbers, or the
// bytes that they are made of.
func Take[T any](rows Rows, out []T, width int) []T {
	if rows == nil {
		return out
	}
	taken := make([]T, 0, len(rows)*width)
	for _, row := range rows {
		taken = append(taken, out[row*width:][:width]...)
	}
	return taken
}

// At is the number, among all rows, of the one that stands at a place.
func (r Rows) At(place int) int {
	if r == nil {
		return place
	}
	return r[place]
}

// Span is a stretch of rows of one head, by their places.
type Span struct{ Head, From, To int }

// Spans cuts rows into stretches of one head and at most so many rows.
func (r Rows) Spans(shape tensor.Shape, most int) []Span {
	var all []Span
	for from := 0; from < r.Len(shape); {
		head := r.At(from) / shape.SeqQ
		to := from + 1
		for to < r.Len(shape) && to < from+most && r.At(to)/shape.SeqQ == head {
			to++
		}
		all = append(all, Span{head, from, to})
		from = to
	}
	return all
}
