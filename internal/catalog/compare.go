package catalog

import (
	"strings"

	"attune/internal/run"
	"attune/internal/spec"
)

// recordedFloor is the noise floor of two sessions: clocks, temperature and GPU may differ.
const recordedFloor = 0.05

// AllShapes is the name of all common shapes of two recorded runs.
const AllShapes = "all"

// RecordedShapes are the shapes on which two recorded runs are compared: those of the text, else the
// benchmark shapes. nil means all.
func RecordedShapes(kernel *spec.Kernel, text string) ([]string, error) {
	switch text {
	case AllShapes:
		return nil, nil
	case "":
		text = strings.Join(kernel.Run.Benchmark, ",")
	}
	shapes, err := kernel.Shapes(text)
	var names []string
	for _, s := range shapes {
		names = append(names, s.String())
	}
	return names, err
}

// Compare compares two recorded runs, which have their samples, on the shapes of RecordedShapes.
// Runs without a benchmark shape in common are compared on all shapes.
func Compare(a, b *run.Run, shapes []string, fallback bool) (c *run.Comparison, all bool, err error) {
	c, err = run.CompareRecorded(a, b, recordedFloor, shapes)
	if err != nil && fallback {
		c, err = run.CompareRecorded(a, b, recordedFloor, nil)
		return c, true, err
	}
	return c, shapes == nil, err
}

// Comparison is the document of `attune compare --json`.
type Comparison struct {
	SchemaVersion int     `json:"schema_version"`
	Ratio         float64 `json:"ratio"`
	Low           float64 `json:"ratio_low"`
	High          float64 `json:"ratio_high"`
	*run.Comparison
}

// NewComparison describes a comparison.
func NewComparison(c *run.Comparison) Comparison {
	overall := c.Overall()
	return Comparison{1, overall.Ratio, overall.Low, overall.High, c}
}
