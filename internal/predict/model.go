package predict

import (
	"cmp"
	"math"
	"slices"

	"attune/internal/arch"
)

// Model are the constants that recorded measurements determine.
type Model struct {
	// Kappa is the share of the other pipes that the busiest one does not hide, with kappaWarps warps on
	// a multiprocessor. It falls with a power of their number: more warps fill more gaps. Math is the same
	// share of the exponentials and multiply-adds where the tensor cores are the busiest pipe: products
	// wait for them, and for few other things. MathBeside is that share beside another pipe.
	Kappa      float64 `json:"kappa"`
	Math       float64 `json:"kappa_math"`
	MathBeside float64 `json:"kappa_math_beside"`
	Power      float64 `json:"power"`

	// Barrier are the cycles that a block loses at each barrier, and Spill those at each access of a
	// spilled register. Other blocks of the multiprocessor use them.
	Barrier float64 `json:"barrier_cycles"`
	Spill   float64 `json:"spill_cycles"`

	Tail    float64 `json:"tail"`               // blocks of average length that the last of unequal ones take longer
	Launch  float64 `json:"launch_us"`          // of a launch in a graph
	L2Bytes float64 `json:"l2_bytes_per_clock"` // of a multiprocessor
}

const kappaWarps = 8

// Time is a predicted time with what it follows from.
type Time struct {
	Microseconds float64 `json:"us"`
	Cycles       float64 `json:"cycles"`
	Waves        float64 `json:"waves"`
	Resident     int     `json:"resident_blocks"`
	Limit        string  `json:"limit"` // the busiest pipe
	Pipes        []Pipe  `json:"pipes"` // of a block
}

// Time is the time of a launch on a chip.
func (m Model) Time(w Work, c arch.Chip) Time {
	return m.timeWith(w, c, c.Limits().Resident(w.Warps, w.Registers, w.Shared))
}

// timeWith is the time with a number of resident blocks. Waves of blocks follow each other. The last one
// has fewer blocks on a multiprocessor, which overlap less. Blocks of unequal length leave no gaps between
// waves, but end at different times.
func (m Model) timeWith(w Work, c arch.Chip, resident int) Time {
	t := Time{Resident: resident, Pipes: w.Pipes(c, m, 1)}
	slots := c.Multiprocessors * resident
	t.Waves = float64(w.Blocks) / float64(slots)
	full, rest := w.Blocks/slots, w.Blocks%slots
	last := (rest + c.Multiprocessors - 1) / c.Multiprocessors // blocks of a multiprocessor
	lastPipes := w.Pipes(c, m, float64(rest)/float64(max(1, last*c.Multiprocessors)))
	if full == 0 {
		t.Pipes = lastPipes
	}
	switch {
	case full > 0 && w.Uneven:
		t.Cycles = t.Waves*m.wave(w, t.Pipes, resident) + m.Tail*m.wave(w, t.Pipes, 1)
	default:
		t.Cycles = float64(full)*m.wave(w, t.Pipes, resident) + m.wave(w, lastPipes, last)
	}
	t.Limit = busiestOf(t.Pipes).Name
	t.Microseconds = t.Cycles/(c.GHz*1e3) + m.Launch
	return t
}

// wave are the cycles of blocks that share a multiprocessor.
func (m Model) wave(w Work, pipes []Pipe, blocks int) float64 {
	if blocks == 0 {
		return 0
	}
	busiest, rest := busiestOf(pipes), 0.0
	mathShare := m.MathBeside
	if busiest.Name == tensorPipe {
		mathShare = m.Math
	}
	for _, p := range pipes {
		switch {
		case p == busiest:
		case p.Name == ex2Pipe || p.Name == fmaPipe:
			rest += mathShare * p.Cycles
		default:
			rest += m.Kappa * p.Cycles
		}
	}
	gaps := math.Pow(kappaWarps/float64(blocks*w.Warps), m.Power)
	idle := (m.Barrier*w.Barriers + m.Spill*w.Spills) / float64(blocks)
	return float64(blocks)*(busiest.Cycles+gaps*rest) + idle
}

func busiestOf(pipes []Pipe) Pipe {
	return slices.MaxFunc(pipes, func(a, b Pipe) int { return cmp.Compare(a.Cycles, b.Cycles) })
}
