package run

import (
	"strings"
	"testing"

	"attune/internal/measure"
)

func TestDecodeTuning(t *testing.T) {
	cost := 1e-6
	ran := TunedVariant{Variant: "k", Cost: &cost, Ratio: &measure.Speedup{Ratio: 1, Low: 1, High: 1}}
	right := Tuning{
		SchemaVersion: TuningSchemaVersion, ID: "x", Objective: ObjectiveTime, Best: ran, Default: ran,
		Elites: []TunedVariant{ran, {Variant: "k+A=1", Failure: FailedIncorrect}}, Failures: map[string]int{FailedCompile: 2, FailedTimeout: 1},
	}
	text, err := right.Document()
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeTuning(text)
	if err != nil || back.Failed() != 3 || back.Simulated() || len(back.Elites) != 2 {
		t.Errorf("%+v, %v", back, err)
	}
	damaged := right
	damaged.Elites = []TunedVariant{{Variant: "k", Cost: &cost}}
	text, err = damaged.Document()
	if err != nil {
		t.Fatal(err)
	}
	for want, document := range map[string]string{
		"read a tuning: ": "[",
		"elites.0 of its tuning.json has no cost or no ratio": string(text),
		"best of its tuning.json has no cost or no ratio":     `{"schema_version": 1}`,
		"it has no schema_version":                            "{}",
		"was written by a newer attune":                       `{"schema_version": 99}`,
	} {
		if _, err := DecodeTuning([]byte(document)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for objective, want := range map[string]string{ObjectiveTime: "seconds", ObjectiveEnergy: "joules", ObjectiveCost: "cycles (simulated cost, no time)"} {
		if got := ObjectiveUnit(objective); got != want {
			t.Errorf("%s: %s", objective, got)
		}
	}
	infinite := right
	infinite.Seconds = 1
	infinite.Best.Cost = new(float64)
	*infinite.Best.Cost = 1 / zero
	if _, err := infinite.Document(); err == nil {
		t.Error("an infinite cost was written")
	}
}

var zero float64
