package tensor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"attune/internal/fp8"
)

// Distribution is what the numbers of an input are drawn from.
type Distribution uint8

const (
	// Normal is N(0, 1).
	Normal Distribution = iota
	// Outliers is N(0, 1) with, one time in a thousand, a number from N(0, 100) added: a standard deviation of ten, as
	// activations of large models have it, and a hard case for eight bits.
	Outliers
	// Peaked is N(0, 1) with queries sixteen times as large: scores lie so far apart that nearly all the weight of a row
	// is on one key, and a kernel that does not subtract the largest score overflows.
	Peaked
	// Biased is N(0, 1) with a number added to each channel of a head's keys that is the same for all of them, drawn from
	// N(0, 100), as the keys of real models have it. It moves all scores of a row alike, so softmax does not see it, but
	// eight bits do.
	Biased
	// Positive is N(0, 1) with the values made positive: the sums of P·V then only grow, and one that is kept with too few
	// bits drifts.
	Positive
	// Rising has scores that grow from key to key, threefold in powers of two, so that the last key that a query sees has
	// most of the weight: a mask that is off by one key changes everything. All of it is exact in eight bits, and in the
	// tensor cores' sums of them.
	Rising
	// Low is Rising with the scores of the first 512 keys below zero: a row of zeros, which is what a kernel has behind the
	// last key, would have the greatest score of all, and a mask that lets it in changes everything.
	Low
)

// smallCodes is how many of the smallest numbers of E4M3, which are evenly spaced, the keys of rising inputs go through.
const smallCodes = 16

// mostLevels is how many scores rise at most before they begin anew. Hopper's tensor cores keep 13 bits behind the first of a sum of E4M3
// products, and these scores are multiples of 7, that of the largest E4M3: from 2341 on two neighbours could be the same.
const mostLevels = 2048

// smallest is the smallest number of E4M3 above zero, by which rising scores rise.
const smallest = 0x1p-9

// lowest is how many such steps the first key of low inputs is below zero.
const lowest = 512

// bias is the standard deviation of the channels' biases.
const bias = 10

// biasStream stands among the streams of a seed behind those of Q, K and V.
const biasStream = 3

// peak is how much larger the queries of peaked inputs are. A power of two, so that only the descale factors differ from
// normal inputs.
const peak = 16

func (d Distribution) String() string {
	return distributions[d]
}

var distributions = [...]string{Normal: "normal", Outliers: "outliers", Peaked: "peaked", Biased: "biased", Positive: "positive", Rising: "rising", Low: "low"}

// ParseDistribution reads the name of a distribution.
func ParseDistribution(text string) (Distribution, error) {
	if d := slices.Index(distributions[:], text); d >= 0 {
		return Distribution(d), nil
	}
	return 0, fmt.Errorf("unknown inputs %q; there are %s", text, strings.Join(distributions[:], ", "))
}

// Options say how inputs are drawn; the zero value is the usual way.
type Options struct {
	Scale        fp8.Scale
	Distribution Distribution
}

// Tensor is one input of a kernel: [batch, head, row, dim].
type Tensor struct {
	Codes    []byte    // E4M3
	Descale  []float32 // one a head of every batch; an element is worth its code times this
	Original []float32 // the numbers before they were quantised
}

// Inputs are the queries, keys and values of one problem.
type Inputs struct {
	Shape   Shape
	Seed    uint64
	Options Options
	Q, K, V Tensor
}

// Draw makes the inputs that belong to a shape, a seed and options: the same ones everywhere and always.
func Draw(shape Shape, seed uint64, options Options) *Inputs {
	in := &Inputs{Shape: shape, Seed: seed, Options: options}
	in.Q = newTensor(shape.HeadCount(), shape.SeqQ*shape.HeadDim)
	in.K = newTensor(shape.KVHeadCount(), shape.SeqK*shape.HeadDim)
	in.V = newTensor(shape.KVHeadCount(), shape.SeqK*shape.HeadDim)
	// Few long heads are drawn best where those of all three are at hand.
	tensors := [3]*Tensor{&in.Q, &in.K, &in.V}
	q, kv := shape.HeadCount(), shape.KVHeadCount()
	parallel(q+2*kv, func(i int) {
		index, head := 0, i
		if i >= q {
			index, head = 1+(i-q)/kv, (i-q)%kv
		}
		part := tensors[index].original(head)
		fill(part, stream(seed, index, head), options.Distribution)
		shift(part, shape.HeadDim, index, stream(seed, biasStream, head), options.Distribution)
		if options.Scale == fp8.PerHead { // while it is in the cache
			tensors[index].quantize(head, fp8.Descale(part))
		}
	})
	if options.Scale != fp8.PerHead {
		for _, t := range tensors {
			t.quantizeAll(options.Scale)
		}
	}
	return in
}

func newTensor(heads, length int) Tensor {
	return Tensor{Codes: make([]byte, heads*length), Descale: make([]float32, heads), Original: make([]float32, heads*length)}
}

// Quantize makes a tensor of numbers that are heads of equal length, one after another. It keeps the numbers.
func Quantize(values []float32, heads int, scale fp8.Scale) Tensor {
	t := Tensor{Codes: make([]byte, len(values)), Descale: make([]float32, heads), Original: values}
	t.quantizeAll(scale)
	return t
}

func (t *Tensor) quantizeAll(scale fp8.Scale) {
	descale := func(head int) float32 { return fp8.Descale(t.original(head)) }
	if scale != fp8.PerHead {
		one := fp8.Descale(t.Original)
		descale = func(int) float32 { return one }
	}
	parallel(len(t.Descale), func(head int) { t.quantize(head, descale(head)) })
}

// original is the numbers of one head.
func (t *Tensor) original(head int) []float32 {
	length := len(t.Original) / len(t.Descale)
	return t.Original[head*length:][:length]
}

// quantize makes the codes of one head.
func (t *Tensor) quantize(head int, descale float32) {
	values := t.original(head)
	t.Descale[head] = descale
	fp8.Quantize(t.Codes[head*len(values):], values, descale)
}

// Masked is the same inputs with or without the causal mask, in the same memory: a mask changes no number.
func (in *Inputs) Masked(causal bool) *Inputs {
	masked := *in
	masked.Shape.Causal = causal
	return &masked
}

// Worth is what all codes are worth, rounded to float32.
func (t *Tensor) Worth() []float32 {
	values := make([]float32, len(t.Codes))
	length := len(t.Codes) / len(t.Descale)
	parallel(len(t.Descale), func(head int) {
		into := values[head*length:][:length]
		for i, code := range t.Codes[head*length:][:length] {
			into[i] = fp8.E4M3(code).Float32() * t.Descale[head]
		}
	})
	return values
}

// Dequantize writes what the codes of one head are worth into values, from one element on and as many as there is room for.
func (t *Tensor) Dequantize(values []float64, head, first int) {
	length := len(t.Codes) / len(t.Descale)
	fp8.Dequantize(values, t.Codes[head*length:][first:length][:len(values)], t.Descale[head])
}

// stream is the generator of one head of one tensor. Each has its own, so heads can be drawn at the same time. The
// seeding is mixed because PCG itself keeps the low half of its state apart from the high half: generators seeded with
// neighbouring numbers would have much in common.
func stream(seed uint64, tensor, head int) *rand.PCG {
	key := mix(mix(mix(seed)+uint64(tensor)) + uint64(head))
	return rand.NewPCG(mix(key), mix(key+1))
}

// mix is the SplitMix64 step: a bijection in which every bit of x reaches every bit of the result.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

func fill(values []float32, random *rand.PCG, distribution Distribution) {
	if distribution != Outliers {
		fillNormal(values, random)
		return
	}
	for i := range values {
		z := normalQuantile(uniform(random))
		if uniform(random) < 0.001 {
			z += float64(10 * normalQuantile(uniform(random)))
		}
		values[i] = float32(z)
	}
}

func fillNormal(values []float32, random *rand.PCG) {
	var drawn [stretch]float64
	for len(values) > 0 {
		part := values[:min(len(values), stretch)]
		for i := range part {
			drawn[i] = uniform(random)
		}
		normalQuantiles(part, drawn[:len(part)])
		values = values[len(part):]
	}
}

// shift makes of one head of Q, K or V (0, 1, 2) what a distribution has it differ in from the others.
func shift(values []float32, dims, tensor int, random *rand.PCG, distribution Distribution) {
	const q, k, v = 0, 1, 2
	switch {
	case distribution == Peaked && tensor == q:
		for i := range values {
			values[i] *= peak
		}
	case distribution == Biased && tensor == k:
		for dim := range dims {
			b := float64(bias * normalQuantile(uniform(random)))
			for i := dim; i < len(values); i += dims {
				values[i] = float32(float64(values[i]) + b)
			}
		}
	case (distribution == Rising || distribution == Low) && tensor == q:
		for i := range values {
			values[i] = float32(3 * 512 * math.Sqrt(float64(dims)) * math.Ln2)
			if i%dims == dims-1 {
				values[i] = 0
			}
		}
	case distribution == Rising && tensor == k:
		rise(values, dims, dims-1)
	case distribution == Low && tensor == k:
		rise(values, dims, dims-2)
		for i := dims - 2; i < len(values); i += dims {
			values[i] = -lowest * smallest
		}
	case distribution == Positive && tensor == v:
		for i, x := range values {
			values[i] = float32(math.Abs(float64(x)))
		}
	}
}

// levels is how many keys rise one after the other in so many channels.
func levels(rising int) int { return min(smallCodes*rising, mostLevels) }

// rise makes each key larger than the one before in one of its first channels, by the smallest number of E4M3, until all have gone through the
// smallest codes, or are as many as there may be; then it begins anew. The last channel, in which queries are 0, has the largest number of E4M3 once, so
// that the others keep their codes.
func rise(values []float32, dims, rising int) {
	for key := range len(values) / dims {
		row := values[key*dims:][:dims]
		clear(row)
		level := key % levels(rising)
		for dim := range rising {
			row[dim] = smallest * float32(level/rising)
			if dim < level%rising {
				row[dim] += smallest
			}
		}
	}
	values[dims-1] = fp8.MaxE4M3
}

// uniform is one of the 2^52 midpoints that divide (0, 1) evenly, exactly: never 0, never 1.
func uniform(random *rand.PCG) float64 {
	return (float64(random.Uint64()>>12) + 0.5) * 0x1p-52
}

// parallel calls do with every number below n, on all cores.
func parallel(n int, do func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	workers.Wait()
}
