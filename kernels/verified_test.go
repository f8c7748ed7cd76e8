package kernels_test

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"attune/internal/rotate"
	"attune/internal/toolchain"
	"attune/kernels"
)

// The tests that compile or simulate hundreds of variants take minutes. verifiedFile has the digest
// of the sources for which all of them have passed: of the kernels, and of what checks them. For
// these sources a sample runs, another one for each commit (package rotate); after a change of the
// sources, or with -all, everything runs.
const (
	verifiedFile = "testdata/verified.txt"
	sampled      = 32 // one variant of so many is simulated
	compiled     = 32 // one shipped image of so many is compiled again
	inputs       = 4  // one special input of so many, or one shape, is simulated
)

var (
	all          = flag.Bool("all", false, "test every variant, also if the sources are verified")
	markVerified = flag.Bool("mark-verified", false, "write "+verifiedFile+"; `make verify` does it after all tests have passed")
)

// checkers are the packages that decide whether a variant is correct: the simulator with its PTX
// reader, the inputs, the references, and the gates. A regression of one of them must meet every
// variant. What runs them and what shows their results does not count.
var checkers = []string{
	"accuracy", "array", "audit", "device/sim", "finding", "form", "fp8", "gate", "half", "oracle", "problem", "ptx", "sim", "tensor", "tensormap",
}

// sourceDigest is the digest of all kernels, of what is shipped of them, of their compiler, and of
// the checkers.
var sourceDigest = sync.OnceValues(func() (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, toolchain.InstalledVersion)
	add := func(name string, tree fs.FS, counts func(path string) bool) error {
		return fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !counts(path) {
				return err
			}
			data, err := fs.ReadFile(tree, path)
			fmt.Fprintf(hash, "%s%s %d\n%s", name, path, len(data), data)
			return err
		})
	}
	err := add("", kernels.SDPA(), func(string) bool { return true })
	for _, name := range checkers {
		err = errors.Join(err, add("internal/"+name+"/", os.DirFS(filepath.Join("..", "internal", name)), isProgram))
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), err
})

// isProgram reports whether a file is part of a package, and not of its tests.
func isProgram(path string) bool {
	inTests := strings.HasSuffix(path, "_test.go") || slices.Contains(strings.Split(path, "/"), "testdata")
	return !inTests && slices.Contains([]string{".go", ".s", ".py"}, filepath.Ext(path))
}

// digest is sourceDigest of a test.
func digest(t *testing.T) string {
	t.Helper()
	text, err := sourceDigest()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The digest covers the programs that check kernels, and not their tests.
func TestVerifiedDigestCoversCheckers(t *testing.T) {
	for path, want := range map[string]bool{
		"op_bulk.go": true, "lanes/lanes_amd64.s": true, "declared/reference.py": true, "op_bulk_test.go": false,
		"testdata/forms.ptx": false, "declared/testdata/kernels/add/reference.py": false, "README.md": false,
	} {
		if got := isProgram(path); got != want {
			t.Errorf("%s counts: %t, want %t", path, got, want)
		}
	}
	for _, name := range checkers {
		found, err := filepath.Glob(filepath.Join("..", "internal", name, "*.go"))
		if err != nil || len(found) == 0 {
			t.Errorf("internal/%s has no program: %v", name, err)
		}
	}
}

// skipUnlessSampled skips all but one of n tests of verified sources; index counts them.
func skipUnlessSampled(t *testing.T, index, n int) {
	t.Helper()
	if isVerified(t) {
		rotate.Skip(t, index, n)
	}
}

// sampleOf returns one of `inputs` for verified sources, and all for others. The test itself is one of n
// that skipUnlessSampled lets run; index counts the tests. In n times `inputs` turns every test has had
// every element.
func sampleOf[T any](t *testing.T, index, n int, all []T) []T {
	t.Helper()
	if !isVerified(t) {
		return all
	}
	parts := min(inputs, len(all))
	var some []T
	for i, element := range all {
		due, err := rotate.Due(index%n+n*((i+index/n)%parts), n*parts)
		if err != nil {
			t.Fatal(err)
		}
		if due {
			some = append(some, element)
		}
	}
	return some
}

func skipIfVerified(t *testing.T) {
	t.Helper()
	if isVerified(t) {
		t.Skipf("these sources have passed it: %s has their digest; -all runs it", verifiedFile)
	}
}

func isVerified(t *testing.T) bool {
	t.Helper()
	verified, err := os.ReadFile(verifiedFile)
	return err == nil && !*all && strings.TrimSpace(string(verified)) == digest(t)
}

func TestMarkVerified(t *testing.T) {
	if !*markVerified {
		t.Skip("only with -mark-verified")
	}
	if err := os.WriteFile(verifiedFile, []byte(digest(t)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
