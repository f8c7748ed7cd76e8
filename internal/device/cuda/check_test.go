//go:build linux

package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	"attune/internal/finding"
)

const secret = 0x0123456789ABCDEF

// rotatingJob is a job of increment whose input can be rotated.
func rotatingJob(entry string) device.Job {
	job := newJob(entry)
	input := make([]byte, 60)
	for i := range input {
		input[i] = byte(3 * i)
	}
	job.Args = []device.Arg{device.Rotating(input, 4), device.Out(len(input)), device.Int32(int32(len(input)))}
	return job
}

// fakeLaunch is what a launch of increment sees.
type fakeLaunch struct {
	fake   *fake
	kernel *fakeKernel
	in     []byte // the input to its end, or to the end of its guard
	out    []byte
	n      int
	inputs uint64 // address of in
	output uint64 // address of out
}

// compute is the honest work of a launch of 0.01 ms.
func (l *fakeLaunch) compute() {
	l.kernel.milliseconds = 0.01
	for i := range l.n {
		l.out[i] = l.in[i] + 1
	}
}

// skip ends a launch that does no work.
func (l *fakeLaunch) skip() { l.kernel.milliseconds = 0.001 }

// newFakeKernel is a fake with a kernel k. load makes the kernel's function for one module.
func newFakeKernel(load func() func(l *fakeLaunch)) *fake {
	f := newFake()
	k := &fakeKernel{milliseconds: 0.01, sizes: []int{8, 8, 4}}
	k.load = func() func(args *unsafe.Pointer) {
		run := load()
		return func(args *unsafe.Pointer) {
			in, out := argument[uint64](args, 0), argument[uint64](args, 1)
			run(&fakeLaunch{f, k, f.at(in), f.at(out), int(argument[int32](args, 2)), in, out})
		}
	}
	f.kernels["k"] = k
	// A rotation takes time, which the check must subtract.
	f.kernels[rotateEntry].milliseconds, f.flushes = 0.003, 0.035
	return f
}

func honest() func(*fakeLaunch) { return (*fakeLaunch).compute }

// checkTimed times jobs and returns the series. All memory must be freed.
func (f *fake) checkTimed(t *testing.T, plan device.Plan, jobs ...device.Job) []device.Series {
	t.Helper()
	plan.Secret = secret
	plan.Samples = max(plan.Samples, 2)
	m := f.open(t)
	m.facts.L2Bytes = 1 << 20 // a small flush
	series, err := m.Time(jobs, plan)
	if err != nil {
		t.Fatal(err)
	}
	f.expectAllFreed(t)
	return series
}

// kinds are the kinds of the findings, in order and each once.
func kinds(findings []finding.Finding) []finding.Kind {
	var all []finding.Kind
	for _, f := range findings {
		all = append(all, f.Kind)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// incremented is the output of an honest launch after a rotation.
func incremented(job device.Job, r device.Rotation) []byte {
	out := bytes.Clone(job.Rotate(r).Args[0].Input)
	for i := range out {
		out[i]++
	}
	return out
}

func TestHonestKernel(t *testing.T) {
	job := rotatingJob("k")
	for _, plan := range []device.Plan{{}, {ColdL2: true}, {Fresh: true}, {Fresh: true, ColdL2: true}} {
		name := fmt.Sprintf("fresh %t, cold L2 %t", plan.Fresh, plan.ColdL2)
		got := newFakeKernel(honest).checkTimed(t, plan, job)[0]
		outputs, launches, seconds := 4, 1, 0.0
		if plan.Fresh {
			outputs, launches, seconds = 8, 2, 10e-6
		}
		check := got.Check
		if len(check.Findings) > 0 || check.Outputs != outputs || math.Abs(check.FreshSeconds-seconds) > 1e-9 {
			t.Errorf("%s: %+v; want %d outputs and %g s", name, check, outputs, seconds)
		}
		if diff := cmp.Diff([]float64{10e-6, 10e-6}, got.Seconds, about); diff != "" {
			t.Errorf("%s: the rotation is part of a sample: %s", name, diff)
		}
		if len(check.Launches) != launches {
			t.Fatalf("%s: %d launches; want %d", name, len(check.Launches), launches)
		}
		seen := map[device.Rotation]bool{}
		for _, l := range check.Launches {
			if diff := cmp.Diff([][]byte{incremented(job, l.Rotation)}, l.Outputs); diff != "" || l.Rotation.Secret != secret || l.Rotation.Count == 0 {
				t.Errorf("%s: a timed launch after %+v: %s", name, l.Rotation, diff)
			}
			seen[l.Rotation] = true
		}
		if len(seen) != launches {
			t.Errorf("%s: the launches are after the same rotation, %v", name, seen)
		}
	}
}

// Every launch of a replay sees inputs that no earlier replay had, and the rotations that the check
// repeats are those of the last launches, whatever the number of launches and copies.
func TestLastRotations(t *testing.T) {
	for _, launches := range []int{1, 2, 3, 4, 5, 6, 7, 8, 50} {
		got := newFakeKernel(honest).checkTimed(t, device.Plan{Fresh: true, Launches: launches}, rotatingJob("k"))[0]
		if used := min(launches, 4); len(got.Check.Findings) > 0 || got.Check.Outputs != 2*used || got.LaunchesPerSample != launches {
			t.Errorf("%d launches: %+v; want no findings in %d outputs", launches, got.Check, 2*used)
		}
	}
}

func TestChecksOfSeveralJobs(t *testing.T) {
	f := newFakeKernel(honest)
	f.kernels["other"] = increment(f)
	large := rotatingJob("other") // one copy
	large.Args[0] = device.Rotating(make([]byte, 128<<10), 16)
	fixed := newJob("other")
	for i, s := range f.checkTimed(t, device.Plan{Fresh: true, Samples: 3}, rotatingJob("k"), fixed, large, rotatingJob("k")) {
		if want := 2 * s.Copies; len(s.Check.Findings) > 0 || s.Check.Outputs != want || math.Abs(s.Check.FreshSeconds-10e-6) > 1e-9 {
			t.Errorf("job %d: %+v; want no findings in %d outputs", i, s.Check, want)
		}
	}
}

// The samples see other inputs than the launches before them, and poisoned outputs.
func TestSamplesHaveNewInputs(t *testing.T) {
	job := wideJob()
	inputs, poisoned := map[string]int{}, 0
	f := newFakeKernel(func() func(*fakeLaunch) {
		return func(l *fakeLaunch) {
			inputs[string(l.in[:l.n])]++
			if out := l.out[:l.n]; bytes.Equal(out, bytes.Repeat(out[:1], l.n)) && (out[0] == 0xFF || out[0] == 0x7F) {
				poisoned++
			}
			l.compute()
		}
	})
	f.checkTimed(t, device.Plan{Samples: 20}, job)
	// 4 copies and their first launches, 4 of each sample, and the 4 untimed launches.
	if want := 4 + 20*4 + 4; poisoned != want {
		t.Errorf("%d launches with a poisoned output; want %d", poisoned, want)
	}
	if n := len(inputs); n < 75 {
		t.Errorf("%d different inputs in 80 rotations", n)
	}
}

// The rotation is between the lead-in and the timed replay: no launch has seen the inputs of a
// sample before. With a cold L2 the flush alone is not rotated.
func TestRotationFollowsLeadIn(t *testing.T) {
	for _, cold := range []bool{false, true} {
		f := newFakeKernel(honest)
		f.checkTimed(t, device.Plan{Samples: 3, ColdL2: cold}, rotatingJob("k"))
		replay := map[bool]string{false: "50 x k", true: "50 x flush k"}[cold]
		var replays []string
		for _, call := range f.calls {
			if strings.Contains(call, " x ") {
				replays = append(replays, call)
			}
		}
		rotations := 0
		for i, call := range replays {
			if strings.HasSuffix(call, " x "+advanceEntry+" "+rotateEntry) {
				rotations++
				if replays[i-1] != replay || replays[i+1] != replay {
					t.Errorf("cold L2 %t: a rotation between %q and %q; want it between two of %q", cold, replays[i-1], replays[i+1], replay)
				}
			}
		}
		if rotations != 3 {
			t.Errorf("cold L2 %t: %d rotations; want one per sample", cold, rotations)
		}
	}
}

// after is a kernel that is honest until its module has been launched n times.
func after(n int, cheat func(l *fakeLaunch)) func() func(*fakeLaunch) {
	return func() func(*fakeLaunch) {
		launches := 0
		return func(l *fakeLaunch) {
			if launches++; launches <= n {
				l.compute()
				return
			}
			cheat(l)
		}
	}
}

// rememberBy is a kernel that keeps its outputs in the memory of its module, by a key.
func rememberBy(key func(l *fakeLaunch) string) func() func(*fakeLaunch) {
	return func() func(*fakeLaunch) {
		known := map[string][]byte{}
		return func(l *fakeLaunch) {
			if out := known[key(l)]; out != nil {
				copy(l.out, out)
				l.skip()
				return
			}
			l.compute()
			known[key(l)] = bytes.Clone(l.out[:l.n])
		}
	}
}

func TestCheatsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	for _, c := range []struct {
		name          string
		load          func() func(*fakeLaunch)
		usual, always []finding.Kind // findings without and with launches on new inputs
	}{
		{
			"does nothing after its tenth launch", after(10, (*fakeLaunch).skip),
			[]finding.Kind{finding.TimedOutputDiffers},
			[]finding.Kind{finding.TimedOutputDiffers},
		},
		{
			"computes a part after its tenth launch", after(10, func(l *fakeLaunch) { l.n--; l.compute() }),
			[]finding.Kind{finding.TimedOutputDiffers},
			[]finding.Kind{finding.TimedOutputDiffers},
		},
		{
			"does nothing if the output is already there", func() func(*fakeLaunch) {
				return func(l *fakeLaunch) {
					if l.out[0] != 0xFF && l.out[0] != 0x7F {
						l.skip()
						return
					}
					l.compute()
				}
			},
			nil,
			[]finding.Kind{finding.RemembersResults},
		},
		{
			"remembers outputs by the address of the input", rememberBy(func(l *fakeLaunch) string { return fmt.Sprint(l.inputs) }),
			[]finding.Kind{finding.TimedOutputDiffers},
			[]finding.Kind{finding.TimedOutputDiffers},
		},
		{
			"remembers outputs by the contents of the input", rememberBy(func(l *fakeLaunch) string { return string(l.in[:l.n]) }),
			nil,
			[]finding.Kind{finding.RemembersResults},
		},
		{
			"writes past the end of the output", after(100, func(l *fakeLaunch) { l.compute(); l.out[l.n] = 1 }),
			[]finding.Kind{finding.WroteOutside},
			[]finding.Kind{finding.WroteOutside},
		},
		{
			"writes before the start of the input", after(100, func(l *fakeLaunch) { l.compute(); l.fake.at(l.inputs - 4096)[0] = 1 }),
			[]finding.Kind{finding.WroteOutside},
			[]finding.Kind{finding.WroteOutside},
		},
		{
			// A later launch of the replay has the changed input too.
			"changes its input", after(100, func(l *fakeLaunch) { l.compute(); l.in[l.n-1]++ }),
			[]finding.Kind{finding.InputChanged, finding.TimedOutputDiffers},
			[]finding.Kind{finding.InputChanged, finding.TimedOutputDiffers},
		},
	} {
		for _, cold := range []bool{false, true} {
			for fresh, want := range map[bool][]finding.Kind{false: c.usual, true: c.always} {
				job := rotatingJob("k")
				if strings.Contains(c.name, "contents") { // few shifts come twice
					job = wideJob()
				}
				got := newFakeKernel(c.load).checkTimed(t, device.Plan{Fresh: fresh, ColdL2: cold, Launches: 20}, job)[0]
				if diff := cmp.Diff(want, kinds(got.Check.Findings)); diff != "" {
					t.Errorf("a kernel that %s, fresh %t, cold L2 %t: %v\n%s", c.name, fresh, cold, got.Check.Findings, diff)
				}
			}
		}
	}
}

// wideJob is a job of increment with 1024 different units of input.
func wideJob() device.Job {
	const units = 1024
	job := rotatingJob("k")
	var input []byte
	for i := range uint32(units) {
		input = binary.LittleEndian.AppendUint32(input, i)
	}
	job.Args = []device.Arg{device.Rotating(input, 4), device.Out(4 * units), device.Int32(4 * units)}
	return job
}

// freshTimes sets the time of the kernel in the replays in which every launch has new inputs, and in
// those in which they are written again.
func (f *fake) freshTimes(milliseconds func(replay int) float64, rewritten float64) {
	k := f.kernels["k"]
	usual, n, replay := k.milliseconds, 0, f.cuGraphLaunch
	f.cuGraphLaunch = func(exec, stream handle) result {
		has := func(name string) bool {
			return slices.ContainsFunc(f.graphs[exec], func(node fakeNode) bool { return node.name == name })
		}
		switch k.milliseconds = usual; {
		case f.graphs[exec][len(f.graphs[exec])-1].name != "k":
		case has(advanceEntry):
			k.milliseconds = milliseconds(n)
			n++
		case has(rotateEntry):
			k.milliseconds = rewritten
		}
		return replay(exec, stream)
	}
}

// A launch on new inputs may take 15 % and 0.5 us longer. A disturbance of the GPU that passes is
// not the kernel's.
func TestRemembersResults(t *testing.T) {
	const usual, slow = 0.1, 0.15
	perTrial := 2 * freshReplays // with lead-ins
	for _, c := range []struct {
		name    string
		fresh   func(replay int) float64
		seconds float64
		want    string
	}{
		{"as fast", func(int) float64 { return usual }, 100e-6, ""},
		{"slow as on inputs that are written again", func(int) float64 { return slow }, 150e-6, ""},
		{"slower than on inputs that are written again", func(int) float64 { return 1.2 * slow }, 180e-6, "a launch takes 100.00 us on the inputs of the launch before and 180.00 us on new ones"},
		{"faster", func(int) float64 { return 0.9 * usual }, 90e-6, ""},
		{"slightly slower", func(int) float64 { return 0.115 }, 115e-6, ""},
		{"slower", func(int) float64 { return 0.116 }, 116e-6, "a launch takes 100.00 us on the inputs of the launch before and 116.00 us on new ones"},
		{"one slow replay", func(replay int) float64 { return map[int]float64{1: 0.5}[replay] + usual }, 100e-6, ""},
		{"two disturbed trials", func(replay int) float64 {
			if replay < 2*perTrial {
				return 0.3
			}
			return usual
		}, 100e-6, ""},
		{"three disturbed trials", func(replay int) float64 { return 0.3 - 0.01*float64(replay/perTrial) }, 270e-6, "270.00 us on new ones"},
	} {
		f := newFakeWith("k")
		f.kernels["k"].milliseconds, f.kernels[rotateEntry].milliseconds = usual, 0.02
		rewritten := usual
		if strings.Contains(c.name, "written again") {
			rewritten = slow
		}
		f.freshTimes(c.fresh, rewritten)
		check := f.checkTimed(t, device.Plan{Fresh: true}, rotatingJob("k"))[0].Check
		if math.Abs(check.FreshSeconds-c.seconds) > 1e-8 {
			t.Errorf("%s: a launch on new inputs takes %g s; want %g", c.name, check.FreshSeconds, c.seconds)
		}
		var texts []string
		for _, f := range check.Findings {
			texts = append(texts, f.String())
		}
		all := strings.Join(texts, "\n")
		if c.want == "" && all != "" || c.want != "" && (!strings.HasPrefix(all, string(finding.RemembersResults)) || !strings.Contains(all, c.want) || len(texts) > 1) {
			t.Errorf("%s: %q; want %q", c.name, all, c.want)
		}
	}
}

// The module of the timed launches and the module that they are compared with are not the one that
// Load keeps, and both may use as much shared memory as the job.
func TestTimedModulesAreFresh(t *testing.T) {
	loads := 0
	f := newFakeKernel(func() func(*fakeLaunch) { loads++; return (*fakeLaunch).compute })
	m := f.open(t)
	job := rotatingJob("k")
	job.DynamicSharedBytes = 100 << 10
	if _, err := device.Run(m, job); err != nil || loads != 1 {
		t.Fatalf("%v after %d loads", err, loads)
	}
	for range 2 {
		loads = 0
		if _, err := m.Time([]device.Job{job}, device.Plan{Samples: 1, Fresh: true}); err != nil || loads != 2 {
			t.Errorf("%v after %d loads of a module; want 2", err, loads)
		}
		f.expectAllFreed(t)
	}
}

// A driver that cannot load the machine's own kernels cannot time.
func TestNoHelpers(t *testing.T) {
	for _, entry := range []string{advanceEntry, rotateEntry, compareEntry} {
		f := newFakeKernel(honest)
		delete(f.kernels, entry)
		_, err := f.open(t).Time([]device.Job{rotatingJob("k")}, device.Plan{Samples: 1})
		want := "timed launches cannot be checked: find the function " + entry + " in the image"
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
		f.expectAllFreed(t)
	}
}

// ignored are the calls whose failure is no failure of the timing.
var ignored = map[string]bool{"cuMemFree_v2": true, "cuModuleUnload": true, "cuGraphDestroy": true, "cuGraphExecDestroy": true}

// Whichever call of the driver fails, the timing fails, and all memory, graphs and modules are
// freed.
func TestEveryCallFails(t *testing.T) {
	if testing.Short() {
		t.Skip("fails every call of a timing")
	}
	for _, plan := range []device.Plan{{Samples: 1, Fresh: true, Launches: 2}, {Samples: 1, Fresh: true, Launches: 1, ColdL2: true}} {
		job := rotatingJob("k")
		job.DynamicSharedBytes = 64 << 10
		timing := func(failAt int) (*fake, error) {
			f := newFakeWith("k")
			f.kernels["k"].milliseconds, f.flushes = 2, 0.5
			m := f.open(t)
			m.facts.L2Bytes = 1 << 10 // of a small flush; two copies, or one with a warm L2
			f.made, f.failAt = 0, failAt
			_, err := m.Time([]device.Job{job}, plan)
			return f, err
		}
		f, err := timing(0)
		if err != nil {
			t.Fatal(err)
		}
		total := f.made
		for n := 1; n <= total; n++ {
			f, err := timing(n)
			failed := f.failed
			if (err == nil) != ignored[failed] {
				t.Errorf("call %d of %d, %s, fails: %v", n, total, failed, err)
			}
			f.expectAllFreed(t)
			if t.Failed() {
				t.Fatalf("after call %d of %d, %s", n, total, failed)
			}
		}
	}
}

// A timed launch is compared with the reference even if a replay has fewer launches than copies.
func TestChosenLaunch(t *testing.T) {
	if testing.Short() {
		t.Skip("times 60 kernels")
	}
	for _, launches := range []int{1, 2, 3} {
		chosen := map[uint32]bool{}
		for number := range uint64(20) {
			f := newFakeKernel(honest)
			series, err := f.open(t).Time([]device.Job{rotatingJob("k")}, device.Plan{Samples: 1, Launches: launches, Secret: number})
			if err != nil {
				t.Fatal(err)
			}
			if n := len(series[0].Check.Launches); n != 1 {
				t.Fatalf("%d launches, secret %d: %d outputs for the reference; want 1", launches, number, n)
			}
			chosen[series[0].Check.Launches[0].Rotation.Step] = true
		}
		if len(chosen) != launches {
			t.Errorf("%d launches: the chosen ones are %v", launches, chosen)
		}
	}
}

// A job without buffers has nothing to compare.
func TestCheckWithoutBuffers(t *testing.T) {
	f := newFake()
	f.kernels["k"] = &fakeKernel{milliseconds: 0.01}
	job := newJob("k")
	job.Args = []device.Arg{device.Int32(5)}
	if got := f.checkTimed(t, device.Plan{Fresh: true}, job)[0]; len(got.Check.Findings) > 0 {
		t.Errorf("%+v", got.Check)
	}
}

// In-out buffers are restored before every launch, so that the last launch on each copy can be
// compared.
func TestCheckOfInOut(t *testing.T) {
	for _, launches := range []int{1, 4, 5, 50} {
		for _, fresh := range []bool{false, true} {
			f := newFakeKernel(func() func(*fakeLaunch) {
				return func(l *fakeLaunch) {
					for i := range l.n {
						l.out[i] += l.in[i]
					}
				}
			})
			f.kernels[rotateEntry].milliseconds = 0.002
			job := rotatingJob("k")
			job.Args[1] = device.Arg{InOut: bytes.Repeat([]byte{5}, job.Args[1].Output)}
			check := f.checkTimed(t, device.Plan{Fresh: fresh, Launches: launches}, job)[0].Check
			want := min(launches, 4)
			if fresh {
				want += min(launches, 4)
			}
			if len(check.Findings) > 0 || check.Outputs != want {
				t.Errorf("%d launches, fresh %t: %+v; want no findings in %d outputs", launches, fresh, check, want)
			}
		}
	}
}
