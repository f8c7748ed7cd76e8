package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ErrNoCompiler is returned, wrapped with the reason, when no usable compiler is found.
var ErrNoCompiler = errors.New("no CUDA compiler")

// Compiler is an installation of NVIDIA's compiler.
type Compiler struct {
	NVCC    string // path of nvcc
	PTXAS   string // path of ptxas
	Version string // of nvcc, such as 13.0.88
	Origin  string // where it was found: CUDA_HOME, CUDA_PATH, PATH, a folder, or the cache
}

// cacheOrigin is the origin of the compiler that Install installs.
const cacheOrigin = "attune's cache"

// folder is the install folder of the compiler in attune's cache. It is empty for other compilers.
func (c *Compiler) folder() string {
	if c.Origin != cacheOrigin {
		return ""
	}
	return filepath.Clean(strings.TrimSuffix(c.NVCC, filepath.Join(toolkitDir, "bin", "nvcc")))
}

// candidate is a path where nvcc may be.
type candidate struct {
	origin, nvcc string
}

// usualFolders are the folders in which installers put the toolkit.
var usualFolders = []string{"/usr/local/cuda", "/opt/cuda", "/usr/local/cuda-*"}

// candidates lists the paths in order of precedence: the user's environment, PATH, the usual
// folders, attune's cache.
func candidates(cacheDir string) []candidate {
	var places []candidate
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH"} {
		dir := os.Getenv(name)
		if dir == "" {
			continue
		}
		if dir, err := filepath.Abs(dir); err == nil { // the compiler runs in another folder
			places = append(places, candidate{name, filepath.Join(dir, "bin", "nvcc")})
		}
	}
	if nvcc, err := exec.LookPath("nvcc"); err == nil {
		places = append(places, candidate{"PATH", nvcc})
	}
	for _, folder := range usualFolders {
		found, _ := filepath.Glob(filepath.Join(folder, "bin", "nvcc"))
		slices.SortStableFunc(found, newerFirst)
		for _, nvcc := range found {
			places = append(places, candidate{filepath.Dir(filepath.Dir(nvcc)), nvcc})
		}
	}
	if cacheDir == "" {
		return places
	}
	return append(places, cached(cacheDir))
}

var number = regexp.MustCompile(`\d+`)

// newerFirst compares paths such as /usr/local/cuda-12.4/bin/nvcc by the release in them, newest
// first: 13.0, 12.10, 12.9, 9.2.
func newerFirst(a, b string) int {
	release := func(path string) (parts []int) {
		for _, digits := range number.FindAllString(path, -1) {
			parts = append(parts, atoi(digits))
		}
		return parts
	}
	return slices.Compare(release(b), release(a))
}

// cached is the path where Install puts nvcc.
func cached(cacheDir string) candidate {
	return candidate{cacheOrigin, filepath.Join(installDir(cacheDir), toolkitDir, "bin", "nvcc")}
}

// Find returns the first compiler that works. cacheDir is attune's cache (CacheDir), or empty. If only the
// host compiler is missing, Find returns the compiler, which can still disassemble, and the error.
func Find(ctx context.Context, cacheDir string) (*Compiler, error) {
	var broken []string
	for _, place := range candidates(cacheDir) {
		if _, err := os.Stat(place.nvcc); err != nil {
			continue
		}
		c, err := inspect(ctx, place)
		if err == nil {
			return c, hostCompiler()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		broken = append(broken, err.Error())
	}
	hint := "run `attune toolchain install`, or set CUDA_HOME to a CUDA 12 or 13 toolkit"
	if len(broken) > 0 {
		return nil, fmt.Errorf("%w: %s; %s", ErrNoCompiler, strings.Join(broken, "; "), hint)
	}
	return nil, fmt.Errorf("%w: no nvcc in CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda or attune's cache; %s", ErrNoCompiler, hint)
}

var nvccRelease = regexp.MustCompile(`release \d+\.\d+, V(\d+(?:\.\d+)*)`)

// versionLimit is for a compiler that does not even report its version.
const versionLimit = 30 * time.Second

// inspect runs a candidate's nvcc for its version and finds its ptxas.
func inspect(ctx context.Context, place candidate) (*Compiler, error) {
	limited, cancel := context.WithTimeout(ctx, versionLimit)
	defer cancel()
	out, err := supervised(limited, exec.CommandContext(limited, place.nvcc, "--version"))
	if err != nil {
		return nil, fmt.Errorf("%s does not run: %w", place.nvcc, err)
	}
	m := nvccRelease.FindStringSubmatch(out)
	if m == nil {
		return nil, fmt.Errorf("%s --version prints no release", place.nvcc)
	}
	ptxas := filepath.Join(filepath.Dir(place.nvcc), "ptxas")
	if _, err := os.Stat(ptxas); err != nil {
		if ptxas, err = exec.LookPath("ptxas"); err != nil {
			return nil, fmt.Errorf("there is no ptxas beside %s or in PATH", place.nvcc)
		}
	}
	return &Compiler{NVCC: place.nvcc, PTXAS: ptxas, Version: m[1], Origin: place.origin}, nil
}

// hostCompiler checks for the C++ compiler that nvcc runs as its preprocessor. NVCC_CCBIN may name
// the compiler or its folder.
func hostCompiler() error {
	host := os.Getenv("NVCC_CCBIN")
	if host == "" {
		host = "gcc"
	} else if info, err := os.Stat(host); err == nil && info.IsDir() {
		host = filepath.Join(host, "gcc")
	}
	if _, err := exec.LookPath(host); err != nil {
		return fmt.Errorf("%w: nvcc needs a host compiler, but there is no %s in PATH; install g++", ErrNoCompiler, host)
	}
	return nil
}

// ErrNoCacheDir is returned, wrapped with the reason, when no place for the cache is known.
var ErrNoCacheDir = errors.New("there is no cache folder")

// CacheDir is attune's cache of compilers and builds: ATTUNE_CACHE, or a folder in the user's cache
// directory. It is safe to delete.
func CacheDir() (string, error) {
	if dir := os.Getenv("ATTUNE_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		why := err.Error()
		if os.Getenv("HOME") == "" && os.Getenv("XDG_CACHE_HOME") == "" {
			why = "neither HOME nor XDG_CACHE_HOME is set"
		}
		return "", fmt.Errorf("%w: %s; set ATTUNE_CACHE to a folder", ErrNoCacheDir, why)
	}
	return filepath.Join(dir, "attune"), nil
}
