package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"attune/internal/fleet"
	"attune/internal/run"
	"attune/internal/toolchain"
	"attune/internal/web"
)

// tokenVariable is the environment variable of the token, for machines on which others can read
// command lines.
const tokenVariable = "ATTUNE_TOKEN"

// minToken is the least length of a token that a user chooses.
const minToken = 16

type serveOptions struct{ address, token, fleet string }

func (a *app) serveCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "show the ledger in the browser",
		Long: `Serve shows the ledger as a web page: champions, the ladder, runs, benches with
peers, searches while they run, the kernel's source beside its PTX, its knobs.
The page is part of the program and loads nothing from the network. /api has the
documents of --json, described by /api/openapi.json. See docs/serve.md.

It listens on 127.0.0.1. Every program of this machine can read the page; to
start a run it needs the token: --token, ` + tokenVariable + `, or a random one that is
printed with the address. Requests that other sites cause are refused.

Another --address can be reached from other machines. Then --token or
` + tokenVariable + ` must be given, and reading needs it too. The connection is not
encrypted: prefer a tunnel, ssh -L 8180:localhost:8180 HOST. Ctrl-C ends it.

With --fleet it is the server of a fleet too: attune worker joins it, and
attune tune --fleet hands it work. See docs/fleet.md.`,
		Example: "  attune serve\n  attune serve --ledger results --address 127.0.0.1:0\n  attune serve --fleet 127.0.0.1:4222",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.address, "address", "127.0.0.1:8180", "`host:port` to listen on; port 0 takes a free one")
	f.StringVar(&o.token, "token", "", "needed to start runs (default: "+tokenVariable+", or random)")
	f.StringVar(&o.fleet, "fleet", "", "`host:port` on which workers and searches reach a fleet")
	return cmd
}

// check completes the token.
func (o *serveOptions) check() error {
	if _, _, err := net.SplitHostPort(o.address); err != nil {
		return fmt.Errorf("--address %s: want host:port, such as 127.0.0.1:8180", o.address)
	}
	if _, _, err := net.SplitHostPort(o.fleet); o.fleet != "" && err != nil {
		return fmt.Errorf("--fleet %s: want host:port, such as 127.0.0.1:4222", o.fleet)
	}
	given := cmp.Or(o.token, os.Getenv(tokenVariable))
	switch {
	case given == "" && !web.Loopback(o.address):
		return fmt.Errorf("--address %s can be reached from other machines, so it needs a --token of at least %d characters", o.address, minToken)
	case given != "" && len(given) < minToken:
		return fmt.Errorf("the token has %d characters; want at least %d", len(given), minToken)
	}
	o.token = cmp.Or(given, web.NewToken())
	return os.Unsetenv(tokenVariable) // runs that a page starts, and their references, must not read it
}

func (a *app) serve(ctx context.Context, o serveOptions) error {
	source := tokenSource(o.token)
	if err := o.check(); err != nil {
		return usageError{err}
	}
	open := a.readLedger
	if o.fleet != "" { // whose folder is in the ledger
		open = a.openRecordingLedger
	}
	kept, err := open(ctx)
	if err != nil {
		return err
	}
	defer kept.Close()
	listener, err := net.Listen("tcp", o.address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("another program listens on %s, perhaps another attune serve; --address 127.0.0.1:0 takes a free port", o.address)
	}
	if err != nil {
		return fmt.Errorf("--address %s: %w", o.address, err)
	}
	defer listener.Close()
	bound := listener.Addr().String()
	private := !web.Loopback(o.address) || !web.Loopback(bound)
	var fleetState func(context.Context) (*fleet.Status, error)
	fleetAddress := ""
	if o.fleet != "" {
		host, err := a.startHost(ctx, o.fleet)
		if err != nil {
			return err
		}
		defer host.Close()
		fleetState, fleetAddress = host.Status, host.Address()
	}
	server, err := web.New(web.Config{
		Ledger: kept, LedgerName: a.ledgerPath(), Version: version(), Kernel: a.kernel, Images: a.lookups(ctx),
		Address: bound, Host: calledName(o.address), Token: o.token, Private: private, Commands: a.reader(kept).Commands, Command: a.startedRun, Fleet: fleetState, Errors: log.New(a.stderr, "attune: serve: ", 0),
	})
	if err != nil {
		return err
	}
	if err := a.announce(announcement{web.URLs(bound), o.token, source, private, fleetAddress}); err != nil {
		return err
	}
	return server.Serve(ctx, listener)
}

// tokenSource names where a token was given; it is empty for a random one.
func tokenSource(flag string) string {
	switch {
	case flag != "":
		return "--token"
	case os.Getenv(tokenVariable) != "":
		return tokenVariable
	}
	return ""
}

// calledName is the name by which users call the server: that of --address, or for every address that of
// the machine.
func calledName(address string) string {
	host, _, _ := net.SplitHostPort(address) // check has split it
	ip, err := netip.ParseAddr(host)
	if host != "" && (err != nil || !ip.IsUnspecified()) {
		return host
	}
	name, _ := os.Hostname() // a machine without a name has addresses
	return name
}

// announcement is what the user must know to open the page.
type announcement struct {
	urls          []string
	token, source string // source is empty for a random token
	private       bool
	fleet         string // address of the fleet's server; empty without one
}

// announce prints the addresses. The token is printed if it is random: nobody else knows it.
func (a *app) announce(n announcement) error {
	url := n.urls[0]
	if a.json {
		document := map[string]any{"schema_version": 1, "url": url, "urls": n.urls}
		if n.source == "" {
			document["token"] = n.token
		}
		if n.fleet != "" {
			document["fleet"] = n.fleet
		}
		return a.printJSON(document)
	}
	fmt.Fprintf(a.stderr, "attune: %s is at %s\n", a.ledgerPath(), url)
	if others := n.urls[1:]; len(others) > 0 {
		fmt.Fprintf(a.stderr, "attune: from other machines, %s\n", strings.Join(others, " or "))
	}
	switch {
	case n.source == "":
		fmt.Fprintf(a.stderr, "attune: to start runs from the page, open %s?token=%s\n", url, n.token)
	case n.private:
		fmt.Fprintf(a.stderr, "attune: every page needs the token of %s: open %s?token=TOKEN\n", n.source, url)
	default:
		fmt.Fprintf(a.stderr, "attune: to start runs from the page, open %s?token=TOKEN with the token of %s\n", url, n.source)
	}
	return nil
}

// lookups returns a function that finds builds of a folder without compiling. The compiler, which is
// part of a build's key, is looked for once.
func (a *app) lookups(ctx context.Context) func(fs.FS) *toolchain.Builder {
	find := sync.OnceValues(func() (*toolchain.Compiler, string) {
		cacheDir, err := toolchain.CacheDir()
		if err != nil {
			return nil, ""
		}
		compiler, err := toolchain.Find(ctx, cacheDir)
		if err != nil {
			return nil, cacheDir // shipped images need none
		}
		return compiler, cacheDir
	})
	return func(folder fs.FS) *toolchain.Builder {
		compiler, cacheDir := find()
		images := toolchain.NewBuilder(folder, compiler, cacheDir)
		images.Dir = a.kernelPath()
		return images
	}
}

// deviceName is a value of --device.
var deviceName = regexp.MustCompile(`^(auto|sim|cuda(:[0-9]{1,3})?)$`)

// maxStarted limits the variants of a run that a page starts.
const maxStarted = 32

// startedRun is the command line of a run that a page starts. It is checked as one that is typed.
func (a *app) startedRun(r web.StartRequest) ([]string, error) {
	r.Device = cmp.Or(r.Device, autoDevice)
	switch {
	case len(r.Variants) == 0 || len(r.Variants) > maxStarted:
		return nil, fmt.Errorf("%d variants; want 1 to %d", len(r.Variants), maxStarted)
	case !deviceName.MatchString(r.Device):
		return nil, errors.New("device: there are auto, sim, cuda and cuda:N")
	}
	kernel, _, err := a.kernel()
	if err != nil {
		return nil, err
	}
	o := runOptions{
		requestOptions: requestOptions{shapes: r.Shapes, seeds: r.Seeds, against: r.Against, rounds: 1, processes: 1, l2: run.Warm},
		device:         deviceOptions{name: r.Device, limit: defaultLimit, launch: defaultLaunchLimit, simulates: true, sim: defaultSim},
		reference:      referenceOptions{limit: defaultReferenceLimit}, quick: r.Quick,
	}
	if _, err := o.request(kernel, r.Variants, r.Device == simDevice); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := []string{program, "run", "--json", "--progress", "--ledger=" + a.ledgerPath(), "--device=" + r.Device}
	for _, flag := range []struct{ name, value string }{
		{"kernel", a.kernelDir}, {"shapes", r.Shapes}, {"seeds", r.Seeds}, {"against", r.Against},
	} {
		if strings.TrimSpace(flag.value) != "" {
			command = append(command, "--"+flag.name+"="+flag.value)
		}
	}
	if r.Quick {
		command = append(command, "--quick")
	}
	return append(append(command, "--"), r.Variants...), nil
}
