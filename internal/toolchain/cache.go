package toolchain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
)

// cache stores builds by key, one folder each, written once. Several processes may use it at the
// same time, and it may be deleted at any time.
type cache struct {
	dir string
}

// The files of a cached build.
const (
	cachedPTX    = "image.ptx"
	cachedCubin  = "image.cubin"
	cachedLog    = "ptxas.log"
	cachedRecord = "record.json"
)

// load returns a cached build, or nil if it is missing or damaged.
func (c cache) load(key string, t Target) *Image {
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(c.dir, key, name))
		if err != nil {
			return nil
		}
		return data
	}
	var stored Record
	if json.Unmarshal(read(cachedRecord), &stored) != nil {
		return nil
	}
	// Computing the record again from the files checks that they are complete. It also sets this
	// caller's name of the variant.
	image, err := newImage(t, stored.SourceHash, stored.Compiler, read(cachedPTX), read(cachedCubin), string(read(cachedLog)))
	stored.Variant = t.Variant
	if err != nil || !reflect.DeepEqual(image.Record, stored) {
		return nil
	}
	return image
}

// store writes a build to a temporary folder and renames it into place, which is atomic.
func (c cache) store(key string, t Target, image *Image) error {
	record, err := encodeJSON(image.Record)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(c.dir, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	for name, data := range map[string][]byte{
		cachedPTX: image.PTX, cachedCubin: image.Cubin, cachedLog: []byte(image.Log), cachedRecord: record,
	} {
		if err := os.WriteFile(filepath.Join(temporary, name), data, 0o644); err != nil {
			return err
		}
	}
	place := filepath.Join(c.dir, key)
	for err = os.Rename(temporary, place); errors.Is(err, fs.ErrExist); err = os.Rename(temporary, place) {
		if c.load(key, t) != nil {
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
