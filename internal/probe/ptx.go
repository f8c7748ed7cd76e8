package probe

import (
	"fmt"
	"strings"
)

// Sizes of the kernels. A block of the arithmetic kernels has as many warps as fill the pipes, and each
// warp several independent chains.
const (
	productWarps = 8
	productChain = 8
	ex2Warps     = 32
	ex2Chains    = 8
	memoryWarps  = 8
	memoryLoads  = 4
)

// product is a kind of matrix product.
type product struct {
	name    string
	shape   string // m16n8k16
	types   string // of D, A, B, C, as in PTX
	depth   int
	sums    int    // registers of the sums
	isFloat bool   // registers of the sums are .f32
	least   int    // architecture
	isa     string // version of PTX
	target  string
}

var products = []product{
	{name: "mma_f16_f32", shape: "m16n8k16", types: "f32.f16.f16.f32", depth: 16, sums: 4, isFloat: true, least: 80, isa: "7.0", target: "sm_80"},
	{name: "mma_bf16_f32", shape: "m16n8k16", types: "f32.bf16.bf16.f32", depth: 16, sums: 4, isFloat: true, least: 80, isa: "7.0", target: "sm_80"},
	{name: "mma_f16_f16", shape: "m16n8k16", types: "f16.f16.f16.f16", depth: 16, sums: 2, least: 80, isa: "7.0", target: "sm_80"},
	{name: "mma_s8_s32", shape: "m16n8k32", types: "s32.s8.s8.s32", depth: 32, sums: 4, least: 80, isa: "7.0", target: "sm_80"},
	{name: "mma_e4m3_f32", shape: "m16n8k32", types: "f32.e4m3.e4m3.f32", depth: 32, sums: 4, isFloat: true, least: 89, isa: "8.4", target: "sm_89"},
	{name: "mma_e4m3_f16", shape: "m16n8k32", types: "f16.e4m3.e4m3.f16", depth: 32, sums: 2, least: 89, isa: "8.7", target: "sm_89"},
}

// flops are those of a launch with a block of steps for each multiprocessor, of one of them.
func (p product) flops(steps int) float64 {
	return float64(2*16*8*p.depth) * float64(productWarps*productChain*steps)
}

// head begins a module.
func head(isa, target string) string {
	return fmt.Sprintf(".version %s\n.target %s\n.address_size 64\n\n", isa, target)
}

// timed is an entry with a number of steps. Thread 0 of each block stores the cycles and the
// nanoseconds of the loop; every thread stores a result, so that the work is needed.
func timed(entry, registers, before, step, result string) string {
	return `.visible .entry ` + entry + `(.param .u64 in, .param .u64 times, .param .u64 out, .param .u32 steps)
{
	.reg .pred %p<3>;
	.reg .b32 %r<32>;
	.reg .b64 %rd<16>;
` + registers + `
	ld.param.u64 %rd1, [in];
	ld.param.u64 %rd2, [times];
	ld.param.u64 %rd3, [out];
	ld.param.u32 %r1, [steps];
	mov.u32 %r2, %tid.x;
	mov.u32 %r3, %ctaid.x;
	mov.u32 %r4, %ntid.x;
	mad.lo.u32 %r5, %r3, %r4, %r2;
` + before + `
	bar.sync 0;
	mov.u64 %rd4, %globaltimer;
	mov.u64 %rd5, %clock64;
loop:
` + step + `
	sub.u32 %r1, %r1, 1;
	setp.ne.u32 %p1, %r1, 0;
	@%p1 bra loop;
	bar.sync 0;
	mov.u64 %rd6, %clock64;
	mov.u64 %rd7, %globaltimer;
` + result + `
	mul.wide.u32 %rd8, %r5, 4;
	add.u64 %rd8, %rd3, %rd8;
	st.global.b32 [%rd8], %r6;
	setp.ne.u32 %p2, %r2, 0;
	@%p2 ret;
	sub.u64 %rd6, %rd6, %rd5;
	sub.u64 %rd7, %rd7, %rd4;
	mul.wide.u32 %rd8, %r3, 16;
	add.u64 %rd8, %rd2, %rd8;
	st.global.b64 [%rd8], %rd6;
	st.global.b64 [%rd8+8], %rd7;
	ret;
}
`
}

// ptx is the module of a kind of products.
func (p product) ptx() string {
	kind := "b32"
	if p.isFloat {
		kind = "f32"
	}
	var step, result strings.Builder
	list := func(prefix string, first, count int) string {
		var names []string
		for i := range count {
			names = append(names, fmt.Sprintf("%%%s%d", prefix, first+i))
		}
		return "{" + strings.Join(names, ", ") + "}"
	}
	before := `	mul.wide.u32 %rd9, %r2, 32;
	add.u64 %rd9, %rd1, %rd9;
	ld.global.v4.b32 {%r10, %r11, %r12, %r13}, [%rd9];
	ld.global.v2.b32 {%r14, %r15}, [%rd9+16];
`
	operation := "mma.sync.aligned." + p.shape + ".row.col." + p.types
	for chain := range productChain {
		d := list("d", chain*p.sums, p.sums)
		for i := range p.sums {
			before += fmt.Sprintf("\tmov.b32 %%d%d, 0;\n", chain*p.sums+i)
		}
		fmt.Fprintf(&step, "\t%s %s, {%%r10, %%r11, %%r12, %%r13}, {%%r14, %%r15}, %s;\n", operation, d, d)
	}
	result.WriteString("\tmov.b32 %r6, 0;\n")
	for i := range productChain * p.sums {
		fmt.Fprintf(&result, "\tmov.b32 %%r7, %%d%d;\n\txor.b32 %%r6, %%r6, %%r7;\n", i)
	}
	registers := fmt.Sprintf("\t.reg .%s %%d<%d>;", kind, productChain*p.sums)
	return head(p.isa, p.target) + timed(p.name, registers, before, step.String(), result.String())
}

// ex2PTX has a kernel of exponentials.
func ex2PTX() string {
	var before, step, result strings.Builder
	before.WriteString("\tmul.wide.u32 %rd9, %r2, 32;\n\tadd.u64 %rd9, %rd1, %rd9;\n")
	result.WriteString("\tmov.b32 %r6, 0;\n")
	for i := range ex2Chains {
		fmt.Fprintf(&before, "\tld.global.f32 %%f%d, [%%rd9+%d];\n", i, 4*i)
		fmt.Fprintf(&step, "\tex2.approx.ftz.f32 %%f%d, %%f%d;\n", i, i)
		fmt.Fprintf(&result, "\tmov.b32 %%r7, %%f%d;\n\txor.b32 %%r6, %%r6, %%r7;\n", i)
	}
	registers := fmt.Sprintf("\t.reg .f32 %%f<%d>;", ex2Chains)
	return head("7.0", "sm_80") + timed(ex2Entry, registers, before.String(), step.String(), result.String())
}

const (
	ex2Entry  = "ex2"
	copyEntry = "copy"
	readEntry = "read"
)

// memoryPTX has a kernel that copies a buffer and one that reads a buffer several times, 16 bytes a
// thread, past L1. The threads of the grid take all units of 16 bytes in turns; there are memoryLoads
// for each thread, or a multiple of that.
func memoryPTX() string {
	var loads, stores, sums strings.Builder
	for i := range memoryLoads {
		r := fmt.Sprintf("{%%v%d, %%v%d, %%v%d, %%v%d}", 4*i, 4*i+1, 4*i+2, 4*i+3)
		fmt.Fprintf(&loads, "\tld.global.cg.v4.b32 %s, [%%rd7];\n\tadd.u64 %%rd7, %%rd7, %%rd10;\n", r)
		fmt.Fprintf(&stores, "\tst.global.cg.v4.b32 [%%rd8], %s;\n\tadd.u64 %%rd8, %%rd8, %%rd10;\n", r)
		for j := range 4 {
			fmt.Fprintf(&sums, "\txor.b32 %%r6, %%r6, %%v%d;\n", 4*i+j)
		}
	}
	begin := `{
	.reg .pred %p<3>;
	.reg .b32 %r<8>;
	.reg .b32 %v<16>;
	.reg .b64 %rd<12>;
	ld.param.u64 %rd1, [in];
	ld.param.u64 %rd2, [out];
	ld.param.u64 %rd3, [bytes];
	ld.param.u32 %r5, [times];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %nctaid.x;
	mad.lo.u32 %r1, %r2, %r3, %r1;
	mul.wide.u32 %rd4, %r1, 16;
	mul.lo.u32 %r3, %r3, %r4;
	mul.wide.u32 %rd10, %r3, 16;
	mul.lo.u64 %rd5, %rd10, ` + fmt.Sprint(memoryLoads) + `;
	mov.b32 %r6, 0;
again:
	mov.u64 %rd9, %rd4;
next:
	add.u64 %rd7, %rd1, %rd9;
` + loads.String()
	end := `	add.u64 %rd9, %rd9, %rd5;
	setp.lt.u64 %p1, %rd9, %rd3;
	@%p1 bra next;
	sub.u32 %r5, %r5, 1;
	setp.ne.u32 %p2, %r5, 0;
	@%p2 bra again;
`
	parameters := "(.param .u64 in, .param .u64 out, .param .u64 bytes, .param .u32 times)\n"
	return head("7.0", "sm_80") +
		".visible .entry " + copyEntry + parameters + begin + "\tadd.u64 %rd8, %rd2, %rd9;\n" + stores.String() + end + "\tret;\n}\n\n" +
		".visible .entry " + readEntry + parameters + begin + sums.String() + end + `	mul.wide.u32 %rd8, %r1, 4;
	add.u64 %rd8, %rd2, %rd8;
	st.global.b32 [%rd8], %r6;
	ret;
}
`
}
