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

// key tells findings apart: the kind and a pair of source lines, the smaller first.
type key struct {
	kind       Kind
	one, other int
}

// entry is a finding and the lowest block that has it.
type entry struct {
	Finding
	block uint64
}

// Add counts a finding at a pair of source lines. Lines are numbers that identify a line of the
// program; 0 stands for no line. describe fills in the places and the detail. Those of the lowest
// block are kept, so that the text does not depend on the order in which blocks ran. The finding is
// an error if any of its occurrences is.
func (s *Set) Add(kind Kind, severity Severity, line, other int, block uint64, describe func(*Finding)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[key]*entry{}
	}
	k := key{kind, min(line, other), max(line, other)}
	e := s.seen[k]
	if e == nil {
		e = &entry{Finding: Finding{Kind: kind, Severity: severity}, block: ^uint64(0)}
		s.seen[k] = e
	}
	e.Count++
	raised := severity == Error && e.Severity == Strict
	if raised {
		e.Severity = Error
	}
	if block < e.block || raised {
		e.block = block
		e.Other = nil
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
		return cmp.Or(cmp.Compare(a.Where.PTXLine, b.Where.PTXLine), cmp.Compare(otherLine(&a), otherLine(&b)), cmp.Compare(a.Kind, b.Kind))
	})
	return all
}
