package array

import (
	"encoding/binary"
	"math"

	"attune/internal/fp8"
	"attune/internal/half"
)

// decode decodes floats.
func decode(t DType, values []float64, data []byte) {
	for i := range values {
		switch t {
		case F64:
			values[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
		case F32:
			values[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
		case F16:
			values[i] = float64(half.Float16(binary.LittleEndian.Uint16(data[2*i:])).Float32())
		case BF16:
			values[i] = float64(half.BFloat16(binary.LittleEndian.Uint16(data[2*i:])).Float32())
		case E4M3:
			values[i] = float64(fp8.E4M3(data[i]).Float32())
		case E5M2:
			values[i] = float64(fp8.E5M2(data[i]).Float32())
		}
	}
}

// decodeInts decodes integers.
func decodeInts(t DType, values []int64, data []byte) {
	for i := range values {
		switch t {
		case I8:
			values[i] = int64(int8(data[i]))
		case U8:
			values[i] = int64(data[i])
		case I32:
			values[i] = int64(int32(binary.LittleEndian.Uint32(data[4*i:])))
		case U32:
			values[i] = int64(binary.LittleEndian.Uint32(data[4*i:]))
		case I64, U64:
			values[i] = int64(binary.LittleEndian.Uint64(data[8*i:]))
		}
	}
}

// encode rounds values to a format.
func encode(t DType, data []byte, values []float64) {
	for i, x := range values {
		switch t {
		case F64:
			binary.LittleEndian.PutUint64(data[8*i:], math.Float64bits(x))
		case F32:
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(x)))
		case F16:
			binary.LittleEndian.PutUint16(data[2*i:], uint16(half.Float16FromFloat64(x)))
		case BF16:
			binary.LittleEndian.PutUint16(data[2*i:], uint16(half.BFloat16FromFloat32(roundToOdd(x))))
		case E4M3:
			data[i] = byte(fp8.E4M3FromFloat64(x))
		case E5M2:
			data[i] = e5m2(x)
		default:
			encodeInts(t, data[i*t.Bytes():], []uint64{t.nearest(x)})
		}
	}
}

// encodeInts stores integers in two's complement.
func encodeInts(t DType, data []byte, values []uint64) {
	size := t.Bytes()
	for i, x := range values {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], x)
		copy(data[size*i:][:size], word[:])
	}
}

// roundToOdd narrows a float64 such that a further rounding to fewer bits gives what a single
// rounding would give: an inexact result has its last bit set.
func roundToOdd(x float64) float32 {
	narrow := float32(x)
	if wide := float64(narrow); wide == x || x != x || math.IsInf(wide, 0) {
		return narrow
	}
	bits := math.Float32bits(narrow)
	if math.Abs(float64(narrow)) > math.Abs(x) {
		bits-- // toward zero
	}
	return math.Float32frombits(bits | 1)
}

// e5m2 keeps infinities, unlike cvt.satfinite, so that an array survives a round trip.
func e5m2(x float64) byte {
	const infinity = 0x7C
	switch {
	case math.IsInf(x, 1):
		return infinity
	case math.IsInf(x, -1):
		return infinity | 0x80
	}
	return byte(fp8.E5M2FromFloat64(x))
}

// limits returns the least and the greatest integer of a format.
func (t DType) limits() (low int64, high uint64) {
	bits := 8 * t.Bytes()
	if !t.Signed() {
		return 0, math.MaxUint64 >> (64 - bits)
	}
	return -1 << (bits - 1), 1<<(bits-1) - 1
}

// largest returns the greatest finite value of a float.
func (t DType) largest() float64 {
	switch t {
	case F32:
		return math.MaxFloat32
	case F16:
		return 65504
	case BF16:
		return 0x1.FEp127
	case E4M3:
		return fp8.MaxE4M3
	case E5M2:
		return fp8.MaxE5M2
	}
	return math.MaxFloat64
}

// nearest rounds to the nearest integer of a format, in two's complement.
func (t DType) nearest(x float64) uint64 {
	low, high := t.limits()
	x = math.RoundToEven(x)
	switch {
	case x != x:
		return 0
	case x <= float64(low):
		return uint64(low)
	case x >= float64(high):
		return high
	case x < 0:
		return uint64(int64(x))
	}
	return uint64(x)
}
