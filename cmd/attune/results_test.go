package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/device/isolate"
	"attune/internal/spec"
	"attune/kernels"
)

// The committed results are there, and every file has its recorded checksum. An absent ledger is an
// empty one to `ledger verify`, so the test looks for its folders first.
func TestResultsVerify(t *testing.T) {
	t.Chdir(root)
	for _, folder := range []string{"runs", "benches", "champions"} {
		if entries, err := os.ReadDir(filepath.Join("results", folder)); err != nil || len(entries) == 0 {
			t.Fatalf("results/%s has %d records: %v", folder, len(entries), err)
		}
	}
	if out, errs, code := printed("ledger", "verify", "--ledger", "results"); code != exitOK {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
}

// A clone pays for every byte of results/, so it holds no profiler reports and no plain samples.
func TestResultsAreSmall(t *testing.T) {
	t.Chdir(root)
	const limit = 8e6 // bytes
	total := int64(0)
	err := filepath.WalkDir("results", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), "index.sqlite") {
			return err
		}
		if entry.Name() == "samples.json" || strings.HasSuffix(path, ".ncu-rep") {
			t.Errorf("%s does not belong into results/", path)
		}
		info, err := entry.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil || total > limit {
		t.Errorf("results/ has %d bytes, at most %.0f are allowed: %v", total, limit, err)
	}
}

// results/sanitizers.json has a clean outcome of every tool for every stage.
func TestResultsOfSanitizers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "results/sanitizers.json"))
	if err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		Variant, Tool, Outcome, Date, Device, Attune string
		CodeHash                                     string `json:"code_hash"`
	}
	var table struct {
		SchemaVersion int `json:"schema_version"`
		Outcomes      []outcome
	}
	if err := json.Unmarshal(text, &table); err != nil || table.SchemaVersion != 1 {
		t.Fatalf("schema %d, %v", table.SchemaVersion, err)
	}
	for _, o := range table.Outcomes {
		if o.Outcome != "clean" || o.Date == "" || o.Device == "" || o.Attune == "" || o.CodeHash == "" {
			t.Errorf("%+v", o)
		}
	}
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	for _, stage := range kernel.Stages {
		for _, tool := range isolate.SanitizerTools {
			if !slices.ContainsFunc(table.Outcomes, func(o outcome) bool { return o.Variant == stage.Name && o.Tool == tool }) {
				t.Errorf("%s has no outcome of %s", stage.Name, tool)
			}
		}
	}
}
