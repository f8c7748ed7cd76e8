// Package array has typed arrays: number formats, .npy and safetensors files, and seeded fills.
//
// An [Array] is what a buffer of a declared kernel contains. Its elements are little-endian and
// row-major, as the kernel sees them. [Draw] fills an array from a seed, with the same bits on every
// machine; [ReadFile] reads one from a file.
package array
