package sim

import (
	"testing"

	"attune/internal/finding"
)

const (
	pollShared = ".shared .align 128 .b8 s[256];\n.shared .align 8 .b8 bar[8];\n"
	pollReady  = `mov.u32 %r10, s;
	mov.u32 %r11, bar;
	mad.lo.u32 %r12, %r0, 4, %r10;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared::cta.b64 [%r11], 1;
	bar.sync 0;
`
	pollLoad = `@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 256;
	@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd1], 256, [%r11];
	bar.sync 0;
`
	pollTry  = "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r11], 0;\n"
	pollTest = "mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r11], 0;\n"
	pollRead = "ld.shared.u32 %r1, [%r12];\n st.global.u32 [%rd31], %r1;\n"
	pollWait = "WAIT:\n mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r11], 0;\n @!%p3 bra WAIT;\n"
)

// TestPollOnce polls an mbarrier once, and uses what the phase publishes whatever the result is.
func TestPollOnce(t *testing.T) {
	t.Parallel()
	const end = "bar.sync 0;\n" + pollWait // the block must not end before the copy
	check := func(name, wrong, right string) {
		t.Helper()
		defect{
			name: name, kind: finding.MissingWait, declarations: pollShared,
			setup: setup{threads: 64, arch: "sm_90a", in: each(64, func(i uint32) uint32 { return i })},
			wrong: pollReady + pollLoad + wrong + end, right: pollReady + pollLoad + right,
			at: "ld.shared.u32 %r1, [%r12]", with: "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd1], 256, [%r11]",
		}.check(t)
	}
	const loop = "L:\n " + pollTry + "selp.u32 %r5, 1, 0, %p2;\n setp.eq.u32 %p4, %r5, 0;\n @%p4 bra L;\n"
	check("test_wait with an ignored result", pollTest+pollRead, "L:\n "+pollTest+"@!%p2 bra L;\n"+pollRead)
	check("try_wait with an ignored result", pollTry+pollRead, "L:\n "+pollTry+"@%p2 bra D;\n bra L;\nD:\n"+pollRead)
	check("a result without effect", pollTry+"@%p2 bra D;\n mov.u32 %r5, 1;\nD:\n"+pollRead, loop+pollRead)
	check("a result that selects", pollTry+"selp.u32 %r5, 1, 0, %p2;\n"+pollRead, pollTry+"@%p2 bra D;\n"+pollWait+"D:\n"+pollRead)
}

// TestPollArrivals polls a phase that arrivals complete.
func TestPollArrivals(t *testing.T) {
	t.Parallel()
	const (
		write = "st.shared.u32 [%r12], 0;\n bar.sync 0;\n setp.ge.u32 %p4, %r0, 32;\n @%p4 bra L;\n st.shared.u32 [%r12], %r0;\n bar.warp.sync -1;\n @%p1 mbarrier.arrive.shared::cta.b64 _, [%r11];\n bra END;\nL:\n"
		read  = "ld.shared.u32 %r1, [%r12+-128];\n"
	)
	defect{
		name: "no loop", kind: finding.Race, declarations: pollShared, setup: setup{threads: 64, arch: "sm_90a"},
		wrong: pollReady + write + pollTry + "@%p2 bra D;\nD:\n" + read + "END:",
		right: pollReady + write + pollTry + "@!%p2 bra L;\n" + read + "END:",
		at:    "ld.shared.u32 %r1, [%r12+-128]", with: "st.shared.u32 [%r12], %r0",
	}.check(t)
}

// TestPollKnown polls a phase that the thread knows to be complete. The first poll must succeed.
func TestPollKnown(t *testing.T) {
	t.Parallel()
	// The predicate decides nothing that matters, so the wait is no loop.
	const stored = "selp.u32 %r1, 1, 0, %p2;\n st.global.u32 [%rd31], %r1;\n ret;"
	ones := each(64, func(uint32) uint32 { return 1 })
	schedules(t, "after a barrier", setup{
		threads: 64, arch: "sm_90a", text: kernelWith(pollShared, pollReady+"@%p1 mbarrier.arrive.shared::cta.b64 _, [%r11];\n bar.sync 0;\n"+pollTry+stored),
	}, ones)
	schedules(t, "after the own arrival", setup{
		threads: 1, arch: "sm_90a", text: kernelWith(pollShared, pollReady+"mbarrier.arrive.shared::cta.b64 _, [%r11];\n"+pollTry+stored),
	}, ones[:1])
}

// TestPollsBothWays polls each phase once and counts the phases that the first poll finds complete:
// every second one.
func TestPollsBothWays(t *testing.T) {
	t.Parallel()
	const body = pollReady + `mov.u32 %r2, 0;
	mov.u32 %r1, 0;
NEXT:
	bar.sync 0;
	@%p1 mbarrier.arrive.shared::cta.b64 _, [%r11];
	and.b32 %r3, %r2, 1;
	mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r11], %r3;
	@%p2 add.u32 %r1, %r1, 1;
	@%p2 bra DONE;
WAIT:
	mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r11], %r3;
	@!%p3 bra WAIT;
DONE:
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p4, %r2, 6;
	@%p4 bra NEXT;
	st.global.u32 [%rd31], %r1;
	ret;`
	got := simulate(t, setup{threads: 32, arch: "sm_90a", text: kernelWith(pollShared, body)})
	if len(got.findings) > 0 || got.out[1] != 3 {
		t.Errorf("%d of 6 phases were complete at the first poll, want 3; findings %v", got.out[1], got.findings)
	}
	unchecked := simulate(t, setup{threads: 32, arch: "sm_90a", text: kernelWith(pollShared, body), unchecked: true})
	if unchecked.out[1] != 6 {
		t.Errorf("without checkers %d of 6 phases were complete at the first poll", unchecked.out[1])
	}
}
