package form

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"attune/internal/spec"
	"attune/kernels"
)

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
		"right":     {`{"arch": "sm_89", "multiprocessors": 58, "choices": [{"when": "keys > 9", "variant": "a"}]}`, "", 1},
		"other":     {`{"arch": "sm_89", "multiprocessors": 59, "choices": [{"variant": "a"}]}`, "", 0},
		"broken":    {`{"arch": `, "broken is no selection of attune tune: unexpected end of JSON input; write it again, or delete it", 0},
		"condition": {`{"choices": [{"when": "pages > 9", "variant": "a"}]}`, `condition is no selection of attune tune: the condition "pages > 9": `, 0},
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
	if m, err := findMeasured(l4); m != nil || err != nil {
		t.Errorf("an empty cache: %v, %v", m, err)
	}
	for _, name := range []string{"ATTUNE_CACHE", "XDG_CACHE_HOME", "HOME"} {
		t.Setenv(name, "")
	}
	if m, err := findMeasured(l4); m != nil || err != nil {
		t.Errorf("no cache: %v, %v", m, err)
	}
}
