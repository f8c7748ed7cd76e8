package device

import (
	"cmp"
	"slices"
	"time"
)

// DefaultLaunches is the default of the launches in a CUDA graph, and MaxLaunches the most that a
// plan may request.
const (
	DefaultLaunches = 50
	MaxLaunches     = 1000
)

// Plan describes how to time jobs.
type Plan struct {
	Samples  int  // of each job
	ColdL2   bool // flush the L2 cache before every launch
	Launches int  // upper limit of the launches in a graph; 0 is UsualLaunches

	// Rest is how long the GPU idles before each sample, to time a GPU that is not kept busy.
	Rest time.Duration
}

// LaunchLimit is the upper limit of the launches in a graph.
func (p Plan) LaunchLimit() int { return cmp.Or(p.Launches, DefaultLaunches) }

// Series is the timing of one job.
type Series struct {
	// Seconds are the samples, in seconds per launch: each is the mean over one graph replay. With
	// a cold L2 a sample is WithFlush minus the flush times of nearby rounds.
	Seconds           []float64 `json:"seconds"`
	LaunchesPerSample int       `json:"launches_per_sample"`

	Copies      int     `json:"copies,omitempty"`          // of the buffers, used in rotation
	WarmSeconds float64 `json:"warm_up_seconds,omitempty"` // of replays before the first sample
	Unstable    bool    `json:"unstable,omitempty"`        // the warm-up did not settle

	// With a cold L2, the raw times: a flush followed by a launch, and right after it the flush
	// alone.
	WithFlush []float64 `json:"with_flush_seconds,omitempty"`
	Flush     []float64 `json:"flush_seconds,omitempty"`

	// Single are single launches between two events. They include the host's launch overhead.
	Single []float64 `json:"single_launch_seconds,omitempty"`

	// EmptyNode is the time of an empty kernel as one node of a graph. It is not subtracted from
	// the samples.
	EmptyNode  *float64  `json:"empty_node_seconds,omitempty"`
	Readings   []Reading `json:"readings,omitempty"`  // one per sample, read while it ran
	NoReadings string    `json:"unwatched,omitempty"` // why there are no readings
}

// Reading is the state of the GPU at one moment, from NVML.
type Reading struct {
	ClockMHz       int      `json:"sm_mhz"`
	MemoryClockMHz int      `json:"memory_mhz"`
	PowerWatts     float64  `json:"power_w"`
	Celsius        int      `json:"temperature_c"`
	Throttled      []string `json:"throttled,omitempty"` // why clocks were reduced, if so
}

// Steady excludes throttled rounds from interleaved series. A round is excluded from all series if
// one of them was throttled in it. Rounds come in groups of groupSize consecutive rounds, such as
// the two orders of an ABBA comparison; a group is excluded as a whole.
//
// If more than half of the rounds were throttled, that is the normal state of the GPU and Steady
// excludes none. throttled counts the throttled rounds in both cases.
func Steady(groupSize int, series ...Series) (kept, excluded [][]float64, throttled int) {
	slow := throttledRounds(groupSize, series)
	for _, isSlow := range slow {
		if isSlow {
			throttled++
		}
	}
	keepAll := 2*throttled > len(slow)
	for _, s := range series {
		var in, out []float64
		for i, seconds := range s.Seconds {
			if slow[i] && !keepAll {
				out = append(out, seconds)
			} else {
				in = append(in, seconds)
			}
		}
		kept, excluded = append(kept, in), append(excluded, out)
	}
	return kept, excluded, throttled
}

// throttledRounds marks the rounds of every group in which a series was throttled.
func throttledRounds(groupSize int, series []Series) []bool {
	slow := make([]bool, len(series[0].Seconds))
	for first := 0; first < len(slow); first += groupSize {
		group := slow[first:min(first+groupSize, len(slow))]
		for i := range group {
			throttled := func(s Series) bool {
				return first+i < len(s.Readings) && len(s.Readings[first+i].Throttled) > 0
			}
			if slices.ContainsFunc(series, throttled) {
				for j := range group {
					group[j] = true
				}
				break
			}
		}
	}
	return slow
}
