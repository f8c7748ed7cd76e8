package array

import (
	"slices"
	"testing"

	"attune/internal/tensormap"
)

func TestDTypes(t *testing.T) {
	for _, c := range []struct {
		dtype         DType
		bytes         int
		float, signed bool
		abs, rel      float64
		mapped        string
	}{
		{F64, 8, true, true, 0x1p-1074, 0x1p-53, "f64"},
		{F32, 4, true, true, 0x1p-150, 0x1p-24, "f32"},
		{F16, 2, true, true, 0x1p-25, 0x1p-11, "f16"},
		{BF16, 2, true, true, 0x1p-134, 0x1p-8, "bf16"},
		{E4M3, 1, true, true, 0x1p-10, 0x1p-4, "u8"},
		{E5M2, 1, true, true, 0x1p-17, 0x1p-3, "u8"},
		{I8, 1, false, true, 0, 0, "u8"},
		{U8, 1, false, false, 0, 0, "u8"},
		{I32, 4, false, true, 0, 0, "s32"},
		{U32, 4, false, false, 0, 0, "u32"},
		{I64, 8, false, true, 0, 0, "s64"},
		{U64, 8, false, false, 0, 0, "u64"},
	} {
		d := c.dtype
		abs, rel := d.Rounding()
		if d.Bytes() != c.bytes || d.Float() != c.float || d.Signed() != c.signed || abs != c.abs || rel != c.rel {
			t.Errorf("%s has %d bytes, float %v, signed %v, rounding %g and %g", d, d.Bytes(), d.Float(), d.Signed(), abs, rel)
		}
		if d.TensorMapType() != c.mapped || !slices.Contains(tensormap.Types, c.mapped) || !slices.Contains(DTypes, d) {
			t.Errorf("%s is %s in a tensor map", d, d.TensorMapType())
		}
	}
	if len(DTypes) != 12 || DType("f8").Bytes() != 0 {
		t.Errorf("there are %v", DTypes)
	}
}

func TestLen(t *testing.T) {
	if a := (&Array{Shape: []int{2, 3, 4}}); a.Len() != 24 {
		t.Errorf("%v has %d elements", a.Shape, a.Len())
	}
}
