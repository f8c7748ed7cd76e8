package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"attune/internal/arch"
	"attune/internal/autotune"
	"attune/internal/device"
	"attune/internal/device/isolate"
	"attune/internal/form"
	"attune/internal/regular"
	"attune/internal/spec"
	"attune/internal/terminal"
	"attune/kernels"
)

// Defaults of the tuning of the libraries' selection.
const (
	librariesBudget = 12 * time.Minute
	librariesLimit  = 5 * time.Minute // of a timing: the driver compiles the forms first
	probeLoad       = 30 * time.Second
)

// libraryFlags are those that the tuning of the libraries' selection takes.
var libraryFlags = []string{"selection", "install", "output", "budget", "seed", "device", "timeout", "json", "color", "kernel", "ledger"}

// tunesLibraries reports whether the options name the libraries' selection, which no kernel.toml has.
func (o tuneOptions) tunesLibraries(kernel *spec.Kernel) bool {
	return o.selection == autotune.Selection && (kernel.Declared == nil || kernel.Name == string(form.Warp))
}

// libraryTuning is the JSON document.
type libraryTuning struct {
	SchemaVersion int              `json:"schema_version"`
	MessageType   string           `json:"message_type"`
	File          string           `json:"file"`
	Complete      bool             `json:"complete"` // all problems were timed
	Tables        []autotune.Table `json:"tables"`
	Selection     *form.Measured   `json:"selection"`

	measurement *autotune.Measurement
}

// tuneLibraries times the forms that the libraries may launch on this GPU, and writes the selection.
func (a *app) tuneLibraries(ctx context.Context, o tuneOptions, args []string) error {
	budget, most, err := o.libraryBudget(args)
	if err != nil {
		return usageError{err}
	}
	d, facts, err := a.openForLibraries(ctx, o)
	if err != nil {
		return err
	}
	defer d.Close()
	path := o.output
	if o.install {
		if path, _, err = form.MeasuredPath(facts); err != nil {
			return err
		}
	} else if path == "" {
		path = fmt.Sprintf("selection-%s-%d.json", facts.Arch, facts.Multiprocessors)
	}
	if err := writableFile(path); err != nil { // before minutes of measuring
		return err
	}
	status := a.status()
	defer status.Clear()
	lab := &autotune.Lab{
		Device: d, Facts: facts, Kernels: kernels.Portable(), Note: a.note,
		Progress: func(step string, done, total int, left time.Duration) {
			text := fmt.Sprintf("%d of %d problems", done, total)
			if left > 0 {
				text += fmt.Sprintf(", about %s left", left.Round(time.Second))
			}
			status.Set("%s: %s", text, step)
		},
	}
	problems := autotune.Problems(o.seed)
	problems = problems[:min(most, len(problems))]
	measured, err := lab.Measure(ctx, autotune.Options{Problems: problems, Budget: budget, Load: min(probeLoad, budget/6)})
	status.Clear()
	if len(measured.Times) == 0 {
		return cmpError(interruptedWith(ctx, err, "nothing was written"), errors.New("no problem was timed; nothing was written"))
	}
	measured.Attune = version()
	result := libraryTuning{1, "library_selection", path, len(measured.Times) == len(problems), autotune.Derive(measured, problems), nil, measured}
	var failed error
	if result.Selection, failed = measured.File(); failed != nil {
		return failed
	}
	if failed := result.Selection.Write(path); failed != nil {
		return failed
	}
	if err != nil {
		return interruptedWith(ctx, err, fmt.Sprintf("%d of %d problems were timed, and %s has their selection", len(measured.Times), len(problems), path))
	}
	if a.json {
		return a.printJSON(result)
	}
	a.printLibraries(&result, o.install)
	return nil
}

// cmpError is the first error that is one.
func cmpError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// libraryBudget checks the options. A number in --budget is one of problems.
func (o tuneOptions) libraryBudget(args []string) (budget time.Duration, problems int, err error) {
	if len(args) > 0 {
		return 0, 0, fmt.Errorf("--selection %s times the libraries' forms and takes no variant; got %q", autotune.Selection, args[0])
	}
	for _, name := range o.given {
		if !slices.Contains(libraryFlags, name) {
			return 0, 0, fmt.Errorf("--%s is for a kernel's own table; --selection %s takes --budget, --install, --output, --seed, --device and --timeout",
				name, autotune.Selection)
		}
	}
	if o.install && o.output != "" {
		return 0, 0, errors.New("--install writes to the cache, and --output to a file; give one of them")
	}
	budget, problems = librariesBudget, 1<<30
	if o.budget != "" {
		b, err := parseBudget(o.budget)
		if err != nil {
			return 0, 0, err
		}
		if b.Time > 0 {
			budget = b.Time
		}
		if b.Evaluations > 0 {
			problems = b.Evaluations
		}
	}
	return budget, problems, nil
}

// openForLibraries opens the GPU, and refuses one on which the libraries launch other kernels.
func (a *app) openForLibraries(ctx context.Context, o tuneOptions) (device.Device, device.Facts, error) {
	if err := o.device.checkGPU("tune --selection " + autotune.Selection); err != nil {
		return nil, device.Facts{}, usageError{err}
	}
	limit := o.device.limit
	if !slices.Contains(o.given, "timeout") {
		limit = librariesLimit
	}
	child, err := a.child(o.device.name, limit)
	if err != nil {
		return nil, device.Facts{}, err
	}
	d, err := isolate.Start(ctx, child)
	if errors.Is(err, device.ErrNoDevice) {
		return nil, device.Facts{}, fmt.Errorf("%w; --selection %s times the GPU that the libraries shall launch on", err, autotune.Selection)
	}
	if err != nil {
		return nil, device.Facts{}, err
	}
	facts := d.Facts()
	if facts.Arch, err = arch.Named(facts.Arch, os.Getenv(arch.Variable)); err == nil && arch.Runs(arch.LibraryHopper, true, facts.Arch) {
		err = fmt.Errorf("%s is %s, on which the libraries launch the kernels for Hopper; %s=sm_80 times those of other GPUs", facts.Name, facts.Arch, arch.Variable)
	}
	if err == nil && !arch.HasLibrary(facts.Arch) {
		err = fmt.Errorf("%s is %s; the libraries are for %s", facts.Name, facts.Arch, arch.LibraryText)
	}
	if err != nil {
		return nil, facts, errors.Join(err, d.Close())
	}
	return d, facts, nil
}

// writableFile reports why a file cannot be written.
func writableFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := regular.Writable(filepath.Dir(path)); err != nil {
		return fmt.Errorf("the selection cannot be written to %s: %w", path, err)
	}
	return nil
}

// printLibraries prints the rates, the tables and the lines.
func (a *app) printLibraries(r *libraryTuning, installed bool) {
	s, m := a.screen(), r.measurement
	s.Paragraph(a.stdout, "", fmt.Sprintf("%s, %s, %d multiprocessors: %d problems timed", m.GPU, m.Arch, m.Multiprocessors, len(m.Times)), 2)
	a.printProbe(m)
	fmt.Fprintln(a.stdout)
	t := terminal.Table{Columns: []terminal.Column{
		{Name: "problems", Keep: true},
		{Name: "timed"},
		{Name: "held out", Optional: 1},
		{Name: "rule over best", Keep: true},
		{Name: "worst"},
		{Name: "held out: rule", Optional: 2},
		{Name: "table", Keep: true},
		{Name: "lines", Keep: true},
	}}
	for _, one := range r.Tables {
		tuned := "-"
		if one.Tuned > 0 {
			tuned = fmt.Sprintf("%.3f", one.Tuned)
		}
		t.Rows = append(t.Rows, []string{
			one.Name, strconv.Itoa(one.Problems), strconv.Itoa(one.Held), fmt.Sprintf("%.3f", one.Rule), fmt.Sprintf("%.3f", one.Worst),
			fmt.Sprintf("%.3f", one.RuleHeld), tuned, strconv.Itoa(one.Lines),
		})
	}
	t.Write(a.stdout, s)
	fmt.Fprintln(a.stdout)
	for _, c := range m.Choices {
		s.Paragraph(a.stdout, "", fmt.Sprintf("%s where %s", c.Variant, c.When), 2)
	}
	use := fmt.Sprintf("written to %s: %s=%s makes the libraries use it", r.File, form.SelectionVariable, r.File)
	if installed {
		use = fmt.Sprintf("installed in %s; new processes use it", r.File)
	}
	s.Paragraph(a.stdout, "", use, 2)
}

// printProbe prints the measured rates.
func (a *app) printProbe(m *autotune.Measurement) {
	s, p := a.screen(), m.Probe
	var rates []string
	for _, r := range p.Rates {
		rates = append(rates, fmt.Sprintf("%s %.0f", r.Name, r.PerClock))
	}
	s.Paragraph(a.stdout, "", "per clock and multiprocessor: "+strings.Join(rates, ", "), 2)
	clock := fmt.Sprintf("clock %.2f GHz", p.StartGHz)
	if p.LoadSeconds > 0 {
		clock += fmt.Sprintf(", %.2f GHz behind %.0f s of products", p.LoadedGHz, p.LoadSeconds)
	}
	if p.Throttled != "" {
		clock += " (" + p.Throttled + ")"
	}
	s.Paragraph(a.stdout, "", fmt.Sprintf("%s; DRAM %.0f GB/s (copy), L2 %.0f GB/s (read)", clock, p.CopyGBs, p.L2GBs), 2)
}
