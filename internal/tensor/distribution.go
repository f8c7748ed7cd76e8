package tensor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"attune/internal/fp8"
)

// Distribution is the distribution that inputs are drawn from.
type Distribution uint8

const (
	// Normal is N(0, 1).
	Normal Distribution = iota
	// Outliers is N(0, 1); with probability 0.001 an element gets an addend from N(0, 100), whose
	// standard deviation is 10. Activations of large models look like this, and eight bits
	// represent them poorly.
	Outliers
	// Peaked is N(0, 1) with queries sixteen times as large. Scores lie so far apart that one key
	// has nearly all the weight of a row. A kernel that does not subtract the row max overflows.
	Peaked
	// Biased is N(0, 1) with a bias from N(0, 100) added to each channel of a head's K, as real
	// models have it. It shifts all scores of a row equally, which softmax ignores, but it costs
	// precision in eight bits.
	Biased
	// Positive is N(0, 1) with V made positive. The sums of P·V then only grow, and an accumulator
	// with too few bits drifts.
	Positive
	// Rising has scores that increase from key to key by 3 in log2 units. The last key that a query
	// sees has most of the weight, so that a mask that is off by one key changes the output
	// completely. All elements and all sums in the tensor cores are exact.
	Rising
	// Low is Rising with the scores of the first 512 keys below zero. The zero rows that a kernel
	// has behind the last key would then have the row max, so that a mask that admits one changes
	// the output completely.
	Low
	// Ones is N(0, 1) with V = 1. Every output is 1, whatever the weights, if the row sum adds the
	// same numbers that P·V multiplies.
	Ones
	// Dominant is N(0, 1) with each query a multiple of one key that it sees, at a position that
	// differs from row to row. That key's score is about 10 above the others, so that the others
	// have some percent of the weight, in exponentials near the smallest of E4M3.
	Dominant
	// Sink6 has an attention sink: the score of the first key is exactly 6, those of the others are
	// N(0, 1/4). The sink's value is 0 and the others' are positive, so that weight that the others
	// lose shrinks the output.
	Sink6
	// Sink9 is Sink6 with a score of 9.
	Sink9
	// Uniform has scores from N(0, 1/64), so that all keys have nearly the same weight. V is 1 in
	// the channel of the key's position modulo the head dim, and 0 elsewhere. The output is
	// the total weight of each class of key positions.
	Uniform
)

var distributions = [...]string{
	Normal: "normal", Outliers: "outliers", Peaked: "peaked", Biased: "biased", Positive: "positive", Rising: "rising", Low: "low",
	Ones: "ones", Dominant: "dominant", Sink6: "sink6", Sink9: "sink9", Uniform: "uniform",
}

// Studied are the distributions that study the exponentials of kernels that round P to E4M3.
var Studied = []Distribution{Ones, Dominant, Sink6, Sink9, Uniform}

func (d Distribution) String() string { return distributions[d] }

// ParseDistribution returns the distribution of a name.
func ParseDistribution(text string) (Distribution, error) {
	if d := slices.Index(distributions[:], text); d >= 0 {
		return Distribution(d), nil
	}
	return 0, fmt.Errorf("unknown inputs %q; there are %s", text, strings.Join(distributions[:], ", "))
}

const (
	// peakFactor is how much larger the queries of Peaked are. It is a power of two, so that only
	// the descale factors differ from Normal.
	peakFactor = 16

	// biasDeviation is the standard deviation of the channel biases of Biased.
	biasDeviation = 10

	// smallestE4M3 is the smallest positive E4M3 value, the step by which the keys of Rising grow.
	smallestE4M3 = 0x1p-9

	// evenCodes is the number of evenly spaced E4M3 values from 0 on. The channels of Rising keys
	// step through them.
	evenCodes = 16

	// maxLevels is the number of distinct scores of Rising before they repeat. The tensor cores of
	// Hopper keep 13 bits after the leading bit of a sum of E4M3 products. The sums here are
	// multiples of 7, the mantissa of the largest E4M3 value, so that from 2341 levels on two
	// neighbours could be equal.
	maxLevels = 2048

	// lowLevels is how many levels below zero the scores of Low begin.
	lowLevels = 512

	// dominance is about the score of a query of Dominant with its key.
	dominance = 10

	// sinkSpread is the standard deviation of the scores of Sink6 and Sink9 other than the sink's.
	sinkSpread = 0.5

	// sinkKey is the element that gives the sink its score. It is larger than any normal one, so that
	// it fixes the descale factor and is exact. The channel is 0 in all other keys.
	sinkKey = 8

	// uniformFactor is how much smaller the queries of Uniform are: a power of two, as peakFactor.
	uniformFactor = 1.0 / 8
)

// The numbers of the random streams of a seed: one for each tensor, one for the biases of K, one
// for the rotation of a recipe, one for the positions of the keys of Dominant.
const (
	queryStream = iota
	keyStream
	valueStream
	biasStream
	rotationStream
	positionStream
)

// Stream returns the generator of one head of one tensor. Each head has its own, so that heads can
// be drawn in parallel. The seed is mixed because PCG keeps the low half of its state separate from
// the high half: generators with neighbouring seeds would be correlated.
func Stream(seed uint64, tensor, head int) *rand.PCG {
	key := mix(mix(mix(seed)+uint64(tensor)) + uint64(head))
	return rand.NewPCG(mix(key), mix(key+1))
}

// mix is the SplitMix64 step: a bijection in which every bit of x affects every bit of the result.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// UniformFloat returns one of the 2^52 evenly spaced midpoints of (0, 1), exactly. It is never 0 or 1.
func UniformFloat(random *rand.PCG) float64 {
	return (float64(random.Uint64()>>12) + 0.5) * 0x1p-52
}

// fill draws the elements of one head before adapt.
func fill(values []float32, random *rand.PCG, distribution Distribution) {
	if distribution != Outliers {
		FillNormal(values, random)
		return
	}
	for i := range values {
		z := normalQuantile(UniformFloat(random))
		if UniformFloat(random) < 0.001 {
			z += float64(10 * normalQuantile(UniformFloat(random)))
		}
		values[i] = float32(z)
	}
}

// FillNormal draws values from N(0, 1). They are the same bits on every machine.
func FillNormal(values []float32, random *rand.PCG) {
	var drawn [batchSize]float64
	for len(values) > 0 {
		part := values[:min(len(values), batchSize)]
		for i := range part {
			drawn[i] = UniformFloat(random)
		}
		normalQuantiles(part, drawn[:len(part)])
		values = values[len(part):]
	}
}

// adapt changes normal elements of one head of a tensor into those of a distribution. A query head
// of Dominant is made by fillDominant.
func adapt(values []float32, dims, tensor int, random *rand.PCG, distribution Distribution) {
	switch tensor {
	case queryStream:
		adaptQueries(values, dims, distribution)
	case keyStream:
		adaptKeys(values, dims, random, distribution)
	case valueStream:
		adaptValues(values, dims, distribution)
	}
}

func adaptQueries(values []float32, dims int, distribution Distribution) {
	switch distribution {
	case Peaked:
		multiply(values, peakFactor)
	case Uniform:
		multiply(values, uniformFactor)
	case Rising, Low:
		for i := range values {
			values[i] = float32(3 * 512 * math.Sqrt(float64(dims)) * math.Ln2)
		}
		setChannel(values, dims, dims-1, 0)
	case Sink6, Sink9:
		multiply(values, sinkSpread)
		score := 6.0
		if distribution == Sink9 {
			score = 9
		}
		setChannel(values, dims, dims-1, float32(score*math.Sqrt(float64(dims))/sinkKey))
	}
}

func adaptKeys(values []float32, dims int, random *rand.PCG, distribution Distribution) {
	switch distribution {
	case Biased:
		for dim := range dims {
			bias := float64(biasDeviation * normalQuantile(UniformFloat(random)))
			for i := dim; i < len(values); i += dims {
				values[i] = float32(float64(values[i]) + bias)
			}
		}
	case Rising:
		fillRising(values, dims, dims-1)
	case Low:
		fillRising(values, dims, dims-2)
		setChannel(values, dims, dims-2, -lowLevels*smallestE4M3)
	case Sink6, Sink9:
		setChannel(values, dims, dims-1, 0)
		clear(values[:dims])
		values[dims-1] = sinkKey
	}
}

func adaptValues(values []float32, dims int, distribution Distribution) {
	switch distribution {
	case Positive, Sink6, Sink9:
		for i, x := range values {
			values[i] = float32(math.Abs(float64(x)))
		}
		if distribution != Positive {
			clear(values[:dims])
		}
	case Ones:
		for i := range values {
			values[i] = 1
		}
	case Uniform:
		clear(values)
		for key := range len(values) / dims {
			values[key*dims+key%dims] = 1
		}
	}
}

func multiply(values []float32, factor float32) {
	for i := range values {
		values[i] *= factor
	}
}

// setChannel sets one channel of every row.
func setChannel(values []float32, dims, channel int, x float32) {
	for i := channel; i < len(values); i += dims {
		values[i] = x
	}
}

// fillDominant makes each query of a head a multiple of one of the keys. Under a causal mask the
// query sees that key as well, so that the inputs are the same with and without a mask. A query
// that sees none keeps its elements.
func fillDominant(queries, keys []float32, shape Shape, random *rand.PCG) {
	dims := shape.HeadDim
	factor := float32(dominance / math.Sqrt(float64(dims)))
	shape.Causal = true
	for row := range shape.SeqQ {
		position := int(UniformFloat(random) * float64(shape.Visible(row)))
		if shape.Visible(row) == 0 {
			continue
		}
		for dim, k := range keys[position*dims:][:dims] {
			queries[row*dims+dim] = factor * k
		}
	}
}

// levels returns the number of distinct keys that fillRising makes with rising channels.
func levels(rising int) int { return min(evenCodes*rising, maxLevels) }

// fillRising makes each key one step of smallestE4M3 larger than the key before, in one of its
// first rising channels. It starts again at zero after levels(rising) keys. The last channel, in
// which queries are 0, holds the largest E4M3 value once. That fixes the descale factor, so that
// the other elements are exact.
func fillRising(values []float32, dims, rising int) {
	for key := range len(values) / dims {
		row := values[key*dims:][:dims]
		clear(row)
		level := key % levels(rising)
		for dim := range rising {
			row[dim] = smallestE4M3 * float32(level/rising)
			if dim < level%rising {
				row[dim] += smallestE4M3
			}
		}
	}
	values[dims-1] = fp8.MaxE4M3
}
