package lanes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"attune/internal/ptx"
	"attune/internal/sim/arith"
)

// Bits at which float operations have special cases, and the ends of the integer ranges.
var edgeBits = []uint32{
	0, 1, 0x80000000, 0x80000001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFC12345, 0x00800000, 0x007FFFFF, 0x3F800000,
	0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x33800000, 0x34000000, 0x3F7FFFFF, 0x4B800000, 31, 32, 33, 63, 64, 0x7C00, 0xFC01, 0x83FF,
}

func drawBits(random *rand.Rand) uint32 {
	switch random.IntN(4) {
	case 0:
		return edgeBits[random.IntN(len(edgeBits))]
	case 1:
		return math.Float32bits(float32(random.NormFloat64()))
	}
	return random.Uint32()
}

// drawRegisters draws four registers of each file.
func drawRegisters(random *rand.Rand) *Registers {
	r := &Registers{R32: make([]V32, 4), R64: make([]V64, 4), Preds: make([]uint32, 4)}
	for i := range r.R32 {
		for lane := range r.R32[i] {
			r.R32[i][lane] = drawBits(random)
			r.R64[i][lane] = uint64(drawBits(random)) | uint64(drawBits(random))<<32
		}
		r.Preds[i] = drawBits(random)
	}
	return r
}

// drawOp draws the registers of an operation.
func drawOp(t *testing.T, random *rand.Rand, code Code) Op {
	t.Helper()
	strides, found := operandStrides()[code]
	if !found {
		t.Fatalf("no instruction has the code %d", code)
	}
	var offsets [4]uint32
	for i, stride := range strides {
		offsets[i] = stride * random.Uint32N(4)
	}
	return Op{code, offsets[0], offsets[1], offsets[2], offsets[3]}
}

// operandStrides has the strides of the files that d, a, b and c of each operation are in; 0 for
// an operand that the operation does not have. The types of arith's operations decide them.
var operandStrides = sync.OnceValue(func() map[Code][4]uint32 {
	m := map[Code][4]uint32{
		Mov32: {Stride32, Stride32}, Mov64: {Stride64, Stride64},
		Pack32: {Stride32, Stride32, Stride32}, Unpack32: {Stride32, Stride32, Stride32},
		Pack64: {Stride64, Stride32, Stride32}, Unpack64: {Stride32, Stride64, Stride32},
	}
	for name, form := range forms {
		op := lookupArith(name)
		strides := [4]uint32{strideOf(op.Result)}
		for i, a := range op.Args {
			strides[1+i] = strideOf(a)
		}
		m[form.Code] = strides
	}
	return m
})

func lookupArith(name string) arith.Op {
	words := strings.Split(name, ".")
	op, err := arith.Lookup(words[0], words[1:])
	if err != nil {
		panic(fmt.Sprintf("BUG: %s has a compact form but arith does not support it: %v", name, err))
	}
	return op
}

func strideOf(t ptx.Type) uint32 {
	switch {
	case t == ptx.Pred:
		return StridePred
	case t.Bits() <= 32:
		return Stride32
	}
	return Stride64
}

// assemblyMatchesLoops executes operations in assembly and in Go and compares the registers.
func assemblyMatchesLoops(r *Registers, ops []Op) bool {
	other := r.Clone()
	r.Run(ops)
	other.runLoops(ops)
	return r.Equal(&other)
}

// TestAssemblyMatchesLoops compares the bits for every operation, on registers drawn at random.
// The destination is sometimes one of the sources.
func TestAssemblyMatchesLoops(t *testing.T) {
	if !haveAssembly {
		t.Skip("this processor has no AVX2, or it is turned off")
	}
	random, count := rand.New(rand.NewPCG(1, 1)), 500
	if testing.Short() {
		count = 100
	}
	for code := None + 1; code < codes; code++ {
		for range count {
			o := drawOp(t, random, code)
			if r := drawRegisters(random); !assemblyMatchesLoops(r, []Op{o}) {
				t.Errorf("operation %+v: assembly and Go differ", o)
				break
			}
		}
	}
}

// FuzzLanes compares whole sequences of operations.
func FuzzLanes(f *testing.F) {
	f.Add(uint64(1), []byte{byte(fmaF32), byte(selp32), byte(eq32)}, uint32(0x7F800000), uint32(0x7FC00001))
	f.Add(uint64(2), []byte{byte(maxF32), byte(minF32), byte(madWideS32), byte(cvtU32U64)}, uint32(0x80000000), uint32(0))
	f.Add(uint64(3), []byte{byte(cvtF32F16), byte(fmaF32), byte(cvtF32S32)}, uint32(0x00000001), uint32(0x00008001))
	f.Fuzz(func(t *testing.T, seed uint64, list []byte, x, y uint32) {
		if !haveAssembly {
			t.Skip("this processor has no AVX2, or it is turned off")
		}
		random := rand.New(rand.NewPCG(seed, 0))
		r := drawRegisters(random)
		r.R32[0][seed%32], r.R32[1][seed%32] = x, y
		var ops []Op
		for _, c := range list {
			ops = append(ops, drawOp(t, random, 1+Code(c)%(codes-1)))
		}
		if len(ops) > 0 && !assemblyMatchesLoops(r, ops) {
			t.Errorf("%+v: assembly and Go differ", ops)
		}
	})
}

// TestLoopsMatchArith compares the loops with package arith, lane by lane.
func TestLoopsMatchArith(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 1))
	for _, name := range Names() {
		form, _ := Lookup(name)
		op := lookupArith(name)
		for range 100 {
			r := drawRegisters(random)
			o := drawOp(t, random, form.Code)
			sources := [3]uint32{o.A, o.B, o.C}
			if form.Swapped {
				sources[0], sources[1] = o.B, o.A
			}
			var want [32]uint64
			for lane := range want {
				var x [3]uint64
				for i, a := range op.Args {
					x[i] = valueIn(r, strideOf(a), sources[i], lane) & (1<<(a.Bits()-1)<<1 - 1)
				}
				want[lane] = op.Func(x[0], x[1], x[2], 0)
			}
			r.runLoops([]Op{o})
			for lane := range want {
				if got := valueIn(r, strideOf(op.Result), o.D, lane); got != want[lane] {
					t.Fatalf("%s, lane %d: %#x, arith has %#x", name, lane, got, want[lane])
				}
			}
		}
	}
}

// valueIn reads one lane of the register at an offset of the file with the given stride.
func valueIn(r *Registers, stride, offset uint32, lane int) uint64 {
	switch stride {
	case Stride32:
		return uint64(r.at32(offset)[lane])
	case Stride64:
		return r.at64(offset)[lane]
	}
	return uint64(*r.pred(offset) >> lane & 1)
}

// TestSmallestNormal checks results at the smallest normal number: .ftz flushes what is below it after
// rounding with unbounded exponent.
func TestSmallestNormal(t *testing.T) {
	for _, c := range []struct{ a, b, c, want uint32 }{
		{0x00800000, 0x3F800000, 0x00000000, 0x00800000}, // exact
		{0x00800000, 0x3F7FFFFF, 0x00000000, 0},          // 2^-126 less an ulp of 24 bits
		{0x80800000, 0x3F800000, 0x0D800000, 0x0D800000}, // 2^-100 less 2^-126
		{0x8D800000, 0x01800000, 0x00800000, 0x00800000}, // 2^-126 less 2^-224
		{0x0D800000, 0x01800000, 0x80800000, 0x80800000},
		{0x80800000, 0x3F7FFFFF, 0x00000000, 0x80000000},
		{0x00400000, 0x40000000, 0x00000000, 0}, // a subnormal source
	} {
		r := &Registers{R32: make([]V32, 4)}
		for i, value := range []uint32{c.a, c.b, c.c} {
			r.R32[i][7] = value
		}
		r.Run([]Op{{fmaFtzF32, 3 * Stride32, 0, Stride32, 2 * Stride32}})
		if got := r.R32[3][7]; got != c.want {
			t.Errorf("%#x * %#x + %#x = %#x, want %#x", c.a, c.b, c.c, got, c.want)
		}
	}
}
