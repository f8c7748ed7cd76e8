// Ship builds every stage of the attention kernel, and every variant that a selection names, for each of its architectures with the pinned
// compiler, and writes the PTX and the build records that travel in the program. `make ship` runs it after the sources or the table have changed; a
// test holds what it wrote against them.
package main

import (
	"context"
	"fmt"
	"os"

	"attune/internal/lab"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

const kernelDir = "kernels/sdpa"

func main() {
	if err := ship(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "ship:", err)
		os.Exit(1)
	}
}

func ship(ctx context.Context) error {
	folder := os.DirFS(kernelDir)
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
