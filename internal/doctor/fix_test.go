//go:build linux

package doctor

import (
	"archive/zip"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"attune/internal/python"
)

// wheel writes a numpy that has a version and nothing else, so that pip needs no network.
func wheel(t *testing.T) (folder string) {
	t.Helper()
	var text bytes.Buffer
	w := zip.NewWriter(&text)
	for _, f := range [][2]string{
		{"numpy/__init__.py", "__version__ = '9.9.9'\n"},
		{"numpy-9.9.9.dist-info/METADATA", "Metadata-Version: 2.1\nName: numpy\nVersion: 9.9.9\n"},
		{"numpy-9.9.9.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: attune\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"numpy-9.9.9.dist-info/RECORD", "numpy/__init__.py,,\nnumpy-9.9.9.dist-info/METADATA,,\nnumpy-9.9.9.dist-info/WHEEL,,\nnumpy-9.9.9.dist-info/RECORD,,\n"},
	} {
		file, err := w.Create(f[0])
		if err == nil {
			_, err = file.Write([]byte(f[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "numpy-9.9.9-py3-none-any.whl"), text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PIP_NO_INDEX", "1")
	t.Setenv("PIP_FIND_LINKS", folder)
	return folder
}

// bare is a Python of the machine without packages, as the only python3 of PATH.
func bare(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("makes virtual environments, which takes seconds")
	}
	base, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Skip("there is no python3")
	}
	folder := t.TempDir()
	if out, err := exec.Command(strings.TrimSpace(string(base)), "-m", "venv", "--without-pip", folder).CombinedOutput(); err != nil {
		t.Skipf("this Python makes no virtual environments: %s", out)
	}
	t.Setenv(python.Variable, "")
	t.Setenv("PATH", filepath.Join(folder, "bin"))
	return filepath.Join(folder, "bin", "python3")
}

func hasNumpy(t *testing.T, path string) bool {
	t.Helper()
	found, err := python.HasNumpy(t.Context(), path)
	if err != nil {
		t.Error(err)
	}
	return found
}

func TestFixNumpy(t *testing.T) {
	path := bare(t)
	wheel(t)
	cache := filepath.Join(t.TempDir(), "cache")
	if found, err := python.ForReferences("", cache); err != nil || found != path || hasNumpy(t, found) {
		t.Fatalf("%s, %v", found, err)
	}
	fix, err := FixNumpy(cache)
	if err != nil {
		t.Fatal(err)
	}
	venv := filepath.Join(cache, "python")
	if want := path + " -m venv --clear --system-site-packages " + venv + " && " + venv + "/bin/python3 -m pip install --disable-pip-version-check numpy"; fix.String() != want {
		t.Errorf("%s, want %s", fix, want)
	}
	var out bytes.Buffer
	if err := fix.Run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	found, err := python.ForReferences("", cache)
	if err != nil || found != filepath.Join(venv, "bin", "python3") || !hasNumpy(t, found) {
		t.Errorf("%s, %v\n%s", found, err, out.String())
	}
	if found, err := python.ForReferences(path, cache); err != nil || found != path {
		t.Errorf("a named Python: %s, %v", found, err)
	}
	if hasNumpy(t, path) {
		t.Error("numpy was installed into the machine's Python")
	}
	t.Setenv(python.Variable, path)
	if found, err := python.ForReferences("", cache); err != nil || found != path {
		t.Errorf("%s names a Python: %s, %v", python.Variable, found, err)
	}
	if fix, err := FixNumpy(cache); err != nil || fix.String() != path+" -m pip install --disable-pip-version-check numpy" {
		t.Errorf("%s names a Python: %s, %v", python.Variable, fix, err)
	}
}

// A fix that fails leaves no Python behind that would be taken for one with numpy.
func TestFailedFix(t *testing.T) {
	folder := programs(t, map[string]string{"python3": `mkdir -p "$5/bin" && printf '#!/bin/sh\nexit 3\n' >"$5/bin/python3" && chmod +x "$5/bin/python3"`})
	path := filepath.Join(folder, "python3")
	t.Setenv(python.Variable, "")
	t.Setenv("PATH", folder+":/usr/bin:/bin")
	cache := t.TempDir()
	fix, err := FixNumpy(cache)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := fix.Run(t.Context(), &out); err == nil || !strings.Contains(err.Error(), "ended with exit status 3; install numpy by") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if found, err := python.ForReferences("", cache); err != nil || found != path {
		t.Errorf("%s, %v", found, err)
	}
}

// The commands can be pasted, whatever the paths are.
func TestFixIsQuoted(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "it's a folder")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "python3")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho \"$0 $*\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv(python.Variable, path)
	fix, err := FixNumpy(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/bin/sh", "-c", fix.String()).CombinedOutput()
	if want := path + " -m pip install --disable-pip-version-check numpy\n"; err != nil || string(out) != want {
		t.Errorf("%s runs %q, %v; want %q", fix, out, err, want)
	}
	var written bytes.Buffer
	if err := fix.Run(t.Context(), &written); err != nil || !strings.HasPrefix(written.String(), fix.String()+"\n") {
		t.Errorf("%v, %q; want first %s", err, written.String(), fix)
	}
}

func TestFixWithoutPlace(t *testing.T) {
	t.Setenv(python.Variable, "")
	programs(t, map[string]string{"python3": ""})
	if _, err := FixNumpy(""); err == nil || !strings.Contains(err.Error(), "ATTUNE_CACHE") {
		t.Error(err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := FixNumpy(t.TempDir()); err == nil || !strings.Contains(err.Error(), "there is no python3 in PATH") {
		t.Error(err)
	}
}
