package mma

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// The functions of this file implement the published model of tensor cores with unbounded integers
// and their own tables.

type floatLayout struct{ exponent, mantissa, dropped uint }

var floatLayouts = map[Type]floatLayout{
	F16: {5, 10, 0}, BF16: {8, 7, 0}, TF32: {8, 10, 13}, F32: {8, 23, 0}, E4M3: {4, 3, 0}, E5M2: {5, 2, 0},
}

// referenceNumber is significand · 2^(exponent - fraction), an infinity, or a NaN.
type referenceNumber struct {
	kind        string // "", "inf", "nan"
	negative    bool
	significand int64
	exponent    int
	fraction    uint
}

func referenceDecode(t Type, code uint32) referenceNumber {
	l := floatLayouts[t]
	code >>= l.dropped
	n := referenceNumber{negative: code>>(l.exponent+l.mantissa)&1 == 1, fraction: l.mantissa}
	field, rest := int(code>>l.mantissa&(1<<l.exponent-1)), int64(code&(1<<l.mantissa-1))
	bias := 1<<(l.exponent-1) - 1
	switch {
	case t == E4M3 && field == 15 && rest == 7:
		n.kind = "nan"
	case t != E4M3 && field == 1<<l.exponent-1 && rest != 0:
		n.kind = "nan"
	case t != E4M3 && field == 1<<l.exponent-1:
		n.kind = "inf"
	case field == 0:
		n.significand, n.exponent = rest, 1-bias
	default:
		n.significand, n.exponent = rest|1<<l.mantissa, field-bias
	}
	return n
}

// widened converts an FP8 value to f16, in which more values are normal.
func (n referenceNumber) widened() referenceNumber {
	for n.kind == "" && n.significand != 0 && n.significand < 1<<n.fraction && n.exponent > -14 {
		n.significand, n.exponent = 2*n.significand, n.exponent-1
	}
	return n
}

// referenceSum collects the terms of a step.
type referenceSum struct {
	terms                   []referenceTerm
	positive, negative, nan bool // an infinity of this sign, or a NaN, is among the terms
}

type referenceTerm struct {
	value    *big.Int
	exponent int
	fraction uint
}

func (s *referenceSum) addInfinity(negative bool) {
	s.positive, s.negative = s.positive || !negative, s.negative || negative
}

func (s *referenceSum) add(significand int64, negative bool, exponent int, fraction uint) {
	if significand == 0 {
		return
	}
	value := big.NewInt(significand)
	if negative {
		value.Neg(value)
	}
	s.terms = append(s.terms, referenceTerm{value, exponent, fraction})
}

func (s *referenceSum) addProduct(x, y referenceNumber) {
	negative := x.negative != y.negative
	switch {
	case x.kind == "nan" || y.kind == "nan":
		s.nan = true
	case x.kind == "inf" && y.kind == "" && y.significand == 0, y.kind == "inf" && x.kind == "" && x.significand == 0:
		s.nan = true
	case x.kind == "inf" || y.kind == "inf":
		s.addInfinity(negative)
	default:
		s.add(x.significand*y.significand, negative, x.exponent+y.exponent, x.fraction+y.fraction)
	}
}

// truncated aligns the terms to the largest exponent, truncates them to fraction bits and adds them.
func (s *referenceSum) truncated(fraction int) (sum *big.Int, top int) {
	top = math.MinInt32
	for _, t := range s.terms {
		top = max(top, t.exponent)
	}
	sum = new(big.Int)
	for _, t := range s.terms {
		shift := fraction + t.exponent - top - int(t.fraction)
		magnitude := new(big.Int).Abs(t.value)
		if shift >= 0 {
			magnitude.Lsh(magnitude, uint(shift))
		} else {
			magnitude.Rsh(magnitude, uint(-shift))
		}
		if t.value.Sign() < 0 {
			magnitude.Neg(magnitude)
		}
		sum.Add(sum, magnitude)
	}
	return sum, top
}

// referenceStep adds products to an accumulator.
func referenceStep(a, b []referenceNumber, c referenceNumber, fraction int, out string) uint32 {
	var s referenceSum
	for i := range a {
		s.addProduct(a[i], b[i])
	}
	switch c.kind {
	case "nan":
		s.nan = true
	case "inf":
		s.addInfinity(c.negative)
	default:
		s.add(c.significand, c.negative, c.exponent, c.fraction)
	}
	sum, top := s.truncated(fraction)
	switch {
	case s.nan || s.positive && s.negative:
		return map[string]uint32{"f16": 0x7FFF, "f32": 0x7FFFFFFF, "coarse": 0x7FFFFFFF}[out]
	case s.positive || s.negative:
		return referenceRound(big.NewInt(int64(1-2*b2i(s.negative))), 4000, out)
	case sum.Sign() == 0:
		return 0
	}
	return referenceRound(sum, top-fraction, out)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// referenceRound encodes sum · 2^exponent: to nearest even for f16, toward zero for the others.
func referenceRound(sum *big.Int, exponent int, out string) uint32 {
	magnitude := new(big.Int).Abs(sum)
	top := magnitude.BitLen() - 1 + exponent
	mantissa, least, most, stored := 23, -126, 127, 23
	switch out {
	case "f16":
		mantissa, least, most, stored = 10, -14, 15, 10
	case "coarse":
		mantissa = 13
	}
	unit := max(top, least) - mantissa
	if exponent >= unit {
		magnitude.Lsh(magnitude, uint(exponent-unit))
	} else {
		low := uint(unit - exponent)
		if out == "f16" { // to nearest, ties to even
			half := new(big.Int).Lsh(big.NewInt(1), low-1)
			odd := new(big.Int).And(new(big.Int).Rsh(magnitude, low), big.NewInt(1))
			magnitude.Add(magnitude, half).Sub(magnitude, big.NewInt(1)).Add(magnitude, odd)
		}
		magnitude.Rsh(magnitude, low)
	}
	units := uint32(0)
	if magnitude.IsUint64() {
		units = uint32(magnitude.Uint64())
	}
	if units == 0 && top <= most {
		return 0
	}
	base := uint32(max(top, least)-least) << stored // a carry increments the exponent field
	code := base + units<<(stored-mantissa)
	if infinity := uint32(2*most+1) << stored; top > most || code > infinity {
		code = infinity
	}
	if sum.Sign() < 0 {
		code |= uint32(2*most+2) << stored
	}
	return code
}

// referenceProduct computes one element of D, written out for every generation.
func referenceProduct(in *Instruction, chip Chip, a, b []uint32, c uint32) uint32 {
	var x, y []referenceNumber
	for i := range a {
		x, y = append(x, referenceDecode(in.A, a[i])), append(y, referenceDecode(in.B, b[i]))
	}
	groups := func(n int) (g [][]int) {
		for k := range a {
			if k%n == 0 {
				g = append(g, nil)
			}
			g[len(g)-1] = append(g[len(g)-1], k)
		}
		return g
	}
	run := func(start uint32, groups [][]int, fraction int, t Type, out string) uint32 {
		for _, g := range groups {
			var p, q []referenceNumber
			for _, k := range g {
				p, q = append(p, x[k]), append(q, y[k])
			}
			start = referenceStep(p, q, referenceDecode(t, start), fraction, out)
		}
		return start
	}
	k, eight := len(a), in.A == E4M3 || in.A == E5M2
	out := in.D.String()
	newer := chip == Hopper || chip == Blackwell
	switch {
	case in.Op == WGMMA && eight && in.D == F32:
		return run(c, groups(k), 13, F32, "coarse")
	case in.Op == WGMMA && eight:
		return run(c, groups(k), 13, F16, out)
	case eight && chip == Workstation:
		return run(c, groups(k), 25, in.D, out)
	case eight && newer:
		for i := range x {
			x[i], y[i] = x[i].widened(), y[i].widened()
		}
		halves := make([][]int, 2)
		for i := range x {
			halves[i/2%2] = append(halves[i/2%2], i)
		}
		sum := run(0, halves, 25, in.D, out)
		if in.D == F16 {
			return uint32(nearestFloat16(float16Value(sum) + float16Value(c)))
		}
		total := math.Float32frombits(sum) + math.Float32frombits(c)
		if total != total {
			return 0x7FFFFFFF
		}
		return math.Float32bits(total)
	case eight && in.D == F32:
		return run(c, groups(16), 13, F32, "coarse")
	case eight:
		return run(c, groups(16), 13, F16, out)
	case in.C == F16 && in.D == F32: // wmma
		return run(math.Float32bits(float32(float16Value(c))), referenceGroups(in, chip, groups), referenceFraction(chip), F32, "f32")
	case in.C == F32 && in.D == F16: // wmma
		sum := run(c, referenceGroups(in, chip, groups), referenceFraction(chip), F32, "f32")
		return uint32(nearestFloat16(float64(math.Float32frombits(sum))))
	}
	return run(c, referenceGroups(in, chip, groups), referenceFraction(chip), in.D, out)
}

func referenceFraction(chip Chip) int {
	return map[Chip]int{Ampere: 24, Ada: 24, Hopper: 25, Blackwell: 25, Workstation: 25}[chip]
}

func referenceGroups(in *Instruction, chip Chip, groups func(int) [][]int) [][]int {
	older := chip == Ampere || chip == Ada
	switch {
	case in.A == TF32 && (older || in.Op == WMMA):
		return groups(4)
	case older && in.Shape.K > 8:
		return groups(8)
	}
	return groups(in.Shape.K)
}

// float16Value returns the value of an f16 encoding; nearestFloat16 finds the nearest f16 by
// search.
func float16Value(code uint32) float64 {
	n := referenceDecode(F16, code)
	sign := float64(1 - 2*b2i(n.negative))
	switch n.kind {
	case "nan":
		return math.NaN()
	case "inf":
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(float64(n.significand), n.exponent-int(n.fraction))
}

func nearestFloat16(x float64) uint32 {
	if x != x {
		return 0x7FFF
	}
	sign := uint32(b2i(math.Signbit(x))) << 15
	x = math.Abs(x)
	if x >= 65520 {
		return sign | 0x7C00
	}
	low, high := uint32(0), uint32(0x7C00) // float16Value(low) <= x < float16Value(high)
	for high-low > 1 {
		if middle := (low + high) / 2; float16Value(middle) <= x {
			low = middle
		} else {
			high = middle
		}
	}
	up := float16Value(high)
	if high == 0x7C00 {
		up = 65536
	}
	switch below, above := x-float16Value(low), up-x; {
	case above < below || above == below && low%2 == 1:
		return sign | high
	}
	return sign | low
}

// drawElements draw elements for different numerical hazards.
var drawElements = map[string]func(random *rand.Rand, t Type) uint32{
	"any bits": func(random *rand.Rand, t Type) uint32 { return uint32(random.Uint64()) & (1<<t.Bits() - 1) },
	"near each other": func(random *rand.Rand, t Type) uint32 { // cancellation and ties: few significant bits
		return drawFloat(t, random, -2, 2, 2)
	},
	"wide":    func(random *rand.Rand, t Type) uint32 { return drawFloat(t, random, -20, 15, 30) },
	"huge":    func(random *rand.Rand, t Type) uint32 { return drawFloat(t, random, 6, 140, 30) },
	"tiny":    func(random *rand.Rand, t Type) uint32 { return drawFloat(t, random, -150, -4, 30) },
	"masked":  func(random *rand.Rand, t Type) uint32 { return drawMasked(random, t, 2) },
	"special": func(random *rand.Rand, t Type) uint32 { return drawMasked(random, t, 40) },
}

// drawFloat draws a number with an exponent in a range, clamped to the format, and at most fraction
// bits of mantissa.
func drawFloat(t Type, random *rand.Rand, low, high int, fraction uint) uint32 {
	l := floatLayouts[t]
	bias := 1<<(l.exponent-1) - 1
	field := min(max(low+random.IntN(high-low+1)+bias, 0), 1<<l.exponent-2)
	mantissa := random.Uint32() & (1<<l.mantissa - 1)
	if fraction < l.mantissa {
		mantissa = mantissa >> (l.mantissa - fraction) << (l.mantissa - fraction)
	}
	code := random.Uint32()&1<<(l.exponent+l.mantissa) | uint32(field)<<l.mantissa | mantissa
	return code<<l.dropped | random.Uint32()&(1<<l.dropped-1)
}

// drawMasked draws a zero once in n, else a number of any magnitude, and occasionally an infinity
// or a NaN.
func drawMasked(random *rand.Rand, t Type, n int) uint32 {
	l := floatLayouts[t]
	sign := random.Uint32() & 1 << (l.exponent + l.mantissa)
	switch {
	case random.IntN(n) == 0:
		return sign << l.dropped
	case n > 10 && random.IntN(60) == 0:
		return (sign | (1<<l.exponent-1)<<l.mantissa | random.Uint32()&1<<(l.mantissa-1)) << l.dropped
	}
	return drawFloat(t, random, -120, 120, 30)
}

// floatProducts lists the products whose rounding the PTX ISA leaves open.
func floatProducts() []string {
	var texts []string
	for _, t := range []string{"f16.f16.f16.f16", "f32.f16.f16.f32", "f32.bf16.bf16.f32"} {
		texts = append(texts, "mma.sync.aligned.m16n8k8.row.col."+t, "mma.sync.aligned.m16n8k16.row.col."+t)
	}
	texts = append(texts, "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
	for _, d := range []string{"f16", "f32"} {
		for _, ab := range []string{"e4m3.e4m3", "e4m3.e5m2", "e5m2.e4m3", "e5m2.e5m2"} {
			for _, k := range []string{"16", "32"} {
				texts = append(texts, "mma.sync.aligned.m16n8k"+k+".row.col."+d+"."+ab+"."+d)
			}
			texts = append(texts, "wgmma.mma_async.sync.aligned.m64n8k32."+d+"."+ab)
		}
		texts = append(texts, "wgmma.mma_async.sync.aligned.m64n8k16."+d+".f16.f16")
		for _, c := range []string{"f16", "f32"} {
			texts = append(texts, "wmma.mma.sync.aligned.row.col.m8n32k16."+d+"."+c)
		}
	}
	return append(texts, "wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32",
		"wmma.mma.sync.aligned.row.col.m32n8k16.f32.bf16.bf16.f32",
		"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32")
}

func TestExactMatchesReference(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var s Scratch
	for _, text := range floatProducts() {
		in := mustLookup(t, text)
		for _, chip := range []Chip{Ampere, Ada, Hopper, Blackwell, Workstation} {
			p, err := in.Product(chip, Exact)
			if err != nil {
				continue // TestChipSupport covers these
			}
			for name, draw := range drawElements {
				random := rand.New(rand.NewPCG(11, uint64(chip)))
				matrix := func(n int, t Type) []uint32 {
					m := make([]uint32, n)
					for i := range m {
						m[i] = draw(random, t)
					}
					return m
				}
				sh := in.Shape
				a, b, c := matrix(sh.M*sh.K, in.A), matrix(sh.N*sh.K, in.B), matrix(sh.M*sh.N, in.C)
				got, want := make([]uint32, len(c)), make([]uint32, len(c))
				p.Multiply(&s, got, a, b, c)
				for i := range want {
					row, col := i/sh.N, i%sh.N
					want[i] = referenceProduct(in, chip, a[row*sh.K:][:sh.K], b[col*sh.K:][:sh.K], c[i])
				}
				compareMatrices(t, fmt.Sprintf("%s on %s, %s", text, chip, name), got, want, sh.N)
			}
		}
	}
}
