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
	out, _, err := a.attention(ctx, in.Shape, rows, operands{
		q: rounded(in.Q.Original), k: rounded(in.K.Original), v: rounded(in.V.Original),
		descaleQK: func(int, int) float32 { return 1 }, descaleV: func(int) float32 { return 1 },
	})
	return out, err
}

// E4M3 models an ideal kernel with E4M3 products. It multiplies codes, sums in float32, scales P by
// 2^8 and rounds it to E4M3 before P·V, takes the row sum of the rounded P, and rounds the output
// to FP16.
func E4M3(ctx context.Context, in *tensor.Inputs, rows oracle.Rows) ([]float64, error) {
	a := e4m3Arithmetic
	a.roundOut = func(x float32) float32 { return half.Float16FromFloat32(x).Float32() }
	out, _, err := a.attention(ctx, in.Shape, rows, codes(in))
	return out, err
}

// e4m3Arithmetic leaves the output unrounded.
var e4m3Arithmetic = arithmetic{
	roundP:     func(x float32) float32 { return fp8.E4M3FromFloat32(x).Float32() },
	roundOut:   func(x float32) float32 { return x },
	scaleP:     256,
	sumRounded: true,
}

// codes are the codes of quantised inputs as operands.
func codes(in *tensor.Inputs) operands {
	decoded := func(codes []byte) func(into []float32, head int) {
		return func(into []float32, head int) {
			for i, c := range codes[head*len(into):][:len(into)] {
				into[i] = fp8.E4M3(c).Float32()
			}
		}
	}
	return operands{
		q: decoded(in.Q.Codes), k: decoded(in.K.Codes), v: decoded(in.V.Codes),
		descaleQK: func(head, kvHead int) float32 { return in.Q.Descale[head] * in.K.Descale[kvHead] },
		descaleV:  func(kvHead int) float32 { return in.V.Descale[kvHead] },
	}
}

// ExactExponentials models kernels whose exponentials are exact until P is rounded to E4M3, and
// whose products are summed by Hopper's tensor cores over steps of 256 keys. Kernels differ in the
// row sum: the sum of the rounded P, on the tensor cores or in FP32, or of P before it is rounded.
// There is an output for each of the three, [row, dim], that is not rounded.
func ExactExponentials(ctx context.Context, in *tensor.Inputs, rows oracle.Rows) ([][]float64, error) {
	a := e4m3Arithmetic
	a.tensorCores = true
	out, sums, err := a.attention(ctx, in.Shape, rows, codes(in))
	if err != nil {
		return nil, err
	}
	outs := [][]float64{make([]float64, len(out)), out, make([]float64, len(out))}
	for i, x := range out {
		if sum := sums[i/in.Shape.HeadDim]; sum.exact > 0 { // otherwise the row sees no key
			outs[0][i] = x * float64(sum.rounded/sum.truncated)
			outs[2][i] = x * float64(sum.rounded/sum.exact)
		}
	}
	return outs, nil
}

// arithmetic is how a modelled kernel rounds. All sums are in float32.
type arithmetic struct {
	scaleP     float32               // factor of P = exp(score - rowMax) before rounding
	roundP     func(float32) float32 // rounds the scaled P
	sumRounded bool                  // the row sum adds P after rounding, not before
	roundOut   func(float32) float32 // rounds the output
	// tensorCores sums P·V as tensor cores do, not in float32.
	tensorCores bool
}

// operands provide the elements of each head and the descale factors of its products.
type operands struct {
	q, k, v   func(into []float32, head int)
	descaleQK func(head, kvHead int) float32
	descaleV  func(kvHead int) float32
}

// rowSum is the sum of P of a row, after and before P is rounded. With tensorCores there is also the
// sum of the rounded P by tensor cores.
type rowSum struct{ rounded, exact, truncated float32 }

// attention computes one row at a time, with all its scores in memory. It returns the output and
// the row sums.
func (a arithmetic) attention(ctx context.Context, shape tensor.Shape, rows oracle.Rows, in operands) ([]float64, []rowSum, error) {
	dims := shape.HeadDim
	out, rowSums := make([]float64, rows.Len(shape)*dims), make([]rowSum, rows.Len(shape))
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
				rowSums[i] = a.softmax(visible, q[row*dims:][:dims], k, scale)
				divisor := rowSums[i].exact
				if a.sumRounded {
					divisor = rowSums[i].rounded
				}
				if a.tensorCores {
					rowSums[i].truncated = tensorCoreSum(visible)
				}
				a.multiply(out[i*dims:][:dims], sums, visible, v, in.descaleV(kvHead)/divisor)
			}
		})
	}
	if err := context.Cause(ctx); err != nil {
		return nil, nil, fmt.Errorf("attention over %v: %w", shape, err)
	}
	return out, rowSums, nil
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
func (a arithmetic) softmax(weights, q, k []float32, scale float32) rowSum {
	rowMax := float32(math.Inf(-1))
	for key := range weights {
		weights[key] = dot(q, k[key*len(q):][:len(q)]) * scale
		rowMax = max(rowMax, weights[key])
	}
	var sum rowSum
	for key, score := range weights {
		weight := float32(math.Exp(float64(score-rowMax))) * a.scaleP
		weights[key] = a.roundP(weight)
		sum.exact += weight
		sum.rounded += weights[key]
	}
	return sum
}

// multiply writes P·V of a row times a factor. A row that sees no key is zero.
func (a arithmetic) multiply(into []float64, sums, weights, v []float32, factor float32) {
	clear(sums)
	if a.tensorCores {
		newAccumulator(len(sums)).add(sums, weights, v)
	} else {
		addProducts(sums, weights, v)
	}
	if len(weights) == 0 {
		factor = 0
	}
	for dim, sum := range sums {
		into[dim] = float64(a.roundOut(sum * factor))
	}
}

// addProducts adds P·V of a row to its sums in float32.
func addProducts(sums, weights, v []float32) {
	for key, weight := range weights {
		if weight == 0 {
			continue
		}
		for dim, x := range v[key*len(sums):][:len(sums)] {
			sums[dim] += weight * x
		}
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
