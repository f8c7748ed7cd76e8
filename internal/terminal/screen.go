package terminal

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// Screen describes where text is shown.
type Screen struct {
	Width  int  // in columns
	Height int  // in lines; 0 for what is not a terminal
	Colour bool // the screen shows colours
}

const (
	defaultWidth, defaultHeight = 80, 24
	minWidth                    = 20 // narrower screens count as this wide
)

// ColourMode is the value of the flag --color.
type ColourMode string

// The modes. ColourAuto is colour on a terminal, unless NO_COLOR is set.
const (
	ColourAuto   ColourMode = "auto"
	ColourAlways ColourMode = "always"
	ColourNever  ColourMode = "never"
)

// Set parses a mode. With String and Type it makes *ColourMode a flag.
func (m *ColourMode) Set(text string) error {
	switch mode := ColourMode(text); mode {
	case ColourAuto, ColourAlways, ColourNever:
		*m = mode
		return nil
	}
	return fmt.Errorf("there are %s, %s and %s", ColourAuto, ColourAlways, ColourNever)
}

func (m *ColourMode) String() string { return string(*m) }

// Type is the flag's placeholder in a help page.
func (m *ColourMode) Type() string { return "when" }

// ScreenOf describes the screen of w. The environment variable COLUMNS overrides the width of a
// terminal, and the default width of what is not a terminal.
func ScreenOf(w io.Writer, mode ColourMode) Screen {
	s := Screen{Width: defaultWidth, Colour: mode == ColourAlways}
	if width, height, ok := terminalSize(w); ok {
		s.Width, s.Height = width, height
		if mode == ColourAuto || mode == "" {
			s.Colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		}
	}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		s.Width = columns
	}
	s.Width = max(s.Width, minWidth)
	return s
}

// terminalSize is the size of w if w is a terminal. A terminal that does not know it counts as an
// old one.
func terminalSize(w io.Writer) (width, height int, ok bool) {
	file, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(file.Fd()))
	if err != nil || width < 10 || height < 1 {
		width, height = defaultWidth, defaultHeight
	}
	return width, height, true
}

// Colour is a colour of text. The zero value is the terminal's own.
type Colour string

// The colours, as parameters of the escape sequence "select graphic rendition".
const (
	Plain  Colour = ""
	Bold   Colour = "1"
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
)

// Paint colours a text if the screen shows colours.
func (s Screen) Paint(c Colour, text string) string {
	if !s.Colour || c == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}

var escapePattern = regexp.MustCompile("\x1b\\[[0-9]*m")

// Paragraph writes a text wrapped to the width of the screen. The first line has a margin, which
// may be coloured text, and the others are indented by hang columns.
func (s Screen) Paragraph(w io.Writer, margin, text string, hang int) {
	hang = max(0, min(hang, s.Width/2))
	plain := escapePattern.ReplaceAllString(margin, "")
	first := utf8.RuneCountInString(plain)
	if first > s.Width/2 { // too little room beside the margin
		for _, line := range Wrap(plain, s.Width) {
			fmt.Fprintln(w, line)
		}
		margin, first = strings.Repeat(" ", hang), hang
	}
	for i, line := range wrapFrom(text, s.Width-first, s.Width-hang) {
		if i > 0 {
			margin = strings.Repeat(" ", hang)
		}
		fmt.Fprintln(w, strings.TrimRight(margin+line, " "))
	}
}

// Wrap breaks a text into lines of at most width runes, between words where it can. It keeps the
// spaces at the beginning. A word that is wider than a line is broken after punctuation, else
// anywhere. A command of attune in backticks is never broken, so that it can be copied: it has a line
// of its own where it does not fit. Nor is a text that is one command in backticks, of any program.
func Wrap(text string, width int) []string { return wrapFrom(text, width, width) }

// wrapFrom breaks a text into a line of one width and further lines of another.
func wrapFrom(text string, first, rest int) []string {
	var lines []string
	width := max(first, 1)
	line := []rune(text)
	if strings.HasPrefix(text, "`") && strings.IndexByte(text[1:], '`') == len(text)-2 && len(line) <= longestCommand {
		return []string{text}
	}
	for len(line) > width {
		end, next := breakAt(line, width)
		if from, to, found := commandAt(line, end); found {
			if end, next = outside(line, from, to); next == len(line) {
				break
			}
		}
		lines = append(lines, strings.TrimRight(string(line[:end]), " "))
		line = line[next:]
		width = max(rest, 1)
	}
	return append(lines, strings.TrimRight(string(line), " "))
}

// A command begins with command, and is broken only if it has more than longestCommand runes.
const (
	command        = "`attune "
	longestCommand = 1000
)

// commandAt finds the command that a break at a place would break: from its first backtick, up to the
// word behind its last one.
func commandAt(line []rune, at int) (from, to int, found bool) {
	for {
		before := string(line[from:min(len(line), at+len(command)-1)])
		begin := strings.Index(before, command)
		if begin < 0 {
			return 0, 0, false
		}
		from += utf8.RuneCountInString(before[:begin])
		near := line[:min(len(line), from+longestCommand)]
		last := slices.Index(near[from+1:], '`')
		if last < 0 {
			return 0, 0, false
		}
		for to = from + 1 + last; to < len(line) && line[to] != ' '; {
			to++
		}
		if at < to {
			return from, to, true
		}
		from = to
	}
}

// outside is the break before a command, or behind one that begins its line.
func outside(line []rune, from, to int) (end, next int) {
	if strings.TrimSpace(string(line[:from])) != "" {
		return from, from
	}
	for next = to; next < len(line) && line[next] == ' '; {
		next++
	}
	return to, next
}

// breakAt is where a line longer than width ends, and where the next begins.
func breakAt(line []rune, width int) (end, next int) {
	begin := 0 // of the first word
	for begin < width && line[begin] == ' ' {
		begin++
	}
	for at := width; at > begin; at-- {
		if line[at] == ' ' {
			for next = at; next < len(line) && line[next] == ' '; {
				next++
			}
			return at, next
		}
	}
	for _, marks := range []string{"+,;", "/:=", "-_"} { // in the order of preference
		for at := width; at > max(begin, width/3); at-- {
			if strings.ContainsRune(marks, line[at-1]) {
				return at, at
			}
		}
	}
	return width, width
}
