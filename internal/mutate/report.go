package mutate

// Report says how many breaks of a kernel are caught.
type Report struct {
	Possible   int              `json:"possible"`   // mutants there are
	Mutants    int              `json:"mutants"`    // that were tried
	Killed     int              `json:"killed"`     // that were caught
	Survived   int              `json:"survived"`   // that were not
	Equivalent int              `json:"equivalent"` // of the rest: shown to be the kernel itself
	KillRate   float64          `json:"kill_rate"`  // killed, of those not shown equivalent
	Survivors  []Mutant         `json:"survivors"`
	ByKind     map[string]Tally `json:"by_kind"`
	KilledBy   map[string]int   `json:"killed_by,omitempty"` // by what they were caught with
}

// Tally is the fate of one kind of change.
type Tally struct {
	Mutants int `json:"mutants"`
	Killed  int `json:"killed"`
}

// NewReport is a report of nothing yet, of so many mutants there are.
func NewReport(possible int) Report {
	return Report{Possible: possible, Survivors: []Mutant{}, ByKind: map[string]Tally{}}
}

// Kill counts a mutant that was caught; by says with what, where that is to be told.
func (r *Report) Kill(m Mutant, by string) {
	r.Mutants++
	r.Killed++
	t := r.ByKind[m.What]
	r.ByKind[m.What] = Tally{t.Mutants + 1, t.Killed + 1}
	if by != "" {
		if r.KilledBy == nil {
			r.KilledBy = map[string]int{}
		}
		r.KilledBy[by]++
	}
	r.rate()
}

// Spare counts a mutant that was not caught, and is or is not the same program.
func (r *Report) Spare(m Mutant, equivalent bool) {
	r.Mutants++
	t := r.ByKind[m.What]
	if equivalent {
		r.Equivalent++
	} else {
		r.Survived++
		r.Survivors = append(r.Survivors, m)
		t.Mutants++
	}
	r.ByKind[m.What] = t
	r.rate()
}

func (r *Report) rate() {
	if broken := r.Killed + r.Survived; broken > 0 {
		r.KillRate = float64(r.Killed) / float64(broken)
	}
}
