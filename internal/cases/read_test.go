package cases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLoadErrors checks that errors in a case are described in terms of the file.
func TestLoadErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":     "the file is empty; a case is a JSON object",
		" \n":  "the file is empty",
		"null": `the key "ptx" is missing`,
		`{"args": [{}], "expect": {"findings": ["racy"]}}`: `of the case; unknown finding "racy"; expected one of`,
		`{"args": [{}, {"u32": 1, "bytes": 4}]}`:           "argument 0 has 0 values; give exactly one of hex, bytes, scratch, u32, u64, f32, tensormap; argument 1 has 2 values",
		"[1]":                                              "found an array; expected an object",
		"7":                                                "found number; expected an object",
		`{"ptx": "k", "args": [{"u32": "x"}]}`:             "line 1: args.u32: found a string; expected an integer from 0 to 4294967295",
		"{\"ptx\": \"k\",\n \"args\": [{\"u64\": -1}]}": "line 2: args.u64: found number -1; expected an integer from 0 to 18446744073709551615",
		`{"ptx": "k", "args": [{"f32": 1e99}]}`:         "args.f32: found number 1e99; expected a number that fits a float of 32 bits",
		`{"ptx": "k", "args": [{"bytes": true}]}`:       "args.bytes: found a bool; expected an integer",
		`{"ptx": 1}`:                 "ptx: found number; expected a string",
		`{"ptx": "k", "args": {}}`:   "args: found an object; expected a list",
		`{"ptx": "k", "grid": "8"}`:  `found the extents "8"; expected one to three integers`,
		`{"ptx": "k", "args": [}`:    "line 1: no valid JSON: ",
		"{\"ptx\": \"k\",\n":         "unexpected end of the file in line 1; is a bracket missing?",
		`{"ptx": "k"} {}`:            "unexpected text after the case",
		`{"ptx": "k", "entri": "k"}`: "unknown key \"entri\", did you mean \"entry\"?; `attune help cases` lists the keys of a case",
		`{"ptx": "k", "zzz": 1, "args": [{"u32": 1}, {"byts": 4, "tensormap": {"dim": []}}], "expect": {"args": {"1": {"hexx": ""}}, "finding": []}, "hw": {"a": 1}}`: `unknown key "args.1.byts", did you mean "bytes"?; ` +
			`unknown key "args.1.tensormap.dim", did you mean "dims"?; unknown key "expect.args.1.hexx", did you mean "hex"?; ` +
			`unknown key "expect.finding", did you mean "findings"?; unknown key "zzz"; `,
		"{\"ptx\": \"k\", \"expect\": {\"findings\": [\"race\"]},\n \"expect\": {}}":      `line 2: the key "expect" is given twice`,
		`{"ptx": "k", "args": [{"u32": 1, "U32": 2}]}`:                                    `the key "u32" is given twice`,
		`{"ptx": "k", "expect": {"args": {"0": {"hex": ""}, "1": {}, "0": {"hex": ""}}}}`: `the key "0" is given twice`,
	} {
		file := filepath.Join(t.TempDir(), "case.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(file)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "Go ") {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// TestKeysMayRepeat loads a case whose objects have the same keys, and strings that equal keys.
func TestKeysMayRepeat(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "case.json")
	text := `{"ptx": "ptx", "name": "ptx", "args": [{"bytes": 4}, {"bytes": 4}], "hw": {"a": ["a", "a", {"a": null}]},
		"expect": {"args": {"0": {"hex": ""}, "1": {"hex": ""}}}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(file); err != nil || c.PTXFile() != filepath.Join(filepath.Dir(file), "ptx") {
		t.Errorf("case %v, error %v", c, err)
	}
}

func TestAbsolutePTX(t *testing.T) {
	t.Parallel()
	c := Case{PTX: "/elsewhere/k.ptx", dir: "here"}
	if c.PTXFile() != "/elsewhere/k.ptx" {
		t.Errorf("the PTX is read from %s", c.PTXFile())
	}
}

func TestParseHex(t *testing.T) {
	t.Parallel()
	for digits, want := range map[string]string{"0x": "hex: 'x' at position 1", "0é": "hex: 'é' at position 1", "012": "hex: 3 digits; a byte has two"} {
		if _, err := parseHex(digits); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", digits, err, want)
		}
	}
}
