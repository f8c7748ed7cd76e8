package form

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"attune/internal/device"
	"attune/internal/spec"
	"attune/kernels"
)

// An installed selection takes the place of the one before, and leaves others.
func TestInstall(t *testing.T) {
	t.Setenv(SelectionVariable, "")
	t.Setenv("ATTUNE_CACHE", t.TempDir())
	install := func(facts device.Facts, selection string, choices ...MeasuredChoice) (*Measured, string) {
		t.Helper()
		path, err := Install(facts, selection, choices)
		if err != nil {
			t.Fatal(err)
		}
		m, err := ReadMeasured(path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return m, string(text)
	}
	install(l4, "d64", MeasuredChoice{When: "keys > 9", Variant: "old"})
	install(l4, "d128", MeasuredChoice{Variant: "warp_d128"})
	m, text := install(l4, "d64", MeasuredChoice{When: "keys <= 9 and not causal", Variant: "warp_d64_m64"}, MeasuredChoice{Variant: "warp_d64"})
	if len(m.Choices) != 3 || m.GPU != "NVIDIA L4" || m.Choices[0].Selection != "d128" {
		t.Errorf("%+v", m)
	}
	if strings.Contains(text, "old") || !strings.Contains(text, `"when": "keys <= 9 and not causal"`) {
		t.Errorf("the file has %s", text)
	}
	if _, err := Install(l4, "d64", []MeasuredChoice{{When: "section > 1", Variant: "warp_d64"}}); err == nil || !strings.Contains(err.Error(), `"section > 1"`) {
		t.Errorf("a condition on another axis: %v", err)
	}
	// A file of another GPU is replaced, and a broken one is not.
	path := filepath.Join(t.TempDir(), "named")
	t.Setenv(SelectionVariable, path)
	install(l4, "d64", MeasuredChoice{Variant: "warp_d64"})
	if m, _ := install(device.Facts{Name: "A100", Arch: "sm_80", Multiprocessors: 108}, "d128", MeasuredChoice{Variant: "warp_d128"}); len(m.Choices) != 1 || m.GPU != "A100" {
		t.Errorf("%+v", m)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(l4, "d64", nil); err == nil {
		t.Error("a broken file is replaced")
	}
	for _, name := range []string{SelectionVariable, "ATTUNE_CACHE", "XDG_CACHE_HOME", "HOME"} {
		t.Setenv(name, "")
	}
	if _, err := Install(l4, "d64", nil); err == nil {
		t.Error("there is a cache without a home")
	}
}

// A selection that cannot be read is an error of the table. That of another GPU is none.
func TestMeasuredFiles(t *testing.T) {
	kernel, err := spec.Load(kernels.SDPA())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		text, want string
		choices    int
	}{
		"right":     {`{"arch": "sm_89", "multiprocessors": 58, "choices": [{"when": "keys > 9 and head_dim == 64 and rows > 2 and tiles <= 9", "variant": "warp_d64"}]}`, "", 1},
		"other":     {`{"arch": "sm_89", "multiprocessors": 59, "choices": [{"variant": "warp_d64"}]}`, "other is for sm_89 with 59 multiprocessors, and the GPU is sm_89 with 58; unset ATTUNE_SELECTION, or tune this GPU", 0},
		"newer":     {`{"schema_version": 2, "arch": "sm_89", "multiprocessors": 58}`, "newer has version 2, and this library reads 1; write it again by its attune tune", 0},
		"stage":     {`{"arch": "sm_89", "multiprocessors": 58, "choices": [{"variant": "warp_d65"}]}`, "stage chooses warp_d65, which this library does not have; write it again by its attune tune", 0},
		"broken":    {`{"arch": `, "broken is no selection of attune tune: unexpected end of JSON input; write it again, or delete it", 0},
		"condition": {`{"choices": [{"when": "pages > 9", "variant": "a"}]}`, `condition is no selection of attune tune: the condition "pages > 9": `, 0},
		"large":     {strings.Repeat("[", 1<<20+1), "the selection cannot be opened: ", 0},
		"missing":   {"", "the selection cannot be opened: open ", 0},
	} {
		path := filepath.Join(t.TempDir(), name)
		if name != "missing" {
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv(SelectionVariable, path)
		table, err := NewTable(kernel.Selection("stage7"), kernels.SDPA(), kernels.Forms(), kernels.Portable(), l4)
		switch {
		case test.want != "":
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %s", name, err, test.want)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case (table.measured != nil) != (test.choices > 0):
			t.Errorf("%s: %+v", name, table.measured)
		}
	}
	// Without a name the cache has it; without a cache there is none.
	t.Setenv(SelectionVariable, "")
	t.Setenv("ATTUNE_CACHE", t.TempDir())
	if m, err := findMeasured(l4, nil); m != nil || err != nil {
		t.Errorf("an empty cache: %v, %v", m, err)
	}
	// So does one that cannot be opened, unless the file is named.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cache := range []string{file, "/" + strings.Repeat("a", 300)} {
		t.Setenv("ATTUNE_CACHE", cache)
		if m, err := findMeasured(l4, nil); m != nil || err != nil {
			t.Errorf("%s: %v, %v", cache, m, err)
		}
	}
	t.Setenv(SelectionVariable, file+"/selection")
	if _, err := findMeasured(l4, nil); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a named file: %v", err)
	}
	t.Setenv(SelectionVariable, "")
	for _, name := range []string{"ATTUNE_CACHE", "XDG_CACHE_HOME", "HOME"} {
		t.Setenv(name, "")
	}
	if m, err := findMeasured(l4, nil); m != nil || err != nil {
		t.Errorf("no cache: %v, %v", m, err)
	}
}
