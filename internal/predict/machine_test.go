package predict

import (
	"math"
	"testing"

	"attune/internal/arch"
	"attune/internal/coverage"
	"attune/internal/device"
	"attune/internal/ptx"
)

const sass = `	.section	.text.k,"ax",@progbits
	//## File "k.cu", line 5
        /*0000*/                   LDC R1, c[0x0][0x28] ;
	//## File "loop.cuh", line 7 inlined at "k.cu", line 9
	//## File "k.cu", line 9
        /*0010*/              @!P0 HMMA.16816.F32 R4, R8, R10, R4 ;
        /*0020*/                   MUFU.EX2 R3, R3 ;
        /*0030*/                   FFMA R3, R3, R4, R5 ;
        /*0040*/                   IADD3 R3, R3, 0x1, RZ ;
	//## File "loop.cuh", line 8 inlined at "other.cu", line 1
	//## File "other.cu", line 1
        /*0050*/                   SHFL.BFLY PT, R3, R3, 0x1, 0x1f ;
	//## File "gone.cuh", line 1
        /*0060*/               @P1 F2FP.BF16.F32.PACK_AB R3, R3, R4 ;
	//## File "cuda/cuda_fp16.hpp", line 3 inlined at "k.cu", line 5
	//## File "k.cu", line 5
        /*0080*/                   STL.64 [R1], R2 ;
	//## File "gone.cuh", line 1
        /*0070*/                   BRA ` + "`(.L_x_1)" + ` ;
`

// counted are 2 blocks whose loop runs 10 times.
func counted() Sampled {
	frame := func(file string, line int) ptx.Frame { return ptx.Frame{File: file, Line: line, Column: 3} }
	inlined := []ptx.Frame{frame("loop.cuh", 7), frame("k.cu", 9)}
	return Sampled{
		Blocks: 2,
		Covered: &coverage.Launches{
			Code: &coverage.Code{Lines: make([]int, 6), Frames: [][]ptx.Frame{
				{frame("k.cu", 5)}, inlined, inlined, {frame("loop.cuh", 8), frame("k.cu", 9)}, nil, {frame("k.cu", 99)},
			}},
			Marks:    []coverage.Mark{coverage.Reachable, coverage.Reachable, coverage.Reachable, coverage.Reachable, coverage.Reachable, 0},
			Executed: []uint64{2, 20, 20, 40, 2, 5},
		},
		Counters: device.Counters{
			tensorInstructions: 20, "sim__inst_executed.sum": 84, "memory_l1_wavefronts_shared": 8, "memory_l2_theoretical_sectors_global": 4,
		},
	}
}

func TestNewWork(t *testing.T) {
	job := device.Job{Grid: [3]int{3, 2, 1}, Block: [3]int{40, 1, 1}, Args: []device.Arg{device.In(make([]byte, 60)), device.Out(40), device.Int32(1)}}
	s := counted()
	got := NewWork(sass, s, job, 40, 1000)
	// The chain of line 7 is executed 10 times by each block. SHFL has another chain, and the count of its
	// innermost line. PTX has no line for the conversion and the branch.
	want := Work{
		Blocks: 6, Warps: 2, Registers: 40, Shared: 1000, Buffers: 100, Products: Products{F16F32: 40960},
		Instructions: 1 + 4*10 + 20 + 1, ALU: 10, FMA: 10, XU: 10, Shared128: 20 + 2 + 4, L2: 64, Spills: 0.5,
	}
	if got != want {
		t.Errorf("work %+v,\nwant %+v", got, want)
	}
	if s.Steps() != 42 {
		t.Errorf("%v steps", s.Steps())
	}
	// ptxas may unroll a loop. Then the counter of the simulator decides.
	s.Counters[tensorInstructions] = 10
	if got := NewWork(sass, s, job, 40, 1000); got.Products.F16F32 != 20480 {
		t.Errorf("products %v", got.Products)
	}
}

func TestUnits(t *testing.T) {
	for op, want := range map[string]unit{
		"HMMA.16816.F32.BF16": tensor, "QGMMA.64x64x32.F32.E4M3.E4M3": tensor, "MUFU.RCP": xu, "I2F.U32.RP": xu, "F2I": xu, "FFMA.FTZ": fma, "IMAD.MOV.U32": fma,
		"HFMA2.MMA": fma, "HADD2.F32": fma, "SHFL.IDX": shuffle, "IADD3.X": alu, "LOP3.LUT": alu, "PRMT": alu, "F2FP.BF16.F32.PACK_AB": alu, "I2FP.F32.S32": alu,
		"VIADDMNMX": alu, "FMNMX": alu, "BRA": noUnit, "LDS.128": noUnit, "UIADD3": noUnit, "MOV": alu, "FADD": fma, "BAR.SYNC": barrier, "SYNCS.PHASECHK.TRANS64.TRYWAIT": barrier, "SYNCS.ARRIVE.TRANS64": noUnit, "LDL.LU.64": local,
	} {
		if got := unitOf(op); got != want {
			t.Errorf("%s is of unit %d, want %d", op, got, want)
		}
	}
}

func TestProducts(t *testing.T) {
	p := Products{}
	for _, op := range []string{
		"HMMA.16816.F32", "HMMA.1688.F32.TF32", "HMMA.16816.F16", "IMMA.16832.S8.S8", "QMMA.16832.F32.E4M3.E4M3", "QMMA.16832.F16.E4M3.E4M3",
		"HGMMA.64x128x16.F32", "QGMMA.64x64x32.F32.E4M3.E4M3", "DMMA.884",
	} {
		p.add(op, 1)
	}
	want := Products{F16F32: 4096 + 2*2048, F16F16: 4096, S8: 8192, E4M3F32: 8192, E4M3F16: 8192, Wgmma16: 2 * 16 * 128 * 16, Wgmma8: 2 * 16 * 64 * 32}
	if p != want {
		t.Errorf("products %+v, want %+v", p, want)
	}
	l4, _ := arch.RatesOf("sm_89")
	if got := (Products{F16F32: 1024, E4M3F32: 2048}).cycles(l4); got != 2 {
		t.Errorf("%v cycles on an L4", got)
	}
	a100, _ := arch.RatesOf("sm_80") // FP8 is widened there, at the rate of FP16
	if got := (Products{E4M3F32: 2048}).cycles(a100); got != 1 {
		t.Errorf("%v cycles on an A100", got)
	}
}

func near(got, want float64) bool { return math.Abs(got-want) < 1e-9*math.Abs(want) }
