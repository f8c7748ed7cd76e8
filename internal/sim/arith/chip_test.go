package arith

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"strings"
	"testing"

	"attune/internal/ptx"
)

// TestRecordedChecksums compares every form of every instruction that PTX has for sm_90a, except
// lop3, with an H200. For each form, testdata/chip.txt has a checksum of the H200's results for the
// operands below.
func TestRecordedChecksums(t *testing.T) {
	wrong := map[string]int{}
	for name, want := range recordedSums(t) {
		opcode, _, _ := strings.Cut(name, ".")
		if got := checksum(lookup(t, name).results(chipRows(name))); got != want {
			if wrong[opcode]++; wrong[opcode] <= 3 {
				t.Errorf("%s: results differ from the H200", name)
			}
		}
	}
	for opcode, n := range wrong {
		t.Errorf("%s: %d forms differ from the H200", opcode, n)
	}
}

// TestUpperBitsIgnored checks that operand bits above the operand's type have no effect.
func TestUpperBitsIgnored(t *testing.T) {
	const rubbish = 0xA5C3_96F0_5A3C_690F
	for name := range recordedSums(t) {
		op := lookup(t, name)
		for _, row := range operands(op.Args, 8) {
			above := row
			for i, of := range op.Args {
				if of.Bits() < 64 {
					above[i] |= rubbish << of.Bits()
				}
			}
			if op.Carry != nil {
				r, carry := op.Carry(row[0], row[1], row[2], true)
				if s, out := op.Carry(above[0], above[1], above[2], true); s != r || out != carry {
					t.Errorf("%s of %x: %x, %t; with upper bits set %x, %t", name, row, r, carry, s, out)
				}
				continue
			}
			r := op.Func(row[0], row[1], row[2], row[3])
			if s := op.Func(above[0], above[1], above[2], above[3]); s != r {
				t.Errorf("%s of %x: %x; with upper bits set %x", name, row, r, s)
			}
			if op.Pair != nil && op.Pair(row[0], row[1], row[2], row[3]) != op.Pair(above[0], above[1], above[2], above[3]) {
				t.Errorf("%s of %x: the second predicate depends on upper bits", name, row)
			}
		}
	}
}

// recordedSums reads the recorded checksums, by instruction name.
func recordedSums(t *testing.T) map[string]uint32 {
	t.Helper()
	text, err := os.ReadFile("testdata/chip.txt")
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]uint32{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var name string
		var sum uint32
		if _, err := fmt.Sscanf(line, "%s %x", &name, &sum); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		sums[name] = sum
	}
	if len(sums) < 5000 {
		t.Fatalf("%d forms, want at least 5000", len(sums))
	}
	return sums
}

// chipRows returns the number of operand rows in the recording of a form. Comparisons have fewer
// rows, because they have very many forms.
func chipRows(name string) int {
	if strings.HasPrefix(name, "set") {
		return 128
	}
	return 512
}

// results computes both destinations, or the destination and the carry, for a number of operand
// rows.
func (op Op) results(rows int) []uint64 {
	args := op.Args
	if op.Carry != nil {
		args = append(args[:len(args):len(args)], ptx.Pred)
	}
	var all []uint64
	for _, row := range operands(args, rows) {
		switch {
		case op.Carry != nil:
			carry := row[len(args)-1] == 1
			row[len(args)-1] = 0
			r, out := op.Carry(row[0], row[1], row[2], carry)
			if op.SetsCarry {
				carry = out
			}
			all = append(all, r, bit(carry))
		case op.Pair != nil:
			all = append(all, op.Func(row[0], row[1], row[2], row[3]), op.Pair(row[0], row[1], row[2], row[3]))
		default:
			all = append(all, op.Func(row[0], row[1], row[2], row[3]))
		}
	}
	return all
}

func checksum(values []uint64) uint32 {
	sum := fnv.New32a()
	for _, value := range values {
		sum.Write(binary.LittleEndian.AppendUint64(nil, value))
	}
	return sum.Sum32()
}

// operands makes rows of operands: special values of their types, random values, and values close
// to each other. The recording depends on them, so a change here invalidates it.
func operands(types []ptx.Type, rows int) [][4]uint64 {
	names := fnv.New64a()
	fmt.Fprint(names, types)
	g := generator(names.Sum64())
	table := make([][4]uint64, rows)
	for i := range table {
		var lower, upper []uint64 // of this row, so far
		for k, t := range types {
			low := g.operand(t, types[:k], lower)
			table[i][k] = low
			lower = append(lower, low)
			if isPair(t) || t == ptx.U16x2 || t == ptx.S16x2 {
				high := g.operand(t, types[:k], upper)
				table[i][k] |= high << 16
				upper = append(upper, high)
			}
		}
	}
	return table
}

// generator is the splitmix64 random number generator.
type generator uint64

func (g *generator) next() uint64 {
	*g += 0x9E3779B97F4A7C15
	z := uint64(*g)
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func (g *generator) below(n int) int { return int(g.next() % uint64(n)) }

// operand makes the next operand of a row, or the half of a packed one. It may be close to an
// earlier one.
func (g *generator) operand(t ptx.Type, types []ptx.Type, before []uint64) uint64 {
	width := t.Bits()
	if isPair(t) || t == ptx.U16x2 || t == ptx.S16x2 {
		width = 16
	}
	mask := uint64(1)<<(width-1)<<1 - 1
	related := len(before) > 0 && types[len(before)-1] == t && g.below(5) == 0
	switch f := formatOf(t); {
	case t == ptx.Pred, t == ptx.E4M3x2, t == ptx.E5M2x2:
		return g.next() & mask
	case related && f != nil:
		return (before[len(before)-1] ^ g.next()&f.sign() + uint64(g.below(5)) - 2) & mask
	case related:
		return (before[len(before)-1] + uint64(g.below(3)) - 1) & mask
	case f == nil:
		return g.integer(width) & mask
	case f.bits >= 32 && len(before) > 0 && types[0] == t && g.below(4) == 0:
		return (g.partner(f, before) + uint64(g.below(5)) - 2) & mask
	default:
		return g.float(f)
	}
}

func (g *generator) integer(width int) uint64 {
	special := [...]uint64{
		0, 1, 2, 3, 1<<64 - 1, 1<<64 - 2, 0x5555555555555555, 0x8080808080808080, 0x7F7F7F7F7F7F7F7F,
		0xFF00FF00FF00FF00, 0x80007FFF80007FFF,
	}
	switch g.below(10) {
	case 0, 1:
		return special[g.below(len(special))]
	case 2:
		return uint64(1)<<(width-1) + uint64(g.below(3)) - 1
	case 3, 4:
		return uint64(g.below(75))
	case 5:
		return uint64(1)<<g.below(width) + uint64(g.below(3)) - 1
	case 6:
		return uint64(255 + g.below(40))
	default:
		return g.next() >> (64 - 1 - g.below(width))
	}
}

func (g *generator) float(f *format) uint64 {
	code := g.next() & (f.sign() | f.magnitude())
	mantissa := code & (1<<f.mantissa - 1)
	sign := code & f.sign()
	exponents := [...]int{0, 1, 2, 3, 7, 8, 10, 11, 15, 16, 23, 24, 31, 32, 52, 53, 63, 64, 126}
	exponent := exponents[g.below(len(exponents))]
	if g.below(2) == 0 {
		exponent = -exponent
	}
	exponent = min(max(exponent+f.bias, 0), 2*f.bias) << f.mantissa
	switch g.below(12) {
	case 0:
		return sign
	case 1: // the largest numbers, infinities, NaNs
		return sign | (f.infinity() + uint64(g.below(6)) - 3)
	case 2:
		return sign | f.infinity() | mantissa>>g.below(f.mantissa)
	case 3: // around the smallest normal number
		return sign | (1<<f.mantissa + uint64(g.below(7)) - 3)
	case 4: // subnormal
		return sign | mantissa>>g.below(f.mantissa)
	case 5, 6: // near a power of two
		return (sign | uint64(exponent)) + uint64(g.below(3)) - 1&^bit(exponent == 0)
	case 7: // few significant bits
		return sign | uint64(exponent) | mantissa&^(1<<g.below(f.mantissa)-1)
	case 8, 9: // near 1
		return sign | uint64(f.bias+g.below(16)-8)<<f.mantissa | mantissa
	default:
		return code
	}
}

// partner makes an operand whose product with the first is near the smallest normal number, or
// whose sum with the product of two is near zero.
func (g *generator) partner(f *format, before []uint64) uint64 {
	value := func(code uint64) float64 {
		if f.bits == 32 {
			return float64(math.Float32frombits(uint32(code)))
		}
		return math.Float64frombits(code)
	}
	r := math.Ldexp(1, 1-f.bias) / value(before[0])
	if len(before) == 2 {
		r = -(value(before[0]) * value(before[1]))
	}
	if r != r {
		return 0
	}
	if f.bits == 32 {
		return uint64(math.Float32bits(float32(r)))
	}
	return math.Float64bits(r)
}
