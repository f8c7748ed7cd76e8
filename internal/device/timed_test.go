package device_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/device/devicetest"
	"attune/internal/finding"
)

// bound is a machine with the buffers of a job: an input, an output, a scalar, an in-out buffer and
// another output.
func bound(t *testing.T) (*devicetest.Machine, []*device.Buffer) {
	t.Helper()
	job := newJob()
	job.Args = append(job.Args, device.Arg{InOut: []byte{7, 8, 9}}, device.Out(5))
	m := newMachine(increment)
	buffers, _, err := device.Bind(m, job)
	if err != nil {
		t.Fatal(err)
	}
	return m, buffers
}

func write(t *testing.T, m device.Machine, to device.Address, data ...byte) {
	t.Helper()
	if err := m.Write(to, data); err != nil {
		t.Fatal(err)
	}
}

func TestInspectTimed(t *testing.T) {
	_, buffers := bound(t)
	none := make([]device.Differences, len(buffers))
	if got := device.InspectTimed(false, buffers, none); got != nil {
		t.Errorf("no differences: %v", got)
	}
	none[1].First = -1 // as the kernel leaves it
	if got := device.InspectTimed(false, buffers, none); got != nil {
		t.Errorf("no differences: %v", got)
	}
	got := device.InspectTimed(false, buffers, []device.Differences{{2, 0}, {64, 3}, {1, 2}, {4, 1}})
	const differs = " bytes that a timed launch wrote differ from those of an untimed launch on the same inputs, the first at byte "
	want := []finding.Finding{
		devicetest.Found(finding.InputChanged, "argument 0: 2 bytes of an input changed while it was timed, the first at byte 0"),
		devicetest.Found(finding.TimedOutputDiffers, "argument 1: 64 of 64"+differs+"3"),
		devicetest.Found(finding.TimedOutputDiffers, "argument 3: 1 of 3"+differs+"2"),
		devicetest.Found(finding.TimedOutputDiffers, "argument 4: 4 of 5"+differs+"1"),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestInspectTimedUnordered(t *testing.T) {
	_, buffers := bound(t)
	got := device.InspectTimed(true, buffers, []device.Differences{{2, 0}, {64, 3}, {1, 2}, {4, 1}})
	want := []finding.Finding{devicetest.Found(finding.InputChanged, "argument 0: 2 bytes of an input changed while it was timed, the first at byte 0")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestInspectGuards(t *testing.T) {
	const guard = 4096
	for _, c := range []struct {
		name  string
		touch func(b []*device.Buffer) []device.Address
		want  []string
	}{
		{"nothing", func([]*device.Buffer) []device.Address { return nil }, nil},
		{
			"the buffers themselves",
			func(b []*device.Buffer) []device.Address { return []device.Address{b[0].Start(), b[3].Start() + 4} },
			nil,
		},
		{
			"the first byte past the end",
			func(b []*device.Buffer) []device.Address { return []device.Address{b[1].Start() + size} },
			[]string{"argument 1: bytes written past its end while it was timed"},
		},
		{
			"the last byte of the guard",
			func(b []*device.Buffer) []device.Address { return []device.Address{b[2].Start() + 3 + guard - 1} },
			[]string{"argument 3: bytes written past its end while it was timed"},
		},
		{
			"both guards",
			func(b []*device.Buffer) []device.Address {
				return []device.Address{b[3].Start() - 1, b[3].Start() + 5, b[0].Start() - guard}
			},
			[]string{
				"argument 0: bytes written before its start while it was timed",
				"argument 4: bytes written before its start while it was timed",
				"argument 4: bytes written past its end while it was timed",
			},
		},
	} {
		m, buffers := bound(t)
		for _, address := range c.touch(buffers) {
			write(t, m, address, 0x11)
		}
		findings, err := device.InspectGuards(m, buffers)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range findings {
			if f.Kind != finding.WroteOutside {
				t.Errorf("%s: the kind is %s", c.name, f.Kind)
			}
			got = append(got, f.Text())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestOutputs(t *testing.T) {
	m, buffers := bound(t)
	write(t, m, buffers[1].Start(), numbered(size)...)
	write(t, m, buffers[3].Start(), 5, 4, 3, 2, 1)
	got, err := device.Outputs(m, buffers)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]byte{numbered(size), {7, 8, 9}, {5, 4, 3, 2, 1}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadsOfTimedBuffersFail(t *testing.T) {
	fails := func(name string, reads int, read func(device.Machine, []*device.Buffer) error) {
		t.Helper()
		for n := 1; n <= reads; n++ {
			m, buffers := bound(t)
			m.FailRead = n
			if err := read(m, buffers); err == nil || !strings.Contains(err.Error(), "the read failed") {
				t.Errorf("%s: read %d fails, the error is %v", name, n, err)
			}
		}
	}
	fails("outputs", 3, func(m device.Machine, b []*device.Buffer) error {
		_, err := device.Outputs(m, b)
		return err
	})
	fails("guards", 8, func(m device.Machine, b []*device.Buffer) error {
		_, err := device.InspectGuards(m, b)
		return err
	})
}
