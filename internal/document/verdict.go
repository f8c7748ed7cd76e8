package document

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/gate"
	"attune/internal/run"
)

// verdictText is the verdict of a run with its meaning, and why the simulator did not check what is
// merged.
func verdictText(r *run.Run) string {
	text := verdictMeaning(r)
	if why := r.NotSimulated(); why != "" && r.Gates.Correctness == gate.Pass {
		text += ", not simulated: " + firstLine(why)
	}
	return text
}

// verdictMeaning is the verdict of a run with its meaning. A profile takes no times, so that its
// negative verdict is about the units of the chip. A variant that was not built has no budget to be
// over: its text begins with what is wrong.
func verdictMeaning(r *run.Run) string {
	switch known := knownText(r); {
	case unbuilt(r):
		return fmt.Sprintf("%s (%s)", strings.TrimPrefix(r.Cause(), "it "), r.Verdict)
	case known != "":
		return string(r.Verdict) + ": " + known
	case r.Verdict == gate.ValidNegative && r.Gates.Performance != gate.Fail:
		return string(r.Verdict) + " (no unit near its limit; the experiment is valid)"
	}
	return r.Verdict.Explained()
}

// VerdictInList is the verdict of a run with a word on what it does not tell: whether the outputs of
// a run without times are correct, and whether a variant was built at all.
func VerdictInList(r *run.Run) string {
	switch {
	case unbuilt(r):
		return string(r.Verdict) + " (not built)"
	case r.Verdict == gate.Unknown && r.Gates.Correctness == gate.Pass:
		return string(r.Verdict) + " (correct)"
	}
	return string(r.Verdict)
}

// unbuilt reports whether a run failed because it has no code: the variant does not compile, or its
// source breaks a rule.
func unbuilt(r *run.Run) bool {
	return r.Verdict == gate.OverBudget && r.Build == nil && len(r.Parts) == 0 && r.Cause() != ""
}

// knownText is what a run has shown that is not measured: whether the outputs are correct, and why
// nothing was timed. It is empty for other verdicts.
func knownText(r *run.Run) string {
	switch {
	case r.Verdict != gate.Unknown:
		return ""
	case r.Gates.Correctness == gate.NotMeasured && r.ReferenceError != "":
		return "the reference failed"
	case r.Gates.Correctness == gate.NotMeasured:
		return "the outputs were not checked"
	case r.Requested.Simulation != nil:
		return "correct on the simulator, no GPU for times"
	}
	return "correct, no times"
}

// verdictNote explains the verdicts of a table that need it; it is empty if none does.
func verdictNote(verdicts []string) []Block {
	for _, v := range gate.Verdicts {
		named := func(verdict string) bool { return strings.HasPrefix(verdict, string(v)) }
		if v.Meaning() != "" && slices.ContainsFunc(verdicts, named) {
			return []Block{say(string(v), ": ", v.Meaning())}
		}
	}
	return nil
}

// firstReason is the first line of the first reason, and the number of further reasons.
func firstReason(reasons []string) string {
	first := ""
	if len(reasons) > 0 {
		first, _, _ = strings.Cut(reasons[0], "\n")
	}
	if len(reasons) > 1 {
		first += fmt.Sprintf(" (and %d more)", len(reasons)-1)
	}
	return first
}
