package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/spf13/pflag"

	"attune/internal/device"
	"attune/internal/fleet"
	"attune/internal/lab"
	"attune/internal/trial"
)

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
	o.url = cmp.Or(o.url, os.Getenv(fleetVariable), c.URL)
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
	return fleet.Invite(ctx, conn, fleet.Invitation{Name: w.Name, Public: public, Class: w.Class})
}

// spreadOptions say on which machines a command's work is done.
type spreadOptions struct {
	fleetOptions
	class   string
	workers int
	flight  int
}

func (o *spreadOptions) flags(f *pflag.FlagSet) {
	o.fleetOptions.flags(f)
	f.StringVar(&o.class, "class", "", "fleet: `class` of devices, see attune fleet status (default: the only one)")
	f.IntVar(&o.workers, "workers", 0, "simulator workers or local GPUs to work on at a time")
	f.IntVar(&o.flight, "in-flight", 0, "candidates at a time (default: two for each worker)")
}

// asked reports whether the work is to be spread.
func (o *spreadOptions) asked() bool {
	return o.workers > 0 || o.url != "" || o.creds != "" || os.Getenv(fleetVariable) != "" && o.class != ""
}

func (o *spreadOptions) check() error {
	switch {
	case o.workers < 0 || o.workers > 1024:
		return fmt.Errorf("--workers %d: want 1 to 1024", o.workers)
	case o.flight < 0:
		return fmt.Errorf("--in-flight %d: want at least 1", o.flight)
	case o.workers > 0 && (o.url != "" || o.creds != "" || o.class != ""):
		return errors.New("--workers starts workers in this process; --fleet uses those of a fleet")
	case o.workers == 0 && !o.asked() && (o.class != "" || o.flight > 0):
		return errors.New("--class and --in-flight are for --fleet or --workers")
	}
	return nil
}

// spread is a fleet that a command hands its work to.
type spread struct {
	fleet   *fleet.Coordinator
	class   string
	facts   device.Facts
	workers int
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
		w, bench, err := a.newWorker(found, fleet.ClassOf(found.Facts(), ""), reference)
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
	return &spread{fleet: here.Coordinator, class: workers[0].Class, facts: workers[0].Facts, workers: len(workers), close: func() {
		here.Close()
		for _, b := range benches {
			b.Close()
		}
	}}, nil
}

// spreadOut uses the workers of a fleet.
func (a *app) spreadOut(ctx context.Context, o spreadOptions) (*spread, error) {
	if err := o.needURL(); err != nil {
		return nil, usageError{err}
	}
	creds, err := o.credentials()
	if err != nil {
		return nil, usageError{err}
	}
	conn, err := fleet.Connect(o.url, creds, a.note)
	if err != nil {
		return nil, err
	}
	c, err := fleet.NewCoordinator(ctx, conn, fleet.Store{}, nil, a.note)
	if err != nil {
		conn.Close()
		return nil, err
	}
	s := &spread{fleet: c, close: func() { c.Close(); conn.Close() }}
	if err := s.choose(ctx, o.class); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// choose picks the class by its name or the beginning of it.
func (s *spread) choose(ctx context.Context, class string) error {
	state, err := s.fleet.Status(ctx)
	if err != nil {
		return err
	}
	var classes []string
	for _, w := range state.Workers {
		if strings.HasPrefix(w.Class, class) && !slices.Contains(classes, w.Class) {
			classes, s.facts = append(classes, w.Class), w.Facts
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
	s.class = classes[0]
	if slices.Contains(classes, class) {
		s.class = class
	}
	for _, w := range state.Workers {
		if w.Class == s.class {
			s.workers++
			s.facts = w.Facts
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

// searcher evaluates the candidates of a search.
func (s *spread) searcher(ctx context.Context, a *app, o spreadOptions) (*trial.Searcher, error) {
	kernel, err := trial.Send(ctx, s.fleet.Objects(), a.kernelPath())
	if err != nil {
		return nil, err
	}
	setting := trial.Setting{Kernel: kernel}
	if kernel.Files == "" {
		setting.Version = version()
	}
	flight := o.flight
	if flight == 0 {
		flight = 2 * s.workers
	}
	return &trial.Searcher{Fleet: s.fleet, Class: s.class, Setting: setting, Flight: flight}, nil
}
