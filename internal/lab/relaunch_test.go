package lab

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/device/devicetest"
	"attune/internal/oracle"
	"attune/internal/run"
	"attune/internal/tensor"
)

// Only the smallest shape is relaunched, and the seed of its inputs differs from run to run.
func TestRelaunchIsRecorded(t *testing.T) {
	t.Parallel()
	relaunched := func(r *run.Run) *run.Relaunch {
		t.Helper()
		var found *run.Relaunch
		for i, c := range r.Correctness {
			if c.Relaunch == nil {
				continue
			}
			if found != nil || c.Shape != "1x1x33x64:causal" || c.Seed != 0 || c.Inputs != "normal" {
				t.Errorf("row %d of %s seed %d was relaunched", i, c.Shape, c.Seed)
			}
			found = c.Relaunch
		}
		if found == nil || !found.Pass || !found.Repeats || found.MaxErr == 0 || found.Seed >= 1<<53 ||
			math.Abs(found.ScaleFactor-1) < 0.2 || found.ScaleFactor < 0.59 || found.ScaleFactor > 1.45 {
			t.Fatalf("the relaunch is %+v", found)
		}
		return found
	}
	s := newSetup(t)
	s.declare("stage0", behaviour{})
	first := relaunched(s.runOne(s.request("stage0")))
	s.runs = nil
	if second := relaunched(s.runOne(s.request("stage0"))); first.Seed == second.Seed {
		t.Errorf("two runs have the seed %d", first.Seed)
	}
}

// A kernel that depends on earlier launches is incorrect, in every command that times it.
func TestRelaunchFailsTheGate(t *testing.T) {
	t.Parallel()
	check := func(number int, reason string) {
		t.Helper()
		s := newSetup(t)
		s.declare("stage0", behaviour{Relaunch: func(n int, out []byte) {
			if n == number {
				slices.Reverse(out)
			}
		}})
		got := s.runOne(s.request("stage0"))
		expectOutcome(t, got, incorrect)
		expectReason(t, got.Reasons.Correctness, reason)
		if i := slices.IndexFunc(got.Correctness, func(c run.Correctness) bool { return c.Relaunch != nil }); got.Correctness[i].Pass {
			t.Errorf("the row passes: %+v", got.Correctness[i])
		}
		r := s.request("stage0")
		bench, err := s.Bench(t.Context(), BenchRequest{Variants: r.Variants, Shapes: r.Shapes[:1], Rounds: 2, MaxWork: oracle.MaxWork})
		if err != nil || !strings.Contains(bench.Rows[0].Wrong, "relaunched with ") {
			t.Errorf("bench: %+v, %v", bench, err)
		}
		same := Candidate{Variant: r.Variants[0]}
		_, err = s.Compare(t.Context(), CompareRequest{A: same, B: same, Shapes: r.Shapes[:1], Rounds: 2, MaxRounds: 2, MaxWork: oracle.MaxWork})
		if err == nil || !strings.Contains(err.Error(), "relaunched with ") {
			t.Errorf("compare: %v", err)
		}
	}
	check(0, "1x1x33x64:causal seed 0: relaunched with the inputs of seed ")
	check(1, "1x1x33x64:causal seed 0: not-repeatable: relaunched with the first inputs, its output differs")
}

// ignorant is a device that ignores relaunches.
type ignorant struct{ *devicetest.Device }

func (d ignorant) Run(ctx context.Context, job device.Job) (*device.Outcome, error) {
	job.Relaunches = nil
	return d.Device.Run(ctx, job)
}

func TestIgnoredRelaunch(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage0", behaviour{})
	s.Device = GPU(s.gpu.Facts, func(context.Context) (device.Device, error) { return ignorant{&devicetest.Device{GPU: s.gpu}}, nil })
	if err := s.run(s.request("stage0")); err == nil || !strings.Contains(err.Error(), "BUG: the device has ignored the relaunches") {
		t.Errorf("got %v", err)
	}
}

// The results of a kernel whose relaunch failed are not reused, and those of a correct one are, with
// the limits of each variant.
func TestReuseAfterRelaunch(t *testing.T) {
	t.Parallel()
	s := newBroken(t)
	s.declare("good", behaviour{Relaunch: func(_ int, out []byte) { clear(out) }})
	s.declare("good+DEFECT=11", behaviour{Relaunch: func(_ int, out []byte) { clear(out) }})
	if err := s.run(s.request("good", "good+DEFECT=11")); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.runs {
		if expectOutcome(t, r, incorrect); r.MeasuredAs != nil {
			t.Errorf("%s reuses the results of %s", r.Variant, r.MeasuredAs.Variant)
		}
	}
	s.runs = nil
	s.gpu.Behaviours["good"], s.gpu.Behaviours["good+DEFECT=11"] = behaviour{}, behaviour{}
	if err := s.run(s.request("good", "good+DEFECT=11")); err != nil {
		t.Fatal(err)
	}
	if r := s.runs[1]; r.MeasuredAs == nil || r.Verdict == "incorrect" {
		t.Errorf("the second is %s, measured as %+v", r.Verdict, r.MeasuredAs)
	}
}

// The rows of a sample differ from command to command: a kernel that computes the rows of a known
// sample alone is wrong.
func TestSampledRowsAreSecret(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	shape := shapes(t, "1x1x400x64")[0].(tensor.Shape)
	const maxWork = 10_000
	known := oracle.Sample(shape, 0, maxWork)
	s.declare("stage0", behaviour{Output: func(out []byte) {
		row := 2 * shape.HeadDim
		for i := range shape.SeqQ {
			if !slices.Contains(known, i) {
				clear(out[i*row:][:row])
			}
		}
	}})
	r := BenchRequest{Variants: s.request("stage0").Variants, Shapes: shapes(t, "1x1x400x64"), Rounds: 2, MaxWork: maxWork}
	seeds := map[uint64]bool{}
	for range 3 {
		b, err := s.Bench(t.Context(), r)
		if err != nil || !strings.Contains(b.Rows[0].Wrong, "max_err") {
			t.Fatalf("got %+v, %v", b, err)
		}
		seeds[*b.SampleSeed] = true
	}
	if len(seeds) != 3 {
		t.Errorf("three benches have the seeds %v", seeds)
	}
	r.SampleSeed = new(uint64)
	if b, err := s.Bench(t.Context(), r); err != nil || *b.SampleSeed != 0 || b.Rows[0].Wrong != "" {
		t.Errorf("with a known seed: %+v, %v", b, err)
	}
}
