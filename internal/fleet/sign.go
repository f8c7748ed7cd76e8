package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
)

// sign signs the result with the worker's key.
func (r *Result) sign(key nkeys.KeyPair) (err error) {
	r.Signature, err = key.Sign(r.digest())
	return err
}

// verify checks the signature by a public key.
func (r *Result) verify(public string) error {
	key, err := nkeys.FromPublicKey(public)
	if err == nil {
		err = key.Verify(r.digest(), r.Signature)
	}
	if err != nil {
		return errors.New("its signature is not that of the worker")
	}
	return nil
}

// Invitation is who may work for a fleet.
type Invitation struct {
	Name   string `json:"name"`
	Public string `json:"public"`
	Class  string `json:"class,omitempty"` // empty for any
}

// admits is an error unless the invitation is for the class.
func (i *Invitation) admits(class string) error {
	if i.Class != "" && i.Class != class {
		return fmt.Errorf("%s may work for %s, not for %s", i.Name, i.Class, class)
	}
	return nil
}

// invited trusts the workers of a bucket that only the server's owner writes.
type invited struct {
	keys jetstream.KeyValue

	mu    sync.Mutex
	known map[string]invitedAt
}

type invitedAt struct {
	Invitation
	read time.Time
}

// invitationAge is how long an invitation is kept before it is read again: a result of a thousand
// workers must not wait for the server. The server itself refuses a dismissed worker at once.
const invitationAge = 5 * time.Second

// Key is the public key of a worker.
func (t *invited) Key(ctx context.Context, worker, class string) (string, error) {
	if err := CheckName("worker", worker); err != nil {
		return "", err
	}
	t.mu.Lock()
	i, is := t.known[worker]
	t.mu.Unlock()
	if !is || time.Since(i.read) > invitationAge {
		entry, err := t.keys.Get(ctx, worker)
		if err != nil {
			return "", fmt.Errorf("nobody has invited %s", worker)
		}
		i = invitedAt{read: time.Now()}
		if err := json.Unmarshal(entry.Value(), &i.Invitation); err != nil {
			return "", fmt.Errorf("the invitation of %s: %w", worker, err)
		}
		t.mu.Lock()
		if t.known == nil {
			t.known = map[string]invitedAt{}
		}
		t.known[worker] = i
		t.mu.Unlock()
	}
	return i.Public, i.admits(class)
}

// Local trusts the workers of this process.
type Local map[string]string

// Key is the public key of a worker.
func (t Local) Key(_ context.Context, worker, _ string) (string, error) {
	if key, ok := t[worker]; ok {
		return key, nil
	}
	return "", fmt.Errorf("nobody has started %s", worker)
}
