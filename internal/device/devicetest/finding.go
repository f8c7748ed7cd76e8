package devicetest

import (
	"strings"

	"attune/internal/finding"
)

// Found is the finding about a buffer whose detail begins with the argument: "argument 1: ...".
func Found(kind finding.Kind, detail string) finding.Finding {
	argument, _, _ := strings.Cut(detail, ":")
	return finding.Of(kind, finding.Variable{Name: argument, Space: finding.Argument}, detail)
}
