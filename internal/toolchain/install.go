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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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

// Observer is told about an installation. Both functions may be nil.
type Observer struct {
	Progress func(done, total int64) // bytes, every 200 ms
	Note     func(text string)       // what was found damaged or left behind
}

func (o Observer) progress(done int64) {
	if o.Progress != nil {
		o.Progress(min(done, installBytes), installBytes)
	}
}

func (o Observer) note(format string, args ...any) {
	if o.Note != nil {
		o.Note(fmt.Sprintf(format, args...))
	}
}

// Install installs NVIDIA's pinned compiler into the cache. An installed compiler is verified, and
// replaced if it is damaged. Install uses the user's Python and pip, so that their settings of
// package indexes and proxies apply. One process installs at a time; others wait for it.
func Install(ctx context.Context, cacheDir string, o Observer) (*Compiler, error) {
	folder := filepath.Dir(installDir(cacheDir))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache folder: %w", err)
	}
	var once sync.Once
	lock, err := lockFolder(ctx, folder, func() {
		once.Do(func() { o.note("another process installs the compiler; waiting for it") })
		o.progress(0)
	})
	if err != nil {
		if c, _ := verified(ctx, cacheDir, Observer{}); c != nil {
			return c, nil // a read-only cache with an intact compiler
		}
		return nil, fmt.Errorf("lock the cache folder: %w", err)
	}
	defer lock.Close()
	if err := removeLeftovers(folder, o); err != nil {
		return nil, fmt.Errorf("install the compiler: %w", err)
	}
	if c, err := verified(ctx, cacheDir, o); c != nil || ctx.Err() != nil {
		return c, err // it is installed, even if the host compiler is missing
	}
	staging, err := os.MkdirTemp(folder, stagingPrefix)
	if err != nil {
		return nil, fmt.Errorf("make the cache folder: %w", err)
	}
	defer os.RemoveAll(staging)
	if err := fetchWheels(ctx, staging, lock, o); err != nil {
		return nil, fmt.Errorf("install the compiler: %w", err)
	}
	if err := putInPlace(ctx, cacheDir, staging); err != nil {
		return nil, fmt.Errorf("install the compiler: %w", err)
	}
	return Installed(ctx, cacheDir)
}

// stagingPrefix begins the names of the folders in which compilers are unpacked.
const stagingPrefix = ".new-"

// lockFile is the file whose lock the installing process holds. pip inherits the lock, so that the
// lock lasts as long as pip writes, even if attune is killed.
const lockFile = ".lock"

// lockFolder waits for the lock of a folder and calls waiting every 200 ms until it has it. Closing
// the file, or the end of all processes that have it open, releases the lock.
func lockFolder(ctx context.Context, dir string, waiting func()) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(err, file.Close())
		}
		waiting()
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// removeLeftovers removes the staging folders of processes that were killed. The caller holds the
// lock, so no living process owns one.
func removeLeftovers(folder string, o Observer) error {
	left, err := filepath.Glob(filepath.Join(folder, stagingPrefix+"*"))
	if err != nil {
		return err
	}
	for _, dir := range left {
		size := treeBytes(dir)
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove an unfinished installation: %w", err)
		}
		o.note("removed %d MB of an installation that did not finish", size>>20)
	}
	return nil
}

// verified returns the installed compiler if none of its files is damaged.
func verified(ctx context.Context, cacheDir string, o Observer) (*Compiler, error) {
	v, err := Verify(ctx, cacheDir)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, err // not installed
	case len(v.Damaged) > 0:
		o.note("the installed compiler is damaged: %s; installing it again", Summary(v.Damaged))
		return nil, nil
	}
	return Installed(ctx, cacheDir)
}

// putInPlace moves the unpacked compiler to the folder of Installed, if it works and no other
// process has installed an intact one meanwhile.
func putInPlace(ctx context.Context, cacheDir, staging string) error {
	unpacked, place := filepath.Join(staging, unpackedDir), installDir(cacheDir)
	if _, err := inspect(ctx, candidate{nvcc: filepath.Join(unpacked, toolkitDir, "bin", "nvcc")}); err != nil {
		return fmt.Errorf("the compiler that pip installed does not work: %w", err)
	}
	v, err := verifyFolder(ctx, unpacked, nil)
	if err != nil {
		return err
	}
	if len(v.Damaged) > 0 {
		return fmt.Errorf("pip has not installed what the wheels contain: %s; check the disk and run it again", Summary(v.Damaged))
	}
	if v, err := Verify(ctx, cacheDir); err == nil && len(v.Damaged) == 0 {
		return nil // another process was faster
	}
	// A damaged compiler may be there; it is deleted with the staging folder.
	if err := os.Rename(place, filepath.Join(staging, "damaged")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err = os.Rename(unpacked, place)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was faster
	}
	return err
}

// fetchWheels runs pip. pip writes only below staging, so the size of staging is the progress.
func fetchWheels(ctx context.Context, staging string, lock *os.File, o Observer) error {
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
	cmd.ExtraFiles = []*os.File{lock}
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
			o.progress(treeBytes(staging))
		}
	}
}

// killGroupOnCancel makes the cancellation of pip kill every process that it has started.
func killGroupOnCancel(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
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
