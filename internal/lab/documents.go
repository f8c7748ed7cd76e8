package lab

import (
	"encoding/json"
	"fmt"

	"attune/internal/report"
	"attune/internal/run"
)

// documents are the files of a run in the ledger.
func documents(r *run.Run) (map[string][]byte, error) {
	record, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the record of %s: %w", r.Variant, err)
	}
	samples, err := json.Marshal(map[string]any{"schema_version": run.SchemaVersion, "samples": r.Samples})
	if err != nil {
		return nil, fmt.Errorf("write the samples of %s: %w", r.Variant, err)
	}
	return map[string][]byte{
		"run.json":     append(record, '\n'),
		"samples.json": append(samples, '\n'),
		"ptxas.log":    []byte(r.Log),
		"report.md":    report.Markdown(r),
	}, nil
}
