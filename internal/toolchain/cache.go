package toolchain

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
)

// cache stores builds by key, one folder each, written once. Several processes may use it at the
// same time, and it may be deleted at any time.
type cache struct {
	dir string // empty if there is no place for it
}

// The files of a cached build.
const (
	cachedPTX    = "image.ptx"
	cachedCubin  = "image.cubin"
	cachedLog    = "ptxas.log"
	cachedRecord = "record.json"
	cachedSums   = "sha256sums" // hashes of the others
)

// sums is the text of cachedSums: the build's key, and a line for each file as sha256sum writes it.
// A build under another key does not match either.
func sums(key string, files map[string][]byte) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\n", key)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return text.String()
}

// load returns a cached build, or nil if there is none. Every file is compared with its hash; the
// error says what is damaged, and the build must not be used.
func (c cache) load(key string, t Target) (*Image, error) {
	dir := filepath.Join(c.dir, key)
	if _, err := os.Stat(dir); err != nil || c.dir == "" {
		return nil, nil
	}
	files := map[string][]byte{}
	for _, name := range []string{cachedPTX, cachedCubin, cachedLog, cachedRecord} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, missingFile(name, err)
		}
		files[name] = data
	}
	stored, err := os.ReadFile(filepath.Join(dir, cachedSums))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, earlierBuild{missingFile(cachedSums, err)}
	}
	if err != nil {
		return nil, missingFile(cachedSums, err)
	}
	if err := compareSums(sums(key, files), string(stored)); err != nil {
		return nil, err
	}
	var record Record
	if err := json.Unmarshal(files[cachedRecord], &record); err != nil {
		return nil, fmt.Errorf("%s: %w", cachedRecord, err)
	}
	// The record is computed again: a program with other rules needs another build. This also sets
	// the caller's name of the variant.
	image, err := newImage(t, record.SourceHash, record.Compiler, files[cachedPTX], files[cachedCubin], string(files[cachedLog]))
	if err != nil {
		return nil, err
	}
	record.Variant = t.Variant
	if !reflect.DeepEqual(image.Record, record) {
		return nil, earlierBuild{fmt.Errorf("%s does not say what this version finds in the files", cachedRecord)}
	}
	return image, nil
}

// earlierBuild is the error of a build that an earlier version of attune has stored, without hashes
// or by other rules. It is built again, and nothing is damaged.
type earlierBuild struct{ error }

func missingFile(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is missing", name)
	}
	return fmt.Errorf("%s cannot be read", name)
}

// compareSums names the first line in which the hashes differ.
func compareSums(got, stored string) error {
	if got == stored {
		return nil
	}
	lines := strings.Split(stored, "\n")
	for _, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n")[1:] {
		if !slices.Contains(lines, line) {
			_, name, _ := strings.Cut(line, "  ")
			return fmt.Errorf("%s does not match its hash", name)
		}
	}
	return fmt.Errorf("%s is damaged", cachedSums)
}

// store writes a build to a temporary folder and renames it into place, which is atomic.
func (c cache) store(key string, t Target, image *Image) error {
	if c.dir == "" {
		return ErrNoCacheDir
	}
	record, err := encodeJSON(image.Record)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	c.removeLeftovers()
	temporary, err := os.MkdirTemp(c.dir, stagingPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	files := map[string][]byte{cachedPTX: image.PTX, cachedCubin: image.Cubin, cachedLog: []byte(image.Log), cachedRecord: record}
	files[cachedSums] = []byte(sums(key, files))
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(temporary, name), data, 0o644); err != nil {
			return err
		}
	}
	return c.move(temporary, key, t)
}

// leftoverAge is the age from which an unfinished folder belongs to a process that was killed:
// storing a build takes milliseconds.
const leftoverAge = time.Hour

// removeLeftovers removes the temporary folders of processes that were killed. What cannot be
// removed harms nothing.
func (c cache) removeLeftovers() {
	left, _ := filepath.Glob(filepath.Join(c.dir, stagingPrefix+"*"))
	for _, dir := range left {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > leftoverAge {
			os.RemoveAll(dir)
		}
	}
}

// move renames a complete build into place, and removes a damaged one that is there.
func (c cache) move(temporary, key string, t Target) error {
	place := filepath.Join(c.dir, key)
	err := os.Rename(temporary, place)
	for ; errors.Is(err, fs.ErrExist); err = os.Rename(temporary, place) {
		if image, _ := c.load(key, t); image != nil {
			return nil // another process was faster
		}
		// A damaged build is there. It is removed by a rename too, because several processes may do
		// this at the same time.
		damaged := temporary + ".damaged"
		if err := os.Rename(place, damaged); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove a damaged build from the cache: %w", err)
		}
		if err := os.RemoveAll(damaged); err != nil {
			return fmt.Errorf("remove a damaged build from the cache: %w", err)
		}
	}
	if err != nil {
		return fmt.Errorf("move the build into the cache: %w", err)
	}
	return nil
}
