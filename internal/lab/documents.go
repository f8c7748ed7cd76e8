package lab

import (
	"bytes"
	"encoding/json"
	"fmt"

	"attune/internal/report"
	"attune/internal/run"
)

// benchDocuments are the files of a bench in the ledger.
func benchDocuments(b *run.Bench) (map[string][]byte, error) {
	bare, taken := b.Apart()
	record, err := json.MarshalIndent(bare, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the record of a bench: %w", err)
	}
	samples, err := json.Marshal(map[string]any{"schema_version": run.BenchSchemaVersion, "samples": taken})
	if err != nil {
		return nil, fmt.Errorf("write the samples of a bench: %w", err)
	}
	var text bytes.Buffer
	if err := report.Bench(&text, b, true); err != nil {
		return nil, err
	}
	for _, line := range report.LeftOut(b.LeftOut) {
		fmt.Fprintf(&text, "%s\n", line)
	}
	return map[string][]byte{"bench.json": append(record, '\n'), "samples.json": append(samples, '\n'), "report.md": text.Bytes()}, nil
}

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
