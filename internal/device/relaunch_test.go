package device_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/device/devicetest"
)

// relaunchedJob relaunches newJob with an input of zeros, and with the first one again.
func relaunchedJob() device.Job {
	job := newJob()
	job.Relaunches = []device.Relaunch{{Inputs: [][]byte{make([]byte, size)}}, {Inputs: [][]byte{job.Args[0].Input}}}
	return job
}

func TestRelaunches(t *testing.T) {
	m := newMachine(increment)
	got, err := device.Run(m, relaunchedJob())
	if err != nil {
		t.Fatal(err)
	}
	want := [][][]byte{{bytes.Repeat([]byte{1}, size)}, {got.Outputs[0]}}
	if diff := cmp.Diff(want, got.Relaunched); diff != "" || len(got.Findings) > 0 {
		t.Errorf("findings %v, outputs (-want +got):\n%s", got.Findings, diff)
	}
	if m.Launches != 4 || m.Allocated() != 0 {
		t.Errorf("%d launches and %d buffers not freed; want 4 and none", m.Launches, m.Allocated())
	}
}

// A kernel that skips its work after two launches leaves the output of other inputs.
func TestRelaunchKeepsTheOutput(t *testing.T) {
	m := newMachine(nil)
	m.Kernels["k"] = func(l *devicetest.Launch) error {
		if m.Launches > 2 {
			return nil
		}
		return increment(l)
	}
	got, err := device.Run(m, relaunchedJob())
	if err != nil || !bytes.Equal(got.Relaunched[0][0], got.Outputs[0]) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// An in-out buffer has the contents of the relaunch too.
func TestRelaunchOfInOut(t *testing.T) {
	job := newJob()
	job.Args = append(job.Args, device.Arg{InOut: []byte{5}})
	job.Relaunches = []device.Relaunch{{Inputs: [][]byte{make([]byte, size), {9}}}}
	got, err := device.Run(newMachine(func(l *devicetest.Launch) error {
		l.At(l.Pointer(3), 1)[0]++
		return increment(l)
	}), job)
	if err != nil || got.Outputs[1][0] != 6 || got.Relaunched[0][1][0] != 10 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestFindingsOfRelaunches(t *testing.T) {
	for kind, misbehave := range map[string]func(l *devicetest.Launch, in, out device.Address){
		"wrote-outside in relaunch 1: argument 1: 1 bytes written past its end": func(l *devicetest.Launch, _, out device.Address) {
			l.At(out+size, 1)[0] = 1
		},
		"wrote-outside in relaunch 1: argument 1: 2 bytes written before its start": func(l *devicetest.Launch, _, out device.Address) {
			fill(l.At(out-2, 2), 1)
		},
		"input-changed in relaunch 1: argument 0: bytes of an input changed": func(l *devicetest.Launch, in, _ device.Address) {
			l.At(in, 1)[0] = 77
		},
	} {
		m := newMachine(nil)
		m.Kernels["k"] = incrementThen(func(l *devicetest.Launch, in, out device.Address) {
			if m.Launches == 3 {
				misbehave(l, in, out)
			}
		})
		job := relaunchedJob()
		job.Relaunches = job.Relaunches[:1]
		got, err := device.Run(m, job)
		if err != nil || len(got.Findings) != 1 || got.Findings[0].String() != kind {
			t.Errorf("got %+v, %v; want %s", got, err, kind)
		}
	}
}

func TestRelaunchErrors(t *testing.T) {
	check := func(m *devicetest.Machine, job device.Job, want string) {
		t.Helper()
		if _, err := device.Run(m, job); err == nil || !strings.Contains(err.Error(), want) || m.Allocated() != 0 {
			t.Errorf("got %v, want %q; %d buffers not freed", err, want, m.Allocated())
		}
	}
	job := relaunchedJob()
	job.Relaunches[0].Inputs[0] = []byte{1}
	check(newMachine(increment), job, "job k: a relaunch needs 64 bytes for argument 0")
	job.Relaunches[0].Inputs = nil
	check(newMachine(increment), job, "job k: a relaunch needs 64 bytes for argument 0")
	job.Relaunches[0].Inputs = [][]byte{make([]byte, size), {1}}
	check(newMachine(increment), job, "job k: a relaunch has 2 buffers; the job has 1 that are not outputs")

	// Each launch writes two guards and the contents of two buffers, and reads two buffers.
	check(&devicetest.Machine{Kernels: map[string]devicetest.Kernel{"k": increment}, FailWrite: 13}, relaunchedJob(), "write")
	check(&devicetest.Machine{Kernels: map[string]devicetest.Kernel{"k": increment}, FailRead: 5}, relaunchedJob(), "read")
	m := newMachine(nil)
	m.Kernels["k"] = func(l *devicetest.Launch) error {
		if m.Launches == 3 {
			return &device.Fault{Code: "boom"}
		}
		return increment(l)
	}
	if _, err := device.Run(m, relaunchedJob()); err == nil || !strings.Contains(err.Error(), "boom") {
		t.Errorf("a fault: %v", err)
	}
}

// A relaunch may have other scalars. Without any it has those of the job.
func TestScalarsOfRelaunches(t *testing.T) {
	job := newJob()
	index := slices.IndexFunc(job.Args, func(a device.Arg) bool { return a.Scalar != nil })
	other := bytes.Repeat([]byte{7}, len(job.Args[index].Scalar))
	inputs := [][]byte{job.Args[0].Input}
	job.Relaunches = []device.Relaunch{{Inputs: inputs, Scalars: [][]byte{other}}, {Inputs: inputs}}
	var got [][]byte
	_, err := device.Run(newMachine(func(l *devicetest.Launch) error {
		got = append(got, l.Args[index])
		return nil
	}), job)
	first := job.Args[index].Scalar
	if want := [][]byte{first, first, other, first}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("the launches have the scalars %v, %v; want %v", got, err, want)
	}
	for want, scalars := range map[string][][]byte{
		"job k: a relaunch needs a scalar of 4 bytes for argument": {{1, 2}},
		"job k: a relaunch has 2 scalars; the job has 1":           {other, other},
	} {
		job.Relaunches = []device.Relaunch{{Inputs: inputs, Scalars: scalars}}
		if _, err := device.Run(newMachine(increment), job); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
