// Package kernels embeds the attention kernels that attune ships: their kernel.toml, their CUDA
// sources, and the PTX of their stages and selections.
package kernels

import (
	"embed"
	"io/fs"
)

//go:embed sdpa
var files embed.FS

// SDPA returns the folder of the attention kernel.
func SDPA() fs.FS {
	dir, err := fs.Sub(files, "sdpa")
	if err != nil {
		panic("BUG: the folder sdpa is not embedded: " + err.Error())
	}
	return dir
}
