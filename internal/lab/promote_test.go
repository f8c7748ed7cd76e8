package lab

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"attune/internal/gate"
	"attune/internal/run"
	"attune/internal/toolchain"
	"attune/kernels"
)

// folder returns a copy of the shipped kernel in which a test can change files.
func folder(t *testing.T) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	err := fs.WalkDir(kernels.SDPA(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(kernels.SDPA(), name)
		files[name] = &fstest.MapFile{Data: text}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// promotableRun returns a run of stage2 on the fake GPU that has the required speedup, with times
// on all benchmark shapes.
func promotableRun(t *testing.T, s *setup) *run.Run {
	t.Helper()
	s.setSpeedup(1.5, 0.01)
	r := s.request("stage2")
	r.Benchmark = r.Shapes[:1]
	got := s.runOne(r)
	expectOutcome(t, got, merged)
	// The reference of the real benchmark shapes would take long. The check reads only their names.
	for _, shape := range shapes(t, "1x8x512x64", "2x8x512x64") {
		row := got.Performance[0]
		row.Shape = shape.String()
		got.Performance = append(got.Performance, row)
	}
	return got
}

// with returns the lab with another builder.
func (s *setup) with(builder *toolchain.Builder) *Lab {
	l := *s.Lab
	l.Builder = builder
	return &l
}

func TestCheckPromotion(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	good := promotableRun(t, s)
	check := func(what string, change func(*run.Run), evidence, why string) {
		t.Helper()
		r := *good
		facts := *good.Facts
		r.Facts = &facts
		change(&r)
		err := s.CheckPromotion(t.Context(), &r)
		var refused *Refusal
		if evidence == "" {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
		if !errors.As(err, &refused) || refused.Evidence != evidence || !strings.Contains(refused.Why, why) {
			t.Errorf("%s: %v, want %s: %s", what, err, evidence, why)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "run "+good.ID+" cannot be promoted: its evidence is "+evidence+": ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("good", func(*run.Run) {}, "", "")
	check("simulator", func(r *run.Run) { r.Device = "sim" }, missing, "it ran on device sim")
	check("no device", func(r *run.Run) { r.Device, r.Facts = "none", nil }, missing, "it ran on device none")
	check("another kernel", func(r *run.Run) { r.Kernel = "gemm" }, missing, "its kernel is gemm, and this one is sdpa")
	check("an unknown stage", func(r *run.Run) { r.Variant = "stage99" }, missing, `unknown stage "stage99"`)
	check("an unknown knob", func(r *run.Run) { r.Variant = "stage2+OLD=1" }, missing, "unknown knob")
	check("an unknown architecture", func(r *run.Run) { r.Arch = "sm_75" }, missing, `not for "sm_75"`)
	check("not measured", func(r *run.Run) { r.Verdict, r.Performance = gate.Unknown, nil }, missing, "performance was not measured")
	check("not on the benchmark shapes", func(r *run.Run) { r.Performance = r.Performance[:3] }, missing, "no times of the benchmark shapes 2x8x512x64;")
	for _, verdict := range []gate.Verdict{gate.ValidNegative, gate.Incorrect, gate.OverBudget, gate.Inconclusive} {
		check(string(verdict), func(r *run.Run) { r.Verdict = verdict }, negative, "its verdict is "+string(verdict))
	}
	check("the reason is given", func(r *run.Run) {
		r.Verdict, r.Gates.Performance, r.Reasons.Performance = gate.ValidNegative, gate.Fail, []string{"0.900x stage1"}
	}, negative, "0.900x stage1")
	check("other code", func(r *run.Run) { r.CodeHash = "0123456789abcdef" }, stale, "and the run measured 0123456789ab")
	check("another compiler", func(r *run.Run) {
		then := *r.Build
		then.Compiler, r.CodeHash, r.Build = "nvcc 12.2", "c0de", &then
	}, stale, "the compiler was nvcc 12.2 and is now nvcc 13.0.88")
}

// A run measured before the sources changed is stale evidence.
func TestPromotionNeedsTodaysCode(t *testing.T) {
	t.Parallel()
	c, cacheDir := compiler(t)
	if c == nil {
		t.Skip(needsCompiler)
	}
	s := newSetup(t)
	good := promotableRun(t, s)
	source := s.variant("stage2").Stage().Source
	check := func(what, text, evidence, why string) {
		t.Helper()
		files := folder(t)
		files[source] = &fstest.MapFile{Data: append(files[source].Data, text...)}
		err := s.with(toolchain.NewBuilder(files, c, cacheDir)).CheckPromotion(t.Context(), good)
		var refused *Refusal
		switch {
		case evidence == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case evidence != "" && (!errors.As(err, &refused) || refused.Evidence != evidence || !strings.Contains(refused.Why, why)):
			t.Errorf("%s: %v, want %s: %s", what, err, evidence, why)
		}
	}
	check("a comment", "\n// more\n", "", "")
	check("another kernel", "\n__global__ void another(int* p) { *p = 1; }\n", stale, "today's sources give stage2 the code ")
	check("a syntax error", "\n#error no\n", stale, "does not compile")
	check("an include from elsewhere", "\n#include \"/etc/hostname\"\n", stale, "is outside the kernel's folder")
}

func TestPromotionWithoutCompiler(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	good := promotableRun(t, s)
	none := toolchain.NewBuilder(kernels.SDPA(), nil, t.TempDir())
	if err := s.with(none).CheckPromotion(t.Context(), good); err != nil {
		t.Errorf("a shipped stage: %v", err)
	}
	other := *good
	other.Variant = "stage2+TILE_N=32"
	if err := s.with(none).CheckPromotion(t.Context(), &other); !errors.Is(err, toolchain.ErrNoCompiler) {
		t.Errorf("a variant that is not shipped: %v", err)
	}
}
