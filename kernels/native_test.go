package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// nativeFolder is the folder of the attention with products in 16 bits.
const nativeFolder = "native"

// Every stage is right on all shapes of the simulator with all checkers, and so are FP16, other tiles,
// more stages of K and V, and exact exponentials.
func TestNativeIsCorrect(t *testing.T) {
	kernel, builder := declaredBuilder(t, nativeFolder)
	few := []string{"ragged", "mean", "causal"}
	for name, shapes := range map[string][]string{
		"native": kernel.Run.SimShapes, "native256": kernel.Run.SimShapes, "native_d128": kernel.Run.SimShapes,
		"native_fp16": kernel.Run.SimShapes, "native256_fp16": few, "native_d128_fp16": few, "native_lse": few, "native_d128_lse_fp16": few, "native256+TILE_N=64+KV_STAGES=6": few, "native_d128+HEAD_DIM=64+TILE_M=64+USE_BF16=0": few,
		"native_d128+HEAD_DIM=64+TILE_M=192+KV_STAGES=2+EXP2_LINEAR_EIGHTHS=0+EXP2_SEGMENTS=1": few,
	} {
		t.Run(name, func(t *testing.T) {
			if name != "native" {
				skipUnlessFourth(t, 1)
			}
			t.Parallel()
			checkDeclared(t, kernel, builder, nativeFolder, name, shapes)
		})
	}
}

// O is rescaled only where the row max has grown by more than 8 in log2 units, so scores grow here by
// less, by that and by more from step to step; a step is 128 keys, and the last keys are first. The
// error is that of BF16 and of the linear exponentials, far below that of FP8.
func TestNativeValues(t *testing.T) {
	const keys = 300
	grow := func(log2 float64) func(in *halfInputs) {
		return func(in *halfInputs) {
			for row, q := range in.q {
				clear(q)
				q[row%64] = 1
			}
			perStep := log2 * math.Ln2 / in.scale
			for key, k := range in.k {
				for c := range k {
					k[c] = rounded(k[c]/8 - perStep*float64(key/128))
				}
			}
		}
	}
	for name, change := range map[string]func(in *halfInputs){
		"plain":              func(in *halfInputs) {},
		"grow by 7":          grow(7),
		"grow by 8":          grow(8),
		"grow by 20":         grow(20),
		"grow by 200":        grow(200),
		"fall by 7":          grow(-7),
		"fall by 200":        grow(-200),
		"negative scores":    func(in *halfInputs) { grow(0)(in); offset(in.k, -30) },
		"large magnitudes":   func(in *halfInputs) { multiply(in.q, 0x1p-50); multiply(in.k, 0x1p50) },
		"large values":       func(in *halfInputs) { multiply(in.v[:128], 0x1p60); in.within *= 0x1p60 },
		"small values":       func(in *halfInputs) { multiply(in.v, 0x1p-60); in.within *= 0x1p-60 },
		"zeros":              func(in *halfInputs) { multiply(in.k, 0); multiply(in.v[128:], 0) },
		"not numbers":        func(in *halfInputs) { in.q[7][3], in.v[200][9] = math.NaN(), math.NaN() },
		"a key not a number": func(in *halfInputs) { in.k[77][1] = math.NaN() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			in := &halfInputs{
				q: matrix(random, 64), k: matrix(random, keys), v: matrix(random, keys),
				scale: 1.5 / math.Sqrt(64), within: 0.003, share: 0.015,
			}
			change(in)
			in.compare(t, in.run(t, nativeFolder, "native"))
			if !strings.Contains(name, "large") && !strings.Contains(name, "small") {
				in.compare(t, in.run(t, nativeFolder, "native_fp16"))
			}
		})
	}
}

// With a causal mask every row attends to its keys and to no other, wherever the diagonal crosses the
// edges of steps, of consumers and of tiles. The column of V that a key adds to tells it from its
// neighbours.
func TestNativeCausalEdges(t *testing.T) {
	for _, beyond := range []int{0, 1, 2, 62, 63, 64, 65, 126, 127, 128, 129, -1, -64, -127} {
		for stage, rows := range map[string]int{"native": 130, "native256": 258} {
			t.Run(fmt.Sprintf("%s %d", stage, beyond), func(t *testing.T) {
				if stage != "native" {
					skipUnlessFourth(t, 1)
				}
				t.Parallel()
				random := rand.New(rand.NewPCG(1, 2))
				in := &halfInputs{q: matrix(random, rows), k: matrix(random, rows+beyond), v: matrix(random, rows+beyond), causal: true, scale: 1.5 / 8, within: 1e-6, share: 0.05}
				multiply(in.q, 0)
				multiply(in.v, 0)
				for key, v := range in.v {
					v[key%64] = 1
				}
				in.compare(t, in.run(t, nativeFolder, stage))
			})
		}
	}
}

// An infinity is one, as in PyTorch: a row of Q with it is NaN, and no other row.
func TestNativeInfinities(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	in := &halfInputs{q: matrix(random, 64), k: matrix(random, 300), v: matrix(random, 300)}
	in.q[9][1] = math.Inf(1)
	for i, x := range in.run(t, nativeFolder, "native") {
		if math.IsNaN(x) != (i/64 == 9) {
			t.Fatalf("row %d, column %d is %v", i/64, i%64, x)
		}
	}
}
