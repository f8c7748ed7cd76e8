package tensor

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseShape(t *testing.T) {
	for text, want := range map[string]Shape{
		"1x8x512x64":                        {Batch: 1, Heads: 8, SeqQ: 512, SeqK: 512, HeadDim: 64},
		"2x8x2048x128:causal":               {Batch: 2, Heads: 8, SeqQ: 2048, SeqK: 2048, HeadDim: 128, Causal: true},
		"1x1x1x1:kv=33":                     {Batch: 1, Heads: 1, SeqQ: 1, SeqK: 33, HeadDim: 1},
		"1x1x31x64:kv=500:causal":           {Batch: 1, Heads: 1, SeqQ: 31, SeqK: 500, HeadDim: 64, Causal: true},
		"1x1x1x1:kv=16777216":               {Batch: 1, Heads: 1, SeqQ: 1, SeqK: 1 << 24, HeadDim: 1},
		"2x8x512x64:kvheads=2":              {Batch: 2, Heads: 8, KVHeads: 2, SeqQ: 512, SeqK: 512, HeadDim: 64},
		"2x4x33x64:kv=127:kvheads=1:causal": {Batch: 2, Heads: 4, KVHeads: 1, SeqQ: 33, SeqK: 127, HeadDim: 64, Causal: true},
	} {
		got, err := ParseShape(text)
		if err != nil || got != want {
			t.Errorf("ParseShape(%q) = %+v, %v; want %+v", text, got, err, want)
		}
		if got.String() != text {
			t.Errorf("%q is formatted as %q", text, got)
		}
	}
	// Other spellings of the same shapes.
	for text, want := range map[string]string{
		"1x1x4x8:causal:kv=9":           "1x1x4x8:kv=9:causal",
		"1x1x4x8:kv=4":                  "1x1x4x8",
		"01x1x4x008":                    "1x1x4x8",
		"1x6x4x8:kvheads=6":             "1x6x4x8",
		"1x6x4x8:kvheads=2:kvheads=6":   "1x6x4x8",
		"1x6x4x8:causal:kvheads=3:kv=9": "1x6x4x8:kv=9:kvheads=3:causal",
	} {
		if got, err := ParseShape(text); err != nil || got.String() != want {
			t.Errorf("ParseShape(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestParseShapeErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "want BxHxSxD",
		"1x8x512":                             "want BxHxSxD",
		"1x8x512x64x1":                        "want BxHxSxD",
		"1x8xx64":                             `"" is not a whole number`,
		"0x8x512x64":                          `"0" is not a whole number from 1`,
		"1x-8x512x64":                         `"-8" is not a whole number`,
		"1x+8x512x64":                         `"+8" is not a whole number`,
		"1x8x512x16777217":                    "to 16777216",
		"1x8x512x64:kv=0":                     `kv: "0" is not`,
		"1x8x512x64:kv":                       `kv: "" is not`,
		"1x8x512x64:kvheads=0":                `kvheads: "0" is not`,
		"1x8x512x64:kvheads=3":                "8 heads cannot share 3 K/V heads evenly; want a divisor of 8",
		"1x8x512x64:kvheads=16":               "8 heads cannot share 16 K/V heads evenly",
		"1x8x512x64:Causal":                   `unknown option "Causal"; there are causal, kv=N and kvheads=N`,
		"1x8x512x64:":                         `unknown option ""`,
		"16777216x16777216x1x1":               "more than 2^31 elements",
		"1x1x1x4096:kv=1048576":               "more than 2^31 elements",
		"16777216x16777216x16777216x16777216": "more than 2^31 elements",
	} {
		if _, err := ParseShape(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseShape(%q) error %v, want one with %q", text, err, want)
		}
	}
}

func FuzzParseShape(f *testing.F) {
	for _, text := range []string{
		"1x8x512x64", "2x8x2048x64:causal", "1x1x1x1:kv=3", "1x1x4x8:causal:kv=9:causal", "0x1x1x1", "1x1x1x1:kv=", "1x6x1x1:kvheads=2", "1x6x1x1:kvheads=6", "x:x", "é",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseShape(text)
		if err != nil {
			return
		}
		again, err := ParseShape(s.String())
		if err != nil || again != s {
			t.Errorf("%q is %+v, formatted as %q, parsed as %+v, %v", text, s, s, again, err)
		}
		elements := float64(s.HeadCount()) * float64(max(s.SeqQ, s.SeqK)) * float64(s.HeadDim)
		if min(s.Batch, s.Heads, s.SeqQ, s.SeqK, s.HeadDim) < 1 || elements > maxElements {
			t.Errorf("%q is out of bounds: %+v", text, s)
		}
		if s.KVHeads < 0 || s.KVHeads == s.Heads || s.Group()*s.KVHeadCount() != s.HeadCount() {
			t.Errorf("%q: %d heads in groups of %d over %d K/V heads: %+v", text, s.HeadCount(), s.Group(), s.KVHeadCount(), s)
		}
	})
}

func TestShapeCounts(t *testing.T) {
	s := Shape{Batch: 2, Heads: 3, SeqQ: 5, SeqK: 7, HeadDim: 11}
	if s.HeadCount() != 6 || s.Rows() != 30 || s.FLOPs() != 4*6*5*7*11 {
		t.Errorf("%v: %d heads, %d rows, %v FLOPs", s, s.HeadCount(), s.Rows(), s.FLOPs())
	}
	if s.Group() != 1 || s.KVHeadCount() != 6 {
		t.Errorf("%v: groups of %d over %d K/V heads", s, s.Group(), s.KVHeadCount())
	}
	s.KVHeads = 1
	if s.Group() != 3 || s.KVHeadCount() != 2 || s.HeadCount() != 6 || s.FLOPs() != 4*6*5*7*11 {
		t.Errorf("%v: groups of %d over %d K/V heads, %v FLOPs", s, s.Group(), s.KVHeadCount(), s.FLOPs())
	}
	s.Causal = true
	if s.FLOPs() != 2*6*5*7*11 {
		t.Errorf("%v: %v FLOPs", s, s.FLOPs())
	}
}

func TestVisible(t *testing.T) {
	for _, test := range []struct {
		shape string
		want  []int // by row
	}{
		{"1x1x3x1", []int{3, 3, 3}},
		{"1x1x3x1:causal", []int{1, 2, 3}},
		{"1x1x3x1:kv=5:causal", []int{3, 4, 5}},
		{"1x1x4x1:kv=2:causal", []int{0, 0, 1, 2}},
	} {
		shape, err := ParseShape(test.shape)
		if err != nil {
			t.Fatal(err)
		}
		for row, want := range test.want {
			if got := shape.Visible(row); got != want {
				t.Errorf("%s: row %d sees %d keys, want %d", test.shape, row, got, want)
			}
		}
	}
}

func TestAxes(t *testing.T) {
	shape, err := ParseShape("2x8x33x64:kv=40:kvheads=2:causal")
	if err != nil {
		t.Fatal(err)
	}
	names, values := shape.Axes()
	if got, want := fmt.Sprint(names, values), "[batch heads kv_heads queries keys head_dim causal] [2 16 4 33 40 64 1]"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	shape.Causal = false
	if _, values := shape.Axes(); values[6] != 0 {
		t.Errorf("without a mask causal is %d", values[6])
	}
}
