package main

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"attune/internal/document"
	"attune/internal/finding"
	"attune/internal/rotate"
	"attune/internal/toolchain"
)

// findingPages is the folder of the pages about kinds of findings.
const findingPages = "docs/findings"

// A page shows a program with its finding, and that its fix has none. One page of four runs in each turn:
// each compiles several programs.
func TestFindingPages(t *testing.T) {
	if testing.Short() {
		t.Skip("runs NVIDIA's compiler, which -short leaves out")
	}
	cacheDir, err := toolchain.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := toolchain.Installed(t.Context(), cacheDir); err != nil {
		t.Skipf("needs the pinned compiler: %v", err)
	}
	pages := slices.DeleteFunc(documents(t), func(document string) bool { return path.Dir(document) != findingPages })
	for i, document := range pages {
		t.Run(path.Base(document), func(t *testing.T) {
			if !*update {
				rotate.Skip(t, i, 4)
			}
			t.Parallel()
			session := newSession(t)
			session.env = append(session.env, "ATTUNE_CACHE="+cacheDir, "PATH="+session.dir+"/.bin:"+os.Getenv("PATH"))
			text := readDocument(t, document)
			kind := strings.TrimSuffix(path.Base(document), ".md")
			if strings.Contains(text, "\n```console\n") && !strings.Contains(text, "error: "+kind) && !*update {
				t.Errorf("no output has the finding %s", kind)
			}
			writeDocument(t, document, session.run(text))
		})
	}
}

// Each kind has its page, or a row in that of the audit, and the index has all pages.
func TestFindingPagesAreComplete(t *testing.T) {
	index, audit := readDocument(t, findingPages+"/README.md"), readDocument(t, findingPages+"/audit.md")
	others := []finding.Kind{finding.TimedOutputDiffers, finding.RemembersResults, finding.UnorderedSums}
	for _, kind := range append(finding.AllKinds(), others...) {
		if page := document.FindingPages([]finding.Kind{kind}); !slices.Contains(documents(t), page) {
			t.Errorf("%s is explained in %s, which does not exist", kind, page)
		}
		if strings.Contains(audit, "\n| `"+string(kind)+"` |") {
			continue
		}
		if !slices.Contains(documents(t), findingPages+"/"+string(kind)+".md") {
			t.Errorf("%s has no page", kind)
		}
		if !strings.Contains(index, "\n| ["+string(kind)+"]("+string(kind)+".md) |") {
			t.Errorf("the index has no %s", kind)
		}
	}
}
