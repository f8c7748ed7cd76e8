package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"attune/internal/finding"
)

// replaceAll makes a tensor map in zeroed shared memory at %r10: 16 columns and 4 rows of u32 at
// %rd1, in boxes of 8 by 2. Thread 0 replaces the fields.
const replaceAll = `mov.u32 %r10, m;
	mad.lo.u32 %r12, %r0, 4, %r10;
	st.shared.u32 [%r12], 0;
	bar.warp.sync -1;
	setp.eq.u32 %p1, %r0, 0;
	cvt.u64.u32 %rd3, %r10;
	mov.b32 %r2, 16;
	mov.b64 %rd4, 64;
	@%p1 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd3], %rd1;
	@%p1 tensormap.replace.tile.rank.shared::cta.b1024.b32 [%rd3+0], 0x1;
	@%p1 tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r10], 0, 8;
	@%p1 tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r10], 1, 2;
	@%p1 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r10], 0, %r2;
	@%p1 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r10], 1, 4;
	@%p1 tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r10], 0, %rd4;
	@%p1 tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r10], 0, 1;
	@%p1 tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r10], 1, 1;
	@%p1 tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r10], 2;
	@%p1 tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r10], 0;
	@%p1 tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r10], 0;
	@%p1 tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r10], 0;
	bar.warp.sync -1;
	add.u64 %rd5, %rd0, 128;
`

// The map is copied to byte 128 of out. Two rows of the box at column 4, row 1 are loaded.
const (
	mapVariables = ".shared .align 128 .b8 m[128];\n.shared .align 128 .b8 s[64];\n.shared .align 8 .b8 bar[8];\n"
	publishMap   = "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd5], [%r10], 128;\n"
	acquireMap   = "fence.proxy.tensormap::generic.acquire.gpu [%rd5], 128;\n"
	loadBox      = `mov.u32 %r13, s;
	mov.u32 %r11, bar;
	mov.u32 %r3, 4;
	mov.u32 %r4, 1;
	@%p1 mbarrier.init.shared::cta.b64 [%r11], 1;
	bar.sync 0;
	@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 64;
	@%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r13], [%rd5, {%r3, %r4}], [%r11];
WAIT:
	mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r11], 0;
	@!%p2 bra WAIT;
	and.b32 %r5, %r0, 15;
	mad.lo.u32 %r6, %r5, 4, %r13;
	ld.shared.u32 %r1, [%r6];
	st.global.u32 [%rd31], %r1;
`
)

func TestTensorMapReplace(t *testing.T) {
	t.Parallel()
	g := setup{arch: "sm_90a", out: 128, in: each(64, func(i uint32) uint32 { return i }), text: kernelWith(mapVariables, replaceAll+publishMap+acquireMap+loadBox+"ret;")}
	got := simulate(t, g)
	if len(got.findings) > 0 {
		t.Fatal(got.findings)
	}
	want := each(16, func(i uint32) uint32 { return (1+i/8)*16 + 4 + i%8 })
	if !slices.Equal(got.out[:16], want) {
		t.Errorf("the box is %v, want %v", got.out[:16], want)
	}
	// The fields of a map in global memory, by a generic and by a global address.
	g.text = kernelWith(mapVariables, replaceAll+publishMap+"bar.warp.sync -1;\n"+
		"@%p1 tensormap.replace.tile.global_address.global.b1024.b64 [%rd5], %rd1;\n"+
		"@%p1 tensormap.replace.tile.global_dim.b1024.b32 [%rd5], 0, 8;\n"+acquireMap+loadBox+"ret;")
	got = simulate(t, g)
	want = each(16, func(i uint32) uint32 {
		if i%8 > 3 {
			return 0 // past the narrower tensor
		}
		return (1+i/8)*16 + 4 + i%8
	})
	if len(got.findings) > 0 || !slices.Equal(got.out[:16], want) {
		t.Errorf("a changed map: the box is %v, want %v; findings %v", got.out[:16], want, got.findings)
	}
}

func TestTensorMapDefects(t *testing.T) {
	t.Parallel()
	const load = "@%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r13], [%rd5, {%r3, %r4}], [%r11]"
	right := replaceAll + publishMap + acquireMap + loadBox
	for _, d := range []defect{
		{
			name: "no fence before the use", kind: finding.MissingFence, at: load, contains: []string{"fence.proxy.tensormap::generic.acquire"},
			wrong: replaceAll + publishMap + loadBox,
		},
		{
			name: "a fence before the last change", kind: finding.MissingFence, at: load,
			wrong: replaceAll + publishMap + acquireMap + "bar.warp.sync -1;\n@%p1 tensormap.replace.tile.global_dim.global.b1024.b32 [%rd5], 0, 16;\n" + loadBox,
		},
		{
			name: "another thread changes the map", kind: finding.Race, with: "@%p1 tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r10], 0",
			wrong: strings.Replace(replaceAll, "fill_mode.shared::cta.b1024.b32 [%r10], 0;\n	bar.warp.sync -1;", "fill_mode.shared::cta.b1024.b32 [%r10], 0;\n"+
				"setp.eq.u32 %p3, %r0, 1;\n@%p3 tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r10], 1;\nbar.warp.sync -1;\n", 1) + publishMap + acquireMap + loadBox,
			at: "@%p3 tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r10], 1",
		},
		{
			name: "bytes that are no map", kind: finding.Undefined, contains: []string{"not a tensor map"}, at: "tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r10], 1",
			wrong: "mov.u32 %r10, m;\nmad.lo.u32 %r12, %r0, 4, %r10;\nst.shared.u32 [%r12], 7;\nbar.warp.sync -1;\nsetp.ne.u32 %p1, %r0, 0;\n@%p1 bra END;\n" +
				"tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r10], 1;\nEND:\n",
		},
		{
			name: "an address of 32 bytes", kind: finding.Misaligned, contains: []string{"multiple of 64"}, at: "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd5+32], [%r10], 128",
			wrong: replaceAll + strings.Replace(publishMap, "[%rd5]", "[%rd5+32]", 1),
		},
		{
			name: "an address past the end", kind: finding.OutOfBounds, at: "@%p1 tensormap.replace.tile.rank.global.b1024.b32 [%rd5+512], 1",
			wrong: replaceAll + "@%p1 tensormap.replace.tile.rank.global.b1024.b32 [%rd5+512], 1;\n",
		},
		{
			name: "a copy from the end of shared memory", kind: finding.OutOfBounds, at: "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd5], [%r10+4096], 128",
			wrong: replaceAll + strings.Replace(publishMap, "[%r10]", "[%r10+4096]", 1),
		},
		{
			name: "half a warp copies", kind: finding.DivergentBarrier, at: "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd5], [%r10], 128",
			wrong: replaceAll + "setp.lt.u32 %p4, %r0, 16;\n@%p4 bra END;\n" + publishMap + "END:\n bar.warp.sync -1;\n",
		},
	} {
		d.declarations, d.right = mapVariables, right
		d.setup = setup{arch: "sm_90a", out: 128, in: each(64, func(i uint32) uint32 { return i })}
		d.check(t)
	}
}

func TestTensorMapForms(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"tensormap.replace.tile.rank.shared::cta.b1024.b64 [%rd0], 1;",
		"tensormap.replace.tile.rank.shared::cta.b512.b32 [%rd0], 1;",
		"tensormap.replace.tile.rank.local.b1024.b32 [%rd0], 1;",
		"tensormap.replace.tile.rank.b1024.b32 [%rd0], 0, 1;",
		"tensormap.replace.tile.rank.b1024.b32 %rd0, 1;",
		"tensormap.replace.tile.rank.b1024.b32 [%rd0], %rd1;",
		"tensormap.replace.tile.swizzle_atomicity.b1024.b32 [%rd0], 1;",
		"tensormap.replace.tile.box_dim.b1024.b32 [%rd0], %r1, 1;",
		"tensormap.replace.tile.box_dim.b1024.b32 [%rd0], 5, 1;",
		"tensormap.replace.tile;",
		"tensormap.replace.im2col.rank.b1024.b32 [%rd0], 1;",
		"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd0], [%r1], 64;",
		"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.acquire.gpu.sync.aligned [%rd0], [%r1], 128;",
		"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned %rd0, [%r1], 128;",
		"tensormap.cp_fenceproxy;",
		"fence.proxy.tensormap::generic.acquire.gpu;",
	} {
		_, err := try(t, setup{arch: "sm_90a", text: kernel(text + "\n ret;")})
		var unsupported *UnsupportedError
		if !errors.As(err, &unsupported) {
			t.Errorf("%s: error %v", text, err)
		}
	}
	if got := simulate(t, setup{arch: "sm_90a", text: kernel("fence.proxy.tensormap::generic.release.gpu;\n ret;")}); len(got.findings) > 0 {
		t.Error(got.findings)
	}
}
