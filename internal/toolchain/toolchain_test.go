package toolchain

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/fstest"

	"attune/internal/child/childtest"
)

// pinned is the compiler that Install installs. It skips the test under -short and if the compiler is
// not installed.
func pinned(t testing.TB) *Compiler {
	t.Helper()
	if testing.Short() {
		t.Skip("runs NVIDIA's compiler, which -short leaves out")
	}
	plainEnvironment(t)
	cacheDir, err := CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := Installed(t.Context(), cacheDir)
	if err != nil {
		t.Skipf("NVIDIA's pinned compiler is needed: %v", err)
	}
	return compiler
}

// plainEnvironment unsets the variables that nvcc reads.
func plainEnvironment(t testing.TB) {
	t.Helper()
	for _, name := range []string{"NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"} {
		t.Setenv(name, "")
		if err := os.Unsetenv(name); err != nil { // nvcc reads an empty NVCC_CCBIN as a name
			t.Fatal(err)
		}
	}
}

// tiny is a kernel that compiles fast, with a header, a knob that affects the code, and names with
// internal linkage.
func tiny() fstest.MapFS {
	return fstest.MapFS{
		"ada/tiny.cu": {Data: []byte(`#include "../common/launch.cuh"

ATTUNE_LAUNCH(64, 16, 0);

namespace {
__device__ __noinline__ float scaled(const float* x) {
  static __device__ unsigned calls;
  return x[threadIdx.x] * SCALE + atomicAdd(&calls, 1);
}
}  // namespace

extern "C" __global__ void tiny(float* out, const float* x) {
  __shared__ float tile[64];
  tile[threadIdx.x] = scaled(x);
  __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}
`)},
		"common/launch.cuh": {Data: []byte(`#pragma once

#define ATTUNE_LAUNCH(threads, query_rows, dynamic_shared_bytes) \
  extern "C" __device__ const unsigned attune_launch[3] = {threads, query_rows, dynamic_shared_bytes}
`)},
	}
}

// tinyTarget is a variant of tiny.
func tinyTarget() Target {
	return Target{Kernel: "tiny", Variant: "plain", Source: "ada/tiny.cu", Arch: "sm_89", Knobs: map[string]int{"SCALE": 3}, Contract: true}
}

// with is a copy of a folder in which one file is added or replaced.
func with(folder fstest.MapFS, name, text string) fstest.MapFS {
	changed := maps.Clone(folder)
	changed[name] = &fstest.MapFile{Data: []byte(text)}
	return changed
}

// without is a copy of a folder without a file.
func without(folder fstest.MapFS, name string) fstest.MapFS {
	changed := maps.Clone(folder)
	delete(changed, name)
	return changed
}

// sdpa is the attention kernel's folder in memory, so that tests can change its files.
func sdpa(t testing.TB) fstest.MapFS {
	t.Helper()
	folder := os.DirFS(filepath.Join("..", "..", "kernels"))
	files := fstest.MapFS{}
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(folder, name)
		files[name] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// mustBuild builds a target and fails the test if that fails.
func mustBuild(t testing.TB, b *Builder, target Target) (*Image, Origin) {
	t.Helper()
	image, origin, err := b.Build(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	return image, origin
}

// names lists a folder; a missing folder is empty.
func names(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}

func readFile(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// hashOf is the SHA-256 of a text in the form of records.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// script writes an executable shell script.
func script(t testing.TB, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	childtest.Program(t, file, "#!/bin/sh\n"+text)
}

// ptxFrom compiles a file to PTX and leaves machine paths in it.
func ptxFrom(t testing.TB, c *Compiler, file, arch string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.ptx")
	args := append(flags(arch), "-ptx", "-o", out, file)
	if text, err := exec.CommandContext(t.Context(), c.NVCC, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return out
}
