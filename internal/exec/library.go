package exec

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"attune/internal/toolchain"
)

//go:embed client/*.c client/*.h client/*.ld client/runtime/*.c client/runtime/*.h client/runtime/*.ld client/cublas/*.c client/cublas/*.h client/hosted/*.c client/include/*.h client/nvrtc/*.c
var clientSources embed.FS

// ErrNoHostCompiler is returned, wrapped, when there is no C compiler to build the client with.
var ErrNoHostCompiler = errors.New("no C compiler")

// Names of the driver library: what programs load, and what a linker looks for.
const (
	libraryName = "libcuda.so.1"
	linkName    = "libcuda.so"
)

// includeFolder has headers that some toolkits lack.
const includeFolder = "include"

// packageName is the driver library of attune's Python package: by another name, so that PyTorch does
// not take it for NVIDIA's in the same process.
const packageName = "libattune-exec.so"

// folderVersion changes with the files that Library makes besides the libraries.
const folderVersion = 8

// runtimeVersions are the major versions of the runtime library, with the names that programs load.
var runtimeVersions = []struct{ major, name string }{
	{"11", "libcudart.so.11.0"}, {"12", "libcudart.so.12"}, {"13", "libcudart.so.13"},
}

// hostedLibraries are the libraries of NVIDIA's that have a library of attune's in their place, with the
// folder of the sources and the entry points of each. Their names end with the major version, from 12 on.
var hostedLibraries = []struct{ name, sources, symbols string }{
	{"libcublas", "cublas", "cublas*"}, {"libcublasLt", "cublas", "cublasLt*"}, {"libnvrtc", "nvrtc", "nvrtc*"},
}

// clientFlags build a library. Nothing but its entry points is visible. Exceptions of functions that a
// program enqueues pass through it.
var clientFlags = []string{"-std=gnu11", "-O1", "-fPIC", "-fexceptions", "-fvisibility=hidden"}

// Library returns the folder of the client library. The first call builds it into the cache, in a
// folder that is named after its sources.
func Library(ctx context.Context, cacheDir string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, folderVersion, runtime.GOARCH, clientFlags, runtimeVersions)
	err := fs.WalkDir(clientSources, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := clientSources.ReadFile(name)
		fmt.Fprintln(sum, name, len(text))
		sum.Write(text)
		return err
	})
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cacheDir, "exec", hex.EncodeToString(sum.Sum(nil))[:16])
	if _, err := os.Stat(filepath.Join(dir, linkName)); err == nil {
		return dir, nil
	}
	return dir, buildLibrary(ctx, dir)
}

// builder builds the libraries in a folder of its own, which is then renamed: two processes may build at
// once.
type builder struct {
	context  context.Context
	compiler string
	work     string // with the sources
	made     string // with the results
	dir      string // that the results are moved to
}

func buildLibrary(ctx context.Context, dir string) error {
	compiler, err := hostCompiler()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.CopyFS(work, clientSources); err != nil {
		return fmt.Errorf("write the client's sources: %w", err)
	}
	b := &builder{context: ctx, compiler: compiler, work: work, made: filepath.Join(work, "made"), dir: dir}
	if err := b.all(); err != nil {
		return err
	}
	if err := os.Rename(b.made, dir); err != nil {
		if _, exists := os.Stat(filepath.Join(dir, linkName)); exists != nil {
			return err
		}
	}
	return nil
}

func (b *builder) all() error {
	if err := os.Mkdir(b.made, 0o755); err != nil {
		return err
	}
	driver, err := b.objects(".")
	if err != nil {
		return err
	}
	for _, name := range []string{libraryName, packageName} {
		if err := b.link(name, driver, b.source("aliases.ld"), "-lpthread", "-ldl"); err != nil {
			return err
		}
	}
	objects := map[string][]string{}
	for _, h := range hostedLibraries {
		if objects[h.sources] != nil {
			continue
		}
		if objects[h.sources], err = b.objects(h.sources); err != nil {
			return err
		}
	}
	for _, v := range runtimeVersions {
		if err := b.version(v.major, v.name, objects); err != nil {
			return err
		}
	}
	return errors.Join(
		os.CopyFS(filepath.Join(b.made, includeFolder), os.DirFS(b.source(includeFolder))),
		os.Symlink(libraryName, filepath.Join(b.made, linkName)),
	)
}

func (b *builder) source(name string) string { return filepath.Join(b.work, "client", name) }

func (b *builder) sources(pattern string) []string {
	list, _ := filepath.Glob(b.source(pattern)) // the patterns are well-formed
	return list
}

// run runs the compiler.
func (b *builder) run(output string, args ...string) error {
	cmd := osexec.CommandContext(b.context, b.compiler, append(slices.Clone(clientFlags), args...)...)
	cmd.Dir = b.work
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s cannot build attune's %s: %w\n%s", b.compiler, output, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// link makes a shared library of sources or objects. Its own calls stay inside: a program may have a
// variable with the name of an entry point.
func (b *builder) link(output string, inputs []string, flags ...string) error {
	args := append([]string{"-shared", "-Wl,-Bsymbolic", "-Wl,-soname," + output, "-o", filepath.Join(b.made, output)}, inputs...)
	return b.run(output, append(args, flags...)...)
}

// objects compiles the sources of a folder once, for all libraries that have them.
func (b *builder) objects(folder string) ([]string, error) {
	if err := b.run(folder, append([]string{"-c"}, b.sources(folder+"/*.c")...)...); err != nil {
		return nil, err
	}
	var list []string
	for _, source := range b.sources(folder + "/*.c") {
		list = append(list, filepath.Join(b.work, strings.TrimSuffix(filepath.Base(source), ".c")+".o"))
	}
	return list, nil
}

// versioned links a library whose symbols programs ask for with the version that is its name.
func (b *builder) versioned(name, major, symbols string, inputs []string, flags ...string) error {
	script := filepath.Join(b.work, name+".map")
	if err := os.WriteFile(script, fmt.Appendf(nil, "%s {\n  global: %s;\n  local: *;\n};\n", name, symbols), 0o644); err != nil {
		return err
	}
	return b.link(name, inputs, append(flags, "-DRUNTIME="+major, "-Wl,--version-script="+script,
		"-L"+b.made, "-l:"+libraryName, "-Wl,-rpath,$ORIGIN", "-lm")...)
}

// version builds the runtime library of a major version, the libraries beside it, and what linkers
// find in their places.
func (b *builder) version(major, name string, objects map[string][]string) error {
	if err := os.Mkdir(filepath.Join(b.made, linkFolder(major)), 0o755); err != nil {
		return err
	}
	if err := b.versioned(name, major, "cuda*; __cuda*", b.sources("runtime/*.c"), b.source("runtime/aliases.ld")); err != nil {
		return err
	}
	if major != "11" {
		for _, h := range hostedLibraries {
			file := h.name + ".so." + major
			err := b.versioned(file, major, h.symbols, append(b.sources("hosted/*.c"), objects[h.sources]...))
			if err := errors.Join(err, b.linkText(major, h.name+".so", file), b.linkText(major, h.name+"_static.a", file)); err != nil {
				return err
			}
		}
	}
	return errors.Join( // the static runtime library is the shared one
		b.linkText(major, "libcudart.so", name, libraryName), b.linkText(major, "libcudart_static.a", name, libraryName),
		b.linkText(major, linkName, libraryName),
	)
}

// linkText writes the text that linkers read in the place of a library.
func (b *builder) linkText(major, file string, libraries ...string) error {
	var all []string
	for _, name := range libraries {
		all = append(all, filepath.Join(b.dir, name))
	}
	path := filepath.Join(b.made, linkFolder(major), file)
	return os.WriteFile(path, fmt.Appendf(nil, "INPUT(%s)\n", strings.Join(all, " ")), 0o644)
}

// LinkFolder is the folder with the libraries that programs of a compiler are linked with.
func LinkFolder(c *toolchain.Compiler, library string) string {
	major, _, _ := strings.Cut(c.Version, ".")
	return filepath.Join(library, linkFolder(major))
}

func linkFolder(major string) string { return "link-" + major }

// CompileFlags are the flags of nvcc for a program that runs on the simulator: PTX for the device, line
// numbers, and attune's runtime library in the folder of Library.
func CompileFlags(c *toolchain.Compiler, library, device string) []string {
	number := strings.TrimPrefix(device, "sm_")
	flags := []string{
		"-lineinfo", "-cudart", "shared", "-L" + LinkFolder(c, library),
		"-isystem", filepath.Join(library, includeFolder), // after NVIDIA's own
		"-gencode", fmt.Sprintf("arch=compute_%s,code=compute_%s", number, number),
	}
	lib := filepath.Join(filepath.Dir(filepath.Dir(c.NVCC)), "lib")
	if _, err := os.Stat(filepath.Join(lib, "libcudadevrt.a")); err == nil { // where nvcc does not look
		flags = append(flags, "-L"+lib)
	}
	return flags
}

// hostCompiler finds a C compiler: CC, or the usual names.
func hostCompiler() (string, error) {
	names := []string{"cc", "gcc", "clang"}
	if cc := os.Getenv("CC"); cc != "" {
		names = []string{cc}
	}
	for _, name := range names {
		if path, err := osexec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: there is no %s in PATH, and attune builds its libcuda.so.1 with it; install gcc", ErrNoHostCompiler, strings.Join(names, ", "))
}
