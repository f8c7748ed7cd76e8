package isolate

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"unsafe"

	"attune/internal/device"
)

// request is one call of the parent: exactly one field is set.
type request struct {
	Run  *device.Job
	Time *timing
}

type timing struct {
	Jobs []device.Job
	Plan device.Plan
}

// response is the child's reply to a request. The first one, before any request, carries the facts.
type response struct {
	Facts   device.Facts
	Outcome *device.Outcome
	Series  []device.Series
	Fault   *device.Fault // the fault in the error, if there is one
	Error   string        // the text of the error; empty for success
	Missing bool          // the error is device.ErrNoDevice
	NoClock bool          // the error is device.ErrNoClock
}

// message is a request or a response. Its large byte slices, the payloads, are sent separately.
type message interface {
	// payloads are in the same order at both ends. A payload of length 0 arrives as nil.
	payloads() []*[]byte
}

func (r *request) payloads() []*[]byte {
	var all []*[]byte
	add := func(job *device.Job) {
		all = append(all, &job.Image)
		for i := range job.Args {
			all = append(all, &job.Args[i].Input, &job.Args[i].InOut)
		}
		for _, r := range job.Relaunches {
			for i := range r.Inputs {
				all = append(all, &r.Inputs[i])
			}
		}
	}
	if r.Run != nil {
		add(r.Run)
	}
	if r.Time != nil {
		for i := range r.Time.Jobs {
			add(&r.Time.Jobs[i])
		}
	}
	return all
}

// clone copies a request so that send can set its payloads to nil: the jobs belong to the caller.
func (r request) clone() *request {
	if r.Run != nil {
		job := *r.Run
		job.Args = slices.Clone(job.Args)
		job.Relaunches = slices.Clone(job.Relaunches)
		for i := range job.Relaunches {
			job.Relaunches[i].Inputs = slices.Clone(job.Relaunches[i].Inputs)
		}
		r.Run = &job
	}
	if r.Time != nil {
		jobs := slices.Clone(r.Time.Jobs)
		for i := range jobs {
			jobs[i].Args = slices.Clone(jobs[i].Args)
		}
		r.Time = &timing{jobs, r.Time.Plan}
	}
	return &r
}

func (r *response) payloads() []*[]byte {
	var all []*[]byte
	if r.Outcome != nil {
		for i := range r.Outcome.Outputs {
			all = append(all, &r.Outcome.Outputs[i])
		}
		for _, outputs := range slices.Concat(r.Outcome.Relaunched, r.Outcome.Repeated) {
			for i := range outputs {
				all = append(all, &outputs[i])
			}
		}
	}
	for _, s := range r.Series {
		if s.Check == nil {
			continue
		}
		for _, launch := range s.Check.Launches {
			for i := range launch.Outputs {
				all = append(all, &launch.Outputs[i])
			}
		}
	}
	return all
}

// header precedes each message and describes its payloads. The payload bytes follow the message
// raw, because gob would copy them several times.
type header struct {
	Blobs    []blob
	Payloads []int // for each payload, the number of its blob, from 1; 0 for an empty payload
}

// blob is a distinct byte string of a message. A bench repeats requests with the same inputs, which
// can be 100 MB, so a blob of the previous message is not sent again.
type blob struct {
	Bytes    int
	Previous int // number in the previous message, from 1; 0 for a blob whose bytes follow
}

// digest identifies the bytes of a blob. Two blobs of equal length and equal 64-bit hash count as
// equal; the hash seed is random for each sender.
type digest struct {
	bytes int
	hash  uint64
}

// sender writes messages.
type sender struct {
	out      io.Writer
	encoder  *gob.Encoder
	remember bool // blobs of the previous message
	seed     maphash.Seed
	last     map[digest]int // numbers of these blobs
}

func newSender(out io.Writer, remember bool) *sender {
	return &sender{out: out, encoder: gob.NewEncoder(out), remember: remember, seed: maphash.MakeSeed()}
}

// send writes a message and sets its payloads to nil.
func (s *sender) send(m message) error {
	var h header
	var follow [][]byte
	blobs := map[digest]int{}
	known := map[*byte]digest{} // slices hashed before: variants share their inputs
	for _, payload := range m.payloads() {
		data := *payload
		*payload = nil
		if len(data) == 0 {
			h.Payloads = append(h.Payloads, 0)
			continue
		}
		d, ok := known[unsafe.SliceData(data)]
		if !ok || d.bytes != len(data) {
			d = s.digest(data, len(blobs))
			known[unsafe.SliceData(data)] = d
		}
		if blobs[d] == 0 {
			b := blob{Bytes: len(data), Previous: s.last[d]}
			if b.Previous == 0 {
				follow = append(follow, data)
			}
			h.Blobs = append(h.Blobs, b)
			blobs[d] = len(h.Blobs)
		}
		h.Payloads = append(h.Payloads, blobs[d])
	}
	if s.remember {
		s.last = blobs
	}
	if err := errors.Join(s.encoder.Encode(h), s.encoder.Encode(m)); err != nil {
		return err
	}
	for _, data := range follow {
		if _, err := s.out.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// digest hashes data if messages are remembered. Otherwise every blob gets a digest of its own,
// which costs no time.
func (s *sender) digest(data []byte, blobs int) digest {
	if !s.remember {
		return digest{len(data), uint64(blobs)}
	}
	return digest{len(data), maphash.Bytes(s.seed, data)}
}

// receiver reads messages.
type receiver struct {
	in      *bufio.Reader // gob reads exactly its message from a bufio.Reader, and no payload bytes
	decoder *gob.Decoder
	last    [][]byte // blobs of the previous message
}

func newReceiver(in io.Reader) *receiver {
	buffered := bufio.NewReader(in)
	return &receiver{in: buffered, decoder: gob.NewDecoder(buffered)}
}

// maxBlobBytes bounds a blob, so that a corrupt message causes an error and not an allocation of
// terabytes.
const maxBlobBytes = 1 << 33

// receive reads a message and its payloads. They may share memory with the previous message's.
func (r *receiver) receive(m message) error {
	var h header
	if err := r.decoder.Decode(&h); err != nil {
		return err
	}
	if err := r.decoder.Decode(m); err != nil {
		return err
	}
	blobs, err := r.readBlobs(h.Blobs)
	if err != nil {
		return err
	}
	payloads := m.payloads()
	if len(payloads) != len(h.Payloads) {
		return fmt.Errorf("invalid message: it has %d payloads, its header lists %d", len(payloads), len(h.Payloads))
	}
	for i, n := range h.Payloads {
		switch {
		case n < 0 || n > len(blobs):
			return fmt.Errorf("invalid message: a payload is blob %d of %d", n, len(blobs))
		case n > 0:
			*payloads[i] = blobs[n-1]
		}
	}
	return nil
}

func (r *receiver) readBlobs(list []blob) ([][]byte, error) {
	blobs := make([][]byte, len(list))
	for i, b := range list {
		switch {
		case b.Previous < 0 || b.Previous > len(r.last) || b.Bytes < 1 || b.Bytes > maxBlobBytes:
			return nil, fmt.Errorf("invalid message: a blob of %d bytes, number %d of the %d blobs of the previous message",
				b.Bytes, b.Previous, len(r.last))
		case b.Previous > 0:
			blobs[i] = r.last[b.Previous-1]
			continue
		}
		blobs[i] = make([]byte, b.Bytes)
		if _, err := io.ReadFull(r.in, blobs[i]); err != nil {
			return nil, err
		}
	}
	r.last = blobs
	return blobs, nil
}
