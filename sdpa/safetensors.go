package sdpa

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"attune/internal/array"
	"attune/internal/regular"
)

// descaleSuffix ends the name of the factors of a tensor in a safetensors file.
const descaleSuffix = ".descale"

// dtypes are the formats of a safetensors file that tensors may have.
var dtypes = map[array.DType]DType{array.E4M3: E4M3, array.F16: FP16, array.BF16: BF16, array.F32: FP32}

// ReadSafetensors reads tensors from a safetensors file: those of the given names, or all. A shape
// of fewer than four extents gets leading ones. The float32 tensor NAME.descale has the factors of
// an E4M3 tensor NAME and is read with it. A damaged file is an error.
func ReadSafetensors(path string, names ...string) (map[string]*Tensor, error) {
	file, err := regular.Open(path)
	if err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("sdpa: %w", err)
	}
	arrays, err := array.ReadSafetensors(file, info.Size())
	if err != nil {
		return nil, fmt.Errorf("sdpa: %s: %w", path, err)
	}
	if len(names) == 0 {
		for name := range arrays {
			if !isDescale(arrays, name) {
				names = append(names, name)
			}
		}
	}
	tensors := map[string]*Tensor{}
	for _, name := range names {
		if tensors[name], err = fromArrays(arrays, name); err != nil {
			return nil, fmt.Errorf("sdpa: %s: %w", path, err)
		}
	}
	return tensors, nil
}

// isDescale reports whether an array has the factors of another one.
func isDescale(arrays map[string]*array.Array, name string) bool {
	of, ok := strings.CutSuffix(name, descaleSuffix)
	return ok && arrays[of] != nil && arrays[of].Type == array.E4M3
}

// fromArrays returns the tensor of a name, with its factors.
func fromArrays(arrays map[string]*array.Array, name string) (*Tensor, error) {
	a := arrays[name]
	if a == nil {
		return nil, fmt.Errorf("it has no tensor %q; it has %s", name, array.Names(slices.Sorted(maps.Keys(arrays))))
	}
	t, ok := dtypes[a.Type]
	if !ok {
		return nil, fmt.Errorf("tensor %q has elements of %s; want f8_e4m3, f16, bf16 or f32, or name the tensors to read", name, a.Type)
	}
	if len(a.Shape) > 4 {
		return nil, fmt.Errorf("tensor %q has the shape %v; want at most [batch, heads, rows, head dim]", name, a.Shape)
	}
	x := &Tensor{DType: t, Shape: [4]int{1, 1, 1, 1}, Data: a.Data}
	copy(x.Shape[4-len(a.Shape):], a.Shape)
	if factors := arrays[name+descaleSuffix]; factors != nil && t == E4M3 {
		if factors.Type != array.F32 {
			return nil, fmt.Errorf("tensor %q has elements of %s; factors are f32", factors.Name, factors.Type)
		}
		x.Descale = make([]float32, len(factors.Data)/4)
		widenGo(x.Descale, factors.Data, FP32)
	}
	if err := x.check(fmt.Sprintf("tensor %q", name)); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "sdpa: "))
	}
	return x, nil
}

// WriteSafetensors writes tensors to a safetensors file that ReadSafetensors reads. It replaces a
// file of that name only when the new one is complete.
func WriteSafetensors(path string, tensors map[string]*Tensor) error {
	var arrays []*array.Array
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := tensors[name]
		if err := x.check(fmt.Sprintf("tensor %q", name)); err != nil {
			return err
		}
		for t, of := range dtypes {
			if of == x.DType {
				arrays = append(arrays, &array.Array{Name: name, Type: t, Shape: x.Shape[:], Data: x.Data})
			}
		}
		if x.Descale != nil {
			factors := &array.Array{Name: name + descaleSuffix, Type: array.F32, Shape: x.Shape[:2]}
			for _, f := range x.Descale {
				factors.Data = binary.LittleEndian.AppendUint32(factors.Data, math.Float32bits(f))
			}
			arrays = append(arrays, factors)
		}
	}
	if err := writeFile(path, arrays); err != nil {
		return fmt.Errorf("sdpa: %w", err)
	}
	return nil
}

// writeFile writes to a file beside the wanted one and renames it.
func writeFile(path string, arrays []*array.Array) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	buffer := bufio.NewWriterSize(file, 1<<20)
	err = array.WriteSafetensors(buffer, arrays)
	err = errors.Join(err, buffer.Flush(), file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
