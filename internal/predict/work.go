package predict

import (
	"attune/internal/arch"
	"attune/internal/coverage"
	"attune/internal/device"
	"attune/internal/profile"
)

// Work is what a launch makes the pipes do. All figures but the first six are of one block, on
// average.
type Work struct {
	Blocks    int     `json:"blocks"`
	Warps     int     `json:"warps"`     // of a block
	Registers int     `json:"registers"` // of a thread
	Shared    int     `json:"shared_bytes"`
	Buffers   float64 `json:"buffer_bytes"` // of all arguments: each comes from DRAM once, or goes there

	// Uneven says that blocks differ in length, as with a causal mask.
	Uneven bool `json:"uneven,omitempty"`

	Products     Products `json:"products"`
	Instructions float64  `json:"instructions"` // machine instructions of warps
	ALU          float64  `json:"alu"`
	FMA          float64  `json:"fma"`
	XU           float64  `json:"xu"`
	Shared128    float64  `json:"shared_passes"` // of 128 bytes, shuffles included
	L2           float64  `json:"l2_bytes"`

	// Of a warp: the barriers at which it waits for others of its block, and accesses of spilled registers.
	Barriers float64 `json:"barriers"`
	Spills   float64 `json:"spills,omitempty"`
}

// Sampled are the counts of some blocks of a launch.
type Sampled struct {
	Blocks   int  // that have run
	Uneven   bool // they differ in length
	Covered  *coverage.Launches
	Counters device.Counters
}

// Steps are the PTX instructions of the warps of a block.
func (s Sampled) Steps() float64 { return s.Counters["sim__inst_executed.sum"] / float64(s.Blocks) }

const (
	sectorBytes = 32
	// tensorInstructions is the counter of machine instructions of the tensor cores.
	tensorInstructions = "sm__inst_executed_pipe_tensor.sum"
)

// addCode adds the machine code, weighted by how often PTX of the same source lines is executed.
func (w *Work) addCode(code []instruction, s Sampled) {
	counts, blocks := executionsOf(s.Covered), float64(s.Blocks)
	products := 0.0 // machine instructions
	for _, in := range code {
		n := counts.of(in.frames) / blocks
		w.Instructions += n
		switch unitOf(in.op) {
		case xu:
			w.XU += n
		case alu:
			w.ALU += n
		case fma:
			w.FMA += n
		case shuffle:
			w.Shared128 += n
		case local:
			w.Shared128 += n * passes(in.op)
			w.Spills += n / float64(w.Warps)
		case barrier:
			w.Barriers += n / float64(w.Warps)
		case tensor:
			products += n
			w.Products.add(in.op, n)
		}
	}
	if exact := s.Counters[tensorInstructions] / blocks; products > 0 && exact > 0 {
		w.Products = w.Products.scaled(exact / products)
	}
}

// addCounters adds the traffic with memory.
func (w *Work) addCounters(s Sampled) {
	v, blocks := profile.ValuesOf(s.Counters), float64(s.Blocks)
	w.Shared128 += v["shared_wavefronts"] / blocks
	w.L2 += (v["global_sectors"]*sectorBytes + v["bulk_load_bytes"] + v["bulk_store_bytes"]) / blocks
}

// NewWork is the work of a launch: of its machine code, as SASS with source lines, and its sampled
// blocks.
func NewWork(sass string, s Sampled, job device.Job, registers, shared int) Work {
	w := Work{
		Blocks: job.Grid[0] * job.Grid[1] * job.Grid[2], Warps: (job.Block[0]*job.Block[1]*job.Block[2] + 31) / 32,
		Registers: registers, Shared: shared, Uneven: s.Uneven,
	}
	for _, a := range job.Args {
		if a.IsBuffer() {
			w.Buffers += float64(a.BufferBytes())
		}
	}
	w.addCode(parseMachine(sass), s)
	w.addCounters(s)
	return w
}

// Pipe is a pipe of a multiprocessor and the cycles that a block takes on it.
type Pipe struct {
	Name   string  `json:"name"`
	Cycles float64 `json:"cycles"`
}

// The tensor cores, and the pipes of arithmetic on which products wait.
const tensorPipe, ex2Pipe, fmaPipe = "tensor", "ex2", "fma"

// Rates of a multiprocessor that are the same on all chips.
const (
	issueSlots = 4 // warp instructions per clock
	xuCycles   = 2 // of a warp instruction: 16 lanes
	halfRate   = 2 // the same of the ALU, 64 lanes
)

// Pipes are the cycles of a block on each pipe. Where some multiprocessors have fewer blocks than others
// or none, the blocks get more of DRAM: share is that of the places for blocks that are taken.
func (w Work) Pipes(c arch.Chip, m Model, share float64) []Pipe {
	return []Pipe{
		{tensorPipe, w.Products.cycles(c.Rates)},
		{"issue", w.Instructions / issueSlots},
		{ex2Pipe, w.XU * xuCycles},
		{"alu", w.ALU / halfRate},
		{fmaPipe, w.FMA * 32 / float64(c.Limits().FP32Lanes)},
		{"shared", w.Shared128},
		{"l2", w.L2 / m.L2Bytes},
		{"dram", w.Buffers / float64(w.Blocks) / c.DRAMBytes() * share},
	}
}
