package array

import (
	"math/rand/v2"

	"attune/internal/tensor"
)

// EdgeSeed is the first of the seeds whose arrays have edges: a share of the elements are values at the ends
// of the fill, and close to 0. A small array has none of these by chance: of a million normal numbers three
// are above 4.5. Smaller seeds draw what they always have. All seeds are integers of a float64.
const EdgeSeed = 1 << 52

// edgeStream is the random stream of the places of edges; the others are those of blocks.
const edgeStream = -1

// drawEdges replaces some elements of a drawn array by edges. Their share is small: the error of a sum of
// products must remain near that of other seeds.
func (a *Array) drawEdges(fill string, low, high float64, seed uint64, stream int) {
	edges := edgesOf(a.Type, fill, low, high)
	n := a.Len()
	if len(edges) == 0 || n == 0 {
		return
	}
	random := rand.New(tensor.Stream(seed, stream, edgeStream))
	start, size := random.IntN(len(edges)), a.Type.Bytes()
	for i := range max(n/32, min(n/4, 8)) {
		copy(a.Data[random.IntN(n)*size:][:size], edges[(start+i)%len(edges)])
	}
}

// edgesOf are the encoded edges of a fill. All are values that it draws in large arrays: the largest of some
// 10 million normal numbers is 5.25, and the first of 2^26 uniform ones is so close to the end of the range.
func edgesOf(t DType, fill string, low, high float64) [][]byte {
	const tiny = 1e-7
	switch fill {
	case "normal":
		return encoded(t, 5.25, -5.25, 4.6, -4.6, tiny, -tiny)
	case "uniform":
		step := float64((high - low) * 0x1p-26)
		if low < -step && step < high {
			return encoded(t, low+step, high-step, step, -step)
		}
		return encoded(t, low+step, high-step)
	case "integers":
		first, last := twosComplement(low), twosComplement(high)-1
		if low < 0 && 0 < high-1 {
			return encodedInts(t, first, last, 0)
		}
		return encodedInts(t, first, last)
	case "offsets":
		return encodedInts(t, twosComplement(low), twosComplement(high))
	}
	return nil
}

// encoded are elements of a type.
func encoded(t DType, values ...float64) [][]byte {
	all := make([][]byte, len(values))
	for i, x := range values {
		all[i] = make([]byte, t.Bytes())
		encode(t, all[i], []float64{x})
	}
	return all
}

// encodedInts are elements of a type, which may be floating-point.
func encodedInts(t DType, values ...uint64) [][]byte {
	all := make([][]byte, len(values))
	for i, x := range values {
		all[i] = make([]byte, t.Bytes())
		if t.Float() {
			encode(t, all[i], []float64{float64(int64(x))})
		} else {
			encodeInts(t, all[i], []uint64{x})
		}
	}
	return all
}
