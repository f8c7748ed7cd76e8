package profile

import "math"

// Set has the profiles of a variant, one for each shape.
type Set struct {
	Variant  string
	Profiles []*Profile
}

// Profile has the figures of one launch of a variant.
type Profile struct {
	Shape   string   `json:"shape"`
	Seed    uint64   `json:"seed"`
	FLOPs   float64  `json:"flops"` // of the problem, not of the kernel's implementation
	Sim     Values   `json:"-"`
	Ncu     Values   `json:"-"`
	Unknown []string `json:"unknown_metrics,omitempty"`
	Report  string   `json:"report,omitempty"` // file of Nsight Compute's report

	Metrics    []Row     `json:"metrics"` // of both sources, for programs
	Roofline   *Roofline `json:"roofline,omitempty"`
	NoRoofline string    `json:"no_roofline,omitempty"`
	Insights   []Insight `json:"insights"`
}

// Row is a figure from both sources. A source that has not measured it is nil.
type Row struct {
	Metric
	Names      []string `json:"names"` // Nsight Compute's names; several are added
	Sim        *float64 `json:"sim,omitempty"`
	Ncu        *float64 `json:"ncu,omitempty"`
	Difference *float64 `json:"difference_pct,omitempty"` // of Sim from Ncu, if both exist
}

// Tolerance is the largest difference between the simulator and a chip, in percent, on a figure
// that follows from the PTX.
const Tolerance = 2

// Compared reports whether both sources have the figure.
func (r *Row) Compared() bool { return r.Sim != nil && r.Ncu != nil }

// Agrees reports whether both sources have the figure and agree within Tolerance.
func (r *Row) Agrees() bool { return r.Difference != nil && math.Abs(*r.Difference) <= Tolerance }

// Agreement sorts the figures that both sources have: exact figures that agree, exact figures that
// differ, and figures that need not agree, whose Why has the reason.
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

// Values are the chip's figures, or the simulator's if there are none of a chip.
func (p *Profile) Values() Values {
	if p.Ncu != nil {
		return p.Ncu
	}
	return p.Sim
}

// Rows are the figures of both sources side by side. Stalls and figures of the simulator that no
// source has are omitted.
func (p *Profile) Rows() []Row {
	rows := []Row{}
	for _, m := range Metrics {
		r := Row{Metric: m, Names: m.from[0], Sim: p.Sim.Of(m.Key), Ncu: p.Ncu.Of(m.Key)}
		if r.Sim == nil && r.Ncu == nil && m.in != requested {
			continue
		}
		if r.Compared() {
			r.Difference = difference(*r.Sim, *r.Ncu)
		}
		rows = append(rows, r)
	}
	return rows
}

// difference is a minus b in percent of b; nil if only b is 0.
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
