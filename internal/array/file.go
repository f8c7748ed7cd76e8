package array

import (
	"io"
	"io/fs"
)

// ReadNPY reads a .npy file of version 1 to 3, in C or Fortran order and either byte order.
// Integers of 16 bits are read as pairs of raw bytes.
func ReadNPY(r io.Reader) (*Array, error) { panic("not yet") }

// WriteNPY writes a .npy file. BF16 and 8-bit floats are written as float32.
func WriteNPY(w io.Writer, a *Array) error { panic("not yet") }

// ReadSafetensors reads the tensors of a safetensors file, by name. It checks offsets and overlaps;
// a header has at most 100 MB.
func ReadSafetensors(r io.ReaderAt, size int64) (map[string]*Array, error) { panic("not yet") }

// WriteSafetensors writes a safetensors file.
func WriteSafetensors(w io.Writer, arrays []*Array) error { panic("not yet") }

// ReadFile reads an array from a file whose format the extension names. An empty tensor name means
// the only tensor of a safetensors file.
func ReadFile(fsys fs.FS, path, tensor string) (*Array, error) { panic("not yet") }
