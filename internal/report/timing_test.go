package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
