package toolchain

import (
	"context"
	"os"
	"path/filepath"
)

// Assemble assembles PTX to machine code and returns its code hash. PTX that ptxas rejects is a
// CompileError; a compiler that does not work is a FaultError.
func Assemble(ctx context.Context, c *Compiler, ptx []byte, arch string) (string, error) {
	dir, err := os.MkdirTemp("", "attune-build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "image.ptx"), ptx, 0o644); err != nil {
		return "", err
	}
	t := Target{Variant: "PTX", Arch: arch}
	if err := c.check(ctx, t); err != nil {
		return "", err
	}
	if _, err := c.run(ctx, t, dir, c.PTXAS, "-arch="+arch, "-o", "image.cubin", "image.ptx"); err != nil {
		return "", err
	}
	cubin, err := c.output(ctx, t, c.PTXAS, filepath.Join(dir, "image.cubin"), completeCubin)
	if err != nil {
		return "", err
	}
	return codeHash(cubin)
}
