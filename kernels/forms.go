package kernels

import "io/fs"

// Forms returns the folders of the kernels that the libraries launch beside the attention kernel, on
// Hopper.
func Forms() []fs.FS {
	return []fs.FS{Decode(), Prefill(), Native(), Pingpong(), Prefill16(), Mixed(), Cast(), Quantize(), Append()}
}

// Portable returns the folders of the kernels that the libraries launch on other GPUs since Ampere.
func Portable() []fs.FS { return []fs.FS{Warp(), Warp8(), Quantize8(), Quantize(), Append()} }
