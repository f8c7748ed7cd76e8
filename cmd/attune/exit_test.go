package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/lab"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/sim"
	"attune/internal/toolchain"
)

func TestExitCode(t *testing.T) {
	check := func(started bool, err error, want int) {
		t.Helper()
		a := &app{started: started}
		if got := a.exitCode(t.Context(), err); got != want {
			t.Errorf("%v ends with %d, want %d", err, got, want)
		}
	}
	wrapped := func(err error) error { return fmt.Errorf("run stage2: %w", err) }
	check(true, nil, exitOK)
	check(true, errors.New("anything"), exitFailure)
	check(false, errors.New("before a command began"), exitUsage)
	check(true, wrapped(usageError{errors.New("unknown")}), exitUsage)
	check(true, wrapped(lab.RequestError("not for this one")), exitUsage)
	check(true, wrapped(&toolchain.CompileError{}), exitResources)
	check(true, wrapped(&toolchain.SourceError{}), exitResources)
	check(true, wrapped(&lab.WrongError{}), exitCorrectness)
	check(true, wrapped(&device.Timeout{}), exitTimeout)
	check(true, wrapped(device.ErrNoDevice), exitNoGPU)
	check(true, wrapped(toolchain.ErrNoCompiler), exitNoCompiler)
	check(true, wrapped(&device.Unsupported{}), exitUnchecked)
	check(true, wrapped(&problem.ReferenceError{}), exitUnchecked)
	check(true, wrapped(&lab.UncheckedError{}), exitUnchecked)
	check(true, wrapped(&sim.UnsupportedError{}), exitUnchecked)
	check(true, gateError{exitPerformance}, exitPerformance)

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if got := (&app{started: true}).exitCode(cancelled, errors.New("interrupted")); got != exitInterrupted {
		t.Errorf("an interrupted command ends with %d", got)
	}
}

func TestOutcome(t *testing.T) {
	failing := func(set func(*run.Run)) *run.Run {
		r := &run.Run{Gates: run.Gates{Resources: gate.Pass, Correctness: gate.Pass, Performance: gate.Pass, Profile: gate.NotMeasured}}
		set(r)
		return r
	}
	held := failing(func(*run.Run) {})
	unmeasured := failing(func(r *run.Run) { r.Gates.Correctness, r.Gates.Performance = gate.NotMeasured, gate.NotMeasured })
	resources := failing(func(r *run.Run) { r.Gates.Resources = gate.Fail })
	correctness := failing(func(r *run.Run) { r.Gates.Correctness = gate.Fail })
	performance := failing(func(r *run.Run) { r.Gates.Performance = gate.Fail })
	profile := failing(func(r *run.Run) { r.Gates.Profile = gate.Fail })
	timeout := failing(func(r *run.Run) { r.Gates.Correctness, r.TimedOut = gate.NotMeasured, true })
	check := func(want int, runs ...*run.Run) {
		t.Helper()
		err := outcome(runs)
		a := &app{started: true}
		if got := a.exitCode(t.Context(), err); got != want {
			t.Errorf("ends with %d, want %d", got, want)
		}
		if err != nil && !a.silent(err) {
			t.Errorf("%v is printed beside the results", err)
		}
	}
	check(exitOK)
	check(exitUnchecked, unmeasured)
	check(exitUnchecked, held, unmeasured)
	check(exitUnchecked, unmeasured, held)
	check(exitSomeFailed, unmeasured, correctness)
	check(exitOK, held, failing(func(r *run.Run) { r.Gates.Performance = gate.NotMeasured }))
	check(exitResources, resources)
	check(exitCorrectness, correctness)
	check(exitPerformance, performance)
	check(exitProfile, profile)
	check(exitTimeout, timeout)
	check(exitSomeFailed, held, correctness)
	check(exitSomeFailed, performance, held)
	check(exitSomeFailed, resources, timeout)
	reference := failing(func(r *run.Run) { r.Gates.Correctness, r.ReferenceError = gate.NotMeasured, "no numpy" })
	check(exitUnchecked, reference)
	check(exitUnchecked, reference, held)
	check(exitSomeFailed, reference, correctness)
	check(exitSomeFailed, resources, reference)
}

func TestProgressText(t *testing.T) {
	if got := progressText(lab.Progress{Subject: "stage2", Step: "building"}); got != "stage2: building" {
		t.Errorf("got %q", got)
	}
	if got := progressText(lab.Progress{Subject: "stage2", Step: "timing 1x8x512x64", Done: 0, Total: 3}); got != "stage2: timing 1x8x512x64 (1 of 3)" {
		t.Errorf("got %q", got)
	}
}
