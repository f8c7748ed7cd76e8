package fp8

import "math"

// Scale says which numbers share a descale factor.
type Scale uint8

const (
	// PerHead gives every head of every batch its own factor.
	PerHead Scale = iota
	// PerTensor gives all heads the same factor.
	PerTensor
)

func (s Scale) String() string {
	if s == PerTensor {
		return "per-tensor"
	}
	return "per-head"
}

// smallestDescale keeps the factor a normal float32: a GPU that flushes subnormals would read a smaller one as zero.
// Numbers so small that it matters (amax below 5.3e-36) keep fewer than all bits of their codes.
const smallestDescale = 0x1p-126

// Descale is the factor that maps the largest magnitude of the values to 448. Values that are not finite have no say;
// a group of zeros gets 1.
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
	return float32(max(amax/MaxE4M3, smallestDescale))
}

// Quantize writes the E4M3 code of each value divided by descale into codes, which is at least as long.
//
// The result is the E4M3 number nearest to the true quotient: two float32 numbers are never so close to a tie between
// neighbouring codes, without being one, that the division in float64 could hide it.
func Quantize(codes []byte, values []float32, descale float32) {
	const (
		smallest = (1023 - 6) << 52                // 2^-6, the smallest normal number, as a float64
		normals  = (1023+8)<<52 + 3<<50 - smallest // from there to 448
		cut      = 52 - 3                          // bits of the mantissa that a code has no room for
	)
	codes = codes[:len(values)]
	divisor := float64(descale)
	for i, v := range values {
		x := float64(v) / divisor
		bits := math.Float64bits(x)
		magnitude := bits &^ (1 << 63)
		if magnitude-smallest > normals { // rarely, so that a processor foresees it
			codes[i] = byte(E4M3FromFloat64(x))
			continue
		}
		// Just under half a unit, or exactly half where the last bit kept is odd, carries upwards when it should. The exponent only has another bias.
		units := (magnitude + (1<<(cut-1) - 1) + magnitude>>cut&1) >> cut
		codes[i] = byte(bits>>56)&0x80 | byte(units-(1023-7)<<3)
	}
}

// Dequantize writes what the codes are worth into values, which is at least as long.
func Dequantize(values []float64, codes []byte, descale float32) {
	values = values[:len(codes)]
	for i, code := range codes {
		values[i] = float64(e4m3Values[code]) * float64(descale)
	}
}
