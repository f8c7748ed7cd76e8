//go:build !noserver

package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var (
	fleetKills = flag.Int("fleet-kills", 20, "kills of TestFleetSurvivesKills")
	fleetSeed  = flag.Uint64("fleet-seed", 1, "seed of TestFleetSurvivesKills")
)

// fleetLease is the lease of these tests.
const fleetLease = time.Second

// fleetBench is a fleet of processes that rehearse a recorded search, whose costs are deterministic.
type fleetBench struct {
	t       *testing.T
	dir     string
	address string // of the server
	budget  int

	server      *process
	workers     []*process
	coordinator *process
}

func newFleetBench(t *testing.T, workers, budget int, prepare ...func(*fleetBench)) *fleetBench {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &fleetBench{t: t, dir: t.TempDir(), address: listener.Addr().String(), budget: budget}
	listener.Close()
	for _, do := range prepare {
		do(b)
	}
	b.writeRecording()
	b.serve()
	for i := range workers {
		b.workers = append(b.workers, nil)
		b.work(i, b.address)
	}
	return b
}

// writeRecording writes a recording of 600 variants that take 20 to 60 ms each.
func (b *fleetBench) writeRecording() {
	var text bytes.Buffer
	text.WriteString(`{"device_name": "a GPU", "kernel_name": "k", "tune_params_keys": ["x", "y"], "tune_params": {"x": [`)
	for i := range 30 {
		fmt.Fprintf(&text, "%s%d", strings.Repeat(",", min(i, 1)), i)
	}
	text.WriteString(`], "y": [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]}, "cache": {`)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 600 {
		x, y := i/20, i%20
		fmt.Fprintf(&text, "%s\"%d,%d\": {\"x\": %d, \"y\": %d, \"time\": %.6f, \"compile_time\": %.1f}\n", strings.Repeat(",", min(i, 1)), x, y, x, y, 1+r.Float64(), 20+40*r.Float64())
	}
	text.WriteString("}}")
	if err := os.WriteFile(filepath.Join(b.dir, "cache.json"), text.Bytes(), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// process is a program in the background.
type process struct {
	cmd   *exec.Cmd
	out   *lockedText
	ended chan struct{}
	err   error
}

// lockedText is output that is read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (b *fleetBench) start(args ...string) *process {
	b.t.Helper()
	p := &process{cmd: exec.Command("attune", args...), out: &lockedText{}, ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = b.dir, p.out, p.out
	p.cmd.Env = append(os.Environ(), "ATTUNE_CACHE="+filepath.Join(b.dir, "cache"), "ATTUNE_LEDGER="+filepath.Join(b.dir, "ledger"), "ATTUNE_FLEET_LEASE="+fleetLease.String())
	if err := p.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.ended) }()
	b.t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// wait waits for the end of a process, and reports whether it came in time.
func (p *process) wait(limit time.Duration) bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(limit):
		return false
	}
}

// says waits until a process has printed a text.
func (b *fleetBench) says(p *process, text string, limit time.Duration) {
	b.t.Helper()
	for began := time.Now(); !strings.Contains(p.out.String(), text); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > limit {
			b.t.Fatalf("no %q within %s in\n%s\nserver:\n%s\nworker:\n%s\n%d results", text, limit, p.out, b.server.out, b.workers[len(b.workers)-1].out, strings.Count(b.journal("journal"), "\n"))
		}
	}
}

func (b *fleetBench) serve() {
	b.t.Helper()
	b.server = b.start("serve", "--address", "127.0.0.1:0", "--fleet", b.address)
	b.says(b.server, "a fleet is at", 30*time.Second)
}

func (b *fleetBench) work(i int, address string) {
	b.workers[i] = b.start("worker", "--fleet", address, "--device", "sim", "--name", fmt.Sprintf("w%d", i))
	b.says(b.workers[i], "works for the class sim", 30*time.Second)
}

// search starts or continues the search.
func (b *fleetBench) search(more ...string) *process {
	args := []string{"tune", "--replay", "cache.json", "--fleet", b.address, "--class", "sim", "--journal", "journal"}
	if _, err := os.Stat(filepath.Join(b.dir, "journal")); err == nil {
		args = append(args, "--resume")
	}
	b.coordinator = b.start(append(append(args, b.plan()...), more...)...)
	return b.coordinator
}

func (b *fleetBench) plan() []string {
	return []string{"--strategy", "evo", "--budget", fmt.Sprint(b.budget), "--in-flight", "8", "--repeat", "1"}
}

func (b *fleetBench) journal(name string) string {
	text, _ := os.ReadFile(filepath.Join(b.dir, name)) // it may not exist yet
	return string(text)
}

// finish waits until the search has ended. It may have stopped with one clear line; then it goes on.
// Without progress for 30 s it hangs.
func (b *fleetBench) finish() {
	b.t.Helper()
	last, changed := "", time.Now()
	for {
		if b.coordinator.wait(100 * time.Millisecond) {
			if b.coordinator.err == nil {
				return
			}
			b.clearLine(b.coordinator)
			b.search()
		}
		if now := b.journal("journal"); now != last {
			last, changed = now, time.Now()
		}
		if time.Since(changed) > 30*time.Second {
			b.t.Fatalf("no progress for 30 s:\n%s\nserver:\n%s\nworker:\n%s", b.coordinator.out, b.server.out, b.workers[len(b.workers)-1].out)
		}
	}
}

// clearLine checks that a search that ended says why.
func (b *fleetBench) clearLine(p *process) {
	b.t.Helper()
	if text := p.out.String(); strings.Contains(text, "panic") || !strings.Contains(text, "attune: ") {
		b.t.Errorf("not a clear line: %v\n%s", p.err, text)
	}
}

// check compares the search with one on this machine alone, and verifies the ledger.
func (b *fleetBench) check() {
	b.t.Helper()
	local := b.start(append([]string{"tune", "--replay", "cache.json", "--workers", "2", "--pace", "1e6", "--journal", "local"}, b.plan()...)...)
	if !local.wait(time.Minute) || local.err != nil {
		b.t.Fatalf("%v\n%s", local.err, local.out)
	}
	if got, want := b.journal("journal"), b.journal("local"); got != want || strings.Count(got, "\n") < b.budget {
		b.t.Errorf("the journals differ:\n%.2000s\nand\n%.2000s", got, want)
	}
	verify := b.start("ledger", "verify")
	if text := verify.out; !verify.wait(time.Minute) || !strings.Contains(text.String(), "0 problems") && !strings.Contains(text.String(), "has no records") {
		b.t.Errorf("%v\n%s", verify.err, text)
	}
}

// Workers, the server and the coordinator are killed at any moment, and the search is that of one machine.
func TestFleetSurvivesKills(t *testing.T) {
	r := rand.New(rand.NewPCG(*fleetSeed, 7))
	b := newFleetBench(t, 3, min(600, 8**fleetKills))
	b.search()
	killed := map[string]int{}
	for n := 0; n < *fleetKills; n++ {
		time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
		if b.coordinator.wait(0) && b.coordinator.err == nil { // the search is done: another one
			b.check()
			_, _ = os.Remove(filepath.Join(b.dir, "journal")), os.Remove(filepath.Join(b.dir, "local"))
			b.search()
		}
		switch what := r.IntN(5); {
		case what < 3:
			killed["worker"]++
			b.workers[what].kill()
			b.work(what, b.address)
		case what == 3:
			killed["server"]++
			b.server.kill()
			b.serve()
		default:
			killed["coordinator"]++
			b.coordinator.kill()
			b.search()
		}
	}
	b.finish()
	b.check()
	t.Logf("killed: %v", killed)
}

// A worker that stands still for longer than its lease loses its job to another one.
func TestFleetStoppedWorker(t *testing.T) {
	b := newFleetBench(t, 2, 60)
	b.search()
	b.awaitJournal(5)
	for i := range b.workers {
		_ = b.workers[i].cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(2 * fleetLease)
		_ = b.workers[i].cmd.Process.Signal(syscall.SIGCONT)
	}
	b.finish()
	b.check()
}

// awaitJournal waits for some results.
func (b *fleetBench) awaitJournal(lines int) {
	b.t.Helper()
	for began := time.Now(); strings.Count(b.journal("journal"), "\n") < lines; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			b.t.Fatalf("no %d results:\n%s", lines, b.coordinator.out)
		}
	}
}

// Without its server a search says so and keeps trying. Ctrl-C ends it and the workers at once.
func TestFleetServerStaysAway(t *testing.T) {
	b := newFleetBench(t, 2, 400)
	b.search()
	b.awaitJournal(5)
	b.server.kill()
	b.says(b.coordinator, "the connection to the fleet was lost", 10*time.Second)
	time.Sleep(time.Second)
	if b.coordinator.wait(0) {
		t.Fatalf("the search ended:\n%s", b.coordinator.out)
	}
	for _, p := range []*process{b.coordinator, b.workers[0]} {
		_ = p.cmd.Process.Signal(syscall.SIGINT)
		if !p.wait(5 * time.Second) {
			t.Errorf("Ctrl-C did not end it:\n%s", p.out)
		}
	}
	b.budget = 30
	b.clearLine(b.coordinator)
	os.Remove(filepath.Join(b.dir, "journal"))
	b.serve()
	b.search()
	b.finish() // with the other worker, which is connected again
	b.check()
}

// link is a connection that can be slow, cut, or half open.
type link struct {
	listener net.Listener
	to       string
	delay    atomic.Int64
	frozen   atomic.Bool

	mu    sync.Mutex
	conns []net.Conn
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, to: to}
	t.Cleanup(func() { listener.Close(); l.cut() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", l.to)
			if err != nil {
				conn.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, conn, far)
			l.mu.Unlock()
			go l.pass(conn, far)
			go l.pass(far, conn)
		}
	}()
	return l
}

func (l *link) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		time.Sleep(time.Duration(l.delay.Load()))
		if l.frozen.Load() {
			continue // what is lost on the way; the connection stays open
		}
		if _, failed := to.Write(buffer[:n]); failed != nil || err != nil {
			return
		}
	}
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close() // it may be closed
	}
	l.conns = nil
}

// A worker behind a slow, a cut and a half-open link, then the coordinator behind it.
func TestFleetBadLinks(t *testing.T) {
	b := newFleetBench(t, 1, 120)
	l := newLink(t, b.address)
	b.workers = append(b.workers, nil)
	b.work(1, l.listener.Addr().String())
	b.search()
	b.awaitJournal(5)
	l.delay.Store(int64(100 * time.Millisecond))
	time.Sleep(time.Second)
	l.delay.Store(0)
	l.cut()
	b.awaitJournal(20)
	l.frozen.Store(true)
	b.awaitJournal(40) // the other worker goes on
	l.frozen.Store(false)
	l.cut()
	b.coordinator.kill()
	direct := b.address
	b.address = l.listener.Addr().String()
	b.search()
	b.address = direct
	b.awaitJournal(60)
	l.frozen.Store(true)
	b.says(b.coordinator, "the fleet's server", 30*time.Second)
	l.frozen.Store(false)
	l.cut()
	b.finish()
	b.check()
}

// A full disk of the server stops the search with a clear line, and free space lets it go on.
func TestFleetFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	b := newFleetBench(t, 1, 120, func(b *fleetBench) {
		place := filepath.Join(b.dir, "ledger")
		if err := os.MkdirAll(place, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("none", place, "tmpfs", 0, "size=8m"); err != nil {
			t.Skipf("no small disk: %v", err)
		}
		t.Cleanup(func() { _ = syscall.Unmount(place, syscall.MNT_DETACH) })
	})
	b.search()
	b.awaitJournal(10)
	ballast := filepath.Join(b.dir, "ledger", "ballast")
	if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); err == nil {
		t.Fatal("the disk has more space than expected")
	}
	b.says(b.coordinator, "trying again", 30*time.Second)
	b.says(b.server, "free some space", 30*time.Second)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	b.finish()
	b.check()
}
