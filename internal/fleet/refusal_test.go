package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/device"
)

// Equal devices are of one class, others of another one, and every class is a name.
func TestClasses(t *testing.T) {
	h200 := device.Facts{Kind: "cuda", Name: "NVIDIA H200", Arch: "sm_90", Multiprocessors: 132, MemoryBytes: 141 << 30, Driver: "13.0"}
	class := ClassOf(h200, "")
	if !strings.HasPrefix(class, "h200-") || ClassOf(h200, "") != class || CheckName("class", class) != nil {
		t.Error(class)
	}
	older, long := h200, h200
	older.Driver = "12.4"
	long.Name = "NVIDIA " + strings.Repeat("A card ", 20)
	if ClassOf(older, "") == class || ClassOf(h200, "1410") == class || CheckName("class", ClassOf(long, "")) != nil {
		t.Errorf("%s, %s, %s", ClassOf(older, ""), ClassOf(h200, "1410"), ClassOf(long, ""))
	}
	if got := ClassOf(device.Facts{Kind: "sim", Name: "PTX simulator", Multiprocessors: 7}, ""); got != "sim" {
		t.Error(got)
	}
}

// refused checks that an error says what is wrong.
func refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want %q", what, err, want)
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRefusedCredentials(t *testing.T) {
	folder := t.TempDir()
	c, _, err := NewCredentials("a", "sim")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "a.toml")
	if err := c.Write(file); err != nil {
		t.Fatal(err)
	}
	refused(t, "twice", c.Write(file), "exists")
	if read, err := ReadCredentials(file); err != nil || read != c {
		t.Errorf("%+v, %v", read, err)
	}
	for name, test := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"open":    {"", 0o644, "others can read the private key"},
		"no toml": {"=", 0o600, "credentials"},
		"unknown": {"sed = \"x\"\n", 0o600, "unknown key sed"},
		"no key":  {"seed = \"SU\"\n", 0o600, "the seed is no key"},
		"no name": {"name = \"a b\"\nseed = \"" + c.Seed + "\"\n", 0o600, "the name \"a b\""},
	} {
		_, err := ReadCredentials(write(t, filepath.Join(folder, name), test.text, test.mode))
		refused(t, name, err, test.want)
	}
	c.CA = "no certificate"
	_, err = Connect("127.0.0.1:1", &c, nil)
	refused(t, "a damaged certificate", err, "no valid certificate")
	c.Seed = "SU"
	_, err = Connect("127.0.0.1:1", &c, nil)
	refused(t, "a damaged key", err, "")
	_, err = Connect("127.0.0.1:1", nil, nil)
	refused(t, "no server", err, "is the server started?")
	_, err = Connect("tls://", nil, nil)
	refused(t, "no address", err, "is no address of a fleet")
}

func TestRefusedInvitations(t *testing.T) {
	folder := t.TempDir()
	home, err := OpenHome(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := home.Invite("a", "sim", ""); err != nil {
		t.Fatal(err)
	}
	invite := func(name, class string) error {
		_, err := home.Invite(name, class, "")
		return err
	}
	refused(t, "twice", invite("a", ""), "a is invited already")
	refused(t, "the owner", invite(Owner, ""), "the name of the coordinator")
	refused(t, "a path", invite("../a", ""), `the worker "../a"`)
	refused(t, "a class", invite("b", "h 200"), `the class "h 200"`)
	refused(t, "a stranger", home.Dismiss("b"), "b is not invited")
	refused(t, "no name", home.Dismiss("../owner"), "letters, digits")
	if err := home.Dismiss("a"); err != nil {
		t.Error(err)
	}
	write(t, filepath.Join(folder, "workers", "c.json"), "{}", 0o600)
	_, err = home.Invitations()
	refused(t, "a forged invitation", err, "is no invitation; remove it")
	_, err = StartHost(t.Context(), folder, "127.0.0.1:0", nil)
	refused(t, "a host of it", err, "is no invitation; remove it")
	file := write(t, filepath.Join(folder, "file"), "", 0o600)
	_, err = OpenHome(file)
	refused(t, "a file", err, "not a directory")
	_, err = StartHost(t.Context(), file, "127.0.0.1:0", nil)
	refused(t, "a host in a file", err, "not a directory")
	write(t, filepath.Join(folder, "server.pem"), "no certificate", 0o600)
	write(t, filepath.Join(folder, "server.key"), "no key", 0o600)
	var none *tls.Config
	if none, err = home.TLS(HostNames()); none != nil {
		t.Error("a damaged certificate was taken")
	}
	refused(t, "a damaged certificate", err, "the fleet's certificate")
}

// A second server on the same streams or the same address ends at once, and says why.
func TestSecondServer(t *testing.T) {
	path := t.TempDir()
	first, err := StartHost(t.Context(), path, "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = StartHost(t.Context(), path, "127.0.0.1:0", nil)
	refused(t, "the same folder", err, "a fleet's server runs on "+path+" already")
	other := t.TempDir()
	_, err = StartHost(t.Context(), other, first.Address(), nil)
	refused(t, "the same address", err, "address already in use")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("refused after %s", took)
	}
	first.Close()
	for _, folder := range []string{path, other} { // neither keeps its lock
		h, err := StartHost(t.Context(), folder, "127.0.0.1:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		h.Close()
	}
}

func TestRefusedAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"nowhere": "is not host:port", "127.0.0.1:no-such-port": "the address \"127.0.0.1:no-such-port\"",
	} {
		_, err := StartServer(ServerOptions{Folder: t.TempDir(), Address: address})
		refused(t, address, err, want)
	}
	for _, address := range []string{"0.0.0.0:4222", "tls://[::]:4222"} {
		_, err := Connect(address, nil, nil)
		refused(t, address, err, "is reached at an address of its machine")
	}
	if IsLoopback("nowhere") || IsLoopback("0.0.0.0:1") || !IsLoopback("localhost:1") || !IsLoopback("[::1]:4222") {
		t.Error("loopback is taken for another network")
	}
}

// What a job or a coordinator of nonsense brings is an error, and never a wait.
func TestRefusedJobs(t *testing.T) {
	b := newBench(t)
	for _, j := range []Job{{Class: "a.b", Kind: "x"}, {Class: "sim", Kind: ">"}} {
		_, err := b.Do(t.Context(), j)
		refused(t, j.Class+" "+j.Kind, err, "letters, digits, - and _ are allowed")
	}
	if _, err := NewJob("sim", "x", make(chan int), time.Second); err == nil {
		t.Error("a channel was encoded")
	}
	huge, err := NewJob("sim", "x", strings.Repeat("x", 2<<20), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = b.Do(ctx, huge)
	refused(t, "a job of 2 MB", err, "more than the server takes")
	_, err = b.trust.Key(t.Context(), "nobody", "sim")
	refused(t, "a stranger", err, "nobody has started nobody")
	if lost := (&MachineError{os.ErrPermission}); !errors.Is(lost, os.ErrPermission) || lost.Error() != os.ErrPermission.Error() {
		t.Error(lost)
	}
	if err := (&Result{Body: []byte("{")}).Decode(new(int)); err == nil {
		t.Error("half a result was decoded")
	}
}

// Without its server a coordinator says so, and nothing waits for long.
func TestGoneServer(t *testing.T) {
	b := newBench(t)
	b.worker("a", double)
	b.all(1)
	b.conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for what, do := range map[string]func() error{
		"status":  func() error { _, err := b.Status(ctx); return err },
		"started": func() error { _, err := b.Started(ctx); return err },
		"retry":   func() error { _, err := b.Retry(ctx, "0"); return err },
		"drain":   func() error { return b.Drain(ctx, "a") },
		"invite":  func() error { return InviteHere(ctx, b.conn, Invitation{Name: "x"}) },
		"new":     func() error { _, err := NewCoordinator(ctx, b.conn, Store{}, nil, nil); return err },
		"get":     func() error { _, err := b.Objects().Get(ctx, strings.Repeat("0", 64)); return err },
		"put":     func() error { _, err := b.Objects().Put(ctx, []byte("x")); return err },
		"class":   func() error { return b.open(ctx, "another") },
		"worker":  func() error { return (&Worker{Name: "w", Class: "sim"}).Run(ctx, b.conn) },
		"dead":    func() error { return b.noteDead(ctx, &Job{Class: "sim", Kind: "x"}, "why") },
	} {
		if err := do(); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// A host names its address as a worker needs it, and says whether workers need keys.
func TestHostAddress(t *testing.T) {
	for address, keyed := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true} {
		h, err := StartHost(t.Context(), t.TempDir(), address, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.Address(); strings.HasPrefix(got, "tls://") != keyed || h.Keyed() != keyed {
			t.Errorf("%s: %s, keyed %t", address, got, h.Keyed())
		}
		h.Close()
	}
}
