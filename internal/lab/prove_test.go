package lab

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"attune/internal/spec"
	"attune/internal/toolchain"
)

// knobbed is a kernel with a knob for every fate.
func knobbed() fstest.MapFS {
	return fstest.MapFS{
		"knobbed.cu": {Data: []byte(`
extern "C" __device__ const unsigned attune_launch[3] = {THREADS, 1, 0};

extern "C" __global__ void knobbed(float* out, const float* x) {
  float sum = x[threadIdx.x];
#if SQUARE
  for (int i = 0; i < TIMES; ++i) sum *= sum;
#endif
  if (FORGOTTEN > 100) sum = 0;  // no value of the knob is that large
  out[threadIdx.x] = sum + DEEP + BOUND;
}
`)},
		spec.File: {Data: []byte(knobbedSpec)},
	}
}

const knobbedSpec = `
name = "knobbed"
about = "knobs that reach the code, and one that does not"
knob = [
  { name = "THREADS", layer = "micro", values = [32, 64], default = 32, about = "of a block" },
  { name = "SQUARE", layer = "macro", values = [0, 1], default = 0, about = "the sum is squared" },
  { name = "TIMES", layer = "micro", values = [1, 3], default = 1, about = "how often" },
  { name = "FORGOTTEN", layer = "micro", values = [0, 1, 2], default = 0, about = "no effect" },
  { name = "DEEP", layer = "micro", values = [0, 1], default = 0, about = "only with both others" },
  { name = "BOUND", layer = "micro", values = [0, 1], default = 0, about = "goes with the threads" },
  { name = "FIXED", layer = "micro", values = [7], default = 7, about = "no choice" },
]
constraint = [
  { rule = "not DEEP or SQUARE and TIMES == 3", why = "it needs both" },
  { rule = "BOUND == (THREADS == 64 and 1 or 0)", why = "it follows the threads" },
]
stage = [
  { name = "plain", source = "knobbed.cu", hypothesis = "h", error_share = 0.05, archs = ["sm_80", "sm_89"],
    budget = { registers = 128, shared_bytes = 0, spill_bytes = 0 } },
  { name = "square", source = "knobbed.cu", knobs = { SQUARE = 1 }, hypothesis = "h", error_share = 0.05, archs = ["sm_89"],
    budget = { registers = 128, shared_bytes = 0, spill_bytes = 0 } },
]
shapes = [{ name = "tiny", problems = ["1x1x1x64"] }]
run = { shapes = ["tiny"], benchmark = ["tiny"], seeds = [0] }
tolerance = { max_err = 0.06, mean_err = 0.02, atol = 0.06, rtol = 0.06, bad_fraction = 0.01 }
`

// newProver is a lab with the compiler.
func newProver(t *testing.T, folder fs.FS) *Lab {
	t.Helper()
	c, cacheDir := compiler(t)
	if c == nil {
		t.Skip(needsCompiler)
	}
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return &Lab{Kernel: kernel, Builder: toolchain.NewBuilder(folder, c, cacheDir)}
}

// written is a proof as lines: the fate of each knob, and the effect of each value.
func written(p *Proof) []string {
	var lines []string
	for _, k := range p.Knobs {
		lines = append(lines, k.Knob+" "+string(k.Fate))
		for _, v := range k.Values {
			line := " " + spec.Setting{Knob: k.Knob, Value: v.Value}.String()
			for _, part := range []struct {
				what string
				in   []string
			}{{"own", v.Own}, {"alive", v.Alive}, {"equal", v.Equal}, {"not allowed", v.NotAllowed}, {"broken", v.Broken}} {
				if len(part.in) > 0 {
					line += "; " + part.what + " " + strings.Join(part.in, " ")
				}
			}
			lines = append(lines, line)
		}
	}
	return lines
}

func TestProve(t *testing.T) {
	t.Parallel()
	l := newProver(t, knobbed())
	var steps []Progress
	l.Progress = func(p Progress) { steps = append(steps, p) }
	proof, err := l.Prove(t.Context(), ProofRequest{Arch: "sm_89"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"THREADS untried", " THREADS=32; own plain square", " THREADS=64; not allowed plain square",
		"SQUARE alive", " SQUARE=0; own plain; alive square", " SQUARE=1; own square; alive plain",
		"TIMES alive", " TIMES=1; own plain square", " TIMES=3; alive square; equal plain",
		"FORGOTTEN dead", " FORGOTTEN=0; own plain square", " FORGOTTEN=1; equal plain square", " FORGOTTEN=2; equal plain square",
		// No stage allows it alone, so it is tried on variants of the covering set.
		"DEEP alive", " DEEP=0; own plain square; alive square+TIMES=3+DEEP=1 square+THREADS=64+TIMES=3+FORGOTTEN=1+DEEP=1+BOUND=1",
		" DEEP=1; alive square+TIMES=3 square+THREADS=64+TIMES=3+FORGOTTEN=1+BOUND=1; not allowed plain square",
		"BOUND untried", " BOUND=0; own plain square", " BOUND=1; not allowed plain square",
		"FIXED untried", " FIXED=7; own plain square",
	}
	if diff := cmp.Diff(want, written(proof)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !proof.Failed() {
		t.Error("a dead knob is no failure")
	}
	if last := steps[len(steps)-1]; last.Done != len(steps)-1 || last.Total != len(steps) {
		t.Errorf("%d steps, the last %+v", len(steps), last)
	}
}

// In brief, a knob is not tried further once it is alive. A dead knob needs all tries.
func TestProveInBrief(t *testing.T) {
	t.Parallel()
	l := newProver(t, knobbed())
	tried := 0
	l.Progress = func(Progress) { tried++ }
	proof, err := l.Prove(t.Context(), ProofRequest{Arch: "sm_89", Brief: true})
	if err != nil {
		t.Fatal(err)
	}
	var fates []Fate
	for _, k := range proof.Knobs {
		fates = append(fates, k.Fate)
	}
	if diff := cmp.Diff([]Fate{Untried, Alive, Alive, Dead, Alive, Untried, Untried}, fates); diff != "" {
		t.Error(diff)
	}
	if tried != 1+2+4+1 { // of SQUARE, TIMES, FORGOTTEN and DEEP
		t.Errorf("%d changes were tried", tried)
	}
}

// Only stages for the architecture are tried.
func TestProveForAnArch(t *testing.T) {
	t.Parallel()
	l := newProver(t, knobbed())
	proof, err := l.Prove(t.Context(), ProofRequest{Arch: "sm_80"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(" SQUARE=1; alive plain", written(proof)[5]); diff != "" {
		t.Error(diff)
	}
	_, err = l.Prove(t.Context(), ProofRequest{Arch: "sm_90a"})
	var refused RequestError
	if !errors.As(err, &refused) {
		t.Errorf("an architecture that no stage is for: %v", err)
	}
}

func TestProveWhatDoesNotCompile(t *testing.T) {
	t.Parallel()
	folder := knobbed()
	text := strings.Replace(string(folder["knobbed.cu"].Data), "sum *= sum;", "sum *= sum;\n#if TIMES == 3\n  no C++;\n#endif", 1)
	folder["knobbed.cu"] = &fstest.MapFile{Data: []byte(strings.Replace(text, "FORGOTTEN > 100", "FORGOTTEN > 1", 1))}
	proof, err := newProver(t, folder).Prove(t.Context(), ProofRequest{Arch: "sm_89"})
	if err != nil {
		t.Fatal(err)
	}
	times, forgotten := proof.Knobs[2], proof.Knobs[3]
	if times.Fate != Dead && times.Fate != Untried || len(times.Values[1].Broken) == 0 || !proof.Failed() {
		t.Errorf("%+v", times)
	}
	if diff := cmp.Diff([]string{"plain", "square"}, forgotten.Values[2].Alive); diff != "" {
		t.Error(diff)
	}
}

func TestProveInterrupted(t *testing.T) {
	t.Parallel()
	folder := knobbed()
	l := newProver(t, folder)
	l.Builder = toolchain.NewBuilder(folder, mustCompiler(t), t.TempDir()) // an empty cache
	ctx, cancel := context.WithCancel(t.Context())
	l.Progress = func(Progress) { cancel() }
	if _, err := l.Prove(ctx, ProofRequest{Arch: "sm_89"}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted after the first build: %v", err)
	}
}

func mustCompiler(t *testing.T) *toolchain.Compiler {
	t.Helper()
	c, _ := compiler(t)
	return c
}

func TestProveWithoutACompiler(t *testing.T) {
	t.Parallel()
	folder := knobbed()
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	l := &Lab{Kernel: kernel, Builder: toolchain.NewBuilder(folder, nil, t.TempDir())}
	if _, err := l.Prove(t.Context(), ProofRequest{}); !errors.Is(err, toolchain.ErrNoCompiler) {
		t.Errorf("without a compiler: %v", err)
	}
}
