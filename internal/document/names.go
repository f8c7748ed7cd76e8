package document

import (
	"slices"
	"unicode/utf8"

	"attune/internal/terminal"
)

// maxName is the width of the names in the lines of a command's runs on a narrow terminal. Longer names
// are shortened there, and nowhere else.
const maxName = 24

// RunNames are the names in the first column of RunLine, for the runs of a command.
type RunNames struct {
	width int
	short map[string]string // of the names that are shortened
}

// NewRunNames chooses the names of runs on a screen. A pipe and a wide terminal have them as they are.
// A narrow terminal leaves out a part in which they do not differ, so that no two look the same.
func NewRunNames(names []string, s terminal.Screen) RunNames {
	n := RunNames{}
	for _, name := range names {
		n.width = max(n.width, utf8.RuneCountInString(name))
	}
	if s.Height == 0 || s.Width >= wideScreen || n.width <= maxName {
		return n
	}
	for _, shorten := range []func([]rune) string{keepStart, keepEnds, keepEnd, keepMiddle(names)} {
		if short, ok := shortenAll(names, shorten); ok {
			return RunNames{maxName, short}
		}
	}
	return n
}

// of is the name of a run in its line.
func (n RunNames) of(name string) string {
	if short, ok := n.short[name]; ok {
		return short
	}
	return name
}

// shortenAll shortens the names that are too long, and reports whether different names stay different.
func shortenAll(names []string, shorten func([]rune) string) (short map[string]string, distinct bool) {
	short = map[string]string{}
	taken := map[string]string{}
	for _, name := range names {
		text := name
		if runes := []rune(name); len(runes) > maxName {
			text = shorten(runes)
			short[name] = text
		}
		if other, ok := taken[text]; ok && other != name || utf8.RuneCountInString(text) > maxName {
			return nil, false
		}
		taken[text] = name
	}
	return short, true
}

func keepStart(name []rune) string { return string(name[:maxName-1]) + "…" }

func keepEnd(name []rune) string { return "…" + string(name[len(name)-maxName+1:]) }

func keepEnds(name []rune) string {
	const end = maxName / 2
	return string(name[:maxName-1-end]) + "…" + string(name[len(name)-end:])
}

// keepMiddle keeps the beginning of the part in which the long names differ.
func keepMiddle(names []string) func([]rune) string {
	var long [][]rune
	for _, name := range names {
		if runes := []rune(name); len(runes) > maxName {
			long = append(long, runes)
		}
	}
	first := 0
	for !slices.ContainsFunc(long, func(name []rune) bool { return first >= len(name) || name[first] != long[0][first] }) {
		first++
	}
	return func(name []rune) string {
		const start = 7 // of the stage
		from := max(start, min(first-2, len(name)-(maxName-start-2)))
		return string(name[:start]) + "…" + cut(string(name[from:]), maxName-start-1)
	}
}
