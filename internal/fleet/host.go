package fleet

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Host is a server of a fleet with its coordinator, on the machine of the ledger.
type Host struct {
	*Coordinator
	home    *Home
	server  *Server
	conn    *nats.Conn
	invited map[string]Invitation
	keyed   bool // workers and coordinators need a key
	stop    func()
	unlock  func()
}

// Keyed reports whether workers and coordinators need a key.
func (h *Host) Keyed() bool { return h.keyed }

// invitationsEvery is how often the host looks for new invitations.
const invitationsEvery = time.Second

// StartHost starts the server of a fleet. On loopback, and while nobody is invited, it trusts every
// program of this machine; elsewhere connections are encrypted and every worker has a key.
func StartHost(ctx context.Context, path, address string, note func(string)) (*Host, error) {
	if note == nil {
		note = func(string) {}
	}
	home, err := OpenHome(path)
	if err != nil {
		return nil, err
	}
	h := &Host{home: home}
	if h.unlock, err = home.lock(); err != nil {
		return nil, err
	}
	if err := h.start(ctx, address, note); err != nil {
		h.unlock()
		return nil, err
	}
	return h, nil
}

// start starts the server and its coordinator.
func (h *Host) start(ctx context.Context, address string, note func(string)) (err error) {
	if h.invited, err = h.home.Invitations(); err != nil {
		return err
	}
	o := ServerOptions{Folder: h.home.Streams(), Address: address, Workers: h.invited}
	local := IsLoopback(address)
	if h.keyed = !local || len(h.invited) > 0; h.keyed {
		if o.Owner, err = h.home.OwnerKey(); err != nil {
			return err
		}
	}
	if !local {
		if o.TLS, err = h.home.TLS(HostNames()); err != nil {
			return err
		}
	}
	if h.server, err = StartServer(o); err != nil {
		return err
	}
	if err = h.home.serve(h.Address(), !local); err == nil {
		err = h.coordinate(ctx, note)
	}
	if err != nil {
		h.server.Close()
		return err
	}
	return nil
}

// coordinate connects the coordinator, and keeps the invitations up to date.
func (h *Host) coordinate(ctx context.Context, note func(string)) (err error) {
	var options []nats.Option
	if h.keyed {
		own := *h.home.Owner()
		own.CA = "" // the connection stays in this process
		if options, err = own.options(""); err != nil {
			return err
		}
	}
	if h.conn, err = h.server.connect(options...); err != nil {
		return err
	}
	if h.Coordinator, err = NewCoordinator(ctx, h.conn, Store{}, nil, note); err != nil {
		h.conn.Close()
		return err
	}
	if err := h.tell(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	note = seldom(note)
	work.Go(func() {
		for pause(ctx, invitationsEvery) {
			h.refresh(ctx, note)
			h.guard(note)
		}
	})
	h.stop = func() { cancel(); work.Wait() }
	return nil
}

// diskReserve is how much space the server's disk must have before its streams start again.
const diskReserve = 1 << 20

// guard stops the streams while the disk is full, and starts them when it has space: a stream that
// could not write answers nobody until its server starts again.
func (h *Host) guard(note func(string)) {
	place := filepath.Join(h.home.path, "reserve")
	err := os.WriteFile(place, make([]byte, diskReserve), 0o600)
	_ = os.Remove(place) // it may not exist
	stopped := h.server.Stopped()
	switch {
	case err == nil && stopped:
		if err = h.server.Revive(); err == nil {
			note("the fleet's server goes on")
			return
		}
	case err != nil && !stopped:
		h.server.Pause()
	}
	if err != nil {
		note(fmt.Sprintf("the fleet's server has stopped: %v; free some space, and it goes on", err))
	}
}

// refresh lets new workers in, and dismissed ones out.
func (h *Host) refresh(ctx context.Context, note func(string)) {
	now, err := h.home.Invitations()
	if err != nil || maps.Equal(now, h.invited) {
		return
	}
	before := h.invited
	h.invited = now
	if h.keyed {
		owner, err := h.home.OwnerKey()
		if err == nil {
			err = h.server.Invite(owner, now)
		}
		if err != nil {
			note(fmt.Sprintf("the fleet's invitations: %v", err))
		}
	} else if len(before) == 0 {
		note("workers are invited: start the server again, and it lets in nobody else")
	}
	if err := h.tell(ctx); err != nil {
		note(fmt.Sprintf("the fleet's invitations: %v", err))
	}
	for name := range before {
		if _, still := now[name]; !still {
			_ = h.queue.keys.Delete(ctx, name) // without its key the server refuses it anyway
		}
	}
}

// tell writes the invitations to the bucket that coordinators read.
func (h *Host) tell(ctx context.Context) error {
	for _, i := range h.invited {
		if err := h.invite(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// Address is where workers reach the server. Of one that listens on all addresses of the machine it is
// the first of Addresses.
func (h *Host) Address() string { return h.Addresses()[0] }

// Addresses are all of the machine where the server listens, IPv4 before IPv6.
func (h *Host) Addresses() []string {
	bound := h.server.Address()
	if IsLoopback(bound) {
		return []string{bound}
	}
	host, port, err := net.SplitHostPort(bound)
	ip := net.ParseIP(host)
	if err != nil || ip == nil || !ip.IsUnspecified() {
		return []string{"tls://" + bound}
	}
	var four, six []string
	for _, own := range hostAddresses() {
		if own.To4() != nil {
			four = append(four, "tls://"+net.JoinHostPort(own.String(), port))
		} else {
			six = append(six, "tls://"+net.JoinHostPort(own.String(), port))
		}
	}
	if len(four)+len(six) == 0 { // the network may come later
		return []string{"tls://" + net.JoinHostPort("127.0.0.1", port)}
	}
	return append(four, six...)
}

// Close ends the server.
func (h *Host) Close() {
	h.stop()
	h.Coordinator.Close()
	h.conn.Close()
	h.server.Close()
	h.unlock()
}

// IsLoopback reports whether only this machine reaches an address.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(strings.TrimPrefix(address, "nats://"))
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
