package fp8

import "math"

// Scale is the granularity of descale factors: which elements share one.
type Scale uint8

const (
	// PerHead uses one factor for each head of each batch.
	PerHead Scale = iota
	// PerTensor uses one factor for all heads.
	PerTensor
)

func (s Scale) String() string {
	if s == PerTensor {
		return "per-tensor"
	}
	return "per-head"
}

// minDescale keeps the factor a normal float32: a GPU that flushes subnormals would read a smaller
// one as zero. Groups whose largest magnitude is below 5.3e-36 lose precision to this limit.
const minDescale = 0x1p-126

// Descale returns the factor that maps the largest finite magnitude of the values to 448. It
// returns 1 if all finite values are zero.
func Descale(values []float32) float32 {
	amax := 0.0
	for _, v := range values {
		if a := math.Abs(float64(v)); a > amax && a <= math.MaxFloat32 {
			amax = a
		}
	}
	if amax == 0 {
		return 1
	}
	return float32(max(amax/MaxE4M3, minDescale))
}

// Quantize writes the E4M3 code of each value divided by descale into codes, which must be at least
// as long as values.
//
// The result is the E4M3 value nearest to the exact quotient. The float64 division cannot spoil
// that: the quotient of two float32 values that is not a tie between neighbouring codes is farther
// from the tie than a float64 rounding error.
func Quantize(codes []byte, values []float32, descale float32) {
	const (
		smallest = (1023 - 6) << 52                // float64 bits of 2^-6, the smallest normal
		normals  = (1023+8)<<52 + 3<<50 - smallest // float64 bits from 2^-6 to 448
		cut      = 52 - 3                          // mantissa bits of a float64 that a code drops
	)
	codes = codes[:len(values)]
	divisor := float64(descale)
	for i, v := range values {
		x := float64(v) / divisor
		bits := math.Float64bits(x)
		magnitude := bits &^ (1 << 63)
		if magnitude-smallest > normals { // rare, hence well predicted
			codes[i] = byte(E4M3FromFloat64(x))
			continue
		}
		// Round to nearest even: add just under half a unit, or exactly half if the last kept bit
		// is odd. A carry into the exponent is correct; the formats differ only in the bias.
		units := (magnitude + (1<<(cut-1) - 1) + magnitude>>cut&1) >> cut
		codes[i] = byte(bits>>56)&0x80 | byte(units-(1023-7)<<3)
	}
}

// Dequantize writes the value of each code times descale into values, which must be at least as
// long as codes.
func Dequantize(values []float64, codes []byte, descale float32) {
	values = values[:len(codes)]
	for i, code := range codes {
		values[i] = float64(e4m3Values[code]) * float64(descale)
	}
}
