package document

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/gate"
	"attune/internal/run"
)

// allowedTexts are the findings of the audit that kernel.toml allows.
func allowedTexts(r *run.Run) []string {
	var texts []string
	for _, f := range r.AllowedFindings() {
		texts = append(texts, f.String())
	}
	return texts
}

// simulatedText is on what the simulator ran the code beside a GPU, and what it found; or why it did
// not run it.
func simulatedText(s *run.Simulated) string {
	text := fmt.Sprintf("on %s under up to %s, %s", number(s.Instances, "shape"), number(max(s.Schedules, 1), "schedule"), number(len(s.Findings), "finding"))
	switch {
	case s.Refused != "":
		text = "no: the simulator cannot run " + firstLine(s.Refused)
	case s.Instances == 0:
		text = "no shape was finished"
	}
	if len(s.Sanitized) > 0 {
		text += fmt.Sprintf("; under compute-sanitizer (%s), %s", strings.Join(s.Sanitized, ", "), number(len(s.Findings), "finding"))
	}
	if s.Unfinished != "" {
		text += "; not finished: " + firstLine(s.Unfinished)
	}
	return text
}

// simulatedLine is the same for one variant of several.
func simulatedLine(variant string, s *run.Simulated, noSim bool) []string {
	switch {
	case noSim:
		return []string{variant + " simulated: no: " + run.NoSimFlag}
	case s == nil:
		return nil
	}
	return []string{variant + " simulated: " + simulatedText(s)}
}

// measuredAsText names the results that a run reuses.
func measuredAsText(as *run.MeasuredAs) string {
	what := "outputs"
	if as.Times {
		what = "outputs and times"
	}
	return fmt.Sprintf("%s, the same machine code: %s are those of run %s", as.Variant, what, as.Run)
}

// statusWord is the outcome of a gate in words.
func statusWord(s gate.Status) string { return strings.ReplaceAll(string(s), "-", " ") }

func correctnessLine(r *run.Run) string {
	if len(r.Correctness) == 0 {
		return ""
	}
	passed, all := correctCount(r)
	line := fmt.Sprintf("%d of %d correct against %s", passed, all, referenceText(r))
	if worst := worstLSE(r); worst != nil {
		line += fmt.Sprintf(", lse error %.2g of %.2g allowed", worst.LSE.MaxErr, worst.Limits.LSE.MaxErr)
	}
	if r.Requested.Sanitizer != "" {
		line += ", under compute-sanitizer " + r.Requested.Sanitizer
	}
	if s := r.Requested.Simulation; s != nil {
		line += ", " + simulationText(s, r.Correctness)
	}
	return line
}

// worstLSE is the output whose log-sum-exp comes closest to its limit, or nil if there is none.
func worstLSE(r *run.Run) *run.Correctness {
	var worst *run.Correctness
	for i := range r.Correctness {
		c := &r.Correctness[i]
		if c.LSE == nil || c.Limits.LSE == nil {
			continue
		}
		if worst == nil || c.LSE.MaxErr*worst.Limits.LSE.MaxErr > worst.LSE.MaxErr*c.Limits.LSE.MaxErr {
			worst = c
		}
	}
	return worst
}

func simulationText(s *run.Simulation, rows []run.Correctness) string {
	text := "all checkers on"
	if !s.Checks {
		text = "checkers off"
	}
	if s.Schedules > 1 {
		under := ", under %d schedules"
		if slices.ContainsFunc(rows, func(c run.Correctness) bool { return s.Automatic && c.Schedules < s.Schedules }) {
			under = ", under up to %d schedules"
		}
		text += fmt.Sprintf(under, s.Schedules)
	}
	if s.Tensor != run.ExactTensor {
		text += ", tensor cores in " + s.Tensor
	}
	if s.Strict {
		text += ", strict"
	}
	return text
}
