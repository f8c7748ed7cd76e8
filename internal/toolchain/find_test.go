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

// versionText is the output of nvcc --version.
const versionText = `nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release %s, V%s
Build cuda_13.0.r13.0/compiler.36424714_0
`

// toolkit makes a folder that Find accepts as a CUDA toolkit of a version such as 12.4.131.
func toolkit(t testing.TB, dir, version string) {
	t.Helper()
	release := version[:strings.LastIndex(version, ".")]
	script(t, filepath.Join(dir, "bin", "nvcc"), "cat <<'end'\n"+fmt.Sprintf(versionText, release, version)+"end\n")
	script(t, filepath.Join(dir, "bin", "ptxas"), "")
}

// bareMachine hides every CUDA compiler of this machine. PATH keeps only a fake host compiler and
// the programs that the scripts need. It returns the only folder in PATH.
func bareMachine(t *testing.T) string {
	t.Helper()
	plainEnvironment(t)
	setDigests(t, nil) // of fake wheels there are none
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
		t.Errorf("no compiler: %v", err)
	}
	if _, err := Installed(t.Context(), cacheDir); !errors.Is(err, ErrNoCompiler) {
		t.Errorf("nothing installed: %v", err)
	}

	// Each toolkit that is added takes precedence over the earlier ones.
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

	// A relative CUDA_HOME is resolved against the working directory.
	toolkit(t, filepath.Join(root, "home"), "12.0.3")
	t.Chdir(root)
	t.Setenv("CUDA_HOME", "home")
	check("12.0.3", "CUDA_HOME", filepath.Join(root, "home", "bin", "nvcc"))

	// Installed ignores all other compilers.
	if c, err := Installed(t.Context(), cacheDir); err != nil || c.Version != "13.0.88" {
		t.Errorf("installed: %+v, %v", c, err)
	}
}

// Find skips a CUDA_HOME without nvcc, and one with a broken nvcc.
func TestFindSkipsBrokenCompilers(t *testing.T) {
	bareMachine(t)
	root := t.TempDir()
	toolkit(t, filepath.Join(root, "by path"), "12.0.2")
	t.Setenv("CUDA_PATH", filepath.Join(root, "by path"))
	script(t, filepath.Join(root, "broken", "bin", "nvcc"), "exit 3")
	for _, home := range []string{"gone", "broken"} {
		t.Setenv("CUDA_HOME", filepath.Join(root, home))
		if c, err := Find(t.Context(), t.TempDir()); err != nil || c.Version != "12.0.2" || c.Origin != "CUDA_PATH" {
			t.Errorf("CUDA_HOME is %s: %+v, %v, want the compiler of CUDA_PATH", home, c, err)
		}
	}
}

func TestFindReportsBrokenCompilers(t *testing.T) {
	bareMachine(t)
	dir := t.TempDir()
	t.Setenv("CUDA_HOME", dir)
	nvcc := filepath.Join(dir, "bin", "nvcc")
	for _, c := range []struct{ text, want string }{
		{"exit 3", nvcc + " does not run: exit status 3"},
		{"echo gcc 13", nvcc + " --version prints no release"},
		{"echo release 13.0, V13.0.88", "there is no ptxas beside " + nvcc},
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
		t.Errorf("a broken installed compiler: %v", err)
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
		t.Errorf("%+v, %v, want context.Canceled and not ErrNoCompiler", c, err)
	}
}

func TestFindWithoutHostCompiler(t *testing.T) {
	bin := bareMachine(t)
	cacheDir := t.TempDir()
	toolkit(t, filepath.Join(installDir(cacheDir), toolkitDir), "13.0.88")
	find := map[string]func(context.Context, string) (*Compiler, error){"Find": Find, "Installed": Installed}
	rejects := func(host string) {
		t.Helper()
		for name, find := range find {
			c, err := find(t.Context(), cacheDir)
			if !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), "there is no "+host+" in PATH; install g++") {
				t.Errorf("%s: %v, want an error about %s", name, err, host)
			}
			if c == nil {
				t.Errorf("%s: the error comes without the compiler", name)
			}
		}
	}
	accepts := func(host string) {
		t.Helper()
		t.Setenv("NVCC_CCBIN", host)
		for name, find := range find {
			if _, err := find(t.Context(), cacheDir); err != nil {
				t.Errorf("%s: NVCC_CCBIN=%s: %v", name, host, err)
			}
		}
	}
	accepts("")
	if err := os.Rename(filepath.Join(bin, "gcc"), filepath.Join(bin, "clang++")); err != nil {
		t.Fatal(err)
	}
	rejects("gcc")
	accepts("clang++")
	t.Setenv("NVCC_CCBIN", "g++-12")
	rejects("g++-12")
	folder := t.TempDir()
	t.Setenv("NVCC_CCBIN", folder)
	rejects(filepath.Join(folder, "gcc"))
	script(t, filepath.Join(folder, "gcc"), "")
	accepts(folder)
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
	const noHome = "there is no cache folder: neither HOME nor XDG_CACHE_HOME is set; set ATTUNE_CACHE to a folder"
	if got, err := CacheDir(); !errors.Is(err, ErrNoCacheDir) || err.Error() != noHome {
		t.Errorf("no home: %q, %v", got, err)
	}
	t.Setenv("XDG_CACHE_HOME", "relative")
	if got, err := CacheDir(); !errors.Is(err, ErrNoCacheDir) || !strings.Contains(err.Error(), "relative; set ATTUNE_CACHE") {
		t.Errorf("a relative XDG_CACHE_HOME: %q, %v", got, err)
	}
}
