//go:build !noserver

package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/nats-io/nats.go"
)

// keyed is a fleet with keys and TLS, as one outside of loopback is.
type keyed struct {
	*Host
	t    testing.TB
	home *Home
}

func newKeyed(t testing.TB) *keyed {
	t.Helper()
	path := t.TempDir()
	home, err := OpenHome(path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := StartHost(t.Context(), path, "0.0.0.0:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return &keyed{h, t, home}
}

// url is the address of the server on this machine.
func (k *keyed) url() string {
	return "tls://127.0.0.1" + k.server.Address()[strings.LastIndex(k.server.Address(), ":"):]
}

// invite invites a worker, and waits until the server lets it in.
func (k *keyed) invite(name, class string) *Credentials {
	k.t.Helper()
	c, err := k.home.Invite(name, class, k.url())
	if err != nil {
		k.t.Fatal(err)
	}
	for range 100 {
		conn, err := Connect(c.URL, &c, nil)
		if err == nil {
			conn.Close()
			return &c
		}
		time.Sleep(50 * time.Millisecond)
	}
	k.t.Fatalf("the server does not let %s in", name)
	return nil
}

// connect is a connection of a worker. refused lists what the server denied.
func (k *keyed) connect(c *Credentials) (conn *nats.Conn, refused func() []string) {
	k.t.Helper()
	var mu sync.Mutex
	var denied []string
	note := func(line string) {
		mu.Lock()
		defer mu.Unlock()
		denied = append(denied, line)
	}
	conn, err := Connect(c.URL, c, note)
	for i := 0; err != nil && i < 100; i++ { // the server may be taking in another invitation
		time.Sleep(50 * time.Millisecond)
		conn, err = Connect(c.URL, c, note)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(conn.Close)
	return conn, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), denied...)
	}
}

// What a worker's key does not allow. The server denies each of them.
func TestWorkerIsConfined(t *testing.T) {
	k := newKeyed(t)
	creds := k.invite("a", "sim")
	k.invite("b", "sim")
	if err := k.open(t.Context(), "sim"); err != nil {
		t.Fatal(err)
	}
	conn, refused := k.connect(creds)
	key := strings.Repeat("0", 64)
	publish := []string{
		"attune.results.b." + key, "attune.jobs.p1.sim.evaluate." + key, "attune.cancel.sim", "attune.drain.b",
		"$KV.attune-workers.b", "$KV.attune-dead." + key, "$KV.attune-keys.a", "$KV.attune-keys.b", "_INBOX_b.x", "_INBOX.x",
		"attune.files.b." + key + ".0", "attune.files.owner." + key + ".0",
	}
	for _, stream := range []string{jobStream, resultStream, fileStream, "KV_" + keyBucket, "KV_" + workerBucket, "KV_" + deadBucket} {
		for _, api := range []string{"STREAM.DELETE.", "STREAM.PURGE.", "STREAM.UPDATE.", "STREAM.CREATE.", "STREAM.MSG.DELETE.", "STREAM.MSG.GET.", "STREAM.SNAPSHOT.", "STREAM.RESTORE."} {
			publish = append(publish, "$JS.API."+api+stream)
		}
		publish = append(publish, "$JS.API.CONSUMER.CREATE."+stream, "$JS.API.CONSUMER.CREATE."+stream+".own.>", "$JS.API.CONSUMER.DURABLE.CREATE."+stream+".own",
			"$JS.API.CONSUMER.DELETE."+stream+"."+consumerOf("sim"))
		if stream != fileStream {
			publish = append(publish, "$JS.API.DIRECT.GET."+stream, "$JS.API.DIRECT.GET."+stream+".x")
		}
	}
	publish = append(publish,
		"$JS.API.CONSUMER.MSG.NEXT."+jobStream+"."+consumerOf("h200"), "$JS.API.CONSUMER.INFO."+jobStream+"."+consumerOf("h200"),
		"$JS.ACK."+jobStream+"."+consumerOf("h200")+".1.1.1.1.0", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$SYS.REQ.SERVER.PING", "$JS.API.ACCOUNT.PURGE.$G",
	)
	for _, subject := range publish {
		if rest, is := strings.CutPrefix(subject, "$JS.API."); is {
			publish = append(publish, workerAPI+"."+rest)
		}
	}
	for _, subject := range publish {
		if err := conn.Publish(subject, []byte("{}")); err != nil {
			t.Error(subject, err)
		}
	}
	subscribe := []string{">", "attune.results.>", "attune.jobs.>", "attune.cancel.h200", "attune.drain.b", "_INBOX.>", "_INBOX_b.>", "$KV.>", "$JS.>", "$SYS.>"}
	for _, subject := range subscribe {
		if _, err := conn.SubscribeSync(subject); err != nil {
			t.Error(subject, err)
		}
	}
	_ = conn.Flush()
	for i := 0; len(refused()) < len(publish)+len(subscribe) && i < 100; i++ {
		time.Sleep(20 * time.Millisecond)
	}
	all := strings.ToLower(strings.Join(refused(), "\n"))
	for _, subject := range publish {
		if !strings.Contains(all, `publish to "`+strings.ToLower(subject)+`"`) {
			t.Errorf("a worker may publish to %s", subject)
		}
	}
	for _, subject := range subscribe {
		if !strings.Contains(all, `subscription to "`+strings.ToLower(subject)+`"`) {
			t.Errorf("a worker may subscribe to %s", subject)
		}
	}
}

// The server answers a request where the request says. A worker must not publish that way.
func TestWorkerCannotPublishByReply(t *testing.T) {
	k := newKeyed(t)
	creds := k.invite("a", "sim")
	if err := k.open(t.Context(), "sim"); err != nil {
		t.Fatal(err)
	}
	conn, _ := k.connect(creds)
	js, _ := jetStream(conn, creds.API)
	files := workerFiles(js, "a", nil)
	forged := job(t, 1)
	text, _ := json.Marshal(forged)
	address, err := files.Put(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	get := workerAPI + ".DIRECT.GET." + fileStream + "." + fileSubject + address + ".0"
	for _, subject := range []string{subjectOf(&forged), resultSubject + "b." + forged.Key(), "$KV." + keyBucket + ".a", "$JS.API.STREAM.PURGE." + resultStream} {
		_ = conn.PublishRequest(get, subject, nil)
	}
	_ = conn.Flush()
	time.Sleep(300 * time.Millisecond)
	if _, err := k.queue.jobs.GetLastMsgForSubject(t.Context(), subjectOf(&forged)); err == nil {
		t.Error("a worker added a job")
	}
	if _, err := k.queue.results.GetLastMsgForSubject(t.Context(), resultSubject+"b."+forged.Key()); err == nil {
		t.Error("a worker published a result of another one")
	}
	entry, err := k.queue.keys.Get(t.Context(), "a")
	if err != nil || !strings.Contains(string(entry.Value()), `"name":"a"`) {
		t.Error("a worker changed its own invitation", err)
	}
}

// A worker with a key does a job: its account has all that it needs.
func TestKeyedWorkerWorks(t *testing.T) {
	k := newKeyed(t)
	w, stop := k.worker(k.invite("a", "sim"), "sim", double)
	_ = stop
	b := &bench{Coordinator: k.Coordinator, t: t}
	b.all(5)
	if err := k.Drain(t.Context(), "a"); err != nil || !w.drained.Load() {
		t.Error(err)
	}
}

// A key under the name of another worker ends the worker with one clear line.
func TestKeyOfAnotherWorker(t *testing.T) {
	k := newKeyed(t)
	creds := k.invite("a", "sim")
	k.invite("b", "sim")
	creds.Name = "b"
	if !creds.ForWorker() || k.home.Owner().ForWorker() {
		t.Error("the credentials are taken for others")
	}
	_, done := k.worker(creds, "sim", double)
	select {
	case err := <-done:
		if !errors.As(err, new(*RefusedError)) || !strings.HasPrefix(err.Error(), "the key is not that of the worker b, ") {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the worker goes on")
	}
}

// worker starts a worker with credentials.
func (k *keyed) worker(c *Credentials, class string, do Executor) (w *Worker, done <-chan error) {
	k.t.Helper()
	conn, _ := k.connect(c)
	key, err := c.Key()
	if err != nil {
		k.t.Fatal(err)
	}
	w = &Worker{Name: c.Name, Class: class, Key: key, API: c.API, Do: do}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, conn) }()
	k.t.Cleanup(cancel)
	return w, ended
}

// A dismissed worker is cut off, and its results are refused.
func TestDismissedWorker(t *testing.T) {
	k := newKeyed(t)
	creds := k.invite("a", "sim")
	started := make(chan struct{}, 1)
	release := make(chan struct{})
	w, ended := k.worker(creds, "sim", func(context.Context, *Job, Objects, func()) (any, error) {
		started <- struct{}{}
		<-release
		return 99, nil
	})
	b := &bench{Coordinator: k.Coordinator, t: t}
	done := make(chan error, 1)
	go func() { done <- b.do(t.Context(), 4) }()
	<-started
	if err := k.home.Dismiss("a"); err != nil {
		t.Fatal(err)
	}
	for i := 0; w.conn.IsConnected() && i < 200; i++ {
		time.Sleep(20 * time.Millisecond)
	}
	close(release)
	if w.conn.IsConnected() {
		t.Error("the worker is still connected")
	}
	if _, err := Connect(creds.URL, creds, nil); err == nil || !strings.Contains(err.Error(), "does not know this key") {
		t.Error(err)
	}
	r := Result{Protocol: Protocol, Key: strings.Repeat("0", 64), Class: "sim", Worker: "a"}
	_ = r.sign(w.Key)
	if err := k.valid(t.Context(), &r, &Job{Class: "sim"}); err == nil || !strings.Contains(err.Error(), "nobody has invited a") {
		t.Error(err)
	}
	k.worker(k.invite("b", "sim"), "sim", double)
	if err := <-done; err != nil {
		t.Error(err)
	}
	select {
	case err := <-ended:
		if err == nil || !strings.HasPrefix(err.Error(), "the fleet does not know the key of a any more") {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the worker goes on")
	}
}

// An invitation for one class gives no jobs of another one: the worker ends. Results of another one are
// refused.
func TestInvitationOfAClass(t *testing.T) {
	k := newKeyed(t)
	creds := k.invite("a", "h200")
	if err := k.open(t.Context(), "sim"); err != nil {
		t.Fatal(err)
	}
	w, ended := k.worker(creds, "sim", double)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	b := &bench{Coordinator: k.Coordinator, t: t}
	if err := b.do(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Error("a job of another class was done", err)
	}
	select {
	case err := <-ended:
		if !errors.As(err, new(*RefusedError)) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the worker goes on")
	}
	r := Result{Protocol: Protocol, Key: strings.Repeat("0", 64), Class: "sim", Worker: "a"}
	_ = r.sign(w.Key)
	if err := k.valid(t.Context(), &r, &Job{Class: "sim"}); err == nil || err.Error() != "a may work for h200, not for sim" {
		t.Error(err)
	}
}

// The files with private keys are for their owner alone.
func TestModesOfKeys(t *testing.T) {
	k := newKeyed(t)
	creds := k.invite("a", "sim")
	place := filepath.Join(t.TempDir(), "a.toml")
	if err := creds.Write(place); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{place, k.home.OwnerFile(), filepath.Join(k.home.path, "server.key"), filepath.Join(k.home.path, "workers", "a.json")} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if info, err := os.Stat(filepath.Join(k.home.path, "workers")); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	if err := os.Chmod(place, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCredentials(place); err == nil || !strings.Contains(err.Error(), "others can read the private key") {
		t.Error(err)
	}
}

// The server takes TLS 1.3 and keys, and nothing else.
func TestEncryption(t *testing.T) {
	k := newKeyed(t)
	creds := k.invite("a", "sim")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(creds.CA))
	key, _ := creds.Key()
	public, _ := key.PublicKey()
	stranger, _ := nkeys.CreateUser()
	other, _ := stranger.PublicKey()
	current := nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13})
	for what, options := range map[string][]nats.Option{
		"no key":           {current},
		"a stranger's key": {current, nats.Nkey(other, stranger.Sign)},
		"another's key":    {current, nats.Nkey(public, stranger.Sign)},
		"TLS 1.2":          {nats.Secure(&tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS12}), nats.Nkey(public, key.Sign)}, //nolint:gosec // it must be refused
		"no authority":     {nats.Secure(&tls.Config{MinVersion: tls.VersionTLS13}), nats.Nkey(public, key.Sign)},
	} {
		if conn, err := nats.Connect(creds.URL, options...); err == nil {
			conn.Close()
			t.Errorf("%s: connected", what)
		}
	}
	if conn, err := nats.Connect(creds.URL, current, nats.Nkey(public, key.Sign)); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
}

// The owner's file lets a coordinator in over TLS without any flag, and an invitation is good before the
// first start of the server and under a name that its certificate does not have.
func TestCredentialsSuffice(t *testing.T) {
	path := t.TempDir()
	home, err := OpenHome(path)
	if err != nil {
		t.Fatal(err)
	}
	early, err := home.Invite("early", "sim", "")
	if err != nil || early.URL != "" || early.CA == "" {
		t.Fatal(early.URL, early.CA, err)
	}
	h, err := StartHost(t.Context(), path, "0.0.0.0:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	_, port, _ := net.SplitHostPort(h.server.Address())
	for _, address := range h.Addresses() {
		if !strings.HasPrefix(address, "tls://") || !strings.HasSuffix(address, ":"+port) || strings.Contains(address, "[::]") || strings.Contains(address, "0.0.0.0") {
			t.Errorf("nobody reaches %s", address)
		}
	}
	owner, err := ReadCredentials(home.OwnerFile())
	if err != nil || owner.URL != h.Address() {
		t.Fatal(owner.URL, err)
	}
	again, err := OpenHome(path)
	if err != nil {
		t.Fatal(err)
	}
	if late, err := again.Invite("late", "sim", ""); err != nil || late.URL != h.Address() {
		t.Error(late.URL, err)
	}
	for name, c := range map[string]*Credentials{"owner": &owner, "early": &early} {
		for _, host := range []string{"tls://127.0.0.1:", "127.0.0.1:", "tls://127.0.0.2:"} { // the last one is not in the certificate
			conn, err := Connect(host+port, c, nil)
			if err != nil {
				t.Errorf("%s at %s: %v", name, host, err)
				continue
			}
			conn.Close()
		}
	}
}

// Without the owner's file the error names the flag, beside what the certificate lacks.
func TestNoCredentials(t *testing.T) {
	h, err := StartHost(t.Context(), t.TempDir(), "0.0.0.0:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	_, port, _ := net.SplitHostPort(h.server.Address())
	for _, address := range []string{"127.0.0.1:", "tls://127.0.0.1:"} {
		_, err := Connect(address+port, nil, nil)
		refused(t, address, err, "does not trust")
		refused(t, address, err, "--creds names the file of attune fleet invite, or owner.toml")
	}
}

// A server that encrypted and listens on loopback now leaves no certificate in the owner's file.
func TestOwnerOnLoopback(t *testing.T) {
	path := t.TempDir()
	for _, address := range []string{"0.0.0.0:0", "127.0.0.1:0"} {
		h, err := StartHost(t.Context(), path, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		owner, err := ReadCredentials(h.home.OwnerFile())
		if err != nil || owner.URL != h.Address() || (owner.CA == "") != IsLoopback(address) {
			t.Errorf("%s: %s %q %v", address, owner.URL, owner.CA, err)
		}
		conn, err := Connect(owner.URL, &owner, nil)
		switch {
		case err == nil:
			conn.Close()
		case !IsLoopback(address) || !strings.Contains(err.Error(), "takes no keys: leave --creds out"):
			t.Errorf("%s: %v", address, err)
		}
		h.Close()
	}
}
