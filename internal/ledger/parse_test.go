package ledger

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNewID(t *testing.T) {
	check := func(name, want string) {
		t.Helper()
		at := time.Date(2026, 11, 14, 22, 15, 22, 999, time.FixedZone("", -5*3600))
		id := NewID(at, name)
		if got := id[:len(id)-idHexSize]; got != "20261115-031522-"+want+"-" {
			t.Errorf("name %q: id %s, want %s in it", name, id, want)
		}
		if parsed, err := parseID(id); err != nil || !parsed.Equal(at.Truncate(time.Second)) {
			t.Errorf("parseID(%q) = %v, %v", id, parsed, err)
		}
	}
	check("stage2", "stage2")
	check("stage2+USE_XOR_SWIZZLE=1", "stage2-use_xor_swizzle-1")
	check("../../etc/passwd", "..-..-etc-passwd")
	check("", "run")
	check(" -- ", "run")
	check("größe", "gr-e")
	check(strings.Repeat("a", 39)+"--b", strings.Repeat("a", 39))
	check(strings.Repeat("ab", 50), strings.Repeat("ab", 20))
	if first, second := NewID(dawn, "x"), NewID(dawn, "x"); first == second {
		t.Errorf("two ids of one moment are %s", first)
	}
}

func TestParseIDRefuses(t *testing.T) {
	for _, text := range []string{
		"", ".", "..", "latest",
		"20261115-031522-stage2",
		"20261115-031522--3f9a1c",
		"20261115-031522-stage2-3F9A1C",
		"20261115-031522-Stage2-3f9a1c",
		"20261315-031522-stage2-3f9a1c",
		"20261115-036022-stage2-3f9a1c",
		"20261115T031522-stage2-3f9a1c",
		"20261115-031522-a/b-3f9a1c",
		"20261115-031522-a--b-3f9a1c",
		"20261115-031522stage2-3f9a1c",
		"20261115-031522-stage23f9a1c",
		".tmp-1-2-20261115-031522-stage2-3f9a1c",
		"20261115-031522-" + strings.Repeat("a", 41) + "-3f9a1c",
	} {
		if at, err := parseID(text); err == nil {
			t.Errorf("parseID(%q) = %v, want an error", text, at)
		}
	}
}

func FuzzID(f *testing.F) {
	f.Add("20261115-031522-stage2-3f9a1c", "stage2")
	f.Add("00000101-000000-..-000000", "a/../b")
	f.Add("20261115-031522-\u212a-3f9a1c", "\u212a")
	f.Fuzz(func(t *testing.T, text, name string) {
		if at, err := parseID(text); err == nil {
			plain := text[len(idTime)+1 : len(text)-idHexSize-1]
			if again := NewID(at, plain); again[:len(again)-idHexSize] != text[:len(text)-idHexSize] {
				t.Errorf("parseID accepts %q, but NewID makes %q of its parts", text, again)
			}
			if strings.ContainsAny(text, "/\\ \n") || strings.HasPrefix(text, ".") {
				t.Errorf("%q is not safe as a directory", text)
			}
		}
		if _, err := parseID(NewID(dawn, name)); err != nil {
			t.Errorf("name %q: %v", name, err)
		}
	})
}

func TestParseSums(t *testing.T) {
	digest := strings.Repeat("0a", 32)
	s, err := parseSums(digest+"  run.json\n"+digest+"  a_b-C.1\n", runName)
	if diff := cmp.Diff(sums{"run.json": digest, "a_b-C.1": digest}, s); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for text, want := range map[string]string{
		"":                                       "empty",
		digest + "  run.json":                    "incomplete",
		"\n":                                     "line 1",
		digest + " run.json\n":                   "line 1",
		digest + " *run.json\n":                  "line 1",
		digest[1:] + "  run.json\n":              "line 1",
		strings.ToUpper(digest) + "  run.json\n": "line 1",
		digest + "  run.json\n\n":                "line 2",
		digest + "  run.json\n" + digest + "  run.json\n":    "listed twice",
		digest + "  run.json\r\n":                            "characters",
		digest + "  run.json\n" + digest + "  sha256sums\n":  "line 2: the name sha256sums is reserved",
		digest + "  run.json\n" + digest + "  ../run.json\n": "line 2",
		digest + "  report.md\n":                             "does not list run.json",
		digest + "  " + strings.Repeat("a", 201) + "\n":      "too long",
		digest + "  \n": "is empty",
		digest + "  run.json\n" + digest + "  -rf\n":               "dash",
		digest + "  run.json\n" + digest + "  sub/directory.txt\n": "line 2",
	} {
		_, err := parseSums(text, runName)
		wantError(t, err, want)
	}
}

func FuzzSums(f *testing.F) {
	digest := strings.Repeat("0a", 32)
	f.Add("")
	f.Add(digest + "  run.json\n")
	f.Add(digest + "  samples.json\n" + digest + "  run.json\n")
	f.Add(digest + " *run.json\n")
	f.Add(digest + "  ../run.json\n")
	f.Add(digest + "  run.json\n" + digest)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSums(text, runName)
		if err != nil {
			return
		}
		if again, err := parseSums(s.String(), runName); err != nil || !cmp.Equal(s, again) {
			t.Errorf("%q is read as %v, written and read again as %v, %v", text, s, again, err)
		}
		if len(s.String()) != len(text) {
			t.Errorf("%q is read, but written as %q", text, s)
		}
	})
}
