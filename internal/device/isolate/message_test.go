package isolate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"attune/internal/device"
)

// wire passes requests from a sender to a receiver and counts the bytes.
type wire struct {
	bytes.Buffer
	sender   *sender
	receiver *receiver
}

func newWire(remember bool) *wire {
	w := &wire{}
	w.sender, w.receiver = newSender(&w.Buffer, remember), newReceiver(&w.Buffer)
	return w
}

// pass sends and receives a request, which must arrive unchanged. It returns the bytes sent.
func (w *wire) pass(t *testing.T, r request) int {
	t.Helper()
	want := *r.clone()
	if err := w.sender.send(r.clone()); err != nil {
		t.Fatal(err)
	}
	sent := w.Len()
	var got request
	if err := w.receiver.receive(&got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(want, got) {
		t.Error("a request arrived changed")
	}
	return sent
}

func TestBytesAreSentOnce(t *testing.T) {
	const large = 1 << 16
	q, k := bytes.Repeat([]byte{1}, large), bytes.Repeat([]byte{2}, large)
	newJob := func(image string, inputs ...[]byte) device.Job {
		job := device.Job{Image: []byte(image), Entry: "k", Args: []device.Arg{device.Int32(5), device.Out(7)}}
		for _, data := range inputs {
			job.Args = append(job.Args, device.Rotating(data, 16))
		}
		return job
	}
	a, b := newJob("a", q, k), newJob("b", q, k)
	changing := newJob("c", k)
	changing.Args = append(changing.Args, device.Arg{InOut: q})
	both := request{Time: &timing{[]device.Job{a, b}, device.Plan{Samples: 3, ColdL2: true, Launches: 7, Rest: time.Second, Secret: 5, Fresh: true}}}
	relaunched := newJob("a", q)
	relaunched.Relaunches = []device.Relaunch{{Inputs: [][]byte{k}}, {Inputs: [][]byte{q}}}
	steps := []struct {
		name    string
		request request
		large   int // number of large blobs that are sent
	}{
		{"the first", request{Run: &a}, 2},
		{"another variant", request{Run: &b}, 0},
		{"both", both, 0},
		{"both again", both, 0},
		{"an input that may change", request{Run: &changing}, 0},
		{"other inputs", request{Run: &device.Job{Entry: "k", Args: []device.Arg{device.In(bytes.Repeat([]byte{3}, large))}}}, 1},
		{"the inputs before the previous ones", request{Run: &a}, 2},
		{"inputs of relaunches", request{Run: &relaunched}, 0},
		{"no payload", request{}, 0},
	}
	for _, remember := range []bool{true, false} {
		w := newWire(remember)
		for _, s := range steps {
			sent := w.pass(t, s.request)
			if remember && sent/large != s.large {
				t.Errorf("%s: %d bytes sent; want slightly more than %d times %d", s.name, sent, s.large, large)
			}
		}
	}
	w := newWire(true)
	w.pass(t, both)
	q[large/2]++
	if sent := w.pass(t, both); sent/large != 1 {
		t.Errorf("after a change of one input %d bytes were sent; want slightly more than that input", sent)
	}
	if a.Image == nil || a.Args[2].Input == nil || relaunched.Relaunches[1].Inputs[0] == nil {
		t.Error("send has cleared the caller's job")
	}
}

// A truncated or inconsistent message is an error.
func TestBrokenMessages(t *testing.T) {
	job := device.Job{Image: []byte("image"), Entry: "k"}
	message := func() *request { return request{Run: &job}.clone() }
	w := newWire(true)
	if err := w.sender.send(message()); err != nil {
		t.Fatal(err)
	}
	for cut := range w.Len() {
		if err := newReceiver(bytes.NewReader(w.Bytes()[:cut])).receive(&request{}); err == nil {
			t.Errorf("a message cut to %d of %d bytes is accepted", cut, w.Len())
		}
	}
	for _, h := range []header{
		{Payloads: []int{1}},
		{Payloads: []int{-1}},
		{},
		{Blobs: []blob{{Bytes: 5}}, Payloads: []int{1, 1}},
		{Blobs: []blob{{Bytes: 0}}, Payloads: []int{1}},
		{Blobs: []blob{{Bytes: -1}}, Payloads: []int{1}},
		{Blobs: []blob{{Bytes: 1 << 60}}, Payloads: []int{1}},
		{Blobs: []blob{{Bytes: 5, Previous: 1}}, Payloads: []int{1}},
		{Blobs: []blob{{Bytes: 5, Previous: -1}}, Payloads: []int{1}},
	} {
		w := newWire(true)
		if err := errors.Join(w.sender.encoder.Encode(h), w.sender.encoder.Encode(message())); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(w, strings.Repeat("image", 2))
		if err := w.receiver.receive(&request{}); err == nil || !strings.HasPrefix(err.Error(), "invalid message: ") {
			t.Errorf("%+v: %v; want an invalid message", h, err)
		}
	}
	_, closed := io.Pipe()
	closed.Close()
	if err := newSender(closed, true).send(message()); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a closed pipe: %v", err)
	}
}
