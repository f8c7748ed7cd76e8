package sim

import (
	"runtime"
	"syscall"
	"testing"
	"time"

	"attune/internal/sim/mem"
)

// benchmark runs a kernel on every core and reports warp instructions per second and core.
func benchmark(b *testing.B, body string, blocks, threads int, checks bool) {
	b.Helper()
	benchmarkOn(b, "", body, blocks, threads, checks)
}

func benchmarkOn(b *testing.B, arch, body string, blocks, threads int, checks bool) {
	b.Helper()
	p, err := Load(mustParse(b, kernelWith(".shared .align 16 .b8 s[4096];", body)), arch)
	if err != nil {
		b.Fatal(err)
	}
	m := mem.NewMemory()
	out := buffer(b, m, "out", 4*blocks*threads)
	in := buffer(b, m, "in", 4*blocks*threads)
	put(b, m, in, make([]uint32, blocks*threads))
	l := Launch{Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}, Params: append(littleEndian(out, 8), littleEndian(in, 8)...)}
	total, before := uint64(0), processorTime()
	for b.Loop() {
		result, err := p.Run(b.Context(), m, l, Options{Checks: checks})
		if err != nil || len(result.Findings) > 0 {
			b.Fatal(err, result)
		}
		total += result.Counters.WarpInstructions()
	}
	b.ReportMetric(float64(total)/b.Elapsed().Seconds()/float64(runtime.GOMAXPROCS(0)), "warp-instr/s")
	b.ReportMetric(float64(total)/(processorTime()-before).Seconds(), "warp-instr/cpu-s") // independent of the load of the machine
}

// processorTime returns the CPU time of all threads of the process.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// aluLoop is integer and float arithmetic and a branch.
const aluLoop = `
	mov.u32 %r2, 0;
	mov.f32 %f1, 0f3F800000;
	mov.f32 %f2, 0f3F000000;
LOOP:
	add.u32 %r3, %r2, %r0;
	fma.rn.f32 %f1, %f1, %f2, %f2;
	xor.b32 %r4, %r3, %r2;
	fma.rn.f32 %f3, %f1, %f2, %f1;
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, 2000;
	@%p1 bra LOOP;
	mov.b32 %r1, %f3;
	st.global.u32 [%rd31], %r1;
	ret;`

func BenchmarkALU(b *testing.B)        { benchmark(b, aluLoop, 32, 128, false) }
func BenchmarkALUChecked(b *testing.B) { benchmark(b, aluLoop, 32, 128, true) }

// memoryLoop copies words from global memory through shared memory.
const memoryLoop = `
	mov.u32 %r2, 0;
	mov.u32 %r5, s;
	mad.lo.u32 %r5, %r0, 4, %r5;
	mad.wide.u32 %rd2, %r63, 4, %rd1;
LOOP:
	ld.global.u32 %r3, [%rd2];
	st.shared.u32 [%r5], %r3;
	ld.shared.u32 %r1, [%r5];
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, 500;
	@%p1 bra LOOP;
	st.global.u32 [%rd31], %r1;
	ret;`

func BenchmarkMemory(b *testing.B)        { benchmark(b, memoryLoop, 32, 128, false) }
func BenchmarkMemoryChecked(b *testing.B) { benchmark(b, memoryLoop, 32, 128, true) }

// divergingLoop has the halves of each warp take different sides in every iteration.
const divergingLoop = `
	mov.u32 %r1, 0;
	mov.u32 %r2, 0;
	and.b32 %r3, %r0, 1;
	setp.eq.u32 %p2, %r3, 0;
LOOP:
	@%p2 bra EVEN;
	add.u32 %r1, %r1, 1;
	bra JOIN;
EVEN:
	add.u32 %r1, %r1, 2;
JOIN:
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p1, %r2, 1000;
	@%p1 bra LOOP;
	st.global.u32 [%rd31], %r1;
	ret;`

func BenchmarkDiverging(b *testing.B) { benchmark(b, divergingLoop, 32, 128, false) }
