package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"attune/internal/propose"
	"attune/internal/tuner"
)

// proposerOptions name a program that proposes variants and patches.
type proposerOptions struct {
	command string
	limit   time.Duration
	words   []string // of the command
}

func (o *proposerOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.command, "proposer", "", "`program` that proposes variants and patches")
	f.DurationVar(&o.limit, "proposer-timeout", time.Duration(propose.DefaultLimits.Seconds)*time.Second, "limit of one answer of the proposer")
	describeIn(f, "proposers", "proposer-timeout")
}

// check splits the command and finds its program.
func (o *proposerOptions) check() error {
	if o.command == "" {
		return nil
	}
	if o.limit <= 0 {
		return fmt.Errorf("--proposer-timeout %s: want more than 0", o.limit)
	}
	var err error
	if o.words, err = propose.Command(o.command); err != nil {
		return fmt.Errorf("--proposer %q: %w", o.command, err)
	}
	return nil
}

// start returns the proposer of a search; nil if none is named.
func (o *proposerOptions) start(a *app, w *workplace, r tuner.Request) (*propose.Tuner, error) {
	if o.command == "" {
		return nil, nil
	}
	limits := propose.DefaultLimits
	limits.Seconds = o.limit.Seconds()
	note := func(text string) {
		w.status.Clear()
		a.note(text)
	}
	return propose.ForLab(w.Lab, r, propose.Options{Command: o.words, Limits: limits, Note: note})
}
