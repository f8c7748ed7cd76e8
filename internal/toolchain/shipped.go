package toolchain

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// The folder of a kernel with its shipped images, and their list.
const (
	shippedDir   = "ptx"
	shippedIndex = "ptx/index.json"
)

// Shipped is the list of images that are embedded with a kernel.
type Shipped struct {
	Images []ShippedImage `json:"images"`
}

// ShippedImage is one shipped image. Its PTX is in a file beside the list.
type ShippedImage struct {
	File   string   `json:"file"` // PTX, compressed by zstd
	Record Record   `json:"record"`
	Log    []string `json:"log"` // lines of ptxas -v
}

// ReadShipped reads the list. A kernel without shipped images has an empty list.
func ReadShipped(kernel fs.FS) (Shipped, error) {
	var list Shipped
	text, err := fs.ReadFile(kernel, shippedIndex)
	if errors.Is(err, fs.ErrNotExist) {
		return list, nil
	}
	if err != nil {
		return list, fmt.Errorf("read the list of shipped images: %w", err)
	}
	if known, ok := shippedLists.Load(string(text)); ok {
		return known.(Shipped), nil
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return list, fmt.Errorf("read the list of shipped images: %w", err)
	}
	shippedLists.Store(string(text), list)
	return list, nil
}

// shippedLists are the lists by their text: a run looks for every variant's image in the same list, and
// decoding it takes longer than the search. Nobody changes a list.
var shippedLists sync.Map

// shipped finds the shipped image that was built from a target's sources and knobs.
func shipped(kernel fs.FS, t Target, sourceHash string) (*Image, error) {
	list, err := ReadShipped(kernel)
	if err != nil {
		return nil, err
	}
	for _, s := range list.Images {
		if !s.Record.sameBuild(t, sourceHash) {
			continue
		}
		ptx, err := readShippedPTX(kernel, s)
		if err != nil {
			return nil, err
		}
		record := s.Record
		record.Variant = t.Variant
		var log bytes.Buffer
		for _, line := range s.Log {
			fmt.Fprintln(&log, line)
		}
		image := &Image{Record: record, PTX: ptx, Log: log.String()}
		if err := image.checkShipped(t.Contract); err != nil {
			return nil, err
		}
		return image, nil
	}
	if len(list.Images) == 0 && !t.Contract { // a kernel of the user
		return nil, fmt.Errorf("%w; run `attune toolchain install`", ErrNoCompiler)
	}
	return nil, fmt.Errorf("%w, and it is not one of the shipped images: these are the unchanged stages and their parents", ErrNoCompiler)
}

// checkShipped compares the launch and the resources in a shipped record, which gates rely on, with
// the PTX and the log that they came from. The launch of a declared kernel is in its kernel.toml.
func (i *Image) checkShipped(contract bool) error {
	var launch Launch
	var err error
	if contract {
		launch, err = parseLaunch(string(i.PTX))
	}
	if err != nil {
		return err
	}
	resources := parsePtxasLog(i.Log)[i.Record.EntryName()]
	resources.DynamicSharedBytes = launch.DynamicSharedBytes
	if !reflect.DeepEqual(i.Record.Launch, launch) || i.Record.Resources != resources {
		return fmt.Errorf("the record of %s in %s does not match its PTX and log; run `make ship`", i.Record.Variant, shippedIndex)
	}
	return nil
}

func readShippedPTX(kernel fs.FS, s ShippedImage) ([]byte, error) {
	name := path.Join(shippedDir, s.File)
	packed, err := fs.ReadFile(kernel, name)
	if err != nil {
		return nil, fmt.Errorf("read a shipped image: %w", err)
	}
	ptx, err := UnpackPTX(packed)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", name, err)
	}
	if sum := sha256.Sum256(ptx); hex.EncodeToString(sum[:]) != s.Record.PTXHash {
		return nil, fmt.Errorf("%s does not match the hash in its record; run `make ship`", name)
	}
	return ptx, nil
}

// pack compresses PTX, with the same bytes each time: on one goroutine.
func pack(ptx []byte) []byte {
	writer, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(4<<20))
	if err != nil {
		panic(err) // the options are constants
	}
	defer writer.Close()
	return writer.EncodeAll(ptx, nil)
}

// UnpackPTX expands the PTX of a shipped image.
func UnpackPTX(packed []byte) ([]byte, error) {
	reader, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxSource))
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	return reader.DecodeAll(packed, nil)
}

// WriteShipped replaces the shipped images of the kernel in dir.
func WriteShipped(dir string, images []*Image) error {
	folder := filepath.Join(dir, shippedDir)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var list Shipped
	for _, image := range images {
		s := ShippedImage{
			File:   fmt.Sprintf("%s.%s.ptx.zst", image.Record.Variant, image.Record.Arch),
			Record: image.Record,
			Log:    strings.Split(strings.TrimRight(image.Log, "\n"), "\n"),
		}
		if err := os.WriteFile(filepath.Join(folder, s.File), pack(image.PTX), 0o644); err != nil {
			return err
		}
		list.Images = append(list.Images, s)
	}
	text, err := encodeJSON(list)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, shippedIndex), text, 0o644)
}
