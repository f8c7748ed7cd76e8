//go:build !amd64

package tensor

// quotients does nothing of what rational.ofAll has to do.
func quotients([]float64, *rational) int { return 0 }
