package toolchain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	if err != nil || image.Record.CodeHash != kept.CodeHash || image.Record.PTXHash != kept.PTXHash {
		return nil
	}
	return image
}

// store keeps a build: written aside, then moved into place in one step.
func (c cache) store(key string, image *Image) error {
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
	err = os.Rename(aside, place)
	if errors.Is(err, fs.ErrExist) || isNotEmpty(err) {
		// Another process was faster, or a damaged build lies there. Put ours in its place.
		if err := os.RemoveAll(place); err != nil {
			return err
		}
		err = os.Rename(aside, place)
	}
	if err != nil {
		return fmt.Errorf("move the build into the cache: %w", err)
	}
	return nil
}
