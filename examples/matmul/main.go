// Matmul generates the files beside the kernel matmul.cu: its PTX by the pinned compiler, and the
// cases.
//
//	go run ./examples/matmul                            matmul.ptx, small.json and ragged.json
//	go run ./examples/matmul M N K FILE.json            a case of any size, with the PTX beside it
//
// A formula gives the inputs. The expected output comes from the arithmetic model of the tensor
// cores on the host, which fixes the order of the sums but not how the kernel moves its data. Tests
// compare the files with this program, and the expected output with float64.
package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"

	"attune/internal/toolchain"
)

//go:embed matmul.cu ptx.cuh
var sources embed.FS

//go:embed matmul.ptx
var kernelPTX []byte

const arch = "sm_90a"

// shippedProblems are the cases in this folder, by file name.
var shippedProblems = map[string]problem{
	"small.json": {
		name: "matmul-small", m: 136, n: 136, k: 528,
		about: "2 x 2 blocks, and five steps of K through a pipeline of two stages: both parities, and reuse of each stage",
	},
	"ragged.json": {
		name: "matmul-ragged", m: 70, n: 52, k: 112,
		about: "one block and one step of K, no extent a multiple of the tile: " +
			"the kernel reads zeros outside A and B and must not write outside C",
	},
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "matmul:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch len(args) {
	case 0:
		return writeShipped(ctx, filepath.Join("examples", "matmul"))
	case 4:
		return writeCase(args)
	}
	return errors.New("unexpected arguments; want none, or M N K FILE.json")
}

// writeShipped regenerates the PTX and the cases.
func writeShipped(ctx context.Context, folder string) error {
	ptx, err := compile(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "matmul.ptx"), ptx, 0o644); err != nil {
		return err
	}
	for file, p := range shippedProblems {
		path, generated := filepath.Join(folder, file), p.caseJSON()
		if existing, err := os.ReadFile(path); err == nil && bytes.Equal(ptx, kernelPTX) && sameCase(existing, generated) {
			continue // keep the hw entry, which records a GPU run of this same kernel
		}
		if err := os.WriteFile(path, generated, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sameCase reports whether two cases have the same launch, inputs and expected output. It ignores
// the entries about and hw.
func sameCase(a, b []byte) bool {
	read := func(text []byte) map[string]any {
		var c map[string]any
		if json.Unmarshal(text, &c) != nil {
			return nil
		}
		delete(c, "about")
		delete(c, "hw")
		return c
	}
	first, second := read(a), read(b)
	return first != nil && reflect.DeepEqual(first, second)
}

// compile compiles the kernel to PTX with the pinned compiler.
func compile(ctx context.Context) ([]byte, error) {
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		return nil, err
	}
	compiler, err := toolchain.Installed(ctx, cacheDir)
	if err != nil {
		return nil, err
	}
	return toolchain.CompilePTX(ctx, compiler, sources, "", "matmul.cu", arch)
}

// writeCase writes a case of any size and the PTX beside it.
func writeCase(args []string) error {
	var extents [3]int
	for i, text := range args[:3] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not an integer; want M N K FILE.json", text)
		}
		extents[i] = n
	}
	p := problem{name: fmt.Sprintf("matmul-%dx%dx%d", extents[0], extents[1], extents[2]), m: extents[0], n: extents[1], k: extents[2]}
	if err := p.validate(); err != nil {
		return err
	}
	file := args[3]
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "matmul.ptx"), kernelPTX, 0o644); err != nil {
		return err
	}
	return os.WriteFile(file, p.caseJSON(), 0o644)
}
