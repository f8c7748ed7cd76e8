package toolchain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"k.cu(3): error: identifier \"y\" is undefined\n    y;\n    ^\n\n1 error detected\n":     `k.cu:3: identifier "y" is undefined`,
		"k.cu(2): warning #177-D: variable \"x\" was declared\n\nk.cu(9): error #20: no\n":       "k.cu:9: no",
		"k.cu(1): catastrophic error: cannot open source file \"x.h\"\n":                         `k.cu:1: cannot open source file "x.h"`,
		"/opt/cuda/include/vector.h(86): error: expected an identifier\n":                        "vector.h:86: expected an identifier",
		"ptxas error   : Entry function 'k' uses too much shared data (0x1 bytes)\n":             "Entry function 'k' uses too much shared data (0x1 bytes)",
		"ptxas k.ptx, line 12; error   : Unknown symbol\nptxas fatal   : Ptx assembly aborted\n": "Unknown symbol",
		"nvcc fatal   : Value 'c++99' is not defined for option 'std'\n":                         "Value 'c++99' is not defined for option 'std'",
		"\nsomething else\nfailed\n": "something else",
		"":                           "",
	} {
		if got := (&CompileError{Output: output}).Summary(); got != want {
			t.Errorf("%q: %q; want %q", output, got, want)
		}
	}
}

// A knob with the name of a template parameter breaks the headers of the compiler.
func TestAdvice(t *testing.T) {
	t.Parallel()
	header := filepath.Join(t.TempDir(), "runtime.h")
	if err := os.WriteFile(header, []byte("#pragma once\ntemplate <typename TILE> void f(TILE **p);\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	advice := func(file string, line string, include string, knobs map[string]int) string {
		e := &CompileError{Output: file + "(" + line + "): error: expected an identifier\n", Target: Target{Knobs: knobs}}
		if include != "" {
			e.Target.Include = []string{include}
		}
		if text := e.Advice(); text != "" && !strings.HasSuffix(e.Error(), "\n"+text) {
			t.Errorf("the error has no advice: %v", e)
		}
		return e.Advice()
	}
	const tile = "the knob TILE is a macro (-DTILE=16) and reaches this header; give it a longer name"
	for _, c := range []struct {
		file, line, include string
		knobs               map[string]int
		want                string
	}{
		{header, "2", "", map[string]int{"A": 1, "TILE": 16}, tile},
		{header, "1", "", map[string]int{"T": 4, "TILE": 16}, "the knob T is a macro (-DT=4) and reaches this header; give it a longer name"},
		{header, "1", "", map[string]int{"TILE": 16}, ""},
		{header, "99", "", map[string]int{"TILE": 16}, ""},
		{header + "pp", "2", "", map[string]int{"TILE": 16}, ""},
		{"k.cu", "2", "", map[string]int{"T": 16}, ""},
		{header, "2", filepath.Dir(header), map[string]int{"TILE": 16}, ""},
	} {
		if got := advice(c.file, c.line, c.include, c.knobs); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// nvcc does not expand macros in pragmas.
func TestAdviceOnPragma(t *testing.T) {
	t.Parallel()
	e := &CompileError{
		Output: "k.cu(3): error: identifier \"UNROLL\" is undefined\n  #pragma unroll UNROLL\n                 ^\n\n1 error detected.\n",
		Target: Target{Knobs: map[string]int{"UNROLL": 4}},
	}
	const want = "nvcc does not expand the macro of the knob UNROLL in #pragma; name a constant: constexpr int unroll = UNROLL; #pragma unroll unroll"
	if got := e.Advice(); got != want || !strings.HasSuffix(e.Error(), "\n"+want) {
		t.Errorf("%q", got)
	}
	e.Target.Knobs = map[string]int{"TILE": 4}
	if got := e.Advice(); got != "" {
		t.Errorf("for another name: %q", got)
	}
	e.Target.Knobs, e.Output = map[string]int{"UNROLL": 4}, "k.cu(3): error: identifier \"UNROLL\" is undefined\n  x = UNROLL;\n"
	if got := e.Advice(); got != "" {
		t.Errorf("outside of a pragma: %q", got)
	}
}
