package finding

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/ptx"
)

func decoded(t *testing.T, text string) Finding {
	t.Helper()
	var f Finding
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return f
}

// TestJSON checks that a finding is read as it was written, and the keys that programs read.
func TestJSON(t *testing.T) {
	f := Finding{
		Kind: Race, Severity: Strict, Launch: Launch{Relaunch: 2, Schedule: 3}, Count: 5, Detail: "text",
		Where:    Place{PTXLine: 9, PTX: "ld.shared", Source: "a.cuh:5, called from k.cu:9", File: "a.cuh", Line: 5, Callers: []ptx.Frame{{File: "k.cu", Line: 9}}},
		Other:    &Place{PTXLine: 4, PTX: "st.shared"},
		Variable: Variable{Name: "tile", Space: Shared},
	}
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"kind":"race",` +
		`"text":"race at a.cuh:5 (ptx:9, called from k.cu:9) with ptx:4 (5 times in relaunch 2, schedule 3): text",` +
		`"file":"k.cu","line":9,"inner":{"file":"a.cuh","line":5,"callers":[{"file":"k.cu","line":9}]},"what":"tile","severity":"strict","launch":{"relaunch":2,"schedule":3},` +
		`"where":{"ptx_line":9,"ptx":"ld.shared","source":"a.cuh:5, called from k.cu:9","file":"a.cuh","line":5,"callers":[{"file":"k.cu","line":9}]},` +
		`"other":{"ptx_line":4,"ptx":"st.shared"},"variable":{"name":"tile","space":"shared"},"count":5,"detail":"text"}`
	if string(text) != want {
		t.Errorf("written as\n%s\nwant\n%s", text, want)
	}
	if d := cmp.Diff(f, decoded(t, string(text))); d != "" {
		t.Errorf("read back (-want +got):\n%s", d)
	}
}

// TestEarlierRecords checks the forms of earlier records: the members come from the text.
func TestEarlierRecords(t *testing.T) {
	kernel := []ptx.Frame{{File: "k.cu", Line: 65}}
	for text, want := range map[string]Finding{
		// A finding of the simulator, with and without its places.
		`{"kind":"race","text":"race at ../a.cuh:7 (ptx:25, called from k.cu:65) with k.cu:23 (ptx:24) (105 times): thread 0: x","file":"k.cu","line":65,` +
			`"inner":{"file":"../a.cuh","line":7,"callers":[{"file":"k.cu","line":65}]},"other":{"file":"../k.cu","line":23}}`: {
			Kind: Race, Severity: Error, Count: 105, Detail: "thread 0: x",
			Where: Place{PTXLine: 25, Source: "../a.cuh:7, called from k.cu:65", File: "../a.cuh", Line: 7, Callers: kernel},
			Other: &Place{PTXLine: 24, Source: "k.cu:23", File: "../k.cu", Line: 23},
		},
		`{"kind":"race","text":"race at k.cu:65 in k.cu:26 (ptx:25) (once): thread 0","file":"k.cu","line":65}`: {
			Kind: Race, Severity: Error, Count: 1, Detail: "thread 0",
			Where: Place{PTXLine: 25, Source: "k.cu:65 in k.cu:26", File: "k.cu", Line: 26, Callers: kernel},
		},
		`{"kind":"deadlock","text":"deadlock at ptx:4 (once): a\nb (2 times): c"}`: {
			Kind: Deadlock, Severity: Error, Count: 1, Detail: "a\nb (2 times): c", Where: Place{PTXLine: 4},
		},
		// Findings without an instruction, and texts that only look like one.
		`{"kind":"unwritten","text":"argument 0: 4 of 8 bytes never written"}`: {
			Kind: Unwritten, Severity: Error, Count: 1, Detail: "argument 0: 4 of 8 bytes never written",
		},
		`{"kind":"race","text":"race at some place (3 times): x","file":"k.cu","line":65}`: {
			Kind: Race, Severity: Error, Count: 1, Detail: "race at some place (3 times): x", Where: Place{File: "k.cu", Line: 65},
		},
		`{"kind":"race","text":"race at ptx:1 with nothing (3 times): x"}`: {
			Kind: Race, Severity: Error, Count: 1, Detail: "race at ptx:1 with nothing (3 times): x",
		},
		// A finding of the audit.
		`{"kind":"clock","what":"%clock","where":"k.cu:65 in k.cu:26 (ptx:254)","text":"reads %clock","count":2}`: {
			Kind: Clock, Severity: Error, Count: 2, Detail: "reads %clock", Variable: Variable{Name: "%clock"},
			Where: Place{PTXLine: 254, Source: "k.cu:65 in k.cu:26", File: "k.cu", Line: 26, Callers: kernel},
		},
		`{"kind":"unreadable","what":"PTX","where":"nowhere","text":"the audit cannot read the PTX","count":1}`: {
			Kind: Unreadable, Severity: Error, Count: 1, Detail: "the audit cannot read the PTX", Variable: Variable{Name: "PTX"},
		},
	} {
		if d := cmp.Diff(want, decoded(t, text)); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}
	for _, text := range []string{`{"kind":5}`, `{"where":5}`, `[]`} {
		if json.Unmarshal([]byte(text), &Finding{}) == nil {
			t.Errorf("%s is read", text)
		}
	}
}

// FuzzText checks that what the decoder takes from the text of an earlier record is that text again.
func FuzzText(f *testing.F) {
	f.Add("race", "race at k.cu:65 in k.cu:26 (ptx:25) with ptx:9 (2 times): thread 0")
	f.Add("race", "race at a.cuh:7 (ptx:25, called from k.cu:65) (once): thread 0")
	f.Fuzz(func(t *testing.T, kind, text string) {
		written, err := json.Marshal(map[string]string{"kind": kind, "text": text})
		if err != nil {
			t.Skip()
		}
		var back map[string]string
		if err := json.Unmarshal(written, &back); err != nil {
			t.Fatal(err)
		}
		if got := decoded(t, string(written)).Text(); got != back["text"] {
			t.Errorf("%q became %q", back["text"], got)
		}
	})
}
