package tuner

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"attune/internal/device"
	"attune/internal/lab"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
)

// Candidate is one variant or patch on its way through a search. A Proposer sets the exported fields.
type Candidate struct {
	Variant spec.Variant
	Patch   *Patch // nil for the kernel as it is
	Origin  string // for the record
	Parent  string // for the record

	isDefault bool
	point     tune.Point // nil for one outside of the space, which does not teach the strategy
	build     problem.Build
	simulated *run.Simulated                       // beside a GPU; nil before it was simulated
	counters  map[problem.Instance]device.Counters // of the simulator, while it is evaluated
	result    run.TuneEvaluation
	failure   error      // behind the failure of the result; may be nil
	suggest   []int      // knobs, by the profile of a new best
	elsewhere *elsewhere // its evaluation on another machine; nil before it is sent
}

// Patch is a change of the kernel's sources, which nobody has reviewed.
type Patch struct {
	Lab  *lab.Lab // builds the patched kernel
	Diff []byte
	// File is the name of the diff in the folder of the search, if the proposer keeps it there.
	File string
}

// file is the name of the patch in the folder of the search; empty without a patch.
func (p *Patch) file() string {
	if p == nil {
		return ""
	}
	if p.File != "" || len(p.Diff) == 0 {
		return p.File
	}
	sum := sha256.Sum256(p.Diff)
	return hex.EncodeToString(sum[:6]) + ".patch"
}

// save writes the patch into the folder of the search, unless the proposer keeps it there.
func (p *Patch) save(folder string) error {
	if name := p.file(); name == "" || name == p.File || folder == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(folder, p.file()), p.Diff, 0o644)
}

// start gives a candidate an empty result.
func (c Candidate) start(objective string) *Candidate {
	c.counters = map[problem.Instance]device.Counters{}
	c.result = run.TuneEvaluation{
		SchemaVersion: run.TuningSchemaVersion, MessageType: "evaluation", Variant: c.Variant.String(), Patch: c.Patch.file(),
		Origin: c.Origin, Parent: c.Parent, Objective: objective,
	}
	return &c
}

// copy is a candidate that can fail by itself.
func (c *Candidate) copy() *Candidate {
	other := *c
	other.counters = map[problem.Instance]device.Counters{}
	return &other
}

// ok reports whether nothing has failed so far.
func (c *Candidate) ok() bool { return c.result.OK() }

// name is the variant and its patch.
func (c *Candidate) name() string { return c.result.Name() }

// key identifies what was evaluated. A patched kernel has variants of its own.
func key(e run.TuneEvaluation) string { return e.Variant + "\x00" + e.Patch }

// code is the code of an evaluated candidate.
func code(e run.TuneEvaluation) lab.Code {
	return lab.Code{Hash: e.CodeHash, Arch: e.Arch, Launch: e.LaunchKey}
}

// fail ends the way of the candidate.
func (c *Candidate) fail(kind, reason string, err error) {
	c.result.Failure, c.failure = kind, err
	c.result.Reason, _, _ = strings.Cut(strings.TrimSpace(reason), "\n")
	c.result.Cost = nil
}

// failOnDevice fails the candidate if an error of the device is its fault, and reports whether it is.
func (c *Candidate) failOnDevice(err error) bool {
	switch device.Classify(err) {
	case device.KernelTimeout:
		c.fail(run.FailedTimeout, err.Error(), err)
	case device.KernelFault, device.KernelCrash:
		c.fail(run.FailedCrashed, err.Error(), err)
	case device.KernelUnsupported:
		c.fail(run.FailedUnsupported, err.Error(), err)
	default:
		return false
	}
	return true
}

// takeCorrectness fails the candidate if an instance went wrong, and keeps the counters.
func (c *Candidate) takeCorrectness(found *lab.Correctness) {
	maps.Copy(c.counters, found.Counters)
	switch {
	case device.Classify(found.Failure) == device.KernelUnsupported: // on every instance
		c.failOnDevice(found.Failure)
	case found.Failure != nil:
		c.failOnDevice(found.Failure)
		c.result.Reason = found.Instance.String() + ": " + c.result.Reason
	case found.Wrong != "":
		c.fail(run.FailedIncorrect, found.Instance.String()+": "+found.Wrong, nil)
	}
}

// setCost sets the cost and, if the candidate is better beyond doubt, makes it the best so far.
func (c *Candidate) setCost(cost float64, better bool) {
	c.result.Cost, c.result.Best = &cost, better
}

// mustRun is the error of a default that failed.
func (c *Candidate) mustRun() error {
	switch {
	case c.ok():
		return nil
	case c.result.Failure == run.FailedIncorrect:
		return &lab.WrongError{Variant: c.result.Variant, Wrong: c.result.Reason}
	case c.failure != nil:
		return fmt.Errorf("the default %s: %w", c.result.Variant, c.failure)
	}
	return lab.RequestError(fmt.Sprintf("the default %s: %s; a search starts from a variant that runs", c.result.Variant, c.result.Reason))
}

// row describes a candidate of the finals without its measurement.
func (c *Candidate) row() run.TunedVariant {
	e := &c.result
	return run.TunedVariant{
		Variant: e.Variant, CodeHash: e.CodeHash, Registers: e.Registers, SharedBytes: e.SharedBytes, Origin: e.Origin, Patch: e.Patch, Number: e.Number,
		Failure: e.Failure, Reason: e.Reason, Simulated: c.simulated,
	}
}
