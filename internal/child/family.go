package child

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Family is a running program with all processes that it has started. They end with the program, with
// Kill, and with this process, however that ends.
type Family struct {
	path       string
	supervisor *exec.Cmd
	hold       *os.File // the supervisor ends the family when it is closed
	program    int      // process ID
	limits     Limits
	memory     atomic.Int64 // of the limits
	peak       atomic.Int64
	exceeded   atomic.Pointer[LimitError]
	ended      context.CancelFunc // the watch ends
	status     chan *syscall.WaitStatus
	kill       sync.Once
	killed     atomic.Bool
	gone       chan struct{} // closed when the supervisor has ended
	goneErr    error         // of the supervisor
	adopts     bool          // orphans of a killed supervisor are found
}

// Limits of time for a supervisor that the program stops, traces, or cuts off from its pipes.
const startLimit = 10 * time.Second // a busy machine takes long to start it

var killLimit = 3 * time.Second // longer than a supervisor tries to end processes; shorter in tests

// StartFamily starts a command within limits. The command is only a description: it is not started
// itself, and its context has no effect.
func StartFamily(cmd *exec.Cmd, l Limits) (*Family, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	holdOut, holdIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer holdOut.Close()
	messagesOut, messagesIn, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, holdIn.Close())
	}
	defer messagesIn.Close()
	f := &Family{path: cmd.Path, hold: holdIn, limits: l, status: make(chan *syscall.WaitStatus, 1), gone: make(chan struct{})}
	f.memory.Store(l.Memory)
	f.supervisor = &exec.Cmd{
		Path: "/proc/self/exe", Args: append([]string{supervisorName, strconv.Itoa(3 + len(cmd.ExtraFiles)), cmd.Path}, cmd.Args...),
		Dir: cmd.Dir, Env: cmd.Env, Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr,
		ExtraFiles: append(append([]*os.File{}, cmd.ExtraFiles...), holdOut, messagesIn),
		// In a group of its own Ctrl-C does not reach it: attune decides what ends.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		WaitDelay:   time.Second,
	}
	adopt()
	if err := f.supervisor.Start(); err != nil {
		return nil, errors.Join(err, holdIn.Close(), messagesOut.Close())
	}
	messagesIn.Close() // so that the end of the supervisor is seen
	f.adopts = adoptable(f.supervisor.Process)
	go f.await()
	if err := f.begin(messagesOut); err != nil {
		return nil, err
	}
	return f, nil
}

// Run runs a command to its end within limits. Its processes end with the context. peak is the most
// memory that was seen in use. The error is that of a cancelled context before the start, of the start,
// or of Wait.
func Run(ctx context.Context, cmd *exec.Cmd, l Limits) (peak int64, err error) {
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	f, err := StartFamily(cmd, l)
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, f.Kill)
	defer stop()
	err = f.Wait()
	return f.peak.Load(), err
}

// await waits for the end of the supervisor. If it was killed, its orphans are killed here.
func (f *Family) await() {
	f.goneErr = f.supervisor.Wait()
	if f.adopts && !f.supervisor.ProcessState.Success() {
		endOrphans()
	}
	close(f.gone)
}

// begin waits for the start of the program.
func (f *Family) begin(messages *os.File) error {
	first, err := f.firstMessage(messages)
	switch {
	case err != nil:
		err = fmt.Errorf("the supervisor does not start: %w", err)
	case first.Errno != 0:
		err = &fs.PathError{Op: "fork/exec", Path: f.path, Err: syscall.Errno(first.Errno)}
	}
	if err != nil {
		f.Kill()
		<-f.gone
		return errors.Join(err, messages.Close())
	}
	f.program = int(first.PID)
	f.limits.apply(f.program)
	watched, ended := context.WithCancel(context.Background())
	f.ended = ended
	go f.watch(watched)
	go f.listen(messages)
	return nil
}

// firstMessage waits for the first message of the supervisor, and continues it if the program has
// stopped it before that.
func (f *Family) firstMessage(messages *os.File) (first began, err error) {
	for end := time.Now().Add(startLimit); ; {
		if err = messages.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return first, err
		}
		err = binary.Read(messages, binary.LittleEndian, &first)
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end) {
			return first, errors.Join(err, messages.SetReadDeadline(time.Time{}))
		}
		f.resume()
	}
}

// listen waits for the last message of the supervisor. A program that has killed its supervisor is
// killed with its group.
func (f *Family) listen(messages *os.File) {
	defer messages.Close()
	go func() {
		<-f.gone
		// Nothing is written any more, but a process may have opened the pipe, so that it does not end.
		_ = messages.SetReadDeadline(time.Now().Add(time.Second)) // it may be closed
	}()
	var status uint32
	if err := binary.Read(messages, binary.LittleEndian, &status); err != nil {
		_ = syscall.Kill(-f.program, syscall.SIGKILL) // it may have ended
		f.status <- nil
		return
	}
	s := syscall.WaitStatus(status)
	f.status <- &s
}

// Kill ends all processes. It does not wait for their end.
func (f *Family) Kill() {
	_ = f.hold.Close() // the second time it is an error
	f.resume()
	f.kill.Do(func() {
		f.killed.Store(true)
		go f.insist()
	})
}

// resume continues the supervisor, which the program may have stopped.
func (f *Family) resume() {
	_ = f.supervisor.Process.Signal(syscall.SIGCONT) // it may have ended
}

// insist ends a family whose supervisor has not done it within the limit: a process stops it in a
// loop, traces it, or has opened the pipe that Kill closes.
func (f *Family) insist() {
	select {
	case <-f.gone:
		return
	case <-time.After(killLimit):
	}
	// A tracer keeps the supervisor until it has ended itself, so they are killed in every round.
	for f.supervisor.Process.Signal(syscall.Signal(0)) == nil {
		signalAll(descendants(f.supervisor.Process.Pid), syscall.SIGKILL)
		_ = f.supervisor.Process.Kill() // it may have ended
		if f.adopts {
			killOrphans()
		}
		time.Sleep(killInterval)
	}
}

// errSupervisorKilled is the error of a program that has killed its supervisor.
var errSupervisorKilled = errors.New("its supervisor was killed")

// Wait waits until all processes have ended. The error is a *LimitError, an *ExitError,
// errSupervisorKilled, or that of a pipe.
func (f *Family) Wait() error {
	<-f.gone
	status := <-f.status
	f.ended()
	_ = f.hold.Close() // Kill may have closed it
	if exceeded := f.exceeded.Load(); exceeded != nil {
		return exceeded
	}
	switch _, failed := errors.AsType[*exec.ExitError](f.goneErr); {
	case status == nil && !f.killed.Load():
		return errSupervisorKilled
	case status == nil:
		return &ExitError{Status: syscall.WaitStatus(syscall.SIGKILL)}
	case *status != 0:
		return &ExitError{Status: *status}
	case failed:
		return nil // the supervisor failed after its last message
	}
	return f.goneErr
}

// ExitError is the error of a program that did not succeed.
type ExitError struct {
	Status syscall.WaitStatus
	Stderr []byte // of Output: the end of what the program printed on standard error
}

func (e *ExitError) Error() string {
	if !e.Status.Signaled() {
		return "exit status " + strconv.Itoa(e.Status.ExitStatus())
	}
	text := "signal: " + e.Status.Signal().String()
	if e.Status.CoreDump() {
		text += " (core dumped)"
	}
	return text
}

// errno is the number of a system's error.
func errno(err error) syscall.Errno {
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number
	}
	return syscall.EINVAL
}
