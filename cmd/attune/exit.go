package main

import (
	"context"
	"errors"

	"attune/internal/cases"
	"attune/internal/crash"
	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/lab"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/sim"
	"attune/internal/toolchain"
)

// The exit codes. `attune help exit-codes` lists them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitSomeFailed  = 3
	exitResources   = 10
	exitCorrectness = 11
	exitPerformance = 12
	exitProfile     = 13
	exitUnchecked   = 14
	exitNoGPU       = 20
	exitNoCompiler  = 21
	exitTimeout     = 22
	exitInterrupted = 130
)

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// gateError ends a command with the code of the gate that failed. The results have been printed.
type gateError struct{ code int }

func (e gateError) Error() string {
	switch e.code {
	case exitResources:
		return "the resource gate failed"
	case exitCorrectness:
		return "the correctness gate failed"
	case exitPerformance:
		return "the performance gate failed"
	case exitProfile:
		return "the profile gate failed"
	case exitUnchecked:
		return "the outputs could not be checked"
	case exitTimeout:
		return "the kernel did not end within the time limit"
	}
	return "not all held"
}

// silent reports whether an error needs no message because the printed results include it. A program
// that reads --json gets an error document for every code other than 0.
func (a *app) silent(err error) bool {
	var failed gateError
	return !a.json && errors.As(err, &failed)
}

// exitCode is the exit code for an error.
func (a *app) exitCode(ctx context.Context, err error) int {
	var usage usageError
	var failed gateError
	var crashed *crash.Panic
	var refused *toolchain.CompileError
	var broken *toolchain.SourceError
	var fault *toolchain.FaultError
	var request lab.RequestError
	var wrong *lab.WrongError
	var notPassed *cases.NotPassedError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &crashed):
		return exitFailure
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &failed):
		return failed.code
	case !a.started, errors.As(err, &usage), errors.As(err, &request):
		return exitUsage
	case device.Classify(err) == device.KernelTimeout:
		return exitTimeout
	case errors.As(err, &refused), errors.As(err, &broken):
		return exitResources
	case errors.As(err, &wrong), errors.As(err, &notPassed):
		return exitCorrectness
	case errors.Is(err, device.ErrNoDevice):
		return exitNoGPU
	case isUnchecked(err):
		return exitUnchecked
	case errors.Is(err, toolchain.ErrNoCompiler), errors.As(err, &fault):
		return exitNoCompiler
	}
	return exitFailure
}

// isUnchecked reports whether outputs could not be checked: there is no reference, or the simulator
// cannot run the kernel.
func isUnchecked(err error) bool {
	var reference *problem.ReferenceError
	var instruction *sim.UnsupportedError
	var unchecked *lab.UncheckedError
	return errors.As(err, &reference) || errors.As(err, &instruction) || errors.As(err, &unchecked) ||
		device.Classify(err) == device.KernelUnsupported
}

// outcome is the error of finished runs: with the code of the only run, or 3 if some of several
// failed. A variant that was not checked has not failed, and is not green either.
func outcome(runs []*run.Run) error {
	code := exitOK
	for _, r := range runs {
		switch failed := runCode(r); {
		case failed == exitOK || failed == exitUnchecked && code != exitOK:
		case failed == exitUnchecked || len(runs) == 1:
			code = failed
		default:
			code = exitSomeFailed
		}
	}
	if code == exitOK {
		return nil
	}
	return gateError{code}
}

func runCode(r *run.Run) int {
	switch {
	case r.Gates.Resources == gate.Fail:
		return exitResources
	case r.Gates.Correctness == gate.Fail:
		return exitCorrectness
	case r.TimedOut:
		return exitTimeout
	case r.Gates.Performance == gate.Fail:
		return exitPerformance
	case r.Gates.Profile == gate.Fail:
		return exitProfile
	case r.Gates.Correctness == gate.NotMeasured, r.ReferenceError != "": // of the timed launches
		return exitUnchecked
	}
	return exitOK
}
