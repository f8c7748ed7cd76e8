package sdpa

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// hasSequences reports whether rows of sequences do not lie where those of a batch do.
func (c *call) hasSequences() bool { return c.QueryOffsets != nil || c.PageTable != nil }

// setSequences checks packed and paged sequences against the forms of q and k, and sets the sizes of
// the call: those of its longest sequence.
func (c *call) setSequences(q, k tensorForm) error {
	if err := c.packQueries(q); err != nil {
		return err
	}
	switch {
	case c.KeyOffsets != nil && c.QueryOffsets == nil:
		return errors.New("sdpa: KeyOffsets without QueryOffsets; keys are packed only beside queries")
	case c.KeyOffsets != nil && (c.PageTable != nil || c.KeyLengths != nil):
		return errors.New("sdpa: KeyOffsets with PageTable or KeyLengths; packed keys have neither")
	case c.KeyOffsets != nil:
		if k.shape[0] != 1 {
			return fmt.Errorf("sdpa: k has the shape %v; packed sequences are one batch", k.shape)
		}
		if len(c.KeyOffsets) != c.batch+1 {
			return fmt.Errorf("sdpa: KeyOffsets has %d elements; QueryOffsets has %d", len(c.KeyOffsets), c.batch+1)
		}
		var err error
		c.keys, err = longest("KeyOffsets", c.KeyOffsets, k.shape[2])
		return err
	case c.PageTable != nil:
		return c.setPages(k)
	case k.shape[0] != c.batch:
		return fmt.Errorf("sdpa: k has the shape %v; want %d batches, as q has", k.shape, c.batch)
	}
	return nil
}

func (c *call) packQueries(q tensorForm) error {
	if c.QueryOffsets == nil {
		return nil
	}
	switch {
	case q.shape[0] != 1:
		return fmt.Errorf("sdpa: q has the shape %v; packed sequences are one batch", q.shape)
	case len(c.QueryOffsets) < 2:
		return fmt.Errorf("sdpa: QueryOffsets has %d elements; want one more than there are sequences", len(c.QueryOffsets))
	case c.QueryLengths != nil:
		return errors.New("sdpa: QueryOffsets with QueryLengths; packed sequences are not padded")
	}
	c.batch = len(c.QueryOffsets) - 1
	var err error
	c.queries, err = longest("QueryOffsets", c.QueryOffsets, q.shape[2])
	return err
}

// setPages checks the pages of all keys. A row of the table may have more entries, which are not read.
func (c *call) setPages(k tensorForm) error {
	pages, size := k.shape[0], k.shape[2]
	if len(c.PageTable) != c.batch {
		return fmt.Errorf("sdpa: PageTable has %d rows; there are %d sequences", len(c.PageTable), c.batch)
	}
	if len(c.KeyLengths) != c.batch {
		return fmt.Errorf("sdpa: KeyLengths has %d lengths; the %d sequences of a PageTable need one each", len(c.KeyLengths), c.batch)
	}
	c.keys = max(slices.Max(c.KeyLengths), 1)
	for b, row := range c.PageTable {
		needed := ceilDiv(max(c.KeyLengths[b], 0), size)
		if needed > len(row) {
			return fmt.Errorf("sdpa: row %d of PageTable has %d pages of %d keys; its sequence has %d keys", b, len(row), size, c.KeyLengths[b])
		}
		for i, page := range row[:needed] {
			if page < 0 || page >= pages {
				return fmt.Errorf("sdpa: page %d of sequence %d is %d; k has %d pages", i, b, page, pages)
			}
		}
	}
	return nil
}

// longest checks the offsets of packed sequences and returns the rows of the longest, at least 1.
func longest(name string, offsets []int, rows int) (int, error) {
	most := 1
	for i, offset := range offsets[1:] {
		if offset < offsets[i] {
			return 0, fmt.Errorf("sdpa: element %d of %s is %d, less than the one before, %d", i+1, name, offset, offsets[i])
		}
		most = max(most, offset-offsets[i])
	}
	if last := offsets[len(offsets)-1]; offsets[0] != 0 || last != rows {
		return 0, fmt.Errorf("sdpa: %s goes from %d to %d; want 0 to the number of rows, %d", name, offsets[0], last, rows)
	}
	return most, nil
}

// attendSequences computes the sequences of a call one after the other on the CPU, on copies of their
// rows.
func attendSequences(ctx context.Context, c *call, q, k, v, o *Tensor) error {
	for b := range c.batch {
		queries := rowsOf{tensor: q, batch: b, count: c.queries}
		if c.QueryOffsets != nil {
			queries = rowsOf{tensor: q, first: c.QueryOffsets[b], count: c.QueryOffsets[b+1] - c.QueryOffsets[b]}
		}
		if queries.count == 0 {
			continue
		}
		one := *c
		one.QueryOffsets, one.KeyOffsets, one.PageTable, one.QueryLengths, one.KeyLengths = nil, nil, nil, nil, nil
		keys := c.keysOf(b, k)
		one.batch, one.queries, one.keys = 1, queries.count, keys.count
		if one.keys == 0 { // a tensor has a row at least
			one.keys, one.KeyLengths = 1, []int{0}
		}
		if len(c.AlibiSlopes) > c.heads {
			one.AlibiSlopes = c.AlibiSlopes[b*c.heads:][:c.heads]
		}
		if c.TreeMask != nil {
			one.TreeMask = c.TreeMask[queries.batch*c.queries+queries.first:][:queries.count]
		}
		values := keys
		values.tensor = v
		out := queries
		out.tensor = o
		part := out.copied(1)
		if c.LSE != nil {
			one.LSE = make([]float32, c.heads*queries.count)
		}
		if err := attendCPU(ctx, &one, queries.copied(1), keys.copied(one.keys), values.copied(one.keys), part); err != nil {
			return err
		}
		out.each(1, func(at, i, bytes int) { copy(o.Data[at:][:bytes], part.Data[i:]) })
		if c.LSE != nil {
			c.storeLSE(one.LSE, queries)
		}
	}
	return nil
}

// keysOf are the rows of k of a sequence.
func (c *call) keysOf(b int, k *Tensor) rowsOf {
	count := c.keys
	if c.KeyLengths != nil {
		count = c.KeyLengths[b]
	}
	switch {
	case c.KeyOffsets != nil:
		return rowsOf{tensor: k, first: c.KeyOffsets[b], count: c.KeyOffsets[b+1] - c.KeyOffsets[b]}
	case c.PageTable != nil:
		return rowsOf{tensor: k, pages: c.PageTable[b], count: count}
	}
	return rowsOf{tensor: k, batch: b, count: count}
}

// storeLSE copies the log-sum-exp of a sequence to its place: [batch, heads, queries], or [heads, rows]
// of packed sequences.
func (c *call) storeLSE(from []float32, queries rowsOf) {
	rows := queries.tensor.Shape[2]
	for head := range c.heads {
		copy(c.LSE[(queries.batch*c.heads+head)*rows+queries.first:], from[head*queries.count:][:queries.count])
	}
}

// rowsOf is some rows of all heads of a tensor: of a batch entry, or of pages.
type rowsOf struct {
	tensor       *Tensor
	batch, first int
	pages        []int // nil for a batch entry
	count        int
}

// each calls a function with the offset of each row in the tensor and in a contiguous copy of all.
func (r rowsOf) each(least int, do func(at, i, bytes int)) {
	heads, rows := r.tensor.Shape[1], r.tensor.Shape[2]
	bytes := r.tensor.Shape[3] * r.tensor.DType.Bytes()
	for head := range heads {
		for i := range r.count {
			batch, row := r.batch, r.first+i
			if r.pages != nil {
				batch, row = r.pages[i/rows], i%rows
			}
			do(((batch*heads+head)*rows+row)*bytes, (head*max(r.count, least)+i)*bytes, bytes)
		}
	}
}

// copied is a tensor of the rows, with at least as many as a tensor must have. Pages have the factors
// of the first.
func (r rowsOf) copied(least int) *Tensor {
	x := r.tensor
	y := &Tensor{DType: x.DType, Shape: [4]int{1, x.Shape[1], max(r.count, least), x.Shape[3]}}
	y.Data = make([]byte, y.elements()*y.DType.Bytes())
	r.each(least, func(at, i, bytes int) { copy(y.Data[i:][:bytes], x.Data[at:]) })
	if x.Descale != nil {
		batch := r.batch
		if r.pages != nil && r.count > 0 {
			batch = r.pages[0]
		}
		y.Descale = x.Descale[batch*x.Shape[1]:][:x.Shape[1]]
	}
	return y
}

// pageFactors are the factors of the heads of a paged tensor, nil for none. All pages have the same.
func pageFactors(name string, factors []float32, heads int) ([]float32, error) {
	for i, f := range factors {
		if f != factors[i%heads] {
			return nil, fmt.Errorf("sdpa: the descale factor of page %d and head %d of %s is %v, and that of page 0 %v; the pages of a cache have the same",
				i/heads, i%heads, name, f, factors[i%heads])
		}
	}
	return factors[:min(heads, len(factors))], nil
}
