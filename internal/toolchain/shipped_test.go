package toolchain

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// stage is a shipped stage of the attention kernel, as a target.
func stage(t testing.TB, variant, arch string) (Target, ShippedImage) {
	t.Helper()
	list, err := ReadShipped(sdpa(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Images {
		if r := s.Record; r.Variant == variant && r.Arch == arch {
			return Target{Kernel: r.Kernel, Variant: r.Variant, Source: r.Source, Arch: r.Arch, Knobs: r.Knobs, Contract: true}, s
		}
	}
	t.Fatalf("%s for %s is not shipped", variant, arch)
	return Target{}, ShippedImage{}
}

func TestShippedWithoutCompiler(t *testing.T) {
	folder := sdpa(t)
	target, s := stage(t, "stage1", "sm_89")
	image, origin := mustBuild(t, NewBuilder(os.DirFS(filepath.Join("..", "..", "kernels")), nil, t.TempDir()), target)
	if origin != FromShipped || image.Cubin != nil {
		t.Errorf("the image is %s, with %d bytes of machine code", origin, len(image.Cubin))
	}
	if diff := cmp.Diff(s.Record, image.Record); diff != "" {
		t.Errorf("record (-listed +returned):\n%s", diff)
	}
	// PTX, log and record belong to one build.
	if launch, err := parseLaunch(string(image.PTX)); err != nil || !cmp.Equal(launch, image.Record.Launch) {
		t.Errorf("the PTX has %+v, %v, the record %+v", launch, err, image.Record.Launch)
	}
	resources := parsePtxasLog(image.Log)["sdpa"]
	resources.DynamicSharedBytes = image.Record.Launch.DynamicSharedBytes
	if resources != image.Record.Resources {
		t.Errorf("the log has %+v, the record %+v", resources, image.Record.Resources)
	}
	if !strings.Contains(string(image.PTX), ".target sm_89") {
		t.Error("the PTX is not for sm_89")
	}

	renamed := target
	renamed.Variant = "stage0+USE_WMMA_QK=1+USE_CP_ASYNC=1"
	if image, _ := mustBuild(t, NewBuilder(folder, nil, ""), renamed); image.Record.Variant != renamed.Variant {
		t.Errorf("the image is named %s, want the requested name", image.Record.Variant)
	}

	header := string(folder["include/ptx.cuh"].Data)
	for name, build := range map[string]func() (fs.FS, Target){
		"another variant": func() (fs.FS, Target) {
			other := target
			other.Knobs = maps.Clone(target.Knobs)
			other.Knobs["TILE_N"] = 128
			return folder, other
		},
		"another architecture": func() (fs.FS, Target) {
			other := target
			other.Arch = "sm_120"
			return folder, other
		},
		"one byte of a header changed": func() (fs.FS, Target) {
			return with(folder, "include/ptx.cuh", strings.Replace(header, "a", "b", 1)), target
		},
		"nothing shipped": func() (fs.FS, Target) { return without(folder, shippedIndex), target },
	} {
		folder, target := build()
		image, _, err := NewBuilder(folder, nil, t.TempDir()).Build(t.Context(), target)
		if image != nil || !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), "not one of the shipped images") {
			t.Errorf("%s: %v, want ErrNoCompiler and a note on shipped images", name, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "build "+target.String()+": ") {
			t.Errorf("%s: %q does not name the target", name, err)
		}
	}
}

// nestedFolder is a folder of a tree.
type nestedFolder struct {
	tree fs.FS
	path string
}

func (f nestedFolder) Open(name string) (fs.File, error) { return f.tree.Open(path.Join(f.path, name)) }
func (f nestedFolder) Tree() (fs.FS, string)             { return f.tree, f.path }

// A declared kernel has no launch contract. Its entry function and its flags are compared too.
func TestShippedDeclaredKernel(t *testing.T) {
	folder := nestedFolder{os.DirFS(filepath.Join("..", "..", "kernels")), "quantize/append"}
	list, err := ReadShipped(folder)
	if err != nil || len(list.Images) == 0 {
		t.Fatal(list, err)
	}
	r := list.Images[0].Record
	target := Target{Kernel: r.Kernel, Variant: r.Variant, Source: r.Source, Arch: r.Arch, Knobs: r.Knobs, Entry: r.Entry, Flags: r.Flags[len(flags(r.Arch)):]}
	image, origin := mustBuild(t, NewBuilder(folder, nil, ""), target)
	if diff := cmp.Diff(r, image.Record); diff != "" || origin != FromShipped {
		t.Errorf("the image is %s (-listed +returned):\n%s", origin, diff)
	}
	for want, change := range map[string]func(*Target) fs.FS{
		"it is not one of the shipped images": func(t *Target) fs.FS { t.Flags = append(t.Flags, "-DX=1"); return folder },
		"and it is not one":                   func(t *Target) fs.FS { t.Entry = "other"; return folder },
		"run `attune toolchain install`": func(t *Target) fs.FS {
			t.Flags = nil
			return fstest.MapFS{t.Source: {Data: []byte("__global__ void append() {}")}}
		},
	} {
		other := target
		folder := change(&other)
		if _, _, err := NewBuilder(folder, nil, "").Build(t.Context(), other); !errors.Is(err, ErrNoCompiler) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

func TestShippedDamaged(t *testing.T) {
	folder := sdpa(t)
	target, s := stage(t, "stage1", "sm_89")
	file := "ptx/" + s.File
	packed := folder[file].Data
	other := pack([]byte(".version 9.0\n"))
	index := func(from, to string) fstest.MapFS {
		text := string(folder[shippedIndex].Data)
		at := strings.Index(text, `"`+s.File+`"`)
		changed := text[:at] + strings.Replace(text[at:], from, to, 1)
		if changed == text {
			t.Fatalf("the list has no %s", from)
		}
		return with(folder, shippedIndex, changed)
	}
	const mismatch = "the record of stage1 in ptx/index.json does not match its PTX and log; run `make ship`"
	for name, c := range map[string]struct {
		folder fstest.MapFS
		want   string
	}{
		"registers": {index(`"registers": `, `"registers": 1`), mismatch},
		"threads":   {index(`"threads": `, `"threads": 1`), mismatch},
		"log":       {index("Used ", "Used 1"), mismatch},
		"cut short": {with(folder, file, string(packed[:len(packed)/2])), "unpack " + file},
		"garbage":   {with(folder, file, "garbage"), "unpack " + file},
		"empty":     {with(folder, file, ""), file + " does not match the hash in its record"},
		"another":   {with(folder, file, string(other)), file + " does not match the hash in its record; run `make ship`"},
		"gone":      {without(folder, file), file},
		"no list":   {with(folder, shippedIndex, "{"), "read the list of shipped images"},
	} {
		_, _, err := NewBuilder(c.folder, nil, t.TempDir()).Build(t.Context(), target)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrNoCompiler) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// madeUp is an image with made-up PTX.
func madeUp(t *testing.T, variant, arch string) *Image {
	t.Helper()
	ptx := "// PTX of " + variant + " for " + arch + "\n.global .align 4 .u32 attune_launch[3] = {64, 16, 128};\n"
	target, s := stage(t, "stage0", "sm_80")
	log := "ptxas info    : Compiling entry function 'sdpa' for 'sm_80'\n    Used 8 registers\n"
	image := &Image{Record: s.Record, PTX: []byte(ptx), Log: log}
	image.Record.Launch = Launch{Threads: 64, QueryRows: 16, DynamicSharedBytes: 128}
	image.Record.Resources = Resources{Registers: 8, DynamicSharedBytes: 128}
	image.Record.Knobs = maps.Clone(target.Knobs)
	image.Record.Knobs["TILE_N"] = len(ptx)
	image.Record.Variant, image.Record.Arch = variant, arch
	image.Record.PTXHash = hashOf(ptx)
	return image
}

func TestWriteShipped(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "ptx"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ptx", "outdated.ptx.zst"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	images := []*Image{madeUp(t, "stage0", "sm_80"), madeUp(t, "stage0+TILE_N=64", "sm_90a")}
	if err := WriteShipped(dir, images); err != nil {
		t.Fatal(err)
	}
	want := []string{"index.json", "stage0+TILE_N=64.sm_90a.ptx.zst", "stage0.sm_80.ptx.zst"}
	if diff := cmp.Diff(want, names(t, filepath.Join(dir, "ptx"))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	index := readFile(t, filepath.Join(dir, shippedIndex))

	list, err := ReadShipped(os.DirFS(dir))
	if err != nil || len(list.Images) != len(images) {
		t.Fatalf("%d images, %v", len(list.Images), err)
	}
	for _, want := range images {
		r := want.Record
		target := Target{Kernel: r.Kernel, Variant: r.Variant, Source: r.Source, Arch: r.Arch, Knobs: r.Knobs, Contract: true}
		got, err := shipped(os.DirFS(dir), target, r.SourceHash)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-written +read):\n%s", target, diff)
		}
	}

	// The same images give the same bytes.
	packed := readFile(t, filepath.Join(dir, "ptx", "stage0.sm_80.ptx.zst"))
	if err := WriteShipped(dir, images); err != nil {
		t.Fatal(err)
	}
	if readFile(t, filepath.Join(dir, shippedIndex)) != index || readFile(t, filepath.Join(dir, "ptx", "stage0.sm_80.ptx.zst")) != packed {
		t.Error("written again, the files differ")
	}
	if !json.Valid([]byte(index)) || !strings.HasSuffix(index, "}\n") {
		t.Error("the list is not JSON with a final newline")
	}
}

func TestWriteShippedFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	image := madeUp(t, "stage0", "sm_80")
	if err := WriteShipped(file, []*Image{image}); err == nil {
		t.Error("images were written below a file")
	}
	image.Record.Variant = "no/such/folder"
	if err := WriteShipped(t.TempDir(), []*Image{image}); err == nil {
		t.Error("an image was written with an invalid file name")
	}
	if list, err := ReadShipped(fstest.MapFS{}); err != nil || len(list.Images) != 0 {
		t.Errorf("a kernel without shipped images: %v, %v", list, err)
	}
}
