package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"attune/internal/sim/mem"
)

func TestMoves(t *testing.T) {
	t.Parallel()
	check := func(name, body string, want func(thread uint32) uint32) {
		t.Helper()
		schedules(t, name, setup{text: kernel(storing(body))}, each(32, want))
	}
	check("packed and unpacked", `
	cvt.u16.u32 %h1, %r0;
	mov.u16 %h2, 0x1234;
	mov.b32 %r2, {%h1, %h2};
	mov.b64 %rd2, {%r2, %r0};
	mov.b64 {%r3, %r4}, %rd2;
	mov.b32 {_, %h3}, %r3;
	cvt.u32.u16 %r5, %h3;
	mad.lo.u32 %r1, %r4, 65536, %r5;`, func(i uint32) uint32 { return i<<16 + 0x1234 })
	check("four of sixteen bits", `
	mov.b64 %rd2, {%h1, %h2, %h1, %h2};
	mov.u64 %rd3, 0x0004000300020001;
	mov.b64 {%h4, %h5, %h6, %h7}, %rd3;
	cvt.u32.u16 %r2, %h4;
	cvt.u32.u16 %r3, %h7;
	mad.lo.u32 %r1, %r3, 16, %r2;`, func(uint32) uint32 { return 0x41 })
	check("128 bits", `
	.reg .b128 %q<3>;
	mov.u64 %rd2, 7;
	cvt.u64.u32 %rd3, %r0;
	mov.b128 %q1, {%rd2, %rd3};
	mov.b128 %q2, %q1;
	mov.b128 {%rd4, %rd5}, %q2;
	cvt.u32.u64 %r2, %rd4;
	cvt.u32.u64 %r3, %rd5;
	mad.lo.u32 %r1, %r3, 16, %r2;`, func(i uint32) uint32 { return i<<4 + 7 })
	check("predicates", `
	setp.gt.u32 %p1, %r0, 20;
	mov.pred %p2, %p1;
	mov.pred %p3, 1;
	@%p1 mov.pred %p3, 0;
	not.pred %p4, %p1;
	and.pred %p5, %p3, %p4;
	xor.pred %p6, %p2, %p5;
	selp.u32 %r1, 10, 20, %p6;
	@!%p5 add.u32 %r1, %r1, 1;`, func(i uint32) uint32 {
		if i > 20 {
			return 11
		}
		return 10
	})
	check("with some lanes active", `
	mov.u32 %r1, 5;
	mov.u64 %rd2, 1;
	setp.lt.u32 %p1, %r0, 3;
	@%p1 mov.u32 %r1, %r0;
	@%p1 mov.u64 %rd2, 100;
	cvt.u32.u64 %r2, %rd2;
	add.u32 %r1, %r1, %r2;`, func(i uint32) uint32 {
		if i < 3 {
			return i + 100
		}
		return 6
	})
	check("a clock increases", `
	mov.u32 %r2, %clock;
	mov.u64 %rd2, %clock64;
	mov.u64 %rd3, %globaltimer;
	mov.u32 %r4, %clock_hi;
	nanosleep.u32 100;
	mov.u32 %r3, %clock;
	mov.u64 %rd4, %clock64;
	setp.gt.u32 %p1, %r3, %r2;
	setp.gt.and.u64 %p1, %rd4, %rd2, %p1;
	selp.u32 %r1, 1, 0, %p1;
	add.u32 %r1, %r1, %r4;`, func(uint32) uint32 { return 1 })
	check("two results", `
	setp.gt.and.u32 %p1|%p2, %r0, 20, 1;
	setp.lt.u32 _|%p3, %r0, 10;
	selp.u32 %r2, 1, 0, %p1;
	selp.u32 %r3, 2, 0, %p2;
	selp.u32 %r4, 4, 0, %p3;
	add.u32 %r1, %r2, %r3;
	add.u32 %r1, %r1, %r4;`, func(i uint32) uint32 {
		n := uint32(2)
		if i > 20 {
			n = 1
		}
		if i >= 10 {
			n += 4
		}
		return n
	})
	// 2^64-1 + thread, in two halves.
	check("a carry", `
	add.cc.u32 %r2, %r0, -1;
	addc.u32 %r3, 0, -1;
	mul.lo.u32 %r4, %r2, 2;
	add.u32 %r1, %r4, %r3;`, func(i uint32) uint32 {
		sum := uint64(i) + 0xffffffffffffffff
		return uint32(sum)*2 + uint32(sum>>32)
	})
	check("lop3", "lop3.b32 %r1, %r0, 12, 10, 0x96;", func(i uint32) uint32 { return i ^ 12 ^ 10 })
	check("narrow registers", `
	cvt.u16.u32 %h1, %r0;
	sub.u16 %h2, %h1, 5;
	cvt.s32.s16 %r2, %h2;
	cvt.u32.u16 %r3, %h2;
	add.u32 %r1, %r2, %r3;`, func(i uint32) uint32 { return uint32(int32(int16(i-5))) + uint32(uint16(i-5)) })
	check("instructions without effect", `
	prefetch.global.L2 [%rd0];
	createpolicy.fractional.L2::evict_last.b64 %rd5, 1.0;
	st.global.L2::cache_hint.u32 [%rd31], %r0, %rd5;
	fence.proxy.async;
	pmevent 3;
	mov.u32 %r1, 2;`, func(uint32) uint32 { return 2 })
}

func TestSpecialRegisters(t *testing.T) {
	t.Parallel()
	special := func(name string) setup {
		return setup{text: kernel(storing("mov.u32 %r1, %" + name + ";")), threads: 40, blocks: 2, shared: 64}
	}
	lane := func(i uint32) uint32 { return i % 40 % 32 }
	constant := func(n uint32) func(uint32) uint32 { return func(uint32) uint32 { return n } }
	for name, want := range map[string]func(uint32) uint32{
		"tid.x": func(i uint32) uint32 { return i % 40 }, "tid.y": constant(0), "tid.z": constant(0),
		"ntid.x": constant(40), "ntid.y": constant(1), "ctaid.x": func(i uint32) uint32 { return i / 40 }, "ctaid.z": constant(0),
		"nctaid.x": constant(2), "nctaid.y": constant(1),
		"laneid": lane, "warpid": func(i uint32) uint32 { return i % 40 / 32 }, "nwarpid": constant(2),
		"smid": func(i uint32) uint32 { return i / 40 }, "nsmid": constant(132), "gridid": constant(0),
		"lanemask_eq": func(i uint32) uint32 { return 1 << lane(i) }, "lanemask_lt": func(i uint32) uint32 { return 1<<lane(i) - 1 },
		"lanemask_le": func(i uint32) uint32 { return uint32(uint64(2)<<lane(i) - 1) }, "lanemask_ge": func(i uint32) uint32 { return ^uint32(1<<lane(i) - 1) },
		"lanemask_gt":       func(i uint32) uint32 { return ^uint32(uint64(2)<<lane(i) - 1) },
		"dynamic_smem_size": constant(64), "cluster_nctarank": constant(1), "cluster_ctarank": constant(0), "clusterid.x": func(i uint32) uint32 { return i / 40 },
		"nclusterid.x": constant(2),
	} {
		got := simulate(t, special(name))
		if w := each(80, want); !slices.Equal(got.out, w) || len(got.findings) > 0 {
			t.Errorf("%%%s is %v, want %v; %v", name, got.out, w, got.findings)
		}
	}
	// A block with three extents.
	text := kernel(`
	mov.u32 %r1, %tid.y;
	mov.u32 %r2, %tid.z;
	mov.u32 %r3, %ctaid.y;
	mad.lo.u32 %r4, %r2, 3, %r1;
	mad.lo.u32 %r4, %r4, 4, %r0;
	mad.wide.u32 %rd2, %r4, 4, %rd0;
	mad.wide.u32 %rd2, %r3, 96, %rd2;
	mad.lo.u32 %r5, %r3, 1000, %r4;
	st.global.u32 [%rd2], %r5;
	ret;`)
	p, err := Load(mustParse(t, text), "")
	if err != nil {
		t.Fatal(err)
	}
	m := mem.NewMemory()
	out := buffer(t, m, "out", 192)
	l := Launch{Grid: [3]int{1, 2, 1}, Block: [3]int{4, 3, 2}, Params: append(littleEndian(out, 8), make([]byte, 8)...)}
	_, err = p.Run(t.Context(), m, l, Options{Checks: true})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := take(t, m, out, 48), each(48, func(i uint32) uint32 { return i/24*1000 + i%24 }); !slices.Equal(got, want) {
		t.Errorf("three extents: %v, want %v", got, want)
	}
}

func TestAccesses(t *testing.T) {
	t.Parallel()
	in := each(64, func(i uint32) uint32 { return 0x80c0e0f0 + i })
	check := func(name, declarations, body string, want func(thread uint32) uint32) {
		t.Helper()
		schedules(t, name, setup{text: kernelWith(declarations, storing(body)), in: in}, each(32, want))
	}
	const own = "mad.wide.u32 %rd2, %r0, 4, %rd1;\n"
	check("bytes", "", own+"ld.global.u8 %r2, [%rd2];\n ld.global.s8 %r3, [%rd2+3];\n mad.lo.u32 %r1, %r2, 65536, %r3;",
		func(i uint32) uint32 { return uint32(byte(in[i]))<<16 + uint32(int32(int8(in[i]>>24))) })
	check("halves", "", own+"ld.global.u16 %r2, [%rd2];\n ld.global.s16 %r3, [%rd2+2];\n ld.global.u16 %h1, [%rd2];\n "+
		"cvt.u32.u16 %r4, %h1;\n mad.lo.u32 %r1, %r2, 65536, %r3;\n add.u32 %r1, %r1, %r4;",
		func(i uint32) uint32 {
			return uint32(uint16(in[i]))<<16 + uint32(int32(int16(in[i]>>16))) + uint32(uint16(in[i]))
		})
	check("widened", "", own+"ld.global.s32 %rd3, [%rd2];\n shr.s64 %rd3, %rd3, 16;\n "+
		"cvt.u32.u64 %r1, %rd3;", func(i uint32) uint32 { return uint32(int64(int32(in[i])) >> 16) })
	check("a vector", "", "mad.wide.u32 %rd2, %r0, 8, %rd1;\n ld.global.v2.u32 {%r2, %r3}, [%rd2];\n "+
		"add.u32 %r1, %r2, %r3;", func(i uint32) uint32 { return in[2*i] + in[2*i+1] })
	check("a part of a vector", "", "ld.global.v4.u32 {_, %r2, _, %r1}, [%rd1+16];\n "+
		"add.u32 %r1, %r1, %r2;", func(uint32) uint32 { return in[5] + in[7] })
	check("128 bits", "", ".reg .b128 %q1;\n ld.global.b128 %q1, [%rd1+16];\n mov.b128 {%rd2, %rd3}, %q1;\n "+
		"cvt.u32.u64 %r1, %rd3;", func(uint32) uint32 { return in[6] })
	check("read-only", "", own+"ld.global.nc.u32 %r1, [%rd2];", func(i uint32) uint32 { return in[i] })
	check("shared memory by name and by address", ".shared .align 4 .b8 s[256];", `
	mov.u32 %r2, s;
	mad.lo.u32 %r3, %r0, 4, %r2;
	st.shared.u32 [%r3], %r0;
	mov.u16 %h1, 0;
	st.shared.v2.u16 [%r3+128], {%h1, 7};
	bar.warp.sync -1;
	ld.shared.u32 %r4, [s+12];
	ld.shared.u16 %r5, [%r3+130];
	add.u32 %r1, %r4, %r5;`, func(uint32) uint32 { return 10 })
	check("local", "", `
	.local .align 8 .b8 l[32];
	st.local.u32 [l+4], %r0;
	mov.u64 %rd2, l;
	cvta.local.u64 %rd3, %rd2;
	st.u64 [%rd3+8], %rd3;
	ld.u32 %r1, [%rd3+4];
	ld.local.u64 %rd4, [l+8];
	setp.eq.u64 %p1, %rd4, %rd3;
	@%p1 add.u32 %r1, %r1, 100;`, func(i uint32) uint32 { return i + 100 })
	check("constants", ".const .align 4 .u32 c[4] = {10, 20, 30, 40};\n.const .f32 f = 0f40000000;", `
	and.b32 %r2, %r0, 3;
	mov.u64 %rd2, c;
	mad.wide.u32 %rd2, %r2, 4, %rd2;
	ld.const.u32 %r1, [%rd2];
	ld.const.f32 %f1, [f];
	cvt.rzi.u32.f32 %r3, %f1;
	add.u32 %r1, %r1, %r3;`, func(i uint32) uint32 { return 12 + i%4*10 })
	check("variables", `.global .align 4 .u32 g[3] = {5, 6};
.global .align 8 .u64 at[2] = {g, generic(g)+4};
.const .align 4 .u32 c[2] = {7, 8};
.global .align 8 .u64 atc[2] = {generic(c), c+4};`, `
	ld.global.u64 %rd2, [at];
	ld.global.u32 %r2, [%rd2+4];
	ld.global.u64 %rd3, [at+8];
	ld.u32 %r3, [%rd3];
	ld.global.u64 %rd4, [atc];
	ld.u32 %r4, [%rd4+4];
	ld.global.u64 %rd5, [atc+8];
	ld.const.u32 %r5, [%rd5];
	ld.global.u32 %r6, [g+8];
	mad.lo.u32 %r1, %r2, 10, %r3;
	mad.lo.u32 %r1, %r1, 10, %r4;
	mad.lo.u32 %r1, %r1, 10, %r5;
	add.u32 %r1, %r1, %r6;`, func(uint32) uint32 { return 6688 })
	check("generic addresses", ".shared .align 4 .u32 s;\n.const .align 4 .u32 c = 3;", `
	setp.eq.u32 %p1, %r0, 0;
	@%p1 st.shared.u32 [s], 40;
	bar.warp.sync -1;
	mov.u64 %rd2, s;
	cvta.shared.u64 %rd3, %rd2;
	and.b32 %r2, %r0, 1;
	setp.eq.u32 %p2, %r2, 0;
	selp.b64 %rd4, %rd3, %rd1, %p2;
	ld.u32 %r1, [%rd4];
	isspacep.shared %p3, %rd4;
	isspacep.global %p4, %rd4;
	cvta.to.shared.u64 %rd5, %rd3;
	setp.eq.u64 %p5, %rd5, %rd2;
	@%p3 add.u32 %r1, %r1, 1;
	@%p4 add.u32 %r1, %r1, 2;
	@%p5 add.u32 %r1, %r1, 100;`, func(i uint32) uint32 {
		if i%2 == 0 {
			return 141
		}
		return in[0] + 102
	})
	check("a parameter by its address", "", "ld.param.u32 %r1, [p0+4];\n mov.b64 {%r2, %r3}, %rd0;\n "+
		"sub.u32 %r1, %r1, %r3;", func(uint32) uint32 { return 0 })
	check("memory orders and scopes", "", `
	st.relaxed.gpu.global.u32 [%rd31], %r0;
	ld.volatile.global.u32 %r2, [%rd31];
	ld.acquire.sys.global.u32 %r3, [%rd31];
	st.release.cta.global.u32 [%rd31], %r3;
	ld.relaxed.cta.global.u32 %r1, [%rd31];`, func(i uint32) uint32 { return i })
}

func TestAtomics(t *testing.T) {
	t.Parallel()
	// All 32 threads update one word, and thread 31 reads it after a barrier.
	for _, space := range []string{"global", "shared"} {
		check := func(name, operation string, start, want uint32) {
			t.Helper()
			address := map[string]string{"global": "[%rd0+124]", "shared": "[s]"}[space]
			text := kernelWith(".shared .align 4 .u32 s;", strings.NewReplacer("SPACE", space, "ADDRESS", address).Replace(fmt.Sprintf(`
	setp.eq.u32 %%p1, %%r0, 31;
	@%%p1 st.SPACE.u32 ADDRESS, %d;
	bar.sync 0;
	%s
	bar.sync 0;
	@%%p1 ld.SPACE.u32 %%r1, ADDRESS;
	@!%%p1 mov.u32 %%r1, 0;
	st.global.u32 [%%rd31], %%r1;
	ret;`, start, operation)))
			for seed := range uint64(3) {
				got := simulate(t, setup{text: text, seed: seed})
				if got.out[31] != want || len(got.findings) > 0 {
					t.Errorf("%s on %s: %#x, want %#x; %v\n%s", name, space, got.out[31], want, got.findings, numbered(text))
				}
			}
		}
		check("add", "atom.SPACE.add.u32 %r2, ADDRESS, %r0;", 4, 500)
		check("red.add", "red.SPACE.add.s32 ADDRESS, -1;", 4, 0xffffffe4)
		check("min", "atom.SPACE.min.s32 %r2, ADDRESS, %r0;", 17, 0)
		check("max", "atom.SPACE.max.u32 %r2, ADDRESS, %r0;", 17, 31)
		check("and", "atom.SPACE.and.b32 %r2, ADDRESS, %r0;", 0xff, 0)
		check("or", "red.SPACE.or.b32 ADDRESS, %r0;", 0x100, 0x11f)
		check("xor", "atom.SPACE.xor.b32 %r2, ADDRESS, %r0;", 7, 7)
		check("inc", "atom.SPACE.inc.u32 %r2, ADDRESS, 9;", 0, 2)
		check("dec", "atom.SPACE.dec.u32 %r2, ADDRESS, 9;", 0, 8)
		check("exch", "atom.SPACE.exch.b32 %r2, ADDRESS, 77;", 0, 77)
		check("cas", "atom.SPACE.cas.b32 %r2, ADDRESS, %r0, 100;", 13, 100)
		check("float", "mov.f32 %f1, 0f3E800000;\n atom.SPACE.add.f32 %f2, ADDRESS, %f1;", 0x3f800000, 0x41100000)
		check("halves", "mov.b32 %r3, 0x3c004000;\n atom.SPACE.add.noftz.f16x2 %r2, ADDRESS, %r3;", 0, 0x50005400)
		check("a sink as the result", "atom.SPACE.add.u32 _, ADDRESS, 1;", 0, 32)
	}
	// The old values are tickets: each occurs once.
	text := kernelWith(".shared .align 4 .u32 s;", storing(`
	setp.eq.u32 %p1, %r0, 0;
	@%p1 st.shared.u32 [s], 0;
	bar.sync 0;
	atom.shared.add.u32 %r1, [s], 1;`))
	for seed := range uint64(4) {
		got := simulate(t, setup{text: text, threads: 96, seed: seed}).out
		slices.Sort(got)
		if !slices.Equal(got, each(96, func(i uint32) uint32 { return i })) {
			t.Errorf("tickets, seed %d: %v", seed, got)
		}
	}
	schedules(t, "64 bits", setup{out: 8, text: kernel(`
	setp.eq.u32 %p1, %r0, 0;
	mov.u64 %rd2, 0xfffffff0;
	@%p1 st.global.u64 [%rd0], %rd2;
	mov.u64 %rd3, 3;
	@%p1 st.global.v2.u64 [%rd0+16], {%rd2, %rd3};
	@%p1 st.global.v2.u32 [%rd0+8], {%r0, %r0};
	bar.sync 0;
	atom.global.add.u64 %rd4, [%rd0], 1;
	mov.f32 %f1, 0f00000000;
	mov.f32 %f2, %f1;
	red.global.add.v2.f32 [%rd0+8], {%f1, %f2};
	.reg .b128 %q<4>;
	mov.b128 %q1, {%rd2, %rd3};
	mov.b128 %q2, {%rd3, %rd3};
	atom.global.cas.b128 %q3, [%rd0+16], %q1, %q2;
	ret;`)}, []uint32{0x10, 1, 0, 0, 3, 0, 3, 0})
	// On the chip, atomic add.f32 flushes subnormals in global memory, but not in shared memory.
	for space, want := range map[string]uint32{"global": 0, "shared": 2} {
		at := map[string]string{"global": "[%rd31]", "shared": "[s]"}[space]
		text := kernelWith(".shared .align 4 .u32 s;", storing(strings.NewReplacer("SPACE", space, "ADDRESS", at).Replace(`
	mov.b32 %f1, 1;
	st.SPACE.f32 ADDRESS, %f1;
	red.SPACE.add.f32 ADDRESS, %f1;
	ld.SPACE.u32 %r1, ADDRESS;`)))
		if got := simulate(t, setup{text: text, threads: 1}); got.out[0] != want || len(got.findings) > 0 {
			t.Errorf("a sum of subnormals on %s is %#x, want %#x; %v", space, got.out[0], want, got.findings)
		}
	}
}

func TestWarpOperations(t *testing.T) {
	t.Parallel()
	check := func(name, body string, want func(thread uint32) uint32) {
		t.Helper()
		schedules(t, name, setup{text: kernel(storing(body))}, each(32, want))
	}
	check("shuffle down", "shfl.sync.down.b32 %r1|%p1, %r0, 3, 31, -1;\n @!%p1 add.u32 %r1, %r1, 100;", func(i uint32) uint32 {
		if i > 28 {
			return i + 100
		}
		return i + 3
	})
	check("shuffle up", "shfl.sync.up.b32 %r1|%p1, %r0, 3, 0, -1;\n @!%p1 add.u32 %r1, %r1, 100;", func(i uint32) uint32 {
		if i < 3 {
			return i + 100
		}
		return i - 3
	})
	check("butterfly in segments of eight", "shfl.sync.bfly.b32 %r1|%p1, %r0, 12, 6175, -1;\n "+
		"@!%p1 add.u32 %r1, %r1, 100;", func(i uint32) uint32 {
		if i^12 > i&24|7 {
			return i + 100
		}
		return i ^ 12
	})
	check("index in segments of four", "shfl.sync.idx.b32 %r1, %r0, 2, 7199, -1;", func(i uint32) uint32 { return i&^3 + 2 })
	check("a sum over all", `
	mov.u32 %r1, %r0;
	shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1;
	add.u32 %r1, %r1, %r2;
	shfl.sync.bfly.b32 %r2, %r1, 8, 31, -1;
	add.u32 %r1, %r1, %r2;
	shfl.sync.bfly.b32 %r2, %r1, 4, 31, -1;
	add.u32 %r1, %r1, %r2;
	shfl.sync.bfly.b32 %r2, %r1, 2, 31, -1;
	add.u32 %r1, %r1, %r2;
	shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;
	add.u32 %r1, %r1, %r2;`, func(uint32) uint32 { return 496 })
	check("ballot", "setp.gt.u32 %p1, %r0, 27;\n vote.sync.ballot.b32 %r1, %p1, -1;", func(uint32) uint32 { return 0xf0000000 })
	check("votes", `
	setp.gt.u32 %p1, %r0, 27;
	vote.sync.all.pred %p2, %p1, -1;
	vote.sync.any.pred %p3, %p1, -1;
	vote.sync.uni.pred %p4, %p1, -1;
	setp.gt.u32 %p6, %r0, 40;
	vote.sync.all.pred %p5, !%p6, -1;
	vote.sync.any.pred %p7, 1, -1;
	mov.u32 %r1, 0;
	@%p2 add.u32 %r1, %r1, 1;
	@%p3 add.u32 %r1, %r1, 2;
	@%p4 add.u32 %r1, %r1, 4;
	@%p5 add.u32 %r1, %r1, 8;
	@%p7 add.u32 %r1, %r1, 16;`, func(uint32) uint32 { return 26 })
	check("match any", "shr.u32 %r2, %r0, 2;\n match.any.sync.b32 %r1, %r2, -1;", func(i uint32) uint32 { return 15 << (i &^ 3) })
	check("match all", `
	mov.u64 %rd2, 5;
	match.all.sync.b64 %r1|%p1, %rd2, -1;
	match.all.sync.b32 %r2|%p2, %r0, -1;
	add.u32 %r1, %r1, %r2;
	@%p1 add.u32 %r1, %r1, 2;
	@%p2 add.u32 %r1, %r1, 100;`, func(uint32) uint32 { return 1 })
	for operation, want := range map[string]uint32{
		"add.u32": 432, "min.s32": 0xfffffffe, "max.s32": 29, "min.u32": 0, "max.u32": 0xffffffff, "and.b32": 0, "or.b32": 0xffffffff, "xor.b32": 0,
	} {
		check("redux "+operation, "sub.u32 %r2, %r0, 2;\n redux.sync."+operation+" %r1, %r2, -1;", func(uint32) uint32 { return want })
	}
	check("elect", "elect.sync %r2|%p1, -1;\n selp.u32 %r1, 100, %r2, %p1;", func(i uint32) uint32 {
		if i == 0 {
			return 100
		}
		return 0
	})
	check("two halves with their own masks", `
	setp.lt.u32 %p1, %r0, 16;
	mov.u32 %r2, 0xffff;
	@!%p1 shl.b32 %r2, %r2, 16;
	redux.sync.add.u32 %r1, %r0, %r2;`, func(i uint32) uint32 {
		if i < 16 {
			return 120
		}
		return 376
	})
	// Diverged lanes execute one collective operation in two places.
	check("diverged lanes", `
	setp.lt.u32 %p1, %r0, 9;
	@%p1 bra A;
	add.u32 %r2, %r0, 1;
	bra TOGETHER;
A:
	mov.u32 %r2, 0;
TOGETHER:
	redux.sync.max.u32 %r1, %r2, -1;`, func(uint32) uint32 { return 32 })
	check("after lanes have ended", `
	setp.lt.u32 %p1, %r0, 9;
	mov.u32 %r1, 3;
	@%p1 st.global.u32 [%rd31], %r1;
	@%p1 exit;
	activemask.b32 %r2;
	redux.sync.add.u32 %r1, 1, %r2;`, func(i uint32) uint32 {
		if i < 9 {
			return 3
		}
		return 23
	})
	for operation, want := range map[string]uint32{"popc.u32 %r1, 0, %p1": 63 - 40, "popc.u32 %r1, 1, 64, !%p1": 41} {
		schedules(t, operation, setup{text: kernel(storing("setp.gt.u32 %p1, %r0, 40;\n " +
			"bar.red." + operation + ";")), threads: 64}, each(64, func(uint32) uint32 { return want }))
	}
	for operation, want := range map[string]uint32{"and": 0, "or": 1} {
		schedules(t, operation, setup{text: kernel(storing("setp.gt.u32 %p1, %r0, 40;\n " +
			"barrier.cta.red." + operation + ".aligned.pred %p2, 0, %p1;\n selp.u32 %r1, 1, 0, %p2;")), threads: 64},
			each(64, func(uint32) uint32 { return want }))
	}
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	check := func(name, functions, body string, want func(thread uint32) uint32) {
		t.Helper()
		schedules(t, name, setup{text: kernelWith(functions, storing(body))}, each(32, want))
	}
	const square = `
.func (.param .b32 r) square(.param .b32 a)
{
	.reg .b32 %x<3>;
	ld.param.u32 %x1, [a];
	mul.lo.u32 %x2, %x1, %x1;
	st.param.u32 [r], %x2;
	ret;
}`
	check("a value and its square", square, `
	{ .param .b32 a; .param .b32 r;
	st.param.u32 [a], %r0;
	call.uni (r), square, (a);
	ld.param.u32 %r1, [r]; }`, func(i uint32) uint32 { return i * i })
	check("in a branch", square, `
	.param .b32 a; .param .b32 r;
	mov.u32 %r1, 7;
	setp.gt.u32 %p1, %r0, 20;
	st.param.u32 [a], %r0;
	@!%p1 bra END;
	call.uni (r), square, (a);
	ld.param.u32 %r1, [r];
END:`, func(i uint32) uint32 {
		if i > 20 {
			return i * i
		}
		return 7
	})
	check("with a guard", square, `
	.param .b32 a; .param .b32 r;
	setp.gt.u32 %p1, %r0, 20;
	st.param.u32 [a], %r0;
	st.param.u32 [r], 7;
	@%p1 call.uni (r), square, (a);
	ld.param.u32 %r1, [r];
	activemask.b32 %r2;
	popc.b32 %r2, %r2;
	add.u32 %r1, %r1, %r2;`, func(i uint32) uint32 {
		if i > 20 {
			return i*i + 32
		}
		return 39
	})
	check("in registers", ".func (.reg .u32 r, .reg .u64 s) twice(.reg .u32 a, .reg .u64 b)\n{ add.u32 r, a, a; add.u64 s, b, b; ret; }", `
	mov.u64 %rd2, 50;
	call.uni (%r2, %rd3), twice, (%r0, %rd2);
	cvt.u32.u64 %r3, %rd3;
	add.u32 %r1, %r2, %r3;`, func(i uint32) uint32 { return 2*i + 100 })
	check("a call with constants", ".func (.reg .u32 r) sum(.reg .u32 a, .reg .u32 b)\n"+
		"{ add.u32 r, a, b; ret; }", "call.uni (%r1), sum, (%r0, 1000);", func(i uint32) uint32 { return i + 1000 })
	check("many values", `
.func (.param .align 8 .b8 r[16]) swap(.param .align 8 .b8 a[16])
{
	.reg .b64 %y<3>;
	ld.param.v2.u64 {%y1, %y2}, [a];
	st.param.v2.u64 [r], {%y2, %y1};
	ret;
}`, `
	.param .align 8 .b8 a[16]; .param .align 8 .b8 r[16];
	st.param.u64 [a], 5;
	st.param.u32 [a+8], %r0;
	st.param.u32 [a+12], 0;
	call (r), swap, (a);
	ld.param.u32 %r1, [r];
	ld.param.u32 %r2, [r+8];
	mad.lo.u32 %r1, %r1, 10, %r2;`, func(i uint32) uint32 { return 10*i + 5 })
	// Lanes return from different depths.
	const factorial = `
.func (.param .b32 r) factorial(.param .b32 n)
{
	.reg .b32 %x<5>;
	.reg .pred %q;
	.local .align 4 .b8 kept[4];
	.param .b32 m; .param .b32 s;
	ld.param.u32 %x1, [n];
	st.local.u32 [kept], %x1;
	setp.gt.u32 %q, %x1, 1;
	@%q bra MORE;
	st.param.u32 [r], 1;
	ret;
MORE:
	sub.u32 %x2, %x1, 1;
	st.param.u32 [m], %x2;
	call (s), factorial, (m);
	ld.param.u32 %x3, [s];
	ld.local.u32 %x4, [kept];
	mul.lo.u32 %x3, %x3, %x4;
	st.param.u32 [r], %x3;
	ret;
}`
	check("recursion", factorial, `
	.param .b32 a; .param .b32 r;
	and.b32 %r2, %r0, 7;
	st.param.u32 [a], %r2;
	call (r), factorial, (a);
	ld.param.u32 %r1, [r];
	activemask.b32 %r3;
	xor.b32 %r1, %r1, %r3;`, func(i uint32) uint32 {
		n := uint32(1)
		for j := uint32(2); j <= i&7; j++ {
			n *= j
		}
		return ^n
	})
	check("a return inside a loop", `
.func (.reg .u32 r) steps(.reg .u32 n)
{
	.reg .pred %q<3>;
	mov.u32 r, 0;
LOOP:
	setp.ge.u32 %q1, r, n;
	@%q1 ret;
	add.u32 r, r, 1;
	setp.eq.u32 %q2, r, 11;
	@%q2 ret;
	bra LOOP;
}`, "call (%r1), steps, (%r0);\n activemask.b32 %r2;\n popc.b32 %r2, %r2;\n add.u32 %r1, %r1, %r2;", func(i uint32) uint32 { return min(i, 11) + 32 })
	check("a return inside a branch", `
.func (.reg .u32 r) pick(.reg .u32 n)
{
	.reg .pred %q<4>;
	.reg .b32 %x;
	mov.u32 r, 1;
	setp.lt.u32 %q1, n, 16;
	@!%q1 bra JOIN;
	setp.lt.u32 %q2, n, 4;
	@%q2 ret;
	setp.lt.u32 %q3, n, 8;
	@!%q3 bra INNER;
	add.u32 r, r, 10;
	setp.eq.u32 %q3, n, 6;
	@%q3 ret;
INNER:
	add.u32 r, r, 100;
JOIN:
	activemask.b32 %x;
	popc.b32 %x, %x;
	mad.lo.u32 r, %x, 1000, r;
	ret;
}`, "call (%r1), pick, (%r0);\n activemask.b32 %r2;\n popc.b32 %r2, %r2;\n mad.lo.u32 %r1, %r2, 100000, %r1;", func(i uint32) uint32 {
		switch {
		case i < 4:
			return 3200001
		case i == 6:
			return 3200011
		case i < 8:
			return 3200111 + 27000
		case i < 16:
			return 3200101 + 27000
		}
		return 3200001 + 27000
	})
	check("indirect calls", `
.func (.reg .u32 r) one(.reg .u32 n)
{ add.u32 r, n, 1; ret; }
.func (.reg .u32 r) two(.reg .u32 n)
{ add.u32 r, n, 200; ret; }
.global .align 8 .u64 table[2] = {one, two};`, `
	and.b32 %r2, %r0, 1;
	mov.u64 %rd2, table;
	mad.wide.u32 %rd3, %r2, 8, %rd2;
	ld.global.u64 %rd4, [%rd3];
	PROTO: .callprototype (.reg .u32 r) _ (.reg .u32 n);
	call (%r1), %rd4, (%r0), PROTO;
	setp.gt.u32 %p1, %r0, 15;
	mov.u64 %rd5, two;
	@%p1 call (%r1), %rd5, (%r1), PROTO;
	activemask.b32 %r2;
	popc.b32 %r2, %r2;
	add.u32 %r1, %r1, %r2;`, func(i uint32) uint32 {
		n := i + 33
		if i%2 == 1 {
			n = i + 232
		}
		if i > 15 {
			n += 200
		}
		return n
	})
	// A thread may end inside a function.
	check("exit inside a function", ".func f(.reg .u32 n, .reg .u64 at)\n{ .reg .pred %q;\n setp.eq.u32 %q, n, 5;\n @!%q bra GO;\n "+
		"st.global.u32 [at], 1;\n exit;\nGO:\n ret; }",
		"call f, (%r0, %rd31);\n activemask.b32 %r1;", func(i uint32) uint32 {
			if i == 5 {
				return 1
			}
			return everyLane &^ (1 << 5)
		})
}

func TestPrintf(t *testing.T) {
	t.Parallel()
	text := kernelWith(`.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 format[] = {37,100,32,37,117,32,37,120,32,37,53,46,50,102,124,37,108,108,100,32,37,99,32,37,115,32,37,37,32,37,112,32,37,113,10,0};
.global .align 1 .b8 word[] = {104,105,0};`, `
	.local .align 8 .b8 l[64];
	.param .b64 f; .param .b64 a; .param .b32 n;
	mov.u64 %rd2, l;
	cvta.local.u64 %rd3, %rd2;
	st.local.u32 [l], -3;
	st.local.u32 [l+4], -1;
	st.local.u32 [l+8], 255;
	mov.f64 %fd1, 0d4004000000000000;
	st.local.f64 [l+16], %fd1;
	st.local.u64 [l+24], -5;
	st.local.u32 [l+32], 65;
	mov.u64 %rd4, word;
	cvta.global.u64 %rd4, %rd4;
	st.local.u64 [l+40], %rd4;
	st.local.u64 [l+48], 16;
	mov.u64 %rd5, format;
	cvta.global.u64 %rd5, %rd5;
	st.param.b64 [f], %rd5;
	st.param.b64 [a], %rd3;
	setp.gt.u32 %p1, %r0, 0;
	@%p1 bra END;
	call (n), vprintf, (f, a);
	ld.param.u32 %r1, [n];
	st.global.u32 [%rd0], %r1;
END:
	ret;`)
	var printed []string
	got := simulate(t, setup{text: text, out: 1, printf: func(s string) { printed = append(printed, s) }})
	want := "-3 4294967295 ff  2.50|-5 A hi % 0x10 %q\n"
	if !slices.Equal(printed, []string{want}) || len(got.findings) > 0 || got.out[0] != 8 {
		t.Errorf("printf prints %q, findings %v, returns %d; want %q, and 8 arguments", printed, got.findings, got.out[0], want)
	}
	simulate(t, setup{text: text, out: 1}) // without a printf function
}

func TestMatrices(t *testing.T) {
	t.Parallel()
	check := func(name, body string, g setup, want []uint32) {
		t.Helper()
		g.text = kernelWith(".shared .align 128 .b8 s[2048];", body)
		g.out = len(want)
		schedules(t, name, g, want)
	}
	// Word i has the f16 elements 2i and 2i+1: 32 rows of eight elements.
	in := each(512, func(i uint32) uint32 { return (2*i+1)<<16 | 2*i })
	const (
		rows = `
	mov.u32 %r50, s;
	mad.lo.u32 %r51, %r0, 16, %r50;
	mad.wide.u32 %rd5, %r0, 16, %rd1;
	ld.global.v4.u32 {%r52,%r53,%r54,%r55}, [%rd5];
	st.shared.v4.u32 [%r51], {%r52,%r53,%r54,%r55};
	bar.warp.sync -1;
	mad.wide.u32 %rd6, %r0, 16, %rd0;
`
		save = "st.global.v4.u32 [%rd6], {%r4,%r5,%r6,%r7};\n ret;"
	)
	half := func(row, col uint32) uint32 { return 8*row + col }
	check("four matrices", rows+"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4,%r5,%r6,%r7}, [%r51];\n"+save, setup{in: in}, each(128, func(i uint32) uint32 {
		lane, matrix := i/4, i%4
		row := 8*matrix + lane/4
		return half(row, lane%4*2+1)<<16 | half(row, lane%4*2)
	}))
	check("transposed", rows+"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r4,%r5,%r6,%r7}, [%r51];\n"+save, setup{in: in}, each(128, func(i uint32) uint32 {
		lane, matrix := i/4, i%4
		row := 8*matrix + lane%4*2
		return half(row+1, lane/4)<<16 | half(row, lane/4)
	}))
	turned := each(32, func(i uint32) uint32 { return half(i%4*2+1, i/4)<<16 | half(i%4*2, i/4) })
	check("in registers", rows+"ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r51];\n "+
		"movmatrix.sync.aligned.m8n8.trans.b16 %r5, %r4;\n st.global.u32 [%rd31], %r5;\n ret;",
		setup{in: in}, turned)
	check("ldmatrix and stmatrix", rows+`
	ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r4,%r5}, [%r51];
	bar.warp.sync -1;
	stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r51+1024], {%r4,%r5};
	bar.warp.sync -1;
	setp.lt.u32 %p1, %r0, 16;
	@%p1 ld.shared.v4.u32 {%r4,%r5,%r6,%r7}, [%r51+1024];
	@%p1 st.global.v4.u32 [%rd6], {%r4,%r5,%r6,%r7};
	ret;`, setup{in: in}, in[:64])
	check("stmatrix transposed", rows+`
	ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r51];
	mov.u64 %rd7, s;
	cvta.shared.u64 %rd7, %rd7;
	mad.wide.u32 %rd7, %r0, 16, %rd7;
	stmatrix.sync.aligned.m8n8.x1.trans.b16 [%rd7+1024], {%r4};
	bar.warp.sync -1;
	setp.lt.u32 %p1, %r0, 8;
	@%p1 ld.shared.v4.u32 {%r4,%r5,%r6,%r7}, [%r51+1024];
	@%p1 st.global.v4.u32 [%rd6], {%r4,%r5,%r6,%r7};
	ret;`, setup{in: in}, each(32, func(i uint32) uint32 { row, col := i/4, i%4*2; return half(col+1, row)<<16 | half(col, row) }))

	// Integers, so that the result does not depend on the order of the sum.
	check("a product", `
	and.b32 %r2, %r0, 3;
	cvt.rn.f32.u32 %f1, %r2;
	mov.b32 %r10, %f1;
	mov.f32 %f2, 0f3F800000;
	mov.b32 %r11, %f2;
	mov.f32 %f3, 0f41200000;
	mov.b32 %r12, %f3;
	mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%r4,%r5,%r6,%r7}, {%r10,%r10}, {%r11}, {%r12,%r12,%r12,%r12};
	mad.wide.u32 %rd6, %r0, 16, %rd0;
`+save, setup{}, each(128, func(uint32) uint32 { return 0x41800000 })) // 0+1+2+3 + 10
	for _, c := range []struct {
		name, layout string
		want         func(row, col uint32) uint32
	}{
		{"rows", "row", func(row, col uint32) uint32 { return half16(row, col) }},
		{"columns", "col", func(row, col uint32) uint32 { return half16(col, row) }},
	} {
		// Loaded as f16 by rows or columns and stored by rows: the fragment layout has no effect.
		check("a fragment by "+c.name, strings.Replace(`
	wmma.load.c.sync.aligned.LAYOUT.m16n16k16.global.f16 {%r4,%r5,%r6,%r7}, [%rd1], 16;
	wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [%rd0], {%r4,%r5,%r6,%r7};
	ret;`, "LAYOUT", c.layout, 1), setup{in: in}, each(128, func(i uint32) uint32 {
			row, col := i/8, i%8*2
			return c.want(row, col+1)<<16 | c.want(row, col)
		}))
	}
	check("a fragment of f32 with a stride", `
	wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%r4,%r5,%r6,%r7,%r8,%r9,%r10,%r11}, [%rd1], 20;
	mov.u32 %r50, s;
	wmma.store.d.sync.aligned.col.m16n16k16.shared.f32 [%r50], {%r4,%r5,%r6,%r7,%r8,%r9,%r10,%r11}, 16;
	bar.warp.sync -1;
	mad.lo.u32 %r51, %r0, 32, %r50;
	ld.shared.v4.u32 {%r4,%r5,%r6,%r7}, [%r51];
	ld.shared.v4.u32 {%r8,%r9,%r10,%r11}, [%r51+16];
	mad.wide.u32 %rd6, %r0, 32, %rd0;
	st.global.v4.u32 [%rd6], {%r4,%r5,%r6,%r7};
	st.global.v4.u32 [%rd6+16], {%r8,%r9,%r10,%r11};
	ret;`, setup{in: in}, each(256, func(i uint32) uint32 { return in[i%16*20+i/16] }))
	// Matrices that are not square: 8x32 and 32x8.
	for shape, rows := range map[string]uint32{"m8n32k16": 8, "m32n8k16": 32} {
		columns := 256 / rows
		for _, layout := range []string{"row", "col"} {
			text := fmt.Sprintf(`
	wmma.load.c.sync.aligned.%s.%s.global.f32 {%%r4,%%r5,%%r6,%%r7,%%r8,%%r9,%%r10,%%r11}, [%%rd1];
	wmma.store.d.sync.aligned.row.%s.global.f32 [%%rd0], {%%r4,%%r5,%%r6,%%r7,%%r8,%%r9,%%r10,%%r11};
	ret;`, layout, shape, shape)
			check(shape+" by "+layout, text, setup{in: in}, each(256, func(i uint32) uint32 {
				if layout == "row" {
					return in[i]
				}
				return in[i%columns*rows+i/columns]
			}))
		}
	}
	// Operands of all ones, so that a sum counts the elements.
	ones := each(64, func(uint32) uint32 { return 0x01010101 })
	check("bytes", `
	wmma.load.a.sync.aligned.row.m16n16k16.global.s8 {%r4,%r5}, [%rd1], 16;
	wmma.load.b.sync.aligned.col.m16n16k16.global.s8 {%r6,%r7}, [%rd1], 16;
	wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32 {%r10,%r11,%r12,%r13,%r14,%r15,%r16,%r17}, {%r4,%r5}, {%r6,%r7}, {%r0,%r0,%r0,%r0,%r0,%r0,%r0,%r0};
	sub.u32 %r1, %r10, %r0;
	st.global.u32 [%rd31], %r1;
	ret;`, setup{in: ones}, each(32, func(uint32) uint32 { return 16 }))
	check("nibbles", `
	mov.u32 %r20, 0;
	wmma.load.a.sync.aligned.row.m8n8k32.global.u4 {%r4}, [%rd1], 32;
	wmma.load.b.sync.aligned.col.m8n8k32.global.u4 {%r5}, [%rd1], 32;
	wmma.mma.sync.aligned.row.col.m8n8k32.s32.u4.u4.s32 {%r10,%r11}, {%r4}, {%r5}, {%r20,%r20};
	st.global.u32 [%rd31], %r11;
	ret;`, setup{in: ones}, each(32, func(uint32) uint32 { return 16 }))
	check("bits", `
	mov.u32 %r20, 0;
	wmma.load.a.sync.aligned.row.m8n8k128.global.b1 {%r4}, [%rd1], 128;
	wmma.load.b.sync.aligned.col.m8n8k128.global.b1 {%r5}, [%rd1], 128;
	wmma.mma.and.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {%r10,%r11}, {%r4}, {%r5}, {%r20,%r20};
	st.global.u32 [%rd31], %r10;
	ret;`, setup{in: ones}, each(32, func(uint32) uint32 { return 16 }))
	// f64: 1 + 2*3*4.
	check("doubles", `
	mov.f64 %fd1, 0d4000000000000000;
	mov.f64 %fd2, 0d4008000000000000;
	mov.f64 %fd3, 0d3FF0000000000000;
	mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd4,%fd5}, {%fd1}, {%fd2}, {%fd3,%fd3};
	cvt.rzi.u32.f64 %r1, %fd5;
	st.global.u32 [%rd31], %r1;
	ret;`, setup{}, each(32, func(uint32) uint32 { return 25 }))
}

// half16 returns the bits of an element of a 16x16 matrix of f16.
func half16(row, col uint32) uint32 { return 16*row + col }
