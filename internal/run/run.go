package run

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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
	Change        string    `json:"change,omitempty"` // from the parent, such as +USE_WMMA_PV=1
	Hypothesis    string    `json:"hypothesis,omitempty"`
	Reproduces    string    `json:"reproduces,omitempty"` // the run that this one did again
	PartOf        string    `json:"part_of,omitempty"`    // the selection that this run is a part of

	Device     string       `json:"device"` // cuda, sim or none
	Arch       string       `json:"arch"`
	CodeHash   string       `json:"code_hash,omitempty"`
	Verdict    gate.Verdict `json:"verdict"`
	Gates      Gates        `json:"gates"`
	Reasons    Reasons      `json:"reasons"`
	MeasuredAs *MeasuredAs  `json:"measured_as,omitempty"`
	Failure    string       `json:"failure,omitempty"`   // of the kernel itself: build, fault, crash or timeout
	TimedOut   bool         `json:"timed_out,omitempty"` // the failure is a time limit that passed
	Headline   *Headline    `json:"headline,omitempty"`

	Correctness     []Correctness    `json:"correctness"`
	Performance     []Performance    `json:"performance"`
	Speedup         *measure.Speedup `json:"speedup,omitempty"` // over the judged shapes
	RequiredSpeedup float64          `json:"required_speedup,omitempty"`

	Parts  []Part             `json:"parts,omitempty"` // of a selection, which has no build of its own
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

// Part is what one variant of a selection took: a run of its own, on some of the shapes.
type Part struct {
	Variant  string       `json:"variant"`
	Run      string       `json:"run"`
	Arch     string       `json:"arch"`
	CodeHash string       `json:"code_hash,omitempty"`
	Verdict  gate.Verdict `json:"verdict"`
	Shapes   []string     `json:"shapes"`
}

// TakenBy is the variant that took a shape of a selection; empty where the run is of one variant.
func (r *Run) TakenBy(shape string) string {
	for _, p := range r.Parts {
		if slices.Contains(p.Shapes, shape) {
			return p.Variant
		}
	}
	return ""
}

// MeasuredAs names the run of the same command whose answers a run has taken over, because both variants are the same machine code.
type MeasuredAs struct {
	Run     string `json:"run"`
	Variant string `json:"variant"`
	Times   bool   `json:"times"` // taken over as well; else there are none, or they were taken anew in turns with another parent
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

// Cause is why a run is no merge, in one line: what the first gate said that failed or, where none did, that decided nothing.
func (r *Run) Cause() string {
	if r.Verdict == gate.Merge {
		return ""
	}
	for _, status := range []gate.Status{gate.Fail, gate.NotMeasured} {
		for _, g := range []struct {
			status  gate.Status
			reasons []string
		}{
			{r.Gates.Resources, r.Reasons.Resources},
			{r.Gates.Correctness, r.Reasons.Correctness},
			{r.Gates.Performance, r.Reasons.Performance},
			{r.Gates.Profile, r.Reasons.Profile},
		} {
			if g.status == status && len(g.reasons) > 0 {
				line, _, _ := strings.Cut(g.reasons[0], "\n")
				return line
			}
		}
	}
	return ""
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
	LSE          *oracle.LSEErrors `json:"lse,omitempty"` // where the kernel writes logarithms of sums
	Limits       gate.Limits       `json:"limits"`
	InputCost    oracle.Cost       `json:"input_cost"`
	Findings     []device.Finding  `json:"findings,omitempty"`
	Wrong        []string          `json:"wrong,omitempty"`
	OutputSHA256 string            `json:"output_sha256,omitempty"` // the bytes of the output, to compare devices bit for bit
}

// Performance is the time of one shape, and of the parent on it, taken in turns.
type Performance struct {
	Shape       string   `json:"shape"`
	P50US       float64  `json:"p50_us"`
	P90US       float64  `json:"p90_us"`
	P99US       float64  `json:"p99_us"`
	StdUS       float64  `json:"std_us"`
	P50LowUS    *float64 `json:"p50_low_us,omitempty"` // the interval of the median, as benchstat has it; none of fewer than six samples
	P50HighUS   *float64 `json:"p50_high_us,omitempty"`
	CV          float64  `json:"cv,omitempty"` // the standard deviation as a share of the mean
	TFLOPS      float64  `json:"tflops"`
	Samples     int      `json:"samples"`
	ParentP50US *float64 `json:"parent_p50_us,omitempty"`
	ParentRatio *float64 `json:"parent_ratio,omitempty"`
	RatioLow    *float64 `json:"ratio_low,omitempty"`
	RatioHigh   *float64 `json:"ratio_high,omitempty"`
	Judged      bool     `json:"judged"` // counts for the gate
	Parts
	Circumstances
}

// Samples is the raw timing of one shape.
type Samples struct {
	Shape   string         `json:"shape"`
	Variant device.Series  `json:"variant"`
	Parent  *device.Series `json:"parent,omitempty"`
}

func (s Samples) series() []device.Series {
	all := []device.Series{s.Variant}
	if s.Parent != nil {
		all = append(all, *s.Parent)
	}
	return all
}

// Steady are the samples that count, of rounds in which nothing held the clocks down.
func (s Samples) Steady() (variant, parent []float64) {
	kept, _, _ := device.Steady(1, s.series()...)
	if s.Parent != nil {
		parent = kept[1]
	}
	return kept[0], parent
}

// Circumstances are what both series were taken under.
func (s Samples) Circumstances() Circumstances { return CircumstancesOf(1, s.series()...) }

// Asked is the request, for doing it again.
type Asked struct {
	Shapes    []string `json:"shapes"`
	Problems  int      `json:"problems,omitempty"` // answers that are to be right
	Seeds     []uint64 `json:"seeds"`
	Samples   int      `json:"samples"`
	Arch      string   `json:"arch,omitempty"` // in place of the device's
	Against   string   `json:"against,omitempty"`
	Timing    string   `json:"timing,omitempty"`    // how times were taken
	L2        L2       `json:"l2,omitempty"`        // none is warm, as in records that are older than the choice
	Sanitizer string   `json:"sanitizer,omitempty"` // the tool of compute-sanitizer that watched
	Profile   bool     `json:"profile,omitempty"`   // counters were taken, and no times

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
	if err := checkSchema("run", r.ID, r.SchemaVersion, SchemaVersion); err != nil {
		return nil, err
	}
	return r, nil
}

// checkSchema says whether a record is one that this program can read.
func checkSchema(what, id string, version, newest int) error {
	if version < 1 {
		return fmt.Errorf("read a %s: it has no schema_version, so it is no record of one", what)
	}
	if version > newest {
		return fmt.Errorf("%s %s was written by a newer attune (schema %d, this one knows %d)", what, id, version, newest)
	}
	return nil
}
