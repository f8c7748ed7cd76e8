package order

// Access is one access to memory, as a shadow remembers it.
type Access struct {
	Epoch uint32
	Op    int32 // number of the instruction in the program
	Block uint32
	Warp  uint16
	Lane  uint8 // AllLanes where the warp as a whole, or several of its lanes, made the access
	Flags Flags
}

// Flags are the properties of an access.
type Flags uint8

// The flags. An Access without Present is none at all.
const (
	Present    Flags = 1 << iota
	Strong           // atomic, volatile, relaxed, acquire or release: two strong accesses do not race
	Pending          // of an asynchronous copy that no thread has waited for
	BlockScope       // strong only for threads of the same block (.cta)
	Volatile         // of shared memory: two lanes of a warp with nothing else between them do race
	wrote            // of a use: it has changed memory
	WarpWide         // a read that the warp makes as one instruction: it is over for all lanes together
	Async            // of a tensor core or a bulk copy: made through the async proxy
)

// WarpRead are the flags of a read that a warpgroup begins through the async proxy. Two agents of
// the warpgroup stand for such reads. Threads that have waited for a read know of the first, and
// threads that have started it know of the second, which follows the first.
const WarpRead = WarpWide | Pending | Async

// Lanes returns the lanes that may have made an access.
func (a *Access) Lanes() uint32 {
	if a.Lane < AllLanes {
		return 1 << a.Lane
	}
	return ^uint32(0)
}

func sameWarp(a, b *Access) bool { return a.Warp == b.Warp && a.Block == b.Block }

// Observer is the thread or warp that makes an access: the access, and what it knows.
type Observer struct {
	Access
	UsesOld bool // an atomic operation whose old value is used: it is ordered after earlier ones
	clock   *Clock
	lanes   uint32 // that make the access together; 0 for the lanes of Access

	together *[GroupWarps]*Clock // of the warps that make the access together; nil for one warp
}

// GroupWarps is the number of warps of a warpgroup.
const GroupWarps = 4

// Together makes the observer one of several warps that make an access together. The clocks are
// what each of them has done and knew when it started.
func (o *Observer) Together(clocks *[GroupWarps]*Clock) { o.together = clocks }

// Observer returns the lanes of the warp as the maker of an access of an instruction. lane is one
// lane, or AllLanes for the lanes of the mask together.
func (w *Warp) Observer(op int32, lane uint8, mask uint32, flags Flags) Observer {
	o := Observer{
		Access: Access{Epoch: w.epoch, Op: op, Block: w.block, Warp: uint16(w.index), Lane: lane, Flags: flags | Present},
		clock:  w.of(lane),
	}
	if lane == AllLanes {
		o.lanes = mask
	}
	return o
}

// BlockObserver returns an observer that knows what a clock of the block knows.
func BlockObserver(block uint32, c *Clock) Observer {
	return Observer{Access: Access{Block: block, Lane: AllLanes}, clock: c}
}

// StrongWrite returns the observer's access as a strong write, whose release makes the write itself known.
func (o *Observer) StrongWrite() Access {
	a := o.Access
	a.Flags |= Strong | wrote
	return a
}

// mask returns the lanes that make the access.
func (o *Observer) mask() uint32 {
	if o.lanes != 0 {
		return o.lanes
	}
	return o.Lanes()
}

// After reports whether an earlier access of some lanes happens before the observer's.
func (o *Observer) After(earlier *Access, lanes uint32) bool {
	if earlier.Flags&Pending != 0 {
		return false
	}
	if o.after(o.clock, earlier, lanes) {
		return true
	}
	if o.together != nil {
		for _, c := range o.together {
			if c != nil && o.after(c, earlier, lanes) {
				return true
			}
		}
	}
	return false
}

// after reports whether an earlier access is before the observer's by what one clock knows.
func (o *Observer) after(clock *Clock, earlier *Access, lanes uint32) bool {
	if earlier.Flags&Strong != 0 && o.knowsStrong(clock, earlier, lanes) {
		return true
	}
	if earlier.Block != o.Block {
		warps := clock.blocks[earlier.Block]
		return warps != nil && warps[earlier.Warp].covers(lanes, earlier.Epoch)
	}
	if earlier.Warp == o.Warp {
		if earlier.Flags&WarpWide != 0 {
			return true
		}
		if o.Lane < AllLanes {
			lanes &^= 1 << o.Lane
		} else if lanes == o.lanes && lanes&(lanes-1) == 0 {
			lanes = 0
		}
	}
	return lanes == 0 || clock.warps[earlier.Warp].covers(lanes, earlier.Epoch)
}

// knowsStrong reports whether the observer has acquired what a strong write of some lanes published.
func (o *Observer) knowsStrong(clock *Clock, earlier *Access, lanes uint32) bool {
	strong := clock.strong
	if earlier.Block != o.Block {
		strong = clock.blocks[strongKey(earlier.Block)]
	}
	return len(strong) > 0 && earlier.Flags&wrote != 0 && strong[earlier.Warp].covers(lanes, earlier.Epoch)
}

// KnowsStart reports whether the start of an asynchronous copy or product happens before the
// observer.
func (o *Observer) KnowsStart(copied *Access) bool {
	start := *copied
	start.Flags &^= Pending
	if start.Flags&WarpRead&^Pending == WarpRead&^Pending {
		start.Warp++
	}
	return o.After(&start, start.Lanes())
}

// races reports whether an earlier access of some lanes and the observer's are a race.
func (o *Observer) races(earlier *Access, lanes uint32) bool {
	if earlier.Flags&Present == 0 || o.bothStrong(earlier) {
		return false
	}
	return !o.After(earlier, lanes)
}

// bothStrong reports whether two accesses are strong for each other, so that they do not race.
func (o *Observer) bothStrong(earlier *Access) bool {
	both := earlier.Flags & o.Flags
	switch {
	case both&Strong == 0:
		return false
	case both&Volatile != 0 && sameWarp(earlier, &o.Access):
		return false
	}
	return earlier.Block == o.Block || (earlier.Flags|o.Flags)&BlockScope == 0
}

// unfenced reports whether the observer knows of an earlier write of some lanes, but no proxy fence
// follows that write. The async proxy does not see such a write.
func (o *Observer) unfenced(earlier *Access, lanes uint32) bool {
	if earlier.Flags&Present == 0 || earlier.Flags&(Async|Pending) != 0 || !o.After(earlier, lanes) {
		return false
	}
	if o.isFenced(o.clock, earlier, lanes) {
		return false
	}
	if o.together != nil {
		for _, c := range o.together {
			if c != nil && o.isFenced(c, earlier, lanes) {
				return false
			}
		}
	}
	return true
}

// isFenced reports whether a proxy fence follows an earlier write by what one clock knows.
func (o *Observer) isFenced(clock *Clock, earlier *Access, lanes uint32) bool {
	fenced := clock.fenced
	if earlier.Block != o.Block {
		fenced = clock.blocks[fencedKey(earlier.Block)]
	}
	return len(fenced) > 0 && fenced[earlier.Warp].covers(lanes, earlier.Epoch)
}

// Conflict is an earlier access that is not ordered before the observer's.
type Conflict struct {
	Earlier Access
	Read    bool   // the earlier access was a read
	Lanes   uint32 // that may have made it
}
