package arith

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/ptx"
)

const recordedCases = "../../cases/testdata/recorded"

// recordedLaunch is a kernel launch on an H200 with its output buffers.
type recordedLaunch struct {
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

// TestRecordedKernels runs every recorded kernel that consists of arithmetic only and compares its
// output with the H200.
func TestRecordedKernels(t *testing.T) {
	var names []string
	for _, pattern := range []string{"int_*.json", "flt_*.json"} {
		found, err := filepath.Glob(filepath.Join(recordedCases, pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	if len(names) < 70 {
		t.Fatalf("%d recordings in %s, want at least 70", len(names), recordedCases)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var r recordedLaunch
			if err := json.Unmarshal(data, &r); err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(recordedCases, r.PTX))
			if err != nil {
				t.Fatal(err)
			}
			memories := make([][]byte, len(r.Args))
			for i, arg := range r.Args {
				memories[i] = arg.memory(t)
			}
			module, err := ptx.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			for thread := range r.Block[0] {
				m := &machine{registers: module.Functions[0].Registers, thread: uint64(thread), memories: memories}
				m.values = make([]uint64, len(m.registers))
				m.run(t, module.Functions[0])
			}
			for i, want := range r.Expect.Args {
				compareBuffers(t, i, memories[i], want.memory(t), want.Ulps)
			}
		})
	}
}

func compareBuffers(t *testing.T, arg int, got, want []byte, ulps uint64) {
	t.Helper()
	wrong := 0
	for i := 0; i+4 <= len(want); i += 4 {
		x, y := binary.LittleEndian.Uint32(got[i:]), binary.LittleEndian.Uint32(want[i:])
		if x == y || ulps > 0 && withinULP(x, y, ulps) {
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

// withinULP reports whether two f32 values are at most ulps encodings apart, or both NaN.
func withinULP(x, y uint32, ulps uint64) bool {
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

// machine runs one thread of straight-line code.
type machine struct {
	registers []ptx.Register
	values    []uint64
	carry     bool
	thread    uint64
	memories  [][]byte // of the arguments
}

// addressStride separates buffers: an address is the argument index times this, plus an offset.
const addressStride = 1 << 32

func (m *machine) run(t *testing.T, kernel *ptx.Function) {
	t.Helper()
	for _, in := range kernel.Code {
		if in.Guard >= 0 && m.values[in.Guard] == bit(in.GuardNot) {
			continue
		}
		switch in.Opcode {
		case "ret":
		case "mov", "cvta":
			m.write(in.Operands[0], m.read(in.Operands[1], ptx.B64))
		case "ld", "st":
			m.access(in, kernel)
		default:
			op, err := Lookup(in.Opcode, in.Modifiers)
			if err != nil {
				t.Fatal(err)
			}
			m.compute(op, in.Operands)
		}
	}
}

func (m *machine) access(in ptx.Instruction, kernel *ptx.Function) {
	of, _ := ptx.ParseType(in.Modifiers[len(in.Modifiers)-1])
	if in.Modifiers[0] == "param" {
		address := uint64(slices.Index(kernel.Params, in.Operands[1].Parts[0].Symbol.Variable)) * addressStride
		m.write(in.Operands[0], address)
		return
	}
	at := func(o ptx.Operand) []byte {
		address := m.read(o.Parts[0], ptx.B64) + uint64(o.Offset)
		return m.memories[address/addressStride][address%addressStride:]
	}
	var code [8]byte
	if in.Opcode == "ld" {
		copy(code[:of.Size()], at(in.Operands[1]))
		m.write(in.Operands[0], binary.LittleEndian.Uint64(code[:]))
		return
	}
	binary.LittleEndian.PutUint64(code[:], m.read(in.Operands[1], of))
	copy(at(in.Operands[0]), code[:of.Size()])
}

// compute executes an instruction of this package.
func (m *machine) compute(op Op, operands []ptx.Operand) {
	var args [5]uint64
	for i, of := range op.Args {
		args[i] = m.read(operands[1+i], of)
	}
	a, b, c, d := args[0], args[1], args[2], args[3]|args[4]<<8
	to := operands[0]
	if to.Kind == ptx.PairOperand {
		m.write(to.Parts[1], op.Pair(a, b, c, d))
		to = to.Parts[0]
	}
	if op.Carry != nil {
		r, carry := op.Carry(a, b, c, m.carry)
		m.write(to, r)
		if op.SetsCarry {
			m.carry = carry
		}
		return
	}
	r := op.Func(a, b, c, d)
	if op.Result.Signed() {
		r = integerOf(op.Result).extend(r)
	}
	m.write(to, r)
}

func (m *machine) read(o ptx.Operand, of ptx.Type) uint64 {
	value := o.Value
	switch o.Kind {
	case ptx.RegOperand:
		value = m.values[o.Register] ^ bit(o.Negated)
	case ptx.SpecialOperand:
		value = m.thread
	case ptx.VecOperand:
		for i, part := range o.Parts {
			value |= m.values[part.Register] << (i * m.registers[part.Register].Type.Bits())
		}
	}
	return integer{bits: of.Bits()}.truncate(value)
}

func (m *machine) write(o ptx.Operand, value uint64) {
	if o.Kind == ptx.VecOperand {
		for _, part := range o.Parts {
			m.write(part, value)
			value >>= m.registers[part.Register].Type.Bits()
		}
		return
	}
	m.values[o.Register] = integer{bits: m.registers[o.Register].Type.Bits()}.truncate(value)
}
