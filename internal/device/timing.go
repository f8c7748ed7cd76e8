package device

import (
	"cmp"
	"slices"
	"time"

	"attune/internal/finding"
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

	// Load is how long the launches of a job run without a pause before each of its samples, to time
	// a GPU whose clocks have come down to what its power limit allows.
	Load time.Duration

	// Secret determines the inputs of the timed launches, as Rotation describes. It must not be
	// known to the kernel.
	Secret uint64

	// Fresh times launches on new inputs too, and compares them with the samples.
	Fresh bool

	// Energy measures the energy of a launch too.
	Energy bool

	// Estimate times direct launches only, as many as Samples, after one that is not timed: no graphs,
	// no warm-up, no checks. A series then has Single and nothing else. It tells a kernel that is
	// several times slower than another at the price of a few launches.
	Estimate bool
}

// LaunchLimit is the upper limit of the launches in a graph.
func (p Plan) LaunchLimit() int { return cmp.Or(p.Launches, DefaultLaunches) }

// Series is the timing of one job.
type Series struct {
	// Seconds are the samples, in seconds per launch: each is the mean over one graph replay. With
	// a cold L2 a sample is WithFlush minus the flush times of nearby rounds.
	Seconds           []float64 `json:"seconds"`
	LaunchesPerSample int       `json:"launches_per_sample"`

	// Processes has the number of samples of each process, in order. It is empty for one process.
	Processes []int `json:"samples_per_process,omitempty"`

	// Restored says that the in-out buffers were restored before every launch. The time of the
	// restores, measured beside the samples, is subtracted.
	Restored bool `json:"restored,omitempty"`

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

	// Joules is the energy of one launch, from NVML's counter while the job was replayed without
	// pauses. 0 means not measured.
	Joules float64 `json:"joules_per_launch,omitempty"`

	Check *TimedCheck `json:"timed_check,omitempty"`
}

// TimedCheck is what was found about the timed launches of a job.
type TimedCheck struct {
	// FreshSeconds is the time of a launch whose inputs no launch has seen before and whose outputs
	// are poisoned, as the median over replays in which every launch is one. It is a difference: the
	// replays contain the rotations of the inputs too, and those are measured beside them. It is 0 if
	// the plan did not request it.
	FreshSeconds float64 `json:"fresh_launch_seconds,omitempty"`

	Outputs  int               `json:"outputs"` // of timed launches, compared bit for bit with those of untimed ones
	Findings []finding.Finding `json:"findings,omitempty"`

	// Launches are timed launches with their outputs, to be compared with a reference.
	Launches []TimedLaunch `json:"-"`
}

// TimedLaunch is a timed launch: its inputs are those of the job after the rotation.
type TimedLaunch struct {
	Rotation Rotation
	Outputs  [][]byte
}

// Reading is the state of the GPU at one moment, from NVML.
type Reading struct {
	ClockMHz       int      `json:"sm_mhz"`
	MemoryClockMHz int      `json:"memory_mhz"`
	PowerWatts     float64  `json:"power_w"`
	Celsius        int      `json:"temperature_c"`
	Throttled      []string `json:"throttled,omitempty"` // why clocks were reduced, if so
}

// And joins the series of the same job in two processes.
func (s Series) And(more Series) Series {
	s.Processes = slices.Concat(s.processes(), more.processes())
	s.Seconds = slices.Concat(s.Seconds, more.Seconds)
	s.WithFlush, s.Flush = slices.Concat(s.WithFlush, more.WithFlush), slices.Concat(s.Flush, more.Flush)
	s.Single = slices.Concat(s.Single, more.Single)
	s.WarmSeconds, s.Unstable = s.WarmSeconds+more.WarmSeconds, s.Unstable || more.Unstable
	s.Readings, s.NoReadings = slices.Concat(s.Readings, more.Readings), cmp.Or(s.NoReadings, more.NoReadings)
	if s.NoReadings != "" {
		s.Readings = nil
	}
	s.Joules = cmp.Or(s.Joules, more.Joules)
	s.Check = s.Check.and(more.Check)
	return s
}

func (s Series) processes() []int {
	if len(s.Processes) > 0 {
		return s.Processes
	}
	return []int{len(s.Seconds)}
}

// and joins the checks of two processes.
func (c *TimedCheck) and(more *TimedCheck) *TimedCheck {
	if c == nil || more == nil {
		return cmp.Or(c, more)
	}
	joined := *c
	joined.Outputs += more.Outputs
	joined.Findings = slices.Concat(c.Findings, more.Findings)
	joined.FreshSeconds = max(c.FreshSeconds, more.FreshSeconds)
	return &joined
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

// SteadyByProcess are the samples that Steady keeps of each series, with a list per process. A
// process whose rounds were all excluded has no list.
func SteadyByProcess(series ...Series) [][][]float64 {
	slow := throttledRounds(1, series)
	throttled := 0
	for _, isSlow := range slow {
		if isSlow {
			throttled++
		}
	}
	all := make([][][]float64, len(series))
	for i, s := range series {
		first := 0
		for _, n := range series[0].processes() {
			var kept []float64
			for round := first; round < first+n; round++ {
				if !slow[round] || 2*throttled > len(slow) {
					kept = append(kept, s.Seconds[round])
				}
			}
			if first += n; len(kept) > 0 {
				all[i] = append(all[i], kept)
			}
		}
	}
	return all
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
