package ledger

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestReady(t *testing.T) {
	dir := t.TempDir()
	absent := open(t, filepath.Join(dir, "a", "b"))
	if err := absent.Ready(); err != nil {
		t.Error(err)
	}
	if got := names(t, dir); len(got) > 0 {
		t.Errorf("Ready made %q", got)
	}
	l, _ := filled(t, 1)
	if err := l.Ready(); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wantError(t, (&Ledger{dir: file, chain: &chainFile{}}).Ready(), file+" is not a directory; give another --ledger")
	wantError(t, (&Ledger{dir: filepath.Join(file, "x"), chain: &chainFile{}}).Ready(), "cannot be used", "not a directory")
	link := filepath.Join(dir, "link")
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	wantError(t, open(t, filepath.Join(link, "x")).Ready(), "the symbolic link "+link+" leads nowhere")
}

func TestReadyByMode(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("modes do not stop root; TestNotReady mounts a read-only file system")
	}
	l, _ := filled(t, 1)
	if err := os.Chmod(l.runsPath(), 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(l.runsPath(), 0o755) })
	wantError(t, l.Ready(), "is read-only", runsName, "give another --ledger")
}

// A read-only file system and a full one are noticed without a write.
func TestNotReady(t *testing.T) {
	if !withMounts(t) {
		return
	}
	disk := smallDisk(t, "8m")
	dir := filepath.Join(disk, "ledger")
	plant(t, dir, sampleEntry(0))
	seal(t, dir)
	l := open(t, dir)
	if err := l.Ready(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(disk, "filler"), make([]byte, 7<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	wantError(t, l.Ready(), "is full", "free some space or give another --ledger")
	if err := os.Remove(filepath.Join(disk, "filler")); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Skipf("cannot mount read-only: %v", err)
	}
	wantError(t, l.Ready(), "is on a read-only file system; give another --ledger")
	for what, err := range map[string]error{
		"Seal":   second(l.Seal(t.Context())),
		"Import": second(l.Import(t.Context(), dir)),
	} {
		if err != nil {
			t.Errorf("%s has nothing to write: %v", what, err)
		}
	}
	_, err := l.Remove(t.Context(), sampleEntry(0).ID[:8])
	wantError(t, err, "was not removed", "read-only")
}
