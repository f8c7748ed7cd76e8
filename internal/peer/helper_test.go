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

	"attune/internal/tensor"
)

// lifeVariable makes this test binary a python3 that leads the life of that name.
const lifeVariable = "PEER_TEST_LIFE"

func TestMain(m *testing.M) {
	life := lives[os.Getenv(lifeVariable)]
	if life == nil {
		os.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector would have each child wait a second at its end
		os.Exit(m.Run())
	}
	serve(life)
}

// life answers a request with any JSON, or does worse.
type life func(r request, out *os.File) map[string]any

var lives = map[string]life{
	"good": good,
	"garbage": func(_ request, out *os.File) map[string]any {
		fmt.Fprintln(out, "\x1b[31mTraceback\x00 (most recent call last):")
		return nil
	},
	"two answers": func(r request, out *os.File) map[string]any {
		fmt.Fprintf(out, `{"id": %d} {"id": %d}`+"\n", r.ID, r.ID)
		return nil
	},
	"out of turn": func(r request, _ *os.File) map[string]any { r.ID += 7; return good(r, nil) },
	"endless":     func(_ request, out *os.File) map[string]any { return endless(out) },
	"no facts":    func(request, *os.File) map[string]any { return map[string]any{} },
	"no GPU": func(request, *os.File) map[string]any {
		return map[string]any{"facts": map[string]any{"torch": "2.11"}}
	},
	"hangs": func(request, *os.File) map[string]any { hang(); return nil },
	"dies": func(request, *os.File) map[string]any {
		fmt.Fprintln(os.Stderr, "Traceback:\nMemoryError: all gone")
		os.Exit(3)
		return nil
	},
	"dies midway": on("sample", func(request) map[string]any {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		hang()
		return nil
	}),
	"hangs midway": on("sample", func(request) map[string]any { hang(); return nil }),
	"has a child": on("sample", func(request) map[string]any {
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err != nil {
			panic(err)
		}
		if err := os.WriteFile("child", []byte(strconv.Itoa(child.Process.Pid)), 0o600); err != nil {
			panic(err)
		}
		hang()
		return nil
	}),
	"refuses": on("prepare", func(request) map[string]any {
		return map[string]any{"error": "No available\nkernel.", "do": "take another"}
	}),
	"NaN":           on("sample", seconds("NaN")),
	"a NaN in JSON": on("sample", seconds(math.NaN())),
	"null":          on("sample", seconds(nil)),
	"zero":          on("sample", seconds(0)),
	"negative":      on("sample", seconds(-1e-6)),
	"milliseconds":  on("sample", seconds(1e3)),
	"few":           on("sample", func(request) map[string]any { return map[string]any{"seconds": []float64{1e-6}} }),
	"wrong shape": on("answer", func(r request) map[string]any {
		answer := good(r, nil)
		answer["shape"] = []int{1, 1, 1, 1}
		return answer
	}),
	"short answer": on("answer", func(r request) map[string]any {
		answer := good(r, nil)
		if err := os.WriteFile(r.Files["output"], []byte{1, 2, 3}, 0o600); err != nil {
			panic(err)
		}
		return answer
	}),
	"no answer": on("answer", func(request) map[string]any { return map[string]any{"shape": []int{1, 2, 3, 4}} }),
}

// on is good but for one operation.
func on(op string, do func(request) map[string]any) life {
	return func(r request, out *os.File) map[string]any {
		if r.Op == op {
			return do(r)
		}
		return good(r, out)
	}
}

func seconds(value any) func(request) map[string]any {
	return func(r request) map[string]any {
		all := make([]any, r.Samples)
		for i := range all {
			all[i] = value
		}
		return map[string]any{"seconds": all}
	}
}

// prepared is what the good life has been asked to prepare: the last problem's inputs are its answer.
var prepared request

// good answers every request. Its answer to a problem is the queries.
func good(r request, _ *os.File) map[string]any {
	switch r.Op {
	case "hello":
		return map[string]any{"facts": map[string]any{
			"python": "3.12.1", "torch": "2.11.0", "cuda": "13.0", "cudnn": "9.19.0", "gpu": fmt.Sprintf("A\nGPU %d", r.Device),
			"missing": map[string]string{"fa3-fp8": "no such\nmodule"},
		}}
	case "prepare":
		prepared = r
	case "answer":
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

// serve is the life of a python3: it takes a program on standard input, then answers requests.
func serve(l life) {
	in, out := json.NewDecoder(os.NewFile(3, "requests")), os.NewFile(4, "responses")
	for {
		var r request
		if err := in.Decode(&r); err != nil {
			os.Exit(0)
		}
		response := l(r, out)
		if response == nil {
			continue
		}
		if response["id"] = r.ID; os.Getenv(lifeVariable) == "out of turn" {
			response["id"] = r.ID + 7
		}
		line, err := json.Marshal(response)
		if err != nil { // Python writes what JSON has not
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

// start starts a helper that leads a life, with a limit that only the hanging ones meet.
func start(t *testing.T, life string) (*Helper, error) {
	t.Helper()
	t.Setenv(lifeVariable, life)
	t.Setenv("TMPDIR", t.TempDir())
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	limit := time.Minute
	if strings.Contains(life, "hang") || strings.Contains(life, "child") {
		limit = 300 * time.Millisecond
	}
	return Start(t.Context(), Options{Python: self, Device: 1, Limit: limit})
}

func started(t *testing.T, life string) *Helper {
	t.Helper()
	h, err := start(t, life)
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
	for range 2 { // a peer may be prepared again
		if err := h.Prepare(t.Context(), flash, in, Graph{50, 2}); err != nil {
			t.Fatal(err)
		}
	}
	answer, err := h.Answer(t.Context(), flash)
	if err != nil {
		t.Fatal(err)
	}
	var worth []float32
	for head := range in.Q.Descale {
		values := make([]float64, 12)
		in.Q.Dequantize(values, head, 0)
		for _, x := range values {
			worth = append(worth, float32(x))
		}
	}
	if diff := cmp.Diff(worth, answer); diff != "" {
		t.Errorf("what came back is not what the inputs are worth: %s", diff)
	}
	samples, err := h.Sample(t.Context(), flash, 3, 0)
	if err != nil || len(samples) != 3 || samples[0] != 1e-6/50 {
		t.Errorf("got %v, %v; want 3 samples", samples, err)
	}
	if err := h.Forget(t.Context()); err != nil || h.Lost() {
		t.Errorf("got %v, lost %t", err, h.Lost())
	}
	folder := h.folder
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// Codes and descale factors lie beside the values, for peers that take E4M3.
func TestFilesForE4M3(t *testing.T) {
	h := started(t, "good")
	in := newInputs(t, "2x1x3x4:kv=5")
	if err := h.Prepare(t.Context(), flash, in, Graph{1, 2}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"q_codes": in.Q.Codes, "k_codes": in.K.Codes, "v_codes": in.V.Codes, "v_descale": bytesOf(in.V.Descale)} {
		got, err := os.ReadFile(filepath.Join(h.folder, name))
		if err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s holds % x, %v; want % x", name, got, err, want)
		}
	}
	if first := math.Float32frombits(binary.LittleEndian.Uint32(bytesOf(in.V.Descale))); first != in.V.Descale[0] {
		t.Errorf("got %g; want %g", first, in.V.Descale[0])
	}
}

// Inputs are written once for all peers and for both masks, and other inputs in their place, with another number.
func TestInputsAreWrittenOnce(t *testing.T) {
	h := started(t, "good")
	give := func(in *tensor.Inputs, gifts int) {
		t.Helper()
		if err := h.Prepare(t.Context(), flash, in, Graph{1, 2}); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(h.folder, "k_codes"))
		if err != nil || !cmp.Equal(in.K.Codes, got) || h.gifts != gifts {
			t.Errorf("inputs number %d, want %d; codes of K are right: %t, %v", h.gifts, gifts, cmp.Equal(in.K.Codes, got), err)
		}
	}
	in := newInputs(t, "1x2x3x4")
	give(in, 1)
	give(in, 1)
	give(in.Masked(true), 1)
	give(newInputs(t, "1x2x5x4"), 2)
	give(in, 3)
}

// says holds an error to be one of ours, in one line, with a text in it.
func says(t *testing.T, what string, err error, want string) {
	t.Helper()
	var reason *Error
	if !errors.As(err, &reason) || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\x1b\x00") {
		t.Errorf("%s: got %q; want a line with %q", what, err, want)
	}
}

func TestHelpersThatDoNotStart(t *testing.T) {
	for life, want := range map[string]string{
		"garbage":     `is of no use: it answered "[31mTraceback (most recent call last):", which is not JSON`,
		"two answers": "which is more than one answer",
		"out of turn": "it answered request 8 when request 1 was asked",
		"endless":     "it answered more than a line can hold",
		"no facts":    "it said nothing of its versions",
		"no GPU":      "it named no PyTorch or no GPU",
		"hangs":       "gave no answer in 300ms and was ended; give it more time with --peer-timeout",
		"dies":        "it ended (exit status 3: MemoryError: all gone)",
	} {
		t.Run(life, func(t *testing.T) {
			h, err := start(t, life)
			says(t, life, err, want)
			if h != nil {
				t.Error("there is a helper all the same")
			}
			if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// What goes wrong once a helper runs, and whether the helper is lost with it.
func TestHelpersThatFail(t *testing.T) {
	for _, c := range []struct {
		life, want string
		lost       bool
	}{
		{"refuses", "No available kernel.; take another", false},
		{"NaN", "not JSON of the form that was asked for", true},
		{"a NaN in JSON", "not JSON of the form that was asked for", true},
		{"null", "it gave a time of 0 s", false},
		{"zero", "it gave a time of 0 s", false},
		{"negative", "it gave a time of -1e-06 s", false},
		{"milliseconds", "its samples add up to 1e+05 s, and all of them together took", false},
		{"few", "it gave 1 samples when 5 were asked for", false},
		{"wrong shape", "its answer has the shape [1 1 1 1]; want [1 2 3 4]", false},
		{"short answer", "its answer has 3 bytes; want 96", false},
		{"no answer", "it left no answer", false},
		{"dies midway", "it ended (signal: killed", true},
		{"hangs midway", "gave no answer in 300ms and was ended", true},
	} {
		t.Run(c.life, func(t *testing.T) {
			h := started(t, c.life)
			says(t, c.life, all(t, h), c.want)
			if h.Lost() != c.lost {
				t.Errorf("lost is %t; want %t", h.Lost(), c.lost)
			}
			if c.lost {
				says(t, "afterwards", h.Forget(t.Context()), "lost to an earlier failure")
			}
		})
	}
}

// all takes a peer the whole way.
func all(t *testing.T, h *Helper) error {
	if err := h.Prepare(t.Context(), flash, newInputs(t, "1x2x3x4"), Graph{20, 2}); err != nil {
		return err
	}
	if _, err := h.Answer(t.Context(), flash); err != nil {
		return err
	}
	_, err := h.Sample(t.Context(), flash, 5, 0)
	return err
}

// What a helper has started dies with it.
func TestChildrenDieToo(t *testing.T) {
	h := started(t, "has a child")
	says(t, "hangs", all(t, h), "gave no answer")
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
	for range 1000 { // until whoever inherits the dead has seen to it
		if !alive(pid) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Errorf("process %d is still there", pid)
}

// alive is whether a process runs; one that is dead and not yet waited for does not.
func alive(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil && !errors.Is(err, os.ErrNotExist)
	}
	_, after, _ := strings.Cut(string(status), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestInterrupted(t *testing.T) {
	h := started(t, "hangs midway")
	h.options.Limit = time.Hour
	if err := h.Prepare(t.Context(), flash, newInputs(t, "1x1x1x4"), Graph{1, 2}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { time.Sleep(20 * time.Millisecond); cancel() }()
	if _, err := h.Sample(ctx, flash, 1, 0); !errors.Is(err, context.Canceled) || !h.Lost() {
		t.Errorf("got %v, lost %t", err, h.Lost())
	}
}

func TestMissingPeers(t *testing.T) {
	h := started(t, "good")
	flash3 := Peer{Kind: "fa3-fp8", DType: "e4m3"}
	says(t, "a kind that is not there", h.Prepare(t.Context(), flash3, newInputs(t, "1x1x1x4"), Graph{1, 2}), "no such module; install FlashAttention-3 for ")
	says(t, "a mask of another kind", h.Prepare(t.Context(), flash, newInputs(t, "1x1x2x4:kv=3:causal"), Graph{1, 2}), "not supported by this peer")
	if err := errors.Join(h.Missing(flash), flash.Refuse(newInputs(t, "1x1x2x4:kv=3").Shape), flash3.Refuse(newInputs(t, "1x1x2x4:kv=3:causal").Shape)); err != nil {
		t.Error(err)
	}
	says(t, "factors of another kind", flash3.Refuse(newInputs(t, "1x4x2x4:kvheads=2").Shape), "one descale factor of Q for them all")
	if err := flash.Refuse(newInputs(t, "1x4x2x4:kvheads=2").Shape); err != nil {
		t.Error(err)
	}
	h.facts.Missing["torch-flash"] = "this PyTorch has none"
	says(t, "a backend that is not there", h.Missing(flash), "this PyTorch has none; install a newer PyTorch: ")
}

func TestPythons(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("PATH", empty)
	t.Setenv(PythonVariable, "")
	check := func(what, asked, want string) {
		t.Helper()
		_, err := Start(t.Context(), Options{Python: asked, Limit: time.Minute})
		says(t, what, err, want)
	}
	check("no python3", "", "there is no python3 in PATH; install Python 3.9 or later with PyTorch, or name a Python")
	check("a flag that names nothing", "snake", `there is no program "snake", which --python names; name a Python that has PyTorch`)
	t.Setenv(PythonVariable, "./adder")
	check("a variable that names nothing", "", `there is no program "./adder", which ATTUNE_PYTHON names`)
	script := filepath.Join(empty, "python3")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Chdir(empty)
	check("one that cannot be started", "./python3", script+" does not start: ")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho 'python: wrong weather' >&2\nexit 4\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	check("one that will not", "./python3", script+" is of no use: it ended (exit status 4: python: wrong weather)")
	t.Setenv("TMPDIR", filepath.Join(empty, "no", "such", "folder"))
	check("no room for files", "./python3", "no folder for the peers' inputs could be made")
}
