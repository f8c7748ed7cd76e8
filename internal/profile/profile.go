package profile

import "math"

// Profile is what is known of one launch of a variant.
type Profile struct {
	Shape   string   `json:"shape"`
	Seed    uint64   `json:"seed"`
	FLOPs   float64  `json:"flops"` // that the problem needs, however the kernel goes about it
	Sim     Values   `json:"-"`
	Ncu     Values   `json:"-"`
	Unknown []string `json:"unknown_metrics,omitempty"`
	Report  string   `json:"report,omitempty"` // file of Nsight Compute's

	Metrics    []Row     `json:"metrics"` // both sides, for programs
	Roofline   *Roofline `json:"roofline,omitempty"`
	NoRoofline string    `json:"no_roofline,omitempty"`
	Insights   []Insight `json:"insights"`
}

// Row is a figure as both sides have it. What a side has not measured is not there.
type Row struct {
	Metric
	Names      []string `json:"names"` // in Nsight Compute's words; several are added up
	Sim        *float64 `json:"sim,omitempty"`
	Ncu        *float64 `json:"ncu,omitempty"`
	Difference *float64 `json:"difference_pct,omitempty"` // of the simulator from Nsight Compute, where both have counted
}

// Tolerance is how far the simulator may be from a chip, in percent, on a figure that PTX decides.
const Tolerance = 2

// Compared says whether both sides have the figure.
func (r *Row) Compared() bool { return r.Sim != nil && r.Ncu != nil }

// Agrees says whether both sides have the figure and are as good as the same.
func (r *Row) Agrees() bool { return r.Difference != nil && math.Abs(*r.Difference) <= Tolerance }

// Agreement parts the figures that both sides have: those that agree as they must, those that must and do not, and those that need not, of which each
// says why.
func (p *Profile) Agreement() (agree, differ, free []Row) {
	for _, r := range p.Rows() {
		switch {
		case !r.Compared():
		case !r.Exact:
			free = append(free, r)
		case r.Agrees():
			agree = append(agree, r)
		default:
			differ = append(differ, r)
		}
	}
	return agree, differ, free
}

// Values are the figures to judge by: a chip's before the simulator's.
func (p *Profile) Values() Values {
	if p.Ncu != nil {
		return p.Ncu
	}
	return p.Sim
}

// Rows hold the figures of both sides beside each other. Of stalls and of what only the simulator counts those are left out that nobody has.
func (p *Profile) Rows() []Row {
	rows := []Row{}
	for _, m := range Metrics {
		r := Row{Metric: m, Names: m.from[0], Sim: p.Sim.Of(m.Key), Ncu: p.Ncu.Of(m.Key)}
		if r.Sim == nil && r.Ncu == nil && m.in != asked {
			continue
		}
		if r.Compared() {
			r.Difference = difference(*r.Sim, *r.Ncu)
		}
		rows = append(rows, r)
	}
	return rows
}

// difference is how far a is from b, in percent of b; nil where b is nothing and a is not.
func difference(a, b float64) *float64 {
	var percent float64
	switch {
	case a == b:
	case b == 0:
		return nil
	default:
		percent = 100 * (a - b) / b
	}
	return &percent
}
