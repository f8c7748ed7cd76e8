package sim

import "attune/internal/ptx"

// countAccess counts a warp's access to memory: bytes, sectors and conflicts of banks.
func (w *warp) countAccess(m *memOp, space ptx.Space, mask uint32, store bool) {
	n := uint64(0)
	for l := mask; l != 0; l &= l - 1 {
		n++
	}
	bytes := n * uint64(m.bytes)
	switch space {
	case ptx.Global:
		w.count.GlobalBytes += bytes
		sectors := w.sectors(mask, m.bytes)
		if store {
			w.count.GlobalStoreRequests++
			w.count.GlobalStoreSectors += sectors
		} else {
			w.count.GlobalLoadRequests++
			w.count.GlobalLoadSectors += sectors
		}
	case ptx.Shared:
		w.count.SharedBytes += bytes
		extra := w.conflicts(mask, m.bytes)
		if store {
			w.count.SharedStores++
			w.count.SharedStoreConflicts += extra
		} else {
			w.count.SharedLoads++
			w.count.SharedLoadConflicts += extra
		}
	case ptx.Local:
		w.count.LocalBytes += bytes
	}
}

const sectorBytes = 32

// sectors counts the pieces of 32 bytes that lanes touch.
func (w *warp) sectors(mask uint32, bytes int) uint64 {
	var seen [64]uint64
	n := 0
	last := ^uint64(0)
	for l := mask; l != 0; l &= l - 1 {
		lane := firstLane(l)
		first := w.addr[lane] / sectorBytes
		for sector := first; sector <= (w.addr[lane]+uint64(bytes)-1)/sectorBytes; sector++ {
			if sector == last {
				continue
			}
			last = sector
			known := false
			for _, s := range seen[:n] {
				if s == sector {
					known = true
					break
				}
			}
			if !known && n < len(seen) {
				seen[n] = sector
				n++
			}
		}
	}
	return uint64(n)
}

// conflicts counts the passes that an access to shared memory needs beyond the least for its width. Accesses of 8 bytes go by half warps, of 16 by
// quarters; within one pass each of the 32 banks gives one word of 4 bytes.
func (w *warp) conflicts(mask uint32, bytes int) uint64 {
	lanes := 32
	switch {
	case bytes >= 16:
		lanes = 8
	case bytes == 8:
		lanes = 16
	}
	extra := uint64(0)
	for first := 0; first < 32; first += lanes {
		part := mask >> first & uint32(1<<lanes-1)
		if lanes == 32 {
			part = mask
		}
		if part == 0 {
			continue
		}
		if passes := w.passes(part, first, bytes); passes > 1 {
			extra += passes - 1
		}
	}
	return extra
}

// passes is the largest number of different words that lanes want of one bank.
func (w *warp) passes(part uint32, first, bytes int) uint64 {
	var words [32][32]uint64
	var counts [32]int
	most := 0
	for l := part; l != 0; l &= l - 1 {
		lane := first + firstLane(l)
		for word := w.addr[lane] / 4; word <= (w.addr[lane]+uint64(bytes)-1)/4; word++ {
			bank := word % 32
			known := false
			for _, have := range words[bank][:min(counts[bank], 32)] {
				if have == word {
					known = true
					break
				}
			}
			if known {
				continue
			}
			if counts[bank] < 32 {
				words[bank][counts[bank]] = word
			}
			counts[bank]++
			most = max(most, counts[bank])
		}
	}
	return uint64(most)
}
