package device

import (
	"cmp"
	"slices"
	"time"
)

// UsualLaunches is how many launches a graph has at most where a plan does not say, and LimitLaunches how many a plan may ask for.
const (
	UsualLaunches = 50
	LimitLaunches = 1000
)

// Plan says how to time jobs.
type Plan struct {
	Samples  int  // of each job
	ColdL2   bool // every launch finds an L2 cache that is full of something else
	Launches int  // in a graph, at most; 0 is UsualLaunches

	Rest time.Duration // of the GPU before each sample, for times of one that is not kept busy
}

// MostLaunches is how many launches a graph may have.
func (p Plan) MostLaunches() int { return cmp.Or(p.Launches, UsualLaunches) }

// Series is the timing of one job: seconds a launch, each sample the mean over the launches of one graph replay.
type Series struct {
	Seconds           []float64 `json:"seconds"`
	LaunchesPerSample int       `json:"launches_per_sample"`

	Copies      int     `json:"copies,omitempty"`          // of the buffers, which the launches took in turns
	WarmSeconds float64 `json:"warm_up_seconds,omitempty"` // of replays before the first sample
	Unstable    bool    `json:"unstable,omitempty"`        // they did not settle, and no more time was given to them

	// With a cold L2, what was measured: a launch with the flush before it, and the flush alone, right after it. Seconds is the first less what
	// flushes took in about the same round.
	WithFlush []float64 `json:"with_flush_seconds,omitempty"`
	Flush     []float64 `json:"flush_seconds,omitempty"`

	Single    []float64 `json:"single_launch_seconds,omitempty"` // single launches between two events, what the host takes to launch included
	EmptyNode *float64  `json:"empty_node_seconds,omitempty"`    // a kernel that does nothing, as one node of many in a graph; it is taken off nothing
	Readings  []Reading `json:"readings,omitempty"`              // one a sample, taken while it ran
	Unwatched string    `json:"unwatched,omitempty"`             // why there are no readings
}

// Reading is what the GPU says of itself at one moment.
type Reading struct {
	ClockMHz       int      `json:"sm_mhz"`
	MemoryClockMHz int      `json:"memory_mhz"`
	PowerWatts     float64  `json:"power_w"`
	Celsius        int      `json:"temperature_c"`
	Throttled      []string `json:"throttled,omitempty"` // why the clocks were held down, if they were
}

// Steady splits series that were taken in turns into what was sampled with free clocks and what was not: if one of them was throttled in a round, the
// round is set aside in all. Rounds that belong together, such as the two orders of a comparison, go together. Where less than half would stay, being
// throttled is how the GPU is, and nothing is set aside; throttled counts such rounds in any case.
func Steady(together int, series ...Series) (kept, aside [][]float64, throttled int) {
	rounds := len(series[0].Seconds)
	slow := make([]bool, rounds)
	for first := 0; first < rounds; first += together {
		end := min(first+together, rounds)
		for i := first; i < end; i++ {
			if slices.ContainsFunc(series, func(s Series) bool { return i < len(s.Readings) && len(s.Readings[i].Throttled) > 0 }) {
				for j := first; j < end; j++ {
					slow[j] = true
				}
			}
		}
	}
	for _, is := range slow {
		if is {
			throttled++
		}
	}
	all := 2*throttled > rounds
	for _, s := range series {
		var in, out []float64
		for i, seconds := range s.Seconds {
			if slow[i] && !all {
				out = append(out, seconds)
			} else {
				in = append(in, seconds)
			}
		}
		kept, aside = append(kept, in), append(aside, out)
	}
	return kept, aside, throttled
}
