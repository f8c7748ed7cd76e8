package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"attune/internal/fp8"
	"attune/internal/sim/mem"
	"attune/internal/tensormap"
)

// A matrix product in the style of Hopper kernels. A producer warp issues TMA loads of tiles with
// the 128-byte swizzle into a pipeline of four stages. Two consumer warpgroups multiply them and
// release the stages. A block computes a 128x128 tile of C, which is A times the transpose of B.

const (
	matmulTile   = 128 // rows of A and of B in a block, and bytes of K in a stage
	matmulStages = 4
	matmulBytes  = matmulTile * matmulTile // of one operand in a stage
	matmulShared = 2*matmulStages*matmulBytes + 64
)

// matmulText returns the kernel k(map of A, map of B, C, steps of K, N).
func matmulText() string {
	var sums, zero, store strings.Builder
	for i := range 64 {
		fmt.Fprintf(&sums, ", %%f%d", i)
		fmt.Fprintf(&zero, "mov.f32 %%f%d, 0f00000000;\n", i)
	}
	for i := 0; i < 64; i += 2 { // two columns a register, eight columns four registers: rows g and g+8
		base := [2]string{"%rd10", "%rd11"}[i/2%2]
		fmt.Fprintf(&store, "st.global.v2.f32 [%s+%d], {%%f%d, %%f%d};\n", base, i/4*8*4, i, i+1)
	}
	var products strings.Builder
	for k := range 4 {
		fmt.Fprintf(&products, "add.s64 %%rd6, %%rd4, %d;\n add.s64 %%rd7, %%rd5, %d;\n", 2*k, 2*k)
		fmt.Fprintf(&products, "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {%s}, %%rd6, %%rd7, 1, 1, 1;\n", sums.String()[2:])
	}
	return strings.NewReplacer("ZERO", zero.String(), "PRODUCTS", products.String(), "STORE", store.String()).Replace(`.version 8.3
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 s[];
.visible .entry k(.param .align 64 .b8 a[128], .param .align 64 .b8 b[128], .param .u64 c, .param .u32 steps, .param .u32 n)
{
	.reg .pred %p<8>;
	.reg .b32 %r<40>;
	.reg .f32 %f<64>;
	.reg .b64 %rd<16>;
	mov.u32 %r0, %tid.x;
	mov.u32 %r1, s;
	add.u32 %r2, %r1, 131072; // barriers: full, then empty
	ld.param.u32 %r3, [steps];
	setp.ne.u32 %p0, %r0, 0;
	@%p0 bra READY;
	mov.u32 %r4, 0;
INIT:
	mad.lo.u32 %r5, %r4, 8, %r2;
	mbarrier.init.shared::cta.b64 [%r5], 1;
	mbarrier.init.shared::cta.b64 [%r5+32], 8;
	add.u32 %r4, %r4, 1;
	setp.lt.u32 %p1, %r4, 4;
	@%p1 bra INIT;
	fence.mbarrier_init.release.cluster;
READY:
	bar.sync 0;
	mov.u32 %r6, 0; // step
	mov.u32 %r20, %ctaid.x;
	mov.u32 %r21, %ctaid.y;
	shl.b32 %r20, %r20, 7; // first column
	shl.b32 %r21, %r21, 7; // first row
	setp.lt.u32 %p1, %r0, 256;
	@%p1 bra CONSUME;
	setp.ne.u32 %p1, %r0, 256;
	@%p1 bra END;
	mov.b64 %rd0, a;
	cvta.param.u64 %rd0, %rd0;
	mov.b64 %rd1, b;
	cvta.param.u64 %rd1, %rd1;
PRODUCE:
	and.b32 %r7, %r6, 3;
	shr.u32 %r8, %r6, 2;
	and.b32 %r8, %r8, 1;
	xor.b32 %r8, %r8, 1;
	mad.lo.u32 %r9, %r7, 8, %r2;
EMPTY:
	mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r9+32], %r8;
	@!%p2 bra EMPTY;
	mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 32768;
	mad.lo.u32 %r10, %r7, 32768, %r1;
	add.u32 %r11, %r10, 16384;
	shl.b32 %r12, %r6, 7;
	cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r10], [%rd0, {%r12, %r21}], [%r9];
	cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r11], [%rd1, {%r12, %r20}], [%r9];
	add.u32 %r6, %r6, 1;
	setp.lt.u32 %p1, %r6, %r3;
	@%p1 bra PRODUCE;
	bra END;
CONSUME:
	ZERO
	shr.u32 %r13, %r0, 7; // warpgroup
	and.b32 %r14, %r0, 31;
	setp.eq.u32 %p3, %r14, 0;
LOOP:
	and.b32 %r7, %r6, 3;
	shr.u32 %r8, %r6, 2;
	and.b32 %r8, %r8, 1;
	mad.lo.u32 %r9, %r7, 8, %r2;
FULL:
	mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r9], %r8;
	@!%p2 bra FULL;
	mad.lo.u32 %r10, %r7, 32768, %r1;
	mad.lo.u32 %r11, %r13, 8192, %r10;
	shr.u32 %r11, %r11, 4;
	shr.u32 %r10, %r10, 4;
	add.u32 %r10, %r10, 1024;
	cvt.u64.u32 %rd4, %r11;
	cvt.u64.u32 %rd5, %r10;
	or.b64 %rd4, %rd4, 0x4000004000010000;
	or.b64 %rd5, %rd5, 0x4000004000010000;
	wgmma.fence.sync.aligned;
	PRODUCTS
	wgmma.commit_group.sync.aligned;
	wgmma.wait_group.sync.aligned 0;
	bar.warp.sync -1;
	@%p3 mbarrier.arrive.shared::cta.b64 _, [%r9+32];
	add.u32 %r6, %r6, 1;
	setp.lt.u32 %p1, %r6, %r3;
	@%p1 bra LOOP;
	ld.param.u64 %rd8, [c];
	ld.param.u32 %r15, [n];
	and.b32 %r16, %r0, 3;
	shr.u32 %r17, %r14, 2;
	shr.u32 %r18, %r0, 5;
	mad.lo.u32 %r17, %r18, 16, %r17;
	add.u32 %r17, %r17, %r21; // row
	mad.lo.u32 %r18, %r16, 2, %r20; // column
	mad.lo.u32 %r19, %r17, %r15, %r18;
	mad.wide.u32 %rd10, %r19, 4, %rd8;
	shl.b32 %r15, %r15, 3;
	mad.wide.u32 %rd11, %r15, 4, %rd10;
	STORE
END:
	ret;
}
`)
}

// matmul is a launch of that kernel: A has m by k, B has n by k elements.
type matmul struct {
	m, n, k int
	a, b    []byte
	program *Program
	memory  *mem.Memory
	c       uint64
	launch  Launch
}

func newMatmul(t testing.TB, m, n, k int) *matmul {
	t.Helper()
	p, err := Load(mustParse(t, matmulText()), "sm_90a")
	if err != nil {
		t.Fatal(err)
	}
	x := &matmul{m: m, n: n, k: k, program: p, memory: mem.NewMemory()}
	random := rand.New(rand.NewPCG(4, 2))
	draw := func(name string, rows int) ([]byte, []byte) {
		data := make([]byte, rows*k)
		for i := range data { // small enough for every sum to be exact
			data[i] = byte(fp8.E4M3FromFloat32(float32(random.IntN(5)-2) / 2))
		}
		at := buffer(t, x.memory, name, len(data))
		if err := x.memory.Write(at, data); err != nil {
			t.Fatal(err)
		}
		tensor := mem.TensorMap{Address: at, Map: tensormap.Map{
			Type: "u8", Dims: []int{k, rows}, Strides: []int{k}, Box: []int{matmulTile, matmulTile}, ElementStrides: []int{1, 1}, Swizzle: "128B",
		}}
		encoded, err := tensor.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return data, encoded
	}
	var params, mapB []byte
	x.a, params = draw("a", m)
	x.b, mapB = draw("b", n)
	x.c = buffer(t, x.memory, "c", 4*m*n)
	params = append(params, mapB...)
	params = append(params, littleEndian(x.c, 8)...)
	params = append(params, littleEndian(uint64(k/matmulTile), 4)...)
	params = append(params, littleEndian(uint64(n), 4)...)
	x.launch = Launch{Grid: [3]int{n / matmulTile, m / matmulTile, 1}, Block: [3]int{288, 1, 1}, DynamicShared: matmulShared, Params: params}
	return x
}

func (x *matmul) run(t testing.TB, o Options) *Result {
	t.Helper()
	result, err := x.program.Run(t.Context(), x.memory, x.launch, o)
	if err != nil || len(result.Findings) > 0 {
		t.Fatal(err, result)
	}
	return result
}

// TestMatmul compares the kernel of the benchmark with sums in float32, under several schedules.
func TestMatmul(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	x := newMatmul(t, 256, 128, 768)
	want := x.product()
	for seed := range uint64(3) {
		for _, checks := range []bool{true, false} {
			x.run(t, Options{Seed: seed, Checks: checks})
			c := take(t, x.memory, x.c, x.m*x.n)
			for i := range c {
				if got := math.Float32frombits(c[i]); got != want[i] {
					t.Fatalf("seed %d, checks %v: element %d is %v, want %v", seed, checks, i, got, want[i])
				}
			}
			put(t, x.memory, x.c, make([]uint32, len(c)))
		}
	}
}

// product is the expected C, from operands that are decoded once.
func (x *matmul) product() []float32 {
	decoded := func(codes []byte) []float32 {
		values := make([]float32, len(codes))
		for i, code := range codes {
			values[i] = fp8.E4M3(code).Float32()
		}
		return values
	}
	a, b := decoded(x.a), decoded(x.b)
	c := make([]float32, x.m*x.n)
	for i := range c {
		row, column := a[i/x.n*x.k:], b[i%x.n*x.k:]
		for k := range x.k {
			c[i] += row[k] * column[k]
		}
	}
	return c
}

func BenchmarkMatmul(b *testing.B)        { benchmarkMatmul(b, false) }
func BenchmarkMatmulChecked(b *testing.B) { benchmarkMatmul(b, true) }

// benchmarkMatmul runs a product of 1024x1024x1024 in FP8.
func benchmarkMatmul(b *testing.B, checks bool) {
	b.Helper()
	x := newMatmul(b, 1024, 1024, 1024)
	before := processorTime()
	for b.Loop() {
		x.run(b, Options{Checks: checks})
	}
	b.ReportMetric((processorTime()-before).Seconds()/float64(b.N), "cpu-s/op")
}
