package kernels

import (
	"math"
	"math/rand/v2"
	"testing"
)

// fusedFolder is the folder of the attention that converts its inputs. The program does not carry it.
const fusedFolder = "fused"

// Every stage is right on all shapes of the simulator with all checkers, and so are FP16, other tiles,
// rounds of one and of three steps, and exact exponentials. With steps of 64 keys two warps share the
// keys.
func TestFusedIsCorrect(t *testing.T) {
	kernel, builder := declaredBuilder(t, fusedFolder)
	few := []string{"ragged", "mean", "causal"}
	for name, shapeNames := range map[string][]string{
		"fused": kernel.Run.SimShapes, "fused256": kernel.Run.SimShapes, "fused128": kernel.Run.SimShapes,
		"fused+USE_BF16=0": few, "fused+TILE_N=64": few, "fused128+TILE_M=64": few, "fused256+TILE_M=192": few, "fused256+EXP2_LINEAR_EIGHTHS=0+EXP2_SEGMENTS=1": few,
	} {
		t.Run(name, func(t *testing.T) {
			if name != "fused256" {
				skipUnlessFourth(t, 1)
			}
			t.Parallel()
			checkDeclared(t, kernel, builder, fusedFolder, name, shapeNames)
		})
	}
}

// Scales differ between the tiles of 128 keys, and the kernel undoes them: a key far above the
// others, tiles of zeros, magnitudes at both ends of BF16. NaN stays in its row of Q or its column
// of V. The largest addend of O is a product of a P and a V in E4M3, each within 1/16.
func TestFusedScales(t *testing.T) {
	const keys = 300
	for name, change := range map[string]func(in *halfInputs){
		"outliers": func(in *halfInputs) {
			for c := range in.k[140] {
				in.k[140][c] *= 1000
				in.v[290][c] *= 1000
			}
		},
		"zeros": func(in *halfInputs) {
			for key := 128; key < 256; key++ {
				clear(in.k[key])
				clear(in.v[key])
			}
			clear(in.q[5])
		},
		"no values": func(in *halfInputs) {
			for key := range in.v {
				clear(in.v[key])
				clear(in.k[key])
			}
		},
		"magnitudes": func(in *halfInputs) {
			multiply(in.q, 0x1p-50)
			multiply(in.k, 0x1p50)
			multiply(in.k[128:256], 0x1p-7)
			multiply(in.v[:128], 0x1p-9)
		},
		"large values first": func(in *halfInputs) { // steps begin with the last keys
			multiply(in.v[128:], 0x1p40)
			multiply(in.v[:128], 0x1p-40)
			in.within = 0.006 * 0x1p40
		},
		"large values last": func(in *halfInputs) {
			multiply(in.v[128:], 0x1p-40)
			multiply(in.v[:128], 0x1p40)
			in.within = 0.006 * 0x1p40
		},
		"lone elements": func(in *halfInputs) { // in different words of the lanes
			for _, at := range [][2]int{{3, 11}, {130, 38}, {299, 63}} {
				in.k[at[0]][at[1]] = 8
				in.v[at[0]-1][63-at[1]] = 500
			}
		},
		"not numbers": func(in *halfInputs) {
			in.q[7][3] = math.NaN()
			in.v[200][9] = math.NaN()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			in := &halfInputs{q: matrix(random, 64), k: matrix(random, keys), v: matrix(random, keys), scale: 1.5 / math.Sqrt(64), within: 0.04, share: 1.0 / 6}
			change(in)
			in.compare(t, in.run(t, fusedFolder, "fused"))
		})
	}
}

// An infinity is a large number: it makes no NaN.
func TestFusedInfinities(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	in := &halfInputs{q: matrix(random, 64), k: matrix(random, 300), v: matrix(random, 300)}
	in.q[9][1], in.k[100][4], in.v[200][6] = math.Inf(1), math.Inf(-1), math.Inf(1)
	for i, x := range in.run(t, fusedFolder, "fused") {
		if math.IsNaN(x) {
			t.Fatalf("row %d, column %d is NaN", i/64, i%64)
		}
	}
}
