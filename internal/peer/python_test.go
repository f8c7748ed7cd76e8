package peer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/oracle"
)

// startPython starts a helper with the machine's python3 and a folder of testdata in PYTHONPATH.
func startPython(t *testing.T, modules string) (*Helper, error) {
	t.Helper()
	name := "python3"
	if _, err := exec.LookPath(name); err != nil {
		t.Skip("there is no python3")
	}
	if modules != "" {
		path, err := filepath.Abs(filepath.Join("testdata", "python", modules))
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("PYTHONPATH", path)
		t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	}
	return Start(t.Context(), Options{Python: name, Limit: time.Minute})
}

// The real program in a real Python, without PyTorch or with an unusable one.
func TestPythonWithoutPyTorch(t *testing.T) {
	if _, err := exec.Command("python3", "-c", "import torch").Output(); err != nil {
		_, err := startPython(t, "")
		expectError(t, "no PyTorch", err, " has no PyTorch; ")
		expectError(t, "no PyTorch", err, " -m pip install torch")
	}
	for modules, want := range map[string]string{
		"nocuda": "PyTorch 2.11.0+cpu is built without CUDA; install a build with CUDA: ",
		"nogpu":  "PyTorch 2.11.0, built for CUDA 13.0, sees no GPU; see the output of `",
		"broken": "PyTorch cannot be imported: OSError: libcudart.so.13: cannot open shared object file; see the output of `",
	} {
		_, err := startPython(t, modules)
		expectError(t, modules, err, want)
	}
}

// A module in the user's folder must not replace a module of Python or PyTorch.
func TestModulesOfTheWorkingFolder(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3")
	}
	modules, err := filepath.Abs(filepath.Join("testdata", "python", "nocuda"))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", modules)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "queue.py"), []byte("raise SystemExit('the wrong queue')"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(folder)
	_, err = Start(t.Context(), Options{Limit: time.Minute})
	expectError(t, "another queue", err, "is built without CUDA")
}

// The real program with a fake PyTorch: a peer is prepared, run and sampled.
func TestPythonWithFakePyTorch(t *testing.T) {
	h, err := startPython(t, "fake")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	facts := h.Facts()
	if facts.Torch != "2.11.0" || facts.CUDA != "13.0" || facts.CuDNN != "9.19.0" || facts.GPU != "A fake GPU" || facts.UUID == "" || facts.Python == "" {
		t.Errorf("got %+v", facts)
	}
	expectError(t, "a backend that this PyTorch lacks", h.Missing(Peer{Kind: "torch-cudnn"}), "PyTorch 2.11.0 has no SDPBackend.CUDNN_ATTENTION")
	expectError(t, "FlashAttention-3", h.Missing(Peer{Kind: "fa3-fp8"}), "flash_attn_interface cannot be imported: ModuleNotFoundError")
	for _, shape := range []string{"2x2x5x8", "1x2x4x8:causal", "1x1x3x8:kv=6", "2x4x3x8:kv=5:kvheads=2"} {
		in := newInputs(t, shape)
		for _, p := range []Peer{flash, {Kind: "torch-math", DType: "bf16"}} {
			if err := h.Prepare(t.Context(), p, attention(in), Graph{7, 2}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := h.Output(t.Context(), flash)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := oracle.Compute(t.Context(), in, nil)
		if err != nil {
			t.Fatal(err)
		}
		off, err := oracle.Compare(got["o"], ref, oracle.Tolerance{Abs: 1e-2})
		if err != nil || off.Bad > 0 {
			t.Errorf("%s: %+v, %v", shape, off, err)
		}
		const rest = 5 * time.Millisecond
		start := time.Now()
		samples, err := h.Sample(t.Context(), flash, 4, Pace{Rest: rest})
		if took := time.Since(start); err != nil || len(samples) != 4 || took < 4*rest {
			t.Errorf("%s: %v in %s, %v; want 4 samples, each after a rest of %s", shape, samples, took, err, rest)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	_, err = h.Sample(t.Context(), flash, 1, Pace{})
	expectError(t, "a released peer", err, "KeyError")
	err = h.Prepare(t.Context(), Peer{Kind: "torch-efficient", DType: "fp16"}, attention(newInputs(t, "1x1x2x8")), Graph{1, 2})
	expectError(t, "an unsupported problem", err, "RuntimeError: No available kernel. Aborting execution. Memory efficient kernel not used because: unsupported head size.")
	if h.Lost() {
		t.Error("an unsupported problem has lost the helper")
	}
}

// The program uses only syntax of Python 3.9.
func TestProgramIsPython39(t *testing.T) {
	cmd := exec.Command("python3", "-c", "import ast, sys; ast.parse(sys.stdin.read(), feature_version=(3, 9))")
	if cmd.Path == "" || cmd.Err != nil {
		t.Skip("there is no python3")
	}
	cmd.Stdin = strings.NewReader(program)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
