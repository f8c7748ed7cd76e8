package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

var update = flag.Bool("update", false, "write the present output into the golden files")

// golden compares a text with a file.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got); if the new one is right, run the test with -update:\n%s", file, diff)
	}
}

// docs/results.md and the figures of the README are made of results/.
func TestDocumentsAreUpToDate(t *testing.T) {
	files, err := generate(t.Context(), root)
	if err != nil || len(files) != 2 {
		t.Fatalf("%d documents: %v", len(files), err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(got), string(want)); diff != "" {
			t.Errorf("%s is not up to date; `make docs` updates it (-document +generated):\n%s", name, diff)
		}
	}
}

func TestReadmeWithoutMarks(t *testing.T) {
	if _, err := replaceHeadline([]byte("# attune\n<!-- headline -->\n"), "figures"); err == nil {
		t.Error("a README without the second mark was taken")
	}
	got, err := replaceHeadline([]byte("a\n<!-- headline -->\nold\n<!-- /headline -->\nb\n"), "new\n")
	if want := "a\n<!-- headline -->\nnew\n<!-- /headline -->\nb\n"; err != nil || string(got) != want {
		t.Errorf("%v: %q, want %q", err, got, want)
	}
}
