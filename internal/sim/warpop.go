package sim

import (
	"fmt"
	"slices"

	"attune/internal/ptx"
)

// lowerMember reads the mask of lanes that take part in an operation, the operand with the given index.
func (c *code) lowerMember(in *ptx.Instruction, o *op, index int, run func(*warp, *op, uint32)) error {
	if index >= len(in.Operands) {
		return fmt.Errorf("it has no mask of lanes")
	}
	s, err := c.source(in.Operands[index], ptx.B32)
	if err != nil {
		return err
	}
	o.sync.member = s
	o.run = func(w *warp, o *op, mask uint32) { w.together(o, mask, run) }
	return nil
}

// together runs an operation once all lanes of its mask have come to it. Lanes whose masks differ take part in different ones.
func (w *warp) together(o *op, mask uint32, run func(*warp, *op, uint32)) {
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
	arrived := mask
	var others []*group
	for _, g := range w.groups {
		if g.wait != nil && g.wait.what == waitLanes && g.wait.op == o && g.wait.member == member && g.frame == w.frame {
			arrived |= g.lanes
			others = append(others, g)
		}
	}
	if member&w.alive&^arrived != 0 {
		w.leaveRest(mask)
		w.halt(wait{what: waitLanes, op: o, member: member})
		return
	}
	run(w, o, arrived)
	for _, g := range others {
		g.wait = nil
		g.pc++
	}
	if len(others) > 0 {
		w.block.changes++
	}
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
func runWarpSync(w *warp, _ *op, mask uint32) {
	if w.block.launch.options.Checks {
		w.knows.meet(mask, w.alive)
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
	if len(in.Operands) != 1 || in.Operands[0].Kind != ptx.RegOperand {
		return fmt.Errorf("it wants one register")
	}
	o.d = c.regs[in.Operands[0].Register].index
	o.run = func(w *warp, o *op, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			w.r32[o.d][firstLane(m)] = mask
		}
	}
	return nil
}

// result finds the register of a result and, for d|p, the predicate beside it.
func (c *code) result(s *syncOp, o ptx.Operand) error {
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
	switch o.Kind {
	case ptx.SinkOperand:
	case ptx.RegOperand:
		s.dst = c.regs[o.Register]
	default:
		return fmt.Errorf("its result must go to a register")
	}
	return nil
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
	if err := c.result(s, in.Operands[0]); err != nil {
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

func runShuffle(w *warp, o *op, mask uint32) {
	s := o.sync
	from, where, limit := w.r32[s.a.index], &w.r32[s.b.index], &w.r32[s.mask.index]
	member := w.r32[s.member.index][firstLane(mask)]
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		source, inside := shuffleSource(s.kind, uint32(lane), where[lane]&31, limit[lane])
		if inside && (mask>>source&1 == 0 || member>>source&1 == 0) {
			w.report(Undefined, o, 1<<lane, func() string {
				return fmt.Sprintf("takes the value of lane %d, which takes no part (mask %#08x, here %#08x)", source, member, mask)
			})
			source = uint32(lane)
		}
		if !inside {
			source = uint32(lane)
		}
		if s.dst.file == file32 {
			w.r32[s.dst.index][lane] = from[source]
		}
		if s.pair >= 0 {
			w.setBit(s.pair, lane, inside)
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
	if err := c.result(s, in.Operands[0]); err != nil {
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

func runVote(w *warp, o *op, mask uint32) {
	s := o.sync
	votes := uint32(-s.extra)
	if s.value.file == filePred {
		votes = w.preds[s.value.index]
	}
	if s.not {
		votes = ^votes
	}
	votes &= mask
	result := false
	switch s.kind {
	case "ballot":
		for m := mask; m != 0; m &= m - 1 {
			w.set(s.dst, firstLane(m), uint64(votes))
		}
		return
	case "all":
		result = votes == mask
	case "any":
		result = votes != 0
	case "uni":
		result = votes == mask || votes == 0
	}
	for m := mask; m != 0; m &= m - 1 {
		w.set(s.dst, firstLane(m), uint64(boolBit(result)))
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
	if err := c.result(s, in.Operands[0]); err != nil {
		return err
	}
	a, err := c.source(in.Operands[1], t)
	if err != nil {
		return err
	}
	s.a = a
	return c.lowerMember(in, o, 2, runMatch)
}

func runMatch(w *warp, o *op, mask uint32) {
	s := o.sync
	arg := aluArg{slot: s.a, mask: ^uint64(0)}
	var values [32]uint64
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		values[lane] = w.get(&arg, lane)
	}
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		same := uint32(0)
		for other := mask; other != 0; other &= other - 1 {
			if l := firstLane(other); values[l] == values[lane] {
				same |= 1 << l
			}
		}
		if s.kind == "all" {
			if s.pair >= 0 {
				w.setBit(s.pair, lane, same == mask)
			}
			if same != mask {
				same = 0
			}
		}
		if s.dst.file != noFile {
			w.set(s.dst, lane, uint64(same))
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
	if err := c.result(s, in.Operands[0]); err != nil {
		return err
	}
	a, err := c.source(in.Operands[1], ptx.B32)
	if err != nil {
		return err
	}
	s.a = a
	return c.lowerMember(in, o, 2, runRedux)
}

func runRedux(w *warp, o *op, mask uint32) {
	s := o.sync
	values := w.r32[s.a.index]
	total := values[firstLane(mask)]
	for m := mask & (mask - 1); m != 0; m &= m - 1 {
		v := values[firstLane(m)]
		switch s.kind {
		case "add":
			total += v
		case "and":
			total &= v
		case "or":
			total |= v
		case "xor":
			total ^= v
		case "min":
			if s.not && int32(v) < int32(total) || !s.not && v < total {
				total = v
			}
		case "max":
			if s.not && int32(v) > int32(total) || !s.not && v > total {
				total = v
			}
		}
	}
	for m := mask; m != 0; m &= m - 1 {
		w.r32[s.dst.index][firstLane(m)] = total
	}
}

// lowerElect is elect.sync d|p, membermask: the lowest lane of the mask is the leader.
func (c *code) lowerElect(in *ptx.Instruction, o *op) error {
	if len(in.Operands) != 2 {
		return fmt.Errorf("unsupported form")
	}
	if err := c.result(o.sync, in.Operands[0]); err != nil {
		return err
	}
	return c.lowerMember(in, o, 1, runElect)
}

func runElect(w *warp, o *op, mask uint32) {
	s := o.sync
	leader := firstLane(w.r32[s.member.index][firstLane(mask)] & w.alive)
	for m := mask; m != 0; m &= m - 1 {
		lane := firstLane(m)
		if s.dst.file == file32 {
			w.r32[s.dst.index][lane] = uint32(leader)
		}
		if s.pair >= 0 {
			w.setBit(s.pair, lane, lane == leader)
		}
	}
}
