package count

import (
	"strings"
	"testing"

	"attune/internal/sim/mma"
)

// TestMachineProductOf compares with what ptxas 13.0 makes of the products of PTX.
func TestMachineProductOf(t *testing.T) {
	check := func(text, arch string, unit TensorUnit, n uint64, source TensorSource) {
		t.Helper()
		words := strings.Split(text, ".")
		in, err := mma.Lookup(words[0], words[1:])
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		want := MachineProduct{unit, n, source}
		if got := MachineProductOf(in, arch); got != want {
			t.Errorf("%s on %s is %+v; want %+v", text, arch, got, want)
		}
	}
	for _, arch := range []string{"sm_80", "sm_89", "sm_90a"} {
		check("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", arch, HMMA, 1, FP16ToFP32)
		check("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", arch, HMMA, 1, FP16ToFP16)
		check("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", arch, HMMA, 1, BF16)
		check("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", arch, HMMA, 1, TF32)
		check("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", arch, IMMA, 1, Int8)
		check("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc", arch, BMMA, 1, Bits)
		check("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", arch, DMMA, 1, FP64)
		check("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", arch, HMMA, 2, FP16ToFP32)
		check("wmma.mma.sync.aligned.row.col.m32n8k16.f16.f16", arch, HMMA, 2, FP16ToFP16)
		check("wmma.mma.sync.aligned.row.col.m8n32k16.f32.bf16.bf16.f32", arch, HMMA, 2, BF16)
		check("wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32", arch, HMMA, 4, TF32)
		check("wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32", arch, IMMA, 2, Int8)
	}
	const e4m3, s4 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"
	check(e4m3, "sm_89", QMMA, 1, FP8)
	check(e4m3, "sm_90a", HMMA, 2, FP16ToFP32) // sm_90a has FP8 for warpgroups only
	check(e4m3, "sm_100a", HMMA, 2, FP16ToFP32)
	check(e4m3, "sm_120a", QMMA, 1, FP8)
	check("mma.sync.aligned.m16n8k32.row.col.f16.e5m2.e4m3.f16", "sm_90a", HMMA, 2, FP16ToFP16)
	check(s4, "sm_80", IMMA, 1, Int4)
	check(s4, "sm_90a", IMMA, 2, Int8)
	check("wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32", "sm_89", BMMA, 1, Bits)
	check("wmma.mma.xor.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32", "sm_90a", BMMA, 2, Bits)
	check("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "sm_90a", HMMA, 1, FP16ToFP32)
	check("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3", "sm_90a", QMMA, 1, FP8)
	check("wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8", "sm_90a", IMMA, 1, Int8)
}
