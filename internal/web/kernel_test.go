package web

import (
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
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
	for text, want := range map[string][]place{
		inlined: {{"k.cu", 26}, {"k.cu", 23}},
		"race at k.cu:26 (ptx:1) with k.cu:26 (ptx:2)": {{"k.cu", 26}},
		"an output was not written":                    {{"k.cu", 9}},
		"k.cu:99999999999999999999 (ptx:1)":            {{"k.cu", 9}},
	} {
		if got := placesOf(device.Finding{Text: text, File: "k.cu", Line: 9}); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	inHeader := device.Finding{
		Text: "race at ../sdpa/ptx.cuh:7 (ptx:255, called from k.cu:65) with k.cu:23 (ptx:234) (105 times): thread 0", File: "k.cu", Line: 65,
		Inner: &device.Place{File: "../sdpa/ptx.cuh", Line: 7, Callers: []device.Place{{File: "k.cu", Line: 65}}},
		Other: &device.Place{File: "k.cu", Line: 23},
	}
	if got, want := placesOf(inHeader), []place{{"k.cu", 65}, {"k.cu", 23}}; !slices.Equal(got, want) {
		t.Errorf("in a header of another folder: %v, want %v", got, want)
	}
	if got := placesOf(device.Finding{Text: "no place"}); got != nil {
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
