package spec

import (
	"math/rand/v2"
	"slices"

	"attune/internal/rule"
)

// Cover returns a small set of variants that is a pairwise cover: it has every two values of two
// knobs that any allowed variant has together. Most defects of a kernel with many knobs involve at
// most two of them, so that the set can stand for all variants. It is the same for the same spec.
//
// A variant is named after the stage that it differs from in the fewest knobs. With stages of
// several sources, every source has a cover of its own knobs.
func (k *Kernel) Cover() []Variant {
	var variants []Variant
	var sources []string
	for _, stage := range k.Stages {
		if slices.Contains(sources, stage.Source) {
			continue
		}
		sources = append(sources, stage.Source)
		for _, values := range k.forSource(stage.Source).cover() {
			variants = append(variants, Variant{k.nearestStage(stage.Source, values), values})
		}
	}
	return variants
}

// nearestStage returns the stage of a source that differs from an assignment in the fewest knobs;
// of several, the first.
func (k *Kernel) nearestStage(source string, values []int) *Stage {
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

// domains holds the remaining values of each knob, as indices into Knob.Values.
type domains = rule.Domains

// coverChecks ends the search for a cover: about ten seconds. The cover of kernels/sdpa takes two
// per cent of that.
const coverChecks = 1 << 27

// search returns a search for assignments of the knobs that obey every constraint.
func (k *Kernel) search() *rule.Search {
	values := make([][]rule.Value, len(k.Knobs))
	for i, knob := range k.Knobs {
		for _, value := range knob.Values {
			values[i] = append(values[i], rule.Int(int64(value)))
		}
	}
	var rules []*rule.Rule
	for _, c := range k.Constraints {
		rules = append(rules, c.rule)
	}
	return rule.NewSolver(values, rules, nil).Search(coverChecks)
}

// cover finds the assignments greedily. Each is built around a pair that is not covered yet, and
// covers as many other such pairs as possible.
func (k *Kernel) cover() [][]int {
	s := k.search()
	left, ok := s.All()
	if !ok {
		panic("BUG: the stages of a kernel obey its constraints")
	}
	if len(k.Knobs) == 0 {
		return [][]int{{}}
	}
	uncovered := newPairs(k.Knobs, left)
	var found []domains
	for {
		pair, ok := uncovered.first()
		if !ok {
			break
		}
		assignment, ok := build(s, pair, left, uncovered)
		if !ok {
			uncovered.remove(pair) // no allowed variant has it, or the search is exhausted
			continue
		}
		uncovered.removeAll(assignment)
		found = append(found, assignment)
	}
	found = prune(k.Knobs, left, found)
	slices.SortFunc(found, func(a, b domains) int { return slices.CompareFunc(a, b, slices.Compare) })
	assignments := make([][]int, len(found))
	for i, assignment := range found {
		for knob, values := range assignment {
			assignments[i] = append(assignments[i], k.Knobs[knob].Values[values[0]])
		}
	}
	return assignments
}

// attempts is how often an assignment is built, each time with ties broken differently. More
// attempts hardly make the set smaller.
const attempts = 20

// build returns the best of several assignments that have a pair; false if there is none.
func build(s *rule.Search, pair pair, left domains, uncovered *pairs) (domains, bool) {
	start, ok := s.Assign(left, pair.a.knob, pair.a.value)
	if ok {
		start, ok = s.Assign(start, pair.b.knob, pair.b.value)
	}
	if !ok {
		return nil, false
	}
	var best domains
	most := 0
	for attempt := range attempts {
		random := rand.New(rand.NewPCG(uint64(attempt), 0))
		assignment, ok := s.Complete(start, func(left domains) (knob int, value uint16) { return uncovered.next(left, random) })
		if !ok {
			return nil, false
		}
		if n := uncovered.count(assignment); n > most {
			best, most = assignment, n
		}
	}
	return best, true
}

// prune removes assignments whose pairs are all covered by others. It tries the earliest first:
// they were built when every pair was uncovered.
func prune(knobs []Knob, left domains, all []domains) []domains {
	for i := 0; i < len(all); {
		others := slices.Delete(slices.Clone(all), i, i+1)
		uncovered := newPairs(knobs, left)
		for _, assignment := range others {
			uncovered.removeAll(assignment)
		}
		if uncovered.count(all[i]) > 0 {
			i++
			continue
		}
		all = others
	}
	return all
}

// setting is a knob and one of its values, both as indices.
type setting struct {
	knob  int
	value uint16
}

// pair is two settings of different knobs. A setting also forms a pair with itself, so that a
// kernel with a single knob has something to cover.
type pair struct{ a, b setting }

// pairs is a set of pairs.
type pairs struct {
	settings []setting
	number   [][]int  // index into settings, by knob and value
	has      [][]bool // by the numbers of both settings; symmetric
}

// newPairs returns all pairs of remaining values.
func newPairs(knobs []Knob, left domains) *pairs {
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
		p.has = append(p.has, row)
	}
	return p
}

// first returns the first pair of the set; false if the set is empty.
func (p *pairs) first() (pair, bool) {
	for i, row := range p.has {
		if j := slices.Index(row, true); j >= 0 {
			return pair{p.settings[i], p.settings[j]}, true
		}
	}
	return pair{}, false
}

func (p *pairs) remove(one pair) {
	a, b := p.number[one.a.knob][one.a.value], p.number[one.b.knob][one.b.value]
	p.has[a][b], p.has[b][a] = false, false
}

// removeAll removes the pairs of an assignment.
func (p *pairs) removeAll(assignment domains) {
	for _, a := range p.numbers(assignment) {
		for _, b := range p.numbers(assignment) {
			p.has[a][b] = false
		}
	}
}

// count returns how many pairs of an assignment are in the set. It counts pairs of different
// settings twice.
func (p *pairs) count(assignment domains) int {
	n := 0
	numbers := p.numbers(assignment)
	for _, a := range numbers {
		for _, b := range numbers {
			if p.has[a][b] {
				n++
			}
		}
	}
	return n
}

// numbers returns the settings of the knobs that have one value left.
func (p *pairs) numbers(left domains) []int {
	var numbers []int
	for knob, values := range left {
		if len(values) == 1 {
			numbers = append(numbers, p.number[knob][values[0]])
		}
	}
	return numbers
}

// next chooses the setting with the most pairs in the set: first with the settings that are already
// assigned, then with all settings. Ties are broken at random.
func (p *pairs) next(left domains, random *rand.Rand) (knob int, value uint16) {
	assigned := p.numbers(left)
	best, ties := [2]int{-1, -1}, 0
	for k, values := range left {
		if len(values) == 1 {
			continue
		}
		for _, v := range values {
			gain := p.gain(p.number[k][v], assigned)
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

// gain counts the pairs of a setting in the set: with the assigned settings, and with all settings.
func (p *pairs) gain(number int, assigned []int) [2]int {
	row := p.has[number]
	gain := [2]int{}
	for _, other := range assigned {
		if row[other] {
			gain[0]++
		}
	}
	for _, is := range row {
		if is {
			gain[1]++
		}
	}
	return gain
}
