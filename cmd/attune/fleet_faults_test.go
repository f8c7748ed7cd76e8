//go:build !noserver

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"attune/internal/fleet"
)

var (
	fleetKills = flag.Int("fleet-kills", 20, "kills of TestFleetSurvivesKills")
	fleetSeed  = flag.Uint64("fleet-seed", 1, "seed of TestFleetSurvivesKills")
	fleetLong  = flag.Bool("fleet-long", false, "clocks that are wrong, and faults that take a minute")
	fleetClock = flag.String("fleet-clock", "", "program of an earlier run of TestFleetWrongClocks, whose build takes minutes")
)

// fleetLease is the lease of these tests.
const fleetLease = time.Second

// fleetBench is a fleet of processes that rehearse a recorded search, whose costs are deterministic.
type fleetBench struct {
	t       *testing.T
	dir     string
	address string // of the server
	budget  int
	lease   time.Duration // fleetLease
	pace    float64       // of the search; 0 for the recorded times
	flight  int
	program string         // attune
	clocks  map[string]int // seconds by which the clock of a command is ahead
	keyed   bool           // TLS and keys

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
	b := &fleetBench{t: t, dir: t.TempDir(), address: listener.Addr().String(), budget: budget, flight: 8, lease: fleetLease, program: "attune"}
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
	p := &process{cmd: exec.Command(b.program, args...), out: &lockedText{}, ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = b.dir, p.out, p.out
	p.cmd.Env = append(os.Environ(), "ATTUNE_CACHE="+filepath.Join(b.dir, "cache"), "ATTUNE_LEDGER="+filepath.Join(b.dir, "ledger"), "ATTUNE_FLEET_LEASE="+b.lease.String(),
		fmt.Sprintf("%s=%d", clockVariable, b.clocks[args[0]]))
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
	address := b.address
	if b.keyed {
		address = strings.Replace(address, "127.0.0.1", "0.0.0.0", 1)
	}
	b.server = b.start("serve", "--address", "127.0.0.1:0", "--fleet", address)
	b.says(b.server, "a fleet is at", 30*time.Second)
}

// key is a file that lets a worker in, which is made at first use.
func (b *fleetBench) key(name string) string {
	b.t.Helper()
	file := filepath.Join(b.dir, name+".toml")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	invite := b.start("fleet", "invite", name, "--address", "tls://"+b.address, "-o", file)
	if !invite.wait(30*time.Second) || invite.err != nil {
		b.t.Fatal(invite.out)
	}
	time.Sleep(2 * time.Second) // until the server lets it in
	return file
}

func (b *fleetBench) work(i int, address string) {
	name := fmt.Sprintf("w%d", i)
	args := []string{"worker", "--fleet", address, "--device", "sim", "--name", name}
	if b.keyed {
		args = []string{"worker", "--fleet", "tls://" + address, "--device", "sim", "--creds", b.key(name)}
	}
	b.workers[i] = b.start(args...)
	b.says(b.workers[i], "works for the class sim", 30*time.Second)
}

// search starts or continues the search.
func (b *fleetBench) search() *process {
	args := []string{"tune", "--replay", "cache.json", "--class", "sim", "--journal", "journal"}
	if b.keyed {
		args = append(args, "--fleet", "tls://"+b.address, "--creds", filepath.Join(b.dir, "ledger", "fleet", "owner.toml"))
	} else {
		args = append(args, "--fleet", b.address)
	}
	if b.pace > 0 {
		args = append(args, "--pace", fmt.Sprint(b.pace))
	}
	if _, err := os.Stat(filepath.Join(b.dir, "journal")); err == nil {
		args = append(args, "--resume")
	}
	b.coordinator = b.start(append(args, b.plan()...)...)
	return b.coordinator
}

func (b *fleetBench) plan() []string {
	return []string{"--strategy", "evo", "--budget", fmt.Sprint(b.budget), "--in-flight", fmt.Sprint(b.flight), "--repeat", "1"}
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

// Workers and the coordinator stand still, for less than a lease and for more: then a worker loses its job to
// another one, and its late result changes nothing.
func TestFleetStoppedWorker(t *testing.T) {
	b := newFleetBench(t, 2, 60)
	b.search()
	b.awaitJournal(5)
	for _, length := range []time.Duration{fleetLease / 2, 2 * fleetLease} {
		for i := range b.workers {
			b.workers[i].stop(length)
		}
		b.coordinator.stop(length)
	}
	b.finish()
	b.check()
}

// stop lets a process stand still.
func (p *process) stop(length time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(length)
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
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
	delay    atomic.Int64 // ns, each way
	jitter   atomic.Int64 // ns, added to the delay at random
	rate     atomic.Int64 // bytes a second, each way; 0 for no limit
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

// pass forwards one direction: bytes are on their way for the delay, and leave at the rate.
func (l *link) pass(from, to net.Conn) {
	defer from.Close()
	type chunk struct {
		text []byte
		due  time.Time
	}
	way := make(chan chunk, 256)
	go func() {
		defer to.Close()
		for c := range way {
			time.Sleep(time.Until(c.due))
			if l.frozen.Load() {
				continue // lost on the way; the connection stays open
			}
			if _, err := to.Write(c.text); err != nil {
				_ = from.Close() // which ends the reader
			}
		}
	}()
	defer close(way)
	var last time.Time
	for {
		buffer := make([]byte, 4<<10)
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if rate := l.rate.Load(); rate > 0 {
			time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
		}
		due := time.Now().Add(time.Duration(l.delay.Load() + rand.Int64N(l.jitter.Load()+1)))
		if due.Before(last) {
			due = last
		}
		last = due
		way <- chunk{buffer[:n], due}
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

// A server that accepts connections and says nothing, or nothing after its greeting, gives each command one
// clear line.
func TestFleetDeafServer(t *testing.T) {
	b := newFleetBench(t, 0, 10)
	greeting := "INFO {\"server_id\":\"x\",\"version\":\"2.12.0\",\"max_payload\":1048576}\r\n"
	for name, greets := range map[string]string{"silent": "", "greets": greeting} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = conn.Write([]byte(greets)) // the client may have gone
			}
		}()
		where := []string{"--fleet", listener.Addr().String()}
		var started []*process
		for _, args := range [][]string{
			{"worker", "--device", "sim"}, {"fleet", "status"}, {"fleet", "drain", "w0"}, {"fleet", "dead"}, {"tune", "--replay", "cache.json"},
		} {
			started = append(started, b.start(append(args, where...)...))
		}
		for _, p := range started {
			if !p.wait(30 * time.Second) {
				t.Errorf("%s: %q hangs: %s", name, p.cmd.Args, p.out)
			} else if p.err == nil || strings.Count(p.out.String(), "attune: ") != 1 || !strings.Contains(p.out.String(), "connect to the fleet at") {
				t.Errorf("%s: %q: %v\n%s", name, p.cmd.Args, p.err, p.out)
			}
		}
	}
}

// Over 20 KB/s with 300 ms each way, jobs and files get through, and no lease ends: each evaluation is done
// once.
func TestFleetSlowLink(t *testing.T) {
	b := newFleetBench(t, 1, 4, func(b *fleetBench) { b.lease, b.pace, b.flight = 3*time.Second, 0.01, 2 }) // 2 to 6 s each
	l := newLink(t, b.address)
	l.delay.Store(int64(300 * time.Millisecond))
	l.jitter.Store(int64(100 * time.Millisecond))
	l.rate.Store(20 << 10)
	direct := b.address
	b.address = l.listener.Addr().String()
	b.workers = append(b.workers, nil)
	b.work(1, b.address)
	b.search()
	files := make(chan error, 1)
	go func() { files <- sendFile(b.address, 150<<10) }()
	b.finish()
	b.address = direct
	if err := <-files; err != nil {
		t.Error(err)
	}
	time.Sleep(b.lease) // until the workers have told it
	status := b.start("fleet", "status", "--json", "--fleet", direct)
	var state fleet.Status
	if !status.wait(30*time.Second) || json.Unmarshal([]byte(status.out.String()), &state) != nil || len(state.Workers) != 2 {
		t.Fatalf("%v\n%s", status.err, status.out)
	}
	if done := []int{state.Workers[0].Done, state.Workers[1].Done}; done[0]+done[1] != b.budget || done[1] == 0 {
		t.Errorf("%d evaluations, done %d", b.budget, done)
	}
	for _, p := range []*process{b.coordinator, b.workers[1]} {
		if strings.Contains(p.out.String(), "again") {
			t.Errorf("not quiet: %s", p.out)
		}
	}
}

// sendFile sends a file to a fleet and reads it.
func sendFile(address string, size int) error {
	conn, err := fleet.Connect(address, nil, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	c, err := fleet.NewCoordinator(context.Background(), conn, fleet.Store{}, nil, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	text := make([]byte, size)
	place, err := c.Objects().Put(context.Background(), text)
	if err != nil {
		return err
	}
	got, err := c.Objects().Get(context.Background(), place)
	if err == nil && !bytes.Equal(got, text) {
		err = errors.New("another file came")
	}
	return err
}

// Workers that Ctrl-C ends one after the other on one job make no dead letter.
func TestFleetInterruptedWorkers(t *testing.T) {
	if !*fleetLong {
		t.Skip("takes half a minute; -fleet-long runs it")
	}
	b := newFleetBench(t, 1, 2, func(b *fleetBench) { b.pace, b.flight = 0.01, 1 }) // 2 to 6 s each
	b.search()
	for i := range 4 {
		b.busy(i)
		_ = b.workers[i].cmd.Process.Signal(syscall.SIGINT)
		if !b.workers[i].wait(10 * time.Second) {
			t.Fatalf("Ctrl-C did not end it:\n%s", b.workers[i].out)
		}
		b.workers = append(b.workers, nil)
		b.work(i+1, b.address)
	}
	b.finish()
	if text := b.coordinator.out.String(); strings.Contains(text, "not measured") {
		t.Error(text)
	}
}

// busy waits until a worker has a job.
func (b *fleetBench) busy(i int) {
	b.t.Helper()
	for began := time.Now(); time.Since(began) < 30*time.Second; {
		status := b.start("fleet", "status", "--json", "--fleet", b.address)
		var state fleet.Status
		if status.wait(30*time.Second) && json.Unmarshal([]byte(status.out.String()), &state) == nil {
			for _, w := range state.Workers {
				if w.Name == fmt.Sprintf("w%d", i) && w.Job != "" {
					return
				}
			}
		}
	}
	b.t.Fatalf("worker %d has no job\n%s\n%s", i, b.workers[i].out, b.coordinator.out)
}

// clockVariable is how many seconds the clock of the program that skewedProgram builds is ahead.
const clockVariable = "ATTUNE_TEST_CLOCK"

// skewedProgram builds the program with a clock that a variable sets: package time reads it once. Time that
// only passes is not changed.
func skewedProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skipf("no Go: %v", err)
	}
	place := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	source, err := os.ReadFile(place)
	if err != nil {
		t.Skipf("no sources of package time: %v", err)
	}
	read := "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {\n\t\treturn Time{uint64(nsec), sec + unixToInternal, Local}"
	text := strings.Replace(string(source), read, strings.Replace(read, "\n", "\n\tsec += skew\n", 1), 1)
	text = strings.Replace(text, "import (", "import (\n\t\"syscall\"", 1) + `
var skew = func() int64 {
	text, _ := syscall.Getenv("` + clockVariable + `")
	ahead, _ := ParseDuration(text + "s") // none without a number
	return int64(ahead / Second)
}()
`
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{place: filepath.Join(dir, "time.go")}})
	if err == nil {
		err = errors.Join(os.WriteFile(filepath.Join(dir, "time.go"), []byte(text), 0o600), os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "attune")
	if out, err := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// Clocks that are an hour or a day off change nothing: of a worker, the server or the coordinator, with keys and
// TLS or without.
func TestFleetWrongClocks(t *testing.T) {
	if !*fleetLong {
		t.Skip("builds the standard library, minutes; -fleet-long runs it")
	}
	program := *fleetClock
	if program == "" {
		program = skewedProgram(t)
	}
	for _, command := range []string{"worker", "serve", "tune"} {
		for _, off := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour} {
			for _, keyed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s,%s,keyed=%t", command, off, keyed), func(t *testing.T) {
					b := newFleetBench(t, 2, 20, func(b *fleetBench) {
						b.program, b.keyed, b.clocks = program, keyed, map[string]int{command: int(off.Seconds())}
					})
					b.search()
					b.awaitJournal(5)
					b.server.kill()
					b.serve()
					b.finish()
					b.checkStatus()
					b.check()
				})
			}
		}
	}
}

// checkStatus checks that the status has no age that a wrong clock has made.
func (b *fleetBench) checkStatus() {
	b.t.Helper()
	args := []string{"fleet", "status", "--fleet", b.address}
	if b.keyed {
		args = []string{"fleet", "status", "--fleet", "tls://" + b.address, "--creds", filepath.Join(b.dir, "ledger", "fleet", "owner.toml")}
	}
	status := b.start(args...)
	if !status.wait(30*time.Second) || status.err != nil || !strings.Contains(status.out.String(), "w1") || wrongAge.MatchString(status.out.String()) {
		b.t.Errorf("%v\n%s", status.err, status.out)
	}
}

// wrongAge is an age of an hour, or a negative one.
var wrongAge = regexp.MustCompile(`\d+h|-\d`)
