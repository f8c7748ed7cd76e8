package run

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
)

// Names of the files in a record. The samples are compressed: as text they are most of a record.
const (
	runFile     = "run.json"
	benchFile   = "bench.json"
	samplesFile = "samples.json.gz"
	LogFile     = "ptxas.log" // what ptxas printed
)

// Documents returns the files of a run's record by name: run.json, samples.json.gz and ptxas.log.
func (r *Run) Documents() (map[string][]byte, error) {
	record, err := encodeRecord(r.Variant, r)
	if err != nil {
		return nil, err
	}
	samples, err := encodeSamples(SchemaVersion, r.Samples)
	if err != nil {
		return nil, fmt.Errorf("write the samples of %s: %w", r.Variant, err)
	}
	return map[string][]byte{runFile: record, samplesFile: samples, LogFile: []byte(r.Log)}, nil
}

// Documents returns the files of a bench's record by name: bench.json and samples.json.gz.
func (b *Bench) Documents() (map[string][]byte, error) {
	withoutSamples, all := b.SplitSamples()
	record, err := encodeRecord("a bench", withoutSamples)
	if err != nil {
		return nil, err
	}
	samples, err := encodeSamples(BenchSchemaVersion, all)
	if err != nil {
		return nil, fmt.Errorf("write the samples of a bench: %w", err)
	}
	return map[string][]byte{benchFile: record, samplesFile: samples}, nil
}

// encodeRecord returns the JSON document of a record.
func encodeRecord(of string, record any) ([]byte, error) {
	text, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the record of %s: %w", of, err)
	}
	return append(text, '\n'), nil
}

// encodeSamples returns the compressed document of samples. Equal samples give equal bytes: the
// gzip header has no file name and no time.
func encodeSamples(schema int, samples any) ([]byte, error) {
	text, err := json.Marshal(map[string]any{"schema_version": schema, "samples": samples})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	compressor, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := compressor.Write(append(text, '\n')); err != nil {
		return nil, err
	}
	if err := compressor.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// DecodeSamples reads the samples of a run from the text of its samples.json.
func DecodeSamples(text []byte) ([]Samples, error) {
	var file struct {
		Samples []Samples `json:"samples"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("read the samples of a run: %w", err)
	}
	return file.Samples, nil
}
