//go:build !noserver

package fleet

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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
	k.refresh(k.t.Context(), func(line string) { k.t.Log(line) })
	return &c
}

// connect is a connection of a worker. refused lists what the server denied.
func (k *keyed) connect(c *Credentials) (conn *nats.Conn, refused func() []string) {
	k.t.Helper()
	var mu sync.Mutex
	var denied []string
	conn, err := Connect(c.URL, c, func(line string) {
		mu.Lock()
		defer mu.Unlock()
		denied = append(denied, line)
	})
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
	js, _ := jetstream.New(conn)
	files := workerFiles(js, "a")
	forged := job(t, 1)
	text, _ := json.Marshal(forged)
	address, err := files.Put(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	get := "$JS.API.DIRECT.GET." + fileStream + "." + fileSubject + address + ".0"
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

// worker starts a worker with credentials.
func (k *keyed) worker(c *Credentials, class string, do Executor) (w *Worker, done <-chan error) {
	k.t.Helper()
	conn, _ := k.connect(c)
	key, err := c.Key()
	if err != nil {
		k.t.Fatal(err)
	}
	w = &Worker{Name: c.Name, Class: class, Key: key, Do: do}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, conn) }()
	k.t.Cleanup(cancel)
	return w, ended
}
