package toolchain

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	if err := files.writeTo(dir, false); err != nil {
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
		if err := files.writeTo(dir, false); err == nil {
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
		{"absolute", `#include "/etc/passwd"`, "ada/k.cu includes /etc/passwd, which is outside the kernel's folder; copy it into the folder"},
		{"continued", "#include \\\n \"/etc/passwd\"", "ada/k.cu includes /etc/passwd, which is outside"},
		{"asked for outside", "#if 1 && \\\n __has_include(\"/etc/passwd\")\n#endif", "ada/k.cu includes /etc/passwd, which is outside"},
		{"asked for above", "#elif __has_include( \"../../x.h\" )", "ada/k.cu includes ../../x.h, which is outside"},
		{"asked for in brackets", "#if __has_include(</etc/passwd>)", "ada/k.cu includes /etc/passwd, which is outside"},
		{"asked for by a macro", "#if __has_include(FILE)", "ada/k.cu has __has_include(FILE); name the file in quotes"},
		{"a folder", `#include "../common"`, "read common: it is not a regular file"},
	} {
		folder := fstest.MapFS{
			"ada/k.cu":     {Data: []byte("// A kernel.\n" + c.source + "\n")},
			"common/h.cuh": {Data: []byte(`#include "gone.cuh"`)},
		}
		_, _, err := NewBuilder(folder, nil, t.TempDir()).Build(t.Context(), Target{Variant: "v", Source: "ada/k.cu", Arch: "sm_89", Contract: true})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "build v for sm_89: ") {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
		var broken *SourceError
		if !errors.As(err, &broken) {
			t.Errorf("%s: error %T", c.name, err)
		}
	}
	if _, err := readSources(fstest.MapFS{}, "k.cu"); err == nil || !strings.Contains(err.Error(), "k.cu") {
		t.Errorf("no source at all: %v", err)
	}
}

// A header that a source only asks for is copied if it exists, and may be missing.
func TestOptionalHeaders(t *testing.T) {
	folder := fstest.MapFS{
		"k.cu": {Data: []byte("#if __has_include(\"a.h\") && __has_include(<cuda.h>)\n#include \"a.h\"\n#endif\n" +
			"#if __has_include(\"b.h\")\n#include \"b.h\"\n#endif\n// __has_include(FILE)\n")},
		"b.h": {Data: []byte("#define B")},
	}
	files, err := readSources(folder, "k.cu")
	if err != nil || len(files) != 2 || files["b.h"] == nil {
		t.Errorf("%v, %v, want k.cu and b.h", files, err)
	}
}

// Links may point to files of the kernel's folder, and to no others.
func TestFolder(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"k.cu": "#include \"inside.h\"\n", "outside.cu": "#include \"outside.h\"\n", "below.cu": "#include \"folder/x.h\"\n",
		"common/x.h": "1",
	} {
		script(t, filepath.Join(dir, name), "")
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		os.WriteFile(filepath.Join(elsewhere, "x.h"), []byte("2"), 0o644),
		os.Symlink("common/x.h", filepath.Join(dir, "inside.h")),
		os.Symlink(filepath.Join(elsewhere, "x.h"), filepath.Join(dir, "outside.h")),
		os.Symlink(elsewhere, filepath.Join(dir, "folder")),
		os.Symlink(dir, filepath.Join(elsewhere, "kernel")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{dir, filepath.Join(elsewhere, "kernel")} {
		if files, err := readSources(Folder(root), "k.cu"); err != nil || string(files["inside.h"]) != "1" {
			t.Errorf("a link inside: %v, %v", files, err)
		}
		for source, want := range map[string]string{"outside.cu": "read outside.h: ", "below.cu": "read folder/x.h: "} {
			_, err := readSources(Folder(root), source)
			if err == nil || !strings.Contains(err.Error(), want+"it is a link to a file outside the kernel's folder") {
				t.Errorf("%s: %v", source, err)
			}
		}
		if list, err := fs.ReadDir(Folder(root), "."); err != nil || len(list) == 0 {
			t.Errorf("%v, %v", list, err)
		}
	}
	if _, err := Folder(".").Open("source.go"); err != nil { // a relative folder is no link
		t.Error(err)
	}
	if _, err := Folder(filepath.Join(dir, "gone")).Open("k.cu"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder that does not exist: %v", err)
	}
}

// A pipe in place of a source ends no build by waiting, and a link in place of a header is a mistake
// of the source, with and without a launch contract.
func TestSourcesThatAreNoFiles(t *testing.T) {
	dir := t.TempDir()
	err := errors.Join(
		os.WriteFile(filepath.Join(dir, "k.cu"), []byte("#include \"pipe\"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "l.cu"), []byte("#include \"link\"\n"), 0o644),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644),
		os.Symlink("/etc/passwd", filepath.Join(dir, "link")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		"pipe": "read pipe: it is not a regular file", "k.cu": "read pipe: it is not a regular file",
		"l.cu": "read link: it is a link to a file outside the kernel's folder; copy the file into the folder",
	} {
		for _, contract := range []bool{false, true} {
			target := Target{Variant: "v", Source: source, Arch: "sm_89", Contract: contract}
			_, _, err := NewBuilder(Folder(dir), nil, "").Build(t.Context(), target)
			if broken, ok := errors.AsType[*SourceError](err); !ok || broken.Problem != want {
				t.Errorf("%s, contract %t: %v", source, contract, err)
			}
		}
	}
}

// A source without a kernel is a mistake of the source, and the compiler is not blamed for its PTX.
func TestSourceWithoutKernel(t *testing.T) {
	plainEnvironment(t)
	dir := t.TempDir()
	for _, ptx := range []string{"", "\n.global .u32 x;\n"} {
		script(t, filepath.Join(dir, "nvcc"), "printf '.version 9.0\n.target sm_89\n.address_size 64\n\n"+ptx+"' > image.ptx")
		_, _, err := NewBuilder(tiny(), &Compiler{NVCC: filepath.Join(dir, "nvcc"), Version: "0"}, "").Build(t.Context(), tinyTarget())
		if broken, ok := errors.AsType[*SourceError](err); !ok || broken.Problem != "it has no entry function: declare one with __global__" {
			t.Errorf("%q: %v", ptx, err)
		}
	}
}

func TestComputedIncludes(t *testing.T) {
	for text, want := range map[string]bool{
		"#include \"a.h\"\n#include <a.h> // why\n": false,
		"#include FILE\n":          true,
		"# include_next FILE\n":    true,
		"#include </etc/passwd>\n": true,
		"#include \\\n  <a.h>\n":   false,
	} {
		if got := (sources{"k.cu": []byte(text)}).computed(); got != want {
			t.Errorf("%q: computed is %t", text, got)
		}
	}
}

func TestForeignFile(t *testing.T) {
	const header = "# 0 \"k.cu\"\n# 1 \"/gcc/include/stddef.h\" 1 3 4\n# 1 \"/opt/sdk/include/cuda_runtime.h\" 1\n" +
		"# 1 \"/opt/sdk/bin/..//include/crt/a.h\" 1\n# 1 \"ada/../common/a.h\" 1\n# 1 \"/build/b.h\" 1\n# 1 \"/cuda/include/c.h\" 1\n"
	for more, want := range map[string]string{
		"":                                  "",
		"# 1 \"/usr/include/x.h\" 1\n":      "/usr/include/x.h",
		"# 1 \"/home/x.h\" 1 3\n":           "/home/x.h", // behind a header of the kernel
		"# 1 \"/gcc/include/y.h\" 1 3 4\n":  "",
		"# 1 \"/usr/include/x.h\" 1 3\n":    "",
		"# 7 \"/usr/include/x.h\" 2\n":      "",
		"# 1 \"ada/../../x.h\" 1\n":         "../x.h",
		"# 1 \"/builder/x.h\" 1\n":          "/builder/x.h",
		"# 1 \"/build/../x.h\" 1\n":         "/x.h",
		"# 1 \"/other/cuda_runtime.h\" 1\n": "/other/cuda_runtime.h",
		"# 1 \"/a\\\\b.h\" 1\n":             `/a\b.h`,
	} {
		err := foreignFile("k.cu", []byte(header+more), "/build", "/cuda/")
		if (err == nil) != (want == "") || err != nil && err.Error() != outside("k.cu", want).Error() {
			t.Errorf("%q: %v, want %q", more, err, want)
		}
	}
}

// The sources cannot add to the folders of system headers by markers of their own.
func TestForgedLineMarkers(t *testing.T) {
	const text = "# 0 \"k.cu\"\n# 1 \"/opt/sdk/include/cuda_runtime.h\" 1\n# 1 \"k.cu\"\n# 1 \"/etc/x.h\" 1 3\n# 1 \"/etc/passwd\" 1 3\n"
	if err := foreignFile("k.cu", []byte(text)); err == nil || !strings.Contains(err.Error(), "k.cu includes /etc/x.h, which is outside") {
		t.Error(err)
	}
}

// A directive that a macro writes is left to NVIDIA's front end, which would obey it.
func TestHiddenDirectives(t *testing.T) {
	for text, hidden := range map[string]bool{
		"#pragma unroll\n # pragma once\n# 3 \"k.cu\"\n": false,
		"x # y\nprintf(\"# include\");\n":                false,
		" # include \"/etc/passwd\"\n":                   true,
		"%: include \"/etc/passwd\"\n":                   true,
		"??=include \"/etc/passwd\"\n":                   true,
		"\v\f# include \"/etc/passwd\"\n":                true,
		"# \\\n include \"/etc/passwd\"\n":               true,
		"# if 1\n":                                       true,
		"#\n":                                            true,
	} {
		if err := foreignFile("k.cu", []byte(text)); (err != nil) != hidden {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, want := range map[string]bool{"#define H #\nH include \"x\"\n": true, "#define S(x) #x\n": false} {
		if got := (sources{"k.cu": []byte(text)}).computed(); got != want {
			t.Errorf("%q: computed is %t", text, got)
		}
	}
}

// Messages of a failed preprocessor do not quote files outside.
func TestForeignPlace(t *testing.T) {
	for text, want := range map[string]string{
		"k.cu:3:2: error: #error no\n": "",
		"In file included from k.cu:1:\n/etc/x:1:2: error: invalid directive #secret": "/etc/x",
		"In file included from ../x:1,\n                 from k.cu:1:\n":              "../x",
		"/opt/gcc/lib/include/x.h:3:1: error\n/cuda/y.h:1: error\n":                   "",
	} {
		if got := foreignPlace(text, "/cuda"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A file that a macro names is found although the text does not name it, and the next build does not
// depend on it.
func TestComputedIncludeOutside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "scale.h")
	if err := os.WriteFile(outside, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	compiler, source := pinned(t), string(tiny()["ada/tiny.cu"].Data)
	for name, line := range map[string]string{"a macro": "#include FILE", "angle brackets": "#include <" + outside + ">"} {
		folder := with(tiny(), "ada/tiny.cu", "#define FILE \""+outside+"\"\n"+line+"\n"+source)
		_, _, err := NewBuilder(folder, compiler, t.TempDir()).Build(t.Context(), tinyTarget())
		var broken *SourceError
		if !errors.As(err, &broken) || err.Error() != "build plain for sm_89: ada/tiny.cu includes "+outside+
			", which is outside the kernel's folder; copy it into the folder" {
			t.Errorf("%s: %v", name, err)
		}
	}
	folder := with(tiny(), "ada/tiny.cu", "#define FILE \"../common/launch.cuh\"\n#include FILE\n"+source)
	b := NewBuilder(folder, compiler, t.TempDir())
	mustBuild(t, b, tinyTarget())
	if _, origin := mustBuild(t, b, tinyTarget()); origin != FromCache {
		t.Errorf("the second build is %s", origin)
	}
}

// A file that NVIDIA's front end or the host's preprocessor would read is not quoted either.
func TestHiddenIncludeOutside(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("#password 123\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	compiler, source := pinned(t), string(tiny()["ada/tiny.cu"].Data)
	for _, lines := range []string{"#define H #\nH include \"" + secret + "\"\n", "#define F \"" + secret + "\"\n#include F\n"} {
		_, _, err := NewBuilder(with(tiny(), "ada/tiny.cu", lines+source), compiler, t.TempDir()).Build(t.Context(), tinyTarget())
		if _, ok := errors.AsType[*SourceError](err); !ok || strings.Contains(err.Error(), "password") {
			t.Errorf("%q: %v", lines, err)
		}
	}
}
