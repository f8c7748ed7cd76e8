package arith

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/ptx"
)

func lookup(t testing.TB, name string) Op {
	t.Helper()
	words := strings.Split(name, ".")
	op, err := Lookup(words[0], words[1:])
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// checkResult checks the first destination of an instruction for these operands.
func checkResult(t *testing.T, name string, want uint64, args ...uint64) {
	t.Helper()
	var row [4]uint64
	copy(row[:], args)
	if got := lookup(t, name).Func(row[0], row[1], row[2], row[3]); got != want {
		t.Errorf("%s of %x: %x, want %x", name, args, got, want)
	}
}

func TestOperands(t *testing.T) {
	check := func(name string, result ptx.Type, args ...ptx.Type) {
		t.Helper()
		op := lookup(t, name)
		if op.Result != result {
			t.Errorf("%s: result is %v, want %v", name, op.Result, result)
		}
		if diff := cmp.Diff(args, op.Args); diff != "" {
			t.Errorf("%s: operands differ (-want +got):\n%s", name, diff)
		}
	}
	check("add.u32", ptx.U32, ptx.U32, ptx.U32)
	check("mad.wide.s16", ptx.S32, ptx.S16, ptx.S16, ptx.S32)
	check("madc.hi.cc.u64", ptx.U64, ptx.U64, ptx.U64, ptx.U64)
	check("shl.b64", ptx.B64, ptx.B64, ptx.U32)
	check("bfe.s64", ptx.S64, ptx.S64, ptx.U32, ptx.U32)
	check("bfi.b32", ptx.B32, ptx.B32, ptx.B32, ptx.U32, ptx.U32)
	check("popc.b64", ptx.U32, ptx.B64)
	check("dp4a.u32.s32", ptx.S32, ptx.U32, ptx.S32, ptx.S32)
	check("dp2a.lo.u32.u32", ptx.U32, ptx.U32, ptx.U32, ptx.U32)
	check("lop3.b32", ptx.B32, ptx.B32, ptx.B32, ptx.B32, ptx.B32)
	check("lop3.or.b32", ptx.B32, ptx.B32, ptx.B32, ptx.B32, ptx.B32, ptx.Pred)
	check("setp.lt.f16x2", ptx.Pred, ptx.F16x2, ptx.F16x2)
	check("setp.lt.and.s32", ptx.Pred, ptx.S32, ptx.S32, ptx.Pred)
	check("set.lt.xor.f32.u64", ptx.F32, ptx.U64, ptx.U64, ptx.Pred)
	check("selp.f64", ptx.F64, ptx.F64, ptx.F64, ptx.Pred)
	check("slct.b16.f32", ptx.B16, ptx.B16, ptx.B16, ptx.F32)
	check("testp.normal.f64", ptx.Pred, ptx.F64)
	check("cvt.rn.f16x2.f32", ptx.F16x2, ptx.F32, ptx.F32)
	check("cvt.rn.satfinite.e4m3x2.f16x2", ptx.E4M3x2, ptx.F16x2)
	check("cvt.rn.relu.f16x2.e5m2x2", ptx.F16x2, ptx.E5M2x2)
	check("cvt.pack.sat.s16.s32", ptx.B32, ptx.S32, ptx.S32)
	check("cvt.pack.sat.u4.s32.b32", ptx.B32, ptx.S32, ptx.S32, ptx.B32)
	check("vadd.u32.s32.u32", ptx.U32, ptx.S32, ptx.U32)
	check("vset.s32.u32.lt.add", ptx.U32, ptx.S32, ptx.U32, ptx.U32)
	check("vabsdiff4.s32.u32.u32.add", ptx.S32, ptx.U32, ptx.U32, ptx.S32)
}

func TestOpFields(t *testing.T) {
	check := func(name string, carry, uses, sets, pair, approximate bool) {
		t.Helper()
		op := lookup(t, name)
		got := []bool{op.Carry != nil, op.UsesCarry, op.SetsCarry, op.Pair != nil, op.Approximate}
		if diff := cmp.Diff([]bool{carry, uses, sets, pair, approximate}, got); diff != "" || (op.Func == nil) != carry {
			t.Errorf("%s: carry, uses, sets, pair, approximate differ (-want +got):\n%s", name, diff)
		}
	}
	check("add.s32", false, false, false, false, false)
	check("add.cc.s32", true, false, true, false, false)
	check("addc.s32", true, true, false, false, false)
	check("subc.cc.u64", true, true, true, false, false)
	check("mad.lo.cc.u32", true, false, true, false, false)
	check("madc.hi.u32", true, true, false, false, false)
	check("setp.eq.b32", false, false, false, true, false)
	check("setp.eq.f16x2", false, false, false, true, false)
	check("setp.eq.bf16", false, false, false, false, false)
	check("lop3.and.b32", false, false, false, true, false)
	check("ex2.approx.ftz.f32", false, false, false, false, true)
	check("div.full.f32", false, false, false, false, true)
	check("tanh.approx.bf16x2", false, false, false, false, true)
	check("rcp.rn.f32", false, false, false, false, false)
}

// TestModifierOrder checks that modifiers other than types may appear in any order.
func TestModifierOrder(t *testing.T) {
	for _, name := range []string{
		"fma.rp.ftz.sat.f32", "cvt.f64.bf16.rp", "cvt.f32.f16.sat.ftz", "cvt.e4m3x2.satfinite.rn.f32.relu",
		"setp.f32.ftz.or.ltu", "min.s16x2.relu",
		"max.f16.abs.xorsign.NaN", "prmt.b32.f4e", "shf.b32.wrap.l", "vadd4.u32.sat.u32.u32", "mad.s32.hi.sat",
		"set.ge.f16.s32.and",
	} {
		words := strings.Split(name, ".")
		want := checksum(lookup(t, name).results(64))
		for index := range len(words) - 1 {
			// Types keep their relative order: move one modifier that is not a type.
			moved := slices.Clone(words[1:])
			if _, isType := ptx.ParseType(moved[index]); isType {
				continue
			}
			word := moved[index]
			moved = slices.Delete(moved, index, index+1)
			for at := range len(moved) + 1 {
				modifiers := slices.Insert(slices.Clone(moved), at, word)
				op, err := Lookup(words[0], modifiers)
				if err != nil {
					t.Error(err)
				} else if got := checksum(op.results(64)); got != want {
					t.Errorf("%s.%s differs from %s", words[0], strings.Join(modifiers, "."), name)
				}
			}
		}
	}
}

func TestUnsupportedForms(t *testing.T) {
	for _, name := range []string{
		"mov.b32", "ld.global.u32", "nop", "", "add", "add.", "add.u8", "add.u32.u32", "add.foo.u32", "add.sat.u32",
		"add.rn.s32", "add.rn.rz.f32", "add.rn.rn.f32",
		"add.rz.f16", "add.ftz.f64", "add.sat.bf16", "add.f32x2", "add.f32.f16", "add.cc.u16", "add.cc.f32",
		"add.cc.sat.s32", "add.b32", "add.pred",
		"sub.s16x2", "mul.u32", "mul.lo.hi.u32", "mul.wide.u64", "mul.lo.f32", "mad.f32", "mad.lo.sat.s32",
		"mad.hi.sat.u32", "mad.rn.f16", "mad.wide.cc.u32", "madc.u32",
		"fma.f32", "fma.rz.bf16", "fma.rn.relu.f32", "fma.rn.sat.relu.f16", "fma.rn.ftz.oob.f16", "mul24.s32",
		"mad24.lo.sat.s32", "sad.f32", "dp4a.s32", "dp2a.s32.s32", "dp4a.s16.s32",
		"div.f32", "div.rn.f16", "div.approx.f64", "div.approx.rn.f32", "rem.f32", "rcp.f32", "rcp.approx.f64",
		"rcp.rn.sat.f32", "sqrt.rn.ftz.f64", "rsqrt.rn.f32",
		"sin.f32", "sin.approx.f64", "ex2.approx.bf16", "ex2.approx.ftz.f16", "tanh.approx.ftz.f32", "tanh.f16",
		"lg2.approx.f16",
		"abs.u32", "abs.ftz.bf16", "neg.b32", "min.abs.f32", "min.xorsign.f32", "min.NaN.f64", "min.relu.u32",
		"max.relu.f16", "max.ftz.bf16",
		"copysign.f16", "testp.f32", "testp.normal.f16", "popc.u32", "bfind.b32", "bfe.b32", "szext.s32", "bmsk.b32",
		"fns.u32", "and.u32", "cnot.pred",
		"lop3.xor.b32", "lop3.b64", "shl.u32", "shf.l.b32", "shf.wrap.b32", "prmt.b64", "prmt.b32.f4e.rc8",
		"set.lt.u16.f32", "set.lt.f32.f16", "set.lt.f16.bf16", "set.lt.f16x2.f16", "set.lt.ftz.bf16.f32",
		"set.u32.f32", "set.lt.u32",
		"setp.u32", "setp.lt.b32", "setp.lo.s32", "setp.equ.u32", "setp.lt.gt.s32", "setp.lt.and.or.s32",
		"setp.lt.ftz.f64", "setp.lt.u8", "setp.lt.pred", "selp.f16", "selp.pred",
		"slct.s32", "slct.s32.u32", "slct.ftz.s32.s32", "slct.f16.s32",
		"cvt.u32", "cvt.f32.s32", "cvt.s32.f32", "cvt.rn.s32.f32", "cvt.rni.f32.s32", "cvt.rni.f32.f64",
		"cvt.rn.f32.f16", "cvt.rn.f32.f32", "cvt.f16.f32", "cvt.sat.u32.u16",
		"cvt.sat.s64.s64", "cvt.ftz.f16.f64", "cvt.rn.s32.u32", "cvt.rn.relu.f16.f64", "cvt.rm.relu.f16.f32",
		"cvt.rn.sat.bf16.f32", "cvt.rn.tf32.f64", "cvt.rm.tf32.f32", "cvt.rna.relu.tf32.f32",
		"cvt.rn.satfinite.tf32.f32", "cvt.rm.f16x2.f32", "cvt.rn.f16x2.f16", "cvt.rn.e4m3x2.f32",
		"cvt.rz.satfinite.e4m3x2.f32", "cvt.rn.satfinite.e4m3x2.bf16x2", "cvt.rn.bf16x2.e4m3x2",
		"cvt.f16x2.e4m3x2", "cvt.u32.f16x2", "cvt.f32.b32", "cvt.pack.s16.s32", "cvt.pack.sat.s16.u32",
		"cvt.pack.sat.s16.s32.b32", "cvt.pack.sat.s8.s32", "cvt.pack.sat.u32.s32", "cvt.pack.sat.f16.s32",
		"cvt.pack.sat",
		"vadd.u32.u32", "vadd.u16.u32.u32", "vadd.u32.u32.u32.add.min", "vshl.u32.u32.u32", "vshl.u32.u32.s32.wrap",
		"vset.u32.u32", "vset.u32.u32.lo", "vset.u32.u32.lt.sat", "vmad.u32.u32", "vmad.u32.u32.u32.shr7.shr15",
		"vadd2.u32.u32.u32.sat.add", "vmin4.u32.u32.u32.max", "vset4.u32.u32", "vset2.u32.lt", "vavrg.u32.u32.u32",
		"vset4.u32.u32.lt.sat",
	} {
		words := strings.Split(name, ".")
		_, err := Lookup(words[0], words[1:])
		if want := "unsupported instruction " + name; err == nil || err.Error() != want {
			t.Errorf("%q: error is %v, want %s", name, err, want)
		}
	}
}

// FuzzLookup checks that every accepted form can be called, and that results have no bits above
// their type.
func FuzzLookup(f *testing.F) {
	for _, seed := range []string{
		"add.sat.s32", "fma.rn.relu.oob.bf16x2", "cvt.rni.sat.u8.f32", "cvt.pack.sat.u2.s32.b32",
		"set.nan.xor.bf16x2.bf16x2", "lop3.or.b32", "madc.hi.cc.s64",
		"max.NaN.xorsign.abs.f16x2", "vavrg4.s32.u32.s32.add", "vshr.u32.s32.u32.sat.clamp.min",
		"bfind.shiftamt.s64", "ex2.approx.ftz.bf16", "vset", "vset4", "v", "cvt.pack", "...",
		"add.none", "cvt.rna.tf32.f32.f32",
	} {
		f.Add(seed, uint64(0x7FF7_80008000FF81), uint64(0x7F800001_80000000), uint64(1<<63), uint64(0x1FF))
	}
	f.Fuzz(func(t *testing.T, name string, a, b, c, d uint64) {
		words := strings.Split(name, ".")
		op, err := Lookup(words[0], words[1:])
		if err != nil {
			if err.Error() != "unsupported instruction "+name {
				t.Error(err)
			}
			return
		}
		bits := func(value uint64, of ptx.Type) {
			if of.Bits() < 64 && value>>of.Bits() != 0 {
				t.Errorf("%s of %x, %x, %x, %x: %x has more than %d bits", name, a, b, c, d, value, of.Bits())
			}
		}
		if op.Carry != nil {
			r, _ := op.Carry(a, b, c, d&1 == 1)
			bits(r, op.Result)
			return
		}
		r := op.Func(a, b, c, d)
		bits(r, op.Result)
		if op.Pair != nil {
			bits(op.Pair(a, b, c, d), ptx.Pred)
		}
		// Operand bits above the operand's type must not matter.
		values := [4]uint64{a, b, c, d}
		for i, of := range op.Args {
			if i < len(values) && !(len(op.Args) == 5 && i == 3) {
				values[i] = integer{bits: of.Bits()}.truncate(values[i])
			}
		}
		if masked := op.Func(values[0], values[1], values[2], values[3]); masked != r {
			t.Errorf("%s of %x: %x; without upper bits: %x", name, [4]uint64{a, b, c, d}, r, masked)
		}
	})
}
