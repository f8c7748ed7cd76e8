package toolchain

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// fakeWheels are the files that the fake pip unpacks: a compiler of a version with the lists of the
// wheels.
func fakeWheels(version string) map[string]string {
	bin := filepath.Join(toolkitDir, "bin")
	files := map[string]string{
		filepath.Join(bin, "nvcc"):  "#!/bin/sh\necho release 13.0, V" + version + "\n",
		filepath.Join(bin, "ptxas"): "#!/bin/sh\n",
	}
	var list strings.Builder
	for name, text := range files {
		sum := sha256.Sum256([]byte(text))
		fmt.Fprintf(&list, "%s,sha256=%s,%d\n", name, base64.RawURLEncoding.EncodeToString(sum[:]), len(text))
	}
	for _, m := range wheelLine.FindAllSubmatch(wheels, -1) {
		name := recordName(string(m[1]), string(m[2]))
		files[name] = name + ",,\n"
		if string(m[1]) == "nvidia-cuda-nvcc" {
			files[name] += list.String()
		}
	}
	return files
}

// unpacks is a pip that installs an nvcc of a version.
func unpacks(version string) string {
	var text strings.Builder
	for name, contents := range fakeWheels(version) {
		// The copy of the script itself has the mode of a program.
		fmt.Fprintf(&text, "mkdir -p \"$target/%s\"\ncp \"$0\" \"$target/%s\"\ncat > \"$target/%s\" <<'end'\n%send\n",
			filepath.Dir(name), name, name, contents)
	}
	return text.String()
}

// expectInstalled checks the contents of the cache after an installation.
func expectInstalled(t testing.TB, cacheDir string, want ...string) {
	t.Helper()
	got := slices.DeleteFunc(names(t, filepath.Join(cacheDir, "toolchains")), func(name string) bool { return name == lockFile })
	if strings.Join(got, " ") != strings.Join(want, " ") {
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
	c, err := Install(t.Context(), cacheDir, Observer{Progress: func(done, total int64) {
		most = max(most, done)
		if done < 0 || done > total {
			t.Errorf("%d bytes of %d are done", done, total)
		}
		if err := os.WriteFile(os.Getenv("GO"), nil, 0o644); err != nil {
			t.Error(err)
		}
	}})
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
	if again, err := Install(t.Context(), cacheDir, Observer{}); err != nil || *again != *c {
		t.Errorf("the second time: %+v, %v", again, err)
	}
	if err := os.Remove(filepath.Join(bin, "gcc")); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(t.Context(), cacheDir, Observer{}); !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), "gcc") {
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
	if c, err := Install(t.Context(), cacheDir, Observer{}); err != nil || c.Version != InstalledVersion {
		t.Errorf("%+v, %v", c, err)
	}
	expectInstalled(t, cacheDir, installedName)
}

// Install compares an installed compiler with its hashes, and replaces it if a file is damaged.
func TestInstallRepairs(t *testing.T) {
	bin, cacheDir := bareMachine(t), t.TempDir()
	log := filepath.Join(t.TempDir(), "log")
	t.Setenv("LOG", log)
	fakePython(t, bin, unpacks(InstalledVersion))
	if _, err := Install(t.Context(), cacheDir, Observer{}); err != nil {
		t.Fatal(err)
	}
	place := installDir(cacheDir)
	list := recordName("nvidia-cuda-nvcc", InstalledVersion)
	write := func(name, text string) func() error {
		return func() error { return os.WriteFile(filepath.Join(place, name), []byte(text), 0o644) }
	}
	for name, damage := range map[string]func() error{
		"nvidia/cu13/bin/ptxas does not match its hash": write("nvidia/cu13/bin/ptxas", "#!/bin/sh\nexit 1\n"),
		"nvidia/cu13/bin/ptxas is missing":              func() error { return os.Remove(filepath.Join(place, "nvidia/cu13/bin/ptxas")) },
		"nvidia/cu13/bin/extra belongs to no wheel":     write("nvidia/cu13/bin/extra", ""),
		list + " is missing":                            func() error { return os.Remove(filepath.Join(place, list)) },
		list + " is cut short":                          write(list, ""),
		list + " is not a list of files":                write(list, "garbled\n"),
		"and 4 more files are damaged":                  func() error { return errors.Join(os.RemoveAll(place), os.Mkdir(place, 0o755), write("x", "")()) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(log); err != nil {
			t.Fatal(err)
		}
		var notes []string
		c, err := Install(t.Context(), cacheDir, Observer{Note: func(text string) { notes = append(notes, text) }})
		if err != nil || c.Version != InstalledVersion {
			t.Fatalf("%s: %+v, %v", name, c, err)
		}
		if text := strings.Join(notes, "\n"); !strings.Contains(text, name) || !strings.Contains(text, "installing it again") {
			t.Errorf("%s: the notes are %q", name, text)
		}
		if v, err := Verify(t.Context(), cacheDir); err != nil || len(v.Damaged) > 0 || v.Files != 2 {
			t.Errorf("%s: after the repair %+v, %v", name, v, err)
		}
		expectInstalled(t, cacheDir, installedName)
	}

	// Without pip the damage is reported and nothing is deleted.
	fakePython(t, bin, "echo no network; exit 1")
	if err := write("nvidia/cu13/bin/ptxas", "")(); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(t.Context(), cacheDir, Observer{}); err == nil || !strings.Contains(err.Error(), "pip failed:\nno network") {
		t.Errorf("without network: %v", err)
	}
	expectInstalled(t, cacheDir, installedName)
}

// The folders that killed installations left behind are removed, unless one of them still runs.
func TestInstallRemovesLeftovers(t *testing.T) {
	bin, cacheDir := bareMachine(t), t.TempDir()
	t.Setenv("LOG", filepath.Join(t.TempDir(), "log"))
	fakePython(t, bin, unpacks(InstalledVersion))
	folder := filepath.Join(cacheDir, "toolchains")
	leave := func() {
		t.Helper()
		left := filepath.Join(folder, stagingPrefix+"123", unpackedDir)
		if err := errors.Join(os.MkdirAll(left, 0o755), os.WriteFile(filepath.Join(left, "wheel"), make([]byte, 2<<20), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	var note string
	if _, err := Install(t.Context(), cacheDir, Observer{Note: func(text string) { note = text }}); err != nil {
		t.Fatal(err)
	}
	if note != "removed 2 MB of an installation that did not finish" {
		t.Errorf("note %q", note)
	}
	expectInstalled(t, cacheDir, installedName)

	// Another installation runs.
	leave()
	lock, err := lockFolder(t.Context(), folder, func() {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Install(ctx, cacheDir, Observer{Progress: func(int64, int64) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Errorf("while another installation runs: %v", err)
	}
	expectInstalled(t, cacheDir, stagingPrefix+"123", installedName)
	var notes []string
	_, err = Install(t.Context(), cacheDir, Observer{
		Note: func(text string) { notes = append(notes, text) },
		Progress: func(int64, int64) {
			if lock != nil {
				lock.Close()
				lock = nil
			}
		},
	})
	if want := "another process installs the compiler; waiting for it"; err != nil || len(notes) != 2 || notes[0] != want {
		t.Errorf("after another installation: %v, notes %q, want %q first", err, notes, want)
	}
	expectInstalled(t, cacheDir, installedName)
}

// pip holds the lock, so that the folder of an orphaned pip is not removed under it.
func TestPipHoldsTheLock(t *testing.T) {
	bin, cacheDir := bareMachine(t), t.TempDir()
	t.Setenv("LOG", filepath.Join(t.TempDir(), "log"))
	end := filepath.Join(t.TempDir(), "end")
	t.Setenv("END", end)
	// The child outlives pip, as pip outlives an attune that was killed.
	fakePython(t, bin, unpacks(InstalledVersion)+"(while [ ! -e \"$END\" ]; do sleep 0.05; done) >/dev/null 2>&1 </dev/null &\n")
	if _, err := Install(t.Context(), cacheDir, Observer{}); err != nil {
		t.Fatal(err)
	}
	waited := false
	lock, err := lockFolder(t.Context(), filepath.Join(cacheDir, "toolchains"), func() {
		waited = true
		if err := os.WriteFile(end, nil, 0o644); err != nil {
			t.Error(err)
		}
	})
	if err != nil || !waited {
		t.Fatalf("%v, waited: %v", err, waited)
	}
	lock.Close()
}

// If another process is faster, its compiler stays.
func TestConcurrentInstall(t *testing.T) {
	bin, cacheDir := bareMachine(t), t.TempDir()
	t.Setenv("LOG", filepath.Join(t.TempDir(), "log"))
	t.Setenv("PLACE", installDir(cacheDir))
	fakePython(t, bin, unpacks("13.0.1")+"cp -R \"$target\" \"$PLACE\"\n"+unpacks("13.0.2"))
	if c, err := Install(t.Context(), cacheDir, Observer{}); err != nil || c.Version != "13.0.1" {
		t.Errorf("%+v, %v, want the first compiler", c, err)
	}
	expectInstalled(t, cacheDir, installedName)
}

func TestInstallFails(t *testing.T) {
	bin := bareMachine(t)
	t.Setenv("LOG", filepath.Join(t.TempDir(), "log"))
	install := func(cacheDir string, wants ...string) {
		t.Helper()
		c, err := Install(t.Context(), cacheDir, Observer{})
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
	fakePython(t, bin, unpacks("13.0.88")+"echo >> \"$target/nvidia/cu13/bin/ptxas\"")
	install(t.TempDir(), "pip has not installed what the wheels contain: nvidia/cu13/bin/ptxas does not match its hash; check the disk")

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(t.Context(), file, Observer{}); err == nil || !strings.Contains(err.Error(), "make the cache folder") {
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
	c, err := Install(ctx, cacheDir, Observer{Progress: func(done, total int64) {
		if strings.Contains(strings.Join(running(t, cacheDir), " "), "sleep") {
			cancel()
		}
	}})
	if c != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v, want context.Canceled", c, err)
	}
	expectNoProcess(t, cacheDir)
	expectInstalled(t, cacheDir)
	if _, err := Install(ctx, cacheDir, Observer{}); !errors.Is(err, context.Canceled) {
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
