package order

import (
	"math/rand/v2"
	"testing"
)

// TestInOrder makes random accesses, barriers and warp barriers, and compares the short check of an
// access with the full one: both find a race, or neither does, and they find it at the same byte.
func TestInOrder(t *testing.T) {
	t.Parallel()
	const warps, bytes = 3, 64
	random := rand.New(rand.NewPCG(3, 9))
	for range 300 {
		var short, full Shadow
		short.Reset(bytes)
		full.Reset(bytes)
		var list [warps]Warp
		for i := range list {
			list[i] = NewWarp(0, i, warps)
		}
		for step := range 200 {
			switch random.IntN(12) {
			case 0:
				all := NewClock(warps)
				for i := range list {
					list[i].Publish(&all, ^uint32(0), ^uint32(0))
				}
				for i := range list {
					list[i].Reunite()
					list[i].Learn(&all, ^uint32(0), ^uint32(0))
				}
			case 1:
				list[random.IntN(warps)].Sync(^uint32(0), ^uint32(0))
			default:
				size := 1 << random.IntN(5)
				lane, offset := uint8(random.IntN(6)), random.IntN(bytes/size)*size
				if random.IntN(4) == 0 {
					lane = AllLanes
				}
				flags := []Flags{Present, Present, Present | WarpWide, Present | Strong}[random.IntN(4)]
				o := list[random.IntN(warps)].Observer(int32(random.IntN(2)), lane, ^uint32(0), flags)
				var a, b Conflict
				var races, wants bool
				switch {
				case size == Granule && lane < AllLanes && flags == Present && random.IntN(3) == 0:
					a, races = short.pair(offset, &o, true)
					b, wants = full.pair(offset, &o, false)
				case size == Granule && lane < AllLanes && flags == Present:
					writes := random.IntN(3) == 0
					a, races = short.four(offset, &o, writes, true)
					b, wants = full.four(offset, &o, writes, false)
				case random.IntN(3) > 0:
					a, races = short.Read(offset, size, &o)
					b, wants = full.checkRead(offset, size, &o)
				default:
					a, races = short.Write(offset, size, &o, nil)
					b, wants = full.checkWrite(offset, size, &o, nil)
				}
				if races != wants || a != b {
					t.Fatalf("step %d: the short check finds %v %v, the full one %v %v", step, races, a, wants, b)
				}
			}
		}
	}
}

// TestAsyncInOrder is TestInOrder for accesses of bulk copies among those of threads: the result of the
// short check is that of the full one.
func TestAsyncInOrder(t *testing.T) {
	t.Parallel()
	const warps, agent, bytes = 3, 3, 128
	everyLane := ^uint32(0)
	random := rand.New(rand.NewPCG(5, 1))
	found := 0
	for range 300 {
		var short, full Shadow
		short.Reset(bytes)
		full.Reset(bytes)
		var list [warps]Warp
		for i := range list {
			list[i] = NewWarp(0, i, warps+1)
		}
		epochs := [2]uint32{1, 1} // of the agent, by lane
		for step := range 200 {
			w := &list[random.IntN(warps)]
			lane := uint8(random.IntN(3))
			plain := w.Observer(int32(random.IntN(2)), lane, everyLane, Present)
			switch random.IntN(8) {
			case 0: // a barrier
				all := NewClock(warps + 1)
				for i := range list {
					list[i].Publish(&all, everyLane, everyLane)
				}
				for i := range list {
					list[i].Reunite()
					list[i].Learn(&all, everyLane, everyLane)
				}
			case 1: // copies land
				landed, l := NewClock(warps+1), random.IntN(2)
				landed.JoinLanes(agent, 1<<l, epochs[l])
				epochs[l]++
				w.Learn(&landed, everyLane, everyLane)
			case 2:
				w.FenceProxy(everyLane, everyLane)
			case 3, 4:
				offset := random.IntN(bytes/4) * 4
				if random.IntN(2) == 0 {
					short.Read(offset, 4, &plain)
					full.checkRead(offset, 4, &plain)
				} else {
					short.Write(offset, 4, &plain, nil)
					full.checkWrite(offset, 4, &plain, nil)
				}
			default:
				writes, first := random.IntN(2) == 0, random.IntN(bytes/Granule)
				size := (1 + random.IntN(bytes/Granule-first)) * Granule
				stamp := plain.Access
				stamp.Flags |= Async
				if writes {
					l := uint8(random.IntN(2))
					stamp.Warp, stamp.Lane, stamp.Epoch = agent, l, epochs[l]
				}
				a := short.Async(first*Granule, size, &plain, stamp, writes, nil)
				b := full.checkAsync(first*Granule, size, &plain, stamp, writes, nil)
				if a != b {
					t.Fatalf("step %d: the short check finds %v, the full one %v", step, a, b)
				}
				if a.Races || a.Unfenced {
					found++
				}
			}
		}
	}
	if found == 0 {
		t.Error("the test finds no race")
	}
}

// four accesses the words of a granule by four lanes, and returns the last conflict.
func (s *Shadow) four(offset int, o *Observer, writes, short bool) (last Conflict, bad bool) {
	if short && (writes && s.WriteFour(offset, o) || !writes && s.ReadFour(offset, o)) {
		return last, false
	}
	by := *o
	for i := range granuleCells {
		var c Conflict
		var races bool
		if writes {
			c, races = s.checkWrite(offset+4*i, 4, &by, nil)
		} else {
			c, races = s.checkRead(offset+4*i, 4, &by)
		}
		if races {
			last, bad = c, true
		}
		by.Lane++
	}
	return last, bad
}

// TestReadersOfOneEpoch has several warps read the same bytes. A write that some of them are not
// ordered before races with one of those.
func TestReadersOfOneEpoch(t *testing.T) {
	t.Parallel()
	const warps = 4
	var s Shadow
	s.Reset(16)
	var list [warps]Warp
	for i := range list {
		list[i] = NewWarp(0, i, warps)
		o := list[i].Observer(1, 5, 0, Present)
		if c, races := s.Read(0, 4, &o); races {
			t.Fatal(c)
		}
	}
	if u := s.words(&s.cells[0])[0].since; u.warps != 1<<warps-1 {
		t.Fatalf("the reads are those of the warps %b", u.warps)
	}
	known := NewClock(warps)
	for i := range warps - 1 {
		list[i].Publish(&known, ^uint32(0), ^uint32(0))
	}
	list[0].Learn(&known, ^uint32(0), ^uint32(0))
	o := list[0].Observer(2, 0, 0, Present)
	if c, races := s.Write(0, 4, &o, nil); !races || !c.Read || c.Earlier.Warp != warps-1 {
		t.Errorf("the write races with %v (%v)", c, races)
	}
}

// pair writes the words of a granule by two lanes, and returns the last conflict.
func (s *Shadow) pair(offset int, o *Observer, short bool) (last Conflict, bad bool) {
	if short && s.WritePair(offset, o) {
		return last, false
	}
	by := *o
	for i := range 2 {
		if c, races := s.checkWrite(offset+8*i, 8, &by, nil); races {
			last, bad = c, true
		}
		by.Lane++
	}
	return last, bad
}
