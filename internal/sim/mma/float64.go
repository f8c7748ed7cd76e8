package mma

import (
	"math"
	"math/big"
)

// multiplyF64 adds one product at a time, each by a fused multiply-add.
func (p *Product) multiplyF64(s *Scratch, d, a, b, c []uint32) {
	s.wideA.values, s.wideB.values = decodeFloat64(s.wideA.values, a[:2*p.m*p.k]), decodeFloat64(s.wideB.values, b[:2*p.n*p.k])
	for i := range p.m {
		row := s.wideA.values[i*p.k:][:p.k]
		for j := range p.n {
			begin := 0.0
			if c != nil {
				begin = float64At(c, i*p.n+j)
			}
			column := s.wideB.values[j*p.k:][:len(row)]
			sum := begin
			for k, x := range row {
				sum = math.FMA(x, column[k], sum)
			}
			if sum-sum != 0 || p.rounding != Nearest { // a NaN has the bits of an operand
				sum = begin
				for k, x := range row {
					sum = fma(x, column[k], sum, p.rounding)
				}
			}
			code := math.Float64bits(sum)
			d[2*(i*p.n+j)], d[2*(i*p.n+j)+1] = uint32(code), uint32(code>>32)
		}
	}
}

func decodeFloat64(values []float64, matrix []uint32) []float64 {
	values = resize(values, len(matrix)/2)
	for i := range values {
		values[i] = float64At(matrix, i)
	}
	return values
}

func float64At(matrix []uint32, i int) float64 {
	return math.Float64frombits(uint64(matrix[2*i+1])<<32 | uint64(matrix[2*i]))
}

// fma is x·y + z, rounded once.
func fma(x, y, z float64, rounding Rounding) float64 {
	sum := math.FMA(x, y, z)
	switch {
	case sum != sum:
		return propagateNaN(x, y, z)
	case rounding == Nearest || x-x != 0 || y-y != 0 || z-z != 0:
		return sum
	}
	exact := new(big.Float).SetPrec(exactBits).Mul(big.NewFloat(x), big.NewFloat(y))
	exact.Add(exact, big.NewFloat(z))
	// math.FMA rounds to nearest. If that lies on the wrong side of the exact sum, the result is
	// its neighbour.
	switch side := big.NewFloat(sum).Cmp(exact); {
	case side > 0 && (rounding == Down || rounding == TowardZero && exact.Sign() > 0):
		return math.Nextafter(sum, math.Inf(-1))
	case side < 0 && (rounding == Up || rounding == TowardZero && exact.Sign() < 0):
		return math.Nextafter(sum, math.Inf(1))
	case sum == 0 && exact.Sign() == 0 && rounding == Down:
		return zeroRoundedDown(x, y, z)
	}
	return sum
}

// exactBits is enough precision for the exact sum of a product of two float64 values and a third.
const exactBits = 2*1074 + 2*1024 + 1

// zeroRoundedDown is the sign of an exact zero in mode .rm: negative unless both summands are +0.
func zeroRoundedDown(x, y, z float64) float64 {
	if product := x * y; product == 0 && z == 0 && !math.Signbit(product) && !math.Signbit(z) {
		return 0
	}
	return math.Copysign(0, -1)
}

// propagateNaN returns the NaN operand as a quiet NaN, with precedence y, z, x. Without one, the
// NaN comes from infinities, and the result is 0xFFF8000000000000.
func propagateNaN(x, y, z float64) float64 {
	const quiet, invalid = 1 << 51, 0xFFF8 << 48
	for _, in := range [...]float64{y, z, x} {
		if in != in {
			return math.Float64frombits(math.Float64bits(in) | quiet)
		}
	}
	return math.Float64frombits(invalid)
}
