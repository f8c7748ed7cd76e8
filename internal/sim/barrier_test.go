package sim

import (
	"fmt"
	"strings"
	"testing"

	"attune/internal/finding"
)

func TestDivergentBarriers(t *testing.T) {
	t.Parallel()
	const half = "setp.lt.u32 %p1, %r0, 16;\n"
	defect{
		name: "half a warp", kind: finding.DivergentBarrier, setup: setup{threads: 64},
		wrong: half + "@%p1 bar.sync 0;", right: half + "bar.sync 0;", at: "@%p1 bar.sync 0",
		contains: []string{"warp 0 (lanes 0x0000ffff)", "all remaining lanes (0xffffffff) must execute together"},
	}.check(t)
	defect{
		name: "in a branch", kind: finding.DivergentBarrier,
		wrong: half + "@%p1 bra END;\n barrier.sync.aligned 1, 32;\nEND:\n st.global.u32 [%rd31], %r0;",
		right: half + "@%p1 bra END;\n barrier.sync 1;\nEND:\n barrier.sync 1;",
		at:    "barrier.sync.aligned 1, 32", contains: []string{"lanes 0xffff0000"},
	}.check(t)
	// Ended lanes are not expected: neither after exit, nor after a branch to the end of the
	// kernel, which is how compilers translate an early return.
	defect{
		name: "lanes that have ended", kind: finding.DivergentBarrier,
		wrong: half + "@%p1 bra SKIP;\n bar.sync 0;\nSKIP:\n st.global.u32 [%rd31], %r0;",
		right: half + "@%p1 exit;\n bar.sync 0;",
		at:    "bar.sync 0",
	}.check(t)
	defect{
		name: "an early return", kind: finding.DivergentBarrier,
		wrong: half + "@%p1 bra SKIP;\n bar.sync 0;\nSKIP:\n st.global.u32 [%rd31], %r0;",
		right: half + "@%p1 bra END;\n bar.sync 0;\nEND:",
		at:    "bar.sync 0",
	}.check(t)
	defect{
		name: "a reduction", kind: finding.DivergentBarrier,
		wrong: half + "@%p1 bar.red.popc.u32 %r1, 0, %p1;",
		right: half + "bar.red.popc.u32 %r1, 0, %p1;",
		at:    "@%p1 bar.red.popc.u32 %r1, 0, %p1",
	}.check(t)
}

func TestBadBarriers(t *testing.T) {
	t.Parallel()
	check := func(d defect) {
		t.Helper()
		d.kind = finding.BadBarrier
		d.setup.threads = 64
		d.check(t)
	}
	const warp0 = "setp.lt.u32 %p1, %r0, 32;\n"
	check(defect{
		name:     "barrier 16",
		wrong:    "bar.sync 16;",
		right:    "bar.sync 15;",
		at:       "bar.sync 16",
		contains: []string{"barrier 16", "0 to 15"},
	})
	check(defect{
		name:     "a count that is not a multiple of 32",
		wrong:    "bar.sync 1, 48;",
		right:    "bar.sync 1, 64;",
		at:       "bar.sync 1, 48",
		contains: []string{"48 threads", "a multiple of 32"},
	})
	check(defect{
		name:  "different counts",
		wrong: warp0 + "@%p1 bar.sync 1, 64;\n @!%p1 bar.sync 1;",
		right: warp0 + "@%p1 bar.sync 1, 64;\n @!%p1 bar.sync 1, 64;",
		at:    "@%p1 bar.sync 1, 64", with: "@!%p1 bar.sync 1", contains: []string{"barrier 1 is for"},
	})
	check(defect{
		name: "two arrivals of one warp", wrong: warp0 + "@%p1 bar.arrive 1, 64;\n @%p1 bar.arrive 1, 64;\n @!%p1 bar.sync 1, 64;",
		right: warp0 + "@%p1 bar.arrive 1, 64;\n @!%p1 bar.sync 1, 64;\n bar.sync 0;\n @%p1 bar.arrive 1, 64;\n @!%p1 bar.sync 1, 64;",
		at:    "@%p1 bar.arrive 1, 64", with: "@%p1 bar.arrive 1, 64", contains: []string{"a second time before it completes"},
	}.only(0))
}

// only checks a defect under one schedule. Other schedules may not show it.
func (d defect) only(seed uint64) defect {
	d.setup.seed, d.onlySeed = seed, true
	return d
}

func TestDeadlocks(t *testing.T) {
	t.Parallel()
	check := func(d defect) {
		t.Helper()
		d.kind = finding.Deadlock
		d.check(t)
	}
	check(defect{
		name: "too few threads", wrong: "bar.sync 1, 64;", right: "bar.sync 1, 32;", at: "bar.sync 1, 64",
		contains: []string{"block [0 0 0] cannot continue", "warp 0 (all lanes) at ptx:20: waits at barrier 1, where 32 of 64 threads have arrived"},
	})
	check(defect{
		name: "two barriers in opposite order", setup: setup{threads: 64},
		wrong: "setp.lt.u32 %p1, %r0, 32;\n @%p1 bra A;\n bar.sync 1, 64;\n bar.sync 2, 64;\n bra END;\nA: bar.sync 2, 64;\n " +
			"bar.sync 1, 64;\nEND:",
		right: "setp.lt.u32 %p1, %r0, 32;\n @%p1 bra A;\n bar.sync 1, 64;\n bar.sync 2, 64;\n bra END;\nA: bar.sync 1, 64;\n " +
			"bar.sync 2, 64;\nEND:",
		at: "bar.sync 2, 64", contains: []string{"warp 0", "waits at barrier 2", "warp 1", "waits at barrier 1"},
	})
	check(defect{
		name: "a flag that no thread sets", declarations: sharedArray, setup: setup{threads: 64},
		wrong: "setp.eq.u32 %p1, %r0, 0;\n @%p1 st.shared.u32 [s], 0;\n bar.sync 0;\nWAIT:\n ld.volatile.shared.u32 %r2, [s];\n " +
			"setp.eq.u32 %p2, %r2, 0;\n @%p2 bra WAIT;",
		right: "setp.eq.u32 %p1, %r0, 0;\n @%p1 st.shared.u32 [s], 1;\n bar.sync 0;\nWAIT:\n ld.volatile.shared.u32 %r2, [s];\n " +
			"setp.eq.u32 %p2, %r2, 0;\n @%p2 bra WAIT;",
		at: "*", contains: []string{"cannot continue"},
	})
	check(defect{
		name:  "lanes that never arrive",
		wrong: "setp.lt.u32 %p1, %r0, 16;\n @%p1 bra A;\n barrier.sync 0;\n bra END;\nA:\n bar.warp.sync -1;\nEND:",
		right: "setp.lt.u32 %p1, %r0, 16;\n @%p1 bra A;\n barrier.sync 0;\n bra END;\nA:\n bar.warp.sync 0xffff;\n barrier.sync 0;\nEND:",
		at:    "*", contains: []string{"waits for the other lanes of the mask 0xffffffff", "waits at barrier 0, where 16 of 32"},
	})
	check(defect{
		name: "blocks that wait for each other", setup: setup{blocks: 3, threads: 1, out: 8, cooperative: true},
		wrong: "mad.wide.u32 %rd3, %r61, 4, %rd0;\nWAIT:\n ld.acquire.gpu.global.u32 %r2, [%rd3];\n setp.eq.u32 %p1, %r2, 0;\n " +
			"@%p1 bra WAIT;\n st.release.gpu.global.u32 [%rd3+4], 1;",
		right: "mad.wide.u32 %rd3, %r61, 4, %rd0;\n setp.eq.u32 %p2, %r61, 1;\n @%p2 bra GO;\nWAIT:\n " +
			"ld.acquire.gpu.global.u32 %r2, [%rd0+8];\n setp.eq.u32 %p1, %r2, 0;\n @%p1 bra WAIT;\nGO:\n " +
			"st.release.gpu.global.u32 [%rd3+4], 1;",
		at: "*", contains: []string{"cannot continue", "lane 0"},
	})
	check(defect{
		name: "an mbarrier that expects one arrival too many", declarations: barrierObject, setup: setup{threads: 64},
		wrong: initialise(65) + arriveAndWait, right: initialise(64) + arriveAndWait,
		at: "*", contains: []string{"waits for the mbarrier at address 0x", "phase 0, 1 arrivals and 0 bytes are missing"},
	})
	check(defect{
		name: "an mbarrier that expects bytes", declarations: barrierObject, setup: setup{threads: 64},
		wrong: initialise(64) + "mov.u32 %r5, m;\n setp.eq.u32 %p6, %r0, 0;\n " +
			"@%p6 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r5], 16;\n bar.sync 0;\n" + arriveAndWait,
		right: initialise(64) + "mov.u32 %r5, m;\n setp.eq.u32 %p6, %r0, 0;\n " +
			"@%p6 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r5], 16;\n bar.sync 0;\n " +
			"@%p6 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r5], 16;\n" + arriveAndWait,
		at: "*", contains: []string{"0 arrivals and 16 bytes are missing"},
	})
	const sleeping = `mov.u32 %r5, m;
	mov.u64 %rd6, %globaltimer;
	mbarrier.arrive.shared::cta.b64 %rd5, [%r5];
WAITM:
	mbarrier.try_wait.shared::cta.b64 %p5, [%r5], %rd5;
	@%p5 bra GO;
	mov.u64 %rd7, %globaltimer;
	sub.u64 %rd7, %rd7, %rd6;
	shr.u64 %rd7, %rd7, 2;
	cvt.u32.u64 %r6, %rd7;
	nanosleep.u32 %r6;
	bra WAITM;
GO:
`
	check(defect{
		name: "waits with increasing sleep", declarations: barrierObject, setup: setup{threads: 64},
		wrong: initialise(65) + sleeping, right: initialise(64) + sleeping,
		at: "*", contains: []string{"phase 0, 1 arrivals and 0 bytes are missing"},
	})
}

// TestTimeouts checks that a wait with a timeout times out, and that advancing the clock for it
// does not cut short a wait for a block that still works.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	wait := func(clock, limit string) string {
		return strings.NewReplacer("CLOCK", clock, "LIMIT", limit).Replace(`
	mov.u64 %rd2, CLOCK;
	mov.u32 %r1, 0;
WAIT:
	ld.acquire.gpu.global.u32 %r2, [flag];
	setp.ne.u32 %p2, %r2, 0;
	@%p2 bra CAME;
	mov.u64 %rd3, CLOCK;
	sub.u64 %rd4, %rd3, %rd2;
	setp.lt.u64 %p3, %rd4, LIMIT;
	@%p3 bra WAIT;
	bra END;
CAME:
	mov.u32 %r1, 1;
END:`)
	}
	const flag = ".global .align 4 .u32 flag;"
	for _, blocks := range []int{1, 3} {
		for _, clock := range []string{"%clock64", "%globaltimer"} {
			g := setup{text: kernelWith(flag, storing(wait(clock, "200000000"))), blocks: blocks, threads: 64, schedules: 2}
			schedules(t, "the flag is never set", g, each(64*blocks, func(uint32) uint32 { return 0 }))
		}
	}
	// The first block works for longer than the others poll before the clock is advanced, but for
	// less than their timeout.
	work := `
	setp.ne.u32 %p1, %r61, 0;
	@%p1 bra LOOK;
	mov.u32 %r5, 0;
WORK:
	add.u32 %r5, %r5, 1;
	setp.lt.u32 %p4, %r5, 60000;
	@%p4 bra WORK;
	st.release.gpu.global.u32 [flag], 1;
LOOK:`
	g := setup{text: kernelWith(flag, storing(work+wait("%clock64", "1000000000000"))), blocks: 3, threads: 32, schedules: 2}
	schedules(t, "the flag is set late", g, each(96, func(uint32) uint32 { return 1 }))
}

// TestEndlessLoop checks that a loop in which nothing changes is reported as a deadlock, before the
// block reaches the limit of steps.
func TestEndlessLoop(t *testing.T) {
	if testing.Short() {
		t.Skip("fifty million steps")
	}
	t.Parallel()
	got := simulate(t, setup{text: kernel("setp.eq.u32 %p1, %r0, 3;\nLOOP:\n @%p1 bra LOOP;\n ret;"), threads: 4, out: 4})
	if got.kinds() != "deadlock" || !strings.Contains(got.findings[0].Detail, "lane 3") {
		t.Errorf("findings %v", got.findings)
	}
}

const barrierObject = ".shared .align 8 .b64 m;\n.shared .align 16 .b8 s[512];"

// initialise initialises an mbarrier for n arrivals.
func initialise(n int) string {
	return fmt.Sprintf("mov.u32 %%r5, m;\n setp.eq.u32 %%p1, %%r0, 0;\n @%%p1 mbarrier.init.shared::cta.b64 [%%r5], %d;\n bar.sync 0;\n", n)
}

// arriveAndWait is one phase of all threads.
const arriveAndWait = `mov.u32 %r5, m;
	mbarrier.arrive.shared::cta.b64 %rd5, [%r5];
WAITM:
	mbarrier.test_wait.shared::cta.b64 %p5, [%r5], %rd5;
	@!%p5 bra WAITM;
`

func TestBadMbarriers(t *testing.T) {
	t.Parallel()
	check := func(d defect) {
		t.Helper()
		d.kind, d.declarations = finding.BadBarrier, barrierObject
		d.check(t)
	}
	const thread0 = "mov.u32 %r5, m;\n setp.eq.u32 %p1, %r0, 0;\n"
	check(defect{
		name:  "never initialised",
		wrong: thread0 + "@%p1 mbarrier.arrive.shared.b64 %rd5, [%r5];",
		right: initialise(1) + "@%p1 mbarrier.arrive.shared.b64 %rd5, [%r5];",
		at:    "@%p1 mbarrier.arrive.shared.b64 %rd5, [%r5]", contains: []string{"no initialised mbarrier at address"},
	})
	check(defect{
		name:  "no arrivals",
		wrong: thread0 + "@%p1 mbarrier.init.shared.b64 [%r5], 0;", right: thread0 + "@%p1 mbarrier.init.shared.b64 [%r5], 1048575;",
		at: "@%p1 mbarrier.init.shared.b64 [%r5], 0", contains: []string{"an mbarrier for 0 arrivals"},
	})
	check(defect{
		name:     "initialised again",
		wrong:    initialise(2) + "@%p1 mbarrier.init.shared.b64 [%r5], 2;",
		right:    initialise(2) + "@%p1 mbarrier.inval.shared.b64 [%r5];\n @%p1 mbarrier.init.shared.b64 [%r5], 2;",
		at:       "@%p1 mbarrier.init.shared.b64 [%r5], 2",
		with:     "@%p1 mbarrier.init.shared::cta.b64 [%r5], 2",
		contains: []string{"which is live already"},
	})
	check(defect{
		name:     "too many arrivals",
		wrong:    initialise(2) + "@%p1 mbarrier.arrive.shared.b64 %rd5, [%r5], 3;",
		right:    initialise(2) + "@%p1 mbarrier.arrive.shared.b64 %rd5, [%r5], 2;",
		at:       "@%p1 mbarrier.arrive.shared.b64 %rd5, [%r5], 3",
		with:     "@%p1 mbarrier.init.shared::cta.b64 [%r5], 2",
		contains: []string{"arrives 3 times at an mbarrier that expects 2 more arrivals"},
	})
	check(defect{
		name:     "all lanes instead of one",
		wrong:    initialise(1) + "mbarrier.arrive.shared.b64 %rd5, [%r5];",
		right:    initialise(1) + "@%p1 mbarrier.arrive.shared.b64 %rd5, [%r5];",
		at:       "mbarrier.arrive.shared.b64 %rd5, [%r5]",
		contains: []string{"32 lanes arrive together", "a phase completes between them"},
	})
	check(defect{
		name:  "a phase that must not complete",
		wrong: initialise(1) + "@%p1 mbarrier.arrive.noComplete.shared.b64 %rd5, [%r5], 1;",
		right: initialise(2) + "@%p1 mbarrier.arrive.noComplete.shared.b64 %rd5, [%r5], 1;",
		at:    "@%p1 mbarrier.arrive.noComplete.shared.b64 %rd5, [%r5], 1", contains: []string{".noComplete"},
	})
	check(defect{
		name:  "too many bytes",
		wrong: initialise(1) + "mov.u32 %r6, 1048576;\n @%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r5], %r6;",
		right: initialise(1) + "mov.u32 %r6, 1048575;\n @%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r5], %r6;",
		at:    "@%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r5], %r6", contains: []string{"the transaction count of the mbarrier is 1048576"},
	})
	check(defect{
		name:  "an ordinary store",
		wrong: initialise(1) + "@%p1 st.shared.u32 [%r5+4], 0;",
		right: initialise(1) + "@%p1 mbarrier.inval.shared.b64 [%r5];\n @%p1 st.shared.u32 [%r5+4], 0;",
		at:    "@%p1 st.shared.u32 [%r5+4], 0", contains: []string{"writes the bytes of a live mbarrier"},
	})
	defect{
		name: "misaligned", declarations: barrierObject, kind: finding.Misaligned,
		wrong: thread0 + "@%p1 mbarrier.init.shared.b64 [s+4], 1;", right: thread0 + "@%p1 mbarrier.init.shared.b64 [s+8], 1;",
		at: "@%p1 mbarrier.init.shared.b64 [s+4], 1", contains: []string{"not a multiple of 8"},
	}.check(t)
	defect{
		name: "outside", declarations: barrierObject, kind: finding.OutOfBounds,
		wrong: thread0 + "mov.u32 %r6, s;\n @%p1 mbarrier.init.shared.b64 [%r6+512], 1;",
		right: thread0 + "mov.u32 %r6, s;\n @%p1 mbarrier.init.shared.b64 [%r6+504], 1;",
		at:    "@%p1 mbarrier.init.shared.b64 [%r6+512], 1",
	}.check(t)
}

// TestMbarriers passes values between threads with mbarriers.
func TestMbarriers(t *testing.T) {
	t.Parallel()
	exchange := "mov.u32 %r7, s;\n mad.lo.u32 %r8, %r0, 4, %r7;\n st.shared.u32 [%r8], %r0;\nWAITS\n xor.b32 %r9, %r0, 63;\n " +
		"mad.lo.u32 %r9, %r9, 4, %r7;\n ld.shared.u32 %r1, [%r9];"
	want := each(64, func(i uint32) uint32 { return 63 - i })
	check := func(name string, count int, wait string) {
		t.Helper()
		text := kernelWith(barrierObject, storing(initialise(count)+strings.Replace(exchange, "WAITS", wait, 1)))
		schedules(t, name, setup{text: text, threads: 64}, want)
	}
	check("by the state", 64, arriveAndWait)
	check("by the parity", 64, `mbarrier.arrive.release.cta.shared::cta.b64 _, [%r5];
W: mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p5, [%r5], 0, 1000;
	@!%p5 bra W;`)
	check("with a count", 128, "mbarrier.arrive.shared.b64 %rd5, [%r5], 2;\nW: mbarrier.test_wait.parity.shared.b64 %p5, [%r5], 0;\n"+
		"@!%p5 bra W;")
	check("with bytes", 64, `setp.eq.u32 %p6, %r0, 7;
	@%p6 mbarrier.arrive.expect_tx.shared.b64 %rd5, [%r5], 32;
	@!%p6 mbarrier.arrive.shared.b64 %rd5, [%r5];
	@%p6 mbarrier.complete_tx.shared.b64 [%r5], 32;
W: mbarrier.test_wait.parity.shared.b64 %p5, [%r5], 0;
	@!%p5 bra W;`)
	// One lane arrives for its warp, after bar.warp.sync.
	check("one lane for each warp", 2, `bar.warp.sync -1;
	elect.sync %r10|%p6, -1;
	@%p6 mbarrier.arrive.shared.b64 %rd5, [%r5];
W: mbarrier.test_wait.parity.shared.b64 %p5, [%r5], 0;
	@!%p5 bra W;`)
	// In the second phase half of the threads are left.
	check("threads that drop out", 64, `setp.lt.u32 %p6, %r0, 32;
	@%p6 mbarrier.arrive_drop.shared.b64 %rd5, [%r5];
	@%p6 bra DONE;
	mbarrier.arrive.shared.b64 %rd5, [%r5];
W: mbarrier.test_wait.shared.b64 %p5, [%r5], %rd5;
	@!%p5 bra W;
	mbarrier.arrive.shared.b64 %rd5, [%r5];
W2: mbarrier.test_wait.shared.b64 %p5, [%r5], %rd5;
	@!%p5 bra W2;
DONE:
	bar.sync 0;`)
	check("several phases", 64, `mov.u32 %r10, 0;
ROUND:
	mbarrier.arrive.shared.b64 %rd5, [%r5];
	and.b32 %r11, %r10, 1;
W: mbarrier.test_wait.parity.shared.b64 %p5, [%r5], %r11;
	@!%p5 bra W;
	add.u32 %r10, %r10, 1;
	setp.lt.u32 %p6, %r10, 5;
	@%p6 bra ROUND;`)
	check("a generic address", 64, `mov.u64 %rd6, m;
	cvta.shared.u64 %rd7, %rd6;
	mbarrier.arrive.b64 %rd5, [%rd7];
W: mbarrier.test_wait.b64 %p5, [%rd7], %rd5;
	@!%p5 bra W;`)
	// Copies arrive at an mbarrier.
	copying := `mov.u32 %r7, s;
	mad.lo.u32 %r8, %r0, 4, %r7;
	mad.wide.u32 %rd2, %r0, 4, %rd1;
	cp.async.ca.shared.global [%r8], [%rd2], 4;
	cp.async.mbarrier.arrive.noinc.shared.b64 [%r5];
W: mbarrier.test_wait.parity.shared.b64 %p5, [%r5], 0;
	@!%p5 bra W;
	xor.b32 %r9, %r0, 63;
	mad.lo.u32 %r9, %r9, 4, %r7;
	ld.shared.u32 %r1, [%r9];`
	in := each(64, func(i uint32) uint32 { return i })
	schedules(t, "copies", setup{text: kernelWith(barrierObject, storing(initialise(64)+copying)), threads: 64, in: in}, want)
	got := simulate(t, setup{text: kernelWith(barrierObject, storing(initialise(63)+copying)), threads: 64, in: in})
	if got.kinds() != string(finding.BadBarrier) || !strings.Contains(got.findings[0].Detail, "completed without it: the mbarrier expects 63 arrivals and more are made") {
		t.Errorf("one arrival too many: %v", got.findings)
	}
	copying = strings.NewReplacer(".noinc", "", "\nW:", "\nmbarrier.arrive.shared.b64 %rd5, [%r5];\nW:").Replace(copying)
	schedules(t, "copies and threads", setup{text: kernelWith(barrierObject, storing(initialise(64)+copying)), threads: 64, in: in}, want)

	// An arrival orders what its thread did before, and nothing that other lanes of the warp did.
	defect{
		name: "one lane arrives without bar.warp.sync", declarations: barrierObject, setup: setup{threads: 64}, kind: finding.Race,
		wrong: strings.Replace(oneArrives, "SYNC", "", 1), right: strings.Replace(oneArrives, "SYNC", "bar.warp.sync -1;", 1),
		at: "st.shared.u32 [%r8], %r0", with: "ld.shared.u32 %r1, [%r9]",
	}.check(t)
}

const oneArrives = `mov.u32 %r5, m;
	setp.eq.u32 %p1, %r0, 0;
	@%p1 mbarrier.init.shared::cta.b64 [%r5], 1;
	mov.u32 %r7, s;
	mad.lo.u32 %r8, %r0, 4, %r7;
	add.u32 %r9, %r8, 128;
	@%p1 bra INIT;
INIT:
	bar.sync 0;
	setp.ge.u32 %p2, %r0, 32;
	@%p2 bra CONSUMER;
	add.u32 %r8, %r8, 128;
	st.shared.u32 [%r8], %r0;
	SYNC
	@%p1 mbarrier.arrive.shared.b64 %rd5, [%r5];
	bra END;
CONSUMER:
W: mbarrier.test_wait.parity.shared.b64 %p5, [%r5], 0;
	@!%p5 bra W;
	sub.u32 %r9, %r9, 128;
	ld.shared.u32 %r1, [%r9];
END:`

func TestUndefined(t *testing.T) {
	t.Parallel()
	check := func(d defect) {
		t.Helper()
		d.kind = finding.Undefined
		d.check(t)
	}
	const half = "setp.lt.u32 %p1, %r0, 16;\n mov.u32 %r2, 0xffff;\n"
	check(defect{
		name:  "a value of a lane that does not take part",
		wrong: half + "@%p1 shfl.sync.idx.b32 %r1, %r0, 20, 31, %r2;", right: half + "@%p1 shfl.sync.idx.b32 %r1, %r0, 12, 31, %r2;",
		at:       "@%p1 shfl.sync.idx.b32 %r1, %r0, 20, 31, %r2",
		contains: []string{"takes the value of lane 20, which does not take part (member mask 0x0000ffff", "(16 times)"},
	})
	check(defect{
		name: "a value of a lane that has ended", setup: setup{threads: 40},
		wrong: "shfl.sync.down.b32 %r1, %r0, 8, 31, -1;", right: "shfl.sync.down.b32 %r1, %r0, 8, 6151, -1;",
		at: "shfl.sync.down.b32 %r1, %r0, 8, 31, -1", contains: []string{"does not take part"},
	})
	check(defect{
		name:  "a member mask without the lane itself",
		wrong: "setp.eq.u32 %p1, %r0, 0;\n mov.u32 %r2, 0xfffffffe;\n vote.sync.any.pred %p2, %p1, %r2;",
		right: "setp.eq.u32 %p1, %r0, 0;\n mov.u32 %r2, 0xffffffff;\n vote.sync.any.pred %p2, %p1, %r2;",
		at:    "vote.sync.any.pred %p2, %p1, %r2", contains: []string{"thread 0", "the member mask 0xfffffffe, which does not contain the lane"},
	})
	check(defect{
		name:  "a branch target beyond the list",
		wrong: "T: .branchtargets A, B;\n setp.eq.u32 %p1, %r0, 9;\n selp.u32 %r2, 2, 1, %p1;\n brx.idx %r2, T;\nA:\nB:",
		right: "T: .branchtargets A, B;\n setp.eq.u32 %p1, %r0, 9;\n selp.u32 %r2, 0, 1, %p1;\n brx.idx %r2, T;\nA:\nB:",
		at:    "brx.idx %r2, T", contains: []string{"thread 9", "branches to target 2 of a list of 2"},
	})
	const product = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r10,%r11,%r12,%r13}, {%r14,%r15,%r16,%r17}, {%r18,%r19}, {%r20,%r21,%r22,%r23}"
	check(defect{
		name: "half a warp executes mma", wrong: zeroed(14, 23) + half + "@%p1 " + product + ";", right: zeroed(14, 23) + half + product + ";",
		at: "@%p1 " + product, contains: []string{"lanes 0x0000ffff", "all 32 lanes must execute together"},
	})
	check(defect{
		name: "half a warp executes ldmatrix", declarations: sharedArray,
		wrong: fillShared + half + "mov.u32 %r3, s;\n @%p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];",
		right: fillShared + half + "mov.u32 %r3, s;\n ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];",
		at:    "@%p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3]",
	})
	// A fragment may hold an element twice. Code that treats all registers alike keeps the copies
	// equal.
	load := fillShared + zeroed(20, 27) + "mov.u32 %r3, s;\n " +
		"wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, [%r3], 16;\n%s" +
		"wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 {%r30,%r31,%r32,%r33,%r34,%r35,%r36,%r37}, [%r3], 16;\n" +
		"wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%r20,%r21,%r22,%r23,%r24,%r25,%r26,%r27}, " +
		"{%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, {%r30,%r31,%r32,%r33,%r34,%r35,%r36,%r37}, " +
		"{%r20,%r21,%r22,%r23,%r24,%r25,%r26,%r27};"
	flip := ""
	for i := 10; i < 18; i++ {
		flip += fmt.Sprintf("xor.b32 %%r%d, %%r%d, 65537;\n", i, i)
	}
	check(defect{
		name: "a change of one register of a fragment", declarations: sharedArray,
		wrong: strings.Replace(load, "%s", "xor.b32 %r10, %r10, 65537;\n", 1), right: strings.Replace(load, "%s", flip, 1),
		at: "*", contains: []string{"a fragment holds several copies of an element, and they differ"},
	})
}
