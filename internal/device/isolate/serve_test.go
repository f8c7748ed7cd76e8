//go:build linux

package isolate

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
)

// session is the parent's view of a server in this process.
type session struct {
	requests  *sender
	responses *receiver
	hangUp    func()
	stopRead  func()
	served    chan error // what serve returned
	gone      chan struct{}
}

func newSession(t *testing.T, open func() (device.Machine, error)) *session {
	t.Helper()
	requestsOut, requestsIn := io.Pipe()
	responsesOut, responsesIn := io.Pipe()
	s := &session{
		requests: newSender(requestsIn, true), responses: newReceiver(responsesOut),
		hangUp: func() { requestsIn.Close() }, stopRead: func() { responsesOut.Close() },
		served: make(chan error, 1), gone: make(chan struct{}),
	}
	before := parentGone
	parentGone = func() { close(s.gone) }
	go func() { s.served <- serve(requestsOut, responsesIn, open) }()
	t.Cleanup(func() {
		s.stopRead()
		s.hangUp()
		<-s.gone
		parentGone = before
	})
	return s
}

func (s *session) receive(t *testing.T) response {
	t.Helper()
	var r response
	if err := s.responses.receive(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *session) call(t *testing.T, r request) response {
	t.Helper()
	if err := s.requests.send(r.clone()); err != nil {
		t.Fatal(err)
	}
	return s.receive(t)
}

func TestServe(t *testing.T) {
	s := newSession(t, openMachine)
	if facts := s.receive(t).Facts; facts.Kind != "test" {
		t.Errorf("facts %v", facts)
	}
	job, bad := newJob("increment", 6), newJob("fail", 0)
	if r := s.call(t, request{Run: &job}); r.Error != "" || r.Outcome == nil || r.Outcome.Outputs[0][0] != 7 {
		t.Errorf("a correct job: %+v", r)
	}
	if r := s.call(t, request{Run: &bad}); r.Error != "the kernel failed" || r.Fault != nil || r.Outcome != nil {
		t.Errorf("a job that fails: %+v", r)
	}
	if r := s.call(t, request{Time: &timing{[]device.Job{job}, device.Plan{Samples: 1}}}); r.Error != "" || len(r.Series) != 1 {
		t.Errorf("a timing: %+v", r)
	}
	if r := s.call(t, request{}); r.Error != "BUG: an empty request" {
		t.Errorf("an empty request: %+v", r)
	}
	stray := newJob("illegal address", 0)
	if r := s.call(t, request{Run: &stray}); r.Fault == nil || r.Fault.Code != "ILLEGAL_ADDRESS" || r.Error == "" {
		t.Errorf("a fault: %+v", r)
	}
	s.hangUp()
	if err := <-s.served; err != nil {
		t.Errorf("after the parent has exited: %v", err)
	}
	<-s.gone
}

func TestServeWithNoMachine(t *testing.T) {
	s := newSession(t, func() (device.Machine, error) { return nil, errNoDevice })
	want := response{Error: errNoDevice.Error(), Missing: true}
	if diff := cmp.Diff(want, s.receive(t)); diff != "" {
		t.Error(diff)
	}
	if err := <-s.served; err != nil {
		t.Errorf("serve returned %v", err)
	}
}

func TestServeWithNoClock(t *testing.T) {
	s := newSession(t, func() (device.Machine, error) { return noClock{}, nil })
	s.receive(t)
	if r := s.call(t, request{Time: &timing{}}); !r.NoClock || r.Error != device.ErrNoClock.Error() {
		t.Errorf("got %+v", r)
	}
}

// noClock is a machine without Time.
type noClock struct{ device.Machine }

func (noClock) Facts() device.Facts { return device.Facts{} }
func (noClock) Close() error        { return nil }

// badClock is a machine whose Time fails.
type badClock struct{ noClock }

func (badClock) Time([]device.Job, device.Plan) ([]device.Series, error) {
	return nil, &device.Fault{Code: "LAUNCH_TIMEOUT", Operation: "replay"}
}

func TestServeWithBadClock(t *testing.T) {
	s := newSession(t, func() (device.Machine, error) { return badClock{}, nil })
	s.receive(t)
	if r := s.call(t, request{Time: &timing{}}); r.NoClock || r.Fault == nil || r.Fault.Code != "LAUNCH_TIMEOUT" {
		t.Errorf("got %+v", r)
	}
}

func TestServeWithClosedPipe(t *testing.T) {
	s := newSession(t, openMachine)
	s.stopRead()
	if err := <-s.served; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("before the first response: %v", err)
	}
}

func TestServeWithPipeClosedLater(t *testing.T) {
	s := newSession(t, openMachine)
	s.receive(t)
	s.stopRead()
	job := newJob("increment", 6)
	if err := s.requests.send(&request{Run: &job}); err != nil {
		t.Fatal(err)
	}
	if err := <-s.served; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("after a request: %v", err)
	}
}
