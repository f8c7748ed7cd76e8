package tune

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// fromCache reads a Kernel Tuner cache.
func fromCache(file *object) (*recorder, error) {
	var names []string
	if raw := file.fields["tune_params_keys"]; raw == nil || json.Unmarshal(raw, &names) != nil || len(names) == 0 {
		return nil, errors.New(`the cache has no "tune_params_keys", the names of its knobs`)
	}
	r := newRecorder(names)
	r.Objective = "time"
	for key, target := range map[string]any{"kernel_name": &r.Kernel, "device_name": &r.Device, "objective": &r.Objective} {
		if raw := file.fields[key]; raw != nil {
			_ = json.Unmarshal(raw, target) // texts for people; an objective of another type is the default
		}
	}
	r.ProblemSize = file.fields["problem_size"]
	if err := r.cacheValues(file.fields["tune_params"]); err != nil {
		return nil, err
	}
	for _, p := range file.cache {
		if err := r.cacheEntry(p.raw); err != nil {
			return nil, fmt.Errorf("the result of %q: %w", p.key, err)
		}
	}
	return r, nil
}

// cacheValues reads the values of the knobs. Without them the order is that of the numbers.
func (r *recorder) cacheValues(raw json.RawMessage) error {
	if raw == nil {
		r.sorted = true
		return nil
	}
	var values map[string][]literal
	if err := json.Unmarshal(raw, &values); err != nil {
		return fmt.Errorf("tune_params: %w", err)
	}
	for i, knob := range r.knobs {
		for _, v := range values[knob.Name] {
			if _, err := r.add(i, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// cacheEntry reads one result. Its time is a number, or the name of a failure.
func (r *recorder) cacheEntry(raw json.RawMessage) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	e := Entry{Point: make(Point, len(r.knobs))}
	for i, knob := range r.knobs {
		var v literal
		field := fields[knob.Name]
		if field == nil {
			return fmt.Errorf("it has no value of %q", knob.Name)
		}
		if err := json.Unmarshal(field, &v); err != nil {
			return fmt.Errorf("%s: %w", knob.Name, err)
		}
		var err error
		if e.Point[i], err = r.add(i, v); err != nil {
			return err
		}
	}
	objective := fields[r.Objective]
	if objective == nil {
		return fmt.Errorf("it has no %q", r.Objective)
	}
	e.Value, e.Failure = outcome(objective)
	for key, target := range map[string]any{
		"times": &e.Times, "compile_time": &e.Compile, "verification_time": &e.Verify, "benchmark_time": &e.Benchmark,
		"framework_time": &e.Framework, "strategy_time": &e.Search, "timestamp": &e.Timestamp,
	} {
		if field := fields[key]; field != nil {
			_ = json.Unmarshal(field, target) // what is not a number was not measured
		}
	}
	r.Entries = append(r.Entries, e)
	return nil
}

// cacheFailures are the words of Kernel Tuner.
var cacheFailures = []struct {
	word    string
	failure Failure
}{
	{"CompilationFailedConfig", FailedCompile},
	{"RuntimeFailedConfig", FailedRuntime},
	{"InvalidConfig", FailedConstraints},
}

// outcome reads the value of an objective.
func outcome(raw json.RawMessage) (float64, Failure) {
	var value *float64
	if json.Unmarshal(raw, &value) == nil && value != nil && usable(*value) {
		return *value, ""
	}
	var word string
	_ = json.Unmarshal(raw, &word)
	if x, err := strconv.ParseFloat(strings.TrimSpace(word), 64); err == nil && usable(x) { // a number in quotes
		return x, ""
	}
	for _, f := range cacheFailures {
		if f.word == word {
			return 0, f.failure
		}
	}
	return 0, FailedRuntime // NaN, infinity, null, 1e20
}

func cacheWord(f Failure) string {
	for _, known := range cacheFailures {
		if known.failure == f {
			return known.word
		}
	}
	return "RuntimeFailedConfig"
}

// WriteCache writes the recording as a Kernel Tuner cache.
func (r *Recording) WriteCache(w io.Writer) error {
	var out bytes.Buffer
	header := orderedObject{
		{"device_name", r.Device},
		{"kernel_name", r.Kernel},
		{"problem_size", orNull(r.ProblemSize)},
		{"tune_params_keys", r.names()},
		{"tune_params", r.params()},
		{"objective", r.Objective},
	}
	if err := header.write(&out); err != nil {
		return err
	}
	out.Truncate(out.Len() - 1) // the bracket: the results follow
	out.WriteString(",\n\"cache\": {")
	for i := range r.Entries {
		e := &r.Entries[i]
		if i > 0 {
			out.WriteByte(',')
		}
		key, err := json.Marshal(r.key(e.Point))
		if err != nil {
			return err
		}
		out.WriteByte('\n')
		out.Write(key)
		out.WriteString(": ")
		if err := r.cacheFields(e).write(&out); err != nil {
			return err
		}
	}
	out.WriteString("\n}\n}\n")
	_, err := w.Write(out.Bytes())
	return err
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

func (r *Recording) names() []string {
	var names []string
	for _, k := range r.Space.Knobs {
		names = append(names, k.Name)
	}
	return names
}

func (r *Recording) params() orderedObject {
	var params orderedObject
	for _, k := range r.Space.Knobs {
		params = append(params, member{k.Name, k.Values})
	}
	return params
}

// key is the name of a variant in a cache: its values with commas.
func (r *Recording) key(p Point) string {
	var key []byte
	for i, v := range r.Space.Values(p) {
		if i > 0 {
			key = append(key, ',')
		}
		key = append(key, v.String()...)
	}
	return string(key)
}

func (r *Recording) cacheFields(e *Entry) orderedObject {
	var fields orderedObject
	for i, v := range r.Space.Values(e.Point) {
		fields = append(fields, member{r.Space.Knobs[i].Name, v})
	}
	if e.Failure != "" {
		fields = append(fields, member{r.Objective, cacheWord(e.Failure)})
	} else {
		fields = append(fields, member{r.Objective, e.Value})
	}
	if e.Times != nil {
		fields = append(fields, member{"times", e.Times})
	}
	fields = append(fields, member{"compile_time", e.Compile}, member{"verification_time", e.Verify},
		member{"benchmark_time", e.Benchmark}, member{"strategy_time", e.Search}, member{"framework_time", e.Framework})
	if e.Timestamp != "" {
		fields = append(fields, member{"timestamp", e.Timestamp})
	}
	return fields
}

// orderedObject is a JSON object whose keys have an order. Of two equal keys the first counts: a
// knob may be called time.
type orderedObject []member

type member struct {
	key   string
	value any
}

func (o orderedObject) MarshalJSON() ([]byte, error) {
	var out bytes.Buffer
	err := o.write(&out)
	return out.Bytes(), err
}

func (o orderedObject) write(out *bytes.Buffer) error {
	out.WriteByte('{')
	var keys []string
	for _, m := range o {
		if slices.Contains(keys, m.key) {
			continue
		}
		if len(keys) > 0 {
			out.WriteString(", ")
		}
		keys = append(keys, m.key)
		key, err := json.Marshal(m.key)
		if err != nil {
			return err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return fmt.Errorf("%s: %w", m.key, err)
		}
		out.Write(key)
		out.WriteString(": ")
		out.Write(value)
	}
	out.WriteByte('}')
	return nil
}
