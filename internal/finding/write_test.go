package finding

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"attune/internal/ptx"
	"attune/internal/terminal"
)

const tileSource = "#include \"load.cuh\"\n" +
	"\t\ttile[i] = x[i]; if (late) tile[i] = 0;\n" +
	"    float next = load(tile, 63 - i);\n"

func tileSources(file string) []byte {
	if file == "tile.cu" {
		return []byte(tileSource)
	}
	return nil
}

// tileRace is a race of a line of the kernel and one in a header of another folder.
func tileRace() Finding {
	return Finding{
		Kind: Race, Severity: Error, Count: 64, Missing: BlockSync,
		Where: Place{PTXLine: 44, PTX: "st.shared.f32 \t[%r5], %f1", Source: "tile.cu:2", File: "tile.cu", Line: 2, Column: 29},
		Other: &Place{
			PTXLine: 52, PTX: "ld.shared.f32 %f2, [%r9]", Source: "../load.cuh:7, called from tile.cu:3", File: "../load.cuh", Line: 7, Column: 9,
			Callers: []ptx.Frame{{File: "tile.cu", Line: 3, Column: 18}},
		},
		Variable: Variable{Name: "tile", Space: Shared, Bytes: 256, Offset: 128, ElementBytes: 4},
		Detail: "thread 32 of block [0 0 0]: writes 4 bytes at 0x480 of .shared, which thread 31 read; " +
			"nothing orders the two (warps need a barrier)",
	}
}

func shown(f Finding, form Form) string {
	var out strings.Builder
	f.Write(&out, form)
	return out.String()
}

func TestWrite(t *testing.T) {
	form := Form{Screen: terminal.Screen{Width: 80}, Sources: tileSources, Indent: "  "}
	check := func(name string, f Finding, form Form, want string) {
		t.Helper()
		if d := cmp.Diff(want, shown(f, form)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	check("a race", tileRace(), form, `  error: race on shared variable tile, element 32: two accesses that nothing
    orders
    tile.cu:2 (64 times)
         2 | tile[i] = x[i]; if (late) tile[i] = 0;
           |                           ^
    tile.cu:3, in ../load.cuh:7
         3 | float next = load(tile, 63 - i);
           |              ^
    thread 32 of block [0 0 0]: writes 4 bytes at 0x480 of .shared, which thread
      31 read
    help: add __syncthreads() between the two
`)
	// One function, inlined twice: there is a barrier between its own lines, and none between the calls.
	twice := tileRace()
	twice.Where.Callers = []ptx.Frame{{File: "tile.cu", Line: 29}}
	twice.Other = &Place{PTXLine: 52, File: "tile.cu", Line: 3, Callers: []ptx.Frame{{File: "tile.cu", Line: 32}}}
	check("two calls", twice, form, `  error: race on shared variable tile, element 32: two accesses that nothing
    orders
    tile.cu:2, called from tile.cu:29 (64 times)
         2 | tile[i] = x[i]; if (late) tile[i] = 0;
           |                           ^
    tile.cu:3, called from tile.cu:32
         3 | float next = load(tile, 63 - i);
           | ^
    thread 32 of block [0 0 0]: writes 4 bytes at 0x480 of .shared, which thread
      31 read
    help: add __syncthreads() between the two
`)
	twice.Other.Line = 2
	if text := shown(twice, form); !strings.Contains(text, "called from tile.cu:32") {
		t.Errorf("the second call of the same line is not shown:\n%s", text)
	}
	verbose := form
	verbose.Verbose, verbose.Sources, verbose.Indent, verbose.Screen.Width = true, nil, "", 100
	check("verbose, without sources", tileRace(), verbose, `error: race on shared variable tile, element 32: two accesses that nothing orders
  tile.cu:2 (ptx:44): st.shared.f32 [%r5], %f1 (64 times)
  ../load.cuh:7 (ptx:52, called from tile.cu:3): ld.shared.f32 %f2, [%r9]
  thread 32 of block [0 0 0]: writes 4 bytes at 0x480 of .shared, which thread 31 read
  nothing orders the two (warps need a barrier)
  help: add __syncthreads() between the two
`)
	plain := Form{Screen: terminal.Screen{Width: 100}}
	check("an instruction without a source line", Finding{
		Kind: OutOfBounds, Severity: Strict, Launch: Launch{Relaunch: 2, Schedule: 3}, Count: 2, Where: Place{PTXLine: 13, PTX: "ld.global.u32 %r1, [%rd2]"},
		Variable: Variable{Space: Argument, Index: 1, Bytes: 32, Offset: -8, ElementBytes: 4}, Detail: "thread 2 of block [0 0 0]: reads 4 bytes",
	}, plain, `strict: out-of-bounds on argument 1, element -2 of 8: an access outside of any buffer or variable;
  it works on hardware
  ptx:13: ld.global.u32 %r1, [%rd2] (2 times in relaunch 2, schedule 3)
  thread 2 of block [0 0 0]: reads 4 bytes
  help: check the index against the extent of the buffer
`)
	buffer := Of(Unwritten, Variable{Name: "y", Space: Argument, Index: 2}, `argument 2 "y": 4 of 8 bytes never written`)
	on := plain
	on.On = "1x8x512x64 seed 0 and 5 more"
	check("a buffer", buffer, on, `error: unwritten on argument y: parts of an output were not written
  argument 2 "y": 4 of 8 bytes never written (once, on 1x8x512x64 seed 0 and 5 more)
  help: check the grid and the guards of the last block
`)
	check("control characters", New("memcheck", "an\x1b[31m\n::error::x"), plain, "error: memcheck\n  an [31m ::error::x (once)\n")
	same := tileRace()
	same.Other = &same.Where
	if text := shown(same, form); strings.Count(text, "tile.cu:2") != 1 {
		t.Errorf("both places on one line:\n%s", text)
	}
	coloured := form
	coloured.Screen.Colour = true
	if text := shown(tileRace(), coloured); !strings.HasPrefix(text, "  \x1b[31merror:\x1b[0m race") || strings.Count(text, "\x1b[31m^\x1b[0m") != 2 {
		t.Errorf("coloured: %q", text)
	}
}

// TestWriteIsShort checks that no finding takes more than 11 lines or is wider than the screen.
func TestWriteIsShort(t *testing.T) {
	long := strings.Repeat("a_very_long_name/", 12)
	sources := func(string) []byte { return []byte(strings.Repeat("\t"+strings.Repeat("word ", 60)+"\n", 9)) }
	for _, kind := range AllKinds() {
		for _, width := range []int{40, 80, 120} {
			f := tileRace()
			f.Kind, f.Where.File, f.Variable.Name, f.Detail = kind, long+"k.cu", "tile", strings.Repeat("a detail of many words ", 20)
			text := shown(f, Form{Screen: terminal.Screen{Width: width}, Indent: "      ", Sources: sources, On: long})
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			if len(lines) > 11 {
				t.Errorf("%s, %d columns: %d lines\n%s", kind, width, len(lines), text)
			}
			for _, line := range lines {
				if utf8.RuneCountInString(line) > width || strings.TrimRight(line, " ") != line {
					t.Errorf("%s, %d columns: %q", kind, width, line)
				}
			}
		}
	}
}

// TestMarks checks that a mark is at the start of a word, or else at the start of the line.
func TestMarks(t *testing.T) {
	const line = "\tü = ab;" // columns count bytes
	for column := range 12 {
		want := 0
		if column == 1+strings.Index(line, "ab") {
			want = 4
		}
		at, _ := Place{File: "k.cu", Line: 1, Column: column, Excerpt: line}.located(false)
		w := &writer{Form: Form{Screen: terminal.Screen{Width: 80}}}
		w.excerpt(at)
		if got := w.lines[1]; got != fmt.Sprintf("%8s | %*s^", "", want, "") {
			t.Errorf("column %d: %q", column, got)
		}
	}
}

// TestExplanations checks that every kind says what it means and what to do.
func TestExplanations(t *testing.T) {
	for _, k := range append(AllKinds(), TimedOutputDiffers, RemembersResults) {
		if k.Short() == "" || !strings.HasSuffix(k.Help(), ".") || New(k, "").Remedy() == "" {
			t.Errorf("%s: %q, %q, %q", k, k.Short(), k.Help(), New(k, "").Remedy())
		}
	}
	for _, s := range []Sync{WarpSync, BlockSync, DeviceSync, ClusterSync, CopyWait, BulkWait, ProductWait, ProductFence, ProxyFence} {
		if (Finding{Kind: Race, Missing: s}).Remedy() == "" {
			t.Errorf("%s has no remedy", s)
		}
	}
}
