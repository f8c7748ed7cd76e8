package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/peer"
	"attune/internal/run"
	"attune/internal/spec"
)

// results are those of random problems in short.
func results(b *run.Bench) string {
	var all []string
	for _, r := range b.Random.Results {
		text := fmt.Sprintf("%s %d/%d", r.Name, r.Held, r.Problems)
		if r.Mean != nil {
			text += fmt.Sprintf(" mean %.3f lowest %.3f", *r.Mean, *r.LowestTenth)
		}
		all = append(all, fmt.Sprintf("%s failed %d uncompared %d worst %d", text, r.Failed, r.Uncompared, len(r.Worst)))
	}
	return strings.Join(all, "; ")
}

// random is a bench of two random problems. stage1 takes 16 us, stage2 10 us, and peers 20 us.
func (s *setup) random(p *fakePeers, kinds string) BenchRequest {
	r := s.bench(p, kinds, "1x2x40x64", "1x1x33x64")
	r.Random = &run.Random{Count: 2, Seed: 7, Against: spec.AgainstPeers, Required: 1.5}
	return r
}

func (s *setup) expectResults(b *run.Bench, want string) {
	s.t.Helper()
	if got := results(b); got != want {
		s.t.Errorf("results: %s\nwant: %s", got, want)
	}
}

func TestBenchRandom(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	p.seconds["torch-flash"] = 25e-6
	b := s.benched(s.random(p, "torch-flash,torch-cudnn"))
	s.expectResults(b, "stage1 0/2 mean 1.250 lowest 1.250 failed 0 uncompared 0 worst 2; stage2 2/2 mean 2.000 lowest 2.000 failed 0 uncompared 0 worst 2")
	worst := b.Random.Results[0].Worst[0]
	if worst.Shape != "1x2x40x64" || worst.Against != "torch-cudnn" || math.Abs(*worst.AgainstUS-20) > 1e-9 || math.Abs(*worst.P50US-16) > 1e-9 || worst.MaxErr == nil {
		t.Errorf("the worst problem: %+v", worst)
	}
	if b.Random.Seed != 7 || b.Random.Count != 2 || b.Random.Required != 1.5 {
		t.Errorf("the record: %+v", b.Random)
	}
	s.recordedRandom(b)
	shares := map[float64]bool{}
	for _, step := range s.steps {
		shares[step.Share] = true
	}
	if !shares[0.5] || len(shares) != 2 {
		t.Errorf("the shares of finished work are %v", shares)
	}
}

// recordedRandom checks that the ledger has the results, and a report of them.
func (s *setup) recordedRandom(b *run.Bench) {
	s.t.Helper()
	text, err := s.Ledger.ReadBench(s.t.Context(), b.ID, "bench.json")
	if err != nil {
		s.t.Fatal(err)
	}
	read, err := run.DecodeBench(text)
	if err != nil {
		s.t.Fatal(err)
	}
	s.expectResults(read, results(b))
	want, _ := json.Marshal(b.Random)
	if got, _ := json.Marshal(read.Random); string(got) != string(want) {
		s.t.Errorf("the record has %s\nwant %s", got, want)
	}
	report, err := s.Ledger.ReadBench(s.t.Context(), b.ID, "report.md")
	if err != nil || !strings.Contains(string(report), "Worst problems of") {
		s.t.Errorf("%v, the report is\n%s", err, report)
	}
	checked, err := s.Ledger.Verify(s.t.Context())
	if err != nil || len(checked.Problems) > 0 {
		s.t.Errorf("the ledger: %+v, %v", checked, err)
	}
}

// A wrong kernel fails on the problem. Without a peer there is nothing to compare with.
func TestBenchRandomFails(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	r := s.random(p, "torch-flash")
	s.declare("stage1", behaviour{Output: func(out []byte) { clear(out) }})
	b := s.benched(r)
	s.expectResults(b, "stage1 0/2 failed 2 uncompared 0 worst 2; stage2 2/2 mean 2.000 lowest 2.000 failed 0 uncompared 0 worst 2")
	if worst := b.Random.Results[0].Worst[0]; worst.Wrong == "" || worst.Ratio != nil || worst.P50US != nil {
		t.Errorf("a wrong problem: %+v", worst)
	}

	s, p = newSetup(t), newPeers(t)
	p.prepare["torch-flash"] = &peer.Error{Why: "it refuses"}
	b = s.benched(s.random(p, "torch-flash"))
	s.expectResults(b, "stage1 0/0 failed 0 uncompared 2 worst 0; stage2 0/0 failed 0 uncompared 2 worst 0")
	s.recordedWithoutResult(b)
}

// recordedWithoutResult checks that a record without a compared problem can be read.
func (s *setup) recordedWithoutResult(b *run.Bench) {
	s.t.Helper()
	if text, err := s.Ledger.ReadBench(s.t.Context(), b.ID, "report.md"); err != nil || !strings.Contains(string(text), "no random problem could be compared") {
		s.t.Errorf("%v, the report is\n%s", err, text)
	}
}

// Times are compared with a copy of the bytes where kernel.toml says so.
func TestBenchRandomAgainstCopy(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	r := s.random(p, "none")
	r.Random.Against, r.Random.OverheadUS, r.Random.Required = spec.AgainstCopy, 4, 0.4
	_, err := s.Bench(t.Context(), r)
	var refused RequestError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), `no copy rate was measured on a fake; write against = "peers"`) {
		t.Errorf("on another device: %v", err)
	}
	s.gpu.Facts.Name = "NVIDIA H200"
	s.Device.facts = s.gpu.Facts
	b := s.benched(r)
	bytes := 2 * 64 * 40 * 5.0 // of E4M3 inputs and an FP16 output
	us := bytes/4.22e6 + 4
	for i, ours := range []float64{16, 10} {
		problems := b.Random.Results[i].Worst
		for _, one := range problems {
			if one.Shape == "1x2x40x64" && (one.Against != "copy" || math.Abs(*one.AgainstUS-us) > 1e-9 || math.Abs(*one.Ratio-us/ours) > 1e-9) {
				t.Errorf("%s: %s %v us, a ratio of %v; want %v and %v", one.Shape, one.Against, *one.AgainstUS, *one.Ratio, us, us/ours)
			}
		}
	}
	if b.Random.Results[0].Held != 0 || b.Random.Results[1].Held != 2 {
		t.Error(results(b))
	}
}

// An interrupted bench has the results of the finished problems.
func TestBenchRandomInterrupted(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	ctx, cancel := context.WithCancel(t.Context())
	p.fail["torch-flash"] = func(samples int) error {
		if samples < 26 {
			return nil
		}
		cancel()
		return ctx.Err()
	}
	b, err := s.Bench(ctx, s.random(p, "torch-flash"))
	if !errors.Is(err, context.Canceled) || b == nil || b.Ended != "interrupted" {
		t.Fatalf("%+v, %v", b, err)
	}
	s.expectResults(b, "stage1 0/1 mean 1.250 lowest 1.250 failed 0 uncompared 0 worst 1; stage2 1/1 mean 2.000 lowest 2.000 failed 0 uncompared 0 worst 1")
	s.recordedRandom(b)
}

// A problem that cannot be measured is skipped with the reason, unless it is the first.
func TestBenchRandomSkips(t *testing.T) {
	t.Parallel()
	s, p := newSetup(t), newPeers(t)
	r := s.random(p, "torch-flash")
	r.Shapes = append(r.Shapes, shapes(t, "1x1x16x64")...)
	broken := errors.New("the timer is broken")
	timings := 0
	s.declare("stage1", behaviour{Seconds: 16e-6, TimingOf: func() error {
		if timings++; timings == 7 { // 5 on the first problem
			return broken
		}
		return nil
	}})
	b := s.benched(r)
	s.expectResults(b, "stage1 0/2 mean 1.250 lowest 1.250 failed 0 uncompared 0 worst 2; stage2 2/2 mean 2.000 lowest 2.000 failed 0 uncompared 0 worst 2")
	if len(b.Skipped) != 1 || b.Skipped[0].Name != "the problem" || b.Skipped[0].Shape != "1x1x33x64" || !strings.Contains(b.Skipped[0].Why, broken.Error()) {
		t.Errorf("skipped: %+v", b.Skipped)
	}
	s = newSetup(t)
	r = s.random(newPeers(t), "none")
	s.declare("stage1", behaviour{TimingOf: func() error { return broken }})
	if _, err := s.Bench(t.Context(), r); err == nil || device.Classify(err) != device.OtherFailure || !strings.Contains(err.Error(), broken.Error()) {
		t.Errorf("the first problem fails: %v", err)
	}
}
