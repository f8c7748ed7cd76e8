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
	"strings"

	"attune/internal/toolchain"
)

//go:embed client/*.c client/*.h client/runtime/*.c client/runtime/*.h client/runtime/*.ld client/cublas/*.c client/cublas/*.h client/nvrtc/*.c
var clientSources embed.FS

// ErrNoHostCompiler is returned, wrapped, when there is no C compiler to build the client with.
var ErrNoHostCompiler = errors.New("no C compiler")

// Names of the driver library: what programs load, and what a linker looks for.
const (
	libraryName = "libcuda.so.1"
	linkName    = "libcuda.so"
)

// packageName is the driver library of attune's Python package: by another name, so that PyTorch does
// not take it for NVIDIA's in the same process.
const packageName = "libattune-exec.so"

// folderVersion changes with the files that Library makes besides the libraries.
const folderVersion = 4

// runtimeVersions are the major versions of the runtime library, with the names that programs load.
var runtimeVersions = []struct{ major, name string }{
	{"11", "libcudart.so.11.0"}, {"12", "libcudart.so.12"}, {"13", "libcudart.so.13"},
}

// hostedLibraries are the libraries of NVIDIA's that have a library of attune's in their place, with the
// sources and the entry points of each. Their names end with the major version.
var hostedLibraries = []struct{ name, sources, symbols string }{
	{"libcublas", "cublas", "cublas*"}, {"libcublasLt", "cublas", "cublasLt*"}, {"libnvrtc", "nvrtc", "nvrtc*"},
}

// clientFlags build a library. Nothing but its entry points is visible.
var clientFlags = []string{"-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"}

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

// buildLibrary builds the library in a folder of its own and moves it, so that two processes may build
// it at once.
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
	made := filepath.Join(work, "made")
	if err := os.Mkdir(made, 0o755); err != nil {
		return err
	}
	compile := func(output, pattern string, flags ...string) error {
		sources, err := filepath.Glob(filepath.Join(work, "client", pattern))
		if err != nil {
			return err
		}
		args := append(append([]string{}, clientFlags...), "-Wl,-soname,"+output, "-o", filepath.Join(made, output))
		out, err := osexec.CommandContext(ctx, compiler, append(append(args, sources...), flags...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s cannot build attune's %s: %w\n%s", compiler, output, err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	if err := compile(libraryName, "*.c", "-lpthread", "-ldl"); err != nil {
		return err
	}
	if err := compile(packageName, "*.c", "-lpthread", "-ldl"); err != nil {
		return err
	}
	for _, v := range runtimeVersions {
		if err := buildRuntime(work, made, dir, v.major, v.name, compile); err != nil {
			return err
		}
	}
	if err := os.Symlink(libraryName, filepath.Join(made, linkName)); err != nil {
		return err
	}
	if err := os.Rename(made, dir); err != nil {
		if _, exists := os.Stat(filepath.Join(dir, linkName)); exists != nil {
			return err
		}
	}
	return nil
}

// buildRuntime builds the runtime library of a major version, and the libraries beside it.
func buildRuntime(work, made, dir, major, name string, compile func(output, pattern string, flags ...string) error) error {
	link := filepath.Join(made, linkFolder(major))
	if err := os.Mkdir(link, 0o755); err != nil {
		return err
	}
	// A program asks for the symbols with the version that is the name of the library.
	build := func(name, sources, symbols string, flags ...string) error {
		script := filepath.Join(work, name+".map")
		if err := os.WriteFile(script, fmt.Appendf(nil, "%s {\n  global: %s;\n  local: *;\n};\n", name, symbols), 0o644); err != nil {
			return err
		}
		return compile(name, sources+"/*.c", append(flags, "-DRUNTIME="+major, "-Wl,--version-script="+script,
			"-L"+made, "-l:"+libraryName, "-Wl,-rpath,$ORIGIN", "-lm")...)
	}
	if err := build(name, "runtime", "cuda*; __cuda*", filepath.Join(work, "client/runtime/aliases.ld")); err != nil {
		return err
	}
	// Linkers read these texts in the place of the libraries. The static library is the shared one.
	text := func(file string, libraries ...string) error {
		var all []string
		for _, name := range libraries {
			all = append(all, filepath.Join(dir, name))
		}
		return os.WriteFile(filepath.Join(link, file), fmt.Appendf(nil, "INPUT(%s)\n", strings.Join(all, " ")), 0o644)
	}
	for _, h := range hostedLibraries {
		name := h.name + ".so." + major
		if err := build(name, h.sources, h.symbols); err != nil {
			return err
		}
		if err := errors.Join(text(h.name+".so", name), text(h.name+"_static.a", name)); err != nil {
			return err
		}
	}
	return errors.Join(
		text("libcudart.so", name, libraryName), text("libcudart_static.a", name, libraryName), text(linkName, libraryName),
	)
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
