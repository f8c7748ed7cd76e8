package lab

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"attune/internal/gate"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// best chooses stage3b for short problems and stage2 for long ones. Its required speedup over
// stage1 is 1.4.
const best = `
[[selection]]
name = "best"
parent = "stage1"
speedup = 1.4
hypothesis = "no one variant is right for all"
[[selection.choice]]
when = "head_dim == 128"
variant = "stage2+HEAD_DIM=128"
why = "wide"
[[selection.choice]]
when = "queries < 36"
variant = "stage3b"
why = "short"
[[selection.choice]]
variant = "stage2"
why = "the rest"
`

// withSelection is a lab for the shipped kernel with another selection instead of its own.
func withSelection(t *testing.T, text string) *setup {
	t.Helper()
	files := folder(t)
	own := string(files[spec.File].Data)
	from, to := strings.Index(own, "[[selection]]"), strings.Index(own, "# ---- shapes")
	if from < 0 || to < from {
		t.Fatal("the shipped kernel has no selection to replace")
	}
	files[spec.File] = &fstest.MapFile{Data: []byte(own[:from] + own[to:] + text)}
	c, cacheDir := compiler(t)
	return newSetupOf(t, files, c, cacheDir)
}

// selected runs the selection on two shapes, a long and a short one, and returns the records of its
// parts and of the whole.
func (s *setup) selected(change func(*Request)) (parts []*run.Run, whole *run.Run) {
	s.t.Helper()
	r := s.request()
	r.Selections = []*spec.Selection{s.Kernel.Selection("best")}
	if change != nil {
		change(&r)
	}
	s.runs = nil
	if err := s.run(r); err != nil {
		s.t.Fatal(err)
	}
	last := len(s.runs) - 1
	return s.runs[:last], s.runs[last]
}

func benchmarkAll(r *Request) { r.Benchmark = r.Shapes }

func TestSelectionHasARunPerPart(t *testing.T) {
	t.Parallel()
	s := withSelection(t, best)
	s.declare("stage1", behaviour{Seconds: 20e-6, Noise: 0.001})
	s.declare("stage2", behaviour{Seconds: 10e-6, Noise: 0.001})
	s.declare("stage3b", behaviour{Seconds: 5e-6, Noise: 0.001})
	parts, whole := s.selected(benchmarkAll)
	if diff := cmp.Diff([]string{"stage3b", "stage2", "best"}, s.recorded()); diff != "" { // in the order of the table
		t.Fatal(diff)
	}
	for i, shape := range []string{"1x1x33x64:causal", "1x2x40x64"} {
		p := parts[i]
		expectOutcome(t, p, merged)
		if p.PartOf != "best" || p.Parent != "stage1" || p.RequiredSpeedup != 1 || p.Requested.Against != "stage1" || p.ID == "" {
			t.Errorf("%s is a part of %q, against %q, %gx", p.Variant, p.PartOf, p.Parent, p.RequiredSpeedup)
		}
		if diff := cmp.Diff([]string{shape}, p.Requested.Shapes); diff != "" || len(p.Performance) != 1 || len(p.Correctness) != 6 {
			t.Errorf("%s: %d times, %d outputs, %s", p.Variant, len(p.Performance), len(p.Correctness), diff)
		}
	}
	expectOutcome(t, whole, merged)
	want := []run.Part{
		{Variant: "stage3b", Run: parts[0].ID, Arch: "sm_89", CodeHash: parts[0].CodeHash, Verdict: gate.Merge, Shapes: []string{"1x1x33x64:causal"}},
		{Variant: "stage2", Run: parts[1].ID, Arch: "sm_89", CodeHash: parts[1].CodeHash, Verdict: gate.Merge, Shapes: []string{"1x2x40x64"}},
	}
	if diff := cmp.Diff(want, whole.Parts); diff != "" {
		t.Error(diff)
	}
	if whole.Variant != "best" || whole.Stage != "best" || whole.Parent != "stage1" || whole.RequiredSpeedup != 1.4 || whole.Arch != "sm_89" ||
		whole.Device != "cuda" || whole.Facts == nil || whole.PartOf != "" || whole.Hypothesis != "no one variant is right for all" {
		t.Errorf("%+v", whole)
	}
	// 2x on one shape and 4x on the other.
	if s := whole.Speedup; s == nil || math.Abs(s.Ratio/math.Sqrt(8)-1) > 0.01 || s.Low > s.Ratio || s.High < s.Ratio {
		t.Errorf("the speedup is %+v", s)
	}
	// The rows are in the order of the request.
	if len(whole.Correctness) != 12 || whole.Requested.Problems != 12 || whole.Correctness[0].Shape != "1x2x40x64" || len(whole.Samples) != 2 {
		t.Errorf("%d outputs of %d, %d samples", len(whole.Correctness), whole.Requested.Problems, len(whole.Samples))
	}
	if whole.Headline == nil || whole.Headline.Shape != "1x2x40x64" || math.Abs(whole.Headline.P50US-10) > 0.1 {
		t.Errorf("the headline is %+v", whole.Headline)
	}
	if whole.VariantOn("1x2x40x64") != "stage2" || whole.VariantOn("1x1x33x64:causal") != "stage3b" || whole.VariantOn("1x1x1x64") != "" {
		t.Error("the shapes have other variants")
	}
	found, err := s.Ledger.Verify(t.Context())
	if err != nil || found.Runs != 3 || len(found.Problems) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// The performance gate counts the benchmark shapes of the whole selection, not those of each part.
func TestSelectionIsGatedAsAWhole(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("simulates all stages of a selection")
	}
	check := func(long, short float64, change func(*Request), want, wantLong string) {
		t.Helper()
		s := withSelection(t, best)
		s.declare("stage1", behaviour{Seconds: 10e-6, Noise: 0.001})
		s.declare("stage2", behaviour{Seconds: long * 1e-6, Noise: 0.001})
		s.declare("stage3b", behaviour{Seconds: short * 1e-6, Noise: 0.001})
		parts, whole := s.selected(change)
		expectOutcome(t, whole, want)
		expectOutcome(t, parts[1], wantLong)
		if whole.Performance[0].Shape != "1x2x40x64" || !whole.Performance[0].Benchmark {
			t.Errorf("%+v", whole.Performance)
		}
	}
	const slow = "valid-negative pass/pass/fail/not-measured"
	check(12, 2, benchmarkAll, merged, slow) // 2x over both, although one part is slower than the parent
	check(9, 8, benchmarkAll, slow, merged)  // both faster, but below the required speedup
	check(9, 2, nil, slow, merged)           // only the long shape counts
	check(5, 20, nil, merged, merged)
}

func TestSelectionWithAWrongPart(t *testing.T) {
	t.Parallel()
	s := withSelection(t, best)
	for _, name := range []string{"stage1", "stage2"} {
		s.declare(name, behaviour{})
	}
	s.declare("stage3b", behaviour{Output: func(out []byte) { clear(out) }})
	parts, whole := s.selected(benchmarkAll)
	expectOutcome(t, parts[0], incorrect)
	expectOutcome(t, parts[1], merged) // correct by itself
	expectOutcome(t, whole, incorrect)
	expectReason(t, whole.Reasons.Correctness, "stage3b: 1x1x33x64:causal seed 0")
	expectReason(t, whole.Reasons.Performance, "an earlier gate failed")
	if len(whole.Correctness) != 12 || whole.Speedup != nil || len(whole.Performance) != 1 {
		t.Errorf("%d outputs, speedup %v, %d times", len(whole.Correctness), whole.Speedup, len(whole.Performance))
	}
}

// A selection may choose its parent, with a speedup of exactly 1.
func TestSelectionMayChooseItsParent(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	s := withSelection(t, strings.Replace(best, `variant = "stage2"`, `variant = "stage1"`, 1))
	s.declare("stage1", behaviour{Seconds: 20e-6, Noise: 0.05})
	s.declare("stage3b", behaviour{Seconds: 5e-6})
	_, whole := s.selected(benchmarkAll)
	expectOutcome(t, whole, merged)
	if ratio := whole.Speedup.Ratio; math.Abs(ratio-2) > 0.1 { // of 1x and 4x
		t.Errorf("the speedup is %g", ratio)
	}
	_, whole = s.selected(nil)
	if *whole.Speedup != (*s.runs[1].Speedup) || whole.Speedup.Low != 1 || whole.Speedup.High != 1 {
		t.Errorf("the speedup is %+v", whole.Speedup)
	}
}

func TestSelectionWithoutTimes(t *testing.T) {
	t.Parallel()
	s := withSelection(t, best)
	s.Device.simulation = &run.Simulation{}
	s.declare("stage2", behaviour{})
	s.declare("stage3b", behaviour{})
	_, whole := s.selected(nil)
	expectOutcome(t, whole, "not-measured pass/pass/not-measured/not-measured")
	if diff := cmp.Diff([]string{"this device measures no time"}, whole.Reasons.Performance); diff != "" {
		t.Error(diff)
	}
}

// On a head dim that the parent is not built for there is no parent.
func TestSelectionOfTwoHeadDims(t *testing.T) {
	t.Parallel()
	s := withSelection(t, best)
	if c, _ := compiler(t); c == nil {
		t.Skip(needsCompiler)
	}
	s.declare("stage1", behaviour{Seconds: 20e-6})
	s.declare("stage2", behaviour{})
	s.declare("stage2+HEAD_DIM=128", behaviour{})
	parts, whole := s.selected(func(r *Request) { r.Shapes = shapes(t, "1x1x9x128", "1x2x40x64") })
	expectOutcome(t, whole, merged)
	if parts[0].Parent != "" || parts[0].Requested.Against != "" || parts[0].Performance[0].ParentRatio != nil {
		t.Errorf("%s is measured against %q", parts[0].Variant, parts[0].Parent)
	}
	if whole.Parent != "stage1" || whole.Speedup == nil || math.Abs(whole.Speedup.Ratio-2) > 1e-9 || whole.Performance[0].Benchmark {
		t.Errorf("%q, %+v", whole.Parent, whole.Speedup)
	}
	_, whole = s.selected(func(r *Request) { r.Shapes = shapes(t, "1x1x9x128") })
	expectOutcome(t, whole, merged) // as any variant with another head dim
	if whole.Parent != "" || whole.Speedup != nil {
		t.Errorf("%q, %+v", whole.Parent, whole.Speedup)
	}
}

func TestSelectionAgainstAnother(t *testing.T) {
	t.Parallel()
	s := withSelection(t, best)
	s.declare("stage0", behaviour{Seconds: 11e-6})
	s.declare("stage2", behaviour{})
	s.declare("stage3b", behaviour{})
	against := s.variant("stage0")
	parts, whole := s.selected(func(r *Request) { r.Against = &against })
	expectOutcome(t, whole, merged) // 1.1x, and 1x is required over stage0
	if whole.Parent != "stage0" || whole.RequiredSpeedup != 1 || whole.Requested.Against != "stage0" || parts[0].Parent != "stage0" {
		t.Errorf("%q, %g, %q", whole.Parent, whole.RequiredSpeedup, parts[0].Parent)
	}
}

func TestSelectionIsRefusedBeforeTheStart(t *testing.T) {
	t.Parallel()
	check := func(text, shape, arch, want string) {
		t.Helper()
		s := withSelection(t, text)
		r := s.request()
		r.Selections, r.Shapes, r.Arch = s.Kernel.Selections, shapes(t, shape), arch
		err := s.run(r)
		var refused RequestError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) || len(s.runs) != 0 {
			t.Errorf("%v, want %s", err, want)
		}
	}
	check(best, "1x1x9x256", "", "best: shape 1x1x9x256 has head dim 256, and stage3b is built for 64")
	check(best, "1x1x9x64", "sm_75", `stage3b is for sm_80, sm_89, sm_90a, not for "sm_75"`)
	check(strings.Replace(best, "queries < 36", "9 // (queries - 9)", 1), "1x1x9x64", "", `"9 // (queries - 9)" cannot be evaluated for 1x1x9x64`)
}

// The hash of a selection covers the code of its parts and their shapes.
func TestHashOfASelection(t *testing.T) {
	t.Parallel()
	parts := func(change func([]run.Part)) []run.Part {
		all := []run.Part{{CodeHash: "a", Shapes: []string{"1x1x1x64", "1x1x2x64"}}, {CodeHash: "b", Shapes: []string{"1x1x3x64"}}}
		if change != nil {
			change(all)
		}
		return all
	}
	first := joinedHash(parts(nil))
	if len(first) != 64 || first != joinedHash(parts(nil)) {
		t.Errorf("the hash is %q", first)
	}
	if joinedHash(parts(func(p []run.Part) { p[1].CodeHash = "c" })) == first {
		t.Error("other code has the same hash")
	}
	if joinedHash(parts(func(p []run.Part) { p[1].Shapes, p[0].Shapes = append(p[1].Shapes, p[0].Shapes[1]), p[0].Shapes[:1] })) == first {
		t.Error("another table has the same hash")
	}
	if hash := joinedHash(parts(func(p []run.Part) { p[0].CodeHash = "" })); hash != "" {
		t.Errorf("a part that did not compile gives the hash %s", hash)
	}
}

func TestReproduceSelection(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("times a whole selection")
	}
	s := withSelection(t, best)
	s.declare("stage1", behaviour{Seconds: 20e-6, Noise: 0.001})
	s.declare("stage2", behaviour{Seconds: 10e-6, Noise: 0.001})
	s.declare("stage3b", behaviour{Seconds: 5e-6, Noise: 0.001})
	_, recorded := s.selected(benchmarkAll)
	repeat := func(s *setup, only ...string) *run.Reproduction {
		t.Helper()
		request, err := ReproduceRequest(s.Kernel, recorded, shapes(t, only...))
		if err != nil {
			t.Fatal(err)
		}
		s.runs = nil
		if err := s.run(request); err != nil {
			t.Fatal(err)
		}
		repeated := s.runs[len(s.runs)-1]
		if repeated.Reproduces != recorded.ID || s.runs[0].Reproduces != "" || repeated.RequiredSpeedup != 1.4 || repeated.Requested.Against != "" {
			t.Errorf("it reproduces %q, the part %q", repeated.Reproduces, s.runs[0].Reproduces)
		}
		return CompareRepeated(s.Kernel, recorded, repeated)
	}
	if got := repeat(s); !got.Holds || !got.Code.Same || got.Outputs.Same != 12 {
		t.Errorf("%+v", got)
	}
	if got := repeat(s, "1x2x40x64"); !got.Holds || !got.Code.Same || got.Outputs.Same != 6 || got.Outputs.Skipped != 6 {
		t.Errorf("%+v", got)
	}
	other := withSelection(t, strings.Replace(best, "queries < 36", "queries < 20", 1))
	other.gpu.Variants, other.gpu.Behaviours = s.gpu.Variants, s.gpu.Behaviours
	got := repeat(other)
	if got.Holds || got.Code.Same || got.Differences[0] != "the selection's table differs: it chose stage3b for 1x1x33x64:causal and chooses stage2" {
		t.Errorf("%+v", got)
	}
}

// Recorded parts with a former knob name are the parts of today's table.
func TestFormerNamesOfParts(t *testing.T) {
	t.Parallel()
	files := folder(t)
	files[spec.File] = &fstest.MapFile{Data: append(files[spec.File].Data, `
[[selection]]
name = "hopper"
hypothesis = "for one shape"
[[selection.choice]]
variant = "stage7a+EXP2_CUBIC_EIGHTHS=0"
why = "all shapes"
`...)}
	kernel, err := spec.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	const shape, was, is = "1x1x32x64", "stage7a+POLYNOMIAL_EIGHTHS=0", "stage7a+EXP2_CUBIC_EIGHTHS=0"
	of := func(variant, hash string) *run.Run {
		return &run.Run{Parts: []run.Part{{Variant: variant, CodeHash: hash, Shapes: []string{shape}}}}
	}
	recorded := of(was, "aa")
	if got := CompareRepeated(kernel, recorded, of(is, "aa")); !got.Holds || recorded.Parts[0].Variant != was {
		t.Errorf("%v; the record has %s", got.Differences, recorded.Parts[0].Variant)
	}
	want := []string{"the machine code of " + is + " differs"}
	if diff := cmp.Diff(want, CompareRepeated(kernel, recorded, of(is, "bb")).Differences); diff != "" {
		t.Error(diff)
	}
	want = []string{"the selection's table differs: it chose stage99 for 1x1x32x64 and chooses " + is}
	if diff := cmp.Diff(want, CompareRepeated(kernel, of("stage99", "aa"), of(is, "aa")).Differences); diff != "" {
		t.Error(diff)
	}
	if err := checkTable(kernel, kernel.Selection("hopper"), []string{shape}, presentName(kernel, was)); err != nil {
		t.Error(err)
	}
}

func TestCheckPromotionOfASelection(t *testing.T) {
	t.Parallel()
	s := withSelection(t, best)
	s.declare("stage1", behaviour{Seconds: 20e-6})
	s.declare("stage2", behaviour{})
	s.declare("stage3b", behaviour{})
	parts, good := s.selected(benchmarkAll)
	expectOutcome(t, good, merged)
	// The spec's own shapes would take the oracle long, and what counts is their names.
	for _, shape := range []string{"1x8x512x64", "2x8x512x64"} {
		row := good.Performance[0]
		row.Shape = shape
		good.Performance = append(good.Performance, row)
	}
	check := func(what string, l *Lab, change func(*run.Run), evidence, why string) {
		t.Helper()
		r := *good
		r.Parts = append([]run.Part{}, good.Parts...)
		change(&r)
		err := l.CheckPromotion(t.Context(), &r)
		var refused *Refusal
		switch {
		case evidence == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case evidence != "" && (!errors.As(err, &refused) || refused.Evidence != evidence || !strings.Contains(refused.Why, why)):
			t.Errorf("%s: %v, want %s: %s", what, err, evidence, why)
		}
	}
	check("good", s.Lab, func(*run.Run) {}, "", "")
	check("negative", s.Lab, func(r *run.Run) { r.Verdict = gate.ValidNegative }, negative, "its verdict is valid-negative")
	check("not on the benchmark shapes", s.Lab, func(r *run.Run) { r.Performance = r.Performance[:2] }, missing, "no times of the benchmark shapes 1x8x512x64")
	check("a selection that is gone", s.Lab, func(r *run.Run) { r.Variant = "worst" }, missing, "worst is no selection of today's kernel.toml")
	check("another run", s.Lab, func(r *run.Run) { r.Parts[0].Run = parts[1].ID }, missing, "its part stage3b names run "+parts[1].ID+", which has variant stage2")
	check("another device", s.Lab, func(r *run.Run) {
		for _, p := range parts {
			p.Device = "sim"
			if err := s.record(t.Context(), p, nil); err != nil {
				t.Fatal(err)
			}
		}
		r.Parts[0].Run = parts[0].ID
	}, missing, "which has variant stage3b, device sim")
	other := withSelection(t, strings.Replace(best, "queries < 36", "queries < 20", 1))
	other.Ledger = s.Ledger
	check("another table", other.Lab, func(*run.Run) {}, stale, "today's table assigns 1x1x33x64:causal to stage2, and stage3b was measured")
	if c, cacheDir := compiler(t); c != nil {
		changed := folder(t)
		source := s.variant("stage2").Stage().Source
		changed[source] = &fstest.MapFile{Data: append(changed[source].Data, "\n__global__ void another(int* p) { *p = 1; }\n"...)}
		check("other code", s.with(toolchain.NewBuilder(changed, c, cacheDir)), func(*run.Run) {}, stale, "today's sources give stage3b the code ")
	}
	if err := os.RemoveAll(filepath.Join(s.dir, "runs", good.Parts[1].Run)); err != nil {
		t.Fatal(err)
	}
	check("a part that is gone", s.Lab, func(*run.Run) {}, missing, "the run of its part stage2 cannot be read")
}

func TestBenchOfASelection(t *testing.T) {
	t.Parallel()
	s := withSelection(t, best)
	s.declare("stage3b", behaviour{Seconds: 4e-6})
	r := s.bench(newPeers(t), "torch-cudnn", "1x1x33x64", "1x2x40x64") // stage1 and stage2 as well
	r.Selections = s.Kernel.Selections
	b := s.benched(r)
	var got []string
	for _, row := range b.Rows {
		got = append(got, strings.TrimSpace(row.Shape+" "+row.Name+" "+row.Variant))
		if row.Wrong != "" || row.P50US == nil {
			t.Errorf("%+v", row)
		}
	}
	want := []string{
		"1x1x33x64 stage1", "1x1x33x64 stage2", "1x1x33x64 best stage3b", "1x1x33x64 torch-cudnn",
		"1x2x40x64 stage1", "1x2x40x64 stage2", "1x2x40x64 best stage2", "1x2x40x64 torch-cudnn",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(b.Best) != 2 || b.Best[0].Variant != "best" || math.Abs(*b.Rows[2].P50US-4) > 1e-6 || math.Abs(*b.Rows[6].P50US-10) > 1e-6 {
		t.Errorf("%+v", b.Best)
	}
}

func TestCompareWithASelection(t *testing.T) {
	t.Parallel()
	s := withSelection(t, best)
	s.declare("stage2", behaviour{Seconds: 10e-6, Noise: 0.001})
	s.declare("stage3b", behaviour{Seconds: 5e-6, Noise: 0.001})
	r := s.comparison("stage2", "stage2") // on a long shape and a short one
	r.B = Candidate{Selection: s.Kernel.Selection("best")}
	c, err := s.Compare(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if c.A.Variant != "stage2" || c.B.Variant != "best" || c.Same || len(c.B.CodeHash) != 64 || c.B.CodeHash == c.A.CodeHash {
		t.Errorf("%+v and %+v, same %v", c.A, c.B, c.Same)
	}
	long, short := c.Shapes[0], c.Shapes[1]
	if long.BVariant != "stage2" || short.BVariant != "stage3b" || long.AVariant != "" || math.Abs(long.Ratio-1) > 0.01 || math.Abs(short.Ratio-2) > 0.01 {
		t.Errorf("%+v and %+v", long, short)
	}
	r.B.Selection, r.Shapes = s.Kernel.Selection("best"), r.Shapes[:1]
	if c, err = s.Compare(t.Context(), r); err != nil || !c.Same {
		t.Errorf("on a shape with stage2 on both: %+v, %v", c, err)
	}
}
