package sim

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/finding"
	"attune/internal/sim/count"
)

// samples are correct and incorrect kernels of many kinds.
var samples = []struct {
	name  string
	setup setup
	racy  bool // the output depends on the schedule
}{
	{name: "independent blocks", setup: setup{blocks: 23, threads: 96, text: kernelWith(sharedArray, storing(`
	mov.u32 %r2, s;
	mad.lo.u32 %r2, %r0, 4, %r2;
	st.shared.u32 [%r2], %r63;
	bar.sync 0;
	ld.shared.u32 %r3, [s+20];
	rem.u32 %r4, %r63, 7;
	mov.u32 %r1, %r3;
LOOP:
	add.u32 %r1, %r1, %r4;
	sub.u32 %r4, %r4, 1;
	setp.lt.s32 %p1, %r4, 0;
	@!%p1 bra LOOP;`))}},
	{name: "blocks that communicate", setup: setup{blocks: 13, threads: 64, text: kernelWith(".global .align 4 .u32 sum;", storing(`
	atom.global.add.u32 %r2, [sum], %r0;
	mov.u32 %r1, 0;`))}},
	{
		name: "tickets", racy: true,
		setup: setup{blocks: 9, threads: 64, text: kernelWith(".global .align 4 .u32 sum;", storing("atom.global.add.u32 %r1, [sum], 1;"))},
	},
	{name: "a race in shared memory", racy: true, setup: setup{blocks: 7, threads: 96, text: kernelWith(sharedArray, storing(`
	st.shared.u32 [s], %r0;
	mov.u32 %r5, 0;
WASTE:
	add.u32 %r5, %r5, 1;
	setp.lt.u32 %p1, %r5, %r0;
	@%p1 bra WASTE;
	ld.shared.u32 %r1, [s];`))}},
	{name: "two sides of a branch", racy: true, setup: setup{text: kernelWith(sharedArray, storing(`
	setp.lt.u32 %p1, %r0, 16;
	@%p1 bra LOW;
	st.shared.u32 [s], 1;
	bra JOIN;
LOW:
	st.shared.u32 [s], 2;
JOIN:
	ld.shared.u32 %r1, [s];`))}},
	{name: "an access outside", setup: setup{blocks: 17, threads: 64, in: make([]uint32, 64*17-3), text: kernel(storing(`
	mad.wide.u32 %rd2, %r63, 4, %rd1;
	ld.global.u32 %r1, [%rd2];`))}},
	{
		name:  "unwritten bytes",
		setup: setup{blocks: 5, text: kernelWith(sharedArray, storing("ld.shared.u32 %r1, [s+8];\n add.u32 %r1, %r0, 1;"))},
	},
	{name: "a deadlock", setup: setup{blocks: 6, threads: 64, text: kernel("setp.lt.u32 %p1, %r0, 32;\n @%p1 bar.sync 1, 64;\n ret;")}},
}

// TestDeterminism checks that a launch with the same seed has the same output, findings and
// counters, whatever the number of workers.
func TestDeterminism(t *testing.T) {
	t.Parallel()
	for _, s := range samples {
		for seed := range uint64(4) {
			g := s.setup
			g.seed, g.workers = seed, 1
			want := simulate(t, g)
			for _, workers := range []int{1, 2, 3, 8, 0} {
				g.workers = workers
				got := simulate(t, g)
				if d := cmp.Diff(want, got, cmp.AllowUnexported(outcome{}, count.Counters{})); d != "" {
					t.Fatalf("%s, seed %d: %d workers differ from one (-one +more):\n%s", s.name, seed, workers, d)
				}
			}
		}
	}
}

// TestOtherSchedules checks that seeds change the schedule. The output of racy kernels must differ
// between seeds, that of others must not. The kinds of findings are the same under all seeds.
func TestOtherSchedules(t *testing.T) {
	t.Parallel()
	const seeds = 8
	for _, s := range samples {
		outputs := map[string]bool{}
		kinds := map[string]bool{}
		for seed := range uint64(seeds) {
			g := s.setup
			g.seed = seed
			got := simulate(t, g)
			outputs[fmt.Sprint(got.out)] = true
			kinds[got.kinds()] = true
		}
		if len(kinds) != 1 {
			t.Errorf("%s: the findings depend on the schedule: %v", s.name, kinds)
		}
		if s.racy != (len(outputs) > 1) {
			t.Errorf("%s: %d outputs in %d schedules, racy is %v", s.name, len(outputs), seeds, s.racy)
		}
	}
}

// TestSharedAddress checks that a seed changes the address of shared memory, within the alignment
// of its variables.
func TestSharedAddress(t *testing.T) {
	t.Parallel()
	places := map[int]map[uint32]bool{16: {}, 128: {}, 1024: {}}
	for align, seen := range places {
		for seed := range uint64(20) {
			text := kernelWith(fmt.Sprintf(".shared .align %d .b8 s[32];", align), storing("mov.u32 %r1, s;"))
			at := simulate(t, setup{text: text, seed: seed}).out[0]
			if at%uint32(align) != 0 || at < 1024 {
				t.Errorf("alignment %d, seed %d: shared memory begins at %d", align, seed, at)
			}
			seen[at] = true
		}
	}
	if len(places[16]) < 10 || len(places[128]) < 3 || len(places[1024]) > 2 {
		t.Errorf("places by alignment: %v", places)
	}
}

// TestFindingsOfBlocks checks that a finding has the message of the lowest block and the count of
// all blocks.
func TestFindingsOfBlocks(t *testing.T) {
	t.Parallel()
	text := kernel("setp.lt.u32 %p1, %r61, 3;\n @%p1 bra END;\n st.global.u32 [%rd0+-4], %r0;\nEND:\n ret;")
	for seed := range uint64(5) {
		got := simulate(t, setup{text: text, blocks: 20, threads: 1, seed: seed})
		if len(got.findings) != 1 || got.findings[0].Count != 17 {
			t.Fatalf("findings %v", got.findings)
		}
		f := got.findings[0]
		want := finding.Place{PTXLine: 22, PTX: "st.global.u32 [%rd0+-4], %r0"}
		if !reflect.DeepEqual(f.Where, want) || f.Other != nil || f.Where.String() != "ptx:22" {
			t.Errorf("the finding is at %v", f.Where)
		}
		if want := "thread 0 of block [3 0 0]: writes 4 bytes"; len(f.Detail) < len(want) || f.Detail[:len(want)] != want {
			t.Errorf("the detail %q does not begin with %q", f.Detail, want)
		}
	}
}

// TestSourceLines checks that places have the source line if the PTX has it, and that findings of
// one pair of source lines are merged.
func TestSourceLines(t *testing.T) {
	t.Parallel()
	text := kernelWith(`.file 1 "/src/kernel.cu"
.file 2 "/src/helper.cuh"
`, `
	.loc 1 10 0
	st.global.u32 [%rd0+-4], %r0;
	st.global.u32 [%rd0+-8], %r0;
	.loc 2 5 1, function_name $L__info0, inlined_at 1 20 3
	st.global.u32 [%rd0+-4], %r0;
	ret;`) + ".section .debug_str {\n$L__info0:\n.b8 102,0\n}\n"
	got := simulate(t, setup{text: text, threads: 1})
	var list []string
	for _, f := range got.findings {
		list = append(list, fmt.Sprintf("%s %d", f.Where, f.Count))
	}
	if want := []string{"/src/kernel.cu:10 (ptx:24) 2", "/src/helper.cuh:5 (ptx:27, called from /src/kernel.cu:20) 1"}; !slices.Equal(list, want) {
		t.Errorf("findings %q, want %q", list, want)
	}
	keys := map[string]bool{}
	for _, f := range got.findings {
		keys[f.Key()] = true
	}
	if len(keys) != 2 {
		t.Errorf("the keys are %v", keys)
	}
	if (finding.Place{}).String() != "" {
		t.Error("the empty place has a name")
	}
}
