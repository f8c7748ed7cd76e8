package tune

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// t4Result is one result of a T4 file. The schema calls the time of compilation "compilation_time";
// published files call it "compilation".
type t4Result struct {
	Timestamp     string          `json:"timestamp"`
	Configuration json.RawMessage `json:"configuration"`
	Times         struct {
		Compilation     float64   `json:"compilation"`
		CompilationTime float64   `json:"compilation_time"`
		Benchmark       float64   `json:"benchmark"`
		Framework       float64   `json:"framework"`
		Search          float64   `json:"search_algorithm"`
		Validation      float64   `json:"validation"`
		Runtimes        []float64 `json:"runtimes"`
	} `json:"times"`
	Invalidity   Failure `json:"invalidity"`
	Measurements []struct {
		Name  string          `json:"name"`
		Value json.RawMessage `json:"value"`
	} `json:"measurements"`
	Objectives []string `json:"objectives"`
}

// t4Metadata has what T4 has no fields for, in the words of Kernel Tuner's caches.
type t4Metadata struct {
	TimeUnit string `json:"timeunit"`
	Kernel   string `json:"kernel_name,omitempty"`
	Device   string `json:"device_name,omitempty"`
}

const t4Correct Failure = "correct"

// fromT4 reads T4 results. They do not list the values of the knobs, which are those that occur.
func fromT4(file *object) (*recorder, error) {
	var results []t4Result
	if err := json.Unmarshal(file.fields["results"], &results); err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("%w: the file has no results", ErrEmpty)
	}
	for i := range results {
		if results[i].Configuration == nil {
			return nil, fmt.Errorf("result %d has no configuration, the values of its knobs", i+1)
		}
	}
	first, err := pairs(results[0].Configuration)
	if err != nil {
		return nil, fmt.Errorf("result 1: configuration: %w", err)
	}
	var names []string
	for _, p := range first {
		names = append(names, p.key)
	}
	r := newRecorder(names)
	r.sorted, r.Objective = true, "time"
	var about t4Metadata
	_ = json.Unmarshal(file.fields["metadata"], &about) // texts for people
	r.Kernel, r.Device = about.Kernel, about.Device
	if len(results[0].Objectives) > 0 {
		r.Objective = results[0].Objectives[0]
	}
	for i := range results {
		if err := r.t4Entry(&results[i]); err != nil {
			return nil, fmt.Errorf("result %d: %w", i+1, err)
		}
	}
	return r, nil
}

func (r *recorder) t4Entry(result *t4Result) error {
	var configuration map[string]literal
	if err := json.Unmarshal(result.Configuration, &configuration); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	t := result.Times
	e := Entry{
		Point: make(Point, len(r.knobs)), Times: t.Runtimes, Timestamp: result.Timestamp,
		Compile: max(t.Compilation, t.CompilationTime), Verify: t.Validation, Benchmark: t.Benchmark, Framework: t.Framework, Search: t.Search,
	}
	for i, knob := range r.knobs {
		v, ok := configuration[knob.Name]
		if !ok {
			return fmt.Errorf("it has no value of %q", knob.Name)
		}
		var err error
		if e.Point[i], err = r.add(i, v); err != nil {
			return err
		}
	}
	if e.Benchmark == 0 {
		for _, x := range e.Times {
			e.Benchmark += x
		}
	}
	// The validity decides: published files have failed results with runtimes.
	if e.Failure = result.Invalidity; e.Failure == t4Correct {
		if e.Value, e.Failure = result.objective(r.Objective); e.Failure != "" && len(e.Times) > 0 {
			return fmt.Errorf("it has no measurement %q", r.Objective)
		}
	}
	r.Entries = append(r.Entries, e)
	return nil
}

// objective finds the measurement of the objective. A time that is not among the measurements is
// the mean of the launches.
func (result *t4Result) objective(name string) (float64, Failure) {
	for _, m := range result.Measurements {
		if m.Name == name {
			return outcome(m.Value)
		}
	}
	if n := len(result.Times.Runtimes); n > 0 && name == "time" {
		sum := 0.0
		for _, x := range result.Times.Runtimes {
			sum += x
		}
		return sum / float64(n), ""
	}
	return 0, FailedRuntime
}

// WriteT4 writes the recording as T4 results.
func (r *Recording) WriteT4(w io.Writer) error {
	results := make([]orderedObject, len(r.Entries))
	for i := range r.Entries {
		results[i] = r.t4Object(&r.Entries[i])
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	return encoder.Encode(orderedObject{
		{"metadata", t4Metadata{"milliseconds", r.Kernel, r.Device}}, {"schema_version", "1.0.0"}, {"results", results},
	})
}

func (r *Recording) t4Object(e *Entry) orderedObject {
	var configuration orderedObject
	for i, v := range r.Space.Values(e.Point) {
		configuration = append(configuration, member{r.Space.Knobs[i].Name, v})
	}
	invalidity, correct, value := t4Correct, 1, any(e.Value)
	if e.Failure != "" {
		invalidity, correct, value = e.Failure, 0, cacheWord(e.Failure)
		if !slices.Contains([]Failure{FailedCompile, FailedRuntime, FailedCorrectness, FailedConstraints, FailedTimeout}, e.Failure) {
			invalidity = FailedRuntime
		}
	}
	unit := ""
	if r.Objective == "time" {
		unit = "ms"
	}
	runtimes := e.Times
	if runtimes == nil {
		runtimes = []float64{}
	}
	o := orderedObject{
		{"configuration", configuration},
		{"times", orderedObject{
			{"compilation", e.Compile},
			{"benchmark", e.Benchmark},
			{"framework", e.Framework},
			{"search_algorithm", e.Search},
			{"validation", e.Verify},
			{"runtimes", runtimes},
		}},
		{"invalidity", string(invalidity)},
		{"correctness", correct},
		{"measurements", []orderedObject{{{"name", r.Objective}, {"value", value}, {"unit", unit}}}},
		{"objectives", []string{r.Objective}},
	}
	if e.Timestamp != "" {
		o = append(orderedObject{{"timestamp", e.Timestamp}}, o...)
	}
	return o
}
