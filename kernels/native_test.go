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

// The folders of the kernels with products in 16 bits.
const (
	nativeFolder   = "attention/native"
	pingpongFolder = "attention/pingpong"
)

// form16 is a stage of one of them.
type form16 struct {
	folder, stage string
	columns       int // head dim
}

var (
	nativeForm           = form16{nativeFolder, "native", 64}
	nativeFP16Form       = form16{nativeFolder, "native_fp16", 64}
	native256Form        = form16{nativeFolder, "native256", 64}
	pingpongForm         = form16{pingpongFolder, "pingpong_d128", 128}
	pingpongFP16Form     = form16{pingpongFolder, "pingpong_d128_fp16", 128}
	pingpongD256Form     = form16{pingpongFolder, "pingpong_d256", 256}
	pingpongD256FP16Form = form16{pingpongFolder, "pingpong_d256_fp16", 256}
)

func (f form16) fp16() bool { return strings.HasSuffix(f.stage, "_fp16") }

// Every stage is right on all shapes of the simulator with all checkers, and so are FP16, other tiles,
// more stages of K and V, and exact exponentials.
func TestNativeIsCorrect(t *testing.T) {
	kernel, builder := declaredBuilder(t, nativeFolder)
	all, few := kernel.Run.SimShapes, []string{"ragged", "mean", "causal"}
	for i, test := range []struct {
		name   string
		shapes []string
	}{
		{"native", all},
		{"native256", all},
		{"native_fp16", all},
		{"native256_fp16", few},
		{"native_lse", few},
		{"native_lse_fp16", few},
		{"native256+TILE_N=64+KV_STAGES=6", few},
		{"native192+TILE_M=64+USE_BF16=0", few},
		{"native192", few},
		{"native64", all},
		{"native64_fp16", few},
		{"native192_n64", all},
		{"native192_n64_fp16", few},
		{"native64_d128", all},
		{"native64_d128_fp16", few},
		{"native192+EXP2_LINEAR_EIGHTHS=0+EXP2_SEGMENTS=1", few},
	} {
		t.Run(test.name, func(t *testing.T) {
			skipUnlessSampled(t, i, sampled/2)
			t.Parallel()
			checkDeclared(t, kernel, builder, nativeFolder, test.name, sampleOf(t, i, sampled/2, test.shapes))
		})
	}
}

// The same of pingpong: with exact exponentials, with head dim 256, in FP16, and with every other way to
// hold Q, to sum rows and to pack P.
func TestPingpongIsCorrect(t *testing.T) {
	kernel, builder := declaredBuilder(t, pingpongFolder)
	few := []string{"mean", "hidden"}
	for i, test := range []struct {
		name   string
		shapes []string
	}{
		{"pingpong_d128", []string{"one", "ragged", "exact", "mean", "causal", "short", "grouped", "packed", "packed8", "packed2", "brief_causal", "static", "hidden", "peaks"}},
		{"pingpong_d128_exact", few},
		{"pingpong_d256", []string{"mean", "causal", "grouped", "packed", "peaks"}},
		{"pingpong_d128_fp16", []string{"mean", "hidden", "packed", "peaks"}},
		{"pingpong_d128_exact_fp16", few},
		{"pingpong_d128_n64", []string{"one", "ragged", "mean", "causal", "grouped", "packed", "brief_causal", "hidden", "peaks"}},
		{"pingpong_d128_n64_fp16", []string{"mean", "packed"}},
		{"pingpong_d256_fp16", []string{"mean", "hidden", "peaks"}},
		{"pingpong_d128_n64+USE_Q_IN_SHARED=1", few},
		{"pingpong_d128+USE_PACK_EARLY=1+USE_SUM_COLUMNS=0", few},
	} {
		t.Run(test.name, func(t *testing.T) {
			skipUnlessSampled(t, i, sampled/2)
			t.Parallel()
			checkDeclared(t, kernel, builder, pingpongFolder, test.name, sampleOf(t, i, sampled/2, test.shapes))
		})
	}
}

// O is rescaled only where the row max has grown by more than 8 in log2 units, so scores grow here by
// less, by that and by more from step to step; steps are 128 or 64 keys, and the last keys are first. The
// error is that of BF16 and of the linear exponentials, far below that of FP8.
func Test16BitValues(t *testing.T) {
	const keys = 300
	grow := func(log2 float64) func(in *inputs16) {
		return func(in *inputs16) {
			for row, q := range in.q {
				clear(q)
				q[row%len(q)] = 1
			}
			perStep := log2 * math.Ln2 / in.scale
			for key, k := range in.k {
				for c := range k {
					k[c] = rounded(k[c]/8 - perStep*float64(key/128))
				}
			}
		}
	}
	for i, c := range []struct {
		name   string
		change func(in *inputs16)
	}{
		{"plain", func(in *inputs16) {}},
		{"grow by 7", grow(7)},
		{"grow by 8", grow(8)},
		{"grow by 20", grow(20)},
		{"grow by 200", grow(200)},
		{"fall by 7", grow(-7)},
		{"fall by 200", grow(-200)},
		{"negative scores", func(in *inputs16) { grow(0)(in); offset(in.k, -30) }},
		{"large magnitudes", func(in *inputs16) { multiply(in.q, 0x1p-50); multiply(in.k, 0x1p50) }},
		{"large values", func(in *inputs16) { multiply(in.v[:128], 0x1p60); in.within *= 0x1p60 }},
		{"zeros", func(in *inputs16) { multiply(in.k, 0); multiply(in.v[128:], 0) }},
		{"not numbers", func(in *inputs16) { in.q[7][3], in.v[200][9] = math.NaN(), math.NaN() }},
		{"small values", func(in *inputs16) { multiply(in.v, 0x1p-60); in.within *= 0x1p-60 }},
		{"a key not a number", func(in *inputs16) { in.k[77][1] = math.NaN() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			forms := sampleOf(t, i, 1, []form16{nativeForm, pingpongForm, nativeFP16Form, pingpongFP16Form})
			if !isVerified(t) {
				forms = append(forms, pingpongD256Form, pingpongD256FP16Form)
			}
			for _, form := range forms {
				if form.fp16() && (strings.Contains(c.name, "large") || strings.Contains(c.name, "small")) {
					continue
				}
				in := drawInputs16(rand.New(rand.NewPCG(1, 2)), form, 64, keys)
				in.within, in.share = 0.003, 0.015
				c.change(in)
				in.compare(t, in.run(t))
			}
		})
	}
}

// With a causal mask every row attends to its keys and to no other, wherever the diagonal crosses the
// edges of steps, of consumers and of tiles. The column of V that a key adds to tells it from its
// neighbours.
func Test16BitCausalEdges(t *testing.T) {
	for i, beyond := range []int{0, 1, 2, 62, 63, 64, 65, 126, 127, 128, 129, -1, -64, -127} {
		for k, form := range []form16{nativeForm, native256Form, pingpongForm} {
			t.Run(fmt.Sprintf("%s %d", form.stage, beyond), func(t *testing.T) {
				skipUnlessSampled(t, i+3*k, sampled/2)
				t.Parallel()
				rows := 130
				if form == native256Form {
					rows = 258
				}
				in := drawInputs16(rand.New(rand.NewPCG(1, 2)), form, rows, rows+beyond)
				in.causal, in.within, in.share = true, 1e-6, 0.05
				multiply(in.q, 0)
				multiply(in.v, 0)
				for key, v := range in.v {
					v[key%len(v)] = 1
				}
				in.compare(t, in.run(t))
			})
		}
	}
}

// An infinity is one, as in PyTorch: a row of Q with it is NaN, and no other row.
func Test16BitInfinities(t *testing.T) {
	for _, form := range []form16{nativeForm, pingpongForm} {
		t.Run(form.stage, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			in := drawInputs16(random, form, 64, 300)
			in.q[9][1] = math.Inf(1)
			for i, x := range in.run(t) {
				if math.IsNaN(x) != (i/form.columns == 9) {
					t.Fatalf("row %d, column %d is %v", i/form.columns, i%form.columns, x)
				}
			}
			for key := 76; key < 84; key++ { // exponentials of both kinds
				in := drawInputs16(random, form, 64, 300)
				in.k[key][1] = math.Inf(1)
				for i, x := range in.run(t) {
					if math.IsNaN(x) != (in.q[i/form.columns][1] >= 0) {
						t.Fatalf("key %d, row %d, column %d is %v", key, i/form.columns, i%form.columns, x)
					}
				}
			}
		})
	}
}

// A masked key has no weight, however large its value is.
func Test16BitMaskedKeys(t *testing.T) {
	for _, form := range []form16{nativeForm, nativeFP16Form, pingpongForm, pingpongFP16Form} {
		in := drawInputs16(rand.New(rand.NewPCG(3, 4)), form, 64, 64)
		in.causal = true
		for key, row := range in.v {
			for c := range row {
				row[c] = map[bool]float64{true: 60000}[key >= 32]
			}
		}
		for i, x := range in.run(t)[:32*form.columns] {
			if math.Abs(x) > 1e-20 {
				t.Fatalf("%s: row %d, column %d is %v", form.stage, i/form.columns, i%form.columns, x)
			}
		}
	}
}

// inputs16 are Q, K and V of one head, in 16 bits.
type inputs16 struct {
	form    form16
	q, k, v [][]float64
	causal  bool
	scale   float64
	within  float64 // error of O that is allowed
	share   float64 // and of its largest addend
}

// drawInputs16 draws Q, K and V for a form.
func drawInputs16(random *rand.Rand, form form16, queries, keys int) *inputs16 {
	draw := func(rows int) [][]float64 { return matrix(random, rows, form.columns) }
	return &inputs16{form: form, q: draw(queries), k: draw(keys), v: draw(keys), scale: 1.5 / math.Sqrt(float64(form.columns))}
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

// matrix draws rows from -1 to 1, as BF16 has them.
func matrix(random *rand.Rand, rows, columns int) [][]float64 {
	m := make([][]float64, rows)
	for i := range m {
		m[i] = make([]float64, columns)
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
func (in *inputs16) run(t *testing.T) []float64 {
	t.Helper()
	causal := map[bool]int{true: 1}[in.causal]
	j := newDeclaredJob(t, in.form.folder, in.form.stage, fmt.Sprintf(
		"batch=1,kv_heads=1,group=1,queries=%d,keys=%d,blocks=1,causal=%d,rows_first=0,lse=0,q_max=1,k_max=1,v_max=1,spread=1", len(in.q), len(in.k), causal))
	for name, rows := range map[string][][]float64{"q": in.q, "k": in.k, "v": in.v} {
		var data []byte
		for _, x := range slices.Concat(rows...) {
			bits := uint16(half.BFloat16FromFloat32(float32(x)))
			if in.form.fp16() {
				bits = uint16(half.Float16FromFloat64(x))
			}
			data = binary.LittleEndian.AppendUint16(data, bits)
		}
		j.arg(name).Input = data
	}
	o := j.run(t)[0]
	if in.form.fp16() {
		return half.DecodeFloat16(o)
	}
	return half.DecodeBFloat16(o)
}

// compare reports an element of O that is wrong.
func (in *inputs16) compare(t *testing.T, got []float64) {
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
			x := got[i*len(q)+c]
			if math.IsNaN(x) != math.IsNaN(want) || math.Abs(x-want) > in.within+most*in.share {
				t.Fatalf("row %d, column %d: got %v, want %v", i, c, x, want)
			}
		}
	}
}
