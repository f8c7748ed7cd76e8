package oracle

import "math"

// expNonPositive returns exp(x) for x <= 0, to within two units in the last place. It is more than
// twice as fast as math.Exp, which would take more than half of the oracle's time. Results below
// the smallest normal float64 are zero.
//
// With k the integer nearest to 64 x / ln 2, exp(x) = 2^(k/64) exp(r), where |r| is at most ln 2 /
// 128. A table and an exponent shift give the first factor, a polynomial the second.
func expNonPositive(x float64) float64 {
	if !(x > -708) {
		if x != x {
			return x
		}
		return 0
	}
	const (
		shifter = 0x1.8p52 // adding it rounds to an integer and leaves that in the low bits
		high    = 6.93147180369123816490e-01 / 64
		low     = 1.90821492927058770002e-10 / 64 // high + low is ln 2 / 64; k times high is exact
	)
	shifted := x*(64/math.Ln2) + shifter
	k := shifted - shifter
	r := x - k*high - k*low
	bits := math.Float64bits(shifted)
	power := math.Float64frombits(powers[bits%64] + bits/64<<52)
	return power + power*(r+r*r*(1.0/2+r*(1.0/6+r*(1.0/24+r*(1.0/120)))))
}

// powers holds the bits of 2^(i/64).
var powers = func() (table [64]uint64) {
	for i := range table {
		table[i] = math.Float64bits(math.Exp2(float64(i) / 64))
	}
	return table
}()
