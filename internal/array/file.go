package array

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// ReadFile reads an array from a file whose format the extension names. An empty tensor name means
// the only tensor of a safetensors file.
func ReadFile(fsys fs.FS, name, tensor string) (*Array, error) {
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var a *Array
	switch path.Ext(name) {
	case ".npy":
		if tensor != "" {
			return nil, fmt.Errorf("%s: a .npy file has one array without a name; leave out #%s", name, tensor)
		}
		a, err = ReadNPY(file)
	case ".safetensors":
		a, err = readTensor(file, tensor)
	default:
		return nil, fmt.Errorf("%s: want a file .npy or .safetensors", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return a, nil
}

// readTensor reads one tensor of a safetensors file.
func readTensor(file fs.File, tensor string) (*Array, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	at, size := io.ReaderAt(nil), info.Size()
	if f, ok := file.(io.ReaderAt); ok {
		at = f
	} else {
		text, err := io.ReadAll(file)
		if err != nil {
			return nil, err
		}
		at, size = bytes.NewReader(text), int64(len(text))
	}
	arrays, err := ReadSafetensors(at, size)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(arrays))
	if tensor == "" && len(names) == 1 {
		tensor = names[0]
	}
	if a := arrays[tensor]; a != nil {
		return a, nil
	}
	has := strings.Join(names, ", ")
	if tensor == "" {
		return nil, fmt.Errorf("it has %d tensors (%s); name one by FILE#TENSOR", len(names), has)
	}
	return nil, fmt.Errorf("it has no tensor %q; it has %s", tensor, has)
}
