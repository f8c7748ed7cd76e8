package mutate

import "sort"

// Report counts how many mutants of a kernel a test detects.
type Report struct {
	Possible   int              `json:"possible"`   // all mutants of the kernel
	Mutants    int              `json:"mutants"`    // mutants tried
	Killed     int              `json:"killed"`     // mutants detected
	Survived   int              `json:"survived"`   // mutants not detected and not equivalent
	Equivalent int              `json:"equivalent"` // mutants shown to be equivalent to the kernel
	KillRate   float64          `json:"kill_rate"`  // killed / (killed + survived)
	Survivors  []Mutant         `json:"survivors"`
	ByKind     map[string]Tally `json:"by_kind"`
	KilledBy   map[string]int   `json:"killed_by,omitempty"` // by the reason
}

// Tally counts the mutants of one kind.
type Tally struct {
	Mutants int `json:"mutants"`
	Killed  int `json:"killed"`
}

// NewReport returns an empty report for a kernel with this many possible mutants.
func NewReport(possible int) Report {
	return Report{Possible: possible, Survivors: []Mutant{}, ByKind: map[string]Tally{}}
}

// Add takes in the report of other mutants of the same kernel.
func (r *Report) Add(o Report) {
	r.Mutants, r.Killed, r.Survived, r.Equivalent = r.Mutants+o.Mutants, r.Killed+o.Killed, r.Survived+o.Survived, r.Equivalent+o.Equivalent
	r.Survivors = append(r.Survivors, o.Survivors...)
	sort.SliceStable(r.Survivors, func(i, j int) bool { return r.Survivors[i].Line < r.Survivors[j].Line })
	for kind, t := range o.ByKind {
		own := r.ByKind[kind]
		r.ByKind[kind] = Tally{own.Mutants + t.Mutants, own.Killed + t.Killed}
	}
	for by, n := range o.KilledBy {
		if r.KilledBy == nil {
			r.KilledBy = map[string]int{}
		}
		r.KilledBy[by] += n
	}
	r.updateKillRate()
}

// Kill counts a detected mutant. by is the reason, or "" to count none.
func (r *Report) Kill(m Mutant, by string) {
	r.Mutants++
	r.Killed++
	t := r.ByKind[m.Kind]
	r.ByKind[m.Kind] = Tally{t.Mutants + 1, t.Killed + 1}
	if by != "" {
		if r.KilledBy == nil {
			r.KilledBy = map[string]int{}
		}
		r.KilledBy[by]++
	}
	r.updateKillRate()
}

// Survive counts a mutant that was not detected.
func (r *Report) Survive(m Mutant, equivalent bool) {
	r.Mutants++
	t := r.ByKind[m.Kind]
	if equivalent {
		r.Equivalent++
	} else {
		r.Survived++
		r.Survivors = append(r.Survivors, m)
		t.Mutants++
	}
	r.ByKind[m.Kind] = t
	r.updateKillRate()
}

func (r *Report) updateKillRate() {
	if counted := r.Killed + r.Survived; counted > 0 {
		r.KillRate = float64(r.Killed) / float64(counted)
	}
}
