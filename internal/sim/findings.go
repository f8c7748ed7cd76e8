package sim

import (
	"fmt"
	"sort"
	"strings"
	"sync"

	"attune/internal/ptx"
)

// Kind is a kind of finding.
type Kind string

// The kinds.
const (
	Race             Kind = "race"
	MissingWait      Kind = "missing-wait"
	MissingFence     Kind = "missing-fence"
	Uninitialized    Kind = "uninitialized"
	OutOfBounds      Kind = "out-of-bounds"
	Misaligned       Kind = "misaligned"
	DivergentBarrier Kind = "divergent-barrier"
	Deadlock         Kind = "deadlock"
	BadBarrier       Kind = "bad-barrier"
	Undefined        Kind = "undefined"
)

// Place is an instruction in PTX and in the source it came from.
type Place struct {
	PTXLine int    `json:"ptx_line"`
	PTX     string `json:"ptx"`              // the instruction
	Source  string `json:"source,omitempty"` // file:line, where the module says so
}

// String is the source line where there is one, and the PTX line.
func (p Place) String() string {
	if p.PTXLine == 0 {
		return ""
	}
	if p.Source == "" {
		return fmt.Sprintf("ptx:%d", p.PTXLine)
	}
	return fmt.Sprintf("%s (ptx:%d)", p.Source, p.PTXLine)
}

// Finding is one thing that is wrong, told once for each pair of places.
type Finding struct {
	Kind   Kind   `json:"kind"`
	Where  Place  `json:"where"`
	Other  *Place `json:"other,omitempty"` // the access it conflicts with
	Count  int    `json:"count"`
	Detail string `json:"detail"` // of the first: threads, address, and what would be right
}

// String is the finding in a line.
func (f Finding) String() string {
	other := ""
	if f.Other != nil {
		other = " with " + f.Other.String()
	}
	return fmt.Sprintf("%s at %s%s (%d times): %s", f.Kind, f.Where, other, f.Count, f.Detail)
}

// Key is what tells findings apart: the kind and the places, whichever came first.
func (f Finding) Key() string {
	where, other := f.Where.String(), ""
	if f.Other != nil {
		other = f.Other.String()
		if other < where {
			where, other = other, where
		}
	}
	return string(f.Kind) + "\x00" + where + "\x00" + other
}

// spot is an instruction of a program: a function and an index in its code. The zero spot is none.
type spot struct {
	code *code
	pc   int32
}

func (s spot) op() *op { return &s.code.ops[s.pc] }

// findingKey tells findings apart: the kind and the pair of source lines, whichever came first.
type findingKey struct {
	kind       Kind
	one, other int
}

// findings collects from all blocks of a launch.
type findings struct {
	mu   sync.Mutex
	seen map[findingKey]*Finding
	from map[*Finding]uint64 // the first block that each was found in: what is told does not depend on the order in which blocks ran
}

func newFindings() *findings {
	return &findings{seen: map[findingKey]*Finding{}, from: map[*Finding]uint64{}}
}

// add counts a finding; its places and the detail are those of the earliest block that has it.
func (f *findings) add(kind Kind, where, other spot, block uint64, detail func() string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := findingKey{kind, where.line(), other.line()}
	if key.one > key.other {
		key.one, key.other = key.other, key.one
	}
	known := f.seen[key]
	if known == nil {
		known = &Finding{Kind: kind}
		f.seen[key] = known
		f.from[known] = ^uint64(0)
	}
	known.Count++
	if block < f.from[known] {
		f.from[known] = block
		known.Where, known.Other, known.Detail = where.place(), nil, detail()
		if other.code != nil {
			place := other.place()
			known.Other = &place
		}
	}
}

// list is all findings, sorted by place.
func (f *findings) list() []Finding {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []Finding
	for _, known := range f.seen {
		all = append(all, *known)
	}
	other := func(f Finding) int {
		if f.Other == nil {
			return 0
		}
		return f.Other.PTXLine
	}
	sort.Slice(all, func(i, j int) bool {
		a, b := all[i], all[j]
		switch {
		case a.Where.PTXLine != b.Where.PTXLine:
			return a.Where.PTXLine < b.Where.PTXLine
		case other(a) != other(b):
			return other(a) < other(b)
		}
		return a.Kind < b.Kind
	})
	return all
}

// line is a number for the source line of an instruction, the same for all instructions of one; 0 for none.
func (s spot) line() int {
	if s.code == nil {
		return 0
	}
	return s.code.lines[s.pc]
}

// numberLines gives every instruction the number of its source line, or one of its own where the module does not say.
func (c *code) numberLines() {
	p := c.program
	c.lines = make([]int, len(c.fn.Code)+1)
	for i := range c.lines {
		source := ""
		if i < len(c.fn.Code) {
			source = sourceLine(p.module, c.fn.Code[i].Location)
		}
		if source == "" {
			p.lines++
			c.lines[i] = p.lines
			continue
		}
		if p.lineOf[source] == 0 {
			p.lines++
			p.lineOf[source] = p.lines
		}
		c.lines[i] = p.lineOf[source]
	}
}

// place describes an instruction.
func (s spot) place() Place {
	if s.code == nil || int(s.pc) >= len(s.code.fn.Code) {
		return Place{}
	}
	in := &s.code.fn.Code[s.pc]
	return Place{PTXLine: in.Line, PTX: s.code.fn.Text(int(s.pc)), Source: sourceLine(s.code.program.module, in.Location)}
}

// sourceLine is file:line of the code that people wrote: for an inlined function the line where it is called.
func sourceLine(m *ptx.Module, l *ptx.Location) string {
	if l == nil {
		return ""
	}
	text := ""
	for ; l != nil; l = l.Inlined {
		line := fmt.Sprintf("%s:%d", m.Files[l.File], l.Line)
		if text != "" {
			line += " in " + text[strings.LastIndexByte(text, '/')+1:]
		}
		text = line
	}
	return text
}
