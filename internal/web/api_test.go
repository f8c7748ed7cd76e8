package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"attune/internal/gate"
)

// description is what the tests read of openapi.json.
type description struct {
	OpenAPI    string                          `json:"openapi"`
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas   map[string]any      `json:"schemas"`
		Responses map[string]response `json:"responses"`
	} `json:"components"`
}

type operation struct {
	Summary    string              `json:"summary"`
	Parameters []parameter         `json:"parameters"`
	Responses  map[string]response `json:"responses"`
}

type parameter struct {
	Name   string `json:"name"`
	In     string `json:"in"`
	Schema struct {
		Enum []gate.Verdict `json:"enum"`
	} `json:"schema"`
}

type response struct {
	Ref     string `json:"$ref"`
	Content map[string]struct {
		Schema any `json:"schema"`
	} `json:"content"`
}

func readDescription(t *testing.T, s *Server) description {
	t.Helper()
	return decode[description](t, get(s, "/api/openapi.json"))
}

// TestEveryRouteIsDescribed compares the routes below /api with the description, both ways.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	s := newServer(t, openLedger(t, t.TempDir()))
	d := readDescription(t, s)
	if !strings.HasPrefix(d.OpenAPI, "3.1") {
		t.Errorf("version %q", d.OpenAPI)
	}
	described := map[string]bool{}
	for path, operations := range d.Paths {
		for method, o := range operations {
			described[strings.ToUpper(method)+" "+path] = true
			if o.Summary == "" || len(o.Responses) < 2 {
				t.Errorf("%s %s has no summary, or no answers for errors", method, path)
			}
			for _, name := range []string{"id", "number"} {
				inPath := strings.Contains(path, "{"+name+"}")
				given := slices.ContainsFunc(o.Parameters, func(p parameter) bool { return p.Name == name && p.In == "path" })
				if inPath != given {
					t.Errorf("%s %s: the parameter %s is not described", method, path, name)
				}
			}
		}
	}
	for pattern := range s.routes() {
		if _, path, ok := strings.Cut(pattern, " "); ok && strings.HasPrefix(path, "/api/") && !described[pattern] {
			t.Errorf("%s is not described", pattern)
		}
	}
	for route := range described {
		if s.routes()[route] == nil {
			t.Errorf("%s is described, and there is no such route", route)
		}
	}
}

// TestRunParametersAreDescribed compares the parameters and verdicts that the list of runs accepts with
// the description.
func TestRunParametersAreDescribed(t *testing.T) {
	t.Parallel()
	d := readDescription(t, newServer(t, openLedger(t, t.TempDir())))
	var names []string
	for _, p := range d.Paths["/api/runs"]["get"].Parameters {
		names = append(names, p.Name)
		if p.Name == "verdict" && !slices.Equal(p.Schema.Enum, gate.Verdicts) {
			t.Errorf("verdicts %q are described, want %q", p.Schema.Enum, gate.Verdicts)
		}
	}
	if !slices.Equal(names, runParameters) {
		t.Errorf("parameters %q are described, want %q", names, runParameters)
	}
}

// TestResponsesMatchTheirSchemas requests every kind of document of the published ledger.
func TestResponsesMatchTheirSchemas(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	t.Parallel()
	kept := published(t)
	s := newServer(t, kept, withChild(t, "ok"))
	d := readDescription(t, s)
	_, folder, unlock := runningSearch(t, kept)
	defer unlock()
	evaluate(t, folder, 1, 10)
	l, err := s.records.now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if w := do(s, http.MethodPost, "/api/runs", `{"variants":["stage2"]}`, signedIn...); w.Code == http.StatusAccepted {
		d.check(t, "/api/runs", "post", w.Code, w.Body.Bytes())
	} else {
		t.Errorf("start: status %d: %s", w.Code, w.Body)
	}
	waitFor(t, s, 1)
	d.request(t, s, "/api/openapi.json", "/api/openapi.json")
	d.request(t, s, "/api/runs", "/api/runs")
	d.request(t, s, "/api/runs", "/api/runs?verdict=merge&limit=3")
	d.request(t, s, "/api/runs", "/api/runs?limit=x")
	d.request(t, s, "/api/ladder", "/api/ladder")
	d.request(t, s, "/api/champions", "/api/champions")
	d.request(t, s, "/api/compare", "/api/compare?a="+l.ladder[2].ID+"&b="+l.ladder[4].ID)
	d.request(t, s, "/api/compare", "/api/compare?shapes=all&a="+l.ladder[2].ID+"&b="+l.ladder[4].ID)
	d.request(t, s, "/api/compare", "/api/compare?a=x&b=y")
	d.request(t, s, "/api/benches", "/api/benches")
	d.request(t, s, "/api/tunings", "/api/tunings")
	d.request(t, s, "/api/fleet", "/api/fleet")
	d.request(t, s, "/api/jobs", "/api/jobs")
	d.request(t, s, "/api/jobs/{number}", "/api/jobs/1")
	d.request(t, s, "/api/jobs/{number}", "/api/jobs/2")
	for _, e := range l.entries {
		d.request(t, s, "/api/runs/{id}", "/api/runs/"+e.ID)
	}
	for _, b := range l.benches {
		d.request(t, s, "/api/benches/{id}", "/api/benches/"+b.ID)
	}
	for _, e := range l.tunings {
		d.request(t, s, "/api/tunings/{id}", "/api/tunings/"+e.ID)
	}
	d.request(t, s, "/api/tunings/{id}", "/api/tunings/x")
	w := do(s, http.MethodDelete, "/api/jobs/1", "", signedIn...)
	d.check(t, "/api/jobs/{number}", "delete", w.Code, w.Body.Bytes())
}

// TestEventsMatchTheirSchemas follows a search and a job.
func TestEventsMatchTheirSchemas(t *testing.T) {
	t.Parallel()
	kept := openLedger(t, t.TempDir())
	s := newServer(t, kept, withChild(t, "ok"))
	d := readDescription(t, s)
	id, folder, unlock := runningSearch(t, kept)
	evaluate(t, folder, 1, 10)
	unlock()
	do(s, http.MethodPost, "/api/runs", `{"variants":["stage2"]}`, signedIn...)
	schemas := map[string]string{"progress": "SearchProgress", "elite": "Elites", "done": "SearchDone"}
	events := readEvents(get(s, "/api/tunings/"+id+"/events").Body.String())
	if len(events) != 3 {
		t.Errorf("events %+v", events)
	}
	for _, e := range events {
		d.validate(t, e.name, map[string]any{"$ref": "#/components/schemas/" + schemas[e.name]}, []byte(e.data))
	}
	for _, e := range readEvents(get(s, "/api/jobs/1/events").Body.String()) {
		d.validate(t, "job "+e.name, map[string]any{"$ref": "#/components/schemas/Job"}, []byte(e.data))
	}
}

// request gets an address and compares the answer with the schema of its path.
func (d description) request(t *testing.T, s *Server, path, address string) {
	t.Helper()
	w := get(s, address)
	d.check(t, path, "get", w.Code, w.Body.Bytes())
}

func (d description) check(t *testing.T, path, method string, status int, body []byte) {
	t.Helper()
	o := d.Paths[path][method]
	r, ok := o.Responses[fmt.Sprint(status)]
	if !ok {
		r = o.Responses["default"]
	}
	if r.Ref != "" {
		r = d.Components.Responses[strings.TrimPrefix(r.Ref, "#/components/responses/")]
	}
	content, ok := r.Content["application/json"]
	if !ok {
		t.Fatalf("%s %s: no schema for status %d", method, path, status)
	}
	d.validate(t, fmt.Sprintf("%s %s, status %d", method, path, status), content.Schema, body)
}

func (d description) validate(t *testing.T, what string, schema any, text []byte) {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, problem := range d.problems(schema.(map[string]any), value, "") {
		t.Errorf("%s: %s", what, problem)
	}
}

// problems are the places in which a value differs from a schema. It knows the keywords that
// openapi.json uses, and fails on others.
func (d description) problems(schema map[string]any, value any, at string) (all []string) {
	for key, want := range schema {
		switch key {
		case "description", "minimum", "properties", "items":
		case "$ref":
			name := strings.TrimPrefix(want.(string), "#/components/schemas/")
			target, ok := d.Components.Schemas[name].(map[string]any)
			if !ok {
				return []string{at + ": there is no schema " + name}
			}
			all = append(all, d.problems(target, value, at)...)
		case "type":
			if !hasType(value, want) {
				return []string{fmt.Sprintf("%s is %v, want %v", at, value, want)}
			}
		case "const":
			if !reflect.DeepEqual(value, want) {
				all = append(all, fmt.Sprintf("%s is %v, want %v", at, value, want))
			}
		case "enum":
			if !slices.Contains(want.([]any), value) {
				all = append(all, fmt.Sprintf("%s is %v, want one of %v", at, value, want))
			}
		case "format":
			if text, _ := value.(string); want == "date-time" {
				if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
					all = append(all, fmt.Sprintf("%s: %v", at, err))
				}
			}
		case "required":
			object, _ := value.(map[string]any)
			for _, name := range want.([]any) {
				if _, ok := object[name.(string)]; !ok {
					all = append(all, fmt.Sprintf("%s has no %s", at, name))
				}
			}
		case "oneOf":
			all = append(all, d.oneOf(want.([]any), value, at)...)
		case "additionalProperties":
		default:
			all = append(all, "this test does not know the keyword "+key)
		}
	}
	return append(all, d.children(schema, value, at)...)
}

func (d description) oneOf(schemas []any, value any, at string) []string {
	matched := 0
	var reasons []string
	for _, s := range schemas {
		problems := d.problems(s.(map[string]any), value, at)
		if len(problems) == 0 {
			matched++
		}
		reasons = append(reasons, problems...)
	}
	if matched != 1 {
		return []string{fmt.Sprintf("%s matches %d of %d schemas: %v", at, matched, len(schemas), reasons)}
	}
	return nil
}

// children checks the values of an object or an array.
func (d description) children(schema map[string]any, value any, at string) (all []string) {
	switch value := value.(type) {
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		for name, v := range value {
			if s, ok := properties[name].(map[string]any); ok {
				all = append(all, d.problems(s, v, at+"."+name)...)
			}
		}
	case []any:
		items, ok := schema["items"].(map[string]any)
		for i, v := range value {
			if ok {
				all = append(all, d.problems(items, v, fmt.Sprintf("%s[%d]", at, i))...)
			}
		}
	}
	return all
}

func hasType(value, want any) bool {
	if several, ok := want.([]any); ok {
		return slices.ContainsFunc(several, func(w any) bool { return hasType(value, w) })
	}
	switch v := value.(type) {
	case nil:
		return want == "null"
	case string:
		return want == "string"
	case bool:
		return want == "boolean"
	case float64:
		return want == "number" || want == "integer" && v == float64(int64(v))
	case []any:
		return want == "array"
	}
	return want == "object"
}

// TestSchemaCheckerFails shows that the checker above finds what is wrong.
func TestSchemaCheckerFails(t *testing.T) {
	t.Parallel()
	s := newServer(t, openLedger(t, t.TempDir()))
	d := readDescription(t, s)
	for text, want := range map[string]string{
		`{}`: "has no schema_version",
		`{"schema_version":2,"runs":[],"tunings":[],"unfinished_tunings":[]}`:   "is 2, want 1",
		`{"schema_version":1,"runs":{},"tunings":[],"unfinished_tunings":[]}`:   "want array",
		`{"schema_version":1,"runs":[{}],"tunings":[],"unfinished_tunings":[]}`: "runs[0] has no id",
	} {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		problems := strings.Join(d.problems(map[string]any{"$ref": "#/components/schemas/History"}, value, ""), "\n")
		if !strings.Contains(problems, want) {
			t.Errorf("%s: problems %q, want %q", text, problems, want)
		}
	}
}
