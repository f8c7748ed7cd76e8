package document

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/measure"
	"attune/internal/run"
)

func TestConditionLines(t *testing.T) {
	check := func(what string, want []string, all ...run.Conditions) {
		t.Helper()
		if diff := cmp.Diff(want, conditionLines(all)); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}
	monitored := func(rounds, throttled, excluded int, reasons ...string) run.Conditions {
		return run.Conditions{Monitored: &run.Monitored{
			ClockMHz: [2]int{1980, 1980}, MemoryClockMHz: [2]int{3201, 3201}, PowerWatts: 300, Celsius: 40,
			Rounds: rounds, Throttled: throttled, Excluded: excluded, Reasons: reasons,
		}}
	}
	const free = "SM clock 1980 MHz, memory 3201 MHz, at most 300 W and 40 C; throttled: "
	check("an old record", nil, run.Conditions{})
	check("free clocks", []string{free + "0"}, monitored(100, 0, 0))
	check("too many", []string{free + "60 of 100 rounds (power cap), too many to exclude"}, monitored(100, 60, 0, "power cap"))
	check("of two shapes", []string{free + "70 of 200 rounds (power cap, power brake), 10 excluded"},
		monitored(100, 60, 0, "power cap"), monitored(100, 10, 10, "power brake", "power cap"))
	check("empty nodes differ", []string{"empty node 0.58 to 0.61 us, included in every time above"},
		run.Conditions{EmptyNodeUS: ptr(0.61)}, run.Conditions{EmptyNodeUS: ptr(0.58)})
	kept := monitored(100, 3, 0, "power cap")
	kept.Monitored.Kept = "peers are not monitored"
	check("kept", []string{free + "3 of 100 rounds (power cap), not excluded: peers are not monitored"}, kept)
	check("copies", []string{"launches rotate over 1 to 4 copies of their buffers"}, run.Conditions{Copies: 4}, run.Conditions{Copies: 1})
	check("one copy", nil, run.Conditions{Copies: 1})
	check("one of two is not stable", []string{"not stable: some times still changed at the end of the warm-up"},
		run.Conditions{}, run.Conditions{Unstable: true})
	check("not monitored, listed once", []string{"clocks, power and temperature not measured: libnvidia-ml.so.1 is not installed"},
		run.Conditions{Unmonitored: "libnvidia-ml.so.1 is not installed"}, run.Conditions{Unmonitored: "libnvidia-ml.so.1 is not installed"})
}

func TestTimingLinesWithColdL2(t *testing.T) {
	r := &run.Run{Variant: "stage2", Performance: []run.Performance{{
		Shape: "1x8x512x64", RelatedTimes: run.RelatedTimes{WithFlushUS: ptr(54.16), FlushUS: ptr(40.02)}, Conditions: run.Conditions{EmptyNodeUS: ptr(0.6)},
	}}}
	want := []string{
		"1x8x512x64, stage2, L2 cold: a flush and a launch 54.16 us, minus the flush alone 40.02 us",
		"samples of 1 process: ± is at least 1 %, by which processes differ",
		"empty node 0.60 us, included in every time above",
	}
	if diff := cmp.Diff(want, timingLines(r)); diff != "" {
		t.Error(diff)
	}
	r.Requested = run.Requested{L2: run.Cold, Shapes: []string{"1x8x512x64"}, Seeds: []uint64{0}, Samples: 5}
	if got := r.Command(); got != "attune run stage2 --shapes 1x8x512x64 --seeds 0 --rounds 5 --l2 cold" {
		t.Error(got)
	}
}

// Processes and energy are named, and a figure of one process does not look exact.
func TestProcessAndEnergyTexts(t *testing.T) {
	near := run.Performance{P50US: 10, P50LowUS: ptr(9.99), P50HighUS: ptr(10.01)}
	several := near
	several.Processes = 5
	if one, five := plusMinus(near), plusMinus(several); one != "1.0%" || five != "0.1%" {
		t.Errorf("± %s of one process and %s of five", one, five)
	}
	for joules, want := range map[float64]string{0.0015: "1.50", 0.0153: "15.3", 1.234: "1234"} {
		if got := millijoules(&joules); got != want {
			t.Errorf("%g J is %s mJ, want %s", joules, got, want)
		}
	}
	lines := processLines(run.ComparedShape{
		Shape: "S", ABetween: measure.Between{Processes: 2, Min: 1e-6, Max: 2e-6, Mean: 1.5e-6, CV: 0.5},
		BBetween: measure.Between{Processes: 1}, AJoules: 0.002, BJoules: 0.001,
	}, &run.Comparison{A: run.Compared{Variant: "a"}, B: run.Compared{Variant: "b"}})
	want := []string{
		"S, a: medians of 2 processes 1.000 to 2.000 us, mean 1.500 us, standard deviation 50.00 %",
		"S: 2.00 mJ (a) and 1.00 mJ (b) a launch, -50.0 %",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	if text := processesText(5); text != "5 processes: ± covers what differs between them" {
		t.Error(text)
	}
}
