package count

import (
	"math/bits"

	"attune/internal/ptx"
	"attune/internal/sim/mem"
)

// Access counts a warp's access to memory: bytes, sectors and bank conflicts. addr has the address
// of each lane of the mask, and bytes is the width of a lane's access. An instruction with no lane
// makes no request.
func (c *Counters) Access(addr *[32]uint64, space ptx.Space, mask uint32, bytes int, d mem.Direction) {
	if mask == 0 {
		return
	}
	n := uint64(bits.OnesCount32(mask)) * uint64(bytes)
	switch space {
	case ptx.Global:
		c.GlobalBytes += n
		c.global(d).add(Sectors{1, sectors(addr, mask, bytes)})
	case ptx.Shared:
		c.SharedBytes += n
		b, merged := mergedPhases(addr, mask, bytes)
		if d != mem.Read || !merged {
			b = banksOf(addr, mask, bytes)
		}
		c.shared(d).add(b)
	case ptx.Local:
		c.LocalBytes += n
	}
}

func (c *Counters) global(d mem.Direction) *Sectors {
	return [...]*Sectors{mem.Read: &c.GlobalLoads, mem.Write: &c.GlobalStores, mem.Update: &c.GlobalAtomics}[d]
}

func (c *Counters) shared(d mem.Direction) *Banks {
	return [...]*Banks{mem.Read: &c.SharedLoads, mem.Write: &c.SharedStores, mem.Update: &c.SharedAtomics}[d]
}

// MatrixRowBytes is the size of a row of ldmatrix and stmatrix.
const MatrixRowBytes = 16

// MatrixRows counts an access by rows of 16 bytes, as ldmatrix and stmatrix make it. The first
// lanes have the rows' addresses. Eight rows are a matrix, which takes a pass of its own.
func (c *Counters) MatrixRows(addr *[32]uint64, rows int, d mem.Direction) {
	c.SharedBytes += uint64(rows) * MatrixRowBytes
	b := banksOf(addr, uint32(1<<rows-1), MatrixRowBytes)
	c.shared(d).add(b)
	if d == mem.Read {
		c.MatrixLoads.add(b)
	}
}

// Copy counts a cp.async: a load of the lanes that read anything (readers), and a write of all
// lanes of the mask to shared memory. bypass is for .cg, which bypasses L1.
func (c *Counters) Copy(from, to *[32]uint64, mask, readers uint32, bytes int, bypass bool) {
	c.GlobalBytes += uint64(bits.OnesCount32(readers)) * uint64(bytes)
	counter := &c.CachedCopies
	if bypass {
		counter = &c.BypassCopies
	}
	counter.add(Sectors{1, sectors(from, readers, bytes)})
	b := Banks{Requests: 1}
	for part := range phases(mask, bytes) {
		n := max(separatePasses(from, part&readers, bytes), separatePasses(to, part, bytes))
		b.Wavefronts += n
		b.Conflicts += n - 1
	}
	c.SharedCopies.add(b)
}

const sectorBytes = 32

// sectors counts the 32-byte sectors that lanes touch.
func sectors(addr *[32]uint64, mask uint32, bytes int) uint64 {
	var seen [64]uint64
	n := 0
	last := ^uint64(0)
	for l := mask; l != 0; l &= l - 1 {
		address := addr[bits.TrailingZeros32(l)&31]
		for sector := address / sectorBytes; sector <= (address+uint64(bytes)-1)/sectorBytes; sector++ {
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

// AddBulk adds the bytes of the sectors that a piece of a bulk copy touches to a counter, and
// returns the last sector. The sector that the previous piece ended in is not counted again.
func AddBulk(counter *uint64, address uint64, size int, previous uint64) (last uint64) {
	first, last := address/sectorBytes, (address+uint64(size)-1)/sectorBytes
	n := last - first + 1
	if first == previous {
		n--
	}
	*counter += n * sectorBytes
	return last
}

// banksOf counts an access to shared memory. It takes one pass for each of its phases, and more
// where lanes of a phase access different words of one bank.
func banksOf(addr *[32]uint64, mask uint32, bytes int) Banks {
	b := Banks{Requests: 1}
	for part := range phases(mask, bytes) {
		n := passes(addr, part, bytes)
		b.Wavefronts += n
		b.Conflicts += n - 1
	}
	return b
}

// mergedPhases counts a load of 8 or 16 bytes per lane whose phases are served two at a time. The
// condition is that every lane has the address of its neighbour, or of the neighbour at distance
// two, and that no bank then has to deliver two words. Stores are never merged.
func mergedPhases(addr *[32]uint64, mask uint32, bytes int) (Banks, bool) {
	b := Banks{Requests: 1}
	if bytes != 8 && bytes != 16 || !inPairs(addr, mask, 1) && !inPairs(addr, mask, 2) {
		return b, false
	}
	for part := range phases(mask, bytes/2) {
		if passes(addr, part, bytes) > 1 {
			return b, false
		}
		b.Wavefronts++
	}
	return b, true
}

// inPairs reports whether each lane has the same address as the lane whose number differs in one
// bit, if that lane takes part.
func inPairs(addr *[32]uint64, mask uint32, bit int) bool {
	for l := mask; l != 0; l &= l - 1 {
		lane := bits.TrailingZeros32(l) & 31
		if other := (lane ^ bit) & 31; mask>>other&1 != 0 && addr[lane] != addr[other] {
			return false
		}
	}
	return true
}

// phases yields the lanes that are served together: the whole warp for up to 4 bytes per lane, half
// of it for 8 bytes, a quarter for 16 bytes. A phase without a lane takes no pass.
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

// passes returns the largest number of different words that lanes access in one bank. In one pass
// each of the 32 banks delivers one 4-byte word, to every lane that accesses it.
func passes(addr *[32]uint64, part uint32, bytes int) uint64 {
	if inOtherBanks(addr, part, bytes) {
		return 1
	}
	var words [banks]uint64 // different ones
	var count [banks]uint8  // words of each bank
	n, most := 0, uint8(1)
	for l := part; l != 0; l &= l - 1 {
		address := addr[bits.TrailingZeros32(l)&31]
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

// inOtherBanks reports whether no two lanes access the same bank, by a short check of aligned words.
func inOtherBanks(addr *[32]uint64, part uint32, bytes int) bool {
	if bytes != 4 && bytes != 8 && bytes != 16 {
		return false
	}
	seen, words := uint32(0), uint32(1)<<(bytes/4)-1
	for l := part; l != 0; l &= l - 1 {
		address := addr[bits.TrailingZeros32(l)&31]
		own := words << (address / 4 % banks)
		if address&uint64(bytes-1) != 0 || seen&own != 0 {
			return false
		}
		seen |= own
	}
	return true
}

// separatePasses is passes for lanes that share nothing: copies of one word are made one by one.
func separatePasses(addr *[32]uint64, part uint32, bytes int) uint64 {
	var count [banks]uint8
	most := uint8(0)
	for l := part; l != 0; l &= l - 1 {
		address := addr[bits.TrailingZeros32(l)&31]
		for word := address / 4; word <= (address+uint64(bytes)-1)/4; word++ {
			count[word%banks]++
			most = max(most, count[word%banks])
		}
	}
	return uint64(most)
}
