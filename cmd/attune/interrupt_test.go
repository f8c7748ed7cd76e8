package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"attune/internal/ledger"
)

// measuredRun copies the committed results and returns the copy and a merged run on benchmark
// shapes.
func measuredRun(t *testing.T) (dir, id string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "results")
	if err := os.CopyFS(dir, os.DirFS("../../results")); err != nil {
		t.Fatal(err)
	}
	kept, err := ledger.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	entries, err := kept.List(t.Context(), ledger.Filter{Variant: "stage2", Device: "cuda", Verdict: "merge"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Headline.Shape == "1x8x512x64" && e.Headline.P50US != nil {
			return dir, e.ID
		}
	}
	t.Fatal("the results have no merged run of stage2 on 1x8x512x64")
	return "", ""
}

// The commands build first. The compiler of this test never ends, so nothing is changed.
func TestInterruptedBuilds(t *testing.T) {
	results, id := measuredRun(t)
	check := func(want string, args ...string) {
		t.Helper()
		toolkit, started := hangingToolkit(t)
		temporary := t.TempDir()
		cmd, stderr := command(t, append(args, "--ledger", results)...)
		cmd.Env = append(cmd.Env, "CUDA_HOME="+toolkit, "NVCC_CCBIN=sh", "TMPDIR="+temporary)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		signalWhen(t, cmd, started, os.Interrupt)
		if code, died := exitOf(t, cmd.Wait()); code != exitInterrupted || stderr.String() != want {
			t.Errorf("%v: exit code %d, signal %v, standard error %q", args, code, died, stderr)
		}
		if left, err := os.ReadDir(temporary); err != nil || len(left) != 0 {
			t.Errorf("%v: temporary files: %v, %v", args, left, err)
		}
	}
	count := func() int {
		t.Helper()
		runs, runsErr := filepath.Glob(filepath.Join(results, "runs", "*"))
		champions, championsErr := filepath.Glob(filepath.Join(results, "champions", "*"))
		if err := errors.Join(runsErr, championsErr); err != nil {
			t.Fatal(err)
		}
		return len(runs) + len(champions)
	}
	before := count()
	check("attune: interrupted; nothing was promoted\n", "promote", id)
	check("attune: interrupted; nothing was recorded\n", "reproduce", id, "--device", "sim")
	folder := filepath.Join(t.TempDir(), "sdpa")
	check("attune: interrupted; nothing was written\n", "export", "stage7", "-o", folder)
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the library: %v", err)
	}
	if after := count(); after != before {
		t.Errorf("%d records, and %d before", after, before)
	}
}
