package exec

import (
	"context"
	"errors"
	"strings"
	"time"

	"attune/internal/crash"
	"attune/internal/finding"
	"attune/internal/sim"
)

// launch runs a launch to its end. The status is what the driver refuses; the result is the error that
// a kernel that has failed leaves in its context.
func (s *session) launch(ctx context.Context, f *fields) (status, []byte, []byte) {
	id := f.u32()
	l := sim.Launch{Grid: f.extents(), Block: f.extents(), Cluster: f.extents()}
	l.DynamicShared, l.Cooperative = int(f.u32()), f.u32() != 0
	if f.err != nil || id == 0 || int(id) > len(s.functions) {
		return invalidHandle, nil, nil
	}
	function := s.functions[id-1]
	if len(f.data) != function.params {
		return invalidValue, nil, nil
	}
	l.Entry, l.Params = function.entry.Name, f.data
	function.number++
	repeat := s.repeated(id, &l)
	state, idle := s.isIdle(repeat)
	if idle {
		s.skipped(function)
		return success, nil, u32s(int(success))
	}
	var printed strings.Builder
	job := s.begin(function)
	o := sim.Options{
		Checks: job.checked, Tensor: s.options.Tensor, Instance: &function.module.instance, Residency: true, Heap: &s.heap,
		Printf: func(text string) { printed.WriteString(text) },
	}
	result, err := function.module.program.Run(ctx, s.memory, l, o)
	if !job.checked {
		s.memory.MarkAllWritten()
	}
	s.ran(repeat, state, time.Since(job.began), err == nil && printed.Len() == 0)
	failed := s.end(job, result, err)
	code := refusal(err)
	if code != success {
		failed = success
	}
	return code, []byte(printed.String()), u32s(int(failed))
}

// job is a launch in progress.
type job struct {
	function *function
	number   int // of the launch among those of its kernel
	checked  bool
	began    time.Time
}

// begin decides whether a launch is checked, and reports its start.
func (s *session) begin(f *function) *job {
	j := &job{function: f, number: f.number, began: time.Now()}
	j.checked = s.options.Checks && s.options.checks(f.short, f.entry.Name) && (s.options.Sample == 0 || j.number <= s.options.Sample)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcome.Launches++
	if s.options.Progress != nil {
		s.options.Progress(Progress{Kernel: f.short, Launch: s.outcome.Launches, WarpInstructions: s.outcome.WarpInstructions, Running: true})
	}
	return j
}

// skipped notes a launch that would have changed nothing.
func (s *session) skipped(f *function) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcome.Launches++
	kernel := s.outcome.kernel(f)
	kernel.Launches++
	kernel.Skipped++
}

// end reports the findings of a launch, and returns the error that a fault leaves.
func (s *session) end(j *job, result *sim.Result, err error) status {
	elapsed := time.Since(j.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := success
	kernel := s.outcome.kernel(j.function)
	kernel.Launches++
	kernel.Seconds += elapsed.Seconds()
	if j.checked {
		kernel.Checked++
	}
	if result != nil {
		n := result.Counters.WarpInstructions()
		kernel.WarpInstructions += n
		s.outcome.WarpInstructions += n
		for _, f := range result.Findings {
			if f.Is(finding.Deadlock) {
				failed = launchTimeout
			}
			s.add(j, f)
		}
	}
	if err != nil {
		failed = s.addError(j, err)
	}
	if s.options.Progress != nil {
		s.options.Progress(Progress{Kernel: kernel.Name, Launch: s.outcome.Launches, WarpInstructions: s.outcome.WarpInstructions, Seconds: elapsed.Seconds()})
	}
	return failed
}

// addError reports why a launch has failed: a defect of the kernel as a finding, what the simulator
// refuses as a line. It returns the error of the context.
func (s *session) addError(j *job, err error) status {
	abort, isAbort := errors.AsType[*sim.AbortError](err)
	switch {
	case isAbort && abort.Assert:
		s.add(j, finding.Finding{Kind: finding.AssertFailed, Severity: finding.Error, Where: abort.Where, Count: 1, Detail: abort.Detail})
		return assertFailed
	case isAbort:
		s.add(j, finding.Finding{Kind: finding.Trapped, Severity: finding.Error, Where: abort.Where, Count: 1, Detail: abort.Detail})
		return launchFailed
	case errors.Is(err, context.Canceled):
		return launchFailed // the program has ended
	}
	if crashed, ok := errors.AsType[*crash.Panic](err); ok {
		s.crashedLocked(crashed)
		return launchFailed
	}
	switch refusal(err) {
	case cooperativeTooLarge, invalidClusterSize, resourcesOutOfLaunch, invalidValue:
		// The driver refuses it too, and the program gets the driver's error.
	default:
		s.outcome.refuse(j.function.short, err.Error())
	}
	s.sayLocked("kernel " + j.function.short + ": " + err.Error())
	return launchFailed
}

// refusal is the status of a launch that does not start; success for one that does.
func refusal(err error) status {
	if err == nil {
		return success
	}
	if _, ok := errors.AsType[*sim.UnsupportedError](err); ok {
		return notSupported
	}
	if _, ok := errors.AsType[*sim.LimitError](err); ok {
		return launchFailed
	}
	text := err.Error()
	switch {
	case !strings.HasPrefix(text, "launch "):
		return success
	case strings.Contains(text, "cooperative grid"):
		return cooperativeTooLarge
	case strings.Contains(text, "cluster"):
		return invalidClusterSize
	case strings.Contains(text, "compiled for"):
		return resourcesOutOfLaunch
	}
	return invalidValue
}
