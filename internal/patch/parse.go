package patch

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// Patch is a set of changes to files.
type Patch struct{ Files []File }

// File is the change of one file.
type File struct {
	Path  string // slash-separated, relative to the folder
	New   bool   // the diff creates the file
	hunks []hunk
}

// hunk replaces lines. Lines have their newline.
type hunk struct {
	at       int // line of the header in the diff
	start    int // first line of the old file, from 1; the line before an insertion without context
	old, new []string
	text     string // its lines in the diff
	last     byte   // first byte of the last line, for "\ No newline"
}

// String is the patch as a diff with the prefixes a/ and b/ and without the text between files, so
// that `patch -p1` applies it.
func (p *Patch) String() string {
	var out strings.Builder
	for _, f := range p.Files {
		before := "a/" + f.Path
		if f.New {
			before = noFile
		}
		fmt.Fprintf(&out, "--- %s\n+++ b/%s\n", before, f.Path)
		for _, h := range f.hunks {
			out.WriteString(h.text)
		}
	}
	return out.String()
}

// parser reads a diff line by line.
type parser struct {
	lines []string
	at    int // index of the next line
	patch Patch
}

// Parse reads a unified diff: of git, with the prefixes a/ and b/, or plain. Text before, between and
// behind the files is ignored, so that a diff may come with an explanation.
func Parse(diff []byte) (*Patch, error) {
	if i := strings.IndexByte(string(diff), 0); i >= 0 {
		return nil, fmt.Errorf("byte %d of the diff is 0: a binary patch is not accepted", i)
	}
	p := &parser{lines: strings.SplitAfter(string(diff), "\n")}
	if last := len(p.lines) - 1; p.lines[last] == "" {
		p.lines = p.lines[:last]
	}
	for p.at < len(p.lines) {
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	if len(p.patch.Files) == 0 {
		return nil, fmt.Errorf("the diff changes no file; want a unified diff with the lines ---, +++ and @@")
	}
	return &p.patch, nil
}

// refused are the headers of git for changes that a patch must not make.
var refused = []struct{ prefix, why string }{
	{"GIT binary patch", "a binary patch is not accepted"},
	{"Binary files ", "a binary patch is not accepted"},
	{"deleted file mode", "a patch changes and adds files; it must not delete one"},
	{"rename from", "a patch changes and adds files; it must not rename one"},
	{"copy from", "a patch changes and adds files; it must not copy one"},
	{"new file mode 12", "a patch must not create a link"},
	{"new file mode 16", "a patch must not create a submodule"},
	{"new mode", "a patch must not change the mode of a file"},
}

// next reads a line outside of the hunks, or a whole file.
func (p *parser) next() error {
	line := p.lines[p.at]
	for _, r := range refused {
		if strings.HasPrefix(line, r.prefix) {
			return p.errorf("%s", r.why)
		}
	}
	switch {
	case p.atFile():
		return p.file()
	case strings.HasPrefix(line, "@@ -"):
		return p.errorf("a hunk without a file: the lines --- and +++ are missing before it")
	}
	p.at++
	return nil
}

// atFile reports whether the next lines are the header of a file.
func (p *parser) atFile() bool {
	return strings.HasPrefix(p.lines[p.at], "--- ") && p.at+1 < len(p.lines) && strings.HasPrefix(p.lines[p.at+1], "+++ ")
}

func (p *parser) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d of the diff: %s", p.at+1, fmt.Sprintf(format, args...))
}

// file reads the header of a file and its hunks.
func (p *parser) file() error {
	f, err := p.header()
	if err != nil {
		return err
	}
	for _, other := range p.patch.Files {
		if other.Path == f.Path {
			return p.errorf("%s is changed twice; write all its hunks below one header", f.Path)
		}
	}
	p.at += 2
	for p.at < len(p.lines) && strings.HasPrefix(p.lines[p.at], "@@ -") {
		h, err := p.hunk()
		if err != nil {
			return err
		}
		if f.New && (len(h.old) > 0 || len(f.hunks) > 0) {
			return fmt.Errorf("line %d of the diff: the new file %s has old lines or several hunks", h.at, f.Path)
		}
		f.hunks = append(f.hunks, h)
	}
	if len(f.hunks) == 0 {
		return p.errorf("%s has no hunks", f.Path)
	}
	p.patch.Files = append(p.patch.Files, f)
	return nil
}

const noFile = "/dev/null"

// header reads the lines --- and +++.
func (p *parser) header() (File, error) {
	before, after := fileName(p.lines[p.at]), fileName(p.lines[p.at+1])
	if after == noFile {
		return File{}, p.errorf("a patch changes and adds files; it must not delete %s", show(before))
	}
	isNew := before == noFile
	gitBefore, isGit := strings.CutPrefix(before, "a/")
	if gitAfter, ok := strings.CutPrefix(after, "b/"); ok && (isGit || isNew) {
		before, after = gitBefore, gitAfter
	}
	if !isNew && before != after {
		return File{}, p.errorf("%s becomes %s: a patch must not rename a file", show(before), show(after))
	}
	p.at++ // the path is in the line +++
	defer func() { p.at-- }()
	switch {
	case strings.HasPrefix(after, `"`) || strings.ContainsFunc(after, unicode.IsControl) || strings.Contains(after, `\`):
		return File{}, p.errorf("the path %s has quotes, backslashes or control characters", show(after))
	case path.IsAbs(after):
		return File{}, p.errorf("the path %s is absolute; want a path relative to the kernel's folder", show(after))
	}
	clean := strings.TrimPrefix(after, "./")
	if !fs.ValidPath(clean) || clean == "." {
		return File{}, p.errorf("the path %s does not name a file of the kernel's folder", show(after))
	}
	return File{Path: clean, New: isNew}, nil
}

// fileName is the path of a line --- or +++, without the time that diff writes behind a tab.
func fileName(line string) string {
	name, _, _ := strings.Cut(line[len("--- "):], "\t")
	return strings.TrimRight(name, " \r\n")
}

// show quotes foreign text for a message.
func show(text string) string {
	if runes := []rune(text); len(runes) > 80 {
		text = string(runes[:80]) + "…"
	}
	return strconv.Quote(text)
}

var hunkHeader = regexp.MustCompile(`^@@ -(\d{1,9})(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@`)

// hunk reads a hunk. The numbers of its header decide where it ends.
func (p *parser) hunk() (hunk, error) {
	m := hunkHeader.FindStringSubmatch(p.lines[p.at])
	if m == nil {
		return hunk{}, p.errorf("%s is not a header such as @@ -10,4 +10,5 @@", show(strings.TrimRight(p.lines[p.at], "\r\n")))
	}
	h := hunk{at: p.at + 1, start: number(m[1], 0)}
	oldCount, newCount := number(m[2], 1), number(m[3], 1)
	p.at++
	for len(h.old) < oldCount || len(h.new) < newCount {
		if p.at == len(p.lines) || !h.add(p.lines[p.at]) {
			return hunk{}, p.errorf("the hunk of line %d ends after %d of %d old and %d of %d new lines",
				h.at, len(h.old), oldCount, len(h.new), newCount)
		}
		p.at++
	}
	if len(h.old) > oldCount || len(h.new) > newCount {
		return hunk{}, p.errorf("the hunk of line %d has more lines than its header says: %d old and %d new", h.at, oldCount, newCount)
	}
	if p.at < len(p.lines) && p.lines[p.at][0] == '\\' {
		h.cutNewline()
		p.at++
	}
	h.text = strings.Join(p.lines[h.at-1:p.at], "")
	if !strings.HasSuffix(h.text, "\n") {
		h.text += "\n"
	}
	if p.at < len(p.lines) && strings.ContainsRune(" +-", rune(p.lines[p.at][0])) && !p.atFile() {
		return hunk{}, p.errorf("the hunk of line %d has more lines than its header says: %d old and %d new", h.at, oldCount, newCount)
	}
	return h, nil
}

func number(text string, missing int) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return missing
	}
	return n
}
