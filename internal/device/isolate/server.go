package isolate

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"attune/internal/device"
)

// Timer is a machine that can time jobs.
type Timer interface {
	Time(jobs []device.Job, plan device.Plan) ([]device.Series, error)
}

// The child's file descriptors of the pipes, after standard input, output and error.
const (
	requestFD  = 3
	responseFD = 4
)

// Serve is the child's main function: it opens a machine and serves requests until the parent
// exits.
func Serve(open func() (device.Machine, error)) error {
	// Ctrl-C reaches the child too. The parent handles it and decides when the child ends.
	signal.Ignore(os.Interrupt)
	// Processes that the driver starts must not keep the pipes open after the child has died.
	syscall.CloseOnExec(requestFD)
	syscall.CloseOnExec(responseFD)
	return serve(os.NewFile(requestFD, "requests"), os.NewFile(responseFD, "responses"), open)
}

func serve(requests io.Reader, responses io.Writer, open func() (device.Machine, error)) error {
	pending := make(chan request)
	go read(requests, pending)
	out := newSender(responses, false)
	machine, err := open()
	if err != nil {
		return out.send(failed(err))
	}
	defer machine.Close()
	if err := out.send(&response{Facts: machine.Facts()}); err != nil {
		return err
	}
	for r := range pending {
		if err := out.send(respond(machine, r)); err != nil {
			return err
		}
	}
	return nil
}

// read receives requests. When the parent has exited it ends the child at once, even if the machine
// hangs in a launch or while it opens.
func read(requests io.Reader, pending chan<- request) {
	in := newReceiver(requests)
	for {
		var r request
		if err := in.receive(&r); err != nil {
			close(pending)
			parentGone()
			return
		}
		pending <- r
	}
}

// parentGone is a variable so that a test can serve in its own process.
var parentGone = func() { os.Exit(0) }

func respond(machine device.Machine, r request) *response {
	switch {
	case r.Run != nil:
		outcome, err := device.Run(machine, *r.Run)
		if err != nil {
			return failed(err)
		}
		return &response{Outcome: outcome}
	case r.Time != nil:
		timer, ok := machine.(Timer)
		if !ok {
			return failed(device.ErrNoClock)
		}
		series, err := timer.Time(r.Time.Jobs, r.Time.Plan)
		if err != nil {
			return failed(err)
		}
		return &response{Series: series}
	}
	return failed(errors.New("BUG: an empty request"))
}

// failed is the response for an error.
func failed(err error) *response {
	r := &response{Error: err.Error(), Missing: errors.Is(err, device.ErrNoDevice), NoClock: errors.Is(err, device.ErrNoClock)}
	errors.As(err, &r.Fault)
	return r
}
