package peer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode"
)

// request is one line to the helper.
type request struct {
	ID     int    `json:"id"`
	Op     string `json:"op"` // hello, prepare, answer, sample, forget
	Device int    `json:"device"`

	Peer  string `json:"peer,omitempty"`
	DType string `json:"dtype,omitempty"`

	Shape    []int             `json:"shape,omitempty"` // batch, heads, queries, keys, head dim
	KVHeads  int               `json:"kv_heads,omitempty"`
	Causal   bool              `json:"causal"`
	Launches int               `json:"launches,omitempty"` // in a graph
	Copies   int               `json:"copies,omitempty"`   // of the inputs
	Files    map[string]string `json:"files,omitempty"`
	Inputs   int               `json:"inputs,omitempty"` // another number wherever the files of the inputs have changed

	Samples int     `json:"samples"`
	Rest    float64 `json:"rest,omitempty"` // seconds before each
}

// response is one line from the helper, to the request of the same number.
type response struct {
	ID    int    `json:"id"`
	Error string `json:"error"`
	Do    string `json:"do"`

	Facts   *Facts    `json:"facts"`
	Shape   []int     `json:"shape"`
	Seconds []float64 `json:"seconds"` // a launch
}

// Facts are the versions of what the helper runs, and which kinds of peer it has not, with the reason.
type Facts struct {
	Python  string            `json:"python"`
	Torch   string            `json:"torch"`
	CUDA    string            `json:"cuda"`
	CuDNN   string            `json:"cudnn"`
	GPU     string            `json:"gpu"`
	UUID    string            `json:"uuid,omitempty"`
	Missing map[string]string `json:"missing,omitempty"`
}

// readResponse reads the answer to request id. What is not one is an error that shows the beginning of it.
func readResponse(line []byte, id int) (*response, error) {
	var r response
	decoder := json.NewDecoder(bytes.NewReader(line))
	if err := decoder.Decode(&r); err != nil {
		return nil, fmt.Errorf("it answered %q, which is not JSON of the form that was asked for", oneLine(string(line), 60))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("it answered %q, which is more than one answer", oneLine(string(line), 60))
	}
	if r.ID != id {
		return nil, fmt.Errorf("it answered request %d when request %d was asked", r.ID, id)
	}
	r.Error, r.Do = oneLine(r.Error, 300), oneLine(r.Do, 300)
	return &r, nil
}

// check finds facts that are none, and keeps the words of others from breaking a line.
func (f *Facts) check() error {
	if f == nil {
		return errors.New("it said nothing of its versions")
	}
	for _, text := range []*string{&f.Python, &f.Torch, &f.CUDA, &f.CuDNN, &f.GPU, &f.UUID} {
		*text = oneLine(*text, 80)
	}
	if f.Torch == "" || f.GPU == "" {
		return errors.New("it named no PyTorch or no GPU")
	}
	for kind, why := range f.Missing {
		f.Missing[kind] = oneLine(why, 300)
	}
	return nil
}

// checkSeconds finds times that cannot be: too few, not finite, not above zero, or adding up to more than the whole request took.
func checkSeconds(seconds []float64, samples, launches int, took time.Duration) error {
	if len(seconds) != samples {
		return fmt.Errorf("it gave %d samples when %d were asked for", len(seconds), samples)
	}
	sum := 0.0
	for _, s := range seconds {
		if !(s > 0) || math.IsInf(s, 1) {
			return fmt.Errorf("it gave a time of %g s", s)
		}
		sum += s * float64(launches)
	}
	if sum > 1.05*took.Seconds() {
		return fmt.Errorf("its samples add up to %.3g s, and all of them together took %.3g s", sum, took.Seconds())
	}
	return nil
}

// oneLine makes one printable line of others' words, of so many characters at most.
func oneLine(text string, most int) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == unicode.ReplacementChar
	}), " ")
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return text
}
