//go:build linux

package cuda

import (
	"bytes"
	gocmp "cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"attune/internal/device"
)

// replays are the replays of graphs that the fake has recorded, without those of the machine's own
// kernels.
func (f *fake) replays() []string {
	var all []string
	for _, call := range f.calls {
		if strings.Contains(call, " x ") && !strings.Contains(call, "attune_") {
			all = append(all, call)
		}
	}
	return all
}

// checkedSeries completes the series of a job of newJob: an empty node, and a check of all copies
// that found nothing.
func checkedSeries(s device.Series) device.Series {
	empty := 0.6e-6
	s.EmptyNode = &empty
	s.Check = &device.TimedCheck{Outputs: s.Copies, Launches: []device.TimedLaunch{{Outputs: [][]byte{{11, 21, 31, 41}}}}}
	return s
}

// unpredicted are the fields that tests of other fields ignore.
var unpredicted = cmp.Options{
	cmpopts.IgnoreFields(device.Series{}, "WarmSeconds"), cmpopts.IgnoreFields(device.TimedLaunch{}, "Rotation"),
}

var about = cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-3*math.Abs(b) })

func TestTimeOnFake(t *testing.T) {
	f := newFakeWith("slow", "fast")
	f.kernels["slow"].milliseconds, f.kernels["fast"].milliseconds = 0.3, 0.002
	m := f.open(t)
	got, err := m.Time([]device.Job{newJob("slow"), newJob("fast")}, device.Plan{Samples: 3})
	if err != nil {
		t.Fatal(err)
	}
	unwatched := "there is no NVML here"
	want := []device.Series{
		checkedSeries(device.Series{ // about 5 ms
			Seconds: []float64{0.3e-3, 0.3e-3, 0.3e-3}, LaunchesPerSample: 16, Single: []float64{0.3e-3, 0.3e-3, 0.3e-3}, NoReadings: unwatched, Copies: 4,
		}),
		checkedSeries(device.Series{ // the limit
			Seconds: []float64{2e-6, 2e-6, 2e-6}, LaunchesPerSample: 50, Single: []float64{2e-6, 2e-6, 2e-6}, NoReadings: unwatched, Copies: 4,
		}),
	}
	if diff := cmp.Diff(want, got, about, unpredicted); diff != "" {
		t.Error(diff)
	}
	samples := f.replays()
	interleaved := []string{ // each after its lead-in
		"16 x slow", "16 x slow", "50 x fast", "50 x fast", "50 x fast", "50 x fast",
		"16 x slow", "16 x slow", "16 x slow", "16 x slow", "50 x fast", "50 x fast",
	}
	if diff := cmp.Diff(interleaved, samples[max(0, len(samples)-12):]); diff != "" {
		t.Error(diff)
	}
	warm := 0.0
	for _, call := range samples[:len(samples)-12] {
		if call == "50 x fast" {
			warm += 50 * 2e-6
		}
	}
	if math.Abs(warm-got[1].WarmSeconds) > 1e-6 || warm < 2*windowSeconds || warm > 3*windowSeconds {
		t.Errorf("%g s of warm-up, the series has %g s; want two windows of %g s", warm, got[1].WarmSeconds, windowSeconds)
	}
	f.expectAllFreed(t)
	if len(f.threads) != 1 {
		t.Errorf("%d threads called the driver; want the one that has the context", len(f.threads))
	}
}

// expectAllFreed expects that only the modules that Load keeps are left.
func (f *fake) expectAllFreed(t *testing.T) {
	t.Helper()
	if len(f.memory)+len(f.graphs) != 0 || f.captures {
		t.Errorf("%d buffers and %d graphs are left, capturing %t", len(f.memory), len(f.graphs), f.captures)
	}
	if kept := len(f.machine.loaded); len(f.modules) != kept {
		t.Errorf("%d modules are loaded; want the %d that the machine keeps", len(f.modules), kept)
	}
}

func TestClockIsReused(t *testing.T) {
	f := newFakeWith("k")
	m := f.open(t)
	f.fails["cuEventCreate"] = 2
	for range 2 {
		if _, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: 1}); err == nil || errors.As(err, new(*device.Fault)) {
			t.Errorf("got %v; want an error that is not a fault", err)
		}
	}
	delete(f.fails, "cuEventCreate")
	f.calls = nil
	for range 3 {
		if _, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.count("cuStreamCreate"); n != 1 {
		t.Errorf("%d streams were made for 3 timings; want 1", n)
	}
}

// Every failure of the driver during timing is a fault of the kernel, and all memory is freed.
func TestTimeFails(t *testing.T) {
	for _, function := range []string{
		"cuModuleLoadDataEx", "cuLaunchKernelEx", "cuCtxSynchronize", "cuStreamBeginCapture_v2", "cuStreamEndCapture",
		"cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuEventSynchronize", "cuEventElapsedTime",
	} {
		f := newFakeWith("k", "other")
		m := f.open(t)
		if _, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: 1}); err != nil {
			t.Fatal(err)
		}
		f.fails[function] = illegalAddress
		_, err := m.Time([]device.Job{newJob("k"), newJob("other")}, device.Plan{Samples: 1})
		if !isFault(err, "CUDA_ERROR_ILLEGAL_ADDRESS") {
			t.Errorf("%s: got %v; want a fault", function, err)
		}
		f.expectAllFreed(t)
	}
}

// Failures of the second job, of a launch during capture, and of a sample.
func TestTimeFailsLate(t *testing.T) {
	check := func(name string, spoil func(f *fake)) {
		t.Helper()
		f := newFakeWith("k", "other")
		m := f.open(t)
		spoil(f)
		_, err := m.Time([]device.Job{newJob("k"), newJob("other")}, device.Plan{Samples: 1})
		if !isFault(err, "CUDA_ERROR_ILLEGAL_ADDRESS") {
			t.Errorf("%s: got %v; want a fault", name, err)
		}
		f.expectAllFreed(t)
	}
	check("the second job", func(f *fake) {
		f.kernels["other"].run = func(*unsafe.Pointer) { f.fails["cuCtxSynchronize"] = illegalAddress }
	})
	check("a captured launch", func(f *fake) {
		begin := f.cuStreamBeginCapture_v2
		f.cuStreamBeginCapture_v2 = func(stream handle, mode int32) result {
			f.fails["cuLaunchKernelEx"] = illegalAddress
			return begin(stream, mode)
		}
	})
	check("a sample", func(f *fake) {
		replay := f.cuGraphLaunch
		f.cuGraphLaunch = func(exec, stream handle) result {
			if f.graphs[exec][0].name == "k" && slices.Contains(f.calls, "50 x other") { // both are ready
				return illegalAddress
			}
			return replay(exec, stream)
		}
	})
}

func TestTimeOfZero(t *testing.T) {
	f := newFakeWith("k")
	f.kernels["k"].milliseconds = 0
	_, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 1})
	if err == nil || err.Error() != "replay a graph of k: the events measured 0 ms" {
		t.Errorf("got %v", err)
	}
	f.expectAllFreed(t)
}

func TestTimeRefusesBadJobs(t *testing.T) {
	f := newFakeWith("k")
	m := f.open(t)
	for _, change := range []func(*device.Job){
		func(j *device.Job) { j.Block[1] = 0 },
		func(j *device.Job) { j.Args[2].Scalar = []byte{} },
	} {
		job := newJob("k")
		change(&job)
		if _, err := m.Time([]device.Job{job}, device.Plan{Samples: 1}); err == nil || !strings.HasPrefix(err.Error(), "job k: ") {
			t.Errorf("got %v; want the job refused", err)
		}
	}
	f.expectAllFreed(t)
}

func TestTimeWithColdL2(t *testing.T) {
	f := newFakeWith("k")
	f.kernels["k"].milliseconds, f.flushes = 0.01, 0.035
	got, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 2, ColdL2: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []device.Series{checkedSeries(device.Series{
		Seconds: []float64{10e-6, 10e-6}, WithFlush: []float64{45e-6, 45e-6}, Flush: []float64{35e-6, 35e-6}, LaunchesPerSample: 50,
		// The flush before a single launch is not timed.
		Single: []float64{10e-6, 10e-6}, NoReadings: "there is no NVML here",
		Copies: 4,
	})}
	if diff := cmp.Diff(want, got, about, unpredicted); diff != "" {
		t.Error(diff)
	}
	graphs := f.replays()
	// Each replay follows its lead-in.
	sample := []string{"50 x flush k", "50 x flush k", "50 x flush", "50 x flush"}
	if diff := cmp.Diff(slices.Concat(sample, sample), graphs[len(graphs)-8:]); diff != "" {
		t.Error(diff)
	}
	f.expectAllFreed(t)
}

// A single slow flush, or a lasting change of the clocks, does not change the kernel's time.
func TestSubtractFlush(t *testing.T) {
	check := func(name string, withFlush, flush [2][]float64, want [2][]float64) {
		t.Helper()
		var ready []*timedJob
		for i := range withFlush {
			ready = append(ready, &timedJob{with: withFlush[i], alone: flush[i]})
		}
		for i, t1 := range ready {
			if err := t1.subtract(ready); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := cmp.Diff(want[i], t1.series.Seconds, about); diff != "" {
				t.Errorf("%s, job %d: %s", name, i, diff)
			}
		}
	}
	steady := [2][]float64{{50, 50, 50, 50}, {60, 60, 60, 60}}
	own := [2][]float64{{10, 10, 10, 10}, {20, 20, 20, 20}}
	check("steady", steady, [2][]float64{{40, 40, 40, 40}, {40, 40, 40, 40}}, own)
	check("one slow flush", steady, [2][]float64{{40, 200, 40, 40}, {40, 40, 40, 40}}, own)
	check("a step", [2][]float64{{50, 50, 50, 60, 60, 60}, {60, 60, 60, 70, 70, 70}}, [2][]float64{{40, 40, 40, 50, 50, 50}, {40, 40, 40, 50, 50, 50}},
		[2][]float64{{10, 10, 10, 10, 10, 10}, {20, 20, 20, 20, 20, 20}})
}

// In-out buffers are restored before every launch, and the time of the restores is subtracted.
func TestTimeRestoresInOut(t *testing.T) {
	newTimed := func(cold bool) (*fake, []device.Series, error) {
		f := newFakeKernel(func() func(*fakeLaunch) {
			return func(l *fakeLaunch) {
				for i := range l.n {
					if l.out[i] != 5 {
						t.Errorf("a launch finds %d in its in-out buffer", l.out[i])
					}
					l.out[i] += l.in[i]
				}
			}
		})
		f.kernels["k"].milliseconds, f.kernels[rotateEntry].milliseconds, f.flushes = 0.01, 0.002, 0.035
		job := rotatingJob("k")
		job.Args[1] = device.Arg{InOut: bytes.Repeat([]byte{5}, job.Args[1].Output)}
		got, err := f.open(t).Time([]device.Job{job}, device.Plan{Samples: 2, ColdL2: cold, Launches: 10, Fresh: true})
		return f, got, err
	}
	for _, cold := range []bool{false, true} {
		f, got, err := newTimed(cold)
		if err != nil {
			t.Fatal(err)
		}
		s := got[0]
		if diff := cmp.Diff([]float64{10e-6, 10e-6}, s.Seconds, about); diff != "" || !s.Restored || (s.WithFlush != nil) != cold {
			t.Errorf("cold %t: %+v\n%s", cold, s, diff)
		}
		if diff := cmp.Diff([]float64{10e-6, 10e-6}, s.Single, about); diff != "" {
			t.Errorf("cold %t: single launches\n%s", cold, diff)
		}
		if len(s.Check.Findings) > 0 || s.Check.Outputs != 8 {
			t.Errorf("cold %t: %+v", cold, s.Check)
		}
		f.expectAllFreed(t)
	}
}

// Scratch that every launch finds zero is cleared before each, and that is a part of its time.
func TestTimeClearsScratch(t *testing.T) {
	timed := func(zero bool, fails string) (*fake, []device.Series, error) {
		f := newFakeWith("k")
		f.kernels["k"].milliseconds, f.clears = 0.01, 0.003
		if fails != "" {
			f.fails[fails] = illegalAddress
		}
		job := newJob("k")
		job.Args = append(job.Args, device.Arg{Scratch: 6, Zero: zero})
		got, err := f.open(t).Time([]device.Job{job}, device.Plan{Samples: 2})
		return f, got, err
	}
	for zero, want := range map[bool]float64{false: 10e-6, true: 13e-6} {
		f, got, err := timed(zero, "")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]float64{want, want}, got[0].Seconds, about); diff != "" {
			t.Errorf("cleared %t:\n%s", zero, diff)
		}
		if diff := cmp.Diff([]float64{want, want}, got[0].Single, about); diff != "" {
			t.Errorf("cleared %t: single launches\n%s", zero, diff)
		}
		f.expectAllFreed(t)
	}
	if _, _, err := timed(true, "cuMemsetD8Async"); err == nil || !strings.Contains(err.Error(), "clear scratch: ") {
		t.Errorf("a failure: %v", err)
	}
}

// The restores of one job say nothing about those of another, nor about a flush alone.
func TestSubtractRestore(t *testing.T) {
	restoring := device.Job{Entry: "k", Args: []device.Arg{{InOut: []byte{1}}}}
	one := &timedJob{job: restoring, with: []float64{50, 50}, alone: []float64{40, 40}}
	other := &timedJob{job: restoring, with: []float64{50, 50}, alone: []float64{10, 10}}
	plain := &timedJob{with: []float64{50, 50}, alone: []float64{30, 30}}
	for want, timed := range map[float64]*timedJob{10: one, 40: other, 20: plain} {
		if err := timed.subtract([]*timedJob{one, other, plain}); err != nil || !slices.Equal(timed.series.Seconds, []float64{want, want}) {
			t.Errorf("%v, %v; want %g", timed.series.Seconds, err, want)
		}
	}
	short := &timedJob{job: restoring, with: []float64{1e-6}, alone: []float64{2e-6}}
	if err := short.subtract([]*timedJob{short}); err == nil || err.Error() != "k with the restore of its in-out buffers takes no longer than "+
		"the restore alone (2.00 us): it is too short to be timed; choose a larger shape" {
		t.Errorf("%v", err)
	}
}

// The GPU rests before each sample of each job.
func TestRest(t *testing.T) {
	const rest, samples = 2 * time.Millisecond, 3
	f := newFakeWith("k")
	f.kernels["k"].milliseconds = 0.01
	m, begun := f.open(t), time.Now()
	if _, err := m.Time([]device.Job{newJob("k"), newJob("k")}, device.Plan{Samples: samples, Rest: rest}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 2*samples*rest {
		t.Errorf("it took %s; want at least %s", took, 2*samples*rest)
	}
	f.expectAllFreed(t)
}

// A job runs for the time of the load before each of its samples.
func TestLoad(t *testing.T) {
	const samples = 3
	replays := func(load time.Duration) int {
		f := newFakeWith("k")
		f.kernels["k"].milliseconds = 0.01
		m := f.open(t)
		if _, err := m.Time([]device.Job{newJob("k"), newJob("k")}, device.Plan{Samples: samples, Load: load}); err != nil {
			t.Fatal(err)
		}
		f.expectAllFreed(t)
		return f.count("50 x k")
	}
	// A replay takes 0.5 ms.
	if more := replays(2*time.Millisecond) - replays(0); more != 2*samples*4 {
		t.Errorf("%d more replays; want %d", more, 2*samples*4)
	}
}

// A graph has the launches of 5 ms, at most the plan's limit and at least one. The graph of empty
// nodes has the plan's limit.
func TestLaunchesOfAGraph(t *testing.T) {
	for _, c := range []struct {
		milliseconds, flush float64
		most, want          int
	}{
		{0.01, 0, 0, 50},
		{0.01, 0, 50, 50},
		{0.01, 0, 1, 1},
		{0.01, 0, 10, 10},
		{0.0045, 0, 1000, 1000},
		{0.03, 0, 1000, 166},
		{0.3, 0, 0, 16},
		{0.3, 0, 10, 10},
		{3, 0, 0, 1},
		{30, 0, 1000, 1},
		{0.01, 0.035, 0, 50},
		{0.01, 0.035, 1000, 111},
		{0.2, 0.035, 0, 21},
	} {
		f := newFakeWith("k")
		f.kernels["k"].milliseconds, f.flushes = c.milliseconds, c.flush
		got, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 1, Launches: c.most, ColdL2: c.flush > 0})
		if err != nil {
			t.Fatal(err)
		}
		steps := "k"
		if c.flush > 0 {
			steps = "flush k"
		}
		if graph := fmt.Sprintf("%d x %s", c.want, steps); got[0].LaunchesPerSample != c.want || f.count(graph) == 0 {
			t.Errorf("%g ms and a flush of %g ms, at most %d: %d launches per sample, %d replays of %q; want %d launches",
				c.milliseconds, c.flush, c.most, got[0].LaunchesPerSample, f.count(graph), graph, c.want)
		}
		if graph := fmt.Sprintf("%d x %s", gocmp.Or(c.most, 50), emptyEntry); f.count(graph) != 2*emptyReplays {
			t.Errorf("at most %d: %d replays of %q; want %d", c.most, f.count(graph), graph, 2*emptyReplays)
		}
		f.expectAllFreed(t)
	}
}

// The launches of a graph rotate through the copies of the buffers, and each copy has the job's
// inputs, because they have no rotation unit.
func TestCopies(t *testing.T) {
	f := newFakeWith("k")
	var first []uint64
	launch := f.cuLaunchKernelEx
	f.cuLaunchKernelEx = func(config *launchConfig, k handle, params *unsafe.Pointer, extra uintptr) result {
		if f.captures && f.functions[k].name == "k" {
			first = append(first, **(**uint64)(unsafe.Pointer(params)))
		}
		return launch(config, k, params, extra)
	}
	job := newJob("k")
	synchronize := f.cuEventSynchronize
	f.cuEventSynchronize = func(event handle) result {
		for _, address := range first {
			if !bytes.Equal(f.at(address)[:len(job.Args[0].Input)], job.Args[0].Input) {
				t.Errorf("the copy at %#x does not have the input", address)
			}
		}
		first = first[max(0, len(first)-50):]
		return synchronize(event)
	}
	if _, err := f.open(t).Time([]device.Job{job}, device.Plan{Samples: 1}); err != nil {
		t.Fatal(err)
	}
	if len(first) != 50 || first[0] == first[1] || first[0] == first[2] || first[0] == first[3] || first[0] != first[4] || first[3] != first[7] {
		t.Errorf("the launches of the graph begin with %#x", first)
	}
	f.expectAllFreed(t)
}

// With a warm L2 the copies use at most a quarter of it; with a cold L2 there are at least two.
func TestNumberOfCopies(t *testing.T) {
	m := newFakeWith("k").open(t)
	for _, c := range []struct {
		megabytes, warm, cold int
	}{{1, 4, 4}, {3, 4, 4}, {4, 3, 3}, {7, 2, 2}, {8, 1, 2}, {1000, 1, 2}} {
		job := device.Job{Args: []device.Arg{device.In(make([]byte, c.megabytes<<19)), device.Out(c.megabytes << 19), device.Int32(1)}}
		if warm, cold := m.copies(job, false), m.copies(job, true); warm != c.warm || cold != c.cold {
			t.Errorf("%d MB of buffers, %d MB of L2: %d copies warm and %d cold; want %d and %d", c.megabytes, m.facts.L2Bytes>>20, warm, cold, c.warm, c.cold)
		}
	}
	m.facts.L2Bytes = 0
	if n := m.copies(newJob("k"), false); n != 1 {
		t.Errorf("%d copies for an L2 of unknown size", n)
	}
}

// A kernel that speeds up while the clocks rise is sampled after they have settled. A kernel that
// never settles is sampled as it is and marked unstable.
func TestWarmUp(t *testing.T) {
	check := func(name string, seconds func(now float64) float64, stable bool, least, most float64) {
		t.Helper()
		f := newFakeWith("k")
		k := f.kernels["k"]
		replay := f.cuGraphLaunch
		f.cuGraphLaunch = func(exec, stream handle) result {
			k.milliseconds = 1e3 * seconds(f.now/1e3)
			return replay(exec, stream)
		}
		got, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 1})
		if err != nil {
			t.Fatal(err)
		}
		if s := got[0]; s.Unstable == stable || s.WarmSeconds < least || s.WarmSeconds > most {
			t.Errorf("%s: unstable %t after %.3f s; want %t within %g to %g s", name, s.Unstable, s.WarmSeconds, !stable, least, most)
		}
	}
	check("steady", func(float64) float64 { return 20e-6 }, true, 2*windowSeconds, 2.2*windowSeconds)
	check("clocks that rise for 0.3 s", func(now float64) float64 { return 20e-6 * (1 + max(0, 0.3-now)) }, true, 0.3, 0.45)
	check("clocks that never stop falling", func(now float64) float64 { return 20e-6 * (1 + now) }, false, maxWarmSeconds, maxWarmSeconds+3*windowSeconds)
	check("a kernel of 0.4 s", func(float64) float64 { return 0.4 }, true, 6*0.4-1e-3, 6*0.4+1e-3)
}

// A sample is the replay and the rotation of its inputs, and for short replays a lead-in.
func TestLongReplaysHaveNoLeadIn(t *testing.T) {
	for milliseconds, want := range map[float64]int{1: 3, 30: 2} {
		f := newFakeWith("k")
		f.kernels["k"].milliseconds = milliseconds
		m := f.open(t)
		replays := func(samples int) int {
			f.calls = nil
			if _, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: samples}); err != nil {
				t.Fatal(err)
			}
			return f.count("cuGraphLaunch")
		}
		if got := replays(2) - replays(1); got != want {
			t.Errorf("a sample of %g ms is %d replays; want %d", milliseconds, got, want)
		}
	}
}

// The flush writes more than L2 can hold.
func TestFlushIsLargerThanL2(t *testing.T) {
	f := newFakeWith("k")
	m := f.open(t)
	flush, err := m.newFlush(device.Plan{ColdL2: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := int64(len(f.at(uint64(flush.address)))); got != 120<<20 || got != flush.bytes {
		t.Errorf("%d bytes of memory for a flush of %d; L2 has %d", got, flush.bytes, m.facts.L2Bytes)
	}
	flush.free()
	f.expectAllFreed(t)
}

func TestColdTimeFails(t *testing.T) {
	check := func(name, want string, spoil func(f *fake, m *Machine)) {
		t.Helper()
		f := newFakeWith("k")
		f.kernels["k"].milliseconds, f.flushes = 0.01, 0.04
		m := f.open(t)
		spoil(f, m)
		_, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: 1, ColdL2: true})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v; want %q", name, err, want)
		}
		f.expectAllFreed(t)
	}
	check("no size of L2", "does not report the size of L2", func(_ *fake, m *Machine) { m.facts.L2Bytes = 0 })
	check("no memory", "flush L2: allocate 125829120 bytes of GPU memory", func(f *fake, _ *Machine) { f.fails["cuMemAlloc_v2"] = 2 })
	check("a flush that fails", "flush L2: CUDA_ERROR_ILLEGAL_ADDRESS", func(f *fake, _ *Machine) { f.fails["cuMemsetD32Async"] = illegalAddress })
	check("a kernel much shorter than the flush", "too short to be timed cold; use --l2 warm", func(f *fake, _ *Machine) {
		f.kernels["k"].milliseconds, f.overhead = 0, 0.002
	})
}

func TestEmptyNode(t *testing.T) {
	f := newFakeWith("k")
	f.kernels["k"].milliseconds, f.kernels[emptyEntry].milliseconds = 0.01, 0.0007
	got, err := f.open(t).Time([]device.Job{newJob("k"), newJob("k")}, device.Plan{Samples: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range got {
		if s.EmptyNode == nil || math.Abs(*s.EmptyNode-0.7e-6) > 1e-9 || math.Abs(s.Seconds[0]-10e-6) > 1e-8 {
			t.Errorf("series %d: an empty node of %v s, a launch of %v s; want 0.7 us, not subtracted", i, s.EmptyNode, s.Seconds)
		}
	}
	if n := f.count("50 x " + emptyEntry); n != 2*emptyReplays {
		t.Errorf("%d replays of empty nodes; want %d, once per timing, each after its lead-in", n, 2*emptyReplays)
	}
	f.expectAllFreed(t)
}

// The check of the timed launches needs the time of an empty node.
func TestNoEmptyNode(t *testing.T) {
	f := newFakeWith("k")
	f.kernels[emptyEntry].milliseconds = 0
	got, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 1})
	if got != nil || err == nil || err.Error() != "replay a graph of attune_empty: the events measured 0 ms" {
		t.Errorf("%+v, %v", got, err)
	}
	f.expectAllFreed(t)
}

// Direct launches on a stream other than the default one would make all later replays slower.
func TestDirectLaunchesUseDefaultStream(t *testing.T) {
	f := newFakeWith("k")
	direct, replays := map[handle]bool{}, map[handle]bool{}
	launch, replay := f.cuLaunchKernelEx, f.cuGraphLaunch
	f.cuLaunchKernelEx = func(config *launchConfig, function handle, params *unsafe.Pointer, extra uintptr) result {
		if !f.captures {
			direct[config.stream] = true
		}
		return launch(config, function, params, extra)
	}
	f.cuGraphLaunch = func(exec, stream handle) result {
		replays[stream] = true
		return replay(exec, stream)
	}
	if _, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: 3}); err != nil {
		t.Fatal(err)
	}
	if len(direct) != 1 || !direct[0] || len(replays) != 1 || replays[0] {
		t.Errorf("direct launches on %v, replays on %v; want direct ones on 0, replays on another", direct, replays)
	}
}

func TestSinglesAreLimited(t *testing.T) {
	f := newFakeWith("k")
	got, err := f.open(t).Time([]device.Job{newJob("k")}, device.Plan{Samples: maxSingles + 5})
	if err != nil || len(got[0].Single) != maxSingles || len(got[0].Seconds) != maxSingles+5 {
		t.Errorf("%+v, %v", got, err)
	}
}

// An estimate of a slow kernel costs one launch that is not timed and the timed ones: no graph is
// replayed.
func TestEstimate(t *testing.T) {
	f := newFakeWith("slow", "fast")
	launches := map[string]int{}
	for name, milliseconds := range map[string]float64{"slow": 300, "fast": 0.02} {
		f.kernels[name].milliseconds = milliseconds
		run := f.kernels[name].run
		f.kernels[name].run = func(args *unsafe.Pointer) { launches[name]++; run(args) }
	}
	got, err := f.open(t).Time([]device.Job{newJob("slow"), newJob("fast")}, device.Plan{Samples: 1, Estimate: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []device.Series{{Single: []float64{0.3}, Copies: 1}, {Single: []float64{20e-6}, Copies: 1}}
	if diff := cmp.Diff(want, got, about); diff != "" {
		t.Error(diff)
	}
	if replays := f.replays(); len(replays) > 0 || launches["slow"] != 2 {
		t.Errorf("%d launches, replays %q", launches["slow"], replays)
	}
	f.expectAllFreed(t)
	for _, function := range []string{"cuModuleLoadDataEx", "cuMemAlloc_v2", "cuLaunchKernelEx", "cuEventElapsedTime"} {
		f := newFakeWith("k")
		m := f.open(t)
		f.fails[function] = illegalAddress
		if _, err := m.Time([]device.Job{newJob("k")}, device.Plan{Samples: 1, Estimate: true}); err == nil {
			t.Errorf("%s: no error", function)
		}
		f.expectAllFreed(t)
	}
}
