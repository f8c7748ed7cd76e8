package document

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/run"
)

// vary calls try for every value within a JSON value: with the value replaced by ones of other
// kinds, and with the key removed. Of an array only the first element is varied.
func vary(value any, where string, set func(any), try func(where string)) {
	for _, with := range []any{nil, "text", -1.0, []any{}, []any{nil}, map[string]any{}, true} {
		set(with)
		try(fmt.Sprintf("%s = %v", where, with))
	}
	set(value)
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			before := v[key]
			delete(v, key)
			try(where + "." + key + " removed")
			v[key] = before
			vary(before, where+"."+key, func(with any) { v[key] = with }, try)
		}
	case []any:
		if len(v) > 0 {
			vary(v[0], where+".0", func(with any) { v[0] = with }, try)
		}
	}
}

// withShortArrays returns a JSON value with at most two elements in each array.
func withShortArrays(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = withShortArrays(v[key])
		}
	case []any:
		v = v[:min(len(v), 2)]
		for i := range v {
			v[i] = withShortArrays(v[i])
		}
		return v
	}
	return value
}

// A record with any value missing or of another kind is refused or printed, and never a panic.
func TestDamagedRecordsArePrintedOrRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("damages every field of a record")
	}
	results := filepath.Join("..", "..", "results")
	for _, pattern := range []string{"runs/*-stage2-*/run.json", "runs/*-stage7-??????/run.json", "benches/*/bench.json"} {
		found, err := filepath.Glob(filepath.Join(results, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no record %s: %v", pattern, err)
		}
		text, err := os.ReadFile(found[len(found)-1])
		if err != nil {
			t.Fatal(err)
		}
		record, err := filepath.Rel(results, found[len(found)-1])
		if err != nil {
			t.Fatal(err)
		}
		var whole any
		if err := json.Unmarshal(text, &whole); err != nil {
			t.Fatal(err)
		}
		whole = withShortArrays(whole)
		document := whole
		printed, refused := 0, 0
		vary(whole, "record", func(with any) { document = with }, func(where string) {
			changed, err := json.Marshal(document)
			if err != nil {
				t.Fatal(err)
			}
			if printDamaged(t, record+": "+where, changed) {
				printed++
			} else {
				refused++
			}
		})
		t.Logf("%s: %d variations printed, %d refused", record, printed, refused)
		if printed == 0 || refused == 0 {
			t.Errorf("%s: the variations do not reach both outcomes", record)
		}
	}
}

// printDamaged prints a record in all forms, if it can be read.
func printDamaged(t *testing.T, where string, text []byte) (ok bool) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("%s: panic: %v", where, r)
		}
	}()
	if strings.HasPrefix(where, "benches/") {
		b, err := run.DecodeBench(text)
		if err != nil {
			return false
		}
		_ = benchOf(b).Terminal(io.Discard, screen)
		_ = BenchByShape(b).Terminal(io.Discard, screen)
		_ = writeMarkdown(io.Discard, BenchByShape(b))
		_, _ = Describe(b)
		return true
	}
	r, err := run.Decode(text)
	if err != nil {
		return false
	}
	_ = runText(io.Discard, r, screen)
	_ = runMarkdown(r)
	_ = Ladder([]*run.Run{r}, nil, shortID).Terminal(io.Discard, screen)
	return true
}
