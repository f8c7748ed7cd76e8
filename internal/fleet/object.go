package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"
)

// Objects are files by the SHA-256 of their content: kernels, images, logs and records.
type Objects interface {
	Get(ctx context.Context, hash string) ([]byte, error)
	Put(ctx context.Context, data []byte) (hash string, err error)
}

// Objects are the fleet's files.
func (c *Coordinator) Objects() Objects { return &objects{js: c.queue.js, store: c.queue.objects} }

// objects keeps files on the server. The bucket is opened when it is first used.
type objects struct {
	js    jetstream.JetStream
	store jetstream.ObjectStore
}

func (o *objects) open(ctx context.Context) (err error) {
	if o.store == nil {
		o.store, err = o.js.ObjectStore(ctx, objectBucket)
	}
	return err
}

// Get returns a file, whose content is checked.
func (o *objects) Get(ctx context.Context, hash string) ([]byte, error) {
	if err := o.open(ctx); err != nil {
		return nil, &MachineError{plain(err)}
	}
	data, err := o.store.GetBytes(ctx, hash)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, &MachineError{fmt.Errorf("the fleet has no file %.12s", hash)}
	}
	if err != nil {
		return nil, &MachineError{plain(err)}
	}
	if hashOf(data) != hash {
		return nil, &MachineError{fmt.Errorf("the file %.12s of the fleet is damaged", hash)}
	}
	return data, nil
}

// Put stores a file, unless it is there.
func (o *objects) Put(ctx context.Context, data []byte) (string, error) {
	if err := o.open(ctx); err != nil {
		return "", plain(err)
	}
	hash := hashOf(data)
	if info, err := o.store.GetInfo(ctx, hash); err == nil && info.Size == uint64(len(data)) {
		return hash, nil
	}
	_, err := o.store.Put(ctx, jetstream.ObjectMeta{Name: hash}, io.Reader(bytes.NewReader(data)))
	if err != nil {
		return "", fmt.Errorf("store %d bytes on the fleet's server: %w", len(data), plain(err))
	}
	return hash, nil
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
