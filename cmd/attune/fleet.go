package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"attune/internal/device"
	"attune/internal/document"
	"attune/internal/fleet"
	"attune/internal/lab"
	"attune/internal/run"
	"attune/internal/trial"
)

func (a *app) fleetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "show a fleet, invite, drain and launch its workers",
		Long: `A fleet is a server (attune serve --fleet), workers (attune worker), and
commands that hand it work: tune, run, mutate, compare, bench. They have

  --workers N        no fleet: N simulator workers, or the first N GPUs, here
  --fleet URL        of its server, such as host:4222 (default: ` + fleetVariable + `)
  --creds FILE       of attune fleet invite (default: ` + credsVariable + `)
  --class NAME       of devices, or its beginning; nothing joins two classes
  --in-flight N      tune: candidates at a time (default: two a worker; random
                     and grid: eight). With --replay several, such as 1,4,16
  --pace X           tune --replay --workers: workers sleep the recorded times,
                     X times faster

See docs/fleet.md.`,
		Example: "  attune fleet status --fleet 127.0.0.1:4222\n  attune tune --kernel examples/rmsnorm --fleet 127.0.0.1:4222 --budget 20",
		Args:    noSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.fleetStatusCommand(), a.fleetDrainCommand(), a.fleetDeadCommand(), a.fleetInviteCommand(), a.fleetDismissCommand(), a.fleetLaunchCommand())
	return cmd
}

// joinFleet is a coordinator of the named fleet. The caller calls leave.
func (a *app) joinFleet(ctx context.Context, o fleetOptions) (c *fleet.Coordinator, leave func(), err error) {
	if err := o.needURL(); err != nil {
		return nil, nil, usageError{err}
	}
	creds, err := o.credentials()
	if err == nil && creds != nil && creds.ForWorker() {
		err = fmt.Errorf("these credentials are those of the worker %s; commands need owner.toml, in the folder fleet of the server's ledger", creds.Name)
	}
	if err != nil {
		return nil, nil, usageError{err}
	}
	conn, err := fleet.Connect(o.url, creds, a.note)
	if err != nil {
		return nil, nil, err
	}
	if c, err = fleet.NewCoordinator(ctx, conn, fleet.Store{}, nil, a.note); err != nil {
		conn.Close()
		return nil, nil, err
	}
	return c, func() { c.Close(); conn.Close() }, nil
}

// withFleet has a command call a function with a coordinator of the fleet that its flags name.
func (a *app) withFleet(cmd *cobra.Command, do func(ctx context.Context, c *fleet.Coordinator, args []string) error) *cobra.Command {
	var o fleetOptions
	o.flags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, leave, err := a.joinFleet(cmd.Context(), o)
		if err != nil {
			return err
		}
		defer leave()
		return do(cmd.Context(), c, args)
	}
	return cmd
}

func (a *app) fleetStatusCommand() *cobra.Command {
	return a.withFleet(&cobra.Command{
		Use:     "status",
		Short:   "list classes, workers and dead letters",
		Long:    "Status prints the queue of each class, what each worker does, and the jobs that no\nmachine could do.",
		Example: "  attune fleet status --fleet 127.0.0.1:4222\n  attune fleet status --json",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *fleet.Coordinator, _ []string) error {
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(s)
		}
		return document.FleetStatus(s).Terminal(a.stdout, a.screen())
	})
}

func (a *app) fleetDrainCommand() *cobra.Command {
	return a.withFleet(&cobra.Command{
		Use:     "drain WORKER",
		Short:   "let a worker end after its job",
		Long:    "Drain lets a worker end after the job at hand. Jobs that wait go to other workers.",
		Example: "  attune fleet drain gpu7 --fleet 127.0.0.1:4222",
		Args: cobra.MatchAll(exactly("WORKER", "gpu7"), func(_ *cobra.Command, args []string) error {
			return fleet.CheckName("worker", args[0])
		}),
	}, func(ctx context.Context, c *fleet.Coordinator, args []string) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := c.Drain(ctx, args[0]); err != nil {
			return err
		}
		fmt.Fprintf(a.stderr, "attune: %s ends after its job\n", args[0])
		return nil
	})
}

func (a *app) fleetDeadCommand() *cobra.Command {
	var retry string
	cmd := a.withFleet(&cobra.Command{
		Use:   "dead",
		Short: "list the jobs that no machine could do, or try one again",
		Long: `Dead prints the jobs on which several machines failed: a worker was lost, or its
device. That says nothing about the kernel. --retry puts one into the queue
again.`,
		Example: "  attune fleet dead --fleet 127.0.0.1:4222\n  attune fleet dead --retry 3f2a91",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *fleet.Coordinator, _ []string) error {
		if retry != "" {
			letter, err := c.Retry(ctx, retry)
			if err == nil {
				fmt.Fprintf(a.stderr, "attune: %s %.12s is in the queue of %s again\n", letter.Job.Kind, letter.Key, letter.Job.Class)
			}
			return err
		}
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		if a.json {
			return a.printJSON(map[string]any{"schema_version": 1, "dead": s.Dead})
		}
		return document.FleetDead(s.Dead).Terminal(a.stdout, a.screen())
	})
	cmd.Flags().StringVar(&retry, "retry", "", "`key` of a job, or its beginning")
	return cmd
}

// fleetHome is the folder of the fleet of this machine's ledger.
func (a *app) fleetHome() string { return filepath.Join(a.ledgerPath(), "fleet") }

func (a *app) fleetInviteCommand() *cobra.Command {
	var class, address, output string
	cmd := &cobra.Command{
		Use:   "invite NAME",
		Short: "make the key of a worker",
		Long: `Invite makes the key of a worker and writes it, with the server's address and
certificate, to a file for attune worker --creds. Run it on the machine of the
server, with the same --ledger; a server that runs lets the worker in at once.

The key lets its owner take jobs and publish results under its name, and nothing
else. The file is secret: copy it over ssh.`,
		Example: "  attune fleet invite gpu7 --address tls://lab.example:4222\n  attune fleet invite gpu7 --class h200-3f2a91c0 -o gpu7.toml",
		Args:    exactly("NAME", "gpu7"),
		RunE: func(_ *cobra.Command, args []string) error {
			home, err := fleet.OpenHome(a.fleetHome())
			if err != nil {
				return err
			}
			c, err := home.Invite(args[0], class, address)
			if err != nil {
				return usageError{err}
			}
			file := cmp.Or(output, args[0]+".toml")
			if err := c.Write(file); err != nil {
				return errors.Join(err, home.Dismiss(args[0]))
			}
			there := "attune worker --creds " + run.ShellWord(filepath.Base(file))
			if c.URL == "" {
				there += " --fleet tls://HOST:PORT, the server's address, which the file lacks: --address was not given"
			}
			fmt.Fprintf(a.stderr, "attune: copy %s to the machine of %s; there, %s\n", file, args[0], there)
			if address == "" && c.URL != "" {
				fmt.Fprintf(a.stderr, "attune: it names the server %s; --address names another\n", c.URL)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&class, "class", "", "the only `class` of devices it may work for")
	f.StringVar(&address, "address", "", "`URL` at which the worker reaches the server, such as tls://host:4222 (default: that of its last start)")
	f.StringVarP(&output, "output", "o", "", "`file` of the key (default: NAME.toml)")
	return cmd
}

func (a *app) fleetDismissCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "dismiss NAME",
		Short:   "take an invitation back",
		Long:    "Dismiss takes the invitation of a worker back. A server that runs closes its\nconnection, and its results are refused.",
		Example: "  attune fleet dismiss gpu7",
		Args:    exactly("NAME", "gpu7"),
		RunE: func(_ *cobra.Command, args []string) error {
			home, err := fleet.OpenHome(a.fleetHome())
			if err == nil {
				err = home.Dismiss(args[0])
			}
			return err
		},
	}
}

// startHost starts the server of a fleet, and says how to reach it.
func (a *app) startHost(ctx context.Context, address string) (*fleet.Host, error) {
	host, err := fleet.StartHost(ctx, a.fleetHome(), address, a.note)
	if err != nil {
		return nil, err
	}
	if a.json {
		return host, nil
	}
	if !host.Keyed() {
		fmt.Fprintf(a.stderr, "attune: a fleet is at %s; attune worker --fleet %s joins it\n", host.Address(), host.Address())
		return host, nil
	}
	fmt.Fprintf(a.stderr, "attune: a fleet is at %s\n", strings.Join(host.Addresses(), ", "))
	fmt.Fprintf(a.stderr, "attune: workers need a key (attune fleet invite NAME --address %s), and searches --creds %s\n", host.Address(), filepath.Join(a.fleetHome(), "owner.toml"))
	return host, nil
}

// fleetVariable and credsVariable are the environment variables of the flags.
const (
	fleetVariable = "ATTUNE_FLEET"
	credsVariable = "ATTUNE_FLEET_CREDS"
)

// fleetOptions name a fleet.
type fleetOptions struct {
	url   string
	creds string
}

func (o *fleetOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.url, "fleet", "", "`URL` of the fleet's server, such as host:4222 (default: "+fleetVariable+", or of --creds)")
	f.StringVar(&o.creds, "creds", "", "`file` of attune fleet invite (default: "+credsVariable+")")
}

// describeFleet lets the help of attune fleet describe the flags of a command that hands work to one.
func describeFleet(f *pflag.FlagSet, flags ...string) {
	for _, flag := range flags {
		describeIn(f, "fleet", flag)
	}
}

// credentials reads the file, if one is named, and completes the address.
func (o *fleetOptions) credentials() (*fleet.Credentials, error) {
	path := cmp.Or(o.creds, os.Getenv(credsVariable))
	if path == "" {
		return nil, nil
	}
	c, err := fleet.ReadCredentials(path)
	if err != nil {
		return nil, err
	}
	if o.url = cmp.Or(o.url, os.Getenv(fleetVariable), c.URL); o.url == "" {
		return nil, fmt.Errorf("%s names no server; --fleet tls://host:4222", path)
	}
	return &c, nil
}

// needURL is an error unless a fleet is named.
func (o *fleetOptions) needURL() error {
	o.url = cmp.Or(o.url, os.Getenv(fleetVariable))
	if o.url == "" && cmp.Or(o.creds, os.Getenv(credsVariable)) == "" {
		return errors.New("no fleet is named; --fleet host:4222, or --creds FILE of attune fleet invite")
	}
	return nil
}

// key is the key of the credentials, or a new one.
func (o *fleetOptions) key(c *fleet.Credentials) (nkeys.KeyPair, error) {
	if c != nil {
		return c.Key()
	}
	return nkeys.CreateUser()
}

// inviteHere lets a worker in by itself: the server trusts everybody who reaches it.
func inviteHere(ctx context.Context, conn *nats.Conn, w *fleet.Worker) error {
	public, err := w.Key.PublicKey()
	if err != nil {
		return err
	}
	return fleet.InviteHere(ctx, conn, fleet.Invitation{Name: w.Name, Public: public, Class: w.Class})
}

// spreadOptions say on which machines a command's work is done.
type spreadOptions struct {
	fleetOptions
	class   string
	workers int
	set     *pflag.FlagSet // of the command; nil where the options are no flags
}

func (o *spreadOptions) flags(f *pflag.FlagSet) {
	o.fleetFlags(f)
	f.IntVar(&o.workers, "workers", 0, "simulator workers or local GPUs to work on at a time")
	describeFleet(f, "workers")
}

// fleetFlags are those of a command that one machine carries out.
func (o *spreadOptions) fleetFlags(f *pflag.FlagSet) {
	o.set = f
	o.fleetOptions.flags(f)
	f.StringVar(&o.class, "class", "", "fleet: `class` of devices, see attune fleet status (default: the only one)")
	describeFleet(f, "fleet", "creds", "class")
	_ = f.MarkHidden("creds") // of the list of names, which would take two lines
}

// asked reports whether the work is to be spread.
func (o *spreadOptions) asked() bool {
	return o.workers > 0 || o.url != "" || o.creds != "" || o.class != "" && os.Getenv(fleetVariable)+os.Getenv(credsVariable) != ""
}

func (o *spreadOptions) check() error {
	switch {
	case o.workers < 0 || o.workers > 1024, o.workers == 0 && o.set != nil && o.set.Changed("workers"):
		return fmt.Errorf("--workers %d: want 1 to 1024", o.workers)
	case o.workers > 0 && (o.url != "" || o.creds != "" || o.class != ""):
		return errors.New("--workers starts workers in this process; --fleet uses those of a fleet")
	case o.workers == 0 && o.asked() && o.set != nil && o.set.Changed("device"):
		return errors.New("--device is of this machine; --class chooses the devices of a fleet")
	case !o.asked() && o.class != "":
		return errors.New("--class is for --fleet")
	}
	return nil
}

// spread is a fleet that a command hands its work to.
type spread struct {
	fleet   *fleet.Coordinator
	class   string
	facts   device.Facts
	workers int
	slots   int            // jobs at a time that make it faster
	on      map[string]int // workers by machine
	here    bool           // the workers are in this process
	close   func()
}

// spreadHere starts workers in this process, on the simulator or on the first GPUs.
func (a *app) spreadHere(ctx context.Context, o spreadOptions, d deviceOptions, reference referenceOptions) (*spread, error) {
	here, err := fleet.StartHere(ctx, a.note)
	if err != nil {
		return nil, err
	}
	var workers []*fleet.Worker
	var benches []*trial.Bench
	for i := range o.workers {
		own := d
		if d.name != simDevice {
			own.name = fmt.Sprintf("%s:%d", cudaDevice, i)
		}
		found, err := a.findDevice(ctx, own)
		if err != nil {
			here.Close()
			return nil, fmt.Errorf("worker %d: %w", i+1, err)
		}
		w, bench, err := a.newWorker(found, own.name, fleet.ClassOf(found.Facts(), ""), reference)
		if err != nil {
			here.Close()
			return nil, err
		}
		w.Name = fmt.Sprintf("worker-%d", i+1)
		if len(workers) > 0 && w.Class != workers[0].Class {
			here.Close()
			return nil, usageError{fmt.Errorf("--workers %d: GPU %d (%s) is of another class than GPU 0 (%s); nothing is compared across classes", o.workers, i, w.Device, workers[0].Device)}
		}
		workers, benches = append(workers, w), append(benches, bench)
	}
	if err := here.Start(ctx, workers...); err != nil {
		here.Close()
		return nil, err
	}
	s := &spread{fleet: here.Coordinator, here: true, close: func() {
		here.Close()
		for _, b := range benches {
			b.Close()
		}
	}}
	for _, w := range workers {
		s.hire(fleet.WorkerState{Class: w.Class, Facts: w.Facts, Host: "this one", Cores: runtime.NumCPU()})
	}
	return s, nil
}

// hire counts a worker in. The simulator uses all cores of its machine: more workers than cores there do
// not make the work faster.
func (s *spread) hire(w fleet.WorkerState) {
	if s.on == nil {
		s.on = map[string]int{}
	}
	s.workers++
	s.class, s.facts = w.Class, w.Facts
	if s.on[w.Host]++; w.Host == "" || w.Facts.Kind != simDevice || s.on[w.Host] <= w.Cores {
		s.slots++
	}
}

// spreadOut uses the workers of a fleet.
func (a *app) spreadOut(ctx context.Context, o spreadOptions) (*spread, error) {
	c, leave, err := a.joinFleet(ctx, o.fleetOptions)
	if err != nil {
		return nil, err
	}
	s := &spread{fleet: c, close: leave}
	if err := s.choose(ctx, o.class); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// choose picks the class by its name or the beginning of it.
func (s *spread) choose(ctx context.Context, class string) error {
	state, err := s.fleet.Started(ctx)
	if err != nil {
		return err
	}
	var classes []string
	for _, w := range state.Workers {
		if strings.HasPrefix(w.Class, class) && !slices.Contains(classes, w.Class) {
			classes = append(classes, w.Class)
		}
	}
	switch {
	case len(classes) == 0 && class == "":
		return lab.RequestError("the fleet has no worker; attune worker starts one")
	case len(classes) == 0:
		return lab.RequestError(fmt.Sprintf("the fleet has no worker of the class %s; attune fleet status lists them", class))
	case len(classes) > 1 && !slices.Contains(classes, class):
		return usageError{fmt.Errorf("the fleet has the classes %s; choose one by --class", strings.Join(classes, ", "))}
	}
	chosen := classes[0]
	if slices.Contains(classes, class) {
		chosen = class
	}
	for _, w := range state.Workers {
		if w.Class == chosen {
			s.hire(w)
		}
	}
	return nil
}

// open hands the work to workers here, or to a fleet.
func (a *app) openSpread(ctx context.Context, o spreadOptions, d deviceOptions, reference referenceOptions) (*spread, error) {
	if o.workers > 0 {
		return a.spreadHere(ctx, o, d, reference)
	}
	return a.spreadOut(ctx, o)
}

// device is what a lab without the device itself knows of it.
func (s *spread) device(a *app, d deviceOptions) lab.Device {
	if s.facts.Kind == simDevice {
		return a.simulator(d)
	}
	return lab.GPU(s.facts, func(context.Context) (device.Device, error) {
		return nil, fmt.Errorf("%w: the work is done by the fleet", device.ErrNoDevice)
	})
}

// setting sends the kernel's files to the fleet.
func (s *spread) setting(ctx context.Context, a *app) (trial.Setting, error) {
	slow := time.AfterFunc(10*time.Second, func() { a.note("the kernel's files are on their way to the fleet's server") })
	defer slow.Stop()
	kernel, err := trial.Send(ctx, s.fleet.Objects(), a.kernelPath())
	setting := trial.Setting{Kernel: kernel}
	if kernel.Files == "" {
		setting.Version = version()
	}
	return setting, err
}

// searcher evaluates the candidates of a search.
func (s *spread) searcher(ctx context.Context, a *app, flight int) (*trial.Searcher, error) {
	setting, err := s.setting(ctx, a)
	if err != nil {
		return nil, err
	}
	searcher := &trial.Searcher{Fleet: s.fleet, Class: s.class, Setting: setting, Flight: flight}
	if s.workers > 1 && !(s.here && s.facts.Kind == simDevice) { // one program would agree with itself
		searcher.Repeats = &trial.Repeats{Note: a.note}
	}
	return searcher, nil
}
