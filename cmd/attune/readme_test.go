package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"attune/internal/device"
)

var update = flag.Bool("update", false, "write the tables of the results into README.md")

// root is the folder of the repository.
const root = "../.."

// printed runs a command.
func printed(args ...string) (out, errs string, code int) {
	var stdout, stderr bytes.Buffer
	code = attune(args, &stdout, &stderr)
	return stdout.String(), stderr.String(), code
}

// checkReadme compares the text between two marks of the README, or, with -update, writes it.
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
		t.Fatalf("README.md has no marks of %s", mark)
	case got == want:
	case *update:
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("README.md has\n%s\nand the results give\n%s\n`make readme` updates it", got, want)
	}
}

// The README's ladder is that of the committed results.
func TestReadmeLadder(t *testing.T) {
	t.Chdir(root)
	out, errs, code := printed("history", "--ladder", "--markdown", "--ledger", "results")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	checkReadme(t, "ladder", out)
}

// The README's benches are the newest of the committed results: one with peers, and those with
// variants alone on larger shapes, under a steady load and after rests of each length.
func TestReadmeBenches(t *testing.T) {
	t.Chdir(root)
	newest := newestBenches(t)
	var section strings.Builder
	type titled struct{ id, title string }
	benches := []titled{
		{newest.withPeers, "## Beside PyTorch and FlashAttention-3"},
		{newest.steady, "## Throughput under a steady load"},
	}
	for _, rest := range slices.Sorted(maps.Keys(newest.rested)) {
		benches = append(benches, titled{newest.rested[rest], fmt.Sprintf("## Throughput after rests of %v (`--rest`)", rest)})
	}
	for _, bench := range benches {
		if bench.id == "" {
			continue
		}
		out, errs, code := printed("show", bench.id, "--by-shape", "--markdown", "--ledger", "results")
		if code != exitOK {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		fmt.Fprintf(&section, "%s\n\n`attune show %s --by-shape --markdown --ledger results`:\n\n%s\n", bench.title, bench.id, out)
	}
	checkReadme(t, "bench", strings.TrimSuffix(section.String(), "\n"))
}

// benchIDs are those of the newest committed benches of each kind.
type benchIDs struct {
	withPeers, steady string
	rested            map[time.Duration]string
}

func newestBenches(t *testing.T) benchIDs {
	t.Helper()
	files, err := filepath.Glob("results/benches/*/bench.json")
	if err != nil {
		t.Fatal(err)
	}
	newest := benchIDs{rested: map[time.Duration]string{}}
	for _, file := range files { // in the order of their ids, which is that of their times
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var bench struct {
			ID      string          `json:"id"`
			Command string          `json:"command"`
			Peers   json.RawMessage `json:"peers"`
		}
		if err := json.Unmarshal(text, &bench); err != nil {
			t.Fatal(err)
		}
		flagOf := func(flag string) string { // of the command
			words := strings.Fields(bench.Command)
			if i := slices.Index(words, flag); i >= 0 {
				return words[i+1]
			}
			return ""
		}
		switch launches := flagOf("--launches"); {
		case launches != "" && launches != fmt.Sprint(device.DefaultLaunches): // for figures of other implementations
		case flagOf("--rest") != "":
			rest, err := time.ParseDuration(flagOf("--rest"))
			if err != nil {
				t.Fatal(err)
			}
			newest.rested[rest] = bench.ID
		case bench.Peers != nil:
			newest.withPeers = bench.ID
		default:
			newest.steady = bench.ID
			clear(newest.rested) // they are of an older program
		}
	}
	return newest
}
