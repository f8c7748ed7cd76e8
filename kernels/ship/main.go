// Ship builds every stage of the attention kernel and every variant of its selections, for each of
// their architectures, with the pinned compiler. It writes the PTX and the build records that are
// embedded in the program. It does the same for the cheating kernels of the lab's tests, which also
// run where there is no compiler. Run it as `make ship` after a change of the sources or of
// kernel.toml; tests compare its output with both. Folders as arguments limit it to them.
package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"

	"attune/internal/lab"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/kernels"
)

func main() {
	dirs := []string{"kernels/sdpa", "kernels/decode", "kernels/prefill", "kernels/native", "kernels/mixed", "kernels/cast", "kernels/quantize", "kernels/append", "internal/lab/testdata/cheats"}
	if len(os.Args) > 1 {
		dirs = os.Args[1:]
	}
	for _, dir := range dirs {
		if err := ship(context.Background(), dir); err != nil {
			fmt.Fprintf(os.Stderr, "ship: %s: %v\n", dir, err)
			os.Exit(1)
		}
	}
}

// These share headers with another kernel, which only their embedded folders have.
var embedded = map[string]fs.FS{"kernels/prefill": kernels.Prefill(), "kernels/native": kernels.Native(), "kernels/mixed": kernels.Mixed()}

func ship(ctx context.Context, kernelDir string) error {
	folder := os.DirFS(kernelDir)
	if whole := embedded[kernelDir]; whole != nil {
		folder = whole
	}
	kernel, err := spec.Load(folder)
	if err != nil {
		return err
	}
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		return err
	}
	compiler, err := toolchain.Installed(ctx, cacheDir)
	if err != nil {
		return err
	}
	builder := toolchain.NewBuilder(folder, compiler, cacheDir)
	var images []*toolchain.Image
	for _, target := range lab.ShippedTargets(kernel) {
		image, _, err := builder.Build(ctx, target)
		if err != nil {
			return err
		}
		images = append(images, image)
	}
	return toolchain.WriteShipped(kernelDir, images)
}
