package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"attune/internal/child"
)

// Limits of a program of the compiler, with all processes that it starts. Macros that expand to
// gigabytes, templates without end and hundreds of thousands of warnings would take the machine.
//
// The kernels of this repository take 108 MB and 7 s at most (measured 2026-11-18). Sources on
// CUTLASS take gigabytes; the user raises the limits for them by the environment. There is one
// limit for all sources, because a kernel is as little trusted as a proposer's patch. The limit is
// one of processor time: on a machine with much other work a clock would fail right kernels.
const (
	defaultMemory    = 768 << 20
	defaultProcessor = 25 * time.Second

	memoryVariable    = "ATTUNE_COMPILER_MEMORY"
	processorVariable = "ATTUNE_COMPILER_TIME"

	maxWritten = 256 << 20 // bytes of each file
	maxPrinted = 16 << 20
	maxTime    = 10 * time.Minute // by the clock

	// maxKept bounds what is kept of messages: they are repeated in records, reports and pages.
	maxKept = 64 << 10
)

// environmentLimits are the limits that the environment sets, or the defaults.
func environmentLimits() (child.Limits, error) {
	l := child.Limits{Processor: defaultProcessor, File: maxWritten}
	var err error
	if l.Memory, err = child.EnvironmentMemory(memoryVariable, defaultMemory); err != nil {
		return l, err
	}
	l.Address = 4 * l.Memory
	if text := os.Getenv(processorVariable); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return l, fmt.Errorf("%s=%s: want a time such as 10m", processorVariable, text)
		}
		l.Processor = d
	}
	return l, nil
}

// CheckLimits is an error if a limit in the environment has no such form.
func CheckLimits() error {
	_, err := environmentLimits()
	return err
}

// limitError is the error of a compiler that reached a limit. The source is at fault.
type limitError struct{ text string }

func (e *limitError) Error() string { return e.text }

func exceeded(e *child.LimitError) error {
	more := processorVariable + "=10m"
	if e.Memory > 0 {
		more = memoryVariable + "=4G"
	}
	return &limitError{fmt.Sprintf("the compiler %v for it; %s allows more", e, more)}
}

// supervised runs a command within the limits. Its processes end with the context.
func supervised(ctx context.Context, cmd *exec.Cmd) (output string, err error) {
	l, err := environmentLimits()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &printed{over: func() { cancel(errPrinted) }}
	cmd.Stdout, cmd.Stderr = out, out
	peak, err := child.Run(ctx, cmd, l)
	limit, reached := errors.AsType[*child.LimitError](err)
	exit, failed := errors.AsType[*child.ExitError](err)
	switch {
	case errors.Is(context.Cause(ctx), errPrinted):
		err = errPrinted
	case reached:
		err = exceeded(limit)
	case failed && wroteTooMuch(exit, out.String()):
		err = errWritten
	case failed && peak > l.Memory/2: // it was refused more
		err = exceeded(&child.LimitError{Memory: l.Memory})
	}
	return out.String(), err
}

// errPrinted is the error of a compiler that prints without end.
var errPrinted = &limitError{fmt.Sprintf("the compiler printed more than %d MB of messages", maxPrinted>>20)}

// errWritten is the error of a compiler that writes without end.
var errWritten = &limitError{fmt.Sprintf("the compiler writes a file of more than %d MB for it", maxWritten>>20)}

// wroteTooMuch reports whether the limit of a file's size ended a command, or a program that it ran.
func wroteTooMuch(exit *child.ExitError, output string) bool {
	for _, symptom := range []string{"File size limit exceeded", "File too large", "SIGXFSZ"} {
		if strings.Contains(output, symptom) {
			return true
		}
	}
	return signalOf(exit) == syscall.SIGXFSZ
}

// printed keeps what a command prints, up to maxPrinted.
type printed struct {
	text strings.Builder
	over func()
}

func (p *printed) Write(text []byte) (int, error) {
	if p.text.Len()+len(text) > maxPrinted {
		p.over()
		return len(text), nil
	}
	return p.text.Write(text)
}

func (p *printed) String() string { return p.text.String() }

// kept is the beginning of messages, in whole lines if there are any.
func kept(messages string) string {
	if len(messages) <= maxKept {
		return messages
	}
	start := strings.ToValidUTF8(messages[:maxKept], "")
	if end := strings.LastIndexByte(start, '\n'); end >= 0 {
		start = start[:end]
	}
	return fmt.Sprintf("%s\n... and %d KB more\n", start, (len(messages)-len(start))>>10)
}
