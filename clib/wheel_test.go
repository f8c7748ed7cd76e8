package clib

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What a wheel needs of the machine: glibc 2.17, and no library of CUDA.
var systemLibraries = []string{
	"ld-linux-aarch64.so.1", "ld-linux-x86-64.so.2", "libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0",
}

// processors are what the platform of a wheel says of its binaries. Linux on aarch64 may have pages of 64 KB, and has them on a GH200.
var processors = map[string]struct {
	machine elf.Machine
	page    uint64
}{
	"manylinux_2_17_x86_64":  {elf.EM_X86_64, 4 << 10},
	"manylinux_2_17_aarch64": {elf.EM_AARCH64, 64 << 10},
}

var (
	wheelName         = regexp.MustCompile(`^attune-([0-9.]+)-cp310-abi3-(manylinux_2_17_\w+)\.whl$`)
	unversionedSymbol = regexp.MustCompile(`^(_?Py|attune_sdpa_)`)
)

// The wheels that `make wheel` has left in dist/ keep what their names promise, and have the same kernels and Python files.
func TestWheels(t *testing.T) {
	paths, err := filepath.Glob("../dist/attune-*-manylinux_*.whl")
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Skip("dist/ has no wheels; `make wheel` builds them")
	}
	var first map[string][32]byte
	for _, path := range paths {
		name := wheelName.FindStringSubmatch(filepath.Base(path))
		if name == nil {
			t.Fatalf("%s: the name is not that of a wheel for glibc 2.17 and Python 3.10", path)
		}
		files := readWheel(t, path)
		checkMetadata(t, files, name[1], name[2])
		checkBinaries(t, files, name[2])
		common := commonParts(t, files)
		if first == nil {
			first = common
		}
		if !maps.Equal(common, first) {
			t.Errorf("%s has other Python files or kernels than %s; build both with `make wheel`", path, paths[0])
		}
	}
}

func readWheel(t *testing.T, path string) map[string][]byte {
	t.Helper()
	wheel, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer wheel.Close()
	files := map[string][]byte{}
	for _, file := range wheel.File {
		from, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		if files[file.Name], err = io.ReadAll(from); err != nil {
			t.Fatal(err)
		}
		from.Close()
	}
	return files
}

func checkMetadata(t *testing.T, files map[string][]byte, version, platform string) {
	t.Helper()
	folder := "attune-" + version + ".dist-info/"
	for name, line := range map[string]string{"WHEEL": "Tag: cp310-abi3-" + platform, "METADATA": "Version: " + version} {
		if !slices.Contains(strings.Split(string(files[folder+name]), "\n"), line) {
			t.Errorf("%s: %s lacks the line %q:\n%s", platform, name, line, files[folder+name])
		}
	}
}

func checkBinaries(t *testing.T, files map[string][]byte, platform string) {
	t.Helper()
	want, ok := processors[platform]
	if !ok {
		t.Fatalf("%s: no such platform is built", platform)
	}
	module := openBinary(t, files, "attune/_call.abi3.so")
	library := openBinary(t, files, "attune/libattune_sdpa.so")
	for _, file := range []*elf.File{module, library} {
		if file.Machine != want.machine || file.Class != elf.ELFCLASS64 || file.ByteOrder.String() != "LittleEndian" {
			t.Errorf("%s: a binary is for %v, %v, %v", platform, file.Machine, file.Class, file.ByteOrder)
		}
		checkSegments(t, file, platform, want.page)
		checkSymbols(t, file, platform)
	}
	checkDynamic(t, library, platform, elf.DT_SONAME, "libattune_sdpa.so")
	checkDynamic(t, library, platform, elf.DT_NEEDED, systemLibraries...)
	checkDynamic(t, module, platform, elf.DT_NEEDED, append(slices.Clone(systemLibraries), "libattune_sdpa.so")...)
	// Not DT_RUNPATH: LD_LIBRARY_PATH would come before it.
	checkDynamic(t, module, platform, elf.DT_RPATH, "$ORIGIN")
	if found, _ := module.DynString(elf.DT_RUNPATH); len(found) > 0 {
		t.Errorf("%s: the module has a DT_RUNPATH, %q", platform, found)
	}
}

func openBinary(t *testing.T, files map[string][]byte, name string) *elf.File {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(files[name]))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return file
}

// checkDynamic wants a tag at least once, and no other values than the allowed ones.
func checkDynamic(t *testing.T, file *elf.File, platform string, tag elf.DynTag, allowed ...string) {
	t.Helper()
	values, err := file.DynString(tag)
	if err != nil || len(values) == 0 {
		t.Errorf("%s: no %v (%v)", platform, tag, err)
	}
	for _, value := range values {
		if !slices.Contains(allowed, value) {
			t.Errorf("%s: %v %q, want one of %q", platform, tag, value, allowed)
		}
	}
}

// checkSegments wants segments that can be mapped with the largest page of the processor, and no executable stack.
func checkSegments(t *testing.T, file *elf.File, platform string, page uint64) {
	t.Helper()
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_LOAD && (segment.Align%page != 0 || segment.Vaddr%page != segment.Off%page) {
			t.Errorf("%s: a segment at %#x is aligned to %#x, want pages of %#x", platform, segment.Vaddr, segment.Align, page)
		}
		if segment.Type == elf.PT_GNU_STACK && segment.Flags&elf.PF_X != 0 {
			t.Errorf("%s: the stack is executable", platform)
		}
	}
}

// checkSymbols wants no symbol of a glibc after 2.17. Those of Python and of the library have no version.
func checkSymbols(t *testing.T, file *elf.File, platform string) {
	t.Helper()
	symbols, err := file.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, symbol := range symbols {
		minor := 0
		_, err := fmt.Sscanf(symbol.Version, "GLIBC_2.%d", &minor)
		unversioned := symbol.Version == "" && unversionedSymbol.MatchString(symbol.Name)
		if !unversioned && (err != nil || minor > 17) {
			t.Errorf("%s: needs %s of %s %s, want glibc 2.17 at most", platform, symbol.Name, symbol.Library, symbol.Version)
		}
	}
}

// commonParts are the digests of what does not depend on the processor: the files in Python, and the images of the GPU.
func commonParts(t *testing.T, files map[string][]byte) map[string][32]byte {
	t.Helper()
	parts := map[string][32]byte{}
	for name, content := range files {
		if strings.HasPrefix(name, "attune/") && !strings.HasSuffix(name, ".so") {
			parts[name] = sha256.Sum256(content)
		}
	}
	images := imageDigests(files["attune/libattune_sdpa.so"])
	if len(images) == 0 {
		t.Error("the library has no images for a GPU")
	}
	for i, image := range images {
		parts[fmt.Sprint("image ", i)] = image
	}
	return parts
}

// imageDigests are the digests of the cubins in a library, sorted: each compiler chooses an order. A cubin ends with its program headers.
func imageDigests(library []byte) [][32]byte {
	const machine, programHeaders, programHeaderCount, headerSize, programHeaderSize = 18, 32, 56, 64, 56
	var digests [][32]byte
	for at := 0; ; {
		next := bytes.Index(library[at:], []byte(elf.ELFMAG))
		if next < 0 || len(library)-at-next < headerSize {
			break
		}
		image := library[at+next:]
		at += next + len(elf.ELFMAG)
		end := binary.LittleEndian.Uint64(image[programHeaders:]) +
			programHeaderSize*uint64(binary.LittleEndian.Uint16(image[programHeaderCount:]))
		if binary.LittleEndian.Uint16(image[machine:]) == uint16(elf.EM_CUDA) && end <= uint64(len(image)) {
			digests = append(digests, sha256.Sum256(image[:end]))
		}
	}
	slices.SortFunc(digests, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	return digests
}
