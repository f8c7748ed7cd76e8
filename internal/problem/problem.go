package problem

import (
	"context"
	"fmt"
	"time"

	"attune/internal/device"
	"attune/internal/finding"
	"attune/internal/mutate"
	"attune/internal/profile"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// Problem is what a kernel computes. It is immutable.
type Problem interface {
	// Name is spec.Attention or spec.DeclaredProblem.
	Name() string
	// DType is the number format of the inputs of a variant for rows of a bench, such as "e4m3" or
	// "f16, i32". A peer has no variant.
	DType(v spec.Variant) string

	// CheckShapes refuses, in one line, shapes that a variant cannot run.
	CheckShapes(v spec.Variant, shapes []spec.Shape) error
	// Common reports whether two variants can run the same shapes.
	Common(a, b spec.Variant) bool
	// Budget limits the resources of a variant.
	Budget(v spec.Variant) spec.Budget

	// Instances are those of the correctness gate, in order.
	Instances(shapes []spec.Shape, seeds []uint64) []Instance
	// Plain is the instance that is timed and profiled.
	Plain(shape spec.Shape, seed uint64) Instance
	// Size grows with the work of a shape: FLOPs of attention, elements of a declared problem.
	Size(shape spec.Shape) float64
	// Work is the work of a launch with inputs of a number format.
	Work(v spec.Variant, shape spec.Shape, dtype string) (Work, error)

	// Parameters are those of the entry function, in order.
	Parameters(b Build) []Parameter
	// ParameterHelp ends the message about a kernel with other parameters.
	ParameterHelp() string
	// LaunchKey is what the launch depends on besides the code. Builds with equal code and equal keys
	// share one result.
	LaunchKey(b Build) string
	// SharedBytes is the largest dynamic shared memory of the launches on shapes.
	SharedBytes(b Build, shapes []spec.Shape) (int, error)
	// Threads is the largest block of the launches on shapes.
	Threads(b Build, shapes []spec.Shape) (int, error)
	// Allowed are the findings of the audit that the launch makes legitimate.
	Allowed() []finding.Kind
	// Hints are what the insights of a profile say about this problem.
	Hints() profile.Hints

	// References computes the references of one command.
	References(o Options) References
}

// Study is a problem that compares variants with a model of their arithmetic, besides the reference.
type Study interface {
	// Studies are the instances that a variant adds to those of the correctness gate.
	Studies(v spec.Variant, shapes []spec.Shape, seeds []uint64) []Instance
	// Model adds the model of a variant to a reference, once. Compare then measures the outputs by the
	// model too.
	Model(ctx context.Context, ref Reference, v spec.Variant) error
}

// Fitter is a problem whose shapes can be changed so that a variant takes them.
type Fitter interface {
	// Fit returns the shape with the sizes that the variant is built for.
	Fit(v spec.Variant, shape spec.Shape) spec.Shape
}

// Launcher is references that launch an instance without its reference, which takes long to compute.
type Launcher interface {
	// Launch is the job of an instance whose buffers have at most a number of bytes.
	Launch(b Build, i Instance, most int64) (device.Job, error)
}

// Instance is one set of inputs of a problem.
type Instance struct {
	Shape  spec.Shape
	Seed   uint64
	Inputs string // their distribution: "normal", "outliers", ...; empty for a declared problem, or "edges"
	// Relaunch marks the inputs of a relaunch, from a seed that no kernel can know. Attention draws
	// its softmax scale too.
	Relaunch bool
}

// String names the instance, without its distribution if that is the usual one.
func (i Instance) String() string {
	text := fmt.Sprintf("%s seed %d", i.Shape, i.Seed)
	if i.Inputs != "" && i.Inputs != "normal" {
		text += " " + i.Inputs
	}
	return text
}

// Work is the least work of a launch. 0 means unknown.
type Work struct{ FLOPs, Bytes float64 }

// Build is a built variant.
type Build struct {
	Variant spec.Variant
	Image   *toolchain.Image
	Code    []byte // the part of the image that the device loads

	Selected bool // by the table of a selection, which may have limits of its own
}

// Parameter is one parameter of an entry function.
type Parameter struct {
	Name   string
	Is     string        // what it is, in words
	Bytes  int           // in the parameter space
	Float  bool          // a scalar in a floating-point format
	Output bool          // an output, or a tensor map of one
	Range  *mutate.Range // of an integer scalar; nil if unknown
}

// Options are those of the references of one command.
type Options struct {
	// MaxWork limits the multiply-adds of a reference of attention. Above it, only a sample of the
	// rows is computed.
	MaxWork float64
	// Secret is the seed of sampled rows and of the inputs of relaunches.
	Secret uint64

	// Launch runs a trusted source of the kernel's folder in a process of its own on the lab's
	// device.
	Launch func(ctx context.Context, t toolchain.Target, job func(*toolchain.Image) (device.Job, error)) ([][]byte, error)
	Limit  time.Duration // of one computation of a reference
	Python string        // the interpreter; empty for ATTUNE_PYTHON, else python3

	// Memory limits the buffers of an instance in bytes, to what the device can hold; 0 for no limit.
	// Device is its name for messages.
	Memory int64
	Device string
}
