package mutate

import (
	"bytes"
	"fmt"
	"strings"

	"attune/internal/ptx"
)

// simplify writes a kernel so that the compiler sees what follows from the ranges of its parameters, of its threads and of its blocks: what has but
// one value becomes that value, a branch that always or never goes becomes one that does or is gone, and a product that begins anew finds zeros. On
// every launch within those ranges it does what the kernel does. Two kernels are therefore the same, on such launches, if the compiler makes the same
// machine code of what is left of both, for instance without a sign that is never there or a loop that is never entered.
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
			if state == nil {
				continue
			}
			state = append([]span(nil), state...)
			next := len(f.Code)
			if block+1 < len(r.starts) {
				next = r.starts[block+1]
			}
			for i := r.starts[block]; i < next; i++ {
				in := &f.Code[i]
				was := string(lines[in.Line-1])
				if strings.Count(was, ";") == 1 { // one line, one instruction
					now := r.emptied(in, state, was)
					if now == "" {
						now = r.simpler(in, state, was)
					}
					if now != "" {
						lines[in.Line-1] = []byte(now + "\n")
					}
				}
				r.step(in, state)
			}
		}
	}
	return bytes.Join(lines, nil), nil
}

// emptied is a product that does not take what was in the registers of its sums, with zeros put there before: so the compiler sees that nobody does.
func (r *ranges) emptied(in *ptx.Instruction, state []span, line string) string {
	const takes = 3 // the operand that says whether they are taken
	if in.Opcode != "wgmma" || !has(in, "mma_async") || in.Guard >= 0 || len(in.Operands) <= takes || r.value(&in.Operands[takes], state, 1) != only(0) {
		return ""
	}
	at := strings.Index(line, in.Opcode)
	if at < 0 {
		return ""
	}
	zeros := ""
	for _, register := range results(in) {
		zeros += fmt.Sprintf("mov.b%d %s, 0; ", r.f.Registers[register].Type.Bits(), r.f.Registers[register].Name)
	}
	return line[:at] + zeros + strings.TrimRight(line[at:], "\n")
}

// simpler is an instruction as it may be written where the registers are known; empty where that is no simpler.
func (r *ranges) simpler(in *ptx.Instruction, state []span, line string) string {
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
