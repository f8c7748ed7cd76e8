package run

import (
	"encoding/json"
	"fmt"
	"time"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/toolchain"
	"attune/internal/tune"
)

// TuningSchemaVersion counts incompatible changes of a tuning's documents.
const TuningSchemaVersion = 1

// The objectives of a search. All are minimised, as the geometric mean over the shapes.
const (
	ObjectiveTime   = "time"   // seconds of a launch
	ObjectiveEnergy = "energy" // joules of a launch
	ObjectiveCost   = "cost"   // simulated cost in cycles: an estimate from counters, no time
)

// CostLabel says what a simulated cost is, wherever one is printed.
const CostLabel = "simulated cost, no time"

// Failures of a variant in a search.
const (
	FailedCompile     = "compile"
	FailedResources   = "resources"
	FailedIncorrect   = "incorrect"
	FailedCrashed     = "crashed"
	FailedTimeout     = "timeout"
	FailedUnsupported = "unsupported" // by the device
)

// TuneIdentity is what a search depends on. A search is resumed only if all of it is the same.
type TuneIdentity struct {
	Kernel     string   `json:"kernel"`
	Sources    string   `json:"source_sha256"`
	Spec       string   `json:"spec_sha256,omitempty"`      // kernel.toml of a declared kernel
	Reference  string   `json:"reference_sha256,omitempty"` // file of a declared reference
	Variant    string   `json:"variant"`                    // the default
	Space      string   `json:"space"`                      // fingerprint of knobs, values and constraints
	Shapes     []string `json:"shapes"`
	Small      []string `json:"small_shapes"`
	Seeds      []uint64 `json:"seeds"`
	Objective  string   `json:"objective"`
	Strategy   string   `json:"strategy"`
	SearchSeed uint64   `json:"search_seed"`
	Elites     int      `json:"elites"`
	Budget     int      `json:"budget,omitempty"` // of annealing, whose temperature depends on it
	Device     string   `json:"device"`
	Driver     string   `json:"driver,omitempty"`
	Arch       string   `json:"arch"`
	Compiler   string   `json:"compiler"`
}

// TuneSearch is the document search.json of a search that runs.
type TuneSearch struct {
	SchemaVersion int          `json:"schema_version"`
	ID            string       `json:"id"`
	Time          time.Time    `json:"time"`
	Ahead         int          `json:"ahead"` // variants that are asked for before the first one has a result
	Identity      TuneIdentity `json:"search"`
}

// TuneEvaluation is the result of one variant in a search. It is a line of `attune tune --json`, and
// the detail of a line of journal.jsonl.
type TuneEvaluation struct {
	SchemaVersion int    `json:"schema_version"`
	MessageType   string `json:"message_type"` // "evaluation"
	// Number counts the evaluations of the budget, from 1. A variant of equal code has the number of the
	// evaluation whose result it takes.
	Number  int    `json:"number"`
	Variant string `json:"variant"`
	Origin  string `json:"origin"` // "default", the strategy, or what proposed it
	Parent  string `json:"parent,omitempty"`
	Patch   string `json:"patch,omitempty"` // file of the patch that made the kernel

	Arch        string `json:"arch,omitempty"`
	CodeHash    string `json:"code_hash,omitempty"`
	LaunchKey   string `json:"launch_key,omitempty"` // knobs that the launch depends on besides
	Registers   int    `json:"registers,omitempty"`
	SharedBytes int    `json:"shared_bytes,omitempty"`
	// SameAs is the name of the variant whose machine code this one has. Its result is that variant's, and it is
	// not counted against the budget.
	SameAs string `json:"same_code_as,omitempty"`

	Failure string `json:"failure,omitempty"` // why there is no cost
	Reason  string `json:"reason,omitempty"`  // first line of what was wrong

	Objective string      `json:"objective"`
	Cost      *float64    `json:"cost"` // seconds, joules or cycles, relative to the best so far; nil after a failure
	Shapes    []TuneShape `json:"shapes,omitempty"`
	// Against is the name of the best variant so far, with which this one was interleaved, and Ratio its cost over
	// this one's: above 1 this one is better. Rounds counts the samples of each shape.
	Against string           `json:"against,omitempty"`
	Ratio   *measure.Speedup `json:"ratio,omitempty"`
	Rounds  int              `json:"rounds"`
	Best    bool             `json:"new_best"` // it is the best so far from now on
	// Demoted are the names of variants that were the best so far, and whose timed launches were wrong
	// beside this one's.
	Demoted []string `json:"demoted,omitempty"`

	Suggested []string `json:"suggested_knobs,omitempty"` // by the profile of a new best
	Seconds   float64  `json:"seconds"`                   // of the evaluation
}

// Name is the variant and, of a patched kernel, its patch.
func (e *TuneEvaluation) Name() string { return tunedName(e.Variant, e.Patch) }

func tunedName(variant, patch string) string {
	if patch == "" {
		return variant
	}
	return variant + " with " + patch
}

// OK reports whether the variant has a cost.
func (e *TuneEvaluation) OK() bool { return e.Failure == "" }

// TuneShape is the result of a variant on one shape.
type TuneShape struct {
	Shape string           `json:"shape"`
	P50US *float64         `json:"p50_us,omitempty"` // nil for a simulated cost
	Cost  float64          `json:"cost"`             // seconds, joules or cycles
	Ratio *measure.Speedup `json:"ratio,omitempty"`  // of what it was interleaved with over this variant
}

// TuneElites is the document elite.json: the best variants so far, the best first. It is replaced as
// a whole after each change, so that other programs can read it while the search runs.
type TuneElites struct {
	SchemaVersion int              `json:"schema_version"`
	ID            string           `json:"id"`
	Objective     string           `json:"objective"`
	Unit          string           `json:"unit"`
	Evaluations   int              `json:"evaluations"`
	Default       TuneEvaluation   `json:"default"`
	Elites        []TuneEvaluation `json:"elites"`
}

// FinishedSearch is a search with all its evaluations.
type FinishedSearch struct {
	*Tuning
	Evaluations []TuneEvaluation
}

// Tuning is the record of a finished search: tuning.json in the ledger, and the last line of `attune
// tune --json`.
type Tuning struct {
	SchemaVersion int          `json:"schema_version"`
	MessageType   string       `json:"message_type"` // "tuning"
	ID            string       `json:"id,omitempty"` // in the ledger
	Time          time.Time    `json:"time"`
	Kernel        string       `json:"kernel"`
	Stage         string       `json:"stage"`
	Objective     string       `json:"objective"`
	Unit          string       `json:"unit"` // of costs
	Identity      TuneIdentity `json:"search"`

	Best    TunedVariant   `json:"best"`
	Default TunedVariant   `json:"default"`
	Faster  bool           `json:"faster"` // best is better than the default beyond doubt; else it is the default
	Elites  []TunedVariant `json:"elites"` // without the default, the best first

	Variants    *float64       `json:"variants"`    // of the space; nil if unknown
	Evaluations int            `json:"evaluations"` // counted against the budget
	EqualCode   int            `json:"equal_code"`  // variants whose machine code was evaluated before
	Failures    map[string]int `json:"failures"`    // by kind
	// FirstFailures has the first variant of each kind. The journal has all.
	FirstFailures []TuneFailure `json:"first_failures,omitempty"`
	Ended         string        `json:"ended"` // why the search ended
	// Effects are those of the knobs, the largest first.
	Effects []tune.KnobEffect `json:"effects,omitempty"`
	Seconds float64           `json:"seconds"`          // of all sessions
	NoSim   bool              `json:"no_sim,omitempty"` // the simulator did not check the finals

	Facts  device.Facts  `json:"facts"`
	Git    toolchain.Git `json:"git"`
	GitSHA string        `json:"git_sha,omitempty"`
	Attune string        `json:"attune"`
}

// TuneFailure is a variant of a search that failed.
type TuneFailure struct {
	Kind    string `json:"failure"`
	Variant string `json:"variant"` // its name
	Reason  string `json:"reason"`
}

// TunedVariant is a variant of the finals: checked on all shapes and seeds, then timed interleaved
// with the default.
type TunedVariant struct {
	Variant     string           `json:"variant"`
	Shape       string           `json:"shape"`            // the first one
	P50US       *float64         `json:"p50_us,omitempty"` // on Shape; nil for a simulated cost
	Cost        *float64         `json:"cost"`
	Ratio       *measure.Speedup `json:"ratio,omitempty"` // the default's cost over this one's: above 1 this one is better
	Verdict     measure.Verdict  `json:"verdict,omitempty"`
	Shapes      []TuneShape      `json:"shapes,omitempty"`
	CodeHash    string           `json:"code_hash,omitempty"`
	Registers   int              `json:"registers,omitempty"`
	SharedBytes int              `json:"shared_bytes,omitempty"`
	Origin      string           `json:"origin,omitempty"`
	Patch       string           `json:"patch,omitempty"`
	Number      int              `json:"number,omitempty"` // of its evaluation
	Failure     string           `json:"failure,omitempty"`
	Reason      string           `json:"reason,omitempty"`
	Simulated   *Simulated       `json:"simulated,omitempty"` // beside the GPU; nil with NoSim and in old records
}

// Name is the variant and, of a patched kernel, its patch.
func (v *TunedVariant) Name() string { return tunedName(v.Variant, v.Patch) }

// Simulated reports whether the costs are estimates of the simulator.
func (t *Tuning) Simulated() bool { return t.Objective == ObjectiveCost }

// Failed counts the variants without a cost.
func (t *Tuning) Failed() int {
	n := 0
	for _, count := range t.Failures {
		n += count
	}
	return n
}

// ObjectiveUnit is the unit of the costs of an objective.
func ObjectiveUnit(objective string) string {
	switch objective {
	case ObjectiveTime:
		return "seconds"
	case ObjectiveEnergy:
		return "joules"
	}
	return "cycles (" + CostLabel + ")"
}

// Files of a search and its record.
const (
	TuningFile    = "tuning.json"
	TuneJournal   = "journal.jsonl"
	TuneEliteFile = "elite.json"
	TuneFile      = "search.json"
)

// Document returns tuning.json.
func (t *Tuning) Document() ([]byte, error) { return encodeRecord("a tuning", t) }

// DecodeTuning reads tuning.json.
func DecodeTuning(text []byte) (*Tuning, error) {
	t := &Tuning{}
	if err := json.Unmarshal(text, t); err != nil {
		return nil, fmt.Errorf("read a tuning: %w", err)
	}
	if err := checkSchema("tuning", t.ID, t.SchemaVersion, TuningSchemaVersion); err != nil {
		return nil, err
	}
	return t, t.check()
}

// check refuses a tuning that lacks figures which are always recorded together. Reports rely on it.
func (t *Tuning) check() error {
	names := []string{"best", "default"}
	all := []TunedVariant{t.Best, t.Default}
	for i, v := range t.Elites {
		names, all = append(names, fmt.Sprintf("elites.%d", i)), append(all, v)
	}
	for i, v := range all {
		if v.Failure == "" && (v.Cost == nil || v.Ratio == nil) {
			return fmt.Errorf("tuning %s is damaged: %s of its %s has no cost or no ratio", t.ID, names[i], TuningFile)
		}
	}
	return nil
}
