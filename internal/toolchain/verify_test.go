package toolchain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"attune/internal/child/childtest"
	"attune/internal/rotate"
)

// copyInstalled copies the pinned compiler to a cache of its own, so that a test can damage it.
func copyInstalled(t *testing.T) (c *Compiler, cacheDir string) {
	t.Helper()
	from := pinned(t).folder()
	cacheDir = t.TempDir()
	if err := childtest.Write(func() error { return os.CopyFS(installDir(cacheDir), os.DirFS(from)) }); err != nil {
		t.Fatal(err)
	}
	c, err := Installed(t.Context(), cacheDir)
	if err != nil {
		t.Fatal(err)
	}
	return c, cacheDir
}

// damages are ways to damage a program or another file of the compiler.
var damages = map[string]func(file string, data []byte) error{
	"cut short": func(file string, data []byte) error { return os.Truncate(file, int64(len(data)/2)) },
	"emptied":   func(file string, _ []byte) error { return os.Truncate(file, 0) },
	"flipped bits": func(file string, data []byte) error {
		damaged := bytes.Clone(data)
		for range 1 + len(data)/1000 {
			damaged[rand.IntN(len(data))] ^= 1 << rand.IntN(8)
		}
		damaged[rand.IntN(len(data))]++ // so that two flips of one bit change something too
		return os.WriteFile(file, damaged, 0o755)
	},
	"not executable": func(file string, _ []byte) error { return os.Chmod(file, 0o600) },
	"removed":        func(file string, _ []byte) error { return os.Remove(file) },
	"killed":         func(file string, _ []byte) error { return os.WriteFile(file, []byte("#!/bin/sh\nkill -9 $$\n"), 0o755) },
	"silent":         func(file string, _ []byte) error { return os.WriteFile(file, []byte("#!/bin/sh\nexit 1\n"), 0o755) },
	"without output": func(file string, _ []byte) error { return os.WriteFile(file, []byte("#!/bin/sh\n"), 0o755) },
}

// A damaged compiler is a fault that names the file, whichever program, header or library is
// damaged, and never an image or a rejected variant. So it is with a compiler that attune has no
// hashes of, if the damaged program runs. Of the files that only hashes protect, one is damaged in each turn.
func TestBuildWithDamagedCompiler(t *testing.T) {
	c, cacheDir := copyInstalled(t)
	other := *c
	other.Origin = "CUDA_HOME"
	build := func(c *Compiler) (*Image, error) {
		image, _, err := NewBuilder(tiny(), c, t.TempDir()).Build(t.Context(), tinyTarget())
		return image, err
	}
	good, err := build(c)
	if err != nil {
		t.Fatal(err)
	}
	dir := installDir(cacheDir)
	for i, name := range []string{
		"nvvm/bin/cicc", "bin/ptxas", "bin/nvcc.profile", "bin/cudafe++", "bin/fatbinary", "include/cuda_runtime.h", "nvvm/libdevice/libdevice.10.bc",
	} {
		file := filepath.Join(dir, toolkitDir, name)
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		everyBuild := name == "nvvm/bin/cicc" || name == "bin/ptxas"
		if due, err := rotate.Due(i, 5); err != nil {
			t.Fatal(err)
		} else if !due && !everyBuild {
			continue
		}
		for kind, damage := range damages {
			if !everyBuild && kind != "flipped bits" && kind != "removed" { // found by their hashes, whatever the damage
				continue
			}
			if err := childtest.Write(func() error { return damage(file, data) }); err != nil {
				t.Fatal(err)
			}
			image, err := build(c)
			var fault *FaultError
			if image != nil || !errors.As(err, &fault) || !strings.Contains(err.Error(), name) ||
				!strings.Contains(err.Error(), "run `attune toolchain install` to repair it") {
				t.Errorf("%s %s: image %t, error %v, want a FaultError", name, kind, image != nil, err)
			}
			if everyBuild {
				if image, err := build(&other); image != nil || !errors.As(err, &fault) {
					t.Errorf("%s %s, without hashes: image %t, error %v, want a FaultError", name, kind, image != nil, err)
				}
			}
			if err := os.RemoveAll(file); err != nil {
				t.Fatal(err)
			}
			childtest.Program(t, file, string(data))
		}
	}
	nvdisasm := filepath.Join(dir, toolkitDir, "bin", "nvdisasm")
	if err := os.Truncate(nvdisasm, 1000); err != nil {
		t.Fatal(err)
	}
	_, err = Disassemble(t.Context(), c, good.Cubin)
	if fault := (*FaultError)(nil); !errors.As(err, &fault) || !strings.Contains(err.Error(), "bin/nvdisasm does not match its hash") {
		t.Errorf("a damaged nvdisasm: %v", err)
	}
	if found, err := c.Damaged(t.Context()); err != nil || len(found) != 1 {
		t.Errorf("%v, %v, want one damaged file", found, err)
	}
	from, err := os.ReadFile(filepath.Join(pinned(t).folder(), toolkitDir, "bin", "nvdisasm"))
	if err != nil {
		t.Fatal(err)
	}
	childtest.Program(t, nvdisasm, string(from))
	if again, err := build(c); err != nil || again.Record.CodeHash != good.Record.CodeHash {
		t.Errorf("after the repair: %v", err)
	}
}

// Verified files are not read again by the next process unless they changed. A failed build reads
// them again.
func TestVerificationIsRemembered(t *testing.T) {
	c, cacheDir := copyInstalled(t)
	dir := installDir(cacheDir)
	forget := func() {
		hashed.Lock()
		defer hashed.Unlock()
		clear(hashed.files)
		clear(hashed.folder)
	}
	damaged := func(fresh bool) int {
		t.Helper()
		found, err := c.damaged(t.Context(), fresh)
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	if n := damaged(false); n != 0 {
		t.Fatalf("%d files are damaged", n)
	}
	file := filepath.Join(dir, toolkitDir, "include", "cuda_fp8.h")
	text := readFile(t, file)
	if err := os.WriteFile(file, []byte(strings.Replace(text, "a", "b", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if n := damaged(false); n != 1 {
		t.Errorf("after a change %d files are damaged, want 1", n)
	}
	// A stamp with the signature of the changed file stands for damage that changes no time.
	now, err := readSignatures(dir)
	if err != nil {
		t.Fatal(err)
	}
	writeStamp(dir, now.hash())
	forget()
	if n := damaged(false); n != 0 {
		t.Errorf("with a stamp %d files are damaged, want 0", n)
	}
	if n := damaged(true); n != 1 {
		t.Errorf("with a stamp, after a failure, %d files are damaged, want 1", n)
	}
	err = c.diagnose(t.Context(), tinyTarget(), c.NVCC, exitError(t, "exit 2"), "ada/tiny.cu(3): error: no\n")
	if fault := (*FaultError)(nil); !errors.As(err, &fault) || !strings.Contains(err.Error(), "cuda_fp8.h does not match") {
		t.Errorf("a diagnosis with a damaged header: %v", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"check":    c.check(t.Context(), tinyTarget()),
		"diagnose": c.diagnose(t.Context(), tinyTarget(), c.NVCC, exitError(t, "exit 2"), "ada/tiny.cu(3): error: no\n"),
		"broken":   c.broken(t.Context(), tinyTarget(), "hm"),
	} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s without the folder: %v", name, err)
		}
	}
	if _, err := Verify(t.Context(), cacheDir); !errors.Is(err, ErrNoCompiler) {
		t.Errorf("verify without the folder: %v", err)
	}
}

// setDigests replaces the digests of the wheels' lists during a test.
func setDigests(t *testing.T, digests map[string]string) {
	t.Helper()
	own := recordDigests
	recordDigests = digests
	t.Cleanup(func() { recordDigests = own })
}

// The digests in the program are those of the pinned wheels.
func TestRecordDigests(t *testing.T) {
	dir := pinned(t).folder()
	for _, m := range wheelLine.FindAllSubmatch(wheels, -1) {
		name := recordName(string(m[1]), string(m[2]))
		hashes, err := parseRecord([]byte(readFile(t, filepath.Join(dir, name))), name)
		if err != nil {
			t.Fatal(err)
		}
		if got := wheelDigest(name, hashes); recordDigests[name] != got {
			t.Errorf("records.txt has %q; want the line\n%s==%s %s %s", recordDigests[name], m[1], m[2], runtime.GOARCH, got)
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		if n := strings.Count(recordLines, " "+arch+" "); n != len(wheelLine.FindAll(wheels, -1)) {
			t.Errorf("records.txt has %d lines for %s", n, arch)
		}
	}
}

// A header that is edited together with its line in the list of its wheel is found, and so are links
// in the place of files.
func TestVerifyForgedList(t *testing.T) {
	cacheDir := t.TempDir()
	dir := installDir(cacheDir)
	wheel, list := fakeWheels(InstalledVersion), recordName("nvidia-cuda-nvcc", InstalledVersion)
	digest := func(text string) string {
		hashes, err := parseRecord([]byte(text), list)
		if err != nil {
			t.Fatal(err)
		}
		return wheelDigest(list, hashes)
	}
	setDigests(t, map[string]string{list: digest(wheel[list])})
	if more := path.Dir(list) + "/REQUESTED,sha256=x,0\n" + path.Dir(list) + "/INSTALLER,sha256=y,4\n"; digest(wheel[list]+more) != digest(wheel[list]) {
		t.Error("the digest depends on files that pip adds")
	}
	write := func(name, text string) {
		t.Helper()
		script(t, filepath.Join(dir, name), "")
		childtest.Program(t, filepath.Join(dir, name), text)
	}
	expect := func(want ...Damage) {
		t.Helper()
		if v, err := Verify(t.Context(), cacheDir); err != nil || !slices.Equal(v.Damaged, append([]Damage{}, want...)) {
			t.Errorf("%+v, %v, want %v", v, err, want)
		}
	}
	for name, text := range wheel {
		write(name, text)
	}
	expect()

	const file = "nvidia/cu13/bin/ptxas"
	sum := func(text string) string {
		raw := sha256.Sum256([]byte(text))
		return base64.RawURLEncoding.EncodeToString(raw[:])
	}
	forged := wheel[file] + "exit 0\n"
	write(file, forged)
	write(list, strings.Replace(wheel[list], sum(wheel[file]), sum(forged), 1))
	expect(Damage{list, fileChanged})

	write(list, wheel[list])
	elsewhere := filepath.Join(t.TempDir(), "ptxas")
	err := errors.Join(os.WriteFile(elsewhere, []byte(wheel[file]), 0o755), os.Remove(filepath.Join(dir, file)),
		os.Symlink(elsewhere, filepath.Join(dir, file)))
	if err != nil {
		t.Fatal(err)
	}
	expect(Damage{file, fileLink})
}

// Verify hashes a fake installation; this needs no compiler.
func TestVerify(t *testing.T) {
	setDigests(t, nil)
	cacheDir := t.TempDir()
	dir := installDir(cacheDir)
	for name, text := range fakeWheels(InstalledVersion) {
		script(t, filepath.Join(dir, name), "")
		childtest.Program(t, filepath.Join(dir, name), text)
	}
	v, err := Verify(t.Context(), cacheDir)
	if err != nil || v.Folder != dir || v.Files != 2 || len(v.Damaged) != 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "nvidia", "cu13", "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "nvidia/cu13/bin/ptxas")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "nvidia/cu13/bin/ptxas"), 0o755); err != nil {
		t.Fatal(err)
	}
	v, err = Verify(t.Context(), cacheDir)
	if want := []Damage{{"nvidia/cu13/bin/ptxas", fileUnreadable}}; err != nil || !slices.Equal(v.Damaged, want) {
		t.Errorf("%+v, %v, want %v", v, err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, cacheDir); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := verifyFolder(t.Context(), filepath.Join(cacheDir, "gone"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

func FuzzRecord(f *testing.F) {
	const self = "a-1.dist-info/RECORD"
	f.Add("bin/nvcc,sha256=uOI0fZ1_yt-IEqJzJNUV3pnQM9PkhhGBHs5-ZteJX4o,30153384\na-1.dist-info/RECORD,,\n")
	f.Add("\"a,b\",sha256=x,1\n")
	f.Add("../up,sha256=x,1\na-1.dist-info/RECORD,,\n")
	f.Add("bin/nvcc,md5=x,1\n")
	f.Add("a,b\n")
	f.Fuzz(func(t *testing.T, text string) {
		hashes, err := parseRecord([]byte(text), self)
		for name := range hashes {
			if !fs.ValidPath(name) {
				t.Errorf("%q is read from %q", name, text)
			}
		}
		if err == nil && !strings.Contains(text, self) {
			t.Errorf("%q is complete", text)
		}
	})
}
