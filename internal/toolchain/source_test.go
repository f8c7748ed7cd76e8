package toolchain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestSources(t *testing.T) {
	folder := fstest.MapFS{
		"ada/k.cu": {Data: []byte("#include \"../common/a.cuh\"\n  #  include\t\"b.cuh\" // why\n#include <cuda_fp16.h>\n" +
			"// #include \"not.cuh\"\nconst char* s = \"#include \\\"nor.cuh\\\"\";\n")},
		"ada/b.cuh":    {Data: []byte("#include\"b.cuh\"\r\n#include \"../common/deep/c.cuh\"\r\n")}, // itself too
		"common/a.cuh": {Data: []byte("#pragma once\n#include \"deep/c.cuh\"")},
		"common/deep/c.cuh": {
			Data: []byte("#include \"../a.cuh\"\n"),
		},
		"common/unused.cuh": {Data: []byte("#error")},
	}
	files, err := readSources(folder, "ada/k.cu")
	if err != nil {
		t.Fatal(err)
	}
	want := sources{}
	for _, name := range []string{"ada/k.cu", "ada/b.cuh", "common/a.cuh", "common/deep/c.cuh"} {
		want[name] = folder[name].Data
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	dir := t.TempDir()
	if err := files.writeTo(dir); err != nil {
		t.Fatal(err)
	}
	back, err := readSources(os.DirFS(dir), "ada/k.cu")
	if err != nil || back.hash() != files.hash() {
		t.Errorf("the written files have hash %s, %v, want %s", back.hash(), err, files.hash())
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(dir, "file"), filepath.Join(dir, "ada", "k.cu")} {
		if err := files.writeTo(dir); err == nil {
			t.Errorf("files were written below the file %s", dir)
		}
	}
}

func TestSourceHash(t *testing.T) {
	hash := func(pairs ...string) string {
		files := sources{}
		for i := 0; i < len(pairs); i += 2 {
			files[pairs[i]] = []byte(pairs[i+1])
		}
		return files.hash()
	}
	base := hash("a", "1", "b", "2")
	for name, other := range map[string]string{
		"another name":            hash("a", "1", "c", "2"),
		"another content":         hash("a", "1", "b", "3"),
		"one more file":           hash("a", "1", "b", "2", "c", ""),
		"swapped contents":        hash("a", "2", "b", "1"),
		"a name inside a content": hash("a", "1b 1\n2"),
	} {
		if base == other {
			t.Errorf("%s: the hash is the same", name)
		}
	}
}

func TestInvalidSources(t *testing.T) {
	for _, c := range []struct{ name, source, want string }{
		{"missing", `#include "gone.cuh"`, "ada/k.cu includes ada/gone.cuh, which does not exist"},
		{"missing for a header", `#include "../common/h.cuh"`, "common/h.cuh includes common/gone.cuh, which does not exist"},
		{"outside", `#include "../../secret.h"`, "ada/k.cu includes ../../secret.h, which is outside the kernel's folder"},
		{"absolute", `#include "/etc/passwd"`, "ada/k.cu includes ada/etc/passwd, which does not exist"},
		{"a folder", `#include "../common"`, "common"},
	} {
		folder := fstest.MapFS{
			"ada/k.cu":     {Data: []byte("// A kernel.\n" + c.source + "\n")},
			"common/h.cuh": {Data: []byte(`#include "gone.cuh"`)},
		}
		_, _, err := NewBuilder(folder, nil, t.TempDir()).Build(t.Context(), Target{Variant: "v", Source: "ada/k.cu", Arch: "sm_89", Contract: true})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "build v for sm_89: ") {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := readSources(fstest.MapFS{}, "k.cu"); err == nil || !strings.Contains(err.Error(), "k.cu") {
		t.Errorf("no source at all: %v", err)
	}
}
