package sim

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"attune/internal/finding"
	"attune/internal/sim/mem"
)

// lookback is a chain of blocks. Each publishes a value of its own, then waits for the block before
// it and reads what that has published: with flag 2 a prefix, with flag 1 the value. PUBLISH stands
// between the value and flag 1, VALUE reads the value of the block before.
const lookback = `
	setp.ne.u32 %p1, %r0, 0;
	@%p1 bra END;
	mov.u64 %rd2, flags;
	mov.u64 %rd3, values;
	mov.u64 %rd4, prefixes;
	atom.global.add.u32 %r1, [tickets], 1;
	mad.wide.u32 %rd5, %r1, 4, %rd2;
	mad.wide.u32 %rd6, %r1, 4, %rd3;
	mad.wide.u32 %rd7, %r1, 4, %rd4;
	mov.u32 %r2, 0;
	setp.eq.u32 %p2, %r1, 0;
	@%p2 bra PREFIX;
	st.global.u32 [%rd6], 1;
	PUBLISH
	st.volatile.global.u32 [%rd5], 1;
	mov.u64 %rd8, %rd5;
	mov.u64 %rd9, %rd6;
	mov.u64 %rd10, %rd7;
BEFORE:
	add.s64 %rd8, %rd8, -4;
	add.s64 %rd9, %rd9, -4;
	add.s64 %rd10, %rd10, -4;
WAIT:
	ld.volatile.global.u32 %r3, [%rd8];
	setp.eq.u32 %p3, %r3, 0;
	@%p3 bra WAIT;
	fence.acq_rel.gpu;
	setp.eq.u32 %p4, %r3, 2;
	@%p4 bra FOUND;
	ld.global.u32 %r4, [%rd9];
	VALUE
	add.u32 %r2, %r2, %r4;
	bra BEFORE;
FOUND:
	ld.global.u32 %r4, [%rd10];
	add.u32 %r2, %r2, %r4;
PREFIX:
	add.u32 %r5, %r2, 1;
	st.global.u32 [%rd7], %r5;
	fence.acq_rel.gpu;
	st.volatile.global.u32 [%rd5], 2;
	mad.wide.u32 %rd11, %r1, 4, %rd0;
	st.global.u32 [%rd11], %r5;
END:
	ret;`

const lookbackBlocks = 8

func lookbackSetup(publish, value string) setup {
	words := ".global .align 4 .u32 tickets;\n.global .align 4 .u32 flags[8];\n.global .align 4 .u32 values[8];\n.global .align 4 .u32 prefixes[8];"
	text := strings.NewReplacer("PUBLISH", publish, "VALUE", value).Replace(lookback)
	return setup{text: kernelWith(words, text), blocks: lookbackBlocks, out: lookbackBlocks}
}

// The schedules that a communicating launch gets show what blocks see of each other half-way. Under
// schedule 0 alone each block finds the prefix of the block before.
func TestSchedulesOfCommunicatingBlocks(t *testing.T) {
	t.Parallel()
	want := each(lookbackBlocks, func(i uint32) uint32 { return i + 1 })
	schedules(t, "correct", lookbackSetup("fence.acq_rel.gpu;", ""), want)

	found := func(g setup) (outputs int, kinds string) {
		t.Helper()
		seen := map[uint32]bool{}
		for g.seed = range uint64(communicatingSchedules) {
			got := simulate(t, g)
			seen[got.out[lookbackBlocks-1]] = true
			kinds += got.kinds()
		}
		return len(seen), kinds
	}
	if outputs, kinds := found(lookbackSetup("fence.acq_rel.gpu;", "add.u32 %r4, %r4, 77;")); outputs < 2 || kinds != "" {
		t.Errorf("a wrong value: %d outputs, findings %q", outputs, kinds)
	}
	if _, kinds := found(lookbackSetup("", "")); kinds != string(finding.Race) {
		t.Errorf("a missing fence: findings %q", kinds)
	}
}

// Kernels whose blocks communicate need several schedules, if they have several blocks and are short.
func TestNeededSchedules(t *testing.T) {
	t.Parallel()
	const word = ".global .align 4 .u32 g;"
	loop := "mov.u32 %r4, 0;\nL: add.u32 %r4, %r4, 1;\n setp.lt.u32 %p1, %r4, 200000;\n @%p1 bra L;\n"
	for _, c := range []struct {
		body        string
		blocks      int
		cooperative bool
		want        int
	}{
		{"st.global.u32 [%rd31], %r0;", 2, false, 1},
		{"st.global.u32 [%rd31], %r0;", 2, true, communicatingSchedules},
		{"atom.global.add.u32 %r1, [g], 1;\n st.global.u32 [%rd31], %r1;", 2, false, communicatingSchedules},
		{"atom.global.add.u32 %r1, [g], 1;\n st.global.u32 [%rd31], %r1;", 1, false, 1},
		{"atom.global.add.u32 %r1, [g], 1;\n st.global.u32 [%rd31], %r0;", 2, false, 1}, // nothing reads the result
		{"red.global.add.u32 [g], 1;", 2, false, 1},
		{"ld.volatile.global.u32 %r1, [g];", 2, false, communicatingSchedules},
		{"st.relaxed.gpu.global.u32 [g], 1;", 2, false, communicatingSchedules},
		{"ld.acquire.cta.global.u32 %r1, [g];", 2, false, 1},
		{"fence.acq_rel.gpu;", 2, false, communicatingSchedules},
		{"fence.acq_rel.cluster;", 2, false, 1},
		{loop + "ld.volatile.global.u32 %r1, [g];", 4, false, 1},
	} {
		p, err := Load(mustParse(t, kernelWith(word, c.body+"\n ret;")), "sm_90")
		if err != nil {
			t.Fatal(err)
		}
		m := mem.NewMemory()
		out := buffer(t, m, "out", 4*32*c.blocks)
		result, err := p.Run(t.Context(), m, Launch{
			Grid: [3]int{c.blocks, 1, 1}, Block: [3]int{32, 1, 1}, Cooperative: c.cooperative,
			Params: append(littleEndian(out, 8), littleEndian(out, 8)...),
		}, Options{})
		if err != nil || result.Schedules != c.want {
			t.Errorf("%q on %d blocks: %+v, %v; want %d schedules", c.body, c.blocks, result, err, c.want)
		}
	}
}

// A launch needs a second schedule if groups of warps complete one named barrier in turns: they might
// meet each other.
func TestSharedBarrierNeedsSchedules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		id   string
		want int
	}{{"1", communicatingSchedules}, {"%r2", 1}} {
		body := "shr.u32 %r2, %r0, 6;\n barrier.sync " + c.id + ", 64;\n st.global.u32 [%rd31], %r0;\n ret;"
		p, err := Load(mustParse(t, kernelWith("", body)), "sm_90")
		if err != nil {
			t.Fatal(err)
		}
		m := mem.NewMemory()
		out := buffer(t, m, "out", 4*128)
		result, err := p.Run(t.Context(), m, Launch{
			Grid: [3]int{1, 1, 1}, Block: [3]int{128, 1, 1}, Params: append(littleEndian(out, 8), littleEndian(out, 8)...),
		}, Options{})
		if err != nil || result.Schedules != c.want {
			t.Errorf("barrier %s: %+v, %v; want %d schedules", c.id, result, err, c.want)
		}
	}
}

// A launch that is ended says where its blocks were.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"alone":       "L: add.u32 %r1, %r1, 1;\n st.global.u32 [%rd31], %r1;\n bra L;",
		"interleaved": "L: add.u32 %r1, %r1, 1;\n st.volatile.global.u32 [%rd31], %r1;\n bra L;",
	} {
		p, err := Load(mustParse(t, kernel("mov.u32 %r1, 0;\n"+body)), "")
		if err != nil {
			t.Fatal(err)
		}
		m := mem.NewMemory()
		out := buffer(t, m, "out", 4096)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		result, err := p.Run(ctx, m, Launch{
			Grid: [3]int{2, 1, 1}, Block: [3]int{64, 1, 1}, Params: append(littleEndian(out, 8), littleEndian(out, 8)...),
		}, Options{Checks: true})
		cancel()
		if result == nil || result.Counters.WarpInstructions() == 0 {
			t.Errorf("%s: no instructions are counted", name)
		}
		containsAll(t, name, err, "context deadline exceeded: block [", " 0] was at warp", "at ptx:", ": running")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A loop that stores the same values again and again is endless, and is reported soon.
func TestEndlessStores(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	g := setup{text: kernel("L: xor.b32 %r1, %r1, 1;\n st.global.u32 [%rd31], %r0;\n bra L;"), threads: 128, steps: 1_000_000}
	g.text = strings.Replace(g.text, "L: xor", "mov.u32 %r1, 0;\nL: xor", 1)
	got := simulate(t, g)
	if got.kinds() != string(finding.Deadlock) || !strings.Contains(got.findings[0].Detail, "warps 0 to 3 (all lanes) at ptx:") {
		t.Errorf("%v", got.findings)
	}
}

func TestWarpsText(t *testing.T) {
	t.Parallel()
	for want, warps := range map[string][]int{
		"warp 3":                   {3},
		"warps 1 and 2":            {1, 2},
		"warps 0 to 7":             {0, 1, 2, 3, 4, 5, 6, 7},
		"warps 0 to 2, 4, 5 and 9": {0, 1, 2, 4, 5, 9},
		"warps 0 and 3 to 5":       {0, 3, 4, 5},
	} {
		if got := warpsText(warps); got != want {
			t.Errorf("%v: %q; want %q", warps, got, want)
		}
	}
}

// A cooperative grid must fit the chip: the driver refuses one that does not.
func TestCooperativeResidency(t *testing.T) {
	t.Parallel()
	launch := func(arch string, blocks, threads, shared int) error {
		p, err := Load(mustParse(t, strings.Replace(kernel("ret;"), ".target sm_89", ".target sm_70", 1)), arch)
		if err != nil {
			t.Fatal(err)
		}
		m := mem.NewMemory()
		out := buffer(t, m, "out", 4)
		_, err = p.Run(t.Context(), m, Launch{
			Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}, DynamicShared: shared, Cooperative: true,
			Params: append(littleEndian(out, 8), littleEndian(out, 8)...),
		}, Options{})
		return err
	}
	for _, c := range []struct {
		arch                    string
		blocks, threads, shared int
		want                    string // empty: it fits
	}{
		{"sm_90", 264, 1024, 0, ""},
		{"sm_90", 265, 1000, 0, "launch k: a cooperative grid of 265 blocks; at most 264 can be resident at once: 2 on each of 132 multiprocessors"},
		{"sm_90", 132, 32, 200 << 10, ""},
		{"sm_90", 133, 32, 200 << 10, "at most 132 can be resident at once: 1 on each"},
		{"sm_89", 133, 1024, 0, "24 blocks, 1536 threads and 102400 bytes of shared memory; a block has 1024 threads and 1024 bytes"},
		{"sm_86", 2113, 32, 0, "at most 2112 "},
		{"sm_80", 265, 32, 80 << 10, "at most 264 "},
	} {
		err := launch(c.arch, c.blocks, c.threads, c.shared)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A block that waits for one that starts after it depends on both being resident, which only a
// cooperative launch guarantees. Waits for earlier blocks, for a lock and with an end of their own are
// no such dependence.
func TestLaterBlock(t *testing.T) {
	t.Parallel()
	const words = ".global .align 4 .u32 flag;\n.global .align 4 .u32 ticket;\n.global .align 4 .u32 lock;"
	first := "setp.ne.u32 %p1, %r0, 0;\n @%p1 bra END;\n"
	wait := "WAIT: ld.acquire.gpu.global.u32 %r2, [flag];\n setp.lt.u32 %p2, %r2, %r10;\n @%p2 bra WAIT;\n"
	next := "add.u32 %r11, %r10, 1;\n st.release.gpu.global.u32 [flag], %r11;\nEND:"
	for _, c := range []struct {
		name, body  string
		cooperative bool
		found       bool
	}{
		{"all blocks", first + "mov.u32 %r10, %nctaid.x;\n atom.acq_rel.gpu.global.add.u32 %r3, [flag], 1;\n" + wait + "END:", false, true},
		{"all blocks of a cooperative grid", first + "mov.u32 %r10, %nctaid.x;\n atom.acq_rel.gpu.global.add.u32 %r3, [flag], 1;\n" + wait + "END:", true, false},
		{"the next block", first + "mov.u32 %r12, %nctaid.x;\n sub.u32 %r10, %r12, %r61;\n sub.u32 %r10, %r10, 1;\n" + wait + next, false, true},
		{"the block before", first + "mov.u32 %r10, %r61;\n" + wait + next, false, false},
		{"the ticket before", first + "atom.global.add.u32 %r10, [ticket], 1;\n" + wait + next, false, false},
		{
			"a bounded number of polls", first + "mov.u32 %r5, 0;\nPOLL: ld.acquire.gpu.global.u32 %r2, [flag];\n add.u32 %r5, %r5, 1;\n" +
				"setp.gt.u32 %p3, %r5, 100;\n @%p3 bra DONE;\n setp.eq.u32 %p2, %r2, 0;\n @%p2 bra POLL;\nDONE: st.release.gpu.global.u32 [flag], 1;\nEND:", false, false,
		},
		{
			"a lock", first + "L: atom.acquire.gpu.global.cas.b32 %r2, [lock], 0, 1;\n setp.ne.u32 %p2, %r2, 0;\n @%p2 bra L;\n" +
				"ld.global.u32 %r3, [flag];\n add.u32 %r3, %r3, 1;\n st.global.u32 [flag], %r3;\n st.release.gpu.global.u32 [lock], 0;\nEND:", false, false,
		},
	} {
		for _, blocks := range []int{2, 70} {
			got := simulate(t, setup{text: kernelWith(words, c.body), blocks: blocks, cooperative: c.cooperative, out: 1, writtenBefore: true})
			switch {
			case !c.found && len(got.findings) > 0:
				t.Errorf("%s, %d blocks: %v", c.name, blocks, got.findings)
			case c.found && (got.kinds() != string(finding.Deadlock) || got.findings[0].Missing != finding.CooperativeLaunch ||
				!strings.Contains(got.findings[0].Detail, "block [0 0 0] waits for a block that starts after it: ")):
				t.Errorf("%s, %d blocks: %v", c.name, blocks, got.findings)
			}
		}
	}
}
