package sim

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/mem"
	"attune/internal/sim/order"
)

// lowerFence lowers membar and fence.
func (c *code) lowerFence(in *ptx.Instruction, o *op) error {
	s := &syncOp{release: true, acquire: true, total: in.Opcode == "membar" || slices.Contains(in.Modifiers, "sc")}
	o.sync, o.class = s, count.Sync
	words := strings.Join(in.Modifiers, ".")
	if strings.HasPrefix(words, "proxy.") || strings.HasPrefix(words, "mbarrier_init") {
		return c.lowerProxyFence(in, o)
	}
	for _, m := range in.Modifiers {
		switch m {
		case "cta", "level::cta":
		case "gl", "gpu", "sys", "cluster":
			s.wide = true
			c.communicates = true
			c.exchanges = c.exchanges || m != "cluster"
		case "sc", "acq_rel":
		case "acquire":
			s.release = false
		case "release":
			s.acquire = false
		default:
			return fmt.Errorf("unsupported modifier .%s", m)
		}
	}
	o.run = runFence
	return nil
}

func runFence(w *warp, o *op, mask uint32) {
	if !w.block.launch.options.Checks {
		return
	}
	if k := w.block.launch.weak; k != nil && o.sync.total {
		k.fence(uint32(w.block.index), o.sync.wide)
	}
	if o.sync.acquire {
		w.fences.Acquire(&w.clocks, mask, w.alive, o.sync.wide)
	}
	if o.sync.release {
		w.fences.Release(&w.clocks, mask, o.sync.wide)
	}
}

// lowerProxyFence lowers the fences between proxies, which matter to bulk copies and to wgmma.
func (c *code) lowerProxyFence(in *ptx.Instruction, o *op) error {
	o.run = func(*warp, *op, uint32) {}
	switch words := strings.Join(in.Modifiers, "."); words {
	case "proxy.async", "proxy.async.shared::cta", "proxy.async.shared::cluster":
		o.run = runProxyFence
	case "proxy.async.global":
		o.run = func(w *warp, _ *op, _ uint32) { w.block.fenceGlobal() }
	case "mbarrier_init.release.cluster":
		o.run = func(w *warp, _ *op, mask uint32) { w.inits.fence(mask) }
	case "proxy.alias":
	default:
		if !strings.HasPrefix(words, "proxy.tensormap::generic.") {
			return fmt.Errorf("unsupported form")
		}
		return c.lowerTensorMapFence(in, o)
	}
	return nil
}

func runProxyFence(w *warp, _ *op, mask uint32) {
	if w.block.launch.options.Checks {
		w.clocks.FenceProxy(mask, w.alive)
	}
}

// beforeStrong publishes what a strong write releases: everything for a release, and what precedes
// the last fence for other strong writes.
func (w *warp) beforeStrong(m *memOp, mask uint32) {
	if !w.block.launch.options.Checks {
		return
	}
	publishers := mask
	var now [32]order.Snapshot
	if m.release {
		w.clocks.Snapshots(&now, mask)
	} else {
		publishers &= w.fences.Lanes()
	}
	for l := publishers; l != 0; l &= l - 1 {
		lane := firstLane(l)
		near, far := w.fences.AtFence(lane)
		if m.release {
			near, far = now[lane], now[lane]
		}
		w.fences.Publish(&w.clocks, lane, w.syncTarget(m, lane), near, far)
	}
}

// afterStrong has lanes observe what was published at the locations that they have read. polled
// says that the access may be a poll of a flag or a lock.
func (w *warp) afterStrong(m *memOp, mask uint32, polled bool) {
	if polled {
		w.notePoll()
	}
	if !w.block.launch.options.Checks {
		return
	}
	acquire := m.acquire || m.atomic != nil && !m.ordered
	for left := mask; left != 0; {
		space, address := w.locationOf(m, firstLane(left))
		same := uint32(0)
		for l := left; l != 0; l &= l - 1 {
			lane := firstLane(l)
			if s, a := w.locationOf(m, lane); s == space && a == address {
				same |= 1 << lane
			}
		}
		target := w.syncTarget(m, firstLane(left))
		left &^= same
		w.fences.Observe(&w.clocks, target, same, w.alive, acquire)
	}
}

// syncTarget returns the location that a lane's strong access synchronises at.
func (w *warp) syncTarget(m *memOp, lane int) order.Target {
	space, address := w.locationOf(m, lane)
	t := order.Target{Address: address, Local: address, Near: &w.block.locations}
	if space == ptx.Shared {
		if owner, local := w.block.ownerBlock(address); owner != nil {
			t.Near, t.Local = &owner.locations, local
		}
	} else if !m.blockScope {
		t.Far = &w.block.launch.locations
	}
	return t
}

// locationOf returns the state space and the address of a lane's strong access, whether or not
// inSpaces has converted the lane's generic address already.
func (w *warp) locationOf(m *memOp, lane int) (ptx.Space, uint64) {
	if m.space != ptx.Generic {
		return m.space, w.addr[lane]
	}
	space, address := mem.FromGeneric(w.addr[lane])
	if space == ptx.Global && mem.BelowGlobal(address) {
		space = ptx.Shared
	}
	return space, address
}
