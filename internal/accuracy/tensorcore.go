package accuracy

import "math"

const (
	// keysPerInstruction is how many products one instruction adds to the accumulator.
	keysPerInstruction = 32
	// keysPerStep is how many keys a kernel sums on the tensor cores before it continues in FP32. It
	// is the longest step of the kernels; shorter ones lose less.
	keysPerStep = 256
	// sumBits is how many bits below the largest addend an instruction keeps of each addend.
	sumBits = 13
)

// accumulator sums E4M3 products as Hopper's tensor cores do. An instruction truncates its products
// and the accumulator at sumBits below the largest of them.
type accumulator struct {
	step    []float32 // sums of the present step
	largest []float32 // of the addends of an instruction
	units   []int32   // sums of an instruction, in units of its last bit
}

func newAccumulator(dims int) *accumulator {
	return &accumulator{make([]float32, dims), make([]float32, dims), make([]int32, dims)}
}

// add adds P·V of a row to its sums.
func (a *accumulator) add(sums, weights, v []float32) {
	dims := len(sums)
	for first := 0; first < len(weights); first += keysPerInstruction {
		last := min(first+keysPerInstruction, len(weights))
		a.instruction(weights[first:last], v[first*dims:last*dims])
		if last%keysPerStep == 0 || last == len(weights) {
			for dim, x := range a.step {
				sums[dim] += x
			}
			clear(a.step)
		}
	}
}

// instruction adds the products of some keys to the sums of the step.
func (a *accumulator) instruction(weights, v []float32) {
	dims := len(a.step)
	for dim, x := range a.step {
		a.largest[dim] = max(x, -x)
	}
	for key, weight := range weights {
		for dim, x := range v[key*dims:][:dims] {
			product := weight * x
			a.largest[dim] = max(a.largest[dim], product, -product)
		}
	}
	// largest becomes the number of units in 1; a power of two, so that scaling is exact.
	for dim, x := range a.largest {
		a.largest[dim] = powerOfTwo(sumBits - exponent(x))
		a.units[dim] = int32(a.step[dim] * a.largest[dim])
	}
	for key, weight := range weights {
		for dim, x := range v[key*dims:][:dims] {
			a.units[dim] += int32(weight * x * a.largest[dim]) // truncates
		}
	}
	for dim, units := range a.units {
		a.step[dim] = float32(units) / a.largest[dim]
	}
}

// tensorCoreSum is the sum of weights on the tensor cores, as a product with a column of ones.
func tensorCoreSum(weights []float32) float32 {
	ones := make([]float32, len(weights))
	for i := range ones {
		ones[i] = 1
	}
	sum := []float32{0}
	newAccumulator(1).add(sum, weights, ones)
	return sum[0]
}

// exponent is the binary exponent of a float32 that is normal or 0.
func exponent(x float32) int { return int(math.Float32bits(x)>>23) - 127 }

// powerOfTwo is 2^n. Beyond the range of normal numbers it is the largest or smallest of them.
func powerOfTwo(n int) float32 {
	return math.Float32frombits(uint32(min(max(n, -126), 127)+127) << 23)
}
