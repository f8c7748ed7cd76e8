package lab

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"attune/internal/finding"
	"attune/internal/problem"
	"attune/internal/spec"
	"attune/kernels"
)

// withoutAllowances is the shipped kernel with a kernel.toml that allows no finding of the audit.
type withoutAllowances struct{ fs.FS }

func (f withoutAllowances) Open(name string) (fs.File, error) {
	if name != spec.File {
		return f.FS.Open(name)
	}
	text, err := fs.ReadFile(f.FS, name)
	if err != nil {
		return nil, err
	}
	var kept []string
	for _, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "allow = ") {
			kept = append(kept, line)
		}
	}
	return fstest.MapFS{name: {Data: []byte(strings.Join(kept, "\n"))}}.Open(name)
}

const counterReason = "module-memory: writes the variable _ZN15register_scores12tile_counterE of the module at ladder/register_scores/kernel.cuh:"

// A finding of the audit that kernel.toml does not allow fails the correctness gate before any
// launch, also without a device, and no other command launches the kernel either.
func TestAuditFailsTheGate(t *testing.T) {
	t.Parallel()
	c, cacheDir := compiler(t)
	s := newSetupOf(t, withoutAllowances{kernels.SDPA()}, c, cacheDir)
	s.declare("stage5", behaviour{})
	s.declare("stage4", behaviour{})
	check := func() {
		t.Helper()
		s.runs = nil
		got := s.runOne(s.request("stage5"))
		expectOutcome(t, got, incorrect)
		expectReason(t, got.Reasons.Correctness, counterReason)
		expectReason(t, got.Reasons.Correctness, `write allow = ["module-memory"] in kernel.toml if the kernel needs it`)
		if len(got.Audit) != 1 || got.Audit[0].Count != 2 || len(got.Correctness) != 0 {
			t.Errorf("the record is %+v", got)
		}
	}
	check()
	s.Device = NoDevice("no GPU")
	check()
	s.Device = GPU(s.gpu.Facts, s.gpu.Open)

	r := s.request("stage4")
	stage5 := s.variant("stage5")
	r.Against = &stage5
	s.runs = nil
	got := s.runOne(r)
	expectOutcome(t, got, "not-measured pass/pass/not-measured/not-measured")
	expectReason(t, got.Reasons.Performance, "the parent stage5 itself does not pass the correctness gate: "+counterReason)

	var wrong *WrongError
	if _, err := s.NewVariantRunner(t.Context(), stage5, ""); !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Wrong, counterReason) {
		t.Errorf("a runner: %v", err)
	}
	bench, err := s.Bench(t.Context(), BenchRequest{Variants: r.Variants, Shapes: r.Shapes[:1], Rounds: 2, MaxWork: 1e9})
	if err != nil || bench.Rows[0].Wrong != "" {
		t.Errorf("stage4: %+v, %v", bench, err)
	}
	bench, err = s.Bench(t.Context(), BenchRequest{Variants: s.request("stage5").Variants, Shapes: r.Shapes[:1], Rounds: 2, MaxWork: 1e9})
	if err != nil || !strings.HasPrefix(bench.Rows[0].Wrong, counterReason) || bench.Rows[0].P50US != nil {
		t.Errorf("stage5: %+v, %v", bench, err)
	}
}

// The record has the findings that kernel.toml allows.
func TestAllowedFindingsAreRecorded(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.declare("stage5", behaviour{})
	s.declare("stage3b", behaviour{Seconds: 20e-6})
	got := s.runOne(s.request("stage5"))
	expectOutcome(t, got, merged)
	if len(got.Audit) != 1 || got.Audit[0].Kind != "module-memory" {
		t.Errorf("the audit is %+v", got.Audit)
	}
}

func TestArgumentNames(t *testing.T) {
	t.Parallel()
	parameters := make([]problem.Parameter, 11)
	for i := range parameters {
		parameters[i].Name = string(rune('a' + i))
	}
	f := finding.Of(finding.OutputRead, finding.Variable{Name: "k_param_10"}, "k_param_1 and k_param_10")
	nameArguments(&f, "k", parameters)
	if got := f.Detail; got != "b and k" || f.Variable != (finding.Variable{Name: "k", Space: finding.Argument, Index: 10}) {
		t.Error(got)
	}
}
