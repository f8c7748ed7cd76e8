package tensor

import (
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"attune/internal/fp8"
)

func mustRecipe(t testing.TB, text string) Recipe {
	t.Helper()
	r, err := ParseRecipe(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParseRecipe(t *testing.T) {
	for text, want := range map[string]Recipe{
		"none":                         {},
		"smooth-k":                     {SmoothK: true},
		"hadamard":                     {Hadamard: true},
		"smooth-k+hadamard":            {SmoothK: true, Hadamard: true},
		"hadamard+smooth-k":            {SmoothK: true, Hadamard: true},
		"per-tensor":                   {Scale: fp8.PerTensor},
		"per-tensor+smooth-k+hadamard": {SmoothK: true, Hadamard: true, Scale: fp8.PerTensor},
	} {
		if got := mustRecipe(t, text); got != want {
			t.Errorf("%s is %+v, want %+v", text, got, want)
		}
	}
	for _, text := range []string{"", "smooth", "none+hadamard", "hadamard+", "hadamard+hadamard", "Hadamard"} {
		_, err := ParseRecipe(text)
		if err == nil || !strings.Contains(err.Error(), "is not a step or is repeated; there are none, or per-tensor, smooth-k and hadamard joined by +") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func FuzzParseRecipe(f *testing.F) {
	for _, text := range []string{"none", "smooth-k+hadamard", "per-tensor", "+", "hadamard+hadamard"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRecipe(text)
		if err != nil {
			return
		}
		if again, err := ParseRecipe(r.String()); again != r || err != nil {
			t.Errorf("%q is %+v, formatted as %q, parsed as %+v, %v", text, r, r, again, err)
		}
	})
}

// The zero recipe quantises like Draw.
func TestNoRecipe(t *testing.T) {
	shape := mustShape(t, "2x3x17x64:kv=33")
	for _, scale := range []fp8.Scale{fp8.PerHead, fp8.PerTensor} {
		want := Draw(shape, 5, Options{Scale: scale, Distribution: Outliers})
		got := Recipe{Scale: scale}.Apply(Draw(shape, 5, Options{Distribution: Outliers}))
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v: the inputs differ", scale)
		}
	}
}

// Recipes give the same bits on every machine, and do not change their inputs.
func TestRecipesArePinned(t *testing.T) {
	in := Draw(mustShape(t, "1x3x33x128:kv=65"), 2, Options{Distribution: Biased})
	before := digest(in)
	for text, want := range map[string]string{
		"smooth-k":                     "a6a8a2700ad10d5869b1f4958e5245cabf14415115546bdaa6dbb9ed7ab52b6f",
		"hadamard":                     "306c2f52801acfda8002cf34b94e4ec2278abe604dcee644018d64bcd57ba054",
		"smooth-k+hadamard":            "224e82491f97baa453f3da18a33f8b67a81e05257850fbfbaf38ca487f075835",
		"per-tensor+smooth-k+hadamard": "9c84e96f128814282929196132dbc3fc9f1a0bf49c1430b1a4754d8b4eb698d5",
	} {
		for _, cores := range []int{1, 3} {
			procs := runtime.GOMAXPROCS(cores)
			got := mustRecipe(t, text).Apply(in)
			runtime.GOMAXPROCS(procs)
			if digest(got) != want {
				t.Errorf("%s with %d cores: digest %s, want %s", text, cores, digest(got), want)
			}
		}
	}
	if digest(in) != before {
		t.Error("a recipe changed its inputs")
	}
}

// softmax returns the softmax weights of one query.
func softmax(q []float64, keys [][]float64) []float64 {
	weights, total := make([]float64, len(keys)), 0.0
	for i, k := range keys {
		weights[i] = math.Exp(product(q, k) / math.Sqrt(float64(len(q))))
		total += weights[i]
	}
	for i := range weights {
		weights[i] /= total
	}
	return weights
}

// Subtracting the mean of each channel of K does not change the softmax.
func TestSmoothKKeepsSoftmax(t *testing.T) {
	const dims, count = 64, 40
	head := make([]float32, count*dims)
	fill(head, Stream(1, 1, 0), Normal)
	adapt(head, dims, 1, Stream(1, biasStream, 0), Biased)
	means := channelMeans(head, dims)
	var keys, smooth [][]float64
	for start := 0; start < len(head); start += dims {
		k, s := make([]float64, dims), make([]float64, dims)
		for dim, x := range head[start:][:dims] {
			k[dim], s[dim] = float64(x), float64(x)-means[dim]
		}
		keys, smooth = append(keys, k), append(smooth, s)
	}
	for seed := range uint64(10) {
		q := normals(dims, seed)
		want, got := softmax(q, keys), softmax(q, smooth)
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-12 {
				t.Errorf("seed %d: weight %d is %v, want %v", seed, i, got[i], want[i])
			}
		}
	}
}

// smooth-k removes the channel means of K and with them the biases, hadamard changes Q, and V never
// changes.
func TestRecipeEffects(t *testing.T) {
	in := Draw(mustShape(t, "1x6x64x64:kvheads=2"), 0, Options{Distribution: Biased})
	for _, text := range []string{"smooth-k", "hadamard", "smooth-k+hadamard"} {
		r := mustRecipe(t, text)
		got := r.Apply(in)
		if !reflect.DeepEqual(got.V, in.V) {
			t.Errorf("%s changes V", text)
		}
		if same := reflect.DeepEqual(got.Q, in.Q); same == r.Hadamard {
			t.Errorf("%s: Q unchanged = %t", text, same)
		}
		for head := range 2 {
			if narrower := got.K.Descale[head] < 0.5*in.K.Descale[head]; narrower != r.SmoothK {
				t.Errorf("%s: descale of K is %v, was %v", text, got.K.Descale[head], in.K.Descale[head])
			}
			for dim, mean := range channelMeans(got.K.Original[head*64*64:][:64*64], 64) {
				if r.SmoothK && math.Abs(mean) > 1e-6 {
					t.Errorf("%s: channel %d of K has the mean %v", text, dim, mean)
				}
			}
		}
	}
}

func BenchmarkRecipe(b *testing.B) {
	in := Draw(mustShape(b, "2x8x2048x64"), 0, Options{})
	for b.Loop() {
		mustRecipe(b, "smooth-k+hadamard").Apply(in)
	}
}
