package mutate

import (
	"fmt"
	"regexp"
	"strings"

	"attune/internal/ptx"
)

// similarSpecials maps special registers to ones that are easily confused with them.
var similarSpecials = map[string]string{
	"%ctaid.x": "%ctaid.y", "%ctaid.y": "%ctaid.x", "%ctaid.z": "%ctaid.x",
	"%tid.x": "%laneid", "%laneid": "%warpid", "%ntid.x": "%nctaid.x", "%nctaid.x": "%ntid.x",
}

var (
	guardText    = regexp.MustCompile(`^(\s*(?:@!?%?\w+\s+)?)`)
	constantText = regexp.MustCompile(`^-?\d`)
	registerText = regexp.MustCompile(`^%\w+$`)
)

// changeValue changes a value that an instruction only passes on: a copy, a conversion, an address,
// a parameter.
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
	if !ok || len(s.operands) != 2 || !registerText.MatchString(s.operands[0]) {
		return nil
	}
	if other := similarSpecials[s.operands[1]]; other != "" {
		return []string{s.withOperand(1, other).String()}
	}
	switch constant := constantText.MatchString(s.operands[1]); {
	case s.operands[1] == "0f00000000":
		return []string{s.withOperand(1, "0f3F800000").String()}
	case s.operands[1] == "0":
		return []string{s.withOperand(1, "1").String()}
	case constant:
		return nil // changeConstant changes it
	}
	add := perturbingInstructions[resultType(in)]
	if add == "" {
		return nil
	}
	switch {
	case in.Opcode == "cvta":
		add = "add.s64 %s, %s, 128" // the neighbouring data
	case in.Opcode == "mov" && has(in, "b32"):
		// The register may hold a float, for which the lowest bit matters little, or an integer,
		// for which the highest bit may not matter. Flip both.
		add = "xor.b32 %s, %s, -2147483647"
	}
	then := strings.TrimSpace(guardText.FindString(line) + fmt.Sprintf(add, s.operands[0], s.operands[0]))
	return []string{strings.TrimRight(line, " ") + " " + then + ";"}
}

// perturbingInstructions change a value, by result type.
var perturbingInstructions = map[string]string{
	"u32": "add.s32 %s, %s, 1", "s32": "add.s32 %s, %s, 1", "b32": "add.s32 %s, %s, 1",
	"u64": "add.s64 %s, %s, 1", "s64": "add.s64 %s, %s, 1", "b64": "add.s64 %s, %s, 1",
	// 2x + 1: adding 1 alone vanishes in a sum of hundreds, and doubling leaves 0 unchanged.
	"f32": "fma.rn.f32 %s, %s, 0f40000000, 0f3F800000",
}

// resultType returns the first type modifier, which is the result type, or "" if no instruction
// perturbs it.
func resultType(in *ptx.Instruction) string {
	for _, m := range in.Modifiers {
		if perturbingInstructions[m] != "" {
			return m
		}
		if len(m) > 1 && strings.ContainsRune("usbf", rune(m[0])) && strings.ContainsAny(m[1:2], "0123456789") {
			return ""
		}
	}
	return ""
}
