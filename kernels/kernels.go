// Package kernels embeds the kernels that attune ships: their kernel.toml, their CUDA sources, and
// the PTX of their stages and selections.
package kernels

import (
	"embed"
	"io/fs"
	"path"
)

//go:embed kernel.toml ptx include ladder attention quantize
var files embed.FS

// All returns the folders of all kernels, those with a kernel.toml, by their path in the tree.
func All() map[string]fs.FS {
	all := map[string]fs.FS{".": SDPA()}
	err := fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
		if dir := path.Dir(name); path.Base(name) == "kernel.toml" && dir != "." {
			all[dir] = folder(dir)
		}
		return err
	})
	if err != nil {
		panic(err) // the files are in the program
	}
	return all
}

// SDPA returns the folder of the attention kernel with all its stages: the whole tree, of which it
// has the sources of ladder and of attention/dense.
func SDPA() fs.FS { return files }

// Decode returns the folder of the attention kernel for few query rows.
func Decode() fs.FS { return folder("attention/decode") }

// Prefill returns the folder of the attention kernel with options, for many query rows.
func Prefill() fs.FS { return folder("attention/prefill") }

// Native returns the folder of the attention kernel for BF16 and FP16 with products in their type.
func Native() fs.FS { return folder("attention/native") }

// Pingpong returns the folder of the attention kernel for BF16 and FP16 with head dims 128 and 256.
func Pingpong() fs.FS { return folder("attention/pingpong") }

// Prefill16 returns the folder of the attention kernel with options, for many query rows of BF16 and
// FP16.
func Prefill16() fs.FS { return folder("attention/prefill16") }

// Mixed returns the folder of the attention kernel for Q in BF16 or FP16 with K and V in E4M3.
func Mixed() fs.FS { return folder("attention/mixed") }

// Warp returns the folder of the attention kernel for BF16 and FP16 on every GPU since Ampere.
func Warp() fs.FS { return folder("attention/warp") }

// Warp8 returns the folder of the attention kernel with products of 8 bits on every GPU since Ampere.
func Warp8() fs.FS { return folder("attention/warp8") }

// Cast returns the folder of the quantiser of Q, K and V in one pass.
func Cast() fs.FS { return folder("quantize/cast") }

// Quantize returns the folder of the quantiser of Q, K and V with options.
func Quantize() fs.FS { return folder("quantize/quantize") }

// Quantize8 returns the folder of the quantiser of Q, K and V for Warp8.
func Quantize8() fs.FS { return folder("quantize/quantize8") }

// Append returns the folder of the quantiser of new rows of a cache.
func Append() fs.FS { return folder("quantize/append") }

// folder is a kernel's folder, by its path in the tree. The kernel includes headers of the tree too.
type folder string

// Open opens a file of the folder.
func (f folder) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return files.Open(path.Join(string(f), name))
}

// Tree returns the tree, and the path of the folder in it.
func (f folder) Tree() (fs.FS, string) { return files, string(f) }
