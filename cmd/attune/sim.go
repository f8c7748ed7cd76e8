package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"attune/internal/cases"
	"attune/internal/crash"
	"attune/internal/device"
	simdevice "attune/internal/device/sim"
	"attune/internal/document"
	"attune/internal/finding"
	"attune/internal/run"
	"attune/internal/sim"
	"attune/internal/sim/mem"
	"attune/internal/sim/mma"
)

// simOptions are the settings of the simulator.
type simOptions struct {
	schedules      string // a number, or auto
	checks, tensor string
	strict         bool
	memory         int    // limit of one simulation in MiB
	addressSeed    uint64 // of simulated buffers; 0 for a fixed place
	verbose        bool   // findings with all their details
}

// defaultSim are the defaults of the flags.
var defaultSim = simOptions{schedules: autoSchedules, checks: "on", tensor: run.ExactTensor, memory: mem.DefaultLimit >> 20}

// autoSchedules lets the simulator choose the number of schedules: several for kernels whose blocks
// communicate.
const autoSchedules = "auto"

// scheduleCount is the number of schedules; 0 for automatic.
func (o *simOptions) scheduleCount() int {
	n, _ := strconv.Atoi(o.schedules) // check has seen it
	return n
}

// scheduleText is the setting for a number of schedules; 0 for automatic.
func scheduleText(n int) string {
	if n == 0 {
		return autoSchedules
	}
	return strconv.Itoa(n)
}

// flags adds the flags. prefix begins their descriptions.
func (o *simOptions) flags(f *pflag.FlagSet, prefix string) {
	f.StringVar(&o.schedules, "schedules", defaultSim.schedules, prefix+"thread schedules to run")
	f.StringVar(&o.checks, "checks", defaultSim.checks, prefix+"checkers on, or off for speed")
	f.StringVar(&o.tensor, "tensor", defaultSim.tensor, prefix+"tensor cores: exact, f32 or f64")
	f.IntVar(&o.memory, strings.TrimPrefix(mem.LimitFlag, "--"), defaultSim.memory, prefix+"most MiB it holds")
	f.BoolVar(&o.strict, "strict", false, prefix+"fail on strict findings too")
}

var tensorModes = map[string]mma.Mode{"exact": mma.Exact, "f32": mma.F32Sum, "f64": mma.F64Sum}

func (o *simOptions) check() error {
	switch n, err := strconv.Atoi(o.schedules); {
	case o.schedules == autoSchedules:
	case err != nil:
		return fmt.Errorf("--schedules %q: want a number or auto", o.schedules)
	case n < 1:
		return fmt.Errorf("--schedules %d: want at least 1", n)
	}
	if o.checks != "on" && o.checks != "off" {
		return fmt.Errorf("--checks %q: there are on and off", o.checks)
	}
	if _, ok := tensorModes[o.tensor]; !ok {
		return fmt.Errorf("--tensor %q: there are exact, f32, f64", o.tensor)
	}
	if most := 1 << 20; o.memory < 1 || o.memory > most {
		return fmt.Errorf("%s %d: want a number of MiB from 1 to %d", mem.LimitFlag, o.memory, most)
	}
	return nil
}

func (o *simOptions) options() simdevice.Options {
	return simdevice.Options{Schedules: o.scheduleCount(), Checks: o.checks == "on", Strict: o.strict, Tensor: tensorModes[o.tensor], AddressSeed: o.addressSeed, Memory: o.memory << 20}
}

func (a *app) simCommand() *cobra.Command {
	var o simOptions
	var limit time.Duration
	var direct directOptions
	var files resultFiles
	cmd := &cobra.Command{
		Use:   "sim CASE.json... | KERNEL.cu | KERNEL.ptx",
		Short: "run any kernel on the simulator, with all checkers",
		Long: `Sim runs a kernel on the simulator, with all checkers. The flags describe the
launch: --grid, --block, and an --arg for each parameter, in order.

` + directHelp + `
Sim also runs cases, launches with their expected results as JSON files: "attune
help cases". A simulation may hold 640 MiB of memory, or what --memory says. A
byte of a buffer takes two, and up to 12 more once it is accessed. It may print
1 MiB.
`,
		Example: directExamples + "  attune sim cases/*.json --schedules 8\n  attune sim race.json --json",
		Args:    func(cmd *cobra.Command, args []string) error { return direct.checkFiles(cmd.Flags(), args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(o.check(), checkLimit(limit)); err != nil {
				return usageError{err}
			}
			defer a.endFiles(&files, false)
			if err := files.create(); err != nil {
				return err
			}
			if isKernel(args[0]) {
				return a.simDirect(cmd.Context(), o, direct, &files, limit, args[0])
			}
			return a.sim(cmd.Context(), o, &files, limit, args)
		},
	}
	direct.flags(cmd.Flags())
	o.flags(cmd.Flags(), "")
	cmd.Flags().BoolVarP(&o.verbose, "verbose", "v", false, "print findings with instructions, calls and all details")
	cmd.Flags().DurationVar(&limit, "timeout", 50*time.Second, "limit of one case, under all schedules")
	files.junitFlag(cmd.Flags())
	files.sarifFlag(cmd.Flags())
	return cmd
}

// casesText is the help page about cases.
var casesText = `A case is a JSON file with its PTX beside it. "attune sim" runs it on the
simulator, and "attune mutate" measures how much it checks:

  {"ptx": "add.ptx", "entry": "add",
   "grid": [1, 1, 1], "block": [64, 1, 1], "shared": 0,
   "args": [{"hex": "0000803f00000040"}, {"bytes": 256}, {"u32": 64},
            {"f32": 1.5}],
   "expect": {"args": {"1": {"hex": "0000803f", "ulp_f32": 2}},
              "findings": []}}

"hex" is a buffer with these bytes, "bytes" an uninitialised buffer; u32, u64
and f32 are scalars. {"scratch": 64} is a buffer for the kernel's own use, zero
before the first launch: a kernel that leaves something in it is launched again.
With "zero": "launch" it is zero before every launch. The case passes if its
buffers equal "args" (bit for bit, or within ulp_f32 units in the last place)
and the checkers report what "findings" lists: nothing, or at least one of these
kinds and no other. Kinds in "or" are accepted instead of those, and kinds in
"also" besides them. An expected "hex" shorter than its buffer is compared with
the beginning, and the output says so. The keys "name", "arch", "cluster", "about" and "hw" are
optional. A tensor map of argument 0, innermost dimension first:

  {"tensormap": {"arg": 0, "dtype": "f32", "dims": [64, 32],
                 "strides": [256], "box": [16, 8], "swizzle": "none"}}

The kinds are
` + wrapped(kindText(finding.Kinds(), ", ")+".", 80) + `

A finding has a severity. An error is wrong on hardware. Strict is what PTX
leaves undefined and hardware does right: without --strict it is printed as a
note and fails no case.`

// simulated is the JSON document of `attune sim`.
type simulated struct {
	SchemaVersion    int           `json:"schema_version"`
	Device           string        `json:"device,omitempty"` // the GPU of a direct run
	Cases            []*simulation `json:"cases"`
	WarpInstructions uint64        `json:"warp_instructions"`
	Seconds          float64       `json:"seconds"`
}

// simulation is the outcome of one case.
type simulation struct {
	*cases.Outcome
	Expected []finding.Kind `json:"expected"` // kinds of findings, of which at least one must be reported; empty for none
	Schedule int            `json:"schedule"` // of this outcome: the first that does not pass, or 0

	file             string // of the case or kernel
	ptx              string // file of its PTX; empty if the kernel was compiled
	elapsed          time.Duration
	err              error // why it did not run to its end
	checked          bool
	warpInstructions uint64 // under all schedules
}

func (a *app) sim(ctx context.Context, o simOptions, results *resultFiles, limit time.Duration, files []string) error {
	o.limitHeap()
	status := a.status()
	defer status.Clear()
	document := simulated{SchemaVersion: 1, Cases: []*simulation{}}
	began := time.Now()
	for i, file := range files {
		status.Set("%s (%d of %d)", file, i+1, len(files))
		start := time.Now()
		s := a.simulate(ctx, o, limit, file)
		s.elapsed = time.Since(start)
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted; %d of %d cases were finished", i, len(files))
		}
		document.Cases = append(document.Cases, s)
		document.WarpInstructions += s.warpInstructions
		status.Clear()
		if !a.json {
			a.printCase(s, o.verbose)
		}
	}
	document.Seconds = time.Since(began).Seconds()
	return a.finishSim(&document, results)
}

// finishSim prints the document or its summary, writes the files, and returns the error of its exit
// code.
func (a *app) finishSim(document *simulated, results *resultFiles) error {
	var err error
	if a.json {
		err = a.printJSON(document)
	} else {
		_, err = fmt.Fprintln(a.stdout, document.summary())
	}
	err = errors.Join(err, document.report(a, results))
	if code := document.code(); err == nil && code != exitOK {
		err = gateError{code}
	}
	return err
}

// limitHeap has the garbage collector keep the program below the limit of a simulation and a third as
// much again. GOMEMLIMIT may set less.
func (o *simOptions) limitHeap() {
	most := int64(cmp.Or(o.memory, defaultSim.memory)) << 20 / 3 * 4
	if debug.SetMemoryLimit(-1) > most {
		debug.SetMemoryLimit(most)
	}
}

// count counts the cases that passed, that failed, and that did not run to their end.
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
	if d.Device != "" {
		return fmt.Sprintf("%s on %s, in %.1f s", text, d.Device, d.Seconds)
	}
	return fmt.Sprintf("%s; %d warp instructions in %.1f s", text, d.WarpInstructions, d.Seconds)
}

// code is the exit code: of a failed case, else of one that does not end, else of one that cannot
// be run, else of one that the simulator refuses.
func (d *simulated) code() int {
	var timeout *device.Timeout
	endless := func(s *simulation) bool { return errors.As(s.err, &timeout) }
	faulty := func(s *simulation) bool { return s.err != nil && !isUnchecked(s.err) }
	_, failed, broken := d.count()
	switch {
	case failed > 0:
		return exitCorrectness
	case slices.ContainsFunc(d.Cases, endless):
		return exitTimeout
	case slices.ContainsFunc(d.Cases, faulty):
		return exitFailure
	case broken > 0:
		return exitUnchecked
	}
	return exitOK
}

// simulate runs a case under every schedule. Its outcome is that of the first that does not pass.
func (a *app) simulate(ctx context.Context, o simOptions, limit time.Duration, file string) *simulation {
	s := newSimulation(file)
	s.checked = o.checks == "on"
	c, err := cases.Load(file)
	if err != nil {
		return s.fail(err, file)
	}
	s.ptx = c.PTXFile()
	s.Name, s.Expected = c.Name, append(append(s.Expected, c.Expect.Findings...), c.Expect.Or...)
	return a.simulateCase(ctx, s, o, limit, c, file, c.PTXFile())
}

func newSimulation(name string) *simulation {
	return &simulation{
		Outcome: &cases.Outcome{Name: name, Findings: []finding.Finding{}, Mismatches: []string{}}, Expected: []finding.Kind{}, file: name,
	}
}

// simulateCase runs a case that is loaded from files.
func (a *app) simulateCase(ctx context.Context, s *simulation, o simOptions, limit time.Duration, c *cases.Case, file string, files ...string) *simulation {
	c.Strict = o.strict
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	schedules := max(o.scheduleCount(), 1)
	for seed := 0; seed < schedules; seed++ {
		outcome, err := c.Run(limited, sim.Options{
			Seed: uint64(seed), Checks: s.checked, Tensor: tensorModes[o.tensor], Printf: func(text string) { fmt.Fprint(a.kernels, text) },
			Memory: o.memory << 20,
		})
		if errors.Is(err, context.DeadlineExceeded) {
			timeout := &device.Timeout{Limit: limit}
			if interrupted, ok := errors.AsType[*sim.InterruptedError](err); ok {
				timeout.Where = interrupted.Where
			}
			return s.fail(fmt.Errorf("%s: %w", c.Name, timeout), file)
		}
		if err != nil {
			return s.fail(err, file, files...)
		}
		if seed == 0 && o.scheduleCount() == 0 {
			schedules = outcome.Schedules
		}
		if seed > 0 {
			c.CheckRepeat(s.Outcome, outcome, seed, o.scheduleCount() == 0)
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

// fail makes an error the outcome of a case. The report of a panic includes the files of the case.
func (s *simulation) fail(err error, file string, files ...string) *simulation {
	if crashed, ok := errors.AsType[*crash.Panic](err); ok {
		err = fmt.Errorf("%w; %s", err, reportCrash(crashed, []string{"sim", file}, append(files, file)...))
	}
	s.Pass, s.Error, s.err = false, err.Error(), err
	return s
}

// printCase writes a case with its findings and mismatches. A case that could not be run is one
// line.
func (a *app) printCase(s *simulation, verbose bool) {
	w := a.stdout
	name := printable(s.Name) // a line of its own could be a command of the log's reader
	switch {
	case s.err != nil:
		fmt.Fprintf(w, "FAIL  %s\n", printable(s.Error))
	case !s.Pass && s.Schedule > 0:
		fmt.Fprintf(w, "FAIL  %s, under schedule %d, the first that fails\n", name, s.Schedule)
	case !s.Pass:
		fmt.Fprintf(w, "FAIL  %s\n", name)
	case len(s.Findings) > 0 && s.onlyNotes():
		fmt.Fprintf(w, "pass  %s, with notes\n", name)
	case len(s.Findings) > 0:
		fmt.Fprintf(w, "pass  %s, with the expected findings\n", name)
	default:
		fmt.Fprintf(w, "pass  %s\n", name)
	}
	form := finding.Form{Screen: a.screen(), Indent: "      ", Sources: sourcesIn(filepath.Dir(s.file)), Verbose: verbose}
	var kinds []finding.Kind
	for _, f := range s.Findings {
		f.Write(w, form)
		kinds = append(kinds, f.Kind)
	}
	if len(kinds) > 0 && !s.Pass {
		fmt.Fprintf(w, "      explained in %s\n", document.FindingPages(kinds))
	}
	for _, m := range slices.Concat(s.Mismatches, s.Notes) {
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

// onlyNotes reports whether the case expects no findings and has strict ones only.
func (s *simulation) onlyNotes() bool {
	return len(s.Expected) == 0 && !slices.ContainsFunc(s.Findings, func(f finding.Finding) bool { return f.Severity != finding.Strict })
}

func kindText(kinds []finding.Kind, separator string) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return strings.Join(names, separator)
}

// wrapped breaks a text between words.
func wrapped(text string, width int) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return strings.Join(append(lines, line), "\n")
}
