package accuracy

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"attune/internal/crash"
	"attune/internal/fp8"
	"attune/internal/half"
	"attune/internal/oracle"
	"attune/internal/tensor"
)

// BF16 models a BF16 attention kernel, the alternative to an FP8 kernel. It rounds the original
// inputs to BF16, computes products and sums in float32, rounds P to BF16 before P·V, and rounds
// the output to BF16.
func BF16(ctx context.Context, in *tensor.Inputs, rows oracle.Rows) ([]float64, error) {
	round := func(x float32) float32 { return half.BFloat16FromFloat32(x).Float32() }
	rounded := func(values []float32) func(into []float32, head int) {
		return func(into []float32, head int) {
			for i, x := range values[head*len(into):][:len(into)] {
				into[i] = round(x)
			}
		}
	}
	a := arithmetic{roundP: round, roundOut: round, scaleP: 1}
	return a.attention(ctx, in.Shape, rows, operands{
		q: rounded(in.Q.Original), k: rounded(in.K.Original), v: rounded(in.V.Original),
		descaleQK: func(int, int) float32 { return 1 }, descaleV: func(int) float32 { return 1 },
	})
}

// E4M3 models an ideal kernel with E4M3 products. It multiplies codes, sums in float32, scales P by
// 2^8 and rounds it to E4M3 before P·V, takes the row sum of the rounded P, and rounds the output
// to FP16.
func E4M3(ctx context.Context, in *tensor.Inputs, rows oracle.Rows) ([]float64, error) {
	decoded := func(codes []byte) func(into []float32, head int) {
		return func(into []float32, head int) {
			for i, c := range codes[head*len(into):][:len(into)] {
				into[i] = fp8.E4M3(c).Float32()
			}
		}
	}
	a := arithmetic{
		roundP:     func(x float32) float32 { return fp8.E4M3FromFloat32(x).Float32() },
		roundOut:   func(x float32) float32 { return half.Float16FromFloat32(x).Float32() },
		scaleP:     256,
		sumRounded: true,
	}
	return a.attention(ctx, in.Shape, rows, operands{
		q: decoded(in.Q.Codes), k: decoded(in.K.Codes), v: decoded(in.V.Codes),
		descaleQK: func(head, kvHead int) float32 { return in.Q.Descale[head] * in.K.Descale[kvHead] },
		descaleV:  func(kvHead int) float32 { return in.V.Descale[kvHead] },
	})
}

// arithmetic is how a modelled kernel rounds. All sums are in float32.
type arithmetic struct {
	scaleP     float32               // factor of P = exp(score - rowMax) before rounding
	roundP     func(float32) float32 // rounds the scaled P
	sumRounded bool                  // the row sum adds P after rounding, not before
	roundOut   func(float32) float32 // rounds the output
}

// operands provide the elements of each head and the descale factors of its products.
type operands struct {
	q, k, v   func(into []float32, head int)
	descaleQK func(head, kvHead int) float32
	descaleV  func(kvHead int) float32
}

// attention computes one row at a time, with all its scores in memory.
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
		scale := in.descaleQK(head, kvHead) / float32(math.Sqrt(float64(dims)))
		onAllCores(ctx, s, func() func(i int) {
			weights, sums := make([]float32, shape.SeqK), make([]float32, dims)
			return func(i int) {
				row := rows.At(i) - head*shape.SeqQ
				visible := weights[:shape.Visible(row)]
				rowSum := a.softmax(visible, q[row*dims:][:dims], k, scale)
				a.multiply(out[i*dims:][:dims], sums, visible, v, in.descaleV(kvHead)/rowSum)
			}
		})
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("attention over %v: %w", shape, err)
	}
	return out, nil
}

// onAllCores calls a function for every index of a span, until ctx is done. Each core calls worker
// once, for a function with working memory of its own.
func onAllCores(ctx context.Context, s oracle.Span, worker func() func(i int)) {
	next := atomic.Int64{}
	next.Store(int64(s.From))
	var workers crash.Group
	for range min(s.To-s.From, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			do := worker()
			for i := int(next.Add(1)) - 1; i < s.To && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	workers.Wait()
}

// softmax writes the scaled and rounded P of the visible keys of a row, and returns the row sum.
func (a arithmetic) softmax(weights, q, k []float32, scale float32) float32 {
	rowMax := float32(math.Inf(-1))
	for key := range weights {
		weights[key] = dot(q, k[key*len(q):][:len(q)]) * scale
		rowMax = max(rowMax, weights[key])
	}
	rowSum := float32(0)
	for key, score := range weights {
		weight := float32(math.Exp(float64(score-rowMax))) * a.scaleP
		rounded := a.roundP(weight)
		if a.sumRounded {
			weight = rounded
		}
		weights[key] = rounded
		rowSum += weight
	}
	return rowSum
}

// multiply writes P·V of a row times a factor. A row that sees no key is zero.
func (a arithmetic) multiply(into []float64, sums, weights, v []float32, factor float32) {
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
		into[dim] = float64(a.roundOut(sum * factor))
	}
}

// dot uses four accumulators, so that the additions do not wait for each other.
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
