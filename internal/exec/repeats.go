package exec

import (
	"fmt"
	"time"

	"attune/internal/sim"
)

// Timing loops launch a kernel again and again. A launch that leaves all memory as it was is not run
// again while the memory, the kernel and its parameters are the same: it would do the same.

// hashRate is how many bytes a second the memory is hashed with at least, measured on one core of a
// small machine. A launch that is faster than its hashes is always run.
const hashRate = 2 << 30

// repeat is what is known of a launch with some parameters.
type repeat struct {
	seconds float64 // that it took when it ran last
	state   uint64  // hash of the memory that it leaves as it is
	idle    bool    // it leaves that memory as it is
}

// repeated finds what is known of a launch; nil for the first one, or where nothing may be skipped.
func (s *session) repeated(function uint32, l *sim.Launch) *repeat {
	if !s.options.SkipRepeats {
		return nil
	}
	key := fmt.Sprint(function, l.Grid, l.Block, l.Cluster, l.DynamicShared, l.Cooperative) + string(l.Params)
	r := s.repeats[key]
	if r == nil {
		s.repeats[key] = &repeat{}
		return nil
	}
	return r
}

// isIdle reports whether a launch would change nothing.
func (s *session) isIdle(r *repeat) (state uint64, idle bool) {
	if r == nil || r.seconds > 0 && r.seconds*hashRate < 2*float64(s.memory.Used()) {
		return 0, false
	}
	state = s.memory.Hash(s.seed)
	return state, r.idle && r.state == state
}

// ran notes what a launch has done that began with a state of the memory.
func (s *session) ran(r *repeat, state uint64, elapsed time.Duration, quiet bool) {
	if r == nil {
		return
	}
	r.seconds = elapsed.Seconds()
	if state != 0 {
		r.idle = quiet && s.memory.Hash(s.seed) == state
		r.state = state
	}
}
