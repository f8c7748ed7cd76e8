package oracle

import "golang.org/x/sys/cpu"

// tile is tileGo, or assembly on processors with AVX2 and FMA. With four products per instruction
// the oracle is several times faster, and with it every correctness gate.
var tile = chooseTile(cpu.X86.HasAVX2 && cpu.X86.HasFMA)

func chooseTile(avx2 bool) func(c []float64, ldc int, a []float64, lda int, b []float64, n int) {
	if avx2 {
		return tileAVX2
	}
	return tileGo
}

func tileAVX2(c []float64, ldc int, a []float64, lda int, b []float64, n int) {
	// The assembly does not check bounds; these accesses to the last elements do.
	_, _, _ = c[3*ldc+tileCols-1], a[3*lda+n-1], b[tileCols*n-1]
	tile4x8(&c[0], ldc, &a[0], lda, &b[0], n)
}

//go:noescape
func tile4x8(c *float64, ldc int, a *float64, lda int, b *float64, n int)
