package document

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"attune/internal/finding"
	"attune/internal/run"
)

// failedFindings are the findings that fail the correctness gate of a run: of the audit, or of the
// checkers.
func failedFindings(r *run.Run) []run.Reported {
	var all []run.Reported
	for _, f := range r.Audit {
		if f.Severity == finding.Error {
			all = append(all, run.Reported{Finding: f, Failed: true})
		}
	}
	for _, f := range r.Reported() {
		if f.Failed {
			all = append(all, f)
		}
	}
	return all
}

// findingReasons are why the correctness gate of a run with findings failed: how many there are, and
// the reasons that are no findings. A record has its reasons as texts only, so the text is the key:
// the gate writes "OUTPUT: FINDING", or "FINDING; REMEDY" for the audit.
func findingReasons(reasons []string, found []run.Reported) []string {
	text := "1 finding"
	if len(found) > 1 {
		text = fmt.Sprintf("%d findings", len(found))
	}
	isFinding := func(reason string) bool {
		return slices.ContainsFunc(found, func(f run.Reported) bool {
			return strings.HasSuffix(reason, ": "+f.String()) || strings.HasPrefix(reason, f.String()+"; ")
		})
	}
	return append([]string{text}, slices.DeleteFunc(slices.Clone(reasons), isFinding)...)
}

// Findings writes all findings of a run, with every detail.
func Findings(w io.Writer, r *run.Run, form finding.Form) error {
	out := &strings.Builder{}
	writeFindings(out, r, failedFindings(r), form)
	_, err := io.WriteString(w, out.String())
	return err
}

func writeFindings(w io.Writer, r *run.Run, all []run.Reported, form finding.Form) {
	form.Indent += "  "
	for _, f := range all {
		form.On = r.Outputs(f)
		f.Write(w, form)
	}
}
