package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attune/internal/half"
)

// nativeFolder is the folder of the attention with products in 16 bits.
const nativeFolder = "attention/native"

// Every stage is right on all shapes of the simulator with all checkers, and so are FP16, other tiles,
// more stages of K and V, and exact exponentials.
func TestNativeIsCorrect(t *testing.T) {
	kernel, builder := declaredBuilder(t, nativeFolder)
	few := []string{"ragged", "mean", "causal"}
	for name, shapes := range map[string][]string{
		"native": kernel.Run.SimShapes, "native256": kernel.Run.SimShapes, "native_d128": kernel.Run.SimShapes,
		"native_fp16": kernel.Run.SimShapes, "native256_fp16": few, "native_d128_fp16": kernel.Run.SimShapes, "native_lse": few, "native_d128_lse_fp16": few, "native256+TILE_N=64+KV_STAGES=6": few, "native_d128+HEAD_DIM=64+TILE_M=64+USE_BF16=0": few,
		"native_d128+HEAD_DIM=64+TILE_M=192+EXP2_LINEAR_EIGHTHS=0+EXP2_SEGMENTS=1": few,
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
	grow := func(log2 float64) func(in *nativeInputs) {
		return func(in *nativeInputs) {
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
	for name, change := range map[string]func(in *nativeInputs){
		"plain":              func(in *nativeInputs) {},
		"grow by 7":          grow(7),
		"grow by 8":          grow(8),
		"grow by 20":         grow(20),
		"grow by 200":        grow(200),
		"fall by 7":          grow(-7),
		"fall by 200":        grow(-200),
		"negative scores":    func(in *nativeInputs) { grow(0)(in); offset(in.k, -30) },
		"large magnitudes":   func(in *nativeInputs) { multiply(in.q, 0x1p-50); multiply(in.k, 0x1p50) },
		"large values":       func(in *nativeInputs) { multiply(in.v[:128], 0x1p60); in.within *= 0x1p60 },
		"small values":       func(in *nativeInputs) { multiply(in.v, 0x1p-60); in.within *= 0x1p-60 },
		"zeros":              func(in *nativeInputs) { multiply(in.k, 0); multiply(in.v[128:], 0) },
		"not numbers":        func(in *nativeInputs) { in.q[7][3], in.v[200][9] = math.NaN(), math.NaN() },
		"a key not a number": func(in *nativeInputs) { in.k[77][1] = math.NaN() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			in := &nativeInputs{
				q: matrix(random, 64), k: matrix(random, keys), v: matrix(random, keys),
				scale: 1.5 / math.Sqrt(64), within: 0.003, share: 0.015,
			}
			change(in)
			in.compare(t, in.run(t, "native"))
			if !strings.Contains(name, "large") && !strings.Contains(name, "small") {
				in.compare(t, in.run(t, "native_fp16"))
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
				in := &nativeInputs{q: matrix(random, rows), k: matrix(random, rows+beyond), v: matrix(random, rows+beyond), causal: true, scale: 1.5 / 8, within: 1e-6, share: 0.05}
				multiply(in.q, 0)
				multiply(in.v, 0)
				for key, v := range in.v {
					v[key%64] = 1
				}
				in.compare(t, in.run(t, stage))
			})
		}
	}
}

// An infinity is one, as in PyTorch: a row of Q with it is NaN, and no other row.
func TestNativeInfinities(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	in := &nativeInputs{q: matrix(random, 64), k: matrix(random, 300), v: matrix(random, 300)}
	in.q[9][1] = math.Inf(1)
	for i, x := range in.run(t, "native") {
		if math.IsNaN(x) != (i/64 == 9) {
			t.Fatalf("row %d, column %d is %v", i/64, i%64, x)
		}
	}
	for key := 76; key < 84; key++ { // exponentials of both kinds
		in := &nativeInputs{q: matrix(random, 64), k: matrix(random, 300), v: matrix(random, 300)}
		in.k[key][1] = math.Inf(1)
		for i, x := range in.run(t, "native") {
			if math.IsNaN(x) != (in.q[i/64][1] >= 0) {
				t.Fatalf("key %d, row %d, column %d is %v", key, i/64, i%64, x)
			}
		}
	}
}

// A masked key has no weight, however large its value is.
func TestNativeMaskedKeys(t *testing.T) {
	for _, stage := range []string{"native", "native_fp16"} {
		random := rand.New(rand.NewPCG(3, 4))
		in := &nativeInputs{q: matrix(random, 64), k: matrix(random, 64), v: matrix(random, 64), causal: true}
		for key, row := range in.v {
			for c := range row {
				row[c] = map[bool]float64{true: 60000}[key >= 32]
			}
		}
		for i, x := range in.run(t, stage)[:32*64] {
			if math.Abs(x) > 1e-20 {
				t.Fatalf("%s: row %d, column %d is %v", stage, i/64, i%64, x)
			}
		}
	}
}

// nativeInputs are Q, K and V of one head, in 16 bits.
type nativeInputs struct {
	q, k, v [][]float64
	causal  bool
	scale   float64
	within  float64 // error of O that is allowed
	share   float64 // and of its largest addend
}

// rounded returns the BF16 next to x.
func rounded(x float64) float64 {
	return float64(half.BFloat16FromFloat32(float32(x)).Float32())
}

// offset adds to all elements.
func offset(rows [][]float64, by float64) {
	for _, row := range rows {
		for c := range row {
			row[c] = rounded(row[c] + by)
		}
	}
}

// matrix draws rows of 64 columns from -1 to 1, as BF16 has them.
func matrix(random *rand.Rand, rows int) [][]float64 {
	m := make([][]float64, rows)
	for i := range m {
		m[i] = make([]float64, 64)
		for c := range m[i] {
			m[i][c] = rounded(2*random.Float64() - 1)
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

// run computes O of a head on the simulator.
func (in *nativeInputs) run(t *testing.T, stage string) []float64 {
	t.Helper()
	causal := map[bool]int{true: 1}[in.causal]
	j := newDeclaredJob(t, nativeFolder, stage, fmt.Sprintf(
		"batch=1,kv_heads=1,group=1,queries=%d,keys=%d,blocks=1,causal=%d,rows_first=0,lse=0,q_max=1,k_max=1,v_max=1,spread=1", len(in.q), len(in.k), causal))
	fp16 := strings.HasSuffix(stage, "_fp16")
	for name, rows := range map[string][][]float64{"q": in.q, "k": in.k, "v": in.v} {
		var data []byte
		for _, x := range slices.Concat(rows...) {
			bits := uint16(half.BFloat16FromFloat32(float32(x)))
			if fp16 {
				bits = uint16(half.Float16FromFloat64(x))
			}
			data = binary.LittleEndian.AppendUint16(data, bits)
		}
		j.arg(name).Input = data
	}
	o := j.run(t)[0]
	if fp16 {
		return half.DecodeFloat16(o)
	}
	return half.DecodeBFloat16(o)
}

// compare reports an element of O that is wrong.
func (in *nativeInputs) compare(t *testing.T, got []float64) {
	t.Helper()
	for i, q := range in.q {
		seen := in.k
		if in.causal {
			seen = in.k[:max(0, i+1+len(in.k)-len(in.q))]
		}
		p, sum := make([]float64, len(seen)), 0.0
		rowMax := math.Inf(-1)
		for j, k := range seen {
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
			for j := range p {
				want += p[j] / sum * in.v[j][c]
				most = max(most, p[j]/sum*math.Abs(in.v[j][c]))
			}
			x := got[i*64+c]
			if math.IsNaN(x) != math.IsNaN(want) || math.Abs(x-want) > in.within+most*in.share {
				t.Fatalf("row %d, column %d: got %v, want %v", i, c, x, want)
			}
		}
	}
}
