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
	"syscall"
	"time"
)

//go:embed wheels.txt
var wheels []byte

// InstalledVersion is the release of the compiler that Install brings.
const InstalledVersion = "13.0.88"

// toolkitDir is where NVIDIA's wheels put the toolkit inside an install folder.
var toolkitDir = filepath.Join("nvidia", "cu13")

// installBytes is about what lies on the disk while the wheels are fetched and unpacked, for the progress line.
const installBytes = 395 << 20

func installDir(cacheDir string) string {
	return filepath.Join(cacheDir, "toolchains", "cuda-"+InstalledVersion)
}

// Installed finds the compiler that Install has put into the cache, whatever other compilers there are. Its output is what the
// shipped images are made with.
func Installed(ctx context.Context, cacheDir string) (*Compiler, error) {
	c, err := inspect(ctx, cached(cacheDir))
	if err != nil {
		return nil, fmt.Errorf("%w in attune's cache; run `attune toolchain install`", ErrNoCompiler)
	}
	return c, hostCompiler(ctx)
}

// Install puts NVIDIA's pinned compiler into the cache with the user's own Python and pip, so that their settings for package
// indexes and proxies hold. progress is called now and then with bytes done and expected; it may be nil.
func Install(ctx context.Context, cacheDir string, progress func(done, total int64)) (*Compiler, error) {
	place := installDir(cacheDir)
	if c, err := Installed(ctx, cacheDir); err == nil {
		return c, nil
	}
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
	if err := os.Rename(filepath.Join(staging, "target"), place); err != nil && !isNotEmpty(err) {
		return nil, fmt.Errorf("install the compiler: %w", err)
	}
	return Installed(ctx, cacheDir)
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
		"--no-cache-dir", "--quiet", "--target", filepath.Join(staging, "target"), "-r", list)
	cmd.Env = append(os.Environ(), "TMPDIR="+staging, "PIP_ROOT_USER_ACTION=ignore", "PIP_DISABLE_PIP_VERSION_CHECK=1")
	cmd.WaitDelay = 2 * time.Second
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
			return errors.Join(err, ctx.Err())
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

// isNotEmpty says whether a rename failed because a folder is already there.
func isNotEmpty(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.EEXIST)
}
