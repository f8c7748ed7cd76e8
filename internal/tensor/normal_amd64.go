package tensor

import "golang.org/x/sys/cpu"

// evaluateVector evaluates f for a prefix of x in place and returns the length of that prefix. On
// processors with AVX2 it handles eight elements at a time. It performs the operations of
// rational.at in the same order and without fusing any, so that the bits are the same.
var evaluateVector = chooseEvaluate(cpu.X86.HasAVX2)

func chooseEvaluate(avx2 bool) func(x []float64, f *rational) int {
	if avx2 {
		return evaluateAVX2
	}
	return evaluateNone
}

func evaluateNone([]float64, *rational) int { return 0 }

func evaluateAVX2(x []float64, f *rational) int {
	groups := len(x) / 8
	if groups > 0 {
		evaluate8(&x[0], groups, f)
	}
	return 8 * groups
}

//go:noescape
func evaluate8(x *float64, groups int, f *rational)
