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

// cache keeps builds by their key, one folder each, written once. It may be shared by processes and deleted at any time.
type cache struct {
	dir string
}

// The files of a kept build.
const (
	cachedPTX    = "image.ptx"
	cachedCubin  = "image.cubin"
	cachedLog    = "ptxas.log"
	cachedRecord = "record.json"
)

// load returns a kept build, or nil when there is none that can be trusted: a damaged one is as good as none.
func (c cache) load(key string, t Target) *Image {
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(c.dir, key, name))
		if err != nil {
			return nil
		}
		return data
	}
	var kept Record
	if json.Unmarshal(read(cachedRecord), &kept) != nil {
		return nil
	}
	// Drawing the record anew from the files proves them whole, and gives the name this caller uses for the variant.
	image, err := newImage(t, kept.SourceHash, kept.Compiler, read(cachedPTX), read(cachedCubin), string(read(cachedLog)))
	kept.Variant = t.Variant
	if err != nil || !reflect.DeepEqual(image.Record, kept) {
		return nil
	}
	return image
}

// store keeps a build: written aside, then moved into place in one step.
func (c cache) store(key string, t Target, image *Image) error {
	record, err := encodeJSON(image.Record)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	aside, err := os.MkdirTemp(c.dir, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(aside)
	for name, data := range map[string][]byte{
		cachedPTX: image.PTX, cachedCubin: image.Cubin, cachedLog: []byte(image.Log), cachedRecord: record,
	} {
		if err := os.WriteFile(filepath.Join(aside, name), data, 0o644); err != nil {
			return err
		}
	}
	place := filepath.Join(c.dir, key)
	for err = os.Rename(aside, place); errors.Is(err, fs.ErrExist); err = os.Rename(aside, place) {
		if c.load(key, t) != nil {
			return nil // another process was faster
		}
		// A damaged build lies there. It goes in one step as well: several may be at this at once.
		damaged := aside + ".damaged"
		if err := os.Rename(place, damaged); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("clear a damaged build out of the cache: %w", err)
		}
		if err := os.RemoveAll(damaged); err != nil {
			return fmt.Errorf("clear a damaged build out of the cache: %w", err)
		}
	}
	if err != nil {
		return fmt.Errorf("move the build into the cache: %w", err)
	}
	return nil
}
