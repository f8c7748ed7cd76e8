package predict

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"attune/internal/arch"
	"attune/internal/coverage"
	"attune/internal/ptx"
)

// instruction is one of machine code.
type instruction struct {
	op     string // such as HMMA.16816.F32
	frames string // its source lines, as chain writes them
}

var (
	sassInstruction = regexp.MustCompile(`^\s+/\*[0-9a-f]{4,}\*/\s+\{?\s*(?:@!?U?P[0-9T]+ )?([A-Z][A-Z0-9_.]*)`)
	sassLine        = regexp.MustCompile(`^\s*//## File "([^"]*)", line (\d+)`)
)

// toolkit begins the names of NVIDIA's headers.
const toolkit = "cuda/"

// parseMachine reads SASS with source lines.
func parseMachine(text string) []instruction {
	var all []instruction
	var frames []ptx.Frame
	fresh := false // a chain of lines is being read
	for line := range strings.Lines(text) {
		if m := sassLine.FindStringSubmatch(line); m != nil {
			if !fresh {
				frames, fresh = nil, true
			}
			if strings.HasPrefix(m[1], toolkit) {
				continue // as ptx.Module.Frames leaves them out
			}
			number, _ := strconv.Atoi(m[2])
			frames = append(frames, ptx.Frame{File: m[1], Line: number})
			continue
		}
		m := sassInstruction.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		fresh = false
		all = append(all, instruction{m[1], chain(frames)})
	}
	return all
}

// chain is the key of source lines from the inside outwards.
func chain(frames []ptx.Frame) string {
	key := strings.Builder{}
	for _, f := range frames {
		if f.Line > 0 {
			key.WriteString(f.File + ":" + strconv.Itoa(f.Line) + " ")
		}
	}
	return key.String()
}

// executions are how often a warp instruction at a chain of source lines is executed, on average over
// the PTX instructions there.
type executions map[string]struct{ executed, instructions float64 }

// executionsOf also has each innermost line by itself, for machine code whose chain PTX does not have.
func executionsOf(covered *coverage.Launches) executions {
	all := executions{}
	add := func(key string, n uint64) {
		e := all[key]
		e.executed += float64(n)
		e.instructions++
		all[key] = e
	}
	for i, frames := range covered.Frames {
		if covered.Marks[i]&coverage.Reachable == 0 || len(frames) == 0 {
			continue
		}
		key := chain(frames)
		add(key, covered.Executed[i])
		if inner := innermost(key); inner != key {
			add(inner, covered.Executed[i])
		}
	}
	return all
}

func innermost(key string) string {
	inner, _, _ := strings.Cut(key, " ")
	return inner + " "
}

func (e executions) of(key string) float64 {
	at, known := e[key]
	if !known {
		at = e[innermost(key)]
	}
	if at.instructions == 0 {
		return 0
	}
	return at.executed / at.instructions
}

// unit is what executes a machine instruction besides the issue slots.
type unit int

const (
	noUnit  unit = iota
	xu           // 16 lanes a clock: exponentials, conversions to and from integers
	alu          // 64 lanes a clock
	fma          // the FP32 lanes
	shuffle      // through the data path of shared memory
	local        // the same: spilled registers, which PTX does not have
	tensor
	barrier
)

// units are those of machine instructions, by the beginning of their names. Loads and stores are
// counted by the simulator.
var units = []struct {
	unit  unit
	names []string
}{
	{tensor, []string{"HMMA", "IMMA", "QMMA", "HGMMA", "QGMMA", "IGMMA"}},
	{xu, []string{"MUFU", "I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV"}},
	{fma, []string{"FFMA", "FMUL", "FADD", "IMAD", "HFMA2", "HADD2", "HMUL2"}},
	{shuffle, []string{"SHFL"}},
	{local, []string{"LDL", "STL"}},
	{barrier, []string{"BAR"}},
	{alu, []string{
		"IADD", "LOP", "SHF", "LEA", "PRMT", "SEL", "FSEL", "ISETP", "FSETP", "FMNMX", "IMNMX", "VIMNMX", "VIADD", "VIADDMNMX", "MOV", "F2FP", "I2FP", "PLOP3", "P2R",
		"R2P", "SGXT", "BMSK", "IABS", "CS2R", "HMNMX2", "HSETP2", "VOTE",
	}},
}

// phaseWait begins the name of a wait at an mbarrier. Other instructions of mbarriers do not wait.
const phaseWait = "SYNCS.PHASECHK"

func unitOf(op string) unit {
	if strings.HasPrefix(op, phaseWait) {
		return barrier
	}
	name, _, _ := strings.Cut(op, ".")
	short := strings.TrimRight(name, "0123456789I") // IADD3, LOP32I
	for _, u := range units {
		if slices.Contains(u.names, name) || slices.Contains(u.names, short) {
			return u.unit
		}
	}
	return noUnit
}

// passes are those of a warp's access to local memory: 4 bytes of a lane each.
func passes(op string) float64 {
	switch {
	case strings.HasSuffix(op, ".128"):
		return 4
	case strings.HasSuffix(op, ".64"):
		return 2
	}
	return 1
}

// Products are FLOPs of a warp's matrix products, by what their rate depends on.
type Products struct {
	F16F32  float64 `json:"f16_f32,omitempty"` // BF16 too
	F16F16  float64 `json:"f16_f16,omitempty"`
	S8      float64 `json:"s8,omitempty"`
	E4M3F32 float64 `json:"e4m3_f32,omitempty"`
	E4M3F16 float64 `json:"e4m3_f16,omitempty"`
	Wgmma16 float64 `json:"wgmma_16,omitempty"`
	Wgmma8  float64 `json:"wgmma_8,omitempty"`
}

func (p Products) scaled(by float64) Products {
	return Products{by * p.F16F32, by * p.F16F16, by * p.S8, by * p.E4M3F32, by * p.E4M3F16, by * p.Wgmma16, by * p.Wgmma8}
}

// cycles are those of the tensor cores of a multiprocessor. Products that the chip does not have have
// the rate of FP16.
func (p Products) cycles(r arch.Rates) float64 {
	sum := 0.0
	for _, x := range []struct{ flops, rate float64 }{
		{p.F16F32, r.F16F32}, {p.F16F16, r.F16F16}, {p.S8, r.S8}, {p.E4M3F32, r.E4M3F32}, {p.E4M3F16, r.E4M3F16}, {p.Wgmma16, r.Wgmma16}, {p.Wgmma8, r.Wgmma8},
	} {
		if x.flops > 0 {
			rate := x.rate
			if rate == 0 {
				rate = r.F16F32
			}
			sum += x.flops / rate
		}
	}
	return sum
}

var (
	warpShape  = regexp.MustCompile(`^[HIQ]MMA\.(16)(8)(\d+)`)
	groupShape = regexp.MustCompile(`^[HIQ]GMMA\.64x(\d+)x(\d+)`)
)

// add counts a tensor instruction that warps execute n times.
func (p *Products) add(op string, n float64) {
	if m := groupShape.FindStringSubmatch(op); m != nil {
		columns, _ := strconv.ParseFloat(m[1], 64)
		depth, _ := strconv.ParseFloat(m[2], 64)
		flops := n * 2 * 16 * columns * depth // a warp's 16 of 64 rows
		if op[0] == 'H' {
			p.Wgmma16 += flops
		} else {
			p.Wgmma8 += flops
		}
		return
	}
	m := warpShape.FindStringSubmatch(op)
	if m == nil {
		return
	}
	depth, _ := strconv.ParseFloat(m[3], 64)
	flops, narrow := n*2*16*8*depth, strings.Contains(op, ".F16")
	switch {
	case op[0] == 'I':
		p.S8 += flops
	case op[0] == 'Q' && narrow:
		p.E4M3F16 += flops
	case op[0] == 'Q':
		p.E4M3F32 += flops
	case narrow:
		p.F16F16 += flops
	case strings.Contains(op, ".TF32"):
		p.F16F32 += 2 * flops // at half the rate
	default:
		p.F16F32 += flops
	}
}
