package toolchain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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

// limits are those that the user can raise.
type limits struct {
	memory    int64         // bytes of all processes together
	processor time.Duration // of all processes together
}

// environmentLimits are the limits that the environment sets, or the defaults.
func environmentLimits() (limits, error) {
	l := limits{defaultMemory, defaultProcessor}
	if text := os.Getenv(memoryVariable); text != "" {
		number, unit := strings.TrimRight(text, "GM"), int64(1<<20)
		if strings.HasSuffix(text, "G") {
			unit = 1 << 30
		}
		n, err := strconv.ParseInt(number, 10, 32)
		if err != nil || n < 1 || len(text) != len(number)+1 {
			return l, fmt.Errorf("%s=%s: want a size such as 4G or 2048M", memoryVariable, text)
		}
		l.memory = n * unit
	}
	if text := os.Getenv(processorVariable); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return l, fmt.Errorf("%s=%s: want a time such as 10m", processorVariable, text)
		}
		l.processor = d
	}
	return l, nil
}

// limitError is the error of a compiler that reached a limit. The source is at fault.
type limitError struct{ text string }

func (e *limitError) Error() string { return e.text }

func (l limits) memoryError() error {
	return &limitError{fmt.Sprintf("the compiler needs more than %d MB of memory for it; %s=4G allows more", l.memory>>20, memoryVariable)}
}

func (l limits) processorError() error {
	return &limitError{fmt.Sprintf("the compiler needs more than %s of processor time for it; %s=10m allows more", l.processor, processorVariable)}
}

// exceeded is the limit that a process and its children are above, or nil. Children inherit the limits
// of the system, but one that was started before they were set has none.
func (l limits) exceeded(pid int, peak *atomic.Int64) error {
	memory, processor := consumption(pid, l.apply)
	peak.Store(max(peak.Load(), memory))
	switch {
	case memory > l.memory:
		return l.memoryError()
	case processor > l.processor:
		return l.processorError()
	}
	return nil
}

// apply sets the limits that the system enforces. The address space is the limit for one large request,
// between two looks at the memory.
func (l limits) apply(pid int) {
	for resource, most := range map[int]uint64{unix.RLIMIT_AS: uint64(4 * l.memory), unix.RLIMIT_FSIZE: maxWritten, unix.RLIMIT_CORE: 0} {
		_ = unix.Prlimit(pid, resource, &unix.Rlimit{Cur: most, Max: most}, nil) // a stricter limit stays
	}
}

// clockTick is the unit of processor times in /proc. It is the same on all Linux systems.
const clockTick = 10 * time.Millisecond

// consumption is the memory, and the processor time so far, of a process and those that it has
// started. It visits each of them. What cannot be read has ended.
func consumption(pid int, visit func(pid int)) (memory int64, processor time.Duration) {
	visit(pid)
	dir := fmt.Sprintf("/proc/%d/", pid)
	if text, err := os.ReadFile(dir + "statm"); err == nil {
		if fields := strings.Fields(string(text)); len(fields) > 2 {
			memory = int64(atoi(fields[1])-atoi(fields[2])) * int64(os.Getpagesize()) // without what is shared
		}
	}
	if text, err := os.ReadFile(dir + "stat"); err == nil {
		_, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 14 {
			for _, ticks := range fields[11:15] { // its own, and those of children that it has waited for
				processor += time.Duration(atoi(ticks)) * clockTick
			}
		}
	}
	children, _ := filepath.Glob(dir + "task/*/children") // the pattern is right
	for _, file := range children {
		text, _ := os.ReadFile(file)
		for _, child := range strings.Fields(string(text)) {
			m, p := consumption(atoi(child), visit)
			memory, processor = memory+m, processor+p
		}
	}
	return memory, processor
}

// watch calls stop with the limit that a process and its children have reached, until the context is
// done.
func (l limits) watch(ctx context.Context, pid int, peak *atomic.Int64, stop func(error)) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := l.exceeded(pid, peak); err != nil {
			stop(err)
			return
		}
	}
}

// supervised runs a command in a process group of its own, within the limits. Its processes end with
// the context, and with this process, however that ends.
func supervised(ctx context.Context, cmd *exec.Cmd) (output string, err error) {
	l, err := environmentLimits()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	out := &printed{over: func() { cancel(errPrinted) }}
	cmd.Stdout, cmd.Stderr = out, out
	killGroupOnCancel(cmd)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Cancel() })
	defer stop()
	l.apply(cmd.Process.Pid)
	release := guard(cmd.Process.Pid)
	defer release()
	var peak atomic.Int64 // not ru_maxrss, which has that of this process before the program starts
	go l.watch(ctx, cmd.Process.Pid, &peak, cancel)
	err = cmd.Wait()
	if limit := new(limitError); errors.As(context.Cause(ctx), &limit) {
		return out.String(), limit
	}
	if err != nil {
		err = l.reached(cmd, out.String(), peak.Load(), err)
	}
	return out.String(), err
}

// errPrinted is the error of a compiler that prints without end.
var errPrinted = &limitError{fmt.Sprintf("the compiler printed more than %d MB of messages", maxPrinted>>20)}

// errWritten is the error of a compiler that writes without end.
var errWritten = &limitError{fmt.Sprintf("the compiler writes a file of more than %d MB for it", maxWritten>>20)}

// reached is the limit of the system that made a command fail, or the failure itself.
func (l limits) reached(cmd *exec.Cmd, output string, peak int64, failure error) error {
	for _, symptom := range []string{"File size limit exceeded", "File too large", "SIGXFSZ"} {
		if strings.Contains(output, symptom) {
			return errWritten
		}
	}
	if state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && (state.Signal() == syscall.SIGXFSZ || state.ExitStatus() == 128+int(syscall.SIGXFSZ)) {
		return errWritten
	}
	// A process that had most of what it may have was refused more.
	if peak > l.memory/2 {
		return l.memoryError()
	}
	return failure
}

// guard kills a process group when this process ends, even by SIGKILL: a shell in the group waits for
// the end of a pipe that nobody writes to. A signal at the death of the parent would not reach the
// programs that nvcc starts.
func guard(group int) (release func()) {
	r, w, err := os.Pipe()
	if err != nil {
		return func() {}
	}
	shell := exec.Command("/bin/sh", "-c", "read x <&3; kill -KILL 0")
	shell.ExtraFiles = []*os.File{r}
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	err = shell.Start() // fails if the group has ended already
	r.Close()
	return func() {
		w.Close()
		if err == nil {
			_ = shell.Wait() // it killed itself
		}
	}
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
