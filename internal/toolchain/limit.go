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

	"golang.org/x/sys/unix"
)

// Limits of a program of the compiler. Macros that expand to gigabytes, and hundreds of thousands of
// warnings, would take the machine.
const (
	maxMemory  = 4 << 30   // bytes of address space of each process
	maxWritten = 256 << 20 // bytes of each file
	maxPrinted = 16 << 20
	maxTime    = 10 * time.Minute

	// maxKept bounds what is kept of messages: they are repeated in records, reports and pages.
	maxKept = 64 << 10
)

// supervised runs a command in a process group of its own, within the limits. Its processes end with
// the context, and with this process, however that ends.
func supervised(ctx context.Context, cmd *exec.Cmd) (output string, err error) {
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
	for resource, most := range map[int]uint64{unix.RLIMIT_AS: maxMemory, unix.RLIMIT_FSIZE: maxWritten, unix.RLIMIT_CORE: 0} {
		_ = unix.Prlimit(cmd.Process.Pid, resource, &unix.Rlimit{Cur: most, Max: most}, nil) // a stricter limit stays
	}
	release := guard(cmd.Process.Pid)
	defer release()
	err = cmd.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, errPrinted) {
		return out.String(), cause
	}
	return out.String(), err
}

// errPrinted is the error of a compiler that prints without end.
var errPrinted = fmt.Errorf("the compiler printed more than %d MB of messages", maxPrinted>>20)

// errMemory is the error of a compiler that reached its limit.
var errMemory = fmt.Errorf("the compiler needs more than %d GB of memory for it", maxMemory>>30)

// errWritten is the error of a compiler that wrote without end.
var errWritten = fmt.Errorf("the compiler writes a file of more than %d MB for it", maxWritten>>20)

// reached returns the limit that made a command fail, or nil.
func reached(cmd *exec.Cmd, output string) error {
	for _, symptom := range []string{"File size limit exceeded", "File too large", "SIGXFSZ"} {
		if strings.Contains(output, symptom) {
			return errWritten
		}
	}
	if state, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && (state.Signal() == syscall.SIGXFSZ || state.ExitStatus() == 128+int(syscall.SIGXFSZ)) {
		return errWritten
	}
	if reachedMemory(cmd) {
		return errMemory
	}
	return nil
}

// reachedMemory reports whether a process of a failed command had most of the memory that it may have.
func reachedMemory(cmd *exec.Cmd) bool {
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return ok && usage.Maxrss<<10 > maxMemory/2 // what is mapped counts too
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
