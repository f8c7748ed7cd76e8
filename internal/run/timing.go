package run

import (
	"fmt"
	"slices"

	"attune/internal/device"
	"attune/internal/measure"
)

// L2 is what a launch that is timed finds in the L2 cache. The zero value is warm.
type L2 string

// Warm is what the launch before has left there, its inputs included; cold is something else.
const (
	Warm L2 = ""
	Cold L2 = "cold"
)

const warmText = "warm"

func (l L2) String() string {
	if l == Warm {
		return warmText
	}
	return string(l)
}

// MarshalText is for flags and records.
func (l L2) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText takes what MarshalText gives, and nothing at all, which older records have.
func (l *L2) UnmarshalText(text []byte) error {
	switch string(text) {
	case "", warmText:
		*l = Warm
	case string(Cold):
		*l = Cold
	default:
		return fmt.Errorf("L2 is %s or %s, and not %q", Warm, Cold, text)
	}
	return nil
}

// Timing says in words how times were taken.
func (l L2) Timing() string {
	const graphs = "device time by CUDA graph replay, variant and parent in turns, "
	if l == Cold {
		return graphs + "inputs cold in L2: a flush before every launch, whose own time, measured beside it, is taken off"
	}
	return graphs + "inputs warm in L2"
}

// GraphsText says in words how many launches graphs had at most, where that is not as usual. None is as usual.
func GraphsText(launches int) string {
	if launches == 0 || launches == device.UsualLaunches {
		return ""
	}
	return fmt.Sprintf("graphs of %d launches at most", launches)
}

// Parts stand beside the time of one series: medians, in microseconds.
type Parts struct {
	SingleUS    *float64 `json:"single_launch_us,omitempty"` // one launch in no graph, between two events
	WithFlushUS *float64 `json:"with_flush_us,omitempty"`    // with a cold L2: what a launch and the flush before it took
	FlushUS     *float64 `json:"flush_us,omitempty"`         // and the flush alone, which was taken off
}

// PartsOf sums up what was measured beside a series.
func PartsOf(s device.Series) Parts {
	middle := func(seconds []float64) *float64 {
		if len(seconds) == 0 {
			return nil
		}
		us := 1e6 * measure.Summarize(seconds).P50
		return &us
	}
	return Parts{middle(s.Single), middle(s.WithFlush), middle(s.Flush)}
}

// Circumstances are what all series of one timing had in common.
type Circumstances struct {
	EmptyNodeUS *float64 `json:"empty_node_us,omitempty"` // a node that does nothing; it is part of every time, and taken off none
	Copies      int      `json:"buffer_copies,omitempty"` // of the buffers, which launches took in turns
	Unstable    bool     `json:"unstable,omitempty"`      // times still moved when the warm-up came to its end
	Watched     *Watched `json:"watched,omitempty"`       // nil where nobody watched the GPU
	Unwatched   string   `json:"unwatched,omitempty"`     // and why not
}

// Watched is what the GPU said of itself while samples were taken.
type Watched struct {
	ClockMHz       [2]int   `json:"sm_mhz"` // the least and the most
	MemoryClockMHz [2]int   `json:"memory_mhz"`
	PowerWatts     float64  `json:"power_w"` // at most
	Celsius        int      `json:"temperature_c"`
	Rounds         int      `json:"rounds"`
	Throttled      int      `json:"throttled"`         // rounds in which something held the clocks down
	SetAside       int      `json:"set_aside"`         // of those, the rounds that count for nothing; 0 where there were too many to do without them
	Kept           string   `json:"kept,omitempty"`    // why none are set aside, where that is for another reason
	Reasons        []string `json:"reasons,omitempty"` // what held them down
}

// CircumstancesOf sums up a timing. Rounds are set aside as by device.Steady, so many together.
func CircumstancesOf(together int, series ...device.Series) Circumstances {
	c := Circumstances{Unwatched: series[0].Unwatched, Copies: series[0].Copies}
	if empty := series[0].EmptyNode; empty != nil {
		us := 1e6 * *empty
		c.EmptyNodeUS = &us
	}
	_, aside, throttled := device.Steady(together, series...)
	for _, s := range series {
		c.Unstable = c.Unstable || s.Unstable
		for _, r := range s.Readings {
			if c.Watched == nil {
				c.Watched = &Watched{
					ClockMHz: [2]int{r.ClockMHz, r.ClockMHz}, MemoryClockMHz: [2]int{r.MemoryClockMHz, r.MemoryClockMHz},
					Rounds: len(s.Seconds), Throttled: throttled, SetAside: len(aside[0]),
				}
			}
			c.Watched.add(r)
		}
	}
	return c
}

func (w *Watched) add(r device.Reading) {
	w.ClockMHz = [2]int{min(w.ClockMHz[0], r.ClockMHz), max(w.ClockMHz[1], r.ClockMHz)}
	w.MemoryClockMHz = [2]int{min(w.MemoryClockMHz[0], r.MemoryClockMHz), max(w.MemoryClockMHz[1], r.MemoryClockMHz)}
	w.PowerWatts, w.Celsius = max(w.PowerWatts, r.PowerWatts), max(w.Celsius, r.Celsius)
	for _, reason := range r.Throttled {
		if !slices.Contains(w.Reasons, reason) {
			w.Reasons = append(w.Reasons, reason)
		}
	}
}

// And is both together, of one shape that was timed in several goes, or of several shapes.
func (c Circumstances) And(other Circumstances) Circumstances {
	if other.EmptyNodeUS != nil {
		c.EmptyNodeUS = other.EmptyNodeUS
	}
	if other.Unwatched != "" {
		c.Unwatched = other.Unwatched
	}
	c.Copies, c.Unstable = max(c.Copies, other.Copies), c.Unstable || other.Unstable
	a, b := c.Watched, other.Watched
	switch {
	case b == nil:
		return c
	case a == nil:
		c.Watched = b
		return c
	}
	both := *a
	both.Rounds, both.Throttled, both.SetAside = a.Rounds+b.Rounds, a.Throttled+b.Throttled, a.SetAside+b.SetAside
	both.Reasons = slices.Clone(a.Reasons)
	both.add(device.Reading{ClockMHz: b.ClockMHz[0], MemoryClockMHz: b.MemoryClockMHz[0], PowerWatts: b.PowerWatts, Celsius: b.Celsius, Throttled: b.Reasons})
	both.add(device.Reading{ClockMHz: b.ClockMHz[1], MemoryClockMHz: b.MemoryClockMHz[1]})
	c.Watched = &both
	return c
}
