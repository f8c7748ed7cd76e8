package sim

import (
	"strings"
	"testing"

	"attune/internal/finding"
	"attune/internal/ptx"
)

// TestSetmaxnreg has one warpgroup release registers and the other take them. The block has no more
// registers than at launch.
func TestSetmaxnreg(t *testing.T) {
	t.Parallel()
	check := func(limits, give, take string, stuck bool) {
		t.Helper()
		body := "setp.lt.u32 %p1, %r0, 128;\n @%p1 bra GIVE;\n" + take + "bra.uni END;\nGIVE:\n" + give + "END:\n ret;"
		text := strings.Replace(kernelWith("", body), ")\n{", ")\n"+limits+"\n{", 1)
		if !strings.Contains(text, limits) {
			t.Fatalf("the kernel does not have %s:\n%s", limits, text)
		}
		for seed := range uint64(4) {
			got := simulate(t, setup{text: text, threads: 256, arch: "sm_90a", seed: seed})
			if stuck != (len(got.findings) == 1 && got.findings[0].Kind == finding.Deadlock) || !stuck && len(got.findings) > 0 {
				t.Errorf("%s, %s, %s, seed %d: findings %v", limits, give, take, seed, got.findings)
			}
			if stuck && !strings.Contains(got.findings[0].Detail, "more registers than other warps have released") {
				t.Errorf("the message does not name the missing registers: %v", got.findings[0])
			}
		}
	}
	const (
		give40, give48 = "setmaxnreg.dec.sync.aligned.u32 40;\n", "setmaxnreg.dec.sync.aligned.u32 48;\n"
		take216        = "setmaxnreg.inc.sync.aligned.u32 216;\n"
		take224        = "setmaxnreg.inc.sync.aligned.u32 224;\n"
	)
	for _, limits := range []string{".maxnreg 128", ".maxntid 256, 1, 1\n.minnctapersm 2"} {
		check(limits, give40, take216, false)
		check(limits, give40, take224, true)
		check(limits, give48, take216, true)
		check(limits, "", take216, true)
		check(limits, give40, "", false)
	}
	check(".maxntid 256, 1, 1", "", take216, false) // the number of registers is unknown
}

// TestSetmaxnregPlaces has the warps of a warpgroup execute setmaxnreg at different places of the
// code. The counts must agree.
func TestSetmaxnregPlaces(t *testing.T) {
	t.Parallel()
	body := func(one, other string) string {
		return "setp.lt.u32 %p1, %r0, 32;\n @%p1 bra FIRST;\n" + one + "bra.uni END;\nFIRST:\n" + other + "END:\n"
	}
	const dec40, dec48 = "setmaxnreg.dec.sync.aligned.u32 40;\n", "setmaxnreg.dec.sync.aligned.u32 48;\n"
	defect{
		name: "different counts", kind: finding.DivergentBarrier, setup: setup{threads: 128, arch: "sm_90a"},
		wrong: body(dec40, dec48), right: body(dec40, dec40), at: "*", with: "*", contains: []string{"another warp executes a different one"},
	}.check(t)
}

func TestRegistersAtLaunch(t *testing.T) {
	for _, c := range []struct {
		f    ptx.Function
		want int
	}{
		{ptx.Function{}, 0},
		{ptx.Function{MaxRegisters: 152, MaxThreads: [3]int{384}, MinBlocks: 1}, 152},
		{ptx.Function{MaxThreads: [3]int{384, 1, 1}, MinBlocks: 1}, 168},
		{ptx.Function{MaxThreads: [3]int{32, 4, 2}, MinBlocks: 2}, 128},
		{ptx.Function{MaxThreads: [3]int{128}, MinBlocks: 1}, 255},
		{ptx.Function{MaxThreads: [3]int{128}}, 0},
	} {
		if got := registersAtLaunch(&c.f); got != c.want {
			t.Errorf("%+v: %d registers, want %d", c.f, got, c.want)
		}
	}
}
