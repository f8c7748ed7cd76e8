package run

import (
	"math"
	"strings"
	"testing"

	"attune/internal/tune"
)

func TestSelectionTuningDocument(t *testing.T) {
	t.Parallel()
	want := &SelectionTuning{
		SchemaVersion: TuningSchemaVersion, MessageType: SelectionMessage, ID: "x", Selection: "best",
		Proposal: &tune.Proposal{Selection: "best", Speedup: new(1.5)}, Forms: []MeasuredForm{{"copy", []*float64{new(1.0), nil}}},
	}
	text, err := want.Document()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeSelectionTuning(text)
	if err != nil || *got.Proposal.Speedup != 1.5 || got.Forms[0].Costs[1] != nil || *got.Forms[0].Costs[0] != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	want.Seconds = math.NaN()
	if _, err := want.Document(); err == nil {
		t.Error("a document with a NaN was written")
	}
	for text, want := range map[string]string{
		`{"message_type":"selection","id":"x"}`:                                  "x has no proposal",
		`{"message_type":"selection","id":"x","proposal":{}}`:                    "schema",
		`{"message_type":"selection","id":"x","proposal":{},"schema_version":9}`: "schema",
		`{`: "read a tuned selection",
	} {
		if _, err := DecodeSelectionTuning([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	if other, err := DecodeSelectionTuning([]byte(`{"message_type":"tuning"}`)); other != nil || err != nil {
		t.Errorf("the record of one search is read as %+v, %v", other, err)
	}
}
