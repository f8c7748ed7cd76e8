package web

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"attune/internal/finding"
	"attune/internal/ptx"
)

func TestLocatePTX(t *testing.T) {
	t.Parallel()
	lines := locatePTX("// head\n.entry k()\n{\n\t.loc\t1 26 0\n\tadd.s32 %r1, %r2, 1;\n\t.reg .b32 %r<3>;\n\t.loc\t2 7 3, function_name $L, inlined_at 1 30 3\n" +
		"$L__BB0:\n\t@%p1 bra $L__BB0;\n\tret;\n}\n\t.file\t1 \"a.cu\"\n\t.file\t2 \"sub/b.cuh\"\n")
	var got []string
	for _, l := range lines {
		if l.Line > 0 {
			got = append(got, l.File+":"+string(rune('0'+l.Line%10))+" "+strings.Fields(l.Text)[0])
		}
	}
	if want := []string{"a.cu:6 add.s32", "sub/b.cuh:7 @%p1", "sub/b.cuh:7 ret;"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPlacesOfFindings(t *testing.T) {
	t.Parallel()
	const inlined = "race at k.cu:65 in k.cu:52 in k.cu:26 (ptx:255) with k.cu:65 in k.cu:23 (ptx:234) (105 times): thread 0"
	places := func(members string) []ptx.Frame {
		t.Helper()
		var f finding.Finding
		if err := json.Unmarshal([]byte(`{"kind":"race",`+members+`}`), &f); err != nil {
			t.Fatal(err)
		}
		return placesOf(f)
	}
	at := func(lines ...int) []ptx.Frame {
		var all []ptx.Frame
		for _, line := range lines {
			all = append(all, ptx.Frame{File: "k.cu", Line: line})
		}
		return all
	}
	for text, want := range map[string][]ptx.Frame{
		inlined: at(26, 23),
		"race at k.cu:26 (ptx:1) with k.cu:26 (ptx:2) (once): x":   at(26),
		"an output was not written":                                at(9),
		"race at k.cu:99999999999999999999 (ptx:1) (once): thread": at(9),
	} {
		if got := places(fmt.Sprintf(`"text":%q,"file":"k.cu","line":9`, text)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	inHeader := `"text":"race at ../sdpa/ptx.cuh:7 (ptx:255, called from k.cu:65) with k.cu:23 (ptx:234) (105 times): thread 0","file":"k.cu","line":65,` +
		`"inner":{"file":"../sdpa/ptx.cuh","line":7,"callers":[{"file":"k.cu","line":65}]},"other":{"file":"k.cu","line":23}`
	if got := places(inHeader); !slices.Equal(got, at(65, 23)) {
		t.Errorf("in a header of another folder: %v", got)
	}
	if got := places(`"text":"no place"`); got != nil {
		t.Errorf("no place: %v", got)
	}
}

func TestSameFile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		recorded, file string
		want           bool
	}{
		{"ladder/sdpa.cu", "ladder/sdpa.cu", true},
		{"sdpa.cu", "ladder/sdpa.cu", true},
		{"other/sdpa.cu", "ladder/sdpa.cu", false},
		{"", "", false},
		{"../sdpa/ptx.cuh", "ptx.cuh", false},
	} {
		if got := sameFile(c.recorded, c.file); got != c.want {
			t.Errorf("sameFile(%q, %q) is %v", c.recorded, c.file, got)
		}
	}
}
