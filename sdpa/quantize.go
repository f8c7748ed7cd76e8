package sdpa

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"attune/internal/crash"
	"attune/internal/fp8"
)

// Steps prepare a tensor before it is quantised, to reduce the error of E4M3. Neither changes
// attention in exact arithmetic.
type Steps struct {
	// Hadamard multiplies each row by the Hadamard matrix over √(head dim), which spreads outliers.
	// Both q and k need it; the head dim must be a power of two.
	Hadamard bool
	// SmoothK subtracts from each column of a head its mean over the rows, for k only. The log-sum-exp
	// of a row changes by -scale · (q · mean).
	SmoothK bool
	// Mean receives the means of SmoothK, before Hadamard: [batch, heads, head dim]. Nil requests none.
	Mean []float32
}

// Quantize rounds a tensor to E4M3 with one factor per batch and head, the largest finite magnitude
// over 448. Arithmetic is float32, as in the kernel quantize of the lab, so codes and factors are
// equal. NaN stays NaN and an infinity becomes 448.
func Quantize(x *Tensor, s Steps) (*Tensor, error) {
	if err := x.check("tensor"); err != nil {
		return nil, err
	}
	dim := x.Shape[3]
	if s.Hadamard && dim&(dim-1) != 0 {
		return nil, fmt.Errorf("sdpa: Hadamard needs a head dim that is a power of two; it is %d", dim)
	}
	if want := x.heads() * dim; s.Mean != nil && len(s.Mean) != want {
		return nil, fmt.Errorf("sdpa: Mean has %d elements; %d batches of %d heads and %d columns have %d",
			len(s.Mean), x.Shape[0], x.Shape[1], dim, want)
	}
	y := &Tensor{DType: E4M3, Shape: x.Shape, Data: make([]byte, x.elements()), Descale: make([]float32, x.heads())}
	var next atomic.Int64
	var workers crash.Group
	for range min(x.heads(), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			values := make([]float32, x.Shape[2]*dim)
			for head := int(next.Add(1)) - 1; head < x.heads(); head = int(next.Add(1)) - 1 {
				x.readHead(values, head)
				s.apply(values, dim, head)
				y.Descale[head] = quantizeHead(y.Data[head*len(values):][:len(values)], values)
			}
		})
	}
	workers.Wait()
	return y, nil
}

// readHead reads the elements of a head, times its factor.
func (x *Tensor) readHead(values []float32, head int) {
	size := len(values) * x.DType.Bytes()
	vectors.widen(values, x.Data[head*size:][:size], x.DType)
	if factor := x.descale(head); factor != 1 {
		for i := range values {
			values[i] *= factor
		}
	}
}

// apply transforms the rows of a head in place.
func (s Steps) apply(values []float32, dim, head int) {
	mean := make([]float32, dim)
	if s.SmoothK {
		columnMeans(mean, values)
	}
	if s.Mean != nil {
		copy(s.Mean[head*dim:], mean)
	}
	if s.Hadamard {
		hadamard(mean)
	}
	for row := 0; row < len(values); row += dim {
		if s.Hadamard {
			hadamard(values[row:][:dim])
		}
		if s.SmoothK {
			for d, m := range mean {
				values[row+d] -= m
			}
		}
	}
}

func columnMeans(mean, values []float32) {
	sums := make([]float64, len(mean))
	for row := 0; row < len(values); row += len(mean) {
		for d, x := range values[row:][:len(mean)] {
			sums[d] += float64(x)
		}
	}
	rows := float64(len(values) / len(mean))
	for d, sum := range sums {
		mean[d] = float32(sum / rows)
	}
}

// hadamard multiplies a row by the Hadamard matrix over the root of its order. The butterflies run
// from neighbouring columns to distant ones, like those of the kernel.
func hadamard(row []float32) {
	for half := 1; half < len(row); half *= 2 {
		for start := 0; start < len(row); start += 2 * half {
			for i := start; i < start+half; i++ {
				a, b := row[i], row[i+half]
				row[i], row[i+half] = a+b, a-b
			}
		}
	}
	scale := 1 / float32(math.Sqrt(float64(len(row))))
	for i := range row {
		row[i] *= scale
	}
}

// minAmax keeps 448 / amax finite.
const minAmax = 0x1p-112

// quantizeHead writes the codes of a head and returns its factor.
func quantizeHead(codes []byte, values []float32) (descale float32) {
	amax := float32(0)
	for _, x := range values {
		if x < 0 {
			x = -x
		}
		if x > amax && x <= math.MaxFloat32 {
			amax = x
		}
	}
	scale, descale := float32(1), float32(1)
	if amax > 0 {
		amax = max(amax, minAmax)
		scale, descale = fp8.MaxE4M3/amax, amax/fp8.MaxE4M3
	}
	for i, x := range values {
		codes[i] = byte(fp8.E4M3FromFloat32(x * scale))
	}
	return descale
}
