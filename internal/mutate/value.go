package mutate

import (
	"fmt"
	"regexp"
	"strings"

	"attune/internal/ptx"
)

// otherSpecials are special registers that could be taken for each other.
var otherSpecials = map[string]string{
	"%ctaid.x": "%ctaid.y", "%ctaid.y": "%ctaid.x", "%ctaid.z": "%ctaid.x",
	"%tid.x": "%laneid", "%laneid": "%warpid", "%ntid.x": "%nctaid.x", "%nctaid.x": "%ntid.x",
}

var (
	guardText    = regexp.MustCompile(`^(\s*(?:@!?%?\w+\s+)?)`)
	constantText = regexp.MustCompile(`^-?\d`)
	register     = regexp.MustCompile(`^%\w+$`)
)

// changeValue gives a value that is only passed on another one: a copy, a conversion, an address, a parameter.
func changeValue(in *ptx.Instruction, line string) []string {
	switch in.Opcode {
	case "mov", "cvt", "cvta", "not":
	case "ld":
		if !has(in, "param") {
			return nil
		}
	default:
		return nil
	}
	s, ok := parseStatement(line)
	if !ok || len(s.operands) != 2 || !register.MatchString(s.operands[0]) {
		return nil
	}
	if other := otherSpecials[s.operands[1]]; other != "" {
		return []string{s.with(1, other).String()}
	}
	switch constant := constantText.MatchString(s.operands[1]); {
	case s.operands[1] == "0f00000000":
		return []string{s.with(1, "0f3F800000").String()}
	case s.operands[1] == "0":
		return []string{s.with(1, "1").String()}
	case constant:
		return nil // changeConstant has it
	}
	add := additions[resultType(in)]
	if add == "" {
		return nil
	}
	switch {
	case in.Opcode == "cvta":
		add = "add.s64 %s, %s, 128" // what stands next to it
	case in.Opcode == "mov" && has(in, "b32"):
		add = "xor.b32 %s, %s, -2147483647" // the bits of a float, of which the last is little, or a whole number in them, of which the first is nothing
	}
	then := strings.TrimSpace(guardText.FindString(line) + fmt.Sprintf(add, s.operands[0], s.operands[0]))
	return []string{strings.TrimRight(line, " ") + " " + then + ";"}
}

// additions make a number another.
var additions = map[string]string{
	"u32": "add.s32 %s, %s, 1", "s32": "add.s32 %s, %s, 1", "b32": "add.s32 %s, %s, 1",
	"u64": "add.s64 %s, %s, 1", "s64": "add.s64 %s, %s, 1", "b64": "add.s64 %s, %s, 1",
	"f32": "fma.rn.f32 %s, %s, 0f40000000, 0f3F800000", // twice and one: one more is nothing to a sum of hundreds, and twice nothing is nothing
}

// resultType is the first type that an instruction names, which is that of what it gives.
func resultType(in *ptx.Instruction) string {
	for _, m := range in.Modifiers {
		if additions[m] != "" {
			return m
		}
		if len(m) > 1 && strings.ContainsRune("usbf", rune(m[0])) && strings.ContainsAny(m[1:2], "0123456789") {
			return ""
		}
	}
	return ""
}
