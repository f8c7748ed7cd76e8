package arith

import (
	"fmt"
	"math/big"
	"math/bits"
	"strings"
	"testing"

	"attune/internal/ptx"
)

// bigValue returns the value of an encoding.
func bigValue(t ptx.Type, code uint64) *big.Int {
	x := new(big.Int).SetUint64(code)
	if t.Signed() && code>>(t.Bits()-1)&1 == 1 {
		x.Sub(x, new(big.Int).Lsh(big.NewInt(1), uint(t.Bits())))
	}
	return x
}

// truncated returns the low bits of a value.
func truncated(width int, x *big.Int) uint64 {
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(width))
	return new(big.Int).Mod(x, modulus).Uint64()
}

func clampBig(t ptx.Type, x *big.Int) *big.Int {
	n := integerOf(t)
	low, high := n.limits()
	if x.Cmp(big.NewInt(low)) < 0 {
		return big.NewInt(low)
	}
	if x.Cmp(big.NewInt(high)) > 0 {
		return big.NewInt(high)
	}
	return x
}

// exactIntegers holds the instructions on unbounded integers.
func exactIntegers() map[string]func(n ptx.Type, x, y, z *big.Int) *big.Int {
	shifted := func(x *big.Int, by int) *big.Int { return new(big.Int).Rsh(x, uint(by)) }
	plus := func(x, y *big.Int) *big.Int { return new(big.Int).Add(x, y) }
	times := func(x, y *big.Int) *big.Int { return new(big.Int).Mul(x, y) }
	return map[string]func(n ptx.Type, x, y, z *big.Int) *big.Int{
		"add":    func(_ ptx.Type, x, y, _ *big.Int) *big.Int { return plus(x, y) },
		"sub":    func(_ ptx.Type, x, y, _ *big.Int) *big.Int { return new(big.Int).Sub(x, y) },
		"mul.lo": func(_ ptx.Type, x, y, _ *big.Int) *big.Int { return times(x, y) },
		"mul.hi": func(n ptx.Type, x, y, _ *big.Int) *big.Int { return shifted(times(x, y), n.Bits()) },
		"mad.lo": func(_ ptx.Type, x, y, z *big.Int) *big.Int { return plus(times(x, y), z) },
		"mad.hi": func(n ptx.Type, x, y, z *big.Int) *big.Int { return plus(shifted(times(x, y), n.Bits()), z) },
		"sad": func(_ ptx.Type, x, y, z *big.Int) *big.Int {
			difference := new(big.Int).Sub(x, y)
			return plus(difference.Abs(difference), z)
		},
		"div": func(_ ptx.Type, x, y, _ *big.Int) *big.Int {
			if y.Sign() == 0 {
				return big.NewInt(-1)
			}
			return new(big.Int).Quo(x, y)
		},
		"rem": func(_ ptx.Type, x, y, _ *big.Int) *big.Int {
			if y.Sign() == 0 {
				return big.NewInt(-1)
			}
			return new(big.Int).Rem(x, y)
		},
		"min": func(_ ptx.Type, x, y, _ *big.Int) *big.Int {
			if x.Cmp(y) < 0 {
				return x
			}
			return y
		},
		"max": func(_ ptx.Type, x, y, _ *big.Int) *big.Int {
			if x.Cmp(y) > 0 {
				return x
			}
			return y
		},
		"mul.wide": func(_ ptx.Type, x, y, _ *big.Int) *big.Int { return times(x, y) },
		"mad.wide": func(_ ptx.Type, x, y, z *big.Int) *big.Int { return plus(times(x, y), z) },
		"add.sat":  func(n ptx.Type, x, y, _ *big.Int) *big.Int { return clampBig(n, plus(x, y)) },
		"sub.sat":  func(n ptx.Type, x, y, _ *big.Int) *big.Int { return clampBig(n, new(big.Int).Sub(x, y)) },
		"mad.hi.sat": func(n ptx.Type, x, y, z *big.Int) *big.Int {
			return clampBig(n, plus(shifted(times(x, y), n.Bits()), z))
		},
	}
}

// TestIntegers compares integer arithmetic of every type with unbounded integers.
func TestIntegers(t *testing.T) {
	for name, exact := range exactIntegers() {
		types := integers16to64
		if strings.HasSuffix(name, "sat") {
			types = []ptx.Type{ptx.S32}
		}
		for _, of := range types {
			if strings.HasSuffix(name, "wide") && of.Bits() == 64 {
				continue
			}
			op := lookup(t, fmt.Sprintf("%s.%v", name, of))
			for _, row := range operands(op.Args, 1000) {
				var x [3]*big.Int
				for i := range x {
					x[i] = bigValue(of, row[i])
					if i < len(op.Args) {
						x[i] = bigValue(op.Args[i], row[i])
					}
				}
				want := truncated(op.Result.Bits(), exact(of, x[0], x[1], x[2]))
				if got := op.Func(row[0], row[1], row[2], 0); got != want {
					t.Fatalf("%s.%v of %x: %x, want %x", name, of, row[:len(op.Args)], got, want)
				}
			}
		}
	}
}

// TestCarryChains checks that a chain of carries adds, and a chain of borrows subtracts, long
// integers.
func TestCarryChains(t *testing.T) {
	g := generator(3)
	first, next, last := lookup(t, "add.cc.u32"), lookup(t, "addc.cc.u32"), lookup(t, "addc.u32")
	less, lesser, least := lookup(t, "sub.cc.s64"), lookup(t, "subc.cc.s64"), lookup(t, "subc.s64")
	low, high := lookup(t, "mad.lo.cc.u64"), lookup(t, "madc.hi.u64")
	long := func(words []uint64, width uint) *big.Int {
		x := new(big.Int)
		for i, word := range words {
			x.Or(x, new(big.Int).Lsh(new(big.Int).SetUint64(word), uint(i)*width))
		}
		return x
	}
	for range 10_000 {
		var a, b, a32, b32, sum, difference [3]uint64
		for i := range a {
			a[i], b[i] = g.integer(64), g.integer(64)
			a32[i], b32[i] = a[i]&0xFFFFFFFF, b[i]&0xFFFFFFFF
		}
		var carry bool
		for i, op := range []Op{first, next, last} {
			sum[i], carry = op.Carry(a32[i], b32[i], 0, carry)
		}
		modulus := new(big.Int).Lsh(big.NewInt(1), 96)
		want := new(big.Int).Add(long(a32[:], 32), long(b32[:], 32))
		if want.Mod(want, modulus).Cmp(long(sum[:], 32)) != 0 {
			t.Fatalf("%x + %x: %x, want %x", a32, b32, sum, want)
		}
		for i, op := range []Op{less, lesser, least} {
			difference[i], carry = op.Carry(a[i], b[i], 0, carry)
		}
		modulus.Lsh(modulus, 96)
		want.Sub(long(a[:], 64), long(b[:], 64))
		if want.Mod(want, modulus).Cmp(long(difference[:], 64)) != 0 {
			t.Fatalf("%x - %x: %x, want %x", a, b, difference, want)
		}
		var product [2]uint64
		product[0], carry = low.Carry(a[0], b[0], a[1], true) // mad.lo.cc ignores the carry-in
		product[1], _ = high.Carry(a[0], b[0], b[1], carry)
		hi, lo := bits.Mul64(a[0], b[0])
		lo, c := bits.Add64(lo, a[1], 0)
		if hi, _ = bits.Add64(hi, b[1], c); product != [2]uint64{lo, hi} {
			t.Fatalf("%x * %x + %x: %x, want %x", a[0], b[0], a[1], product, [2]uint64{lo, hi})
		}
	}
}

// TestBitFields compares bfe and bfi with a bit-by-bit implementation of the PTX ISA text.
func TestBitFields(t *testing.T) {
	for _, of := range []ptx.Type{ptx.U32, ptx.S32, ptx.U64, ptx.S64} {
		msb := uint64(of.Bits() - 1)
		extract, insert := lookup(t, fmt.Sprintf("bfe.%v", of)), lookup(t, fmt.Sprintf("bfi.b%d", of.Bits()))
		for _, row := range operands([]ptx.Type{of, of, ptx.U32, ptx.U32}, 3000) {
			a, b, position, length := row[0], row[1], row[2]&0xFF, row[3]&0xFF
			var field uint64
			sign := uint64(0)
			if of.Signed() && length > 0 {
				sign = a >> min(position+length-1, msb) & 1
			}
			inserted := b
			for i := range msb + 1 {
				bit := sign
				if i < length && position+i <= msb {
					bit = a >> (position + i) & 1
					inserted = inserted&^(1<<(position+i)) | a>>i&1<<(position+i)
				}
				field |= bit << i
			}
			if got := extract.Func(a, position, length, 0); got != field {
				t.Fatalf("bfe.%v of %x, %d, %d: %x, want %x", of, a, position, length, got, field)
			}
			if got := insert.Func(a, b, position, length); got != inserted {
				t.Fatalf("bfi of %x, %x, %d, %d: %x, want %x", a, b, position, length, got, inserted)
			}
		}
	}
}

func TestFindNthSet(t *testing.T) {
	op := lookup(t, "fns.b32")
	g := generator(5)
	for range 20_000 {
		mask, base, offset := g.next()&0xFFFFFFFF, g.below(32), g.below(70)-35
		want := uint64(0xFFFFFFFF)
		step, count := 1, offset
		if offset < 0 {
			step, count = -1, -offset
		}
		for position := base; position >= 0 && position < 32; position += step {
			if mask>>position&1 == 1 {
				if count--; count <= 0 {
					want = uint64(position)
					break
				}
			}
			if offset == 0 {
				break
			}
		}
		if got := op.Func(mask, uint64(base), uint64(uint32(int32(offset))), 0); got != want {
			t.Fatalf("fns of %x, %d, %d: %x, want %x", mask, base, offset, got, want)
		}
	}
}

func TestLop3(t *testing.T) {
	plain, or, and := lookup(t, "lop3.b32"), lookup(t, "lop3.or.b32"), lookup(t, "lop3.and.b32")
	g := generator(7)
	for table := range uint64(256) {
		a, b, c := g.integer(32), g.integer(32), g.integer(32)
		var want uint64
		for i := range 32 {
			index := a>>i&1<<2 | b>>i&1<<1 | c>>i&1
			want |= table >> index & 1 << i
		}
		if got := plain.Func(a, b, c, table); got != want {
			t.Fatalf("lop3 of %x, %x, %x, %x: %x, want %x", a, b, c, table, got, want)
		}
		for q := range uint64(2) {
			d := table | q<<8
			if or.Func(a, b, c, d) != want || or.Pair(a, b, c, d) != bit(want != 0)|q || and.Pair(a, b, c, d) != bit(want != 0)&q {
				t.Fatalf("lop3 of %x, %x, %x, %x with %d: wrong predicate", a, b, c, table, q)
			}
		}
	}
	check := func(got, want uint64) {
		t.Helper()
		if got != want {
			t.Errorf("lop3: %x, want %x", got, want)
		}
	}
	check(plain.Func(0xF0F0, 0xCCCC, 0xAAAA, 0x80), 0xF0F0&0xCCCC&0xAAAA)
	check(plain.Func(0xF0F0, 0xCCCC, 0xAAAA, 0x1A), (0xF0F0&0xCCCC|0xAAAA)^0xF0F0)
}

const (
	minusOne = 0xFFFFFFFF // s32
	lowest   = 0x80000000 // least s32
)

func TestIntegerExamples(t *testing.T) {
	checkResult(t, "div.s32", lowest, lowest, minusOne)
	checkResult(t, "rem.s32", 0, lowest, minusOne)
	checkResult(t, "div.u16", 0xFFFF, 5, 0)
	checkResult(t, "rem.s64", 1<<64-1, 5, 0)
	checkResult(t, "div.s16", 0xFFFD, 7, 0xFFFE)
	checkResult(t, "rem.s16", 0xFFFF, 0xFFF9, 2)
	checkResult(t, "abs.s16", 0x8000, 0x8000)
	checkResult(t, "neg.s32", lowest, lowest)
	checkResult(t, "min.relu.s32", 0, minusOne, 5)
	checkResult(t, "max.relu.s16x2", 0x0005_0000, 0x0005_FFFF, 0xFFFF_FFFE)
	checkResult(t, "add.u16x2", 0x0000_0003, 0xFFFF_0001, 0x0001_0002)
	checkResult(t, "mul24.lo.s32", 0xFFFFFFFE, 0x00FFFFFF, 0xFF000002)
	checkResult(t, "mul24.hi.u32", 0xFFFFFE00, 0xFFFFFF, 0xFFFFFF)
	checkResult(t, "mad24.hi.sat.s32", 0x7FFFFFFF, 0x7FFFFF, 0x7FFFFF, 0x7FFFFFFF)
	checkResult(t, "dp4a.s32.u32", 0xFFFFFF01, 0xFF, 0xFF, 0)
	checkResult(t, "dp2a.hi.u32.s32", 0xFFFF0001, 0xFFFF, 0x00FF_0000, 0)
}

func TestBitExamples(t *testing.T) {
	checkResult(t, "popc.b64", 64, 1<<64-1)
	checkResult(t, "clz.b32", 32, 0)
	checkResult(t, "clz.b64", 31, 1<<32)
	checkResult(t, "brev.b32", 1, lowest)
	checkResult(t, "bfind.s32", 0xFFFFFFFF, minusOne)
	checkResult(t, "bfind.s32", 30, lowest)
	checkResult(t, "bfind.shiftamt.u32", 28, 8)
	checkResult(t, "bfe.s32", minusOne, lowest, 31, 5)
	checkResult(t, "szext.clamp.s32", 0xFFFFFF80, 0x80, 8)
	checkResult(t, "szext.clamp.s32", 0x80, 0x80, 32)
	checkResult(t, "szext.wrap.s32", 0, 0x80, 32)
	checkResult(t, "bmsk.clamp.b32", 0xFFFFFFF0, 4, 40)
	checkResult(t, "bmsk.wrap.b32", 0xFF0, 36, 40)
	checkResult(t, "bmsk.clamp.b32", 0, 32, 4)
	checkResult(t, "fns.b32", 3, 0xAAAAAAAA, 3, minusOne)
	checkResult(t, "fns.b32", 0, 0xF0, 1, lowest)
	checkResult(t, "not.pred", 0, 1)
	checkResult(t, "xor.pred", 1, 1, 0)
	checkResult(t, "cnot.b16", 1, 0)
}

func TestShiftExamples(t *testing.T) {
	checkResult(t, "shl.b32", 0, 1, 32)
	checkResult(t, "shl.b16", 0x8000, 1, 15)
	checkResult(t, "shr.s32", minusOne, lowest, 1<<31)
	checkResult(t, "shr.u64", 0, 1<<63, 64)
	checkResult(t, "shr.b16", 1, 0x8000, 15)
	checkResult(t, "shf.l.wrap.b32", 0x23456788, 0x87654321, 0x12345678, 36)
	checkResult(t, "shf.l.clamp.b32", 0x87654321, 0x87654321, 0x12345678, 99)
	checkResult(t, "shf.r.wrap.b32", 0x87654321, 0x87654321, 0x12345678, 32)
	checkResult(t, "shf.r.clamp.b32", 0x12345678, 0x87654321, 0x12345678, 32)
	checkResult(t, "prmt.b32", 0x77005500, 0x33221100, 0x77665544, 0x7050)
	checkResult(t, "prmt.b32", 0xFF88FF88, 0x88, 0x99, 0x8080)
	checkResult(t, "prmt.b32.f4e", 0x55443322, 0x33221100, 0x77665544, 2)
	checkResult(t, "prmt.b32.b4e", 0x66770011, 0x33221100, 0x77665544, 5)
	checkResult(t, "prmt.b32.rc16", 0x33223322, 0x33221100, 0, 3)
	checkResult(t, "prmt.b32.ecl", 0x33222222, 0x33221100, 0, 2)
	checkResult(t, "prmt.b32.ecr", 0x11111100, 0x33221100, 0, 1)
	checkResult(t, "prmt.b32.rc8", 0x22222222, 0x33221100, 0, 2)
}

func TestVideoExamples(t *testing.T) {
	checkResult(t, "vadd4.u32.u32.u32.sat", 0xFF_03_FF_00, 0xFF_01_80_00, 0x01_02_80_00, 0)
	checkResult(t, "vsub2.s32.s32.s32.sat", 0x8000_7FFF, 0x8000_7FFF, 0x0001_FFFF, 0)
	checkResult(t, "vavrg2.u32.u32.u32", 0x0002_8000, 0x0001_FFFF, 0x0002_0000, 0)
	checkResult(t, "vavrg4.s32.s32.s32", 0x00_00_00_FE, 0xFD, 0xFF, 0)
	checkResult(t, "vabsdiff4.u32.u32.u32.add", 0x105, 0x00_00_00_FF, 0x05_00_00_00, 1)
	checkResult(t, "vset2.u32.u32.lt", 0x0001_0000, 0x0000_0005, 0x0001_0005, 0)
	checkResult(t, "vset4.s32.s32.ge.add", 7, 0, 0x01_00_FF_00, 4)
	checkResult(t, "vmad.s32.s32.s32.po.shr7", 1, 127, 1, 0)
	checkResult(t, "vmad.u32.u32.u32.sat", 0, minusOne, 2, 0)
	checkResult(t, "vshl.u32.u32.u32.clamp.add", 5, 1, 40, 5)
	checkResult(t, "vmax.s32.u32.s32", 5, 5, minusOne)
}
