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

// request asks the child for one thing.
type request struct {
	Run  *device.Job
	Time *timing
}

type timing struct {
	Jobs []device.Job
	Plan device.Plan
}

// response answers a request. The first one, before any request, carries the facts.
type response struct {
	Facts   device.Facts
	Outcome *device.Outcome
	Series  []device.Series
	Fault   *device.Fault // the machine's own error
	Error   string        // any other
	Missing bool          // the error is device.ErrNoDevice
	NoClock bool          // the error is device.ErrNoClock
}

// bulk is a message with places in it that hold many bytes.
type bulk interface {
	// places are in the same order at both ends. One that holds no bytes is passed as nil.
	places() []*[]byte
}

func (r *request) places() []*[]byte {
	var all []*[]byte
	add := func(job *device.Job) {
		all = append(all, &job.Image)
		for i := range job.Args {
			all = append(all, &job.Args[i].Input, &job.Args[i].InOut)
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

// clone is a request whose places can be emptied: the jobs are the caller's.
func (r request) clone() *request {
	if r.Run != nil {
		job := *r.Run
		job.Args = slices.Clone(job.Args)
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

func (r *response) places() []*[]byte {
	var all []*[]byte
	if r.Outcome != nil {
		for i := range r.Outcome.Outputs {
			all = append(all, &r.Outcome.Outputs[i])
		}
	}
	return all
}

// header goes before each message and says what its places hold. The bytes themselves follow the
// message as they are: gob would copy them several times.
type header struct {
	Parts  []part
	Places []int // for each place, which part it holds, counted from 1; 0 is none
}

// part is a string of bytes. A bench asks for one thing after another with the same inputs, which
// are a hundred megabytes: what the message before had is not sent again.
type part struct {
	Bytes  int
	Before int // which part of the message before it is, counted from 1; 0 for one whose bytes follow
}

// content stands for bytes. Two strings of one length and one hash of 64 bits, drawn anew for each
// device, are taken to be the same.
type content struct {
	bytes int
	hash  uint64
}

// sender writes messages.
type sender struct {
	out      io.Writer
	encoder  *gob.Encoder
	remember bool // what the message before had
	seed     maphash.Seed
	last     map[content]int // parts of that message
}

func newSender(out io.Writer, remember bool) *sender {
	return &sender{out: out, encoder: gob.NewEncoder(out), remember: remember, seed: maphash.MakeSeed()}
}

// send writes a message, and empties its places.
func (s *sender) send(m bulk) error {
	var h header
	var follow [][]byte
	parts := map[content]int{}
	known := map[*byte]content{} // slices that were looked at: variants share their inputs
	for _, place := range m.places() {
		data := *place
		*place = nil
		if len(data) == 0 {
			h.Places = append(h.Places, 0)
			continue
		}
		c, ok := known[unsafe.SliceData(data)]
		if !ok || c.bytes != len(data) {
			c = s.content(data, len(parts))
			known[unsafe.SliceData(data)] = c
		}
		if parts[c] == 0 {
			p := part{Bytes: len(data), Before: s.last[c]}
			if p.Before == 0 {
				follow = append(follow, data)
			}
			h.Parts = append(h.Parts, p)
			parts[c] = len(h.Parts)
		}
		h.Places = append(h.Places, parts[c])
	}
	if s.remember {
		s.last = parts
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

// content is the same for the same bytes where messages are remembered, and else another for each
// part.
func (s *sender) content(data []byte, parts int) content {
	if !s.remember {
		return content{len(data), uint64(parts)}
	}
	return content{len(data), maphash.Bytes(s.seed, data)}
}

// receiver reads messages.
type receiver struct {
	in      *bufio.Reader // gob reads no further in it than its own message goes
	decoder *gob.Decoder
	last    [][]byte // parts of the message before
}

func newReceiver(in io.Reader) *receiver {
	buffered := bufio.NewReader(in)
	return &receiver{in: buffered, decoder: gob.NewDecoder(buffered)}
}

// mostBytes bounds a part, so that what is no message is an error and not an allocation of
// terabytes.
const mostBytes = 1 << 33

// receive reads a message and fills its places. They may share memory with those of the message
// before.
func (r *receiver) receive(m bulk) error {
	var h header
	if err := r.decoder.Decode(&h); err != nil {
		return err
	}
	if err := r.decoder.Decode(m); err != nil {
		return err
	}
	parts := make([][]byte, len(h.Parts))
	for i, p := range h.Parts {
		switch {
		case p.Before < 0 || p.Before > len(r.last) || p.Bytes < 1 || p.Bytes > mostBytes:
			return fmt.Errorf("a message names %d bytes, part %d of the message before, which had %d", p.Bytes, p.Before, len(r.last))
		case p.Before > 0:
			parts[i] = r.last[p.Before-1]
			continue
		}
		parts[i] = make([]byte, p.Bytes)
		if _, err := io.ReadFull(r.in, parts[i]); err != nil {
			return err
		}
	}
	r.last = parts
	places := m.places()
	if len(places) != len(h.Places) {
		return fmt.Errorf("a message has %d places for bytes, and its header names %d", len(places), len(h.Places))
	}
	for i, n := range h.Places {
		switch {
		case n < 0 || n > len(parts):
			return fmt.Errorf("a message names part %d of %d", n, len(parts))
		case n > 0:
			*places[i] = parts[n-1]
		}
	}
	return nil
}
