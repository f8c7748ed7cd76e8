// Package kernels embeds the kernels that attune ships: their kernel.toml, their CUDA sources, and
// the PTX of their stages and selections.
package kernels

import (
	"bytes"
	"embed"
	"errors"
	"io/fs"
)

//go:embed sdpa decode prefill native mixed cast quantize append
var files embed.FS

// SDPA returns the folder of the attention kernel.
func SDPA() fs.FS { return folder("sdpa") }

// Decode returns the folder of the attention kernel for few query rows.
func Decode() fs.FS { return folder("decode") }

// Prefill returns the folder of the attention kernel with options, for many query rows. It also has
// the headers that the kernel shares with SDPA, so it is whole without the folder beside it.
func Prefill() fs.FS { return whole{folder("prefill"), folder("sdpa")} }

// Native returns the folder of the attention kernel for BF16 and FP16 with products in their type, with
// the headers of SDPA.
func Native() fs.FS { return whole{folder("native"), folder("sdpa")} }

// Mixed returns the folder of the attention kernel for Q in BF16 or FP16 with K and V in E4M3, with
// the headers of SDPA.
func Mixed() fs.FS { return whole{folder("mixed"), folder("sdpa")} }

// Cast returns the folder of the quantiser of Q, K and V in one pass.
func Cast() fs.FS { return folder("cast") }

// Quantize returns the folder of the quantiser of Q, K and V with options.
func Quantize() fs.FS { return folder("quantize") }

// Append returns the folder of the quantiser of new rows of a cache.
func Append() fs.FS { return folder("append") }

func folder(name string) fs.FS {
	dir, err := fs.Sub(files, name)
	if err != nil {
		panic("BUG: the folder " + name + " is not embedded: " + err.Error())
	}
	return dir
}

// whole is the folder of a kernel with the headers of another. The flag that names the other is
// removed from its kernel.toml.
type whole struct{ own, headers fs.FS }

var flagOfHeaders = []byte(`flags = ["-I../sdpa"]`)

// Open opens a file of the kernel, or else a header.
func (w whole) Open(name string) (fs.File, error) {
	file, err := w.own.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return w.headers.Open(name)
	}
	return file, err
}

// ReadFile reads a file of the kernel, or else a header.
func (w whole) ReadFile(name string) ([]byte, error) {
	text, err := fs.ReadFile(w.own, name)
	if errors.Is(err, fs.ErrNotExist) {
		return fs.ReadFile(w.headers, name)
	}
	if name == "kernel.toml" {
		text = bytes.Replace(text, flagOfHeaders, nil, 1)
	}
	return text, err
}
