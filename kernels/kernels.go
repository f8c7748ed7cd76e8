// Package kernels embeds the kernels that attune ships: their kernel.toml, their CUDA sources, and
// the PTX of their stages and selections.
package kernels

import (
	"embed"
	"io/fs"
)

//go:embed sdpa decode quantize append
var files embed.FS

// SDPA returns the folder of the attention kernel.
func SDPA() fs.FS { return folder("sdpa") }

// Decode returns the folder of the attention kernel for few query rows.
func Decode() fs.FS { return folder("decode") }

// Quantize returns the folder of the quantiser of Q, K and V.
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
