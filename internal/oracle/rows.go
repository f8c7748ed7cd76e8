package oracle

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"

	"attune/internal/tensor"
)

// Rows selects query rows by their indices over all batches and heads, in ascending order. Nil
// selects every row.
type Rows []int

// MaxWork is the number of multiply-adds up to which all rows are computed where a sample would
// do. It takes two cores a second or two, for each of the two attentions of a reference.
const MaxWork = 2e10

const (
	// sampledRows is the size of a sample over all heads, unless that is too much work.
	sampledRows = 4096
	// minRowsPerHead is the least number of sampled rows per head.
	minRowsPerHead = 16
	// tileEdge divides the tile sizes of kernels, or a half or a quarter of them.
	tileEdge = 64
)

// Sample selects rows of a problem that takes more than maxWork multiply-adds; for a smaller one it
// returns nil, all rows. A sample has rows of every head: the first and the last, both sides of the
// tile edges at both ends, and a random row of each of many equal ranges. The seed determines the
// sample, on every machine alike. To check a kernel it must be a RandomSeed: a kernel could compute
// only the rows of a sample that is known before it runs.
func Sample(shape tensor.Shape, seed uint64, maxWork float64) Rows {
	if shape.FLOPs()/2 <= maxWork {
		return nil
	}
	perHead := rowsPerHead(shape, maxWork)
	if perHead >= shape.SeqQ {
		return nil
	}
	var rows Rows
	for head := range shape.HeadCount() {
		for _, row := range sampleHead(shape.SeqQ, perHead, rand.NewPCG(seed, uint64(head))) {
			rows = append(rows, head*shape.SeqQ+row)
		}
	}
	return rows
}

// rowsPerHead is how many rows of each head a sample has.
func rowsPerHead(shape tensor.Shape, maxWork float64) int {
	workPerRow := 2 * float64(shape.SeqK) * float64(shape.HeadDim)
	return max(minRowsPerHead, int(min(sampledRows, maxWork/workPerRow))/shape.HeadCount())
}

// Subset selects rows of a sample, no more than Sample selects of the problem: all, or every second,
// every third and so on.
func (r Rows) Subset(shape tensor.Shape, maxWork float64) Rows {
	wanted := rowsPerHead(shape, maxWork) * shape.HeadCount()
	step := (len(r) + wanted - 1) / wanted
	var rows Rows
	for i := 0; i < len(r); i += step {
		rows = append(rows, r[i])
	}
	return rows
}

// Positions returns where the rows are among those of a larger selection, both in rising order.
func (r Rows) Positions(among Rows) Rows {
	if among == nil {
		return r
	}
	positions := make(Rows, len(r))
	for i, row := range r {
		positions[i], _ = slices.BinarySearch(among, row)
	}
	return positions
}

// RandomSeed returns a seed that cannot be known in advance. It is below 2^53, so that every reader
// of JSON keeps it exactly.
func RandomSeed() uint64 {
	var random [8]byte
	_, _ = crand.Read(random[:]) // never fails
	return binary.LittleEndian.Uint64(random[:]) >> 11
}

// sampleHead selects up to wanted rows of one head. A random row that is an edge row counts once.
func sampleHead(length, wanted int, random *rand.PCG) []int {
	last := (length - 1) / tileEdge * tileEdge
	var rows []int
	for _, row := range []int{0, tileEdge - 1, tileEdge, 2*tileEdge - 1, 2 * tileEdge, last - 1, last, length - 1} {
		if 0 <= row && row < length {
			rows = append(rows, row)
		}
	}
	ranges := max(0, wanted-len(rows))
	for i := range ranges {
		from, to := length*i/ranges, length*(i+1)/ranges
		offset, _ := bits.Mul64(random.Uint64(), uint64(to-from))
		rows = append(rows, from+int(offset))
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

// Len returns the number of selected rows of a shape.
func (r Rows) Len(shape tensor.Shape) int {
	if r == nil {
		return shape.Rows()
	}
	return len(r)
}

// Coverage returns how much of the output of a shape the selected rows cover.
func (r Rows) Coverage(shape tensor.Shape) Coverage { return Coverage{r.Len(shape), shape.Rows()} }

// Coverage is the number of rows of an output that were compared with the reference, and of all
// rows.
type Coverage struct {
	Rows int `json:"rows_checked"`
	Of   int `json:"rows"`
}

// Whole reports whether all rows were compared.
func (c Coverage) Whole() bool { return c.Rows == c.Of }

func (c Coverage) String() string {
	if c.Whole() {
		return fmt.Sprintf("all %d rows", c.Of)
	}
	return fmt.Sprintf("%d of %d rows", c.Rows, c.Of)
}

// SelectRows copies the selected rows out of an output of the whole problem, [batch, head, row]. A row
// has width elements of any type.
func SelectRows[T any](rows Rows, out []T, width int) []T {
	if rows == nil {
		return out
	}
	selected := make([]T, 0, len(rows)*width)
	for _, row := range rows {
		selected = append(selected, out[row*width:][:width]...)
	}
	return selected
}

// At returns the index over all batches and heads of the i-th selected row.
func (r Rows) At(i int) int {
	if r == nil {
		return i
	}
	return r[i]
}

// Span is a range of selected rows of one head: those from At(From) to At(To-1).
type Span struct{ Head, From, To int }

// Spans splits the selected rows into spans of at most limit rows.
func (r Rows) Spans(shape tensor.Shape, limit int) []Span {
	var all []Span
	for from := 0; from < r.Len(shape); {
		head := r.At(from) / shape.SeqQ
		to := from + 1
		for to < r.Len(shape) && to < from+limit && r.At(to)/shape.SeqQ == head {
			to++
		}
		all = append(all, Span{head, from, to})
		from = to
	}
	return all
}
