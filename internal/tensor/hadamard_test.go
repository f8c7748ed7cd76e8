package tensor

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// normals returns a row of normally distributed values.
func normals(n int, seed uint64) []float64 {
	random := rand.New(rand.NewPCG(seed, 0))
	row := make([]float64, n)
	for i := range row {
		row[i] = random.NormFloat64()
	}
	return row
}

func product(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// The fast transform equals the product with the matrix whose element (i, j) is -1 to the power of
// the number of one bits in i & j.
func TestWalshHadamardByDefinition(t *testing.T) {
	for _, n := range []int{1, 2, 8, 64, 128} {
		row := normals(n, uint64(n))
		want := make([]float64, n)
		for i := range want {
			for j, x := range row {
				want[i] += x * float64(1-2*(bits.OnesCount(uint(i&j))%2))
			}
		}
		walshHadamard(row)
		for i := range want {
			if math.Abs(row[i]-want[i]) > 1e-12 {
				t.Errorf("row of %d, element %d is %v, want %v", n, i, row[i], want[i])
			}
		}
	}
}

// The rows of the matrix are orthonormal, for common head dims and for some that are no power of
// two.
func TestRotationIsOrthonormal(t *testing.T) {
	for _, dims := range []int{1, 2, 24, 64, 80, 96, 128, 256} {
		r := newRotation(dims, 7)
		images := make([][]float64, dims)
		for i := range images {
			images[i] = make([]float64, dims)
			images[i][i] = 1
			r.apply(images[i])
		}
		for i, a := range images {
			for j, b := range images {
				want := 0.0
				if i == j {
					want = 1
				}
				if got := product(a, b); math.Abs(got-want) > 1e-14 {
					t.Fatalf("%d dims: rows %d and %d have the product %v, want %v", dims, i, j, got, want)
				}
			}
		}
	}
}

// The transform is its own inverse up to the scale; so are the signs.
func TestRotationHasAnInverse(t *testing.T) {
	for _, dims := range []int{64, 96, 128} {
		want := normals(dims, 1)
		row := slices.Clone(want)
		r := newRotation(dims, 3)
		r.apply(row)
		for start := 0; start < dims; start += r.block {
			walshHadamard(row[start:][:r.block])
		}
		for dim := range row {
			if got := row[dim] * r.scale * r.signs[dim]; math.Abs(got-want[dim]) > 1e-14 {
				t.Errorf("%d dims: dim %d comes back as %v, want %v", dims, dim, got, want[dim])
			}
		}
	}
}

// Rotating queries and keys does not change the scores.
func TestRotationKeepsScores(t *testing.T) {
	for seed := range uint64(50) {
		for _, dims := range []int{64, 128} {
			q, k := normals(dims, 2*seed), normals(dims, 2*seed+1)
			q[seed%64] += 30 // an outlier
			want := product(q, k)
			r := newRotation(dims, seed)
			r.apply(q)
			r.apply(k)
			if got := product(q, k); math.Abs(got-want) > 1e-12 {
				t.Errorf("seed %d, %d dims: q·k is %v, want %v", seed, dims, got, want)
			}
		}
	}
}

// An outlier is spread evenly over the row.
func TestRotationSpreadsOutliers(t *testing.T) {
	row := make([]float64, 64)
	row[17] = 40
	newRotation(64, 0).apply(row)
	for dim, x := range row {
		if math.Abs(x) != 5 {
			t.Errorf("dim %d is %v, want 5 or -5", dim, x)
		}
	}
}

// A seed gives the same signs on every machine.
func TestRotationIsPinned(t *testing.T) {
	pattern := func(seed uint64) (word uint64) {
		for dim, s := range newRotation(64, seed).signs {
			if s < 0 {
				word |= 1 << dim
			}
		}
		return word
	}
	for seed, want := range map[uint64]uint64{0: 0xad56960dbceec6e8, 1: 0x559fdff4c7c9c821} {
		if got := pattern(seed); got != want {
			t.Errorf("seed %d has the signs %#x, want %#x", seed, got, want)
		}
	}
}

func BenchmarkRotate(b *testing.B) {
	row, r := normals(128, 0), newRotation(128, 0)
	b.SetBytes(int64(8 * len(row)))
	for b.Loop() {
		r.apply(row)
	}
}
