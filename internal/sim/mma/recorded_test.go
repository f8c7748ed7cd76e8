package mma

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// recordedCase is a PTX kernel with its arguments and the output of an H200.
type recordedCase struct {
	Name string
	PTX  string
	Arch string
	Grid [3]int
	Args []struct {
		Hex string
		U32 uint32
		U64 uint64
	}
	Expect struct {
		Args map[string]struct{ Hex string }
	}
	text string
}

// readRecorded reads the matching cases of this package and of package cases.
func readRecorded(t *testing.T, pattern string) []recordedCase {
	t.Helper()
	var cases []recordedCase
	for _, folder := range []string{"testdata/recorded", "../../cases/testdata/recorded"} {
		files, _ := filepath.Glob(filepath.Join(folder, pattern))
		if len(files) == 0 {
			t.Fatalf("no cases %s in %s", pattern, folder)
		}
		for _, file := range files {
			var r recordedCase
			content, err := os.ReadFile(file)
			if err == nil {
				err = json.Unmarshal(content, &r)
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(filepath.Join(folder, r.PTX))
			if err != nil {
				t.Fatal(err)
			}
			r.text = string(text)
			cases = append(cases, r)
		}
	}
	return cases
}

func (r *recordedCase) bytes(t *testing.T, argument int) []byte {
	t.Helper()
	content, err := hex.DecodeString(r.Args[argument].Hex)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func (r *recordedCase) expected(t *testing.T, argument int) []byte {
	t.Helper()
	content, err := hex.DecodeString(r.Expect.Args[strconv.Itoa(argument)].Hex)
	if err != nil || len(content) == 0 {
		t.Fatalf("argument %d: no expected output, %v", argument, err)
	}
	return content
}

// instructions returns the kernel's instructions that start with a prefix, and their operands.
func (r *recordedCase) instructions(t *testing.T, prefix string) (found []*Instruction, operands []string) {
	t.Helper()
	for _, match := range regexp.MustCompile(`(?m)^\s*(`+regexp.QuoteMeta(prefix)+`\S+)\s+(.*);`).FindAllStringSubmatch(r.text, -1) {
		words := strings.Split(match[1], ".")
		in, err := Lookup(words[0], words[1:])
		if err != nil {
			t.Fatal(err)
		}
		found, operands = append(found, in), append(operands, match[2])
	}
	if len(found) == 0 {
		t.Fatalf("no %s in %s", prefix, r.PTX)
	}
	return found, operands
}

func (r *recordedCase) product(t *testing.T, in *Instruction) *Product {
	t.Helper()
	chip, err := ChipOf(r.Arch)
	if err != nil {
		t.Fatal(err)
	}
	p, err := in.Product(chip, Exact)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// registersOf reads the registers of a warp. Memory holds all registers of lane 0, then of lane 1.
func registersOf(memory []byte) []*[32]uint32 {
	words := len(memory) / 4 / 32 // per lane
	registers := newRegisters(words)
	for lane := range 32 {
		for r := range registers {
			registers[r][lane] = binary.LittleEndian.Uint32(memory[4*(lane*words+r):])
		}
	}
	return registers
}

func newRegisters(n int) []*[32]uint32 {
	registers := make([]*[32]uint32, n)
	for i := range registers {
		registers[i] = new([32]uint32)
	}
	return registers
}

func gatherMatrix(t *testing.T, f *Fragment, memory []byte) []uint32 {
	t.Helper()
	matrix := make([]uint32, f.Words())
	if !Gather(f, matrix, registersOf(memory)) {
		t.Fatal("copies of an element differ")
	}
	return matrix
}

// compareMatrices reports the first difference by row and column.
func compareMatrices(t *testing.T, what string, got, want []uint32, cols int) {
	t.Helper()
	wrong, first := 0, -1
	for i := range want {
		if got[i] != want[i] {
			if wrong++; first < 0 {
				first = i
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%s: %d of %d differ, the first at row %d, column %d: %#x, want %#x",
			what, wrong, len(want), first/cols, first%cols, got[first], want[first])
	}
}

// tileOf returns tile i of n.
func tileOf(memory []byte, i, n int) []byte { return memory[len(memory)/n*i : len(memory)/n*(i+1)] }

func TestRecordedMMA(t *testing.T) {
	for _, r := range readRecorded(t, "mma_*.json") {
		t.Run(r.Name, func(t *testing.T) {
			found, _ := r.instructions(t, "mma.")
			in := found[0]
			p := r.product(t, in)
			var s Scratch
			for tile := range r.Grid[0] {
				load := func(m Matrix, memory []byte) []uint32 {
					return gatherMatrix(t, in.Fragment(m, 0), tileOf(memory, tile, r.Grid[0]))
				}
				want := load(D, r.expected(t, 3))
				got := make([]uint32, len(want))
				p.Multiply(&s, got, load(A, r.bytes(t, 0)), load(B, r.bytes(t, 1)), load(C, r.bytes(t, 2)))
				compareMatrices(t, "tile "+strconv.Itoa(tile), got, want, in.Shape.N)
			}
		})
	}
}

// elementAt reads element i of a matrix in memory, whose elements may be smaller than a byte.
func elementAt(memory []byte, t Type, i int) uint32 {
	var word [4]byte
	first := i * t.word() / 8
	copy(word[:], memory[first:min(first+4, len(memory))])
	return binary.LittleEndian.Uint32(word[:]) >> (i * t.word() % 8) & (1<<t.word() - 1)
}

// loadThroughRegisters reads a matrix like wmma.load and wmma.mma: through registers of a random
// layout.
func loadThroughRegisters(t *testing.T, load *Instruction, product *Fragment, memory []byte, pitch int, seed uint64) []uint32 {
	t.Helper()
	f := load.Fragment(load.Matrix, seed)
	matrix := make([]uint32, f.Words())
	fill := func(row, col, at int) {
		i := row*pitch + col
		if (load.Layout == Row) == (load.Matrix == B) { // memory is transposed relative to the slice
			i = col*pitch + row
		}
		if load.Type == F64 {
			matrix[2*at], matrix[2*at+1] = elementAt(memory, F32, 2*i), elementAt(memory, F32, 2*i+1)
			return
		}
		matrix[at] = elementAt(memory, load.Type, i)
	}
	for i := range f.Rows * f.Cols {
		fill(i/f.Cols, i%f.Cols, i)
	}
	registers := newRegisters(f.Registers * max(1, load.Type.Bits()/32))
	Scatter(f, registers, matrix)
	if !Gather(product, matrix, registers) {
		t.Fatal("copies of an element differ")
	}
	return matrix
}

func TestRecordedWMMA(t *testing.T) {
	const seed = 7
	for _, r := range readRecorded(t, "wmma_*.json") {
		t.Run(r.Name, func(t *testing.T) {
			found, _ := r.instructions(t, "wmma.")
			loads, in, store := found[:3], found[3], found[4]
			p := r.product(t, in)
			var s Scratch
			for tile := range r.Grid[0] {
				var matrices [3][]uint32
				for i, load := range loads {
					f := in.Fragment(load.Matrix, seed)
					matrices[i] = loadThroughRegisters(t, load, f, tileOf(r.bytes(t, i), tile, r.Grid[0]), r.pitch(load, f, i), seed)
				}
				f := in.Fragment(D, seed)
				got := make([]uint32, f.Words())
				p.Multiply(&s, got, matrices[0], matrices[1], matrices[2])
				want := loadThroughRegisters(t, store, f, tileOf(r.expected(t, 3), tile, r.Grid[0]), r.pitch(store, f, 3), seed)
				compareMatrices(t, "tile "+strconv.Itoa(tile), got, want, len(want)/in.Shape.M)
			}
		})
	}
}

// pitch returns the stride of rows or columns in memory, in slice elements.
func (r *recordedCase) pitch(transfer *Instruction, f *Fragment, argument int) int {
	if 4+argument < len(r.Args) {
		return int(r.Args[4+argument].U32)
	}
	if (transfer.Layout == Row) == (transfer.Matrix == B) {
		return f.Rows
	}
	return f.Cols
}

// sharedMatrix reads a matrix of wgmma from shared memory.
func sharedMatrix(memory []byte, d Descriptor, t Type, transposed bool, rows, k int) []uint32 {
	s := d.Shared(t, transposed)
	k = k * t.Bits() / t.word()
	matrix := make([]uint32, rows*k)
	for i := range matrix {
		at := s.Address(i/k, i%k)
		matrix[i] = elementAt(memory[at:], t, 0)
	}
	return matrix
}

// warpgroup executes one wgmma on the accumulators of a warpgroup. operands is the PTX text.
func warpgroup(t *testing.T, r *recordedCase, in *Instruction, operands string, a, d [][]*[32]uint32,
	shared []byte, descA, descB Descriptor, accumulate bool,
) {
	t.Helper()
	fromRegisters := strings.Count(operands, "{") == 2
	rest := strings.Split(operands[strings.LastIndex(operands, "%db")+len("%db"):], ",")
	immediate := func(i int) int {
		if i >= len(rest) {
			return 0
		}
		n, err := strconv.Atoi(strings.TrimSpace(rest[i]))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if len(rest) > 3 {
		in.Negate = immediate(2)*immediate(3) < 0
	}
	transA, transB := immediate(4) == 1, immediate(5) == 1
	if fromRegisters {
		transA, transB = false, immediate(4) == 1
	}
	f := in.Fragment(A, 0)
	var matrixA []uint32
	for w := range 4 {
		if !fromRegisters {
			matrixA = sharedMatrix(shared, descA, in.A, transA, in.Shape.M, in.Shape.K)
			break
		}
		matrix := make([]uint32, f.Words())
		Gather(f, matrix, a[w])
		matrixA = append(matrixA, matrix...)
	}
	accumulators := in.Fragment(D, 0)
	c := make([]uint32, 4*accumulators.Words())
	for w := range 4 {
		Gather(accumulators, c[w*accumulators.Words():], d[w])
	}
	source := c
	if !accumulate {
		source = nil
	}
	var s Scratch
	matrixB := sharedMatrix(shared, descB, in.B, transB, in.Shape.N, in.Shape.K)
	r.product(t, in).Multiply(&s, c, matrixA, matrixB, source)
	for w := range 4 {
		Scatter(accumulators, d[w], c[w*accumulators.Words():])
	}
}

// TestRecordedWGMMA covers the kernels with one warpgroup, which all have the same form.
func TestRecordedWGMMA(t *testing.T) {
	for _, r := range readRecorded(t, "wgmma_*.json") {
		switch {
		case strings.HasPrefix(r.Name, "wgmma_groups"):
			continue
		case len(r.Args) == 4:
			t.Run(r.Name, r.runTiles)
		default:
			t.Run(r.Name, r.runSteps)
		}
	}
}

// TestRecordedWGMMAGroups covers a kernel of two warpgroups with two accumulators each.
func TestRecordedWGMMAGroups(t *testing.T) {
	for _, r := range readRecorded(t, "wgmma_*.json") {
		if !strings.HasPrefix(r.Name, "wgmma_groups") {
			continue
		}
		found, operands := r.instructions(t, "wgmma.mma_async")
		const startB = 8192
		shared := append(r.bytes(t, 0), r.bytes(t, 1)...)
		want := r.expected(t, 2)
		for group := range 2 {
			accumulators := map[string][][]*[32]uint32{}
			for range 4 {
				d, e := newRegisters(4), newRegisters(4)
				for i := range d {
					for lane := range 32 {
						d[i][lane] = math.Float32bits(float32(i + 1))
					}
				}
				accumulators["%d0"], accumulators["%e0"] = append(accumulators["%d0"], d), append(accumulators["%e0"], e)
			}
			for i, in := range found {
				descA, descB := Descriptor(group*4096>>4|0x0000000800400000), Descriptor(startB>>4|0x0000001000080000)
				if strings.Contains(operands[i], "%da2") {
					descA += 128
				}
				scaled := strings.Replace(operands[i], "%p,", "1,", 1)
				accumulate := !strings.Contains(scaled, "%db, 0,")
				warpgroup(t, &r, in, scaled, nil, accumulators[operands[i][1:4]], shared, descA, descB, accumulate)
			}
			for w := range 4 {
				stored := registersOf(want[(group*128+w*32)*32:][:1024])
				for i := range 4 {
					compareMatrices(t, "d", accumulators["%d0"][w][i][:], stored[i][:], 32)
					compareMatrices(t, "e", accumulators["%e0"][w][i][:], stored[4+i][:], 32)
				}
			}
		}
		return
	}
	t.Fatal("no case wgmma_groups")
}

// runTiles handles kernels with A in registers and B in two core matrices.
func (r *recordedCase) runTiles(t *testing.T) {
	found, operands := r.instructions(t, "wgmma.mma_async")
	in := found[0]
	for tile := range r.Grid[0] {
		var a, d, want [][]*[32]uint32
		for w := range 4 {
			load := func(memory []byte) []*[32]uint32 { return registersOf(tileOf(tileOf(memory, tile, r.Grid[0]), w, 4)) }
			a, d, want = append(a, load(r.bytes(t, 0))), append(d, load(r.bytes(t, 2))), append(want, load(r.expected(t, 3)))
		}
		warpgroup(t, r, in, operands[0], a, d, tileOf(r.bytes(t, 1), tile, r.Grid[0]), 0, 0x0000001000080000, true)
		for w := range 4 {
			for i := range d[w] {
				compareMatrices(t, "tile "+strconv.Itoa(tile)+", warp "+strconv.Itoa(w)+", register "+strconv.Itoa(i), d[w][i][:], want[w][i][:], 32)
			}
		}
	}
}

// runSteps handles kernels that step along K with descriptors from their arguments.
func (r *recordedCase) runSteps(t *testing.T) {
	found, operands := r.instructions(t, "wgmma.mma_async")
	imageA, imageB, c := r.bytes(t, 0), r.bytes(t, 1), r.bytes(t, 2)
	const startB = 1 << 16 // any multiple of 1024 after A
	shared := make([]byte, startB+len(imageB)+1<<10)
	copy(shared, imageA)
	copy(shared[startB:], imageB)
	scalar := func(i int) uint64 { return uint64(r.Args[i].U32) }
	descA := Descriptor(r.Args[5].U64 | scalar(9)>>4)
	descB := Descriptor(r.Args[6].U64 | (startB+scalar(10))>>4)

	n := found[0].Fragment(D, 0).Registers
	var a, d [][]*[32]uint32
	for w := range 4 {
		d = append(d, newRegisters(n))
		for i := range n {
			for lane := range 32 {
				d[w][i][lane] = binary.LittleEndian.Uint32(c[4*(i%2*128+32*w+lane):])
			}
		}
		a = append(a, registersOf(imageA[:2048][w*512:][:512])) // used if A is in registers
	}
	for i, in := range found {
		scaled := strings.ReplaceAll(operands[i], "%p,", "1,")
		warpgroup(t, r, in, scaled, a, d, shared, descA, descB, i > 0 || scalar(11) != 0)
		descA += Descriptor(scalar(12) >> 4)
		descB += Descriptor(scalar(13) >> 4)
	}
	// The kernel stores some of the registers, and a checksum of all.
	want := r.expected(t, 3)
	for _, store := range regexp.MustCompile(`st\.global\.u32 \[%g3\+(\d+)\], %d(\d+)`).FindAllStringSubmatch(r.text, -1) {
		offset, _ := strconv.Atoi(store[1])
		i, _ := strconv.Atoi(store[2])
		for w := range 4 {
			stored := registersOf(want[offset+128*w:][:128])
			compareMatrices(t, "warp "+strconv.Itoa(w)+", register "+store[2], d[w][i][:], stored[0][:], 32)
		}
	}
	sums := r.expected(t, 4)
	for w := range 4 {
		var got [32]uint32
		for _, register := range d[w] {
			for lane := range got {
				got[lane] = bits.RotateLeft32(got[lane], 1) ^ register[lane]
			}
		}
		compareMatrices(t, "checksum of warp "+strconv.Itoa(w), got[:], registersOf(sums[128*w:][:128])[0][:], 32)
	}
}
