package toolchain

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Builder makes images of one kernel.
type Builder struct {
	kernel   fs.FS
	compiler *Compiler
	cache    cache
	slots    chan struct{} // one for each compilation that may run at once
}

// NewBuilder makes images of the kernel whose folder is given. With no compiler (nil) it gives shipped images only.
func NewBuilder(kernel fs.FS, compiler *Compiler, cacheDir string) *Builder {
	return &Builder{
		kernel:   kernel,
		compiler: compiler,
		cache:    cache{filepath.Join(cacheDir, "builds")},
		slots:    make(chan struct{}, runtime.NumCPU()),
	}
}

// Origin says where an image came from.
type Origin string

// The origins of an image.
const (
	Compiled Origin = "compiled"
	Cached   Origin = "cached"
	FromShip Origin = "shipped"
)

// Build returns the image of a target: from the cache, from the compiler or, where there is none, from the kernel's shipped
// PTX. It may be called from several goroutines at once; as many compilers run as there are cores.
func (b *Builder) Build(ctx context.Context, t Target) (*Image, Origin, error) {
	files, err := readSources(b.kernel, t.Source)
	if err != nil {
		return nil, "", fmt.Errorf("build %s: %w", t, err)
	}
	if b.compiler == nil {
		image, err := shipped(b.kernel, t, files.hash())
		if err != nil {
			return nil, "", fmt.Errorf("build %s: %w", t, err)
		}
		return image, FromShip, nil
	}
	key := b.key(t, files.hash())
	if image := b.cache.load(key, t); image != nil {
		return image, Cached, nil
	}
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
	image, err := b.compile(ctx, t, files)
	if err != nil {
		var refused *CompileError
		if ctx.Err() != nil {
			return nil, "", ctx.Err()
		}
		if errors.As(err, &refused) {
			return nil, "", err
		}
		return nil, "", fmt.Errorf("build %s: %w", t, err)
	}
	if err := b.cache.store(key, t, image); err != nil {
		return nil, "", fmt.Errorf("keep the build of %s: %w", t, err)
	}
	return image, Compiled, nil
}

// flags are the compiler's, without the knobs. No fast-math: where a kernel approximates, it names the instruction.
func flags(arch string) []string {
	return []string{"-std=c++17", "-lineinfo", "-arch=" + strings.Replace(arch, "sm_", "compute_", 1)}
}

// environmentFlags are options that nvcc takes from its environment; they change a build as well.
func environmentFlags() []string {
	var found []string
	for _, name := range []string{"NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"} {
		if value := os.Getenv(name); value != "" {
			found = append(found, name+"="+value)
		}
	}
	return found
}

// key names a build by everything that can change it.
func (b *Builder) key(t Target, sourceHash string) string {
	hash := sha256.New()
	fmt.Fprintln(hash, recordSchema, b.compiler.Version, runtime.GOARCH, sourceHash, t.Kernel, t.Source, t.Arch, t.defines(), flags(t.Arch),
		environmentFlags())
	return hex.EncodeToString(hash.Sum(nil))
}

func (b *Builder) compile(ctx context.Context, t Target, files sources) (*Image, error) {
	dir, err := workFolder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	const ptxFile, cubinFile = "image.ptx", "image.cubin"
	ptx, warnings, err := compilePTX(ctx, b.compiler, t, files, dir)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, ptxFile), ptx, 0o644); err != nil {
		return nil, err
	}
	log, err := run(ctx, t, dir, b.compiler.PTXAS, "-v", "-arch="+t.Arch, "--generate-line-info", "-o", cubinFile, ptxFile)
	if err != nil {
		return nil, err
	}
	cubin, err := os.ReadFile(filepath.Join(dir, cubinFile))
	if err != nil {
		return nil, err
	}
	return newImage(t, files.hash(), "nvcc "+b.compiler.Version, ptx, cubin, warnings+log)
}

// CompilePTX makes PTX of a source in a folder, the same bytes on every machine. A source that the compiler refuses is a CompileError.
func CompilePTX(ctx context.Context, c *Compiler, folder fs.FS, source, arch string) ([]byte, error) {
	files, err := readSources(folder, source)
	if err != nil {
		return nil, err
	}
	dir, err := workFolder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ptx, _, err := compilePTX(ctx, c, Target{Variant: source, Source: source, Arch: arch}, files, dir)
	return ptx, err
}

// workFolder makes a folder for the compiler, by its real path, because that is what nvcc writes.
func workFolder() (string, error) {
	dir, err := os.MkdirTemp("", "attune-build-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the compiler: %w", err)
	}
	return filepath.EvalSymlinks(dir)
}

// compilePTX lays the sources out in a folder and compiles them there; it gives the PTX and what nvcc printed.
func compilePTX(ctx context.Context, c *Compiler, t Target, files sources, dir string) (ptx []byte, warnings string, err error) {
	if err := files.writeTo(dir); err != nil {
		return nil, "", fmt.Errorf("lay out the sources: %w", err)
	}
	const file = "image.ptx"
	options := append(flags(t.Arch), t.defines()...)
	if warnings, err = run(ctx, t, dir, c.NVCC, append(options, "-ptx", "-o", file, t.Source)...); err != nil {
		return nil, "", err
	}
	if ptx, err = os.ReadFile(filepath.Join(dir, file)); err != nil {
		return nil, "", err
	}
	return portablePTX(ptx, dir), warnings, nil
}

// newImage draws the record of a finished build from its parts.
func newImage(t Target, sourceHash, compiler string, ptx, cubin []byte, log string) (*Image, error) {
	launch, err := parseLaunch(string(ptx))
	if err != nil {
		return nil, err
	}
	resources, ok := parsePtxasLog(log)[t.Kernel]
	if !ok {
		return nil, fmt.Errorf("ptxas compiled no entry function %q; its log:\n%s", t.Kernel, log)
	}
	resources.DynamicSharedBytes = launch.DynamicSharedBytes
	code, err := codeHash(cubin)
	if err != nil {
		return nil, err
	}
	ptxHash := sha256.Sum256(ptx)
	return &Image{
		PTX: ptx, Cubin: cubin, Log: log,
		Record: Record{
			SchemaVersion: recordSchema,
			Kernel:        t.Kernel, Variant: t.Variant, Source: t.Source, Arch: t.Arch, Knobs: t.Knobs,
			Flags: append(flags(t.Arch), environmentFlags()...), Compiler: compiler,
			SourceHash: sourceHash, PTXHash: hex.EncodeToString(ptxHash[:]), CodeHash: code,
			Launch: launch, Resources: resources,
		},
	}, nil
}

// run calls a compiler in dir and returns what it printed; what it refuses is a CompileError with its own lines.
func run(ctx context.Context, t Target, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	endTogether(cmd)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	lines := strings.ReplaceAll(out.String(), dir+"/", "")
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && wasKilled(exit):
		return "", fmt.Errorf("%s was killed, as happens when the machine's memory runs out", program)
	case errors.As(err, &exit):
		if !exit.Exited() {
			lines += fmt.Sprintf("%s crashed: %v\n", filepath.Base(program), err)
		}
		return "", &CompileError{Target: t, Output: lines}
	case err != nil:
		return "", fmt.Errorf("run %s: %w", program, err)
	}
	return withoutTimes(lines), nil
}

// wasKilled says whether a compiler, or a program that it ran, was ended from outside. That says nothing of the variant.
func wasKilled(exit *exec.ExitError) bool {
	const ofChild = 128 + int(syscall.SIGKILL) // how nvcc passes it on
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && (status.Signaled() && status.Signal() == syscall.SIGKILL || status.ExitStatus() == ofChild)
}

// endTogether makes the end of a command's context the end of everything it has started: nvcc works through a row of programs.
func endTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 2 * time.Second
}

// withoutTimes drops the lines of a log that differ from run to run.
func withoutTimes(log string) string {
	var kept strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "Compile time =") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
