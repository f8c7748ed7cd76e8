package run

import (
	"fmt"
	"slices"

	"attune/internal/device"
	"attune/internal/measure"
)

// L2 is the state of the L2 cache before a timed launch. The zero value is warm.
type L2 string

// A warm cache has what the launch before left there, including the inputs. A cold one was flushed.
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

// MarshalText writes the value of a flag or a record.
func (l L2) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what MarshalText writes, and the empty text of old records.
func (l *L2) UnmarshalText(text []byte) error {
	switch string(text) {
	case "", warmText:
		*l = Warm
	case string(Cold):
		*l = Cold
	default:
		return fmt.Errorf("L2 is %s or %s, not %q", Warm, Cold, text)
	}
	return nil
}

// Timing describes how times were taken.
func (l L2) Timing() string {
	const graphs = "device time by CUDA graph replay, variant and parent interleaved, "
	if l == Cold {
		return graphs + "inputs cold in L2: a flush before every launch, whose time is measured beside it and subtracted"
	}
	return graphs + "inputs warm in L2"
}

// GraphsText describes the limit of launches in a graph. It is empty for the default, which 0
// stands for.
func GraphsText(launches int) string {
	if launches == 0 || launches == device.DefaultLaunches {
		return ""
	}
	return fmt.Sprintf("graphs of at most %d launches", launches)
}

// RelatedTimes were measured beside the times of a series. They are medians in microseconds.
type RelatedTimes struct {
	SingleUS    *float64 `json:"single_launch_us,omitempty"` // one launch outside a graph, between two events
	WithFlushUS *float64 `json:"with_flush_us,omitempty"`    // with a cold L2: a flush and a launch
	FlushUS     *float64 `json:"flush_us,omitempty"`         // with a cold L2: the flush alone, which was subtracted
}

// RelatedTimesOf summarizes those of a series.
func RelatedTimesOf(s device.Series) RelatedTimes {
	median := func(seconds []float64) *float64 {
		if len(seconds) == 0 {
			return nil
		}
		us := 1e6 * measure.Summarize(seconds).P50
		return &us
	}
	return RelatedTimes{median(s.Single), median(s.WithFlush), median(s.Flush)}
}

// Conditions are those under which all series of one timing were taken.
type Conditions struct {
	EmptyNodeUS *float64   `json:"empty_node_us,omitempty"` // an empty graph node; every time includes it
	Copies      int        `json:"buffer_copies,omitempty"` // of the buffers, used in rotation
	Unstable    bool       `json:"unstable,omitempty"`      // times still changed at the end of the warm-up
	Monitored   *Monitored `json:"watched,omitempty"`       // nil if the GPU was not monitored
	Unmonitored string     `json:"unwatched,omitempty"`     // why it was not
}

// Monitored is what the GPU reported while samples were taken.
type Monitored struct {
	ClockMHz       [2]int   `json:"sm_mhz"`        // minimum and maximum
	MemoryClockMHz [2]int   `json:"memory_mhz"`    // minimum and maximum
	PowerWatts     float64  `json:"power_w"`       // maximum
	Celsius        int      `json:"temperature_c"` // maximum
	Rounds         int      `json:"rounds"`
	Throttled      int      `json:"throttled"`         // rounds in which the GPU was throttled
	Excluded       int      `json:"set_aside"`         // throttled rounds that were excluded; 0 if there were too many
	Kept           string   `json:"kept,omitempty"`    // another reason why no round was excluded
	Reasons        []string `json:"reasons,omitempty"` // of the throttling
}

// ConditionsOf summarizes a timing. Rounds are excluded in groups of the given size, as by
// device.Steady.
func ConditionsOf(group int, series ...device.Series) Conditions {
	c := Conditions{Unmonitored: series[0].NoReadings, Copies: series[0].Copies}
	if empty := series[0].EmptyNode; empty != nil {
		us := 1e6 * *empty
		c.EmptyNodeUS = &us
	}
	_, excluded, throttled := device.Steady(group, series...)
	for _, s := range series {
		c.Unstable = c.Unstable || s.Unstable
		for _, r := range s.Readings {
			if c.Monitored == nil {
				c.Monitored = &Monitored{
					ClockMHz: [2]int{r.ClockMHz, r.ClockMHz}, MemoryClockMHz: [2]int{r.MemoryClockMHz, r.MemoryClockMHz},
					Rounds: len(s.Seconds), Throttled: throttled, Excluded: len(excluded[0]),
				}
			}
			c.Monitored.add(r)
		}
	}
	return c
}

func (m *Monitored) add(r device.Reading) {
	m.ClockMHz = [2]int{min(m.ClockMHz[0], r.ClockMHz), max(m.ClockMHz[1], r.ClockMHz)}
	m.MemoryClockMHz = [2]int{min(m.MemoryClockMHz[0], r.MemoryClockMHz), max(m.MemoryClockMHz[1], r.MemoryClockMHz)}
	m.PowerWatts, m.Celsius = max(m.PowerWatts, r.PowerWatts), max(m.Celsius, r.Celsius)
	for _, reason := range r.Throttled {
		if !slices.Contains(m.Reasons, reason) {
			m.Reasons = append(m.Reasons, reason)
		}
	}
}

// And combines the conditions of two timings.
func (c Conditions) And(other Conditions) Conditions {
	if other.EmptyNodeUS != nil {
		c.EmptyNodeUS = other.EmptyNodeUS
	}
	if other.Unmonitored != "" {
		c.Unmonitored = other.Unmonitored
	}
	c.Copies, c.Unstable = max(c.Copies, other.Copies), c.Unstable || other.Unstable
	a, b := c.Monitored, other.Monitored
	switch {
	case b == nil:
		return c
	case a == nil:
		c.Monitored = b
		return c
	}
	both := *a
	both.Rounds, both.Throttled, both.Excluded = a.Rounds+b.Rounds, a.Throttled+b.Throttled, a.Excluded+b.Excluded
	both.Reasons = slices.Clone(a.Reasons)
	both.add(device.Reading{
		ClockMHz: b.ClockMHz[0], MemoryClockMHz: b.MemoryClockMHz[0], PowerWatts: b.PowerWatts, Celsius: b.Celsius, Throttled: b.Reasons,
	})
	both.add(device.Reading{ClockMHz: b.ClockMHz[1], MemoryClockMHz: b.MemoryClockMHz[1]})
	c.Monitored = &both
	return c
}
