package tensor

import "math"

// rotation is an orthonormal matrix that spreads every element of a row over the whole row: random
// signs, then a Walsh-Hadamard transform. Applied to both queries and keys it leaves the scores
// unchanged. It spreads an outlier over all channels, so that eight bits suffice.
type rotation struct {
	signs []float64 // one per dim: 1 or -1
	block int       // length of one transform: the largest power of two that divides the dims
	scale float64   // 1/√block, which makes the transform orthonormal
}

// newRotation returns the rotation that a seed defines for rows of dims elements.
func newRotation(dims int, seed uint64) *rotation {
	r := &rotation{signs: make([]float64, dims), block: dims & -dims}
	r.scale = 1 / math.Sqrt(float64(r.block))
	random := Stream(seed, rotationStream, 0)
	for dim := range r.signs {
		r.signs[dim] = 1 - 2*float64(random.Uint64()>>63)
	}
	return r
}

// apply rotates a row in place.
func (r *rotation) apply(row []float64) {
	for dim := range row {
		row[dim] *= r.signs[dim]
	}
	for start := 0; start < len(row); start += r.block {
		walshHadamard(row[start:][:r.block])
	}
	for dim := range row {
		row[dim] *= r.scale
	}
}

// walshHadamard multiplies a row, whose length is a power of two, by the Hadamard matrix in
// Sylvester's order. It takes n log n additions and no products.
func walshHadamard(row []float64) {
	for half := 1; half < len(row); half *= 2 {
		for start := 0; start < len(row); start += 2 * half {
			low, high := row[start:][:half], row[start+half:][:half]
			for i := range low {
				low[i], high[i] = low[i]+high[i], low[i]-high[i]
			}
		}
	}
}
