package finding

import (
	"cmp"
	"slices"
	"sync"
)

// Set collects the findings of all blocks of a launch.
type Set struct {
	mu   sync.Mutex
	seen map[key]*entry
}

// Occurrence is one occurrence of a finding. Lines are numbers that identify a line of the program;
// 0 stands for no line.
type Occurrence struct {
	Kind        Kind
	Severity    Severity
	Line, Other int
	Block       uint64
	Access      Access // zero where only the lines tell findings apart
	Rank        int    // occurrences of a higher rank describe the finding better
	Missing     Sync   // what would order the two lines; empty where that is not the defect
}

// Access is what an instruction does to which memory. A line of source may read one buffer and write
// another, and both may be wrong.
type Access struct {
	Direction uint8
	Memory    uint64 // any number that identifies it
}

// key tells findings apart: the kind, a pair of source lines, the smaller first, and the access.
type key struct {
	kind       Kind
	one, other int
	access     Access
}

// entry is a finding and the occurrence that describes it.
type entry struct {
	Finding
	rank  int
	block uint64
}

// Add counts an occurrence of a finding. describe fills in the places and the detail. Those of the
// highest rank are kept, and of the lowest block with that rank, so that the text does not depend on
// the order in which blocks ran. The finding is an error if any of its occurrences is.
func (s *Set) Add(o Occurrence, describe func(*Finding)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[key]*entry{}
	}
	k := key{o.Kind, min(o.Line, o.Other), max(o.Line, o.Other), o.Access}
	e := s.seen[k]
	if e == nil {
		e = &entry{Finding: Finding{Kind: o.Kind, Severity: o.Severity}, rank: o.Rank, block: ^uint64(0)}
		s.seen[k] = e
	}
	e.Count++
	raised := o.Severity == Error && e.Severity != Error
	if raised {
		e.Severity = Error
	}
	if raised || o.Rank > e.rank || o.Rank == e.rank && o.Block < e.block {
		e.rank, e.block = o.Rank, o.Block
		e.Finding = Finding{Kind: e.Kind, Severity: e.Severity, Count: e.Count, Missing: o.Missing}
		describe(&e.Finding)
	}
}

// List returns all findings, sorted by place.
func (s *Set) List() []Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Finding
	for _, e := range s.seen {
		all = append(all, e.Finding)
	}
	otherLine := func(f *Finding) int {
		if f.Other == nil || f.Kind == Uninitialized { // the use follows the load, where the defect is
			return 0
		}
		return f.Other.PTXLine
	}
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Where.PTXLine, b.Where.PTXLine), cmp.Compare(otherLine(&a), otherLine(&b)), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Detail, b.Detail))
	})
	return all
}
