package ci

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Series are the times of one implementation on one shape.
type Series struct {
	Kernel         string // empty for attention
	Shape, Variant string
	Seconds        []float64 // of one launch each
}

// Config is a line of configuration above the benchmarks. A key has lower-case letters only.
type Config struct{ Key, Value string }

// Benchmarks writes samples in the format of Go's benchmarks, a line each, for
// `benchstat -col /variant FILE`.
func Benchmarks(w io.Writer, config []Config, all []Series) error {
	out := &strings.Builder{}
	for _, c := range config {
		if value := strings.TrimSpace(oneLine(c.Value)); value != "" {
			fmt.Fprintf(out, "%s: %s\n", c.Key, value)
		}
	}
	for _, s := range all {
		name := benchmarkName(s)
		for _, seconds := range s.Seconds {
			fmt.Fprintf(out, "%s 1 %.4f ns/op\n", name, 1e9*seconds)
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func benchmarkName(s Series) string {
	kernel := namePart(s.Kernel)
	if kernel == "" {
		kernel = "Attention"
	}
	first, size := utf8.DecodeRuneInString(kernel)
	name := fmt.Sprintf("Benchmark%c%s/shape=%s/variant=%s", unicode.ToUpper(first), kernel[size:], namePart(s.Shape), namePart(s.Variant))
	// Benchstat takes a number behind a dash at the end for that of the processors.
	return processors.ReplaceAllString(name, "_$1")
}

var processors = regexp.MustCompile(`-(\d+)$`)

// namePart is a part of a benchmark's name. Spaces end the name and slashes a part.
func namePart(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '/' || r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, text)
}
