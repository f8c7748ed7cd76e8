package ledger

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"testing"
)

func compress(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Read returns the text of samples.json, whether the record has it compressed or not.
func TestReadDecompresses(t *testing.T) {
	l := open(t, t.TempDir())
	e := sampleEntry(0)
	document, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	packed := compress(t, "[1, 2]")
	_, err = l.Record(t.Context(), map[string][]byte{
		"run.json": document, "samples.json.gz": packed, "both": []byte("plain"), "both.gz": compress(t, "packed"),
		"broken.gz": []byte("no gzip"), "short.gz": packed[:len(packed)-1],
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"samples.json": "[1, 2]", "samples.json.gz": string(packed), "both": "plain"} {
		if got, err := l.Read(t.Context(), e.ID, name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	for _, name := range []string{"broken", "short"} {
		_, err := l.Read(t.Context(), e.ID, name)
		wantError(t, err, e.ID, name+".gz", "decompress")
	}
}
