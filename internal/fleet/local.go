package fleet

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go"
)

// Here is a fleet of workers in this process, with a server that nobody else reaches.
type Here struct {
	*Coordinator
	conn  *nats.Conn
	stop  func()
	trust Local
	end   context.CancelFunc
	work  sync.WaitGroup
}

// StartHere starts a fleet in this process. The caller adds workers, and closes it.
func StartHere(ctx context.Context, note func(string)) (*Here, error) {
	conn, stop, err := Embed(ctx)
	if err != nil {
		return nil, err
	}
	h := &Here{conn: conn, stop: stop, trust: Local{}}
	if h.Coordinator, err = NewCoordinator(ctx, conn, Store{Memory: true}, h.trust, note); err != nil {
		conn.Close()
		stop()
		return nil, err
	}
	return h, nil
}

// Start starts workers, which end with the fleet.
func (h *Here) Start(ctx context.Context, workers ...*Worker) error {
	ctx, h.end = context.WithCancel(context.WithoutCancel(ctx))
	for _, w := range workers {
		c, public, err := NewCredentials(w.Name, w.Class)
		if err != nil {
			return err
		}
		if w.Key, err = c.Key(); err != nil {
			return err
		}
		h.trust[w.Name] = public
	}
	for _, w := range workers {
		if err := h.open(ctx, w.Class); err != nil { // else a worker looks for its queue once a second
			return err
		}
	}
	for _, w := range workers {
		h.work.Go(func() { _ = w.Run(ctx, h.conn) }) // its error is the end of ctx
	}
	return nil
}

// Close ends the workers and the server.
func (h *Here) Close() {
	if h.end != nil {
		h.end()
	}
	h.work.Wait()
	h.Coordinator.Close()
	h.conn.Close()
	h.stop()
}
