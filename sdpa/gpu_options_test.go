//go:build linux || darwin

package sdpa

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"attune/internal/rotate"
	"attune/internal/tensor"
)

// optionTest is a problem of a GPU that the dense forms do not compute.
type optionTest struct {
	name    string
	problem Problem
	q, k, v *Tensor
	out     DType
	// launches are the entry functions of the kernels.
	launches []string
	// tolerance is relative to the RMS of the output: E4M3 inputs or P cost some percent.
	tolerance float64
	slow      bool
}

// optionTests have each kernel, and each option.
func optionTests(t *testing.T) []optionTest {
	t.Helper()
	r := rand.New(rand.NewPCG(21, 22))
	draw := func(dtype DType, shape ...int) *Tensor { return randomTensor(t, r, dtype, [4]int(shape)) }
	sinks := []float32{0.5, -1, 2, 0}
	cache := newSequences(t, r, BF16, E4M3, 4, 2, 64, 16, []int{2, 2, 2}, []int{70, 0, 130})
	halfCache := newSequences(t, r, BF16, BF16, 4, 2, 64, 16, []int{2, 2, 2}, []int{70, 0, 130})
	packed := newSequences(t, r, E4M3, E4M3, 4, 2, 64, 64, []int{20, 0, 33}, []int{30, 9, 70})
	halves := newSequences(t, r, BF16, BF16, 4, 2, 64, 64, []int{20, 1, 33}, []int{30, 9, 70})
	longCache := newSequences(t, r, BF16, BF16, 4, 2, 64, 48, []int{20, 0, 33}, []int{30, 9, 70})
	narrow := newSequences(t, r, BF16, BF16, 4, 2, 72, 48, []int{20, 0, 33}, []int{30, 9, 70})
	decode := &Tensor{DType: BF16, Shape: [4]int{3, 4, 2, 64}, Data: slices.Concat(cache.q[0].Data, cache.q[1].Data, cache.q[2].Data)}
	halfDecode := &Tensor{DType: BF16, Shape: [4]int{3, 4, 2, 64}, Data: slices.Concat(halfCache.q[0].Data, halfCache.q[1].Data, halfCache.q[2].Data)}
	tree := make([]uint64, 53)
	for i := range tree {
		tree[i] = r.Uint64()
	}
	return []optionTest{
		{"BF16", Problem{Causal: true}, draw(BF16, 1, 2, 40, 64), draw(BF16, 1, 2, 50, 64), draw(BF16, 1, 2, 50, 64), BF16, []string{"native_attention"}, 0.03, false},
		{"FP16 in FP8", Problem{Precision: PrecisionFP8}, draw(FP16, 1, 2, 40, 64), draw(FP16, 1, 2, 50, 64), draw(FP16, 1, 2, 50, 64), FP16, []string{"cast", "sdpa"}, 0.15, true},
		{"FP16 with LSE", Problem{LSE: make([]float32, 2*40)}, draw(FP16, 1, 2, 40, 64), draw(FP16, 1, 1, 50, 64), draw(FP16, 1, 1, 50, 64), FP16, []string{"native_attention"}, 0.02, false},
		{"BF16, head dim 128", Problem{Causal: true}, draw(BF16, 1, 4, 70, 128), draw(BF16, 1, 2, 80, 128), draw(BF16, 1, 2, 80, 128), BF16, []string{"native_attention"}, 0.03, false},
		{"FP16 with LSE, head dim 256", Problem{LSE: make([]float32, 2*40)}, draw(FP16, 1, 2, 40, 256), draw(FP16, 1, 1, 50, 256), draw(FP16, 1, 1, 50, 256), FP16, []string{"pingpong_attention"}, 0.02, true},
		{"few queries", Problem{}, draw(E4M3, 2, 4, 1, 128), draw(E4M3, 2, 2, 150, 128), draw(E4M3, 2, 2, 150, 128), FP16, []string{"decode"}, 0.03, true},
		{"BF16 to FP16", Problem{}, draw(BF16, 1, 2, 40, 64), draw(BF16, 1, 2, 50, 64), draw(BF16, 1, 2, 50, 64), FP16, []string{"cast", "sdpa"}, 0.15, true},
		{"window", Problem{Window: &Window{9, 3}}, draw(E4M3, 1, 2, 40, 64), draw(E4M3, 1, 2, 50, 64), draw(E4M3, 1, 2, 50, 64), FP16, []string{"prefill"}, 0.15, true},
		{
			"sinks, LSE and lengths",
			Problem{Sinks: sinks, KeyLengths: []int{0, 33}, LSE: make([]float32, 2*4*20)},
			draw(E4M3, 2, 4, 20, 64), draw(E4M3, 2, 2, 50, 64), draw(E4M3, 2, 2, 50, 64), BF16,
			[]string{"prefill"},
			0.15, false,
		},
		{"BF16 with sinks", Problem{Sinks: sinks}, draw(BF16, 1, 4, 20, 64), draw(BF16, 1, 2, 50, 64), draw(BF16, 1, 2, 50, 64), BF16, []string{"cast", "prefill"}, 0.2, true},
		{
			"a paged cache",
			Problem{Causal: true, Sinks: sinks, PageTable: cache.table, KeyLengths: cache.keys, LSE: make([]float32, 3*4*2)},
			decode, cache.pages[1], cache.pages[2], BF16,
			[]string{"decode"},
			0.03, false,
		},
		{
			"a paged cache in BF16",
			Problem{Causal: true, Sinks: sinks, PageTable: halfCache.table, KeyLengths: halfCache.keys, LSE: make([]float32, 3*4*2)},
			halfDecode, halfCache.pages[1], halfCache.pages[2], BF16,
			[]string{"decode"},
			0.01, false,
		},
		{
			"packed",
			Problem{Causal: true, QueryOffsets: offsets(packed.queries), KeyOffsets: offsets(packed.keys), LSE: make([]float32, 4*53)},
			packed.packed[0], packed.packed[1], packed.packed[2], FP16,
			[]string{"prefill"},
			0.15, false,
		},
		{
			"packed over pages",
			Problem{QueryOffsets: offsets(packed.queries), PageTable: packed.table, KeyLengths: packed.keys},
			packed.packed[0], packed.pages[1], packed.pages[2], FP16,
			[]string{"prefill"},
			0.15, true,
		},
		{
			"packed over pages in BF16",
			Problem{Causal: true, Sinks: sinks, QueryOffsets: offsets(longCache.queries), PageTable: longCache.table, KeyLengths: longCache.keys, LSE: make([]float32, 4*53)},
			longCache.packed[0], longCache.pages[1], longCache.pages[2], BF16,
			[]string{"prefill16"},
			0.01, false,
		},
		{
			"BF16 with a softcap",
			Problem{Softcap: 0.5, Causal: true, Window: &Window{30, -1}, Sinks: sinks, LSE: make([]float32, 4*20)},
			draw(BF16, 1, 4, 20, 64), draw(BF16, 1, 2, 50, 64), draw(BF16, 1, 2, 50, 64), BF16,
			[]string{"prefill16"},
			0.01, false,
		},
		{
			"BF16, head dim 96",
			Problem{Causal: true, LSE: make([]float32, 4*70)},
			draw(BF16, 1, 4, 70, 96), draw(BF16, 1, 2, 80, 96), draw(BF16, 1, 2, 80, 96), BF16,
			[]string{"prefill16"},
			0.01, false,
		},
		{
			"FP16, head dim 40, one query",
			Problem{},
			draw(FP16, 2, 4, 1, 40), draw(FP16, 2, 2, 80, 40), draw(FP16, 2, 2, 80, 40), FP16,
			[]string{"prefill16"},
			0.01, true,
		},
		{
			"packed over pages in BF16, head dim 72",
			Problem{Causal: true, QueryOffsets: offsets(narrow.queries), PageTable: narrow.table, KeyLengths: narrow.keys},
			narrow.packed[0], narrow.pages[1], narrow.pages[2], BF16,
			[]string{"prefill16"},
			0.01, true,
		},
		{
			"BF16, head dims 192 and 128",
			Problem{Causal: true},
			draw(BF16, 1, 2, 40, 192), draw(BF16, 1, 2, 50, 192), draw(BF16, 1, 2, 50, 128), BF16,
			[]string{"prefill16"},
			0.01, true,
		},
		{
			"a step over a paged cache in BF16 with a softcap",
			Problem{Softcap: 0.5, Causal: true, PageTable: halfCache.table, KeyLengths: halfCache.keys},
			halfDecode, halfCache.pages[1], halfCache.pages[2], BF16,
			[]string{"prefill16"},
			0.01, true,
		},
		{
			"BF16 with slopes of each sequence",
			Problem{AlibiSlopes: []float32{0.1, 0.02, 0.3, 0, 0.05, 0.2, 0.01, 0.5}, Causal: true, KeyLengths: []int{9, 50}, LSE: make([]float32, 2*4*20)},
			draw(BF16, 2, 4, 20, 64), draw(BF16, 2, 2, 50, 64), draw(BF16, 2, 2, 50, 64), BF16,
			[]string{"prefill16"},
			0.01, false,
		},
		{
			"a tree over a paged cache in BF16 with slopes and sinks",
			Problem{AlibiSlopes: sinks, TreeMask: []uint64{1, 3, 1, 1, 0, 2}, Sinks: sinks, PageTable: halfCache.table, KeyLengths: halfCache.keys, LSE: make([]float32, 3*4*2)},
			halfDecode, halfCache.pages[1], halfCache.pages[2], BF16,
			[]string{"prefill16"},
			0.01, false,
		},
		{
			"packed trees over pages in BF16",
			Problem{TreeMask: tree, QueryOffsets: offsets(longCache.queries), PageTable: longCache.table, KeyLengths: longCache.keys},
			longCache.packed[0], longCache.pages[1], longCache.pages[2], BF16,
			[]string{"prefill16"},
			0.01, true,
		},
		{
			"packed BF16",
			Problem{QueryOffsets: offsets(halves.queries), KeyOffsets: offsets(halves.keys)},
			halves.packed[0], halves.packed[1], halves.packed[2], BF16,
			[]string{"cast", "prefill"},
			0.2, true,
		},
	}
}

// check compares Forward on a device with the CPU.
func (o optionTest) check(t *testing.T, d *Device) {
	t.Helper()
	on := func(d *Device) (values, lse []float32) {
		out, err := NewTensor(o.out, outputShape(o.q.Shape, o.v.Shape))
		if err != nil {
			t.Fatal(err)
		}
		p := o.problem
		p.LSE = slices.Clone(p.LSE)
		if err := Forward(t.Context(), d, p, o.q, o.k, o.v, out); err != nil {
			t.Fatalf("%s: %v", o.name, err)
		}
		return floats(t, out), p.LSE
	}
	got, gotLSE := on(d)
	want, wantLSE := on(CPU())
	var square float64
	for _, x := range want {
		square += float64(x) * float64(x)
	}
	rms := math.Sqrt(square / float64(len(want)))
	var off float64
	for i := range want {
		off += math.Pow(float64(got[i]-want[i]), 2)
	}
	if off = math.Sqrt(off/float64(len(want))) / rms; !(off <= o.tolerance) {
		t.Errorf("%s: the output is off by %.3f of its RMS", o.name, off)
	}
	near(t, o.name+", LSE", gotLSE, widened(wantLSE), 0.05)
}

// A simulated GPU computes every option with the kernel for it, as the CPU does.
func TestGPUOptions(t *testing.T) {
	for _, test := range optionTests(t) {
		if testing.Short() && test.slow {
			continue
		}
		if err := test.checkOn(t, newSimMachine()); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// checkOn is check on a new device, with the kernels that are launched. It returns the error of a
// problem that is not supported.
func (o optionTest) checkOn(t *testing.T, m *simMachine) error {
	t.Helper()
	d, err := newGPU(m)
	if err != nil {
		t.Fatal(err)
	}
	out, err := NewTensor(o.out, outputShape(o.q.Shape, o.v.Shape))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Supports(o.problem, o.q, o.k, o.v, out); err != nil {
		return err
	}
	o.check(t, d)
	if !slices.Equal(m.launches, o.launches) {
		t.Errorf("%s: the kernels are %q, want %q", o.name, m.launches, o.launches)
	}
	if err := d.Close(); err != nil || len(m.memory) > 0 {
		t.Errorf("%s: Close returns %v, and %d buffers are left", o.name, err, len(m.memory))
	}
	return nil
}

// GPUs that the kernels for Hopper are not for compute what the warp kernel does, as the CPU does, and
// say what they do not. Each problem runs on one of the four in each turn.
func TestGPUCards(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 24))
	draw := func(dtype DType, shape ...int) *Tensor { return randomTensor(t, r, dtype, [4]int(shape)) }
	tests := append(optionTests(t), optionTest{"head dim 96", Problem{Causal: true}, draw(BF16, 1, 2, 40, 96), draw(BF16, 1, 1, 50, 96), draw(BF16, 1, 1, 50, 96), BF16, nil, 0.03, false})
	tests = append(tests, tests8(draw)...)
	for k, card := range []string{"sm_80", "sm_86", "sm_89", "sm_120"} {
		computed := 0
		for i, test := range tests {
			if testing.Short() && (test.slow || card != "sm_89") && i != 0 {
				continue
			}
			if due, err := rotate.Due(i+k, 4); err != nil {
				t.Fatal(err)
			} else if !due && !testing.Short() {
				continue
			}
			m := newSimMachine()
			m.facts.Arch, m.facts.Multiprocessors = card, 58
			test.launches = []string{"warp_attention"}
			switch {
			case test.q.DType == E4M3:
				test.launches = []string{"warp8_attention"}
			case test.problem.Precision == PrecisionFP8:
				test.launches = []string{"quantize8", "warp8_attention"}
			}
			switch err := test.checkOn(t, m); {
			case err == nil:
				computed++
			case !errors.Is(err, ErrUnsupported) || !namesCard(err, card):
				t.Errorf("%s, %s: %v", card, test.name, err)
			}
		}
		if computed < 1 {
			t.Errorf("%s computes no problem", card)
		}
	}
}

// tests8 are problems in 8 bits.
func tests8(draw func(dtype DType, shape ...int) *Tensor) []optionTest {
	fp8, causal := Problem{Precision: PrecisionFP8}, Problem{Precision: PrecisionFP8, Causal: true, LSE: make([]float32, 2*4*40)}
	return []optionTest{
		{"FP16 in 8 bits, head dim 128", fp8, draw(FP16, 1, 2, 40, 128), draw(FP16, 1, 1, 70, 128), draw(FP16, 1, 1, 70, 128), FP16, nil, 0.05, true},
		{"BF16 in 8 bits with LSE", causal, draw(BF16, 2, 4, 40, 64), draw(BF16, 2, 2, 150, 64), draw(BF16, 2, 2, 150, 64), BF16, nil, 0.05, false},
		{"BF16 in 8 bits, head dim 256", fp8, draw(BF16, 1, 2, 20, 256), draw(BF16, 1, 2, 33, 256), draw(BF16, 1, 2, 33, 256), BF16, nil, 0.05, true},
		{"E4M3 with LSE", Problem{Causal: true, LSE: make([]float32, 2*40)}, draw(E4M3, 1, 2, 40, 64), draw(E4M3, 1, 1, 50, 64), draw(E4M3, 1, 1, 50, 64), BF16, nil, 0.05, false},
		{"E4M3, head dim 96", Problem{}, draw(E4M3, 1, 2, 40, 96), draw(E4M3, 1, 2, 50, 96), draw(E4M3, 1, 2, 50, 96), FP16, nil, 0.05, true},
	}
}

// The counters of a workspace are zero after every call, and a larger one replaces it.
func TestGPUWorkspace(t *testing.T) {
	d, m := openSim(t)
	g := d.gpu.(*gpu)
	for _, batch := range []int{1, 3, 2} {
		q, k, v, o := randomInputs(t, tensor.Shape{Batch: batch, Heads: 2, SeqQ: 40, SeqK: 30, HeadDim: 64}, BF16, FP16)
		if err := Forward(t.Context(), d, Problem{}, q, k, v, o); err != nil {
			t.Fatal(err)
		}
		if counters := m.at(g.workspace.data, 65536); slices.Max(counters) != 0 {
			t.Errorf("batch %d: the counters are not zero", batch)
		}
	}
}

// On a GPU the options agree with the CPU.
func TestOptionsOnGPU(t *testing.T) {
	d := openGPU(t)
	for _, test := range optionTests(t) {
		test.check(t, d)
	}
}

// namesCard reports whether an error says that it is about a card.
func namesCard(err error, card string) bool {
	for _, part := range []string{"on " + card, "for " + card, card + " does not multiply"} {
		if strings.Contains(err.Error(), part) {
			return true
		}
	}
	return false
}
