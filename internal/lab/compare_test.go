package lab

import (
	"errors"
	"math"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/tensor"
)

func (s *setup) comparison(a, b string) CompareRequest {
	s.t.Helper()
	r := s.request("stage2")
	return CompareRequest{
		A: Candidate{Variant: s.variant(a)}, B: Candidate{Variant: s.variant(b)}, Shapes: r.Shapes,
		Rounds: 40, MaxRounds: 160, MaxWork: oracle.MaxWork,
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	check := func(what string, a, b behaviour, want measure.Verdict, ratio float64, rounds int) {
		t.Helper()
		s := newSetup(t)
		s.declare("stage1", a)
		s.declare("stage2", b)
		c, err := s.Compare(t.Context(), s.comparison("stage1", "stage2"))
		if err != nil {
			t.Fatal(err)
		}
		first := c.Shapes[0]
		if c.Verdict != want || math.Abs(c.Overall().Ratio/ratio-1) > 0.005 || first.Rounds != rounds || len(first.Samples.Control) != rounds || len(c.Shapes) != 2 {
			t.Errorf("%s: %s, ratio %.4f after %d rounds on %d shapes; want %s, %.4f after %d on 2",
				what, c.Verdict, c.Overall().Ratio, first.Rounds, len(c.Shapes), want, ratio, rounds)
		}
		if c.A.Variant != "stage1" || c.B.Variant != "stage2" || c.Same || c.Facts.Name != "a fake" || s.gpu.Opened != 1 || s.gpu.Closed != 1 {
			t.Errorf("%s: %+v of %d devices, %d closed", what, c, s.gpu.Opened, s.gpu.Closed)
		}
	}
	quiet := func(seconds float64) behaviour { return behaviour{Seconds: seconds, Noise: 0.001} }
	check("twice as fast", quiet(20e-6), quiet(10e-6), measure.Faster, 2, 40)
	check("3 % slower", quiet(10e-6), quiet(10.3e-6), measure.Slower, 1/1.03, 40)
	check("half a per cent is the same", quiet(10e-6), quiet(10.05e-6), measure.Same, 1/1.005, 40)
	check("on the floor, after any number of rounds", quiet(10.1e-6), quiet(10e-6), measure.Ambiguous, 1.01, 160)
}

func TestCompareWithItself(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage2", behaviour{Noise: 0.001})
	c, err := s.Compare(t.Context(), s.comparison("stage2", "stage2"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Verdict != measure.Same || !c.Same {
		t.Errorf("stage2 with itself: %s, same code %t", c.Verdict, c.Same)
	}
}

func TestCompareOnSampledRows(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	r := s.comparison("stage2", "stage2")
	r.MaxWork, r.SampleSeed = 10_000, new(uint64)
	rows := oracle.Sample(r.Shapes[1].(tensor.Shape), 0, r.MaxWork)
	s.declare("stage2", behaviour{Noise: 0.001})
	c, err := s.Compare(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Shapes[1].Checked; len(rows) == 33 || *got != (oracle.Coverage{Rows: len(rows), Of: 33}) {
		t.Errorf("checked %s of a sample of %d", got, len(rows))
	}
	s.declare("stage2", behaviour{Output: func(out []byte) { out[len(out)-1] = 0x7C }}) // of the last row
	if _, err := s.Compare(t.Context(), r); err == nil || !strings.Contains(err.Error(), "dim 63") {
		t.Errorf("the last element is infinite: %v", err)
	}
}

func TestCompareRefuses(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage1", behaviour{})
	s.declare("stage2", behaviour{Output: func(out []byte) { clear(out) }})
	_, err := s.Compare(t.Context(), s.comparison("stage1", "stage2"))
	var wrong *WrongError
	if !errors.As(err, &wrong) || wrong.Variant != "stage2" || !strings.Contains(wrong.Wrong, "max_err") {
		t.Errorf("a wrong variant: %v", err)
	}
	r := s.comparison("stage1", "stage2+HEAD_DIM=128")
	var request RequestError
	if _, err := s.Compare(t.Context(), r); !errors.As(err, &request) {
		t.Errorf("a variant for another head dim: %v", err)
	}
	s.declare("stage2", behaviour{Launch: func(int) error { return &device.Fault{Code: "ILLEGAL_ADDRESS"} }})
	if _, err := s.Compare(t.Context(), s.comparison("stage1", "stage2")); !errors.As(err, &wrong) || !strings.Contains(wrong.Wrong, "ILLEGAL_ADDRESS") {
		t.Errorf("a fault: %v", err)
	}
	s.declare("stage2", behaviour{Timing: device.ErrNoClock})
	if _, err := s.Compare(t.Context(), s.comparison("stage1", "stage2")); !errors.Is(err, device.ErrNoClock) {
		t.Errorf("a device with no clock: %v", err)
	}
}
