package toolchain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Builder builds images of one kernel.
type Builder struct {
	kernel   fs.FS
	compiler *Compiler
	cache    cache
	slots    chan struct{} // limits concurrent compilations to the number of cores
	limit    time.Duration // of a compilation

	// Dir is the kernel's folder on disk, to which the folders of -I are relative. It is empty for
	// an embedded kernel, and has no effect on one that is Nested.
	Dir  string
	tree fs.FS  // of a Nested kernel
	path string // of its folder, as an absolute path in the tree

	// Note receives a line about a cached build that is damaged, or about a cache that cannot be
	// written. It may be nil. Calls do not overlap.
	Note      func(text string)
	noteMutex sync.Mutex
	uncached  bool // the note about a cache that cannot be written is given
}

func (b *Builder) note(format string, args ...any) {
	if b.Note != nil {
		b.Note(fmt.Sprintf(format, args...))
	}
}

// noteDamage reports a cached build that is not used.
func (b *Builder) noteDamage(t Target, err error) {
	b.noteMutex.Lock()
	defer b.noteMutex.Unlock()
	state := "damaged"
	if errors.As(err, &earlierBuild{}) {
		state = "of an earlier version"
	}
	b.note("the cached build of %s is %s (%v); building it again", t, state, err)
}

// noteUncached reports a cache that cannot be written, once: the builds are good without it.
func (b *Builder) noteUncached(err error) {
	b.noteMutex.Lock()
	defer b.noteMutex.Unlock()
	if !b.uncached {
		b.uncached = true
		b.note("builds are not cached: %v; set ATTUNE_CACHE to a writable folder", err)
	}
}

// Nested is the folder of a kernel in a tree that is not on disk: the folders of -I are in the tree too.
type Nested interface {
	fs.FS
	Tree() (tree fs.FS, path string)
}

// NewBuilder returns a builder for the kernel in a folder. Without a compiler (nil) it returns
// shipped images only. Without a cache folder (empty) it keeps no builds.
func NewBuilder(kernel fs.FS, compiler *Compiler, cacheDir string) *Builder {
	b := &Builder{kernel: kernel, compiler: compiler, slots: make(chan struct{}, runtime.NumCPU()), limit: maxTime}
	if nested, ok := kernel.(Nested); ok {
		tree, path := nested.Tree()
		b.tree, b.path = tree, "/"+path
	}
	if cacheDir != "" {
		b.cache.dir = filepath.Join(cacheDir, "builds")
	}
	return b
}

// Folder is the kernel's folder.
func (b *Builder) Folder() fs.FS { return b.kernel }

// Origin is where an image came from.
type Origin string

// The origins of an image.
const (
	FromCompiler Origin = "compiled"
	FromCache    Origin = "cached"
	FromShipped  Origin = "shipped"
)

// Build returns the image of a target: from the cache, from the compiler or, without a compiler,
// from the kernel's shipped PTX. Several goroutines may call it at the same time.
func (b *Builder) Build(ctx context.Context, t Target) (*Image, Origin, error) {
	files, own, err := b.sources(t)
	if err != nil {
		return nil, "", buildError(t, err)
	}
	if b.compiler == nil {
		image, err := shipped(b.kernel, t, files.hash())
		if err != nil {
			return nil, "", fmt.Errorf("build %s: %w", t, err)
		}
		return image, FromShipped, nil
	}
	key := b.key(t, files.hash())
	if files.computed() {
		key = hashOfChecked(key)
	}
	cached, damage := b.cache.load(key, t)
	if cached != nil {
		return cached, FromCache, nil
	}
	if damage != nil {
		b.noteDamage(t, damage)
	}
	select {
	case b.slots <- struct{}{}:
		defer func() { <-b.slots }()
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
	image, err := b.compileInTime(ctx, t, files, own)
	if err != nil {
		if ctx.Err() != nil {
			return nil, "", ctx.Err()
		}
		return nil, "", buildError(t, err)
	}
	if err := b.cache.store(key, t, image); err != nil {
		b.noteUncached(err)
	}
	return image, FromCompiler, nil
}

// buildError is the error of a build, with the target.
func buildError(t Target, err error) error {
	var refused *CompileError
	var fault *FaultError
	var broken *SourceError
	if errors.As(err, &refused) || errors.As(err, &fault) || errors.As(err, &broken) {
		return forTarget(t, err) // it names the target
	}
	return fmt.Errorf("build %s: %w", t, err)
}

// sources reads what a target is built from, and sorts its flags.
func (b *Builder) sources(t Target) (sources, compilerFlags, error) {
	if t.Contract {
		files, err := readSources(b.kernel, t.Source)
		return files, compilerFlags{}, err
	}
	own, err := b.split(t)
	if err != nil {
		return nil, own, &SourceError{t, t.inFlags() + err.Error()}
	}
	own.include = append(own.include, t.Include...)
	files, err := readForeign(b.kernel, t.Source, own)
	return files, own, err
}

// split sorts the flags of a target.
func (b *Builder) split(t Target) (compilerFlags, error) {
	if b.tree == nil {
		return splitFlags(t.Flags, b.Dir)
	}
	own, err := splitFlags(t.Flags, b.path)
	own.tree = b.tree
	return own, err
}

// flags are the compiler's flags without the knobs. They have no fast-math: a kernel that
// approximates names the instruction.
func flags(arch string) []string {
	return []string{"-std=c++17", "-lineinfo", "-arch=" + strings.Replace(arch, "sm_", "compute_", 1)}
}

// environmentFlags are options that nvcc reads from its environment; they affect a build too.
func environmentFlags() []string {
	var found []string
	for _, name := range []string{"NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN"} {
		if value := os.Getenv(name); value != "" {
			found = append(found, name+"="+value)
		}
	}
	return found
}

// includedNames is the version of the names that PTX has for headers of -I. Version 1, which the key
// does not have, was the last element of the path.
const includedNames = 2

// key is the hash of everything that a build depends on.
func (b *Builder) key(t Target, sourceHash string) string {
	hash := sha256.New()
	fmt.Fprintln(hash, recordSchema, b.compiler.Version, runtime.GOARCH, sourceHash, t.Kernel, t.Source, t.Arch, t.defines(), flags(t.Arch),
		environmentFlags())
	if !t.Contract {
		own, _ := b.split(t) // sources has reported the error
		fmt.Fprintf(hash, "%q %q %q %q\n", t.Entry, t.Flags, own.include, t.Include)
		if len(own.include)+len(t.Include) > 0 {
			fmt.Fprintln(hash, includedNames)
		}
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// hashOfChecked is the key of a build whose includes the compiler's list has confirmed. Earlier
// versions did not ask for that list, so their builds have other keys.
func hashOfChecked(key string) string {
	sum := sha256.Sum256([]byte(key + " includes checked"))
	return hex.EncodeToString(sum[:])
}

// compileInTime compiles within the limit.
func (b *Builder) compileInTime(ctx context.Context, t Target, files sources, own compilerFlags) (*Image, error) {
	limited, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	image, err := b.compile(limited, t, files, own)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, &SourceError{t, fmt.Sprintf("the compiler did not finish within %s", b.limit)}
	}
	return image, err
}

func (b *Builder) compile(ctx context.Context, t Target, files sources, own compilerFlags) (*Image, error) {
	dir, err := workFolder()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	const ptxFile, cubinFile = "image.ptx", "image.cubin"
	ptx, warnings, err := compilePTX(ctx, b.compiler, t, files, own, dir)
	if err != nil {
		return nil, err
	}
	if !ptxEntry.Match(ptx) {
		return nil, &SourceError{t, t.noEntry(nil).Error()}
	}
	if err := os.WriteFile(filepath.Join(dir, ptxFile), ptx, 0o644); err != nil {
		return nil, err
	}
	options := append([]string{"-v", "-arch=" + t.Arch, "--generate-line-info"}, own.ptxas...)
	log, err := b.compiler.run(ctx, t, dir, b.compiler.PTXAS, append(options, "-o", cubinFile, ptxFile)...)
	if err != nil {
		return nil, err
	}
	cubin, err := b.compiler.output(ctx, t, b.compiler.PTXAS, filepath.Join(dir, cubinFile), completeCubin)
	if err != nil {
		return nil, err
	}
	if !ptxasEntry.MatchString(log) {
		return nil, b.compiler.broken(ctx, t, "ptxas reported success and printed no resources")
	}
	return newImage(t, files.hash(), "nvcc "+b.compiler.Version, ptx, cubin, warnings+log)
}

// ptxEntry is the declaration of an entry function in PTX.
var ptxEntry = regexp.MustCompile(`(?m)^\s*(?:\.\w+\s+)?\.entry\s`)

// newImage computes the record of a finished build from its files.
func newImage(t Target, sourceHash, compiler string, ptx, cubin []byte, log string) (*Image, error) {
	var launch Launch
	if t.Contract {
		var err error
		if launch, err = parseLaunch(string(ptx)); err != nil {
			return nil, &SourceError{t, err.Error()}
		}
	}
	entries := parsePtxasLog(log)
	resources, ok := entries[t.EntryName()]
	switch {
	case !ok && t.Contract:
		return nil, &SourceError{t, fmt.Sprintf("ptxas compiled no entry function %q; its log:\n%s", t.EntryName(), log)}
	case !ok:
		return nil, &SourceError{t, t.noEntry(slices.Sorted(maps.Keys(entries))).Error()}
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
			Kernel:        t.Kernel, Entry: t.Entry, Variant: t.Variant, Source: t.Source, Arch: t.Arch, Knobs: t.Knobs,
			Flags: slices.Concat(flags(t.Arch), t.Flags, environmentFlags()), Compiler: compiler,
			SourceHash: sourceHash, PTXHash: hex.EncodeToString(ptxHash[:]), CodeHash: code,
			Launch: launch, Resources: resources,
		},
	}, nil
}
