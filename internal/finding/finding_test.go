package finding

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/ptx"
)

func TestKinds(t *testing.T) {
	kinds := Kinds()
	if n := len(slices.Compact(slices.Sorted(slices.Values(kinds)))); n != len(kinds) || n != 11 {
		t.Errorf("%d kinds, %d of them different; want 11", len(kinds), n)
	}
	kinds = AllowableKinds()
	if n := len(slices.Compact(slices.Sorted(slices.Values(kinds)))); n != len(kinds) || n != 15 {
		t.Errorf("%d allowable kinds, %d of them different; want 15", len(kinds), n)
	}
}

// TestSet checks that findings at one pair of lines are merged in either order, and that the text is
// that of the lowest block.
func TestSet(t *testing.T) {
	var s Set
	with := func(severity Severity, kind Kind, line, other int, block uint64, detail string) {
		s.Add(Occurrence{Kind: kind, Severity: severity, Line: line, Other: other, Block: block}, func(f *Finding) {
			f.Where, f.Detail = Place{PTXLine: line}, detail
			if other > 0 {
				f.Other = &Place{PTXLine: other}
			}
		})
	}
	add := func(kind Kind, line, other int, block uint64, detail string) {
		with(Error, kind, line, other, block, detail)
	}
	add(Race, 7, 5, 3, "block 3")
	add(Race, 5, 7, 2, "block 2")
	add(Race, 7, 5, 4, "block 4")
	add(Misaligned, 5, 0, 1, "other")
	add(Deadlock, 5, 0, 1, "other")
	// An error at the same place decides.
	with(Strict, BadBarrier, 8, 0, 1, "strict")
	with(Strict, BadBarrier, 9, 0, 1, "strict")
	with(Error, BadBarrier, 9, 0, 2, "error")
	with(Strict, BadBarrier, 9, 0, 3, "strict")
	want := []Finding{
		{Kind: Deadlock, Severity: Error, Where: Place{PTXLine: 5}, Count: 1, Detail: "other"},
		{Kind: Misaligned, Severity: Error, Where: Place{PTXLine: 5}, Count: 1, Detail: "other"},
		{Kind: Race, Severity: Error, Where: Place{PTXLine: 5}, Other: &Place{PTXLine: 7}, Count: 3, Detail: "block 2"},
		{Kind: BadBarrier, Severity: Strict, Where: Place{PTXLine: 8}, Count: 1, Detail: "strict"},
		{Kind: BadBarrier, Severity: Error, Where: Place{PTXLine: 9}, Count: 3, Detail: "error"},
	}
	got := s.List()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if text := got[2].String(); text != "race at ptx:5 with ptx:7 (3 times): block 2" {
		t.Errorf("the text is %q", text)
	}
	swapped := Finding{Kind: Race, Severity: Error, Where: Place{PTXLine: 7}, Other: &Place{PTXLine: 5}}
	if got[2].Key() != swapped.Key() || got[2].Key() == got[0].Key() {
		t.Errorf("keys %q, %q and %q", got[2].Key(), swapped.Key(), got[0].Key())
	}
}

// TestSetAccesses checks that accesses to different memory, or in different directions, are findings
// of their own, and that an occurrence of a higher rank describes a finding.
func TestSetAccesses(t *testing.T) {
	var s Set
	add := func(o Occurrence, detail string) {
		o.Kind, o.Severity = OutOfBounds, Error
		s.Add(o, func(f *Finding) { f.Where, f.Detail = Place{PTXLine: 3}, detail })
	}
	add(Occurrence{Line: 1, Access: Access{1, 64}}, "writes x")
	add(Occurrence{Line: 1, Access: Access{0, 64}}, "reads x")
	add(Occurrence{Line: 1, Access: Access{0, 64}, Block: 2, Rank: 1}, "reads x, better")
	add(Occurrence{Line: 1, Access: Access{0, 64}, Block: 1, Rank: 1}, "reads x, best")
	add(Occurrence{Line: 1, Access: Access{0, 64}}, "reads x again")
	add(Occurrence{Line: 1, Access: Access{0, 128}}, "reads y")
	where := Place{PTXLine: 3}
	want := []Finding{
		{Kind: OutOfBounds, Severity: Error, Where: where, Count: 4, Detail: "reads x, best"},
		{Kind: OutOfBounds, Severity: Error, Where: where, Count: 1, Detail: "reads y"},
		{Kind: OutOfBounds, Severity: Error, Where: where, Count: 1, Detail: "writes x"},
	}
	if d := cmp.Diff(want, s.List()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestString(t *testing.T) {
	f := Finding{Kind: Race, Where: Place{PTXLine: 5}, Other: &Place{}, Count: 1, Detail: "text"}
	if got := f.String(); got != "race at ptx:5 (once): text" {
		t.Errorf("%q", got)
	}
}

// Code that the compiler has added to an inlined function has line 0: the place is then the call.
func TestOwnOfAddedCode(t *testing.T) {
	call := ptx.Frame{File: "k.cu", Line: 7, Column: 3}
	for name, p := range map[string]Place{
		"in the kernel's folder": {File: "part.cuh", Callers: []ptx.Frame{call}},
		"in a header":            {File: "../include/a.cuh", Line: 4, Callers: []ptx.Frame{{File: "part.cuh"}, call}},
	} {
		if at, known := p.Own(); at != call || !known {
			t.Errorf("%s: %v, %v; want %v", name, at, known, call)
		}
	}
	if at, known := (Place{File: "k.cu"}).Own(); at.File != "k.cu" || !known {
		t.Errorf("without any line: %v, %v", at, known)
	}
}
