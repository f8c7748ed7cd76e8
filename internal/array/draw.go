package array

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"attune/internal/crash"
	"attune/internal/tensor"
)

// Fills lists the fills of Draw.
var Fills = []string{"normal", "uniform", "zeros", "ones", "iota", "integers", "offsets"}

// drawBlock is the number of elements of one random stream. Blocks are drawn in parallel.
const drawBlock = 65536

// Draw fills an array from a seed: normal, uniform (a to b), zeros, ones, iota, integers (a to b,
// without b) or offsets (non-decreasing integers from a to b). The name of the argument selects the
// random stream, so that an added argument changes no other input. The bits do not depend on the number
// of cores. Seeds from EdgeSeed on add edges.
func Draw(t DType, shape []int, fill string, a, b float64, seed uint64, name string) (*Array, error) {
	elements, err := count(shape)
	if err != nil {
		return nil, err
	}
	if err := checkFill(t, elements, fill, a, b); err != nil {
		return nil, err
	}
	drawn := &Array{Name: name, Type: t, Shape: slices.Clone(shape), Data: make([]byte, elements*t.Bytes())}
	hash := fnv.New32a()
	hash.Write([]byte(name))
	stream := int(hash.Sum32())
	parallel((elements+drawBlock-1)/drawBlock, func(block int) {
		first := block * drawBlock
		part := min(elements-first, drawBlock)
		data := drawn.Data[first*t.Bytes():][:part*t.Bytes()]
		drawPart(t, data, fill, a, b, first, tensor.Stream(seed, stream, block))
	})
	if seed >= EdgeSeed {
		drawn.drawEdges(fill, a, b, seed, stream)
	}
	if fill == "offsets" {
		drawn.sortOffsets(a, b)
	}
	return drawn, nil
}

// checkFill reports a fill that the format cannot hold.
func checkFill(t DType, elements int, fill string, a, b float64) error {
	if _, err := ParseDType(string(t)); err != nil {
		return err
	}
	switch {
	case !slices.Contains(Fills, fill):
		return fmt.Errorf("unknown fill %q; there are %s", fill, strings.Join(Fills, ", "))
	case (fill == "normal" || fill == "uniform") && !t.Float():
		return fmt.Errorf("%s draws real numbers, and %s is an integer type; use integers(a, b)", fill, t)
	case fill == "uniform" && !(a <= b && a >= -t.largest() && b <= t.largest() && !math.IsInf(b-a, 0)):
		return fmt.Errorf("uniform(%g, %g) is no range of %s", a, b, t)
	case fill == "iota" && elements > 0 && float64(elements-1) > t.most():
		return fmt.Errorf("iota of %d elements exceeds %s, whose largest value is %.0f; use integers(a, b)", elements, t, t.most())
	case fill == "offsets" && t.Float():
		return fmt.Errorf("offsets are integers, and %s is a floating-point type", t)
	case fill == "offsets" && (a != math.Floor(a) || b != math.Floor(b) || !(a <= b)):
		return fmt.Errorf("offsets(%g, %g): want two integers, the first not above the second", a, b)
	case fill == "offsets" && (a < t.least() || b > min(t.most(), 1<<53)):
		return fmt.Errorf("offsets(%.0f, %.0f) exceeds %s, which has %.0f to %.0f", a, b, t, t.least(), min(t.most(), 1<<53))
	case fill != "integers":
		return nil
	case a != math.Floor(a) || b != math.Floor(b) || !(a < b):
		return fmt.Errorf("integers(%g, %g): want two integers, the first below the second", a, b)
	case a < t.least() || b-1 > t.most():
		return fmt.Errorf("integers(%.0f, %.0f) exceeds %s, which has %.0f to %.0f", a, b, t, t.least(), t.most())
	}
	return nil
}

// most returns the greatest integer that a fill may have. Floats beyond 2^63 are no integers here.
func (t DType) most() float64 {
	if t.Float() {
		return min(t.largest(), 1<<63)
	}
	_, high := t.limits()
	return float64(high)
}

// least returns the least integer that a fill may have.
func (t DType) least() float64 {
	if t.Float() {
		return -t.most()
	}
	low, _ := t.limits()
	return float64(low)
}

// drawPart fills the elements from index first on.
func drawPart(t DType, data []byte, fill string, a, b float64, first int, random *rand.PCG) {
	n := len(data) / t.Bytes()
	switch fill {
	case "integers":
		drawIntegers(t, data, a, b, random)
		return
	case "offsets":
		drawIntegers(t, data, a, b+1, random)
		return
	case "zeros":
		return
	}
	values := make([]float64, n)
	switch fill {
	case "normal":
		drawNormal(t, values, random)
	case "uniform":
		for i := range values {
			values[i] = a + float64((b-a)*tensor.UniformFloat(random)) // the conversion forbids a fused operation
		}
	case "ones":
		for i := range values {
			values[i] = 1
		}
	case "iota":
		for i := range values {
			values[i] = float64(first + i)
		}
	}
	encode(t, data, values)
}

// drawNormal draws from N(0, 1). The values have 24 bits; F64 gets random bits below them, because
// a kernel that computes in float32 would otherwise read its inputs without an error.
func drawNormal(t DType, values []float64, random *rand.PCG) {
	narrow := make([]float32, len(values))
	tensor.FillNormal(narrow, random)
	for i, x := range narrow {
		values[i] = float64(x)
		if t == F64 {
			values[i] *= 1 + 0x1p-24*(tensor.UniformFloat(random)-0.5)
		}
	}
}

// drawIntegers draws integers from a to b without b. A range of 2^64 integers has the size 0.
func drawIntegers(t DType, data []byte, a, b float64, random *rand.PCG) {
	low := twosComplement(a)
	size := twosComplement(b) - low
	values := make([]uint64, len(data)/t.Bytes())
	for i := range values {
		offset := random.Uint64()
		if size != 0 {
			offset, _ = bits.Mul64(offset, size)
		}
		values[i] = low + offset
	}
	if !t.Float() {
		encodeInts(t, data, values)
		return
	}
	reals := make([]float64, len(values))
	for i, x := range values {
		reals[i] = float64(int64(x))
	}
	encode(t, data, reals)
}

// sortOffsets makes offsets of random integers from a to b: the first is a, the last b.
func (a *Array) sortOffsets(first, last float64) {
	values := a.Ints()
	slices.Sort(values)
	words := make([]uint64, len(values))
	for i, x := range values {
		words[i] = uint64(x)
	}
	if len(words) > 0 {
		words[0], words[len(words)-1] = twosComplement(first), twosComplement(last)
	}
	encodeInts(a.Type, a.Data, words)
}

// twosComplement returns an integer from -2^63 to 2^64 modulo 2^64.
func twosComplement(x float64) uint64 {
	switch {
	case x >= 1<<64:
		return 0
	case x < 0:
		return uint64(int64(x))
	}
	return uint64(x)
}

// parallel calls do for every i below n, on all cores.
func parallel(n int, do func(i int)) {
	var next atomic.Int64
	var workers crash.Group
	for range min(n, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	workers.Wait()
}
