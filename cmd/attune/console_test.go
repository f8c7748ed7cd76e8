package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/toolchain"
)

// session executes the blocks of one document, in their order and in one folder. The folder has
// results/, kernels/, examples/ and internal/ of the repository. There is no compiler and no GPU,
// and the screen has 100 columns.
//
// A block `console` has commands after "$ ", each followed by its output. A line of three dots stands
// for any lines. A command must exit with 0; one that is meant to fail ends with "; echo $?". A block
// with file=PATH in its info string becomes that file, and with append=PATH its end.
type session struct {
	t     *testing.T
	dir   string
	env   []string
	known map[string]bool // ids of the committed ledger
	off   bool            // the machine has a compiler, so that outputs may differ
	write bool            // new outputs are no errors
}

func newSession(t *testing.T) *session {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, dir: dir, known: map[string]bool{}, write: *update}
	if compiler, err := toolchain.Find(t.Context(), filepath.Join(dir, "none")); err == nil {
		t.Logf("the commands are not run: this machine has a compiler of its own (%s)", compiler.NVCC)
		s.off = true
	}
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kernels", "examples", "internal"} {
		s.must(os.Symlink(filepath.Join(repository, name), filepath.Join(dir, name)))
	}
	s.must(os.CopyFS(filepath.Join(dir, "results"), os.DirFS(filepath.Join(repository, "results")))) // queries write its index
	for _, folder := range []string{"runs", "benches", "champions"} {
		records, err := os.ReadDir(filepath.Join(repository, "results", folder))
		s.must(err)
		for _, r := range records {
			s.known[r.Name()] = true
		}
	}
	bin := filepath.Join(dir, ".bin")
	s.must(os.Mkdir(bin, 0o755))
	for _, tool := range []string{"attune", "cat", "cp", "fold", "ls", "mkdir", "rm", "sed"} { // no nvcc, python or git
		path, err := exec.LookPath(tool)
		s.must(err)
		s.must(os.Symlink(path, filepath.Join(bin, tool)))
	}
	s.env = []string{"PATH=" + bin, "HOME=" + dir, "ATTUNE_CACHE=" + filepath.Join(dir, ".cache"), "TERM=dumb", fmt.Sprintf("COLUMNS=%d", maxColumns)}
	if testing.CoverMode() != "" { // a program with coverage that has no folder for it prints a warning
		s.env = append(s.env, "GOCOVERDIR="+t.TempDir())
	}
	return s
}

func (s *session) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// run executes the blocks of a document and returns it with the outputs of its commands.
func (s *session) run(text string) string {
	var out []string
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		out = append(out, lines[i])
		info, opens := strings.CutPrefix(lines[i], "```")
		if !opens {
			continue
		}
		end := i + 1
		for end < len(lines) && lines[end] != "```" {
			end++
		}
		if end == len(lines) {
			s.t.Fatalf("line %d: the block has no end", i+1)
		}
		out = append(out, s.block(info, lines[i+1:end], i+1)...)
		out = append(out, "```")
		i = end
	}
	return strings.Join(out, "\n")
}

// block executes a block that begins on a line, and returns its lines.
func (s *session) block(info string, lines []string, at int) []string {
	for word := range strings.FieldsSeq(info) {
		key, path, _ := strings.Cut(word, "=")
		if key == "file" || key == "append" {
			s.writeFile(filepath.Join(s.dir, path), strings.Join(lines, "\n")+"\n", key == "append")
		}
	}
	if info != "console" || s.off {
		return lines
	}
	var out []string
	for i := 0; i < len(lines); {
		command, ok := strings.CutPrefix(lines[i], "$ ")
		if !ok {
			s.t.Fatalf("line %d: a block of commands begins with \"$ \"", at+i+1)
		}
		out = append(out, lines[i])
		for i++; strings.HasSuffix(command, "\\") && i < len(lines); i++ {
			command += "\n" + lines[i]
			out = append(out, lines[i])
		}
		begin := i
		for i < len(lines) && !strings.HasPrefix(lines[i], "$ ") {
			i++
		}
		out = append(out, s.command(command, lines[begin:i], at+begin)...)
	}
	return out
}

func (s *session) writeFile(path, text string, atEnd bool) {
	s.t.Helper()
	s.must(os.MkdirAll(filepath.Dir(path), 0o755))
	flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	if atEnd {
		flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
	}
	f, err := os.OpenFile(path, flags, 0o644)
	s.must(err)
	_, err = f.WriteString(text)
	s.must(err)
	s.must(f.Close())
}

// command runs a command and returns the output for the document: the expected lines if they match,
// the new ones otherwise.
func (s *session) command(command string, want []string, at int) []string {
	cmd := exec.CommandContext(s.t.Context(), "/bin/sh", "-c", command)
	cmd.Dir, cmd.Env = s.dir, s.env
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		s.t.Errorf("line %d: %s: %v\n%s", at, command, err, output.String())
		return want
	}
	var got []string
	for line := range strings.Lines(strings.ReplaceAll(output.String(), s.dir+"/", "")) {
		got = append(got, strings.TrimRight(line, " \n"))
	}
	if matches(s.normalised(want), s.normalised(got)) {
		return want
	}
	if !s.write {
		s.t.Errorf("line %d: %s (-document +printed); `make docs` updates it:\n%s", at, command, cmp.Diff(want, got))
	}
	return elided(want, got)
}

var (
	idPattern       = regexp.MustCompile(`\b\d{8}-\d{6}-[a-z0-9._-]+-[0-9a-f]{6}\b`)
	datePattern     = regexp.MustCompile(`\b\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d)?)?`)
	durationPattern = regexp.MustCompile(`\b\d+(\.\d+)? ?m?s\b`)
)

// normalised replaces what differs from run to run: new ids, dates and durations.
func (s *session) normalised(lines []string) []string {
	var all []string
	for _, line := range lines {
		line = idPattern.ReplaceAllStringFunc(line, func(id string) string {
			if s.known[id] {
				return id
			}
			return "ID"
		})
		line = datePattern.ReplaceAllString(line, "DATE")
		all = append(all, durationPattern.ReplaceAllString(line, "DURATION"))
	}
	return all
}

// dots stands for any lines of an output.
const dots = "..."

// matches compares an expected output with a printed one.
func matches(want, got []string) bool {
	for i, line := range want {
		if line != dots {
			if i >= len(got) || line != got[i] {
				return false
			}
			continue
		}
		for skip := i; skip <= len(got); skip++ {
			if matches(want[i+1:], got[skip:]) {
				return true
			}
		}
		return false
	}
	return len(want) == len(got)
}

// elided shortens a new output as the old one was: as many lines before the first dots and after the
// last ones. Pieces between dots are searched by their first lines, and dropped if there are none.
func elided(want, got []string) []string {
	first := slices.Index(want, dots)
	if first < 0 || len(got) <= first {
		return got
	}
	var out []string
	out = append(out, got[:first]...)
	got = got[first:]
	for {
		want = want[first+1:]
		out = append(out, dots)
		first = slices.Index(want, dots)
		if first < 0 {
			return append(out, got[max(0, len(got)-len(want)):]...)
		}
		if at := slices.Index(got, want[0]); at >= 0 && first > 0 {
			end := min(at+first, len(got))
			out = append(out, got[at:end]...)
			got = got[end:]
		} else {
			out = out[:len(out)-1] // no line between two dots
		}
	}
}

func TestMatches(t *testing.T) {
	check := func(want, got string, ok bool) {
		t.Helper()
		if matches(strings.Fields(want), strings.Fields(got)) != ok {
			t.Errorf("%q and %q: want %t", want, got, ok)
		}
	}
	check("", "", true)
	check("a b", "a b", true)
	check("a b", "a", false)
	check("a", "a b", false)
	check("a ... d", "a b c d", true)
	check("a ... d", "a d", true)
	check("a ... d", "a b c", false)
	check("...", "", true)
	check("... c ... e", "a b c d e", true)
	check("... e ... c", "a b c d e", false)
}

func TestElided(t *testing.T) {
	check := func(want, got, out string) {
		t.Helper()
		if diff := cmp.Diff(strings.Fields(out), elided(strings.Fields(want), strings.Fields(got))); diff != "" {
			t.Errorf("%q of %q: %s", want, got, diff)
		}
	}
	check("a b", "x y z", "x y z")
	check("a ... d", "x b c y", "x ... y")
	check("a ...", "x b c y", "x ...")
	check("... d", "x b c y", "... y")
	check("a ... c d ... e", "x b c y d z", "x ... c y ... z")
	check("a ... w ... e", "x b c y d z", "x ... z")
	check("a b c ...", "x", "x")
}

func TestNormalised(t *testing.T) {
	s := &session{known: map[string]bool{"20261115-122525-stage3b-d87a5a": true}}
	in := []string{
		"run 20261115-122525-stage3b-d87a5a", "run 20261116-072954-stage7a-b163c4", "since 2026-11-15 07:16:45, by promote",
		"280 warp instructions in 0.0 s; 5.26 us, 100 sectors, 300ms",
	}
	want := []string{
		"run 20261115-122525-stage3b-d87a5a", "run ID", "since DATE, by promote",
		"280 warp instructions in DURATION; 5.26 us, 100 sectors, DURATION",
	}
	if diff := cmp.Diff(want, s.normalised(in)); diff != "" {
		t.Error(diff)
	}
}

// A session runs commands in the order of the document, in one folder.
func TestSession(t *testing.T) {
	s := newSession(t)
	if s.off {
		t.Skip("this machine has a compiler of its own")
	}
	s.write = true
	fence := "```"
	document := fmt.Sprintf(`%[1]stext file=a/b.txt
one
%[1]s
%[1]stext append=a/b.txt
two
%[1]s
%[1]sconsole
$ cat a/b.txt
old
$ cat a/missing \
  2>/dev/null; echo $?
%[1]s
%[1]ssh
$ never
%[1]s`, fence)
	want := strings.Replace(document, "old", "one\ntwo", 1)
	want = strings.Replace(want, "echo $?\n", "echo $?\n1\n", 1)
	if diff := cmp.Diff(want, s.run(document)); diff != "" {
		t.Error(diff)
	}
}
