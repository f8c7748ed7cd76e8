package mutate

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"attune/internal/coverage"
	"attune/internal/ptx"
)

// Mutant is a change of one line.
type Mutant struct {
	Line   int    `json:"line"` // in the PTX, from 1
	Kind   string `json:"what"` // the kind of change
	Before string `json:"before"`
	After  string `json:"after"`

	Source *ptx.Frame `json:"source,omitempty"` // the line of CUDA; of a survivor with line information
	Class  Class      `json:"class,omitempty"`  // of a survivor
}

// Class says why a mutant survived.
type Class string

// The classes.
const (
	NeverExecuted Class = "never executed" // no shape reaches the line
	Executed      Class = "executed"       // no check fails, although the line is executed
)

// Located returns the mutant with its source line and class, by what the unchanged kernel has executed.
// A mutant that is no line of PTX stays as it is.
func (m Mutant) Located(covered *coverage.Launches) Mutant {
	if m.Line == 0 || covered == nil || covered.Code == nil {
		return m
	}
	at, ran := covered.At(m.Line)
	if m.Class = NeverExecuted; ran {
		m.Class = Executed
	}
	if at.Line > 0 {
		m.Source = &at
	}
	return m
}

// Apply returns the PTX with the change.
func (m Mutant) Apply(text []byte) []byte {
	lines := bytes.SplitAfter(text, []byte("\n"))
	changed := append([][]byte(nil), lines...)
	changed[m.Line-1] = []byte(m.After + "\n")
	return bytes.Join(changed, nil)
}

// All lists every mutant of an entry function, in the order of its lines.
func All(text []byte, entry string) ([]Mutant, error) {
	module, err := ptx.Parse(text)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(text), "\n")
	var list []Mutant
	for _, f := range module.Functions {
		if f.Name != entry {
			continue
		}
		transposable := hasTransposableOperands(f)
		all := append(slices.Clone(operators), operator{"other descriptor", func(in *ptx.Instruction, line string) []string {
			return changeDescriptor(in, line, transposable)
		}})
		for i := range f.Code {
			in := &f.Code[i]
			line := lines[in.Line-1]
			if strings.Count(line, ";") != 1 { // only lines with exactly one instruction
				continue
			}
			for _, o := range all {
				for _, after := range o.change(in, line) {
					if after != line {
						list = append(list, Mutant{Line: in.Line, Kind: o.name, Before: strings.TrimSpace(line), After: after})
					}
				}
			}
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the PTX has no entry function %q with an instruction to mutate", entry)
	}
	return list, nil
}

// Sample picks n mutants uniformly at random, the same ones for the same seed; all of them if n is
// 0.
func Sample(list []Mutant, n int, seed uint64) []Mutant {
	if n <= 0 || n >= len(list) {
		return list
	}
	random := rand.New(rand.NewPCG(seed, 11))
	picked := append([]Mutant(nil), list...)
	random.Shuffle(len(picked), func(i, j int) { picked[i], picked[j] = picked[j], picked[i] })
	picked = picked[:n]
	sort.SliceStable(picked, func(i, j int) bool { return picked[i].Line < picked[j].Line })
	return picked
}

// operator is a kind of change. change returns the lines that can replace a line.
type operator struct {
	name   string
	change func(in *ptx.Instruction, line string) []string
}

var operators = []operator{
	{"left out", removeInstruction},
	{"waits for less", weakenWait},
	{"guard turned round", negateGuard},
	{"other comparison", changeComparison},
	{"other operation", changeOperation},
	{"operands swapped", swapOperands},
	{"other constant", changeConstant},
	{"address off", changeAddress},
	{"other layout", changeLayout},
	{"other barrier", changeBarrier},
	{"other lanes", changeLanes},
	{"other value", changeValue},
	{"other count", changeCount},
	{"other bytes", changeBytes},
	{"other parity", changeParity},
	{"other box", changeBox},
	{"weaker fence", weakenFence},
	{"other product", changeProduct},
	{"other rank", changeRank},
}

func has(in *ptx.Instruction, modifier string) bool {
	for _, m := range in.Modifiers {
		if m == modifier {
			return true
		}
	}
	return false
}

// removeInstruction removes instructions that other instructions do not depend on: barriers, waits,
// copies, stores, products, branches. A wait that sets a predicate reports completion at once.
func removeInstruction(in *ptx.Instruction, line string) []string {
	switch in.Opcode {
	case "mbarrier":
		if isWait(in) {
			return completeWait(line)
		}
		return []string{"\t// left out"}
	case "bar", "barrier", "membar", "fence", "cp", "st", "red", "stmatrix", "wgmma", "setmaxnreg":
		return []string{"\t// left out"}
	case "bra":
		if in.Guard < 0 {
			return []string{"\t// left out"}
		}
	case "wmma":
		if has(in, "store") {
			return []string{"\t// left out"}
		}
	}
	return nil
}

var waitGroupText = regexp.MustCompile(`(wait_group(?:\.read)?(?:\.sync\.aligned)?\s+)(\d+)`)

// weakenWait allows one more group in flight, or waits until bulk copies have read instead of
// written.
func weakenWait(in *ptx.Instruction, line string) []string {
	m := waitGroupText.FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	n, _ := strconv.Atoi(m[2])
	all := []string{waitGroupText.ReplaceAllString(line, fmt.Sprintf("${1}%d", n+1))}
	if has(in, "bulk") && !has(in, "read") {
		all = append(all, strings.Replace(line, "wait_group", "wait_group.read", 1))
	}
	return all
}

var guardedText = regexp.MustCompile(`@(!?)(%?\w+)`)

// negateGuard negates a guard.
func negateGuard(in *ptx.Instruction, line string) []string {
	if in.Guard < 0 {
		return nil
	}
	return []string{guardedText.ReplaceAllStringFunc(line, func(g string) string {
		if strings.HasPrefix(g, "@!") {
			return "@" + g[2:]
		}
		return "@!" + g[1:]
	})}
}

var comparisons = map[string][]string{
	"lt": {"le", "ge"}, "le": {"lt", "gt"}, "gt": {"ge", "le"}, "ge": {"gt", "lt"}, "eq": {"ne"}, "ne": {"eq"},
	"ltu": {"geu"}, "leu": {"gtu"}, "gtu": {"leu"}, "geu": {"ltu"},
}

// changeComparison makes a comparison off by one, or inverts it.
func changeComparison(in *ptx.Instruction, line string) []string {
	if in.Opcode != "setp" && in.Opcode != "set" {
		return nil
	}
	var all []string
	for _, m := range in.Modifiers {
		for _, other := range comparisons[m] {
			all = append(all, strings.Replace(line, "."+m+".", "."+other+".", 1))
		}
	}
	return all
}

var otherOpcodes = map[string]string{
	"add": "sub", "sub": "add", "max": "min", "min": "max", "and": "or", "or": "and", "xor": "or", "shl": "shr", "shr": "shl",
}

// changeOperation replaces the opcode by a related one.
func changeOperation(in *ptx.Instruction, line string) []string {
	other, ok := otherOpcodes[in.Opcode]
	if !ok {
		return nil
	}
	changed := strings.Replace(line, in.Opcode+".", other+".", 1)
	if in.Opcode == "shl" {
		changed = strings.Replace(changed, "shr.b", "shr.u", 1)
	}
	if in.Opcode == "shr" {
		changed = strings.NewReplacer("shl.u", "shl.b", "shl.s", "shl.b").Replace(changed)
	}
	return []string{changed}
}

var operandListText = regexp.MustCompile(`^(\s*(?:@!?%\w+\s+)?[\w.:]+\s+)(.*);(.*)$`)

// swapOperands swaps the two sources of an operation that is not commutative.
func swapOperands(in *ptx.Instruction, line string) []string {
	switch in.Opcode {
	case "sub", "div", "rem", "selp", "shl", "shr":
	default:
		return nil
	}
	m := operandListText.FindStringSubmatch(line)
	if m == nil || strings.Contains(m[2], "{") {
		return nil
	}
	parts := strings.Split(m[2], ",")
	if len(parts) < 3 || strings.TrimSpace(parts[1]) == strings.TrimSpace(parts[2]) {
		return nil
	}
	if in.Opcode == "shl" || in.Opcode == "shr" {
		if !strings.Contains(parts[2], "%") || has(in, "b64") || has(in, "u64") || has(in, "s64") {
			return nil
		}
	}
	parts[1], parts[2] = parts[2], parts[1]
	return []string{m[1] + strings.Join(parts, ",") + ";" + m[3]}
}

var lastConstantText = regexp.MustCompile(`(,\s*)(-?\d+)(\s*;)`)

// changeConstant changes an integer in the last operand. Masks lose a bit. Moved integers double,
// because one more would not change a shuffle over powers of two. Others grow by one; sums with a
// multiple of 16, which are addresses, by 16.
func changeConstant(in *ptx.Instruction, line string) []string {
	m := lastConstantText.FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	n, err := strconv.ParseInt(m[2], 10, 64)
	if err != nil {
		return nil
	}
	switch in.Opcode {
	case "and", "or":
		if has(in, "b64") && isDescriptor(uint64(n)) {
			return nil // changeDescriptor changes it, field by field
		}
		n &= n - 1
	case "mov":
		if !has(in, "u32") && !has(in, "s32") {
			return nil
		}
		n *= 2
	case "add", "sub":
		if n%16 == 0 && n != 0 {
			n += 15
		}
		n++
	case "shl", "shr", "mul", "mad", "setp":
		n++
	default:
		return nil
	}
	return []string{lastConstantText.ReplaceAllString(line, fmt.Sprintf("${1}%d${3}", n))}
}

var addressText = regexp.MustCompile(`\[([%\w$]+)(?:\+(-?\d+))?\]`)

// changeAddress moves an access by its own width.
func changeAddress(in *ptx.Instruction, line string) []string {
	switch in.Opcode {
	case "ld", "st", "cp", "ldmatrix", "stmatrix", "wmma", "atom", "red", "mbarrier":
	default:
		return nil
	}
	if has(in, "param") {
		return nil
	}
	step := 4
	switch {
	case has(in, "tensor"):
		step = 128 // required alignment of tensor copies
	case has(in, "v4") || in.Opcode == "cp" || in.Opcode == "wmma" || in.Opcode == "ldmatrix" || in.Opcode == "stmatrix":
		step = 16
	case has(in, "v2") || has(in, "u64") || has(in, "b64"):
		step = 8
	case has(in, "u16") || has(in, "b16"):
		step = 2
	}
	places := addressText.FindAllStringSubmatchIndex(line, -1)
	var all []string
	for _, p := range places {
		offset := 0
		if p[4] >= 0 {
			offset, _ = strconv.Atoi(line[p[4]:p[5]])
		}
		all = append(all, fmt.Sprintf("%s[%s+%d]%s", line[:p[0]], line[p[2]:p[3]], offset+step, line[p[1]:]))
	}
	return all
}

// changeLayout reads a matrix with the other layout, or multiplies with the other FP8 type.
func changeLayout(in *ptx.Instruction, line string) []string {
	switch {
	case in.Opcode == "wmma" && (has(in, "load") || has(in, "store")):
		if has(in, "row") {
			return []string{strings.Replace(line, ".row.", ".col.", 1)}
		}
		return []string{strings.Replace(line, ".col.", ".row.", 1)}
	case in.Opcode == "ldmatrix" && has(in, "trans"):
		return []string{strings.Replace(line, ".trans", "", 1)}
	case in.Opcode == "ldmatrix":
		return []string{strings.Replace(line, ".shared", ".trans.shared", 1)}
	case in.Opcode == "wgmma" && has(in, "e4m3"):
		return []string{strings.Replace(line, ".e4m3", ".e5m2", 1)}
	case in.Opcode == "cvt" && has(in, "e4m3x2"):
		return []string{strings.Replace(line, "e4m3x2", "e5m2x2", 1)}
	}
	return nil
}

// barrierText matches a barrier with a constant number and a thread count. Without a thread count,
// or with the number in a register, all threads would move to the other barrier together.
var barrierText = regexp.MustCompile(`(bar(?:rier)?\.(?:sync|arrive)(?:\.aligned)?\s+)(\d+)(\s*,)`)

// changeBarrier uses another barrier than the other threads.
func changeBarrier(in *ptx.Instruction, line string) []string {
	m := barrierText.FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	n, _ := strconv.Atoi(m[2])
	return []string{barrierText.ReplaceAllString(line, fmt.Sprintf("${1}%d${3}", (n+1)%16))}
}

// changeLanes shuffles from other lanes, or elects all lanes.
func changeLanes(in *ptx.Instruction, line string) []string {
	if in.Opcode == "elect" {
		return electAll(line)
	}
	if in.Opcode != "shfl" {
		return nil
	}
	var all []string
	if has(in, "bfly") {
		all = append(all, strings.Replace(line, ".bfly.", ".up.", 1))
	}
	if has(in, "down") {
		all = append(all, strings.Replace(line, ".down.", ".up.", 1))
	}
	return all
}
