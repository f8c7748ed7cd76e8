package kernels_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"attune/internal/toolchain"

	"attune/kernels"
)

// The tests that compile or simulate hundreds of variants take minutes. verifiedFile has the digest
// of the sources for which all of them have passed. For these sources every fourth variant runs;
// after a change of the sources, or with -all, every one.
const verifiedFile = "testdata/verified.txt"

var (
	all          = flag.Bool("all", false, "test every variant, also if the sources are verified")
	markVerified = flag.Bool("mark-verified", false, "write "+verifiedFile+"; `make verify` does it after all tests have passed")
)

// sourceDigest is the digest of all kernels, of what is shipped of them, and of their compiler.
func sourceDigest(t *testing.T) string {
	t.Helper()
	hash := sha256.New()
	fmt.Fprintln(hash, toolchain.InstalledVersion)
	err := fs.WalkDir(kernels.SDPA(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(kernels.SDPA(), path)
		fmt.Fprintf(hash, "%s %d\n%s", path, len(data), data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}

// skipUnlessFourth skips three of four tests of verified sources; index counts them.
func skipUnlessFourth(t *testing.T, index int) {
	t.Helper()
	if index%4 != 0 && isVerified(t) {
		t.Skipf("these sources have passed it: %s has their digest; -all runs it", verifiedFile)
	}
}

func isVerified(t *testing.T) bool {
	t.Helper()
	digest, err := os.ReadFile(verifiedFile)
	return err == nil && !*all && strings.TrimSpace(string(digest)) == sourceDigest(t)
}

func TestMarkVerified(t *testing.T) {
	if !*markVerified {
		t.Skip("only with -mark-verified")
	}
	if err := os.WriteFile(verifiedFile, []byte(sourceDigest(t)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
