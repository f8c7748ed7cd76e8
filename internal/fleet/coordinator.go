package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Coordinator publishes jobs and takes their results. Only it writes a journal or a ledger.
type Coordinator struct {
	queue *queue
	store Store
	trust Trust
	note  func(string) // a line for the person who waits; may be nil
	check time.Duration

	opening sync.Mutex // of the queue of a class
	mu      sync.Mutex
	waiting map[string]*waiter
	classes map[string]bool // that have a consumer
	taken   time.Time       // when the last result came, or the first job of several
	stop    func()
}

// waiter is a job whose result somebody waits for.
type waiter struct {
	job    Job
	done   chan struct{} // closed with the result
	result *Result
	users  int

	failed []string // workers whose machines failed on it

	refused string // why the last result was refused
	again   int    // how often the job was published again because of that
}

// noteEvery is how often the same line is noted.
const noteEvery = 30 * time.Second

// seldom leaves out lines that were noted a short time ago: many jobs wait for one server.
func seldom(note func(string)) func(string) {
	var mu sync.Mutex
	last := map[string]time.Time{}
	return func(line string) {
		mu.Lock()
		known, is := last[line]
		if is = is && time.Since(known) < noteEvery; !is {
			last[line] = time.Now()
		}
		mu.Unlock()
		if !is {
			note(line)
		}
	}
}

// Trust says whose results are taken.
type Trust interface {
	// Key is the public key of a worker that may work for a class.
	Key(ctx context.Context, worker, class string) (string, error)
}

// outboxEvery is how often the coordinator looks for what the server has lost.
var outboxEvery = 5 * time.Second

// NewCoordinator opens the fleet's streams, or creates them. The caller closes the coordinator, then
// the connection.
func NewCoordinator(ctx context.Context, conn *nats.Conn, s Store, trust Trust, note func(string)) (*Coordinator, error) {
	q, err := openQueue(ctx, conn, s)
	if err != nil {
		return nil, err
	}
	if note == nil {
		note = func(string) {}
	}
	if trust == nil {
		trust = &invited{keys: q.keys}
	}
	c := &Coordinator{queue: q, store: s, trust: trust, note: seldom(note), check: outboxEvery, waiting: map[string]*waiter{}, classes: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	c.stop = func() { cancel(); work.Wait() }
	work.Go(func() { c.receive(ctx, conn) })
	work.Go(func() { c.watch(ctx) })
	return c, nil
}

// Close stops taking results. Jobs that are queued stay so.
func (c *Coordinator) Close() { c.stop() }

// Do has a job done and returns its result; at once if the fleet has it already. The error is a
// LostError if no machine could do it. When ctx ends the job is taken back.
func (c *Coordinator) Do(ctx context.Context, j Job) (*Result, error) {
	if err := j.check(); err != nil {
		return nil, err
	}
	key := j.Key()
	w, first := c.await(key, j)
	defer c.leave(ctx, key, w)
	if first {
		if err := c.begin(ctx, key, &j); err != nil {
			return nil, err
		}
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.done:
	}
	switch {
	case w.result.Lost == "" && w.result.File != "":
		return c.withBody(ctx, w.result)
	case w.result.Lost == "":
		return w.result, nil
	case j.Not != "": // its first result stands, and nothing is to be tried again
		return w.result, &LostError{Reason: w.result.Lost}
	case c.store.Memory: // its dead letters end with this process
		return w.result, &LostError{Reason: w.result.Lost}
	}
	return w.result, errors.Join(&LostError{w.result.Lost, key}, c.noteDead(ctx, &j, w.result.Lost))
}

// withBody is a result with its body from the file.
func (c *Coordinator) withBody(ctx context.Context, r *Result) (*Result, error) {
	whole := *r // others may wait for it too
	body, err := c.Objects().Get(ctx, r.File)
	if err != nil {
		return nil, fmt.Errorf("the result of %s: %w", r.Worker, err)
	}
	whole.Body, whole.File = body, ""
	return &whole, nil
}

// await joins those who wait for a key, and reports whether there were none.
func (c *Coordinator) await(key string, j Job) (w *waiter, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w = c.waiting[key]
	if first = w == nil; first {
		if len(c.waiting) == 0 {
			c.taken = time.Now()
		}
		w = &waiter{job: j, done: make(chan struct{})}
		c.waiting[key] = w
	}
	w.users++
	return w, first
}

// leave forgets a job that nobody waits for. Without a result it is taken back from the queue.
func (c *Coordinator) leave(ctx context.Context, key string, w *waiter) {
	c.mu.Lock()
	w.users--
	last := w.users == 0
	if last {
		delete(c.waiting, key)
	}
	abandoned := last && w.result == nil
	c.mu.Unlock()
	if !abandoned {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = c.queue.remove(ctx, &w.job) // a job that stays is done once more, and its result is kept
}

// begin looks for an earlier result, and publishes the job if there is none.
func (c *Coordinator) begin(ctx context.Context, key string, j *Job) error {
	if err := c.open(ctx, j.Class); err != nil {
		return err
	}
	known, err := c.queue.result(ctx, key)
	if err == nil && c.take(ctx, known.Subject, known.Data) {
		return nil
	}
	if err == nil && c.isDead(ctx, key) {
		return nil
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		c.note(fmt.Sprintf("the fleet's server: %v; trying again", plain(err)))
		return ctx.Err() // the outbox publishes it
	}
	return c.publish(ctx, j)
}

// open makes the queue of a class, once.
func (c *Coordinator) open(ctx context.Context, class string) error {
	c.opening.Lock()
	defer c.opening.Unlock()
	c.mu.Lock()
	known := c.classes[class]
	c.mu.Unlock()
	if known {
		return nil
	}
	if err := c.queue.consumer(ctx, class); err != nil {
		return fmt.Errorf("the queue of %s: %w", class, plain(err))
	}
	c.mu.Lock()
	c.classes[class] = true
	c.mu.Unlock()
	return nil
}

// publish puts a job into the queue. Where the server does not answer, the outbox does it later.
func (c *Coordinator) publish(ctx context.Context, j *Job) error {
	data, err := json.Marshal(j)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, c.check)
	defer cancel()
	_, err = c.queue.js.Publish(limited, subjectOf(j), data)
	switch {
	case err == nil || isQueued(err):
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("a job of %d bytes is more than the server takes: %w", len(data), err)
	}
	c.note(fmt.Sprintf("the fleet's server does not take a job (%v); trying again", plain(err)))
	return nil
}

// receive takes results as they come, also those that came while the connection was away.
func (c *Coordinator) receive(ctx context.Context, conn *nats.Conn) {
	for ctx.Err() == nil {
		consumer, err := c.queue.results.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy})
		if err == nil {
			var consuming jetstream.ConsumeContext
			consuming, err = consumer.Consume(func(m jetstream.Msg) { c.take(ctx, m.Subject(), m.Data()) })
			if err == nil {
				select {
				case <-ctx.Done():
					consuming.Stop()
				case <-consuming.Closed():
				}
			}
		}
		pause(ctx, time.Second)
	}
}

// take gives a result to those who wait for it. It reports whether the result is valid and was
// waited for.
func (c *Coordinator) take(ctx context.Context, subject string, data []byte) bool {
	var r Result
	if json.Unmarshal(data, &r) != nil || subject != resultSubject+r.Worker+"."+r.Key {
		return false // under the key of another job it would hide that job's result
	}
	c.mu.Lock()
	w := c.waiting[r.Key]
	c.mu.Unlock()
	if w == nil {
		return false
	}
	if err := c.valid(ctx, &r, &w.job); err != nil {
		if ctx.Err() == nil {
			c.refuse(w, fmt.Sprintf("a result of %s is refused: %v", r.Worker, err))
		}
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken = time.Now()
	if r.Failed {
		c.fail(ctx, w, &r)
		return false
	}
	w.finish(&r)
	return true
}

// finish ends the wait for a result. The caller holds the lock.
func (w *waiter) finish(r *Result) {
	if w.result == nil {
		w.result = r
		close(w.done)
	}
}

// refuse notes why a result is refused.
func (c *Coordinator) refuse(w *waiter, why string) {
	c.note(why)
	c.mu.Lock()
	defer c.mu.Unlock()
	w.refused = why
}

// valid checks that a result is one of the job, by a worker that may work for its class.
func (c *Coordinator) valid(ctx context.Context, r *Result, j *Job) error {
	if r.Protocol != Protocol || r.Class != j.Class {
		return fmt.Errorf("it is of class %s and protocol %d, the job of %s and %d", r.Class, r.Protocol, j.Class, Protocol)
	}
	if r.Worker == j.Not && (r.Lost == "" || r.Failed) {
		return errors.New("another worker was to repeat the job")
	}
	key, err := c.trust.Key(ctx, r.Worker, r.Class)
	if err != nil {
		return err
	}
	return r.verify(key)
}

// watch is the outbox: it looks for jobs that wait longer than usual, whose result was missed or that
// the server has lost.
func (c *Coordinator) watch(ctx context.Context) {
	for pause(ctx, c.check) {
		c.mu.Lock()
		jobs := make(map[string]*waiter, len(c.waiting))
		for key, w := range c.waiting {
			jobs[key] = w
		}
		c.mu.Unlock()
		for key, w := range jobs {
			c.recover(ctx, key, w)
		}
		c.noteNobody(ctx, jobs)
	}
}

// noteNobody says that jobs wait for a class that has no worker.
func (c *Coordinator) noteNobody(ctx context.Context, jobs map[string]*waiter) {
	c.mu.Lock()
	quiet := time.Since(c.taken)
	c.mu.Unlock()
	if len(jobs) == 0 || quiet < 2*c.check {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.check)
	defer cancel()
	workers, err := readAll[WorkerState](ctx, c.queue.workers)
	if err != nil { // the server is away, which recover has said
		return
	}
	waiting := map[string]int{}
	for _, w := range jobs {
		waiting[w.job.Class]++
	}
	for _, w := range workers {
		delete(waiting, w.Class)
	}
	for class := range waiting {
		c.note(fmt.Sprintf("no worker of the class %s is connected; attune worker joins one, and the work goes on", class))
	}
}

// recover publishes a job again that is neither queued nor done.
func (c *Coordinator) recover(ctx context.Context, key string, w *waiter) {
	ctx, cancel := context.WithTimeout(ctx, c.check)
	defer cancel()
	if known, err := c.queue.result(ctx, key); err == nil && c.take(ctx, known.Subject, known.Data) {
		return // its message was missed
	}
	queued, err := c.queue.queued(ctx, &w.job)
	if err != nil {
		c.away(ctx, err)
		return
	}
	if queued {
		return
	}
	// A worker may have finished the job between these two questions.
	known, err := c.queue.result(ctx, key)
	switch {
	case err == nil && c.take(ctx, known.Subject, known.Data):
	case err == nil || errors.Is(err, jetstream.ErrMsgNotFound):
		if j, ok := c.mayRepeat(key, w); ok {
			_ = c.publish(ctx, &j) // it notes why it could not
		}
	}
}

// mayRepeat is false when nobody waits any more: over a slow link the questions take seconds. After too many
// results that were refused the job ends.
func (c *Coordinator) mayRepeat(key string, w *waiter) (j Job, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.result != nil || c.waiting[key] != w {
		return j, false
	}
	if w.refused == "" {
		return w.job, true
	}
	if w.again++; w.again < MaxDeliveries {
		w.refused = ""
		return w.job, true
	}
	w.finish(&Result{Protocol: Protocol, Key: key, Class: w.job.Class, Lost: w.refused})
	return j, false
}

// away says that the server does not answer, and makes the streams again if it has lost them.
func (c *Coordinator) away(ctx context.Context, err error) {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return
	}
	if !errors.Is(err, jetstream.ErrStreamNotFound) && !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, jetstream.ErrNoStreamResponse) {
		c.note(fmt.Sprintf("the fleet's server: %v; trying again", plain(err)))
		return
	}
	q, err := openQueue(ctx, c.queue.js.Conn(), c.store)
	if err != nil {
		if !errors.Is(err, context.Canceled) { // the command ends
			c.note(fmt.Sprintf("%v; trying again", err))
		}
		return
	}
	c.mu.Lock()
	classes := slices.Collect(maps.Keys(c.classes))
	c.mu.Unlock()
	for _, class := range classes {
		if err := q.consumer(ctx, class); err != nil {
			c.note(fmt.Sprintf("the queue of %s: %v; trying again", class, plain(err)))
		}
	}
}

// pause waits, and reports whether ctx still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
