package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"attune/internal/finding"
)

// weakOutputs are the different outputs of a kernel without findings under all schedules but the first.
func weakOutputs(t *testing.T, g setup, seeds uint64) (all [][]uint32, stale *finding.Finding) {
	t.Helper()
	for g.seed = 1; g.seed <= seeds; g.seed++ {
		got := simulate(t, g)
		if len(got.findings) > 0 {
			t.Fatalf("seed %d: %v\n%s", g.seed, got.findings, numbered(g.text))
		}
		if !slices.ContainsFunc(all, func(one []uint32) bool { return slices.Equal(one, got.out) }) {
			all = append(all, got.out)
		}
		if stale == nil {
			stale = got.stale
		}
	}
	return all, stale
}

// Data that is written and read by relaxed accesses does not race, but arrives with the flag only if the
// writer releases and the reader acquires.
func TestWeakMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	for _, access := range [][2]string{{"st.relaxed.gpu.global", "ld.relaxed.gpu.global"}, {"st.volatile.global", "ld.volatile.global"}} {
		messages(access[0], access[1], func(name string, g setup, ordered bool) {
			all, stale := weakOutputs(t, g, 6)
			old := slices.ContainsFunc(all, func(out []uint32) bool { return out[0] != 41 })
			if old == ordered {
				t.Errorf("%s: outputs %v, ordered is %v", name, all, ordered)
			}
			if old && (stale == nil || stale.Missing != finding.DeviceFence || !strings.Contains(stale.Where.PTX, "[data]") || !strings.Contains(stale.Other.PTX, "[data]")) {
				t.Errorf("%s: %v explains the old value", name, stale)
			}
			g.seed = 0
			if got := simulate(t, g); got.out[0] != 41 {
				t.Errorf("%s: the first schedule gives %v", name, got.out)
			}
		})
	}
}

// twoBlocks is a kernel in which the first threads of two blocks run code of their own.
func twoBlocks(first, second string) setup {
	return setup{blocks: 2, out: 4, writtenBefore: true, text: kernelWith(".global .align 4 .u32 x;\n.global .align 4 .u32 y;", fmt.Sprintf(`
	setp.ne.u32 %%p1, %%r0, 0;
	@%%p1 bra END;
	setp.eq.u32 %%p2, %%r63, 0;
	@!%%p2 bra SECOND;
	%s
	bra END;
SECOND:
	%s
END:
	ret;`, first, second))}
}

// Outcomes that PTX forbids do not appear, whatever is stale; those that it allows may.
func TestWeakLitmus(t *testing.T) {
	t.Parallel()
	const (
		storeX, storeY = "st.relaxed.gpu.global.u32 [x], 1;\n", "st.relaxed.gpu.global.u32 [y], 1;\n"
		loadX, loadY   = "ld.relaxed.gpu.global.u32 %r1, [x];\n st.global.u32 [%rd0], %r1;\n", "ld.relaxed.gpu.global.u32 %r1, [y];\n st.global.u32 [%rd0+4], %r1;\n"
		fence          = "fence.sc.gpu;\n"
	)
	for _, c := range []struct {
		name          string
		first, second string
		out           []uint32
		allowed       bool
	}{
		{"store buffering", storeX + loadY, storeY + loadX, []uint32{0, 0, 0, 0}, true},
		{"store buffering with fences", storeX + fence + loadY, storeY + fence + loadX, []uint32{0, 0, 0, 0}, false},
		{"store buffering with one fence", storeX + loadY, storeY + fence + loadX, []uint32{0, 0, 0, 0}, true},
		{
			"two reads of one address", storeX,
			loadX + "ld.relaxed.gpu.global.u32 %r2, [x];\n st.global.u32 [%rd0+4], %r2;\n",
			[]uint32{1, 0, 0, 0},
			false,
		},
		{
			"a read after an atomic operation", "atom.relaxed.gpu.global.add.u32 %r1, [x], 1;\n",
			"atom.relaxed.gpu.global.add.u32 %r2, [x], 0;\n st.global.u32 [%rd0+4], %r2;\n" + loadX,
			[]uint32{0, 1, 0, 0},
			false,
		},
		{
			"a read of the low half after one of both", "st.relaxed.gpu.global.u32 [x], 1;\n",
			"ld.relaxed.gpu.global.u8 %r2, [x];\n st.global.u32 [%rd0+4], %r2;\n" + loadX,
			[]uint32{0, 1, 0, 0},
			false,
		},
		{"a thread reads its own write", storeX + loadX, "atom.relaxed.gpu.global.add.u32 %r2, [y], 1;\n", []uint32{0, 0, 0, 0}, false},
	} {
		all, _ := weakOutputs(t, twoBlocks(c.first, c.second), 24)
		if found := slices.ContainsFunc(all, func(out []uint32) bool { return slices.Equal(out, c.out) }); found != c.allowed {
			t.Errorf("%s: outputs %v; %v is allowed: %v", c.name, all, c.out, c.allowed)
		}
	}
}

// A loop that waits for a value sees it after a few loads, and no thread counts as stuck meanwhile.
func TestWeakPollEnds(t *testing.T) {
	t.Parallel()
	g := twoBlocks("st.volatile.global.u32 [x], 7;", `
POLL:
	ld.volatile.global.u32 %r1, [x];
	setp.eq.u32 %p3, %r1, 0;
	@%p3 bra POLL;
	st.global.u32 [%rd0], %r1;`)
	schedules(t, "poll", g, []uint32{7, 0, 0, 0})
}

// The number of writes that are remembered is bounded.
func TestWeakWritesAreBounded(t *testing.T) {
	t.Parallel()
	k := &weakMemory{}
	k.forget()
	w := &warp{block: &block{launch: &launch{weak: k}}}
	o := &op{mem: &memOp{strong: true}}
	for i := range uint64(2*maxWeakWrites + 5) {
		w.overwrite(o, 64*i, 0, []byte{0}, []byte{1})
	}
	if k.count > maxWeakWrites || len(k.writes) > maxWeakWrites || len(k.block(0).unfenced[0]) > maxWeakWrites {
		t.Errorf("%d writes of %d", len(k.writes), k.count)
	}
}
