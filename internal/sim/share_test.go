package sim

import "testing"

// TestBlocksShareMemory has blocks that run at the same time read and write the same bytes in every
// way that does not make them run interleaved. The kernel races, and the simulator must not: the Go
// race detector fails this test if an access is not synchronised. The chunks of the loop cross a
// page boundary of the shadow.
func TestBlocksShareMemory(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"plain": `ld.global.u32 %r1, [%rd2];
	st.global.u32 [%rd2], %r63;`,
		"read-only": `ld.global.nc.u32 %r1, [%rd2];
	st.global.u32 [%rd2], %r61;`,
		"vectors and bytes": `ld.global.v4.u32 {%r1,%r3,%r4,%r5}, [%rd0+4080];
	st.global.u8 [%rd2+1], %r1;
	st.global.v2.u32 [%rd0+4096], {%r1,%r61};`,
		"generic": `cvta.global.u64 %rd3, %rd2;
	ld.u16 %r1, [%rd3];
	st.u32 [%rd3], %r61;`,
		"fragments": `wmma.load.c.sync.aligned.row.m16n16k16.global.f16 {%r3,%r4,%r5,%r6}, [%rd0], 16;
	wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd0], {%r3,%r4,%r5,%r6}, 16;`,
		"cp.async": `mov.u32 %r3, s;
	mad.lo.u32 %r3, %r0, 16, %r3;
	cp.async.cg.shared.global [%r3], [%rd0+4080], 16;
	cp.async.ca.shared.global [%r3], [%rd0], 16, 5;
	cp.async.wait_all;
	st.global.u32 [%rd0+4080], %r61;
	st.global.u32 [%rd0], %r61;`,
		"bulk stores": `mov.u32 %r3, s;
	fence.proxy.async;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0+4080], [%r3], 32;
	@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd0], [%r3], 16;
	cp.async.bulk.commit_group;
	cp.async.bulk.wait_group 0;
	ld.global.u32 %r1, [%rd0+4080];`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := kernelWith(sharedArray, fillShared+`
	mad.wide.u32 %rd2, %r0, 4, %rd0;
	mov.u32 %r50, 0;
LOOP:
	`+body+`
	add.u32 %r50, %r50, 1;
	setp.lt.u32 %p5, %r50, 16;
	@%p5 bra LOOP;
	ret;`)
			for _, unchecked := range []bool{false, true} {
				g := setup{text: text, blocks: 24, workers: 8, out: 1200, arch: "sm_90a", unchecked: unchecked, writtenBefore: true}
				if got := simulate(t, g); unchecked == (len(got.findings) > 0) {
					t.Errorf("unchecked %v: findings %v", unchecked, got.findings)
				}
			}
		})
	}
}
