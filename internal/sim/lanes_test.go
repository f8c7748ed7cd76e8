package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"attune/internal/sim/arith"
)

// Codes at which float operations do something of their own, and integers at the ends.
var oddCodes = []uint32{
	0, 1, 0x80000000, 0x80000001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFC12345, 0x00800000, 0x007FFFFF, 0x3F800000,
	0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x33800000, 0x34000000, 0x3F7FFFFF, 0x4B800000,
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

// The loops in assembly give the bits that the loops in Go give, whichever registers they work on.
func TestAssemblyIsGo(t *testing.T) {
	if assemblyLoops() == nil {
		t.Skip("this processor has no AVX2")
	}
	fma, err := arith.Lookup("fma", []string{"rn", "f32"}) // what a loop in Go asks for the few results that it does not know
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for name, loop := range assemblyLoops() {
		twin := goLoops()[name]
		if twin == nil {
			t.Errorf("%s has no twin in Go", name)
			continue
		}
		for range 2000 {
			o := &op{d: random.Int32N(4), a: random.Int32N(4), b: random.Int32N(4), c: random.Int32N(4), alu: &aluOp{Op: fma}}
			w := &warp{r32: make([]v32, 4), preds: make([]uint32, 4)}
			for r := range w.r32 {
				for lane := range w.r32[r] {
					w.r32[r][lane] = drawCode(random)
				}
			}
			other := &warp{r32: slices.Clone(w.r32), preds: slices.Clone(w.preds)}
			loop(w, o)
			twin(other, o)
			if !slices.Equal(w.r32, other.r32) || !slices.Equal(w.preds, other.preds) {
				t.Errorf("%s of registers %d, %d, %d, %d: assembly and Go differ", name, o.d, o.a, o.b, o.c)
				break
			}
		}
	}
}
