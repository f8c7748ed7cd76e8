package python

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"attune/internal/child"
)

// Own is the folder of attune's own Python in its cache, a virtual environment with numpy. It sees the
// packages of the Python that it was made from.
func Own(cacheDir string) string { return filepath.Join(cacheDir, "python") }

// Program is the Python of a virtual environment.
func Program(environment string) string {
	if runtime.GOOS == "windows" {
		return filepath.Join(environment, "Scripts", "python.exe")
	}
	return filepath.Join(environment, "bin", "python3")
}

// ForReferences returns the Python that references run in: as Find, with attune's own Python, if it was
// installed, in place of python3 in PATH. cacheDir may be empty.
func ForReferences(requested, cacheDir string) (string, error) {
	if requested == "" && os.Getenv(Variable) == "" && cacheDir != "" {
		path := Program(Own(cacheDir))
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return Find(requested)
}

// numpyLimit limits the time of HasNumpy. A Python on a cold network file system takes seconds.
const numpyLimit = 10 * time.Second

// HasNumpy reports whether a Python finds numpy. It does not import it, which takes longer. The error
// is that of a Python that does not work.
func HasNumpy(ctx context.Context, path string) (bool, error) {
	return hasNumpy(ctx, path, numpyLimit)
}

func hasNumpy(ctx context.Context, path string, limit time.Duration) (bool, error) {
	out, err := child.Output(ctx, limit, path, "-c", "import importlib.util; print('numpy', importlib.util.find_spec('numpy') is not None)")
	return strings.Contains(out, "numpy True"), err
}
