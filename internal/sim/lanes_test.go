package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// Codes at which float operations do something of their own, and integers at the ends.
var oddCodes = []uint32{
	0, 1, 0x80000000, 0x80000001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFC12345, 0x00800000, 0x007FFFFF, 0x3F800000,
	0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x33800000, 0x34000000, 0x3F7FFFFF, 0x4B800000, 31, 32, 33, 63, 64, 0x7C00, 0xFC01, 0x83FF,
}

func drawCode(random *rand.Rand) uint32 {
	switch random.IntN(4) {
	case 0:
		return oddCodes[random.IntN(len(oddCodes))]
	case 1:
		return math.Float32bits(float32(random.NormFloat64()))
	}
	return random.Uint32()
}

// drawRegisters gives a warp a few registers of each file.
func drawRegisters(random *rand.Rand) *warp {
	w := &warp{r32: make([]v32, 4), r64: make([]v64, 4), preds: make([]uint32, 4)}
	for r := range w.r32 {
		for lane := range w.r32[r] {
			w.r32[r][lane] = drawCode(random)
			w.r64[r][lane] = uint64(drawCode(random)) | uint64(drawCode(random))<<32
		}
		w.preds[r] = drawCode(random)
	}
	return w
}

// drawLaneOp draws an operation on them. Which of its registers are of which file is what the instructions of its code say.
func drawLaneOp(t *testing.T, random *rand.Rand, code laneCode) laneOp {
	t.Helper()
	files, found := laneFiles()[code]
	if !found {
		t.Fatalf("no instruction has the compact form %d", code)
	}
	var places [4]uint32
	for i, f := range files {
		if f != noFile {
			places[i] = slot{f, random.Int32N(4)}.place()
		}
	}
	return laneOp{code, places[0], places[1], places[2], places[3]}
}

// laneFiles is where the result and the operands of each code live.
func laneFiles() map[laneCode][4]file {
	m := map[laneCode][4]file{
		laneMov: {file32, file32}, laneMov64: {file64, file64},
		lanePack: {file32, file32, file32}, laneUnpack: {file32, file32, file32},
		lanePack64: {file64, file32, file32}, laneUnpack64: {file32, file64, file32},
	}
	for name, form := range laneForms {
		found := mustLookupArith(name)
		files := [4]file{fileOf(found.Result)}
		for i, a := range found.Args {
			files[1+i] = fileOf(a)
		}
		m[form.code] = files
	}
	return m
}

func sameRegisters(a, b *warp) bool {
	return slices.Equal(a.r32, b.r32) && slices.Equal(a.r64, b.r64) && slices.Equal(a.preds, b.preds)
}

// bothWays executes operations in assembly and in Go, and says whether they give the same.
func bothWays(w *warp, ops []laneOp) bool {
	other := &warp{r32: slices.Clone(w.r32), r64: slices.Clone(w.r64), preds: slices.Clone(w.preds)}
	lanesAssembly(&ops[0], len(ops), unsafe.SliceData(w.r32), unsafe.SliceData(w.r64), unsafe.SliceData(w.preds))
	other.doLanesInGo(ops)
	return sameRegisters(w, other)
}

// The assembly gives the bits that the loops in Go give, whichever registers it works on.
func TestAssemblyIsGo(t *testing.T) {
	if !haveLaneAssembly {
		t.Skip("this processor has no AVX2, or it is turned off")
	}
	random := rand.New(rand.NewPCG(1, 1))
	for code := noLane + 1; code < laneCodes; code++ {
		for range 500 {
			o := drawLaneOp(t, random, code)
			if w := drawRegisters(random); !bothWays(w, []laneOp{o}) {
				t.Errorf("operation %+v: assembly and Go differ", o)
				break
			}
		}
	}
}

// FuzzLanes has whole runs, on registers that the fuzzer has chosen.
func FuzzLanes(f *testing.F) {
	f.Add(uint64(1), []byte{byte(laneFma), byte(laneSelp), byte(laneEqual)}, uint32(0x7F800000), uint32(0x7FC00001))
	f.Add(uint64(2), []byte{byte(laneMaxFloat), byte(laneMinFloat), byte(laneMadWideSigned), byte(laneNarrow)}, uint32(0x80000000), uint32(0))
	f.Add(uint64(3), []byte{byte(laneHalfToFloat), byte(laneFma), byte(laneFromSigned)}, uint32(0x00000001), uint32(0x00008001))
	f.Fuzz(func(t *testing.T, seed uint64, codes []byte, x, y uint32) {
		if !haveLaneAssembly {
			t.Skip("this processor has no AVX2, or it is turned off")
		}
		random := rand.New(rand.NewPCG(seed, 0))
		w := drawRegisters(random)
		w.r32[0][seed%32], w.r32[1][seed%32] = x, y
		var ops []laneOp
		for _, c := range codes {
			ops = append(ops, drawLaneOp(t, random, 1+laneCode(c)%(laneCodes-1)))
		}
		if len(ops) > 0 && !bothWays(w, ops) {
			t.Errorf("%+v: assembly and Go differ", ops)
		}
	})
}
