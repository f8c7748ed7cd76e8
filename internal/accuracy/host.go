package accuracy

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"attune/internal/fp8"
	"attune/internal/half"
	"attune/internal/oracle"
	"attune/internal/tensor"
)

// BF16 is attention as a BF16 kernel computes it, which is what the user of an FP8 kernel would call instead: the original
// inputs rounded to BF16, products and sums in float32, the weights rounded to BF16 before they meet V, the answer rounded
// to BF16.
func BF16(ctx context.Context, in *tensor.Inputs, rows oracle.Rows) ([]float64, error) {
	round := func(x float32) float32 { return half.BFloat16FromFloat32(x).Float32() }
	rounded := func(values []float32) func(into []float32, head int) {
		return func(into []float32, head int) {
			for i, x := range values[head*len(into):][:len(into)] {
				into[i] = round(x)
			}
		}
	}
	a := arithmetic{weight: round, answer: round, lift: 1}
	return a.attention(ctx, in.Shape, rows, operands{
		q: rounded(in.Q.Original), k: rounded(in.K.Original), v: rounded(in.V.Original),
		scores: func(int, int) float32 { return 1 }, values: func(int) float32 { return 1 },
	})
}

// E4M3 is attention as a kernel with E4M3 products computes it that has no fault of its own: products of the codes, sums
// in float32, the weights scaled by 2^8 and rounded to E4M3 before they meet V, their sum that of the rounded ones, the
// answer rounded to FP16.
func E4M3(ctx context.Context, in *tensor.Inputs, rows oracle.Rows) ([]float64, error) {
	decoded := func(codes []byte) func(into []float32, head int) {
		return func(into []float32, head int) {
			for i, c := range codes[head*len(into):][:len(into)] {
				into[i] = fp8.E4M3(c).Float32()
			}
		}
	}
	a := arithmetic{
		weight:      func(x float32) float32 { return fp8.E4M3FromFloat32(x).Float32() },
		answer:      func(x float32) float32 { return half.Float16FromFloat32(x).Float32() },
		lift:        256,
		sumsRounded: true,
	}
	return a.attention(ctx, in.Shape, rows, operands{
		q: decoded(in.Q.Codes), k: decoded(in.K.Codes), v: decoded(in.V.Codes),
		scores: func(head, kvHead int) float32 { return in.Q.Descale[head] * in.K.Descale[kvHead] },
		values: func(kvHead int) float32 { return in.V.Descale[kvHead] },
	})
}

// arithmetic is what kernels differ in. All sums are in float32.
type arithmetic struct {
	weight      func(float32) float32 // rounds exp(score - largest), times lift
	lift        float32
	sumsRounded bool // the weights are summed as they were rounded, and not before
	answer      func(float32) float32
}

// operands give the numbers of a head of each tensor, and what they are to be multiplied by.
type operands struct {
	q, k, v func(into []float32, head int)
	scores  func(head, kvHead int) float32
	values  func(kvHead int) float32
}

// attention computes every row by itself, with all its scores at hand.
func (a arithmetic) attention(ctx context.Context, shape tensor.Shape, rows oracle.Rows, in operands) ([]float64, error) {
	dims := shape.HeadDim
	out := make([]float64, rows.Len(shape)*dims)
	q, k, v := make([]float32, shape.SeqQ*dims), make([]float32, shape.SeqK*dims), make([]float32, shape.SeqK*dims)
	for _, s := range rows.Spans(shape, shape.SeqQ) {
		head := s.Head
		kvHead := head / shape.Group()
		in.q(q, head)
		in.k(k, kvHead)
		in.v(v, kvHead)
		scale := in.scores(head, kvHead) / float32(math.Sqrt(float64(dims)))
		next := atomic.Int64{}
		next.Store(int64(s.From))
		var workers sync.WaitGroup
		for range min(s.To-s.From, runtime.GOMAXPROCS(0)) {
			workers.Go(func() {
				weights, sums := make([]float32, shape.SeqK), make([]float32, dims)
				for place := int(next.Add(1)) - 1; place < s.To && ctx.Err() == nil; place = int(next.Add(1)) - 1 {
					row := rows.At(place) - head*shape.SeqQ
					seen := weights[:shape.Visible(row)]
					total := a.weigh(seen, q[row*dims:][:dims], k, scale)
					into := out[place*dims:][:dims]
					a.average(into, sums, seen, v, in.values(kvHead)/total)
				}
			})
		}
		workers.Wait()
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("attention over %v: %w", shape, err)
	}
	return out, nil
}

// weigh writes the weights of the keys that a row sees, and gives their sum.
func (a arithmetic) weigh(weights, q, k []float32, scale float32) float32 {
	largest := float32(math.Inf(-1))
	for key := range weights {
		weights[key] = dot(q, k[key*len(q):][:len(q)]) * scale
		largest = max(largest, weights[key])
	}
	total := float32(0)
	for key, score := range weights {
		weight := float32(math.Exp(float64(score-largest))) * a.lift
		rounded := a.weight(weight)
		if a.sumsRounded {
			weight = rounded
		}
		weights[key] = rounded
		total += weight
	}
	return total
}

// average writes the values' sum by their weights, times a factor. A row that sees no key is zero.
func (a arithmetic) average(into []float64, sums, weights, v []float32, factor float32) {
	clear(sums)
	for key, weight := range weights {
		if weight == 0 {
			continue
		}
		for dim, x := range v[key*len(sums):][:len(sums)] {
			sums[dim] += weight * x
		}
	}
	if len(weights) == 0 {
		factor = 0
	}
	for dim, sum := range sums {
		into[dim] = float64(a.answer(sum * factor))
	}
}

// dot sums in four lanes, which the processor can keep apart.
func dot(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	for len(a) >= 4 && len(b) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	for i := range a {
		s0 += a[i] * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}
