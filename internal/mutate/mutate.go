// Package mutate breaks a kernel, one line of its PTX at a time.
//
// A mutant is the kernel with one line changed in a way that a slip of the keyboard or of the mind could have changed it: a barrier or a wait left out, a
// comparison off by one, a sign, an offset, a swapped operand, a guard turned round. Gates that let mutants pass would let such slips pass; the share of
// mutants that they catch is their strength, as a number.
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

	"attune/internal/ptx"
)

// Mutant is one change of one line.
type Mutant struct {
	Line   int    `json:"line"` // of the PTX, from 1
	What   string `json:"what"` // the kind of change
	Before string `json:"before"`
	After  string `json:"after"`
}

// Apply gives the PTX with the change made.
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
		turns := turnsOperands(f)
		all := append(slices.Clone(operators), operator{"other descriptor", func(in *ptx.Instruction, line string) []string {
			return changeDescriptor(in, line, turns)
		}})
		for i := range f.Code {
			in := &f.Code[i]
			line := lines[in.Line-1]
			if strings.Count(line, ";") != 1 { // one line, one instruction
				continue
			}
			for _, o := range all {
				for _, after := range o.change(in, line) {
					if after != line {
						list = append(list, Mutant{in.Line, o.name, strings.TrimSpace(line), after})
					}
				}
			}
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the PTX has no entry function %q with anything to change", entry)
	}
	return list, nil
}

// Sample picks n of the mutants, the same for the same seed, kinds in proportion; all of them for n = 0.
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

// operator is a kind of change.
type operator struct {
	name   string
	change func(in *ptx.Instruction, line string) []string
}

var operators = []operator{
	{"left out", leaveOut},
	{"waits for less", waitForLess},
	{"guard turned round", turnGuard},
	{"other comparison", compareOtherwise},
	{"other operation", operateOtherwise},
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

// leaveOut drops what nobody would miss at once: barriers, waits, copies, stores, products, branches. A wait that gives a predicate is over at once.
func leaveOut(in *ptx.Instruction, line string) []string {
	switch in.Opcode {
	case "mbarrier":
		if isWait(in) {
			return passWait(line)
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

var waitGroup = regexp.MustCompile(`(wait_group(?:\.read)?(?:\.sync\.aligned)?\s+)(\d+)`)

// waitForLess lets one group more be under way, or waits until copies have read and not until they have written.
func waitForLess(in *ptx.Instruction, line string) []string {
	m := waitGroup.FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	n, _ := strconv.Atoi(m[2])
	all := []string{waitGroup.ReplaceAllString(line, fmt.Sprintf("${1}%d", n+1))}
	if has(in, "bulk") && !has(in, "read") {
		all = append(all, strings.Replace(line, "wait_group", "wait_group.read", 1))
	}
	return all
}

var guard = regexp.MustCompile(`@(!?)(%?\w+)`)

// turnGuard negates a guard.
func turnGuard(in *ptx.Instruction, line string) []string {
	if in.Guard < 0 {
		return nil
	}
	return []string{guard.ReplaceAllStringFunc(line, func(g string) string {
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

// compareOtherwise is off by one, or the other way round.
func compareOtherwise(in *ptx.Instruction, line string) []string {
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

// operateOtherwise does a kindred operation instead.
func operateOtherwise(in *ptx.Instruction, line string) []string {
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

var operandList = regexp.MustCompile(`^(\s*(?:@!?%\w+\s+)?[\w.:]+\s+)(.*);(.*)$`)

// swapOperands exchanges the two sources of an operation for which it matters.
func swapOperands(in *ptx.Instruction, line string) []string {
	switch in.Opcode {
	case "sub", "div", "rem", "selp", "shl", "shr":
	default:
		return nil
	}
	m := operandList.FindStringSubmatch(line)
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

var lastConstant = regexp.MustCompile(`(,\s*)(-?\d+)(\s*;)`)

// changeConstant changes the last operand where it is a whole number: masks lose a bit, numbers that are moved double (one more would be no change to a
// shuffle over powers of two), all else grows by one; sums with a multiple of 16, which are addresses, by 16.
func changeConstant(in *ptx.Instruction, line string) []string {
	m := lastConstant.FindStringSubmatch(line)
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
			return nil // changeDescriptor has it, field by field
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
	return []string{lastConstant.ReplaceAllString(line, fmt.Sprintf("${1}%d${3}", n))}
}

var addressOffset = regexp.MustCompile(`\[([%\w$]+)(?:\+(-?\d+))?\]`)

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
		step = 128 // as all that is copied so must lie
	case has(in, "v4") || in.Opcode == "cp" || in.Opcode == "wmma" || in.Opcode == "ldmatrix" || in.Opcode == "stmatrix":
		step = 16
	case has(in, "v2") || has(in, "u64") || has(in, "b64"):
		step = 8
	case has(in, "u16") || has(in, "b16"):
		step = 2
	}
	places := addressOffset.FindAllStringSubmatchIndex(line, -1)
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

// changeLayout reads or multiplies a matrix the other way round.
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

// A barrier with a number of threads; of one without, or with its number in a register, all threads would go to the other one together.
var barrierNumber = regexp.MustCompile(`(bar(?:rier)?\.(?:sync|arrive)(?:\.aligned)?\s+)(\d+)(\s*,)`)

// changeBarrier goes to another barrier than the others.
func changeBarrier(in *ptx.Instruction, line string) []string {
	m := barrierNumber.FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	n, _ := strconv.Atoi(m[2])
	return []string{barrierNumber.ReplaceAllString(line, fmt.Sprintf("${1}%d${3}", (n+1)%16))}
}

// changeLanes shuffles with fewer lanes, or from others, or elects all of them.
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
