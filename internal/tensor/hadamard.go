package tensor

import "math"

// rotation is an orthonormal matrix that spreads every number of a row over the whole row: random signs, then a
// Walsh-Hadamard transform. Queries and keys that are rotated alike have the same scores as before, and an outlier
// becomes a little of everything, for which eight bits are enough.
type rotation struct {
	signs []float64 // one a dim: 1 or -1
	block int       // the largest power of two that divides the dims: so many are transformed together
	scale float64   // 1/√block, which makes the transform orthonormal
}

// newRotation is the rotation of rows of so many dims that belongs to a seed.
func newRotation(dims int, seed uint64) *rotation {
	r := &rotation{signs: make([]float64, dims), block: dims & -dims}
	r.scale = 1 / math.Sqrt(float64(r.block))
	random := stream(seed, rotationStream, 0)
	for dim := range r.signs {
		r.signs[dim] = 1 - 2*float64(random.Uint64()>>63)
	}
	return r
}

// rotationStream stands among the streams of a seed behind those of Q, K, V and the biases of K.
const rotationStream = 4

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

// walshHadamard multiplies a row, whose length is a power of two, by the Hadamard matrix of Sylvester's order: n log n
// sums and differences, no product.
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
