package run

import (
	"encoding/json"
	"fmt"
	"time"

	"attune/internal/device"
	"attune/internal/toolchain"
	"attune/internal/tune"
)

// Files and the message type of a tuned selection.
const (
	SelectionFile    = "selection.json"
	ProposalFile     = "table.toml"
	TuningReport     = "report.md"
	SelectionMessage = "selection"
)

// SelectionSearch is the document selection.json of a selection that is being tuned. A call is resumed
// only if selection, shapes and held-out shapes are the same.
type SelectionSearch struct {
	SchemaVersion int       `json:"schema_version"`
	ID            string    `json:"id"`
	Time          time.Time `json:"time"`
	Selection     string    `json:"selection"`
	Shapes        []string  `json:"shapes"`
	Holdout       []string  `json:"holdout"`
	Evaluations   int       `json:"budget_evaluations"` // of all searches
	BudgetSeconds float64   `json:"budget_seconds"`
}

// SelectionTuning is the record of a tuned selection: tuning.json in the ledger, and the last line of
// `attune tune --selection --json`.
type SelectionTuning struct {
	SchemaVersion int            `json:"schema_version"`
	MessageType   string         `json:"message_type"` // "selection"
	ID            string         `json:"id,omitempty"` // in the ledger
	Time          time.Time      `json:"time"`
	Kernel        string         `json:"kernel"`
	Selection     string         `json:"selection"`
	Objective     string         `json:"objective"`
	Unit          string         `json:"unit"` // of costs
	Proposal      *tune.Proposal `json:"proposal"`
	Evaluations   int            `json:"evaluations"` // of all searches
	Searches      []*Tuning      `json:"searches"`    // of the shapes that are not held out
	Forms         []MeasuredForm `json:"forms"`
	Seconds       float64        `json:"seconds"` // of the last session

	Facts  device.Facts  `json:"facts"`
	Git    toolchain.Git `json:"git"`
	GitSHA string        `json:"git_sha,omitempty"`
	Attune string        `json:"attune"`
}

// MeasuredForm is a form with its cost on each shape of the proposal; nil where it does not take the
// shape, or is wrong on it.
type MeasuredForm struct {
	Variant string     `json:"variant"`
	Costs   []*float64 `json:"costs"`
}

// Document returns tuning.json.
func (t *SelectionTuning) Document() ([]byte, error) { return encodeRecord("a tuned selection", t) }

// DecodeSelectionTuning reads the tuning.json of a tuned selection; nil if it is that of one search.
func DecodeSelectionTuning(text []byte) (*SelectionTuning, error) {
	t := &SelectionTuning{}
	if err := json.Unmarshal(text, t); err != nil {
		return nil, fmt.Errorf("read a tuned selection: %w", err)
	}
	if t.MessageType != SelectionMessage {
		return nil, nil
	}
	if t.Proposal == nil {
		return nil, fmt.Errorf("read a tuned selection: %s has no proposal", t.ID)
	}
	return t, checkSchema("tuned selection", t.ID, t.SchemaVersion, TuningSchemaVersion)
}
