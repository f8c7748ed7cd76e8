package plot

import (
	"math"
	"slices"
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

// TextWidth is the width of a text at a font size, in the widest of the usual fonts.
func TextWidth(text string, size float64, bold bool) float64 {
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
const longestName = 100

// named shortens a name for a finding.
func named(name string) string {
	runes := []rune(plain(name))
	if len(runes) > longestName {
		runes = middleCut(runes, longestName-1)
	}
	return string(runes)
}

// middleCut keeps so many characters of both ends. Names of variants differ at either end.
func middleCut(runes []rune, kept int) []rune {
	head := (kept + 1) / 2
	return slices.Concat(runes[:head], []rune("…"), runes[len(runes)-(kept-head):])
}

// fitName shortens a name to a width, in its middle.
func fitName(name string, width, size float64, bold bool) string {
	return shortened(name, width, size, bold, middleCut)
}

// mostNameLines is how many lines a name may take. Only longer names are shortened.
const mostNameLines = 8

// nameLines breaks a name into lines of a width, if possible before a knob or behind a comma: names of
// variants and shapes differ anywhere, so that none of their characters may be left out.
func nameLines(name string, width, size float64, bold bool) []string {
	var lines []string
	rest := []rune(plain(name))
	for len(rest) > 0 && len(lines) < mostNameLines-1 {
		n := 0
		for n < len(rest) && TextWidth(string(rest[:n+1]), size, bold) <= width {
			n++
		}
		if n == len(rest) {
			break
		}
		cut := max(n, 1)
		for i := n; i > n/2; i-- {
			if rest[i] == '+' || strings.ContainsRune(", /:", rest[i-1]) {
				cut = i
				break
			}
		}
		lines, rest = append(lines, strings.TrimSpace(string(rest[:cut]))), rest[cut:]
	}
	if last := fitName(string(rest), width, size, bold); last != "" || len(lines) == 0 {
		lines = append(lines, last)
	}
	return lines
}

// fit shortens a sentence to a width, at its end.
func fit(text string, width, size float64, bold bool) string {
	return shortened(text, width, size, bold, func(runes []rune, kept int) []rune {
		return []rune(strings.TrimRight(string(runes[:kept]), " ") + "…")
	})
}

// shortened cuts a text until it fits.
func shortened(text string, width, size float64, bold bool, cut func(runes []rune, kept int) []rune) string {
	text = plain(text)
	if TextWidth(text, size, bold) <= width {
		return text
	}
	runes := []rune(text)
	for kept := min(len(runes)-1, 200); kept > 0; kept-- { // no page is wider than 200 characters
		if short := string(cut(runes, kept)); TextWidth(short, size, bold) <= width {
			return short
		}
	}
	return ""
}

// wrap breaks a text into at most so many lines of a width; the last one is shortened.
func wrap(text string, width, size float64, bold bool, most int) []string {
	var lines []string
	var words []string
	for _, word := range strings.Fields(plain(text)) {
		words = append(words, nameLines(word, width, size, bold)...)
	}
	for len(words) > 0 && len(lines) < most {
		line, used := words[0], 1
		for used < len(words) && TextWidth(line+" "+words[used], size, bold) <= width {
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
	case size >= 1e10 || size < 1e-3:
		return exponential(v, digits)
	}
	decimals := max(0, digits-1-int(math.Floor(math.Log10(size))))
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// shortExponent writes 1e+06 as 1e6.
var shortExponent = strings.NewReplacer("e+0", "e", "e+", "e", "e-0", "e-")

// exponential formats a value that may need an exponent.
func exponential(v float64, digits int) string {
	return shortExponent.Replace(strconv.FormatFloat(v, 'g', digits, 64))
}

// whole formats a size, which is a whole number as a rule.
func whole(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e7 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return number(v, 4)
}

// quantity is a value and its unit, with two decimals as times in tables.
func quantity(v float64, unit string) string {
	if !finite(v) {
		return number(v, 4)
	}
	return strings.TrimSpace(decimal(v, 2) + " " + unit)
}

// decimal is a value with so many decimals as tables have, or four significant digits if it is small or
// very large.
func decimal(v float64, decimals int) string {
	if size := math.Abs(v); size >= 0.1 && size < 1e7 {
		return strconv.FormatFloat(v, 'f', decimals, 64)
	}
	return number(v, 4)
}

// factor is a ratio.
func factor(v float64, decimals int) string { return decimal(v, decimals) + "x" }
