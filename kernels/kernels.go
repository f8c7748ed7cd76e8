// Package kernels carries the kernels that attune ships: spec, sources and the PTX of their stages and selections.
package kernels

import (
	"embed"
	"io/fs"
)

//go:embed sdpa
var files embed.FS

// SDPA is the folder of the attention kernel.
func SDPA() fs.FS {
	dir, err := fs.Sub(files, "sdpa")
	if err != nil {
		panic("BUG: the embedded kernel has no folder: " + err.Error())
	}
	return dir
}
