package fleet

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// Credentials let one worker or coordinator into a fleet. They are a file that nobody else may read.
type Credentials struct {
	URL   string `toml:"url"`             // of the server
	Name  string `toml:"name"`            // of the worker; owner for the coordinator
	Class string `toml:"class,omitempty"` // that the worker may work for; empty for any
	Seed  string `toml:"seed"`            // the private key
	API   string `toml:"api,omitempty"`   // prefix of JetStream; empty for the usual one
	CA    string `toml:"ca,omitempty"`    // certificate of the server's authority; empty for those of the machine
}

// Owner is the name of the coordinator, who may do everything.
const Owner = "owner"

// ForWorker reports whether the credentials let a worker into a server of attune, and nobody else.
func (c *Credentials) ForWorker() bool { return c.API != "" && c.Name != Owner }

// NewCredentials makes a key for a name.
func NewCredentials(name, class string) (c Credentials, public string, err error) {
	key, err := nkeys.CreateUser()
	if err != nil {
		return c, "", err
	}
	seed, err := key.Seed()
	if err != nil {
		return c, "", err
	}
	public, err = key.PublicKey()
	return Credentials{Name: name, Class: class, Seed: string(seed)}, public, err
}

// Key is the key pair.
func (c *Credentials) Key() (nkeys.KeyPair, error) { return nkeys.FromSeed([]byte(c.Seed)) }

// ReadCredentials reads a file of credentials.
func ReadCredentials(path string) (Credentials, error) {
	var c Credentials
	info, err := os.Stat(path)
	if err == nil && !private(info) {
		return c, fmt.Errorf("%s: others can read the private key; chmod 600 %s", path, path)
	}
	meta, err := toml.DecodeFile(path, &c)
	if err != nil {
		return c, fmt.Errorf("credentials: %w", err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return c, fmt.Errorf("credentials %s: unknown key %s", path, unknown[0])
	}
	if _, err := c.Key(); err != nil {
		return c, fmt.Errorf("credentials %s: the seed is no key; attune fleet invite makes a new file", path)
	}
	return c, CheckName("name", c.Name)
}

// private reports whether only this user can read a file. Kubernetes mounts the keys of a secret as root's,
// for the group of the container: that group has no other member.
func private(info fs.FileInfo) bool {
	mode := info.Mode().Perm()
	owner, known := info.Sys().(*syscall.Stat_t)
	return mode&0o077 == 0 || known && owner.Uid == 0 && os.Geteuid() != 0 && mode&0o037 == 0
}

// Write writes the credentials to a new file that only its owner can read.
func (c *Credentials) Write(path string) error {
	var text bytes.Buffer
	text.WriteString("# Keep this file secret: it lets a worker into the fleet.\n")
	if err := toml.NewEncoder(&text).Encode(c); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text.Bytes())
	return errors.Join(err, f.Close())
}

// connectLimit is how long the first connection may take.
const connectLimit = 5 * time.Second

// pingEvery is how often a connection is tried. A link that is half open is noticed after three times that.
var pingEvery = 5 * time.Second

func withScheme(address, scheme string) string {
	if strings.Contains(address, "://") {
		return address
	}
	return scheme + "://" + address
}

// checkAddress is an error unless a server can be reached at an address.
func checkAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return fmt.Errorf("%q is no address of a fleet; want host:4222 or tls://host:4222", address)
	}
	if ip := net.ParseIP(u.Hostname()); ip == nil || !ip.IsUnspecified() {
		return nil
	}
	reached := "127.0.0.1"
	if own := hostAddresses(); len(own) > 0 {
		reached = own[0].String()
	}
	return fmt.Errorf("a server listens on %s, and is reached at an address of its machine; this one has %s", u.Host, u.Scheme+"://"+net.JoinHostPort(reached, u.Port()))
}

// Connect connects to a server. The connection comes back by itself when it was lost; changed is
// called when it was lost or came back, and may be nil.
func Connect(address string, c *Credentials, changed func(string)) (*nats.Conn, error) {
	if changed == nil {
		changed = func(string) {}
	}
	address = withScheme(address, "nats")
	if err := checkAddress(address); err != nil {
		return nil, err
	}
	options := []nats.Option{
		nats.Name("attune"), nats.Timeout(connectLimit), nats.MaxReconnects(-1), nats.ReconnectWait(500 * time.Millisecond), nats.ReconnectBufSize(-1),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				changed(fmt.Sprintf("the connection to the fleet was lost (%v); trying again", err))
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { changed("connected to the fleet again") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			own := c != nil && strings.Contains(err.Error(), drainSubject+c.Name) // then Worker.Run says what is wrong
			if errors.Is(err, nats.ErrPermissionViolation) && !own {
				changed(fmt.Sprintf("the fleet's server refuses: %v", err))
			}
		}),
	}
	if c != nil {
		more, err := c.options(address)
		if err != nil {
			return nil, err
		}
		options = append(options, more...)
	}
	conn, err := nats.Connect(address, options...)
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return nil, fmt.Errorf("the fleet at %s does not know this key; attune fleet invite NAME on its machine makes one for --creds", address)
	case errors.Is(err, nats.ErrNkeysNotSupported):
		return nil, fmt.Errorf("the fleet at %s takes no keys: leave --creds out", address)
	case c == nil && isTLS(err):
		return nil, fmt.Errorf("the fleet at %s has a certificate that this machine does not trust (%w); --creds names the file of attune fleet invite, or owner.toml", address, err)
	case err != nil:
		return nil, fmt.Errorf("connect to the fleet at %s: %w", address, plain(err))
	}
	return conn, nil
}

// isTLS reports whether the certificate of a server is why there is no connection.
func isTLS(err error) bool { return errors.As(err, new(*tls.CertificateVerificationError)) }

// options are those of a connection to an address.
func (c *Credentials) options(address string) ([]nats.Option, error) {
	key, err := c.Key()
	if err != nil {
		return nil, err
	}
	public, err := key.PublicKey()
	if err != nil {
		return nil, err
	}
	options := []nats.Option{nats.Nkey(public, key.Sign)}
	if c.Name != Owner {
		options = append(options, nats.CustomInboxPrefix(inboxOf(c.Name)))
	}
	if c.CA != "" {
		config, err := c.authority()
		if err != nil {
			return nil, err
		}
		options = append(options, func(o *nats.Options) error {
			o.TLSConfig, o.Secure = config, !IsLoopback(address) // a server on loopback has no TLS
			return nil
		})
	}
	return options, nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// authority trusts the authority of the credentials alone. That of a fleet has signed a single
// certificate, and forgotten its key: the name by which a machine reaches the server need not be in it.
func (c *Credentials) authority() (*tls.Config, error) {
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	if !config.RootCAs.AppendCertsFromPEM([]byte(c.CA)) {
		return nil, errors.New("the credentials have no valid certificate")
	}
	block, _ := pem.Decode([]byte(c.CA))
	authority, err := x509.ParseCertificate(block.Bytes)
	if err == nil && authority.Subject.CommonName == authorityName {
		config.ServerName = "localhost"                                                   // which is in every certificate of a fleet
		config.Time = func() time.Time { return latest(time.Now(), authority.NotBefore) } // the clock here may be behind
	}
	return config, err
}
