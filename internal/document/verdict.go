package document

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/gate"
	"attune/internal/ledger"
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
	switch shown := verdictWord(r); {
	case unbuilt(r):
		return fmt.Sprintf("%s (%s)", strings.TrimPrefix(r.Cause(), "it "), r.Verdict)
	case shown == correctUntimed && r.Requested.Simulation != nil:
		return shown + " (on the simulator, no GPU)"
	case shown == correctUntimed:
		return shown
	case r.Verdict == gate.Unknown && r.ReferenceError != "":
		return string(r.Verdict) + ": the reference failed"
	case r.Verdict == gate.Unknown:
		return string(r.Verdict) + ": the outputs were not checked"
	case r.Verdict == gate.ValidNegative && r.Gates.Performance != gate.Fail:
		return string(r.Verdict) + " (no unit near its limit; the experiment is valid)"
	}
	return r.Verdict.Explained()
}

// correctUntimed is how a correct run without times is shown. Its recorded verdict is not-measured, as
// that of a run whose outputs could not be checked.
const correctUntimed = "correct, not timed"

// VerdictInList is the verdict of a run as lists show it. It tells what the recorded word does not:
// whether the outputs of a run without times are correct, and whether a variant was built at all.
func VerdictInList(r *run.Run) string {
	if unbuilt(r) {
		return string(r.Verdict) + " (not built)"
	}
	return verdictWord(r)
}

// verdictWord is the verdict of a run as documents show it, which name the cause too.
func verdictWord(r *run.Run) string {
	if r.Verdict == gate.Unknown && r.Gates.Correctness == gate.Pass {
		return correctUntimed
	}
	return string(r.Verdict)
}

// VerdictGroup are verdicts of one meaning and one colour, as lists show them.
type VerdictGroup struct {
	Verdicts []string
	Text     string
}

// VerdictLegend explains what lists show.
func VerdictLegend() []VerdictGroup {
	return []VerdictGroup{
		{[]string{string(gate.Merge)}, "correct, and as fast as required"},
		{[]string{correctUntimed}, "every output is correct; no times, as without a GPU"},
		{[]string{string(gate.ValidNegative)}, gate.ValidNegative.Meaning()},
		{[]string{string(gate.Inconclusive)}, "correct and timed, but too close to call"},
		{[]string{string(gate.Incorrect), string(gate.OverBudget)}, "a gate failed"},
		{[]string{string(gate.Unknown)}, "the outputs could not be checked"},
	}
}

// ShowVerdicts replaces the verdicts of a list by what [VerdictInList] shows. It reads the runs whose
// recorded word does not tell; one that cannot be read keeps its word.
func ShowVerdicts(entries []ledger.Entry, read func(id string) (*run.Run, error)) {
	for i, e := range entries {
		if v := gate.Verdict(e.Verdict); v != gate.Unknown && v != gate.OverBudget {
			continue
		}
		if r, err := read(e.ID); err == nil {
			entries[i].Verdict = VerdictInList(r)
		}
	}
}

// verdictSpan is the verdict of a run in a document, in its colour.
func verdictSpan(r *run.Run) Span {
	from, shown := runRecord(r.ID), verdictWord(r)
	span := from.text(shown, "verdict")
	if shown != string(r.Verdict) {
		span = from.summary(shown, "verdict")
	}
	span.Colour = verdictColour(shown)
	return span
}

// unbuilt reports whether a run failed because it has no code: the variant does not compile, or its
// source breaks a rule.
func unbuilt(r *run.Run) bool {
	return r.Verdict == gate.OverBudget && r.Build == nil && len(r.Parts) == 0 && r.Cause() != ""
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
