package sim

import (
	"strings"
	"testing"

	"attune/internal/finding"
)

// TestBulkDefects tests defects of bulk copies, which use the async proxy.
func TestBulkDefects(t *testing.T) {
	t.Parallel()
	const declared = ".shared .align 128 .b8 s[256];\n.shared .align 8 .b8 bar[8];\n.shared .align 4 .b8 flag[4];\n"
	const ready = `mov.u32 %r10, s;
	mov.u32 %r11, bar;
	mad.lo.u32 %r12, %r0, 4, %r10;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared::cta.b64 [%r11], 1;
	@%p1 st.shared.u32 [flag], 0;
	bar.sync 0;
`
	const load = `@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 256;
	@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd1], 256, [%r11];
`
	const wait = "WAIT:\n mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r11], 0, 100;\n @!%p2 bra WAIT;\n"
	const once = "@!%p1 bra PAST;\nWAIT:\n mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r11], 0;\n @!%p2 bra WAIT;\nPAST:\n"
	const read = "ld.shared.u32 %r1, [%r12];\n st.global.u32 [%rd31], %r1;\n"
	const store = "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 256;\n @%p1 cp.async.bulk.commit_group;\n"
	check := func(d defect) {
		t.Helper()
		d.declarations = declared
		d.setup.threads = 64
		d.setup.in = each(64, func(i uint32) uint32 { return i })
		d.check(t)
	}
	loads := "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd1], 256, [%r11]"
	stores := "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 256"
	check(defect{
		name: "no wait", kind: finding.MissingWait,
		wrong: ready + load + "bar.sync 0;\n" + read + "bar.sync 0;\n" + once, right: ready + load + wait + read,
		at: "ld.shared.u32 %r1, [%r12]", with: loads,
	})
	check(defect{
		name: "one thread waits, and nothing orders the others after it", kind: finding.Race,
		wrong: ready + load + once + "@%p1 st.volatile.shared.u32 [flag], 1;\nSPIN:\n ld.volatile.shared.u32 %r5, [flag];\n" +
			"setp.eq.u32 %p4, %r5, 0;\n @%p4 bra SPIN;\n @%p1 bra END;\n" + read + "END:",
		right: ready + load + once + "bar.sync 0;\n" + read,
		at:    "ld.shared.u32 %r1, [%r12]", with: loads,
	})
	check(defect{
		name: "the target is still read", kind: finding.Race,
		wrong: ready + "st.shared.u32 [%r12], %r0;\n fence.proxy.async;\n bar.sync 0;\n ld.shared.u32 %r1, [%r12];\n" + load + wait,
		right: ready + "st.shared.u32 [%r12], %r0;\n fence.proxy.async;\n bar.sync 0;\n ld.shared.u32 %r1, [%r12];\n bar.sync 0;\n" + load + wait,
		at:    loads, with: "ld.shared.u32 %r1, [%r12]",
	})
	check(defect{
		name: "the target is written after the fence", kind: finding.MissingFence,
		wrong: ready + "fence.proxy.async;\n st.shared.u32 [%r12], %r0;\n bar.sync 0;\n" + load + wait,
		right: ready + "st.shared.u32 [%r12], %r0;\n bar.sync 0;\n fence.proxy.async;\n" + load + wait,
		at:    loads, with: "st.shared.u32 [%r12], %r0", contains: []string{"fence.proxy.async"},
	})
	check(defect{
		name: "a fence of an unordered thread", kind: finding.MissingFence,
		wrong: ready + "st.shared.u32 [%r12], %r0;\n bar.sync 0;\n setp.eq.u32 %p3, %r0, 40;\n @%p3 fence.proxy.async;\n" + store +
			"@%p1 cp.async.bulk.wait_group 0;",
		right: ready + "st.shared.u32 [%r12], %r0;\n bar.sync 0;\n setp.eq.u32 %p3, %r0, 40;\n @%p3 fence.proxy.async;\n bar.sync 0;\n" + store +
			"@%p1 cp.async.bulk.wait_group 0;",
		at: stores, with: "st.shared.u32 [%r12], %r0",
	})
	check(defect{
		name: "the block ends before the source is read", kind: finding.MissingWait,
		wrong: ready + "st.shared.u32 [%r12], %r0;\n fence.proxy.async;\n bar.sync 0;\n" + store,
		right: ready + "st.shared.u32 [%r12], %r0;\n fence.proxy.async;\n bar.sync 0;\n" + store + "@%p1 cp.async.bulk.wait_group.read 0;",
		at:    stores, contains: []string{"the block ends"},
	})
	check(defect{
		name: "the block ends before the target is written", kind: finding.MissingWait,
		wrong: ready + load, right: ready + load + wait,
		at: loads, with: "@%p1 mbarrier.init.shared::cta.b64 [%r11], 1", contains: []string{"the block ends"},
	})
	check(defect{
		name: "the target of a store is read after wait_group.read", kind: finding.MissingWait,
		wrong: ready + "st.shared.u32 [%r12], %r0;\n fence.proxy.async;\n bar.sync 0;\n" + store +
			"@%p1 cp.async.bulk.wait_group.read 0;\n bar.sync 0;\n ld.global.u32 %r1, [%rd31];",
		right: ready + "st.shared.u32 [%r12], %r0;\n fence.proxy.async;\n bar.sync 0;\n" + store +
			"@%p1 cp.async.bulk.wait_group 0;\n bar.sync 0;\n ld.global.u32 %r1, [%rd31];",
		at: "ld.global.u32 %r1, [%rd31]", with: stores,
	})
	check(defect{
		name: "a wait for all groups but the last", kind: finding.MissingWait,
		wrong: ready + "st.shared.u32 [%r12], %r0;\n fence.proxy.async;\n bar.sync 0;\n" + store +
			"@%p1 cp.async.bulk.wait_group.read 1;\n bar.sync 0;\n st.shared.u32 [%r12], 0;\n bar.sync 0;\n @%p1 cp.async.bulk.wait_group 0;",
		right: ready + "st.shared.u32 [%r12], %r0;\n fence.proxy.async;\n bar.sync 0;\n" + store +
			"@%p1 cp.async.bulk.commit_group;\n @%p1 cp.async.bulk.wait_group.read 1;\n bar.sync 0;\n st.shared.u32 [%r12], 0;\n" +
			"@%p1 cp.async.bulk.wait_group 0;",
		at: "st.shared.u32 [%r12], 0", with: stores, contains: []string{"the source of an asynchronous copy"},
	})
	check(defect{
		name: "fewer bytes expected than copied", kind: finding.BadBarrier,
		wrong: ready + "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 128;\n" + loads + ";\n" + wait,
		right: ready + load + wait,
		at:    "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r11], 0, 100", with: loads, contains: []string{"128 more bytes have landed"},
	})
	check(defect{
		name: "an mbarrier is invalidated before its copy lands", kind: finding.BadBarrier,
		wrong: ready + load + "@%p1 mbarrier.inval.shared::cta.b64 [%r11];",
		right: ready + load + wait + "bar.sync 0;\n @%p1 mbarrier.inval.shared::cta.b64 [%r11];",
		at:    "@%p1 mbarrier.inval.shared::cta.b64 [%r11]", with: loads,
	})
	check(defect{
		name: "no mbarrier", kind: finding.BadBarrier,
		wrong: ready + "@%p1 mbarrier.inval.shared::cta.b64 [%r11];\n" + loads + ";\n",
		right: ready + load + wait,
		at:    loads, contains: []string{"no initialised mbarrier"},
	})
	check(defect{
		name: "8 bytes off", kind: finding.Misaligned,
		wrong: ready + "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 64;\n" +
			"@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10+8], [%rd1], 64, [%r11];\n" + wait,
		right: ready + load + wait,
		at:    "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10+8], [%rd1], 64, [%r11]",
	})
	check(defect{
		name: "past the end of the source", kind: finding.OutOfBounds,
		wrong: ready + "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 64;\n" +
			"@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd1+208], 64, [%r11];\n" + wait,
		right: ready + load + wait,
		at:    "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd1+208], 64, [%r11]",
	})
}

// TestFencedForAnotherBlock has a block copy what another block has stored. Either block may
// execute the proxy fence.
func TestFencedForAnotherBlock(t *testing.T) {
	t.Parallel()
	body := func(writer, reader string) string {
		return strings.NewReplacer("WRITER", writer, "READER", reader).Replace(`
	mov.u32 %r5, m;
	mov.u32 %r6, s;
	setp.eq.u32 %p1, %r61, 1;
	@%p1 bra READ;
	setp.lt.u32 %p2, %r0, 4;
	@%p2 st.global.u32 [%rd31], %r0;
	WRITER
	bar.sync 0;
	setp.eq.u32 %p3, %r0, 0;
	@%p3 st.release.gpu.global.u32 [flag], 1;
	bra END;
READ:
	setp.ne.u32 %p3, %r0, 0;
	@%p3 bra END;
	mbarrier.init.shared::cta.b64 [%r5], 1;
	fence.proxy.async.shared::cta;
LOOK:
	ld.acquire.gpu.global.u32 %r7, [flag];
	setp.eq.u32 %p4, %r7, 0;
	@%p4 bra LOOK;
	READER
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 16;
	cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%rd0], 16, [%r5];
WAIT:
	mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r5], 0;
	@!%p5 bra WAIT;
	ld.shared.u32 %r1, [%r6+12];
	st.global.u32 [%rd31], %r1;
END:`)
	}
	for _, fences := range [][2]string{
		{"fence.proxy.async;", ""}, {"fence.proxy.async.global;", ""}, {"", "fence.proxy.async;"}, {"", "fence.proxy.async.global;"},
	} {
		defect{
			name: "fenced " + fences[0] + fences[1], kind: finding.MissingFence, declarations: barrierObject + "\n.global .align 4 .u32 flag;",
			setup: setup{threads: 64, blocks: 2, arch: "sm_90a"}, wrong: body("", ""), right: body(fences[0], fences[1]),
			at: "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r6], [%rd0], 16, [%r5]", with: "@%p2 st.global.u32 [%rd31], %r0",
			contains: []string{"no fence.proxy.async between the two", "of block [0 0 0]"},
		}.check(t)
	}
	defect{
		name: "a fence before the store", kind: finding.MissingFence, declarations: barrierObject + "\n.global .align 4 .u32 flag;",
		setup: setup{threads: 64, blocks: 2, arch: "sm_90a"}, right: body("fence.proxy.async;", ""), at: "*",
		wrong: strings.Replace(body("", ""), "setp.lt.u32 %p2", "fence.proxy.async;\n setp.lt.u32 %p2", 1),
	}.check(t)
}

// TestRepeatedBulkStores has two warps store a tile to the same place. That is a defect unless both
// tiles have the same bytes and one instruction stores them.
func TestRepeatedBulkStores(t *testing.T) {
	t.Parallel()
	const fill = `shr.u32 %r5, %r0, 5;
	mov.u32 %r10, s;
	mad.lo.u32 %r10, %r5, 128, %r10;
	and.b32 %r6, %r0, 31;
	mad.lo.u32 %r12, %r6, 4, %r10;
	setp.eq.u32 %p1, %r6, 0;
	and.b32 %r7, %r0, 63;
`
	const store = "fence.proxy.async;\n bar.warp.sync -1;\n @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 128;\n cp.async.bulk.commit_group;\n"
	const tile, other = "st.shared.u32 [%r12], %r6;\n", "st.shared.u32 [%r12], %r7;\n"
	for _, c := range []struct {
		name, wait string
		kind       finding.Kind
	}{
		{"the first copy has read nothing", "bar.sync 0;\n cp.async.bulk.wait_group.read 0;\n", finding.MissingWait},
		{"the first copy has read its source", "cp.async.bulk.wait_group.read 0;\n", finding.MissingWait},
		{"the first copy has written", "cp.async.bulk.wait_group 0;\n", finding.Race},
	} {
		defect{
			name: c.name, kind: c.kind, declarations: ".shared .align 128 .b8 s[256];\n",
			wrong: fill + other + store + c.wait, right: fill + tile + store + c.wait,
			at:    "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 128",
			with:  "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 128",
			setup: setup{threads: 64},
		}.check(t)
	}
	// Two instructions are two decisions, although the bytes are the same.
	two := strings.Replace(store, "@%p1 cp.async.bulk.global", "@%p2 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r10], 128;\n @%p1 cp.async.bulk.global", 1)
	first := "setp.eq.u32 %p2, %r0, 0;\n setp.eq.u32 %p1, %r0, 32;\n"
	got := simulate(t, setup{threads: 64, text: kernelWith(".shared .align 128 .b8 s[256];\n", fill+first+tile+two+"cp.async.bulk.wait_group 0;\n ret;")})
	if got.kinds() != "race" {
		t.Errorf("two instructions: findings %v", got.findings)
	}
}
