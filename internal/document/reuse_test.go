package document

import (
	"strings"
	"testing"

	"attune/internal/run"
)

func TestReusedResultsAreNamed(t *testing.T) {
	check := func(as *run.MeasuredAs, text, document string) {
		t.Helper()
		r := passing()
		r.MeasuredAs = as
		var out strings.Builder
		if err := runText(&out, r, screen); err != nil {
			t.Fatal(err)
		}
		if words := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(words, text) { // the line is wrapped
			t.Errorf("no line %q in\n%s", text, out.String())
		}
		if got := string(runMarkdown(r)); !strings.Contains(got, document) {
			t.Errorf("no line %q in\n%s", document, got)
		}
	}
	const id = "20261115-031521-stage6-0a1b2c"
	check(&run.MeasuredAs{Run: id, Variant: "stage6", Times: true},
		" measured as stage6, the same machine code: outputs and times are those of run "+id+" ",
		"\n| measured as | stage6, the same machine code: outputs and times are those of run "+id+" |\n")
	check(&run.MeasuredAs{Run: id, Variant: "stage6"}, "code: outputs are those of run "+id, "code: outputs are those of run "+id)
}
