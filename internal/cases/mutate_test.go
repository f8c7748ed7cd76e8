package cases_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/cases"
	"attune/internal/crash"
	"attune/internal/finding"
	"attune/internal/mutate"
	"attune/internal/sim"
)

func loadText(t *testing.T, text, ptx string) *cases.Case {
	t.Helper()
	folder := t.TempDir()
	file := writeCase(t, folder, text)
	if err := os.WriteFile(filepath.Join(folder, "k.ptx"), []byte(ptx), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := cases.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mutation() cases.MutationRequest {
	return cases.MutationRequest{Options: sim.Options{Checks: true}, RunTimeout: time.Minute}
}

// TestMutate checks the classification of every mutant of a small kernel. The compiler shows two of
// them to be equivalent (lane and thread are the same here). The test also checks that killed
// mutants are not assembled.
func TestMutate(t *testing.T) {
	const harmless = "\tmul.lo.u32 %r7, %r2, 8;\n" // its result is unused
	ptx := strings.Replace(copyPTX, "\tmul.wide", harmless+"\tmul.wide", 1)
	c := loadText(t, caseText(), ptx)
	m := mutation()
	var assembled []string
	m.Assemble = func(_ context.Context, text []byte, arch string) (string, error) {
		if arch != "sm_80" {
			t.Errorf("assembled for %q", arch)
		}
		assembled = append(assembled, string(text))
		return "the same", nil
	}
	watched := 0
	m.Progress = func(_ mutate.Mutant, done, total int) {
		if done != watched || total == 0 {
			t.Errorf("mutant %d of %d, after %d", done, total, watched)
		}
		watched++
	}
	report, err := c.Mutate(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if report.Case != "case.json" || report.Arch != "sm_80" || report.Possible != report.Mutants || watched != report.Mutants {
		t.Errorf("%+v, %d watched", report, watched)
	}
	if report.Equivalent != 2 || report.Survived != 0 || report.Killed != report.Mutants-2 || report.KillRate != 1 || len(assembled) != 4 { // the original is assembled twice
		t.Errorf("%+v, %d assembled", report, len(assembled))
	}
	if report.KilledBy[cases.Mismatch] == 0 || report.KilledBy[string(finding.OutOfBounds)] == 0 || report.KilledBy[string(finding.Misaligned)] == 0 {
		t.Errorf("killed by %v", report.KilledBy)
	}

	// Without a compiler no mutant is equivalent. Count limits the sample.
	m.Assemble, m.Progress, m.Count = nil, nil, 5
	if report, err = c.Mutate(t.Context(), m); err != nil || report.Mutants != 5 || report.Equivalent != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	m.Assemble = func(context.Context, []byte, string) (string, error) { return "", errors.New("disk full") }
	if _, err = c.Mutate(t.Context(), m); err == nil || !strings.Contains(err.Error(), "case.json: disk full") {
		t.Errorf("error %v", err)
	}
}

// loopPTX counts to eight in a loop and writes the result.
const loopPTX = `.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n)
{
	.reg .pred %p<2>;
	.reg .b32 %r<8>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd2, [out];
	mov.u32 %r1, 0;
LOOP:
	add.u32 %r1, %r1, 1;
	setp.ne.u32 %p1, %r1, 8;
	@%p1 bra LOOP;
	mov.u32 %r2, %tid.x;
	mul.wide.u32 %rd3, %r2, 4;
	add.s64 %rd5, %rd2, %rd3;
	st.global.u32 [%rd5], %r1;
	ret;
}
`

// TestMutateEndlessLoop checks that an endless loop is killed by its step count, not by the clock.
func TestMutateEndlessLoop(t *testing.T) {
	text := caseText(words(6, 7, 8, 9, 10, 11, 12, 13), words(8, 8, 8, 8, 8, 8, 8, 8))
	report, err := loadText(t, text, loopPTX).Mutate(t.Context(), mutation())
	if err != nil {
		t.Fatal(err)
	}
	if report.KilledBy[cases.NoEnd] == 0 || report.KilledBy[cases.Timeout] != 0 || report.Survived > 3 {
		t.Errorf("killed by %v, survivors %v", report.KilledBy, report.Survivors)
	}
	m := mutation()
	m.RunTimeout = time.Nanosecond
	var wrong *cases.NotPassedError
	if _, err := loadText(t, text, loopPTX).Mutate(t.Context(), m); !errors.As(err, &wrong) || wrong.Reason != cases.Timeout {
		t.Errorf("with a limit of 1 ns the error is %v", err)
	}
}

// TestMutateTensorMaps checks that tensor maps are mutated to the other swizzles that the driver
// accepts.
func TestMutateTensorMaps(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates every mutant of a product")
	}
	c, err := cases.Load("testdata/defects/ws_gemm_ok.json")
	if err != nil {
		t.Fatal(err)
	}
	m := mutation()
	swizzles := map[string]bool{}
	m.Progress = func(m mutate.Mutant, _, _ int) {
		if m.Line == 0 {
			swizzles[m.Before+" -> "+m.After] = true
		}
	}
	report, err := c.Mutate(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	tally := report.ByKind["other tensor map"]
	if len(swizzles) != 4 || tally.Mutants != 4 || tally.Killed != 4 || !swizzles["argument 2: swizzle 64B -> argument 2: swizzle none"] {
		t.Errorf("%v, %v", swizzles, tally)
	}
	if report.KillRate < 0.85 {
		t.Errorf("kill rate %.1f %%, want 85 %%; survivors: %+v", 100*report.KillRate, report.Survivors)
	}
}

func TestMutateErrors(t *testing.T) {
	check := func(name, text, ptx, want string) {
		t.Helper()
		report, err := loadText(t, text, ptx).Mutate(t.Context(), mutation())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", name, report, err, want)
		}
	}
	check("no PTX", caseText(), "what is this", "case.json: k.ptx: ")
	check("no such entry", caseText(`"entry": "k"`, `"entry": "q"`), copyPTX, `no entry function "q"`)
	check("original has a mismatch", caseText(words(13), words(14)), copyPTX, "case.json itself does not pass: mismatch")
	check("original has a finding", caseText("[8,1,1]", "[9,1,1]"), copyPTX, "case.json itself does not pass: out-of-bounds")
	check("too few arguments", caseText(`, {"u32": 5}`, ""), copyPTX, "case.json: launch k: ")

	ctx, cancel := context.WithCancel(t.Context())
	m := mutation()
	m.Progress = func(_ mutate.Mutant, done, _ int) {
		if done == 3 {
			cancel()
		}
	}
	if report, err := loadText(t, caseText(), copyPTX).Mutate(ctx, m); !errors.Is(err, context.Canceled) || report.Mutants != 3 {
		t.Errorf("cancelled: %+v, %v; want the three mutants before", report, err)
	}
}

// printPTX has every thread print.
const printPTX = `.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
.global .align 1 .b8 text[] = {104,105,10,0};
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n)
{
	.reg .b64 %rd<2>;
	.param .b64 f; .param .b64 a; .param .b32 r;
	mov.u64 %rd1, text;
	cvta.global.u64 %rd1, %rd1;
	st.param.b64 [f], %rd1;
	st.param.b64 [a], 0;
	call (r), vprintf, (f, a);
	ret;
}
`

// TestPanic checks that a panic while a case runs is an error of its own, and kills no mutant.
func TestPanic(t *testing.T) {
	c := loadText(t, caseText(words(6, 7, 8, 9, 10, 11, 12, 13), ""), printPTX)
	var p *crash.Panic
	o := sim.Options{Checks: true, Printf: func(string) { panic("a defect") }}
	if _, err := c.Run(t.Context(), o); !errors.As(err, &p) || !strings.Contains(err.Error(), "case.json: internal error") {
		t.Errorf("error %v", err)
	}
	m := mutation()
	calls := 0
	m.Options.Printf = func(string) {
		if calls++; calls > 16 { // the unchanged case runs twice
			panic("a defect")
		}
	}
	if report, err := c.Mutate(t.Context(), m); !errors.As(err, &p) {
		t.Errorf("%+v, %v", report, err)
	}
}
