package sim

import (
	"fmt"
	"strings"
	"testing"

	"attune/internal/sim/mem"
)

// The rates of typical kernels with all checkers, in warp instructions per second of processor time:
// a reduction, a matrix product in shared memory, and products of tensor cores.

// benchmarkRate runs a kernel of buffers out and in, each of a number of words.
func benchmarkRate(b *testing.B, arch, declarations, body string, blocks, threads, words int) {
	b.Helper()
	p, err := Load(mustParse(b, kernelWith(declarations, body)), arch)
	if err != nil {
		b.Fatal(err)
	}
	m := mem.NewMemory()
	out, in := buffer(b, m, "out", 4*max(words, blocks*threads)), buffer(b, m, "in", 4*words)
	put(b, m, in, make([]uint32, words))
	l := Launch{Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}, Params: append(littleEndian(out, 8), littleEndian(in, 8)...)}
	total, before := uint64(0), processorTime()
	for b.Loop() {
		result, err := p.Run(b.Context(), m, l, Options{Checks: true, Workers: 1})
		if err != nil || len(result.Findings) > 0 {
			b.Fatal(err, result)
		}
		total += result.Counters.WarpInstructions()
	}
	b.ReportMetric(float64(total)/(processorTime()-before).Seconds()/1e6, "Minstr/cpu-s")
}

// reductionRounds is the number of words that each thread of the reduction adds.
const reductionRounds = 16

// reductionText adds words of global memory, first per thread and then in a tree in shared memory.
func reductionText() string {
	var tree strings.Builder
	for distance := 128; distance > 0; distance /= 2 {
		fmt.Fprintf(&tree, `
	setp.lt.u32 %%p1, %%r0, %d;
	@%%p1 ld.shared.f32 %%f2, [%%r5];
	@%%p1 ld.shared.f32 %%f3, [%%r5+%d];
	@%%p1 add.f32 %%f2, %%f2, %%f3;
	@%%p1 st.shared.f32 [%%r5], %%f2;
	bar.sync 0;`, distance, 4*distance)
	}
	return `
	mov.u32 %r5, s;
	mad.lo.u32 %r5, %r0, 4, %r5;
	mov.u32 %r7, %nctaid.x;
	mul.lo.u32 %r7, %r7, %r62;
	mad.wide.u32 %rd2, %r63, 4, %rd1;
	mul.wide.u32 %rd3, %r7, 4;
	mov.u32 %r2, 0;
	mov.f32 %f1, 0f00000000;
LOOP:
	ld.global.f32 %f2, [%rd2];
	add.f32 %f1, %f1, %f2;
	add.s64 %rd2, %rd2, %rd3;
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, ` + fmt.Sprint(reductionRounds) + `;
	@%p1 bra LOOP;
	st.shared.f32 [%r5], %f1;
	bar.sync 0;` + tree.String() + `
	setp.ne.u32 %p1, %r0, 0;
	@%p1 ret;
	ld.shared.f32 %f2, [s];
	st.global.f32 [%rd31], %f2;
	ret;`
}

func BenchmarkRateReduction(b *testing.B) {
	benchmarkRate(b, "", ".shared .align 16 .b8 s[1024];", reductionText(), 64, 256, 64*256*reductionRounds)
}

// sortText sorts 1024 words of shared memory with a bitonic network; each of 512 threads compares two words.
func sortText() string {
	var text strings.Builder
	text.WriteString(`
	mov.u32 %r50, s;
	mad.lo.u32 %r51, %r0, 4, %r50;
	mad.lo.u32 %r52, %r63, 0x9E3779B1, 12345;
	st.shared.u32 [%r51], %r52;
	xor.b32 %r52, %r52, 0x5A5A5A5A;
	st.shared.u32 [%r51+2048], %r52;`)
	for size := 2; size <= 1024; size *= 2 {
		fmt.Fprintf(&text, "and.b32 %%r40, %%r0, %d;\n setp.ne.u32 %%p1, %%r40, 0;\n", size/2)
		for stride := size / 2; stride > 0; stride /= 2 {
			fmt.Fprintf(&text, `
	bar.sync 0;
	and.b32 %%r41, %%r0, %d;
	shl.b32 %%r42, %%r0, 1;
	sub.u32 %%r42, %%r42, %%r41;
	mad.lo.u32 %%r43, %%r42, 4, %%r50;
	ld.shared.u32 %%r44, [%%r43];
	ld.shared.u32 %%r45, [%%r43+%d];
	setp.gt.u32 %%p2, %%r44, %%r45;
	xor.pred %%p3, %%p1, %%p2;
	@!%%p3 bra KEEP%d_%d;
	st.shared.u32 [%%r43], %%r45;
	st.shared.u32 [%%r43+%d], %%r44;
KEEP%d_%d:`, stride-1, 4*stride, size, stride, 4*stride, size, stride)
		}
	}
	return text.String() + `
	bar.sync 0;
	ld.shared.u32 %r1, [%r51];
	st.global.u32 [%rd31], %r1;
	ret;`
}

func BenchmarkRateSort(b *testing.B) {
	benchmarkRate(b, "", ".shared .align 16 .b8 s[4096];", sortText(), 8, 512, 16)
}

// stencilText adds the neighbours of each point of a plane with rows of 256 words, plane by plane, with the
// plane in shared memory and the points of a column in registers.
func stencilText(planes int) string {
	return `
	mov.u32 %r50, s;
	mad.lo.u32 %r51, %r0, 4, %r50;
	mad.wide.u32 %rd2, %r0, 4, %rd1;
	setp.eq.u32 %p2, %r0, 0;
	mov.u32 %r2, 0;
	mov.f32 %f9, 0f3E800000;
	ld.global.f32 %f1, [%rd2];
	ld.global.f32 %f2, [%rd2+1024];
LOOP:
	ld.global.f32 %f3, [%rd2+2048];
	bar.sync 0;
	st.shared.f32 [%r51+16], %f2;
	@%p2 st.shared.f32 [%r51+12], %f9;
	bar.sync 0;
	ld.shared.f32 %f4, [%r51+12];
	ld.shared.f32 %f5, [%r51+16];
	mul.f32 %f6, %f9, %f1;
	fma.rn.f32 %f6, %f9, %f3, %f6;
	fma.rn.f32 %f6, %f9, %f4, %f6;
	fma.rn.f32 %f6, %f9, %f5, %f6;
	ld.global.f32 %f7, [%rd2+1028];
	fma.rn.f32 %f6, %f9, %f7, %f6;
	st.global.f32 [%rd31], %f6;
	mov.f32 %f1, %f2;
	mov.f32 %f2, %f3;
	add.s64 %rd2, %rd2, 1024;
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, ` + fmt.Sprint(planes) + `;
	@%p1 bra LOOP;
	ret;`
}

func BenchmarkRateStencil(b *testing.B) {
	benchmarkRate(b, "", ".shared .align 16 .b8 s[1056];", stencilText(32), 16, 256, 256*36)
}

// scanText scans words of global memory by shuffles in warps, then over the warps of the block.
func scanText(rounds int) string {
	var text strings.Builder
	up := func() {
		for distance := 1; distance < 32; distance *= 2 {
			fmt.Fprintf(&text, "shfl.sync.up.b32 %%r5|%%p2, %%r4, %d, 0, -1;\n @%%p2 add.u32 %%r4, %%r4, %%r5;\n", distance)
		}
	}
	text.WriteString(`
	mov.u32 %r50, s;
	and.b32 %r40, %r0, 31;
	shr.u32 %r41, %r0, 5;
	mad.lo.u32 %r51, %r41, 4, %r50;
	mad.lo.u32 %r52, %r40, 4, %r50;
	setp.eq.u32 %p3, %r40, 31;
	setp.ne.u32 %p4, %r41, 0;
	mad.wide.u32 %rd2, %r63, 16, %rd1;
	mov.u32 %r2, 0;
LOOP:
	ld.global.v4.u32 {%r6, %r7, %r8, %r9}, [%rd2];
	add.u32 %r7, %r6, %r7;
	add.u32 %r8, %r7, %r8;
	add.u32 %r4, %r8, %r9;
`)
	up()
	text.WriteString(`
	bar.sync 0;
	@%p3 st.shared.u32 [%r51], %r4;
	bar.sync 0;
	mov.u32 %r10, %r4;
	ld.shared.u32 %r4, [%r52];
`)
	up()
	fmt.Fprintf(&text, `
	sub.u32 %%r11, %%r41, 1;
	shfl.sync.idx.b32 %%r12, %%r4, %%r11, 31, -1;
	@%%p4 add.u32 %%r10, %%r10, %%r12;
	add.u32 %%r2, %%r2, 1;
	setp.lt.u32 %%p1, %%r2, %d;
	@%%p1 bra LOOP;
	st.global.u32 [%%rd31], %%r10;
	ret;`, rounds)
	return text.String()
}

func BenchmarkRateScan(b *testing.B) {
	benchmarkRate(b, "", ".shared .align 16 .b8 s[128];", scanText(16), 4, 1024, 4*4096)
}

// gemmText multiplies tiles of 32x32 words, each thread one element of the result. In out and in the
// tiles lie one after another.
func gemmText(steps int) string {
	var products strings.Builder
	for k := range 32 {
		fmt.Fprintf(&products, "ld.shared.f32 %%f2, [%%r10+%d];\n ld.shared.f32 %%f3, [%%r11+%d];\n fma.rn.f32 %%f1, %%f2, %%f3, %%f1;\n", 4*k, 128*k)
	}
	return `
	mov.u32 %r8, s;
	mov.u32 %r9, t;
	and.b32 %r3, %r0, 31;
	shr.u32 %r4, %r0, 5;
	mad.lo.u32 %r5, %r0, 4, %r8;
	mad.lo.u32 %r6, %r0, 4, %r9;
	mad.lo.u32 %r10, %r4, 128, %r8;
	mad.lo.u32 %r11, %r3, 4, %r9;
	mad.wide.u32 %rd2, %r0, 4, %rd1;
	mov.u32 %r2, 0;
	mov.f32 %f1, 0f00000000;
LOOP:
	ld.global.f32 %f2, [%rd2];
	ld.global.f32 %f3, [%rd2+4096];
	st.shared.f32 [%r5], %f2;
	st.shared.f32 [%r6], %f3;
	bar.sync 0;
	` + products.String() + `
	bar.sync 0;
	add.s64 %rd2, %rd2, 8192;
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, ` + fmt.Sprint(steps) + `;
	@%p1 bra LOOP;
	st.global.f32 [%rd31], %f1;
	ret;`
}

func BenchmarkRateSharedGEMM(b *testing.B) {
	const steps = 8
	benchmarkRate(b, "", ".shared .align 16 .b8 s[4096];\n.shared .align 16 .b8 t[4096];", gemmText(steps), 4, 1024, 2*steps*1024)
}

// tensorText is the inner loop of a matrix product by mma.sync: warps of 32x32 elements each, with
// operands by ldmatrix that differ from step to step. product is the instruction, and n the number of its accumulator registers.
func tensorText(product string, n, steps int) string {
	var text strings.Builder
	text.WriteString(`
	mov.u32 %r50, s;
	and.b32 %r51, %r0, 31;
	mad.lo.u32 %r51, %r51, 16, %r50;
	shr.u32 %r52, %r0, 5;
	mad.lo.u32 %r52, %r52, 1024, %r51;
	mad.lo.u32 %r53, %r0, 4, %r50;
	mov.u32 %r54, 0;
FILL:
	mad.lo.u32 %r55, %r54, 512, %r53;
	mad.lo.u32 %r56, %r55, 0x9E3779B1, %r54;
	and.b32 %r56, %r56, 0xBBFFBBFF;
	st.shared.u32 [%r55], %r56;
	add.u32 %r54, %r54, 1;
	setp.lt.u32 %p1, %r54, 16;
	@%p1 bra FILL;
	bar.sync 0;
	mov.u32 %r54, 0;
`)
	fmt.Fprintf(&text, "%sLOOP:\nand.b32 %%r57, %%r54, 3;\n mad.lo.u32 %%r58, %%r57, 16, %%r52;\n mad.lo.u32 %%r59, %%r57, 16, %%r51;\n", zeroed(0, 8*n-1))
	for i := range 2 {
		fmt.Fprintf(&text, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%%a%d,%%a%d,%%a%d,%%a%d}, [%%r58+%d];\n", 4*i, 4*i+1, 4*i+2, 4*i+3, 512*i)
		fmt.Fprintf(&text, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%%b%d,%%b%d,%%b%d,%%b%d}, [%%r59+%d];\n", 4*i, 4*i+1, 4*i+2, 4*i+3, 4096+512*i)
	}
	for i := range 8 {
		var sums []string
		for j := range n {
			sums = append(sums, fmt.Sprintf("%%r%d", i*n+j))
		}
		list, a, column := strings.Join(sums, ","), i/4*4, i%4*2
		fmt.Fprintf(&text, "%s {%s}, {%%a%d,%%a%d,%%a%d,%%a%d}, {%%b%d,%%b%d}, {%s};\n", product, list, a, a+1, a+2, a+3, column, column+1, list)
	}
	fmt.Fprintf(&text, `
	add.u32 %%r54, %%r54, 1;
	setp.lt.u32 %%p1, %%r54, %d;
	@%%p1 bra LOOP;
	st.global.u32 [%%rd31], %%r0;
	ret;`, steps)
	return ".reg .b32 %a<8>;\n.reg .b32 %b<8>;\n" + text.String()
}

func benchmarkTensor(b *testing.B, product string, n int) {
	b.Helper()
	benchmarkRate(b, "sm_90", ".shared .align 16 .b8 s[8192];", tensorText(product, n, 16), 4, 128, 4*128)
}

func BenchmarkRateMmaF32(b *testing.B) {
	benchmarkTensor(b, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 4)
}

func BenchmarkRateMmaF16(b *testing.B) {
	benchmarkTensor(b, "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", 2)
}

// wmmaKind is a shape and the types of a product by wmma: the registers of A, B and C, and the bytes of an
// element of A.
type wmmaKind struct {
	shape, mma, a, c string
	registers        [3]int
	file             [3]string // of the registers
	bytes            int
}

// wmmaText is the inner loop of a matrix product by wmma: each warp loads two fragments of A and two of B
// from shared memory, and multiplies each by each.
func wmmaText(k wmmaKind, steps int) string {
	var text strings.Builder
	list := func(matrix, fragment int) string {
		var names []string
		for i := range k.registers[matrix] {
			names = append(names, fmt.Sprintf("%%%s%d", k.file[matrix], fragment*k.registers[matrix]+i))
		}
		return strings.Join(names, ",")
	}
	text.WriteString(`
	mov.u32 %r50, s;
	mad.lo.u32 %r53, %r0, 4, %r50;
	mov.u32 %r54, 0;
FILL:
	mad.lo.u32 %r55, %r54, 512, %r53;
	mad.lo.u32 %r56, %r55, 0x9E3779B1, %r54;
	and.b32 %r56, %r56, 0x807F807F;
	or.b32 %r56, %r56, 0x3F003F00; // of moderate size in every type
	st.shared.u32 [%r55], %r56;
	add.u32 %r54, %r54, 1;
	setp.lt.u32 %p1, %r54, 24;
	@%p1 bra FILL;
	bar.sync 0;
	mov.u32 %r54, 0;
	shr.u32 %r52, %r0, 6; // two warps read the same A
	mad.lo.u32 %r52, %r52, 768, %r50;
	mov.u32 %r48, 48;
`)
	for i := range 4 {
		fmt.Fprintf(&text, "wmma.load.c.sync.aligned.row.%s.shared.%s {%s}, [%%r50], %%r48;\n", k.shape, k.c, list(2, i))
	}
	text.WriteString("LOOP:\n")
	for i := range 2 {
		fmt.Fprintf(&text, "wmma.load.a.sync.aligned.row.%s.shared.%s {%s}, [%%r52+%d], %%r48;\n", k.shape, k.a, list(0, i), 384*i*k.bytes)
		fmt.Fprintf(&text, "wmma.load.b.sync.aligned.col.%s.shared.%s {%s}, [%%r50+%d], %%r48;\n", k.shape, k.a, list(1, i), 6144+384*i*k.bytes)
	}
	for i := range 4 {
		fmt.Fprintf(&text, "wmma.mma.sync.aligned.row.col.%s.%s {%s}, {%s}, {%s}, {%s};\n", k.shape, k.mma, list(2, i), list(0, i/2), list(1, i%2), list(2, i))
	}
	fmt.Fprintf(&text, `
	add.u32 %%r54, %%r54, 1;
	setp.lt.u32 %%p1, %%r54, %d;
	@%%p1 bra LOOP;
	shr.u32 %%r52, %%r0, 5;
	mul.wide.u32 %%rd5, %%r52, 2048;
	add.s64 %%rd5, %%rd0, %%rd5;
`, steps)
	for i := range 4 {
		fmt.Fprintf(&text, "wmma.store.d.sync.aligned.row.%s.global.%s [%%rd5+%d], {%s}, %%r48;\n", k.shape, k.c, 8192*i, list(2, i))
	}
	return ".reg .b32 %a<16>;\n.reg .b32 %b<16>;\n.reg .b32 %c<32>;\n.reg .f64 %xa<2>;\n.reg .f64 %xb<2>;\n.reg .f64 %xc<8>;\n" + text.String() + "ret;"
}

func BenchmarkRateWmma(b *testing.B) {
	words := [3]string{"a", "b", "c"}
	for name, k := range map[string]wmmaKind{
		"F16":  {"m16n16k16", "f32.f32", "f16", "f32", [3]int{8, 8, 8}, words, 2},
		"BF16": {"m16n16k16", "f32.bf16.bf16.f32", "bf16", "f32", [3]int{4, 4, 8}, words, 2},
		"TF32": {"m16n16k8", "f32.tf32.tf32.f32", "tf32", "f32", [3]int{4, 4, 8}, words, 4},
		"S8":   {"m16n16k16", "s32.s8.s8.s32", "s8", "s32", [3]int{2, 2, 8}, words, 1},
		"F64":  {"m8n8k4", "f64.f64.f64.f64.rn", "f64", "f64", [3]int{1, 1, 2}, [3]string{"xa", "xb", "xc"}, 8},
	} {
		b.Run(name, func(b *testing.B) {
			benchmarkRate(b, "sm_90", ".shared .align 32 .b8 s[12288];", wmmaText(k, 64), 1, 128, 16384)
		})
	}
}

// BenchmarkRateWgmma runs the FP8 product of matmul_test.go.
func BenchmarkRateWgmma(b *testing.B) {
	x := newMatmul(b, 512, 512, 1024)
	total, before := uint64(0), processorTime()
	for b.Loop() {
		total += x.run(b, Options{Checks: true, Workers: 1}).Counters.WarpInstructions()
	}
	b.ReportMetric(float64(total)/(processorTime()-before).Seconds()/1e6, "Minstr/cpu-s")
}
