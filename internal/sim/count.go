package sim

import (
	"math/bits"

	"attune/internal/ptx"
)

// countAccess counts a warp's access to memory: bytes, sectors and conflicts of banks. An instruction with no lane makes no request.
func (w *warp) countAccess(m *memOp, space ptx.Space, mask uint32, d direction) {
	if mask == 0 {
		return
	}
	n := uint64(bits.OnesCount32(mask)) * uint64(m.bytes)
	switch space {
	case ptx.Global:
		w.count.GlobalBytes += n
		w.globalCounter(d).add(Sectors{1, w.sectors(mask, m.bytes)})
	case ptx.Shared:
		w.count.SharedBytes += n
		b, merged := w.merged(mask, m.bytes)
		if d != reading || !merged {
			b = w.banks(mask, m.bytes)
		}
		w.sharedCounter(d).add(b)
	case ptx.Local:
		w.count.LocalBytes += n
	}
}

func (w *warp) globalCounter(d direction) *Sectors {
	return [...]*Sectors{reading: &w.count.GlobalLoads, writing: &w.count.GlobalStores, updating: &w.count.GlobalAtomics}[d]
}

func (w *warp) sharedCounter(d direction) *Banks {
	return [...]*Banks{reading: &w.count.SharedLoads, writing: &w.count.SharedStores, updating: &w.count.SharedAtomics}[d]
}

// countMatrixRows counts an access by rows of 16 bytes, as ldmatrix and stmatrix make it. The first lanes hold the rows' addresses, and eight of them
// are a matrix, which is a pass of its own.
func (w *warp) countMatrixRows(rows int, d direction) {
	w.count.SharedBytes += uint64(rows) * matrixRowBytes
	b := w.banks(rowMask(rows), matrixRowBytes)
	w.sharedCounter(d).add(b)
	if d == reading {
		w.count.MatrixLoads.add(b)
	}
}

// countCopy counts a cp.async: as a load of the lanes that read anything, and as writes of all of them to shared memory.
func (w *warp) countCopy(o *op, to *[32]uint64, mask, readers uint32) {
	cp := &o.sync.copy
	n := uint64(cp.size)
	w.count.GlobalBytes += uint64(bits.OnesCount32(readers)) * n
	counter := &w.count.CachedCopies
	if cp.bypass {
		counter = &w.count.BypassCopies
	}
	counter.add(Sectors{1, w.sectors(readers, cp.size)})
	b := Banks{Requests: 1}
	for part := range phases(mask, cp.size) {
		n := max(separatePasses(&w.addr, part&readers, cp.size), separatePasses(to, part, cp.size))
		b.Wavefronts += n
		b.Conflicts += n - 1
	}
	w.count.SharedCopies.add(b)
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

// countBulk counts the sectors of a piece of a bulk copy, without the one in which the piece before has ended, and gives the one in which this one
// ends.
func countBulk(counter *uint64, p *bulkPiece, before uint64) uint64 {
	first, last := p.global/sectorBytes, (p.global+uint64(p.size)-1)/sectorBytes
	n := last - first + 1
	if first == before {
		n--
	}
	*counter += n * sectorBytes
	return last
}

// banks counts an access to shared memory. It takes a pass for each of its phases, and more where lanes of a phase want different words of one bank.
func (w *warp) banks(mask uint32, bytes int) Banks {
	b := Banks{Requests: 1}
	for part := range phases(mask, bytes) {
		n := w.passes(part, bytes)
		b.Wavefronts += n
		b.Conflicts += n - 1
	}
	return b
}

// merged counts a load of 8 or 16 bytes a lane whose phases are served two at a time. They are where every lane has the same address as its
// neighbour, or as the next but one, and where no bank then has to give two words. Stores never are.
func (w *warp) merged(mask uint32, bytes int) (Banks, bool) {
	b := Banks{Requests: 1}
	if bytes != 8 && bytes != 16 || !w.inPairs(mask, 1) && !w.inPairs(mask, 2) {
		return b, false
	}
	for part := range phases(mask, bytes/2) {
		if w.passes(part, bytes) > 1 {
			return b, false
		}
		b.Wavefronts++
	}
	return b, true
}

// inPairs says whether each lane has the same address as the one whose number differs in one bit, as far as that one takes part.
func (w *warp) inPairs(mask uint32, bit int) bool {
	for l := mask; l != 0; l &= l - 1 {
		lane := firstLane(l)
		if other := lane ^ bit; mask>>other&1 != 0 && w.addr[lane] != w.addr[other] {
			return false
		}
	}
	return true
}

// phases are the lanes that are served together: all of them for up to 4 bytes, half a warp for 8, a quarter for 16. Those without a lane take no
// pass.
func phases(mask uint32, bytes int) func(func(uint32) bool) {
	lanes := 32
	switch {
	case bytes >= 16:
		lanes = 8
	case bytes == 8:
		lanes = 16
	}
	together := uint32(1<<lanes - 1)
	return func(yield func(uint32) bool) {
		for first := 0; first < 32; first += lanes {
			if part := mask & (together << first); part != 0 && !yield(part) {
				return
			}
		}
	}
}

const banks = 32

// passes is the largest number of different words that lanes want of one bank. Each of the 32 banks gives one word of 4 bytes in a pass, to all who
// want it.
func (w *warp) passes(part uint32, bytes int) uint64 {
	var words [banks]uint64 // different ones
	var count [banks]uint8  // of a bank
	n, most := 0, uint8(1)
	for l := part; l != 0; l &= l - 1 {
		address := w.addr[firstLane(l)]
	next:
		for word := address / 4; word <= (address+uint64(bytes)-1)/4; word++ {
			if count[word%banks] > 0 {
				for _, have := range words[:n] {
					if have == word {
						continue next
					}
				}
			}
			if n < banks {
				words[n] = word
				n++
			}
			count[word%banks]++
			most = max(most, count[word%banks])
		}
	}
	return uint64(most)
}

// separatePasses is the same for lanes that share nothing: copies of one word are done one by one.
func separatePasses(addr *[32]uint64, part uint32, bytes int) uint64 {
	var count [banks]uint8
	most := uint8(0)
	for l := part; l != 0; l &= l - 1 {
		address := addr[firstLane(l)]
		for word := address / 4; word <= (address+uint64(bytes)-1)/4; word++ {
			count[word%banks]++
			most = max(most, count[word%banks])
		}
	}
	return uint64(most)
}
