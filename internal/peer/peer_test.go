package peer

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	check := func(kinds, dtype string, want ...string) {
		t.Helper()
		peers, err := Parse(kinds, dtype)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range peers {
			text := p.String() + " " + p.DType
			if p.Optional {
				text += " welcome"
			}
			got = append(got, text)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, %s: %s", kinds, dtype, diff)
		}
	}
	check("torch-cudnn", "fp16", "torch-cudnn fp16")
	check("torch-math,torch-flash,torch-math", "bf16", "torch-math-bf16 bf16", "torch-flash-bf16 bf16")
	check("torch-flash", "both", "torch-flash fp16", "torch-flash-bf16 bf16")
	check("fa3-fp8", "both", "fa3-fp8 e4m3")
	check("all", "fp16", "torch-flash fp16", "torch-cudnn fp16", "torch-efficient fp16", "torch-math fp16", "fa3-fp8 e4m3 welcome")
	check("all,fa3-fp8", "fp16", "torch-flash fp16", "torch-cudnn fp16", "torch-efficient fp16", "torch-math fp16", "fa3-fp8 e4m3")
	check("none", "fp16")

	reject := func(kinds, dtype, want string) {
		t.Helper()
		if _, err := Parse(kinds, dtype); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, %s: got %v; want %q", kinds, dtype, err, want)
		}
	}
	reject("torch-flsh", "fp16", `unknown peer "torch-flsh"; there are torch-flash, torch-cudnn, torch-efficient, torch-math, fa3-fp8, all, none`)
	reject("", "fp16", `unknown peer ""`)
	reject("all", "fp8", `unknown number format "fp8" of peers; there are fp16, bf16, both`)
}

func TestElementBytes(t *testing.T) {
	if flash.ElementBytes() != 2 || (Peer{Kind: flash3Kind}).ElementBytes() != 1 {
		t.Error("FP16 has 2 bytes, E4M3 has 1")
	}
}

// Any line on the pipe is either a response to the request, with texts of one printable line, or an
// error of one line.
func FuzzReadResponse(f *testing.F) {
	for _, seed := range []string{
		`{"id": 1}`, `{"id": 1, "error": "no\nway", "do": "\u001b[2J"}`, `{"id": 2}`, `{"id": 1} {"id": 1}`, `[1]`, `null`, `1`, "", "\x00\xff", `{"id": 1, "seconds": [NaN]}`,
		`{"id": 1, "seconds": [1e-6, 1e999]}`, `{"id": 1, "facts": {"torch": 2}}`, `{"id": 1, "facts": {"torch": "2", "gpu": "a", "missing": {"x": "\n"}}}`, `{"id": 1e30}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := readResponse(line, 1)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x1b\x00") || len(err.Error()) > 1000 {
				t.Errorf("an error of more than one line: %q", err)
			}
			return
		}
		if r.ID != 1 || strings.ContainsAny(r.Error+r.Do, "\n\x1b\x00") {
			t.Errorf("accepted %+v", r)
		}
		if r.Facts.check() == nil && (r.Facts.Torch == "" || strings.ContainsAny(r.Facts.Torch+r.Facts.GPU, "\n\x1b")) {
			t.Errorf("accepted %+v", r.Facts)
		}
		if checkSeconds(r.Seconds, len(r.Seconds), 1, time.Second) == nil {
			for _, s := range r.Seconds {
				if !(s > 0) || s > 2 {
					t.Errorf("accepted a time of %g s in 1 s", s)
				}
			}
		}
	})
}
