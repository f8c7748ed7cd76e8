package lab

import (
	"context"
	"fmt"

	"attune/internal/device"
	"attune/internal/run"
)

// Device is what runs the kernels of a lab: a GPU, the simulator, or nothing. The zero value is
// nothing.
type Device struct {
	facts      device.Facts
	open       Opener
	simulation *run.Simulation // nil on a GPU
	missing    string          // why there is no device

	simulator        *Device  // beside a GPU; nil for none
	withoutSimulator bool     // the request forbids it
	sanitizers       []Opener // of the GPU under compute-sanitizer, for what the simulator refuses
}

// Opener opens a fresh device.
type Opener func(ctx context.Context) (device.Device, error)

// GPU is a device that measures time.
func GPU(facts device.Facts, open Opener) Device { return Device{facts: facts, open: open} }

// Simulator is a device that measures no time. Its settings go into the records.
func Simulator(facts device.Facts, open Opener, settings run.Simulation) Device {
	return Device{facts: facts, open: open, simulation: &settings}
}

// Beside is a GPU whose code the simulator runs too. Each sanitizer opens the GPU under a tool of
// compute-sanitizer, for kernels that the simulator refuses.
func (d Device) Beside(simulator Device, sanitizers ...Opener) Device {
	d.simulator, d.sanitizers = &simulator, sanitizers
	return d
}

// WithoutSimulator is a GPU whose code the simulator does not run. The records say so.
func (d Device) WithoutSimulator() Device {
	d.simulator, d.withoutSimulator = nil, true
	return d
}

// NoDevice is the absence of a device, for a reason that goes into the records.
func NoDevice(why string) Device { return Device{missing: why} }

// Facts describe the device. They are zero where there is none.
func (d Device) Facts() device.Facts { return d.facts }

// Simulated reports whether the device is the simulator.
func (d Device) Simulated() bool { return d.simulation != nil }

// settings are the simulator's, for one record; nil on a GPU.
func (d Device) settings() *run.Simulation {
	if d.simulation == nil {
		return nil
	}
	s := *d.simulation
	return &s
}

// WithoutSim reports whether the request forbids the simulator beside a GPU.
func (d Device) WithoutSim() bool { return d.withoutSimulator }

func (d Device) present() bool { return d.open != nil }

// Timed reports whether the device measures time: it is a GPU.
func (d Device) Timed() bool { return d.open != nil && d.simulation == nil }

// session is a device in use. It is opened when it is first needed, and replaced after a failure
// that lost it.
type session struct {
	from   Device
	device device.Device // nil before the first use
	lost   bool
}

func (l *Lab) newSession() *session { return &session{from: l.Device} }

// ready returns an open device.
func (s *session) ready(ctx context.Context) (device.Device, error) {
	if s.lost {
		s.close()
	}
	if s.device != nil {
		return s.device, nil
	}
	if !s.from.present() {
		return nil, fmt.Errorf("%w: %s", device.ErrNoDevice, s.from.missing)
	}
	opened, err := s.from.open(ctx)
	if err != nil {
		return nil, err
	}
	s.device = opened
	return opened, nil
}

// failed notes an error of the device. A lost device stays open until the next use: a sanitizer may
// still report what it found.
func (s *session) failed(err error) device.Failure {
	failure := device.Classify(err)
	s.lost = s.lost || failure.LosesDevice()
	return failure
}

func (s *session) close() {
	if s.device != nil {
		s.device.Close() // the results are already here, so a failure to close changes nothing
	}
	s.device, s.lost = nil, false
}

// sessions are processes of a device that are used one at a time.
type sessions []*session

// newSessions has at least one session.
func (l *Lab) newSessions(processes int) sessions {
	all := make(sessions, max(1, processes))
	for i := range all {
		all[i] = l.newSession()
	}
	return all
}

func (s sessions) close() {
	for _, one := range s {
		one.close()
	}
}
