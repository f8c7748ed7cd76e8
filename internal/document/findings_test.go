package document

import (
	"bytes"
	"strings"
	"testing"

	"attune/internal/terminal"
)

// A terminal shows each finding once, with its source lines. The gate only counts them.
func TestFindingsOnceOnATerminal(t *testing.T) {
	r := racy()
	found := failedFindings(r)[0]
	r.Reasons.Correctness = []string{"1x8x512x64 seed 0 and 5 more: " + found.String()}
	var out bytes.Buffer
	if err := (&RunStudy{Run: r, Sources: racySource}).Document().Terminal(&out, terminal.Screen{Width: 100}); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, once := range []string{"error: race", "nothing orders the two", "1 finding"} {
		if n := strings.Count(text, once); n != 1 {
			t.Errorf("%q is there %d times in\n%s", once, n, &out)
		}
	}
	if !strings.Contains(text, " 47 | ") {
		t.Errorf("no source lines in\n%s", &out)
	}
}
