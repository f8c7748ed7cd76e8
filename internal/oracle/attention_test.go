package oracle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"attune/internal/tensor"
)

func mustShape(t testing.TB, text string) tensor.Shape {
	t.Helper()
	shape, err := tensor.ParseShape(text)
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

// problem is an attention problem with float64 inputs.
type problem struct {
	shape   tensor.Shape
	q, k, v []float64
}

func drawProblem(shape tensor.Shape, seed uint64, spread float64) problem {
	random := rand.New(rand.NewPCG(seed, 0))
	draw := func(rows int) []float64 {
		values := make([]float64, rows*shape.HeadDim)
		for i := range values {
			values[i] = random.NormFloat64() * spread
		}
		return values
	}
	keys := shape.KVHeadCount() * shape.SeqK
	return problem{shape, draw(shape.Rows()), draw(keys), draw(keys)}
}

func (p problem) attention(t testing.TB) []float64 {
	t.Helper()
	out, err := Attention(context.Background(), p.q, p.k, p.v, p.shape)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// naive computes attention by definition, one element at a time.
func (p problem) naive() []float64 {
	out, _ := p.naiveLSE()
	return out
}

// naiveLSE also returns the logarithms of the sums of exponentials.
func (p problem) naiveLSE() (out, lse []float64) {
	s := p.shape
	for row := range s.Rows() {
		kvHead, i := row/s.SeqQ/s.Group(), row%s.SeqQ
		q := p.q[row*s.HeadDim:][:s.HeadDim]
		var scores []float64
		for j := range s.SeqK {
			if s.Causal && j > i+s.SeqK-s.SeqQ {
				break
			}
			dot := 0.0
			for d, x := range q {
				dot += x * p.k[(kvHead*s.SeqK+j)*s.HeadDim+d]
			}
			scores = append(scores, dot/math.Sqrt(float64(s.HeadDim)))
		}
		largest := math.Inf(-1)
		for _, score := range scores {
			largest = math.Max(largest, score)
		}
		total := 0.0
		weighted := make([]float64, s.HeadDim)
		for j, score := range scores {
			e := math.Exp(score - largest)
			total += e
			for d := range weighted {
				weighted[d] += e * p.v[(kvHead*s.SeqK+j)*s.HeadDim+d]
			}
		}
		for d := range weighted {
			if len(scores) > 0 {
				weighted[d] /= total
			}
		}
		out = append(out, weighted...)
		lse = append(lse, largest+math.Log(total))
	}
	return out, lse
}

// difference describes the first element whose error exceeds the tolerance; empty if there is none.
func difference(got, want []float64, tolerance float64) string {
	if len(got) != len(want) {
		return fmt.Sprintf("%d elements, want %d", len(got), len(want))
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tolerance) {
			return fmt.Sprintf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
	return ""
}

// eachTile runs a test with the tile function for this processor and with the portable one.
func eachTile(t *testing.T, test func(t *testing.T)) {
	chosen := tile
	defer func() { tile = chosen }()
	t.Run("chosen", test)
	tile = tileGo
	t.Run("portable", test)
}

func TestSmallByHand(t *testing.T) {
	two := math.Log(2) // exp(two) is 2
	for _, test := range []struct {
		name    string
		shape   string
		q, k, v []float64
		want    []float64
	}{
		{"one key: its value", "1x1x1x2", []float64{3, -4}, []float64{5, 6}, []float64{7, 8}, []float64{7, 8}},
		{
			"equal keys: the mean of the values", "1x1x2x1:kv=4",
			[]float64{1, -9},
			[]float64{5, 5, 5, 5},
			[]float64{1, 2, 3, 6},
			[]float64{3, 3},
		},
		{
			"weights 2/3 and 1/3", "1x1x1x1:kv=2",
			[]float64{two},
			[]float64{1, 0},
			[]float64{30, 60},
			[]float64{40},
		},
		{
			"scores far below zero", "1x1x1x1:kv=2",
			[]float64{1000},
			[]float64{-1000, -1000},
			[]float64{1, 3},
			[]float64{2},
		},
		{
			"scores are divided by the root of the dims", "1x1x1x4:kv=2",
			[]float64{two, two, 0, 0},
			[]float64{1, 1, 9, 9, 0, 0, 9, 9},
			[]float64{30, 0, 3, 1, 60, 0, 6, 1},
			[]float64{40, 0, 4, 1},
		},
		{
			"causal: the first row sees only the first key", "1x1x2x1:causal",
			[]float64{0, 0},
			[]float64{1, 2},
			[]float64{10, 20},
			[]float64{10, 15},
		},
		{
			"causal with fewer queries: the last row sees all", "1x1x2x1:kv=3:causal",
			[]float64{0, 0},
			[]float64{1, 2, 3},
			[]float64{10, 20, 60},
			[]float64{15, 30},
		},
		{
			"causal with more queries: the first row sees nothing", "1x1x2x1:kv=1:causal",
			[]float64{4, 5},
			[]float64{1},
			[]float64{10},
			[]float64{0, 10},
		},
		{
			"heads and batches are independent", "2x2x1x1",
			[]float64{1, 2, 3, 4},
			[]float64{5, 6, 7, 8},
			[]float64{10, 20, 30, 40},
			[]float64{10, 20, 30, 40},
		},
		{
			"neighbouring heads share K and V, batches do not", "2x4x1x1:kvheads=2",
			[]float64{1, 2, 3, 4, 5, 6, 7, 8},
			[]float64{5, 6, 7, 8},
			[]float64{10, 20, 30, 40},
			[]float64{10, 10, 20, 20, 30, 30, 40, 40},
		},
	} {
		p := problem{mustShape(t, test.shape), test.q, test.k, test.v}
		if diff := difference(p.attention(t), test.want, 1e-14); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// Shapes on both sides of every block and tile boundary, and ragged ones.
func TestAgainstDefinition(t *testing.T) {
	eachTile(t, func(t *testing.T) {
		for _, text := range []string{
			"1x1x1x1", "1x1x31x64", "1x2x32x64", "1x1x33x64", "1x1x127x7", "1x1x128x8", "1x1x129x9", "2x3x5x16:kv=300",
			"1x1x300x5:kv=2", "1x1x64x64:causal", "1x1x257x3:causal", "1x1x20x4:kv=150:causal", "1x1x150x4:kv=20:causal",
			"2x2x40x12:kv=39:causal", "1x1x3x130:kv=129", "2x6x40x12:kvheads=2", "2x4x20x8:kv=150:kvheads=1:causal",
		} {
			p := drawProblem(mustShape(t, text), 1, 1)
			if diff := difference(p.attention(t), p.naive(), 1e-13); diff != "" {
				t.Errorf("%s: %s", text, diff)
			}
		}
	})
}

func TestRandomShapesAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shape := tensor.Shape{
			Batch:   rapid.IntRange(1, 2).Draw(t, "batch"),
			Heads:   rapid.IntRange(1, 3).Draw(t, "heads"),
			SeqQ:    rapid.IntRange(1, 70).Draw(t, "seq q"),
			SeqK:    rapid.IntRange(1, 270).Draw(t, "seq k"),
			HeadDim: rapid.IntRange(1, 40).Draw(t, "head dim"),
			Causal:  rapid.Bool().Draw(t, "causal"),
		}
		if group := rapid.IntRange(1, 3).Draw(t, "group"); group > 1 {
			shape.KVHeads, shape.Heads = shape.Heads, shape.Heads*group
		}
		p := drawProblem(shape, rapid.Uint64().Draw(t, "seed"), 1)
		out, err := Attention(context.Background(), p.q, p.k, p.v, shape)
		if err != nil {
			t.Fatal(err)
		}
		if diff := difference(out, p.naive(), 1e-13); diff != "" {
			t.Fatalf("%v: %s", shape, diff)
		}
	})
}

// The LSE of each row matches the definition, including -Inf, in every block and batch.
func TestLSEAgainstDefinition(t *testing.T) {
	for _, text := range []string{"1x1x33x64", "2x4x40x12:kv=300:kvheads=2", "2x3x50x8:kv=20:causal", "1x1x3x16:kv=1"} {
		p := drawProblem(mustShape(t, text), 1, 3)
		q, k, v := floatRows(p.q, p.shape.SeqQ, p.shape), floatRows(p.k, p.shape.SeqK, p.shape), floatRows(p.v, p.shape.SeqK, p.shape)
		got, err := attention(t.Context(), q, k, v, p.shape, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, want := p.naiveLSE()
		for i := range want {
			if got.lse[i] != want[i] && !(math.Abs(got.lse[i]-want[i]) < 1e-12) {
				t.Errorf("%s: row %d: %v, want %v", text, i, got.lse[i], want[i])
			}
		}
	}
}

// Scores around 1e5: their exponentials overflow, the output does not.
func TestLargeScores(t *testing.T) {
	p := drawProblem(mustShape(t, "1x2x50x32:kv=200:causal"), 2, 300)
	// Rounding a score of 1e5 costs about 1e-11, and changes the output by that fraction.
	if diff := difference(p.attention(t), p.naive(), 1e-7); diff != "" {
		t.Error(diff)
	}
}

// A vector added to every key adds the same constant to every score of a row, which softmax
// ignores.
func TestShiftOfKeys(t *testing.T) {
	p := drawProblem(mustShape(t, "1x2x40x16:kv=150:causal"), 3, 1)
	want := p.attention(t)
	for i := range p.k {
		p.k[i] += float64(i%16) - 7
	}
	if diff := difference(p.attention(t), want, 1e-12); diff != "" {
		t.Error(diff)
	}
}

// Without a mask the order of the keys does not matter.
func TestOrderOfKeys(t *testing.T) {
	p := drawProblem(mustShape(t, "1x1x40x16:kv=150"), 4, 1)
	want := p.attention(t)
	rand.New(rand.NewPCG(5, 0)).Shuffle(150, func(i, j int) {
		for d := range 16 {
			p.k[i*16+d], p.k[j*16+d] = p.k[j*16+d], p.k[i*16+d]
			p.v[i*16+d], p.v[j*16+d] = p.v[j*16+d], p.v[i*16+d]
		}
	})
	if diff := difference(p.attention(t), want, 1e-13); diff != "" {
		t.Error(diff)
	}
}

// The number of cores changes no bit. A single worker runs all tasks and must not leak state
// between them; in this shape some rows see no key.
func TestBitsDoNotDependOnCores(t *testing.T) {
	p := drawProblem(mustShape(t, "2x6x140x24:kv=100:kvheads=3:causal"), 6, 1)
	want := p.attention(t)
	for _, cores := range []int{1, 5} {
		before := runtime.GOMAXPROCS(cores)
		got := p.attention(t)
		runtime.GOMAXPROCS(before)
		if diff := difference(got, want, 0); diff != "" {
			t.Errorf("with %d cores: %s", cores, diff)
		}
	}
}

func TestAttentionErrors(t *testing.T) {
	p := drawProblem(mustShape(t, "1x2x3x4:kv=5"), 7, 1)
	check := func(want string, q, k, v []float64) {
		t.Helper()
		if _, err := Attention(context.Background(), q, k, v, p.shape); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
	check("q has 23 elements, want 24", p.q[1:], p.k, p.v)
	check("k has 24 elements, want 40", p.q, p.q, p.v)
	check("v has 0 elements, want 40", p.q, p.k, nil)
	p.shape.KVHeads = 1
	check("k has 40 elements, want 20", p.q, p.k, p.v)
}

func TestAttentionStopsWhenCancelled(t *testing.T) {
	shape := mustShape(t, "1x4x64x8:kv=1024")
	p := drawProblem(shape, 8, 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Attention(ctx, p.q, p.k, p.v, shape); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before the call: error %v", err)
	}

	// Cancelled during the first head: no other head is loaded.
	ctx, cancel = context.WithCancel(context.Background())
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	var loaded []int
	source := func(into []float64, head, first int) { loaded = append(loaded, head) }
	keys := func(into []float64, head, first int) {
		source(into, head, first)
		cancel()
	}
	if _, err := attention(ctx, source, keys, source, shape, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled during the call: error %v", err)
	}
	// All queries of head 0, and one block of its keys and values.
	if want := make([]int, shape.SeqQ+2); !slices.Equal(loaded, want) {
		t.Errorf("cancelled in the first block of keys, yet rows of heads %v were loaded", loaded)
	}
}
