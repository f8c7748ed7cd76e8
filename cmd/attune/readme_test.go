package main

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the results give now into README.md")

// printed is what a command gives, in the repository's root.
func printed(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	t.Chdir("../..")
	var stdout, stderr bytes.Buffer
	code = attune(args, &stdout, &stderr)
	return stdout.String(), stderr.String(), code
}

// checkReadme holds what stands between two marks of the README against what it should be, or, with -update, puts it there.
func checkReadme(t *testing.T, mark, want string) {
	t.Helper()
	const path = "README.md"
	readme, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+mark+" -->\n", "<!-- /"+mark+" -->"
	before, rest, found := strings.Cut(string(readme), begin)
	got, after, closed := strings.Cut(rest, end)
	switch {
	case !found || !closed:
		t.Fatalf("README.md has no %s between its marks", mark)
	case got == want:
	case *update:
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("README.md has\n%s\nand the results give\n%s\n`make readme` puts it there", got, want)
	}
}

// The README's ladder is what the committed results give.
func TestReadmeLadderIsPrintedFromTheResults(t *testing.T) {
	out, errs, code := printed(t, "history", "--ladder", "--markdown", "--ledger", "results")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	checkReadme(t, "ladder", out)
}

// The README's bench is the newest of the committed results. As long as they have none, nothing stands there.
func TestReadmeBenchIsPrintedFromTheResults(t *testing.T) {
	out, errs, code := printed(t, "show", "latest-bench", "--by-shape", "--markdown", "--ledger", "results")
	switch {
	case code == exitOK:
		out = "## Beside PyTorch and FlashAttention-3\n\nThe newest bench in `results/`, by `attune show latest-bench --by-shape --markdown --ledger results`.\n\n" + out
	case code != exitUsage || !strings.Contains(errs, "the ledger has no benches"):
		t.Fatalf("exit code %d: %s", code, errs)
	}
	checkReadme(t, "bench", out)
}

// Nobody has touched the committed results.
func TestResultsVerify(t *testing.T) {
	if out, errs, code := printed(t, "ledger", "verify", "--ledger", "results"); code != exitOK {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}
