package toolchain

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// Cached builds and records of attention are found again: the key of a target with a launch
// contract must not change.
func TestKeyOfAttentionIsPinned(t *testing.T) {
	plainEnvironment(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("the key has the architecture of the host")
	}
	b := NewBuilder(tiny(), &Compiler{Version: "13.0.88"}, "")
	const want = "9045a174e68be0f8f143f41f9f12ce8a317e72f3ea20f90a605e846ad511cefb"
	target := tinyTarget()
	if got := b.key(target, "0123"); got != want {
		t.Errorf("the key is %s; want %s", got, want)
	}
	target.Contract = false
	keys := map[string]string{b.key(target, "0123"): "plain", want: "attention"}
	for name, change := range map[string]func(*Target){
		"entry":   func(t *Target) { t.Entry = "e" },
		"flags":   func(t *Target) { t.Flags = []string{"-O1"} },
		"include": func(t *Target) { t.Include = []string{"/x"} },
	} {
		changed := target
		change(&changed)
		if other, taken := keys[b.key(changed, "0123")]; taken {
			t.Errorf("another %s has the key of %s", name, other)
		}
		keys[b.key(changed, "0123")] = name
	}
	// Builds of versions that gave headers of -I only their base names are not found again.
	const ambiguous = "c1ea0166e92a9f61254600f7e846f9da9a29174d085c4a935aada1e7898793cc"
	included := target
	included.Flags = []string{"-I/x"}
	if b.key(included, "0123") == ambiguous {
		t.Error("the key of a target with -I is that of builds with ambiguous names")
	}
	// The folder of the kernel counts only where a folder of -I is relative to it.
	elsewhere := NewBuilder(tiny(), &Compiler{Version: "13.0.88"}, "")
	elsewhere.Dir = "/elsewhere"
	if elsewhere.key(target, "0123") != b.key(target, "0123") {
		t.Error("a copy of a kernel without -I has another key")
	}
	target.Flags = []string{"-Iheaders"}
	copied := elsewhere.key(target, "0123")
	b.Dir = "/here"
	if b.key(target, "0123") == copied {
		t.Error("another folder of -I has the same key")
	}
	b.Dir = "/there/../elsewhere"
	if b.key(target, "0123") != copied {
		t.Error("another name of the same folder of -I has another key")
	}
}

func TestSplitFlags(t *testing.T) {
	for _, c := range []struct {
		flags string
		want  compilerFlags
		err   string
	}{
		{"", compilerFlags{}, ""},
		{"-O3 --use_fast_math -DN=1 -D M -std=c++20", compilerFlags{nvcc: []string{"-O3", "--use_fast_math", "-DN=1", "-D=M", "-std=c++20"}}, ""},
		{"-I../include -I /opt/lib/ --include-path=x -Ia=b", compilerFlags{
			include: []string{"/k/include", "/opt/lib", "/k/dir/x", "/k/dir/a=b"},
			names:   map[string]string{"/k/include": "../include", "/k/dir/x": "x", "/k/dir/a=b": "a=b"},
		}, ""},
		{"-maxrregcount=64 -Xptxas -O1,-v --ptxas-options=-dlcm=ca", compilerFlags{ptxas: []string{"-maxrregcount=64", "-O1", "-v", "-dlcm=ca"}}, ""},
		{"-I", compilerFlags{}, `the compiler's flag "-I" needs a value`},
		{"foo.cu", compilerFlags{}, `the compiler's flag "foo.cu" does not begin with -; write a flag and its value as one string`},
		{"-arch=sm_90a", compilerFlags{}, `the compiler's flag "-arch=sm_90a" is set by attune; name the architecture in archs`},
		{"-gencode", compilerFlags{}, `the compiler's flag "-gencode" is set by attune; name the architecture in archs`},
		{"-o", compilerFlags{}, `the compiler's flag "-o" is set by attune; leave it out`},
	} {
		got, err := splitFlags(strings.Fields(c.flags), "/k/dir")
		if err != nil && err.Error() != c.err || err == nil && c.err != "" {
			t.Errorf("%s: %v; want %s", c.flags, err, c.err)
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(compilerFlags{})); err == nil && diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.flags, diff)
		}
	}
	if _, err := splitFlags([]string{"-Iinclude"}, ""); err == nil || !strings.Contains(err.Error(), "-Iinclude is relative to the kernel's folder") {
		t.Errorf("a relative folder without a kernel's folder: %v", err)
	}
}

// A flag that the compiler rejects is an error of the flag, not of the compiler.
func TestFlagError(t *testing.T) {
	target := Target{Variant: "k", Arch: "sm_90a", Flags: []string{"-lineinfo", "--nonsense", "-std=c++99", "-Xptxas=--nons"}, FlagsAt: "kernel.toml:2"}
	for output, want := range map[string]string{
		"nvcc fatal   : Unknown option '--nonsense'\n":                    `build k for sm_90a: kernel.toml:2: "flags": the flag "--nonsense": nvcc: Unknown option '--nonsense'`,
		"nvcc fatal   : Value 'c++99' is not defined for option 'std'\n":  `build k for sm_90a: kernel.toml:2: "flags": the flag "-std=c++99": nvcc: Value 'c++99' is not defined for option 'std'`,
		"warning\nptxas fatal   : Unknown option '-nons'\n":               `build k for sm_90a: kernel.toml:2: "flags": the flag "-Xptxas=--nons": ptxas: Unknown option '-nons'`,
		"nvcc fatal   : Unknown option '--other'\n":                       "",
		"k.cu(3): error: identifier 'nonsense' is undefined\n":            "",
		"nvcc fatal   : Memory allocation failure\n":                      "",
		"nvcc fatal   : Don't know what to do with '--'\nnvcc fatal: x\n": "",
	} {
		if err := target.flagError(output); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%q: %v; want %s", output, err, want)
		}
	}
	target.FlagsAt = ""
	if err := target.flagError("nvcc fatal   : Unknown option '--nonsense'"); err == nil || err.Error() != `build k for sm_90a: the flag "--nonsense": nvcc: Unknown option '--nonsense'` {
		t.Error(err)
	}
}

func TestOptionsReplaceStd(t *testing.T) {
	target := Target{Arch: "sm_90a", Knobs: map[string]int{"N": 2}}
	got := target.options(compilerFlags{nvcc: []string{"-std=c++20"}, include: []string{"/x"}})
	if want := []string{"-lineinfo", "-arch=compute_90a", "-DN=2", "-std=c++20", "-I/x"}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

// A kernel of one's own needs no launch contract: it has an entry of any name, flags and headers of
// other folders.
func TestBuildForeignKernel(t *testing.T) {
	compiler := pinned(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kernel/k.cu": "#include \"cuda_fp16.h\"\n#include <scale/scale.cuh>\n#include \"near.cuh\"\n" +
			"extern \"C\" __global__ void doubled(float* x) { x[threadIdx.x] *= scale<float> * near * N; }\n",
		"kernel/near.cuh":          "constexpr int near = 3;\n",
		"include/scale/scale.cuh":  "#pragma once\n#include \"detail.cuh\"\n",
		"include/scale/detail.cuh": "template <class T> concept Any = true;\ntemplate <Any T> constexpr T scale = 2;\n",
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	b := NewBuilder(os.DirFS(filepath.Join(dir, "kernel")), compiler, t.TempDir())
	b.Dir = filepath.Join(dir, "kernel")
	target := Target{
		Kernel: "k", Entry: "doubled", Variant: "k", Source: "k.cu", Arch: "sm_90a",
		Flags: []string{"-I../include", "-std=c++20", "-Xptxas", "-O1"}, Knobs: map[string]int{"N": 1},
	}
	image, _ := mustBuild(t, b, target)
	if image.Record.EntryName() != "doubled" || !slices.Contains(image.Record.Flags, "-I../include") {
		t.Errorf("%+v", image.Record)
	}
	if text, err := json.Marshal(image.Record); err != nil || strings.Contains(string(text), `"launch"`) || strings.Contains(string(text), dir) {
		t.Errorf("%v: the record is %s", err, text)
	}
	if _, origin := mustBuild(t, b, target); origin != FromCache {
		t.Errorf("the second build is %s", origin)
	}
	// A change of a header of another folder is another build.
	detail := filepath.Join(dir, "include/scale/detail.cuh")
	if err := os.WriteFile(detail, []byte(strings.Replace(readFile(t, detail), "= 2", "= 4", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if changed, origin := mustBuild(t, b, target); origin != FromCompiler || changed.Record.CodeHash == image.Record.CodeHash {
		t.Errorf("the build with another header is %s", origin)
	}

	target.Entry = ""
	if _, _, err := b.Build(t.Context(), target); err == nil || !strings.Contains(err.Error(), `it has no entry function "k", but doubled; name one by entry`) {
		t.Errorf("without the entry: %v", err)
	}
	if _, _, err := NewBuilder(os.DirFS(b.Dir), compiler, t.TempDir()).Build(t.Context(), target); err == nil || !strings.Contains(err.Error(), "-I../include is relative") {
		t.Errorf("without a folder: %v", err)
	}
	if _, _, err := NewBuilder(os.DirFS(b.Dir), nil, "").Build(t.Context(), Target{Variant: "k", Source: "k.cu"}); !errors.Is(err, ErrNoCompiler) ||
		!strings.Contains(err.Error(), "attune toolchain install") {
		t.Errorf("without a compiler: %v", err)
	}
	text, err := CompilePTX(t.Context(), compiler, os.DirFS(b.Dir), "", "k.cu", "sm_90a", "-I"+filepath.Join(dir, "include"), "-std=c++20", "-DN=2")
	if err != nil || !strings.Contains(string(text), ".entry doubled(") {
		t.Errorf("as PTX: %v", err)
	}
	if _, err := CompilePTX(t.Context(), compiler, os.DirFS(b.Dir), "", "k.cu", "sm_90a", "-ptx"); err == nil {
		t.Error("a flag of attune is accepted")
	}
}

// Headers outside of the kernel's folder keep their place relative to it, in PTX and in errors. The
// names are the same on every machine.
func TestNamesOfIncludedHeaders(t *testing.T) {
	compiler := pinned(t)
	var first []byte
	for _, checkout := range []string{"one", "another/place"} {
		dir := filepath.Join(t.TempDir(), checkout)
		for name, text := range map[string]string{
			"kernel/k.cu":          "#include \"ptx.cuh\"\n#include <common/ptx.cuh>\n#include <lib/far.cuh>\nextern \"C\" __global__ void k(float* x) { far(own(shared(x))); }\n",
			"kernel/ptx.cuh":       "__device__ float* own(float* x) { x[1] = 1; return x; }\n",
			"real/common/ptx.cuh":  "#pragma once\n\n__device__ float* shared(float* x) {\n  x[2] = 2 BROKEN;\n  return x;\n}\n",
			"absolute/lib/far.cuh": "__device__ void far(float* x) { x[3] = 3; }\n",
		} {
			file := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("real", filepath.Join(dir, "linked")); err != nil {
			t.Fatal(err)
		}
		b := NewBuilder(os.DirFS(filepath.Join(dir, "kernel")), compiler, t.TempDir())
		b.Dir = filepath.Join(dir, "kernel")
		target := Target{
			Kernel: "k", Variant: "k", Source: "k.cu", Arch: "sm_90a",
			Flags: []string{"-I../linked", "-I" + filepath.Join(dir, "absolute"), "-DBROKEN="},
		}
		image, _ := mustBuild(t, b, target)
		if names := fileNames(image.PTX); !slices.Equal(names, []string{"k.cu", "../linked/common/ptx.cuh", "ptx.cuh", "-I1/lib/far.cuh"}) {
			t.Errorf("the PTX names %q", names)
		}
		if first == nil {
			first = image.PTX
		}
		if !bytes.Equal(image.PTX, first) {
			t.Errorf("another checkout gives other PTX:\n%s", cmp.Diff(string(first), string(image.PTX)))
		}
		target.Flags[2] = "-DBROKEN=+"
		_, _, err := b.Build(t.Context(), target)
		if refused, ok := errors.AsType[*CompileError](err); !ok || refused.Summary() != "../linked/common/ptx.cuh:4: expected an expression" || strings.Contains(refused.Output, dir) {
			t.Errorf("the error is %v", err)
		}
	}
}

// fileNames are the files that PTX names, in the order of their numbers.
func fileNames(ptx []byte) []string {
	var names []string
	for _, m := range fileDirective.FindAllSubmatch(ptx, -1) {
		names = append(names, string(m[2]))
	}
	return names
}

// Names relative to the working directory become relative to a folder below it.
func TestRenamedFolders(t *testing.T) {
	own, err := splitFlags([]string{"-Iinc", "-I../up", "-I/opt/lib"}, ".")
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"a/b": "../../inc/x.h ../../../up/x.h", ".": "inc/x.h ../up/x.h", "..": " up/x.h", "": " ", "/a": " "} {
		renamed := own.renamed(dir)
		if got := renamed.portableName(own.include[0]+"/x.h") + " " + renamed.portableName(own.include[1]+"/x.h"); got != want {
			t.Errorf("from %q: %q; want %q", dir, got, want)
		}
	}
}

func TestNoEntry(t *testing.T) {
	target := Target{Kernel: "norm"}
	for want, entries := range map[string][]string{
		"it has no entry function: declare one with __global__":                                            nil,
		`it has no entry function "norm", but _Z4normPf; declare it extern "C", so that it keeps its name`: {"_Z4normPf"},
		`it has no entry function "norm", but a, b; name one by entry`:                                     {"a", "b"},
	} {
		if err := target.noEntry(entries); err.Error() != want {
			t.Errorf("%v; want %s", err, want)
		}
	}
}

func TestForeignSources(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a/x.cuh": "#include <y.cuh>\n#include \"x.cuh\"\n", "b/y.cuh": "#include \"../b/z.cuh\"", "b/z.cuh": "", "a/cuda/n": "",
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	kernel := fstest.MapFS{
		"k.cu":   {Data: []byte("#include \"h.cuh\"\n#include \"x.cuh\"\n#include <cuda>\n#include \"math.h\"\n#include \"h.cuh\"\n")},
		"h.cuh":  {Data: []byte("#include \"../b/y.cuh\"\n")},
		"up.cu":  {Data: []byte("#include \"../gone.cuh\"\n")},
		"dir.cu": {Data: []byte("#include \"d\"\n")},
		"d/file": {},
		"ask.cu": {Data: []byte("#if __has_include(\"h.cuh\") && __has_include(<z.cuh>) && __has_include(\"gone.cuh\")\n#endif\n")},
		"has.cu": {Data: []byte("#if __has_include_next(\"/etc/passwd\")\n#endif\n")},
		"mac.cu": {Data: []byte("#if __has_include(FILE)\n#endif\n")},
	}
	include := []string{filepath.Join(dir, "a"), filepath.Join(dir, "b")}
	files, err := readForeign(kernel, "k.cu", compilerFlags{include: include})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	if want := []string{"-I0/../b/y.cuh", "-I0/../b/z.cuh", "-I0/x.cuh", "-I1/y.cuh", "-I1/../b/z.cuh", "h.cuh", "k.cu"}; !slices.Equal(names, slices.Sorted(slices.Values(want))) {
		t.Errorf("%q; want %q", names, want)
	}
	// Whether a header exists decides what is built, so that it belongs to the hash.
	asked, err := readForeign(kernel, "ask.cu", compilerFlags{include: include})
	if err != nil || asked["h.cuh"] == nil || asked["-I1/z.cuh"] == nil {
		t.Errorf("%v, %v", asked, err)
	}
	for _, c := range []struct {
		root    string
		include []string
		want    string
	}{
		{"has.cu", include, "has.cu includes /etc/passwd, which is outside the kernel's folder; copy it into the folder"},
		{"mac.cu", include, "mac.cu has __has_include(FILE); name the file in quotes or angle brackets, because the build depends on whether it exists"},
		{"none.cu", nil, "the source none.cu does not exist"},
		{"up.cu", include, "up.cu includes ../gone.cuh, which is outside the kernel's folder; name its folder by -I in flags"},
		{"dir.cu", nil, "read d: it is not a regular file"},
		{"k.cu", []string{filepath.Join(dir, "none")}, "there is no folder " + filepath.Join(dir, "none") + ", which -I names"},
	} {
		_, err := readForeign(kernel, c.root, compilerFlags{include: c.include})
		broken, isSource := errors.AsType[*SourceError](err)
		if isSource {
			err = errors.New(broken.Problem)
		}
		if err == nil || err.Error() != c.want || !isSource {
			t.Errorf("%s: %v; want %s", c.root, err, c.want)
		}
	}
}

// A kernel in a tree builds as it does on disk: the same PTX, key and hash of the sources.
func TestNestedKernel(t *testing.T) {
	compiler, tree := pinned(t), t.TempDir()
	for name, text := range map[string]string{
		"kernels/k/k.cu":    "#include \"own.cuh\"\n#include \"include/a.cuh\"\nextern \"C\" __global__ void k(float* x) { x[0] = own() + a(); }\n",
		"kernels/k/own.cuh": "#pragma once\n#include \"include/a.cuh\"\n__device__ float own() { return a(); }\n",
		"include/a.cuh":     "#pragma once\n#include \"../include/b.cuh\"\n__device__ float a() { return b(); }\n",
		"include/b.cuh":     "#pragma once\n__device__ float b() { int unused; return clock(); }\n",
	} {
		file := filepath.Join(tree, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	target := Target{Kernel: "k", Variant: "k", Source: "k.cu", Arch: "sm_90a", Entry: "k", Flags: []string{"-I../.."}}
	onDisk := NewBuilder(Folder(filepath.Join(tree, "kernels/k")), compiler, "")
	onDisk.Dir = filepath.Join(tree, "kernels/k")
	want, _ := mustBuild(t, onDisk, target)
	nested := NewBuilder(nestedFolder{os.DirFS(tree), "kernels/k"}, compiler, "")
	nested.Dir = "elsewhere" // has no effect
	got, _ := mustBuild(t, nested.Frozen(), target)
	if diff := cmp.Diff(want.Record, got.Record); diff != "" || string(want.PTX) != string(got.PTX) || want.Log != got.Log || !strings.Contains(got.Log, "../../include/../include/b.cuh(2)") {
		t.Errorf("(-on disk +nested):\n%s\n%s", diff, got.Log)
	}
	if names := fileNames(got.PTX); !slices.Contains(names, "../../include/b.cuh") {
		t.Errorf("the PTX names %v", names)
	}
	target.Flags = []string{"-I../none"}
	if _, _, err := nested.Build(t.Context(), target); err == nil || !strings.Contains(err.Error(), "there is no folder /kernels/none, which -I names") {
		t.Errorf("a missing folder: %v", err)
	}
}

// Flags that run programs, or read and write files, are refused.
func TestDangerousFlags(t *testing.T) {
	for _, flags := range [][]string{
		{"-Xcompiler", "-wrapper,/tmp/program"},
		{"-Xcompiler=-fplugin=x.so"},
		{"--compiler-options=-Wp,-MD,/tmp/x"},
		{"-Xcompiler=-B/tmp"},
		{"--time=/tmp/file"},
		{"-ccbin=/tmp/program"},
		{"--compiler-bindir=/tmp"},
		{"-include=/etc/passwd"},
		{"--options-file=/tmp/x"},
		{"-MD"},
		{"-Xptxas=-o,/tmp/x"},
		{"-Xptxas=--output-file=/tmp/x"},
		{"--keep-dir=/tmp"},
		{"-isystem=/tmp"},
		{"--fdevice-time-trace=/tmp/x"},
	} {
		if split, err := splitFlags(flags, "."); err == nil {
			t.Errorf("%q: %+v", flags, split)
		}
	}
	for _, flags := range [][]string{
		{"-Xcompiler", "-Wall,-Wno-unused-variable"},
		{"-Xptxas", "-v,-O3,--warn-on-spills"},
		{"--expt-relaxed-constexpr", "--extended-lambda"},
		{"-diag-suppress=177", "-Xptxas=-dlcm=ca", "--use_fast_math", "-lineinfo"},
	} {
		if _, err := splitFlags(flags, "."); err != nil {
			t.Errorf("%q: %v", flags, err)
		}
	}
}
