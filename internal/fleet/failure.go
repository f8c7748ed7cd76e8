package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// fail counts the failure of a machine, once, and has another one try. The caller holds the lock.
func (c *Coordinator) fail(ctx context.Context, w *waiter, r *Result) {
	if w.result != nil || r.Delivery != uint64(w.job.Failures)+1 {
		return // of an earlier search, or known
	}
	w.failed = append(w.failed, r.Worker)
	w.job.Failures = len(w.failed)
	go c.tryAgain(ctx, w, r)
}

// tryAgain publishes a job on which a machine has failed for another machine, or ends it. Where the class
// has no other one, the same one tries again.
func (c *Coordinator) tryAgain(ctx context.Context, w *waiter, r *Result) {
	others := c.others(ctx, w)
	c.mu.Lock()
	names := slices.Compact(slices.Sorted(slices.Values(w.failed)))
	failures := len(w.failed)
	if len(names) >= MaxDeliveries || failures >= maxFailures || !others && failures >= MaxDeliveries {
		reason := fmt.Sprintf("%d workers failed on it (%s), the last one: %s", len(names), strings.Join(names, ", "), r.Lost)
		if failures > len(names) {
			reason = fmt.Sprintf("%d failures of %s, the last one: %s", failures, strings.Join(names, ", "), r.Lost)
		}
		w.finish(&Result{Protocol: Protocol, Key: r.Key, Class: r.Class, Worker: r.Worker, Lost: reason})
		c.mu.Unlock()
		return
	}
	next := fmt.Sprintf("%s tries again: the class has no other worker", r.Worker)
	if w.job.Failed = nil; others {
		w.job.Failed, next = names, "another worker tries"
	}
	j := w.job
	c.mu.Unlock()
	c.note(fmt.Sprintf("%s failed on %s %.12s (%s); %s", r.Worker, j.Kind, r.Key, r.Lost, next))
	_ = c.publish(ctx, &j) // it notes why it could not; the outbox does it later
}

// others reports whether the class has a worker that has not failed on a job.
func (c *Coordinator) others(ctx context.Context, w *waiter) bool {
	ctx, cancel := context.WithTimeout(ctx, c.check)
	defer cancel()
	workers, _ := readAll[WorkerState](ctx, c.queue.workers) // without them the same one tries again
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(workers, func(one WorkerState) bool {
		return one.Class == w.job.Class && one.Name != w.job.Not && !slices.Contains(w.failed, one.Name)
	})
}

// isDead ends a job that is a dead letter of an earlier search.
func (c *Coordinator) isDead(ctx context.Context, key string) bool {
	entry, err := c.queue.dead.Get(ctx, key)
	var letter DeadLetter
	if err != nil || json.Unmarshal(entry.Value(), &letter) != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waiting[key]; w != nil {
		w.finish(&Result{Protocol: Protocol, Key: key, Class: letter.Job.Class, Lost: letter.Reason})
	}
	return true
}
