package doctor

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"attune/internal/arch"
	"attune/internal/child/childtest"
	"attune/internal/device"
	"attune/internal/peer"
	"attune/internal/toolchain"
)

// programs makes a folder of shell scripts and sets PATH to that folder only.
func programs(t *testing.T, scripts map[string]string) string {
	t.Helper()
	folder := t.TempDir()
	for name, script := range scripts {
		childtest.Program(t, filepath.Join(folder, name), "#!/bin/sh\n"+script+"\n")
	}
	t.Setenv("PATH", folder)
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH", "NVCC_CCBIN", peer.PythonVariable} {
		t.Setenv(name, "")
	}
	return folder
}

// The programs of a complete machine.
var (
	nvcc    = "echo 'Cuda compilation tools, release 13.0, V13.0.88'"
	pip     = `[ "$*" = "-m pip --version" ] && echo "a warning" >&2 && echo "pip 24.0 from /usr/lib/python3/dist-packages/pip (python 3.12)"`
	numeric = `[ "$1" = -c ] && echo 2.3.4 && exit`
	// As a helper, python3 responds to the first request on its pipes.
	torch = `[ "$*" = - ] && read request <&3 && echo '{"id": 1, "facts": {"torch": "2.11.0", "cuda": "13.0", "gpu": "NVIDIA H200"}}' >&4 && exit`
	all   = map[string]string{
		"nvcc": nvcc, "ptxas": "", "nvdisasm": "", "gcc": "", "python3": numeric + "\n" + torch + "\n" + pip, "compute-sanitizer": "", "ncu": "", "git": "",
	}
)

// without is all programs except some.
func without(names ...string) map[string]string {
	rest := maps.Clone(all)
	for _, name := range names {
		delete(rest, name)
	}
	return rest
}

// with is all programs with one of them replaced.
func with(name, script string) map[string]string {
	changed := without()
	changed[name] = script
	return changed
}

// fakeDevice is a device with facts.
type fakeDevice struct {
	device.Device
	closed int
}

func (d *fakeDevice) Close() error { d.closed++; return nil }
func (d *fakeDevice) Facts() device.Facts {
	return device.Facts{Name: "NVIDIA H200", Arch: "sm_90", Multiprocessors: 132, Driver: "580.159.04, CUDA 13.0"}
}

func newMachine(t *testing.T, open func(context.Context) (device.Device, error)) Machine {
	return Machine{CacheDir: filepath.Join(t.TempDir(), "cache"), LedgerDir: filepath.Join(t.TempDir(), "ledger"), Open: open}
}

func noGPU(context.Context) (device.Device, error) {
	return nil, fmt.Errorf("%w: NVIDIA's driver is not installed", device.ErrNoDevice)
}

// ability finds an ability by name, and checks that all of them fit the table.
func ability(t *testing.T, all []Ability, name string) Ability {
	t.Helper()
	var found *Ability
	for i, a := range all {
		if a.Name == name {
			found = &all[i]
		}
		if a.Why == "" || strings.Contains(a.Why+a.Do, "\n") || utf8.RuneCountInString(a.Name) > 40 {
			t.Errorf("%+v does not fit into the table", a)
		}
		if a.OK && a.Do != "" || !a.OK && a.Do == "" {
			t.Errorf("%+v: want a remedy if and only if it is not OK", a)
		}
	}
	if found == nil {
		t.Fatalf("no ability %q in %v", name, all)
	}
	return *found
}

func TestCompleteMachine(t *testing.T) {
	folder := programs(t, all)
	d := &fakeDevice{}
	m := newMachine(t, func(context.Context) (device.Device, error) { return d, nil })
	in := func(name string) string { return filepath.Join(folder, name) }
	want := []Ability{
		{"run shipped stages' resource gate", true, "the stages and their build records are embedded in the program", "", nil},
		{"run and time kernels on a GPU", true, "NVIDIA H200, sm_90, 132 SMs, driver 580.159.04, CUDA 13.0", "", nil},
		{"check kernels with no GPU", true, "the simulator runs PTX for " + arch.SimulatedText, "", nil},
		{"build variants", true, "nvcc 13.0.88 from PATH (" + in("nvcc") + "), for sm_75 to sm_121a", "", nil},
		{"show machine code (--emit sass)", true, in("nvdisasm"), "", nil},
		{"install the compiler", true, "pip 24.0", "", nil},
		{"compute references in Python", true, "numpy 2.3.4 of " + in("python3"), "", nil},
		{"time PyTorch beside ours", true, "PyTorch 2.11.0, CUDA 13.0, cuDNN none, on NVIDIA H200", "", nil},
		{"find bad accesses on the GPU", true, in("compute-sanitizer"), "", nil},
		{"read the GPU's counters", true, in("ncu"), "", nil},
		{"record which source a run was made from", true, in("git"), "", nil},
		{"keep builds", true, m.CacheDir, "", nil},
		{"keep runs", true, m.LedgerDir, "", nil},
	}
	got := Examine(t.Context(), m)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	ability(t, got, "build variants")
	if d.closed != 1 {
		t.Errorf("the GPU was closed %d times", d.closed)
	}
}

func TestBareMachine(t *testing.T) {
	programs(t, nil)
	m := newMachine(t, noGPU)
	if _, err := toolchain.Find(t.Context(), m.CacheDir); err == nil {
		t.Skip("there is a compiler in a usual place")
	}
	got := Examine(t.Context(), m)
	for name, do := range map[string]string{
		"run and time kernels on a GPU":           "on a machine with an NVIDIA GPU, install its driver (580 or later for the shipped PTX)",
		"build variants":                          "attune toolchain install",
		"show machine code (--emit sass)":         "attune toolchain install",
		"install the compiler":                    "install Python 3 with pip",
		"compute references in Python":            "install Python 3.9 or later, or name one with --python or ATTUNE_PYTHON",
		"time PyTorch beside ours":                "install Python 3.9 or later with PyTorch, or name a Python that has PyTorch with --python or ATTUNE_PYTHON",
		"find bad accesses on the GPU":            "install the CUDA toolkit",
		"read the GPU's counters":                 "install Nsight Compute",
		"record which source a run was made from": "install git",
	} {
		a := ability(t, got, name)
		if a.OK || a.Do != do {
			t.Errorf("got %+v; want not OK, and %q", a, do)
		}
		if command := do == "attune toolchain install"; command != slices.Equal(a.Commands, []string{do}) {
			t.Errorf("%s: commands %q", name, a.Commands)
		}
	}
	for _, name := range []string{"run shipped stages' resource gate", "check kernels with no GPU", "keep builds", "keep runs"} {
		if a := ability(t, got, name); !a.OK {
			t.Errorf("got %+v; want OK", a)
		}
	}
	if a := ability(t, got, "run and time kernels on a GPU"); a.Why != "no GPU: NVIDIA's driver is not installed" {
		t.Errorf("got %+v; want the error of Open", a)
	}
	for _, dir := range []string{m.CacheDir, m.LedgerDir} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Examine has created %s (%v)", dir, err)
		}
	}
}

func TestIncompleteMachines(t *testing.T) {
	for _, c := range []struct {
		name    string
		scripts map[string]string
		ability string
		why, do string
		ok      bool
	}{
		{"no host compiler", without("gcc"), "build variants", "there is no gcc in PATH", "install g++", false},
		{"no host compiler, but a disassembler", without("gcc"), "show machine code (--emit sass)", "nvdisasm", "", true},
		{"no disassembler", without("nvdisasm"), "show machine code (--emit sass)", "there is no nvdisasm", "attune toolchain install", false},
		{
			"no pip", with("python3", "echo 'No module named pip' >&2; exit 1"),
			"install the compiler", "No module named pip", "install pip for ", false,
		},
		{
			"a broken pip", with("python3", "echo 'Traceback:\n  oh\n' >&2; exit 1"),
			"install the compiler", "Traceback: oh", "install pip for ", false,
		},
		{"pip without a message", with("python3", "exit 7"), "install the compiler", "exit status 7", "install pip for ", false},
		{
			"no numpy", with("python3", "exit 1"), "compute references in Python",
			"has no numpy that works", "", false,
		},
		{
			"no PyTorch", with("python3", `read request <&3; echo '{"id": 1, "error": "python3 has no PyTorch", "do": "python3 -m pip install torch"}' >&4`),
			"time PyTorch beside ours", "python3 has no PyTorch", "python3 -m pip install torch", false,
		},
		{
			"an error without a remedy", with("python3", `read request <&3; echo '{"id": 1, "error": "no"}' >&4`),
			"time PyTorch beside ours", "no", "python3 -m pip install torch, on", false,
		},
		{"a missing tool", without("ncu"), "read the GPU's counters", "there is no ncu in PATH", "install Nsight Compute", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			programs(t, c.scripts)
			a := ability(t, Examine(t.Context(), newMachine(t, noGPU)), c.ability)
			if a.OK != c.ok || !strings.Contains(a.Why, c.why) || !strings.HasPrefix(a.Do, c.do) {
				t.Errorf("got %+v; want %t, %q, %q", a, c.ok, c.why, c.do)
			}
		})
	}
}

// The installed compiler passes.
func TestInstalledCompiler(t *testing.T) {
	if testing.Short() {
		t.Skip("runs NVIDIA's compiler, which -short leaves out")
	}
	m := newMachine(t, noGPU)
	folder, err := toolchain.CacheDir()
	if err != nil {
		t.Skip(err)
	}
	m.CacheDir = folder
	if found, err := toolchain.Find(t.Context(), folder); err != nil || !strings.HasPrefix(found.NVCC, folder) {
		t.Skip("attune has installed no compiler here")
	}
	if a := ability(t, Examine(t.Context(), m), "build variants"); !a.OK {
		t.Errorf("got %+v", a)
	}
}

// A compiler in attune's cache counts too.
func TestCompilerInCache(t *testing.T) {
	programs(t, map[string]string{"gcc": ""})
	m := newMachine(t, noGPU)
	if _, err := toolchain.Find(t.Context(), m.CacheDir); err == nil {
		t.Skip("there is a compiler in a usual place")
	}
	bin := filepath.Join(m.CacheDir, "toolchains", "cuda-"+toolchain.InstalledVersion, "nvidia", "cu13", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nvcc", "ptxas"} {
		childtest.Program(t, filepath.Join(bin, name), "#!/bin/sh\n"+nvcc+"\n")
	}
	want := "nvcc 13.0.88 from attune's cache (" + filepath.Join(bin, "nvcc") + ")"
	damaged := want + " is damaged: nvidia/cu13/bin/nvcc belongs to no wheel, "
	a := ability(t, Examine(t.Context(), m), "build variants")
	if a.OK || !strings.HasPrefix(a.Why, damaged) || a.Do != "attune toolchain install" {
		t.Errorf("got %+v; want %q", a, damaged)
	}
	writeLists(t, filepath.Dir(filepath.Dir(filepath.Dir(bin))), "nvidia/cu13/bin/nvcc", "nvidia/cu13/bin/ptxas")
	// The lists fit the files, but not the digests of the lists in the program.
	forged := regexp.MustCompile("^" + regexp.QuoteMeta(want) + ` is damaged: \S+\.dist-info/RECORD does not match its`)
	if a := ability(t, Examine(t.Context(), m), "build variants"); a.OK || !forged.MatchString(a.Why) {
		t.Errorf("got %+v; want %s", a, forged)
	}
	childtest.Program(t, filepath.Join(bin, "ptxas"), "")
	damaged = want + " is damaged: nvidia/cu13/bin/ptxas does not match its hash, "
	if a := ability(t, Examine(t.Context(), m), "build variants"); a.OK || !strings.HasPrefix(a.Why, damaged) {
		t.Errorf("got %+v; want %q", a, damaged)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	found, err := toolchain.Find(t.Context(), m.CacheDir)
	if a := compile(ctx, found, err); a.OK || a.Why != want+" cannot be verified: context canceled" {
		t.Errorf("cancelled: %+v", a)
	}
}

// writeLists writes the lists of files that pip writes for each wheel. The first has all files.
func writeLists(t *testing.T, dir string, files ...string) {
	t.Helper()
	wheels, err := os.ReadFile("../toolchain/wheels.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(wheels)) {
		name, rest, ok := strings.Cut(line, "==")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		version, _, _ := strings.Cut(rest, " ")
		list := strings.ReplaceAll(name, "-", "_") + "-" + version + ".dist-info/RECORD"
		text := list + ",,\n"
		for _, file := range files {
			data, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(data)
			text += fmt.Sprintf("%s,sha256=%s,%d\n", file, base64.RawURLEncoding.EncodeToString(sum[:]), len(data))
		}
		files = nil
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, list)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, list), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// A GPU that fails needs other advice than a missing GPU.
func TestFailingGPU(t *testing.T) {
	programs(t, all)
	m := newMachine(t, func(context.Context) (device.Device, error) {
		return nil, errors.New("open the device:\nno result within 1m0s")
	})
	a := ability(t, Examine(t.Context(), m), "run and time kernels on a GPU")
	do := "check that nvidia-smi shows the GPU, and restart its driver if not"
	want := Ability{a.Name, false, "open the device: no result within 1m0s", do, nil}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Error(diff)
	}
}

func TestWritable(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(folder)
	for _, c := range []struct{ dir, why string }{
		{folder, ""},
		{filepath.Join(folder, "new"), ""},
		{filepath.Join(folder, "new", "and", "deeper"), ""},
		{".attune", ""},
		{file, file + " is not a folder"},
		{filepath.Join(file, "below"), file + " is not a folder"},
		{filepath.Join("file", "below"), "file is not a folder"},
	} {
		got := writable("keep runs", c.dir, "use another folder")
		want := Ability{"keep runs", false, c.why, "use another folder", nil}
		if c.why == "" {
			want = Ability{"keep runs", true, c.dir, "", nil}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", c.dir, diff)
		}
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 1 {
		t.Errorf("the folder contains %v, %v; want only the file", left, err)
	}
}
