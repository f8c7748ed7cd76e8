package audit

import (
	"slices"
	"strings"
	"testing"

	"attune/internal/finding"
)

// frame has functions that get the address of local memory, or have some of their own.
const frame = `.func peek(.param .b64 at) {
	.reg .b64 %rd<2>; .reg .b32 %r<2>;
	ld.param.b64 %rd1, [at];
	ld.u32 %r1, [%rd1];
	ret;
}
.func forward(.param .b64 at) {
	.reg .b64 %rd<2>;
	ld.param.b64 %rd1, [at];
	{ .param .b64 a; st.param.b64 [a], %rd1; call.uni peek, (a); }
	ret;
}
.func fill(.param .b64 at) {
	.reg .b64 %rd<2>; .reg .b32 %r<2>;
	ld.param.b64 %rd1, [at];
	st.u32 [%rd1], 1;
	ld.u32 %r1, [%rd1];
	ret;
}
.func peekRegister(.reg .b64 at) {
	.reg .b32 %r<2>;
	ld.u32 %r1, [at+4];
	ret;
}
.func own() {
	.local .align 8 .b8 mine[16]; .reg .b32 %r<2>;
	ld.local.u32 %r1, [mine];
	st.local.u32 [mine], 1;
	ret;
}
.func (.reg .b64 result) same(.reg .b64 at) {
	mov.u64 result, at;
	ret;
}
.func nothing() { ret; }
`

// unset returns the first finding about local memory in a body. %rd5 is the address of 16 bytes,
// %rd6 its generic form and %rd7 a place in it at an unknown index.
func unset(t *testing.T, body string) (text string) {
	t.Helper()
	start := `mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r2, 1; mov.u64 %rd5, stack;
	mul.wide.u32 %rd3, %r2, 4; add.s64 %rd7, %rd5, %rd3; `
	if strings.Contains(body, "%rd6") {
		start += "cvta.local.u64 %rd6, %rd5; "
	}
	for _, f := range PTX([]byte(module(frame, start+body)), "k") {
		switch f.Kind {
		case finding.Unreadable:
			t.Errorf("%s: %s", body, f)
		case finding.UnsetLocal:
			return f.Detail
		}
	}
	return ""
}

// Correct kernels often set local memory on some paths only, and read it where it has been set.
func TestLocalMemoryThatAPathSets(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"before": `st.local.u32 [%rd5], 1; ld.local.u32 %r1, [%rd5];`,
		"a condition that also guards the read": `@%p1 bra L; st.local.v2.u32 [%rd5], {1, 2}; st.local.u64 [%rd5+8], %rd1;
			L: bar.sync 0; @%p1 bra M; ld.local.u32 %r1, [%rd7]; M:`,
		"a guarded store": `@%p1 st.local.u32 [%rd5], 1; ld.local.u32 %r1, [%rd5];`,
		"a stack that one loop fills and another empties": `@%p1 bra M; mov.u64 %rd8, %rd5; L: st.local.u32 [%rd8], 1; add.s64 %rd8, %rd8, 4;
			@%p2 bra L; M: add.s64 %rd9, %rd7, -4; N: ld.local.u32 %r1, [%rd9]; add.s64 %rd9, %rd9, -4; @%p1 bra N;`,
		"an insertion whose loop is unrolled": `@%p1 bra L; st.local.u32 [%rd5], 1; @%p1 bra L; ld.local.u32 %r1, [%rd5]; selp.b64 %rd8, 1, 0, %p2;
			shl.b64 %rd8, %rd8, 2; add.s64 %rd9, %rd5, %rd8; st.local.u32 [%rd9], 2; @%p2 bra L; ld.local.u32 %r1, [%rd5+4]; L: ld.local.u32 %r3, [%rd5+8];`,
		"an inner loop of the loop around the read": `K: L: st.local.u32 [%rd7], 1; @%p1 bra L; ld.local.u32 %r1, [%rd5]; @%p2 bra K;`,
		"in the body of a loop":                     `L: st.local.u32 [%rd5], 1; ld.local.u32 %r1, [%rd5]; @%p1 bra L;`,
		"a loop with two entries":                   `@%p1 bra B; A: st.local.u32 [%rd5], 1; B: st.local.u32 [%rd5], 2; ld.local.u32 %r1, [%rd5]; @%p2 bra A;`,
		"behind, in the text":                       `bra M; L: ld.local.u32 %r1, [%rd5]; ret; M: st.local.u32 [%rd5], 1; bra L;`,
		"never read":                                `ret; ld.local.u32 %r1, [%rd5];`,
		"two halves":                                `st.local.u32 [%rd5+4], 1; st.local.u32 [%rd5], 1; ld.local.u64 %rd8, [%rd5];`,
		"a wider store":                             `st.local.v4.u32 [%rd5], {1, 2, 3, 4}; ld.local.u32 %r1, [%rd5+12];`,
		"a generic store":                           `st.u32 [%rd6], 1; ld.local.u32 %r1, [%rd5];`,
		"a generic load":                            `st.local.u32 [%rd5], 1; ld.u32 %r1, [%rd6];`,
		"an unknown local place":                    `st.local.u32 [%rd1], 1; ld.local.u32 %r1, [%rd5];`,
		"a load of unknown place":                   `st.local.u32 [%rd5], 1; ld.local.u32 %r1, [%rd1];`,
		"a fragment":                                `wmma.store.d.sync.aligned.row.m16n16k16.f32 [%rd6], {%f0, %f1, %f2, %f3, %f0, %f1, %f2, %f3}; ld.local.u32 %r1, [%rd5+8];`,
		"a function that fills":                     `{ .param .b64 a; st.param.b64 [a], %rd6; call.uni fill, (a); } ld.local.u32 %r1, [%rd5];`,
		"an argument of a function that reads":      `st.local.u32 [%rd5], 1; { .param .b64 a; st.param.b64 [a], %rd6; call.uni forward, (a); }`,
		"global memory that a function reads":       `{ .param .b64 a; st.param.b64 [a], %rd1; call.uni forward, (a); }`,
		"an address in memory":                      `st.shared.u64 [smem], %rd6; ld.shared.u64 %rd8, [smem]; st.u32 [%rd8], 1; ld.local.u32 %r1, [%rd5];`,
		"an address that a function returns":        `call.uni (%rd8), same, (%rd6); st.u32 [%rd8], 1; ld.local.u32 %r1, [%rd5];`,
		"local or global memory":                    `selp.b64 %rd8, %rd6, %rd1, %p1; ld.u32 %r1, [%rd8];`,
		"one of two variables": `.local .align 8 .b8 more[16]; mov.u64 %rd8, more; selp.b64 %rd9, %rd8, %rd5, %p1; st.local.u32 [%rd9], 1;
			ld.local.u32 %r1, [%rd5];`,
		"a place that is moved back": `add.s64 %rd8, %rd5, 8; st.local.u32 [%rd8+-4], 1; sub.s64 %rd9, %rd8, 4; ld.local.u32 %r1, [%rd9];`,
		"a stack of its own":         `alloca.u64 %rd8, 16; st.local.u32 [%rd8], 1; ld.local.u32 %r1, [%rd8];`,
	} {
		if text := unset(t, body); text != "" {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// A kernel that reads local memory before any path sets it can find what an earlier launch left.
func TestUnsetLocal(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"the end":                          `ld.local.u32 %r1, [%rd5]; st.local.u32 [%rd5], %r1;`,
		"a branch behind the read":         `ld.local.u32 %r1, [%rd5]; setp.eq.u32 %p1, %r1, 7; @%p1 bra L; st.local.u32 [%rd5], 7; L:`,
		"a branch beside the read":         `@%p1 bra L; st.local.u32 [%rd5], 7; ret; L: ld.local.u32 %r1, [%rd5];`,
		"a loop":                           `L: ld.local.u32 %r1, [%rd5]; st.local.u32 [%rd5], 7; @%p1 bra L;`,
		"a loop in another":                `K: L: ld.local.u32 %r1, [%rd7]; @%p1 bra L; st.local.u32 [%rd5], 7; @%p2 bra K;`,
		"a loop that begins in its middle": `bra M; L: st.local.u32 [%rd5], 7; M: ld.local.u32 %r1, [%rd5]; @%p1 bra L;`,
		"a loop with two entries":          `@%p1 bra B; A: st.local.u32 [%rd5], 1; B: ld.local.u32 %r1, [%rd5]; @%p2 bra A;`,
		"a loop over the whole kernel":     `st.local.u32 [%rd5+8], 1; L: ld.local.u32 %r1, [%rd5]; st.local.u32 [%rd5], 7; bra L;`,
		"an unknown index":                 `ld.local.u32 %r1, [%rd7]; st.local.u32 [%rd7], 7;`,
		"another element":                  `st.local.u32 [%rd5+4], 1; ld.local.u32 %r1, [%rd5]; st.local.u32 [%rd5], 7;`,
		"a part of the element":            `st.local.u8 [%rd5], 1; ld.local.u32 %r1, [%rd5]; st.local.u32 [%rd5], 7;`,
		"another variable": `.local .align 8 .b8 more[16]; mov.u64 %rd8, more; add.s64 %rd8, %rd8, %rd3; st.local.u32 [%rd8], 1;
			ld.local.u32 %r1, [%rd5]; st.local.u32 [%rd5], 7;`,
		"an address that is only converted": `cvta.local.u64 %rd8, %rd5; ld.local.u32 %r1, [%rd5]; st.local.u32 [%rd5], 7;`,
		"a generic address":                 `ld.u32 %r1, [%rd6]; st.u32 [%rd6], 7;`,
		"a store to global memory":          `st.u32 [%rd1], 1; ld.local.u32 %r1, [%rd5]; st.local.u32 [%rd5], 7;`,
		"an unknown place":                  `ld.local.u32 %r1, [%rd1]; st.local.u32 [%rd5], 7;`,
		"a stack of its own":                `alloca.u64 %rd8, 16; ld.local.u32 %r1, [%rd8]; st.local.u32 [%rd8], 1;`,
		"a call that knows nothing":         `call.uni nothing, (); ld.local.u32 %r1, [%rd5]; st.local.u32 [%rd5], 7;`,
		"a called function":                 `call.uni own, ();`,
		"an argument":                       `{ .param .b64 a; st.param.b64 [a], %rd6; call.uni peek, (a); } st.local.u32 [%rd5], 7;`,
		"an argument of an argument":        `{ .param .b64 a; st.param.b64 [a], %rd6; call.uni forward, (a); } st.local.u32 [%rd5], 7;`,
		"an argument in a register":         `call.uni peekRegister, (%rd6); st.local.u32 [%rd5], 7;`,
		"an argument of a listed function": `{ .param .b64 a; st.param.b64 [a], %rd6; mov.u64 %rd8, peek; list: .calltargets fill, peek;
			call (), %rd8, (a), list; } st.local.u32 [%rd5], 7;`,
	} {
		if text := unset(t, body); !strings.Contains(text, "local memory that no path sets before") {
			t.Errorf("%s: %q", name, text)
		}
	}
	want := "passes local memory that no path sets before to peekRegister, which reads what an earlier launch left there"
	if text := unset(t, `call.uni peekRegister, (%rd6);`); text != want {
		t.Errorf("an argument: %s", text)
	}
}

// What a function reads of its own arguments is the business of its callers.
func TestUnsetLocalOfTheCaller(t *testing.T) {
	t.Parallel()
	all := PTX([]byte(module(frame, `mov.u64 %rd5, stack; cvta.local.u64 %rd6, %rd5; call.uni peekRegister, (%rd6);`)), "k")
	places := slices.DeleteFunc(all, func(f finding.Finding) bool { return f.Kind != finding.UnsetLocal })
	if len(places) != 1 || places[0].Variable.Name != "k" || places[0].Count != 1 {
		t.Errorf("found %v", places)
	}
}
