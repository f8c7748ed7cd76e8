package audit

import (
	"slices"
	"strings"
	"testing"

	"attune/internal/finding"
)

// A wait for a barrier that sleeps the longer, the longer it has waited. The names stand for parts
// that the tests replace.
const backOff = `mov.u32 %r1, smem; mov.u32 %r2, 0; START
L: mbarrier.try_wait.shared.b64 %p0, [%r1], %rd1; @%p0 bra E;
	setp.lt.s32 %p1, %r2, 16; @%p1 bra COUNT;
	NOW
	DIFFERENCE
	setp.lt.s64 %p2, %rd5, 4000000; @%p2 bra SHORT; bra LONG;
	SHORT: setp.lt.s64 %p3, %rd5, 40000; @%p3 bra L;
	shr.u64 %rd6, %rd5, 2; cvt.u32.u64 %r3, %rd6; nanosleep.u32 %r3; NEXT
	LONG: mov.u32 %r4, 1000000; nanosleep.u32 %r4; bra L;
	COUNT: add.s32 %r2, %r2, 1; bra L;
E: AFTER`

// backOffWith is backOff with some parts replaced, by pairs of a name and a text.
func backOffWith(parts ...string) string {
	usual := []string{
		"START", "mov.u64 %rd3, %globaltimer;", "NOW", "mov.u64 %rd4, %globaltimer;",
		"DIFFERENCE", "sub.s64 %rd5, %rd4, %rd3;", "NEXT", "bra L;", "AFTER", "st.global.u32 [%rd2], 1;",
	}
	return strings.NewReplacer(append(parts, usual...)...).Replace(backOff)
}

// A clock that only decides how long a thread sleeps tells a kernel nothing.
func TestClockOfAWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		found      int // reads that are reported
	}{
		{"a wait", backOffWith(), 0},
		{"a wait by copies", backOffWith("START", "mov.u64 %rd7, %globaltimer; mov.u64 %rd3, %rd7;"), 0},
		{"a wait by cycles", backOffWith("START", "mov.u64 %rd3, %clock64;", "NOW", "mov.u64 %rd4, %clock64;"), 0},
		{"two waits", backOffWith("AFTER", strings.NewReplacer("L:", "K:", "bra L;", "bra K;", "E:", "F:", "bra E;", "bra F;",
			"SHORT", "SHORT2", "LONG", "LONG2", "COUNT", "COUNT2").Replace(backOffWith())), 0},
		{"a back-off that counts what it has slept", backOffWith("NEXT", "add.s32 %r2, %r2, %r3; bra L;"), 0},
		{
			"a wait by guards", `mov.u32 %r1, smem; mov.u64 %rd3, %globaltimer; L: mov.u64 %rd4, %globaltimer; sub.u64 %rd5, %rd4, %rd3;
			setp.gt.u64 %p1, %rd5, 40000; selp.b32 %r3, 1000, 20, %p1; @%p1 nanosleep.u32 %r3;
			mbarrier.try_wait.shared.b64 %p0, [%r1], %rd1; @!%p0 bra L;`, 0,
		},

		{"a wait that gives up", backOffWith("NEXT", "bra E;"), 2},
		{"a wait that ends the kernel", backOffWith("NEXT", "ret;"), 2},
		{"a wait that skips the work", backOffWith("NEXT", "bra F;", "AFTER", "st.global.u32 [%rd2], 1; F:"), 2},
		{"a wait that leaves a note", backOffWith("NEXT", "mov.u32 %r5, 1; bra L;", "START", "mov.u32 %r5, 0; mov.u64 %rd3, %globaltimer;",
			"AFTER", "st.global.u32 [%rd2], %r5;"), 2},
		{"a wait that decides later", backOffWith("AFTER", "setp.gt.s64 %p1, %rd5, 9; @%p1 bra F; st.global.u32 [%rd2], 1; F:"), 2},
		{"a guard behind the wait", backOffWith("AFTER", "setp.gt.s64 %p1, %rd5, 9; @%p1 st.global.u32 [%rd2], 1;"), 2},
		{"a duration that is stored", backOffWith("AFTER", "st.global.u64 [%rd2], %rd5;"), 2},
		{"a duration in shared memory", backOffWith("NEXT", "st.shared.u32 [smem], %r3; bra L;"), 2},
		{"a duration as an address", backOffWith("AFTER", "add.s64 %rd8, %rd2, %rd5; ld.global.u32 %r5, [%rd8];"), 2},
		{"a duration that other lanes get", backOffWith("AFTER", "shfl.sync.idx.b32 %r5, %r3, 0, 31, -1;"), 2},
		{"a carry", backOffWith("NEXT", "add.cc.u32 %r5, %r3, -100; addc.u32 %r6, 0, 0; bra L;"), 2},
		{"a table of branches", backOffWith("AFTER", "list: .branchtargets F; brx.idx %r3, list; F:"), 2},
		{"a time that is stored", backOffWith("AFTER", "st.global.u64 [%rd2], %rd4;"), 2},
		{"a start that is stored", backOffWith("AFTER", "st.global.u64 [%rd2], %rd3;"), 1},
		{"a copy that is stored", backOffWith("AFTER", "mov.u64 %rd9, %rd4; st.global.u64 [%rd2], %rd9;"), 2},
		{"a time in a register of others", backOffWith("AFTER", "mov.u64 %rd9, 0; mov.u64 %rd9, %rd4;"), 2},
		{"a time in two registers", backOffWith("AFTER", "mov.b64 {%r5, %r6}, %rd4;"), 2},
		// Another warp could count while this one sleeps by the time of day.
		{"a sleep by the time of day", "mov.u64 %rd3, %globaltimer; cvt.u32.u64 %r1, %rd3; nanosleep.u32 %r1;", 1},
		{"a bit of the time", "mov.u64 %rd3, %globaltimer; and.b64 %rd4, %rd3, 1024; setp.eq.s64 %p1, %rd4, 0; @%p1 nanosleep.u32 100;", 1},
		{"a start of 0", backOffWith("START", "mov.u64 %rd3, 0; @%p1 mov.u64 %rd3, %globaltimer;"), 2},
		{"a start that is not always set", backOffWith("START", "@%p1 bra L; mov.u64 %rd3, %globaltimer;"), 2},
		{"a guarded start", backOffWith("START", "@%p1 mov.u64 %rd3, %globaltimer;"), 2},
		{"a difference of two clocks", backOffWith("START", "mov.u64 %rd3, %clock64;"), 2},
		{"a saturated difference", "mov.u32 %r1, %clock; mov.u32 %r2, %clock; sub.sat.s32 %r3, %r2, %r1; nanosleep.u32 %r3;", 2},
		{"a guarded difference", "mov.u32 %r1, %clock; mov.u32 %r2, %clock; @%p1 sub.s32 %r3, %r2, %r1; nanosleep.u32 %r3;", 2},
		{"a loop until a time", "mov.u32 %r1, %clock; L: mov.u32 %r2, %clock; sub.s32 %r3, %r2, %r1; nanosleep.u32 20; setp.lt.s32 %p1, %r3, 500; @%p1 bra L;", 2},
		{"a loop without sleep", "mov.u32 %r1, %clock; L: mov.u32 %r2, %clock; sub.s32 %r3, %r2, %r1; setp.lt.s32 %p1, %r3, 500; @%p1 bra L;", 2},
		{"a duration that nothing uses", "mov.u32 %r1, %clock; mov.u32 %r2, %clock; sub.s32 %r3, %r2, %r1;", 2},
		{"a branch to the end", "mov.u32 %r1, %clock; mov.u32 %r2, %clock; sub.s32 %r3, %r2, %r1; nanosleep.u32 %r3; setp.lt.s32 %p1, %r3, 5; @%p1 bra E; bar.sync 0; E:", 2},
	} {
		all := PTX([]byte(module("", c.body)), "k")
		found := 0
		for _, f := range all {
			if f.Kind == finding.Clock {
				found += f.Count
			}
			if f.Kind == finding.Unreadable {
				t.Errorf("%s: %s", c.name, f)
			}
		}
		if found != c.found {
			t.Errorf("%s: %d reads of a clock, want %d: %v", c.name, found, c.found, all)
		}
	}
}

// The wait may be in a function of its own. What it returns must not depend on the time.
func TestClockOfAFunction(t *testing.T) {
	t.Parallel()
	const text = `.func (.reg .b32 result) pause(.reg .b64 start) {
	.reg .b64 %rd<3>; .reg .b32 %r<2>;
	mov.u64 %rd1, %globaltimer; sub.s64 %rd2, %rd1, start; cvt.u32.u64 %r1, %rd2; nanosleep.u32 %r1; mov.u32 result, 0;
	ret;
}
`
	all := PTX([]byte(module(text, "call.uni (%r1), pause, (%rd1);")), "k")
	if !slices.ContainsFunc(all, func(f finding.Finding) bool { return f.Kind == finding.Clock }) {
		t.Errorf("a start that the caller passes may be 0: found %v", all)
	}
	inside := strings.Replace(text, "mov.u64 %rd1,", "mov.u64 %rd0, %globaltimer; mov.u64 %rd1,", 1)
	inside = strings.Replace(inside, "%rd1, start", "%rd1, %rd0", 1)
	if all := PTX([]byte(module(inside, "call.uni (%r1), pause, (%rd1);")), "k"); len(all) > 0 {
		t.Errorf("found %v", all)
	}
	returned := strings.Replace(inside, "mov.u32 result, 0", "mov.u32 result, %r1", 1)
	if all := PTX([]byte(module(returned, "call.uni (%r1), pause, (%rd1);")), "k"); len(all) != 1 || all[0].Kind != finding.Clock {
		t.Errorf("a duration that is returned: found %v", all)
	}
}
