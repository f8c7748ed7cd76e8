// Ship builds every stage of every kernel and every variant of their selections, for each of their
// architectures, with the pinned compiler. It writes the PTX and the build records that are
// embedded in the program. It does the same for the cheating kernels of the lab's tests, which also
// run where there is no compiler. Run it as `make ship` after a change of the sources or of
// kernel.toml; tests compare its output with both. Folders as arguments limit it to them.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"

	"attune/internal/lab"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/kernels"
)

func main() {
	dirs := []string{"internal/lab/testdata/cheats"}
	for _, name := range slices.Sorted(maps.Keys(kernels.All())) {
		dirs = append(dirs, path.Join("kernels", name))
	}
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

func ship(ctx context.Context, kernelDir string) error {
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
	builder.Dir = kernelDir
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
