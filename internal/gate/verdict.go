package gate

// Verdict is the outcome of all gates.
type Verdict string

// The verdicts.
const (
	Merge         Verdict = "merge"          // correct, and as fast as required
	ValidNegative Verdict = "valid-negative" // correct, and slower than required; the experiment is valid
	Incorrect     Verdict = "incorrect"
	OverBudget    Verdict = "over-budget"
	Inconclusive  Verdict = "inconclusive" // correct and timed, but too close to call
	Unknown       Verdict = "not-measured"
)

// Verdicts lists all verdicts.
var Verdicts = []Verdict{Merge, ValidNegative, Incorrect, OverBudget, Inconclusive, Unknown}

// Meaning explains a verdict whose name does not. It is empty for the others.
func (v Verdict) Meaning() string {
	if v == ValidNegative {
		return "slower than required; the experiment is valid"
	}
	return ""
}

// Explained is the verdict as it is printed, with its meaning.
func (v Verdict) Explained() string {
	if meaning := v.Meaning(); meaning != "" {
		return string(v) + " (" + meaning + ")"
	}
	return string(v)
}

// Gates are the checks of one run.
type Gates struct {
	Resources, Correctness, Performance, Profile Check
}

// Verdict derives the verdict. timed reports whether times were taken: without a decision it
// separates inconclusive from not-measured.
func (g Gates) Verdict(timed bool) Verdict {
	switch {
	case g.Resources.Status == Fail:
		return OverBudget
	case g.Correctness.Status == Fail:
		return Incorrect
	case g.Correctness.Status == NotMeasured:
		return Unknown
	case g.Performance.Status == Fail || g.Profile.Status == Fail:
		return ValidNegative
	case g.Performance.Status == Pass:
		return Merge
	case timed:
		return Inconclusive
	}
	return Unknown
}
