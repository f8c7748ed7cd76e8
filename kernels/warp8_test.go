package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/form"
	"attune/internal/fp8"
	"attune/internal/half"
	"attune/internal/run"
	"attune/internal/toolchain"
)

const (
	warp8Folder     = "attention/warp8"
	quantize8Folder = "quantize/quantize8"
)

// Every stage is right on each class of its architectures, with all checkers, as those of warp are.
func TestWarp8IsCorrect(t *testing.T) {
	kernel, builder := declaredBuilder(t, warp8Folder)
	all, few := kernel.Run.SimShapes, []string{"ragged", "mean", "causal", "short", "peaks"}
	for i, test := range []struct {
		variant, arch string
		shapes        []string
	}{
		{"i8f16_d64", "sm_89", all},
		{"i8f16_d64", "sm_80", few},
		{"i8f16_d64", "sm_90a", few},
		{"i8f16_d64+USE_BF16=0", "sm_86", few},
		{"i8f16_d96", "sm_86", all},
		{"i8f16_d96", "sm_120", few},
		{"i8f16_d128", "sm_80", all},
		{"i8f16_d128", "sm_90a", few},
		{"i8f16_d128+USE_BF16=0", "sm_86", few},
		{"i8f16_d128_w8", "sm_120", few},
		{"i8f16_d256", "sm_80", all},
		{"i8f16_d256", "sm_90a", few},
		{"i8f16_d256+USE_BF16=0", "sm_86", few},
		{"i8f8_d64", "sm_89", all},
		{"i8f8_d64+USE_BF16=0", "sm_120", few},
		{"i8f8_d96", "sm_89", few},
		{"i8f8_d128", "sm_89", all},
		{"i8f8_d128", "sm_120", few},
		{"i8f8_d256", "sm_89", few},
		{"f8_d64", "sm_89", all},
		{"f8_d96", "sm_120", few},
		{"f8_d128", "sm_120", all},
		{"f8_d128+USE_BF16=0", "sm_89", few},
		{"f8_d256", "sm_89", few},
		{"i8f16_d64+TILE_M=64+TILE_N=128+KV_STAGES=3+USE_Q_IN_REGISTERS=1", "sm_89", few},
		{"i8f16_d64+TILE_N=32+KV_STAGES=1", "sm_86", few},
		{"i8f8_d64+TILE_M=64+TILE_N=128+KV_STAGES=1", "sm_120", few},
	} {
		t.Run(test.variant+"@"+test.arch, func(t *testing.T) {
			skipUnlessSampled(t, i, sampled)
			t.Parallel()
			checkDeclaredOn(t, kernel, builder, warp8Folder, test.variant, test.arch, sampleOf(t, i, sampled, test.shapes))
		})
	}
}

// The quantiser of the s8 forms is right on all shapes, and free of findings, also in a grid of one block.
func TestQuantize8IsCorrect(t *testing.T) {
	kernel, builder := declaredBuilder(t, quantize8Folder)
	for i, test := range []struct{ variant, arch string }{
		{"quantize8_v", "sm_89"}, {"quantize8", "sm_80"}, {"quantize8_v+BLOCKS=1", "sm_120"},
	} {
		t.Run(test.variant+"@"+test.arch, func(t *testing.T) {
			skipUnlessSampled(t, i, 3)
			t.Parallel()
			checkDeclaredOn(t, kernel, builder, quantize8Folder, test.variant, test.arch, sampleOf(t, i, 3, kernel.Run.SimShapes), func(r *run.Run) {
				if r.Build != nil && r.Build.Resources.StackBytes+r.Build.Resources.SpillBytes() > 0 {
					t.Errorf("%s spills or uses a stack: %+v", r.Variant, r.Build.Resources)
				}
			})
		})
	}
}

// Each form has the products of 8 bits that it is for as machine instructions, E4M3 not as conversions and
// products of FP16. They depend on the sources and the compiler only, so for verified sources one form is
// compiled.
func TestWarp8Instructions(t *testing.T) {
	kernel, builder := declaredBuilder(t, warp8Folder)
	compiler, _ := pinnedCompiler(t)
	if _, err := toolchain.Disassembler(compiler); err != nil {
		t.Skip(err)
	}
	const s8, e4m3, fp16, bf16 = "IMMA.16832.S8.S8", "QMMA.16832.F32.E4M3.E4M3", "HMMA.16816.F32", "HMMA.16816.F32.BF16"
	for i, test := range []struct {
		variant, arch string
		products      []string
	}{
		{"i8f8_d64", "sm_89", []string{s8, e4m3}},
		{"i8f16_d64", "sm_80", []string{bf16, s8}},
		{"i8f16_d64+USE_BF16=0", "sm_90a", []string{fp16, s8}},
		{"i8f8_d128", "sm_120", []string{s8, e4m3}},
		{"f8_d64", "sm_89", []string{e4m3}},
		{"f8_d128", "sm_120", []string{e4m3}},
	} {
		t.Run(test.variant+"@"+test.arch, func(t *testing.T) {
			skipUnlessSampled(t, i, 6)
			image, _, err := builder.Build(t.Context(), form.Target(kernel, variantOf(t, kernel, test.variant), test.arch))
			if err != nil {
				t.Fatal(err)
			}
			text, err := toolchain.Disassemble(t.Context(), compiler, image.Cubin)
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]bool{}
			for _, name := range regexp.MustCompile(`[HIQ]MMA\.[0-9A-Z.]+`).FindAllString(text, -1) {
				found[name] = true
			}
			for _, want := range test.products {
				n := len(found)
				for name := range found {
					if strings.HasPrefix(name, want) {
						delete(found, name)
					}
				}
				if len(found) == n {
					t.Errorf("there is no %s", want)
				}
			}
			if len(found) > 0 {
				t.Errorf("there are %v besides %v", found, test.products)
			}
		})
	}
}

// Errors of O and of the log-sum-exp against attention in float64 on the inputs before quantisation, as
// docs/accuracy.md has them.
func TestPortableAccuracy(t *testing.T) {
	for i, test := range []struct {
		stage, arch    string
		smooth, biased bool
		limit          float64 // of the relative error of O
	}{
		{"warp_d64_fp16", "sm_80", false, false, 0.001},
		{"warp_d128_fp16", "sm_80", false, false, 0.001},
		{"warp_d64_fp16", "sm_80", false, true, 0.001},
		{"warp_d64", "sm_80", false, false, 0.003},
		{"warp_d128", "sm_80", false, false, 0.003},
		{"warp_d64", "sm_80", false, true, 0.003},
		{"warp_d64_cache8", "sm_80", false, false, 0.05},
		{"warp_d128_cache8", "sm_80", false, false, 0.05},
		{"warp_d64_cache8", "sm_80", false, true, 0.5},
		{"i8f16_d64", "sm_80", true, false, 0.012},
		{"i8f16_d128", "sm_80", true, false, 0.012},
		{"i8f16_d64", "sm_80", false, false, 0.012},
		{"i8f8_d64", "sm_89", true, false, 0.038},
		{"i8f8_d128", "sm_89", true, false, 0.038},
		{"i8f8_d64", "sm_89", false, false, 0.038},
		{"f8_d64", "sm_89", false, false, 0.055},
		{"f8_d128", "sm_89", false, false, 0.055},
		{"i8f16_d64", "sm_80", true, true, 0.012},
		{"i8f8_d64", "sm_89", true, true, 0.038},
		{"i8f16_d128", "sm_80", true, true, 0.012},
		{"i8f8_d128", "sm_89", true, true, 0.038},
		{"i8f16_d64", "sm_80", false, true, 0.2},
		{"i8f8_d64", "sm_89", false, true, 0.2},
		{"f8_d64", "sm_89", false, true, 0.5},
	} {
		t.Run(fmt.Sprintf("%s/smooth=%t,biased=%t", test.stage, test.smooth, test.biased), func(t *testing.T) {
			skipUnlessSampled(t, i, sampled)
			t.Parallel()
			in := newInputs8(test.stage, test.biased)
			o, lse := in.attend(t, test.stage, test.arch, test.smooth)
			wantO, wantLSE := in.reference()
			relative, worst := 0.0, 0.0
			var square float64
			for i, want := range wantO {
				relative += (o[i] - want) * (o[i] - want)
				square += want * want
			}
			relative = math.Sqrt(relative / square)
			for i, want := range wantLSE {
				worst = max(worst, math.Abs(lse[i]-want))
			}
			t.Logf("relative error of O %.4f, largest error of the log-sum-exp %.4f", relative, worst)
			limitLSE := 2 * test.limit
			if test.biased && !test.smooth { // whose scores are of another size
				limitLSE = 20 * test.limit
			}
			if relative > test.limit || worst > limitLSE {
				t.Errorf("relative error %.4f, log-sum-exp %.4f; want at most %g and %g", relative, worst, test.limit, limitLSE)
			}
		})
	}
}

// inputs8 are two heads of 512 rows of normal numbers in BF16.
type inputs8 struct {
	dim     int
	q, k, v []float32
}

const rows8, heads8 = 512, 2

// newInputs8 draws inputs of a stage's head dim. With biases each channel of K has a bias from N(0, 100),
// as `attune accuracy --inputs biased` adds them.
func newInputs8(stage string, biased bool) *inputs8 {
	in := &inputs8{dim: 64}
	if strings.Contains(stage, "_d128") {
		in.dim = 128
	}
	source := rand.New(rand.NewPCG(8, 8))
	draw := func(biases []float64) []float32 {
		x := make([]float32, heads8*rows8*in.dim)
		for i := range x {
			value := source.NormFloat64()
			if biases != nil {
				value += biases[i%in.dim]
			}
			x[i] = half.BFloat16FromFloat32(float32(value)).Float32()
		}
		return x
	}
	var biases []float64
	if biased {
		for range in.dim {
			biases = append(biases, 10*source.NormFloat64())
		}
	}
	in.q, in.k, in.v = draw(nil), draw(biases), draw(nil)
	return in
}

// attend quantises the inputs and computes O and the log-sum-exp, both on the simulator. The f8 form is
// quantised as quantize/quantize does it.
func (in *inputs8) attend(t *testing.T, stage, arch string, smooth bool) (o, lse []float64) {
	t.Helper()
	if strings.HasPrefix(stage, "warp_") {
		return in.attendInHalves(t, stage, arch)
	}
	smoothAxis := 0
	if smooth {
		smoothAxis = 1
	}
	j := newDeclaredJobOn(t, warp8Folder, stage, arch, fmt.Sprintf(
		"batch=1,kv_heads=%d,group=1,queries=%d,keys=%d,section=1,causal=0,rows_first=0,lse=1,smooth=%d,q_max=100,k_max=100,v_max=1,spread=1",
		heads8, rows8, rows8, smoothAxis))
	j.arg("softmax_scale").Scalar = words([]float32{float32(1 / math.Sqrt(float64(in.dim)))})
	if strings.HasPrefix(stage, "f8") {
		for name, x := range map[string][]float32{"q": in.q, "k": in.k, "v": in.v} {
			j.arg(name).Input, j.arg("descale_" + name).Input = in.e4m3(x)
		}
	} else {
		outputs := in.quantize(t, smooth)
		for i, name := range []string{"q_s8", "k_s8", "v", "descale_q", "descale_k", "descale_v", "", "q_dot_mean"} {
			if name == "" || name == "q_dot_mean" && !smooth {
				continue
			}
			if strings.HasPrefix(stage, "i8f16") && (name == "v" || name == "descale_v") {
				continue
			}
			j.arg(name).Input = outputs[i]
		}
		if strings.HasPrefix(stage, "i8f16") {
			j.arg("v").Input = bfloats(in.v)
		}
	}
	outputs := j.run(t)
	return half.DecodeBFloat16(outputs[0]), decodeFloats(outputs[1])
}

// attendInHalves computes O and the log-sum-exp by the warp kernel, over a cache in E4M3 if the stage has one.
func (in *inputs8) attendInHalves(t *testing.T, stage, arch string) (o, lse []float64) {
	t.Helper()
	j := newDeclaredJobOn(t, "attention/warp", stage, arch, fmt.Sprintf(
		"batch=1,kv_heads=%d,group=1,queries=%d,keys=%d,section=1,causal=0,rows_first=0,lse=1,q_max=100,k_max=100,v_max=1,spread=1,splits=1,options=0,"+
			"left=0,right=0,packed=0,packed_keys=0,pages=0,page_size=64,lengths=0,sinks=0,softcap=0,dim=128,v_dim=128,alibi=0,tree=0", heads8, rows8, rows8))
	j.arg("softmax_scale").Scalar = words([]float32{float32(1 / math.Sqrt(float64(in.dim)))})
	fp16 := strings.HasSuffix(stage, "_fp16")
	for name, x := range map[string][]float32{"q": in.q, "k": in.k, "v": in.v} {
		switch {
		case strings.Contains(stage, "_cache8") && name != "q":
			j.arg(name).Input, j.arg("descale_" + name).Input = in.e4m3(x)
		case fp16:
			j.arg(name).Input = halves(x)
		default:
			j.arg(name).Input = bfloats(x)
		}
	}
	outputs := j.run(t)
	if fp16 {
		return half.DecodeFloat16(outputs[0]), decodeFloats(outputs[1])
	}
	return half.DecodeBFloat16(outputs[0]), decodeFloats(outputs[1])
}

func halves(values []float32) []byte {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint16(data, uint16(half.Float16FromFloat32(v)))
	}
	return data
}

func decodeFloats(data []byte) (values []float64) {
	for i := range len(data) / 4 {
		values = append(values, float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))))
	}
	return values
}

// quantize returns the outputs of quantize8: Q, K, V, their factors, the means of K, and q · mean.
func (in *inputs8) quantize(t *testing.T, smooth bool) [][]byte {
	t.Helper()
	const heads, rows = heads8, rows8
	job := device.Job{Grid: [3]int{8, 1, 1}, Block: [3]int{256, 1, 1}, Cooperative: true}
	job.Args = []device.Arg{device.In(bfloats(in.q)), device.In(bfloats(in.k)), device.In(bfloats(in.v))}
	for range 3 {
		job.Args = append(job.Args, device.Out(heads*rows*in.dim))
	}
	flag, null := int32(0), device.Arg{Scalar: make([]byte, 8)}
	job.Args = append(job.Args, device.Out(4*heads*rows/4), device.Out(4*heads*rows/16), device.Out(4*heads*in.dim))
	if smooth {
		flag = 1
		job.Args = append(job.Args, device.Out(4*heads*in.dim), device.Out(4*heads*rows))
	} else {
		job.Args = append(job.Args, null, null)
	}
	job.Args = append(job.Args, device.Arg{Scratch: 4 * (4 + 2*heads*in.dim*(1+rows/128))})
	for range 3 {
		job.Args = append(job.Args, int64s(heads*rows*in.dim, rows*in.dim, in.dim)...)
	}
	job.Args = append(job.Args, int32s(1, heads, heads, rows, rows, int32(in.dim), 1, flag)...)
	return launch(t, "quantize8", "quantize8_v", job)
}

// e4m3 is x in E4M3 with a factor for each head.
func (in *inputs8) e4m3(x []float32) (codes, factors []byte) {
	size := len(x) / heads8
	for head := range heads8 {
		var amax float32
		for _, value := range x[head*size:][:size] {
			amax = max(amax, max(value, -value))
		}
		for _, value := range x[head*size:][:size] {
			codes = append(codes, byte(fp8.E4M3FromFloat32(value*(448/amax))))
		}
		factors = append(factors, words([]float32{amax / 448})...)
	}
	return codes, factors
}

// reference computes O and the log-sum-exp in float64.
func (in *inputs8) reference() (o, lse []float64) {
	o = make([]float64, len(in.q))
	weights := make([]float64, rows8)
	for head := range heads8 {
		first := head * rows8 * in.dim
		for row := range rows8 {
			q, top, sum := in.q[first+row*in.dim:][:in.dim], math.Inf(-1), 0.0
			for key := range rows8 {
				k, score := in.k[first+key*in.dim:][:in.dim], 0.0
				for i := range q {
					score += float64(q[i]) * float64(k[i])
				}
				weights[key] = score / math.Sqrt(float64(in.dim))
				top = max(top, weights[key])
			}
			for key := range rows8 {
				weights[key] = math.Exp(weights[key] - top)
				sum += weights[key]
			}
			to := o[first+row*in.dim:][:in.dim]
			for key := range rows8 {
				v := in.v[first+key*in.dim:][:in.dim]
				for i := range to {
					to[i] += weights[key] / sum * float64(v[i])
				}
			}
			lse = append(lse, top+math.Log(sum))
		}
	}
	return o, lse
}
