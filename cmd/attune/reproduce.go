package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"attune/internal/catalog"
	"attune/internal/device"
	"attune/internal/document"
	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

type reproduceOptions struct {
	device, shapes, from string
	limit, launch        time.Duration
	reference            referenceOptions
}

func (a *app) reproduceCommand() *cobra.Command {
	var o reproduceOptions
	cmd := &cobra.Command{
		Use:   "reproduce RUN",
		Short: "repeat a recorded run and report whether it still holds",
		Long: `Reproduce repeats a recorded run: the same variant, shapes, seeds, inputs,
architecture and samples, against the same parent, on a device of the same kind.
The run holds if the machine code, the bytes of every output, the gates and the
verdict are the same, and kernel.toml and the reference of a declared kernel are
unchanged; else the exit code is 3. Times are compared too, but the sessions differ, so they
decide nothing. The new run is recorded, with the id of the old one. With --from
the old run is read from another ledger, which stays as it is. If the sources
have changed, the commit to check out and the commands are printed.

A run of a GPU can be repeated with --device sim, for correctness only. The
simulator is slow: --shapes selects some of the shapes. RUN is written as for
show.`,
		Example: "  attune reproduce latest\n  attune reproduce 30323b --from results --device sim --shapes small",
		Args:    exactly("RUN", "latest"),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.reproduce(cmd.Context(), o, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "`folder` of the ledger with RUN, if it is another than the one to record in")
	f.StringVar(&o.device, "device", "", "cuda, cuda:N, sim or auto (default: the device of the record)")
	f.StringVar(&o.shapes, "shapes", "", "only these shapes of the run, with commas")
	addTimeout(f, &o.limit, &o.launch)
	o.reference.flags(f)
	return cmd
}

func (a *app) reproduce(ctx context.Context, o reproduceOptions, ref string) error {
	kernel, folder, err := a.kernel()
	if err != nil {
		return err
	}
	w, err := a.newRecordingWorkplace(ctx, kernel, folder)
	if err != nil {
		return err
	}
	defer w.close()
	a.prepareReference(ctx, w, &o.reference)
	recorded, err := o.find(ctx, a, w.Ledger, ref)
	if err != nil {
		return err
	}
	request, err := o.request(kernel, recorded)
	if _, _, unknown := named(kernel, []string{recorded.Variant}); err != nil && unknown != nil {
		return fmt.Errorf("%w\n%s", err, a.sourcesOf(ctx, recorded, o.from))
	}
	if err != nil {
		return err
	}
	const nothing = "nothing was recorded"
	w.status.Set("looking for a device")
	w.Device, err = a.findDevice(ctx, o.deviceOf(recorded))
	if errors.Is(err, device.ErrNoDevice) {
		return fmt.Errorf("%w; run %s was made on one: --device sim repeats it for correctness only", err, recorded.ID)
	}
	if err != nil {
		return interruptedWith(ctx, err, nothing)
	}
	var repeated *run.Run
	err = w.Run(ctx, request, func(r *run.Run) { repeated = r })
	w.status.Clear()
	if err != nil {
		return interruptedWith(ctx, err, nothing)
	}
	found := lab.CompareRepeated(kernel, recorded, repeated)
	a.noteReferenceErrors([]*run.Run{repeated})
	if err := a.printReproduction(found, repeated); err != nil {
		if sourcesChanged(found, recorded, repeated) && !a.json {
			fmt.Fprintf(a.stderr, "attune: %s\n", a.sourcesOf(ctx, recorded, o.from))
		}
		return err
	}
	return nil
}

// sourcesChanged reports whether the commit of the record would repeat it: the problem has changed,
// or other sources may explain other machine code. The record of a selection has no hash of the
// sources.
func sourcesChanged(found *run.Reproduction, recorded, repeated *run.Run) bool {
	if found.Stale {
		return true
	}
	if found.Code.Same {
		return false
	}
	return recorded.Build == nil || repeated.Build == nil || recorded.Build.SourceHash != repeated.Build.SourceHash
}

// sourcesOf says which commit has the sources of a run, and which commands repeat the run with
// them. A work tree of its own leaves the present one and its ledger as they are.
func (a *app) sourcesOf(ctx context.Context, recorded *run.Run, from string) string {
	if recorded.GitSHA == "" && recorded.Git.Unknown != "" {
		return fmt.Sprintf("the commit of run %s is unknown (%s); its sources are not recorded", recorded.ID, recorded.Git.Unknown)
	}
	if recorded.GitSHA == "" {
		return fmt.Sprintf("run %s was made outside a git repository; its sources are not recorded", recorded.ID)
	}
	commit := recorded.GitSHA[:min(12, len(recorded.GitSHA))]
	text := fmt.Sprintf("run %s was made from commit %s", recorded.ID, recorded.GitSHA)
	if recorded.Git.Dirty {
		text += " with uncommitted changes, which are not recorded"
	}
	command := "attune reproduce " + recorded.ID
	if from != "" {
		command += " --from " + from
	}
	if a.ledgerDir != "" {
		command += " --ledger " + a.ledgerDir
	}
	tree := "../at-" + commit
	return fmt.Sprintf("%s; to repeat it with these sources:\n  git worktree add %s %s\n  %s --kernel %s",
		text, tree, commit, command, filepath.Join(tree, a.kernelPrefix(ctx)))
}

// kernelPrefix is the path of the kernel's folder in its repository.
func (a *app) kernelPrefix(ctx context.Context) string {
	path := a.kernelPath()
	if path == "" {
		return defaultKernelPath
	}
	if prefix := toolchain.RepositoryPath(ctx, path); prefix != "" {
		return prefix
	}
	return path
}

// find reads the run from the ledger of --from, or from the one to record in.
func (o reproduceOptions) find(ctx context.Context, a *app, kept *ledger.Ledger, ref string) (*run.Run, error) {
	if o.from == "" {
		return a.readWithSamples(ctx, kept, ref)
	}
	if _, err := os.Stat(o.from); err != nil {
		return nil, usageError{fmt.Errorf("--from: %w", err)}
	}
	other, err := ledger.Open(ctx, o.from)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	return a.readWithSamples(ctx, other, ref)
}

// request repeats the run.
func (o reproduceOptions) request(kernel *spec.Kernel, recorded *run.Run) (lab.Request, error) {
	if err := errors.Join(checkLimit(o.limit), o.reference.check()); err != nil {
		return lab.Request{}, usageError{err}
	}
	var only []spec.Shape
	if o.shapes != "" {
		var err error
		if only, err = kernel.Shapes(o.shapes); err != nil {
			return lab.Request{}, usageError{err}
		}
	}
	return lab.ReproduceRequest(kernel, recorded, only)
}

// deviceOf selects the device of the record with its settings, unless a flag names another.
func (o reproduceOptions) deviceOf(recorded *run.Run) deviceOptions {
	d := deviceOptions{name: o.device, limit: o.limit, launch: o.launch, sim: defaultSim, noSim: recorded.Requested.NoSim}
	switch {
	case d.name == "" && recorded.Device == "none":
		d.name = autoDevice // the run failed before it needed a device
	case d.name == "":
		d.name = recorded.Device
	}
	if s := recorded.Requested.Simulation; s != nil {
		d.sim = simOptions{schedules: scheduleText(s.Asked()), checks: "on", tensor: s.Tensor, strict: s.Strict, addressSeed: s.AddressSeed, memory: cmp.Or(s.MemoryMiB, defaultSim.memory)}
		if !s.Checks {
			d.sim.checks = "off"
		}
	}
	if d.name != simDevice {
		d.sanitizer = recorded.Requested.Sanitizer
	}
	return d
}

func (a *app) readWithSamples(ctx context.Context, kept *ledger.Ledger, ref string) (*run.Run, error) {
	r, err := a.findRun(ctx, kept, ref)
	if err != nil {
		return nil, err
	}
	return r, catalog.ReadSamples(ctx, kept, r)
}

func (a *app) printReproduction(found *run.Reproduction, repeated *run.Run) error {
	var err error
	if a.json {
		err = a.printJSON(map[string]any{"schema_version": 1, "holds": found.Holds, "reproduction": found, "run": repeated})
	} else {
		err = errors.Join(a.printDocument((&document.RunStudy{Run: repeated}).Document(), false), a.printDocument(document.Reproduction(found), false))
	}
	if err != nil {
		return err
	}
	switch {
	case repeated.ReferenceError != "": // it says nothing about the run
		return gateError{exitFailure}
	case !found.Holds:
		return gateError{exitSomeFailed}
	}
	return nil
}
