package run

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"attune/internal/coverage"
	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/toolchain"
)

// SchemaVersion counts incompatible changes of the document.
const SchemaVersion = 1

// Run is the record of one variant or selection.
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
	Reproduces    string    `json:"reproduces,omitempty"` // id of the run that this one repeats
	PartOf        string    `json:"part_of,omitempty"`    // selection that this run is a part of

	Device     string       `json:"device"` // cuda, sim or none
	Arch       string       `json:"arch"`
	CodeHash   string       `json:"code_hash,omitempty"`
	Verdict    gate.Verdict `json:"verdict"`
	Gates      Gates        `json:"gates"`
	Reasons    Reasons      `json:"reasons"`
	MeasuredAs *MeasuredAs  `json:"measured_as,omitempty"`
	Failure    string       `json:"failure,omitempty"`   // caused by the kernel: compile error, fault, crash or timeout
	TimedOut   bool         `json:"timed_out,omitempty"` // the failure is a timeout
	Headline   *Headline    `json:"headline,omitempty"`

	Problem        *Problem `json:"problem,omitempty"`         // of a declared kernel
	ReferenceError string   `json:"reference_error,omitempty"` // why outputs could not be compared

	Audit           []finding.Finding `json:"audit,omitempty"` // of the PTX; the correctness gate fails for those that are not allowed
	Correctness     []Correctness     `json:"correctness"`
	Lines           *coverage.Summary `json:"lines,omitempty"`     // of the source, by the simulator; of a correct run
	Simulated       *Simulated        `json:"simulated,omitempty"` // on a GPU; nil with NoSim and in old records
	Performance     []Performance     `json:"performance"`
	Speedup         *measure.Speedup  `json:"speedup,omitempty"` // over the benchmark shapes
	RequiredSpeedup float64           `json:"required_speedup,omitempty"`

	Parts     []Part             `json:"parts,omitempty"` // of a selection, which has no build of its own
	Requested Requested          `json:"asked"`
	Build     *toolchain.Record  `json:"build,omitempty"`
	Loaded    *device.Attributes `json:"loaded,omitempty"` // attributes that the driver reports
	Ran       string             `json:"ran,omitempty"`    // cubin, or ptx that the device compiled
	Facts     *device.Facts      `json:"device_facts,omitempty"`
	GitSHA    string             `json:"git_sha,omitempty"`
	Git       toolchain.Git      `json:"git"`
	Attune    string             `json:"attune"` // version of the program

	Samples []Samples `json:"-"` // in a file of their own
	Log     string    `json:"-"` // of ptxas
}

// Problem is what a declared kernel computes.
type Problem struct {
	Kind       string            `json:"kind"`
	SpecSHA256 string            `json:"spec_sha256,omitempty"` // of kernel.toml
	Facts      map[string]string `json:"facts,omitempty"`       // how references were computed
}

// Part is one variant of a selection: a run of its own, on the shapes that the selection chose it
// for.
type Part struct {
	Variant  string       `json:"variant"`
	Run      string       `json:"run"`
	Arch     string       `json:"arch"`
	CodeHash string       `json:"code_hash,omitempty"`
	Verdict  gate.Verdict `json:"verdict"`
	Shapes   []string     `json:"shapes"`
}

// VariantOn is the variant that a selection chose for a shape. It is empty for a run of one
// variant.
func (r *Run) VariantOn(shape string) string {
	for _, p := range r.Parts {
		if slices.Contains(p.Shapes, shape) {
			return p.Variant
		}
	}
	return ""
}

// MeasuredAs names an earlier run of the same command whose outputs this run reuses: both variants
// have the same machine code.
type MeasuredAs struct {
	Run     string `json:"run"`
	Variant string `json:"variant"`
	// Times reports whether the times are reused too. Otherwise there are none, or they were
	// measured again, interleaved with another parent.
	Times bool `json:"times"`
}

// Gates is the outcome of each gate.
type Gates struct {
	Resources   gate.Status `json:"resources"`
	Correctness gate.Status `json:"correctness"`
	Performance gate.Status `json:"performance"`
	Profile     gate.Status `json:"profile"`
}

// Reasons explains the outcome of each gate.
type Reasons struct {
	Resources   []string `json:"resources,omitempty"`
	Correctness []string `json:"correctness,omitempty"`
	Performance []string `json:"performance,omitempty"`
	Profile     []string `json:"profile,omitempty"`
}

// SetGates records the checks of all gates.
func (r *Run) SetGates(g gate.Gates) {
	r.Gates = Gates{g.Resources.Status, g.Correctness.Status, g.Performance.Status, g.Profile.Status}
	r.Reasons = Reasons{g.Resources.Reasons, g.Correctness.Reasons, g.Performance.Reasons, g.Profile.Reasons}
}

// Notes lists the notes on the outputs of a run. A note about one place of the code is listed once.
func (r *Run) Notes() []string {
	var list []string
	for _, f := range r.Reported() {
		if !f.Failed {
			list = append(list, f.Text())
		}
	}
	return list
}

// AllowedFindings are the findings of the audit that kernel.toml allows.
func (r *Run) AllowedFindings() []finding.Finding {
	return slices.DeleteFunc(slices.Clone(r.Audit), func(f finding.Finding) bool { return f.Severity == finding.Error })
}

// GateOutcome is one gate of a run.
type GateOutcome struct {
	Name    string
	Status  gate.Status
	Reasons []string
}

// GateOutcomes are the gates of a run, in their order.
func (r *Run) GateOutcomes() []GateOutcome {
	return []GateOutcome{
		{"resources", r.Gates.Resources, r.Reasons.Resources},
		{"correctness", r.Gates.Correctness, r.Reasons.Correctness},
		{"performance", r.Gates.Performance, r.Reasons.Performance},
		{"profile", r.Gates.Profile, r.Reasons.Profile},
	}
}

// NotCompiled begins the reasons of a variant that the compiler refuses. The last reason is all that
// the compiler printed, and advice may be between the two.
const NotCompiled = "it does not compile"

// CompilerOutput is what the compiler printed about a variant that does not compile, and the advice
// on it, which may be empty.
func (r *Run) CompilerOutput() (output string, advice []string, refused bool) {
	reasons := r.Reasons.Resources
	if r.Gates.Resources != gate.Fail || len(reasons) < 2 || !strings.HasPrefix(reasons[0], NotCompiled) {
		return "", nil, false
	}
	last := len(reasons) - 1
	return reasons[last], reasons[1:last], true
}

// Cause is why a run's verdict is not merge, in one line: the first reason of the first gate that
// failed, or else of the first that was not measured. It is empty for a merge.
func (r *Run) Cause() string {
	if r.Verdict == gate.Merge {
		return ""
	}
	for _, status := range []gate.Status{gate.Fail, gate.NotMeasured} {
		for _, g := range r.GateOutcomes() {
			if g.Status == status && len(g.Reasons) > 0 {
				line, _, _ := strings.Cut(g.Reasons[0], "\n")
				return line
			}
		}
	}
	return ""
}

// Headline is the time that lists of runs show.
type Headline struct {
	Shape       string   `json:"shape"`
	P50US       float64  `json:"p50_us"`
	ParentRatio *float64 `json:"parent_ratio,omitempty"`
}

// Correctness is one output compared with its reference.
type Correctness struct {
	Shape     string `json:"shape"`
	ShapeName string `json:"shape_name,omitempty"` // label of a declared shape
	Seed      uint64 `json:"seed"`
	Inputs    string `json:"inputs,omitempty"` // distribution of attention; empty means normal, in old records
	Pass      bool   `json:"pass"`
	oracle.Errors
	LSE *oracle.LSEErrors `json:"lse,omitempty"` // if the kernel writes the log-sum-exp
	// Exponentials compares the errors with those of exact exponentials, if P is rounded to E4M3.
	Exponentials *oracle.Exponentials `json:"exponentials,omitempty"`
	// Outputs are those of a declared problem. The other errors are then of the output with the largest
	// share of bad elements.
	Outputs      []oracle.OutputErrors `json:"outputs,omitempty"`
	Limits       gate.Limits           `json:"limits"`
	InputCost    *oracle.ErrorSize     `json:"input_cost,omitempty"` // of attention
	Findings     []finding.Finding     `json:"findings,omitempty"`
	Notes        []finding.Finding     `json:"notes,omitempty"` // what fails nothing, such as strict findings of the simulator
	Wrong        []string              `json:"wrong,omitempty"`
	OutputSHA256 string                `json:"output_sha256,omitempty"` // of the output bytes, to compare devices bit for bit
	Relaunch     *Relaunch             `json:"relaunch,omitempty"`      // on the smallest shape
	Schedules    int                   `json:"schedules,omitempty"`     // of the simulator; 0 on a GPU and in old records
}

// unordered reports whether the bytes of the output may differ between equal launches.
func (c *Correctness) unordered() bool {
	return slices.ContainsFunc(c.Notes, func(f finding.Finding) bool { return f.Is(finding.UnorderedSums) })
}

// Relaunch is the result of two further launches of the loaded kernel in the same buffers: on the
// inputs of another seed, and on the first inputs again. Outputs are not poisoned in between.
type Relaunch struct {
	Seed        uint64  `json:"seed"`                   // random, so that no kernel can know the inputs
	Inputs      string  `json:"inputs,omitempty"`       // "edges": of a declared kernel, with the edges of the fills
	ScaleFactor float64 `json:"scale_factor,omitempty"` // softmax scale of the other inputs, in units of the usual one
	Pass        bool    `json:"pass"`
	oracle.Errors
	LSE     *oracle.LSEErrors     `json:"lse,omitempty"`
	Outputs []oracle.OutputErrors `json:"outputs,omitempty"`
	Repeats bool                  `json:"repeats"` // the output on the first inputs is that of the first launch
	// Alone says that a launch on the other inputs was wrong on a fresh device too.
	Alone bool `json:"alone,omitempty"`
}

// Performance is the time of a variant on one shape, interleaved with its parent.
type Performance struct {
	Shape        string   `json:"shape"`
	ShapeName    string   `json:"shape_name,omitempty"` // label of a declared shape
	P50US        float64  `json:"p50_us"`
	P90US        float64  `json:"p90_us"`
	P99US        float64  `json:"p99_us"`
	StdUS        float64  `json:"std_us"`
	P50LowUS     *float64 `json:"p50_low_us,omitempty"` // interval of the median, which covers what differs between processes
	P50HighUS    *float64 `json:"p50_high_us,omitempty"`
	Processes    int      `json:"processes,omitempty"` // in which the samples were taken; 0 means 1, in old records
	CV           float64  `json:"cv,omitempty"`        // standard deviation over mean
	TFLOPS       *float64 `json:"tflops,omitempty"`    // nil if the work is unknown
	GBPerS       *float64 `json:"gb_per_s,omitempty"`  // of a declared problem
	Shares       *Shares  `json:"shares,omitempty"`    // of the device's ceilings, for a declared problem
	Samples      int      `json:"samples"`
	ParentP50US  *float64 `json:"parent_p50_us,omitempty"`
	ParentRatio  *float64 `json:"parent_ratio,omitempty"`
	RatioLow     *float64 `json:"ratio_low,omitempty"`
	RatioHigh    *float64 `json:"ratio_high,omitempty"`
	Benchmark    bool     `json:"judged"` // counted by the performance gate
	Joules       *float64 `json:"joules_per_launch,omitempty"`
	ParentJoules *float64 `json:"parent_joules_per_launch,omitempty"`
	RelatedTimes
	Conditions
}

// NewPerformance derives the figures of one shape from its samples. flops and bytes are the work of
// one launch; 0 means unknown.
func NewPerformance(flops, bytes float64, s Samples) Performance {
	const us = 1e6
	pair := s.Pair()
	sum := measure.SummarizeProcesses(pair.Variant)
	p := Performance{
		Shape: s.Shape, P50US: sum.P50 * us, P90US: sum.P90 * us, P99US: sum.P99 * us, StdUS: sum.Std * us, CV: sum.CV,
		TFLOPS: measured(flops / sum.P50 / 1e12), GBPerS: measured(bytes / sum.P50 / 1e9), Samples: len(slices.Concat(pair.Variant...)), Processes: len(pair.Variant),
		Joules: measured(s.Variant.Joules), RelatedTimes: RelatedTimesOf(s.Variant), Conditions: s.Conditions(),
	}
	if sum.Median != nil {
		low, high := sum.Median.Low*us, sum.Median.High*us
		p.P50LowUS, p.P50HighUS = &low, &high
	}
	if s.Parent != nil {
		speedup := measure.CompareProcesses([]measure.ProcessPair{pair})
		parentP50 := measure.Summarize(slices.Concat(pair.Parent...)).P50 * us
		p.ParentP50US, p.ParentRatio, p.RatioLow, p.RatioHigh = &parentP50, &speedup.Ratio, &speedup.Low, &speedup.High
		p.ParentJoules = measured(s.Parent.Joules)
	}
	return p
}

// measured is a figure whose zero value means not measured.
func measured(figure float64) *float64 {
	if figure == 0 {
		return nil
	}
	return &figure
}

// Headline is the row in lists of runs.
func (p Performance) Headline() *Headline {
	return &Headline{Shape: p.Shape, P50US: p.P50US, ParentRatio: p.ParentRatio}
}

// Samples are the raw times of one shape.
type Samples struct {
	Shape   string         `json:"shape"`
	Variant device.Series  `json:"variant"`
	Parent  *device.Series `json:"parent,omitempty"`
}

// And joins the samples of two processes. A nil receiver has none yet.
func (s *Samples) And(more *Samples) *Samples {
	if s == nil {
		return more
	}
	joined := Samples{Shape: s.Shape, Variant: s.Variant.And(more.Variant)}
	if s.Parent != nil {
		parent := s.Parent.And(*more.Parent)
		joined.Parent = &parent
	}
	return &joined
}

func (s Samples) series() []device.Series {
	all := []device.Series{s.Variant}
	if s.Parent != nil {
		all = append(all, *s.Parent)
	}
	return all
}

// Steady are the samples of rounds in which the GPU was not throttled.
func (s Samples) Steady() (variant, parent []float64) {
	kept, _, _ := device.Steady(1, s.series()...)
	if s.Parent != nil {
		parent = kept[1]
	}
	return kept[0], parent
}

// Pair is the samples by process, of rounds in which the GPU was not throttled. Without times of the
// parent, the two have the same code and the parent's times are the variant's.
func (s Samples) Pair() measure.ProcessPair {
	kept := device.SteadyByProcess(s.series()...)
	return measure.ProcessPair{Variant: kept[0], Parent: kept[len(kept)-1]}
}

// Conditions are those of both series.
func (s Samples) Conditions() Conditions { return ConditionsOf(1, s.series()...) }

// Requested is the request, so that the run can be repeated.
type Requested struct {
	Shapes    []string `json:"shapes"`
	Problems  int      `json:"problems,omitempty"` // outputs to check
	Quick     bool     `json:"quick,omitempty"`    // benchmark shapes took normal inputs only
	Seeds     []uint64 `json:"seeds"`
	Samples   int      `json:"samples"`
	Processes int      `json:"processes,omitempty"` // in which times are taken; 0 means 1, in old records
	Arch      string   `json:"arch,omitempty"`      // in place of the device's
	Against   string   `json:"against,omitempty"`
	Timing    string   `json:"timing,omitempty"`    // how times were taken
	L2        L2       `json:"l2,omitempty"`        // empty means warm, in old records
	Sanitizer string   `json:"sanitizer,omitempty"` // tool of compute-sanitizer
	NoSim     bool     `json:"no_sim,omitempty"`    // the simulator did not check the code that a GPU ran
	Profile   bool     `json:"profile,omitempty"`   // counters were taken instead of times

	Simulation *Simulation `json:"simulation,omitempty"` // nil on a GPU
}

// Command is the command line that repeats a run.
func (r *Run) Command() string {
	seeds := make([]string, len(r.Requested.Seeds))
	for i, s := range r.Requested.Seeds {
		seeds[i] = fmt.Sprint(s)
	}
	verb := "run"
	if r.Requested.Profile {
		verb = "profile"
	}
	command := fmt.Sprintf("attune %s %s --shapes %s --seeds %s",
		verb, ShellWord(r.Variant), ShellWord(strings.Join(r.Requested.Shapes, ",")), strings.Join(seeds, ","))
	if r.Requested.Quick {
		command += " --quick"
	}
	if s := r.Requested.Simulation; s != nil {
		command += s.flags()
	} else if r.Requested.Samples > 0 {
		command += fmt.Sprintf(" --rounds %d", r.Requested.Samples)
		if r.Requested.Processes > 0 {
			command += fmt.Sprintf(" --processes %d", r.Requested.Processes)
		}
	}
	if r.Requested.Arch != "" {
		command += " --arch " + ShellWord(r.Requested.Arch)
	}
	if r.Requested.Against != "" {
		command += " --against " + ShellWord(r.Requested.Against)
	}
	if r.Requested.L2 == Cold {
		command += " --l2 cold"
	}
	if r.Requested.Sanitizer != "" {
		command += " --sanitizer " + ShellWord(r.Requested.Sanitizer)
	}
	if r.Simulated != nil && len(r.Simulated.Sanitized) > 0 {
		command += " --sanitizer auto"
	}
	if r.Requested.NoSim {
		command += " " + NoSimFlag
	}
	return command
}

// FileName is the stem of a file about a variant on a shape, of characters that a ledger accepts.
// Of a long name the end is replaced by a hash.
func FileName(variant, shape string) string {
	const longest, kept = 160, 140
	name := strings.NewReplacer("+", "-", "=", "-", ":", "-", ",", "-").Replace(variant + "-" + shape)
	if len(name) <= longest {
		return name
	}
	return fmt.Sprintf("%s-%x", name[:kept], sha256.Sum256([]byte(name)))[:longest]
}

// Simulation is the simulator's settings.
type Simulation struct {
	Schedules int    `json:"schedules"`                // at most for one problem
	Automatic bool   `json:"schedules_auto,omitempty"` // the simulator has chosen the number for each problem
	Checks    bool   `json:"checks"`                   // on or off, all together
	Tensor    string `json:"tensor"`                   // arithmetic of the tensor cores: exact, f32 or f64
	Strict    bool   `json:"strict,omitempty"`         // strict findings fail the correctness gate
	// AddressSeed is random, so that no kernel can know the addresses of the simulator. 0 is a fixed
	// place.
	AddressSeed uint64 `json:"address_seed,omitempty"`
	MemoryMiB   int    `json:"memory_mib,omitempty"` // limit of one simulation; 0 for the default
}

// ExactTensor is the setting with the arithmetic of the chip.
const ExactTensor = "exact"

// Asked is the number of schedules that a run was asked for; 0 where the simulator chose it.
func (s *Simulation) Asked() int {
	if s.Automatic {
		return 0
	}
	return s.Schedules
}

// flags are the command-line flags of the settings.
func (s *Simulation) flags() string {
	flags := " --device sim"
	if s.Schedules > 1 && !s.Automatic {
		flags += fmt.Sprintf(" --schedules %d", s.Schedules)
	}
	if !s.Checks {
		flags += " --checks off"
	}
	if s.Tensor != ExactTensor {
		flags += " --tensor " + s.Tensor
	}
	if s.Strict {
		flags += " --strict"
	}
	return flags
}

// Decode reads run.json.
func Decode(text []byte) (*Run, error) {
	r := &Run{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read a run: %w", err)
	}
	if err := checkSchema("run", r.ID, r.SchemaVersion, SchemaVersion); err != nil {
		return nil, err
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	r.restoreSeverities()
	return r, nil
}

// restoreSeverities sets the severities that earlier records do not have, where the finding alone does
// not tell: of notes, and of findings of the audit, which are errors if a reason names them.
func (r *Run) restoreSeverities() {
	for i := range r.Correctness {
		for j := range r.Correctness[i].Notes {
			if n := &r.Correctness[i].Notes[j]; n.Severity == finding.Error {
				n.Severity = finding.Strict
			}
		}
	}
	for i := range r.Audit {
		f := &r.Audit[i]
		denied := func(reason string) bool { return strings.HasPrefix(reason, f.String()+";") }
		if f.Severity == finding.Error && !slices.ContainsFunc(r.Reasons.Correctness, denied) {
			f.Severity = finding.Note
		}
	}
}

// checkSchema refuses a record that this program cannot read.
func checkSchema(what, id string, version, newest int) error {
	if version < 1 {
		return fmt.Errorf("read a %s: it has no schema_version, so it is not a record of one", what)
	}
	if version > newest {
		return fmt.Errorf("%s %s was written by a newer attune (schema %d; this one reads up to %d)", what, id, version, newest)
	}
	return nil
}
