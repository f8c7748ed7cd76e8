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

	"attune/internal/regular"
)

// ShapeError is the error of a file whose array has another shape than the wanted one.
type ShapeError struct{ Has, Want []int }

func (e *ShapeError) Error() string { return fmt.Sprintf("it has shape %v; want %v", e.Has, e.Want) }

// maxAnyShape bounds the bytes of an array whose shape nobody expects: a sparse file has any number
// of them and takes no place on a disk.
const maxAnyShape = 256 << 20

// checkSize refuses an array of many bytes whose shape nobody expects.
func checkSize(bytes int64, want []int) error {
	if want == nil && bytes > maxAnyShape {
		return fmt.Errorf("it has %d MB; at most %d MB of an array are read", bytes>>20, maxAnyShape>>20)
	}
	return nil
}

// checkShape compares a shape with the wanted one; nil accepts any. Elements of two bytes may be bits
// of a 16-bit float, so that their array is wanted without its last extent.
func (a *Array) checkShape(want []int) error {
	if want == nil || slices.Equal(a.Shape, want) {
		return nil
	}
	if last := len(a.Shape) - 1; a.Type == U8 && last >= 0 && a.Shape[last] == 2 && slices.Equal(a.Shape[:last], want) {
		return nil
	}
	return &ShapeError{a.Shape, want}
}

// Names lists names in a message: the first of many.
func Names(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// ReadFile reads an array from a file whose format the extension names. An empty tensor name means
// the only tensor of a safetensors file. The shape must be the wanted one, which is compared before
// the elements are read; nil accepts any.
func ReadFile(fsys fs.FS, name, tensor string, want []int) (*Array, error) {
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", name, regular.ErrNotRegular)
	}
	var a *Array
	switch path.Ext(name) {
	case ".npy":
		if tensor != "" {
			return nil, fmt.Errorf("%s: a .npy file has one array without a name; leave out #%s", name, tensor)
		}
		if err = checkSize(info.Size(), want); err == nil {
			a, err = readNPY(file, want)
		}
	case ".safetensors":
		a, err = readTensor(file, info.Size(), tensor, want)
	default:
		return nil, fmt.Errorf("%s: want a file .npy or .safetensors", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return a, nil
}

// readTensor reads one tensor of a safetensors file.
func readTensor(file fs.File, size int64, tensor string, want []int) (*Array, error) {
	at := io.ReaderAt(nil)
	if f, ok := file.(io.ReaderAt); ok {
		at = f
	} else {
		text, err := io.ReadAll(file)
		if err != nil {
			return nil, err
		}
		at, size = bytes.NewReader(text), int64(len(text))
	}
	f, err := openSafetensors(at, size)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(f.entries))
	if tensor == "" && len(names) == 1 {
		tensor = names[0]
	}
	if _, known := f.entries[tensor]; known {
		return f.read(tensor, want)
	}
	has := Names(names)
	if tensor == "" {
		return nil, fmt.Errorf("it has %d tensors (%s); name one by FILE#TENSOR", len(names), has)
	}
	return nil, fmt.Errorf("it has no tensor %q; it has %s", tensor, has)
}
