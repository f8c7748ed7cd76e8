package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/form"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
	"attune/kernels"
)

// The libraries get the lines of a table whose variants are stages. Without one nothing is installed: a file
// without choices would say that the rule was measured to be best.
func TestInstallSelection(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("ATTUNE_CACHE", cache)
	t.Setenv(form.SelectionVariable, "")
	kernel, err := spec.Load(kernels.All()["attention/warp"])
	if err != nil {
		t.Fatal(err)
	}
	install := func(choices ...tune.TableChoice) string {
		var stderr bytes.Buffer
		tuned := &run.SelectionTuning{Selection: "d128", Proposal: &tune.Proposal{Choices: choices}, Facts: device.Facts{Name: "NVIDIA L4", Arch: "sm_89", Multiprocessors: 58}}
		if err := (&app{stderr: &stderr}).installSelection(tuned, kernel); err != nil {
			t.Fatal(err)
		}
		return stderr.String()
	}
	path := filepath.Join(cache, "selections", "sm_89-58.json")
	got := install(tune.TableChoice{Variant: "warp_d128+KV_STAGES=1"})
	if !strings.Contains(got, "nothing is installed") || !strings.Contains(got, "do not have warp_d128+KV_STAGES=1") {
		t.Errorf("got %q", got)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file without choices was written")
	}
	got = install(tune.TableChoice{When: "queries <= 9", Variant: "warp_d128_m64"}, tune.TableChoice{Variant: "warp_d128+KV_STAGES=1"})
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(got, "installed in "+path) || !strings.Contains(string(text), "warp_d128_m64") {
		t.Errorf("got %q; the file has %s, %v", got, text, err)
	}
}
