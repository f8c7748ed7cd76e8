package run

import (
	"encoding/json"
	"fmt"
	"time"

	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/toolchain"
)

// SchemaVersion counts the changes of the document that a reader must know of.
const SchemaVersion = 1

// Run is the whole record.
type Run struct {
	SchemaVersion int       `json:"schema_version"`
	ID            string    `json:"id"`
	Time          time.Time `json:"time"`
	Kernel        string    `json:"kernel"`
	Variant       string    `json:"variant"`
	Stage         string    `json:"stage"`
	Parent        string    `json:"parent,omitempty"`
	Hypothesis    string    `json:"hypothesis,omitempty"`

	Device   string       `json:"device"` // cuda, sim or none
	Arch     string       `json:"arch"`
	CodeHash string       `json:"code_hash,omitempty"`
	Verdict  gate.Verdict `json:"verdict"`
	Gates    Gates        `json:"gates"`
	Reasons  Reasons      `json:"reasons"`
	Failure  string       `json:"failure,omitempty"`   // of the kernel itself: build, fault, crash or timeout
	TimedOut bool         `json:"timed_out,omitempty"` // the failure is a time limit that passed
	Headline *Headline    `json:"headline,omitempty"`

	Correctness     []Correctness    `json:"correctness"`
	Performance     []Performance    `json:"performance"`
	Speedup         *measure.Speedup `json:"speedup,omitempty"` // over the judged shapes
	RequiredSpeedup float64          `json:"required_speedup,omitempty"`

	Asked  Asked              `json:"asked"`
	Build  *toolchain.Record  `json:"build,omitempty"`
	Loaded *device.Attributes `json:"loaded,omitempty"` // what the driver says of the kernel
	Ran    string             `json:"ran,omitempty"`    // cubin, or ptx that the device compiled
	Facts  *device.Facts      `json:"device_facts,omitempty"`
	GitSHA string             `json:"git_sha,omitempty"`
	Git    toolchain.Git      `json:"git"`
	Attune string             `json:"attune"` // the program's own version

	Samples []Samples `json:"-"` // kept in a file of their own
	Log     string    `json:"-"` // of ptxas
}

// Gates is the outcome of each gate.
type Gates struct {
	Resources   gate.Status `json:"resources"`
	Correctness gate.Status `json:"correctness"`
	Performance gate.Status `json:"performance"`
	Profile     gate.Status `json:"profile"`
}

// Reasons says why each gate came out as it did.
type Reasons struct {
	Resources   []string `json:"resources,omitempty"`
	Correctness []string `json:"correctness,omitempty"`
	Performance []string `json:"performance,omitempty"`
	Profile     []string `json:"profile,omitempty"`
}

// SetGates writes the checks of all gates into the record.
func (r *Run) SetGates(g gate.Gates) {
	r.Gates = Gates{g.Resources.Status, g.Correctness.Status, g.Performance.Status, g.Profile.Status}
	r.Reasons = Reasons{g.Resources.Reasons, g.Correctness.Reasons, g.Performance.Reasons, g.Profile.Reasons}
}

// Headline is the figure by which a run is listed.
type Headline struct {
	Shape       string   `json:"shape"`
	P50US       float64  `json:"p50_us"`
	ParentRatio *float64 `json:"parent_ratio,omitempty"`
}

// Correctness is one answer held against the oracle.
type Correctness struct {
	Shape  string `json:"shape"`
	Seed   uint64 `json:"seed"`
	Inputs string `json:"inputs,omitempty"` // normal, outliers or peaked; empty, and normal, in records that are older than the others
	Pass   bool   `json:"pass"`
	oracle.Errors
	Limits       gate.Limits      `json:"limits"`
	InputCost    oracle.Cost      `json:"input_cost"`
	Findings     []device.Finding `json:"findings,omitempty"`
	Wrong        []string         `json:"wrong,omitempty"`
	OutputSHA256 string           `json:"output_sha256,omitempty"` // the bytes of the output, to compare devices bit for bit
}

// Performance is the time of one shape, and of the parent on it, taken in turns.
type Performance struct {
	Shape       string   `json:"shape"`
	P50US       float64  `json:"p50_us"`
	P90US       float64  `json:"p90_us"`
	P99US       float64  `json:"p99_us"`
	StdUS       float64  `json:"std_us"`
	TFLOPS      float64  `json:"tflops"`
	Samples     int      `json:"samples"`
	ParentP50US *float64 `json:"parent_p50_us,omitempty"`
	ParentRatio *float64 `json:"parent_ratio,omitempty"`
	RatioLow    *float64 `json:"ratio_low,omitempty"`
	RatioHigh   *float64 `json:"ratio_high,omitempty"`
	Judged      bool     `json:"judged"` // counts for the gate
}

// Samples is the raw timing of one shape.
type Samples struct {
	Shape   string         `json:"shape"`
	Variant device.Series  `json:"variant"`
	Parent  *device.Series `json:"parent,omitempty"`
}

// Asked is the request, for doing it again.
type Asked struct {
	Shapes    []string `json:"shapes"`
	Problems  int      `json:"problems,omitempty"` // answers that are to be right
	Seeds     []uint64 `json:"seeds"`
	Samples   int      `json:"samples"`
	Arch      string   `json:"arch,omitempty"` // in place of the device's
	Against   string   `json:"against,omitempty"`
	Timing    string   `json:"timing,omitempty"`    // how times were taken
	Sanitizer string   `json:"sanitizer,omitempty"` // the tool of compute-sanitizer that watched

	Simulation *Simulation `json:"simulation,omitempty"` // where the simulator was the device
}

// Simulation is how the simulator was set.
type Simulation struct {
	Schedules int    `json:"schedules"`
	Checks    bool   `json:"checks"` // all checkers, or none
	Tensor    string `json:"tensor"` // arithmetic of the tensor cores: exact, f32, f64
}

// Decode reads a record.
func Decode(text []byte) (*Run, error) {
	r := &Run{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read a run: %w", err)
	}
	if r.SchemaVersion < 1 {
		return nil, fmt.Errorf("read a run: it has no schema_version, so it is no record of one")
	}
	if r.SchemaVersion > SchemaVersion {
		return nil, fmt.Errorf("run %s was written by a newer attune (schema %d, this one knows %d)", r.ID, r.SchemaVersion, SchemaVersion)
	}
	return r, nil
}
