package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fakePython makes a python3 whose pip is a shell script. In it $target is the folder for the
// wheels.
func fakePython(t testing.TB, bin, pip string) {
	t.Helper()
	script(t, filepath.Join(bin, "python3"), `
[ "$1 $2 $3" = "-m pip install" ] || exit 99
echo "$@" > "$LOG"
while [ $# -gt 0 ]; do
  [ "$1" = "--target" ] && target=$2
  [ "$1" = "-r" ] && cp "$2" "$LOG.wheels"
  shift
done
`+pip)
}

// unpacks is a pip that installs an nvcc of a version.
func unpacks(version string) string {
	return fmt.Sprintf(`
mkdir -p "$target/nvidia/cu13/bin"
cp "$0" "$target/nvidia/cu13/bin/ptxas"
cp "$0" "$target/nvidia/cu13/bin/nvcc"
cat > "$target/nvidia/cu13/bin/nvcc" <<'end'
#!/bin/sh
echo release 13.0, V%s
end
`, version)
}

// expectInstalled checks the contents of the cache after an installation.
func expectInstalled(t testing.TB, cacheDir string, want ...string) {
	t.Helper()
	if got := names(t, filepath.Join(cacheDir, "toolchains")); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("the cache contains %v, want %v", got, want)
	}
}

const installedName = "cuda-" + InstalledVersion

func TestInstall(t *testing.T) {
	bin, cacheDir := bareMachine(t), filepath.Join(t.TempDir(), "not yet there")
	log := filepath.Join(t.TempDir(), "log")
	t.Setenv("LOG", log)
	t.Setenv("GO", filepath.Join(t.TempDir(), "go"))
	// The fake pip waits for a progress callback, so there is at least one.
	fakePython(t, bin, `
echo "downloaded" > "$TMPDIR/wheel"
while [ ! -e "$GO" ]; do sleep 0.01; done
`+unpacks(InstalledVersion))
	var most int64
	c, err := Install(t.Context(), cacheDir, func(done, total int64) {
		most = max(most, done)
		if done < 0 || done > total {
			t.Errorf("%d bytes of %d are done", done, total)
		}
		if err := os.WriteFile(os.Getenv("GO"), nil, 0o644); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Version != InstalledVersion || c.Origin != "attune's cache" || c.NVCC != cached(cacheDir).nvcc {
		t.Errorf("installed %+v", *c)
	}
	if most < int64(len("downloaded")) {
		t.Errorf("the progress never exceeded %d bytes", most)
	}
	expectInstalled(t, cacheDir, installedName)
	called := readFile(t, log)
	for _, want := range []string{"--require-hashes", "--no-deps", "--only-binary :all:"} {
		if !strings.Contains(called, want) {
			t.Errorf("pip was called without %s: %s", want, called)
		}
	}
	if readFile(t, log+".wheels") != string(wheels) {
		t.Error("pip got another list of wheels")
	}

	// An installed compiler is not fetched again, even if the host compiler is missing.
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	if again, err := Install(t.Context(), cacheDir, nil); err != nil || *again != *c {
		t.Errorf("the second time: %+v, %v", again, err)
	}
	if err := os.Remove(filepath.Join(bin, "gcc")); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(t.Context(), cacheDir, nil); !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), "gcc") {
		t.Errorf("no host compiler: %v", err)
	}
	if _, err := os.Stat(log); err == nil {
		t.Error("pip was called although the compiler was installed")
	}
}

// Install replaces a broken compiler in the cache.
func TestInstallReplacesBroken(t *testing.T) {
	bin, cacheDir := bareMachine(t), t.TempDir()
	t.Setenv("LOG", filepath.Join(t.TempDir(), "log"))
	script(t, cached(cacheDir).nvcc, "exit 1")
	fakePython(t, bin, unpacks(InstalledVersion))
	if c, err := Install(t.Context(), cacheDir, nil); err != nil || c.Version != InstalledVersion {
		t.Errorf("%+v, %v", c, err)
	}
	expectInstalled(t, cacheDir, installedName)
}

// If another process is faster, its compiler stays.
func TestConcurrentInstall(t *testing.T) {
	bin, cacheDir := bareMachine(t), t.TempDir()
	t.Setenv("LOG", filepath.Join(t.TempDir(), "log"))
	t.Setenv("PLACE", installDir(cacheDir))
	fakePython(t, bin, unpacks("13.0.1")+"cp -R \"$target\" \"$PLACE\"\n"+unpacks("13.0.2"))
	if c, err := Install(t.Context(), cacheDir, nil); err != nil || c.Version != "13.0.1" {
		t.Errorf("%+v, %v, want the first compiler", c, err)
	}
	expectInstalled(t, cacheDir, installedName)
}

func TestInstallFails(t *testing.T) {
	bin := bareMachine(t)
	t.Setenv("LOG", filepath.Join(t.TempDir(), "log"))
	install := func(cacheDir string, wants ...string) {
		t.Helper()
		c, err := Install(t.Context(), cacheDir, nil)
		if err == nil || c != nil {
			t.Fatalf("%+v, %v, want an error", c, err)
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q, want %q", err, want)
			}
		}
		expectInstalled(t, cacheDir)
	}
	install(t.TempDir(), "install the compiler: there is no python3 in PATH; install Python 3 with pip")
	fakePython(t, bin, `
mkdir -p "$target/nvidia"
echo "ERROR: No matching distribution found for nvidia-cuda-nvcc==13.0.88"
echo "a second line" >&2
exit 1`)
	install(t.TempDir(), "install the compiler: pip failed:\nERROR: No matching distribution found", "\na second line")
	fakePython(t, bin, "exit 0")
	install(t.TempDir(), "the compiler that pip installed does not work", "nvcc")
	fakePython(t, bin, unpacks("13.0.88")+"echo exit 5 >> \"$target/nvidia/cu13/bin/nvcc\"")
	install(t.TempDir(), "the compiler that pip installed does not work", "exit status 5")

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(t.Context(), file, nil); err == nil || !strings.Contains(err.Error(), "make the cache folder") {
		t.Errorf("the cache is a file: %v", err)
	}
}

func TestInstallCancelled(t *testing.T) {
	bin := bareMachine(t)
	cacheDir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOG", filepath.Join(t.TempDir(), "log"))
	// pip's child runs in the staging folder, where the test can find it.
	fakePython(t, bin, `
mkdir -p "$target/nvidia"
cd "$target/nvidia"
sleep 600 &
wait`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, err := Install(ctx, cacheDir, func(done, total int64) {
		if strings.Contains(strings.Join(running(t, cacheDir), " "), "sleep") {
			cancel()
		}
	})
	if c != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v, want context.Canceled", c, err)
	}
	expectNoProcess(t, cacheDir)
	expectInstalled(t, cacheDir)
	if _, err := Install(ctx, cacheDir, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before the start: %v", err)
	}
	expectInstalled(t, cacheDir)
}

// Every wheel is pinned to one release and to one file for each of the two architectures.
func TestWheels(t *testing.T) {
	line := regexp.MustCompile(`^nvidia-[a-z-]+==\d+(\.\d+)+( --hash=sha256:[0-9a-f]{64}){2}$`)
	compiler := false
	for text := range strings.Lines(string(wheels)) {
		text = strings.TrimSpace(text)
		if strings.HasPrefix(text, "#") {
			continue
		}
		if !line.MatchString(text) {
			t.Errorf("not pinned: %s", text)
		}
		compiler = compiler || strings.HasPrefix(text, "nvidia-cuda-nvcc=="+InstalledVersion+" ")
	}
	if !compiler {
		t.Errorf("the list has no nvcc %s", InstalledVersion)
	}
}
