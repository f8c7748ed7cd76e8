package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Status is the state of a fleet.
type Status struct {
	SchemaVersion int           `json:"schema_version"`
	Server        string        `json:"server"`
	Classes       []ClassStatus `json:"classes"`
	Workers       []WorkerState `json:"workers"`
	Dead          []DeadLetter  `json:"dead"`
}

// ClassStatus is the queue of a class.
type ClassStatus struct {
	Class   string `json:"class"`
	Waiting uint64 `json:"waiting"`
	Running int    `json:"running"`
	Workers int    `json:"workers"`
}

// DeadLetter is a job that no machine could do.
type DeadLetter struct {
	Job    Job       `json:"job"`
	Key    string    `json:"key"`
	Reason string    `json:"reason"`
	Time   time.Time `json:"time"`
}

// Status reads the state of the fleet.
func (c *Coordinator) Status(ctx context.Context) (*Status, error) {
	s := &Status{SchemaVersion: 1, Server: c.queue.js.Conn().ConnectedUrlRedacted()}
	var err error
	if s.Workers, err = readAll[WorkerState](ctx, c.queue.workers); err != nil {
		return nil, err
	}
	if s.Dead, err = readAll[DeadLetter](ctx, c.queue.dead); err != nil {
		return nil, err
	}
	slices.SortFunc(s.Workers, func(a, b WorkerState) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Dead, func(a, b DeadLetter) int { return a.Time.Compare(b.Time) })
	classes := map[string]*ClassStatus{}
	of := func(class string) *ClassStatus {
		if classes[class] == nil {
			classes[class] = &ClassStatus{Class: class}
		}
		return classes[class]
	}
	queues := c.queue.jobs.ListConsumers(ctx)
	for info := range queues.Info() {
		class := of(strings.TrimPrefix(info.Name, consumerOf("")))
		class.Waiting, class.Running = info.NumPending, info.NumAckPending
	}
	for _, w := range s.Workers {
		of(w.Class).Workers++
	}
	for _, class := range classes {
		s.Classes = append(s.Classes, *class)
	}
	slices.SortFunc(s.Classes, func(a, b ClassStatus) int { return cmp.Compare(a.Class, b.Class) })
	return s, queues.Err()
}

// Started is the status once a worker is listed. It waits no longer than workers take to report to a
// server that has started again.
func (c *Coordinator) Started(ctx context.Context) (*Status, error) {
	for began := time.Now(); ; {
		s, err := c.Status(ctx)
		if err != nil || len(s.Workers) > 0 || time.Since(began) > renewal+time.Second || !pause(ctx, renewal/10) {
			return s, err
		}
	}
}

// readAll reads all values of a bucket.
func readAll[T any](ctx context.Context, bucket jetstream.KeyValue) ([]T, error) {
	watch, err := bucket.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, plain(err)
	}
	defer watch.Stop()
	all := []T{}
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case entry := <-watch.Updates():
			if entry == nil { // that is all
				return all, nil
			}
			var value T
			if err := json.Unmarshal(entry.Value(), &value); err == nil {
				all = append(all, value)
			}
		}
	}
}

// Drain lets a worker end after the job at hand.
func (c *Coordinator) Drain(ctx context.Context, worker string) error {
	_, err := c.queue.js.Conn().RequestWithContext(ctx, drainSubject+worker, nil)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no worker %s is connected; attune fleet status lists them", worker)
	}
	return err
}

// noteDead keeps a job that no machine could do, until somebody tries it again. The first time stays.
func (c *Coordinator) noteDead(ctx context.Context, j *Job, reason string) error {
	data, err := json.Marshal(DeadLetter{Job: *j, Key: j.Key(), Reason: reason, Time: time.Now().UTC()})
	if err == nil {
		_, err = c.queue.dead.Create(ctx, j.Key(), data)
	}
	if errors.Is(err, jetstream.ErrKeyExists) {
		return nil
	}
	return err
}

// Retry forgets a dead letter and its result, so that the job can be done again. The key may be the
// beginning of one; it returns the whole.
func (c *Coordinator) Retry(ctx context.Context, key string) (*DeadLetter, error) {
	all, err := readAll[DeadLetter](ctx, c.queue.dead)
	if err != nil {
		return nil, err
	}
	for _, letter := range all {
		if !strings.HasPrefix(letter.Key, key) {
			continue
		}
		err := errors.Join(
			c.queue.results.Purge(ctx, jetstream.WithPurgeSubject(resultSubject+"*."+letter.Key)),
			c.queue.dead.Delete(ctx, letter.Key),
			c.open(ctx, letter.Job.Class),
		)
		if err == nil {
			err = c.publish(ctx, &letter.Job)
		}
		return &letter, err
	}
	return nil, fmt.Errorf("there is no dead letter %s; attune fleet dead lists them", key)
}

// InviteHere lets a worker into a fleet that trusts everybody who reaches its server, and again when the
// server has lost its streams, until ctx ends. Two workers of one name would have each other's results
// refused, so the second is an error.
func InviteHere(ctx context.Context, conn *nats.Conn, i Invitation) error {
	q, err := openQueue(ctx, conn, Store{})
	if err != nil {
		return err
	}
	alive, err := q.alive(ctx, i.Name)
	if err != nil {
		return plain(err)
	}
	if alive {
		return fmt.Errorf("a worker of the fleet has the name %s; --name gives this one another", i.Name)
	}
	if err := (&Coordinator{queue: q}).invite(ctx, i); err != nil {
		return err
	}
	go q.keepInvited(ctx, conn, i)
	return nil
}

// alive reports whether a worker of a name renews its entry. One that was killed has left it behind.
func (q *queue) alive(ctx context.Context, worker string) (bool, error) {
	last := uint64(0)
	for began := time.Now(); ; {
		entry, err := q.workers.Get(ctx, worker)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			return false, nil
		case err != nil:
			return false, err
		case last != 0 && entry.Revision() != last:
			return true, nil
		}
		last = entry.Revision()
		if time.Since(began) > 2*renewal || !pause(ctx, renewal/5) {
			return false, ctx.Err()
		}
	}
}

// keepInvited invites a worker again where the server has lost the invitation.
func (q *queue) keepInvited(ctx context.Context, conn *nats.Conn, i Invitation) {
	for pause(ctx, renewal/5) {
		_, err := q.keys.Get(ctx, i.Name)
		if err == nil || !conn.IsConnected() {
			continue
		}
		if again, err := openQueue(ctx, conn, Store{}); err == nil {
			_ = (&Coordinator{queue: again}).invite(ctx, i) // the next round tries again
		}
	}
}

func (c *Coordinator) invite(ctx context.Context, i Invitation) error {
	data, err := json.Marshal(i)
	if err == nil {
		_, err = c.queue.keys.Put(ctx, i.Name, data)
	}
	return err
}
