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

// The pipes as the child sees them, after standard input, output and error.
const (
	requestFD  = 3
	responseFD = 4
)

// Serve is the life of the child: it opens a machine and answers requests until the parent is gone.
func Serve(open func() (device.Machine, error)) error {
	// Whoever interrupts the program means the parent; what becomes of the child is for the parent
	// to say.
	signal.Ignore(os.Interrupt)
	// What the driver may start must not keep the pipes open when the child is gone.
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
		return out.send(failure(err))
	}
	defer machine.Close()
	if err := out.send(&response{Facts: machine.Facts()}); err != nil {
		return err
	}
	for r := range pending {
		if err := out.send(answer(machine, r)); err != nil {
			return err
		}
	}
	return nil
}

// read passes requests on. A parent that is gone ends the child at once, even in the middle of a
// launch or an opening that hangs.
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

// parentGone is a variable so that a test can serve within its own process.
var parentGone = func() { os.Exit(0) }

func answer(machine device.Machine, r request) *response {
	switch {
	case r.Run != nil:
		outcome, err := device.Run(machine, *r.Run)
		if err != nil {
			return failure(err)
		}
		return &response{Outcome: outcome}
	case r.Time != nil:
		timer, ok := machine.(Timer)
		if !ok {
			return failure(device.ErrNoClock)
		}
		series, err := timer.Time(r.Time.Jobs, r.Time.Plan)
		if err != nil {
			return failure(err)
		}
		return &response{Series: series}
	}
	return failure(errors.New("BUG: an empty request"))
}

func failure(err error) *response {
	r := &response{Error: err.Error(), Missing: errors.Is(err, device.ErrNoDevice), NoClock: errors.Is(err, device.ErrNoClock)}
	errors.As(err, &r.Fault)
	return r
}
