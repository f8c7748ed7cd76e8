package sdpa

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"attune/internal/oracle"
	"attune/internal/tensor"
)

// eachVectors runs a test with every implementation of the vectors. Such tests are not parallel.
func eachVectors(t *testing.T, test func(t *testing.T)) {
	for _, set := range vectorSets() {
		t.Run(set.name, func(t *testing.T) {
			defer useVectors(set)()
			test(t)
		})
	}
}

// forward runs Forward on the CPU and returns the elements of o.
func forward(t *testing.T, p Problem, q, k, v, o *Tensor) []float32 {
	t.Helper()
	if err := Forward(t.Context(), CPU(), p, q, k, v, o); err != nil {
		t.Fatal(err)
	}
	return floats(t, o)
}

func floats(t *testing.T, x *Tensor) []float32 {
	t.Helper()
	values, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// near fails unless all elements agree to within a tolerance. Infinities must be equal.
func near(t *testing.T, what string, got []float32, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i, x := range got {
		if y := want[i]; float64(x) != y && !(math.Abs(float64(x)-y) <= tolerance) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, x, y)
		}
	}
}

func widened(values []float32) []float64 {
	wide := make([]float64, len(values))
	for i, x := range values {
		wide[i] = float64(x)
	}
	return wide
}

// The CPU agrees with the float64 oracle on the inputs of the lab, O and LSE.
func TestAgainstOracle(t *testing.T) {
	eachVectors(t, func(t *testing.T) {
		for _, text := range []string{
			"1x1x1x64", "1x2x33x64", "2x3x70x128:kv=300:causal", "1x4x65x64:kv=33:causal", "2x8x5x256:kv=140:kvheads=2",
			"1x1x200x7:causal", "1x2x50x1", "1x6x24x96:kv=129:kvheads=3:causal", "3x2x48x80:kv=128",
		} {
			shape, err := tensor.ParseShape(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range []tensor.Distribution{tensor.Normal, tensor.Peaked, tensor.Outliers} {
				if testing.Short() && d != tensor.Peaked {
					continue
				}
				in := tensor.Draw(shape, 3, tensor.Options{Distribution: d})
				want, err := oracle.Compute(t.Context(), in, nil)
				if err != nil {
					t.Fatal(err)
				}
				q, k, v := labTensors(in)
				o := &Tensor{DType: FP32, Shape: q.Shape, Data: make([]byte, 4*len(want.Out))}
				p := Problem{Causal: shape.Causal, LSE: make([]float32, len(want.LSE))}
				name := fmt.Sprintf("%s %s", text, d)
				// FP32 sums of D products, each off by 2^-24 of the largest score.
				score := want.ScoreBound * 0x1p-21
				near(t, name+" o", forward(t, p, q, k, v, o), want.Out, 4*score+2e-6*largest(want.Out))
				near(t, name+" lse", p.LSE, want.LSE, score+2e-6*(1+largest(want.LSE)))
			}
		}
	})
}

// labTensors are the inputs of the lab as tensors.
func labTensors(in *tensor.Inputs) (q, k, v *Tensor) {
	s := in.Shape
	of := func(x tensor.Tensor, heads, rows int) *Tensor {
		return &Tensor{DType: E4M3, Shape: [4]int{s.Batch, heads, rows, s.HeadDim}, Data: x.Codes, Descale: x.Descale}
	}
	kv := s.KVHeadCount() / s.Batch
	return of(in.Q, s.Heads, s.SeqQ), of(in.K, kv, s.SeqK), of(in.V, kv, s.SeqK)
}

func largest(values []float64) float64 {
	most := 0.0
	for _, x := range values {
		if !math.IsInf(x, 0) {
			most = max(most, math.Abs(x))
		}
	}
	return most
}

// naive is attention in float64 with all scores in memory. A key that mask hides has the score
// -Inf.
func naive(t *testing.T, p Problem, q, k, v *Tensor, visible func(batch, query, key int) bool) (out, lse []float64) {
	t.Helper()
	qs, ks, vs := floats(t, q), floats(t, k), floats(t, v)
	heads, queries, keys, dim := q.Shape[1], q.Shape[2], k.Shape[2], q.Shape[3]
	scale := p.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(dim))
	}
	for head := range q.heads() {
		kvHead := head / (heads / k.Shape[1])
		for query := range queries {
			scores, rowMax := make([]float64, keys), math.Inf(-1)
			for key := range keys {
				for d := range dim {
					scores[key] += scale * float64(qs[(head*queries+query)*dim+d]) * float64(ks[(kvHead*keys+key)*dim+d])
				}
				if p.Softcap != 0 {
					scores[key] = p.Softcap * math.Tanh(scores[key]/p.Softcap)
				}
				if p.AlibiSlopes != nil {
					own := query + keys - queries
					if p.QueryLengths != nil {
						own = query + p.KeyLengths[head/heads] - p.QueryLengths[head/heads]
					}
					scores[key] -= float64(p.AlibiSlopes[head%len(p.AlibiSlopes)]) * math.Abs(float64(own-key))
				}
				if !visible(head/heads, query, key) {
					scores[key] = math.Inf(-1)
				}
				rowMax = max(rowMax, scores[key])
			}
			row, sum := make([]float64, dim), 0.0
			if math.IsInf(rowMax, -1) { // a row that sees no key has no sink either
				out, lse = append(out, row...), append(lse, rowMax)
				continue
			}
			if p.Sinks != nil {
				rowMax = max(rowMax, float64(p.Sinks[head%heads]))
				sum = math.Exp(float64(p.Sinks[head%heads]) - rowMax)
			}
			for key := range keys {
				e := math.Exp(scores[key] - rowMax)
				sum += e
				for d := range dim {
					row[d] += e * float64(vs[(kvHead*keys+key)*dim+d])
				}
			}
			for _, x := range row {
				out = append(out, x/sum)
			}
			lse = append(lse, rowMax+math.Log(sum))
		}
	}
	return out, lse
}

// Windows, sinks, softcaps, slopes, trees, lengths, scales and formats agree with float64 over an explicit mask.
func TestOptions(t *testing.T) {
	eachVectors(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(7, 7))
		problems := 60
		if testing.Short() {
			problems = 16
		}
		for i := range problems {
			kv := 1 + random.IntN(3)
			shape := tensor.Shape{
				Batch: 1 + random.IntN(2), Heads: kv * (1 + random.IntN(3)), KVHeads: kv,
				SeqQ: 1 + random.IntN(60), SeqK: 1 + random.IntN(300), HeadDim: 1 + random.IntN(70),
			}
			dtype := []DType{E4M3, FP16, BF16, FP32}[i%4]
			q, k, v, o := randomInputs(t, shape, dtype, FP32)
			p := randomProblem(random, shape)
			want, lse := naive(t, p, q, k, v, func(batch, query, key int) bool { return seen(p, shape, batch, query, key) })
			name := fmt.Sprintf("%d: %s %s, %+v window %+v", i, dtype, shape, p, p.Window)
			near(t, name, forward(t, p, q, k, v, o), want, 1e-5)
			near(t, name+" lse", p.LSE, lse, 1e-4)
		}
	})
}

func randomProblem(random *rand.Rand, s tensor.Shape) Problem {
	p := Problem{Causal: random.IntN(2) == 0, LSE: make([]float32, s.Rows())}
	if random.IntN(2) == 0 {
		p.Window = &Window{random.IntN(s.SeqK+40) - 2, random.IntN(s.SeqK+40) - 2}
	}
	if random.IntN(2) == 0 {
		p.Scale = random.Float64() / 4
	}
	if random.IntN(2) == 0 {
		for range s.Heads {
			p.Sinks = append(p.Sinks, float32(3*random.NormFloat64()))
		}
		p.Sinks[0] = float32(math.Inf(-1))
	}
	if random.IntN(3) == 0 {
		p.Softcap = math.Exp2(random.Float64()*9 - 3)
	}
	if random.IntN(3) == 0 {
		for range s.Heads * (1 + random.IntN(2)*(s.Batch-1)) {
			p.AlibiSlopes = append(p.AlibiSlopes, random.Float32()/4)
		}
	}
	if random.IntN(4) == 0 {
		p.Causal, p.Window = false, nil
		for range s.Batch * s.SeqQ {
			p.TreeMask = append(p.TreeMask, random.Uint64()&random.Uint64())
		}
	}
	if random.IntN(2) == 0 {
		for range s.Batch {
			p.QueryLengths = append(p.QueryLengths, random.IntN(s.SeqQ+1))
			p.KeyLengths = append(p.KeyLengths, random.IntN(s.SeqK+1))
		}
	}
	return p
}

// seen is the mask of a problem, by its definition.
func seen(p Problem, s tensor.Shape, batch, query, key int) bool {
	queries, keys := s.SeqQ, s.SeqK
	if p.QueryLengths != nil {
		queries, keys = p.QueryLengths[batch], p.KeyLengths[batch]
	}
	distance := key - (query + keys - queries)
	if token := key - (keys - queries); p.TreeMask != nil && query < queries && token >= 0 && p.TreeMask[batch*s.SeqQ+query]>>token&1 == 0 {
		return false
	}
	return query < queries && key < keys && !(p.Causal && distance > 0) &&
		!(p.Window != nil && p.Window.Left >= 0 && distance < -p.Window.Left) &&
		!(p.Window != nil && p.Window.Right >= 0 && distance > p.Window.Right)
}

// Properties that hold for any attention.
func TestProperties(t *testing.T) {
	shape := tensor.Shape{Batch: 2, Heads: 4, KVHeads: 2, SeqQ: 37, SeqK: 190, HeadDim: 48}
	random := rand.New(rand.NewPCG(2, 2))
	q, k, v, o := randomInputs(t, shape, FP32, FP32)
	plain := Problem{LSE: make([]float32, shape.Rows())}
	whole := widened(forward(t, plain, q, k, v, o))

	t.Run("the order of keys does not matter", func(t *testing.T) {
		order := random.Perm(shape.SeqK)
		got := forward(t, Problem{}, q, pickKeys(t, k, order), pickKeys(t, v, order), o)
		near(t, "o", got, whole, 2e-6)
	})
	t.Run("a sink is a key without a value", func(t *testing.T) {
		// The last key scores 0 and has the value 0.
		order := append(slices.Collect(seq(shape.SeqK)), -1)
		want := widened(forward(t, Problem{}, q, pickKeys(t, k, order), pickKeys(t, v, order), o))
		near(t, "o", forward(t, Problem{Sinks: make([]float32, shape.Heads)}, q, k, v, o), want, 2e-6)
	})
	t.Run("two halves merge to the whole", func(t *testing.T) {
		keys := slices.Collect(seq(shape.SeqK))
		var parts [2][]float32
		var lse [2][]float32
		for i, half := range [][]int{keys[:77], keys[77:]} {
			lse[i] = make([]float32, shape.Rows())
			parts[i] = forward(t, Problem{LSE: lse[i]}, q, pickKeys(t, k, half), pickKeys(t, v, half), o)
		}
		merged, sums := make([]float64, len(whole)), make([]float64, shape.Rows())
		for row := range sums {
			a, b := math.Exp(float64(lse[0][row])), math.Exp(float64(lse[1][row]))
			sums[row] = math.Log(a + b)
			for d := range shape.HeadDim {
				i := row*shape.HeadDim + d
				merged[i] = (a*float64(parts[0][i]) + b*float64(parts[1][i])) / (a + b)
			}
		}
		near(t, "o", forward(t, plain, q, k, v, o), merged, 2e-6)
		near(t, "lse", plain.LSE, sums, 2e-6)
	})
}

// V may have more or fewer columns than Q and K. Each column of O is that of its column of V.
func TestHeadDimOfV(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 3))
	q := randomTensor(t, random, FP32, [4]int{2, 4, 37, 48})
	k := randomTensor(t, random, FP32, [4]int{2, 2, 190, 48})
	v := randomTensor(t, random, FP32, [4]int{2, 2, 190, 96})
	attend := func(p Problem, v *Tensor) []float32 {
		o, err := NewTensor(FP32, outputShape(q.Shape, v.Shape))
		if err != nil {
			t.Fatal(err)
		}
		return forward(t, p, q, k, v, o)
	}
	for _, p := range []Problem{{Causal: true}, {KeyLengths: []int{100, 190}}} {
		wide := attend(p, v)
		for first, columns := range map[int]int{0: 48, 48: 48, 80: 16} { // the first has the head dim of Q
			part, err := NewTensor(FP32, [4]int{2, 2, 190, columns})
			if err != nil {
				t.Fatal(err)
			}
			for row := range 2 * 2 * 190 {
				copy(part.Data[4*columns*row:][:4*columns], v.Data[4*(96*row+first):])
			}
			var want []float64
			for row := range 2 * 4 * 37 {
				want = append(want, widened(wide[96*row+first:][:columns])...)
			}
			near(t, "o", attend(p, part), want, 2e-6)
		}
	}
}

func seq(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// pickKeys has the given rows of each head, zeros for -1.
func pickKeys(t *testing.T, x *Tensor, rows []int) *Tensor {
	t.Helper()
	size := x.Shape[3] * x.DType.Bytes()
	y := &Tensor{DType: x.DType, Shape: x.Shape}
	y.Shape[2] = len(rows)
	for head := range x.heads() {
		for _, row := range rows {
			if row < 0 {
				y.Data = append(y.Data, make([]byte, size)...)
				continue
			}
			y.Data = append(y.Data, x.Data[(head*x.Shape[2]+row)*size:][:size]...)
		}
	}
	return y
}

// Keys behind the length of a sequence are not read: they may be anything.
func TestPaddingIsNotRead(t *testing.T) {
	shape := tensor.Shape{Batch: 1, Heads: 2, SeqQ: 30, SeqK: 100, HeadDim: 16}
	q, k, v, o := randomInputs(t, shape, FP16, FP32)
	for _, x := range []*Tensor{k, v} {
		for head := range 2 {
			for i := range x.Data[(head*100+41)*32 : (head+1)*3200] {
				x.Data[(head*100+41)*32+i] = 0xFF // NaN
			}
		}
	}
	for i, x := range forward(t, Problem{KeyLengths: []int{41}}, q, k, v, o) {
		if x != x {
			t.Fatalf("element %d is NaN", i)
		}
	}
}

// A NaN in a key, a query or a value reaches the rows that see it, and no others. In a value it may
// reach rows of the same panel; row 48 is the first of one.
func TestNaN(t *testing.T) {
	eachVectors(t, func(t *testing.T) {
		shape := tensor.Shape{Batch: 1, Heads: 1, SeqQ: 80, SeqK: 80, HeadDim: 8, Causal: true}
		q, k, v, o := randomInputs(t, shape, E4M3, FP32)
		p := Problem{Causal: true}
		check := func(name string, x *Tensor, row int, wrong func(i int) bool) {
			t.Helper()
			old := x.Data[row*8]
			x.Data[row*8] = 0x7F
			for i, y := range forward(t, p, q, k, v, o) {
				if want := wrong(i); (y != y) != want {
					t.Fatalf("NaN in row %d of %s: element %d of row %d is %v", row, name, i%8, i/8, y)
				}
			}
			x.Data[row*8] = old
		}
		check("q", q, 30, func(i int) bool { return i/8 == 30 })
		check("k", k, 72, func(i int) bool { return i/8 >= 72 })
		check("v", v, 48, func(i int) bool { return i/8 >= 48 && i%8 == 0 })
	})
}

// Scores of any size overflow nothing.
func TestExtremeScores(t *testing.T) {
	eachVectors(t, func(t *testing.T) {
		shape := tensor.Shape{Batch: 1, Heads: 1, SeqQ: 3, SeqK: 50, HeadDim: 4}
		q, k, v, o := randomInputs(t, shape, E4M3, FP32)
		for _, factors := range [][2]float32{{1e15, 1e15}, {1e-30, 1e-30}, {1e30, 1e-30}, {0, 1}, {1e-35, 1e35}} {
			q.Descale, k.Descale = factors[:1], factors[1:]
			want, _ := naive(t, Problem{}, q, k, v, func(int, int, int) bool { return true })
			near(t, fmt.Sprint(factors), forward(t, Problem{}, q, k, v, o), want, 1e-5)
		}
	})
}

// Softcaps of any size cap scores of any size, of keys that are split over tasks too. One far above the
// scores changes nothing.
func TestSoftcap(t *testing.T) {
	eachVectors(t, func(t *testing.T) {
		shape := tensor.Shape{Batch: 1, Heads: 2, KVHeads: 1, SeqQ: 3, SeqK: 1100, HeadDim: 16}
		q, k, v, o := randomInputs(t, shape, E4M3, FP32)
		for _, test := range []struct{ scale, softcap float64 }{
			{0.25, 1e-60},
			{0.25, 1e-30},
			{0.25, 0.5},
			{0.25, 30},
			{0.25, 1e4},
			{0.25, 1e38},
			{0.25, math.MaxFloat32},
			{1e-3, 2},
			{100, 5},
			{1e30, 5},
		} {
			p := Problem{Scale: test.scale, Softcap: test.softcap, LSE: make([]float32, 6)}
			want, lse := naive(t, p, q, k, v, func(int, int, int) bool { return true })
			name := fmt.Sprintf("scale %g, softcap %g", test.scale, test.softcap)
			near(t, name, forward(t, p, q, k, v, o), want, 1e-5)
			near(t, name+" lse", p.LSE, lse, 1e-4)
		}
	})
}

// Every row and key belongs to one task, for any number of cores, and few tasks split the keys.
func TestDivision(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 4))
	for range 300 {
		kv := 1 + random.IntN(4)
		c := &call{
			batch: 1 + random.IntN(3), kvHeads: kv, heads: kv * (1 + random.IntN(9)),
			queries: 1 + random.IntN(1<<random.IntN(9)), keys: 1 + random.IntN(1<<random.IntN(14)),
		}
		cores := 1 + random.IntN(64)
		d := newDivision(c, cores)
		partials := make([]partial, d.heads*d.perHead)
		done := map[[2]int]int{} // keys by head and row
		for i := range d.heads * d.perHead * d.splits {
			one := d.task(i, c.keys, partials)
			for row := range one.rows {
				done[[2]int{one.kvHead, one.first + row}] += one.to - one.from
			}
			if one.rows < 1 || one.rows > maxPanels*d.lanes || (one.partial != nil) != (d.splits > 1) {
				t.Fatalf("%+v: task %d is %+v", c, i, one)
			}
		}
		if len(done) != c.batch*c.heads*c.queries {
			t.Fatalf("%+v has %d rows in tasks", c, len(done))
		}
		for place, keys := range done {
			if keys != c.keys {
				t.Fatalf("%+v on %d cores: row %v has %d keys", c, cores, place, keys)
			}
		}
		if tasks := d.heads * d.perHead; tasks < cores && c.keys >= 2*minSplitKeys && d.splits == 1 {
			t.Fatalf("%+v on %d cores: the keys of %d tasks are not split", c, cores, tasks)
		}
	}
}

// Keys that are split over cores give the same attention, with sinks counted once and the same bits
// in every call.
func TestSplitKeys(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(13))
	eachVectors(t, func(t *testing.T) {
		shape := tensor.Shape{Batch: 1, Heads: 6, KVHeads: 2, SeqQ: 3, SeqK: 3100, HeadDim: 10}
		q, k, v, o := randomInputs(t, shape, BF16, FP32)
		for _, p := range []Problem{
			{},
			{Causal: true, Sinks: []float32{1, 2, 3, -4, 5, float32(math.Inf(-1))}},
			{Window: &Window{700, 0}, KeyLengths: []int{2701}},
			{KeyLengths: []int{0}},
		} {
			p.LSE = make([]float32, shape.Rows())
			want, lse := naive(t, p, q, k, v, func(batch, query, key int) bool {
				lengths := p
				if p.KeyLengths != nil {
					lengths.QueryLengths = []int{shape.SeqQ}
				}
				return seen(lengths, shape, batch, query, key)
			})
			got := forward(t, p, q, k, v, o)
			near(t, fmt.Sprintf("%+v", p), got, want, 1e-5)
			near(t, fmt.Sprintf("%+v lse", p), p.LSE, lse, 1e-5)
			for range 3 {
				same(t, "a second call", forward(t, p, q, k, v, o), got)
			}
		}
	})
}

// Problems of few rows use a set with fewer lanes.
func TestForRows(t *testing.T) {
	small := &vectorSet{lanes: 24}
	large := &vectorSet{lanes: 48, narrower: small}
	if large.forRows(24) != small || large.forRows(25) != large || small.forRows(1) != small {
		t.Error("wrong set")
	}
}

// Outputs in FP16 and BF16 are those in FP32, rounded.
func TestOutputFormats(t *testing.T) {
	shape := tensor.Shape{Batch: 1, Heads: 2, SeqQ: 30, SeqK: 50, HeadDim: 20}
	q, k, v, o := randomInputs(t, shape, BF16, FP32)
	want := forward(t, Problem{}, q, k, v, o)
	for _, dtype := range []DType{FP16, BF16} {
		rounded, err := FromFloat32(dtype, o.Shape, want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := NewTensor(dtype, o.Shape)
		if err != nil {
			t.Fatal(err)
		}
		forward(t, Problem{}, q, k, v, got)
		if !slices.Equal(got.Data, rounded.Data) {
			t.Errorf("%s: not the rounded FP32", dtype)
		}
	}
}

// A cancelled context ends the computation soon, with its cause.
func TestCancel(t *testing.T) {
	var x [4]*Tensor // q, k, v, o: zeros, which need no time to draw
	for i, dtype := range []DType{E4M3, E4M3, E4M3, FP16} {
		var err error
		if x[i], err = NewTensor(dtype, [4]int{1, 32, 4096, 64}); err != nil {
			t.Fatal(err)
		}
	}
	cause := errors.New("the caller lost interest")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	if err := Forward(ctx, CPU(), Problem{}, x[0], x[1], x[2], x[3]); !errors.Is(err, cause) {
		t.Errorf("error %v, want the cause", err)
	}
	if err := Forward(ctx, CPU(), Problem{}, x[0], x[1], x[2], x[3]); !errors.Is(err, cause) {
		t.Errorf("error %v after the cancellation, want the cause", err)
	}
}

// A block allocates nothing: a call of 16 times the blocks allocates as much.
func TestAllocations(t *testing.T) {
	count := func(keys int) float64 {
		q, k, v, o := randomInputs(t, tensor.Shape{Batch: 1, Heads: 1, SeqQ: 24, SeqK: keys, HeadDim: 8}, E4M3, FP16)
		dev := CPU()
		return testing.AllocsPerRun(20, func() {
			if err := Forward(t.Context(), dev, Problem{}, q, k, v, o); err != nil {
				t.Fatal(err)
			}
		})
	}
	if few, many := count(100), count(3200); many > few+2 { // the pool may lose its memory to a collection
		t.Errorf("%v allocations for 3200 keys, %v for 100", many, few)
	}
}
