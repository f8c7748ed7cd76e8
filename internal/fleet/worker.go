package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"attune/internal/device"
)

// Executor does a job. It calls progress whenever the work has come further: a job without progress
// is given up. An error that is not a MachineError is the job's own, and its result.
type Executor func(ctx context.Context, j *Job, objects Objects, progress func()) (body any, err error)

// Worker does the jobs of one class, one at a time.
type Worker struct {
	Name   string
	Class  string
	Device string // in words, for those who look
	Facts  device.Facts
	Key    nkeys.KeyPair
	Do     Executor
	Idle   time.Duration // without a job, after which it ends; 0 for never
	API    string        // prefix of JetStream, of the credentials; empty for the usual one
	Note   func(string)  // a line for the person who started it; may be nil
	Ready  func()        // called when the fleet lets it take jobs; may be nil

	conn  *nats.Conn
	js    jetstream.JetStream
	since time.Time
	began time.Time // of the job at hand
	last  *Result   // that the server has

	failures int // of this machine, one after the other
	noted    int // of them

	mu      sync.Mutex
	current string // key of the job at hand
	cancel  context.CancelCauseFunc
	state   WorkerState
	drained atomic.Bool
}

// WorkerState is what a worker tells about itself.
type WorkerState struct {
	Protocol int          `json:"protocol"`
	Name     string       `json:"name"`
	Class    string       `json:"class"`
	Device   string       `json:"device"`
	Facts    device.Facts `json:"facts"`
	Host     string       `json:"host,omitempty"`
	Cores    int          `json:"cores,omitempty"`
	Since    time.Time    `json:"since"`
	Job      string       `json:"job,omitempty"` // kind and key of the one at hand
	Started  time.Time    `json:"started,omitzero"`
	Done     int          `json:"done"`
	Failed   int          `json:"failed"` // by this machine
	Busy     float64      `json:"busy_s"`
	Up       float64      `json:"up_s"` // since it began, and since the job at hand did: its clock may be wrong
	Running  float64      `json:"running_s"`
	Problem  string       `json:"problem,omitempty"` // of this machine, the last one
	Draining bool         `json:"draining,omitempty"`
}

// stalled is how long a job may show no progress.
var stalled = 2 * time.Minute

var (
	errCancelled = errors.New("nobody waits for it")
	errStalled   = errors.New("no progress")
	errLimit     = errors.New("its time limit")
)

// Run takes jobs until ctx ends, the worker is drained, or it was idle for long. The job at hand is
// given back when ctx ends.
func (w *Worker) Run(ctx context.Context, conn *nats.Conn) error {
	js, err := jetStream(conn, w.API)
	if err != nil {
		return err
	}
	w.conn, w.js, w.since = conn, js, time.Now()
	w.state = WorkerState{Protocol: Protocol, Name: w.Name, Class: w.Class, Device: w.Device, Facts: w.Facts, Cores: runtime.NumCPU(), Since: w.since.UTC()}
	w.state.Host, _ = os.Hostname() // without it the worker counts as a machine of its own
	stop, err := w.listen()
	if err != nil {
		return err
	}
	defer stop()
	if err := checkProtocol(ctx, js); errors.As(err, new(*ProtocolError)) {
		return err
	}
	if w.Ready != nil {
		w.Ready()
	}
	alive, cancel := context.WithCancel(ctx)
	var beat sync.WaitGroup
	beat.Go(func() { w.beat(alive) })
	defer func() { cancel(); beat.Wait(); w.leave() }()
	return w.take(ctx)
}

// jetStream is JetStream with a prefix, which may be empty.
func jetStream(conn *nats.Conn, prefix string) (jetstream.JetStream, error) {
	if prefix != "" {
		return jetstream.NewWithAPIPrefix(conn, prefix)
	}
	return jetstream.New(conn)
}

// listen hears which job is cancelled, and when to end.
func (w *Worker) listen() (stop func(), err error) {
	cancels, err := w.conn.Subscribe(cancelSubject+w.Class, func(m *nats.Msg) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.cancel != nil && w.current == string(m.Data) {
			w.cancel(errCancelled)
		}
	})
	if err != nil {
		return nil, err
	}
	drains, err := w.conn.Subscribe(drainSubject+w.Name, func(m *nats.Msg) {
		w.drained.Store(true)
		_ = m.Respond(nil) // who asked may be gone
	})
	if err != nil {
		return nil, err
	}
	if err := w.conn.FlushTimeout(connectLimit); err == nil && errors.Is(w.conn.LastError(), nats.ErrPermissionViolation) {
		return nil, &RefusedError{w.Name, w.conn.LastError()}
	}
	return func() { _, _ = cancels.Unsubscribe(), drains.Unsubscribe() }, nil
}

// RefusedError is a worker whose key does not allow what a worker of its name does.
type RefusedError struct {
	Worker string
	Err    error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the key is not that of the worker %s, or of another class (%v); attune fleet invite makes a new one", e.Worker, e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// pull is how long a worker waits for a job before it looks whether it should end.
var pull = 5 * time.Second

// take takes one job after the other.
func (w *Worker) take(ctx context.Context) error {
	idle := time.Now()
	for w.goesOn(ctx, idle) {
		if w.conn.IsClosed() { // the client tries again after any other error
			return fmt.Errorf("the fleet does not know the key of %s any more (%w)", w.Name, w.conn.LastError())
		}
		if err := checkProtocol(ctx, w.js); errors.As(err, new(*ProtocolError)) {
			return err
		}
		consumer, err := w.js.Consumer(ctx, jobStream, consumerOf(w.Class))
		if err != nil { // the class has no queue yet, or the server is away
			pause(ctx, renewal/5)
			continue
		}
		for w.goesOn(ctx, idle) {
			m, err := w.next(ctx, consumer)
			if err != nil {
				pause(ctx, renewal/5)
				break
			}
			if m == nil {
				continue
			}
			w.handle(ctx, m)
			w.rest(ctx)
			idle = time.Now()
		}
	}
	return ctx.Err()
}

// rest waits after failures of this machine, twice as long after each: one that fails at once would take
// every job three times before others are free for it.
func (w *Worker) rest(ctx context.Context) {
	noted := w.noted
	if w.noted = w.failures; w.failures == 0 {
		return
	}
	wait := min(renewal<<min(w.failures-1, 4), 12*renewal)
	if w.failures != noted { // it may have given a job back
		w.note(fmt.Sprintf("failures of this machine: %d; no job for %s", w.failures, wait))
	}
	for began := time.Now(); time.Since(began) < wait && !w.drained.Load() && pause(ctx, renewal/5); {
	}
}

// goesOn is false when the worker ends. idle is when it had its last job.
func (w *Worker) goesOn(ctx context.Context, idle time.Time) bool {
	return ctx.Err() == nil && !w.drained.Load() && (w.Idle == 0 || time.Since(idle) < w.Idle)
}

// patient is a context whose deadline comes before its end. By the deadline the client tells the server how
// long to wait, and waits a second longer itself: a job that is on a slow way by then would else be lost
// until its lease ends.
type patient struct {
	context.Context
	deadline time.Time
}

func (p patient) Deadline() (time.Time, bool) { return p.deadline, true }

// next waits for a job; nil if there is none.
func (w *Worker) next(ctx context.Context, consumer jetstream.Consumer) (jetstream.Msg, error) {
	limited, cancel := context.WithTimeout(ctx, pull+time.Second)
	defer cancel()
	m, err := consumer.Next(jetstream.FetchContext(patient{limited, time.Now().Add(pull)}))
	if errors.Is(err, nats.ErrTimeout) || errors.Is(err, jetstream.ErrNoMessages) || errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return m, err
}

// handle does the job of a message and publishes its result.
func (w *Worker) handle(ctx context.Context, m jetstream.Msg) {
	var j Job
	meta, err := m.Metadata()
	if err == nil {
		err = json.Unmarshal(m.Data(), &j)
	}
	if err == nil {
		err = j.check()
	}
	if err != nil {
		_ = m.TermWithReason("not a job") // the server keeps it otherwise
		return
	}
	result := Result{Protocol: Protocol, Key: j.Key(), Class: w.Class, Worker: w.Name, Delivery: meta.NumDelivered}
	switch {
	case w.last != nil && w.last.Key == result.Key && w.last.Lost == "":
		result = *w.last
	case meta.NumDelivered > j.deliveries():
		result.Lost = fmt.Sprintf("%d workers were lost on it", MaxDeliveries)
		if j.Not != "" {
			result.Lost = "no other worker of the class has repeated it"
		}
	case j.leftTo(w.Name, meta.NumDelivered):
		_ = m.NakWithDelay(givenBack(meta.NumDelivered))
		return
	case !w.execute(ctx, m, &j, &result):
		return
	}
	w.publish(ctx, m, &result)
}

// execute does the work under a lease. It is false if there is no result, because the job or this worker
// ends.
func (w *Worker) execute(ctx context.Context, m jetstream.Msg, j *Job, result *Result) bool {
	began := time.Now()
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limited, end := context.WithTimeoutCause(work, max(j.Limit, time.Second), errLimit)
	defer end()
	w.begin(j, cancel)
	kept := w.renew(limited, m, cancel)
	files := workerFiles(w.js, w.Name, kept.progress)
	body, err := w.Do(limited, j, files, kept.progress)
	if err == nil || context.Cause(limited) == nil && !errors.As(err, new(*MachineError)) {
		err = result.answer(limited, files, body, err)
	}
	kept.stop()
	cause := context.Cause(limited)
	var machine *MachineError
	switch {
	case ctx.Err() != nil: // this worker ends, which says nothing about the job: the outbox publishes it again
		_ = m.Term()
	case errors.Is(cause, errCancelled):
		_ = m.Term()
	case err != nil && cause != nil:
		err = &MachineError{fmt.Errorf("given up after %s: %w", time.Since(began).Round(time.Second), cause)}
		fallthrough
	case errors.As(err, &machine):
		w.failures++
		w.end(began, err)
		result.Failed, result.Lost, result.Delivery = true, err.Error(), uint64(j.Failures)+1
		w.acknowledge(ctx, m) // before the coordinator publishes it again
		return true
	default:
		w.failures = 0
		result.Seconds = time.Since(began).Seconds()
		w.end(began, nil)
		return true
	}
	w.end(began, nil)
	return false
}

// Answer is the body of every result: what the executor found, or why the job itself cannot be done.
type Answer struct {
	Error string          `json:"error,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

func encoded(body any, failure error) (json.RawMessage, error) {
	if failure != nil {
		return json.Marshal(Answer{Error: failure.Error()})
	}
	value, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(Answer{Value: value})
}

// Decode reads the value of a result.
func (r *Result) Decode(value any) error {
	var a Answer
	if err := json.Unmarshal(r.Body, &a); err != nil {
		return fmt.Errorf("the result of %s: %w", r.Worker, err)
	}
	if a.Error != "" {
		return fmt.Errorf("%s: %s", r.Worker, a.Error)
	}
	return json.Unmarshal(a.Value, value)
}

// largeBody is the size above which the body of a result is a file: a slow link takes its parts, and leases
// are renewed between them.
var largeBody = partBytes

// answer sets the body, or makes a file of a large one.
func (r *Result) answer(ctx context.Context, files Objects, body any, failure error) (err error) {
	if r.Body, err = encoded(body, failure); err != nil {
		r.Lost = err.Error()
		return nil
	}
	if len(r.Body) <= largeBody {
		return nil
	}
	if r.File, err = files.Put(ctx, r.Body); err != nil {
		return &MachineError{err}
	}
	r.Body = nil
	return nil
}

// slowLink is the rate of the slowest link, in bytes a second.
const slowLink = 10 << 10

// publish signs a result, and acknowledges the job when the server has it. While the server is away
// it tries again: the work may have taken minutes.
func (w *Worker) publish(ctx context.Context, m jetstream.Msg, r *Result) {
	if err := r.sign(w.Key); err != nil {
		w.note("a result cannot be signed: " + err.Error())
		return
	}
	data, err := json.Marshal(r)
	if err != nil {
		return
	}
	said, limit := false, renewal+time.Duration(len(data))*time.Second/slowLink
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		limited, cancel := context.WithTimeout(ctx, limit)
		_, err := w.js.Publish(limited, resultSubject+w.Name+"."+r.Key, data)
		cancel()
		if err == nil {
			w.last = r
			w.acknowledge(ctx, m)
			return
		}
		if errors.Is(err, nats.ErrMaxPayload) && r.Lost == "" {
			w.publish(ctx, m, r.tooLarge(len(data)))
			return
		}
		if w.conn.IsClosed() { // take says why
			return
		}
		if !pause(ctx, wait) {
			_ = m.Term() // as any job of a worker that ends
			return
		}
		if !said {
			w.note(fmt.Sprintf("the fleet's server does not take a result (%v); trying again", plain(err)))
			said = true
		}
		_ = m.InProgress()
	}
}

// acknowledge takes the job from the queue. A server that was killed may have forgotten that the worker
// has it, and never answers: then the job comes once more, and the result is sent again.
func (w *Worker) acknowledge(ctx context.Context, m jetstream.Msg) {
	for range 3 {
		limited, cancel := context.WithTimeout(ctx, renewal)
		err := m.DoubleAck(limited)
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
			return
		}
	}
}

// tooLarge is the result in place of one that the server does not take.
func (r *Result) tooLarge(size int) *Result {
	small := *r
	small.Body, small.Lost = nil, fmt.Sprintf("its result has %d bytes, more than the fleet's server takes", size)
	return &small
}

// leaseOf keeps the lease of a job while it shows progress.
type leaseOf struct {
	began time.Time
	last  atomic.Int64 // time of the last progress, since it began: the clock of the machine may be set
	done  chan struct{}
	work  sync.WaitGroup
}

func (l *leaseOf) progress() { l.last.Store(int64(time.Since(l.began))) }
func (l *leaseOf) stop()     { close(l.done); l.work.Wait() }

// renew renews the lease until the work ends or shows no progress.
func (w *Worker) renew(ctx context.Context, m jetstream.Msg, cancel context.CancelCauseFunc) *leaseOf {
	l := &leaseOf{began: time.Now(), done: make(chan struct{})}
	l.progress()
	l.work.Go(func() {
		ticker := time.NewTicker(renewal)
		defer ticker.Stop()
		for {
			select {
			case <-l.done:
				return
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if time.Since(l.began)-time.Duration(l.last.Load()) > stalled {
				cancel(errStalled)
				return
			}
			_ = m.InProgress() // without a connection the lease ends, and another worker takes the job
		}
	})
	return l
}

// begin and end keep the state that the worker tells.
func (w *Worker) begin(j *Job, cancel context.CancelCauseFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.current, w.cancel, w.began = j.Key(), cancel, time.Now()
	w.state.Job, w.state.Started = j.Kind+" "+j.Key()[:12], w.began.UTC()
}

func (w *Worker) end(began time.Time, failure error) {
	w.mu.Lock()
	w.current, w.cancel = "", nil
	w.state.Job, w.state.Started = "", time.Time{}
	w.state.Busy += time.Since(began).Seconds()
	if failure == nil {
		w.state.Done++
	} else {
		w.state.Failed++
		w.state.Problem = failure.Error()
	}
	w.mu.Unlock()
	if failure != nil {
		w.note(failure.Error())
	}
}

func (w *Worker) note(line string) {
	if w.Note != nil {
		w.Note(line)
	}
}

// beat tells the state of the worker.
func (w *Worker) beat(ctx context.Context) {
	for {
		w.mu.Lock()
		w.state.Draining = w.drained.Load()
		if w.state.Up, w.state.Running = time.Since(w.since).Seconds(), 0; w.state.Job != "" {
			w.state.Running = time.Since(w.began).Seconds()
		}
		state, err := json.Marshal(w.state)
		w.mu.Unlock()
		if err == nil {
			_, _ = w.js.PublishAsync("$KV."+workerBucket+"."+w.Name, state) // the next beat tells it again
		}
		if !pause(ctx, renewal) {
			return
		}
	}
}

// leave takes the worker from the list.
func (w *Worker) leave() {
	m := nats.NewMsg("$KV." + workerBucket + "." + w.Name)
	m.Header.Set("KV-Operation", "DEL")
	_ = w.conn.PublishMsg(m) // the entry ends by itself
	_ = w.conn.FlushTimeout(time.Second)
}
