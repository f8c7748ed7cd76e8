package mutate

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"attune/internal/ptx"
)

// Changes of what Hopper has: barriers that count bytes, copies of boxes, products of warpgroups with descriptors, clusters, two proxies.

// statement is an instruction as text, taken apart.
type statement struct {
	head     string // blanks, labels, guard and the words of the instruction
	operands []string
	tail     string // behind the semicolon
}

var statementText = regexp.MustCompile(`^(\s*(?:[\w$]+:\s+)*(?:@!?%?\w+\s+)?[\w.:]+)(?:\s+(.*))?;(.*)$`)

// parseStatement takes an instruction apart; brackets keep their operands together.
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

// with is the statement with another operand.
func (s statement) with(index int, operand string) statement {
	s.operands = append([]string(nil), s.operands...)
	s.operands[index] = operand
	return s
}

// calculation is what is done to a number: an instruction, and the same for a constant.
type calculation struct {
	opcode string
	by     int64
}

func plus(n int64) calculation    { return calculation{"add.s", n} }
func flipped(n int64) calculation { return calculation{"xor.b", n} }

func (c calculation) of(n int64) int64 {
	if c.opcode == "xor.b" {
		return n ^ c.by
	}
	return n + c.by
}

// off is the statement with a 32-bit number in it changed: a constant by another, a register by one that only this statement sees.
func (s statement) off(number string, c calculation, place func(changed string) statement) string {
	if n, err := strconv.ParseInt(number, 0, 64); err == nil {
		return place(strconv.FormatInt(c.of(n), 10)).String()
	}
	const own = "off_by"
	indent := s.head[:len(s.head)-len(strings.TrimLeft(s.head, " \t"))]
	changed := strings.TrimLeft(place(own).String(), " \t")
	return fmt.Sprintf("%s{ .reg .b32 %s; %s32 %s, %s, %d; %s }", indent, own, c.opcode, own, number, c.by, changed)
}

// operandOff changes one operand of a line in several ways.
func operandOff(line string, index int, ways ...calculation) []string {
	s, ok := parseStatement(line)
	if !ok || index < 0 || index >= len(s.operands) {
		return nil
	}
	var all []string
	for _, c := range ways {
		all = append(all, s.off(s.operands[index], c, func(changed string) statement { return s.with(index, changed) }))
	}
	return all
}

func isWait(in *ptx.Instruction) bool {
	return in.Opcode == "mbarrier" && (has(in, "try_wait") || has(in, "test_wait"))
}

// passWait makes a wait say at once that it is over.
func passWait(line string) []string {
	s, ok := parseStatement(line)
	if !ok || len(s.operands) == 0 {
		return nil
	}
	at := strings.LastIndex(s.head, "mbarrier.")
	return []string{s.head[:at] + "setp.eq.s32 " + s.operands[0] + ", 0, 0;" + s.tail}
}

// electAll lets every lane do what one was to do.
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

// changeCount is off in the number of those that come to a barrier, or in registers.
func changeCount(in *ptx.Instruction, line string) []string {
	switch {
	case in.Opcode == "mbarrier" && has(in, "init"):
		return operandOff(line, 1, plus(1), plus(-1))
	case (in.Opcode == "bar" || in.Opcode == "barrier") && len(in.Operands) == 2 && (has(in, "sync") || has(in, "arrive")):
		return operandOff(line, 1, plus(32), plus(-32))
	case in.Opcode == "setmaxnreg":
		return operandOff(line, 0, plus(8), plus(-8))
	}
	return nil
}

// changeBytes announces, or copies, 16 bytes more or less.
func changeBytes(in *ptx.Instruction, line string) []string {
	switch {
	case in.Opcode == "mbarrier" && has(in, "expect_tx"):
		return operandOff(line, len(in.Operands)-1, plus(16), plus(-16))
	case in.Opcode == "cp" && has(in, "bulk") && !has(in, "tensor") && len(in.Operands) >= 3:
		return operandOff(line, 2, plus(16), plus(-16))
	}
	return nil
}

// changeParity waits for the other phase.
func changeParity(in *ptx.Instruction, line string) []string {
	if !isWait(in) || !has(in, "parity") {
		return nil
	}
	return operandOff(line, 2, flipped(1))
}

var coordinates = regexp.MustCompile(`^(\[[^,]+,\s*\{)([^}]*)(\}\s*\])$`)

// changeBox copies another box: 16 elements further along the innermost dimension, because only whole 16 bytes can be copied, or one along another.
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
		m := coordinates.FindStringSubmatch(operand)
		if m == nil {
			continue
		}
		list := strings.Split(m[2], ",")
		for j := range list {
			step := int64(1)
			if j == 0 {
				step = 16
			}
			all = append(all, s.off(strings.TrimSpace(list[j]), plus(step), func(changed string) statement {
				other := append([]string(nil), list...)
				other[j] = changed
				return s.with(i, m[1]+strings.Join(other, ",")+m[3])
			}))
		}
	}
	return all
}

// weakenFence orders less: other memory, or only what is no other proxy's; a cluster's barrier that orders nothing.
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

// Fields of a descriptor of a matrix in shared memory: where they begin, and how many bits they have.
var descriptorFields = []struct{ at, bits uint }{{16, 14}, {32, 14}, {49, 3}, {62, 2}}

// leading is where the field begins that says how far apart matrices lie along the row.
const leading = 16

// turnsOperands says whether a product of the function may take an operand whose summed dimension does not lie along the row, as those of halves can.
func turnsOperands(f *ptx.Function) bool {
	for i := range f.Code {
		if in := &f.Code[i]; in.Opcode == "wgmma" && (has(in, "f16") || has(in, "bf16")) {
			return true
		}
	}
	return false
}

// changeDescriptor changes a constant that a descriptor is made of: each field that is not zero, by one. One that is zero does not count, nor does
// the leading one of a swizzled operand with the summed dimension along the row: PTX has it that it is not used.
func changeDescriptor(in *ptx.Instruction, line string, turns bool) []string {
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
		if f.at == leading && uint64(signed)>>62 != 0 && !turns {
			continue
		}
		if field := uint64(signed) >> f.at & mask; field != 0 {
			changed := uint64(signed)&^(mask<<f.at) | (field+1)&mask<<f.at
			all = append(all, s.with(last, strconv.FormatInt(int64(changed), 10)).String())
		}
	}
	return all
}

// isDescriptor says whether a constant has bits in the upper fields of a descriptor, and none between fields.
func isDescriptor(n uint64) bool {
	fields := uint64(1)<<14 - 1
	for _, f := range descriptorFields {
		fields |= (uint64(1)<<f.bits - 1) << f.at
	}
	return n>>32 != 0 && n&^fields == 0
}

// changeProduct multiplies otherwise: descriptors exchanged, not on top of what is there, with the other sign.
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
		all = append(all, s.with(1, s.operands[2]).with(2, s.operands[1]).String())
	}
	switch scale := s.operands[3]; {
	case scale == "1":
		all = append(all, s.with(3, "0").String())
	case strings.HasPrefix(scale, "!"):
		all = append(all, s.with(3, scale[1:]).String())
	case strings.HasPrefix(scale, "%"):
		all = append(all, s.with(3, "!"+scale).String())
	}
	if len(s.operands) > 4 && s.operands[4] == "1" {
		all = append(all, s.with(4, "-1").String())
	}
	return all
}

// changeRank speaks to another block of the cluster.
func changeRank(in *ptx.Instruction, line string) []string {
	switch {
	case in.Opcode == "mapa":
		return operandOff(line, 2, flipped(1))
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
			return []string{s.with(i, strconv.FormatInt(n^1, 10)).String()}
		}
	}
	return nil
}
