// Matmul writes what lies beside the kernel matmul.cu: the PTX that the pinned compiler makes of it, and the cases.
//
//	go run ./examples/matmul                            matmul.ptx and the cases small.json and ragged.json
//	go run ./examples/matmul M N K FILE.json            a case of any size, with the PTX beside it
//
// Inputs come from a formula, and the expectation from the arithmetic of the tensor cores on the host: the order of the sums, and nothing of how the
// kernel moves its data. Tests hold the files against this program, and the expectation against float64.
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

// shipped are the cases that lie beside the kernel.
var shipped = map[string]problem{
	"small.json": {
		name: "matmul-small", m: 136, n: 136, k: 528,
		about: "two blocks each way, and five steps of K through a ring of two stages: both parities, and each stage used again",
	},
	"ragged.json": {
		name: "matmul-ragged", m: 70, n: 52, k: 112,
		about: "one block and one step of K, and nothing a multiple of a tile: what lies outside of A and B is zero, and nothing is written outside of C",
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
		return ship(ctx, filepath.Join("examples", "matmul"))
	case 4:
		return writeOne(args)
	}
	return errors.New("want no arguments, or M N K FILE.json")
}

// ship writes the PTX and its cases anew.
func ship(ctx context.Context, folder string) error {
	ptx, err := compile(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "matmul.ptx"), ptx, 0o644); err != nil {
		return err
	}
	for file, p := range shipped {
		path, fresh := filepath.Join(folder, file), p.caseJSON()
		if there, err := os.ReadFile(path); err == nil && bytes.Equal(ptx, kernelPTX) && sameCase(there, fresh) {
			continue // it may have been recorded on a card, of this very kernel
		}
		if err := os.WriteFile(path, fresh, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sameCase says whether two cases have the same launch, inputs and expectation. What they say of themselves may differ: the text, and the card.
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

// compile gives the PTX of the kernel by the pinned compiler.
func compile(ctx context.Context) ([]byte, error) {
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		return nil, err
	}
	compiler, err := toolchain.Installed(ctx, cacheDir)
	if err != nil {
		return nil, err
	}
	return toolchain.CompilePTX(ctx, compiler, sources, "matmul.cu", arch)
}

// writeOne writes a case of any size.
func writeOne(args []string) error {
	var extents [3]int
	for i, text := range args[:3] {
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is no extent", text)
		}
		extents[i] = n
	}
	p := problem{name: fmt.Sprintf("matmul-%dx%dx%d", extents[0], extents[1], extents[2]), m: extents[0], n: extents[1], k: extents[2]}
	if err := p.check(); err != nil {
		return err
	}
	file := args[3]
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "matmul.ptx"), kernelPTX, 0o644); err != nil {
		return err
	}
	return os.WriteFile(file, p.caseJSON(), 0o644)
}
