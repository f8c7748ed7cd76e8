package propose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/lab"
	"attune/internal/patch"
	"attune/internal/rotate"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/internal/tuner"
)

// victim is a kernel in a folder of its own. It does more work than it needs to, so that an honest
// patch is better.
var victim = map[string]string{
	"kernel.toml": `
name = "victim"
archs = ["sm_80"]
[shapes]
small = { n = 300 }
large = { n = 1000 }
[[arg]]
name = "x"
type = "f32"
shape = ["n"]
[[arg]]
name = "y"
type = "f32"
shape = ["n"]
out = true
[[arg]]
name = "n"
type = "i32"
value = "n"
[launch]
grid = ["(n + THREADS - 1) // THREADS"]
block = ["THREADS"]
[reference]
source = "naive.cu"
entry = "naive"
[[knob]]
name = "THREADS"
values = [64, 128]
default = 128
`,
	"victim.cu": `#include "scale.cuh"
extern "C" __global__ void victim(const float* x, float* y, int n) {
  const int i = blockIdx.x * THREADS + threadIdx.x;
  // begin
  __shared__ float values[THREADS];
  float value = i < n ? x[i] : 0;
#pragma unroll 1
  for (int round = 0; round < 64; round++) {
    values[threadIdx.x] = value;
    __syncthreads();
    value = values[threadIdx.x];
    __syncthreads();
  }
  if (i < n) y[i] = scaled(value);
  // end
}
`,
	"scale.cuh": "__device__ inline float scaled(float x) { return 3 * x + 1; }\n",
	"naive.cu": `#include "scale.cuh"
extern "C" __global__ void naive(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = scaled(x[i]);
}
`,
	"notes.txt": "notes\n",
}

// body is a diff that replaces the body of the kernel, and puts text before it.
func body(before, text string) string {
	source := victim["victim.cu"]
	head, rest, _ := strings.Cut(source, "  // begin\n")
	old, _, _ := strings.Cut(rest, "  // end\n")
	include, signature, _ := strings.Cut(head, "\n")
	changed := strings.Split(include+"\n"+before+signature+"  // begin\n"+text, "\n")
	was := strings.Split(include+"\n"+signature+"  // begin\n"+old, "\n")
	changed, was = changed[:len(changed)-1], was[:len(was)-1]
	diff := fmt.Sprintf("--- a/victim.cu\n+++ b/victim.cu\n@@ -1,%d +1,%d @@\n", len(was), len(changed))
	for _, line := range was {
		diff += "-" + line + "\n"
	}
	for _, line := range changed {
		diff += "+" + line + "\n"
	}
	return diff
}

const (
	honest = "  if (i < n) y[i] = scaled(x[i]);\n"
	noSkip = ") y[i] = scaled(x[i]);\n"
)

// hostile are patches that none of the gates may let through, and what each must be refused for.
var hostile = []struct{ name, diff, want string }{
	{"counts launches", body("__device__ int launches;\n", "  if (i < n && atomicAdd(&launches, 1) < 100000"+noSkip), "incorrect: module-memory"},
	{"caches by a hash of the inputs", body("__device__ float cached[4096];\n__device__ unsigned seen;\n",
		"  const unsigned hash = __float_as_uint(x[0]) ^ n;\n  if (i < n) y[i] = seen == hash ? cached[i] : (cached[i] = scaled(x[i]));\n  seen = hash;\n"), "incorrect: module-memory"},
	{"skips if the output is right", body("", "  if (i < n && y[i] != scaled(x[i])"+noSkip), "incorrect: output-read"},
	{"skips by the clock", body("", "  if (i < n && clock64() % 2 == 0"+noSkip), "incorrect: clock"},
	{"skips by the launch", body("", "  unsigned long long id;\n  asm volatile(\"mov.u64 %0, %%gridid;\" : \"=l\"(id));\n  if (i < n && id < 9"+noSkip), "incorrect: launch-id"},
	{"leaves shared memory", body("", "  __shared__ float left[THREADS];\n  if (i < n) y[i] = left[threadIdx.x] == 7 ? 7 : scaled(x[i]);\n"), "uninitialized"},
	{"writes nothing", body("", "  (void)i;\n"), "incorrect: "},
	{"is wrong", body("", "  if (i < n) y[i] = 3 * x[i];\n"), "incorrect: "},
	{"is right on small shapes", body("", "  if (i < n && n < 500"+noSkip), "incorrect: "},
	{"changes its input", body("", "  if (i < n) {\n    y[i] = scaled(x[i]);\n    const_cast<float*>(x)[i] = 0;\n  }\n"), "input-changed"},
	{"writes behind the end", body("", "  if (i < n) y[i] = scaled(x[i]);\n  y[n + i] = 0;\n"), "out-of-bounds"},
	{"never ends", body("", "  while (atomicAdd(y, 0.0f) != 12345) __nanosleep(1);\n"), ": "},
	{"does not compile", body("", "  nonsense;\n"), "compile: "},
	{"has no entry", strings.ReplaceAll(body("", honest), "+extern \"C\" __global__ void victim", "+extern \"C\" __global__ void victor"), "compile: "},
	{"has other parameters", strings.ReplaceAll(body("", honest), "+extern \"C\" __global__ void victim(const float* x,", "+extern \"C\" __global__ void victim(double z, const float* x,"), "compile: "},
	{"makes itself the reference", "--- naive.cu\n+++ naive.cu\n@@ -4 +4 @@\n-  if (i < n) y[i] = scaled(x[i]);\n+  if (i < n) y[i] = 0;\n", "naive.cu is the reference"},
	{"changes a header of the reference", "--- scale.cuh\n+++ scale.cuh\n@@ -1 +1 @@\n-" + victim["scale.cuh"] + "+__device__ inline float scaled(float x) { return 0; }\n", "incorrect: "},
	{"changes the tolerance", "--- kernel.toml\n+++ kernel.toml\n@@ -2 +2 @@\n-name = \"victim\"\n+tolerance = 9\n", "kernel.toml is the declaration"},
	{"leaves the folder", "--- a/../outside.cuh\n+++ b/../outside.cuh\n@@ -1 +1 @@\n-x\n+y\n", "does not name a file of the kernel's folder"},
	{"writes an absolute path", "--- /dev/null\n+++ /tmp/attune-hostile.cuh\n@@ -0,0 +1 @@\n+x\n", "is absolute"},
	{"follows a link", "--- link.cuh\n+++ link.cuh\n@@ -1 +1 @@\n-notes\n+x\n", "link.cuh is not read by the build"},
	{"creates below a link", "--- /dev/null\n+++ b/linked/x.cuh\n@@ -0,0 +1 @@\n+x\n", "linked is a link"},
	{"includes a secret", body("#include </etc/passwd>\n", honest), `#include "</etc/passwd>" is refused`},
	{"is huge", body("// "+strings.Repeat("x", 70000)+"\n", honest), "at most 65536 are accepted"},
	{"is garbage", "\x00\x01\x02", "binary"},
}

// makeVictim writes the victim and returns its folder and a digest of all files.
func makeVictim(t *testing.T) (string, func() string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "victim")
	err := os.Mkdir(dir, 0o755)
	for name, text := range victim {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	err = errors.Join(err, os.Symlink("notes.txt", filepath.Join(dir, "link.cuh")), os.Symlink(t.TempDir(), filepath.Join(dir, "linked")))
	if err != nil {
		t.Fatal(err)
	}
	return dir, func() string {
		var all strings.Builder
		err := filepath.WalkDir(filepath.Dir(dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				var text []byte
				text, err = os.ReadFile(path)
				all.Write(text)
			}
			fmt.Fprintln(&all, path, d.Type())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all.String()
	}
}

// newLab is a lab for a kernel's folder on the simulator.
func newLab(t *testing.T, dir string) *lab.Lab {
	t.Helper()
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := toolchain.Find(t.Context(), cacheDir)
	if err != nil {
		t.Skipf("needs NVIDIA's compiler: %v", err)
	}
	folder := toolchain.Folder(dir)
	kernel, err := spec.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	builder := toolchain.NewBuilder(folder, compiler, cacheDir)
	builder.Dir = dir
	o := simdevice.Options{Checks: true, Limit: 5 * time.Second}
	open := func(context.Context) (device.Device, error) { return simdevice.Open(o), nil }
	simulator := lab.Simulator(simdevice.Open(o).Facts(), open, run.Simulation{Schedules: 1, Checks: true, Tensor: run.ExactTensor})
	return &lab.Lab{Kernel: kernel, Builder: builder, Device: simulator, ReferenceLimit: time.Minute}
}

// search tunes the victim with a program that gives the answers. It returns the record of the search,
// its evaluations and the proposals.
func search(t *testing.T, l *lab.Lab, folder string, resume bool, answers ...string) (*run.Tuning, []run.TuneEvaluation, []event) {
	t.Helper()
	shapes, err := l.Kernel.Shapes("large")
	if err != nil {
		t.Fatal(err)
	}
	small, err := l.Kernel.Shapes("small")
	if err != nil {
		t.Fatal(err)
	}
	r := tuner.Request{
		Variant: l.Kernel.Stages[0].Variant(), Shapes: shapes, Small: small, Seeds: []uint64{0}, Folder: folder, Resume: resume,
		Budget: tuner.Budget{Evaluations: 60}, Processes: 1,
	}
	part, err := ForLab(l, r, Options{Command: program(t, "say", answers...), Note: func(text string) { t.Log(text) }})
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	r.Proposer = part
	var all []run.TuneEvaluation
	result, err := tuner.Search(t.Context(), l, r, func(e run.TuneEvaluation) {
		all = append(all, e)
		if err := part.Done(e); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatalf("the search failed: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(folder, RecordFile))
	if err != nil {
		t.Fatal(err)
	}
	var events []event
	for line := range strings.Lines(string(text)) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return result, all, events
}

// answer is the answer with some patches.
func patchAnswer(diffs ...string) string {
	var all []map[string]string
	for _, diff := range diffs {
		all = append(all, map[string]string{"diff": diff})
	}
	return strings.TrimSuffix(string(encode(map[string]any{"type": "proposals", "patches": all})), "\n")
}

// No hostile patch gets a cost or becomes the best, the honest one does, and the kernel's folder is
// what it was. A third of the patches is proposed in each turn.
func TestHostileProposer(t *testing.T) {
	if testing.Short() {
		t.Skip("builds dozens of kernels")
	}
	dir, digest := makeVictim(t)
	l := newLab(t, dir)
	before := digest()
	hostile := slices.Clone(hostile)
	for i := len(hostile) - 1; i >= 0; i-- {
		if due, err := rotate.Due(i, 3); err != nil {
			t.Fatal(err)
		} else if !due {
			hostile = slices.Delete(hostile, i, i+1)
		}
	}
	answers := []string{
		`{"type":"proposals","variants":[{"knobs":{"THREADS":64}},{"knobs":{"THREADS":63}},{"knobs":{"THREAD":64}},{"patch":3},7]}`,
	}
	for group := range slices.Chunk(hostile, 4) {
		var diffs []string
		for _, h := range group {
			diffs = append(diffs, h.diff)
		}
		answers = append(answers, patchAnswer(diffs...))
	}
	answers = append(answers, patchAnswer(body("", honest)), `{"type":"done"}`)
	folder := t.TempDir()
	result, all, events := search(t, l, folder, false, answers...)
	if digest() != before {
		t.Error("the folder of the kernel has changed")
	}
	reasons := map[int]string{} // by proposal
	for _, e := range events {
		if e.Message == "result" || e.Message == "refused" {
			reasons[e.Proposal] = e.Stage + ": " + e.Reason
		}
		if e.Message == "result" && e.Patch != 0 && (e.Cost != 0 || e.Best) != strings.HasPrefix(e.Stage, "measured") {
			t.Errorf("%+v", e)
		}
	}
	const first = 6 // proposal of the first patch: there were five variants
	for i, h := range hostile {
		if got := reasons[first+i]; !strings.Contains(got, h.want) || strings.HasPrefix(got, "measured") {
			t.Errorf("%s: %q; want %q", h.name, got, h.want)
		}
	}
	if got := reasons[first+len(hostile)]; !strings.HasPrefix(got, "measured") {
		t.Errorf("the honest patch: %s", got)
	}
	for _, e := range all {
		if e.Patch != "" && e.OK() && e.Origin != fmt.Sprintf("proposal %d", first+len(hostile)) {
			t.Errorf("%s of %s has the cost %v", e.Name(), e.Origin, *e.Cost)
		}
	}
	kept, err := os.ReadFile(filepath.Join(folder, result.Best.Patch))
	if err != nil || !result.Faster || string(kept) != body("", honest) {
		t.Errorf("the best is %+v; %q, %v", result.Best, kept, err)
	}
	if _, err := patch.Parse(kept); err != nil {
		t.Error(err)
	}
}

// A search goes on without a program that only breaks the protocol.
func TestSearchWithoutItsProposer(t *testing.T) {
	if testing.Short() {
		t.Skip("builds kernels")
	}
	dir, digest := makeVictim(t)
	before := digest()
	result, all, events := search(t, newLab(t, dir), t.TempDir(), false, "garbage")
	if result.Evaluations != 2 || len(all) != 2 || result.Ended != "every variant was evaluated" || len(events) != 3 || !events[2].Stopped || digest() != before {
		t.Errorf("%d evaluations, %s; %+v", result.Evaluations, result.Ended, events)
	}
}

// A resumed search knows its patched kernels: the best one is in the finals again.
func TestResumedPatches(t *testing.T) {
	if testing.Short() {
		t.Skip("builds kernels")
	}
	dir, _ := makeVictim(t)
	l := newLab(t, dir)
	folder := t.TempDir()
	first, _, _ := search(t, l, folder, false, patchAnswer(body("", honest)), `{"type":"done"}`)
	second, all, events := search(t, l, folder, true, `{"type":"proposals","variants":[{"patch":1,"knobs":{"THREADS":64}}]}`, `{"type":"done"}`)
	if first.Best.Patch != "patch-1.diff" || second.Best.Patch != first.Best.Patch || len(all) != 1 || all[0].Name() != "victim+THREADS=64 with patch-1.diff" {
		t.Errorf("%+v\n%+v\n%+v", first.Best, second.Best, all)
	}
	if last := events[len(events)-1]; last.Message != "done" || last.Round <= events[0].Round {
		t.Errorf("%+v", events)
	}
}
