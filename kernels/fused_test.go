package kernels

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/half"
	"attune/internal/lab"
	"attune/internal/problem"
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

// fusedInputs are Q, K and V of one head.
type fusedInputs struct {
	q, k, v [][]float64
	scale   float64
	within  float64 // error of O that is allowed
}

// Scales differ between the tiles of 128 keys, and the kernel undoes them: a key far above the
// others, tiles of zeros, magnitudes at both ends of BF16. NaN stays in its row of Q or its column
// of V.
func TestFusedScales(t *testing.T) {
	const keys = 300
	for name, change := range map[string]func(in *fusedInputs){
		"outliers": func(in *fusedInputs) {
			for c := range in.k[140] {
				in.k[140][c] *= 1000
				in.v[290][c] *= 1000
			}
		},
		"zeros": func(in *fusedInputs) {
			for key := 128; key < 256; key++ {
				clear(in.k[key])
				clear(in.v[key])
			}
			clear(in.q[5])
		},
		"no values": func(in *fusedInputs) {
			for key := range in.v {
				clear(in.v[key])
				clear(in.k[key])
			}
		},
		"magnitudes": func(in *fusedInputs) {
			multiply(in.q, 0x1p-50)
			multiply(in.k, 0x1p50)
			multiply(in.k[128:256], 0x1p-7)
			multiply(in.v[:128], 0x1p-9)
		},
		"large values first": func(in *fusedInputs) { // steps begin with the last keys
			multiply(in.v[128:], 0x1p40)
			multiply(in.v[:128], 0x1p-40)
			in.within = 0.006 * 0x1p40
		},
		"large values last": func(in *fusedInputs) {
			multiply(in.v[128:], 0x1p-40)
			multiply(in.v[:128], 0x1p40)
			in.within = 0.006 * 0x1p40
		},
		"lone elements": func(in *fusedInputs) { // in different words of the lanes
			for _, at := range [][2]int{{3, 11}, {130, 38}, {299, 63}} {
				in.k[at[0]][at[1]] = 8
				in.v[at[0]-1][63-at[1]] = 500
			}
		},
		"not numbers": func(in *fusedInputs) {
			in.q[7][3] = math.NaN()
			in.v[200][9] = math.NaN()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			in := &fusedInputs{q: matrix(random, 64), k: matrix(random, keys), v: matrix(random, keys), scale: 1.5 / math.Sqrt(64), within: 0.04}
			change(in)
			in.compare(t, runFused(t, in))
		})
	}
}

// An infinity is a large number: it makes no NaN.
func TestFusedInfinities(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	in := &fusedInputs{q: matrix(random, 64), k: matrix(random, 300), v: matrix(random, 300)}
	in.q[9][1], in.k[100][4], in.v[200][6] = math.Inf(1), math.Inf(-1), math.Inf(1)
	for i, x := range runFused(t, in) {
		if math.IsNaN(x) {
			t.Fatalf("row %d, column %d is NaN", i/64, i%64)
		}
	}
}

// matrix draws rows of 64 columns from -1 to 1, as BF16 has them.
func matrix(random *rand.Rand, rows int) [][]float64 {
	m := make([][]float64, rows)
	for i := range m {
		m[i] = make([]float64, 64)
		for c := range m[i] {
			m[i][c] = float64(half.BFloat16FromFloat32(float32(2*random.Float64() - 1)).Float32())
		}
	}
	return m
}

func multiply(rows [][]float64, factor float64) {
	for _, row := range rows {
		for c := range row {
			row[c] *= factor
		}
	}
}

// runFused computes O of a head on the simulator.
func runFused(t *testing.T, in *fusedInputs) []float64 {
	t.Helper()
	kernel, builder := declaredBuilder(t, fusedFolder)
	shapes, err := kernel.Shapes("batch=1,kv_heads=1,group=1,queries=64,keys=300,blocks=1,causal=0,rows_first=0,lse=0,q_max=1,k_max=1,v_max=1")
	if err != nil {
		t.Fatal(err)
	}
	v := kernel.Stages[0].Variant()
	image, _, err := builder.Build(t.Context(), lab.Target(kernel, v, "sm_90a"))
	if err != nil {
		t.Fatal(err)
	}
	p := lab.NewProblem(kernel, os.DirFS(fusedFolder), fusedFolder)
	refs := p.References(problem.Options{})
	defer refs.Close()
	ref, err := refs.Get(t.Context(), p.Plain(shapes[0], 0))
	if err != nil {
		t.Fatal(err)
	}
	job, err := ref.Job(problem.Build{Variant: v, Image: image, Code: image.PTX}, device.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for name, rows := range map[string][][]float64{"q": in.q, "k": in.k, "v": in.v} {
		i := slices.IndexFunc(job.Args, func(a device.Arg) bool { return a.Name == name })
		var values []float32
		for _, row := range rows {
			for _, x := range row {
				values = append(values, float32(x))
			}
		}
		job.Args[i].Input = bfloats(values)
	}
	outcome, err := simdevice.Open(simdevice.Options{Checks: true, Strict: true}).Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	if len(outcome.Findings) > 0 {
		t.Errorf("findings %v", outcome.Findings)
	}
	return half.DecodeBFloat16(outcome.Outputs[0])
}

// compare reports an element of O that is wrong. Its largest addend is a product of a P and a V in
// E4M3, each within 1/16.
func (in *fusedInputs) compare(t *testing.T, got []float64) {
	t.Helper()
	for i, q := range in.q {
		p, sum := make([]float64, len(in.k)), 0.0
		rowMax := math.Inf(-1)
		for j, k := range in.k {
			for c := range q {
				p[j] += q[c] * k[c] * in.scale
			}
			rowMax = max(rowMax, p[j])
		}
		for j := range p {
			p[j] = math.Exp(p[j] - rowMax)
			sum += p[j]
		}
		for c := range q {
			want, most := 0.0, 0.0
			for j, v := range in.v {
				want += p[j] / sum * v[c]
				most = max(most, p[j]/sum*math.Abs(v[c]))
			}
			x := got[i*64+c]
			if math.IsNaN(x) != math.IsNaN(want) || math.Abs(x-want) > in.within+most/6 {
				t.Fatalf("row %d, column %d: got %v, want %v", i, c, x, want)
			}
		}
	}
}
