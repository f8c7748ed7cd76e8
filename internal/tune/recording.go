package tune

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"attune/internal/regular"
	"attune/internal/rule"
	"attune/internal/spec"
)

// Recording is the results of a kernel's variants as a file has them: a Kernel Tuner cache or T4
// results. Times are in milliseconds, as in both formats.
type Recording struct {
	Kernel      string
	Device      string
	ProblemSize json.RawMessage // as in the cache; nil if unknown
	Objective   string          // the measurement that is minimised, or maximised if it is a rate
	Space       *Space          // exactly the variants of the file
	Entries     []Entry         // in the order of the file
	Truncated   bool            // the file ends in the middle, as that of a killed search does
	Repeated    int             // results of variants that have a later result, which counts
	Impossible  int             // results with a time or a rate of zero or below; they count as failed

	index map[string]int // of an entry, by Point.Key
}

// Entry is the recorded result of one variant.
type Entry struct {
	Point     Point
	Value     float64 // of the objective; undefined after a failure
	Failure   Failure // empty if the variant ran and was correct
	Times     []float64
	Compile   float64
	Verify    float64
	Benchmark float64
	Framework float64
	Search    float64
	Timestamp string
}

// Failure says why a variant has no result, in the words of T4.
type Failure string

// The failures of T4.
const (
	FailedCompile     Failure = "compile"
	FailedRuntime     Failure = "runtime"
	FailedCorrectness Failure = "correctness"
	FailedConstraints Failure = "constraints"
	FailedTimeout     Failure = "timeout"
	notRecorded       Failure = "not recorded" // allowed by a T1 definition, absent from the cache
)

// Seconds returns what the evaluation took when it was recorded.
func (e *Entry) Seconds() float64 { return (e.Compile + e.Verify + e.Benchmark) / 1000 }

// Cost is the value to minimise.
func (r *Recording) Cost(e *Entry) float64 {
	if r.maximises() {
		return -e.Value
	}
	return e.Value
}

// maximises reports whether more is better: rates such as GFLOP/s, and scores.
func (r *Recording) maximises() bool {
	return strings.HasSuffix(r.Objective, "/s") || strings.HasSuffix(r.Objective, "/W") || r.Objective == "score"
}

// positive reports whether the objective has no values of zero and below. Others, such as scores, may.
func (r *Recording) positive() bool {
	return r.Objective == "time" || r.maximises() && r.Objective != "score"
}

// Find returns the entry of a point of the recording's space.
func (r *Recording) Find(p Point) (*Entry, bool) {
	i, ok := r.index[p.Key()]
	if !ok {
		return nil, false
	}
	return &r.Entries[i], true
}

// LoadRecording reads a Kernel Tuner cache or T4 results, compressed by gzip or not.
func LoadRecording(path string) (*Recording, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	r, err := ReadRecording(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// LoadSpace reads a T1 definition, compressed by gzip or not.
func LoadSpace(path string) (*Space, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	s, err := ReadT1(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// maxFile limits a file, and what a compressed one may expand to, in bytes. The largest published
// one has 16 MB.
const maxFile = 256 << 20

func readFile(path string) ([]byte, error) {
	data, err := regular.Read(path, maxFile)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	text, err := regular.Decompress(data, path, maxFile)
	if errors.As(err, new(*regular.SizeError)) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%s: damaged gzip file: %w", path, err)
	}
	return text, nil
}

// ReadRecording reads the text of a Kernel Tuner cache or of T4 results.
func ReadRecording(data []byte) (*Recording, error) {
	data = replaceNonFinite(data)
	file, err := readObject(data)
	if err != nil {
		return nil, err
	}
	var r *recorder
	switch {
	case file.cache != nil:
		r, err = fromCache(file)
	case file.fields["results"] != nil:
		r, err = fromT4(file)
	default:
		return nil, errors.New(`neither a Kernel Tuner cache (it has no "cache") nor T4 results (it has no "results")`)
	}
	if err != nil {
		return nil, err
	}
	return r.finish(file.truncated)
}

// pair is a key of a JSON object and its value, in the order of the file.
type pair struct {
	key string
	raw json.RawMessage
}

// object is a file at its top level. The entries of a cache are split one by one, so that a file
// that ends in the middle keeps those before.
type object struct {
	fields    map[string]json.RawMessage
	cache     []pair // nil if there is no cache
	truncated bool
}

func readObject(data []byte) (*object, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if err := open(decoder); err != nil {
		return nil, fmt.Errorf("not a JSON object: %w", err)
	}
	file := &object{fields: map[string]json.RawMessage{}}
	for decoder.More() {
		key, err := nextKey(decoder)
		if err != nil {
			return nil, broken(decoder, err)
		}
		if key == "cache" {
			if file.cache, err = readCacheEntries(decoder); isEnd(err) && file.fields["tune_params_keys"] != nil {
				file.truncated = true
				return file, nil
			}
		} else {
			var raw json.RawMessage
			err = decoder.Decode(&raw)
			file.fields[key] = raw
		}
		if err != nil {
			return nil, broken(decoder, err)
		}
	}
	if _, err := decoder.Token(); err != nil {
		if file.cache == nil {
			return nil, broken(decoder, err)
		}
		file.truncated = true // Kernel Tuner writes the last bracket only when it ends
	}
	return file, nil
}

func broken(decoder *json.Decoder, err error) error {
	if isEnd(err) {
		return errors.New("broken JSON: the file ends in the middle")
	}
	return fmt.Errorf("broken JSON after byte %d: %w", decoder.InputOffset(), err)
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

func open(decoder *json.Decoder) error {
	t, err := decoder.Token()
	if err == nil && t != json.Delim('{') {
		err = fmt.Errorf("want { and got %v", t)
	}
	return err
}

func nextKey(decoder *json.Decoder) (string, error) {
	t, err := decoder.Token()
	if err != nil {
		return "", err
	}
	return t.(string), nil // the decoder rejects other keys
}

// readCacheEntries returns the complete entries, and io.EOF or io.ErrUnexpectedEOF if the file ends
// before the last bracket.
func readCacheEntries(decoder *json.Decoder) ([]pair, error) {
	entries := []pair{}
	if err := open(decoder); err != nil {
		return entries, err
	}
	for decoder.More() {
		key, err := nextKey(decoder)
		if err != nil {
			return entries, err
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return entries, err
		}
		entries = append(entries, pair{key, raw})
	}
	_, err := decoder.Token()
	return entries, err
}

// pairs reads an object, with its keys in order.
func pairs(raw json.RawMessage) ([]pair, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if err := open(decoder); err != nil {
		return nil, err
	}
	return readPairs(decoder)
}

func readPairs(decoder *json.Decoder) ([]pair, error) {
	var all []pair
	for decoder.More() {
		key, err := nextKey(decoder)
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return nil, err
		}
		all = append(all, pair{key, raw})
	}
	return all, nil
}

// replaceNonFinite replaces NaN and Infinity, which Python writes and JSON does not have, by null.
func replaceNonFinite(data []byte) []byte {
	if !bytes.Contains(data, []byte("NaN")) && !bytes.Contains(data, []byte("Infinity")) {
		return data
	}
	var out []byte
	quoted := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\' && i+1 < len(data):
			out = append(out, c)
			i++
		case c == '"':
			quoted = !quoted
		case !quoted:
			if word := nonFinite(data[i:]); word > 0 {
				out = append(out, "null"...)
				i += word - 1
				continue
			}
		}
		out = append(out, data[i])
	}
	return out
}

func nonFinite(data []byte) int {
	for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(data, []byte(word)) {
			return len(word)
		}
	}
	return 0
}

// recorder collects entries, and the values of the knobs as they occur.
type recorder struct {
	Recording
	knobs  []Knob
	values []map[rule.Value]uint16 // of each knob: the index of a value
	large  []map[rule.Value]string // of each knob: the texts of integers that do not fit 64 bits
	sorted bool                    // the values come from the entries and have no order of their own
}

// literal is a value as a file has it.
type literal struct {
	rule.Value
	large string // the text of an integer that does not fit 64 bits
}

func (l *literal) UnmarshalJSON(data []byte) error {
	if err := l.Value.UnmarshalJSON(data); err != nil {
		return err
	}
	if l.Type() == rule.Real(0).Type() && !bytes.ContainsAny(data, ".eE") {
		l.large = string(data)
	}
	return nil
}

// add gives a knob a value, if it does not have it yet, and returns its index.
func (r *recorder) add(knob int, l literal) (uint16, error) {
	v := l.Value
	if l.large != "" {
		if other, ok := r.large[knob][v]; ok && other != l.large {
			return 0, fmt.Errorf("the values %s and %s of %q cannot be told apart: integers must fit 64 bits; write them as texts",
				other, l.large, r.knobs[knob].Name)
		}
		r.large[knob][v] = l.large
	}
	if i, ok := r.values[knob][v]; ok {
		return i, nil
	}
	i := len(r.knobs[knob].Values)
	if i >= maxValues-1 {
		return 0, fmt.Errorf("the knob %q has more than %d values", r.knobs[knob].Name, maxValues-1)
	}
	r.knobs[knob].Values = append(r.knobs[knob].Values, v)
	r.values[knob][v] = uint16(i)
	return uint16(i), nil
}

func newRecorder(names []string) *recorder {
	r := &recorder{}
	for _, name := range names {
		r.knobs = append(r.knobs, Knob{Name: name, Layer: spec.Micro, Default: -1})
		r.values = append(r.values, map[rule.Value]uint16{})
		r.large = append(r.large, map[rule.Value]string{})
	}
	return r
}

// finish makes the space of the entries.
func (r *recorder) finish(truncated bool) (*Recording, error) {
	if len(r.Entries) == 0 {
		return nil, fmt.Errorf("%w: the file has no results", ErrEmpty)
	}
	if r.sorted {
		r.sort()
	}
	var points []Point
	r.index = map[string]int{}
	for i, e := range r.Entries {
		points = append(points, e.Point)
		if _, known := r.index[e.Point.Key()]; known {
			r.Repeated++
		}
		r.index[e.Point.Key()] = i // of two results the later one, as Kernel Tuner appends
	}
	var err error
	if r.Space, err = newListed(r.Kernel, r.knobs, points); err != nil {
		return nil, err
	}
	r.Truncated = truncated
	for i := range r.Entries {
		if e := &r.Entries[i]; e.Failure == "" && e.Value <= 0 && r.positive() {
			e.Value, e.Failure = 0, FailedRuntime
			r.Impossible++
		}
	}
	return &r.Recording, nil
}

// sort orders the values of each knob: numbers by size, then texts. Texts stay in their order.
func (r *recorder) sort() {
	for i := range r.knobs {
		old := r.knobs[i].Values
		order := make([]int, len(old))
		for j := range order {
			order[j] = j
		}
		slices.SortStableFunc(order, func(a, b int) int {
			x, xok := old[a].Float()
			y, yok := old[b].Float()
			switch {
			case xok && yok:
				return cmp.Compare(x, y)
			case xok != yok && xok:
				return -1
			case xok != yok:
				return 1
			}
			return 0
		})
		place := make([]uint16, len(old))
		values := make([]rule.Value, len(old))
		for to, from := range order {
			place[from], values[to] = uint16(to), old[from]
		}
		r.knobs[i].Values = values
		for _, e := range r.Entries {
			e.Point[i] = place[e.Point[i]]
		}
	}
}

// failedTime is what early versions of Kernel Tuner write as the time of a failed variant.
const failedTime = 1e20

func usable(x float64) bool { return !math.IsNaN(x) && math.Abs(x) < failedTime }
