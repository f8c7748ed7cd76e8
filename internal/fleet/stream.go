package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The streams and buckets of a fleet.
const (
	jobStream     = "ATTUNE_JOBS"
	resultStream  = "ATTUNE_RESULTS"
	fileStream    = "ATTUNE_FILES"
	workerBucket  = "attune-workers"
	deadBucket    = "attune-dead"
	keyBucket     = "attune-keys"
	jobSubject    = "attune.jobs.p1." // CLASS.KIND.KEY; p1 is the protocol, so that workers of another one get no jobs
	resultSubject = "attune.results." // WORKER.KEY
	fileSubject   = "attune.files."   // OWNER.HASH.PART
	cancelSubject = "attune.cancel."  // CLASS, with a key: nobody waits for the job any more
	drainSubject  = "attune.drain."   // WORKER: end after the job at hand
)

// Sizes above which a stream refuses more: a full disk would stop the server without an error.
const (
	jobBytes    = 256 << 20
	resultBytes = 1 << 30
	fileBytes   = 4 << 30
)

// fileAge is how long a file stays. Each search sends its kernel again unless it is there.
const fileAge = 30 * 24 * time.Hour

// resultAge is how long a result waits for a coordinator that was killed.
const resultAge = 7 * 24 * time.Hour

// workerAge is how long a worker is listed after its last sign of life.
const workerAge = 20 * time.Second

func subjectOf(j *Job) string { return jobSubject + j.Class + "." + j.Kind + "." + j.Key() }

// Store says where streams are kept.
type Store struct {
	Memory   bool // in the server's memory: for a fleet that ends with its coordinator
	Replicas int  // of new streams in a cluster; 0 for one
}

func (s Store) storage() jetstream.StorageType {
	if s.Memory {
		return jetstream.MemoryStorage
	}
	return jetstream.FileStorage
}

// queue is the fleet's state on a server.
type queue struct {
	js      jetstream.JetStream
	jobs    jetstream.Stream
	results jetstream.Stream
	workers jetstream.KeyValue
	dead    jetstream.KeyValue
	keys    jetstream.KeyValue
}

// openQueue creates the streams, or checks those that exist and leaves them as they are.
func openQueue(ctx context.Context, conn *nats.Conn, s Store) (*queue, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	if err := checkProtocol(ctx, js); errors.As(err, new(*ProtocolError)) {
		return nil, err
	} else if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("the fleet's streams on %s: %w", conn.ConnectedUrlRedacted(), plain(err))
	}
	q := &queue{js: js}
	q.jobs, err = openStream(ctx, js, jetstream.StreamConfig{
		Name: jobStream, Subjects: []string{jobSubject + ">"}, Retention: jetstream.WorkQueuePolicy, Storage: s.storage(), Replicas: max(1, s.Replicas),
		MaxBytes: jobBytes, Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1, DiscardNewPerSubject: true, AllowDirect: true,
	})
	if err == nil {
		q.results, err = openStream(ctx, js, jetstream.StreamConfig{
			Name: resultStream, Subjects: []string{resultSubject + ">"}, Storage: s.storage(), Replicas: max(1, s.Replicas),
			MaxBytes: resultBytes, Discard: jetstream.DiscardOld, MaxAge: resultAge, AllowDirect: true,
		})
	}
	if err == nil {
		_, err = openStream(ctx, js, jetstream.StreamConfig{
			Name: fileStream, Subjects: []string{fileSubject + ">"}, Storage: s.storage(), Replicas: max(1, s.Replicas),
			MaxBytes: fileBytes, Discard: jetstream.DiscardOld, MaxMsgsPerSubject: 1, MaxAge: fileAge, AllowDirect: true,
			Metadata: map[string]string{protocolKey: strconv.Itoa(Protocol)},
		})
	}
	for _, bucket := range []struct {
		name    string
		age     time.Duration
		storage jetstream.StorageType
		to      *jetstream.KeyValue
	}{
		{workerBucket, workerAge, jetstream.MemoryStorage, &q.workers}, // a thousand workers would write 200 times a second
		{deadBucket, 0, s.storage(), &q.dead},
		{keyBucket, 0, s.storage(), &q.keys},
	} {
		if err == nil {
			*bucket.to, err = openBucket(ctx, js, jetstream.KeyValueConfig{
				Bucket: bucket.name, TTL: bucket.age, Storage: bucket.storage, Replicas: max(1, s.Replicas), MaxBytes: jobBytes,
			})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the fleet's streams on %s: %w", conn.ConnectedUrlRedacted(), plain(err))
	}
	return q, nil
}

// openStream creates a stream, or takes the one that exists: its limits and replicas may be those of
// the server's owner.
func openStream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return js.CreateStream(ctx, want)
	}
	if err != nil {
		return nil, err
	}
	has := stream.CachedInfo().Config
	if !slices.Equal(has.Subjects, want.Subjects) || has.Retention != want.Retention || has.Discard != want.Discard ||
		max(0, has.MaxMsgsPerSubject) != want.MaxMsgsPerSubject || has.DiscardNewPerSubject != want.DiscardNewPerSubject || !has.AllowDirect {
		return nil, fmt.Errorf("the stream %s is not as attune makes it; remove it, and the next command makes it again", want.Name)
	}
	return stream, nil
}

// openBucket creates a bucket, or takes the one that exists.
func openBucket(ctx context.Context, js jetstream.JetStream, want jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	bucket, err := js.KeyValue(ctx, want.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return js.CreateKeyValue(ctx, want)
	}
	return bucket, err
}

// protocolKey is the metadata of the stream of files that says which protocol the fleet speaks.
const protocolKey = "attune-protocol"

// checkProtocol is an error if the fleet speaks another protocol than this program. Workers may read
// what the stream of files says about itself.
func checkProtocol(ctx context.Context, js jetstream.JetStream) error {
	stream, err := js.Stream(ctx, fileStream)
	if err != nil {
		return err
	}
	if spoken := stream.CachedInfo().Config.Metadata[protocolKey]; spoken != "" && spoken != strconv.Itoa(Protocol) {
		return &ProtocolError{spoken}
	}
	return nil
}

// ProtocolError is a fleet of another version of attune.
type ProtocolError struct{ fleet string }

func (e *ProtocolError) Error() string {
	return fmt.Sprintf("the fleet speaks protocol %s, this program %d: use the same version of attune on all machines", e.fleet, Protocol)
}

// lease is how long a worker has a job without a sign of life; renewal how often it gives one. Tests
// shorten them.
var (
	lease   = duration("ATTUNE_FLEET_LEASE", 15*time.Second)
	renewal = lease / 3
)

// duration is a time that tests shorten by an environment variable.
func duration(variable string, usual time.Duration) time.Duration {
	if d, err := time.ParseDuration(os.Getenv(variable)); err == nil && d > 0 {
		return d
	}
	return usual
}

// consumerOf is the name of the queue of a class.
func consumerOf(class string) string { return "p1-" + class }

// consumer is the queue of a class, from which its workers take jobs.
func (q *queue) consumer(ctx context.Context, class string) error {
	_, err := q.jobs.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: consumerOf(class), FilterSubject: jobSubject + class + ".>", AckPolicy: jetstream.AckExplicitPolicy, AckWait: lease, MaxDeliver: -1, MaxAckPending: -1,
	})
	return err
}

// result looks for a result of a key. The error is nats' if there is none.
func (q *queue) result(ctx context.Context, key string) (*jetstream.RawStreamMsg, error) {
	return q.results.GetLastMsgForSubject(ctx, resultSubject+"*."+key)
}

// queued reports whether the job waits or is worked on.
func (q *queue) queued(ctx context.Context, j *Job) (bool, error) {
	_, err := q.jobs.GetLastMsgForSubject(ctx, subjectOf(j))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	return err == nil, err
}

// remove takes a job back that nobody waits for, and tells a worker that has it.
func (q *queue) remove(ctx context.Context, j *Job) error {
	err := q.js.Conn().Publish(cancelSubject+j.Class, []byte(j.Key()))
	return errors.Join(err, q.jobs.Purge(ctx, jetstream.WithPurgeSubject(subjectOf(j))))
}

// isQueued reports whether an error of publishing says that the job is in the queue already.
func isQueued(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == 10077 && api.Description == "maximum messages per subject exceeded"
}

// plain is an error of the client in the words of a user.
func plain(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrNoResponders):
		return errors.New("the server does not answer, or has no JetStream")
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return errors.New("no connection")
	case errors.Is(err, nats.ErrConnectionClosed):
		return errors.New("the server does not know this key any more")
	case errors.Is(err, nats.ErrNoServers):
		return errors.New("no connection; is the server started?")
	}
	return err
}
