// Package examples embeds kernels with a kernel.toml, a reference and peers. `attune init` copies
// them. Each passes `attune run` as it is.
package examples

import (
	"embed"
	"io/fs"
	"slices"
)

//go:embed rmsnorm gelu softmax gemm reduce blank
var files embed.FS

// Names lists the examples, from simple to hard.
func Names() []string { return []string{"blank", "gelu", "rmsnorm", "softmax", "reduce", "gemm"} }

// Folder returns the files of an example: kernel.toml, sources, reference and peers.
func Folder(name string) (fs.FS, bool) {
	if !slices.Contains(Names(), name) {
		return nil, false
	}
	folder, err := fs.Sub(files, name)
	if err != nil {
		panic("BUG: the example " + name + " is not embedded: " + err.Error())
	}
	return folder, true
}
