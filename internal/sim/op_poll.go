package sim

import (
	"fmt"
	"slices"

	"attune/internal/finding"
)

// Waits for a phase of an mbarrier.
//
// mbarrier.test_wait does not block, and mbarrier.try_wait may return false after a time limit. Only
// a thread that sees true may use what the phase has published. Copies land as late as possible, at
// the wait, so a poll would nearly always succeed and a kernel that ignores its result would pass.
// Two rules make such kernels fail:
//
//   - A wait whose result no instruction reads orders nothing.
//   - A wait outside of a loop that ends with success alone returns false once for each lane in
//     phases 0, 2, 4 and so on. In the other phases it succeeds at once, so that a kernel which does
//     other work after a false poll runs both ways. A lane that knows that the phase is complete is
//     not refused: to it the wait must return true.

// refusal is what lanes of a warp were refused last.
type refusal struct {
	phase uint32 // number of the phase
	lanes uint32
}

// refuse returns those lanes whose poll of a phase must fail. It fails once for each lane.
func (w *warp) refuse(b *mbarrier, phase, lanes uint32) uint32 {
	if phase%2 != 0 || lanes == 0 {
		return 0
	}
	if b.refusals == nil {
		b.refusals = make([]refusal, len(b.owner.warps))
	}
	r := &b.refusals[w.index]
	if r.phase != phase {
		*r = refusal{phase: phase}
	}
	lanes &^= r.lanes
	r.lanes |= lanes
	if lanes != 0 {
		w.block.changes++ // the next poll has another result, so the loop around it is not endless
	}
	return lanes
}

// refuseEarly returns the lanes that are refused before copies land which their phase waits for.
func (w *warp) refuseEarly(o *op, b *mbarrier, lanes uint32) uint32 {
	if !w.mayRefuse(o, b) || b.pendingCopies == 0 && len(b.loads) == 0 {
		return 0
	}
	_, incomplete := w.polled(&o.sync.mbar, b, lanes)
	return w.refuse(b, b.phase, incomplete)
}

// refuseComplete returns the lanes that are refused although their phase is complete, because they
// cannot know it.
func (w *warp) refuseComplete(o *op, b *mbarrier, done [2]uint32) uint32 {
	last := b.phase - 1
	lanes := done[last&1]
	if !w.mayRefuse(o, b) || lanes == 0 {
		return 0
	}
	return w.refuse(b, last, lanes&^w.clocks.Knowing(&b.clocks[last&1], lanes, w.alive))
}

func (w *warp) mayRefuse(o *op, b *mbarrier) bool {
	return !o.sync.mbar.blocks && b.owner == w.block && w.block.launch.options.Checks
}

// polled returns the lanes whose phase is complete, by the parity of the phase, and the others.
func (w *warp) polled(op *mbarrierOp, b *mbarrier, lanes uint32) (done [2]uint32, incomplete uint32) {
	for m := lanes; m != 0; m &= m - 1 {
		lane := firstLane(m)
		phase := uint32(0)
		if op.parity {
			phase = w.R32[op.count.index][lane] & 1
		} else {
			phase = uint32(w.R64[op.count.index][lane] >> 32)
		}
		if op.parity && b.phase&1 != phase || !op.parity && b.phase != phase {
			done[phase&1] |= 1 << lane
		} else {
			incomplete |= 1 << lane
		}
	}
	return done, incomplete
}

func runMbarrierWait(w *warp, o *op, mask uint32) {
	op := &o.sync.mbar
	w.counters.Waits++
	w.computeAddresses(o.sync.addr)
	w.Preds[op.p.index] &^= mask
	w.eachBarrier(o, mask, func(b *mbarrier, lanes uint32) {
		if b.owner != w.block {
			w.report(finding.Undefined, o, lanes, func() string { return "waits at an mbarrier of another block; only the block that owns it can wait" })
		}
		if op.ignored && w.block.launch.options.Checks {
			return
		}
		if lanes &^= w.refuseEarly(o, b, lanes); lanes != 0 {
			w.pollBarrier(o, b, lanes)
		}
	})
}

// pollBarrier lands the copies that the mbarrier counts, and lets the lanes whose phase is complete
// learn what it has published.
func (w *warp) pollBarrier(o *op, b *mbarrier, lanes uint32) {
	op := &o.sync.mbar
	if b.pendingCopies > 0 {
		w.block.finishCopies(b)
	}
	w.finishLoads(o, b)
	done, incomplete := w.polled(op, b, lanes)
	refused := w.refuseComplete(o, b, done)
	for parity := range done {
		done[parity] &^= refused
		switch lanes := done[parity]; {
		case lanes == 0 || !w.block.launch.options.Checks:
		case op.relaxed: // a fence after it acquires
			w.fences.ObserveBlocks(b.clocks[parity].Export(uint32(b.owner.index)), lanes)
		default:
			w.clocks.Learn(&b.clocks[parity], lanes, w.alive)
		}
	}
	w.Preds[op.p.index] |= done[0] | done[1]
	if incomplete != 0 {
		w.notePoll()
		w.polledBarrier, w.waits = b, true
	}
}

// describePoll describes the mbarrier that a group polls; empty for none.
func (b *block) describePoll(g *laneGroup) string {
	for _, w := range b.warps {
		if w.polledBarrier != nil && g.polls > 0 && (w.group == g || slices.Contains(w.groups, g)) {
			bar := w.polledBarrier
			return fmt.Sprintf("waits for the mbarrier at address %#x of shared memory: phase %d, %d arrivals and %d bytes are missing",
				uint64(bar.offset)+b.shared.First, bar.phase, bar.pending, bar.tx)
		}
	}
	return ""
}
