//go:build noserver

package fleet

import (
	"context"
	"crypto/tls"
	"errors"

	"github.com/nats-io/nats.go"
)

var errNoServer = errors.New("this program was built without the fleet's server (-tags noserver); use one that has it, or a NATS server by --fleet URL")

// Server does not exist in this build.
type Server struct{}

// ServerOptions say where a server listens and what it keeps.
type ServerOptions struct {
	Folder  string
	Address string
	TLS     *tls.Config
	Owner   string
	Workers map[string]Invitation
}

// StartServer fails: this build has no server.
func StartServer(ServerOptions) (*Server, error) { return nil, errNoServer }

// Address is empty.
func (*Server) Address() string { return "" }

// Invite does nothing.
func (*Server) Invite(string, map[string]Invitation) error { return errNoServer }

func (*Server) connect(...nats.Option) (*nats.Conn, error) { return nil, errNoServer }

// Stopped is false.
func (*Server) Stopped() bool { return false }

// Pause does nothing.
func (*Server) Pause() {}

// Revive fails: this build has no server.
func (*Server) Revive() error { return errNoServer }

// Close does nothing.
func (*Server) Close() {}

// Embed fails: this build has no server.
func Embed(context.Context) (*nats.Conn, func(), error) { return nil, nil, errNoServer }
