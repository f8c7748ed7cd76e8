package ci

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Level says how much an issue matters.
type Level string

// The levels, by their names in annotations. SARIF calls a notice a note.
const (
	Error   Level = "error"
	Warning Level = "warning"
	Notice  Level = "notice"
)

// Issue is one thing that is wrong.
type Issue struct {
	Level    Level
	Rule     string // the kind, such as race or correctness
	Subject  string // the variant or case
	Message  string
	Location Location   // may be empty
	Related  []Location // other places that take part
	Callers  []Location // the calls of an inlined function that has the location, from the inside outwards
	Key      string     // identifies the issue where its source line cannot be read: an instruction
}

// Location is a place in the sources.
type Location struct {
	File    string // relative to the root, with slashes; absolute outside of it; empty if unknown
	Line    int    // from 1; 0 if only the file is known
	Message string // of a related place
}

// InTree reports whether the file is in the checkout.
func (l Location) InTree() bool { return l.File != "" && !filepath.IsAbs(l.File) }

// title is an issue in a few words.
func (i *Issue) title() string {
	if i.Subject == "" {
		return i.Rule
	}
	return i.Rule + " in " + i.Subject
}

// Merge joins issues of one rule at the same places: several variants share their sources. Their
// subjects are listed. The order is that of the first ones.
func Merge(issues []Issue) []Issue {
	var all []Issue
	subjects := map[string][]string{}
	keys := []string{}
	for _, i := range issues {
		key := fmt.Sprintf("%q %+v %+v %+v %q", i.Rule, i.Location, i.Related, i.Callers, i.Key)
		if i.Location.Line == 0 {
			key += i.Message // without a line the text tells issues apart
		}
		if subjects[key] == nil {
			all, keys = append(all, i), append(keys, key)
		}
		if !slices.Contains(subjects[key], i.Subject) {
			subjects[key] = append(subjects[key], i.Subject)
		}
	}
	for n := range all {
		all[n].Subject = listed(subjects[keys[n]])
	}
	return all
}

// listed names the first three and counts the others.
func listed(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Tree is the checkout that paths are relative to.
type Tree struct{ Root string }

// FindTree returns the checkout of the working directory: GITHUB_WORKSPACE, else the nearest folder
// with a .git, else the working directory.
func FindTree() Tree {
	if root := os.Getenv("GITHUB_WORKSPACE"); root != "" {
		return Tree{resolved(root)}
	}
	here, err := os.Getwd()
	if err != nil {
		return Tree{"."}
	}
	here = resolved(here)
	for dir := here; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return Tree{dir}
		}
		if dir == filepath.Dir(dir) {
			return Tree{here}
		}
	}
}

// resolved is a path without symbolic links, or the path itself.
func resolved(path string) string {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	if real, err := filepath.EvalSymlinks(absolute); err == nil {
		return real
	}
	return absolute
}

// Path returns a path relative to the root, with slashes. It is empty for a file outside of the root,
// or one that does not exist: readers of the formats look for it in the checkout.
func (t Tree) Path(path string) string {
	if located := (Location{File: t.Locate(path)}); located.InTree() {
		return located.File
	}
	return ""
}

// Locate returns a path relative to the root, with slashes, or the absolute path of a file outside of
// the root. It is empty for one that does not exist.
func (t Tree) Locate(path string) string {
	if path == "" {
		return ""
	}
	absolute := resolved(path)
	if info, err := os.Stat(absolute); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	relative, err := filepath.Rel(t.Root, absolute)
	if err != nil || !filepath.IsLocal(relative) {
		return filepath.ToSlash(absolute)
	}
	return filepath.ToSlash(relative)
}

// line returns the text of a line without its indentation, or an empty text.
func (t Tree) line(l Location) string {
	if l.File == "" || l.Line < 1 {
		return ""
	}
	path := filepath.FromSlash(l.File)
	if l.InTree() {
		path = filepath.Join(t.Root, path)
	}
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		if n == l.Line {
			return strings.Join(strings.Fields(lines.Text()), " ")
		}
	}
	return ""
}

// fingerprints identify issues across changes of the sources that move them: a hash of the rule, the
// file and the text of the line, and a number among equal ones. Without the text the key takes its
// place, and without a key the line number. Callers do not count: an edit of a call leaves the issue
// the same.
func (t Tree) fingerprints(issues []Issue) []string {
	seen := map[string]int{}
	prints := make([]string, len(issues))
	for n, i := range issues {
		places := append([]Location{i.Location}, i.Related...)
		text := []string{i.Rule}
		for at, p := range places {
			content := t.line(p)
			if at == 0 {
				content = cmp.Or(content, i.Key)
			}
			text = append(text, p.File, cmp.Or(content, fmt.Sprint(p.Line)))
		}
		print := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(text, "\x00"))))[:32]
		prints[n] = fmt.Sprintf("%s:%d", print, seen[print]+1)
		seen[print]++
	}
	return prints
}

// printable replaces control characters, other than newlines, and bytes that are not UTF-8.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return r
		case r == '\t':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029':
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(strings.ReplaceAll(text, "\r\n", "\n"), string(utf8.RuneError)))
}

// oneLine is a printable text with spaces for newlines.
func oneLine(text string) string { return strings.ReplaceAll(printable(text), "\n", " ") }

// shortened cuts a text to a number of bytes, between characters.
func shortened(text string, most int) string {
	const mark = " ..."
	if len(text) <= most {
		return text
	}
	cut := most - len(mark)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}
