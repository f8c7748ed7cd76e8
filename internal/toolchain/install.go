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

// InstalledVersion is the release of the compiler that Install installs.
const InstalledVersion = "13.0.88"

// toolkitDir is the toolkit's path inside an install folder; NVIDIA's wheels define it.
var toolkitDir = filepath.Join("nvidia", "cu13")

// unpackedDir is the folder inside the staging folder in which pip unpacks the wheels.
const unpackedDir = "unpacked"

// installBytes is the approximate disk space of the download and the unpacked wheels, for the
// progress line.
const installBytes = 395 << 20

func installDir(cacheDir string) string {
	return filepath.Join(cacheDir, "toolchains", "cuda-"+InstalledVersion)
}

// Installed finds the compiler that Install has put into the cache and ignores all others. The
// shipped images are built with it.
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

// Install installs NVIDIA's pinned compiler into the cache. It uses the user's Python and pip, so
// that their settings of package indexes and proxies apply. progress is called every 200 ms with
// the bytes done and expected; it may be nil.
func Install(ctx context.Context, cacheDir string, progress func(done, total int64)) (*Compiler, error) {
	if c, err := Installed(ctx, cacheDir); c != nil {
		return c, err // it is installed, even if the host compiler is missing
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

// putInPlace moves the unpacked compiler to the folder of Installed, if it works and no other
// process has installed a working one meanwhile.
func putInPlace(ctx context.Context, cacheDir, staging string) error {
	unpacked, place := filepath.Join(staging, unpackedDir), installDir(cacheDir)
	if _, err := inspect(ctx, candidate{nvcc: filepath.Join(unpacked, toolkitDir, "bin", "nvcc")}); err != nil {
		return fmt.Errorf("the compiler that pip installed does not work: %w", err)
	}
	if _, err := inspect(ctx, cached(cacheDir)); err == nil {
		return nil // another process was faster
	}
	// A damaged compiler may be there; it is deleted with the staging folder.
	if err := os.Rename(place, filepath.Join(staging, "damaged")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Rename(unpacked, place)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster
	}
	return err
}

// fetchWheels runs pip. pip writes only below staging, so the size of staging is the progress.
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
	killGroupOnCancel(cmd)
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

// treeBytes is the total size of the files below dir. It skips files that vanish meanwhile.
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
