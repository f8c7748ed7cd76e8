package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"attune/internal/cases"
	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/sim"
	"attune/internal/sim/finding"
	"attune/internal/sim/mma"
)

// simKind is the simulator's name among devices.
const simKind = "sim"

// simOptions are the flags of everything that simulates.
type simOptions struct {
	schedules      int
	checks, tensor string
}

// flags adds the flags; where says when they count, if not always.
func (o *simOptions) flags(f *pflag.FlagSet, where string) {
	f.IntVar(&o.schedules, "schedules", 1, where+"run everything under so many schedules of the threads, and compare")
	f.StringVar(&o.checks, "checks", "on", where+"look for races, bad addresses, missing waits and the like: on, or off for speed")
	f.StringVar(&o.tensor, "tensor", "exact", where+"arithmetic of the tensor cores: exact (the chip's bits), f32, f64")
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
		Short: "run any PTX kernels on the simulator, with all checkers",
		Long: `Sim runs cases on the simulator and holds what they do against what they expect. A case is a JSON file with its PTX beside it:

  {"ptx": "add.ptx", "entry": "add", "grid": [1, 1, 1], "block": [64, 1, 1], "shared": 0,
   "args": [{"hex": "0000803f00000040"}, {"bytes": 256}, {"u32": 64}, {"f32": 1.5}],
   "expect": {"args": {"1": {"hex": "0000803f", "ulp_f32": 2}}, "findings": []}}

"hex" is a buffer with these bytes, "bytes" one that nobody has written; u32, u64 and f32 are numbers. The case passes when its buffers hold
what "args" says (bit for bit, or so many ulps apart) and the checkers report what "findings" says: nothing, or at least one of these kinds
and no other. Kinds in "or" may stand in for those, and kinds in "also" may come besides. There are
` + kindText(finding.Kinds(), ", ") + `.

A case that does not pass makes the exit code 11; where all others pass, one that has no end makes it 22, and one that cannot be run makes it 1.`,
		Example: "  attune sim add.json\n  attune sim cases/*.json --schedules 8\n  attune sim race.json --json",
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
			if limit <= 0 {
				return usageError{fmt.Errorf("--timeout %s: want more than 0", limit)}
			}
			return a.sim(cmd.Context(), o, limit, args)
		},
	}
	o.flags(cmd.Flags(), "")
	cmd.Flags().DurationVar(&limit, "timeout", 5*time.Minute, "how long one case may take before it is ended")
	return cmd
}

// simulated is the JSON document of `attune sim`.
type simulated struct {
	SchemaVersion    int           `json:"schema_version"`
	Cases            []*simulation `json:"cases"`
	WarpInstructions uint64        `json:"warp_instructions"`
	Seconds          float64       `json:"seconds"`
}

// simulation is what became of one case.
type simulation struct {
	*cases.Outcome
	Expected []finding.Kind `json:"expected"` // kinds of finding, one of which at least is to be reported; none if empty
	Schedule int            `json:"schedule"` // under which this is the outcome: the first that does not pass, or 0

	err              error // why it was not run to its end
	checked          bool
	warpInstructions uint64 // under all schedules
}

func (a *app) sim(ctx context.Context, o simOptions, limit time.Duration, files []string) error {
	status := a.status()
	defer status.Clear()
	document := simulated{SchemaVersion: 1, Cases: []*simulation{}}
	began := time.Now()
	for i, file := range files {
		status.Set("%s (%d of %d)", file, i+1, len(files))
		s := a.simulate(ctx, o, limit, file)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; %d of %d cases were finished", i, len(files))
		}
		document.Cases = append(document.Cases, s)
		document.WarpInstructions += s.warpInstructions
		status.Clear()
		if !a.json {
			printCase(a.stdout, s)
		}
	}
	document.Seconds = time.Since(began).Seconds()
	var err error
	if a.json {
		err = a.printJSON(document)
	} else {
		_, err = fmt.Fprintln(a.stdout, document.summary())
	}
	if code := document.code(); err == nil && code != exitOK {
		err = gateError{code}
	}
	return err
}

// count says how many cases passed, ran and did not pass, and could not be run to their end.
func (d *simulated) count() (passed, failed, broken int) {
	for _, s := range d.Cases {
		switch {
		case s.err != nil:
			broken++
		case s.Pass:
			passed++
		default:
			failed++
		}
	}
	return passed, failed, broken
}

func (d *simulated) summary() string {
	passed, failed, broken := d.count()
	text := fmt.Sprintf("%d of %d cases pass", passed, len(d.Cases))
	if failed > 0 {
		text += fmt.Sprintf(", %d fail", failed)
	}
	if broken > 0 {
		text += fmt.Sprintf(", %d did not run to the end", broken)
	}
	if slices.ContainsFunc(d.Cases, func(s *simulation) bool { return !s.checked }) {
		text += ", checkers off"
	}
	return fmt.Sprintf("%s; %d warp instructions in %.1f s", text, d.WarpInstructions, d.Seconds)
}

// code is the exit code: a case that is wrong comes before one that has no end, and that before one that could not be run.
func (d *simulated) code() int {
	var timeout *device.Timeout
	endless := func(s *simulation) bool { return errors.As(s.err, &timeout) }
	_, failed, broken := d.count()
	switch {
	case failed > 0:
		return exitCorrectness
	case slices.ContainsFunc(d.Cases, endless):
		return exitTimeout
	case broken > 0:
		return exitFailure
	}
	return exitOK
}

// simulate runs a case under every schedule; the first that does not pass is its outcome.
func (a *app) simulate(ctx context.Context, o simOptions, limit time.Duration, file string) *simulation {
	s := &simulation{Outcome: &cases.Outcome{Name: file, Findings: []finding.Finding{}, Mismatches: []string{}}, Expected: []finding.Kind{}}
	s.checked = o.checks == "on"
	fail := func(err error) *simulation {
		s.Pass, s.Error, s.err = false, err.Error(), err
		return s
	}
	c, err := cases.Load(file)
	if err != nil {
		return fail(err)
	}
	s.Name, s.Expected = c.Name, append(append(s.Expected, c.Expect.Findings...), c.Expect.Or...)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for seed := range o.schedules {
		outcome, err := c.Run(limited, sim.Options{
			Seed: uint64(seed), Checks: s.checked, Tensor: tensorModes[o.tensor], Printf: func(text string) { fmt.Fprint(a.stderr, text) },
		})
		if errors.Is(err, context.DeadlineExceeded) {
			return fail(fmt.Errorf("%s: %w", c.Name, &device.Timeout{Limit: limit}))
		}
		if err != nil {
			return fail(err)
		}
		s.warpInstructions += outcome.Counters.WarpInstructions()
		if seed == 0 || !outcome.Pass {
			s.Outcome, s.Schedule = outcome, seed
		}
		if !outcome.Pass {
			break
		}
	}
	return s
}

// printCase writes a case: its name, and under it what was found and what differs. One that could not be run is a line.
func printCase(w io.Writer, s *simulation) {
	switch {
	case s.err != nil:
		fmt.Fprintf(w, "FAIL  %s\n", s.Error)
	case !s.Pass && s.Schedule > 0:
		fmt.Fprintf(w, "FAIL  %s, under schedule %d and not before\n", s.Name, s.Schedule)
	case !s.Pass:
		fmt.Fprintf(w, "FAIL  %s\n", s.Name)
	case len(s.Findings) > 0:
		fmt.Fprintf(w, "pass  %s, with findings that it expects\n", s.Name)
	default:
		fmt.Fprintf(w, "pass  %s\n", s.Name)
	}
	for _, f := range s.Findings {
		printFinding(w, f)
	}
	for _, m := range s.Mismatches {
		fmt.Fprintf(w, "      %s\n", m)
	}
	if s.err != nil || s.Pass || !s.checked {
		return
	}
	switch {
	case len(s.Expected) > 0:
		fmt.Fprintf(w, "      expected: %s, and nothing else\n", kindText(s.Expected, " or "))
	case len(s.Findings) > 0:
		fmt.Fprintf(w, "      expected: no findings\n")
	}
}

// printFinding writes a finding: what, where with the instructions, and what happened, a statement a line.
func printFinding(w io.Writer, f finding.Finding) {
	times := fmt.Sprintf("%d times", f.Count)
	if f.Count == 1 {
		times = "once"
	}
	fmt.Fprintf(w, "      %s, %s\n", f.Kind, times)
	place := func(word string, p finding.Place) { fmt.Fprintf(w, "        %-4s  %s: %s\n", word, p, ptxLine(p.PTX)) }
	if f.Where.PTXLine > 0 {
		place("at", f.Where)
	}
	if f.Other != nil {
		place("with", *f.Other)
	}
	for line := range strings.SplitSeq(f.Detail, "; ") {
		fmt.Fprintf(w, "        %s\n", line)
	}
}

func kindText(kinds []finding.Kind, between string) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return strings.Join(names, between)
}
