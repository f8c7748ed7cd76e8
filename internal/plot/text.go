package plot

import (
	"math"
	"strconv"
	"strings"
	"unicode"
)

// asciiWidths are the advances of DejaVu Sans from U+0020 to U+007E, in hundredths of the font size.
// It is the widest of the usual fonts, so a text that fits in it fits in the others.
var asciiWidths = [...]uint8{
	32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 34, 34, 84, 84, 84, 53,
	100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79, 60, 79, 69, 63, 61, 73, 68, 99, 69, 61, 69, 39, 34, 39, 84, 50,
	50, 61, 63, 55, 63, 62, 35, 63, 63, 28, 28, 58, 28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59, 82, 59, 59, 52, 64, 34, 64, 84,
}

// boldFactor is how much wider bold letters are on average.
const boldFactor = 1.12

// textWidth is the width of a text at a font size.
func textWidth(text string, size float64, bold bool) float64 {
	total := 0
	for _, r := range text {
		if r >= ' ' && int(r) < ' '+len(asciiWidths) {
			total += int(asciiWidths[r-' '])
		} else {
			total += 100
		}
	}
	width := float64(total) / 100 * size
	if bold {
		width *= boldFactor
	}
	return width
}

// plain is a text in one line without control and format characters, which could hide or reorder
// other text.
func plain(text string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r):
			return ' '
		case unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r) || r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, text)), " ")
}

// longestName is the length of a name in a finding, in characters.
const longestName = 60

// named shortens a name for a finding.
func named(name string) string {
	name = plain(name)
	if runes := []rune(name); len(runes) > longestName {
		return string(runes[:longestName-1]) + "…"
	}
	return name
}

// fit shortens a text to a width.
func fit(text string, width, size float64, bold bool) string {
	text = plain(text)
	if textWidth(text, size, bold) <= width {
		return text
	}
	runes := []rune(text)
	if len(runes) > 400 { // no page is as wide
		runes = runes[:400]
	}
	for len(runes) > 0 {
		runes = runes[:len(runes)-1]
		short := strings.TrimRight(string(runes), " ") + "…"
		if textWidth(short, size, bold) <= width {
			return short
		}
	}
	return ""
}

// wrap breaks a text into at most so many lines of a width; the last one is shortened.
func wrap(text string, width, size float64, bold bool, most int) []string {
	var lines []string
	words := strings.Fields(plain(text))
	for len(words) > 0 && len(lines) < most {
		line, used := words[0], 1
		for used < len(words) && textWidth(line+" "+words[used], size, bold) <= width {
			line, used = line+" "+words[used], used+1
		}
		if len(lines) == most-1 && used < len(words) {
			line = strings.Join(words, " ")
		}
		lines, words = append(lines, fit(line, width, size, bold)), words[used:]
	}
	return lines
}

// finite reports whether a value can be drawn. Sums and differences of larger ones overflow.
func finite(v float64) bool { return !math.IsNaN(v) && math.Abs(v) <= 1e300 }

// number formats a value with so many significant digits.
func number(v float64, digits int) string {
	if !finite(v) {
		return "not measured"
	}
	size := math.Abs(v)
	switch {
	case v == 0:
		return "0"
	case size >= 1e6 || size < 1e-3:
		return strconv.FormatFloat(v, 'g', digits, 64)
	}
	decimals := max(0, digits-1-int(math.Floor(math.Log10(size))))
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// quantity is a value with four significant digits and its unit.
func quantity(v float64, unit string) string { return strings.TrimSpace(number(v, 4) + " " + unit) }

// ratio says how fast b is, of two times: "1.78x as fast as".
func ratio(a, b float64) string { return number(a/b, 3) + "x as fast as" }
