package mutate

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"attune/internal/ptx"
)

// This file has the mutations of Hopper features: transaction barriers, tensor copies, wgmma with
// descriptors, clusters, and the async proxy.

// statement is the text of an instruction, split into its parts.
type statement struct {
	head     string // indentation, labels, guard and opcode
	operands []string
	tail     string // text after the semicolon
}

var statementText = regexp.MustCompile(`^(\s*(?:[\w$]+:\s+)*(?:@!?%?\w+\s+)?[\w.:]+)(?:\s+(.*))?;(.*)$`)

// parseStatement splits an instruction. Operands in brackets or braces stay together.
func parseStatement(line string) (statement, bool) {
	m := statementText.FindStringSubmatch(line)
	if m == nil {
		return statement{}, false
	}
	s := statement{head: m[1], tail: m[3]}
	depth, from := 0, 0
	for i, c := range m[2] {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case ',':
			if depth == 0 {
				s.operands = append(s.operands, strings.TrimSpace(m[2][from:i]))
				from = i + 1
			}
		}
	}
	if rest := strings.TrimSpace(m[2][from:]); rest != "" {
		s.operands = append(s.operands, rest)
	}
	return s, true
}

func (s statement) String() string {
	if len(s.operands) == 0 {
		return s.head + ";" + s.tail
	}
	return s.head + " " + strings.Join(s.operands, ", ") + ";" + s.tail
}

// withOperand returns the statement with another operand.
func (s statement) withOperand(index int, operand string) statement {
	s.operands = append([]string(nil), s.operands...)
	s.operands[index] = operand
	return s
}

// perturbation changes a value, as an instruction or, for a constant, directly.
type perturbation struct {
	opcode string
	by     int64
}

func addValue(n int64) perturbation { return perturbation{"add.s", n} }
func xorValue(n int64) perturbation { return perturbation{"xor.b", n} }

func (c perturbation) apply(n int64) int64 {
	if c.opcode == "xor.b" {
		return n ^ c.by
	}
	return n + c.by
}

// withChangedValue returns the statement with a 32-bit value changed. A constant is replaced. A
// register is replaced by a new register that only this statement sees. place puts the changed
// value into the statement.
func (s statement) withChangedValue(number string, c perturbation, place func(changed string) statement) string {
	if n, err := strconv.ParseInt(number, 0, 64); err == nil {
		return place(strconv.FormatInt(c.apply(n), 10)).String()
	}
	const changedRegister = "off_by"
	indent := s.head[:len(s.head)-len(strings.TrimLeft(s.head, " \t"))]
	changed := strings.TrimLeft(place(changedRegister).String(), " \t")
	return fmt.Sprintf("%s{ .reg .b32 %s; %s32 %s, %s, %d; %s }", indent, changedRegister, c.opcode, changedRegister, number, c.by, changed)
}

// changeOperand returns a line with one operand changed in several ways.
func changeOperand(line string, index int, ways ...perturbation) []string {
	s, ok := parseStatement(line)
	if !ok || index < 0 || index >= len(s.operands) {
		return nil
	}
	var all []string
	for _, c := range ways {
		all = append(all, s.withChangedValue(s.operands[index], c, func(changed string) statement { return s.withOperand(index, changed) }))
	}
	return all
}

func isWait(in *ptx.Instruction) bool {
	return in.Opcode == "mbarrier" && (has(in, "try_wait") || has(in, "test_wait"))
}

// completeWait makes a wait report completion at once.
func completeWait(line string) []string {
	s, ok := parseStatement(line)
	if !ok || len(s.operands) == 0 {
		return nil
	}
	at := strings.LastIndex(s.head, "mbarrier.")
	return []string{s.head[:at] + "setp.eq.s32 " + s.operands[0] + ", 0, 0;" + s.tail}
}

// electAll makes elect.sync true in every lane.
func electAll(line string) []string {
	s, ok := parseStatement(line)
	if !ok || len(s.operands) == 0 {
		return nil
	}
	_, predicate, ok := strings.Cut(s.operands[0], "|")
	if !ok {
		return nil
	}
	at := strings.LastIndex(s.head, "elect.")
	return []string{s.head[:at] + "setp.eq.s32 " + predicate + ", 0, 0;" + s.tail}
}

// changeCount changes the arrival count of a barrier, or a number of registers.
func changeCount(in *ptx.Instruction, line string) []string {
	switch {
	case in.Opcode == "mbarrier" && has(in, "init"):
		return changeOperand(line, 1, addValue(1), addValue(-1))
	case (in.Opcode == "bar" || in.Opcode == "barrier") && len(in.Operands) == 2 && (has(in, "sync") || has(in, "arrive")):
		return changeOperand(line, 1, addValue(32), addValue(-32))
	case in.Opcode == "setmaxnreg":
		return changeOperand(line, 0, addValue(8), addValue(-8))
	}
	return nil
}

// changeBytes expects, or copies, 16 bytes more or less.
func changeBytes(in *ptx.Instruction, line string) []string {
	switch {
	case in.Opcode == "mbarrier" && has(in, "expect_tx"):
		return changeOperand(line, len(in.Operands)-1, addValue(16), addValue(-16))
	case in.Opcode == "cp" && has(in, "bulk") && !has(in, "tensor") && len(in.Operands) >= 3:
		return changeOperand(line, 2, addValue(16), addValue(-16))
	}
	return nil
}

// changeParity waits for the other phase.
func changeParity(in *ptx.Instruction, line string) []string {
	if !isWait(in) || !has(in, "parity") {
		return nil
	}
	return changeOperand(line, 2, xorValue(1))
}

var coordinatesText = regexp.MustCompile(`^(\[[^,]+,\s*\{)([^}]*)(\}\s*\])$`)

// changeBox copies another box of a tensor: moved by 16 elements along the innermost dimension,
// because copies need 16-byte alignment, or by one along another dimension.
func changeBox(in *ptx.Instruction, line string) []string {
	if in.Opcode != "cp" || !has(in, "tensor") {
		return nil
	}
	s, ok := parseStatement(line)
	if !ok {
		return nil
	}
	var all []string
	for i, operand := range s.operands {
		m := coordinatesText.FindStringSubmatch(operand)
		if m == nil {
			continue
		}
		list := strings.Split(m[2], ",")
		for j := range list {
			step := int64(1)
			if j == 0 {
				step = 16
			}
			all = append(all, s.withChangedValue(strings.TrimSpace(list[j]), addValue(step), func(changed string) statement {
				other := append([]string(nil), list...)
				other[j] = changed
				return s.withOperand(i, m[1]+strings.Join(other, ",")+m[3])
			}))
		}
	}
	return all
}

// weakenFence makes a fence order less: another state space, or no other proxy. An arrival at a
// cluster barrier becomes relaxed.
func weakenFence(in *ptx.Instruction, line string) []string {
	switch {
	case in.Opcode == "fence" && has(in, "proxy") && has(in, "async"):
		words := regexp.MustCompile(`fence\.proxy\.async[\w.:]*`)
		other := "fence.proxy.async.global"
		if has(in, "global") {
			other = "fence.proxy.async.shared::cta"
		}
		return []string{words.ReplaceAllString(line, other), words.ReplaceAllString(line, "fence.acq_rel.cta")}
	case in.Opcode == "barrier" && has(in, "cluster") && has(in, "arrive") && !has(in, "relaxed"):
		return []string{strings.Replace(strings.Replace(line, ".release", "", 1), ".arrive", ".arrive.relaxed", 1)}
	}
	return nil
}

// descriptorFields are the fields of a shared memory matrix descriptor above the start address:
// first bit and width.
var descriptorFields = []struct{ at, bits uint }{{16, 14}, {32, 14}, {49, 3}, {62, 2}}

// leadingOffsetBit is the first bit of the leading dimension byte offset.
const leadingOffsetBit = 16

// hasTransposableOperands reports whether a wgmma of the function may have operands that are not
// K-major. Only f16 and bf16 allow that.
func hasTransposableOperands(f *ptx.Function) bool {
	for i := range f.Code {
		if in := &f.Code[i]; in.Opcode == "wgmma" && (has(in, "f16") || has(in, "bf16")) {
			return true
		}
	}
	return false
}

// changeDescriptor changes a descriptor constant: it adds one to each nonzero field. It skips the
// leading dimension byte offset of swizzled K-major operands, which the PTX ISA defines as unused.
func changeDescriptor(in *ptx.Instruction, line string, transposable bool) []string {
	switch in.Opcode {
	case "or", "mov", "add", "xor":
	default:
		return nil
	}
	s, ok := parseStatement(line)
	if !ok || !has(in, "b64") && !has(in, "u64") && !has(in, "s64") || len(s.operands) < 2 {
		return nil
	}
	last := len(s.operands) - 1
	signed, err := strconv.ParseInt(s.operands[last], 0, 64)
	if err != nil || !isDescriptor(uint64(signed)) {
		return nil
	}
	var all []string
	for _, f := range descriptorFields {
		mask := uint64(1)<<f.bits - 1
		if f.at == leadingOffsetBit && uint64(signed)>>62 != 0 && !transposable {
			continue
		}
		if field := uint64(signed) >> f.at & mask; field != 0 {
			changed := uint64(signed)&^(mask<<f.at) | (field+1)&mask<<f.at
			all = append(all, s.withOperand(last, strconv.FormatInt(int64(changed), 10)).String())
		}
	}
	return all
}

// isDescriptor reports whether a constant has bits in the upper fields of a descriptor, and none
// between fields.
func isDescriptor(n uint64) bool {
	fields := uint64(1)<<14 - 1
	for _, f := range descriptorFields {
		fields |= (uint64(1)<<f.bits - 1) << f.at
	}
	return n>>32 != 0 && n&^fields == 0
}

// changeProduct swaps the descriptors of a wgmma, inverts scale-d, or negates the product.
func changeProduct(in *ptx.Instruction, line string) []string {
	if in.Opcode != "wgmma" || !has(in, "mma_async") {
		return nil
	}
	s, ok := parseStatement(line)
	if !ok || len(s.operands) < 4 {
		return nil
	}
	var all []string
	if !strings.HasPrefix(s.operands[1], "{") && s.operands[1] != s.operands[2] {
		all = append(all, s.withOperand(1, s.operands[2]).withOperand(2, s.operands[1]).String())
	}
	switch scale := s.operands[3]; {
	case scale == "1":
		all = append(all, s.withOperand(3, "0").String())
	case strings.HasPrefix(scale, "!"):
		all = append(all, s.withOperand(3, scale[1:]).String())
	case strings.HasPrefix(scale, "%"):
		all = append(all, s.withOperand(3, "!"+scale).String())
	}
	if len(s.operands) > 4 && s.operands[4] == "1" {
		all = append(all, s.withOperand(4, "-1").String())
	}
	return all
}

// changeRank addresses another block of the cluster.
func changeRank(in *ptx.Instruction, line string) []string {
	switch {
	case in.Opcode == "mapa":
		return changeOperand(line, 2, xorValue(1))
	case in.Opcode == "cp" && has(in, "multicast::cluster"):
		s, ok := parseStatement(line)
		if !ok {
			return nil
		}
		i := len(s.operands) - 1
		if has(in, "L2::cache_hint") {
			i--
		}
		if n, err := strconv.ParseInt(s.operands[i], 0, 64); err == nil {
			return []string{s.withOperand(i, strconv.FormatInt(n^1, 10)).String()}
		}
	}
	return nil
}
