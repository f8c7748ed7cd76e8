package mma

import (
	"math"
	"math/big"
)

// multiplyF64 adds one product after the other, each by a fused multiplication and addition.
func (p *Product) multiplyF64(_ *Scratch, d, a, b, c []uint32) {
	for i := range p.m {
		for j := range p.n {
			sum := 0.0
			if c != nil {
				sum = float64At(c, i*p.n+j)
			}
			for k := range p.k {
				sum = fma(float64At(a, i*p.k+k), float64At(b, j*p.k+k), sum, p.rounding)
			}
			code := math.Float64bits(sum)
			d[2*(i*p.n+j)], d[2*(i*p.n+j)+1] = uint32(code), uint32(code>>32)
		}
	}
}

func float64At(matrix []uint32, i int) float64 {
	return math.Float64frombits(uint64(matrix[2*i+1])<<32 | uint64(matrix[2*i]))
}

// fma is x*y + z, rounded once.
func fma(x, y, z float64, rounding Rounding) float64 {
	sum := math.FMA(x, y, z)
	switch {
	case sum != sum:
		return nan(x, y, z)
	case rounding == Nearest || x-x != 0 || y-y != 0 || z-z != 0:
		return sum
	}
	exact := new(big.Float).SetPrec(exactBits).Mul(big.NewFloat(x), big.NewFloat(y))
	exact.Add(exact, big.NewFloat(z))
	// The neighbour of the nearest one is right where that lies on the wrong side.
	switch side := big.NewFloat(sum).Cmp(exact); {
	case side > 0 && (rounding == Down || rounding == TowardZero && exact.Sign() > 0):
		return math.Nextafter(sum, math.Inf(-1))
	case side < 0 && (rounding == Up || rounding == TowardZero && exact.Sign() < 0):
		return math.Nextafter(sum, math.Inf(1))
	case sum == 0 && exact.Sign() == 0 && rounding == Down:
		return downwardZero(x, y, z)
	}
	return sum
}

// exactBits are enough for the sum of a product of two float64 and a third.
const exactBits = 2*1074 + 2*1024 + 1

// downwardZero is an exact sum of zero, which is negative when rounding down unless both summands are +0.
func downwardZero(x, y, z float64) float64 {
	if product := x * y; product == 0 && z == 0 && !math.Signbit(product) && !math.Signbit(z) {
		return 0
	}
	return math.Copysign(0, -1)
}

// nan is what comes out of an operation with a NaN: the one that came in, made quiet, or the one that the chip makes of
// infinities. Of several, y goes before z and z before x.
func nan(x, y, z float64) float64 {
	const quiet, made = 1 << 51, 0xFFF8 << 48
	for _, in := range [...]float64{y, z, x} {
		if in != in {
			return math.Float64frombits(math.Float64bits(in) | quiet)
		}
	}
	return math.Float64frombits(made)
}
