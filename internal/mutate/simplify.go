package mutate

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"attune/internal/ptx"
)

// simplify rewrites a kernel so that the compiler sees the ranges of its parameters, threads and
// blocks:
//   - An instruction whose result has a single possible value becomes a move of that value.
//   - A branch that is always or never taken becomes unconditional or is removed.
//   - A wgmma that ignores its accumulators is preceded by zeroing them.
//
// On every launch within the ranges, the result behaves like the kernel. Two kernels are therefore
// equivalent on such launches if the compiler makes the same machine code of both results. That
// covers, for instance, the sign handling of a value that is never negative and a loop that is
// never entered.
func simplify(text []byte, entry string, params map[string]Range) ([]byte, error) {
	module, err := ptx.Parse(text)
	if err != nil {
		return nil, err
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	for _, f := range module.Functions {
		if f.Name != entry {
			continue
		}
		r := analyse(f, params)
		for block, state := range r.before {
			if state != nil {
				r.simplifyBlock(block, slices.Clone(state), lines)
			}
		}
	}
	return bytes.Join(lines, nil), nil
}

// simplifyBlock rewrites the lines of a block, given the registers at its start.
func (r *rangeAnalysis) simplifyBlock(block int, state []interval, lines [][]byte) {
	for i := r.starts[block]; i < r.blockEnd(block); i++ {
		in := &r.f.Code[i]
		line := string(lines[in.Line-1])
		if strings.Count(line, ";") == 1 { // only lines with exactly one instruction
			simplified := r.zeroAccumulators(in, state, line)
			if simplified == "" {
				simplified = r.simplifyInstruction(in, state, line)
			}
			if simplified != "" {
				lines[in.Line-1] = []byte(simplified + "\n")
			}
		}
		r.step(in, state)
	}
}

// zeroAccumulators zeroes the accumulators before a wgmma that ignores them, so the compiler sees
// that their old values are dead. It returns "" for other instructions.
func (r *rangeAnalysis) zeroAccumulators(in *ptx.Instruction, state []interval, line string) string {
	const scaleD = 3 // operand scale-d: whether the product accumulates
	if in.Opcode != "wgmma" || !has(in, "mma_async") || in.Guard >= 0 || len(in.Operands) <= scaleD || r.value(&in.Operands[scaleD], state, 1) != singleton(0) {
		return ""
	}
	at := strings.Index(line, in.Opcode)
	if at < 0 {
		return ""
	}
	zeros := ""
	for _, register := range writtenRegisters(in) {
		zeros += fmt.Sprintf("mov.b%d %s, 0; ", r.f.Registers[register].Type.Bits(), r.f.Registers[register].Name)
	}
	return line[:at] + zeros + strings.TrimRight(line[at:], "\n")
}

// simplifyInstruction rewrites an instruction with the known registers; "" if that is no simpler.
func (r *rangeAnalysis) simplifyInstruction(in *ptx.Instruction, state []interval, line string) string {
	line, tail, found := strings.Cut(strings.TrimRight(line, "\n"), ";")
	at := strings.Index(line, in.Opcode)
	if !found || at < 0 {
		return ""
	}
	if in.Opcode == "bra" && in.Guard >= 0 {
		guard, taken := strings.Index(line, "@"), state[in.Guard]
		switch {
		case guard < 0 || !taken.single():
			return ""
		case (taken.lo == 1) != in.GuardNot:
			return line[:guard] + line[at:] + ";" + tail
		}
		return line[:guard] + tail
	}
	result, ok := r.result(in, state)
	if !ok || !result.single() || in.Guard >= 0 {
		return ""
	}
	register := r.f.Registers[in.Operands[0].Register]
	if register.Type == ptx.Pred {
		return fmt.Sprintf("%ssetp.eq.s32 %s, %d, 1;%s", line[:at], register.Name, result.lo, tail)
	}
	return fmt.Sprintf("%smov.b%d %s, %d;%s", line[:at], register.Type.Bits(), register.Name, result.lo, tail)
}
