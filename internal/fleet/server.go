//go:build !noserver

package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Server is a NATS server in this process.
type Server struct {
	nats    *server.Server
	opts    *server.Options
	scratch string // folder of a server that keeps its streams in memory: it wants one all the same
}

// ServerOptions say where a server listens and what it keeps.
type ServerOptions struct {
	Folder  string // of its streams; empty for memory
	Address string // host:port; empty for a server that only this process reaches
	TLS     *tls.Config
	Owner   string                // public key of the coordinator
	Workers map[string]Invitation // by name
}

// startLimit is how long a server may take to start: it reads its streams.
const startLimit = time.Minute

// memoryLimit bounds the streams of a server that keeps them in memory.
const memoryLimit = jobBytes*4 + resultBytes + fileBytes

// StartServer starts a server. Every acknowledged write is on the disk.
func StartServer(o ServerOptions) (*Server, error) {
	opts := &server.Options{
		ServerName: "attune", NoLog: true, NoSigs: true, JetStream: true, StoreDir: o.Folder, SyncAlways: o.Folder != "",
		JetStreamMaxMemory: memoryLimit, JetStreamMaxStore: memoryLimit, MaxPayload: 1 << 20, DontListen: o.Address == "",
		TLSConfig: o.TLS, TLS: o.TLS != nil, TLSTimeout: 5,
	}
	if o.Address != "" {
		host, port, err := net.SplitHostPort(o.Address)
		if err != nil {
			return nil, fmt.Errorf("the address %q of the fleet is not host:port: %w", o.Address, err)
		}
		if opts.Port, err = net.LookupPort("tcp", port); err != nil {
			return nil, fmt.Errorf("the address %q of the fleet: %w", o.Address, err)
		}
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT
		}
		opts.Host = host
		if err := checkFree(net.JoinHostPort(host, port)); err != nil {
			return nil, err
		}
	}
	if err := admit(opts, o.Owner, o.Workers); err != nil {
		return nil, err
	}
	scratch := ""
	if o.Folder == "" {
		var err error
		if scratch, err = os.MkdirTemp("", "attune-fleet-"); err != nil {
			return nil, fmt.Errorf("the fleet's server: %w", err)
		}
		opts.StoreDir = scratch
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the fleet's server: %w", err), os.RemoveAll(scratch))
	}
	s.Start()
	if !s.ReadyForConnections(startLimit) {
		s.Shutdown()
		_ = os.RemoveAll(scratch) // the caller gets the error of the start
		return nil, errors.New("the fleet's server does not start; is the disk full?")
	}
	return &Server{s, opts, scratch}, nil
}

// checkFree is an error unless a server can listen on an address. The server itself tries again for a minute,
// and does not report why.
func checkFree(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("the fleet's server: %w", err)
	}
	return listener.Close()
}

// Address is where the server listens.
func (s *Server) Address() string { return s.nats.Addr().String() }

// Invite lets workers connect from now on, and no others.
func (s *Server) Invite(owner string, workers map[string]Invitation) error {
	for range 2 { // the server subscribes to the imports of an account that is new at the next change only
		changed := s.opts.Clone()
		if err := admit(changed, owner, workers); err != nil {
			return err
		}
		if err := s.nats.ReloadOptions(changed); err != nil {
			return err
		}
		s.opts = changed
	}
	return nil
}

// Stopped reports whether the server has stopped its streams, as it does when the disk is full.
func (s *Server) Stopped() bool { return !s.nats.JetStreamEnabled() }

// Pause stops the streams. Requests for them then fail at once.
func (s *Server) Pause() { _ = s.nats.ShutdownJetStream() }

// Revive starts the streams again.
func (s *Server) Revive() error {
	return s.nats.EnableJetStream(&server.JetStreamConfig{
		StoreDir: s.opts.StoreDir, SyncInterval: s.opts.SyncInterval, SyncAlways: s.opts.SyncAlways,
		MaxMemory: s.opts.JetStreamMaxMemory, MaxStore: s.opts.JetStreamMaxStore, Strict: !s.opts.NoJetStreamStrict,
	})
}

// Close stops the server. What it keeps on the disk stays there.
func (s *Server) Close() {
	s.nats.Shutdown()
	s.nats.WaitForShutdown()
	if s.scratch != "" {
		_ = os.RemoveAll(s.scratch) // of the system's folder for temporary files
	}
}

// connect is a connection of this process.
func (s *Server) connect(options ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("", append(options, nats.InProcessServer(s.nats))...)
}

// Embed starts a server that only this process reaches, and connects to it. It ends with stop.
func Embed(context.Context) (conn *nats.Conn, stop func(), err error) {
	s, err := StartServer(ServerOptions{})
	if err != nil {
		return nil, nil, err
	}
	if conn, err = s.connect(); err != nil {
		s.Close()
		return nil, nil, err
	}
	return conn, func() { conn.Close(); s.Close() }, nil
}

// admit lets the coordinator in, who may do everything, and the workers. Without an owner everybody may
// do everything, which is for a server on loopback or in this process.
func admit(opts *server.Options, owner string, workers map[string]Invitation) error {
	if owner == "" {
		return nil
	}
	var parsed server.Options
	if err := parsed.ProcessConfigString(accounts(owner, workers)); err != nil {
		return fmt.Errorf("the accounts of the fleet's server: %w", err)
	}
	opts.Accounts, opts.Nkeys = parsed.Accounts, parsed.Nkeys
	return nil
}
