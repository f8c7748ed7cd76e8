package document

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"attune/internal/run"
	"attune/internal/terminal"
)

// A forged record has any number of rows. Every form shows the first and says where the others are, in
// time that does not grow with the square of their number.
func TestManyRows(t *testing.T) {
	const n = 60_000
	r := &run.Run{ID: "20261118-120000-aaaaaa", Variant: "stage2"}
	for i := range n {
		c := run.Correctness{Shape: fmt.Sprintf("1x1x%dx64", i), Inputs: "normal", Pass: true}
		c.Limits.MaxErr, c.MaxErr = 1, 0.5
		r.Correctness = append(r.Correctness, c)
		r.Performance = append(r.Performance, run.Performance{Shape: c.Shape, P50US: 1})
	}
	started := time.Now()
	d := (&RunStudy{Run: r}).Document()
	files, err := d.Files()
	if err != nil {
		t.Fatal(err)
	}
	var screen bytes.Buffer
	if err := d.Terminal(&screen, terminal.Screen{Width: 80}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	files["the screen"] = screen.Bytes()
	want := fmt.Sprintf("%d more rows are in the record; ", n-mostRows)
	for name, text := range files {
		plain := strings.Join(strings.Fields(string(text)), " ")
		if len(text) > 16<<20 || !strings.HasSuffix(name, ".svg") && (!strings.Contains(plain, want) || !strings.Contains(plain, "attune show "+r.ID+" --json")) {
			t.Errorf("%s: %d bytes, and not %q", name, len(text), want)
		}
	}
	if text := string(files[MarkdownFile]); !strings.Contains(text, fmt.Sprint(n)) || !strings.Contains(text, "1x1x1999x64") || strings.Contains(text, "1x1x2000x64") {
		t.Error("the report does not have all outputs counted and the first 2000 listed")
	}
}
