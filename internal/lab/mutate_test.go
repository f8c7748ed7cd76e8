package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/finding"
	"attune/internal/mutate"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/kernels"
)

// mutantDevice is a device that fails mutants by the kind of their change. Other kernels are
// correct.
type mutantDevice struct {
	device.Device
	all    map[string]mutate.Mutant               // by PTX
	fates  map[string]func(*device.Outcome) error // by kind
	opened int
	closed int
	runs   map[string]int // launches of mutants, by kind
}

func (d *mutantDevice) open(context.Context) (device.Device, error) {
	d.opened++
	return d, nil
}

func (d *mutantDevice) Close() error {
	d.closed++
	return nil
}

func (d *mutantDevice) Facts() device.Facts { return device.Facts{Kind: "sim"} }

func (d *mutantDevice) Run(ctx context.Context, job device.Job) (*device.Outcome, error) {
	out, err := attend(ctx, job)
	if err != nil {
		return nil, err
	}
	outcome := &device.Outcome{Outputs: [][]byte{out}}
	mutant, ok := d.all[string(job.Image)]
	if !ok {
		return outcome, nil
	}
	d.runs[mutant.Kind]++
	if fate := d.fates[mutant.Kind]; fate != nil {
		return outcome, fate(outcome)
	}
	return outcome, nil
}

// newMutation is a lab with the shipped kernel on a mutantDevice, and a request to mutate it.
func newMutation(t *testing.T, fates map[string]func(*device.Outcome) error) (*setup, *mutantDevice, MutationRequest) {
	t.Helper()
	s := newSetupOf(t, kernels.SDPA(), nil, t.TempDir())
	c := &mutantDevice{all: map[string]mutate.Mutant{}, fates: fates, runs: map[string]int{}}
	s.Device = Simulator(c.Facts(), c.open, run.Simulation{})
	r := s.request()
	r.Shapes, r.Seeds = shapes(t, "1x1x2x64"), []uint64{0}
	image := s.built("stage1", "sm_90a")
	all, err := mutate.All(image.PTX, "sdpa")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		c.all[string(m.Apply(image.PTX))] = m
	}
	r.Variants = []spec.Variant{s.variant("stage1")}
	return s, c, MutationRequest{Request: r}
}

// Each kind of change has its own fate, and the report counts them.
func TestMutate(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("tries every mutant of a stage")
	}
	zero := func(o *device.Outcome) error {
		clear(o.Outputs[0])
		return nil
	}
	// The most frequent kinds die: the ranges of every mutant that passes are analysed, 40 ms each.
	s, c, m := newMutation(t, map[string]func(*device.Outcome) error{
		"left out":           func(*device.Outcome) error { return &device.Fault{Code: "simulator", Operation: "run", Text: "trap"} },
		"guard turned round": func(*device.Outcome) error { return &device.Timeout{Limit: time.Second} },
		"other comparison": func(o *device.Outcome) error {
			o.Findings = []finding.Finding{finding.New("race", "race at sdpa.cu:1")}
			return nil
		},
		"other constant": zero, "other operation": zero, "other value": zero,
		"address off": func(*device.Outcome) error { return &device.Unsupported{Why: "no program"} },
	})
	// The compiler makes the same code of swapped operands as of the kernel, and refuses other
	// layouts.
	var assembled int
	kernel := s.built("stage1", "sm_90a").PTX
	m.Assemble = func(_ context.Context, ptx []byte, arch string) (string, error) {
		assembled++
		what := c.all[string(ptx)].Kind
		switch {
		case arch != "sm_90a":
			t.Errorf("assembled for %s", arch)
		case what == "other layout":
			return "", &toolchain.CompileError{}
		case bytes.Equal(ptx, kernel) || what == "operands swapped":
			return "the kernel's", nil
		}
		return fmt.Sprint("code ", assembled), nil // the simplified mutant never has the same code either
	}
	report, err := s.Mutate(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, mutant := range c.all {
		kinds[mutant.Kind]++
	}
	survive := kinds["other layout"] + kinds["waits for less"] + kinds["other lanes"] + kinds["other barrier"] + kinds["other count"]
	killed := []string{"left out", "guard turned round", "other comparison", "other constant", "other operation", "other value"}
	want := &MutationReport{
		Variant: "stage1", Arch: "sm_90a", Report: mutate.Report{
			Possible: len(c.all), Mutants: len(c.all) - kinds["address off"],
			Survived: survive, Equivalent: kinds["operands swapped"], Survivors: report.Survivors, ByKind: map[string]mutate.Tally{},
		},
	}
	for _, kind := range killed {
		want.Killed += kinds[kind]
	}
	want.KillRate = float64(want.Killed) / float64(want.Killed+want.Survived)
	for kind, count := range kinds {
		switch {
		case slices.Contains(killed, kind):
			want.ByKind[kind] = mutate.Tally{Mutants: count, Killed: count}
		case kind == "operands swapped":
			want.ByKind[kind] = mutate.Tally{} // all are equivalent
		case kind != "address off":
			want.ByKind[kind] = mutate.Tally{Mutants: count}
		}
	}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, kind := range append(killed, "operands swapped", "other layout", "other lanes", "address off") {
		if kinds[kind] == 0 {
			t.Errorf("there is no mutant of kind %q, so this test does not cover it", kind)
		}
	}
	if len(report.Survivors) != survive || slices.ContainsFunc(report.Survivors, func(m mutate.Mutant) bool { return want.ByKind[m.Kind].Killed > 0 }) {
		t.Errorf("the survivors are %v", report.Survivors)
	}
	if assembled != 2+2*survive-kinds["other layout"]+kinds["operands swapped"] {
		t.Errorf("%d were assembled; want the kernel twice, and each mutant that passed once or twice", assembled)
	}
	// The first problem kills a mutant. One that passes runs all: normal, outliers, peaked, rising
	// and low.
	if c.runs["left out"] != kinds["left out"] || c.runs["operands swapped"] != 5*kinds["operands swapped"] {
		t.Errorf("launches: %v", c.runs)
	}
	if c.opened != 1+len(c.all) || c.closed != c.opened {
		t.Errorf("%d devices opened, %d closed", c.opened, c.closed)
	}
	own := []Progress{{Subject: "stage1", Step: "building"}, {Subject: "stage1", Step: "correctness of the unchanged kernel"}}
	if diff := cmp.Diff(own, s.steps[:2]); diff != "" {
		t.Errorf("the first steps:\n%s", diff)
	}
	last := s.steps[len(s.steps)-1]
	if len(s.steps) != 2+len(c.all) || last.Done != len(c.all)-1 || last.Total != len(c.all) || !strings.HasPrefix(last.Step, "mutant at line ") {
		t.Errorf("%d steps, the last %+v", len(s.steps), last)
	}
}

// Without a compiler no mutant is equivalent, and without a valid mutant there is no kill rate.
func TestMutateWithoutCompiler(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	s, _, m := newMutation(t, nil)
	m.Count = 5
	report, err := s.Mutate(t.Context(), m)
	if err != nil || report.Mutants != 5 || report.Survived != 5 || report.Equivalent != 0 || report.KillRate != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	s, c, m := newMutation(t, map[string]func(*device.Outcome) error{
		"invalid": func(*device.Outcome) error { return &device.Unsupported{Why: "the simulator cannot read the PTX"} },
	})
	for text, mutant := range c.all {
		mutant.Kind = "invalid"
		c.all[text] = mutant
	}
	m.Count = 5
	report, err = s.Mutate(t.Context(), m)
	if err != nil || report.Mutants != 0 || report.Killed+report.Survived != 0 || report.KillRate != 0 || len(report.ByKind) != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}

// The same seed picks the same mutants, and another seed picks others.
func TestMutateIsRepeatable(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	pick := func(seed uint64) []mutate.Mutant {
		t.Helper()
		s, _, m := newMutation(t, nil)
		m.Count, m.Seed = 20, seed
		report, err := s.Mutate(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		return report.Survivors
	}
	first := pick(1)
	if diff := cmp.Diff(first, pick(1)); diff != "" || len(first) != 20 {
		t.Errorf("the same seed:\n%s", diff)
	}
	if cmp.Equal(first, pick(2)) {
		t.Error("another seed picks the same mutants")
	}
}

func TestMutateFails(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	lost := errors.New("the memory is full")
	var wrong *WrongError
	var request RequestError
	var unsupported *device.Unsupported
	var timeout *device.Timeout
	check := func(breakIt func(*setup, *MutationRequest), as any, want string) {
		t.Helper()
		s, _, m := newMutation(t, nil)
		breakIt(s, &m)
		report, err := s.Mutate(t.Context(), m)
		if err == nil || !strings.Contains(err.Error(), want) || as != nil && !errors.As(err, as) {
			t.Errorf("got %+v, %v, want %s", report, err, want)
		}
	}
	// every gives the unchanged kernel a fate.
	every := func(fate func(*device.Outcome) error) func(*setup, *MutationRequest) {
		return func(s *setup, _ *MutationRequest) {
			ptx := s.built("stage1", "sm_90a").PTX
			c := &mutantDevice{
				all: map[string]mutate.Mutant{string(ptx): {Kind: "it"}}, runs: map[string]int{},
				fates: map[string]func(*device.Outcome) error{"it": fate},
			}
			s.Device.open = c.open
		}
	}
	check(every(func(o *device.Outcome) error {
		o.Findings = []finding.Finding{finding.New("race", "race at sdpa.cu:9")}
		return nil
	}), &wrong, "stage1 itself does not pass the correctness gate: 1x1x2x64 seed 0: race at sdpa.cu:9")
	check(every(func(*device.Outcome) error { return &device.Timeout{Limit: time.Second} }), &timeout, "stage1 was not checked: 1x1x2x64 seed 0: no result within 1s")
	check(every(func(*device.Outcome) error { return &device.Unsupported{Why: "wgmma is not simulated"} }), &unsupported, "stage1: wgmma is not simulated")
	check(every(func(*device.Outcome) error { return lost }), nil, "stage1: the memory is full")
	check(func(s *setup, _ *MutationRequest) {
		s.Device.open = func(context.Context) (device.Device, error) { return nil, lost }
	}, nil, "the memory is full")
	check(func(_ *setup, m *MutationRequest) {
		m.Assemble = func(context.Context, []byte, string) (string, error) { return "", lost }
	}, nil, "stage1: the memory is full")
	check(func(_ *setup, m *MutationRequest) { m.Arch = "sm_70" }, &request, `not for "sm_70"`)
	check(func(_ *setup, m *MutationRequest) { m.Shapes = shapes(t, "1x1x8x128") }, &request, "head dim 128")
	check(func(s *setup, m *MutationRequest) { m.Variants[0] = s.variant("stage1+TILE_N=32") }, nil, "no CUDA compiler")
}

func TestMutateCancelled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, c, m := newMutation(t, nil)
	s.Progress = func(e Progress) {
		if e.Done == 3 {
			cancel()
		}
	}
	report, err := s.Mutate(ctx, m)
	if !errors.Is(err, context.Canceled) || report == nil || report.Mutants != 3 {
		t.Errorf("got %+v, %v; want the three mutants before the interruption", report, err)
	}
	if c.opened != c.closed || c.opened > 6 {
		t.Errorf("%d devices opened, %d closed", c.opened, c.closed)
	}
}

// Real mutants run on the simulator, and the real compiler decides whether they are equivalent.
func TestMutantsOnTheSimulator(t *testing.T) {
	t.Parallel()
	s := newSimulated(t, simdevice.Options{Checks: true})
	c, _ := compiler(t)
	image := s.built("padded", "sm_90a")
	build := problem.Build{Variant: s.variant("padded"), Image: image}
	assemble := func(ctx context.Context, ptx []byte) (string, error) {
		return toolchain.Assemble(ctx, c, ptx, "sm_90a")
	}
	original, err := mutate.NewOriginal(t.Context(), assemble, image.PTX, "sdpa", parameterRanges(s.problem(), build))
	if err != nil {
		t.Fatal(err)
	}
	r := s.request()
	r.Shapes, r.Seeds = shapes(t, "1x1x2x64"), []uint64{0}
	p, err := r.plan("")
	if err != nil {
		t.Fatal(err)
	}
	trial := &mutationTrial{lab: s.Lab, plan: p, build: build, refs: s.references(everyRow, nil), original: original}
	check := func(before, after string, want mutate.Report) {
		t.Helper()
		line := 1
		for text := range bytes.Lines(image.PTX) {
			if strings.Contains(string(text), before) {
				break
			}
			line++
		}
		changed := strings.Replace(strings.Split(string(image.PTX), "\n")[line-1], before, after, 1)
		got := MutationReport{Report: mutate.NewReport(0)}
		if err := trial.try(t.Context(), mutate.Mutant{Line: line, Kind: "it", After: changed}, &got); err != nil {
			t.Fatal(err)
		}
		got.ByKind, got.Survivors, got.KillRate = nil, nil, 0
		if diff := cmp.Diff(want, got.Report); diff != "" {
			t.Errorf("%s -> %s (-want +got):\n%s", before, after, diff)
		}
	}
	check(", 77;", ", 78;", mutate.Report{Mutants: 1, Equivalent: 1})
	check("st.global.u16", "//", mutate.Report{Mutants: 1, Killed: 1})
	check("ex2.approx.ftz.f32", "ex3.approx.ftz.f32", mutate.Report{}) // not a program
}
