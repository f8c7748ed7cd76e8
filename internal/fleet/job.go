package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Protocol is the version of jobs and results. Workers of another version get no jobs.
const Protocol = 1

// MaxDeliveries is how many machines may fail on a job, or be lost on it, before it is a dead letter.
const MaxDeliveries = 3

// maxFailures ends a job on which the same machines fail again while others are busy.
const maxFailures = 3 * MaxDeliveries

// Job is one piece of work. All that its result depends on is in its fields and in the objects that
// its body names.
type Job struct {
	Protocol int             `json:"protocol"`
	Class    string          `json:"class"` // of devices, see Class
	Kind     string          `json:"kind"`
	Body     json.RawMessage `json:"body"`
	// Not is the worker that has done the job already: another one repeats it. Empty for the first time.
	Not string `json:"not,omitempty"`
	// Limit is how long the work may take, whatever progress it shows.
	Limit time.Duration `json:"limit_ns"`
	// Failures is how often machines have failed on the job. The workers of Failed leave it to others of
	// their class. Neither is part of the key.
	Failures int      `json:"failures,omitempty"`
	Failed   []string `json:"failed,omitempty"`
}

// NewJob makes a job of a body, which is encoded as JSON.
func NewJob(class, kind string, body any, limit time.Duration) (Job, error) {
	text, err := json.Marshal(body)
	return Job{Protocol: Protocol, Class: class, Kind: kind, Body: text, Limit: limit}, err
}

// Key identifies the job by its content.
func (j *Job) Key() string {
	h := sha256.New()
	fmt.Fprintf(h, "attune job %d\n%s\n%s\n%d\n", j.Protocol, j.Class, j.Kind, len(j.Body))
	h.Write(j.Body)
	if j.Not != "" {
		fmt.Fprintf(h, "\nnot %s", j.Not)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// A worker gives back what another one is to repeat. After this many times, some 25 s, there seems to
// be no other one.
const repeatDeliveries = 40

func (j *Job) deliveries() uint64 {
	switch {
	case j.Not != "":
		return repeatDeliveries
	case len(j.Failed) > 0: // each time that one of them gives it back is a delivery
		return repeatDeliveries + MaxDeliveries
	}
	return MaxDeliveries
}

// leftTo reports whether a worker gives a job back, so that another one does it. Without another one, the
// worker that has failed tries again.
func (j *Job) leftTo(worker string, delivery uint64) bool {
	return j.Not == worker || slices.Contains(j.Failed, worker) && delivery <= repeatDeliveries
}

// giveBack is how long the job then waits for another worker, at first.
var giveBack = time.Second / 4

func givenBack(delivery uint64) time.Duration {
	if delivery <= repeatDeliveries/2 {
		return giveBack
	}
	return 4 * giveBack
}

// token is what a class, a kind or the name of a worker may be: a part of a subject.
var token = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// CheckName is an error unless a text can be the name of a worker, a class or a kind.
func CheckName(what, name string) error {
	if token.MatchString(name) {
		return nil
	}
	return fmt.Errorf("the %s %q: up to 64 letters, digits, - and _ are allowed", what, name)
}

func (j *Job) check() error {
	return errors.Join(CheckName("class", j.Class), CheckName("kind", j.Kind))
}

// Result is what a worker found out.
type Result struct {
	Protocol int             `json:"protocol"`
	Key      string          `json:"key"`
	Class    string          `json:"class"`
	Worker   string          `json:"worker"`
	Delivery uint64          `json:"delivery"` // the how many-th worker that had the job, from 1
	Seconds  float64         `json:"seconds"`  // of the work
	Body     json.RawMessage `json:"body,omitempty"`
	File     string          `json:"file,omitempty"` // of the body, if it is large
	// Lost is why no machine could do the job, or this one could not. There is no body then.
	Lost string `json:"lost,omitempty"`
	// Failed says that the worker's machine failed: another one tries. Delivery then counts the failures.
	Failed    bool   `json:"failed,omitempty"`
	Signature []byte `json:"signature"` // by the worker's key, of all other fields
}

// digest is what is signed.
func (r *Result) digest() []byte {
	h := sha256.New()
	fmt.Fprintf(h, "attune result %d\n%s\n%s\n%s\n%d\n%g\n%d\n", r.Protocol, r.Key, r.Class, r.Worker, r.Delivery, r.Seconds, len(r.Body))
	h.Write(r.Body)
	fmt.Fprintf(h, "\n%s", r.Lost)
	if r.File != "" {
		fmt.Fprintf(h, "\nfile %s", r.File)
	}
	if r.Failed {
		fmt.Fprint(h, "\nfailed")
	}
	return h.Sum(nil)
}

// LostError is a job that no machine could do. It says nothing about the kernel.
type LostError struct {
	Reason string
	Dead   string // key of the dead letter, which ends later commands too; empty if there is none
}

func (e *LostError) Error() string {
	if e.Dead == "" {
		return "not measured: " + e.Reason
	}
	return fmt.Sprintf("not measured: %s; when the machines are well, attune fleet dead --retry %.12s", e.Reason, e.Dead)
}

// MachineError is a failure of the worker's machine. The job goes to another one.
type MachineError struct{ Err error }

func (e *MachineError) Error() string { return e.Err.Error() }
func (e *MachineError) Unwrap() error { return e.Err }
