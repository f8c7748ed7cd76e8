package lab

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/finding"
	"attune/internal/oracle"
	"attune/internal/spec"
	"attune/internal/tensor"
)

// The output equals the reference, also on inputs prepared by a recipe.
func TestAnswerer(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage2", behaviour{})
	a, err := s.NewVariantRunner(t.Context(), s.variant("stage2"), "")
	if err != nil {
		t.Fatal(err)
	}
	in := tensor.Recipe{SmoothK: true, Hadamard: true}.Apply(draw(t, "1x2x33x64", 1, tensor.Options{Distribution: tensor.Biased}))
	got, err := a.Output(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := oracle.Quantized(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	found, err := oracle.Compare(got, &oracle.Reference{Shape: in.Shape, Out: want}, oracle.Tolerance{})
	if err != nil || found.MaxErr > 1e-3 || found.MaxErr == 0 {
		t.Errorf("errors %+v, %v; want those of rounding to FP16", found, err)
	}
	if err := a.Close(); err != nil || s.gpu.Opened != 1 || s.gpu.Closed != 1 {
		t.Errorf("%v; %d devices opened, %d closed", err, s.gpu.Opened, s.gpu.Closed)
	}
}

// A kernel with a finding or a failure is refused: the errors of its output would mean nothing.
func TestAnswererOfAWrongKernel(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	check := func(b behaviour, wrong bool, text string) {
		t.Helper()
		s.declare("stage2", b)
		a, err := s.NewVariantRunner(t.Context(), s.variant("stage2"), "")
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		_, err = a.Output(t.Context(), draw(t, "1x1x8x64", 3, tensor.Options{Distribution: tensor.Positive}), nil)
		var known *WrongError
		if err == nil || errors.As(err, &known) != wrong || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want %q in it and a WrongError is %t", err, text, wrong)
		}
	}
	launch := func(err error) behaviour { return behaviour{Launch: func(int) error { return err }} }
	const before = "stage2 itself does not pass the correctness gate: 1x1x8x64 seed 3 positive: "
	check(behaviour{Findings: []finding.Finding{finding.New(finding.Unwritten, "argument 3")}}, true, before+"unwritten: argument 3")
	check(launch(&device.Fault{Code: "CUDA_ERROR_ILLEGAL_ADDRESS"}), true, before)
	check(launch(&device.Timeout{Limit: time.Second}), false, "stage2 was not checked: 1x1x8x64 seed 3 positive: no result within 1s")
	check(launch(errors.New("no more paper")), false, "stage2: no more paper")
}

func TestAnswererIsRefused(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	var refused RequestError
	if _, err := s.NewVariantRunner(t.Context(), s.variant("stage2"), "sm_70"); !errors.As(err, &refused) {
		t.Errorf("for sm_70: %v", err)
	}
	if s.gpu.Opened != 0 {
		t.Errorf("%d devices were opened", s.gpu.Opened)
	}
}

// The simulator reports a race even if the output is right.
func TestAnswererOnTheSimulator(t *testing.T) {
	t.Parallel()
	s := newSimulated(t, simdevice.Options{Checks: true, Limit: time.Minute})
	in := draw(t, "1x1x4x64", 0, tensor.Options{})
	for variant, right := range map[string]bool{"good": true, "racy": false} {
		a, err := s.NewVariantRunner(t.Context(), s.variant(variant), "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Output(t.Context(), in, nil)
		var wrong *WrongError
		if errors.As(err, &wrong) == right || (err == nil) != right {
			t.Errorf("%s: %v", variant, err)
		}
		a.Close()
	}
}

func TestArithmetics(t *testing.T) {
	t.Parallel()
	stage := func(name string, share float64, archs ...string) *spec.Stage {
		return &spec.Stage{Name: name, ErrorShare: share, Archs: archs}
	}
	kernel := &spec.Kernel{Stages: []*spec.Stage{
		stage("a", 0.05, "sm_80", "sm_90a"), stage("b", 0.05, "sm_80", "sm_90a"), stage("c", 1, "sm_89", "sm_90a"), stage("d", 0.05, "sm_90a"),
	}}
	check := func(arch, deviceArch string, want ...string) {
		t.Helper()
		var got []string
		for _, v := range Arithmetics(kernel, arch, deviceArch) {
			got = append(got, v.Stage().Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("for %q on %q: %v, want %v", arch, deviceArch, got, want)
		}
	}
	check("", "", "d", "c")
	check("", "sm_89", "b", "c")
	check("", "sm_80", "b")
	check("sm_80", "sm_90", "b")
	check("sm_70", "")
}

// A variant with another head dim than its parent can be run alone.
func TestCheckWithoutParent(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	check := func(variant, shape, arch, want string) {
		t.Helper()
		err := Request{Variants: []spec.Variant{s.variant(variant)}, Shapes: shapes(t, shape), Arch: arch}.Check()
		if got := fmt.Sprint(err); !strings.Contains(got, want) {
			t.Errorf("%s on %s: %s, want %s", variant, shape, got, want)
		}
	}
	check("stage2", "1x1x8x64", "", "<nil>")
	check("stage2", "1x1x8x128", "", "shape 1x1x8x128 has head dim 128, and stage2 is built for 64")
	check("stage2", "1x1x8x64", "sm_70", `not for "sm_70"`)
	check("stage6+HEAD_DIM=128+TILE_M=16", "1x1x8x128", "", "<nil>")
}
