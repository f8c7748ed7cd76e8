package exec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"attune/internal/finding"
	"attune/internal/ptx"
)

// unit is a translation unit with a kernel.
func unit(kernel string) []byte {
	return []byte(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry " + kernel + "() { ret; }\n")
}

// ofVersion is a container of a version.
func ofVersion(container []byte, version uint16) []byte {
	made := bytes.Clone(container)
	binary.LittleEndian.PutUint16(made[4:], version)
	return made
}

// TestParts reads the PTX of several translation units: nvcc writes their containers one after another,
// and the client's linker puts all of it into one.
func TestParts(t *testing.T) {
	a, b, code := image(1, 90, 0, unit("a"), 0), image(1, 90, 0, unit("b"), 0), image(2, 90, 0, []byte("machine code"), 0)
	for _, c := range []struct {
		what    string
		data    []byte
		kernels string // or the error
	}{
		{"two containers", append(fat(a), fat(b)...), "a b"},
		{"two containers, and the device runtime without PTX", append(append(fat(code), fat(a)...), fat(b)...), "a b"},
		{"parts", ofVersion(fat(a, b), partsVersion), "a b"},
		{"parts and a container", append(ofVersion(fat(a), partsVersion), fat(b)...), "a b"},
		{"no unit with PTX", append(fat(code), fat(code)...), "machine code and no PTX"},
		{"parts without PTX", ofVersion(fat(code), partsVersion), "it is not complete"},
		{"a part that is cut", ofVersion(fat(a[:100]), partsVersion), "it is not complete"},
		{"an image that is cut", fat(a[:100]), "it is not complete"},
		{"an image with a short header", fat(append(make([]byte, 4), append([]byte{63}, make([]byte, 80)...)...)), "it is not complete"},
		{"text that is too long", fat(image(1, 90, flagZstd, []byte("x"), maxText+1)), "an image of 1073741825 bytes"},
		{"text that does not unpack", fat(image(1, 90, flagLZ4, []byte("\xffx"), 8)), "LZ4 data is not complete"},
		{"text that is not zstd", fat(image(1, 90, flagZstd, []byte("x"), 8)), "read the fat binary"},
		{"a container without images", fat(), "machine code and no PTX"},
	} {
		text, err := ptxOf(c.data, "sm_90a")
		if err != nil {
			if !strings.Contains(err.Error(), c.kernels) {
				t.Errorf("%s: %v, want %s", c.what, err, c.kernels)
			}
			continue
		}
		module, err := ptx.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		var names []string
		for _, f := range module.Functions {
			names = append(names, f.Name)
		}
		if got := strings.Join(names, " "); got != c.kernels {
			t.Errorf("%s has %q, want %q", c.what, got, c.kernels)
		}
	}
	for text, want := range map[string]string{".version 8.0": "", ".target \n": "", ".target sm_90a, debug\n": "sm_90a"} {
		if got := target([]byte(text)); got != want {
			t.Errorf("the target of %q is %q", text, got)
		}
	}
	if _, err := readFat([]byte("short")); !errors.Is(err, errFat) {
		t.Errorf("%v", err)
	}
	if _, err := readFat(fat(a)[:60]); !errors.Is(err, errFat) {
		t.Errorf("%v", err)
	}
}

// TestPackedLZ4 checks an image of LZ4, whose size is padded.
func TestPackedLZ4(t *testing.T) {
	text := string(unit("k"))
	packed := append([]byte{0xf0, byte(len(text) - 15)}, text...)
	got, err := ptxOf(fat(image(1, 90, flagLZ4, packed, len(text))), "sm_90a")
	if err != nil || string(got) != strings.TrimRight(text, "\x00") {
		t.Errorf("%v, %q", err, got)
	}
}

// FuzzContainer checks that no container makes the reader panic, or unpack more than it says.
func FuzzContainer(f *testing.F) {
	a := image(1, 90, 0, unit("a"), 0)
	packed := image(1, 90, flagLZ4, append([]byte{0xf0, 1}, "sixteen letters."...), 16)
	for _, seed := range [][]byte{nil, fat(a), append(fat(a), fat(packed)...), ofVersion(fat(a, packed), partsVersion), fat(image(1, 90, flagZstd, []byte("(\xb5/\xfd"), 9)), fat(a)[:70]} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = ptxOf(data, "sm_90a")
	})
}

// FuzzLZ4 checks that what unpacks has the size that it should have.
func FuzzLZ4(f *testing.F) {
	f.Add([]byte{0x44, 'a', 'b', 'c', 'd', 4, 0}, 12)
	f.Add([]byte{0x1f, 'a', 1, 0, 255, 255, 3, 0x10, 'b'}, 533)
	f.Add([]byte{0xf0, 255, 255}, 3)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		if size < 0 || size > 1<<16 {
			return
		}
		if out, err := unpackLZ4(data, size); err == nil && len(out) != size {
			t.Errorf("%d bytes of %d", len(out), size)
		}
	})
}

// TestLZ4Lengths checks long literals and matches.
func TestLZ4Lengths(t *testing.T) {
	letters := strings.Repeat("0123456789", 30)
	literals := append([]byte{0xf0, 255, 30}, letters...)
	match := []byte{0x1f, 'a', 1, 0, 255, 26, 0x10, 'b'}
	for want, data := range map[string][]byte{letters: literals, strings.Repeat("a", 301) + "b": match, "": {}} {
		if got, err := unpackLZ4(data, len(want)); err != nil || string(got) != want {
			t.Errorf("%v, %d bytes, want %d", err, len(got), len(want))
		}
	}
	for _, bad := range []struct {
		data []byte
		size int
	}{
		{[]byte{0x20, 'a', 'b'}, 1},                    // more literals than the text has
		{[]byte{0x10, 'a', 0, 0}, 9},                   // a match at no distance
		{[]byte{0x10, 'a', 2, 0}, 5},                   // a match before the text
		{[]byte{0x1f, 'a', 1, 0, 255}, 300},            // a length without an end
		{[]byte{0x1a, 'a', 1, 0, 0x10, 'b'}, 9},        // a match behind the end of the text
		{[]byte{0x10, 'a'}, 2},                         // too little
		{append([]byte{0xff}, make([]byte, 3)...), 10}, // more literals than there are
	} {
		if got, err := unpackLZ4(bad.data, bad.size); !errors.Is(err, errLZ4) {
			t.Errorf("%v of %d bytes: %v, %q", bad.data, bad.size, err, got)
		}
	}
}

// TestDefinitions checks which statements define a name.
func TestDefinitions(t *testing.T) {
	for statement, want := range map[string]string{
		".visible .func (.param .b32 r) f(.param .b32 x) { ret; }": "f",
		".func g() { ret; }":                   "g",
		".func (.param .b32 r) f();":           "",
		".entry k() { ret; }":                  "k",
		".extern .global .align 4 .u32 x;":     "",
		".weak .global .align 4 .b8 t[4];":     "t weak",
		".common .global .align 4 .u32 c;":     "c weak",
		".weak .func w() { ret; }":             "w weak",
		".global .align 4 .u32 y[2] = {1, 2};": "y",
		".func {}":                             "",
		".version 8.0":                         "",
	} {
		name, weak := definition([]byte(statement))
		if got := strings.TrimSpace(name + map[bool]string{true: " weak"}[weak]); got != want {
			t.Errorf("%s defines %q, want %q", statement, got, want)
		}
	}
}

// TestFoundJSON checks that a finding of a kernel has its own members and those of the finding.
func TestFoundJSON(t *testing.T) {
	f := &Found{Kernel: "add", FirstIn: 2, LaunchesIn: 3, Reason: "known", Finding: finding.Finding{Kind: finding.Race, Count: 4, Where: finding.Place{File: "a.cu", Line: 5}}}
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal(data, &members); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	for name, want := range map[string]any{"kernel": "add", "launch": 2., "launches": 3., "reason": "known", "kind": "race"} {
		if members[name] != want {
			t.Errorf("%s is %v in %s", name, members[name], data)
		}
	}
}

// TestFindings checks what counts, what is reported, and what is suppressed.
func TestFindings(t *testing.T) {
	suppress, err := ReadSuppressions([]byte("* * race known\nadd */a.cu:5 undefined because\n"))
	if err != nil {
		t.Fatal(err)
	}
	var reported []string
	o := Options{Folder: "/project", Suppress: suppress, Report: func(f *Found) { reported = append(reported, fmt.Sprint(f.Kind, " ", f.Where.File)) }}
	p := newAsker(t, o)
	j := &job{function: &function{entry: &ptx.Function{Name: "_Z3addv"}, short: "add"}, number: 1}
	other := &finding.Place{PTXLine: 5, File: "/project/src/a.cu", Line: 5}
	for _, f := range []finding.Finding{
		{Kind: finding.Race, Severity: finding.Error, Count: 1},
		{Kind: finding.Undefined, Severity: finding.Error, Count: 1, Where: finding.Place{PTXLine: 11, File: "/project/b.cu", Line: 1}, Other: other},
		{Kind: finding.Undefined, Severity: finding.Error, Count: 1, Where: finding.Place{PTXLine: 12, File: "/project/b.cu", Line: 2}},
		{Kind: finding.Undefined, Severity: finding.Error, Count: 1, Where: finding.Place{PTXLine: 12, File: "/project/b.cu", Line: 2}},
		{Kind: finding.Undefined, Severity: finding.Strict, Count: 1, Where: finding.Place{PTXLine: 12, File: "/elsewhere/c.cu", Line: 2}},
		{Kind: finding.Undefined, Severity: finding.Note, Count: 1, Where: finding.Place{File: "d.cu", Line: 2}},
	} {
		p.add(j, f)
	}
	if got := strings.Join(reported, ", "); got != "undefined b.cu, undefined /elsewhere/c.cu" {
		t.Errorf("reported: %s", got)
	}
	all := p.outcome.Findings
	if len(all) != 2 || all[0].LaunchesIn != 2 || all[0].Count != 2 || p.outcome.Failed(false) != 1 || p.outcome.Failed(true) != 2 {
		t.Errorf("%+v", p.outcome)
	}
	if s := p.outcome.Suppressed; len(s) != 2 || s[0].Reason != "known" || s[1].Reason != "because" || s[1].Other.File != "src/a.cu" {
		t.Errorf("suppressed: %+v", s)
	}
}

// TestChecked checks which kernels the flags choose.
func TestChecked(t *testing.T) {
	for _, c := range []struct {
		only, skip []string
		want       bool
	}{
		{nil, nil, true},
		{[]string{"add"}, nil, true},
		{[]string{"_Z3add*"}, nil, true},
		{[]string{"b*", "a*x*d"}, nil, false},
		{[]string{"*"}, []string{"*dd"}, false},
		{nil, []string{"x*y*z"}, true},
	} {
		if got := (&Options{Only: c.only, Skip: c.skip}).checks("add", "_Z3addPf"); got != c.want {
			t.Errorf("only %q, skip %q: %v", c.only, c.skip, got)
		}
	}
}
