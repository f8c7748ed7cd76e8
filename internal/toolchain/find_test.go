package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// versionText is what nvcc --version prints.
const versionText = `nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release %s, V%s
Build cuda_13.0.r13.0/compiler.36424714_0
`

// toolkit makes a folder that looks like a CUDA toolkit of a version such as 12.4.131, as far as looking for one goes.
func toolkit(t testing.TB, dir, version string) {
	t.Helper()
	release := version[:strings.LastIndex(version, ".")]
	script(t, filepath.Join(dir, "bin", "nvcc"), "cat <<'end'\n"+fmt.Sprintf(versionText, release, version)+"end\n")
	script(t, filepath.Join(dir, "bin", "ptxas"), "")
}

// bareMachine hides every compiler of the machine that runs the tests, and leaves a host compiler and what the scripts need. It
// returns the only folder in PATH.
func bareMachine(t *testing.T) string {
	t.Helper()
	plainEnvironment(t)
	bin := t.TempDir()
	t.Setenv("CUDA_HOME", "")
	t.Setenv("CUDA_PATH", "")
	for _, program := range []string{"cat", "mkdir", "cp", "sleep", "touch"} {
		real, err := exec.LookPath(program)
		if err != nil {
			t.Skipf("the scripts of this test need %s", program)
		}
		if err := os.Symlink(real, filepath.Join(bin, program)); err != nil {
			t.Fatal(err)
		}
	}
	script(t, filepath.Join(bin, "gcc"), "")
	t.Setenv("PATH", bin)
	usual := usualFolders
	usualFolders = nil
	t.Cleanup(func() { usualFolders = usual })
	return bin
}

func TestFindOrder(t *testing.T) {
	bin := bareMachine(t)
	cacheDir, root := t.TempDir(), t.TempDir()
	check := func(version, origin, nvcc string) {
		t.Helper()
		c, err := Find(t.Context(), cacheDir)
		if err != nil {
			t.Fatal(err)
		}
		want := Compiler{
			NVCC: nvcc, PTXAS: filepath.Join(filepath.Dir(nvcc), "ptxas"), Version: version, Origin: origin,
		}
		if *c != want {
			t.Errorf("found %+v, want %+v", *c, want)
		}
	}
	_, err := Find(t.Context(), cacheDir)
	if !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), "run `attune toolchain install`") {
		t.Errorf("nothing there: %v", err)
	}
	if _, err := Installed(t.Context(), cacheDir); !errors.Is(err, ErrNoCompiler) {
		t.Errorf("nothing installed: %v", err)
	}

	// Each place comes before those that were there already.
	installed := filepath.Join(installDir(cacheDir), toolkitDir)
	toolkit(t, installed, "13.0.88")
	check("13.0.88", "attune's cache", filepath.Join(installed, "bin", "nvcc"))

	usualFolders = []string{filepath.Join(root, "cuda"), filepath.Join(root, "cuda-*")}
	for _, version := range []string{"9.2.88", "12.9.41", "12.10.7"} {
		dir := filepath.Join(root, "cuda-"+version[:strings.LastIndex(version, ".")])
		toolkit(t, dir, version)
	}
	check("12.10.7", filepath.Join(root, "cuda-12.10"), filepath.Join(root, "cuda-12.10", "bin", "nvcc"))
	toolkit(t, filepath.Join(root, "cuda"), "11.8.89")
	check("11.8.89", filepath.Join(root, "cuda"), filepath.Join(root, "cuda", "bin", "nvcc"))

	inPath := filepath.Join(root, "path")
	toolkit(t, inPath, "12.0.1")
	t.Setenv("PATH", bin+":"+filepath.Join(inPath, "bin"))
	check("12.0.1", "PATH", filepath.Join(inPath, "bin", "nvcc"))

	toolkit(t, filepath.Join(root, "by path"), "12.0.2")
	t.Setenv("CUDA_PATH", filepath.Join(root, "by path"))
	check("12.0.2", "CUDA_PATH", filepath.Join(root, "by path", "bin", "nvcc"))

	// A relative CUDA_HOME is one of this folder; the compiler runs in others.
	toolkit(t, filepath.Join(root, "home"), "12.0.3")
	t.Chdir(root)
	t.Setenv("CUDA_HOME", "home")
	check("12.0.3", "CUDA_HOME", filepath.Join(root, "home", "bin", "nvcc"))

	// The installed one is found whatever else there is.
	if c, err := Installed(t.Context(), cacheDir); err != nil || c.Version != "13.0.88" {
		t.Errorf("installed: %+v, %v", c, err)
	}

	// A folder in CUDA_HOME that has no nvcc, or one that does not work, is passed over.
	t.Setenv("CUDA_HOME", filepath.Join(root, "gone"))
	check("12.0.2", "CUDA_PATH", filepath.Join(root, "by path", "bin", "nvcc"))
	script(t, filepath.Join(root, "broken", "bin", "nvcc"), "exit 3")
	t.Setenv("CUDA_HOME", filepath.Join(root, "broken"))
	check("12.0.2", "CUDA_PATH", filepath.Join(root, "by path", "bin", "nvcc"))
}

func TestFindNamesWhatIsBroken(t *testing.T) {
	bareMachine(t)
	dir := t.TempDir()
	t.Setenv("CUDA_HOME", dir)
	nvcc := filepath.Join(dir, "bin", "nvcc")
	for _, c := range []struct{ text, want string }{
		{"exit 3", nvcc + " does not run: exit status 3"},
		{"echo gcc 13", nvcc + " --version names no release"},
		{"echo release 13.0, V13.0.88", nvcc + " has no ptxas beside it"},
	} {
		script(t, nvcc, c.text)
		_, err := Find(t.Context(), t.TempDir())
		if !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("nvcc is %q: error %v, want %q", c.text, err, c.want)
		}
	}
	// ptxas may also be in PATH.
	bin := t.TempDir()
	script(t, filepath.Join(bin, "ptxas"), "")
	t.Setenv("PATH", os.Getenv("PATH")+":"+bin)
	if c, err := Find(t.Context(), t.TempDir()); err != nil || c.PTXAS != filepath.Join(bin, "ptxas") {
		t.Errorf("%+v, %v", c, err)
	}

	cacheDir := t.TempDir()
	script(t, cached(cacheDir).nvcc, "exit 4")
	_, err := Installed(t.Context(), cacheDir)
	if !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), "exit status 4") {
		t.Errorf("an installed compiler that is broken: %v", err)
	}
}

func TestFindCancelled(t *testing.T) {
	bareMachine(t)
	dir := t.TempDir()
	toolkit(t, dir, "13.0.88")
	t.Setenv("CUDA_HOME", dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if c, err := Find(ctx, t.TempDir()); c != nil || !errors.Is(err, context.Canceled) || errors.Is(err, ErrNoCompiler) {
		t.Errorf("%+v, %v, want context.Canceled and no word of a missing compiler", c, err)
	}
}

func TestFindWithoutHostCompiler(t *testing.T) {
	bin := bareMachine(t)
	cacheDir := t.TempDir()
	toolkit(t, filepath.Join(installDir(cacheDir), toolkitDir), "13.0.88")
	find := map[string]func(context.Context, string) (*Compiler, error){"Find": Find, "Installed": Installed}
	refused := func(host string) {
		t.Helper()
		for name, find := range find {
			c, err := find(t.Context(), cacheDir)
			if !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), "there is no "+host+" in PATH; install g++") {
				t.Errorf("%s: %v, want one that names %s", name, err, host)
			}
			if c == nil {
				t.Errorf("%s: the compiler that there is does not come with the error", name)
			}
		}
	}
	accepted := func(host string) {
		t.Helper()
		t.Setenv("NVCC_CCBIN", host)
		for name, find := range find {
			if _, err := find(t.Context(), cacheDir); err != nil {
				t.Errorf("%s: NVCC_CCBIN=%s: %v", name, host, err)
			}
		}
	}
	accepted("")
	if err := os.Rename(filepath.Join(bin, "gcc"), filepath.Join(bin, "clang++")); err != nil {
		t.Fatal(err)
	}
	refused("gcc")
	accepted("clang++")
	t.Setenv("NVCC_CCBIN", "g++-12")
	refused("g++-12")
	folder := t.TempDir()
	t.Setenv("NVCC_CCBIN", folder)
	refused(filepath.Join(folder, "gcc"))
	script(t, filepath.Join(folder, "gcc"), "")
	accepted(folder)
}

func TestNewerFirst(t *testing.T) {
	got := []string{"/cuda-9.2/nvcc", "/cuda-12.4/nvcc", "/cuda-13/nvcc", "/cuda-12.10/nvcc", "/cuda-13.1/nvcc", "/cuda-old/nvcc"}
	slices.SortFunc(got, newerFirst)
	want := []string{"/cuda-13.1/nvcc", "/cuda-13/nvcc", "/cuda-12.10/nvcc", "/cuda-12.4/nvcc", "/cuda-9.2/nvcc", "/cuda-old/nvcc"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestCacheDir(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "xdg"))
	t.Chdir(dir)
	for set, want := range map[string]string{
		"":                          filepath.Join(dir, "xdg", "attune"),
		filepath.Join(dir, "its"):   filepath.Join(dir, "its"),
		"relative to where it runs": filepath.Join(dir, "relative to where it runs"),
	} {
		t.Setenv("ATTUNE_CACHE", set)
		if got, err := CacheDir(); err != nil || got != want {
			t.Errorf("ATTUNE_CACHE=%q: %q, %v, want %q", set, got, err, want)
		}
	}
	t.Setenv("ATTUNE_CACHE", "")
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if got, err := CacheDir(); err == nil || !strings.Contains(err.Error(), "set ATTUNE_CACHE") {
		t.Errorf("no home: %q, %v", got, err)
	}
}
