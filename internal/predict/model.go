package predict

import (
	"slices"

	"attune/internal/arch"
)

// Model are the constants that recorded measurements determine.
type Model struct {
	Kappa   float64 `json:"kappa"`              // the share of the other pipes that the busiest one does not hide
	Launch  float64 `json:"launch_us"`          // of a launch in a graph
	Latency float64 `json:"latency_cycles"`     // of a warp for each of its instructions, at least
	L2Bytes float64 `json:"l2_bytes_per_clock"` // of a multiprocessor
}

// Time is a predicted time with what it follows from.
type Time struct {
	Microseconds float64 `json:"us"`
	Cycles       float64 `json:"cycles"`
	Waves        float64 `json:"waves"`
	Resident     int     `json:"resident_blocks"`
	Limit        string  `json:"limit"` // the busiest pipe, or latency
	Pipes        []Pipe  `json:"pipes"` // of a block
}

// Time is the time of a launch on a chip. Each wave takes what its blocks keep the pipes busy, or the
// latency of one block's instructions if that is longer.
func (m Model) Time(w Work, c arch.Chip) Time {
	return m.timeWith(w, c, c.Limits().Resident(w.Warps, w.Registers, w.Shared))
}

// timeWith is the time with a number of resident blocks.
func (m Model) timeWith(w Work, c arch.Chip, resident int) Time {
	t := Time{Resident: resident, Pipes: w.Pipes(c, m)}
	busiest := slices.MaxFunc(t.Pipes, func(a, b Pipe) int {
		if a.Cycles < b.Cycles {
			return -1
		}
		return 1
	})
	sum := 0.0
	for _, p := range t.Pipes {
		sum += p.Cycles
	}
	block := busiest.Cycles + m.Kappa*(sum-busiest.Cycles)
	chain := m.Latency * w.Instructions / float64(max(1, w.Warps))
	t.Limit = busiest.Name
	slots := c.Multiprocessors * resident
	full, rest := w.Blocks/slots, w.Blocks%slots
	t.Waves = float64(w.Blocks) / float64(slots)
	wave := func(blocks int) float64 {
		busy := float64(blocks) * block
		if chain > busy {
			t.Limit = "latency"
		}
		return max(busy, chain)
	}
	if full > 0 {
		t.Cycles = float64(full) * wave(resident)
	}
	if rest > 0 {
		t.Cycles += wave((rest + c.Multiprocessors - 1) / c.Multiprocessors)
	}
	t.Microseconds = t.Cycles/(c.GHz*1e3) + m.Launch
	return t
}
