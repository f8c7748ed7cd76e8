package isolate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"attune/internal/device"
)

// Crash is device.Crash.
type Crash = device.Crash

// ErrUsedUp is returned by a device that has had a fault, a crash or a timeout.
var ErrUsedUp = errors.New("the device was lost to an earlier failure")

// Options say how a child is started.
type Options struct {
	Command []string      // program and arguments that end in a call of Serve
	Limit   time.Duration // for each call
	Stderr  io.Writer     // where the child's own output goes, what its kernels print included
}

// closeGrace is how long a child may take to end of itself; a sanitizer has a report to write
// first.
const closeGrace = 20 * time.Second

// Device is a machine in a child process.
type Device struct {
	facts     device.Facts
	limit     time.Duration
	grace     time.Duration
	cmd       *exec.Cmd
	requests  *sender
	responses *receiver
	pipes     []io.Closer
	exited    chan struct{}
	exitErr   error
	lost      bool
}

var _ device.Device = (*Device)(nil)

// Start starts a child and waits until its machine is ready.
func Start(ctx context.Context, o Options) (*Device, error) {
	requestsOut, requestsIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	responsesOut, responsesIn, err := os.Pipe()
	if err != nil {
		requestsOut.Close()
		requestsIn.Close()
		return nil, err
	}
	d := &Device{
		limit:     o.Limit,
		grace:     closeGrace,
		cmd:       exec.Command(o.Command[0], o.Command[1:]...),
		requests:  newSender(requestsIn, true),
		responses: newReceiver(responsesOut),
		pipes:     []io.Closer{requestsIn, responsesOut},
		exited:    make(chan struct{}),
	}
	d.cmd.ExtraFiles = []*os.File{requestsOut, responsesIn}
	d.cmd.Stdout, d.cmd.Stderr = o.Stderr, o.Stderr
	d.cmd.WaitDelay = 2 * time.Second
	// A group of its own, so that a tool wrapped around the child dies with it.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = d.cmd.Start()
	// The child's ends are the child's alone: a copy here would keep its death from being seen.
	requestsOut.Close()
	responsesIn.Close()
	if err != nil {
		d.closePipes()
		return nil, fmt.Errorf("start a process for the kernel: %w", err)
	}
	go func() {
		d.exitErr = d.cmd.Wait()
		close(d.exited)
	}()
	hello, err := d.exchange(ctx, nil)
	if err != nil {
		d.Close()
		if d.lost {
			err = fmt.Errorf("open the device: %w", err)
		}
		return nil, err
	}
	d.facts = hello.Facts
	return d, nil
}

// Facts describes the machine in the child.
func (d *Device) Facts() device.Facts { return d.facts }

// Run runs a job under guard.
func (d *Device) Run(ctx context.Context, job device.Job) (*device.Outcome, error) {
	r, err := d.call(ctx, request{Run: &job})
	return r.Outcome, err
}

// Time measures jobs in turns.
func (d *Device) Time(ctx context.Context, jobs []device.Job, plan device.Plan) ([]device.Series, error) {
	r, err := d.call(ctx, request{Time: &timing{jobs, plan}})
	return r.Series, err
}

func (d *Device) call(ctx context.Context, r request) (response, error) {
	if d.lost {
		return response{}, ErrUsedUp
	}
	return d.exchange(ctx, &r)
}

// exchange sends a request, if there is one, and waits for an answer, for the end of the time or
// for the caller's own end. A child that does not read is as lost as one that does not answer.
func (d *Device) exchange(ctx context.Context, r *request) (response, error) {
	type received struct {
		response
		err error
	}
	answers := make(chan received, 1)
	go func() {
		var got received
		if r != nil {
			got.err = d.requests.send(r.clone())
		}
		if got.err == nil {
			got.err = d.responses.receive(&got.response)
		}
		answers <- got
	}()
	limit := time.NewTimer(d.limit)
	defer limit.Stop()
	select {
	case r := <-answers:
		if r.err != nil {
			return response{}, d.lose(d.crash(r.err))
		}
		return r.response, d.failed(r.response)
	case <-limit.C:
		return response{}, d.lose(&device.Timeout{Limit: d.limit})
	case <-ctx.Done():
		return response{}, d.lose(ctx.Err())
	}
}

// failed gives the error in an answer its type back.
func (d *Device) failed(r response) error {
	switch {
	case r.Error == "":
		return nil
	case r.Fault != nil && !r.Missing:
		d.lost = true // the child itself is well, and a tool around it may have something to say at its end
		return r.Fault
	case r.NoClock:
		return device.ErrNoClock
	case r.Missing:
		return &missing{r.Error}
	}
	return errors.New(r.Error)
}

// missing is device.ErrNoDevice with the child's words.
type missing struct{ text string }

func (e *missing) Error() string { return e.text }
func (e *missing) Unwrap() error { return device.ErrNoDevice }

// crash says how the child died, once its pipe is closed.
func (d *Device) crash(pipeErr error) error {
	select {
	case <-d.exited:
	case <-time.After(5 * time.Second):
		return fmt.Errorf("talk to the process that runs the kernel: %w", pipeErr)
	}
	if d.exitErr != nil {
		return &device.Crash{How: d.exitErr.Error()}
	}
	return &device.Crash{How: "it ended without an answer"}
}

// lose marks the device as of no further use and ends the child.
func (d *Device) lose(err error) error {
	d.lost = true
	d.kill()
	return err
}

func (d *Device) kill() {
	_ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL) // it may be gone already
}

// Close ends the child: by closing its pipe, and by force where it does not end of itself.
func (d *Device) Close() error {
	d.closePipes()
	select {
	case <-d.exited:
	case <-time.After(d.grace):
		d.kill()
		<-d.exited
	}
	return nil
}

func (d *Device) closePipes() {
	for _, p := range d.pipes {
		p.Close()
	}
}
