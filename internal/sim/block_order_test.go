package sim

import (
	"slices"
	"testing"
)

// Every schedule starts every block once: schedule 0 in the order of the indices, schedule 1 in
// reverse, the others in orders of their own.
func TestBlockOrder(t *testing.T) {
	t.Parallel()
	for _, total := range []uint64{1, 2, 3, 8, 17, 64, 1000} {
		seen := map[string]bool{}
		for seed := range uint64(8) {
			o := newBlockOrder(seed, total)
			var order, sorted []uint64
			for n := range total {
				order, sorted = append(order, o.at(n)), append(sorted, n)
			}
			key := make([]byte, 0, 2*len(order))
			for _, n := range order {
				key = append(key, byte(n>>8), byte(n))
			}
			seen[string(key)] = true
			if seed == 0 && !slices.Equal(order, sorted) {
				t.Errorf("%d blocks, seed 0: %v", total, order)
			}
			if seed == 1 && (order[0] != total-1 || order[total-1] != 0) {
				t.Errorf("%d blocks, seed 1: %v", total, order)
			}
			slices.Sort(order)
			if !slices.Equal(order, sorted) {
				t.Errorf("%d blocks, seed %d: no permutation: %v", total, seed, order)
			}
		}
		if total >= 8 && len(seen) != 8 {
			t.Errorf("%d blocks: %d orders in 8 schedules", total, len(seen))
		}
	}
}

// The order in which blocks draw tickets differs between schedules, and each schedule repeats.
func TestBlockSchedules(t *testing.T) {
	t.Parallel()
	text := kernelWith(".global .align 4 .u32 tickets;", `
	setp.ne.u32 %p1, %r0, 0;
	@%p1 ret;
	atom.global.add.u32 %r1, [tickets], 1;
	mad.wide.u32 %rd2, %r1, 4, %rd0;
	st.global.u32 [%rd2], %r61;
	ret;`)
	outputs := map[string]bool{}
	for seed := range uint64(4) {
		g := setup{text: text, blocks: 8, out: 8, seed: seed}
		one, two := simulate(t, g), simulate(t, g)
		if !slices.Equal(one.out, two.out) || len(one.findings) > 0 {
			t.Errorf("seed %d: %v, then %v; %v", seed, one.out, two.out, one.findings)
		}
		key := ""
		for _, block := range one.out {
			key += string(rune('0' + block))
		}
		outputs[key] = true
		if want := map[uint64]string{0: "01234567", 1: "76543210"}[seed]; want != "" && key != want {
			t.Errorf("seed %d: blocks %s, want %s", seed, key, want)
		}
	}
	if len(outputs) != 4 {
		t.Errorf("%d orders in 4 schedules: %v", len(outputs), outputs)
	}
}

// A sample has the corners of the grid, no block twice, and no more blocks than it should.
func TestSampledBlocks(t *testing.T) {
	for _, c := range []struct {
		grid    [3]int
		n       int
		corners []uint64
	}{
		{[3]int{1000, 1, 1}, 24, []uint64{0, 999}},
		{[3]int{10, 7, 3}, 24, []uint64{0, 9, 60, 69, 140, 149, 200, 209}},
		{[3]int{25, 1, 1}, 24, []uint64{0, 24}},
		{[3]int{1000, 1, 1}, 1, []uint64{999}},
	} {
		r := &launch{grid: c.grid}
		total := uint64(c.grid[0] * c.grid[1] * c.grid[2])
		at := r.sample(total, c.n)
		seen := map[uint64]bool{}
		for n := range uint64(c.n) {
			seen[at(n)] = true
			if at(n) >= total {
				t.Errorf("%v: block %d", c.grid, at(n))
			}
		}
		for _, corner := range c.corners {
			if !seen[corner] {
				t.Errorf("%v: block %d is not among %v", c.grid, corner, seen)
			}
		}
		if len(seen) != c.n {
			t.Errorf("%v: %d blocks, want %d", c.grid, len(seen), c.n)
		}
	}
}
