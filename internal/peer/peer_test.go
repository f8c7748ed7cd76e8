package peer

import (
	"encoding/json"
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

// Whatever JSON a helper responds with, its facts are single printable lines and its times possible.
// Package python reads the line.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		`{"id": 1}`, `null`, `{"seconds": [1e-6, 1]}`, `{"facts": {"torch": 2}}`,
		`{"facts": {"torch": "2", "gpu": "a", "missing": {"x": "\n"}}}`, `{"facts": {"torch": "\u001b[2J", "gpu": "a\nb"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var r response
		if json.Unmarshal(line, &r) != nil {
			return
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
