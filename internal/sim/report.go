package sim

import (
	"cmp"
	"fmt"
	"math/bits"
	"strings"

	"attune/internal/finding"
	"attune/internal/ptx"
)

// position is an instruction of a program: a function and an index in its code. The zero value is
// no instruction.
type position struct {
	code *code
	pc   int32
}

func positionOf(w *warp, o *op) position { return w.block.launch.program.ops[o.number] }

func (p position) op() *op { return &p.code.ops[p.pc] }

// isCopy reports whether the instruction is cp.async.
func (p position) isCopy() bool {
	return int(p.pc) < len(p.code.fn.Code) && p.code.fn.Code[p.pc].Opcode == "cp"
}

// line returns the number of the instruction's source line; 0 for no instruction. All instructions
// of one line have the same number.
func (p position) line() int {
	if p.code == nil {
		return 0
	}
	return p.code.lines[p.pc]
}

// place describes the instruction.
func (p position) place() finding.Place {
	if p.code == nil || int(p.pc) >= len(p.code.fn.Code) {
		return finding.Place{}
	}
	return finding.PlaceOf(p.code.program.module, &p.code.fn.Code[p.pc])
}

// numberLines gives every instruction the number of its source line. An instruction without line
// information gets a number of its own.
func (c *code) numberLines() {
	p := c.program
	c.lines = make([]int, len(c.fn.Code)+1)
	for i := range c.lines {
		source := ""
		if i < len(c.fn.Code) {
			source = p.module.LineKey(c.fn.Code[i].Location)
		}
		if source == "" {
			p.lines++
			c.lines[i] = p.lines
			continue
		}
		if p.lineNumbers[source] == 0 {
			p.lines++
			p.lineNumbers[source] = p.lines
		}
		c.lines[i] = p.lineNumbers[source]
	}
}

// report adds an error about an instruction.
func (w *warp) report(kind finding.Kind, o *op, lanes uint32, detail func() string) {
	w.reportPair(kind, o, position{}, lanes, detail)
}

// reportPair adds an error about two instructions.
func (w *warp) reportPair(kind finding.Kind, o *op, other position, lanes uint32, detail func() string) {
	w.reportAs(finding.Error, kind, o, other, lanes, detail)
}

func (w *warp) reportAs(severity finding.Severity, kind finding.Kind, o *op, other position, lanes uint32, detail func() string) {
	w.add(finding.Occurrence{Kind: kind, Severity: severity}, o, other, lanes, detail)
}

// add adds an occurrence of a finding about one or two instructions.
func (w *warp) add(f finding.Occurrence, o *op, other position, lanes uint32, detail func() string) {
	if !w.block.launch.options.Checks {
		return
	}
	w.block.add(f, positionOf(w, o), other, func(f *finding.Finding) { f.Detail = w.threads(lanes) + ": " + detail() })
}

// report adds an error of the block.
func (b *block) report(kind finding.Kind, where, other position, detail func() string) {
	b.add(finding.Occurrence{Kind: kind, Severity: finding.Error}, where, other, func(f *finding.Finding) { f.Detail = detail() })
}

// add adds an occurrence of a finding in the block. describe sets its variable and detail.
func (b *block) add(o finding.Occurrence, where, other position, describe func(*finding.Finding)) {
	o.Line, o.Other, o.Block = where.line(), other.line(), b.index
	b.launch.findings.Add(o, func(f *finding.Finding) {
		f.Where = where.place()
		describe(f)
		if place := other.place(); place.PTXLine > 0 { // the end of a block has none
			f.Other = &place
		}
	})
}

// reportMemory adds a finding about an access of a lane to memory: an error, unless the occurrence has
// another severity.
func (w *warp) reportMemory(f finding.Occurrence, o *op, other position, lane int, space ptx.Space, address uint64, detail func() string) {
	if !w.block.launch.options.Checks {
		return
	}
	f.Severity = cmp.Or(f.Severity, finding.Error)
	w.block.add(f, positionOf(w, o), other, func(f *finding.Finding) {
		f.Variable = w.block.variable(o, space, address)
		f.Detail = w.threads(w.laneBit(lane)) + ": " + detail()
	})
}

// variable names what is at an address, or near an address that is in no variable. It is zero for
// memory without names.
func (b *block) variable(o *op, space ptx.Space, address uint64) finding.Variable {
	var v finding.Variable
	switch space {
	case ptx.Shared:
		v = b.launch.layout.Variable(int(address)-int(b.shared.First), len(b.shared.Data))
	case ptx.Global:
		buffer := b.launch.memory.Find(address)
		if buffer == nil || !buffer.Near(address) {
			return v
		}
		v = buffer.Variable
		v.Offset = int(address - buffer.Base)
	default:
		return v
	}
	if o.mem != nil && v.Name+string(v.Space) != "" {
		v.ElementBytes = o.mem.size
	}
	return v
}

// describeByte says where a byte of memory is.
func (w *warp) describeByte(space ptx.Space, address uint64) string {
	switch space {
	case ptx.Shared:
		offset := int(address - w.block.shared.First)
		return fmt.Sprintf("byte %d of shared memory (%s)", offset, w.block.launch.layout.Describe(offset, 0))
	case ptx.Global:
		b := w.block.launch.memory.Find(address)
		return fmt.Sprintf("byte %d of %s", address-b.Base, b.Variable)
	}
	return fmt.Sprintf("byte %d of local memory", address)
}

// threads names the threads of a finding: the block, the warp and the lanes.
func (w *warp) threads(lanes uint32) string {
	if bits.OnesCount32(lanes) == 1 {
		return fmt.Sprintf("thread %d of block %v", w.index*32+firstLane(lanes), w.block.at)
	}
	return fmt.Sprintf("warp %d (%s) of block %v", w.index, lanesText(lanes), w.block.at)
}

func lanesText(lanes uint32) string {
	n := bits.OnesCount32(lanes)
	switch {
	case lanes == everyLane:
		return "all lanes"
	case n == 1:
		return fmt.Sprintf("lane %d", firstLane(lanes))
	}
	return fmt.Sprintf("lanes %#08x", lanes)
}

// reportDeadlock reports what each remaining warp waits for, and ends the block.
func (b *block) reportDeadlock() {
	b.report(finding.Deadlock, b.firstUnfinished(), position{}, func() string {
		return fmt.Sprintf("block %v cannot continue: %s", b.at, b.describe("runs a loop in which nothing changes"))
	})
	b.aborted = true
}

// firstUnfinished is where the first lanes are that have not ended.
func (b *block) firstUnfinished() position {
	for _, w := range b.warps {
		for _, g := range w.unfinished() {
			return g.position()
		}
	}
	return position{}
}

// unfinished lists the lane groups of a warp that have not ended. Lanes at a reconvergence point
// count as a group.
func (w *warp) unfinished() []*laneGroup {
	var list []*laneGroup
	if w.group != nil {
		w.save()
		list = append(list, w.group)
	}
	list = append(list, w.groups...)
	for _, r := range w.reconvergencePoints() {
		if r.arrived != 0 {
			list = append(list, &laneGroup{pc: r.pc, lanes: r.arrived, frame: r.frame})
		}
	}
	return list
}

// position returns the instruction that a group waits in, or else its next instruction.
func (g *laneGroup) position() position {
	pc := g.pc
	if g.wait != nil && g.wait.op != nil {
		pc = g.wait.op.number - g.frame.code.base
	}
	return position{g.frame.code, pc}
}

// describe lists where every remaining warp is and what it waits for, warps in the same state
// together. running describes a group that does not wait.
func (b *block) describe(running string) string {
	var states []string
	warps := map[string][]int{} // by state
	for _, w := range b.warps {
		for _, g := range w.unfinished() {
			what := running
			if g.wait != nil {
				what = b.describeWait(g.wait)
			} else if text := b.describePoll(g); text != "" {
				what = text
			}
			state := fmt.Sprintf("(%s) at %s: %s", lanesText(g.lanes), g.position().place(), what)
			if warps[state] == nil {
				states = append(states, state)
			}
			warps[state] = append(warps[state], w.index)
		}
	}
	const most = 12
	var parts []string
	for i, state := range states {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(states)-most))
			break
		}
		parts = append(parts, warpsText(warps[state])+" "+state)
	}
	return strings.Join(parts, "; ")
}

// warpsText names warps, in ascending order: "warp 3", "warps 0 to 7 and 9".
func warpsText(warps []int) string {
	var ranges []string
	for i := 0; i < len(warps); {
		last := i
		for last+1 < len(warps) && warps[last+1] == warps[last]+1 {
			last++
		}
		switch last - i {
		case 0:
			ranges = append(ranges, fmt.Sprint(warps[i]))
		case 1:
			ranges = append(ranges, fmt.Sprint(warps[i]), fmt.Sprint(warps[last]))
		default:
			ranges = append(ranges, fmt.Sprintf("%d to %d", warps[i], warps[last]))
		}
		i = last + 1
	}
	if len(warps) == 1 {
		return "warp " + ranges[0]
	}
	if n := len(ranges) - 1; n > 0 {
		ranges = []string{strings.Join(ranges[:n], ", ") + " and " + ranges[n]}
	}
	return "warps " + ranges[0]
}

func (b *block) describeWait(wt *wait) string {
	switch wt.kind {
	case waitBarrier:
		bar := &b.barriers[wt.id]
		return fmt.Sprintf("waits at barrier %d, where %d of %d threads have arrived", wt.id, bar.arrived, bar.expected(b))
	case waitCluster:
		return "waits at the cluster barrier"
	case waitLanes:
		return fmt.Sprintf("waits for the other lanes of the mask %#08x", wt.member)
	case waitWarpgroup:
		return "waits for the other warps of its warpgroup to start the wgmma.mma_async that it waits for"
	case waitRegisters:
		return fmt.Sprintf("waits for %d more registers than other warps have released", wt.id)
	}
	return "waits"
}
