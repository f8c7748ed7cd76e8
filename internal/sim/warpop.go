package sim

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/ptx"
)

// lowerMember reads the mask of lanes that take part in an operation, the operand with the given index.
func (c *code) lowerMember(in *ptx.Instruction, o *op, index int, run func(*warp, uint32)) error {
	if index >= len(in.Operands) {
		return fmt.Errorf("it has no mask of lanes")
	}
	s, err := c.source(in.Operands[index], ptx.B32)
	if err != nil {
		return err
	}
	o.sync.member = s
	o.sync.meeting = in.Opcode + "." + strings.Join(in.Modifiers, ".")
	o.run = func(w *warp, o *op, mask uint32) { w.together(o, mask, run) }
	return nil
}

// party is lanes that take part in an operation: those of a group at one place in the code, with the registers they have there.
type party struct {
	frame *frame
	op    *op
	lanes uint32
}

// together runs an operation once all lanes of its mask have come to it, or to another of the same kind with the same mask. Lanes whose masks differ
// take part in different ones.
func (w *warp) together(o *op, mask uint32, run func(w *warp, mask uint32)) {
	members := &w.r32[o.sync.member.index]
	member := members[firstLane(mask)]
	for m := mask; m != 0; m &= m - 1 {
		if lane := firstLane(m); members[lane] != member {
			w.partByMask(o, mask, members)
			return
		}
	}
	if outside := mask &^ member; outside != 0 {
		w.report(Undefined, o, outside, func() string {
			return fmt.Sprintf("executes it with the mask %#08x, which leaves it out", member)
		})
	}
	w.parties = append(w.parties[:0], party{w.frame, o, mask})
	arrived := mask
	if len(w.groups) > 0 {
		for _, g := range w.groups {
			if g.meets(o, member) {
				arrived |= g.lanes
				w.parties = append(w.parties, party{g.frame, g.wait.op, g.lanes})
			}
		}
	}
	if member&w.alive&^arrived != 0 {
		w.leaveRest(mask)
		w.halt(wait{what: waitLanes, op: o, member: member})
		return
	}
	run(w, arrived)
	if len(w.parties) > 1 {
		w.resume(o, member)
	}
}

// meets says whether a group waits for lanes that come to an operation.
func (g *group) meets(o *op, member uint32) bool {
	return g.wait != nil && g.wait.what == waitLanes && !g.wait.aligned && g.wait.member == member && g.wait.op.sync.meeting == o.sync.meeting
}

// resume lets the groups that have waited for an operation go on behind it, and with the running one where they are at the same place.
func (w *warp) resume(o *op, member uint32) {
	left := w.groups[:0]
	for _, g := range w.groups {
		if g.meets(o, member) {
			g.wait = nil
			g.pc++
			if g.pc == w.pc && g.frame == w.frame && g.join == w.join {
				w.lanes |= g.lanes
				continue
			}
		}
		left = append(left, g)
	}
	w.groups = left
	w.block.changes++
}

// assemble brings lanes together before an operation that a warp does as a whole. They may come one after another, and some may end before they do;
// only lanes that a condition has parted, at the operation or so that one side waits for the other behind it, will never be all there. It gives the lanes that are, and
// whether the operation can be done now.
func (w *warp) assemble(o *op, mask uint32) (uint32, bool) {
	if mask == w.alive || mask != w.lanes || w.group.insists {
		return mask, true
	}
	w.sendHome(mask)
	if w.awaited(mask) {
		return mask, true
	}
	here := func(g *group) bool { return g.wait != nil && g.wait.aligned && g.wait.op == o && g.frame == w.frame }
	arrived := mask
	for _, g := range w.groups {
		if here(g) {
			arrived |= g.lanes
		}
	}
	if arrived != w.alive {
		w.halt(wait{what: waitLanes, op: o, member: w.alive, aligned: true})
		return 0, false
	}
	w.groups = slices.DeleteFunc(w.groups, here)
	w.lanes = arrived
	return arrived, true
}

// sendHome lets lanes end that wait for some where they have nothing left to do but to return: they have left early, and are not missed.
func (w *warp) sendHome(lanes uint32) bool {
	found := false
	for _, j := range w.junctions() {
		if j.have&^lanes != 0 && j.want&lanes != 0 && j.frame.caller == nil && j.frame.code.ops[j.pc].ends {
			w.groups = append(w.groups, &group{pc: j.pc, lanes: j.have, frame: j.frame, join: j.outside})
			j.want &^= j.have
			j.have = 0
			found = true
		}
	}
	return found
}

// sendAllHome does so for every group that waits before an operation of the whole warp.
func (w *warp) sendAllHome() bool {
	found := false
	for _, g := range slices.Clone(w.groups) {
		if g.wait != nil && g.wait.aligned {
			found = w.sendHome(g.lanes) || found
		}
	}
	return found
}

// awaited says whether other lanes wait for some at a junction.
func (w *warp) awaited(lanes uint32) bool {
	for _, j := range w.junctions() {
		if j.have&^lanes != 0 && j.want&lanes != 0 {
			return true
		}
	}
	return false
}

// insistWhereAwaited has groups that wait before an operation of the whole warp do it without the others, where the others wait for them in turn.
func (w *warp) insistWhereAwaited() bool {
	return w.insistIf(func(g *group) bool { return w.awaited(g.lanes) })
}

// insist has all such groups do it: the others do not come.
func (w *warp) insist() bool { return w.insistIf(func(*group) bool { return true }) }

func (w *warp) insistIf(which func(*group) bool) bool {
	found := false
	for _, g := range w.groups {
		if g.wait != nil && g.wait.aligned && which(g) {
			g.insists, g.wait = true, nil
			found = true
		}
	}
	return found
}

// partByMask parts a group whose lanes name different masks.
func (w *warp) partByMask(o *op, mask uint32, members *v32) {
	member := members[firstLane(mask)]
	same := uint32(0)
	for m := mask; m != 0; m &= m - 1 {
		if lane := firstLane(m); members[lane] == member {
			same |= 1 << lane
		}
	}
	w.leaveRest(mask)
	w.groups = append(w.groups, &group{pc: w.pc - 1, lanes: w.lanes &^ same, frame: w.frame, join: w.join})
	w.lanes = same
	w.pc--
}

// runWarpSync is bar.warp.sync: it orders the memory accesses of the lanes that take part.
func runWarpSync(w *warp, mask uint32) {
	if !w.block.launch.options.Checks {
		return
	}
	w.knows.meet(mask, w.alive)
	if w.order.any&mask != 0 {
		var passed passedOn
		w.passOn(&passed, mask)
		w.takeOver(&passed, mask)
	}
}

// lowerWarpOp turns the operations between lanes into operations.
func (c *code) lowerWarpOp(in *ptx.Instruction, o *op) error {
	o.sync, o.class = &syncOp{pair: -1}, classWarp
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
		return fmt.Errorf("it wants one register")
	}
	d, err := c.register(in.Operands[0], ptx.B32)
	if err != nil {
		return err
	}
	o.d = d.index
	o.run = func(w *warp, o *op, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			w.r32[o.d][firstLane(m)] = mask
		}
	}
	return nil
}

// result finds the register of a result of a type and, for d|p, the predicate beside it.
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

// lowerShuffle is shfl.sync.mode.b32 d{|p}, a, b, c, membermask.
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
	var from v32
	for _, p := range w.parties {
		values := &p.frame.r32[p.op.sync.a.index]
		for m := p.lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			from[lane] = values[lane]
		}
	}
	for _, p := range w.parties {
		w.shuffle(p, &from, mask)
	}
}

func (w *warp) shuffle(p party, from *v32, mask uint32) {
	s := p.op.sync
	where, limit := &p.frame.r32[s.b.index], &p.frame.r32[s.mask.index]
	member := p.frame.r32[s.member.index][firstLane(p.lanes)]
	for m := p.lanes; m != 0; m &= m - 1 {
		lane := firstLane(m)
		source, inside := shuffleSource(s.kind, uint32(lane), where[lane]&31, limit[lane])
		if inside && (mask>>source&1 == 0 || member>>source&1 == 0) {
			w.report(Undefined, p.op, 1<<lane, func() string {
				return fmt.Sprintf("takes the value of lane %d, which takes no part (mask %#08x, here %#08x)", source, member, mask)
			})
			source = uint32(lane)
		}
		if !inside {
			source = uint32(lane)
		}
		if s.dst.file == file32 {
			p.frame.r32[s.dst.index][lane] = from[source]
		}
		if s.pair >= 0 {
			p.frame.setLane(slot{filePred, s.pair}, lane, uint64(boolBit(inside)))
		}
	}
}

// shuffleSource is the lane a value comes from, and whether it is inside of the segment.
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

// lowerVote is vote.sync.{all,any,uni}.pred p, {!}a, membermask and vote.sync.ballot.b32 d, {!}a, membermask.
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
		s.extra = int64(p.Value & 1)
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
	for _, p := range w.parties {
		s := p.op.sync
		own := uint32(-s.extra)
		if s.value.file == filePred {
			own = p.frame.preds[s.value.index]
		}
		if s.not {
			own = ^own
		}
		votes |= own & p.lanes
	}
	result := uint64(0)
	switch w.parties[0].op.sync.kind {
	case "ballot":
		result = uint64(votes)
	case "all":
		result = uint64(boolBit(votes == mask))
	case "any":
		result = uint64(boolBit(votes != 0))
	case "uni":
		result = uint64(boolBit(votes == mask || votes == 0))
	}
	w.giveAll(result)
}

// giveAll gives every lane that takes part one result.
func (w *warp) giveAll(result uint64) {
	for _, p := range w.parties {
		for m := p.lanes; m != 0; m &= m - 1 {
			p.frame.setLane(p.op.sync.dst, firstLane(m), result)
		}
	}
}

// lowerMatch is match.any.sync.type d, a, membermask and match.all.sync.type d{|p}, a, membermask.
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
	for _, p := range w.parties {
		for m := p.lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			values[lane] = p.frame.lane(p.op.sync.a, lane)
		}
	}
	for _, p := range w.parties {
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

// lowerRedux is redux.sync.op.type d, a, membermask.
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
	kind, signed := w.parties[0].op.sync.kind, w.parties[0].op.sync.not
	total, first := uint32(0), true
	for _, p := range w.parties {
		values := &p.frame.r32[p.op.sync.a.index]
		for m := p.lanes; m != 0; m &= m - 1 {
			v := values[firstLane(m)]
			if first {
				total, first = v, false
				continue
			}
			total = reduced(kind, signed, total, v)
		}
	}
	w.giveAll(uint64(total))
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

// lowerElect is elect.sync d|p, membermask: the lowest lane of the mask is the leader.
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
	first := w.parties[0]
	leader := firstLane(first.frame.r32[first.op.sync.member.index][firstLane(first.lanes)] & w.alive)
	for _, p := range w.parties {
		for m := p.lanes; m != 0; m &= m - 1 {
			lane := firstLane(m)
			p.frame.setLane(p.op.sync.dst, lane, uint64(leader))
			if pair := p.op.sync.pair; pair >= 0 {
				p.frame.setLane(slot{filePred, pair}, lane, uint64(boolBit(lane == leader)))
			}
		}
	}
}
