package isolate

import "attune/internal/device"

// request asks the child for one thing.
type request struct {
	Run  *device.Job
	Time *timing
}

type timing struct {
	Jobs []device.Job
	Plan device.Plan
}

// response answers a request. The first one, before any request, carries the facts.
type response struct {
	Facts   device.Facts
	Outcome *device.Outcome
	Series  []device.Series
	Fault   *device.Fault // the machine's own error
	Error   string        // any other
	Missing bool          // the error is device.ErrNoDevice
	NoClock bool          // the error is device.ErrNoClock
}
