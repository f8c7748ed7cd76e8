package device

import (
	"errors"
	"fmt"
	"time"
)

// Failure is the class of an error that a Device returned. Callers use it to decide whether the
// kernel caused the error, and whether they must open a new device.
type Failure int

// The classes of failure. The set is closed: Classify returns one of them for every error.
const (
	NoFailure         Failure = iota // the error is nil
	KernelFault                      // the driver or the simulator stopped the kernel: a Fault
	KernelTimeout                    // the kernel exceeded its time limit: a Timeout
	KernelCrash                      // the child process that ran the kernel died: a Crash
	KernelUnsupported                // this device cannot run it, another may: an Unsupported
	OtherFailure                     // not the kernel: no GPU, cancelled, invalid job, ...
)

// Classify finds the class of an error from Device.Run or Device.Time, also inside wrapped errors.
// A device that cannot be opened is an OtherFailure, even if the driver reported a fault: no kernel
// has run yet.
func Classify(err error) Failure {
	switch {
	case err == nil:
		return NoFailure
	case errors.Is(err, ErrNoDevice):
		return OtherFailure
	case errors.As(err, new(*Timeout)):
		return KernelTimeout
	case errors.As(err, new(*Fault)):
		return KernelFault
	case errors.As(err, new(*Crash)):
		return KernelCrash
	case errors.As(err, new(*Unsupported)):
		return KernelUnsupported
	}
	return OtherFailure
}

// LosesDevice reports whether the kernel misbehaved so that its device is lost: a fault, a timeout
// or a crash. The caller must close the device and open a new one before the next job.
func (f Failure) LosesDevice() bool {
	return f == KernelFault || f == KernelTimeout || f == KernelCrash
}

func (f Failure) String() string {
	switch f {
	case NoFailure:
		return "no failure"
	case KernelFault:
		return "kernel fault"
	case KernelTimeout:
		return "kernel timeout"
	case KernelCrash:
		return "kernel crash"
	case KernelUnsupported:
		return "kernel unsupported"
	}
	return "other failure"
}

// Fault is the error that a machine reports when it loads or launches a kernel. The machine cannot
// be used after it.
type Fault struct {
	Code      string // such as CUDA_ERROR_ILLEGAL_ADDRESS
	Text      string // the driver's description of the code
	Operation string // the operation that failed
}

func (f *Fault) Error() string { return fmt.Sprintf("%s: %s (%s)", f.Operation, f.Code, f.Text) }

// Timeout is the error of a kernel that exceeded its time limit.
type Timeout struct {
	Limit time.Duration
	Where string // where the kernel was, if the device knows
}

func (e *Timeout) Error() string {
	text := fmt.Sprintf("no result within %s: the kernel hangs, or needs a longer --timeout; it was ended", e.Limit)
	if e.Where != "" {
		text += "; " + e.Where
	}
	return text
}

// Crash is the error of a child process that died while it ran a kernel.
type Crash struct {
	How string // such as "signal: segmentation fault"
}

func (e *Crash) Error() string { return "the process that ran the kernel died: " + e.How }

// Unsupported is the error of a device that cannot run a kernel though another device may. The
// kernel is not at fault.
type Unsupported struct {
	What string // the instruction family that it lacks, such as tcgen05; empty if it is not one
	Why  string
	// Large says that the shape takes too much memory: the kernel may run on a smaller one.
	Large bool
}

func (e *Unsupported) Error() string { return e.Why }
