package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

func TestMain(m *testing.M) {
	if os.Getenv("ATTUNE_FLEET") == "" { // benchmarks of a real fleet have its times
		lease, renewal, outboxEvery, pull, stalled, pingEvery = 400*time.Millisecond, 100*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond, time.Second, 200*time.Millisecond
	}
	os.Exit(m.Run())
}

// bench is a fleet in this process.
type bench struct {
	*Coordinator
	t      testing.TB
	server *Server
	conn   *nats.Conn
	trust  Local
	conns  map[string]*nats.Conn // of workers

	mu    sync.Mutex
	notes []string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	s, err := StartServer(ServerOptions{Folder: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	b := &bench{t: t, server: s, trust: Local{}, conns: map[string]*nats.Conn{}}
	if b.conn, err = s.connect(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.conn.Close)
	b.Coordinator, err = NewCoordinator(t.Context(), b.conn, Store{}, b.trust, b.addNote)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func (b *bench) addNote(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notes = append(b.notes, line)
}

func (b *bench) noted(part string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.notes {
		if strings.Contains(n, part) {
			return true
		}
	}
	return false
}

// worker starts a worker, which ends with the test or with kill.
func (b *bench) worker(name string, do Executor) (w *Worker, kill func()) {
	b.t.Helper()
	w, end := b.workerThatEnds(name, do)
	return w, func() { b.conns[name].Close(); end() }
}

// awaitWorkers waits until some workers are listed.
func (b *bench) awaitWorkers(n int) {
	b.t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if s, err := b.Status(b.t.Context()); err == nil && len(s.Workers) == n {
			return
		}
		if time.Since(began) > 10*time.Second {
			b.t.Fatalf("not %d workers", n)
		}
	}
}

// workerThatEnds starts a worker, which ends with the test or with end, as on Ctrl-C.
func (b *bench) workerThatEnds(name string, do Executor) (w *Worker, end func()) {
	b.t.Helper()
	key, err := nkeys.CreateUser()
	if err != nil {
		b.t.Fatal(err)
	}
	b.trust[name], _ = key.PublicKey()
	conn, err := b.server.connect()
	if err != nil {
		b.t.Fatal(err)
	}
	b.conns[name] = conn
	w = &Worker{Name: name, Class: "sim", Key: key, Do: do, Note: b.addNote}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { _ = w.Run(ctx, conn) })
	end = func() { cancel(); work.Wait(); conn.Close() }
	b.t.Cleanup(end)
	return w, end
}

func double(_ context.Context, j *Job, _ Objects, _ func()) (any, error) {
	var n int
	if err := json.Unmarshal(j.Body, &n); err != nil {
		return nil, err
	}
	return 2 * n, nil
}

func job(t testing.TB, body any) Job {
	t.Helper()
	j, err := NewJob("sim", "double", body, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func (b *bench) do(ctx context.Context, n int) error {
	r, err := b.Do(ctx, job(b.t, n))
	if err != nil {
		return err
	}
	var got int
	if err := r.Decode(&got); err != nil {
		return err
	}
	if got != 2*n {
		return fmt.Errorf("%d gives %d", n, got)
	}
	return nil
}

// all does n jobs, several at a time.
func (b *bench) all(n int) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() {
			if err := b.do(ctx, i); err != nil {
				b.t.Errorf("job %d: %v", i, err)
			}
		})
	}
	work.Wait()
}

func TestJobsAreDone(t *testing.T) {
	b := newBench(t)
	b.worker("a", double)
	b.worker("b", double)
	b.all(50)
}

// A job that was done is not done again, also not for another coordinator.
func TestResultIsKept(t *testing.T) {
	b := newBench(t)
	var runs atomic.Int32
	_, kill := b.worker("a", func(ctx context.Context, j *Job, o Objects, p func()) (any, error) {
		runs.Add(1)
		return double(ctx, j, o, p)
	})
	b.all(3)
	kill()
	b.all(3)
	other, err := NewCoordinator(t.Context(), b.conn, Store{}, b.trust, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Do(t.Context(), job(t, 1)); err != nil || runs.Load() != 3 {
		t.Errorf("%v, %d runs", err, runs.Load())
	}
}

// The job of a worker that is lost goes to another one, and the first result counts.
func TestLostWorker(t *testing.T) {
	b := newBench(t)
	started := make(chan struct{})
	var once sync.Once
	_, kill := b.worker("lost", func(ctx context.Context, _ *Job, _ Objects, _ func()) (any, error) {
		once.Do(func() { close(started) })
		<-ctx.Done()
		return nil, ctx.Err()
	})
	done := make(chan error)
	go func() { done <- b.do(t.Context(), 7) }()
	<-started
	kill()
	b.worker("next", double)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A job on which machines fail is a dead letter, and can be tried again.
func TestDeadLetter(t *testing.T) {
	b := newBench(t)
	var broken atomic.Bool
	broken.Store(true)
	b.worker("a", func(ctx context.Context, j *Job, o Objects, p func()) (any, error) {
		if broken.Load() {
			return nil, &MachineError{errors.New("the GPU is lost")}
		}
		return double(ctx, j, o, p)
	})
	err := b.do(t.Context(), 4)
	first := err
	if lost, ok := errors.AsType[*LostError](err); !ok || lost.Reason != "3 failures of a, the last one: the GPU is lost" {
		t.Fatal(err)
	}
	s, err := b.Status(t.Context())
	if err != nil || len(s.Dead) != 1 || !strings.HasSuffix(first.Error(), "; when the machines are well, attune fleet dead --retry "+s.Dead[0].Key[:12]) || len(s.Workers) != 1 || s.Workers[0].Name != "a" {
		t.Fatalf("%+v, %v", s, err)
	}
	broken.Store(false)
	if again := b.do(t.Context(), 4); again == nil || again.Error() != first.Error() { // until somebody tries it again
		t.Error(again)
	}
	if later, err := b.Status(t.Context()); err != nil || len(later.Dead) != 1 || !later.Dead[0].Time.Equal(s.Dead[0].Time) {
		t.Errorf("the dead letter is not that of the first failure: %+v, %v", later, err)
	}
	if _, err := b.Retry(t.Context(), s.Dead[0].Key[:8]); err != nil {
		t.Fatal(err)
	}
	if err := b.do(t.Context(), 4); err != nil {
		t.Error(err)
	}
	if s, err = b.Status(t.Context()); err != nil || len(s.Dead) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := b.Retry(t.Context(), "0123"); err == nil {
		t.Error("a dead letter that does not exist was tried again")
	}
}

// A machine that fails does not fail three times on a job that a busy one can do. Three machines make a dead
// letter.
func TestFailuresOfDifferentWorkers(t *testing.T) {
	b := newBench(t)
	busy, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	b.worker("busy", func(ctx context.Context, j *Job, o Objects, p func()) (any, error) {
		if string(j.Body) == "1" {
			once.Do(func() { close(busy) })
			for ended := false; !ended; p() {
				select {
				case <-release:
					ended = true
				case <-time.After(100 * time.Millisecond):
				}
			}
		}
		return double(ctx, j, o, p)
	})
	first := make(chan error, 1)
	go func() { first <- b.do(t.Context(), 1) }()
	<-busy
	var failed atomic.Int32
	ill := func(_ context.Context, j *Job, _ Objects, _ func()) (any, error) {
		if string(j.Body) == "2" {
			failed.Add(1)
		}
		return nil, &MachineError{errors.New("its disk is full")}
	}
	b.worker("ill", ill)
	b.awaitWorkers(2)
	second := make(chan error, 1)
	go func() { second <- b.do(t.Context(), 2) }()
	time.Sleep(2 * time.Second) // 20 renewals: three failures take 3
	close(release)
	if err := errors.Join(<-first, <-second); err != nil || failed.Load() != 1 || !b.noted("ill failed on double") {
		t.Errorf("%v, %d failures, %q", err, failed.Load(), b.notes)
	}

	three := newBench(t)
	for _, name := range []string{"a", "b", "c"} {
		three.worker(name, ill)
	}
	three.awaitWorkers(3)
	if err := three.do(t.Context(), 3); err == nil || !strings.HasPrefix(err.Error(), "not measured: 3 workers failed on it (a, b, c), the last one: its disk is full; ") {
		t.Error(err)
	}
}

// Who waits for a class without workers is told.
func TestNobodyWorks(t *testing.T) {
	b := newBench(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() {
		for !b.noted("no worker of the class sim is connected") && pause(ctx, 10*time.Millisecond) {
		}
		b.worker("a", double)
	}()
	if err := b.do(ctx, 1); err != nil {
		t.Error(err, b.notes)
	}
}

// A job that kills every worker ends after three of them.
func TestPoison(t *testing.T) {
	b := newBench(t)
	done := make(chan error)
	go func() { done <- b.do(t.Context(), 4) }()
	for i := range MaxDeliveries {
		started := make(chan struct{})
		_, kill := b.worker(fmt.Sprint("w", i), func(ctx context.Context, _ *Job, _ Objects, _ func()) (any, error) {
			close(started)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		<-started
		kill()
	}
	b.worker("last", double)
	if err := <-done; err == nil || !strings.HasPrefix(err.Error(), "not measured: 3 workers were lost on it; ") {
		t.Error(err)
	}
}

// Workers that are ended one after the other say nothing about their job.
func TestEndedWorkers(t *testing.T) {
	b := newBench(t)
	done := make(chan error)
	go func() { done <- b.do(t.Context(), 4) }()
	for i := range MaxDeliveries + 1 {
		started := make(chan struct{})
		_, end := b.workerThatEnds(fmt.Sprint("w", i), func(ctx context.Context, _ *Job, _ Objects, _ func()) (any, error) {
			close(started)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		<-started
		end()
	}
	b.worker("last", double)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A job is repeated by another worker than the one that has done it, if there is one.
func TestRepeat(t *testing.T) {
	before := giveBack
	giveBack = 5 * time.Millisecond
	t.Cleanup(func() { giveBack = before })
	b := newBench(t)
	b.worker("first", double)
	r, err := b.Do(t.Context(), job(t, 4))
	if err != nil || r.Worker != "first" {
		t.Fatalf("%+v, %v", r, err)
	}
	again := job(t, 4)
	again.Not = "first"
	var lost *LostError
	if r, err := b.Do(t.Context(), again); !errors.As(err, &lost) || !strings.Contains(lost.Reason, "no other worker") {
		t.Errorf("alone: %+v, %v", r, err)
	}
	if s, err := b.Status(t.Context()); err != nil || len(s.Dead) != 0 {
		t.Errorf("dead letters: %+v, %v", s.Dead, err)
	}
	b.worker("second", double)
	again = job(t, 5)
	again.Not = "first"
	if r, err := b.Do(t.Context(), again); err != nil || r.Worker != "second" {
		t.Errorf("%+v, %v", r, err)
	}
	if err := b.valid(t.Context(), &Result{Protocol: Protocol, Class: "sim", Worker: "first"}, &again); err == nil || !strings.Contains(err.Error(), "another worker") {
		t.Errorf("its own repetition: %v", err)
	}
}

// The kernel's failure is a result.
func TestOwnFailure(t *testing.T) {
	b := newBench(t)
	b.worker("a", double)
	r, err := b.Do(t.Context(), job(t, "no number"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Decode(new(int)); err == nil || !strings.Contains(err.Error(), "cannot unmarshal") {
		t.Error(err)
	}
}

// A result with another's signature, of another class, or of an unknown worker is refused.
func TestForgedResult(t *testing.T) {
	b := newBench(t)
	b.worker("honest", func(ctx context.Context, j *Job, o Objects, p func()) (any, error) {
		time.Sleep(300 * time.Millisecond)
		return double(ctx, j, o, p)
	})
	other, _ := nkeys.CreateUser()
	j := job(t, 5)
	forge := func(change func(*Result)) {
		r := Result{Protocol: Protocol, Key: j.Key(), Class: "sim", Worker: "honest", Delivery: 1, Body: json.RawMessage(`{"value":99}`)}
		change(&r)
		_ = r.sign(other)
		data, _ := json.Marshal(r)
		js, _ := jetstream.New(b.conn)
		if _, err := js.Publish(t.Context(), resultSubject+r.Worker+"."+r.Key, data); err != nil {
			t.Error(err)
		}
	}
	time.AfterFunc(50*time.Millisecond, func() {
		forge(func(*Result) {})
		forge(func(r *Result) { r.Class = "h200" })
		forge(func(r *Result) { r.Worker = "stranger" })
	})
	if err := b.do(t.Context(), 5); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"signature", "class h200", "nobody has started stranger"} {
		if !b.noted(want) {
			t.Errorf("no note of %q", want)
		}
	}
}

// What the server has lost is published again.
func TestOutbox(t *testing.T) {
	b := newBench(t)
	done := make(chan error)
	go func() { done <- b.do(t.Context(), 6) }()
	time.Sleep(50 * time.Millisecond)
	for range 3 {
		if err := b.queue.jobs.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.worker("a", double)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A job that nobody waits for any more leaves the queue, and the worker that has it.
func TestCancelled(t *testing.T) {
	b := newBench(t)
	stopped := make(chan error, 1)
	started := make(chan struct{})
	b.worker("a", func(ctx context.Context, _ *Job, _ Objects, _ func()) (any, error) {
		close(started)
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if err := b.do(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case err := <-stopped:
		if !errors.Is(err, errCancelled) {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the worker goes on")
	}
}

// A job without progress is given up by the machine.
func TestStalled(t *testing.T) {
	b := newBench(t)
	b.worker("a", func(ctx context.Context, _ *Job, _ Objects, _ func()) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	err := b.do(t.Context(), 1)
	if err == nil || !strings.Contains(err.Error(), "no progress") {
		t.Error(err)
	}
}

// A drained worker ends after its job.
func TestDrain(t *testing.T) {
	b := newBench(t)
	w, _ := b.worker("a", double)
	b.all(3)
	if err := b.Drain(t.Context(), "a"); err != nil || !w.drained.Load() {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := b.Drain(ctx, "nobody"); err == nil || !strings.Contains(err.Error(), "no worker nobody is connected") {
		t.Error(err)
	}
}

func TestObjects(t *testing.T) {
	b := newBench(t)
	files := b.Objects()
	theirs := workerFiles(b.queue.js, "a", nil)
	for _, text := range []string{"kernel", "", strings.Repeat("x", partBytes), strings.Repeat("x", 2*partBytes+1)} {
		place, err := files.Put(t.Context(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if again, err := files.Put(t.Context(), []byte(text)); err != nil || again != place {
			t.Error(again, err)
		}
		if data, err := theirs.Get(t.Context(), place); err != nil || string(data) != text {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		own, err := theirs.Put(t.Context(), []byte(text))
		if err != nil || own == place {
			t.Error(own, err)
		}
		if data, err := files.Get(t.Context(), own); err != nil || string(data) != text {
			t.Errorf("%d bytes, %v", len(data), err)
		}
	}
	if _, err := files.Get(t.Context(), "a."+strings.Repeat("0", 64)); !errors.As(err, new(*MachineError)) {
		t.Error(err)
	}
	if _, err := files.Get(t.Context(), "a.>"); err == nil {
		t.Error("an address with a wildcard")
	}
}

// A damaged file is one clear error, and the next upload mends it.
func TestDamagedFile(t *testing.T) {
	b := newBench(t)
	text := []byte(strings.Repeat("kernel", 1000))
	place, err := b.Objects().Put(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	for _, damage := range []string{"", "other", strings.Repeat("x", len(text)), strings.Repeat("x", partBytes)} {
		if _, err := b.queue.js.Publish(t.Context(), fileSubject+place+".0", []byte(damage)); err != nil {
			t.Fatal(err)
		}
		if _, err := workerFiles(b.queue.js, "a", nil).Get(t.Context(), place); err == nil || !errors.As(err, new(*MachineError)) {
			t.Error(err)
		}
		if _, err := b.Objects().Put(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		if data, err := workerFiles(b.queue.js, "a", nil).Get(t.Context(), place); err != nil || string(data) != string(text) {
			t.Errorf("%d bytes, %v", len(data), err)
		}
	}
}

// A result under the key of another job neither counts nor hides the other's.
func TestResultUnderAnotherKey(t *testing.T) {
	b := newBench(t)
	w, _ := b.worker("a", double)
	b.all(2)
	r, err := b.Do(t.Context(), job(t, 1))
	if err != nil {
		t.Fatal(err)
	}
	data, _ := json.Marshal(r)
	other := job(t, 7)
	if _, err := w.js.Publish(t.Context(), resultSubject+"a."+other.Key(), data); err != nil {
		t.Fatal(err)
	}
	b.all(8)
}

// A worker whose results are all refused ends a job with one clear error.
func TestRefusedForEver(t *testing.T) {
	b := newBench(t)
	w, _ := b.worker("a", double)
	w.mu.Lock()
	w.Key, _ = nkeys.CreateUser()
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := b.do(ctx, 1)
	if _, lost := errors.AsType[*LostError](err); !lost || !strings.Contains(err.Error(), "a result of a is refused: its signature is not that of the worker") {
		t.Error(err)
	}
}

// A large result is a file. One that the server does not take is one clear error.
func TestLargeResult(t *testing.T) {
	b := newBench(t)
	b.worker("a", func(context.Context, *Job, Objects, func()) (any, error) { return strings.Repeat("x", 2<<20), nil })
	var got string
	if r, err := b.Do(t.Context(), job(t, 2)); err != nil || r.Decode(&got) != nil || len(got) != 2<<20 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	defer func(before int) { largeBody = before }(largeBody)
	largeBody = 4 << 20
	if err := b.do(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "more than the fleet's server takes") {
		t.Error(err)
	}
}

// What a worker says about times changes nothing: its clock may be an hour off.
func TestWrongClock(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		b := newBench(t)
		w, _ := b.worker("a", double)
		w.mu.Lock()
		w.state.Since, w.state.Started, w.state.Busy = time.Now().Add(off), time.Now().Add(off), off.Seconds()
		w.mu.Unlock()
		b.all(3)
		s, err := b.Status(t.Context())
		if err != nil || len(s.Workers) != 1 {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

// Programs of another protocol end with one clear line, and get no jobs.
func TestOtherProtocol(t *testing.T) {
	b := newBench(t)
	stream, err := b.queue.js.Stream(t.Context(), fileStream)
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.Metadata[protocolKey] = "2"
	if _, err := b.queue.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	const want = "the fleet speaks protocol 2, this program 1: use the same version of attune on all machines"
	w := &Worker{Name: "old", Class: "sim", Do: double}
	if err := w.Run(t.Context(), b.conn); err == nil || err.Error() != want {
		t.Error(err)
	}
	if _, err := NewCoordinator(t.Context(), b.conn, Store{}, nil, nil); err == nil || err.Error() != want {
		t.Error(err)
	}
}

// A server whose folder was lost gets its streams again from the coordinator that waits.
func TestLostStreams(t *testing.T) {
	defer func(before time.Duration) { outboxEvery = before }(outboxEvery)
	outboxEvery = time.Second // a loaded machine needs as long to make streams
	b := newBench(t)
	done := make(chan error, 1)
	go func() { done <- b.do(t.Context(), 6) }()
	time.Sleep(50 * time.Millisecond)
	for _, name := range []string{jobStream, resultStream, fileStream} {
		if err := b.queue.js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	b.worker("a", double)
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the job is not done: ", b.notes)
	}
}

// A worker that waits for a job ends at once.
func TestIdleWorkerEnds(t *testing.T) {
	defer func(before time.Duration) { pull = before }(pull)
	pull = time.Minute
	b := newBench(t)
	_, kill := b.worker("a", double)
	b.all(1)
	began := time.Now()
	kill()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
}

// Overhead of a job that takes no time.
func BenchmarkJob(b *testing.B) {
	f := newBench(b)
	f.worker("a", double)
	n := 0
	for b.Loop() {
		n++
		if err := f.do(b.Context(), n); err != nil {
			b.Fatal(err)
		}
	}
}

// Streams of a server keep the limits and replicas that its owner gave them, and one that cannot serve
// is named.
func TestStreamsStayAsTheyAre(t *testing.T) {
	b := newBench(t)
	stream, err := b.queue.js.Stream(t.Context(), resultStream)
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.MaxBytes, config.Description = resultBytes/2, "the owner's"
	if _, err := b.queue.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	q, err := openQueue(t.Context(), b.conn, Store{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := q.results.Info(t.Context())
	if err != nil || info.Config.MaxBytes != resultBytes/2 || info.Config.Description != "the owner's" {
		t.Error(info.Config, err)
	}
	config.Discard = jetstream.DiscardNew
	if _, err := b.queue.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if _, err := openQueue(t.Context(), b.conn, Store{}); err == nil || !strings.Contains(err.Error(), "the stream ATTUNE_RESULTS is not as attune makes it") {
		t.Error(err)
	}
}

// On a server that trusts everybody a worker is invited again when the streams were lost, a second
// worker of its name is refused, and the name is free once the worker is gone.
func TestInviteHere(t *testing.T) {
	b := newBench(t)
	i := Invitation{Name: "a", Public: "key"}
	if err := InviteHere(t.Context(), b.conn, i); err != nil {
		t.Fatal(err)
	}
	if err := b.queue.js.DeleteKeyValue(t.Context(), keyBucket); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if _, err := b.queue.keys.Get(t.Context(), "a"); err == nil {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("the worker is not invited again")
		}
	}
	_, kill := b.worker("a", double)
	b.all(1)
	if err := InviteHere(t.Context(), b.conn, i); err == nil || !strings.Contains(err.Error(), "a worker of the fleet has the name a") {
		t.Error(err)
	}
	kill()
	if err := InviteHere(t.Context(), b.conn, i); err != nil {
		t.Error(err)
	}
}

// A command waits a moment for the workers after the server has started again, and no longer.
func TestStarted(t *testing.T) {
	b := newBench(t)
	if s, err := b.Started(t.Context()); err != nil || len(s.Workers) != 0 {
		t.Error(s, err)
	}
	found := make(chan int, 1)
	go func() {
		s, err := b.Started(t.Context())
		if err != nil {
			s = &Status{}
		}
		found <- len(s.Workers)
	}()
	b.worker("a", double)
	if n := <-found; n != 1 {
		t.Errorf("%d workers", n)
	}
}

// A machine that fails at once does not take the jobs that another one could do.
func TestIllMachine(t *testing.T) {
	b := newBench(t)
	var failed atomic.Int32
	b.worker("ill", func(context.Context, *Job, Objects, func()) (any, error) {
		failed.Add(1)
		return nil, &MachineError{errors.New("its disk is full")}
	})
	for i := range 20 {
		go func() { _ = b.do(t.Context(), 100+i) }()
	}
	time.Sleep(2 * time.Second) // 20 renewals
	if n := failed.Load(); n < 1 || n > 6 {
		t.Errorf("%d failures in 20 renewals", n)
	}
	b.worker("well", double)
	b.all(8)
}
