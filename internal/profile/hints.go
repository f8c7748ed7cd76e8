package profile

// Hint is what a problem says instead of the advice of one rule of Explain, and the knobs that affect
// it.
type Hint struct {
	Text  string // may be empty
	Knobs []string
}

// Hints are the hints of a problem, by rule.
type Hints map[string]Hint
