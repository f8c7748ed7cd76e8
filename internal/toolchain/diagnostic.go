package toolchain

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// diagnostic is an error of the compiler.
type diagnostic struct {
	file string // as the compiler names it; empty for an error without a place
	line int
	text string
}

// An error of nvcc's front end, and one of ptxas or nvcc itself.
var (
	placedError = regexp.MustCompile(`^(\S.*?)\((\d+)\): (?:catastrophic |fatal )?error(?: #[\w-]+)?: (.+)$`)
	otherError  = regexp.MustCompile(`^.*?\b(?:error|fatal)\s*: (.+)$`)
)

// firstDiagnostic finds the first error in the output of the compiler. Without one it is the first
// line of the output.
func firstDiagnostic(output string) diagnostic {
	var other diagnostic
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if m := placedError.FindStringSubmatch(line); m != nil {
			number, _ := strconv.Atoi(m[2]) // digits
			return diagnostic{m[1], number, m[3]}
		}
		if m := otherError.FindStringSubmatch(line); m != nil && other.text == "" {
			other.text = m[1]
		}
	}
	if other.text == "" {
		other.text, _, _ = strings.Cut(strings.TrimSpace(output), "\n")
	}
	return other
}

// Summary is the first error of the compiler in one line, such as "k.cu:3: expected a declaration".
// A header of the compiler is named without its folder.
func (e *CompileError) Summary() string {
	d := firstDiagnostic(e.Output)
	if d.file == "" {
		return d.text
	}
	if filepath.IsAbs(d.file) {
		d.file = filepath.Base(d.file)
	}
	return fmt.Sprintf("%s:%d: %s", d.file, d.line, d.text)
}

// shortKnob is the length up to which the name of a knob is likely to occur in headers.
const shortKnob = 2

// unexpanded finds the source line of an error in a pragma, which the compiler prints below it.
var unexpanded = regexp.MustCompile(`identifier "(\w+)" is undefined\s+#pragma\b`)

// Advice says what is likely the cause of the first error, if that is a knob: nvcc does not expand its
// macro in a pragma, or the macro reaches a header of the compiler. It is empty otherwise.
func (e *CompileError) Advice() string {
	if m := unexpanded.FindStringSubmatch(e.Output); m != nil {
		if _, isKnob := e.Target.Knobs[m[1]]; isKnob {
			return fmt.Sprintf("nvcc does not expand the macro of the knob %s in #pragma; name a constant: constexpr int unroll = %s; #pragma unroll unroll", m[1], m[1])
		}
	}
	d := firstDiagnostic(e.Output)
	if !filepath.IsAbs(d.file) || within(filepath.Clean(d.file), e.Target.Include...) {
		return "" // the sources of a kernel are named relative to its folder
	}
	names := slices.Sorted(maps.Keys(e.Target.Knobs))
	at := slices.IndexFunc(names, func(name string) bool { return slices.Contains(wordsOf(d), name) })
	if at < 0 {
		at = slices.IndexFunc(names, func(name string) bool { return len(name) <= shortKnob })
	}
	if at < 0 {
		return ""
	}
	name := names[at]
	return fmt.Sprintf("the knob %s is a macro (-D%s=%d) and reaches this header; give it a longer name", name, name, e.Target.Knobs[name])
}

// notInWords separates the words of C++.
var notInWords = regexp.MustCompile(`\W+`)

// wordsOf are the words on the line of an error. None if the file cannot be read.
func wordsOf(d diagnostic) []string {
	text, err := os.ReadFile(d.file)
	if err != nil {
		return nil
	}
	lines := strings.Split(string(text), "\n")
	if d.line < 1 || d.line > len(lines) {
		return nil
	}
	return notInWords.Split(lines[d.line-1], -1)
}
