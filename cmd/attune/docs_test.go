package main

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"attune/internal/patch"
)

var update = flag.Bool("update", false, "write outputs and tables into the documents")

// root is the folder of the repository.
const root = "../.."

const (
	maxColumns     = 100  // of a line of a document or a help page
	maxReadmeBytes = 7000 // the README is read in one sitting
)

// printed runs a command.
func printed(args ...string) (out, errs string, code int) {
	var stdout, stderr bytes.Buffer
	code = attune(args, &stdout, &stderr)
	return stdout.String(), stderr.String(), code
}

// documents returns the paths of the user's documents, relative to the root.
func documents(t *testing.T) []string {
	t.Helper()
	paths := []string{"README.md", "CONTRIBUTING.md"}
	err := fs.WalkDir(os.DirFS(root), "docs", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func readDocument(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// writeDocument compares a document with the text that it should have, or, with -update, writes it.
func writeDocument(t *testing.T, path, want string) {
	t.Helper()
	got := readDocument(t, path)
	switch {
	case got == want:
	case *update:
		if err := os.WriteFile(filepath.Join(root, path), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not up to date; `make docs` updates it (-document +generated):\n%s", path, cmp.Diff(got, want))
	}
}

// Every command in a document prints the output that the document shows.
func TestDocs(t *testing.T) {
	for _, path := range documents(t) {
		if strings.HasPrefix(path, findingPages+"/") {
			continue // TestFindingPages has a compiler
		}
		t.Run(strings.ReplaceAll(path, "/", "-"), func(t *testing.T) {
			t.Parallel()
			session := newSession(t)
			writeDocument(t, path, session.run(readDocument(t, path)))
		})
	}
}

// No line of a document or of a help page is wider than 100 columns.
func TestDocsFitTheScreen(t *testing.T) {
	check := func(where, text string) {
		for i, line := range strings.Split(text, "\n") {
			if n := utf8.RuneCountInString(line); n > maxColumns {
				t.Errorf("%s:%d has %d columns: %s", where, i+1, n, line)
			}
		}
	}
	for _, path := range documents(t) {
		check(path, readDocument(t, path))
	}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		out, errs, code := printed(args...)
		if code != exitOK {
			t.Errorf("%s: exit code %d: %s", cmd.CommandPath(), code, errs)
		}
		check(strings.Join(append([]string{"attune"}, args...), " "), out)
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit((&app{}).rootCommand())
}

func TestReadmeIsShort(t *testing.T) {
	if n := len(readDocument(t, "README.md")); n >= maxReadmeBytes {
		t.Errorf("README.md has %d bytes, want fewer than %d", n, maxReadmeBytes)
	}
}

var (
	fencePattern   = regexp.MustCompile("(?ms)^```.*?^```$")
	codePattern    = regexp.MustCompile("`[^`\n]*`")
	linkPattern    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headingPattern = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// Every relative link of a document leads to a file, and its fragment to a heading.
func TestDocsLinks(t *testing.T) {
	headings := map[string][]string{} // by file
	for _, path := range documents(t) {
		text := codePattern.ReplaceAllString(fencePattern.ReplaceAllString(readDocument(t, path), ""), "")
		for _, m := range linkPattern.FindAllStringSubmatch(text, -1) {
			target, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := path
			if target != "" {
				file = filepath.Join(filepath.Dir(path), target)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: link %s: there is no %s", path, m[1], file)
				continue
			}
			if fragment == "" {
				continue
			}
			if headings[file] == nil {
				headings[file] = anchors(readDocument(t, file))
			}
			if !slices.Contains(headings[file], fragment) {
				t.Errorf("%s: link %s: %s has no such heading", path, m[1], file)
			}
		}
	}
}

var diffPattern = regexp.MustCompile("(?ms)^```diff\n(.*?)^```$")

// Every diff of a document fits the sources, so that a reader can apply it.
func TestDocsDiffsFit(t *testing.T) {
	for _, path := range documents(t) {
		for _, m := range diffPattern.FindAllStringSubmatch(readDocument(t, path), -1) {
			diff, err := patch.Parse([]byte(m[1]))
			if err == nil {
				_, err = diff.Apply(os.DirFS(root))
			}
			if err != nil {
				t.Errorf("%s: %v, in\n%s", path, err, m[1])
			}
		}
	}
}

// anchors returns the fragments of a document's headings, as GitHub makes them.
func anchors(text string) []string {
	var all []string
	for _, m := range headingPattern.FindAllStringSubmatch(fencePattern.ReplaceAllString(text, ""), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
				return r
			}
			return -1
		}, strings.ToLower(m[1]))
		all = append(all, anchor)
	}
	return all
}

// The guide and `attune help exit-codes` explain every exit code in the same words.
func TestExitCodesInGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := func(pattern, text string) map[string]string {
		found := map[string]string{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			found[m[1]] = strings.Join(strings.Fields(strings.ReplaceAll(m[2], "`", "")), " ")
		}
		return found
	}
	_, rows, _ := strings.Cut(string(guide), "\n## Exit codes\n")
	rows, _, _ = strings.Cut(rows, "\n## ")
	inGuide := explained(`(?m)^\| (\d+) \| (.*) \|$`, rows)
	inHelp := explained(`(?m)^ +(\d+)  (.*(?:\n {7}.*)*)`, exitCodesText)
	if diff := cmp.Diff(inHelp, inGuide); diff != "" || len(inGuide) != 13 {
		t.Errorf("%d codes, help and guide differ (-help +guide):\n%s", len(inGuide), diff)
	}
}
