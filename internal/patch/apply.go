package patch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// Apply returns the new texts of the changed files, by path. The folder is only read.
func (p *Patch) Apply(folder fs.FS) (map[string][]byte, error) {
	changed := map[string][]byte{}
	for _, f := range p.Files {
		text, err := f.apply(folder)
		if err != nil {
			return nil, err
		}
		changed[f.Path] = text
	}
	return changed, nil
}

func (f *File) apply(folder fs.FS) ([]byte, error) {
	exists, err := regular(folder, f.Path)
	switch {
	case err != nil:
		return nil, err
	case exists && f.New:
		return nil, fmt.Errorf("%s exists; a patch that creates it does not fit", f.Path)
	case f.New:
		return []byte(strings.Join(f.hunks[0].new, "")), nil
	case !exists:
		return nil, fmt.Errorf("there is no file %s; paths are relative to the kernel's folder", f.Path)
	}
	text, err := fs.ReadFile(folder, f.Path)
	if err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(string(text), "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	}
	var result []string
	done, shift := 0, 0 // lines of the old file; where the last hunk was found instead of its line
	for _, h := range f.hunks {
		at, ok := h.find(lines, done, shift)
		if !ok {
			return nil, h.misfit(f.Path, lines, h.place()+shift)
		}
		shift = at - h.place()
		result = append(append(result, lines[done:at]...), h.new...)
		done = at + len(h.old)
	}
	return []byte(strings.Join(append(result, lines[done:]...), "")), nil
}

// regular reports whether a path is a regular file. It is an error if the path, or a folder on the
// way to it, is a link or anything else.
func regular(folder fs.FS, name string) (bool, error) {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parent := path.Join(append([]string{"."}, parts[:i]...)...)
		entries, err := fs.ReadDir(folder, parent)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		at := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() == part })
		if at < 0 {
			return false, nil
		}
		last := i == len(parts)-1
		switch mode := entries[at].Type(); {
		case mode&fs.ModeSymlink != 0:
			return false, fmt.Errorf("%s is a link; a patch must not change it", path.Join(parent, part))
		case last && !mode.IsRegular():
			return false, fmt.Errorf("%s is not a file", name)
		case !last && !mode.IsDir():
			return false, fmt.Errorf("%s is not a folder", path.Join(parent, part))
		}
	}
	return true, nil
}

// place is the index of the first line of the hunk. An insertion without context is behind the line
// of its header.
func (h *hunk) place() int {
	if len(h.old) == 0 {
		return h.start
	}
	return h.start - 1
}

// find returns the index nearest to the hunk's place where the file has its old lines. Lines before
// from belong to earlier hunks.
func (h *hunk) find(lines []string, from, shift int) (int, bool) {
	want := h.place() + shift
	last := len(lines) - len(h.old)
	if len(h.old) == 0 { // nothing to compare: only its own place is right
		return want, want >= from && want <= last
	}
	if last < from {
		return 0, false
	}
	want = min(max(want, from), last)
	for distance := 0; want-distance >= from || want+distance <= last; distance++ {
		for _, at := range []int{want - distance, want + distance} {
			if at >= from && at <= last && slices.Equal(lines[at:at+len(h.old)], h.old) {
				return at, true
			}
		}
	}
	return 0, false
}

// misfit is the error of a hunk whose old lines the file does not have.
func (h *hunk) misfit(name string, lines []string, at int) error {
	at = max(at, 0)
	for i, want := range h.old {
		if at+i >= len(lines) {
			return fmt.Errorf("%s: the hunk of line %d of the diff does not fit: the file ends before line %d", name, h.at, at+i+1)
		}
		if got := lines[at+i]; got != want {
			return fmt.Errorf("%s:%d: the hunk of line %d of the diff does not fit: the line is %s, the diff has %s",
				name, at+i+1, h.at, show(strings.TrimSuffix(got, "\n")), show(strings.TrimSuffix(want, "\n")))
		}
	}
	return fmt.Errorf("%s:%d: the hunk of line %d of the diff does not fit: its lines belong to an earlier hunk or the file is shorter", name, at+1, h.at)
}

// add adds a line of the diff to the hunk. It is false for a line that belongs to no hunk.
func (h *hunk) add(line string) bool {
	if !strings.HasSuffix(line, "\n") { // the last line of the diff
		line += "\n"
	}
	text := line[1:]
	switch line[0] {
	case ' ':
		h.old, h.new = append(h.old, text), append(h.new, text)
	case '\n': // an empty line of context whose blank was stripped
		h.old, h.new = append(h.old, "\n"), append(h.new, "\n")
	case '-':
		h.old = append(h.old, text)
	case '+':
		h.new = append(h.new, text)
	case '\\':
		h.cutNewline()
	default:
		return false
	}
	h.last = line[0]
	return true
}

// cutNewline removes the newline of the last line: the file ends there without one.
func (h *hunk) cutNewline() {
	cut := func(lines []string) {
		if last := len(lines) - 1; last >= 0 {
			lines[last] = strings.TrimSuffix(lines[last], "\n")
		}
	}
	if h.last != '+' {
		cut(h.old)
	}
	if h.last != '-' {
		cut(h.new)
	}
}

// Overlay returns the folder with some files changed or added.
func Overlay(folder fs.FS, files map[string][]byte) fs.FS { return overlay{folder, files} }

type overlay struct {
	fs.FS
	files map[string][]byte
}

func (o overlay) Open(name string) (fs.File, error) {
	text, ok := o.files[name]
	if !ok {
		return o.FS.Open(name)
	}
	return &memoryFile{bytes.NewReader(text), path.Base(name), int64(len(text))}, nil
}

// ReadFile reads the folder as its own ReadFile does: it may keep what it has read.
func (o overlay) ReadFile(name string) ([]byte, error) {
	if text, ok := o.files[name]; ok {
		return slices.Clone(text), nil
	}
	return fs.ReadFile(o.FS, name)
}

// memoryFile is a file of an overlay.
type memoryFile struct {
	io.Reader
	name string
	size int64
}

func (f *memoryFile) Stat() (fs.FileInfo, error) { return f, nil }
func (f *memoryFile) Close() error               { return nil }
func (f *memoryFile) Name() string               { return f.name }
func (f *memoryFile) Size() int64                { return f.size }
func (f *memoryFile) Mode() fs.FileMode          { return 0o444 }
func (f *memoryFile) ModTime() time.Time         { return time.Time{} }
func (f *memoryFile) IsDir() bool                { return false }
func (f *memoryFile) Sys() any                   { return nil }
