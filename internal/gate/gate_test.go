package gate

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/measure"
	"attune/internal/oracle"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

func TestResources(t *testing.T) {
	budget := spec.Budget{Registers: 128, SharedBytes: 49152, SpillBytes: 8}
	check := func(need toolchain.Resources, want Check) {
		t.Helper()
		if diff := cmp.Diff(want, Resources(need, 128, budget)); diff != "" {
			t.Errorf("Resources(%+v) (-want +got):\n%s", need, diff)
		}
	}
	fails := func(reasons ...string) Check { return Check{Fail, reasons} }
	check(toolchain.Resources{}, Check{Status: Pass})
	check(toolchain.Resources{Registers: 128, StaticSharedBytes: 49152, SpillLoadBytes: 8}, Check{Status: Pass})
	check(toolchain.Resources{Registers: 129}, fails("129 registers per thread; the budget is 128"))
	// Dynamic shared memory counts as well as static.
	check(toolchain.Resources{StaticSharedBytes: 49152, DynamicSharedBytes: 1}, fails("49153 bytes of shared memory; the budget is 49152"))
	// Stores and loads add up.
	check(toolchain.Resources{SpillStoreBytes: 4, SpillLoadBytes: 8}, fails("12 bytes of spill; the budget is 8"))
	check(toolchain.Resources{Registers: 255, StaticSharedBytes: 99999, SpillStoreBytes: 9}, fails(
		"255 registers per thread; the budget is 128",
		"99999 bytes of shared memory; the budget is 49152",
		"9 bytes of spill; the budget is 8",
	))
}

// A block whose warps have more registers than a chip cannot be launched. A warp has them in units of
// 256.
func TestRegistersOfABlock(t *testing.T) {
	for _, c := range []struct {
		registers, threads int
		want               string
	}{
		{64, 1024, ""},
		{65, 1024, "65 registers per thread in blocks of 1024 threads: 32 warps of 2304 are 73728 registers, and a block has at most 65536; "},
		{168, 384, ""},
		{168, 385, "13 warps of 5376 are 69888 registers"},
		{168, 1024, "32 warps of 5376 are 172032 registers, and a block has at most 65536; launch smaller blocks, or limit the registers by __launch_bounds__(1024)"},
		{255, 256, ""},
		{0, 1024, ""},
	} {
		got := Resources(toolchain.Resources{Registers: c.registers}, c.threads, spec.Budget{Registers: 255})
		if (got.Status == Pass) != (c.want == "") || c.want != "" && !strings.Contains(got.Reasons[0], c.want) {
			t.Errorf("%d registers, %d threads: %v; want %q", c.registers, c.threads, got, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	limits := Limits{MaxErr: 0.01, MeanErr: 0.001, BadFraction: 0.01}
	place := oracle.Place{Batch: 1, Head: 2, Row: 3, Dim: 4}
	check := func(e oracle.Errors, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, Errors(e, limits)); diff != "" {
			t.Errorf("Errors(%+v) (-want +got):\n%s", e, diff)
		}
	}
	check(oracle.Errors{})
	check(oracle.Errors{MaxErr: 0.01, MeanErr: 0.001, BadFraction: 0.01})
	// One NaN fails, even if all other elements are right.
	check(oracle.Errors{NonFinite: 1, FirstNonFinite: &place}, "1 elements are not finite, the first at batch 1 head 2 row 3 dim 4")
	check(oracle.Errors{MaxErr: 0.011, Worst: oracle.Worst{Place: place, Got: 1.5, Want: 1.511}},
		"max_err 0.011 exceeds 0.01, at batch 1 head 2 row 3 dim 4: got 1.5, want 1.511")
	check(oracle.Errors{MeanErr: 0.0015}, "mean_err 0.0015 exceeds 0.001")
	check(oracle.Errors{BadFraction: 0.0101}, "1.01 % of the elements are bad; 1.00 % are allowed")
	if got := Errors(oracle.Errors{NonFinite: 3, FirstNonFinite: &place, MaxErr: 1, MeanErr: 1, BadFraction: 1}, limits); len(got) != 4 {
		t.Errorf("everything wrong at once gave %d reasons: %q", len(got), got)
	}
}

func TestLSE(t *testing.T) {
	limits := &LSE{MaxErr: 0.5, MeanErr: 0.1}
	place := oracle.Place{Batch: 1, Head: 2, Row: 3}
	off := oracle.LSEErrors{MaxErr: 0.5, MeanErr: 0.1}
	if got := LSEErrors(off, limits); got != nil {
		t.Errorf("at the limits: %q", got)
	}
	off = oracle.LSEErrors{MaxErr: 0.6, MeanErr: 0.2, Worst: oracle.Worst{Place: place, Got: 1.6, Want: 1}, NonFinite: 7, FirstNonFinite: &place}
	if diff := cmp.Diff([]string{
		"lse: 7 rows are not finite, or are finite instead of minus infinity, the first at batch 1 head 2 row 3",
		"lse: max_err 0.6 exceeds 0.5, at batch 1 head 2 row 3: got 1.6, want 1",
		"lse: mean_err 0.2 exceeds 0.1",
	}, LSEErrors(off, limits)); diff != "" {
		t.Error(diff)
	}
}

func TestCorrectness(t *testing.T) {
	if got := Correctness(nil); got.Status != Pass || got.Reasons != nil {
		t.Errorf("nothing wrong gave %+v", got)
	}
	if diff := cmp.Diff(Check{Fail, []string{"a", "b"}}, Correctness([]string{"a", "b"})); diff != "" {
		t.Error(diff)
	}
}

func TestPerformance(t *testing.T) {
	check := func(low, ratio, high, required float64, want Status, reason string) {
		t.Helper()
		got := Performance(measure.Speedup{Ratio: ratio, Low: low, High: high}, required, "stage1")
		if diff := cmp.Diff(Check{want, []string{reason}}, got); diff != "" {
			t.Errorf("%g (%g to %g), %g required (-want +got):\n%s", ratio, low, high, required, diff)
		}
	}
	check(1.2, 1.25, 1.3, 1.15, Pass, "1.250x stage1 (1.200 to 1.300), 1.15x required")
	check(1.15, 1.2, 1.3, 1.15, Pass, "1.200x stage1 (1.150 to 1.300), 1.15x required")
	check(1.0, 1.1, 1.14, 1.15, Fail, "1.100x stage1 (1.000 to 1.140), 1.15x required")
	check(1.1, 1.2, 1.3, 1.15, NotMeasured, "1.200x stage1 (1.100 to 1.300), 1.15x required: too close to call")
	check(1.1, 1.1, 1.15, 1.15, NotMeasured, "1.100x stage1 (1.100 to 1.150), 1.15x required: too close to call")
	// A required speedup of 1 means not slower: an interval around 1 decides nothing.
	check(0.99, 1, 1.01, 1, NotMeasured, "1.000x stage1 (0.990 to 1.010), 1.00x required: too close to call")
	// Without a required speedup the measured one is reported, whatever it is.
	check(0.4, 0.5, 0.6, 0, Pass, "0.500x stage1 (0.400 to 0.600), none required")
	// NaN decides nothing.
	nan := math.NaN()
	if got := Performance(measure.Speedup{Ratio: nan, Low: nan, High: nan}, 1, "stage1"); got.Status != NotMeasured {
		t.Errorf("a ratio of NaN gave %+v", got)
	}
}

// The profile gate asks for the unit that limits the launch, whichever it is.
func TestProfile(t *testing.T) {
	const unknown = -1
	full, small := 4.0, 0.25
	check := func(waves *float64, tensor, dram, l2 float64, want Status, reason string) {
		t.Helper()
		u := Utilisation{Waves: waves}
		for i, percent := range []float64{tensor, dram, l2} {
			unit := Unit{Name: []string{"tensor cores", "DRAM", "L2"}[i]}
			if percent != unknown {
				unit.Percent = &percent
			}
			u.Units = append(u.Units, unit)
		}
		if diff := cmp.Diff(Check{want, []string{reason}}, Profile(u)); diff != "" {
			t.Errorf("tensor cores %g, DRAM %g, L2 %g (-want +got):\n%s", tensor, dram, l2, diff)
		}
	}
	// A memory-bound kernel near the bandwidth is as fast as the memory allows.
	check(&full, 10, 90, 40, Pass, "busiest unit: DRAM at 90.0 % of its peak, 50 % required; L2 40.0 %, tensor cores 10.0 %")
	check(&full, 50, 20, 40, Pass, "busiest unit: tensor cores at 50.0 % of its peak, 50 % required; L2 40.0 %, DRAM 20.0 %")
	check(&full, 10, 20, 70, Pass, "busiest unit: L2 at 70.0 % of its peak, 50 % required; DRAM 20.0 %, tensor cores 10.0 %")
	check(&full, 49.9, 20, 40, Fail, "busiest unit: tensor cores at 49.9 % of its peak, 50 % required; L2 40.0 %, DRAM 20.0 %")
	check(nil, 12, 2, 3, Fail, "busiest unit: tensor cores at 12.0 % of its peak, 50 % required; L2 3.0 %, DRAM 2.0 %")
	check(&small, 12, 2, 3, NotMeasured, "busiest unit: tensor cores at 12.0 % of its peak, 50 % required; L2 3.0 %, DRAM 2.0 %; "+
		"the grid is 0.25 waves of blocks, too small to keep a unit busy")
	// One busy unit is enough to pass, all must be known to fail.
	check(&small, 60, unknown, unknown, Pass, "busiest unit: tensor cores at 60.0 % of its peak, 50 % required")
	check(&full, 40, unknown, 10, NotMeasured, "busiest unit: tensor cores at 40.0 % of its peak, 50 % required; L2 10.0 %; not measured: DRAM")
	check(&full, unknown, unknown, unknown, NotMeasured, "no unit was measured")
	check(&full, math.NaN(), math.NaN(), 10, NotMeasured, "busiest unit: L2 at 10.0 % of its peak, 50 % required; not measured: tensor cores, DRAM")
}

func TestUnmeasured(t *testing.T) {
	if diff := cmp.Diff(Check{NotMeasured, []string{"no GPU"}}, Unmeasured("no GPU")); diff != "" {
		t.Error(diff)
	}
}

func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		resources, correctness, performance, profile Status
		timed                                        bool
		want                                         Verdict
	}{
		{Pass, Pass, Pass, NotMeasured, true, Merge},
		{Pass, Pass, Pass, Pass, true, Merge},
		{Pass, Pass, Fail, NotMeasured, true, ValidNegative},
		{Pass, Pass, Pass, Fail, true, ValidNegative},
		{Pass, Pass, NotMeasured, NotMeasured, true, Inconclusive},
		{Pass, Pass, NotMeasured, NotMeasured, false, Unknown}, // no clock, no parent, or a sanitizer
		{Pass, NotMeasured, NotMeasured, NotMeasured, false, Unknown},
		{Pass, Fail, NotMeasured, NotMeasured, false, Incorrect},
		{Pass, Fail, NotMeasured, NotMeasured, true, Incorrect}, // a fault while it was timed
		{Pass, Fail, Pass, Pass, true, Incorrect},               // correctness decides before speed
		{Fail, NotMeasured, NotMeasured, NotMeasured, false, OverBudget},
		{Fail, Fail, Fail, Fail, true, OverBudget},
	} {
		g := Gates{Check{Status: test.resources}, Check{Status: test.correctness}, Check{Status: test.performance}, Check{Status: test.profile}}
		if got := g.Verdict(test.timed); got != test.want {
			t.Errorf("%+v gives %s, want %s", test, got, test.want)
		}
	}
}
