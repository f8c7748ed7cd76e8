package sdpa

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// vectors are the loops over vectors: assembly on processors with AVX2 and FMA, or AVX-512, else
// plain Go. The assembly also converts FP16 with F16C, which every processor with AVX2 has.
var vectors = chooseVectors(cpu.X86.HasAVX2 && cpu.X86.HasFMA, cpu.X86.HasAVX512F)

func chooseVectors(avx2, avx512 bool) vectorSet {
	switch {
	case avx2 && avx512:
		return avx512Vectors
	case avx2:
		return avx2Vectors
	}
	return goVectors
}

var avx2Vectors = vectorSet{
	name: "AVX2", lanes: 24, product: productAVX2, softmax: softmaxAVX2, rescale: rescaleAVX2,
	transpose: transposeAVX2, widen: widenAVX2, narrow: narrowAVX2,
}

var avx512Vectors = vectorSet{
	name: "AVX-512", lanes: 48, narrower: &avx2Vectors, product: productAVX512, softmax: softmaxAVX512, rescale: rescaleAVX512,
	transpose: transposeAVX2, widen: widenAVX2, narrow: narrowAVX2,
}

// The assembly does not check bounds. Each function below accesses the last elements, which does.

func productAVX2(c []float32, a []float32, row, step, tile int, b []float32, n, tiles int, accumulate bool) {
	if add, ok := prepareProduct(c, a, row, step, tile, b, n, tiles, 24, accumulate); ok {
		product4x24(&c[0], &a[0], 4*row, 4*step, 4*tile, &b[0], n, tiles, add)
	}
}

func productAVX512(c []float32, a []float32, row, step, tile int, b []float32, n, tiles int, accumulate bool) {
	if add, ok := prepareProduct(c, a, row, step, tile, b, n, tiles, 48, accumulate); ok {
		product4x48(&c[0], &a[0], 4*row, 4*step, 4*tile, &b[0], n, tiles, add)
	}
}

// prepareProduct checks the bounds of a product, and computes one without elements itself.
func prepareProduct(c, a []float32, row, step, tile int, b []float32, n, tiles, lanes int, accumulate bool) (add int, ok bool) {
	size := tiles * tileRows * lanes
	if n == 0 && !accumulate {
		clear(c[:size])
	}
	if n == 0 || tiles == 0 {
		return 0, false
	}
	_, _, _ = c[size-1], a[(tiles-1)*tile+(tileRows-1)*row+(n-1)*step], b[n*lanes-1]
	if accumulate {
		add = 1
	}
	return add, true
}

func softmaxAVX2(scores []float32, keys int, s *state) {
	if keys > 0 {
		_ = scores[keys*24-1]
		softmax24(&scores[0], keys, s)
	}
}

func softmaxAVX512(scores []float32, keys int, s *state) {
	if keys > 0 {
		_ = scores[keys*48-1]
		softmax48(&scores[0], keys, s)
	}
}

func rescaleAVX2(sums []float32, factors *[maxLanes]float32) {
	if n := len(sums) / 24; n > 0 {
		rescale24(&sums[0], n, &factors[0])
	}
}

func rescaleAVX512(sums []float32, factors *[maxLanes]float32) {
	if n := len(sums) / 48; n > 0 {
		rescale48(&sums[0], n, &factors[0])
	}
}

func widenAVX2(to []float32, from []byte, t DType) {
	groups := len(to) / 8
	done := 8 * groups
	_ = from[:len(to)*t.Bytes()]
	if groups > 0 {
		switch t {
		case E4M3:
			widenE4M3(&to[0], &from[0], groups)
		case FP16:
			widenFP16(&to[0], &from[0], groups)
		case BF16:
			widenBF16(&to[0], &from[0], groups)
		case FP32: // the memory of the processor is little-endian, too
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&to[0])), 4*done), from)
		}
	}
	widenGo(to[done:], from[done*t.Bytes():], t)
}

func transposeAVX2(to []float32, toStride int, from []float32, fromStride, rows, cols int) {
	wholeRows, wholeCols := rows&^7, cols&^7
	if wholeRows > 0 && wholeCols > 0 {
		_, _ = from[(wholeRows-1)*fromStride+wholeCols-1], to[(wholeCols-1)*toStride+wholeRows-1]
		for row := 0; row < wholeRows; row += 8 {
			transpose8x8(&to[row], 4*toStride, &from[row*fromStride], 4*fromStride, wholeCols/8)
		}
	}
	if wholeRows < rows {
		transposeGo(to[wholeRows:], toStride, from[wholeRows*fromStride:], fromStride, rows-wholeRows, cols)
	}
	if wholeCols < cols {
		transposeGo(to[wholeCols*toStride:], toStride, from[wholeCols:], fromStride, wholeRows, cols-wholeCols)
	}
}

func narrowAVX2(to []byte, from []float32, t DType) {
	groups := len(from) / 8
	done := 8 * groups
	_ = to[:len(from)*t.Bytes()]
	if groups > 0 {
		switch t {
		case FP16:
			narrowFP16(&to[0], &from[0], groups)
		case BF16:
			narrowBF16(&to[0], &from[0], groups)
		case FP32:
			copy(to, unsafe.Slice((*byte)(unsafe.Pointer(&from[0])), 4*done))
		default:
			done = 0
		}
	}
	narrowGo(to[done*t.Bytes():], from[done:], t)
}

//go:noescape
func product4x24(c, a *float32, row, step, tile int, b *float32, n, tiles, accumulate int)

//go:noescape
func softmax24(scores *float32, keys int, s *state)

//go:noescape
func rescale24(sums *float32, n int, factors *float32)

//go:noescape
func widenE4M3(to *float32, from *byte, groups int)

//go:noescape
func widenFP16(to *float32, from *byte, groups int)

//go:noescape
func widenBF16(to *float32, from *byte, groups int)

//go:noescape
func transpose8x8(to *float32, toStride int, from *float32, fromStride, count int)

//go:noescape
func narrowFP16(to *byte, from *float32, groups int)

//go:noescape
func narrowBF16(to *byte, from *float32, groups int)

//go:noescape
func product4x48(c, a *float32, row, step, tile int, b *float32, n, tiles, accumulate int)

//go:noescape
func softmax48(scores *float32, keys int, s *state)

//go:noescape
func rescale48(sums *float32, n int, factors *float32)
