package order

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPassesEqualSingleAccesses makes the same accesses of the async proxy in two shadows: in one as
// passes over many granules, in the other granule by granule. Both must remember the same.
func TestPassesEqualSingleAccesses(t *testing.T) {
	t.Parallel()
	const granules, warps = 12, 4
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 8))
		var passes, single Shadow
		passes.Reset(granules * Granule)
		single.Reset(granules * Granule)
		var all [warps]Warp
		for i := range all {
			all[i] = NewWarp(0, i, warps+1)
		}
		for step := range 40 {
			o := all[random.IntN(warps)].Observer(int32(random.IntN(3)), AllLanes, ^uint32(0), Async)
			o.clock.warps[random.IntN(warps)].all += uint32(random.IntN(2))
			stamp := o.Access
			stamp.Epoch = uint32(random.IntN(4) + 1)
			first := random.IntN(granules)
			count := 1 + random.IntN(granules-first)
			switch random.IntN(6) {
			case 0:
				offset := first*Granule + 4*random.IntN(4)
				passes.Write(offset, 4, &o, nil)
				single.Write(offset, 4, &o, nil)
			case 1, 2:
				stamp.Flags |= WarpRead
				readBoth(&passes, &single, &o, &stamp, first, count)
			case 3:
				settled, one := passes.NewSettled(stamp), single.NewSettled(stamp)
				for i := first; i < first+count; i++ {
					settled.Range(i*Granule, Granule)
					one.Range(i*Granule, Granule)
					one.Close()
				}
				settled.Close()
			case 4:
				stamp.Flags |= Pending
				writes := random.IntN(2) == 0
				passes.Async(first*Granule, count*Granule, &o, stamp, writes, nil)
				for i := first; i < first+count; i++ {
					single.Async(i*Granule, Granule, &o, stamp, writes, nil)
				}
			default:
				stamp.Flags |= Pending
				passes.SettleAsync(first*Granule, count*Granule, stamp, stamp.Epoch+1)
				for i := first; i < first+count; i++ {
					single.SettleAsync(i*Granule, Granule, stamp, stamp.Epoch+1)
				}
			}
			for i := range granules {
				if got, want := remembered(&passes, i), remembered(&single, i); !slices.Equal(got, want) {
					t.Fatalf("seed %d, step %d: granule %d remembers %v, and granule by granule %v", seed, step, i, got, want)
				}
			}
		}
		passes.checkHolders(t)
	}
}

func readBoth(passes, single *Shadow, o *Observer, stamp *Access, first, count int) {
	reads := passes.NewReads(o, stamp)
	for i := first; i < first+count; i++ {
		one := single.NewReads(o, stamp)
		if reads.Granule(i) != one.Granule(i) {
			panic("a pass and a single read differ")
		}
		one.Close()
	}
	reads.Close()
}

// remembered lists what a shadow remembers of a granule.
func remembered(s *Shadow, granule int) (list []use) {
	s.Each(granule*Granule, Granule, func(a *Access, lanes uint32) { list = append(list, use{Access: *a, lanes: lanes}) })
	return list
}

// checkHolders compares the holders of each table with the cells that have it.
func (s *Shadow) checkHolders(t *testing.T) {
	t.Helper()
	count := make([]int32, len(s.uses))
	note := func(c *cell) {
		if c.many != 0 {
			count[c.many-1]++
		}
	}
	for i := range s.cells {
		c := &s.cells[i]
		if !c.isApart() {
			note(c)
			continue
		}
		for j := range s.words(c) {
			note(&s.words(c)[j])
		}
	}
	if !slices.Equal(count, s.holders) {
		t.Errorf("tables have %v holders, and %v are noted", count, s.holders)
	}
}
