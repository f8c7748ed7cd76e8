//go:build !amd64

package tensor

// evaluateVector leaves all elements to rational.at: there is no vector code for this processor.
func evaluateVector([]float64, *rational) int { return 0 }
