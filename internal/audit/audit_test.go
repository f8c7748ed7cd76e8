package audit

import (
	"slices"
	"strings"
	"testing"

	"attune/internal/finding"
)

// module is a kernel with some declarations and a body. It has the parameter p, and registers of
// the usual types.
func module(declarations, body string) string {
	return `.version 8.4
.target sm_90a
.address_size 64
` + declarations + `
.visible .entry k(.param .u64 p, .param .align 64 .b8 map[128])
{
	.reg .pred %p<4>;
	.reg .b32 %r<8>;
	.reg .b64 %rd<16>;
	.reg .f32 %f<4>;
	.shared .align 16 .b8 smem[64];
	.local .align 8 .b8 stack[16];
	ld.param.u64 %rd1, [p];
	cvta.to.global.u64 %rd2, %rd1;
` + body + `
	ret;
}
`
}

const counter = ".global .align 4 .u32 counter;\n"

// helper is a function that stores to the address that it is given, and one that returns it.
const helper = `.func store(.param .b64 to) {
	.reg .b64 %rd<2>;
	ld.param.b64 %rd1, [to];
	st.u32 [%rd1], 7;
	ret;
}
.func (.param .b64 result) same(.param .b64 value) {
	.reg .b64 %rd<2>;
	ld.param.b64 %rd1, [value];
	st.param.b64 [result], %rd1;
	ret;
}
.func (.reg .b64 result) inc(.reg .b64 value) {
	add.u64 result, value, 4;
	ret;
}
`

func TestFindings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, declarations, body string
		want                     []string // kind and what; empty for a clean kernel
	}{
		{"an argument", "", "ld.global.u32 %r1, [%rd2+4]; st.global.u32 [%rd2], %r1; atom.global.add.u32 %r2, [%rd2], 1;", nil},
		{
			"thread and block indices", "", "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %smid; mov.u32 %r4, %laneid;" +
				"mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], %r2;", nil,
		},
		{"a constant table", ".const .align 4 .u32 table[2] = {1, 2};", "ld.const.u32 %r1, [table+4];", nil},
		{
			"a table that is read", ".visible .global .align 4 .u32 table[2] = {1, 2};",
			"mov.u64 %rd3, table; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd5, %rd3, %rd4; ld.global.nc.u32 %r2, [%rd5+4]; prefetch.global.L2 [%rd5];", nil,
		},
		{"a variable that nothing uses", counter, "", nil},
		{
			"a variable of another entry", counter + ".entry other() { st.global.u32 [counter], 1; ret; }\n", "", nil,
		},
		{"shared and local memory", "", "mov.u64 %rd3, smem; cvta.shared.u64 %rd4, %rd3; st.u32 [%rd4], 1; mov.u64 %rd5, stack; st.local.u64 [%rd5], %rd4; ld.shared.u32 %r1, [8];", nil},
		{
			"a tensor map of an argument", "",
			"mov.u64 %rd3, map; mov.u32 %r1, smem; cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd3, {%r2, %r3}], [%r1];", nil,
		},
		{"an address from memory", "", "ld.global.u64 %rd3, [%rd2]; st.global.u32 [%rd3], 1;", nil},
		{
			"printf", ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n.global .align 1 .b8 text[3] = {104, 105, 0};\n",
			`{ .param .b64 a; .param .b64 b; .param .b32 r; mov.u64 %rd3, text; cvta.global.u64 %rd4, %rd3;
			st.param.b64 [a], %rd4; st.param.b64 [b], 0; call.uni (r), vprintf, (a, b); ld.param.b32 %r1, [r]; }`, nil,
		},
		{"a comparison of addresses", counter, "mov.u64 %rd3, counter; setp.eq.u64 %p1, %rd3, %rd2; selp.b32 %r1, 1, 0, %p1; st.global.u32 [%rd2], %r1;", []string{"module-memory counter"}},

		{"a store", counter, "st.global.u32 [counter], 1; st.global.u32 [counter], 2;", []string{"module-memory counter"}},
		{"a reduction", counter, "red.global.add.u32 [counter], 1;", []string{"module-memory counter"}},
		{"a counter of launches", counter, "mov.u64 %rd3, counter; atom.global.add.u32 %r1, [%rd3], 1;", []string{"module-memory counter"}},
		{
			"a generic address", ".visible .global .attribute(.managed) .align 8 .b8 cache[64];\n",
			"mov.u64 %rd3, cache; cvta.global.u64 %rd4, %rd3; shl.b64 %rd5, %rd1, 3; add.s64 %rd6, %rd5, %rd4; st.u32 [%rd6+4], %r1;",
			[]string{"module-memory cache"},
		},
		{
			"an address that a loop moves", counter,
			"mov.u64 %rd3, counter; bra L; M: st.global.u32 [%rd4], 1; ret; L: mov.u64 %rd4, %rd3; bra M;",
			[]string{"module-memory counter"},
		},
		{"an address in two registers", counter, "mov.u64 %rd3, counter; mov.b64 {%r1, %r2}, %rd3; mov.b64 %rd4, {%r1, %r2}; st.global.u32 [%rd4], 1;", []string{"module-memory counter"}},
		{"an address by a shuffle", counter, "mov.u64 %rd3, counter; cvt.u32.u64 %r1, %rd3; shfl.sync.idx.b32 %r2|%p1, %r1, 0, 31, -1; cvt.u64.u32 %rd4, %r2; st.global.u32 [%rd4], 1;", []string{"module-memory counter"}},
		{"an address in shared memory", counter, "mov.u64 %rd3, counter; st.shared.u64 [smem], %rd3;", []string{"module-memory counter"}},
		{"an address in an exchange", counter, "mov.u64 %rd3, counter; atom.global.exch.b64 %rd4, [%rd2], %rd3;", []string{"module-memory counter"}},
		{"a variable of a function", "", ".global .align 4 .u32 inner; st.global.u32 [inner], 1;", []string{"module-memory inner"}},
		{"a weak variable", ".weak .global .align 4 .u32 weak;\n", "st.global.u32 [weak], 1;", []string{"module-memory weak"}},
		{"a variable elsewhere", ".extern .global .align 4 .u32 far;\n", "ld.global.u32 %r1, [far];", []string{"module-memory far"}},
		{
			"a table of pointers", counter + ".global .align 8 .u64 table[1] = {counter};\n",
			"ld.global.u64 %rd3, [table]; st.global.u32 [%rd3], 1;",
			[]string{"module-memory counter"},
		},
		{"a pointer in a function", counter, ".global .align 8 .u64 inner = counter; ld.global.u64 %rd3, [inner];", []string{"module-memory counter"}},
		{
			"a parameter of a function", counter + helper,
			"{ .param .b64 a; mov.u64 %rd3, counter; cvta.global.u64 %rd4, %rd3; st.param.b64 [a], %rd4; call.uni store, (a); }",
			[]string{"module-memory counter"},
		},
		{
			"a return value", counter + helper,
			`{ .param .b64 a; .param .b64 r; mov.u64 %rd3, counter; st.param.b64 [a], %rd3; call.uni (r), same, (a);
			ld.param.b64 %rd4, [r]; st.global.u32 [%rd4], 1; }`,
			[]string{"module-memory counter"},
		},
		{
			"a return value in a register", counter + helper,
			"mov.u64 %rd3, counter; call.uni (%rd4), inc, (%rd3); st.global.u32 [%rd4], 1;",
			[]string{"module-memory counter"},
		},
		{
			"a call by a list", counter + helper,
			`{ .param .b64 a; mov.u64 %rd3, counter; mov.u64 %rd5, store; st.param.b64 [a], %rd3;
			list: .calltargets store; call (), %rd5, (a), list; }`,
			[]string{"module-memory counter"},
		},
		{
			"a call of an unknown function", counter + helper,
			`{ .param .b64 a; mov.u64 %rd3, counter; ld.global.u64 %rd5, [%rd2]; st.param.b64 [a], %rd3;
			proto: .callprototype () _ (.param .b64 _); call (), %rd5, (a), proto; }`,
			[]string{"module-memory counter", "indirect-call call"},
		},
		{"a bulk copy", counter, "mov.u64 %rd3, counter; cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r1], 16;", []string{"module-memory counter"}},

		{"the clocks", "", "mov.u64 %rd3, %clock64; mov.u32 %r1, %clock; mov.u64 %rd4, %globaltimer; mov.u32 %r2, %globaltimer_lo; mov.u32 %r3, %clock_hi; mov.u32 %r4, %pm0;", []string{
			"clock %clock64", "clock %clock", "clock %globaltimer", "clock %globaltimer_lo", "clock %clock_hi", "clock %pm0",
		}},
		{
			"a clock in a function", ".func tick() { .reg .b64 %rd<2>; mov.u64 %rd1, %clock64; ret; }\n", "call.uni tick, ();",
			[]string{"clock %clock64"},
		},
		{"the launch", "", "mov.u64 %rd3, %gridid; mov.u64 %rd4, %current_graph_exec; mov.b32 %r1, %envreg3;", []string{
			"launch-id %gridid", "launch-id %current_graph_exec", "launch-id %envreg3",
		}},
		{
			"the barrier of a cooperative grid", "",
			"mov.b32 %r1, %envreg1; mov.b32 %r2, %envreg2; mov.b64 %rd3, {%r1, %r2}; atom.global.add.u32 %r3, [%rd3], 1;",
			[]string{"launch-id %envreg1", "launch-id %envreg2"},
		},
		{
			"the heap", ".extern .func (.param .b64 r) malloc(.param .b64 n);\n",
			"{ .param .b64 n; .param .b64 r; st.param.b64 [n], 16; call.uni (r), malloc, (n); ld.param.b64 %rd3, [r]; st.u32 [%rd3], 1; }",
			[]string{"allocation malloc"},
		},
		{
			"another grid", ".extern .func (.param .b32 r) cudaLaunchDeviceV2(.param .b64 a, .param .b64 b);\n",
			"{ .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %rd1; st.param.b64 [b], 0; call.uni (r), cudaLaunchDeviceV2, (a, b); }",
			[]string{"device-launch cudaLaunchDeviceV2"},
		},
		{
			"an unknown function", counter + ".extern .func elsewhere(.param .b64 a);\n",
			"{ .param .b64 a; mov.u64 %rd3, counter; st.param.b64 [a], %rd3; call.uni elsewhere, (a); }",
			[]string{"module-memory counter", "external-call elsewhere"},
		},
		{"a constant address", "", "ld.global.u32 %r1, [4096];", []string{"absolute-address ld"}},
		{"a computed constant", "", "mov.u64 %rd3, 139637976727552; add.s64 %rd4, %rd3, 16; st.global.u32 [%rd4], 1;", []string{"absolute-address st"}},
		{"an address from a clock", "", "mov.u64 %rd3, %clock64; red.global.add.u32 [%rd3], 1;", []string{"clock %clock64", "absolute-address red"}},
		{
			"a tensor map of the module", ".global .align 64 .b8 hidden[128] = {1};\n",
			"mov.u64 %rd3, hidden; mov.u32 %r1, smem; cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd3, {%r2, %r3}], [%r1];",
			[]string{"absolute-address hidden"},
		},
		{"a constant place in shared memory", "", "mov.u64 %rd3, 1024; cvta.shared.u64 %rd4, %rd3; st.u32 [%rd4], 1;", nil},
		{
			"CUDA's part of shared memory", "",
			"mov.u32 %r1, %reserved_smem_offset_1; cvt.u64.u32 %rd3, %r1; cvta.shared.u64 %rd4, %rd3; add.s64 %rd5, %rd4, 4;" +
				"red.and.release.cta.b32 [%rd5], %r2; atom.or.acq_rel.cta.b32 %r3, [%rd5], %r2; st.u32 [%rd4+32], %r3; ld.u32 %r4, [%rd4+32];", nil,
		},
		{"a generic constant", "", "mov.u64 %rd3, 1024; cvta.to.shared.u64 %rd4, %rd3; st.u32 [%rd4], 1;", []string{"absolute-address st"}},
		{"an offset in shared memory that is none", "", "mov.u32 %r1, %reserved_smem_offset_1; cvt.u64.u32 %rd3, %r1; st.u32 [%rd3], 1;", []string{"absolute-address st"}},
		{"a surface", "", "sust.b.1d.b32.trap [%rd1, {%r1}], %r2;", []string{"texture sust"}},
		{"a texture", ".global .texref t;\n", "", []string{"unreadable PTX"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, f := range PTX([]byte(module(c.declarations, c.body)), "k") {
				if f.Kind == finding.UnsetRegister { // the bodies are fragments
					continue
				}
				got = append(got, string(f.Kind)+" "+f.Variable.Name)
				if f.Count < 1 || f.Detail == "" || !strings.HasPrefix(f.String(), string(f.Kind)+": ") {
					t.Errorf("the finding %+v", f)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// An output must not be read: it has the result of an earlier launch.
func TestOutputs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		want       []string // kind and what
	}{
		{"stores", "st.global.u32 [%rd2], %r1; red.global.add.u32 [%rd2], %r1;", nil},
		{
			"a bulk store", "mov.u64 %rd3, map; mov.u32 %r1, smem; cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd3, {%r2, %r3}], [%r1];",
			nil,
		},
		{"a load", "add.s64 %rd3, %rd2, 64; ld.global.u32 %r1, [%rd3+4];", []string{"output-read p"}},
		{"a generic load", "ld.u32 %r1, [%rd1];", []string{"output-read p"}},
		{"a reduced load", "multimem.ld_reduce.relaxed.gpu.global.add.u32 %r1, [%rd2];", []string{"output-read p"}},
		{"a multicast reduction", "multimem.red.relaxed.gpu.global.add.u32 [%rd2], %r1;", nil},
		{"an atomic", "atom.global.exch.b32 %r1, [%rd2], %r2;", []string{"output-read p"}},
		{"an asynchronous copy", "mov.u32 %r1, smem; cp.async.ca.shared.global [%r1], [%rd2], 4;", []string{"output-read p"}},
		{"a fragment", "wmma.load.c.sync.aligned.row.m16n16k16.global.f32 {%f0, %f1, %f2, %f3, %f0, %f1, %f2, %f3}, [%rd2];", []string{"output-read p"}},
		{"a fragment that is stored", "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd2], {%f0, %f1, %f2, %f3, %f0, %f1, %f2, %f3};", nil},
		{
			"a bulk load",
			"mov.u64 %rd3, map; mov.u32 %r1, smem; cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd3, {%r2, %r3}], [%r1];",
			[]string{"output-read map"},
		},
	} {
		var got []string
		for _, f := range PTX([]byte(module("", c.body)), "k", 0, 1) {
			if f.Kind != finding.UnsetRegister {
				got = append(got, string(f.Kind)+" "+f.Variable.Name)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
	}
}

// A kernel launders an address if it makes a copy that the analysis cannot follow. The address of a
// variable must not decide anything, and must keep its form up to an access.
func TestLaunderedAddresses(t *testing.T) {
	t.Parallel()
	const bit = "shr.u64 %rd4, %rd3, 9; and.b64 %rd5, %rd4, 1; "
	for _, c := range []struct {
		name, body string
		found      bool
	}{
		{"null", "setp.ne.s64 %p1, %rd3, 0;", false},
		{"null or an address", "selp.b64 %rd4, %rd3, 0, %p0; setp.ne.s64 %p1, %rd4, 0;", false},
		{
			"a choice in the variable", "add.s64 %rd4, %rd3, 4; setp.eq.s32 %p2, %r1, 0; selp.b64 %rd5, %rd3, %rd4, %p2;" +
				"sub.s64 %rd6, %rd5, %rd3; setp.ne.s64 %p1, %rd6, 0;", false,
		},
		{"the end of a loop", "add.s64 %rd4, %rd3, 64; L: add.s64 %rd3, %rd3, 4; setp.ne.s64 %p1, %rd3, %rd4;", false},
		{"a distance", "mad.wide.u32 %rd4, %r1, 4, %rd3; sub.s64 %rd5, %rd4, %rd3; setp.gt.s64 %p1, %rd5, 8;", false},
		{"an alignment", "and.b64 %rd4, %rd3, 3; setp.ne.s64 %p1, %rd4, 0;", false},
		{"a narrow alignment", "cvt.u32.u64 %r1, %rd3; and.b32 %r2, %r1, 3; setp.ne.s32 %p1, %r2, 0;", false},
		{"an aligned address", "and.b64 %rd4, %rd3, -4; or.b64 %rd5, %rd4, 2; sub.s64 %rd6, %rd5, %rd3; setp.lt.s64 %p1, %rd6, 4;", false},
		{"a narrow aligned address", "cvt.u32.u64 %r1, %rd3; and.b32 %r2, %r1, 0xfffffffc; sub.u32 %r3, %r2, %r1; setp.lt.s32 %p1, %r3, 4;", false},
		{"a space", "isspacep.global %p1, %rd3;", false},
		{"the other lanes", "shfl.sync.idx.b32 %r2|%p1, %r1, 0, 31, -1; cvt.u32.u64 %r1, %rd3;", false},
		{"local memory", "st.local.u64 [stack], %rd3; ld.local.u64 %rd4, [stack]; setp.ne.s64 %p1, %rd4, 0;", false},
		{"a load from a table", "add.s64 %rd4, %rd3, 4; ld.global.u32 %r1, [%rd4]; setp.ne.s32 %p1, %r1, 7;", false},

		{"an order", "add.s64 %rd4, %rd3, %rd0; setp.lt.u64 %p1, %rd4, %rd3;", true},
		{"another address", "setp.eq.s64 %p1, %rd3, %rd1;", true},
		{"a bit", bit + "setp.ne.s64 %p1, %rd5, 0;", true},
		{"a bit of a distance", "sub.s64 %rd3, %rd3, %rd1; " + bit + "setp.ne.s64 %p1, %rd5, 0;", true},
		{"a bit of a difference", "sub.s64 %rd3, %rd1, %rd3; " + bit + "setp.ne.s64 %p1, %rd5, 0;", true},
		{"no difference", "sub.s64 %rd4, %rd3, %rd3; add.s64 %rd5, %rd4, %rd3; add.s64 %rd6, %rd5, %rd3; setp.eq.s64 %p1, %rd6, %rd3;", true},
		{"an alignment beyond the variable", "and.b64 %rd4, %rd3, 4096; setp.ne.s64 %p1, %rd4, 0;", true},
		{"a set bit", "or.b64 %rd4, %rd3, 4096; sub.s64 %rd5, %rd4, %rd3; setp.ne.s64 %p1, %rd5, 0;", true},
		{"a widened address", "cvt.u32.u64 %r1, %rd3; cvt.u64.u32 %rd4, %r1; sub.s64 %rd5, %rd3, %rd4; setp.ne.s64 %p1, %rd5, 0;", true},
		{"a clamped address", "cvt.sat.s32.s64 %r1, %rd3; setp.ne.s32 %p1, %r1, 7;", true},
		{"a saturated sum", "cvt.u32.u64 %r1, %rd3; add.sat.s32 %r1, %r1, 1; sub.sat.s32 %r2, %r1, 1; setp.ne.s32 %p1, %r2, %r1;", true},
		{"a scaled address", "mad.lo.u64 %rd4, %rd3, 3, 1; setp.ne.s64 %p1, %rd4, 0;", true},
		{"two halves", "mov.b64 {%r1, %r2}, %rd3; setp.ne.s32 %p1, %r2, 0;", true},
		{"a choice of one's own", "selp.b64 %rd4, %rd3, 0, %p0; sub.s64 %rd5, %rd4, %rd3; setp.ne.s64 %p1, %rd5, 0;", true},
		{"a bit by a predicate of lop3", bit + "cvt.u32.u64 %r1, %rd5; lop3.or.b32 %r2|%p1, %r1, %r1, 0, 0xf0, %p0;", true},
		{"lanes that have the same", "match.all.sync.b64 %r1|%p1, %rd3, -1;", true},
		{"a lane by a bit", bit + "cvt.u32.u64 %r1, %rd5; shfl.sync.idx.b32 %r2|%p1, %r3, %r1, 31, -1;", true},
		{"a carry", "add.cc.u64 %rd4, %rd3, %rd0; addc.u64 %rd5, 0, 0; setp.ne.s64 %p1, %rd5, 0;", true},
		{"a table of bits", bit + "cvt.u32.u64 %r1, %rd5; mov.u32 %r2, smem; add.u32 %r3, %r2, %r1; ld.shared.u8 %r4, [%r3]; setp.ne.s32 %p1, %r4, 0;", true},
		{"a mark at a bit", bit + "cvt.u32.u64 %r1, %rd5; mov.u32 %r2, smem; add.u32 %r3, %r2, %r1; st.shared.u8 [%r3], 1;", true},
		{"a mark in an argument", bit + "add.s64 %rd6, %rd2, %rd5; st.global.u8 [%rd6], 1;", true},
		{"a copy from a bit", bit + "add.s64 %rd6, %rd2, %rd5; mov.u32 %r1, smem; cp.async.ca.shared.global [%r1], [%rd6], 4;", true},
		{"a barrier", bit + "cvt.u32.u64 %r1, %rd5; bar.sync %r1;", true},
		{"a table of branches", bit + "cvt.u32.u64 %r1, %rd5; list: .branchtargets L; brx.idx %r1, list; L:", true},
		{"a function", bit + "add.s64 %rd6, %rd1, %rd5; proto: .callprototype () _ (); call (), %rd6, (), proto;", true},
		{"shared memory", "st.shared.u64 [smem], %rd3;", true},
		{"half of local memory", "st.local.u64 [stack], %rd3; ld.local.u32 %r1, [stack+4]; setp.ne.s32 %p1, %r1, 0;", true},
		{"halves of local memory", "cvt.u32.u64 %r1, %rd3; st.local.u32 [stack], %r1; ld.local.u64 %rd4, [stack]; setp.ne.s64 %p1, %rd4, 0;", true},
		{"local memory by a generic address", "st.local.u64 [stack], %rd3; ld.u64 %rd4, [%rd9]; shr.u64 %rd5, %rd4, 8; setp.ne.s64 %p1, %rd5, 0;", true},
	} {
		for _, v := range []struct {
			declarations, address string
			outputs               []int
			want                  string
		}{
			{counter, "counter", nil, "module-memory counter"},
			{"", "%rd2", []int{0}, "output-read p"},
		} {
			body := c.body
			if v.outputs != nil { // the pointer that the others are compared with is an input
				body = strings.ReplaceAll(strings.ReplaceAll(body, "%rd2", "%rd0"), "%rd1,", "%rd0,")
				body = strings.ReplaceAll(body, ", %rd1;", ", %rd0;")
				if strings.Contains(c.name, "from a table") || c.name == "an order" {
					continue // an output must not be read, and p < end is common
				}
			}
			got := false
			for _, f := range PTX([]byte(module(v.declarations, "mov.u64 %rd3, "+v.address+"; "+body)), "k", v.outputs...) {
				switch {
				case f.Kind == finding.Unreadable:
					t.Errorf("%s: %s", c.name, f)
				case string(f.Kind)+" "+f.Variable.Name == v.want:
					got = true
				}
			}
			if got != c.found {
				t.Errorf("%s: %s: found %t, want %t", v.want, c.name, got, c.found)
			}
		}
	}
}

func TestUnsetRegisters(t *testing.T) {
	t.Parallel()
	body := `{ .reg .b32 left; .reg .pred q; mov.b32 %r1, left; @q mov.b32 %r2, 0; }
	setp.eq.u32 %p1|%p2, %r1, 0; @%p2 mov.b64 {%r3, %r4}, %rd1; st.global.v2.u32 [%rd2], {%r3, %r4};
	alloca.u64 %rd5, 16; st.local.u32 [%rd5], %r1; call.uni (%rd4), inc, (%rd1); st.global.u64 [%rd4], %rd4;`
	var got []string
	for _, f := range PTX([]byte(module(helper, body)), "k") {
		got = append(got, f.String())
	}
	want := []string{
		"unset-register: reads the register left, which nothing sets at ptx:31",
		"unset-register: reads the register q, which nothing sets at ptx:31",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// reason is a finding with the way to allow it.
func reason(f finding.Finding) string { return f.String() + "; " + f.Remedy() }

func TestTexts(t *testing.T) {
	t.Parallel()
	text := module(counter, ".file 1 \"kernel.cu\"\n st.global.u32 [counter], 1;\n mov.u32 %r1, %clock;\n mov.u32 %r1, %clock;")
	text = strings.Replace(text, ".file 1 \"kernel.cu\"\n", ".loc 1 12 3\n", 1) + ".file 1 \"kernel.cu\"\n"
	all := PTX([]byte(text), "k")
	var got []string
	for _, f := range all {
		got = append(got, reason(f))
	}
	want := []string{
		`module-memory: writes the variable counter of the module at kernel.cu:12 (ptx:17); ` +
			`remove it, or write allow = ["module-memory"] in kernel.toml if the kernel needs it`,
		`clock: reads %clock at kernel.cu:12 (ptx:18) and 1 more; remove it, or write allow = ["clock"] in kernel.toml if the kernel needs it`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	grid := PTX([]byte(module("", "mov.b32 %r1, %envreg1;")), "k")
	if len(grid) != 1 || reason(grid[0]) != `launch-id: reads %envreg1 at ptx:15; a grid barrier needs cooperative = true in [launch] of kernel.toml` {
		t.Errorf("the barrier of a grid: %v", reason(grid[0]))
	}
	table := PTX([]byte(module(helper, "ld.global.u64 %rd3, [%rd2]; proto: .callprototype () _ (); call (), %rd3, (), proto;")), "k")
	if len(table) != 1 || reason(table[0]) != `indirect-call: calls through a register, and no .calltargets lists the functions at ptx:31; `+
		`remove it, or write allow = ["indirect-call"] in kernel.toml if the kernel needs it` {
		t.Errorf("a call by a table of functions: %v", table)
	}
	missing := PTX([]byte(text), "other")
	if len(missing) != 1 || reason(missing[0]) != `unreadable: the PTX has no entry function other; `+
		`write the kernel without it, or allow = ["unreadable"] in kernel.toml` {
		t.Errorf("without the entry function: %v", missing)
	}
}

// FuzzPTX checks that no PTX makes the audit fail, and that every finding has a kind.
func FuzzPTX(f *testing.F) {
	f.Add(module(counter+helper, "mov.u64 %rd3, counter; call.uni (%rd4), inc, (%rd3); st.global.u32 [%rd4], 1;"))
	f.Add(module("", "mov.u64 %rd3, %clock64; red.global.add.u32 [%rd3], 1;"))
	f.Add(module("", "st.param.b64 [%rd1], 1; st.param.b64 %rd1, %rd2; cp.async [%rd1]; atom %rd1;"))
	f.Fuzz(func(t *testing.T, text string) {
		for _, found := range PTX([]byte(text), "k") {
			if !slices.Contains(finding.AllowableKinds(), found.Kind) {
				t.Errorf("the kind %q", found.Kind)
			}
		}
	})
}

// A loop over an output may end where its pointer is no longer below the end.
func TestOrderInAnOutput(t *testing.T) {
	t.Parallel()
	body := "mov.u64 %rd3, %rd2; add.s64 %rd4, %rd3, 64; L: st.global.u32 [%rd3], 0; add.s64 %rd3, %rd3, 4; setp.lt.u64 %p1, %rd3, %rd4; @%p1 bra L;"
	if found := PTX([]byte(module("", body)), "k", 0); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}
