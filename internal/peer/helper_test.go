package peer

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attune/internal/child/childtest"
	"attune/internal/problem"
	"attune/internal/tensor"
)

// behaviourVariable makes this test binary a fake python3 with the behaviour of that name.
const behaviourVariable = "PEER_TEST_BEHAVIOUR"

func TestMain(m *testing.M) {
	b := behaviours[os.Getenv(behaviourVariable)]
	if b == nil {
		os.Setenv("GORACE", "atexit_sleep_ms=0") // else each child waits 1 s when it exits
		os.Exit(m.Run())
	}
	serve(b)
}

// numbered is a request as it is on the pipe.
type numbered struct {
	ID int `json:"id"`
	request
}

// behaviour returns the response to a request, or nil if it has written to out or does not respond.
type behaviour func(r numbered, out *os.File) map[string]any

var behaviours = map[string]behaviour{
	"good": good,
	"garbage": func(_ numbered, out *os.File) map[string]any {
		fmt.Fprintln(out, "\x1b[31mTraceback\x00 (most recent call last):")
		return nil
	},
	"two values": func(r numbered, out *os.File) map[string]any {
		fmt.Fprintf(out, `{"id": %d} {"id": %d}`+"\n", r.ID, r.ID)
		return nil
	},
	"wrong ID": func(r numbered, _ *os.File) map[string]any { r.ID += 7; return good(r, nil) },
	"endless":  func(_ numbered, out *os.File) map[string]any { return endless(out) },
	"no facts": func(numbered, *os.File) map[string]any { return map[string]any{} },
	"no GPU": func(numbered, *os.File) map[string]any {
		return map[string]any{"facts": map[string]any{"torch": "2.11"}}
	},
	"hangs": func(numbered, *os.File) map[string]any { hang(); return nil },
	"dies": func(numbered, *os.File) map[string]any {
		fmt.Fprintln(os.Stderr, "Traceback:\nMemoryError: out of memory")
		os.Exit(3)
		return nil
	},
	"dies midway": on("sample", func(numbered) map[string]any {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		hang()
		return nil
	}),
	"hangs midway": on("sample", func(numbered) map[string]any { note("sampling", "now"); hang(); return nil }),
	"has a child": on("sample", func(numbered) map[string]any {
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err != nil {
			panic(err)
		}
		note("child", strconv.Itoa(child.Process.Pid))
		hang()
		return nil
	}),
	"rejects": on("prepare", func(numbered) map[string]any {
		return map[string]any{"error": "No available\nkernel.", "do": "use another"}
	}),
	"NaN":           on("sample", seconds("NaN")),
	"a NaN in JSON": on("sample", seconds(math.NaN())),
	"null":          on("sample", seconds(nil)),
	"zero":          on("sample", seconds(0)),
	"negative":      on("sample", seconds(-1e-6)),
	"milliseconds":  on("sample", seconds(1e3)),
	"few":           on("sample", func(numbered) map[string]any { return map[string]any{"seconds": []float64{1e-6}} }),
	"wrong shape": on("output", func(r numbered) map[string]any {
		response := good(r, nil)
		response["shape"] = []int{1, 1, 1, 1}
		return response
	}),
	"short output": on("output", func(r numbered) map[string]any {
		response := good(r, nil)
		if err := os.WriteFile(r.Files["output"], []byte{1, 2, 3}, 0o600); err != nil {
			panic(err)
		}
		return response
	}),
	"no output": on("output", func(numbered) map[string]any { return map[string]any{"shape": []int{1, 2, 3, 4}} }),
}

// on is the good behaviour except for one operation.
func on(op string, respond func(numbered) map[string]any) behaviour {
	return func(r numbered, out *os.File) map[string]any {
		if r.Op == op {
			return respond(r)
		}
		return good(r, out)
	}
}

func seconds(value any) func(numbered) map[string]any {
	return func(r numbered) map[string]any {
		all := make([]any, r.Samples)
		for i := range all {
			all[i] = value
		}
		return map[string]any{"seconds": all}
	}
}

// prepared is the last request to prepare.
var prepared numbered

// good responds correctly to every request. Its output is a copy of Q.
func good(r numbered, _ *os.File) map[string]any {
	switch r.Op {
	case "hello":
		return map[string]any{"facts": map[string]any{
			"python": "3.12.1", "torch": "2.11.0", "cuda": "13.0", "cudnn": "9.19.0", "gpu": fmt.Sprintf("A\nGPU %d", r.Device),
			"missing": map[string]string{"fa3-fp8": "no such\nmodule"},
		}}
	case "prepare":
		prepared = r
	case "output":
		data, err := os.ReadFile(prepared.Files["q"])
		if err == nil {
			err = os.WriteFile(r.Files["output"], data, 0o600)
		}
		if err != nil {
			panic(err)
		}
		s := prepared.Shape
		return map[string]any{"shape": []int{s[0], s[1], s[2], s[4]}}
	case "sample":
		time.Sleep(time.Millisecond)
		return seconds(1e-6 / float64(prepared.Launches))(r)
	}
	return map[string]any{}
}

// serve is the main function of a fake python3. It ignores the program on standard input.
func serve(b behaviour) {
	in, out := json.NewDecoder(os.NewFile(3, "requests")), os.NewFile(4, "responses")
	for {
		var r numbered
		if err := in.Decode(&r); err != nil {
			os.Exit(0)
		}
		response := b(r, out)
		if response == nil {
			continue
		}
		if response["id"] = r.ID; os.Getenv(behaviourVariable) == "wrong ID" {
			response["id"] = r.ID + 7
		}
		line, err := json.Marshal(response)
		if err != nil { // Python writes NaN, which is not JSON
			line = []byte(fmt.Sprintf(`{"id": %d, "seconds": [NaN]}`, r.ID))
		}
		fmt.Fprintf(out, "%s\n", line)
	}
}

func endless(out *os.File) map[string]any {
	for {
		if _, err := fmt.Fprint(out, strings.Repeat("x", 1<<16)); err != nil {
			os.Exit(1)
		}
	}
}

func hang() { time.Sleep(time.Hour) }

// note writes a file for the test, which sees it whole or not at all.
func note(name, text string) {
	if err := errors.Join(os.WriteFile(name+".part", []byte(text), 0o600), os.Rename(name+".part", name)); err != nil {
		panic(err)
	}
}

// short is the limit of a response that never comes. Every other response has a minute, because a
// loaded machine may take longer than this to start a process.
const short = 300 * time.Millisecond

// start starts a fake helper. Only one that does not start gets the short limit.
func start(t *testing.T, name string) (*Helper, error) {
	t.Helper()
	limit := time.Minute
	if name == "hangs" {
		limit = short
	}
	return startWithin(t, name, limit)
}

func startWithin(t *testing.T, name string, limit time.Duration) (*Helper, error) {
	t.Helper()
	t.Setenv(behaviourVariable, name)
	t.Setenv("TMPDIR", t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Start(t.Context(), Options{Python: self, Device: 1, Limit: limit})
}

func started(t *testing.T, name string) *Helper {
	t.Helper()
	h, err := start(t, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func newInputs(t *testing.T, text string) *tensor.Inputs {
	t.Helper()
	shape, err := tensor.ParseShape(text)
	if err != nil {
		t.Fatal(err)
	}
	return tensor.Draw(shape, 3, tensor.Options{})
}

func attention(in *tensor.Inputs) problem.PeerData { return problem.PeerData{Attention: in} }

var flash = Peer{Kind: "torch-flash", DType: "fp16"}

func TestGoodHelper(t *testing.T) {
	h := started(t, "good")
	want := Facts{
		Python: "3.12.1", Torch: "2.11.0", CUDA: "13.0", CuDNN: "9.19.0", GPU: "A GPU 1", Missing: map[string]string{"fa3-fp8": "no such module"},
	}
	if diff := cmp.Diff(want, h.Facts()); diff != "" {
		t.Error(diff)
	}
	in := newInputs(t, "1x2x3x4")
	for range 2 { // a peer may be prepared twice
		if err := h.Prepare(t.Context(), flash, attention(in), Graph{50, 2}); err != nil {
			t.Fatal(err)
		}
	}
	output, err := h.Output(t.Context(), flash)
	if err != nil {
		t.Fatal(err)
	}
	var dequantized []float64
	for head := range in.Q.Descale {
		values := make([]float64, 12)
		in.Q.Dequantize(values, head, 0)
		for _, x := range values {
			dequantized = append(dequantized, float64(float32(x)))
		}
	}
	if diff := cmp.Diff(map[string][]float64{"o": dequantized}, output); diff != "" {
		t.Errorf("the output is not the dequantised Q: %s", diff)
	}
	samples, err := h.Sample(t.Context(), flash, 3, Pace{})
	if err != nil || len(samples) != 3 || samples[0] != 1e-6/50 {
		t.Errorf("got %v, %v; want 3 samples", samples, err)
	}
	if err := h.Release(t.Context()); err != nil || h.Lost() {
		t.Errorf("got %v, lost %t", err, h.Lost())
	}
	folder := h.folder
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is not deleted: %v", err)
	}
}

// Codes and descale factors are written too, for peers that support E4M3.
func TestFilesForE4M3(t *testing.T) {
	h := started(t, "good")
	in := newInputs(t, "2x1x3x4:kv=5")
	if err := h.Prepare(t.Context(), flash, attention(in), Graph{1, 2}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"q_codes": in.Q.Codes, "k_codes": in.K.Codes, "v_codes": in.V.Codes, "v_descale": bytesOf(in.V.Descale)} {
		got, err := os.ReadFile(filepath.Join(h.folder, name))
		if err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s contains % x, %v; want % x", name, got, err, want)
		}
	}
	if first := math.Float32frombits(binary.LittleEndian.Uint32(bytesOf(in.V.Descale))); first != in.V.Descale[0] {
		t.Errorf("got %g; want %g", first, in.V.Descale[0])
	}
}

// Inputs are written once for all peers and for both masks. Other inputs replace them and get a new
// version.
func TestInputsAreWrittenOnce(t *testing.T) {
	h := started(t, "good")
	check := func(in *tensor.Inputs, version int) {
		t.Helper()
		if err := h.Prepare(t.Context(), flash, attention(in), Graph{1, 2}); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(h.folder, "k_codes"))
		if err != nil || !cmp.Equal(in.K.Codes, got) || h.version != version {
			t.Errorf("version %d, want %d; codes of K are correct: %t, %v", h.version, version, cmp.Equal(in.K.Codes, got), err)
		}
	}
	in := newInputs(t, "1x2x3x4")
	check(in, 1)
	check(in, 1)
	check(in.WithMask(true), 1)
	check(newInputs(t, "1x2x5x4"), 2)
	check(in, 3)
}

// expectError checks that an error is an *Error, is one line and contains a text.
func expectError(t *testing.T, name string, err error, want string) {
	t.Helper()
	var reason *Error
	if !errors.As(err, &reason) || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\x1b\x00") {
		t.Errorf("%s: got %q; want a line with %q", name, err, want)
	}
}

func TestHelpersThatDoNotStart(t *testing.T) {
	for name, want := range map[string]string{
		"garbage":    `peer.test replied "[31mTraceback (most recent call last):", which is not JSON`,
		"two values": "which is more than one JSON value",
		"wrong ID":   "responded to request 8 instead of request 1",
		"endless":    "sent a response of more than 4194304 bytes",
		"no facts":   "its response has no versions",
		"no GPU":     "its response names no PyTorch or no GPU",
		"hangs":      "did not respond within 300ms and was killed; give it more time with --peer-timeout",
		"dies":       "peer.test exited (exit status 3): MemoryError: out of memory; name a Python that has PyTorch",
	} {
		t.Run(name, func(t *testing.T) {
			h, err := start(t, name)
			expectError(t, name, err, want)
			if h != nil {
				t.Error("Start returns a helper besides the error")
			}
			if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
				t.Errorf("not deleted: %v", left)
			}
		})
	}
}

// Failures of a running helper, and whether they lose the helper.
func TestHelpersThatFail(t *testing.T) {
	for _, c := range []struct {
		name, want string
		lost       bool
	}{
		{"rejects", "No available kernel.; use another", false},
		{"NaN", "is not JSON of the expected form", true},
		{"a NaN in JSON", "is not JSON of the expected form", true},
		{"null", "it returned a time of 0 s", false},
		{"zero", "it returned a time of 0 s", false},
		{"negative", "it returned a time of -1e-06 s", false},
		{"milliseconds", "its samples add up to 1e+05 s, but the whole request took", false},
		{"few", "it returned 1 samples; 5 were requested", false},
		{"wrong shape", "its output has the shape [1 1 1 1]; want [1 2 3 4]", false},
		{"short output", "its output has 3 bytes; want 96", false},
		{"no output", "it wrote no output", false},
		{"dies midway", "exited (signal: killed)", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := started(t, c.name)
			expectError(t, c.name, allSteps(t, h), c.want)
			if h.Lost() != c.lost {
				t.Errorf("lost is %t; want %t", h.Lost(), c.lost)
			}
			if c.lost {
				expectError(t, "afterwards", h.Release(t.Context()), "lost to an earlier failure")
			}
		})
	}
}

func TestHelperThatHangsMidway(t *testing.T) {
	h, limit, err := hung(t, "hangs midway", "sampling")
	expectError(t, "hangs midway", err, fmt.Sprintf("did not respond within %s and was killed", limit))
	if !h.Lost() {
		t.Error("the helper is not lost")
	}
	expectError(t, "afterwards", h.Release(t.Context()), "lost to an earlier failure")
}

// allSteps prepares a peer, gets its output and samples it.
func allSteps(t *testing.T, h *Helper) error {
	if err := h.Prepare(t.Context(), flash, attention(newInputs(t, "1x2x3x4")), Graph{20, 2}); err != nil {
		return err
	}
	if _, err := h.Output(t.Context(), flash); err != nil {
		return err
	}
	_, err := h.Sample(t.Context(), flash, 5, Pace{})
	return err
}

// hung starts a fake helper that hangs when it is sampled, and returns the error of the sample. The
// limit of a response grows until the helper has the time to write the file `mark` before it hangs.
func hung(t *testing.T, name, mark string) (*Helper, time.Duration, error) {
	t.Helper()
	for limit := short; limit <= time.Minute; limit *= 2 {
		h, err := startWithin(t, name, limit)
		if err != nil {
			continue
		}
		err = allSteps(t, h)
		if _, missing := os.Stat(h.file(mark)); missing == nil {
			return h, limit, err
		}
	}
	t.Fatalf("%s does not write %s within a minute", name, mark)
	return nil, 0, nil
}

// Processes that a helper has started are killed with it.
func TestChildrenAreKilled(t *testing.T) {
	h, _, err := hung(t, "has a child", "child")
	expectError(t, "hangs", err, "did not respond")
	text, err := os.ReadFile(h.file("child"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	for range 12_000 { // until init has reaped the process, at most a minute
		if !alive(pid) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("process %d still exists", pid)
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !errors.Is(err, os.ErrNotExist)
	}
	_, after, _ := strings.Cut(string(status), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestInterrupted(t *testing.T) {
	h, err := startWithin(t, "hangs midway", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Prepare(t.Context(), flash, attention(newInputs(t, "1x1x1x4")), Graph{1, 2}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for t.Context().Err() == nil {
			if _, err := os.Stat(h.file("sampling")); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := h.Sample(ctx, flash, 1, Pace{}); !errors.Is(err, context.Canceled) || !h.Lost() {
		t.Errorf("got %v, lost %t", err, h.Lost())
	}
}

func TestMissingPeers(t *testing.T) {
	h := started(t, "good")
	flash3 := Peer{Kind: "fa3-fp8", DType: "e4m3"}
	expectError(t, "a missing kind", h.Prepare(t.Context(), flash3, attention(newInputs(t, "1x1x1x4")), Graph{1, 2}), "no such module; install FlashAttention-3 for ")
	expectError(t, "a different mask", h.Prepare(t.Context(), flash, attention(newInputs(t, "1x1x2x4:kv=3:causal")), Graph{1, 2}), "not supported by this peer")
	if err := errors.Join(h.Missing(flash), flash.CheckShape(newInputs(t, "1x1x2x4:kv=3").Shape), flash3.CheckShape(newInputs(t, "1x1x2x4:kv=3:causal").Shape)); err != nil {
		t.Error(err)
	}
	expectError(t, "different factors", flash3.CheckShape(newInputs(t, "1x4x2x4:kvheads=2").Shape), "one descale factor of Q for all heads")
	if err := flash.CheckShape(newInputs(t, "1x4x2x4:kvheads=2").Shape); err != nil {
		t.Error(err)
	}
	h.facts.Missing["torch-flash"] = "this PyTorch has none"
	expectError(t, "a missing backend", h.Missing(flash), "this PyTorch has none; install a newer PyTorch: ")
}

func TestFindPython(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("PATH", empty)
	t.Setenv(PythonVariable, "")
	check := func(name, requested, want string) {
		t.Helper()
		_, err := Start(t.Context(), Options{Python: requested, Limit: time.Minute})
		expectError(t, name, err, want)
	}
	check("no python3", "", "there is no python3 in PATH; install Python 3.9 or later with PyTorch, or name a Python")
	check("a flag with a missing program", "snake", `there is no program "snake", which --python names; name a Python that has PyTorch`)
	t.Setenv(PythonVariable, "./adder")
	check("a variable with a missing program", "", `there is no program "./adder", which ATTUNE_PYTHON names`)
	script := filepath.Join(empty, "python3")
	childtest.Program(t, script, "#!/no/such/interpreter\n")
	t.Chdir(empty)
	check("a program that cannot be started", "./python3", script+" does not start: ")
	childtest.Program(t, script, "#!/bin/sh\necho 'python: no such module' >&2\nexit 4\n")
	check("a program that exits", "./python3", "python3 exited (exit status 4): python: no such module; name a Python that has PyTorch")
	t.Setenv("TMPDIR", filepath.Join(empty, "no", "such", "folder"))
	check("no folder for files", "./python3", "make a folder for the peers' inputs")
}
