package sim

import (
	"testing"

	"attune/internal/sim/mem"
)

// TestArrayElements accesses elements of arrays by their index.
func TestArrayElements(t *testing.T) {
	t.Parallel()
	const arrays = ".global .align 4 .u32 a[4] = {5, 6, 7, 8};\n.global .align 4 .u32 m[2][3] = {{1, 2, 3}, {4, 5, 6}};\n.shared .align 8 .b64 s[4];\n"
	for name, body := range map[string]string{
		"a load":           "ld.global.u32 %r1, a[2];\n",
		"an address":       "mov.u64 %rd2, a[1];\n ld.global.u32 %r1, [%rd2+4];\n",
		"two dimensions":   "ld.global.u32 %r1, m[1][2];\n add.u32 %r1, %r1, 1;\n",
		"a row":            "mov.u64 %rd2, m[1];\n ld.global.u32 %r1, [%rd2];\n add.u32 %r1, %r1, 3;\n",
		"a store":          "setp.eq.u32 %p1, %r0, 0;\n @%p1 st.shared.u64 s[3], 7;\n bar.warp.sync -1;\n ld.shared.u32 %r1, [s+24];\n",
		"an address in 32": "mov.u32 %r2, s[2];\n mov.u32 %r3, s;\n sub.u32 %r1, %r2, %r3;\n sub.u32 %r1, %r1, 9;\n",
		"an atomic":        "atom.global.or.b32 %r1, a[2], 0;\n",
		"an address plus":  ".local .b64 x;\n st.local.u64 [x], a + 1;\n ld.local.u64 %rd3, [x];\n mov.u64 %rd4, a;\n sub.u64 %rd3, %rd3, %rd4;\n cvt.u32.u64 %r1, %rd3;\n add.u32 %r1, %r1, 6;\n",
	} {
		schedules(t, name, setup{text: kernelWith(arrays, storing(body))}, each(32, func(uint32) uint32 { return 7 }))
	}
}

// TestVectorParameters passes vector registers to a function, and returns one.
func TestVectorParameters(t *testing.T) {
	t.Parallel()
	text := kernelWith(`.func (.reg .v2 .b32 r) swap(.reg .v2 .b32 a, .reg .b32 b)
{
	add.u32 r.x, a.y, b;
	mov.u32 r.y, a.x;
	ret;
}`, storing(`.reg .v2 .b32 %v<3>;
	mov.u32 %v1.x, 4;
	mov.u32 %v1.y, 300;
	call (%v2), swap, (%v1, %r0);
	add.u32 %r1, %v2.x, %v2.y;`))
	schedules(t, "swap", setup{text: text}, each(32, func(i uint32) uint32 { return 304 + i }))
}

// TestVectorMoves moves vectors, element by element.
func TestVectorMoves(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"v4.u16": "mov.u16 %h1, 1;\n mov.u16 %h2, 2;\n mov.v4.u16 {%h3, %h4, %h5, %h6}, {%h1, %h2, %h2, %h1};\n mov.b32 %r2, {%h4, %h3};\n mov.b32 %r3, {%h6, %h5};\n add.u32 %r1, %r2, %r3;\n sub.u32 %r1, %r1, 0x30000;\n add.u32 %r1, %r1, 0;\n",
		"v2.u64": "mov.u64 %rd2, 3;\n mov.u64 %rd3, 0;\n mov.v2.u64 {%rd2, %rd3}, {%rd3, %rd2};\n cvt.u32.u64 %r1, %rd3;\n",
		"v4.u32": "mov.u32 %r2, 3;\n mov.v4.u32 {%r3, %r4, %r5, %r1}, {0, 1, 2, %r2};\n",
	} {
		schedules(t, name, setup{text: kernel(storing(body))}, each(32, func(uint32) uint32 { return 3 }))
	}
}

// TestHeapOutlivesLaunch allocates in one launch, and reads and frees in the next. Without a heap the
// allocation ends with its launch.
func TestHeapOutlivesLaunch(t *testing.T) {
	t.Parallel()
	const functions = ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 a);\n.global .align 8 .u64 kept;\n"
	text := kernelWith(functions, `.param .b64 n; .param .b64 a;
	ld.global.u64 %rd5, [kept];
	setp.ne.u64 %p1, %rd5, 0;
	@%p1 bra NEXT;
	mov.u64 %rd6, 64;
	st.param.b64 [n], %rd6;
	call (a), malloc, (n);
	ld.param.b64 %rd5, [a];
	st.global.u64 [kept], %rd5;
	st.u32 [%rd5+60], 77;
	st.global.u32 [%rd31], 0;
	ret;
NEXT:
	ld.u32 %r1, [%rd5+60];
	st.param.b64 [a], %rd5;
	call free, (a);
	st.global.u32 [%rd31], %r1;
	ret;`)
	p, err := Load(mustParse(t, text), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{true, false} {
		memory, heap, instance := mem.NewMemory(), &mem.Heap{}, &Instance{}
		out := buffer(t, memory, "out", 4)
		if !keep {
			heap = nil
		}
		l := Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Params: append(littleEndian(out, 8), littleEndian(out, 8)...)}
		for launch := range 2 {
			result, err := p.Run(t.Context(), memory, l, Options{Checks: true, Heap: heap, Instance: instance})
			if err != nil || keep == (len(result.Findings) > 0) && launch == 1 {
				t.Fatalf("keep %v, launch %d: %v %v", keep, launch, err, result)
			}
		}
		if want := 2; keep && (take(t, memory, out, 1)[0] != 77 || memory.Len() != want) {
			t.Errorf("the second launch stores %d, and %d buffers are left, want 77 and %d", take(t, memory, out, 1)[0], memory.Len(), want)
		}
	}
}
