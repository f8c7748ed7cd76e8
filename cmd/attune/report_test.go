package main

import "testing"

// TestKernelFolder finds the folder that --kernel needs for a kernel of a record. It changes the
// working folder, so it is not parallel.
func TestKernelFolder(t *testing.T) {
	t.Chdir("../..")
	for _, c := range []struct {
		given, kernel, folder string
		known                 bool
	}{
		{"", "sdpa", "", true},
		{"", "decode", "kernels/attention/decode", true},
		{"", "gelu", "examples/gelu", true},
		{"", "matmul of another checkout", "", false},
		{"", "../examples/gelu", "", false},
		{"examples/../examples/gelu", "gelu", "examples/../examples/gelu", true},
		{"kernels", "sdpa", "kernels", true},
		{"examples/gelu", "decode", "kernels/attention/decode", true},
		{"nowhere", "sdpa", "", true},
	} {
		folder, known := (&app{kernelDir: c.given}).kernelFolder(c.kernel)
		if folder != c.folder || known != c.known {
			t.Errorf("--kernel %q, record of %q: got %q, %t; want %q, %t", c.given, c.kernel, folder, known, c.folder, c.known)
		}
	}
}
