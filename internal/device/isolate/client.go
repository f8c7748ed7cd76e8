package isolate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"attune/internal/child"
	"attune/internal/device"
)

// ErrDeviceLost is returned by a device that an earlier fault, crash or timeout has lost.
var ErrDeviceLost = errors.New("the device was lost to an earlier failure")

// Options describe how to start a child.
type Options struct {
	Command []string      // program and arguments that call Serve
	Limit   time.Duration // of each call
	// LaunchLimit is that of Run; 0 for Limit. A checked launch takes far less time than a timing.
	LaunchLimit time.Duration
	Stdout      io.Writer // receives what the child's kernels print; nil for Stderr
	Stderr      io.Writer // receives the child's messages

	sanitized bool // the command is a tool of compute-sanitizer
}

// closeGrace is the time limit for a child to exit by itself. A sanitizer writes its report first.
const closeGrace = 20 * time.Second

// Device is a machine in a child process.
type Device struct {
	facts     device.Facts
	limit     time.Duration
	launch    time.Duration // limit of Run
	grace     time.Duration
	cmd       *exec.Cmd
	requests  *sender
	responses *receiver
	pipes     []io.Closer
	exited    chan struct{}
	exitErr   error
	lost      bool
	killed    bool
}

var _ device.Device = (*Device)(nil)

// Start starts a child and waits until its machine is ready.
func Start(ctx context.Context, o Options) (*Device, error) {
	d, err := spawn(o)
	if err != nil {
		return nil, err
	}
	hello, err := d.exchange(ctx, nil, d.limit)
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

// spawn starts the child process and connects the pipes.
func spawn(o Options) (*Device, error) {
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
		launch:    cmp.Or(o.LaunchLimit, o.Limit),
		grace:     closeGrace,
		cmd:       exec.Command(o.Command[0], o.Command[1:]...),
		requests:  newSender(requestsIn, true),
		responses: newReceiver(responsesOut),
		pipes:     []io.Closer{requestsIn, responsesOut},
		exited:    make(chan struct{}),
	}
	d.cmd.ExtraFiles = []*os.File{requestsOut, responsesIn}
	d.cmd.Stdout, d.cmd.Stderr = o.Stderr, o.Stderr
	if o.Stdout != nil {
		d.cmd.Stdout = o.Stdout
	}
	d.cmd.WaitDelay = 2 * time.Second
	// A process group of its own, so that kill ends a tool that wraps the child too.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !o.sanitized { // compute-sanitizer talks to its program by TCP
		d.cmd.SysProcAttr = child.Alone(d.cmd.SysProcAttr)
	}
	err = d.cmd.Start()
	// The parent must not keep the child's pipe ends open, or it would not see EOF when the child
	// dies.
	requestsOut.Close()
	responsesIn.Close()
	if err != nil {
		d.closePipes()
		return nil, fmt.Errorf("start the child process: %w", err)
	}
	go func() {
		d.exitErr = d.cmd.Wait()
		close(d.exited)
	}()
	return d, nil
}

// Facts describes the machine in the child.
func (d *Device) Facts() device.Facts { return d.facts }

// Run runs a job under guard.
func (d *Device) Run(ctx context.Context, job device.Job) (*device.Outcome, error) {
	r, err := d.call(ctx, request{Run: &job}, d.launch)
	return r.Outcome, err
}

// Time times jobs, interleaved.
func (d *Device) Time(ctx context.Context, jobs []device.Job, plan device.Plan) ([]device.Series, error) {
	r, err := d.call(ctx, request{Time: &timing{jobs, plan}}, d.limit)
	return r.Series, err
}

func (d *Device) call(ctx context.Context, r request, limit time.Duration) (response, error) {
	if d.lost {
		return response{}, ErrDeviceLost
	}
	return d.exchange(ctx, &r, limit)
}

// exchange sends a request, if it is not nil, and waits for the response, the time limit or the end
// of the context. The limit covers the sending too, because a child that does not read is lost.
func (d *Device) exchange(ctx context.Context, r *request, within time.Duration) (response, error) {
	type received struct {
		response
		err error
	}
	responses := make(chan received, 1)
	go func() {
		var got received
		if r != nil {
			got.err = d.requests.send(r.clone())
		}
		if got.err == nil {
			got.err = d.responses.receive(&got.response)
		}
		responses <- got
	}()
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case r := <-responses:
		if r.err != nil {
			return response{}, d.lose(d.crash(r.err))
		}
		return r.response, d.errorOf(r.response)
	case <-limit.C:
		return response{}, d.lose(&device.Timeout{Limit: within})
	case <-ctx.Done():
		return response{}, d.lose(ctx.Err())
	}
}

// errorOf restores the type of the error in a response.
func (d *Device) errorOf(r response) error {
	switch {
	case r.Error == "":
		return nil
	case r.Fault != nil && !r.Missing:
		// The child is not killed: a tool that wraps it may report findings when it ends.
		d.lost = true
		return r.Fault
	case r.NoClock:
		return device.ErrNoClock
	case r.Missing:
		return &missing{r.Error}
	}
	return errors.New(r.Error)
}

// missing is device.ErrNoDevice with the child's message.
type missing struct{ text string }

func (e *missing) Error() string { return e.text }
func (e *missing) Unwrap() error { return device.ErrNoDevice }

// crash is the error of a child whose pipe failed: how it died, or the pipe's error if it lives.
func (d *Device) crash(pipeErr error) error {
	select {
	case <-d.exited:
	case <-time.After(5 * time.Second):
		return fmt.Errorf("exchange messages with the child process: %w", pipeErr)
	}
	if d.exitErr != nil {
		return &device.Crash{How: d.exitErr.Error()}
	}
	return &device.Crash{How: "it exited without a response"}
}

// lose marks the device as lost and kills the child.
func (d *Device) lose(err error) error {
	d.lost = true
	d.kill()
	return err
}

func (d *Device) kill() {
	d.killed = true
	_ = syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL) // it may have exited already
}

// killGrace is the time limit for a killed child to be gone. The driver first ends its kernels.
const killGrace = 10 * time.Second

// Close closes the child's pipes, which makes it exit, and kills it after the grace time. A killed
// child that the driver does not let go is left behind.
func (d *Device) Close() error {
	d.closePipes()
	grace := d.grace
	if d.killed {
		grace = 0
	}
	select {
	case <-d.exited:
		return nil
	case <-time.After(grace):
		d.kill()
	}
	select {
	case <-d.exited:
		return nil
	case <-time.After(killGrace):
		return errors.New("the process that ran the kernel does not end; the driver may still wait for the kernel")
	}
}

func (d *Device) closePipes() {
	for _, p := range d.pipes {
		p.Close()
	}
}
