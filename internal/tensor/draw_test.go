package tensor

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/fp8"
)

func mustShape(t testing.TB, text string) Shape {
	t.Helper()
	shape, err := ParseShape(text)
	if err != nil {
		t.Fatal(err)
	}
	return shape
}

func digest(in *Inputs) string {
	hash := sha256.New()
	for _, t := range []Tensor{in.Q, in.K, in.V} {
		hash.Write(t.Codes)
		binary.Write(hash, binary.LittleEndian, t.Descale)
		binary.Write(hash, binary.LittleEndian, t.Original)
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}

// Recorded runs are repeated from their seeds, so these digests must never change, neither with the
// processor nor with the Go release. If one changes, Draw is broken; do not update the digest.
func TestDrawIsPinned(t *testing.T) {
	for _, test := range []struct {
		shape   string
		seed    uint64
		options Options
		want    string
	}{
		{"2x8x256x64", 0, Options{}, "f977d379919be29acc43ff075ad98fa24dfb09db954584a9cf64fd9c3eaa68d1"},
		{"2x8x256x64", 1, Options{}, "d76ac06290a48cdda8c845b6d102626a575964a5956e04cdfeb19e0f0fef3005"},
		{"1x3x33x80:kv=65", 2, Options{Scale: fp8.PerTensor}, "de95a22fde4847b8197f74e6088534622a0c32b668b53668a6ad31189d5b1876"},
		{"2x6x33x64:kv=65:kvheads=2", 0, Options{}, "2be0106448929d93370d5c487bd1f8035f9a8ed510a9cf9bf0e6f17a97150225"},
		{"1x8x512x64", 0, Options{Distribution: Outliers}, "cf734320e5af0f7b4a14fdc51924865a6b35155b2977eabaa02d286eddf3347e"},
		{"1x8x512x64", 0, Options{Distribution: Peaked}, "96fa4c948b77e1ada911b7080c22b6cbf42d7cde664dd0422d176e6ef070f046"},
		{"1x8x512x64", 0, Options{Distribution: Biased}, "a18364189e8e1373f9a6e32282448a3efa265d40a3d2ce61f7e2efd37f677f94"},
		{"1x8x512x64", 0, Options{Distribution: Positive}, "675a0ba6c38743c3ec6bb9b40d2e0cfc833b605870b25b5372200e10a4ceb68b"},
		{"1x4x256x64:kv=128:kvheads=2", 0, Options{Distribution: Ones}, "bf17b0aef2dfa032b2907c1ac451f75bea5d3173bd7b7d11e3e228393fa6cbab"},
		{"1x4x256x64:kv=128:kvheads=2", 0, Options{Distribution: Dominant}, "4f57112268b9df66ef5651251315c39471894fbd065587cd56dca65c8186f0ee"},
		{"1x4x256x64:kv=128:kvheads=2", 0, Options{Distribution: Sink6}, "eba7a91fedcebefa12a1e518fb4ea17fa1ce5c950a846783e387b12ee7360e2d"},
		{"1x4x256x64:kv=128:kvheads=2", 0, Options{Distribution: Sink9}, "56f2f435fc3a1b78e08e87f6173088e8516230a9d98331aad23c1b26a2d53ce3"},
		{"1x4x256x64:kv=128:kvheads=2", 0, Options{Distribution: Uniform}, "d291937b0f00c998f88fc4c5ea172737cf56e45062f5d8adb47413ebd49e0bc5"},
	} {
		if got := digest(Draw(mustShape(t, test.shape), test.seed, test.options)); got != test.want {
			t.Errorf("%s seed %d %v: digest %s, want %s", test.shape, test.seed, test.options, got, test.want)
		}
	}
}

func TestDrawDoesNotDependOnCores(t *testing.T) {
	shape := mustShape(t, "2x3x17x24:kv=9")
	want := Draw(shape, 7, Options{})
	for _, cores := range []int{1, 3} {
		before := runtime.GOMAXPROCS(cores)
		got := Draw(shape, 7, Options{})
		runtime.GOMAXPROCS(before)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with %d cores (-want +got):\n%s", cores, diff)
		}
	}
}

func TestDrawLayout(t *testing.T) {
	shape := mustShape(t, "2x3x5x8:kv=7")
	in := Draw(shape, 0, Options{})
	check := func(name string, got Tensor, elements int) {
		t.Helper()
		if len(got.Codes) != elements || len(got.Original) != elements || len(got.Descale) != 6 {
			t.Errorf("%s has %d codes, %d originals, %d descales; want %d, %d and 6",
				name, len(got.Codes), len(got.Original), len(got.Descale), elements, elements)
		}
	}
	check("Q", in.Q, 2*3*5*8)
	check("K", in.K, 2*3*7*8)
	check("V", in.V, 2*3*7*8)
	grouped := Draw(mustShape(t, "2x9x5x8:kv=7:kvheads=3"), 0, Options{})
	if !reflect.DeepEqual(grouped.K, in.K) || !reflect.DeepEqual(grouped.V, in.V) || len(grouped.Q.Descale) != 18 {
		t.Error("K and V of three heads depend on the number of query heads")
	}
	if in.Shape != shape || in.Seed != 0 || in.Options != (Options{}) {
		t.Errorf("the inputs record the shape %v, seed %v, options %v", in.Shape, in.Seed, in.Options)
	}
}

// Every seed, tensor and head has its own stream: no two streams begin with the same value.
func TestStreamsDiffer(t *testing.T) {
	seen := map[uint64]string{}
	for seed := range uint64(20) {
		for tensor := range 3 {
			for head := range 20 {
				name := fmt.Sprintf("seed %d tensor %d head %d", seed, tensor, head)
				first := Stream(seed, tensor, head).Uint64()
				if other, ok := seen[first]; ok {
					t.Errorf("%s starts like %s", name, other)
				}
				seen[first] = name
			}
		}
	}
}

// Neighbouring streams behave as independent ones: the correlation of 100 000 pairs is within five
// standard deviations of zero.
func TestStreamsAreUncorrelated(t *testing.T) {
	const n = 100_000
	draw := func(seed uint64, tensor, head int) []float32 {
		values := make([]float32, n)
		fill(values, Stream(seed, tensor, head), Normal)
		return values
	}
	base := draw(0, 0, 0)
	for name, other := range map[string][]float32{
		"seed": draw(1, 0, 0), "tensor": draw(0, 1, 0), "head": draw(0, 0, 1),
	} {
		sum := 0.0
		for i := range base {
			sum += float64(base[i]) * float64(other[i])
		}
		if c := sum / n; math.Abs(c) > 5/math.Sqrt(n) {
			t.Errorf("correlation with the next %s is %v", name, c)
		}
	}
}

// moments returns the mean, the variance and the kurtosis of values.
func moments(values []float32) (mean, variance, kurtosis float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += float64(v) / n
	}
	for _, v := range values {
		d := float64(v) - mean
		variance += d * d / n
		kurtosis += d * d * d * d / n
	}
	return mean, variance, kurtosis / (variance * variance)
}

func TestDistributions(t *testing.T) {
	values := make([]float32, 1_000_000)
	check := func(d Distribution, name string, got, want, slack float64) {
		t.Helper()
		if math.Abs(got-want) > slack {
			t.Errorf("%v: %s %v, want %v to within %v", d, name, got, want, slack)
		}
	}
	fill(values, Stream(0, 0, 0), Normal)
	mean, variance, kurtosis := moments(values)
	check(Normal, "mean", mean, 0, 0.005)
	check(Normal, "variance", variance, 1, 0.007)
	check(Normal, "kurtosis", kurtosis, 3, 0.025)

	// Variance 1 + 0.001*100; fourth moment 3 (1 + 0.001 (101^2-1)) = 33.6, over 1.1^2.
	fill(values, Stream(0, 0, 0), Outliers)
	mean, variance, kurtosis = moments(values)
	check(Outliers, "mean", mean, 0, 0.005)
	check(Outliers, "variance", variance, 1.1, 0.03)
	check(Outliers, "kurtosis", kurtosis, 33.6/1.21, 4)

	if got := Normal.String() + " " + Outliers.String(); got != "normal outliers" {
		t.Errorf("names %q", got)
	}
}

func TestQuantizeAndDequantize(t *testing.T) {
	tensor := Quantize([]float32{448, 1, -224, 0, 896, 3, -2, 448}, 2, fp8.PerHead)
	if diff := cmp.Diff([]float32{1, 2}, tensor.Descale); diff != "" {
		t.Errorf("descale (-want +got):\n%s", diff)
	}
	values := make([]float64, 4)
	tensor.Dequantize(values, 1, 0)
	if diff := cmp.Diff([]float64{896, 3, -2, 448}, values); diff != "" {
		t.Errorf("second head (-want +got):\n%s", diff)
	}
	tensor.Dequantize(values[:2], 1, 1)
	if diff := cmp.Diff([]float64{3, -2}, values[:2]); diff != "" {
		t.Errorf("the middle of the second head (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float32{448, 1, -224, 0, 896, 3, -2, 448}, tensor.Dequantized()); diff != "" {
		t.Errorf("worth (-want +got):\n%s", diff)
	}
	values32 := []float32{448, 1, -896, 2, 0, 0}
	for scale, want := range map[fp8.Scale][]float32{fp8.PerHead: {1, 2, 1}, fp8.PerTensor: {2, 2, 2}} {
		if diff := cmp.Diff(want, Quantize(values32, 3, scale).Descale); diff != "" {
			t.Errorf("%v: descale (-want +got):\n%s", scale, diff)
		}
	}
}

// Worth rounds the exact product of code and descale factor once.
func TestWorthRoundsOnce(t *testing.T) {
	in := Draw(mustShape(t, "1x3x17x8"), 4, Options{})
	worth := in.K.Dequantized()
	for head := range 3 {
		values := make([]float64, 17*8)
		in.K.Dequantize(values, head, 0)
		for i, x := range values {
			if got := worth[head*len(values)+i]; got != float32(x) {
				t.Fatalf("head %d element %d: %v, want %v", head, i, got, float32(x))
			}
		}
	}
}

func BenchmarkDraw(b *testing.B) {
	for _, text := range []string{"1x8x512x64", "2x8x2048x64"} {
		shape := mustShape(b, text)
		b.Run(text, func(b *testing.B) {
			for b.Loop() {
				Draw(shape, 0, Options{})
			}
		})
	}
}

// Peaked inputs differ from normal ones only in the descale factors of Q.
func TestPeakedInputs(t *testing.T) {
	shape := mustShape(t, "1x2x33x64")
	normal, peaked := Draw(shape, 3, Options{}), Draw(shape, 3, Options{Distribution: Peaked})
	for head := range normal.Q.Descale {
		if peaked.Q.Descale[head] != 16*normal.Q.Descale[head] {
			t.Errorf("head %d: descale %g, want 16 times %g", head, peaked.Q.Descale[head], normal.Q.Descale[head])
		}
	}
	if !bytes.Equal(peaked.Q.Codes, normal.Q.Codes) || !reflect.DeepEqual(peaked.K, normal.K) || !reflect.DeepEqual(peaked.V, normal.V) {
		t.Error("peaked inputs differ in more than the scale of the queries")
	}
}

// Rising and low inputs are exact in E4M3. Each key's score is 3 above the one before in log2
// units, until the scores repeat. The scores of low inputs begin below zero.
func TestRisingInputs(t *testing.T) {
	check := func(text string, distribution Distribution, rising int, first float64) {
		t.Helper()
		shape := mustShape(t, text)
		in := Draw(shape, 3, Options{Distribution: distribution})
		for name, one := range map[string]Tensor{"Q": in.Q, "K": in.K} {
			values := make([]float64, len(one.Codes)/len(one.Descale))
			one.Dequantize(values, 0, 0)
			for i, x := range values {
				if math.Abs(x-float64(one.Original[i])) > 1e-6*math.Abs(x) {
					t.Fatalf("%s: %s[%d] is %g, dequantised %g", text, name, i, one.Original[i], x)
				}
			}
		}
		score := func(key int) float64 {
			sum := 0.0
			for dim := range shape.HeadDim {
				sum += float64(in.Q.Original[dim]) * float64(in.K.Original[key*shape.HeadDim+dim])
			}
			return sum / math.Sqrt(float64(shape.HeadDim)) * math.Log2E
		}
		for key := range shape.SeqK {
			want := first + float64(3*(key%levels(rising)))
			if got := score(key); math.Abs(got-want) > 1e-3 {
				t.Fatalf("%s: the score of key %d is %g, want %g", text, key, got, want)
			}
		}
	}
	if got := levels(255); 7*got > 1<<14 {
		t.Errorf("%d scores, the largest 7*%d; sums keep only 13 bits after the leading one", got, got-1)
	}
	for _, text := range []string{"1x1x3x64:kv=1100", "2x2x2x128:kv=40", "1x1x1x64", "1x1x1x256:kv=2100"} {
		dims := mustShape(t, text).HeadDim
		check(text, Rising, dims-1, 0)
		check(text, Low, dims-2, -3*lowLevels)
	}
}

// Biased inputs are normal ones with a constant added to each channel of a head's K.
func TestBiasedInputs(t *testing.T) {
	shape := mustShape(t, "2x8x65x64")
	normal, biased := Draw(shape, 3, Options{}), Draw(shape, 3, Options{Distribution: Biased})
	if !reflect.DeepEqual(biased.Q, normal.Q) || !reflect.DeepEqual(biased.V, normal.V) {
		t.Error("biased inputs differ in more than the keys")
	}
	var biases []float32
	for i, k := range biased.K.Original {
		if i%(65*64) < 64 {
			biases = append(biases, k-normal.K.Original[i])
			continue
		}
		first := i/(65*64)*64 + i%64
		if off := k - normal.K.Original[i] - biases[first]; math.Abs(float64(off)) > 1e-5 {
			t.Fatalf("element %d is off by %v from the bias %v of its channel", i, off, biases[first])
		}
	}
	mean, variance, _ := moments(biases)
	if math.Abs(mean) > 1.5 || math.Abs(variance-100) > 20 {
		t.Errorf("the mean of %d biases is %v and their variance %v, want 0 and 100", len(biases), mean, variance)
	}
}

// Positive inputs are normal ones with |V| for V.
func TestPositiveInputs(t *testing.T) {
	shape := mustShape(t, "1x2x33x64")
	normal, positive := Draw(shape, 3, Options{}), Draw(shape, 3, Options{Distribution: Positive})
	if !reflect.DeepEqual(positive.Q, normal.Q) || !reflect.DeepEqual(positive.K, normal.K) {
		t.Error("positive inputs differ in more than the values")
	}
	for i, v := range positive.V.Original {
		if v < 0 || v != normal.V.Original[i] && v != -normal.V.Original[i] {
			t.Fatalf("element %d is %v, and %v in normal inputs", i, v, normal.V.Original[i])
		}
	}
}

// exact fails if an element of a tensor is not the dequantised value of its code.
func exact(t *testing.T, name string, one Tensor) {
	t.Helper()
	for i, x := range one.Dequantized() {
		if original := one.Original[i]; math.Abs(float64(x-original)) > 1e-6*math.Abs(float64(original)) {
			t.Fatalf("%s[%d] is %g, dequantised %g", name, i, original, x)
		}
	}
}

// scores returns the scores of a query head in natural units, of the quantised inputs.
func scores(in *Inputs, head, row int) []float64 {
	dims := in.Shape.HeadDim
	q, k := make([]float64, dims), make([]float64, dims)
	in.Q.Dequantize(q, head, row*dims)
	var all []float64
	for key := range in.Shape.SeqK {
		in.K.Dequantize(k, head/in.Shape.Group(), key*dims)
		sum := 0.0
		for dim := range dims {
			sum += q[dim] * k[dim]
		}
		all = append(all, sum/math.Sqrt(float64(dims)))
	}
	return all
}

// Ones differs from normal inputs only in V, which is exact.
func TestOnesInputs(t *testing.T) {
	shape := mustShape(t, "1x2x33x64")
	normal, ones := Draw(shape, 3, Options{}), Draw(shape, 3, Options{Distribution: Ones})
	if !reflect.DeepEqual(ones.Q, normal.Q) || !reflect.DeepEqual(ones.K, normal.K) {
		t.Error("the inputs differ in more than the values")
	}
	exact(t, "V", ones.V)
	for i, v := range ones.V.Original {
		if v != 1 {
			t.Fatalf("element %d is %v, want 1", i, v)
		}
	}
}

// A query of dominant inputs has one key, at various positions, that is far above the others and
// that a causal mask leaves visible. A query that sees no key is normal.
func TestDominantInputs(t *testing.T) {
	for _, text := range []string{"2x4x70x64:kvheads=2", "1x2x40x128:kv=130", "1x1x60x64:kv=33", "1x1x30x256"} {
		shape := mustShape(t, text)
		in := Draw(shape, 3, Options{Distribution: Dominant})
		masked := shape
		masked.Causal = true
		positions := map[int]bool{}
		for head := range shape.HeadCount() {
			for row := range shape.SeqQ {
				if masked.Visible(row) == 0 {
					continue
				}
				all := scores(in, head, row)
				largest, second := 0, math.Inf(-1)
				for key, score := range all {
					if score > all[largest] {
						largest = key
					}
				}
				for key, score := range all {
					if key != largest {
						second = max(second, score)
					}
				}
				if largest >= masked.Visible(row) || all[largest] < second+2 || all[largest] < 5 {
					t.Errorf("%s head %d row %d: key %d has the score %g, the next %g; a mask leaves %d keys",
						text, head, row, largest, all[largest], second, masked.Visible(row))
				}
				positions[largest] = true
			}
		}
		if len(positions) < min(shape.SeqQ, shape.SeqK)/2 {
			t.Errorf("%s: only %d keys dominate", text, len(positions))
		}
	}
}

// The sink's score is exact. The other scores are N(0, 1/4), and only they have values.
func TestSinkInputs(t *testing.T) {
	for distribution, want := range map[Distribution]float64{Sink6: 6, Sink9: 9} {
		for _, text := range []string{"1x2x20x64:kv=200", "1x1x20x128:kv=200", "1x1x20x256:kv=200"} {
			shape := mustShape(t, text)
			in := Draw(shape, 3, Options{Distribution: distribution})
			var others []float32
			for head := range shape.HeadCount() {
				for row := range shape.SeqQ {
					all := scores(in, head, row)
					if math.Abs(all[0]-want) > 1e-5 {
						t.Errorf("%v %s: the sink of row %d has the score %g, want %g", distribution, text, row, all[0], want)
					}
					for _, score := range all[1:] {
						others = append(others, float32(score))
					}
				}
			}
			mean, variance, _ := moments(others)
			if math.Abs(mean) > 0.05 || math.Abs(variance-0.25) > 0.05 {
				t.Errorf("%v %s: the other scores have mean %g and variance %g, want 0 and 0.25", distribution, text, mean, variance)
			}
			for i, v := range in.V.Original {
				if sink := i%(shape.SeqK*shape.HeadDim) < shape.HeadDim; v < 0 || (v == 0) != sink {
					t.Fatalf("%v %s: element %d of V is %g", distribution, text, i, v)
				}
			}
		}
	}
}

// Uniform inputs have scores close to each other, and values that name the position of their key.
func TestUniformInputs(t *testing.T) {
	shape := mustShape(t, "1x2x20x64:kv=150")
	in := Draw(shape, 3, Options{Distribution: Uniform})
	var all []float32
	for row := range shape.SeqQ {
		for _, score := range scores(in, 1, row) {
			all = append(all, float32(score))
		}
	}
	if mean, variance, _ := moments(all); math.Abs(mean) > 0.01 || math.Abs(variance-1.0/64) > 0.002 {
		t.Errorf("scores have mean %g and variance %g, want 0 and 1/64", mean, variance)
	}
	exact(t, "V", in.V)
	for i, v := range in.V.Original {
		key, dim := i/64%150, i%64
		if one := key%64 == dim; (v == 1) != one || !one && v != 0 {
			t.Fatalf("channel %d of key %d is %g", dim, key, v)
		}
	}
}

func TestParseDistribution(t *testing.T) {
	for want := Normal; want <= Uniform; want++ {
		if got, err := ParseDistribution(want.String()); got != want || err != nil {
			t.Errorf("%v is read as %v, %v", want, got, err)
		}
	}
	_, err := ParseDistribution("gaussian")
	if want := `unknown inputs "gaussian"; there are normal, outliers, peaked, biased, positive, rising, low, ` +
		`ones, dominant, sink6, sink9, uniform`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
