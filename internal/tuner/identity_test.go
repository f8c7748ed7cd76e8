package tuner

import (
	"strings"
	"testing"
	"testing/fstest"

	"attune/internal/run"
	"attune/internal/spec"
)

// A search is not resumed with another reference: the outputs of its earlier variants were compared
// with the one of then.
func TestEditedReferenceIsAnotherSearch(t *testing.T) {
	t.Parallel()
	hash := func(kind, text string) string {
		return referenceHash(fstest.MapFS{"reference.py": {Data: []byte(text)}}, spec.Reference{Kind: kind, Path: "reference.py"})
	}
	then, now := run.TuneIdentity{Reference: hash("python", "a")}, run.TuneIdentity{Reference: hash("python", "b")}
	if text := differs(then, now); !strings.HasPrefix(text, "reference sha256: ca978112ca1bbdca") {
		t.Errorf("an edited reference makes the difference %q", text)
	}
	if text := differs(then, run.TuneIdentity{Reference: hash("python", "a")}); text != "" {
		t.Errorf("the same reference makes the difference %q", text)
	}
	if got := hash("files", "a"); got != "" {
		t.Errorf("recorded outputs have the hash %q", got)
	}
}
