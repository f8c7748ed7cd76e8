package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"attune/internal/web"
)

// lockedBuffer is written by a server and read by its test.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(text)
}

func (b *lockedBuffer) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.text.Bytes())
}

// TestServe starts a server on a free port, reads it, and ends it as Ctrl-C does.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr lockedBuffer
	a := newApp(&stdout, &stderr)
	ended := make(chan int, 1)
	go func() {
		ended <- a.execute(ctx, a.rootCommand(), []string{"serve", "--json", "--address", "127.0.0.1:0", "--ledger", root + "/results"})
	}()
	var announced struct{ URL, Token string }
	for end := time.Now().Add(10 * time.Second); json.Unmarshal(stdout.Bytes(), &announced) != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no address: %s%s", stdout.Bytes(), stderr.Bytes())
		}
	}
	if !strings.HasPrefix(announced.URL, "http://127.0.0.1:") || len(announced.Token) != 32 {
		t.Errorf("announced %+v", announced)
	}
	compareWithCommands(t, announced.URL)
	page, err := http.Get(announced.URL + "kernel?variant=stage2")
	if err != nil || page.StatusCode != http.StatusOK {
		t.Errorf("the page of the kernel: %v, %v", page, err)
	}
	cancel()
	select {
	case code := <-ended:
		if code != exitOK {
			t.Errorf("exit code %d: %s", code, stderr.Bytes())
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the server does not end")
	}
}

// compareWithCommands compares the documents of the API with those that commands print.
func compareWithCommands(t *testing.T, address string) {
	t.Helper()
	const a, b = "20261116-160615-stage2-448d06", "20261116-160644-stage3b-64f3ef"
	for path, command := range map[string][]string{
		"api/runs":                                   {"history"},
		"api/runs?verdict=merge&limit=3":             {"history", "--verdict", "merge", "--limit", "3"},
		"api/runs?stage=stage7b&limit=1":             {"history", "--stage", "stage7b", "--limit", "1"},
		"api/ladder":                                 {"history", "--ladder"},
		"api/champions":                              {"list", "champions"},
		"api/runs/" + a:                              {"show", a},
		"api/benches/20261116-221937-bench-6be430":   {"show", "20261116-221937-bench-6be430"},
		"api/tunings/20261117-075034-rmsnorm-64bd56": {"show", "20261117-075034-rmsnorm-64bd56"},
		"api/compare?a=" + a + "&b=" + b:             {"compare", a, b},
	} {
		want, errs, code := printed(append(command, "--json", "--ledger", root+"/results")...)
		if code != exitOK {
			t.Fatalf("%q: %s", command, errs)
		}
		response, err := http.Get(address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || string(body) != want {
			t.Errorf("%s does not return what %q prints: %v, %d and %d bytes", path, command, err, len(body), len(want))
		}
	}
}

// TestAnnounce prints what a user needs to open the page, and no token that the user has given.
func TestAnnounce(t *testing.T) {
	const url, secret = "http://localhost:8180/", "0123456789abcdef"
	for want, n := range map[string]announcement{
		"to start runs from the page, open " + url + "?token=" + secret + "\n":                                 {[]string{url}, secret, "", false, ""},
		"to start runs from the page, open " + url + "?token=TOKEN with the token of --token\n":                {[]string{url}, secret, "--token", false, ""},
		"from other machines, http://10.0.0.2:8180/\nattune: every page needs the token of ATTUNE_TOKEN: open": {[]string{url, "http://10.0.0.2:8180/"}, secret, tokenVariable, true, ""},
	} {
		var errs bytes.Buffer
		a := newApp(io.Discard, &errs)
		if err := a.announce(n); err != nil || !strings.Contains(errs.String(), want) || !strings.Contains(errs.String(), "is at "+url+"\n") {
			t.Errorf("%v: %q, want %q", err, errs.String(), want)
		}
		if n.source != "" && strings.Contains(errs.String(), secret) {
			t.Errorf("a token that was given is printed: %s", errs.String())
		}
	}
	t.Setenv(tokenVariable, "")
	if got := tokenSource(""); got != "" {
		t.Errorf("a random token is from %q", got)
	}
	t.Setenv(tokenVariable, secret)
	o := serveOptions{address: "127.0.0.1:0"}
	if err := o.check(); err != nil || o.token != secret || os.Getenv(tokenVariable) != "" { // children must not get it
		t.Errorf("%+v, %v, %q", o, err, os.Getenv(tokenVariable))
	}
	t.Setenv(tokenVariable, secret)
	if a, b := tokenSource(""), tokenSource(secret); a != tokenVariable || b != "--token" {
		t.Errorf("tokens are from %q and %q", a, b)
	}
}

// TestCalledName calls a server by the name that the user gave, or by that of the machine.
func TestCalledName(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	for address, want := range map[string]string{
		"127.0.0.1:0": "127.0.0.1", "lab.example:80": "lab.example", ":80": machine, "0.0.0.0:80": machine, "[::]:80": machine,
	} {
		if got := calledName(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

// TestServeRefuses starts no server.
func TestServeRefuses(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--address", "8180"}, exitUsage, "want host:port"},
		{[]string{"--address", "0.0.0.0:0"}, exitUsage, "other machines"},
		{[]string{"--address", ":0"}, exitUsage, "other machines"},
		{[]string{"--token", "short"}, exitUsage, "want at least 16"},
		{[]string{"--address", "127.0.0.1:99999"}, exitFailure, "invalid port"},
		{[]string{"--address", listener.Addr().String()}, exitFailure, "127.0.0.1:0 takes a free port"},
		{[]string{"--ledger", dir + "/none"}, exitUsage, "there is no ledger"},
		{[]string{"stage2"}, exitUsage, "stage2"},
	} {
		_, errs, code := printed(append([]string{"serve", "--ledger", dir}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("serve %q: exit code %d, want %d with %q: %s", c.args, code, c.code, c.want, errs)
		}
	}
}

// TestStartedRun checks requests as command lines are checked.
func TestStartedRun(t *testing.T) {
	a := newApp(io.Discard, io.Discard)
	a.ledgerDir, a.kernelDir = "some ledger", root+"/kernels"
	command, err := a.startedRun(web.StartRequest{Variants: []string{"stage2", "stage7"}, Device: "sim", Shapes: "1x2x33x64", Seeds: "1,2", Against: "stage1", Quick: true})
	want := []string{
		"run", "--json", "--progress", "--ledger=some ledger", "--device=sim", "--kernel=" + a.kernelDir, "--shapes=1x2x33x64", "--seeds=1,2", "--against=stage1",
		"--quick", "--", "stage2", "stage7",
	}
	if err != nil || !slices.Equal(command[1:], want) {
		t.Errorf("%v: %q, want %q", err, command, want)
	}
	for text, r := range map[string]web.StartRequest{
		"0 variants":     {},
		"33 variants":    {Variants: make([]string, 33)},
		"there are auto": {Variants: []string{"stage2"}, Device: "sim --ledger=/"},
		"--help":         {Variants: []string{"--help"}},
		"stage99":        {Variants: []string{"stage99"}},
		"TILE_N=7":       {Variants: []string{"stage2+TILE_N=7"}},
		"shape":          {Variants: []string{"stage2"}, Shapes: "--nonsense"},
		"seed":           {Variants: []string{"stage2"}, Seeds: "x"},
		"--against":      {Variants: []string{"stage2"}, Against: "stage99"},
	} {
		if command, err := a.startedRun(r); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %q, error %v, want %q", r, command, err, text)
		}
	}
}
