package exec

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

//go:embed client/*.c client/*.h
var clientSources embed.FS

// ErrNoHostCompiler is returned, wrapped, when there is no C compiler to build the client with.
var ErrNoHostCompiler = errors.New("no C compiler")

// Names of the library: what programs load, and what a linker looks for.
const (
	libraryName = "libcuda.so.1"
	linkName    = "libcuda.so"
)

// clientFlags build the client. Nothing but its entry points is visible.
var clientFlags = []string{"-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-soname," + libraryName}

// Library returns the folder of the client library. The first call builds it into the cache, in a
// folder that is named after its sources.
func Library(ctx context.Context, cacheDir string) (string, error) {
	entries, err := clientSources.ReadDir("client")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.GOARCH, clientFlags)
	for _, e := range entries {
		text, err := clientSources.ReadFile("client/" + e.Name())
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, e.Name(), len(text))
		sum.Write(text)
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
	sources, err := filepath.Glob(filepath.Join(work, "client", "*.c"))
	if err != nil {
		return err
	}
	made := filepath.Join(work, "made")
	if err := os.Mkdir(made, 0o755); err != nil {
		return err
	}
	args := append(append([]string{}, clientFlags...), "-o", filepath.Join(made, libraryName))
	args = append(append(args, sources...), "-lpthread", "-ldl")
	if out, err := osexec.CommandContext(ctx, compiler, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s cannot build attune's libcuda.so.1: %w\n%s", compiler, err, strings.TrimSpace(string(out)))
	}
	if err := os.Symlink(libraryName, filepath.Join(made, linkName)); err != nil {
		return err
	}
	if err := os.Chmod(made, 0o755); err != nil {
		return err
	}
	if err := os.Rename(made, dir); err != nil {
		if _, exists := os.Stat(filepath.Join(dir, linkName)); exists != nil {
			return err
		}
	}
	return nil
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
