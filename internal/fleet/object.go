package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Objects are files: kernels, images, logs and records. The address of a file is the name of the owner
// and the SHA-256 of its content. Only the owner can write below its name, so that nobody damages the
// file of another one.
type Objects interface {
	Get(ctx context.Context, address string) ([]byte, error)
	Put(ctx context.Context, data []byte) (address string, err error)
}

// Objects are the files of the fleet, and those of the coordinator.
func (c *Coordinator) Objects() Objects { return &objects{js: c.queue.js, owner: Owner} }

// workerFiles are the files of the fleet, and those of a worker. progress is called for each part.
func workerFiles(js jetstream.JetStream, name string, progress func()) Objects {
	return &objects{js: js, owner: name, progress: progress}
}

// objects keeps files on the server, in parts with a subject each.
type objects struct {
	js       jetstream.JetStream
	owner    string
	progress func() // may be nil
}

// partBytes is the size of a part. The last one of a file is smaller, and may be empty. Over 20 KB/s a part
// takes 3 s, for which the renewal of a lease and the signs of life of a connection wait behind it.
const partBytes = 64 << 10

// partLimit is how long a part may take.
const partLimit = 30 * time.Second

// part does something with a part of a file, within the limit.
func (o *objects) part(ctx context.Context, do func(context.Context) error) error {
	if o.progress != nil {
		o.progress()
	}
	ctx, cancel := context.WithTimeout(ctx, partLimit)
	defer cancel()
	return do(ctx)
}

// maxObject is the largest file.
const maxObject = 256 << 20

// address is what the address of a file looks like.
var address = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.([0-9a-f]{64})$`)

// Get returns a file, whose content is checked.
func (o *objects) Get(ctx context.Context, place string) ([]byte, error) {
	named := address.FindStringSubmatch(place)
	if named == nil {
		return nil, fmt.Errorf("%q is no address of a file", place)
	}
	stream, err := o.js.Stream(ctx, fileStream)
	if err != nil {
		return nil, &MachineError{plain(err)}
	}
	var data bytes.Buffer
	for part := 0; ; part++ {
		var m *jetstream.RawStreamMsg
		err := o.part(ctx, func(ctx context.Context) (err error) {
			m, err = stream.GetLastMsgForSubject(ctx, fileSubject+place+"."+strconv.Itoa(part))
			return err
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil, &MachineError{fmt.Errorf("the fleet has no file %s, or not all of it", short(place))}
		}
		if err != nil {
			return nil, &MachineError{plain(err)}
		}
		data.Write(m.Data)
		if len(m.Data) < partBytes {
			break
		}
		if data.Len() > maxObject {
			return nil, &MachineError{fmt.Errorf("the file %s of the fleet has more than %d MB", short(place), maxObject>>20)}
		}
	}
	if hashOf(data.Bytes()) != named[1] {
		return nil, &MachineError{fmt.Errorf("the file %s of the fleet is damaged", short(place))}
	}
	return data.Bytes(), nil
}

// Put stores a file, unless all of it is there.
func (o *objects) Put(ctx context.Context, data []byte) (string, error) {
	place := o.owner + "." + hashOf(data)
	if o.owner == Owner { // a worker's files are new
		if known, err := o.Get(ctx, place); err == nil && bytes.Equal(known, data) {
			return place, nil
		}
	}
	if len(data) > maxObject {
		return "", fmt.Errorf("a file of %d MB is more than the fleet's server takes", len(data)>>20)
	}
	for part := 0; ; part++ {
		piece := data[min(part*partBytes, len(data)):min((part+1)*partBytes, len(data))]
		err := o.part(ctx, func(ctx context.Context) error {
			_, err := o.js.Publish(ctx, fileSubject+place+"."+strconv.Itoa(part), piece)
			return err
		})
		if err != nil {
			return "", fmt.Errorf("store %d bytes on the fleet's server: %w", len(data), plain(err))
		}
		if len(piece) < partBytes {
			return place, nil
		}
	}
}

// short is an address for people.
func short(place string) string { return place[:len(place)-52] }

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
