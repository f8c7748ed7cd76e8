package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attune/internal/lab"
	"attune/internal/rotate"
	"attune/internal/run"
	"attune/internal/toolchain"
	"attune/kernels"
)

// quickKernel is a copy of the kernel in which a run has three small shapes. Two of them are quick,
// and one of these is a benchmark shape.
func quickKernel(t *testing.T) string {
	t.Helper()
	if _, err := toolchain.Find(t.Context(), t.TempDir()); err == nil {
		t.Skip("this machine has a compiler of its own")
	}
	dir := filepath.Join(t.TempDir(), "sdpa")
	if err := os.CopyFS(dir, kernels.SDPA()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kernel.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	section := regexp.MustCompile(`(?s)\n\[run\]\n.*\n\[tolerance\]\n`)
	changed := section.ReplaceAllString(string(text), `
[run]
shapes = ["1x1x5x64", "1x1x64x64", "1x1x9x64"]
benchmark = ["1x1x64x64"]
seeds = [3, 4]
quick = ["1x1x5x64", "1x1x64x64"]
[tolerance]
`)
	if err := os.Remove(path); err != nil { // the copy is read-only
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Without variants a run takes every stage and selection on the quick set. Of the other runs of all
// variants one runs in each turn.
func TestQuickSet(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	kernel := quickKernel(t)
	ledger := t.TempDir()
	type asked struct {
		Variants, Shapes []string
		Seeds            []uint64
		Problems         int
		Quick            bool
	}
	check := func(want asked, args ...string) { // without the checkers, because only the plan matters
		t.Helper()
		out, errs, code := printed(append([]string{"run"}, append(args, "--json", "--kernel", kernel, "--ledger", ledger, "--device", "sim", "--arch", "sm_90a", "--checks", "off")...)...)
		var document struct {
			Runs []*run.Run `json:"runs"`
		}
		if err := json.Unmarshal([]byte(out), &document); err != nil || code != 0 {
			t.Fatalf("%v: exit code %d, %v: %s", args, code, err, errs)
		}
		var got asked
		for _, r := range withoutParts(document.Runs) {
			got.Variants = append(got.Variants, r.Variant)
			got.Shapes, got.Seeds, got.Problems, got.Quick = r.Requested.Shapes, r.Requested.Seeds, r.Requested.Problems, r.Requested.Quick
			if len(r.Correctness) != r.Requested.Problems {
				t.Errorf("%v: %s has %d outputs; want %d", args, r.Variant, len(r.Correctness), r.Requested.Problems)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", args, diff)
		}
	}
	all := strings.Fields("stage0 stage1 stage2 stage3a stage3b stage3c stage4 stage5 stage6 stage7a stage7b stage7 stage7-fast")
	quick, full, both := []string{"1x1x5x64", "1x1x64x64"}, []string{"1x1x5x64", "1x1x64x64", "1x1x9x64"}, []uint64{3, 4}
	check(asked{all, quick, []uint64{3}, 5 + 1, true})
	for i, other := range []struct {
		args []string
		want asked
	}{
		{[]string{"--seeds", "8"}, asked{all, quick, []uint64{8}, 5 + 1, true}},
		{[]string{"--full"}, asked{all, full, both, 6 + 4 + 6 + 5, false}}, // the last variant is studied with 5 more inputs
		{[]string{"--shapes", "1x1x64x64", "--seeds", "3"}, asked{all, []string{"1x1x64x64"}, []uint64{3}, 3 + 5, false}},
	} {
		if due, err := rotate.Due(i, 3); err != nil {
			t.Fatal(err)
		} else if due {
			check(other.want, other.args...)
		}
	}
	check(asked{[]string{"stage2"}, full, both, 6 + 4 + 6, false}, "stage2")
	check(asked{[]string{"stage2"}, quick, []uint64{3}, 5 + 1, true}, "stage2", "--quick")

	// The record of a quick run is repeated with the same inputs.
	out, _, _ := printed("show", "latest", "--file", "report.md", "--ledger", ledger)
	if want := "attune run stage2 --shapes 1x1x5x64,1x1x64x64 --seeds 3 --quick --device sim"; !strings.Contains(out, want) {
		t.Errorf("the report has no %q:\n%s", want, out)
	}
	out, errs, code := printed("reproduce", "latest", "--json", "--kernel", kernel, "--ledger", ledger)
	if code != 0 || !strings.Contains(out, `"problems": 6,`) {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// The output of a plain run fits a screen of 100 by 40.
func TestQuickOutput(t *testing.T) {
	kernel := quickKernel(t)
	out, errs, code := printed("run", "--kernel", kernel, "--ledger", t.TempDir(), "--device", "sim")
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) >= 40 || !strings.HasPrefix(lines[11], "stage7       ok       6/6  ") {
		t.Errorf("%d lines:\n%s", len(lines), out)
	}
	for _, line := range lines {
		if len([]rune(line)) > 80 {
			t.Errorf("over 80 columns: %s", line)
		}
	}
	if last := lines[len(lines)-1]; last != "quick set of 2 shapes, seed 3; --full takes all 3 shapes" {
		t.Errorf("the last line is %q", last)
	}
}

func TestRunProgress(t *testing.T) {
	check := func(p lab.Progress, began, elapsed int, want string) {
		t.Helper()
		p.Entry, p.Entries, p.Name = 5, 12, "stage3b"
		if got := runProgress(p, time.Duration(began)*time.Second, time.Duration(elapsed)*time.Second); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check(lab.Progress{Step: "building"}, 0, 0, "[5/12] stage3b  building   elapsed 0:00")
	outputs := lab.Progress{Step: "correctness 1x1x32x64 seed 0", Done: 9, Total: 16, Share: 0.4}
	check(outputs, 12, 12, "[5/12] stage3b  9/16   elapsed 0:12  left 0:18")
	check(outputs, 12, 20, "[5/12] stage3b  9/16   elapsed 0:20  left 0:10") // a long step
	check(outputs, 12, 70, "[5/12] stage3b  9/16   elapsed 1:10  left 0:00")
	check(lab.Progress{Step: "timing 1x1x32x64", Done: 1, Total: 4, Share: 0.5}, 90, 90,
		"[5/12] stage3b  timing 1/4   elapsed 1:30  left 1:30")
	check(lab.Progress{Step: "building", Share: 0.001}, 3, 3, "[5/12] stage3b  building   elapsed 0:03")
}
