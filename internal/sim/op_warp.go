package sim

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/finding"
	"attune/internal/ptx"
	"attune/internal/sim/count"
	"attune/internal/sim/lanes"
	"attune/internal/sim/order"
)

// lowerMember lowers the member mask of a collective operation, the operand with the given index.
func (c *code) lowerMember(in *ptx.Instruction, o *op, index int, run func(*warp, uint32)) error {
	if index >= len(in.Operands) {
		return fmt.Errorf("it has no member mask")
	}
	s, err := c.source(in.Operands[index], ptx.B32)
	if err != nil {
		return err
	}
	o.sync.member = s
	o.sync.collective = in.Opcode + "." + strings.Join(in.Modifiers, ".")
	o.run = func(w *warp, o *op, mask uint32) { w.runCollective(o, mask, run) }
	return nil
}

// participant is the lanes of one group that take part in a collective operation, with their frame
// and their instruction.
type participant struct {
	frame *frame
	op    *op
	lanes uint32
}

// runCollective runs an operation once all lanes of its member mask have reached it, or another of
// the same kind with the same mask. Lanes with different masks take part in different operations.
func (w *warp) runCollective(o *op, mask uint32, run func(w *warp, mask uint32)) {
	members := &w.R32[o.sync.member.index]
	member := members[firstLane(mask)]
	for m := mask; m != 0; m &= m - 1 {
		if lane := firstLane(m); members[lane] != member {
			w.splitByMask(o, mask, members)
			return
		}
	}
	if outside := mask &^ member; outside != 0 {
		w.report(finding.Undefined, o, outside, func() string {
			return fmt.Sprintf("executes it with the member mask %#08x, which does not contain the lane", member)
		})
	}
	w.participants = append(w.participants[:0], participant{w.frame, o, mask})
	arrived := mask
	if len(w.groups) > 0 {
		for _, g := range w.groups {
			if g.takesPartIn(o, member) {
				arrived |= g.lanes
				w.participants = append(w.participants, participant{g.frame, g.wait.op, g.lanes})
			}
		}
	}
	if member&w.alive&^arrived != 0 {
		w.detachRest(mask)
		w.halt(wait{kind: waitLanes, op: o, member: member})
		return
	}
	run(w, arrived)
	if len(w.participants) > 1 {
		w.resumeParticipants(o, member)
	}
}

// takesPartIn reports whether a group waits to take part in an operation with a member mask.
func (g *laneGroup) takesPartIn(o *op, member uint32) bool {
	return g.wait != nil && g.wait.kind == waitLanes && !g.wait.aligned && g.wait.member == member && g.wait.op.sync.collective == o.sync.collective
}

// resumeParticipants lets the groups that have waited for an operation continue after it. Groups at
// the same instruction as the running one merge with it.
func (w *warp) resumeParticipants(o *op, member uint32) {
	left := w.groups[:0]
	for _, g := range w.groups {
		if g.takesPartIn(o, member) {
			g.wait = nil
			g.pc++
			if g.pc == w.pc && g.frame == w.frame && g.reconv == w.reconv {
				w.lanes |= g.lanes
				continue
			}
		}
		left = append(left, g)
	}
	w.groups = left
	w.block.changes++
}

// gatherWarp gathers the lanes of the warp before an operation that the warp executes as a whole.
// They may arrive one after another, and some may end before they arrive. Lanes never gather if a
// condition separates them at the operation, or if the others wait for them at a reconvergence
// point. It returns the lanes that execute the operation, and whether it can be executed now.
func (w *warp) gatherWarp(o *op, mask uint32) (uint32, bool) {
	if mask == w.alive || mask != w.lanes || w.group.partial {
		return mask, true
	}
	w.releaseReturning(mask)
	if w.isAwaited(mask) {
		return mask, true
	}
	here := func(g *laneGroup) bool {
		return g.wait != nil && g.wait.aligned && g.wait.op == o && g.frame == w.frame
	}
	arrived := mask
	for _, g := range w.groups {
		if here(g) {
			arrived |= g.lanes
		}
	}
	if arrived != w.alive {
		w.halt(wait{kind: waitLanes, op: o, member: w.alive, aligned: true})
		return 0, false
	}
	w.groups = slices.DeleteFunc(w.groups, here)
	w.lanes = arrived
	return arrived, true
}

// releaseReturning releases lanes that wait for some of the given lanes at a reconvergence point
// where only the return is left. They have left the function early, and the operation does not need
// them. It reports whether there were any.
func (w *warp) releaseReturning(lanes uint32) bool {
	found := false
	for _, r := range w.reconvergencePoints() {
		if r.arrived&^lanes != 0 && r.expected&lanes != 0 && r.frame.caller == nil && r.frame.code.ops[r.pc].ends {
			r.expected &^= r.arrived
			w.groups = append(w.groups, r.takeArrived())
			found = true
		}
	}
	return found
}

// releaseAllReturning is releaseReturning for every group that waits for the whole warp.
func (w *warp) releaseAllReturning() bool {
	found := false
	for _, g := range slices.Clone(w.groups) {
		if g.wait != nil && g.wait.aligned {
			found = w.releaseReturning(g.lanes) || found
		}
	}
	return found
}

// isAwaited reports whether other lanes wait for some of the given lanes at a reconvergence point.
func (w *warp) isAwaited(lanes uint32) bool {
	for _, r := range w.reconvergencePoints() {
		if r.arrived&^lanes != 0 && r.expected&lanes != 0 {
			return true
		}
	}
	return false
}

// proceedWhereAwaited has groups that wait for the whole warp proceed without the missing lanes, if
// these wait for the group in turn.
func (w *warp) proceedWhereAwaited() bool {
	return w.proceedIf(func(g *laneGroup) bool { return w.isAwaited(g.lanes) })
}

// proceed has all groups that wait for the whole warp proceed without the missing lanes.
func (w *warp) proceed() bool { return w.proceedIf(func(*laneGroup) bool { return true }) }

func (w *warp) proceedIf(which func(*laneGroup) bool) bool {
	found := false
	for _, g := range w.groups {
		if g.wait != nil && g.wait.aligned && which(g) {
			g.partial, g.wait = true, nil
			found = true
		}
	}
	return found
}

// splitByMask splits a group whose lanes have different member masks.
func (w *warp) splitByMask(o *op, mask uint32, members *lanes.V32) {
	member := members[firstLane(mask)]
	same := uint32(0)
	for m := mask; m != 0; m &= m - 1 {
		if lane := firstLane(m); members[lane] == member {
			same |= 1 << lane
		}
	}
	w.detachRest(mask)
	w.groups = append(w.groups, &laneGroup{pc: w.pc - 1, lanes: w.lanes &^ same, frame: w.frame, reconv: w.reconv})
	w.lanes = same
	w.pc--
}

// runWarpSync runs bar.warp.sync, which orders the memory accesses of the lanes that take part.
func runWarpSync(w *warp, mask uint32) {
	if !w.block.launch.options.Checks {
		return
	}
	w.clocks.Sync(mask, w.alive)
	if w.fences.Lanes()&mask != 0 {
		var handover order.Handover
		w.fences.HandOver(&w.clocks, &handover, mask)
		w.fences.TakeOver(&w.clocks, &handover, mask, w.alive)
	}
}

// lowerWarpOp lowers the operations between lanes.
func (c *code) lowerWarpOp(in *ptx.Instruction, o *op) error {
	o.sync, o.class = &syncOp{pair: -1}, count.Warp
	switch in.Opcode {
	case "activemask":
		return c.lowerActivemask(in, o)
	case "shfl":
		return c.lowerShuffle(in, o)
	case "vote":
		return c.lowerVote(in, o)
	case "match":
		return c.lowerMatch(in, o)
	case "redux":
		return c.lowerRedux(in, o)
	case "elect":
		return c.lowerElect(in, o)
	}
	return fmt.Errorf("unsupported instruction")
}

func (c *code) lowerActivemask(in *ptx.Instruction, o *op) error {
	if len(in.Operands) != 1 {
		return fmt.Errorf("it needs one register")
	}
	d, err := c.register(in.Operands[0], ptx.B32)
	if err != nil {
		return err
	}
	o.d = d.index
	o.run = func(w *warp, o *op, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			w.R32[o.d][firstLane(m)] = mask
		}
	}
	return nil
}

// result finds the register of a result and, for d|p, the predicate.
func (c *code) result(s *syncOp, o ptx.Operand, t ptx.Type) error {
	if o.Kind == ptx.PairOperand && len(o.Parts) == 2 {
		if o.Parts[1].Kind != ptx.SinkOperand {
			p, err := c.predicate(o.Parts[1])
			if err != nil {
				return err
			}
			s.pair = p.index
		}
		o = o.Parts[0]
	}
	if o.Kind == ptx.SinkOperand {
		return nil
	}
	var err error
	s.dst, err = c.register(o, t)
	return err
}

// lowerShuffle lowers shfl.sync.mode.b32 d{|p}, a, b, c, membermask.
func (c *code) lowerShuffle(in *ptx.Instruction, o *op) error {
	s := o.sync
	for _, m := range in.Modifiers {
		if slices.Contains([]string{"up", "down", "bfly", "idx"}, m) {
			s.kind = m
		}
	}
	if s.kind == "" || len(in.Operands) != 5 || !slices.Contains(in.Modifiers, "sync") || !slices.Contains(in.Modifiers, "b32") {
		return fmt.Errorf("unsupported form")
	}
	if err := c.result(s, in.Operands[0], ptx.B32); err != nil {
		return err
	}
	var err error
	for i, into := range []*slot{&s.a, &s.b, &s.mask} {
		if *into, err = c.source(in.Operands[i+1], ptx.B32); err != nil {
			return err
		}
	}
	return c.lowerMember(in, o, 4, runShuffle)
}

func runShuffle(w *warp, mask uint32) {
	if w.block.launch.options.Checks {
		w.clocks.Shuffle(mask)
	}
	var from lanes.V32
	for _, p := range w.participants {
		values := &p.frame.R32[p.op.sync.a.index]
		if p.lanes == everyLane {
			from = *values
			continue
		}
		for m := p.lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			from[lane] = values[lane]
		}
	}
	for _, p := range w.participants {
		if !w.shuffleWhole(p, &from) {
			w.shuffle(p, &from, mask)
		}
	}
}

// shuffleSources are the sources of the lanes of a shuffle whose other operands are the same in all lanes.
type shuffleSources struct {
	kind   string // empty for none
	b, c   uint32
	source [32]uint8
	inside uint32 // lanes whose source is inside the segment
}

// shuffleWhole is shuffle for a whole warp whose other operands are the same in all lanes. It reports
// whether it is one.
func (w *warp) shuffleWhole(p participant, from *lanes.V32) bool {
	s := p.op.sync
	where, limit := &p.frame.R32[s.b.index], &p.frame.R32[s.mask.index]
	if p.lanes != everyLane || p.frame.R32[s.member.index][0] != everyLane || !isUniform(where) || !isUniform(limit) {
		return false
	}
	known := &w.shuffled
	if b, c := where[0]&31, limit[0]; known.kind != s.kind || known.b != b || known.c != c {
		*known = shuffleSources{kind: s.kind, b: b, c: c}
		for lane := range known.source {
			source, inside := shuffleSource(s.kind, uint32(lane), b, c)
			if known.source[lane] = uint8(lane); inside {
				known.source[lane] = uint8(source)
				known.inside |= 1 << lane
			}
		}
	}
	if s.dst.file == file32 {
		to := &p.frame.R32[s.dst.index]
		for lane, source := range &known.source {
			to[lane] = from[source&31]
		}
	}
	if s.pair >= 0 {
		p.frame.Preds[s.pair] = known.inside
	}
	return true
}

// isUniform reports whether a register has one value in all lanes.
func isUniform(v *lanes.V32) bool {
	different := uint32(0)
	for _, x := range v {
		different |= x ^ v[0]
	}
	return different == 0
}

func (w *warp) shuffle(p participant, from *lanes.V32, mask uint32) {
	s := p.op.sync
	where, limit := &p.frame.R32[s.b.index], &p.frame.R32[s.mask.index]
	member := p.frame.R32[s.member.index][firstLane(p.lanes)]
	for m := p.lanes; m != 0; m &= m - 1 {
		lane := firstLane(m)
		source, inside := shuffleSource(s.kind, uint32(lane), where[lane]&31, limit[lane])
		if inside && (mask>>source&1 == 0 || member>>source&1 == 0) {
			w.report(finding.Undefined, p.op, 1<<lane, func() string {
				return fmt.Sprintf("takes the value of lane %d, which does not take part (member mask %#08x, active %#08x)", source, member, mask)
			})
			source = uint32(lane)
		}
		if !inside {
			source = uint32(lane)
		}
		if s.dst.file == file32 {
			p.frame.R32[s.dst.index][lane] = from[source]
		}
		if s.pair >= 0 {
			p.frame.setLane(slot{filePred, s.pair}, lane, uint64(boolBit(inside)))
		}
	}
}

// shuffleSource returns the source lane of a shuffle, and whether it is inside the segment.
func shuffleSource(kind string, lane, b, c uint32) (uint32, bool) {
	clamp, segment := c&31, c>>8&31
	most := lane&segment | clamp&^segment
	least := lane & segment
	var source uint32
	switch kind {
	case "up":
		source = lane - b
		return source, int32(source) >= int32(most)
	case "down":
		source = lane + b
	case "bfly":
		source = lane ^ b
	default:
		source = least | b&^segment
	}
	return source, source <= most
}

// lowerVote lowers vote.sync.{all,any,uni}.pred p, {!}a, membermask and vote.sync.ballot.b32 d,
// {!}a, membermask.
func (c *code) lowerVote(in *ptx.Instruction, o *op) error {
	s := o.sync
	for _, m := range in.Modifiers {
		if slices.Contains([]string{"all", "any", "uni", "ballot"}, m) {
			s.kind = m
		}
	}
	if s.kind == "" || len(in.Operands) != 3 || !slices.Contains(in.Modifiers, "sync") {
		return fmt.Errorf("unsupported form")
	}
	t := ptx.Pred
	if s.kind == "ballot" {
		t = ptx.B32
	}
	if err := c.result(s, in.Operands[0], t); err != nil {
		return err
	}
	p := in.Operands[1]
	s.not = p.Negated
	p.Negated = false
	if p.Kind == ptx.ImmOperand {
		s.vote = int64(p.Value & 1)
	} else {
		value, err := c.predicate(p)
		if err != nil {
			return err
		}
		s.value = value
	}
	return c.lowerMember(in, o, 2, runVote)
}

func runVote(w *warp, mask uint32) {
	votes := uint32(0)
	for _, p := range w.participants {
		s := p.op.sync
		own := uint32(-s.vote)
		if s.value.file == filePred {
			own = p.frame.Preds[s.value.index]
		}
		if s.not {
			own = ^own
		}
		votes |= own & p.lanes
	}
	result := uint64(0)
	switch w.participants[0].op.sync.kind {
	case "ballot":
		result = uint64(votes)
	case "all":
		result = uint64(boolBit(votes == mask))
	case "any":
		result = uint64(boolBit(votes != 0))
	case "uni":
		result = uint64(boolBit(votes == mask || votes == 0))
	}
	w.setAll(result)
}

// setAll gives all participants the same result.
func (w *warp) setAll(result uint64) {
	for _, p := range w.participants {
		for m := p.lanes; m != 0; m &= m - 1 {
			p.frame.setLane(p.op.sync.dst, firstLane(m), result)
		}
	}
}

// lowerMatch lowers match.any.sync.type d, a, membermask and match.all.sync.type d{|p}, a,
// membermask.
func (c *code) lowerMatch(in *ptx.Instruction, o *op) error {
	s := o.sync
	t := ptx.B32
	for _, m := range in.Modifiers {
		switch m {
		case "any", "all":
			s.kind = m
		case "b64":
			t = ptx.B64
		}
	}
	if s.kind == "" || len(in.Operands) != 3 {
		return fmt.Errorf("unsupported form")
	}
	if err := c.result(s, in.Operands[0], ptx.B32); err != nil {
		return err
	}
	a, err := c.source(in.Operands[1], t)
	if err != nil {
		return err
	}
	s.a = a
	return c.lowerMember(in, o, 2, runMatch)
}

func runMatch(w *warp, mask uint32) {
	var values [32]uint64
	for _, p := range w.participants {
		for m := p.lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			values[lane] = p.frame.lane(p.op.sync.a, lane)
		}
	}
	for _, p := range w.participants {
		s := p.op.sync
		for m := p.lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			same := uint32(0)
			for other := mask; other != 0; other &= other - 1 {
				if l := firstLane(other); values[l] == values[lane] {
					same |= 1 << l
				}
			}
			if s.kind == "all" {
				if s.pair >= 0 {
					p.frame.setLane(slot{filePred, s.pair}, lane, uint64(boolBit(same == mask)))
				}
				if same != mask {
					same = 0
				}
			}
			p.frame.setLane(s.dst, lane, uint64(same))
		}
	}
}

// lowerRedux lowers redux.sync.op.type d, a, membermask.
func (c *code) lowerRedux(in *ptx.Instruction, o *op) error {
	s := o.sync
	for _, m := range in.Modifiers {
		switch m {
		case "add", "min", "max", "and", "or", "xor":
			s.kind = m
		case "s32":
			s.not = true // signed
		case "f32", "abs", "NaN":
			return fmt.Errorf("unsupported form")
		}
	}
	if s.kind == "" || len(in.Operands) != 3 {
		return fmt.Errorf("unsupported form")
	}
	if err := c.result(s, in.Operands[0], ptx.B32); err != nil {
		return err
	}
	a, err := c.source(in.Operands[1], ptx.B32)
	if err != nil {
		return err
	}
	s.a = a
	return c.lowerMember(in, o, 2, runRedux)
}

func runRedux(w *warp, _ uint32) {
	kind, signed := w.participants[0].op.sync.kind, w.participants[0].op.sync.not
	total, first := uint32(0), true
	for _, p := range w.participants {
		values := &p.frame.R32[p.op.sync.a.index]
		for m := p.lanes; m != 0; m &= m - 1 {
			v := values[firstLane(m)]
			if first {
				total, first = v, false
				continue
			}
			total = reduced(kind, signed, total, v)
		}
	}
	w.setAll(uint64(total))
}

func reduced(kind string, signed bool, a, b uint32) uint32 {
	less := a < b
	if signed {
		less = int32(a) < int32(b)
	}
	switch {
	case kind == "add":
		return a + b
	case kind == "and":
		return a & b
	case kind == "or":
		return a | b
	case kind == "xor":
		return a ^ b
	case kind == "min" == less:
		return a
	}
	return b
}

// lowerElect lowers elect.sync d|p, membermask. The lowest lane of the mask is the leader.
func (c *code) lowerElect(in *ptx.Instruction, o *op) error {
	if len(in.Operands) != 2 {
		return fmt.Errorf("unsupported form")
	}
	if err := c.result(o.sync, in.Operands[0], ptx.B32); err != nil {
		return err
	}
	return c.lowerMember(in, o, 1, runElect)
}

func runElect(w *warp, _ uint32) {
	first := w.participants[0]
	leader := firstLane(first.frame.R32[first.op.sync.member.index][firstLane(first.lanes)] & w.alive)
	for _, p := range w.participants {
		for m := p.lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			p.frame.setLane(p.op.sync.dst, lane, uint64(leader))
			if pair := p.op.sync.pair; pair >= 0 {
				p.frame.setLane(slot{filePred, pair}, lane, uint64(boolBit(lane == leader)))
			}
		}
	}
}
