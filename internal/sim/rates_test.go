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
