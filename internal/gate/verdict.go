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
