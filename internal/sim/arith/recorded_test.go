package arith

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"attune/internal/ptx"
)

const recorded = "../../cases/testdata/recorded"

// recording is a kernel's launch on an H200 and what it wrote.
type recording struct {
	PTX    string
	Block  [3]int
	Args   []buffer
	Expect struct {
		Args map[int]buffer
	}
}

type buffer struct {
	Hex   string
	Bytes int
	Ulps  uint64 `json:"ulp_f32"`
}

func (b buffer) memory(t *testing.T) []byte {
	t.Helper()
	if b.Hex == "" {
		return make([]byte, b.Bytes)
	}
	memory, err := hex.DecodeString(b.Hex)
	if err != nil {
		t.Fatal(err)
	}
	return memory
}

// Every recorded kernel that does nothing but arithmetic, as the chip did it.
func TestRecorded(t *testing.T) {
	var names []string
	for _, pattern := range []string{"int_*.json", "flt_*.json"} {
		found, err := filepath.Glob(filepath.Join(recorded, pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	if len(names) < 70 {
		t.Fatalf("%d recordings in %s, want at least 70", len(names), recorded)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var r recording
			if err := json.Unmarshal(data, &r); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(recorded, r.PTX))
			if err != nil {
				t.Fatal(err)
			}
			memories := make([][]byte, len(r.Args))
			for i, arg := range r.Args {
				memories[i] = arg.memory(t)
			}
			kernel := readKernel(t, string(text))
			for thread := range r.Block[0] {
				kernel.run(t, uint64(thread), memories)
			}
			for i, want := range r.Expect.Args {
				compare(t, i, memories[i], want.memory(t), want.Ulps)
			}
		})
	}
}

func compare(t *testing.T, arg int, got, want []byte, ulps uint64) {
	t.Helper()
	wrong := 0
	for i := 0; i+4 <= len(want); i += 4 {
		x, y := binary.LittleEndian.Uint32(got[i:]), binary.LittleEndian.Uint32(want[i:])
		if x == y || ulps > 0 && near(x, y, ulps) {
			continue
		}
		if wrong++; wrong <= 10 {
			t.Errorf("argument %d, byte %d: %08x, want %08x", arg, i, x, y)
		}
	}
	if wrong > 10 {
		t.Errorf("and %d more", wrong-10)
	}
}

// near says whether two float32 are at most so many codes apart, or both NaN.
func near(x, y uint32, ulps uint64) bool {
	if float32s.isNaN(uint64(x)) || float32s.isNaN(uint64(y)) {
		return float32s.isNaN(uint64(x)) && float32s.isNaN(uint64(y))
	}
	line := func(x uint32) int64 {
		if x>>31 == 1 {
			return -int64(x & 0x7FFFFFFF)
		}
		return int64(x)
	}
	return uint64(max(line(x)-line(y), line(y)-line(x))) <= ulps
}

// kernel is straight-line code, read line by line.
type kernel struct {
	bits  map[string]int // of each register
	lines []line
}

type line struct {
	text      string
	guard     string
	opcode    string
	modifiers []string
	operands  []string
	op        Op
	arith     bool
}

func readKernel(t *testing.T, text string) *kernel {
	t.Helper()
	k := &kernel{bits: map[string]int{}}
	_, body, _ := strings.Cut(text, "{\n")
	for _, text := range strings.Split(body, "\n") {
		text = strings.TrimSuffix(strings.TrimSpace(text), ";")
		switch {
		case text == "" || text == "}" || text == "ret":
		case strings.HasPrefix(text, ".reg"):
			k.declare(t, strings.Fields(text))
		default:
			k.lines = append(k.lines, readLine(t, text))
		}
	}
	return k
}

func (k *kernel) declare(t *testing.T, words []string) {
	t.Helper()
	of, ok := ptx.ParseType(words[1][1:])
	if !ok {
		t.Fatalf("unknown type %s", words[1])
	}
	name, count, ranged := strings.Cut(strings.TrimSuffix(words[2], ">"), "<")
	if !ranged {
		k.bits[name] = of.Bits()
		return
	}
	n, err := strconv.Atoi(count)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		k.bits[name+strconv.Itoa(i)] = of.Bits()
	}
}

func readLine(t *testing.T, text string) line {
	t.Helper()
	l := line{text: text}
	if strings.HasPrefix(text, "@") {
		l.guard, text, _ = strings.Cut(text[1:], " ")
	}
	mnemonic, operands, _ := strings.Cut(text, " ")
	words := strings.Split(mnemonic, ".")
	l.opcode, l.modifiers = words[0], words[1:]
	depth := 0
	l.operands = strings.FieldsFunc(operands, func(r rune) bool {
		switch r {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		return (r == ',' || r == ' ') && depth == 0
	})
	switch l.opcode {
	case "mov", "ld", "st", "cvta":
	default:
		op, err := Lookup(l.opcode, l.modifiers)
		if err != nil {
			t.Fatal(err)
		}
		l.op, l.arith = op, true
	}
	return l
}

// A pointer is the number of the argument that it points into, and an offset.
const pointer = 1 << 32

func (k *kernel) run(t *testing.T, thread uint64, memories [][]byte) {
	t.Helper()
	registers := map[string]uint64{"%tid.x": thread}
	var carry bool
	write := func(name string, value uint64) {
		bits, ok := k.bits[name]
		if !ok {
			t.Fatalf("unknown register %s", name)
		}
		registers[name] = integer{bits: bits}.cut(value)
	}
	read := func(operand string, of ptx.Type) uint64 {
		name, negated := strings.CutPrefix(operand, "!")
		value, ok := registers[name]
		if !ok {
			value = constant(t, name)
		}
		return integer{bits: of.Bits()}.cut(value ^ bit(negated))
	}
	address := func(operand string) (memory []byte) {
		base, offset, _ := strings.Cut(strings.Trim(operand, "[]"), "+")
		at := registers[base]
		if offset != "" {
			at += constant(t, offset)
		}
		return memories[at/pointer][at%pointer:]
	}
	for _, l := range k.lines {
		if l.guard != "" && read(l.guard, ptx.Pred) == 0 {
			continue
		}
		if l.arith {
			carry = l.evaluate(read, write, carry)
			continue
		}
		of, _ := ptx.ParseType(l.modifiers[len(l.modifiers)-1])
		switch {
		case l.opcode == "ld" && l.modifiers[0] == "param":
			n := constant(t, strings.Trim(l.operands[1], "[p]"))
			write(l.operands[0], n*pointer)
		case l.opcode == "ld":
			var code [8]byte
			copy(code[:of.Size()], address(l.operands[1]))
			write(l.operands[0], binary.LittleEndian.Uint64(code[:]))
		case l.opcode == "st":
			code := binary.LittleEndian.AppendUint64(nil, read(l.operands[1], of))
			copy(address(l.operands[0]), code[:of.Size()])
		case l.opcode == "mov" && strings.HasPrefix(l.operands[0], "{"):
			parts := split(l.operands[0])
			for i, part := range parts {
				write(part, read(l.operands[1], of)>>(i*of.Bits()/len(parts)))
			}
		case l.opcode == "mov" && strings.HasPrefix(l.operands[1], "{"):
			parts := split(l.operands[1])
			var value uint64
			for i, part := range parts {
				value |= registers[part] << (i * of.Bits() / len(parts))
			}
			write(l.operands[0], value)
		default:
			write(l.operands[0], read(l.operands[1], of))
		}
	}
}

// evaluate runs an instruction of this package, and says what the carry is after it.
func (l *line) evaluate(read func(string, ptx.Type) uint64, write func(string, uint64), carry bool) bool {
	var args [5]uint64
	for i, of := range l.op.Args {
		args[i] = read(l.operands[1+i], of)
	}
	a, b, c, d := args[0], args[1], args[2], args[3]|args[4]<<8
	first, second, _ := strings.Cut(l.operands[0], "|")
	if l.op.Carry != nil {
		r, out := l.op.Carry(a, b, c, carry)
		write(first, r)
		return l.op.SetsCarry && out || !l.op.SetsCarry && carry
	}
	result := l.op.Func(a, b, c, d)
	if second != "" {
		write(second, l.op.Pair(a, b, c, d))
	}
	if l.op.Result.Signed() {
		result = integerOf(l.op.Result).extend(result)
	}
	write(first, result)
	return carry
}

func split(vector string) []string {
	return strings.FieldsFunc(vector, func(r rune) bool { return strings.ContainsRune("{, }", r) })
}

func constant(t *testing.T, text string) uint64 {
	t.Helper()
	if code, ok := strings.CutPrefix(text, "0f"); ok {
		text = "0x" + code
	}
	value, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		t.Fatal(fmt.Errorf("constant: %w", err))
	}
	return uint64(value)
}

var _ = math.Pi
