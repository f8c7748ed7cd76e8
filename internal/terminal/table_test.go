package terminal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func written(table Table, s Screen) string {
	var out bytes.Buffer
	table.Write(&out, s)
	return out.String()
}

func someTable() Table {
	return Table{
		Columns: []Column{
			{Name: "shape"},
			{Name: "seed"},
			{Name: "p50 us", Keep: true},
			{Name: "missing", Keep: true},
			{Name: "limit of the error", Optional: 1},
			{Name: "why", Wrap: true},
		},
		Rows: [][]string{
			{"1x8x512x64", "0", "12.30", "-", "0.004", "the kernel is faster than its parent"},
			{"2x3x33x64:causal", "0", "3.45", "-", "0.0005", "short"},
		},
		Notes: [][]string{nil, {"stage2"}},
	}
}

func TestTable(t *testing.T) {
	check := func(width int, want string) {
		t.Helper()
		if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), written(someTable(), Screen{Width: width})); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", width, diff)
		}
	}
	check(100, `
seed 0
shape             p50 us  limit of the error  why
1x8x512x64         12.30               0.004  the kernel is faster than its parent
2x3x33x64:causal    3.45              0.0005  short
    stage2
`)
	check(60, `
seed 0
shape               p50   limit  why
                     us  of the
                          error
1x8x512x64        12.30   0.004  the kernel is faster than
                                 its parent
2x3x33x64:causal   3.45  0.0005  short
    stage2
`)
	check(45, `
seed 0
shape               p50  why
                     us
1x8x512x64        12.30  the kernel is faster
                         than its parent
2x3x33x64:causal   3.45  short
    stage2
`)
	check(26, `
seed 0
shape             p50 us
1x8x512x64         12.30
2x3x33x64:causal    3.45
    stage2

shape         why
1x8x512x64    the kernel
              is faster
              than its
              parent
2x3x33x64:    short
causal
`)
}

// A single row keeps its columns, and a table without names has no heading.
func TestSmallTables(t *testing.T) {
	table := someTable()
	table.Rows, table.Notes = table.Rows[:1], nil
	if got := written(table, Screen{Width: 100}); !strings.Contains(got, "seed") || strings.Contains(got, "missing") || strings.Count(got, "\n") != 2 {
		t.Errorf("one row:\n%s", got)
	}
	table.Rows = nil
	if got := written(table, Screen{Width: 100}); strings.Count(got, "\n") != 1 {
		t.Errorf("no rows:\n%s", got)
	}
	plain := Table{Indent: 2, Columns: []Column{{}, {Wrap: true}}, Rows: [][]string{{"yes", "one\ntwo three"}, {"no", "four"}}}
	if got := written(plain, Screen{Width: 100}); got != "  yes  one\n       two three\n  no   four\n" {
		t.Errorf("got\n%s", got)
	}
}

// Colours do not change the layout.
func TestColouredTable(t *testing.T) {
	table := someTable()
	table.Columns[0].Colour = func(cell string) Colour {
		if strings.HasSuffix(cell, "causal") {
			return Red
		}
		return Plain
	}
	want := written(table, Screen{Width: 60})
	got := written(table, Screen{Width: 60, Colour: true})
	if !strings.Contains(got, "\x1b[31m2x3x33x64:causal\x1b[0m") || escapePattern.ReplaceAllString(got, "") != want {
		t.Errorf("got\n%q", got)
	}
}

// No table is wider than the screen.
func TestTablesFit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		words := make([]string, random.IntN(6))
		for i := range words {
			words[i] = strings.Repeat("wö", 1+random.IntN(20))
		}
		return strings.Join(words, " ")
	}
	for range 2000 {
		table := Table{Indent: random.IntN(5)}
		for i := range 1 + random.IntN(8) {
			table.Columns = append(table.Columns, Column{Name: text(), Wrap: random.IntN(2) == 0, Optional: random.IntN(3), Keep: i%2 == 0})
		}
		table.Columns[0].Optional = 0
		for range random.IntN(4) {
			var row []string
			for range table.Columns {
				row = append(row, text())
			}
			table.Rows = append(table.Rows, row)
			table.Notes = append(table.Notes, []string{text()})
		}
		width := 20 + random.IntN(100)
		for line := range strings.Lines(written(table, Screen{Width: width})) {
			line = strings.TrimSuffix(line, "\n")
			if n := utf8.RuneCountInString(line); n > width || strings.HasSuffix(line, " ") {
				t.Fatalf("width %d: %d columns: %q of\n%+v", width, n, line, table)
			}
		}
	}
}

func TestNumbersAreAlignedRight(t *testing.T) {
	for cell, want := range map[string]bool{
		"12.3": true, "-1.4 % ±0.2": true, "+0.05 % ±0.01": true, "1.25x": true, "5.26 (102)": true, "0.99 to 1.01": true, "1e-05": true, "12.35 us": true,
		"1.800x (1.790 to 1.812)": true, "14.06 ± 2%": true, "1x8x512x64": false, "stage2": false, "b0 h3 r17 d5": false, "4096 of 8192 rows": false,
	} {
		table := Table{Columns: []Column{{}}, Rows: [][]string{{cell}, {"-"}}}
		if got := table.numeric(0); got != want {
			t.Errorf("%q is a number: %t", cell, got)
		}
	}
	ids := Table{Columns: []Column{{Names: true}}, Rows: [][]string{{"322240"}, {"7014e0"}}}
	if ids.numeric(0) {
		t.Error("ids of digits are numbers")
	}
}

func TestWrap(t *testing.T) {
	check := func(text string, width int, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, Wrap(text, width)); diff != "" {
			t.Errorf("%q at %d: %s", text, width, diff)
		}
	}
	check("", 5, "")
	check("a b", 3, "a b")
	check("`/long/path -m pip`", 5, "`/long/path -m pip`")
	check("ab cd", 4, "ab", "cd")
	check("ab   cd", 4, "ab", "cd")
	check("  ab cd", 5, "  ab", "cd")
	check("äöü äöü", 3, "äöü", "äöü")
	check("abcdefgh", 3, "abc", "def", "gh")
	check("stage2+TILE_N=32+TILE_M=16", 20, "stage2+TILE_N=32+", "TILE_M=16")
	check("/usr/local/bin/attune", 16, "/usr/local/bin/", "attune")
	check("then `attune run a --x 1`, and more", 20, "then", "`attune run a --x 1`,", "and more")
	check("`attune run a --shapes b`", 12, "`attune run a --shapes b`")
	check("`attune a b` or `attune c d`", 16, "`attune a b` or", "`attune c d`")
	check("use `attune run without an end", 12, "use `attune", "run without", "an end")
	check("`a b` or `c d`", 4, "`a", "b`", "or", "`c", "d`")
}

func TestParagraph(t *testing.T) {
	check := func(margin, text string, hang int, want string) {
		t.Helper()
		var out bytes.Buffer
		Screen{Width: 20}.Paragraph(&out, margin, text, hang)
		if out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
	check("", "one", 2, "one\n")
	check("a: ", "one two three four five", 3, "a: one two three\n   four five\n")
	check("a: \x1b[32mb\x1b[0m ", "one two three four", 3, "a: \x1b[32mb\x1b[0m one two three\n   four\n")
	check("a name as long as the line", "text", 4, "a name as long as\nthe line\n    text\n")
}

func TestScreenOf(t *testing.T) {
	check := func(columns string, mode ColourMode, want Screen) {
		t.Helper()
		t.Setenv("COLUMNS", columns)
		if got := ScreenOf(&bytes.Buffer{}, mode); got != want {
			t.Errorf("COLUMNS=%s, --color %s: %+v, want %+v", columns, mode, got, want)
		}
	}
	check("", ColourAuto, Screen{Width: 80})
	check("120", ColourAlways, Screen{Width: 120, Colour: true})
	check("many", ColourNever, Screen{Width: 80})
	check("-3", ColourAuto, Screen{Width: 80})
	check("1", ColourAuto, Screen{Width: 20})
}

func TestColourMode(t *testing.T) {
	mode := ColourAuto
	for _, text := range []string{"always", "never", "auto"} {
		if err := mode.Set(text); err != nil || mode.String() != text {
			t.Errorf("%s: %v, %s", text, err, mode)
		}
	}
	if err := mode.Set("green"); err == nil || fmt.Sprint(err) != "there are auto, always and never" {
		t.Errorf("green: %v", err)
	}
}
