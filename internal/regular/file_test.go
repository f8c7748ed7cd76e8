package regular

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.WriteFile(at("file"), []byte("text"), 0o644), os.Symlink("file", at("link")), os.Mkdir(at("folder"), 0o755),
		syscall.Mkfifo(at("pipe"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	for name, refused := range map[string]bool{"file": false, "link": false, "folder": true, "pipe": true, "../../../../../../../dev/zero": true} {
		data, err := Read(at(name), 4)
		if errors.Is(err, ErrNotRegular) != refused || !refused && string(data) != "text" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := OpenNoFollow(at("link")); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a link that is not followed: %v", err)
	}
	if _, err := fs.ReadDir(Folder(dir), "folder"); err != nil {
		t.Error(err)
	}
	if _, err := fs.ReadFile(Folder(dir), "pipe"); err == nil || err.Error() != "open pipe: it is not a regular file" {
		t.Errorf("a pipe in a folder: %v", err)
	}
	if _, err := fs.ReadFile(Folder(dir), "../x"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a file above a folder: %v", err)
	}
	if _, err := Read(at("file"), 3); !errors.As(err, new(*SizeError)) {
		t.Errorf("a file over the limit: %v", err)
	}
	if _, err := Read(at("gone"), 3); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestDecompress(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if data, err := Decompress(packed.Bytes(), "x.gz", 1000); err != nil || len(data) != 1000 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if _, err := Decompress(packed.Bytes(), "x.gz", 999); !errors.As(err, new(*SizeError)) {
		t.Errorf("more than the limit: %v", err)
	}
}

// A pipe that nobody reads is an error and no wait, and a planted link is not written through.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.WriteFile(at("victim"), []byte("text"), 0o644), os.Symlink("victim", at("link")), syscall.Mkfifo(at("pipe"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "pipe"} {
		if err := Write(at(name), []byte("new")); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Create(at("pipe")); err == nil || err.Error() != "open "+at("pipe")+": it is a pipe that nobody reads" {
		t.Error(err)
	}
	if data, err := os.ReadFile(at("victim")); err != nil || string(data) != "text" {
		t.Errorf("%q, %v", data, err)
	}
	for _, text := range []string{"longer text", "new"} {
		if err := Write(at("file"), []byte(text)); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(at("file")); err != nil || string(data) != text {
			t.Errorf("%q, %v", data, err)
		}
	}
	f, err := Create(at("link")) // the user names it
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if info, err := os.Stat(at("victim")); err != nil || info.Size() != 0 {
		t.Error(info, err)
	}
}
