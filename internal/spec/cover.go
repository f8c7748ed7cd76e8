package spec

import (
	"math/rand/v2"
	"slices"
)

// Cover returns a small set of variants that has every two values, of two different knobs, which any allowed variant has
// together. Most defects of a kernel with many knobs show where two of them meet, so the set stands for all variants where
// those are too many to try. It is the same for the same spec.
//
// A variant is written as a departure from the stage that it differs from in the fewest knobs. With stages of several
// sources the set comes once for each, with its own knobs.
func (k *Kernel) Cover() []Variant {
	var variants []Variant
	var sources []string
	for _, stage := range k.Stages {
		if slices.Contains(sources, stage.Source) {
			continue
		}
		sources = append(sources, stage.Source)
		for _, values := range k.of(stage.Source).cover() {
			variants = append(variants, Variant{k.nearest(stage.Source, values), values})
		}
	}
	return variants
}

// nearest is the stage of a source that differs from an assignment in the fewest knobs, and the first of several.
func (k *Kernel) nearest(source string, values []int) *Stage {
	var best *Stage
	least := len(values) + 1
	for _, stage := range k.Stages {
		differ := 0
		for knob, value := range stage.values {
			if value != values[knob] {
				differ++
			}
		}
		if stage.Source == source && differ < least {
			best, least = stage, differ
		}
	}
	return best
}

// cover finds the assignments. Each is built around a pair that none has yet, and takes along as many other such pairs as
// it can; of several attempts the best one stays.
func (k *Kernel) cover() [][]int {
	s := newSearch(k)
	left, ok := s.all()
	if !ok {
		panic("BUG: the stages of a kernel obey its constraints")
	}
	if len(k.Knobs) == 0 {
		return [][]int{{}}
	}
	open := newPairs(k.Knobs, left)
	var found []choices
	for {
		pair, ok := open.first()
		if !ok {
			break
		}
		best, ok := s.around(pair, left, open)
		if !ok {
			open.close(pair) // no variant has it
			continue
		}
		open.closeAll(best)
		found = append(found, best)
	}
	found = needed(k.Knobs, left, found)
	slices.SortFunc(found, func(a, b choices) int { return slices.CompareFunc(a, b, slices.Compare) })
	assignments := make([][]int, len(found))
	for i, one := range found {
		for knob, values := range one {
			assignments[i] = append(assignments[i], k.Knobs[knob].Values[values[0]])
		}
	}
	return assignments
}

// attempts is how often each assignment is built, with ties broken otherwise each time. More make the set hardly smaller.
const attempts = 20

// around builds an assignment with a pair in it, as good as a few attempts make it; false where there is none.
func (s *search) around(pair pair, left choices, open *pairs) (choices, bool) {
	start, ok := s.with(left, pair.a.knob, pair.a.value)
	if ok {
		start, ok = s.with(start, pair.b.knob, pair.b.value)
	}
	if !ok {
		return nil, false
	}
	var best choices
	most := 0
	for attempt := range attempts {
		random := rand.New(rand.NewPCG(uint64(attempt), 0))
		one, ok := s.complete(start, func(left choices) (knob, value int) { return open.next(left, random) })
		if !ok {
			return nil, false
		}
		if n := open.count(one); n > most {
			best, most = one, n
		}
	}
	return best, true
}

// needed leaves out assignments all of whose pairs others have as well, the earlier ones first: they were built when
// every pair was new.
func needed(knobs []Knob, left choices, all []choices) []choices {
	for i := 0; i < len(all); {
		others := slices.Delete(slices.Clone(all), i, i+1)
		open := newPairs(knobs, left)
		for _, one := range others {
			open.closeAll(one)
		}
		if open.count(all[i]) > 0 {
			i++
			continue
		}
		all = others
	}
	return all
}

// setting is a knob with one of its values, both as indices.
type setting struct{ knob, value int }

// pair is two settings of different knobs, or, so that a kernel with a single knob has something to cover, one twice.
type pair struct{ a, b setting }

// pairs are those that no variant has yet.
type pairs struct {
	settings []setting
	number   [][]int  // of a setting, by knob and value
	open     [][]bool // by the numbers of both settings, either way round
}

// newPairs has every pair of values that are left.
func newPairs(knobs []Knob, left choices) *pairs {
	p := &pairs{}
	for knob := range knobs {
		p.number = append(p.number, make([]int, len(knobs[knob].Values)))
		for _, value := range left[knob] {
			p.number[knob][value] = len(p.settings)
			p.settings = append(p.settings, setting{knob, value})
		}
	}
	for _, a := range p.settings {
		row := make([]bool, len(p.settings))
		for j, b := range p.settings {
			row[j] = a.knob != b.knob || a == b
		}
		p.open = append(p.open, row)
	}
	return p
}

// first is the first open pair.
func (p *pairs) first() (pair, bool) {
	for i, row := range p.open {
		if j := slices.Index(row, true); j >= 0 {
			return pair{p.settings[i], p.settings[j]}, true
		}
	}
	return pair{}, false
}

func (p *pairs) close(one pair) {
	a, b := p.number[one.a.knob][one.a.value], p.number[one.b.knob][one.b.value]
	p.open[a][b], p.open[b][a] = false, false
}

// closeAll closes the pairs of an assignment.
func (p *pairs) closeAll(assignment choices) {
	for _, a := range p.numbers(assignment) {
		for _, b := range p.numbers(assignment) {
			p.open[a][b] = false
		}
	}
}

// count says how many open pairs an assignment has, each of them twice.
func (p *pairs) count(assignment choices) int {
	n := 0
	numbers := p.numbers(assignment)
	for _, a := range numbers {
		for _, b := range numbers {
			if p.open[a][b] {
				n++
			}
		}
	}
	return n
}

// numbers is the settings of the knobs that have one value left.
func (p *pairs) numbers(left choices) []int {
	var numbers []int
	for knob, values := range left {
		if len(values) == 1 {
			numbers = append(numbers, p.number[knob][values[0]])
		}
	}
	return numbers
}

// next picks what takes along the most open pairs: with what is settled or, where that is the same, in all.
func (p *pairs) next(left choices, random *rand.Rand) (knob, value int) {
	settled := p.numbers(left)
	best, ties := [2]int{-1, -1}, 0
	for k, values := range left {
		if len(values) == 1 {
			continue
		}
		for _, v := range values {
			row := p.open[p.number[k][v]]
			gain := [2]int{}
			for _, other := range settled {
				if row[other] {
					gain[0]++
				}
			}
			for _, is := range row {
				if is {
					gain[1]++
				}
			}
			switch c := slices.Compare(gain[:], best[:]); {
			case c > 0:
				best, ties = gain, 1
				knob, value = k, v
			case c == 0:
				if ties++; random.IntN(ties) == 0 {
					knob, value = k, v
				}
			}
		}
	}
	return knob, value
}
