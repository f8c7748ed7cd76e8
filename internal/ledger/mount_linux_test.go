package ledger

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const inNamespace = "ATTUNE_LEDGER_TEST_NAMESPACE"

// withMounts runs the calling test again in a namespace where it may mount file systems without
// being root. The mounts end with the namespace. withMounts returns true inside; outside it returns
// false after the inner test has finished.
func withMounts(t *testing.T) bool {
	if os.Getenv(inNamespace) != "" {
		return true
	}
	c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), inNamespace+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := c.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Skipf("this machine allows no namespace to mount a file system in: %v", err)
	}
	t.Logf("in a namespace of its own:\n%s", out)
	if strings.Contains(string(out), "--- SKIP") {
		t.Skip("this machine allows no mounts")
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Error(err)
	}
	return false
}

// smallDisk mounts a file system of the given size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestFullDisk(t *testing.T) {
	if !withMounts(t) {
		return
	}
	disk := smallDisk(t, "256k")
	reserve := filepath.Join(disk, "reserve")
	if err := os.WriteFile(reserve, make([]byte, 64<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(disk, "ledger")
	l := open(t, dir)
	var all []Entry
	var full error
	for i := 0; full == nil && i < 100; i++ {
		e := sampleEntry(i)
		files := runFiles(e)
		files["samples.json"] = make([]byte, 10_000)
		if _, full = l.Record(t.Context(), files); full == nil {
			all = append(all, e)
		}
	}
	wantError(t, full, "was not recorded", "the disk is full", "no space left")
	if len(all) < 3 {
		t.Fatalf("only %d runs fit: %v", len(all), full)
	}
	if n := countTemporary(t, dir); n != 0 {
		t.Errorf("%d temporary directories left", n)
	}
	// Fill the disk to the last byte.
	filler, err := os.Create(filepath.Join(disk, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, 512))
	}
	for _, l := range []*Ledger{l, open(t, dir)} {
		_, err := l.Record(t.Context(), runFiles(sampleEntry(len(all))))
		wantError(t, err, "the disk is full")
		wantRuns(t, l, all)
		wantProblems(t, l, len(all))
	}
	if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
		t.Fatal(err)
	}
	if _, err = filler.Write(make([]byte, 1<<20)); err == nil {
		t.Fatal("the disk is not full")
	}
	wantRuns(t, open(t, dir), all) // no index, and no room for one

	if err := os.Remove(reserve); err != nil {
		t.Fatal(err)
	}
	l = open(t, dir)
	e := sampleEntry(len(all))
	record(t, l, e)
	all = append(all, e)
	wantRuns(t, l, all)
	wantProblems(t, l, len(all))
	if n := onDisk(t, dir); n != len(all) {
		t.Errorf("the index holds %d runs, want %d", n, len(all))
	}
}

func TestReadOnlyFileSystem(t *testing.T) {
	if !withMounts(t) {
		return
	}
	check := func(name string, change func(t *testing.T, dir string) []Entry) {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t, "4m")
			all := change(t, dir)
			if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
				t.Skipf("cannot mount read-only: %v", err)
			}
			wantReadOnly(t, dir, all)
		})
	}
	some := func(t *testing.T, dir string) []Entry {
		all := []Entry{sampleEntry(0), sampleEntry(1), sampleEntry(2)}
		for _, e := range all {
			plant(t, dir, e)
		}
		seal(t, dir)
		if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
			t.Fatal(err)
		}
		return all
	}
	index := func(t *testing.T, dir string) {
		if err := open(t, dir).Close(); err != nil {
			t.Fatal(err)
		}
	}
	check("no runs", func(*testing.T, string) []Entry { return nil })
	check("no index", some)
	check("current index", func(t *testing.T, dir string) []Entry {
		all := some(t, dir)
		index(t, dir)
		return all
	})
	check("old index", func(t *testing.T, dir string) []Entry {
		all := some(t, dir)
		index(t, dir)
		last := sampleEntry(3)
		old, err := os.ReadFile(filepath.Join(dir, indexName))
		if err != nil {
			t.Fatal(err)
		}
		plant(t, dir, last)
		seal(t, dir)
		overwrite(t, filepath.Join(dir, indexName), string(old))
		return append(all, last)
	})
	check("damaged index", func(t *testing.T, dir string) []Entry {
		all := some(t, dir)
		overwrite(t, filepath.Join(dir, indexName), "garbage")
		return all
	})
}
