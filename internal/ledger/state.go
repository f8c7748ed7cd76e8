package ledger

import (
	"os"
	"path/filepath"
	"time"
)

// State identifies the set of records of a ledger. Two equal states that are [State.Settled] have the
// same records; the files of a record never change.
type State struct {
	runs, champions, benches, tunings time.Time // of the last record that was added or removed
}

// State returns the present state. It costs four system calls, however many records there are.
func (l *Ledger) State() State {
	changed := func(name string) time.Time {
		info, err := os.Stat(filepath.Join(l.dir, name))
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	return State{changed(runsName), changed(championsName), changed(benchesName), changed(tuningsName)}
}

// clockStep is above the resolution of the times that file systems store. Two changes within it can
// have the same time.
const clockStep = 2 * time.Second

// Settled reports whether a further change, from now on, is sure to give another state.
func (s State) Settled(now time.Time) bool {
	for _, t := range []time.Time{s.runs, s.champions, s.benches, s.tunings} {
		if now.Sub(t) < clockStep {
			return false
		}
	}
	return true
}

// Benches returns the ids of the benches, the newest first.
func (l *Ledger) Benches() ([]string, error) { return l.benches().newestFirst() }
