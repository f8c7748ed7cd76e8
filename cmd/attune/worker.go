package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"attune/internal/child"
	"attune/internal/device"
	"attune/internal/fleet"
	"attune/internal/lab"
	"attune/internal/spec"
	"attune/internal/toolchain"
	"attune/internal/trial"
	"attune/kernels"
)

type workerOptions struct {
	fleetOptions
	name      string
	class     string
	idle      time.Duration
	clocks    string
	device    deviceOptions
	reference referenceOptions
}

func (a *app) workerCommand() *cobra.Command {
	var o workerOptions
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "let this machine work for a fleet",
		Long: `Worker takes jobs from a fleet: candidates of searches, runs of variants, and
mutants. It takes those of its class, which is the kind of its device, one at a
time. The kernel's files come with the jobs; the compiler is this machine's.

A job that this machine cannot finish goes to another one. Ctrl-C ends the
worker, and the job at hand is given back; attune fleet drain lets it end after
its job. A connection that was lost comes back by itself.`,
		Example: `  attune worker --fleet 127.0.0.1:4222 --device sim
  attune worker --creds gpu7.toml --device cuda:0 --idle 10m`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.work(cmd.Context(), o) },
	}
	f := cmd.Flags()
	o.fleetOptions.flags(f)
	f.StringVar(&o.name, "name", "", "of the worker (default: of the credentials, or the machine's and a number)")
	f.StringVar(&o.class, "class", "", "end at once unless the device is of this `class`, or a class that begins so")
	f.DurationVar(&o.idle, "idle", 0, "end after so long without a job; 0 for never")
	f.StringVar(&o.clocks, "clocks", "", "the clocks of the GPU are locked at this `MHz`: a class of its own")
	f.StringVar(&o.device.name, "device", autoDevice, "cuda, cuda:N, sim; auto: the GPU, else sim")
	addTimeout(f, &o.device.limit, &o.device.launch)
	o.reference.flags(f)
	return cmd
}

func checkIdle(idle time.Duration) error {
	if idle < 0 {
		return fmt.Errorf("--idle %s: want 0 or more", idle)
	}
	return nil
}

// work takes jobs until it is ended.
func (a *app) work(ctx context.Context, o workerOptions) error {
	if err := errors.Join(o.needURL(), checkLimit(o.device.limit), checkIdle(o.idle), o.reference.check()); err != nil {
		return usageError{err}
	}
	o.device.sim, o.device.simulates = defaultSim, true
	found, err := a.findDevice(ctx, o.device)
	if err != nil {
		return err
	}
	creds, err := o.credentials()
	if err != nil {
		return usageError{err}
	}
	class := fleet.ClassOf(found.Facts(), o.clocks)
	if err := o.admits(class, creds); err != nil {
		return usageError{err}
	}
	w, bench, err := a.newWorker(found, o.device.name, class, o.reference)
	if err != nil {
		return err
	}
	defer bench.Close()
	if w.Name, err = o.workerName(creds); err != nil {
		return usageError{err}
	}
	conn, err := fleet.Connect(o.url, creds, a.note)
	if err != nil {
		return err
	}
	defer conn.Close()
	if w.Key, err = o.key(creds); err != nil {
		return err
	}
	w.Idle = o.idle
	if creds != nil {
		w.API = creds.API
	}
	// What kernels and references bring along must not find the key, nor a network.
	if err := child.Isolate(); err != nil {
		a.note("kernels and references of others reach the network: " + err.Error())
	}
	if err := errors.Join(os.Unsetenv(credsVariable), os.Unsetenv(fleetVariable)); err != nil {
		return err
	}
	unlock, err := lockGPU(found.Facts())
	if err != nil {
		return err
	}
	defer unlock()
	if creds == nil { // a fleet on loopback, which trusts everybody
		if err := inviteHere(ctx, conn, w); err != nil {
			return err
		}
	}
	w.Ready = func() {
		if !a.json {
			fmt.Fprintf(a.stderr, "attune: %s works for the class %s of %s; Ctrl-C ends it\n", w.Name, w.Class, conn.ConnectedUrlRedacted())
		}
	}
	if err := w.Run(ctx, conn); err != nil && ctx.Err() == nil {
		if errors.As(err, new(*fleet.RefusedError)) {
			return usageError{err}
		}
		return err
	}
	if !a.json {
		fmt.Fprintf(a.stderr, "attune: %s has left the fleet\n", w.Name)
	}
	return nil
}

// admits is an error unless this machine may work for its class.
func (o workerOptions) admits(class string, creds *fleet.Credentials) error {
	switch {
	case !strings.HasPrefix(class, o.class):
		return fmt.Errorf("--class %s: the device of this machine is of the class %s", o.class, class)
	case creds != nil && creds.Class != "" && creds.Class != class:
		return fmt.Errorf("the credentials are for the class %s; the device of this machine is of the class %s", creds.Class, class)
	}
	return nil
}

// lockGPU lets one worker have a GPU: two would time each other.
func lockGPU(f device.Facts) (unlock func(), err error) {
	if f.UUID == "" {
		return func() {}, nil
	}
	cache, err := toolchain.CacheDir()
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(cache, "fleet")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(folder, f.UUID+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("another worker of this machine has %s (%s)", f.Name, f.UUID)
	}
	return func() { file.Close() }, nil
}

// workerName is the worker's name.
func (o workerOptions) workerName(creds *fleet.Credentials) (string, error) {
	if creds != nil {
		if creds.Name == fleet.Owner {
			return "", errors.New("these credentials are for the commands that hand out work; attune fleet invite NAME makes those of a worker")
		}
		if o.name != "" && o.name != creds.Name {
			return "", fmt.Errorf("--name %s: the credentials are those of %s", o.name, creds.Name)
		}
		return creds.Name, nil
	}
	name := o.name
	if name == "" {
		host, _ := os.Hostname()
		name = fmt.Sprintf("%.40s-%d", strings.Map(tokenRune, host), os.Getpid())
	}
	return name, fleet.CheckName("name", name)
}

// tokenRune is a character that the name of a worker may have.
func tokenRune(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
		return r
	}
	return '-'
}

// newWorker is a worker with a bench on a device of this machine.
func (a *app) newWorker(d lab.Device, name, class string, reference referenceOptions) (*fleet.Worker, *trial.Bench, error) {
	cache, err := toolchain.CacheDir()
	if err != nil {
		return nil, nil, err
	}
	if d.Simulated() { // auto may have found no GPU
		name = simDevice
	}
	bench := &trial.Bench{
		Cache: filepath.Join(cache, "fleet"), Version: version(),
		Command: a.commandRunner(name, reference),
		Lab:     func(ctx context.Context, folder string) (*lab.Lab, error) { return a.labAt(ctx, folder, d, reference) },
	}
	facts := d.Facts()
	return &fleet.Worker{Class: class, Device: deviceWords(facts), Facts: facts, Do: bench.Do, Note: a.note}, bench, nil
}

func deviceWords(f device.Facts) string {
	if f.Kind == "sim" {
		return "simulator"
	}
	return f.Name
}

// labAt is a lab for the kernel of a folder, or for the kernel in the program.
func (a *app) labAt(ctx context.Context, folder string, d lab.Device, reference referenceOptions) (*lab.Lab, error) {
	own := *a
	own.kernelDir = folder
	sources := kernels.SDPA()
	if folder != "" {
		sources = toolchain.Folder(folder)
	}
	kernel, err := spec.Load(sources)
	if err != nil {
		return nil, lab.RequestError(err.Error())
	}
	w, err := own.newWorkplace(ctx, kernel, sources)
	if err != nil {
		return nil, err
	}
	if folder != "" {
		w.Builder.Dir = folder
	}
	if w.compiler == nil {
		return nil, fmt.Errorf("this machine builds no variants: %w", own.noCompiler)
	}
	own.prepareReference(ctx, w, &reference)
	w.Device = d
	return w.Lab, nil
}
