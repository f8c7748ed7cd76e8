package toolchain

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed wheels.txt
var wheels []byte

// InstalledVersion is the release of the compiler that Install brings.
const InstalledVersion = "13.0.88"

// toolkitDir is where NVIDIA's wheels put the toolkit inside an install folder.
var toolkitDir = filepath.Join("nvidia", "cu13")

// unpackedDir is where pip unpacks the wheels inside the staging folder.
const unpackedDir = "unpacked"

// installBytes is about what lies on the disk while the wheels are fetched and unpacked, for the progress line.
const installBytes = 395 << 20

func installDir(cacheDir string) string {
	return filepath.Join(cacheDir, "toolchains", "cuda-"+InstalledVersion)
}

// Installed finds the compiler that Install has put into the cache, whatever other compilers there are. Its output is what the
// shipped images are made with.
func Installed(ctx context.Context, cacheDir string) (*Compiler, error) {
	place := cached(cacheDir)
	if _, err := os.Stat(place.nvcc); err != nil {
		return nil, fmt.Errorf("%w in attune's cache; run `attune toolchain install`", ErrNoCompiler)
	}
	c, err := inspect(ctx, place)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; run `attune toolchain install`", ErrNoCompiler, err)
	}
	return c, hostCompiler()
}

// Install puts NVIDIA's pinned compiler into the cache with the user's own Python and pip, so that their settings for package
// indexes and proxies hold. progress is called now and then with bytes done and expected; it may be nil.
func Install(ctx context.Context, cacheDir string, progress func(done, total int64)) (*Compiler, error) {
	if c, err := Installed(ctx, cacheDir); c != nil {
		return c, err // nothing to fetch, even where the host compiler is missing
	}
	place := installDir(cacheDir)
	if err := os.MkdirAll(filepath.Dir(place), 0o755); err != nil {
		return nil, fmt.Errorf("make the cache folder: %w", err)
	}
	staging, err := os.MkdirTemp(filepath.Dir(place), ".new-")
	if err != nil {
		return nil, fmt.Errorf("make the cache folder: %w", err)
	}
	defer os.RemoveAll(staging)
	if err := fetchWheels(ctx, staging, progress); err != nil {
		return nil, fmt.Errorf("install the compiler: %w", err)
	}
	if err := putInPlace(ctx, cacheDir, staging); err != nil {
		return nil, fmt.Errorf("install the compiler: %w", err)
	}
	return Installed(ctx, cacheDir)
}

// putInPlace moves what pip has unpacked to where Installed looks for it, if it works and nothing that works has got there first.
func putInPlace(ctx context.Context, cacheDir, staging string) error {
	unpacked, place := filepath.Join(staging, unpackedDir), installDir(cacheDir)
	if _, err := inspect(ctx, candidate{nvcc: filepath.Join(unpacked, toolkitDir, "bin", "nvcc")}); err != nil {
		return fmt.Errorf("what pip brought does not work: %w", err)
	}
	if _, err := inspect(ctx, cached(cacheDir)); err == nil {
		return nil // another process was faster
	}
	// A damaged compiler may lie there; it goes with staging.
	if err := os.Rename(place, filepath.Join(staging, "damaged")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(unpacked, place); err != nil && !errors.Is(err, fs.ErrExist) { // faster after all
		return err
	}
	return nil
}

// fetchWheels runs pip. All that pip writes lies under staging, which is how the progress is known.
func fetchWheels(ctx context.Context, staging string, progress func(done, total int64)) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return errors.New("there is no python3 in PATH; install Python 3 with pip")
	}
	list := filepath.Join(staging, "wheels.txt")
	if err := os.WriteFile(list, wheels, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, python, "-m", "pip", "install", "--no-deps", "--only-binary", ":all:", "--no-compile", "--require-hashes",
		"--no-cache-dir", "--quiet", "--target", filepath.Join(staging, unpackedDir), "-r", list)
	cmd.Env = append(os.Environ(), "TMPDIR="+staging, "PIP_ROOT_USER_ACTION=ignore", "PIP_DISABLE_PIP_VERSION_CHECK=1")
	endTogether(cmd)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("pip failed:\n%s", strings.TrimSpace(out.String()))
			}
			return ctx.Err()
		case <-tick.C:
			if progress != nil {
				progress(min(treeBytes(staging), installBytes), installBytes)
			}
		}
	}
}

// treeBytes adds up the files under dir. Files come and go meanwhile, so what cannot be read counts nothing.
func treeBytes(dir string) int64 {
	var total int64
	filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error { //nolint:errcheck // an estimate
		if err == nil && entry.Type().IsRegular() {
			if info, err := entry.Info(); err == nil {
				total += info.Size()
			}
		}
		return nil
	})
	return total
}
