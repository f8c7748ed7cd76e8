package coverage

import (
	"cmp"
	"slices"
	"strings"
)

// Join is the summary of two runs of the same code on different problems. It says of a line only what
// is so in both: nothing of one that both have executed, because each may have taken another way.
func (s *Summary) Join(other *Summary) *Summary {
	if s == nil || other == nil {
		return nil
	}
	a, b := linesIn(s.Never), linesIn(other.Never)
	return &Summary{
		Lines: s.Lines, Never: rangesOf(a.and(b)),
		Partly: rangesOf(a.and(linesIn(other.Partly)), b.and(linesIn(s.Partly))),
		OneWay: rangesOf(a.and(linesIn(other.OneWay)), b.and(linesIn(s.OneWay))),
	}
}

// lineSet are lines of files.
type lineSet map[place]bool

type place struct {
	file string
	line int
}

func linesIn(ranges []Range) lineSet {
	set := lineSet{}
	for _, r := range ranges {
		for line := r.From; line <= r.To; line++ {
			set[place{r.File, line}] = true
		}
	}
	return set
}

func (s lineSet) and(other lineSet) []place {
	var both []place
	for at := range s {
		if other[at] {
			both = append(both, at)
		}
	}
	return both
}

// rangesOf are the ranges of some lines, in their order.
func rangesOf(lists ...[]place) []Range {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(a, b place) int { return cmp.Or(strings.Compare(a.file, b.file), cmp.Compare(a.line, b.line)) })
	var ranges []Range
	for _, at := range slices.Compact(all) {
		if n := len(ranges); n > 0 && ranges[n-1].File == at.file && ranges[n-1].To+1 == at.line {
			ranges[n-1].To = at.line
		} else {
			ranges = append(ranges, Range{at.file, at.line, at.line})
		}
	}
	return ranges
}
