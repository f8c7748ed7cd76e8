package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"attune/internal/device"
	"attune/internal/fleet"
	"attune/internal/lab"
	"attune/internal/tuner"
)

// Bench does trials on this machine, one at a time.
type Bench struct {
	Cache   string // folder for the files of kernels
	Version string // of this program
	// Lab equips a lab for the kernel of a folder; empty for the kernel in the program.
	Lab func(ctx context.Context, folder string) (*lab.Lab, error)
	// Command runs a command of attune on a kernel, with its record in a ledger of its own.
	Command func(ctx context.Context, folder string, c Command, progress func()) (*Outcome, error)

	site *tuner.Site // of the last search
	plan string      // that the site is of
}

// Close ends what is kept between trials.
func (b *Bench) Close() error {
	if b.site == nil {
		return nil
	}
	err := b.site.Close()
	b.site = nil
	return err
}

// Do does a job. It is a fleet.Executor.
func (b *Bench) Do(ctx context.Context, j *fleet.Job, objects fleet.Objects, progress func()) (any, error) {
	switch j.Kind {
	case KindEvaluate:
		var e evaluation
		if err := json.Unmarshal(j.Body, &e); err != nil {
			return nil, err
		}
		site, err := b.open(ctx, objects, e.Setting, e.Plan, progress)
		if err != nil {
			return nil, err
		}
		found, err := site.Evaluate(ctx, e.Trial)
		return found, machine(ctx, err)
	case KindFinals:
		var f finals
		if err := json.Unmarshal(j.Body, &f); err != nil {
			return nil, err
		}
		site, err := b.open(ctx, objects, f.Setting, f.Plan, progress)
		if err != nil {
			return nil, err
		}
		found, err := site.Conclude(ctx, f.Finals)
		return found, machine(ctx, err)
	case KindRehearse:
		var r Rehearsal
		if err := json.Unmarshal(j.Body, &r); err != nil {
			return nil, err
		}
		return rehearse(ctx, r, progress)
	case KindCommand:
		return b.command(ctx, j, objects, progress)
	}
	return nil, &fleet.MachineError{Err: fmt.Errorf("this version of attune has no jobs of the kind %s", j.Kind)}
}

// machine tells the errors of this machine from those of the request, which every machine would have.
func machine(ctx context.Context, err error) error {
	var request lab.RequestError
	var wrong *lab.WrongError
	if err == nil || ctx.Err() != nil || errors.As(err, &request) || errors.As(err, &wrong) {
		return err
	}
	switch device.Classify(err) {
	case device.KernelTimeout, device.KernelFault, device.KernelCrash, device.KernelUnsupported:
		return err
	}
	return &fleet.MachineError{Err: err}
}

// folder is the kernel's folder on this machine.
func (b *Bench) folder(ctx context.Context, objects fleet.Objects, s Setting) (string, error) {
	if s.Kernel.Files == "" && s.Version != b.Version {
		return "", &fleet.MachineError{Err: fmt.Errorf("the kernel of attune %s is asked for; this is %s", s.Version, b.Version)}
	}
	return s.Kernel.fetch(ctx, objects, b.Cache)
}

// open returns the site of a plan. It is kept while the trials of one search come.
func (b *Bench) open(ctx context.Context, objects fleet.Objects, s Setting, p tuner.Plan, progress func()) (*tuner.Site, error) {
	text, err := json.Marshal(struct {
		Setting
		tuner.Plan
	}{s, p})
	if err != nil {
		return nil, err
	}
	if b.site != nil && b.plan == string(text) {
		return b.site, nil
	}
	_ = b.Close() // what another search has kept
	folder, err := b.folder(ctx, objects, s)
	if err != nil {
		return nil, err
	}
	l, err := b.Lab(ctx, folder)
	if err != nil {
		return nil, machine(ctx, err)
	}
	l.Progress = func(lab.Progress) { progress() }
	// The site outlives the trial that opens it.
	site, err := tuner.NewSite(context.WithoutCancel(ctx), l, p)
	if err != nil {
		return nil, machine(ctx, err)
	}
	b.site, b.plan = site, string(text)
	return site, nil
}

// allowed are the commands that a fleet runs.
var allowed = []string{"run", "bench", "compare", "mutate"}

// Command is a command of attune, without the flags that name the kernel, the device and the ledger.
type Command struct {
	Args []string `json:"args"`
	Text bool     `json:"text,omitempty"` // its output is for people; a JSON string in the outcome
	Once string   `json:"once,omitempty"` // tells measurements apart that are to be repeated
}

// Outcome is what a command printed, and its record.
type Outcome struct {
	Exit   int               `json:"exit"`
	Output json.RawMessage   `json:"output,omitempty"` // its document
	Errors string            `json:"errors,omitempty"`
	Record map[string]string `json:"record,omitempty"` // objects by path in the ledger
	Files  map[string][]byte `json:"-"`                // by path, before they are stored
}

type command struct {
	Setting
	Command
}

// command runs a command and stores the files of its record.
func (b *Bench) command(ctx context.Context, j *fleet.Job, objects fleet.Objects, progress func()) (any, error) {
	var c command
	if err := json.Unmarshal(j.Body, &c); err != nil {
		return nil, err
	}
	if len(c.Args) == 0 || !slices.Contains(allowed, c.Args[0]) {
		return nil, fmt.Errorf("a fleet does not run %q", c.Args)
	}
	folder, err := b.folder(ctx, objects, c.Setting)
	if err != nil {
		return nil, err
	}
	found, err := b.Command(ctx, folder, c.Command, progress)
	if err != nil {
		return nil, machine(ctx, err)
	}
	found.Record = map[string]string{}
	for name, text := range found.Files {
		if found.Record[name], err = objects.Put(ctx, text); err != nil {
			return nil, &fleet.MachineError{Err: err}
		}
	}
	return found, nil
}
