package profile

// Hint is what a problem adds to one rule of Explain: a text for its kernels, and the knobs that
// affect it.
type Hint struct {
	Text  string
	Knobs []string
}

// Hints are the hints of a problem, by rule.
type Hints map[string]Hint
