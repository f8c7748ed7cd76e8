package ledger

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// Entry is what the index holds of a run. It is read from these keys of the run's run.json, which holds much more.
type Entry struct {
	ID       string    `json:"id"`
	Time     time.Time `json:"time"` // when the run started, in UTC; its seconds are in the id as well
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

// Headline is the figure a run is listed with. What was not measured is nil, and null in JSON.
type Headline struct {
	Shape       string   `json:"shape"`
	P50US       *float64 `json:"p50_us"`
	ParentRatio *float64 `json:"parent_ratio"`
}

// Filter chooses runs. A field left empty chooses all.
type Filter struct {
	Kernel, Variant, Stage, Device, Arch, Verdict, CodeHash string

	OldestFirst bool // otherwise the newest run comes first
	Limit       int  // at most so many; 0 means all
}

// parseEntry reads what the index holds from a run.json.
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
		return Entry{}, fmt.Errorf("%s: key time is %s, but the id %s says %s: make both from one clock reading",
			runName, e.Time.Format(time.RFC3339), e.ID, started.Format(time.RFC3339))
	}
	return e, nil
}

// checkComplete refuses a run that could not be told apart in a list. It is asked of new runs only: an old one is
// listed with what it has.
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
