package trial

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"attune/internal/fleet"
)

// shelf are objects in memory.
type shelf struct {
	mu   sync.Mutex
	kept map[string][]byte
	gets int
}

func (s *shelf) Get(_ context.Context, hash string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets++
	if data, ok := s.kept[hash]; ok {
		return data, nil
	}
	return nil, &fleet.MachineError{Err: errors.New("the fleet has no file " + hash)}
}

func (s *shelf) Put(_ context.Context, data []byte) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = map[string][]byte{}
	}
	sum := sha256.Sum256(data)
	hash := hex.EncodeToString(sum[:])
	s.kept[hash] = data
	return hash, nil
}

// tree writes files by path.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		place := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(place), 0o755), os.WriteFile(place, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func listed(t testing.TB, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		short, _ := filepath.Rel(root, name)
		files[filepath.ToSlash(short)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

const aboveTOML = "source = \"k.cu\"\ninclude = [\"../common\", \"../../lib/one.h\", \"../nothing\"]\n"

// TestSendAndFetch sends a kernel and what it names above its folder; the worker has the same files.
func TestSendAndFetch(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{
		"a/b/kernel/kernel.toml": aboveTOML, "a/b/kernel/k.cu": "code", "a/b/kernel/.git/config": "secret", "a/b/kernel/.env": "secret", "a/b/kernel/deep/x.h": "x",
		"a/b/common/c.h": "c", "a/b/common/.hidden": "secret", "a/lib/one.h": "1", "a/lib/two.h": "2", "a/lib/below/three.h": "3", "a/b/other/o.h": "not sent",
	})
	if err := os.Chmod(filepath.Join(root, "a/b/kernel/k.cu"), 0o755); err != nil {
		t.Fatal(err)
	}
	objects := &shelf{}
	sent, err := Send(t.Context(), objects, filepath.Join(root, "a/b/kernel"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Send(t.Context(), objects, filepath.Join(root, "a/b/kernel"))
	if err != nil || again != sent || len(objects.kept) != 1 {
		t.Errorf("the same files are sent as %+v and %+v: %v", sent, again, err)
	}
	cache := t.TempDir()
	for range 2 {
		folder, err := sent.fetch(t.Context(), objects, filepath.Join(cache, "fleet"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(folder, "kernel.toml")); err != nil {
			t.Error(err)
		}
		if info, err := os.Stat(filepath.Join(folder, "k.cu")); err != nil || info.Mode().Perm()&0o111 == 0 {
			t.Errorf("the mode is lost: %v, %v", info, err)
		}
	}
	if objects.gets != 1 {
		t.Errorf("the archive was fetched %d times", objects.gets)
	}
	names := slices.Sorted(maps.Keys(listed(t, filepath.Join(cache, "fleet", sent.Files))))
	if want := []string{"b/common/c.h", "b/kernel/deep/x.h", "b/kernel/k.cu", "b/kernel/kernel.toml", "lib/one.h", "lib/two.h"}; !slices.Equal(names, want) {
		t.Errorf("the worker has %q, want %q", names, want)
	}
	if none, err := Send(t.Context(), objects, ""); err != nil || none != (Kernel{}) {
		t.Errorf("the kernel in the program: %+v, %v", none, err)
	}
	if folder, err := (Kernel{}).fetch(t.Context(), objects, cache); err != nil || folder != "" {
		t.Errorf("the kernel in the program: %q, %v", folder, err)
	}
}

// TestSendRefuses refuses what is no kernel, and what is too large.
func TestSendRefuses(t *testing.T) {
	t.Parallel()
	large := tree(t, map[string]string{"kernel.toml": "x"})
	if err := os.Truncate(filepath.Join(large, "kernel.toml"), 1); err != nil {
		t.Fatal(err)
	}
	huge, err := os.Create(filepath.Join(large, "huge.bin"))
	if err == nil {
		err = errors.Join(huge.Truncate(maxFile+1), huge.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{
		large:                        "huge.bin: a kernel's folder with more than 128 MB, or a file with more than 16 MB, is not sent",
		filepath.Join(large, "none"): "no such file", t.TempDir(): "kernel.toml",
	} {
		if _, err := Send(t.Context(), &shelf{}, folder); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", folder, err, want)
		}
	}
}

// archived packs entries as they are.
func archived(t testing.TB, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	packed, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	list := tar.NewWriter(packed)
	for _, head := range entries {
		if head.Typeflag == 0 {
			head.Typeflag = tar.TypeReg
		}
		if err := list.WriteHeader(&head); err != nil {
			t.Fatal(err)
		}
		if _, err := list.Write(make([]byte, head.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(list.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestHostileArchives: nothing is written outside the folder, and nothing of a refused archive is kept.
func TestHostileArchives(t *testing.T) {
	t.Parallel()
	whole := archived(t, tar.Header{Name: "kernel.toml", Mode: 0o644, Size: 5})
	for name, archive := range map[string][]byte{
		"a parent":         archived(t, tar.Header{Name: "../outside", Mode: 0o644, Size: 1}),
		"a parent inside":  archived(t, tar.Header{Name: "a/../../outside", Mode: 0o644, Size: 1}),
		"absolute":         archived(t, tar.Header{Name: "/tmp/attune-outside", Mode: 0o644, Size: 1}),
		"a link":           archived(t, tar.Header{Name: "x", Linkname: "/etc", Typeflag: tar.TypeSymlink, Mode: 0o777}, tar.Header{Name: "x/outside", Mode: 0o644, Size: 1}),
		"a hard link":      archived(t, tar.Header{Name: "x", Linkname: "/etc/passwd", Typeflag: tar.TypeLink, Mode: 0o777}),
		"a device":         archived(t, tar.Header{Name: "x", Typeflag: tar.TypeChar, Mode: 0o666}),
		"a pipe":           archived(t, tar.Header{Name: "x", Typeflag: tar.TypeFifo, Mode: 0o666}),
		"a folder's place": archived(t, tar.Header{Name: "x", Mode: 0o644, Size: 1}, tar.Header{Name: "x/y", Mode: 0o644, Size: 1}),
		"a large file":     archived(t, tar.Header{Name: "x", Mode: 0o644, Size: maxFile + 1}),
		"no zstd":          []byte("no archive at all"),
		"cut":              whole[:len(whole)/2],
		"empty name":       archived(t, tar.Header{Name: ".", Mode: 0o644, Size: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := &shelf{}
			hash, _ := objects.Put(t.Context(), archive)
			home := t.TempDir()
			cache := filepath.Join(home, "fleet")
			if folder, err := (Kernel{Files: hash, Folder: "."}).fetch(t.Context(), objects, cache); err == nil {
				t.Errorf("it is taken, at %s", folder)
			}
			if left := listed(t, home); len(left) > 0 {
				t.Errorf("it leaves %v", slices.Collect(maps.Keys(left)))
			}
			if _, err := os.Stat("/tmp/attune-outside"); err == nil {
				t.Error("a file outside was written")
			}
		})
	}
	objects := &shelf{}
	hash, _ := objects.Put(t.Context(), archived(t, tar.Header{Name: "run", Mode: 0o6777, Size: 1}))
	folder, err := (Kernel{Files: hash, Folder: "."}).fetch(t.Context(), objects, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(folder, "run")); err != nil || info.Mode() != 0o755 {
		t.Errorf("the mode of a file: %v, %v", info, err)
	}
	for _, k := range []Kernel{{Files: hash, Folder: "../x"}, {Files: hash, Folder: "/etc"}, {Files: "0000", Folder: "."}} {
		if _, err := k.fetch(t.Context(), objects, t.TempDir()); err == nil {
			t.Errorf("%+v is fetched", k)
		}
	}
}

// A full disk is this machine's, and another one gets the job; a name that no disk takes is the archive's.
func TestFullDiskIsOfTheMachine(t *testing.T) {
	for failure, want := range map[error]bool{
		syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EROFS: true, syscall.ENOTDIR: false, syscall.ENAMETOOLONG: false, fs.ErrInvalid: false, nil: false,
	} {
		err := failure
		if err != nil {
			err = fmt.Errorf("unpack: %w", &fs.PathError{Op: "write", Path: "x", Err: failure})
		}
		if ofDisk(err) != want {
			t.Errorf("%v: %t", err, !want)
		}
	}
}
