package document

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/measure"
	"attune/internal/run"
	"attune/internal/spec"
)

func someTuning() *run.Tuning {
	tuned := func(variant string, us, ratio, low, high float64, verdict measure.Verdict) run.TunedVariant {
		return run.TunedVariant{
			Variant: variant, Shape: "1x8x512x64", P50US: &us, Cost: ptr(us / 1e6), Registers: 96, SharedBytes: 40960, Verdict: verdict,
			Ratio: &measure.Speedup{Ratio: ratio, Low: low, High: high},
		}
	}
	standard := tuned("stage2", 14.06, 1, 1, 1, measure.Same)
	best := tuned("stage2+TILE_N=32+NUM_WARPS=8", 12.5, 1.1248, 1.12, 1.13, measure.Faster)
	return &run.Tuning{
		SchemaVersion: 1, ID: "20261117-042853-stage2-c89500", Kernel: "sdpa", Stage: "stage2", Objective: run.ObjectiveTime, Unit: "seconds",
		Identity: run.TuneIdentity{Shapes: []string{"1x8x512x64", "1x8x1024x64"}, Strategy: "evo", SearchSeed: 1, Arch: "sm_90a", Compiler: "nvcc 13.0.88"},
		Best:     best, Default: standard, Faster: true,
		Elites: []run.TunedVariant{
			best, tuned("stage2+TILE_N=32", 13.9, 1.01, 0.99, 1.03, measure.Ambiguous),
			{Variant: "stage2+TILE_M=16", Failure: run.FailedIncorrect, Reason: "1x8x512x64 seed 1: max_err 0.4 exceeds 0.06"},
		},
		Variants: ptr(4320.0), Evaluations: 200, EqualCode: 12, Failures: map[string]int{run.FailedCompile: 3, run.FailedIncorrect: 1},
		Ended: "the budget of 200 evaluations is spent", Seconds: 1203, Facts: device.Facts{Name: "NVIDIA H200"},
	}
}

func sdpa(t *testing.T) *spec.Kernel {
	t.Helper()
	kernel, err := spec.Load(os.DirFS("../../kernels"))
	if err != nil {
		t.Fatal(err)
	}
	return kernel
}

func TestTuning(t *testing.T) {
	all := someTuning()
	kernel := sdpa(t)
	goldenOf(t, "tuning.txt", func(w io.Writer) error {
		return (&TuningStudy{Tuning: all, Kernel: kernel}).Result().Terminal(w, screen)
	})
	files, err := Describe(run.FinishedSearch{Tuning: all, Evaluations: []run.TuneEvaluation{{Cost: all.Default.Cost}, {Cost: all.Best.Cost}}})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "tuning.md", files["report.md"])
	printed := func(change func(*run.Tuning), kernel *spec.Kernel) string {
		one := someTuning()
		change(one)
		var out strings.Builder
		if err := (&TuningStudy{Tuning: one, Kernel: kernel}).Result().Terminal(&out, screen); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(out.String()), " ")
	}
	for want, change := range map[string]func(*run.Tuning){
		"best: the default stage2; no variant is better beyond doubt": func(t *run.Tuning) { t.Faster = false },
		"best: the default stage2; no other variant ran":              func(t *run.Tuning) { t.Faster, t.Elites = false, nil },
		"1.125x the default (geometric mean of 2 shapes, NVIDIA H200; simulated cost, no time: an exact count of the simulator)": func(t *run.Tuning) {
			t.Objective = run.ObjectiveCost
			t.Best.Ratio = &measure.Speedup{Ratio: 1.1248, Low: 1.1248, High: 1.1248}
		},
		"first compile: stage2+A=1: k.cu:3: error: no the other failures: `attune show 20261117-042853-stage2-c89500 --file journal.jsonl`": func(t *run.Tuning) {
			t.FirstFailures = []run.TuneFailure{{Kind: run.FailedCompile, Variant: "stage2+A=1", Reason: "k.cu:3: error: no"}}
			if text := string((&TuningStudy{Tuning: t}).Document().Markdown()); !strings.Contains(text, "\nfirst compile: stage2+A=1: k.cu:3: error: no\n\nthe other failures") {
				panic(text)
			}
		},
		"variant mJ ratio": func(t *run.Tuning) { t.Objective = run.ObjectiveEnergy },
		"to keep it: `attune show 20261117-042853-stage2-c89500 --file 3f.patch | patch -p1` in the kernel's folder, then `attune run ": func(t *run.Tuning) { t.Best.Patch = "3f.patch" },
	} {
		if got := printed(change, kernel); !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
	if got := printed(func(*run.Tuning) {}, nil); strings.Contains(got, "recorded as") || strings.Contains(got, "to make it the default") {
		t.Errorf("a shown record says %s", got)
	}
	if got := makeDefault(&run.Tuning{Stage: "none", Best: run.TunedVariant{Variant: "none+A=1"}}, kernel); got != "" {
		t.Error(got)
	}
	if got := makeDefault(&run.Tuning{Stage: "stage0", Best: run.TunedVariant{Variant: "stage0+TILE_N=32"}}, kernel); !strings.Contains(got, "TILE_N = 32 in the knobs of [[stage]] stage0") {
		t.Error(got)
	}
}

func TestTuneBest(t *testing.T) {
	standard := &run.TuneEvaluation{Number: 1, Variant: "k", Objective: run.ObjectiveTime, Cost: ptr(2e-6)}
	better := &run.TuneEvaluation{Number: 7, Variant: "k+A=1", Objective: run.ObjectiveTime, Cost: ptr(1e-6)}
	energy := &run.TuneEvaluation{Number: 7, Variant: "k+A=1", Objective: run.ObjectiveEnergy, Cost: ptr(1e-6)}
	for want, got := range map[string]string{
		"default k: 2.000 us": TuneBest(standard, standard),
		"new best at evaluation 7: k+A=1, 1.000 us, 2.000x the default": TuneBest(better, standard),
		"new best at evaluation 7: k+A=1, 0.001 mJ, 2.000x the default": TuneBest(energy, standard),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A damaged record is refused or printed, and never a panic.
func TestDamagedTunings(t *testing.T) {
	text, err := someTuning().Document()
	if err != nil {
		t.Fatal(err)
	}
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	document, printed, refused := whole, 0, 0
	vary(whole, "tuning", func(with any) { document = with }, func(where string) {
		changed, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("%s: panic: %v", where, r)
			}
		}()
		one, err := run.DecodeTuning(changed)
		if err != nil {
			refused++
			return
		}
		printed++
		(&TuningStudy{Tuning: one}).Document().Markdown()
		if err := (&TuningStudy{Tuning: one, Kernel: nil}).Result().Terminal(io.Discard, screen); err != nil {
			t.Error(err)
		}
	})
	if printed == 0 || refused == 0 {
		t.Errorf("%d variations printed, %d refused", printed, refused)
	}
}
