package sim

import (
	"attune/internal/coverage"
	"attune/internal/ptx"
)

// marks are those of the instructions of a program, by their numbers.
type marks []coverage.Mark

// add marks an instruction. It stores nothing for one that has the mark: marks of blocks on other cores
// may be in the same cache line.
func (m marks) add(o *op, mark coverage.Mark) {
	if m[o.number]&mark == 0 {
		m[o.number] |= mark
	}
}

// covered are the marks of the instructions of all functions that the launch may reach. The first
// instruction of a run of lane operations is marked for all of them.
func (r *launch) covered() *coverage.Launches {
	l := &coverage.Launches{Code: r.program.source(), Marks: r.marks, Executed: r.executed}
	for _, c := range r.program.codes {
		if !r.reachable[c.fn] {
			continue
		}
		left := int32(0) // of the run that has run
		for i := range c.fn.Code {
			o, m := &c.ops[i], &l.Marks[int(c.base)+i]
			if *m&coverage.Ran != 0 {
				left = max(left, o.runLength)
			}
			*m |= coverage.Reachable
			if left > 0 {
				*m |= coverage.Ran
				left--
			}
			if o.guard >= 0 {
				*m |= coverage.Conditional
			}
		}
	}
	return l
}

// source is where the instructions are, by their numbers.
func (p *Program) source() *coverage.Code {
	p.sourceOnce.Do(func() {
		c := &coverage.Code{Lines: make([]int, len(p.ops)), Frames: make([][]ptx.Frame, len(p.ops))}
		for i, at := range p.ops {
			if at.code != nil && int(at.pc) < len(at.code.fn.Code) {
				in := &at.code.fn.Code[at.pc]
				c.Lines[i], c.Frames[i] = in.Line, p.module.Frames(in.Location)
			}
		}
		p.sourceCode = c
	})
	return p.sourceCode
}
