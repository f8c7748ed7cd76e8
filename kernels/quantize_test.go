package kernels_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/form"
	"attune/internal/fp8"
	"attune/internal/half"
	"attune/internal/run"
	"attune/internal/spec"
)

// smallShares makes blocks with tiles in registers, in shared memory and beyond, on small shapes.
const smallShares = "ada+BLOCKS=2+CHUNKS=1+REGISTER_TILES=1+SHARED_TILES=1"

// Every shape for the simulator is right and free of findings, in the default variants and in one
// whose blocks have more tiles than they keep.
func TestQuantisersAreCorrect(t *testing.T) {
	type build struct{ variant, arch string } // that of sm_80 rounds to E4M3 without an instruction for it
	for name, builds := range map[string][]build{
		"quantize": {{"quantize", ""}, {smallShares, ""}, {smallShares, "sm_80"}},
		"cast":     {{"cast", ""}, {"cast+CHUNKS=1+THREADS=256", ""}},
		"append":   {{"append", ""}, {"append", "sm_80"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kernel, builder := declaredBuilder(t, "quantize/"+name)
			for i, b := range builds {
				checkDeclaredOn(t, kernel, builder, "quantize/"+name, b.variant, b.arch, sampleOf(t, i, 1, kernel.Run.SimShapes), func(r *run.Run) {
					if r.Build != nil && r.Build.Resources.StackBytes+r.Build.Resources.SpillBytes() > 0 {
						t.Errorf("%s spills or uses a stack: %+v", r.Variant, r.Build.Resources)
					}
				})
			}
		})
	}
}

func variantOf(t *testing.T, kernel *spec.Kernel, text string) spec.Variant {
	t.Helper()
	v, err := kernel.Variant(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// launch runs a job of a variant of a quantiser on the simulator and returns its outputs. A finding fails the test.
func launch(t *testing.T, name, variant string, job device.Job) [][]byte {
	t.Helper()
	return launchOn(t, name, variant, "sm_89", job)
}

// launchOn is launch for an architecture.
func launchOn(t *testing.T, name, variant, arch string, job device.Job) [][]byte {
	t.Helper()
	kernel, builder := declaredBuilder(t, "quantize/"+name)
	v := variantOf(t, kernel, variant)
	target := form.Target(kernel, v, arch)
	image, _, err := withoutCompiler(t, builder, target).Build(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	job.Image, job.Entry = image.PTX, name
	outcome, err := simdevice.Open(simdevice.Options{Checks: true, Strict: true}).Run(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range outcome.Findings {
		t.Errorf("%s: %+v", variant, f)
	}
	return outcome.Outputs
}

func int64s(values ...int) []device.Arg {
	var args []device.Arg
	for _, v := range values {
		args = append(args, device.Arg{Scalar: binary.LittleEndian.AppendUint64(nil, uint64(v))})
	}
	return args
}

func int32s(values ...int32) []device.Arg {
	var args []device.Arg
	for _, v := range values {
		args = append(args, device.Int32(v))
	}
	return args
}

func words(values []float32) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

func bfloats(values []float32) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint16(data, uint16(half.BFloat16FromFloat32(v)))
	}
	return data
}

// quantizeJob quantises x, BF16 of 64 columns, as Q, K and V. The launch has more blocks than tiles
// if blocks is above 3 times the heads: then some have none.
func quantizeJob(x []float32, heads, rows, blocks int, flags ...int32) device.Job {
	const dim = 64
	data := bfloats(x)
	job := device.Job{Grid: [3]int{blocks, 1, 1}, Block: [3]int{256, 1, 1}, Cooperative: true, DynamicSharedBytes: 256 * 16}
	for range 3 {
		job.Args = append(job.Args, device.In(data))
	}
	for range 3 {
		job.Args = append(job.Args, device.Out(len(x)))
	}
	for range 3 {
		job.Args = append(job.Args, device.Out(4*heads))
	}
	job.Args = append(job.Args, device.Out(4*heads*dim), device.Arg{Scratch: 4 * (4 + 3*heads*8 + 3*dim*heads)})
	for range 3 {
		job.Args = append(job.Args, int64s(heads*rows*dim, rows*dim, dim)...)
	}
	job.Args = append(job.Args, int32s(1, int32(heads), int32(heads), int32(rows), int32(rows), dim, 1)...)
	job.Args = append(job.Args, int32s(append(flags, 1)...)...)
	return job
}

// A tensor without rows is not quantised, and its pointers may be null.
func TestQuantizeSomeTensors(t *testing.T) {
	const dim, heads, rows = 64, 2, 37
	x := make([]float32, heads*rows*dim)
	for i := range x {
		x[i] = half.BFloat16FromFloat32(float32(i%89) - 40).Float32()
	}
	all := launch(t, "quantize", smallShares, quantizeJob(x, heads, rows, 5, 0, 1))
	null := device.Arg{Scalar: make([]byte, 8)}
	for name, test := range map[string]struct {
		without []int // arguments
		rows    int   // the argument that becomes 0
		outputs []int // those that remain
	}{
		"only Q":       {[]int{1, 2, 4, 5, 7, 8, 9}, 24, []int{0, 3}},
		"only K and V": {[]int{0, 3, 6}, 23, []int{1, 2, 4, 5, 6}},
	} {
		job := quantizeJob(x, heads, rows, 5, 0, 1)
		for _, i := range test.without {
			job.Args[i] = null
		}
		job.Args[test.rows] = int32s(0)[0]
		outputs := launch(t, "quantize", smallShares, job)
		for i, of := range test.outputs {
			if len(outputs) != len(test.outputs) || !bytes.Equal(outputs[i], all[of]) {
				t.Errorf("%s: output %d of %d differs from output %d of all tensors", name, i, len(outputs), of)
			}
		}
	}
}

// NaN and infinities have no part in amax. An infinity becomes 448, NaN stays NaN. A head without a
// finite number other than 0 has the factor 1.
func TestQuantizeSpecialValues(t *testing.T) {
	const dim, rows = 64, 3
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	heads := [][]float32{
		{1, -2, 3.25, nan, inf, -inf, 0.001}, // the rest are zeros
		{nan, inf},
		{0, 1e38, 1e33, -1e36},
		{1e-40, -2e-40},
		{},
	}
	x := make([]float32, len(heads)*rows*dim)
	for head, values := range heads {
		for i, v := range values {
			x[head*rows*dim+i*29%(rows*dim)] = half.BFloat16FromFloat32(v).Float32()
		}
	}
	job := quantizeJob(x, len(heads), rows, 20, 0, 0)
	outputs := launch(t, "quantize", smallShares, job)
	for i, output := range launchOn(t, "quantize", smallShares, "sm_80", job) {
		if !bytes.Equal(output, outputs[i]) {
			t.Errorf("output %d of sm_80 differs from that of sm_89", i)
		}
	}
	for head := range heads {
		part := x[head*rows*dim:][:rows*dim]
		amax := float32(0)
		for _, v := range part {
			if a := float32(math.Abs(float64(v))); a < inf {
				amax = max(amax, a)
			}
		}
		scale, descale := float32(1), float32(1)
		if amax > 0 {
			amax = max(amax, 0x1p-112)
			scale, descale = 448/amax, amax/448
		}
		var want []byte
		for _, v := range part {
			want = append(want, byte(fp8.E4M3FromFloat32(v*scale)))
		}
		for tensor := range 3 {
			if got := outputs[tensor][head*rows*dim:][:rows*dim]; !bytes.Equal(got, want) {
				t.Errorf("head %d of tensor %d:\n%x, want\n%x", head, tensor, got, want)
			}
			if got := outputs[3+tensor][4*head:][:4]; !bytes.Equal(got, words([]float32{descale})) {
				t.Errorf("the factor of head %d of tensor %d is %x, want %g", head, tensor, got, descale)
			}
		}
	}
}

// Blocks without tiles change nothing: the means of K have the same bits.
func TestQuantizeWithIdleBlocks(t *testing.T) {
	const dim, rows, heads = 64, 40, 2
	x := make([]float32, heads*rows*dim)
	for i := range x {
		x[i] = float32(math.Sin(float64(i*i))) + 2
	}
	job := quantizeJob(x, heads, rows, 12, 1, 1) // 2 tiles for each head of each tensor
	job.Args[10].Scratch *= 2
	want := launch(t, "quantize", smallShares, job)
	job.Grid[0] = 31
	got := launch(t, "quantize", smallShares, job)
	for i := range want {
		if !bytes.Equal(got[i], want[i]) {
			t.Errorf("output %d differs", i)
		}
	}
}

// castJob casts x, elements of 64 columns in BF16 or FP16, as K: Q and V have no rows.
func castJob(x []byte, heads, rows, tiles int, bf16 int32) device.Job {
	const dim = 64
	job := device.Job{Grid: [3]int{heads * tiles, 1, 1}, Block: [3]int{128, 1, 1}}
	null := device.Arg{Scalar: make([]byte, 8)}
	// V is cast too, by blocks behind those of K, which the grid does not have.
	job.Args = []device.Arg{
		null, device.In(x), null, null, device.Out(len(x) / 2), null, null, device.Out(4 * heads), null,
		{Scratch: 8 * 3 * heads},
	}
	for range 3 {
		job.Args = append(job.Args, int64s(heads*rows*dim, rows*dim, dim)...)
	}
	job.Args = append(job.Args, int32s(1, int32(heads), int32(heads), 0, int32(rows), dim, bf16, 1)...)
	return job
}

// castScale is the scale of a head of 64 columns.
func castScale(x []float32, rows int) float32 {
	const dim, sampleRows = 64, 16
	finite := func(row int) (amax float64) {
		for _, v := range x[row*dim:][:dim] {
			if a := math.Abs(float64(v)); !math.IsInf(a, 0) && a > amax {
				amax = a
			}
		}
		return amax
	}
	power := func(amax float64, exponent int) float64 {
		_, e := math.Frexp(amax)
		return math.Ldexp(1, min(exponent-(e-1), 112))
	}
	var sample, all float64
	for row := range sampleRows {
		sample = max(sample, finite(row*rows/sampleRows))
	}
	for row := range rows {
		all = max(all, finite(row))
	}
	switch {
	case all == 0:
		return 1
	case sample > 0 && all*power(sample, 3) <= 448:
		return float32(power(sample, 3))
	}
	return float32(power(all, 7))
}

// No element saturates, wherever one stands that is far larger than the sample of its head. The
// rows 4, 9, 14 and 19 of 20 are in no sample.
func TestCastOutliers(t *testing.T) {
	const dim, rows = 64, 20
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	var heads [][]float32
	add := func(change func(head []float32)) {
		head := make([]float32, rows*dim)
		for i := range head {
			head[i] = float32(math.Sin(float64(7 * i)))
		}
		change(head)
		heads = append(heads, head)
	}
	for column := range dim {
		for row := 4; row < rows; row += 5 {
			size := float32([]int{30, 20, -3000, 40}[row/5])
			add(func(head []float32) { head[row*dim+column] = size })
		}
	}
	add(func(head []float32) { clear(head) })
	add(func(head []float32) { clear(head); head[19*dim+5] = 1e-3 }) // the sample is zero
	add(func(head []float32) { head[3], head[4*dim], head[9*dim+1] = nan, inf, -inf })
	add(func(head []float32) { clear(head); head[0], head[dim+1] = inf, nan })
	for _, bf16 := range []int32{0, 1} {
		convert := func(v float32) float32 { return half.Float16FromFloat32(v).Float32() }
		if bf16 == 1 {
			convert = func(v float32) float32 { return half.BFloat16FromFloat32(v).Float32() }
		}
		var x []byte
		var want, factors []byte
		for _, head := range heads {
			rounded := make([]float32, len(head))
			for i, v := range head {
				rounded[i] = convert(v)
				code := uint16(half.Float16FromFloat32(v))
				if bf16 == 1 {
					code = uint16(half.BFloat16FromFloat32(v))
				}
				x = binary.LittleEndian.AppendUint16(x, code)
			}
			scale := castScale(rounded, rows)
			factors = append(factors, words([]float32{1 / scale})...)
			for _, v := range rounded {
				want = append(want, byte(fp8.E4M3FromFloat32(v*scale)))
			}
		}
		for variant, tiles := range map[string]int{"cast": 1, "cast+CHUNKS=1": 2} { // of a head
			outputs := launch(t, "cast", variant, castJob(x, len(heads), rows, tiles, bf16))
			if i := firstDifference(outputs[0], want); i >= 0 {
				t.Errorf("%s, bf16 %d: code %d of head %d is %#x, want %#x", variant, bf16, i%(rows*dim), i/(rows*dim), outputs[0][i], want[i])
			}
			if i := firstDifference(outputs[1], factors); i >= 0 {
				t.Errorf("%s, bf16 %d: the factor of head %d differs", variant, bf16, i/4)
			}
		}
	}
}

// firstDifference is the index of the first byte that differs, -1 for none.
func firstDifference(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// A row goes to the page that the table has for its position. It is dropped where the table has -1 or
// no page of the cache, beyond the last page, and if the length of its sequence is negative: such a
// sequence is an unused slot of a batch.
func TestAppendToShuffledPages(t *testing.T) {
	for name, c := range map[string]struct {
		table   []int32 // of two sequences
		lengths []int32
	}{
		"dropped by -1":       {[]int32{3, 0, 4, 1, -1, 2}, []int32{1, 0}},
		"beyond the last":     {[]int32{3, 0, 4, 1, 2, -1}, []int32{5, 1 << 30}},
		"at the largest":      {[]int32{3, 0, 4, 1, 2, -1}, []int32{math.MaxInt32, math.MaxInt32 - 1}},
		"unused slots":        {[]int32{3, 0, 4, 1, 2, -1}, []int32{-1, -2}},
		"far negative":        {[]int32{3, 0, 4, 1, 2, -1}, []int32{math.MinInt32, -5}},
		"pages out of range":  {[]int32{5, 0, 4, 1, math.MaxInt32, 2}, []int32{1, 1}},
		"negative, one valid": {[]int32{3, 0, 4, 1, 2, -1}, []int32{-1, 2}},
	} {
		t.Run(name, func(t *testing.T) { testAppendToPages(t, c.table, c.lengths) })
	}
}

func testAppendToPages(t *testing.T, table, lengths []int32) {
	const dim, rows, pageSize, maxPages, pages = 8, 3, 2, 3, 5
	x := make([]float32, 2*rows*dim)
	for i := range x {
		x[i] = float32(i) - 20
	}
	cache := bytes.Repeat([]byte{0x55}, pages*pageSize*dim)
	want := bytes.Clone(cache)
	for i, v := range x {
		sequence, row, column := i/(rows*dim), i/dim%rows, i%dim
		position := int(lengths[sequence]) + row
		if lengths[sequence] < 0 || position >= maxPages*pageSize {
			continue
		}
		if page := table[sequence*maxPages+position/pageSize]; page >= 0 && page < pages {
			want[(int(page)*pageSize+position%pageSize)*dim+column] = byte(fp8.E4M3FromFloat32(v * 2))
		}
	}
	factors := words([]float32{0.5, 0.5})
	integers := func(values []int32) []byte {
		var data []byte
		for _, v := range values {
			data = binary.LittleEndian.AppendUint32(data, uint32(v))
		}
		return data
	}
	job := device.Job{Grid: [3]int{1, 2, 1}, Block: [3]int{128, 1, 1}, Args: []device.Arg{
		device.In(bfloats(x)), device.In(bfloats(x)), device.In(factors), device.In(factors),
		device.In(integers(lengths)), device.In(integers(table)),
		{InOut: cache},
		{InOut: cache},
	}}
	for range 2 {
		job.Args = append(job.Args, int64s(rows*dim, rows*dim, dim)...)
	}
	job.Args = append(job.Args, int32s(2, 1, rows, dim, 1, pageSize, maxPages, pages, 1)...)
	for i, got := range launch(t, "append", "append", job) {
		if !bytes.Equal(got, want) {
			t.Errorf("cache %d is\n%x, want\n%x", i, got, want)
		}
	}
}
