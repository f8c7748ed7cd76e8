package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/run"
)

func TestCircumstanceLines(t *testing.T) {
	check := func(what string, want []string, all ...run.Circumstances) {
		t.Helper()
		if diff := cmp.Diff(want, circumstanceLines(all)); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}
	watched := func(rounds, throttled, aside int, reasons ...string) run.Circumstances {
		return run.Circumstances{Watched: &run.Watched{
			ClockMHz: [2]int{1980, 1980}, MemoryClockMHz: [2]int{3201, 3201}, PowerWatts: 300, Celsius: 40,
			Rounds: rounds, Throttled: throttled, SetAside: aside, Reasons: reasons,
		}}
	}
	const free = "SM clock 1980 MHz, memory 3201 MHz, at most 300 W and 40 C; throttled: "
	check("an older record", nil, run.Circumstances{})
	check("free clocks", []string{free + "0"}, watched(100, 0, 0))
	check("too many", []string{free + "60 of 100 rounds (power cap), too many to set aside"}, watched(100, 60, 0, "power cap"))
	check("of two shapes", []string{free + "70 of 200 rounds (power cap, power brake), 10 set aside"},
		watched(100, 60, 0, "power cap"), watched(100, 10, 10, "power brake", "power cap"))
	check("empty nodes differ", []string{"empty node 0.58 to 0.61 us, which is part of every time above"},
		run.Circumstances{EmptyNodeUS: ptr(0.61)}, run.Circumstances{EmptyNodeUS: ptr(0.58)})
	kept := watched(100, 3, 0, "power cap")
	kept.Watched.Kept = "nobody watches the peers"
	check("kept", []string{free + "3 of 100 rounds (power cap), not set aside: nobody watches the peers"}, kept)
	check("copies", []string{"launches take 1 to 4 copies of their buffers in turns"}, run.Circumstances{Copies: 4}, run.Circumstances{Copies: 1})
	check("one copy", nil, run.Circumstances{Copies: 1})
	check("one of two is not stable", []string{"not stable: some times still moved when the warm-up came to its end"},
		run.Circumstances{}, run.Circumstances{Unstable: true})
	check("nobody watched, said once", []string{"clocks, power and heat not measured: libnvidia-ml.so.1 is not installed"},
		run.Circumstances{Unwatched: "libnvidia-ml.so.1 is not installed"}, run.Circumstances{Unwatched: "libnvidia-ml.so.1 is not installed"})
}

func TestTimingLinesOfAColdRun(t *testing.T) {
	r := &run.Run{Variant: "stage2", Performance: []run.Performance{{
		Shape: "1x8x512x64", Parts: run.Parts{WithFlushUS: ptr(54.16), FlushUS: ptr(40.02)}, Circumstances: run.Circumstances{EmptyNodeUS: ptr(0.6)},
	}}}
	want := []string{
		"1x8x512x64, stage2, L2 cold: a flush and a launch 54.16 us, less the flush alone 40.02 us",
		"empty node 0.60 us, which is part of every time above",
	}
	if diff := cmp.Diff(want, timingLines(r)); diff != "" {
		t.Error(diff)
	}
	r.Asked = run.Asked{L2: run.Cold, Shapes: []string{"1x8x512x64"}, Seeds: []uint64{0}, Samples: 5}
	if got := Command(r); got != "attune run stage2 --shapes 1x8x512x64 --seeds 0 --iters 5 --l2 cold" {
		t.Error(got)
	}
}
