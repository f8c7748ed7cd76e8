package gate

// Verdict is what the gates add up to.
type Verdict string

// The verdicts.
const (
	Merge         Verdict = "merge"          // right, and as fast as promised
	ValidNegative Verdict = "valid-negative" // right, and not as fast as promised: a result
	Incorrect     Verdict = "incorrect"
	OverBudget    Verdict = "over-budget"
	Inconclusive  Verdict = "inconclusive" // measured, and too close to call
	Unknown       Verdict = "not-measured"
)

// Verdicts are all there are.
var Verdicts = []Verdict{Merge, ValidNegative, Incorrect, OverBudget, Inconclusive, Unknown}

// Gates are the checks of one run.
type Gates struct {
	Resources, Correctness, Performance, Profile Check
}

// Verdict adds the gates up. timed says whether times were taken at all, which tells an open question from an unasked one.
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
