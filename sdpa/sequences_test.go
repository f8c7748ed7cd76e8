package sdpa

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// sequences are the tensors of sequences by themselves, [1, heads, rows, head dim], and the same packed
// or paged.
type sequences struct {
	q, k, v       []*Tensor
	queries, keys []int // rows of each
	packed        [3]*Tensor
	pages         [3]*Tensor // k and v
	table         [][]int
}

// newSequences draws sequences. Those without rows have a tensor of one row, which nothing reads.
func newSequences(t *testing.T, r *rand.Rand, dtype, cache DType, heads, kvHeads, dim, pageSize int, queries, keys []int) *sequences {
	t.Helper()
	s := &sequences{queries: queries, keys: keys}
	factors := func(n int) []float32 {
		var f []float32
		for i := range n {
			f = append(f, 0.5+float32(i)/8)
		}
		return f
	}
	draw := func(dtype DType, heads, rows int) *Tensor {
		x, err := FromFloat32(dtype, [4]int{1, heads, max(rows, 1), dim}, randomFloats(r, heads*max(rows, 1)*dim))
		if err != nil {
			t.Fatal(err)
		}
		if dtype == E4M3 {
			x.Descale = factors(heads)
		}
		return x
	}
	for b := range queries {
		s.q = append(s.q, draw(dtype, heads, queries[b]))
		s.k, s.v = append(s.k, draw(cache, kvHeads, keys[b])), append(s.v, draw(cache, kvHeads, keys[b]))
	}
	for i, all := range [][]*Tensor{s.q, s.k, s.v} {
		rows := keys
		if i == 0 {
			rows = queries
		}
		s.packed[i] = pack(all, rows)
	}
	page := 0
	for b := range keys {
		var row []int
		for range ceilDiv(keys[b], pageSize) {
			row = append(row, page)
			page++
		}
		s.table = append(s.table, append(row, 9999)) // an entry that is not read
	}
	order := r.Perm(page)
	for b := range s.table {
		for i := range s.table[b][:len(s.table[b])-1] {
			s.table[b][i] = order[s.table[b][i]]
		}
	}
	for i, all := range [][]*Tensor{nil, s.k, s.v} {
		if i > 0 {
			s.pages[i] = paged(all, keys, s.table, max(page, 1), pageSize)
		}
	}
	return s
}

// pack concatenates the rows of tensors.
func pack(all []*Tensor, rows []int) *Tensor {
	heads, dim, total := all[0].Shape[1], all[0].Shape[3], 0
	for _, n := range rows {
		total += n
	}
	x := &Tensor{DType: all[0].DType, Shape: [4]int{1, heads, total, dim}, Descale: all[0].Descale}
	for head := range heads {
		for b, part := range all {
			head := part.Data[head*part.Shape[2]*dim*x.DType.Bytes():]
			x.Data = append(x.Data, head[:rows[b]*dim*x.DType.Bytes()]...)
		}
	}
	return x
}

// paged spreads the rows of tensors over pages.
func paged(all []*Tensor, rows []int, table [][]int, pages, size int) *Tensor {
	heads, dim := all[0].Shape[1], all[0].Shape[3]
	x := &Tensor{DType: all[0].DType, Shape: [4]int{pages, heads, size, dim}}
	row := dim * x.DType.Bytes()
	x.Data = make([]byte, pages*heads*size*row)
	for range pages {
		x.Descale = append(x.Descale, all[0].Descale...)
	}
	for b, part := range all {
		for head := range heads {
			for j := range rows[b] {
				to := (table[b][j/size]*heads+head)*size + j%size
				copy(x.Data[to*row:][:row], part.Data[(head*part.Shape[2]+j)*row:])
			}
		}
	}
	return x
}

// offsets are where sequences begin, and where the last ends.
func offsets(rows []int) []int {
	all := []int{0}
	for _, n := range rows {
		all = append(all, all[len(all)-1]+n)
	}
	return all
}

// alone computes the sequences one by one on the CPU and packs the outputs, and the log-sum-exps.
func (s *sequences) alone(t *testing.T, p Problem, dtype DType) (o *Tensor, lse []float32) {
	t.Helper()
	var outputs []*Tensor
	parts := make([][]float32, len(s.q))
	for b, q := range s.q {
		out, err := NewTensor(dtype, q.Shape)
		if err != nil {
			t.Fatal(err)
		}
		one := p
		one.LSE = make([]float32, q.heads()*q.Shape[2])
		if s.keys[b] == 0 {
			one.KeyLengths = []int{0}
		}
		forward(t, one, q, s.k[b], s.v[b], out)
		outputs, parts[b] = append(outputs, out), one.LSE
	}
	for head := range s.q[0].Shape[1] {
		for b, part := range parts {
			lse = append(lse, part[head*s.q[b].Shape[2]:][:s.queries[b]]...)
		}
	}
	return pack(outputs, s.queries), lse
}

// Packed and paged sequences are what each sequence is by itself, to the bit.
func TestSequences(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, test := range []struct {
		dtype, cache DType
		problem      Problem
	}{
		{FP32, FP32, Problem{}},
		{E4M3, E4M3, Problem{Causal: true, Sinks: []float32{1, -2, 3, 0}}},
		{BF16, E4M3, Problem{Window: &Window{3, 1}, Scale: 0.3}},
		{FP16, FP16, Problem{Causal: true, Window: &Window{4, -1}}},
	} {
		s := newSequences(t, r, test.dtype, test.cache, 4, 2, 16, 8, []int{3, 0, 7, 1}, []int{5, 4, 0, 17})
		want, wantLSE := s.alone(t, test.problem, FP32)
		for kind, change := range map[string]func(p *Problem) (k, v *Tensor){
			"packed": func(p *Problem) (k, v *Tensor) {
				p.KeyOffsets = offsets(s.keys)
				return s.packed[1], s.packed[2]
			},
			"paged": func(p *Problem) (k, v *Tensor) {
				p.PageTable, p.KeyLengths = s.table, s.keys
				return s.pages[1], s.pages[2]
			},
		} {
			p := test.problem
			k, v := change(&p)
			p.QueryOffsets, p.LSE = offsets(s.queries), make([]float32, len(wantLSE))
			o, err := NewTensor(FP32, s.packed[0].Shape)
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("%s, %s over %s", kind, test.dtype, test.cache)
			same(t, name, forward(t, p, s.packed[0], k, v, o), floats(t, want))
			same(t, name+", LSE", p.LSE, wantLSE)
		}
	}
}

// A batch of queries over pages, without packing.
func TestPagedBatch(t *testing.T) {
	s := newSequences(t, rand.New(rand.NewPCG(3, 4)), FP32, FP32, 2, 1, 8, 4, []int{2, 2, 2}, []int{9, 0, 4})
	want, wantLSE := s.alone(t, Problem{Causal: true}, FP32)
	q := &Tensor{DType: FP32, Shape: [4]int{3, 2, 2, 8}, Data: slices.Concat(s.q[0].Data, s.q[1].Data, s.q[2].Data)}
	o, err := NewTensor(FP32, q.Shape)
	if err != nil {
		t.Fatal(err)
	}
	p := Problem{Causal: true, PageTable: s.table, KeyLengths: s.keys, LSE: make([]float32, 12)}
	got := forward(t, p, q, s.pages[1], s.pages[2], o)
	for b := range 3 {
		for head := range 2 {
			for i := range 2 {
				at, packed := (b*2+head)*2+i, head*6+b*2+i
				same(t, "row", got[at*8:][:8], floats(t, want)[packed*8:][:8])
				same(t, "lse", p.LSE[at:][:1], wantLSE[packed:][:1])
			}
		}
	}
	if !math.IsInf(float64(p.LSE[4]), -1) {
		t.Errorf("the LSE of a sequence without keys is %v", p.LSE[4])
	}
}

func TestSequenceErrors(t *testing.T) {
	s := newSequences(t, rand.New(rand.NewPCG(5, 6)), E4M3, E4M3, 2, 1, 8, 4, []int{2, 3}, []int{5, 4})
	batch, err := NewTensor(E4M3, [4]int{3, 1, 5, 8})
	if err != nil {
		t.Fatal(err)
	}
	uneven := *s.pages[1]
	uneven.Descale = slices.Clone(uneven.Descale)
	uneven.Descale[2] = 7
	queries, keys := offsets(s.queries), offsets(s.keys)
	for want, test := range map[string]struct {
		problem Problem
		q, k, v *Tensor
	}{
		"KeyOffsets without QueryOffsets":                           {Problem{KeyOffsets: keys}, s.packed[0], s.packed[1], s.packed[2]},
		"KeyOffsets with PageTable or KeyLengths":                   {Problem{QueryOffsets: queries, KeyOffsets: keys, KeyLengths: []int{1, 1}}, s.packed[0], s.packed[1], s.packed[2]},
		"KeyOffsets has 2 elements; QueryOffsets has 3":             {Problem{QueryOffsets: queries, KeyOffsets: []int{0, 9}}, s.packed[0], s.packed[1], s.packed[2]},
		"KeyOffsets goes from 0 to 8; want 0 to":                    {Problem{QueryOffsets: queries, KeyOffsets: []int{0, 5, 8}}, s.packed[0], s.packed[1], s.packed[2]},
		"element 1 of QueryOffsets is -1, less than the one before": {Problem{QueryOffsets: []int{0, -1, 5}, KeyOffsets: keys}, s.packed[0], s.packed[1], s.packed[2]},
		"QueryOffsets has 1 elements":                               {Problem{QueryOffsets: []int{0}, KeyOffsets: keys}, s.packed[0], s.packed[1], s.packed[2]},
		"QueryOffsets with QueryLengths":                            {Problem{QueryOffsets: queries, QueryLengths: []int{1, 1}}, s.packed[0], s.packed[1], s.packed[2]},
		"q has the shape [3 1 5 8]; packed sequences are one batch": {Problem{QueryOffsets: queries, KeyOffsets: keys}, batch, s.packed[1], s.packed[2]},
		"k has the shape [3 1 5 8]; packed sequences are one batch": {Problem{QueryOffsets: queries, KeyOffsets: keys}, s.packed[0], batch, batch},
		"k has the shape [3 1 5 8]; want 2 batches":                 {Problem{QueryOffsets: queries}, s.packed[0], batch, batch},
		"PageTable has 1 rows; there are 2 sequences":               {Problem{QueryOffsets: queries, PageTable: s.table[:1], KeyLengths: s.keys}, s.packed[0], s.pages[1], s.pages[2]},
		"KeyLengths has 0 lengths":                                  {Problem{QueryOffsets: queries, PageTable: s.table}, s.packed[0], s.pages[1], s.pages[2]},
		"row 1 of PageTable has 2 pages of 4 keys":                  {Problem{QueryOffsets: queries, PageTable: s.table, KeyLengths: []int{5, 9}}, s.packed[0], s.pages[1], s.pages[2]},
		"page 1 of sequence 1 is 9999; k has 3 pages":               {Problem{QueryOffsets: queries, PageTable: s.table, KeyLengths: []int{5, 8}}, s.packed[0], s.pages[1], s.pages[2]},
		"length 0 of KeyLengths is -1":                              {Problem{QueryOffsets: queries, PageTable: s.table, KeyLengths: []int{-1, 4}}, s.packed[0], s.pages[1], s.pages[2]},
		"the descale factor of page 2 and head 0 of k is 7":         {Problem{QueryOffsets: queries, PageTable: s.table, KeyLengths: s.keys}, s.packed[0], &uneven, s.pages[2]},
	} {
		o, err := NewTensor(FP32, test.q.Shape)
		if err != nil {
			t.Fatal(err)
		}
		if err := Forward(t.Context(), CPU(), test.problem, test.q, test.k, test.v, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
}
