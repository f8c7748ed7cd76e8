package oracle

import (
	"math/rand/v2"
	"testing"
)

// A tile adds to its own 4 x 8 elements, at any leading dimension, and changes no others.
func TestTiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	fill := func(n int) []float64 {
		values := make([]float64, n)
		for i := range values {
			values[i] = random.NormFloat64()
		}
		return values
	}
	eachTile(t, func(t *testing.T) {
		for _, n := range []int{1, 2, 3, 7, 8, 64, 129} {
			for _, gap := range []int{0, 1, 5} {
				lda, ldc := n+gap, tileCols+gap
				a, b, c := fill(3*lda+n), fill(n*tileCols), fill(3*ldc+tileCols+1)
				want := append([]float64(nil), c...)
				for i := range tileRows {
					for j := range tileCols {
						for k := range n {
							want[i*ldc+j] += a[i*lda+k] * b[k*tileCols+j]
						}
					}
				}
				tile(c, ldc, a, lda, b, n)
				if diff := difference(c, want, 1e-13); diff != "" {
					t.Errorf("n %d, gap %d: %s", n, gap, diff)
				}
			}
		}
	})
}

// A slice that is too short panics, before the assembly could read past it.
func TestTilesCheckBounds(t *testing.T) {
	eachTile(t, func(t *testing.T) {
		check := func(name string, c, a, b int) {
			t.Helper()
			defer func() {
				if recover() == nil {
					t.Errorf("a short %s does not panic", name)
				}
			}()
			tile(make([]float64, c), 8, make([]float64, a), 3, make([]float64, b), 3)
		}
		check("c", 31, 12, 24)
		check("a", 32, 11, 24)
		check("b", 32, 12, 23)
	})
}
