package ledger

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// Entry is the part of a run that the index holds. It has a few keys of the run's run.json.
type Entry struct {
	ID       string    `json:"id"`
	Time     time.Time `json:"time"` // start of the run in UTC; the id has it in seconds
	Kernel   string    `json:"kernel"`
	Variant  string    `json:"variant"`
	Stage    string    `json:"stage"`
	Device   string    `json:"device"`
	Arch     string    `json:"arch"`
	Verdict  string    `json:"verdict"`
	CodeHash string    `json:"code_hash"`
	GitSHA   string    `json:"git_sha"`
	Headline Headline  `json:"headline"`
}

// Headline is the figure in lists of runs. A value that was not measured is nil, and null in JSON.
type Headline struct {
	Shape       string   `json:"shape"`
	P50US       *float64 `json:"p50_us"`
	ParentRatio *float64 `json:"parent_ratio"`
}

// Filter selects runs. An empty field matches every run.
type Filter struct {
	Kernel, Variant, Stage, Device, Arch, Verdict, CodeHash string

	OldestFirst bool // the default is newest first
	Limit       int  // most runs to return; 0 means all
}

// matches reports whether the filter selects a run.
func (f *Filter) matches(e Entry) bool {
	for _, c := range [...]struct{ want, value string }{
		{f.Kernel, e.Kernel},
		{f.Variant, e.Variant},
		{f.Stage, e.Stage},
		{f.Device, e.Device},
		{f.Arch, e.Arch},
		{f.Verdict, e.Verdict},
		{f.CodeHash, e.CodeHash},
	} {
		if c.want != "" && c.want != c.value {
			return false
		}
	}
	return true
}

// parseEntry reads an entry from a run.json.
func parseEntry(document []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(document, &e); err != nil {
		return Entry{}, fmt.Errorf("%s: %w", runName, err)
	}
	e.Time = e.Time.UTC()
	started, err := parseID(e.ID)
	if err != nil {
		return Entry{}, fmt.Errorf("%s: key id: %w", runName, err)
	}
	if !e.Time.Truncate(time.Second).Equal(started) {
		return Entry{}, fmt.Errorf("%s: key time is %s, but the id %s has %s: make both from one clock reading",
			runName, e.Time.Format(time.RFC3339), e.ID, started.Format(time.RFC3339))
	}
	return e, nil
}

// checkComplete checks the keys that a list needs to tell runs apart. Only new runs are checked;
// old ones are listed with the keys they have.
func (e Entry) checkComplete() error {
	for _, need := range []struct{ key, value string }{
		{"kernel", e.Kernel},
		{"variant", e.Variant},
		{"verdict", e.Verdict},
	} {
		if need.value == "" {
			return fmt.Errorf("%s: key %s is missing or empty", runName, need.key)
		}
	}
	return nil
}

func (e Entry) equal(other Entry) bool {
	return reflect.DeepEqual(e, other)
}
