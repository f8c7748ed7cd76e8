package run

// Outline is what a bench would time. It needs no device.
type Outline struct {
	SchemaVersion int               `json:"schema_version"`
	Kernel        string            `json:"kernel"`
	Command       string            `json:"command"` // of the bench
	Random        *Random           `json:"random,omitempty"`
	Names         []string          `json:"names"` // of the variants and selections
	Problems      []OutlinedProblem `json:"problems"`
}

// OutlinedProblem is one problem of an outline.
type OutlinedProblem struct {
	Shape    string   `json:"shape"`
	Variants []string `json:"variants"` // that run it, one for each name
	GFLOP    float64  `json:"gflop,omitempty"`
	MB       float64  `json:"megabytes,omitempty"`
}
