package sdpa

import (
	"encoding/binary"
	"math"

	"attune/internal/fp8"
	"attune/internal/half"
)

// Query rows are lanes of vectors: 24 rows are three vectors of AVX2, 48 are three of AVX-512. Row
// max, row sum and exponentials then need no operation across lanes, and K and V need no transpose:
// their elements are broadcast. A tile of a product has tileRows rows, which fill 12 registers.
const (
	tileRows = 4
	maxLanes = 48
)

// vectorSet is one implementation of the loops over vectors.
type vectorSet struct {
	name  string
	lanes int // at most maxLanes
	// narrower is a set with fewer lanes, for problems of few rows; nil if there is none.
	narrower *vectorSet

	// product computes tiles of C = A·B, or adds them to C. C is [tiles*tileRows][lanes] and B is
	// [n][lanes], both without gaps. Element (r, i) of tile t of A is a[t*tile + r*row + i*step].
	product func(c []float32, a []float32, row, step, tile int, b []float32, n, tiles int, accumulate bool)
	// softmax replaces the scores of a block, [keys][lanes], by exp2(score - row max), updates row
	// max and row sum, and sets the factors by which earlier sums must be rescaled.
	softmax func(scores []float32, keys int, s *state)
	// rescale multiplies each row of sums, [n][lanes], by the factors.
	rescale func(sums []float32, factors *[maxLanes]float32)
	// transpose copies a matrix of rows and cols to one of cols and rows.
	transpose func(to []float32, toStride int, from []float32, fromStride, rows, cols int)
	// widen converts elements to float32, as many as to has.
	widen func(to []float32, from []byte, t DType)
	// narrow rounds all elements of from to nearest even.
	narrow func(to []byte, from []float32, t DType)
}

// state is the online softmax of the rows of a panel. Row max and scores are in units of log2.
type state struct {
	rowMax, rowSum, rescale [maxLanes]float32
}

// forRows returns the set for a number of rows that share a K/V head.
func (v *vectorSet) forRows(rows int) *vectorSet {
	for v.narrower != nil && rows <= v.narrower.lanes {
		v = v.narrower
	}
	return v
}

// goLanes are the lanes of plain Go.
const goLanes = 24

var goVectors = vectorSet{
	name: "Go", lanes: goLanes, product: productGo, softmax: softmaxGo, rescale: rescaleGo,
	transpose: transposeGo, widen: widenGo, narrow: narrowGo,
}

func productGo(c []float32, a []float32, row, step, tile int, b []float32, n, tiles int, accumulate bool) {
	for t := range tiles {
		c := (*[tileRows * goLanes]float32)(c[t*tileRows*goLanes:])
		if !accumulate {
			clear(c[:])
		}
		for lane := 0; lane < goLanes; lane += 2 {
			// Eight accumulators, four elements of A and two of B fit sixteen registers.
			var c00, c01, c10, c11, c20, c21, c30, c31 float32
			at := t * tile
			for i := range n {
				pair := (*[2]float32)(b[i*goLanes+lane:])
				b0, b1 := pair[0], pair[1]
				a0, a1, a2, a3 := a[at], a[at+row], a[at+2*row], a[at+3*row]
				c00 += a0 * b0
				c01 += a0 * b1
				c10 += a1 * b0
				c11 += a1 * b1
				c20 += a2 * b0
				c21 += a2 * b1
				c30 += a3 * b0
				c31 += a3 * b1
				at += step
			}
			c[lane] += c00
			c[lane+1] += c01
			c[goLanes+lane] += c10
			c[goLanes+lane+1] += c11
			c[2*goLanes+lane] += c20
			c[2*goLanes+lane+1] += c21
			c[3*goLanes+lane] += c30
			c[3*goLanes+lane+1] += c31
		}
	}
}

func softmaxGo(scores []float32, keys int, s *state) {
	scores = scores[:keys*goLanes]
	old := s.rowMax
	for i := 0; i < len(scores); i += goLanes {
		for lane, x := range (*[goLanes]float32)(scores[i:]) {
			if x > s.rowMax[lane] {
				s.rowMax[lane] = x
			}
		}
	}
	for lane := range goLanes {
		s.rescale[lane] = exp2Go(old[lane] - s.rowMax[lane])
		s.rowSum[lane] *= s.rescale[lane]
	}
	for i := 0; i < len(scores); i += goLanes {
		row := (*[goLanes]float32)(scores[i:])
		for lane, x := range row {
			row[lane] = exp2Go(x - s.rowMax[lane])
			s.rowSum[lane] += row[lane]
		}
	}
}

// exp2Go returns 2^x for x <= 0, with a relative error below 2e-7, and 0 below 2^-126.5. With n the
// integer nearest to x, 2^x is 2^n times a polynomial in x - n. It is 1 for x = 0.
func exp2Go(x float32) float32 {
	const (
		least   = -127
		shifter = 0x1.8p23 + 127 // adding it rounds to n and leaves n + 127 in the low bits
	)
	if x < least {
		x = least
	}
	shifted := x + shifter
	f := x - (shifted - shifter)
	p := float32(0x1.5bba14p-10)
	for _, c := range [...]float32{0x1.3cea88p-7, 0x1.c6b752p-5, 0x1.ebf9bcp-3, 0x1.62e42ap-1, 1} {
		p = p*f + c
	}
	return p * math.Float32frombits(math.Float32bits(shifted)<<23)
}

// tanhGo returns the hyperbolic tangent of x with a relative error below 4e-7: a polynomial near 0, where
// exponentials would cancel, and exponentials elsewhere.
func tanhGo(x float32) float32 {
	if x > -0.625 && x < 0.625 {
		z := x * x
		p := ((-5.70498872745e-3*z+2.06390887954e-2)*z-5.37397155531e-2)*z + 1.33314422036e-1
		return x + x*z*(p*z-3.33332819422e-1)
	}
	sign := math.Float32bits(x) & (1 << 31)
	e := exp2Go(-2 * math.Log2E * math.Float32frombits(math.Float32bits(x)&^(1<<31)))
	return math.Float32frombits(math.Float32bits((1-e)/(1+e)) | sign)
}

func rescaleGo(sums []float32, factors *[maxLanes]float32) {
	for i := 0; i+goLanes <= len(sums); i += goLanes {
		row := (*[goLanes]float32)(sums[i:])
		for lane := range row {
			row[lane] *= factors[lane]
		}
	}
}

func transposeGo(to []float32, toStride int, from []float32, fromStride, rows, cols int) {
	for row := range rows {
		for col, x := range from[row*fromStride:][:cols] {
			to[col*toStride+row] = x
		}
	}
}

func widenGo(to []float32, from []byte, t DType) {
	switch t {
	case E4M3:
		for i, code := range from[:len(to)] {
			to[i] = fp8.E4M3(code).Float32()
		}
	case FP16:
		for i := range to {
			to[i] = half.Float16(binary.LittleEndian.Uint16(from[2*i:])).Float32()
		}
	case BF16:
		for i := range to {
			to[i] = half.BFloat16(binary.LittleEndian.Uint16(from[2*i:])).Float32()
		}
	case FP32:
		for i := range to {
			to[i] = math.Float32frombits(binary.LittleEndian.Uint32(from[4*i:]))
		}
	}
}

func narrowGo(to []byte, from []float32, t DType) {
	switch t {
	case E4M3:
		for i, x := range from {
			to[i] = byte(fp8.E4M3FromFloat32(x))
		}
	case FP16:
		for i, x := range from {
			binary.LittleEndian.PutUint16(to[2*i:], uint16(half.Float16FromFloat32(x)))
		}
	case BF16:
		for i, x := range from {
			binary.LittleEndian.PutUint16(to[2*i:], uint16(half.BFloat16FromFloat32(x)))
		}
	case FP32:
		for i, x := range from {
			binary.LittleEndian.PutUint32(to[4*i:], math.Float32bits(x))
		}
	}
}
