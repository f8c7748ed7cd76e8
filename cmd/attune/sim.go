package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"attune/internal/cases"
	simdevice "attune/internal/device/sim"
	"attune/internal/sim"
	"attune/internal/sim/mma"
)

// simKind is the simulator's name among devices.
const simKind = "sim"

// simOptions are the flags of everything that simulates.
type simOptions struct {
	schedules      int
	checks, tensor string
}

func (o *simOptions) flags(f *pflag.FlagSet) {
	f.IntVar(&o.schedules, "schedules", 1, "on the simulator: run under so many schedules")
	f.StringVar(&o.checks, "checks", "on", "on the simulator: on, or off for speed")
	f.StringVar(&o.tensor, "tensor", "exact", "on the simulator, arithmetic of the tensor cores: exact (the chip's bits), f32, f64")
}

var tensorModes = map[string]mma.Mode{"exact": mma.Exact, "f32": mma.F32Sum, "f64": mma.F64Sum}

func (o *simOptions) check() error {
	if o.schedules < 1 {
		return fmt.Errorf("--schedules %d: want at least 1", o.schedules)
	}
	if o.checks != "on" && o.checks != "off" {
		return fmt.Errorf("--checks %q: there are on and off", o.checks)
	}
	if _, ok := tensorModes[o.tensor]; !ok {
		return fmt.Errorf("--tensor %q: there are exact, f32, f64", o.tensor)
	}
	return nil
}

func (o *simOptions) options() simdevice.Options {
	return simdevice.Options{Schedules: o.schedules, Checks: o.checks == "on", Tensor: tensorModes[o.tensor]}
}

func (a *app) simCommand() *cobra.Command {
	var o simOptions
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "sim CASE.json...",
		Short: "run PTX kernels that are given as data on the simulator, with all checkers",
		Long: `Sim runs each case, a JSON file with its PTX beside it, on the simulator and compares what it wrote and what the checkers report with what the case
expects. A case has the launch (entry, grid, block, shared), the arguments (buffers as hex or as a number of bytes that nobody has written, scalars)
and the expectations (contents of buffers, kinds of findings).`,
		Example: "  attune sim testdata/*.json\n  attune sim race.json --schedules 8 --json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("sim takes one CASE.json or more, such as `attune sim race.json`")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return usageError{err}
			}
			return a.sim(cmd.Context(), o, limit, args)
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().DurationVar(&limit, "timeout", 5*time.Minute, "how long one case may take")
	return cmd
}

// simulated is the JSON document of `attune sim`.
type simulated struct {
	SchemaVersion    int              `json:"schema_version"`
	Cases            []*cases.Outcome `json:"cases"`
	WarpInstructions uint64           `json:"warp_instructions"`
	Seconds          float64          `json:"seconds"`
}

func (a *app) sim(ctx context.Context, o simOptions, limit time.Duration, files []string) error {
	status := a.status()
	defer status.Clear()
	document := simulated{SchemaVersion: 1, Cases: []*cases.Outcome{}}
	failed := 0
	began := time.Now()
	for i, file := range files {
		status.Set("%s (%d of %d)", file, i+1, len(files))
		outcome, err := a.simulate(ctx, o, limit, file)
		if err != nil && ctx.Err() == nil {
			outcome = &cases.Outcome{Name: file, Findings: []sim.Finding{}, Mismatches: []string{}, Error: err.Error()}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; %d of %d cases were finished", i, len(files))
		}
		document.Cases = append(document.Cases, outcome)
		document.WarpInstructions += outcome.Counters.WarpInstructions()
		if !outcome.Pass {
			failed++
		}
		status.Clear()
		if !a.json {
			a.printCase(outcome)
		}
	}
	document.Seconds = time.Since(began).Seconds()
	if a.json {
		if err := a.printJSON(document); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(a.stdout, "%d of %d cases pass; %d warp instructions in %.1f s\n", len(files)-failed, len(files), document.WarpInstructions, document.Seconds)
	}
	if failed > 0 {
		return gateError{exitCorrectness}
	}
	return nil
}

// simulate runs a case under every schedule; the first that does not pass is its outcome.
func (a *app) simulate(ctx context.Context, o simOptions, limit time.Duration, file string) (*cases.Outcome, error) {
	c, err := cases.Load(file)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var first *cases.Outcome
	for seed := range o.schedules {
		outcome, err := c.Run(limited, sim.Options{
			Seed: uint64(seed), Checks: o.checks == "on", Tensor: tensorModes[o.tensor], Printf: func(text string) { fmt.Fprint(a.stderr, text) },
		})
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("%s: no end after %s; a longer --timeout may help", c.Name, limit)
		}
		if err != nil {
			return nil, err
		}
		if first == nil || !outcome.Pass {
			first = outcome
		}
		if !outcome.Pass {
			break
		}
	}
	return first, nil
}

func (a *app) printCase(o *cases.Outcome) {
	word := "pass"
	if !o.Pass {
		word = "FAIL"
	}
	fmt.Fprintf(a.stdout, "%s  %s\n", word, o.Name)
	if o.Error != "" {
		fmt.Fprintf(a.stdout, "      %s\n", o.Error)
	}
	for _, f := range o.Findings {
		fmt.Fprintf(a.stdout, "      %s\n", f)
	}
	for _, m := range o.Mismatches {
		fmt.Fprintf(a.stdout, "      %s\n", m)
	}
}
