//go:build linux

package cuda

import (
	"math"
	"testing"
	"time"

	"attune/internal/device"
)

// The counter changes in steps, so a launch's energy is the mean between two changes that are far
// enough apart. Launches before the first change do not count.
func TestEnergyMeter(t *testing.T) {
	const ms = time.Millisecond
	type reading struct {
		at     time.Duration
		joules float64
	}
	for _, c := range []struct {
		name     string
		readings []reading
		want     float64 // of a launch, of which 10 are before each reading
		done     bool
	}{
		{"no change", []reading{{0, 50}, {500 * ms, 50}}, 0, false},
		{"one change", []reading{{0, 50}, {10 * ms, 60}, {500 * ms, 60}}, 0, false},
		{"two changes, too close", []reading{{0, 50}, {10 * ms, 60}, {110 * ms, 70}}, 0, false},
		{"two changes", []reading{{0, 50}, {10 * ms, 60}, {970 * ms, 100}}, 4, true},
		{
			"changes in between",
			[]reading{{0, 50}, {10 * ms, 50}, {20 * ms, 60}, {120 * ms, 80}, {130 * ms, 80}, {220 * ms, 90}, {971 * ms, 110}},
			50.0 / 40, true,
		},
		{"a late change after many launches", []reading{{0, 50}, {10 * ms, 60}, {1000 * ms, 60}, {1010 * ms, 60}, {1020 * ms, 90}}, 1, true},
	} {
		var joules float64
		m := energyMeter{read: func() (float64, bool) { return joules, true }}
		for i, r := range c.readings {
			joules = r.joules
			done, ok := m.add(10, time.Unix(0, 0).Add(r.at))
			if want := c.done && i == len(c.readings)-1; done != want || !ok {
				t.Errorf("%s: after reading %d it is done %t, ok %t; want %t, true", c.name, i+1, done, ok, want)
			}
		}
		if m.perLaunch != c.want {
			t.Errorf("%s: %g J; want %g", c.name, m.perLaunch, c.want)
		}
	}
	m := energyMeter{read: func() (float64, bool) { return 0, false }}
	if done, ok := m.add(10, time.Now()); done || ok {
		t.Errorf("no counter: done %t, ok %t", done, ok)
	}
}

func TestEnergy(t *testing.T) {
	defer func(s float64) { energySeconds = s }(energySeconds)
	energySeconds = 0.01 // the counter of the fake is exact
	const watts = 500
	energy := func(f *fake) func() float64 { return func() float64 { return watts * f.now / 1e3 } }
	check := func(name string, prepare func(f *fake, n *fakeNVML), plan device.Plan, want float64) {
		t.Helper()
		f := newFakeWith("k")
		n := &fakeNVML{fails: map[string]result{}}
		f.nvml = n.library()
		prepare(f, n)
		plan.Samples = 2
		got, err := f.open(t).Time([]device.Job{newJob("k")}, plan)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got[0].Joules-want) > 0.01*want {
			t.Errorf("%s: %g J; want %g", name, got[0].Joules, want)
		}
		if len(got[0].Readings) != 2 && f.nvml != nil {
			t.Errorf("%s: %d readings", name, len(got[0].Readings))
		}
		f.expectAllFreed(t)
	}
	measured := device.Plan{Energy: true}
	check("500 W for 0.01 ms", func(f *fake, n *fakeNVML) { n.energy = energy(f) }, measured, 5e-3)
	check("500 W for 30 ms", func(f *fake, n *fakeNVML) { n.energy, f.kernels["k"].milliseconds = energy(f), 30 }, measured, 15)
	check("a flush is not part of a launch", func(f *fake, n *fakeNVML) { n.energy, f.flushes = energy(f), 0.035 },
		device.Plan{Energy: true, ColdL2: true}, 5e-3)
	check("not requested", func(f *fake, n *fakeNVML) { n.energy = energy(f) }, device.Plan{}, 0)
	check("no counter", func(*fake, *fakeNVML) {}, measured, 0)
	check("no NVML", func(f *fake, _ *fakeNVML) { f.nvml = nil }, measured, 0)
}

func TestEnergyFails(t *testing.T) {
	f := newFakeWith("k")
	n := &fakeNVML{fails: map[string]result{}}
	n.energy = func() float64 { f.fails["cuGraphLaunch"] = illegalAddress; return 1 }
	f.nvml = n.library()
	_, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 1, Energy: true})
	if !isFault(err, "CUDA_ERROR_ILLEGAL_ADDRESS") {
		t.Errorf("got %v; want a fault", err)
	}
	f.expectAllFreed(t)
}
