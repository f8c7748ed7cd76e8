package oracle

// A tile is the part of a matrix product that is accumulated in registers.
const (
	tileRows = 4
	tileCols = 8
)

// tileGo adds the product of a and b to c. c is tileRows x tileCols with leading dimension ldc, a
// is tileRows x n with leading dimension lda, and b is n x tileCols without gaps.
func tileGo(c []float64, ldc int, a []float64, lda int, b []float64, n int) {
	a0, a1, a2, a3 := a[:n], a[lda:][:n], a[2*lda:][:n], a[3*lda:][:n]
	for col := 0; col < tileCols; col += 2 {
		// Eight accumulators, four elements of a and two of b fit sixteen registers.
		var c00, c01, c10, c11, c20, c21, c30, c31 float64
		for k := range a0 {
			pair := b[tileCols*k+col:][:2]
			b0, b1 := pair[0], pair[1]
			c00 += a0[k] * b0
			c01 += a0[k] * b1
			c10 += a1[k] * b0
			c11 += a1[k] * b1
			c20 += a2[k] * b0
			c21 += a2[k] * b1
			c30 += a3[k] * b0
			c31 += a3[k] * b1
		}
		c[col] += c00
		c[col+1] += c01
		c[ldc+col] += c10
		c[ldc+col+1] += c11
		c[2*ldc+col] += c20
		c[2*ldc+col+1] += c21
		c[3*ldc+col] += c30
		c[3*ldc+col+1] += c31
	}
}
