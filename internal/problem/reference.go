package problem

import (
	"context"
	"errors"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/oracle"
	"attune/internal/tensor"
)

// References computes the inputs and right outputs of one command. Every variant is compared with
// the same ones.
type References interface {
	// Get computes the reference of an instance, once.
	Get(ctx context.Context, i Instance) (Reference, error)
	// KeepOnly drops everything but one instance.
	KeepOnly(i Instance)
	// Secret is the seed of sampled rows and of the inputs of relaunches.
	Secret() uint64
	// Facts describe how references are computed, for records. They are complete after the first Get;
	// nil for attention.
	Facts() map[string]string
	// Close ends the processes of the references.
	Close() error
}

// Reference is the inputs of an instance and the right outputs.
type Reference interface {
	Instance() Instance
	// Job is the launch of a build on the inputs.
	Job(b Build, facts device.Facts) (device.Job, error)
	// Compare measures the errors of the outputs of a launch, which are in the order of
	// device.Outcome.Outputs.
	Compare(b Build, outputs [][]byte) (Result, error)
	// CompareValues measures the errors of the outputs of a peer, by name. Attention has "o".
	CompareValues(outputs map[string][]float64) (Result, error)
	// Judge returns the limits of the errors, multiplied by a slack, and what is over them. A build
	// without an image is a peer.
	Judge(b Build, r Result, slack float64) (gate.Limits, []string)
	// Timed is the reference of a timed launch, whose inputs are rotated. It is nil if that reference
	// is too slow or cannot be computed.
	Timed(ctx context.Context, b Build, job device.Job, r device.Rotation) (Reference, error)
	// Coverage is how many rows of an output the reference has.
	Coverage() oracle.Coverage
	// InputCost is the error that the quantisation of the inputs causes; nil for a declared problem.
	InputCost() *oracle.ErrorSize
	// Peer is what a peer needs to compute the instance.
	Peer() PeerData
}

// Recomputed is a reference that can be computed again.
type Recomputed interface {
	// Recompute computes the right outputs of a build again, once. It returns a ReferenceError if they
	// are not the same.
	Recompute(ctx context.Context, b Build) error
}

// TimedSlack is the slack of the outputs of timed launches and of relaunches of declared kernels:
// their inputs are not those from which the limits are derived.
const TimedSlack = 1.5

// Result is the errors of the outputs of a launch.
type Result struct {
	oracle.Errors                       // of the worst output
	LSE           *oracle.LSEErrors     // of attention with a log-sum-exp
	Outputs       []oracle.OutputErrors // of a declared problem, one per output

	// Exponentials compares the errors of attention with those of exact exponentials. It is nil unless
	// the reference has a model of them.
	Exponentials *oracle.Exponentials
}

// PeerData is the inputs of a peer.
type PeerData struct {
	Attention *tensor.Inputs // nil for a declared problem
	Axes      map[string]int
	Arrays    []*array.Array // inputs
	Outputs   []*array.Array // without Data
}

// ErrNoSeed is wrapped by the error of a seed for which a reference has no outputs.
var ErrNoSeed = errors.New("the reference has no outputs for this seed")

// ReferenceError is the failure of a reference. It says nothing about the kernel.
type ReferenceError struct {
	Why string
	Do  string // the remedy; may be empty
	Err error  // the cause, such as ErrNoSeed; may be nil
}

// Unwrap returns the cause.
func (e *ReferenceError) Unwrap() error { return e.Err }

// Error returns both in one line.
func (e *ReferenceError) Error() string {
	if e.Do == "" {
		return e.Why
	}
	return e.Why + "; " + e.Do
}
