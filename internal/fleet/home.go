package fleet

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Home is the folder of a fleet on the machine of its server: the owner's credentials, the workers that
// are invited, the certificates, and the server's streams.
type Home struct {
	path  string
	owner Credentials
}

// OpenHome opens the folder of a fleet, or makes one.
func OpenHome(path string) (*Home, error) {
	h := &Home{path: path}
	err := os.MkdirAll(filepath.Join(path, "workers"), 0o700)
	if err == nil {
		h.owner, err = ReadCredentials(h.OwnerFile())
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return h, err
	}
	if h.owner, _, err = NewCredentials(Owner, ""); err == nil {
		err = h.owner.Write(h.OwnerFile())
	}
	return h, err
}

// lock keeps a second server from the streams of the first, which it would damage. The lock ends with the
// process.
func (h *Home) lock() (unlock func(), err error) {
	d, err := os.Open(h.path)
	if err != nil {
		return nil, err
	}
	release := func() {
		_ = syscall.Flock(int(d.Fd()), syscall.LOCK_UN) // a child that is being started has a copy
		d.Close()
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		d.Close()
		return nil, fmt.Errorf("a fleet's server runs on %s already; end it, or name another --ledger", h.path)
	}
	return release, nil // a file system without locks has none
}

// OwnerFile has the credentials of the coordinator.
func (h *Home) OwnerFile() string { return filepath.Join(h.path, "owner.toml") }

// Streams is the folder of the server's streams.
func (h *Home) Streams() string { return filepath.Join(h.path, "streams") }

// Owner are the credentials of the coordinator.
func (h *Home) Owner() *Credentials { return &h.owner }

// OwnerKey is the public key of the coordinator.
func (h *Home) OwnerKey() (string, error) {
	key, err := h.owner.Key()
	if err != nil {
		return "", err
	}
	return key.PublicKey()
}

// Invitations are the workers that may connect, by name.
func (h *Home) Invitations() (map[string]Invitation, error) {
	folder := filepath.Join(h.path, "workers")
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	all := map[string]Invitation{}
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), ".json")
		if !is || !entry.Type().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		var i Invitation
		if err := json.Unmarshal(text, &i); err != nil || i.Name != name || CheckName("worker", name) != nil {
			return nil, fmt.Errorf("%s is no invitation; remove it", filepath.Join(folder, entry.Name()))
		}
		all[name] = i
	}
	return all, nil
}

// Invite makes the key of a worker. The server lets it in from now on; a name can be invited once.
// Without an address the worker gets the one at which the server was started last, if it was.
func (h *Home) Invite(name, class, address string) (Credentials, error) {
	if err := CheckName("worker", name); err != nil {
		return Credentials{}, err
	}
	if name == Owner {
		return Credentials{}, fmt.Errorf("%s is the name of the coordinator; give the worker another one", Owner)
	}
	if class != "" {
		if err := CheckName("class", class); err != nil {
			return Credentials{}, err
		}
	}
	if address != "" {
		if err := checkAddress(withScheme(address, "tls")); err != nil {
			return Credentials{}, err
		}
	}
	c, public, err := NewCredentials(name, class)
	if err != nil {
		return c, err
	}
	c.URL, c.API = cmp.Or(address, h.owner.URL), workerAPI
	if _, err := h.TLS(HostNames()); err != nil { // the server may not have been started yet
		return c, err
	}
	authority, err := os.ReadFile(filepath.Join(h.path, authorityFile))
	if err != nil {
		return c, err
	}
	c.CA = string(authority)
	text, err := json.Marshal(Invitation{Name: name, Public: public, Class: class})
	if err != nil {
		return c, err
	}
	place := filepath.Join(h.path, "workers", name+".json")
	f, err := os.OpenFile(place, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return c, fmt.Errorf("%s is invited already; attune fleet dismiss %s takes that back", name, name)
	}
	if err != nil {
		return c, err
	}
	_, err = f.Write(text)
	return c, errors.Join(err, f.Close())
}

// Dismiss takes an invitation back.
func (h *Home) Dismiss(name string) error {
	if err := CheckName("worker", name); err != nil {
		return err
	}
	err := os.Remove(filepath.Join(h.path, "workers", name+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not invited", name)
	}
	return err
}

// serve writes to the owner's file where the server is, and its certificate, so that the file is enough
// for a coordinator.
func (h *Home) serve(address string, encrypted bool) error {
	now := h.owner
	now.URL, now.CA = address, ""
	if encrypted {
		authority, err := os.ReadFile(filepath.Join(h.path, authorityFile))
		if err != nil {
			return err
		}
		now.CA = string(authority)
	}
	if now == h.owner {
		return nil
	}
	next := h.OwnerFile() + ".new"
	_ = os.Remove(next) // of a server that was killed
	if err := now.Write(next); err != nil {
		return err
	}
	if err := os.Rename(next, h.OwnerFile()); err != nil {
		return err
	}
	h.owner = now
	return nil
}

// authorityFile is the certificate of the authority, and authorityName its name.
const (
	authorityFile = "ca.pem"
	authorityName = "attune fleet"
)

// certificateYears is how long a certificate of the fleet is valid.
const certificateYears = 5

// TLS is the server's side of encrypted connections, with certificates that are made when they are
// missing. names are the host names and addresses of the server.
func (h *Home) TLS(names []string) (*tls.Config, error) {
	certificate, key := filepath.Join(h.path, "server.pem"), filepath.Join(h.path, "server.key")
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if errors.Is(err, fs.ErrNotExist) {
		if err = h.certify(names, certificate, key); err == nil {
			pair, err = tls.LoadX509KeyPair(certificate, key)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the fleet's certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}, nil
}

// certify makes an authority whose key is forgotten, and a certificate of it.
func (h *Home) certify(names []string, certificate, key string) error {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	authority := newCertificate(authorityName)
	authority.IsCA, authority.BasicConstraintsValid, authority.KeyUsage = true, true, x509.KeyUsageCertSign
	authorityText, err := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	if err != nil {
		return err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	server := newCertificate("attune fleet server")
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			server.IPAddresses = append(server.IPAddresses, ip)
		} else {
			server.DNSNames = append(server.DNSNames, name)
		}
	}
	text, err := x509.CreateCertificate(rand.Reader, server, authority, &own.PublicKey, authorityKey)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		return err
	}
	return errors.Join(
		writePEM(filepath.Join(h.path, authorityFile), "CERTIFICATE", authorityText, 0o644),
		writePEM(certificate, "CERTIFICATE", text, 0o644),
		writePEM(key, "PRIVATE KEY", private, 0o600),
	)
}

func newCertificate(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // crypto/rand does not fail
	now := time.Now()
	// An hour early, for machines whose clock is behind.
	return &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-2 * time.Hour), NotAfter: now.AddDate(certificateYears, 0, 0)}
}

func writePEM(path, kind string, text []byte, mode fs.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: text}), mode)
}

// HostNames are the names and addresses of this machine, for its certificate.
func HostNames() []string {
	names := []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	for _, ip := range hostAddresses() {
		names = append(names, ip.String())
	}
	return names
}

// hostAddresses are those of this machine that others may reach.
func hostAddresses() []net.IP {
	var all []net.IP
	addresses, _ := net.InterfaceAddrs() // without them the names remain
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			all = append(all, n.IP)
		}
	}
	return all
}
