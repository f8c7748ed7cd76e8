package toolchain

import (
	"bytes"
	"io/fs"
	"maps"
	"slices"
	"sync"
)

// frozenFolder is a folder whose files are read once. A command that builds for hours must not mix
// the sources of several edits.
type frozenFolder struct {
	fs.FS
	mu    sync.Mutex
	files map[string]frozenFile
}

type frozenFile struct {
	text []byte
	err  error // a file that does not exist stays so
}

func (f *frozenFolder) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file, known := f.files[name]
	if !known {
		file.text, file.err = readLimited(f.FS, name)
		f.files[name] = file
	}
	return slices.Clone(file.text), file.err
}

// Frozen returns a builder that reads each file of the kernel's folder once: edits after the first
// build are not seen. Headers of -I outside of the folder are read by the compiler, and are not
// frozen.
func (b *Builder) Frozen() *Builder {
	if _, is := b.kernel.(*frozenFolder); is {
		return b
	}
	frozen := b.Untrusted(&frozenFolder{FS: b.kernel, files: map[string]frozenFile{}}, b.limit)
	frozen.Note = b.Note
	return frozen
}

// Edited returns the files that a frozen builder has read and that are other ones now, in order.
func (b *Builder) Edited() []string {
	frozen, ok := b.kernel.(*frozenFolder)
	if !ok {
		return nil
	}
	frozen.mu.Lock()
	defer frozen.mu.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(frozen.files)) {
		now, err := readLimited(frozen.FS, name)
		if then := frozen.files[name]; (err == nil) != (then.err == nil) || !bytes.Equal(now, then.text) {
			names = append(names, name)
		}
	}
	return names
}
