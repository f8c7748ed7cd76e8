package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/ledger"
	"attune/internal/run"
)

// runningSearch makes the folder of a search that this process runs.
func runningSearch(t *testing.T, kept *ledger.Ledger) (id, folder string, unlock func()) {
	t.Helper()
	id = ledger.NewID(time.Now(), "softmax")
	folder, unlock, err := kept.StartTuning(id)
	if err != nil {
		t.Fatal(err)
	}
	search, err := json.Marshal(run.TuneSearch{SchemaVersion: 1, ID: id, Ahead: 1, Identity: run.TuneIdentity{
		Kernel: "softmax", Variant: "softmax", Objective: run.ObjectiveCost, Device: "sim", Strategy: "evo", Shapes: []string{"small"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(folder, run.TuneFile), search)
	writeFile(t, filepath.Join(folder, run.TuneJournal), []byte(`{"schema_version":1,"message_type":"search","search":"x"}`+"\n"))
	return id, folder, unlock
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// evaluate appends an evaluation to the journal of a search, and replaces its elites.
func evaluate(t *testing.T, folder string, number int, cost float64) {
	t.Helper()
	e := run.TuneEvaluation{Number: number, Variant: fmt.Sprintf("softmax+THREADS=%d", 32*number), Origin: "evo", Objective: run.ObjectiveCost, Cost: &cost, Best: true}
	if cost < 0 {
		e.Cost, e.Best, e.Failure = nil, false, run.FailedCompile
	}
	detail, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(folder, run.TuneJournal), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := fmt.Fprintf(file, `{"asked":%d,"detail":%s}`+"\n", number, detail); err != nil {
		t.Fatal(err)
	}
	elites, err := json.Marshal(run.TuneElites{SchemaVersion: 1, ID: "x", Objective: e.Objective, Unit: "cycles", Evaluations: number, Default: e, Elites: []run.TuneEvaluation{e}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(folder, run.TuneEliteFile), elites)
}

// connect opens the event stream of a search over a connection.
func connect(t *testing.T, s *Server, id, last string) (next func() event, disconnect func()) {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	request := httptest.NewRequest("GET", server.URL+"/api/tunings/"+id+"/events", nil).WithContext(ctx)
	request.RequestURI = ""
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("status %d, type %q", response.StatusCode, kind)
	}
	events := make(chan event)
	go func() {
		defer close(events)
		var text strings.Builder
		buffer := make([]byte, 4096)
		for {
			n, err := response.Body.Read(buffer)
			text.Write(buffer[:n])
			for {
				whole, rest, ok := strings.Cut(text.String(), "\n\n")
				if !ok {
					break
				}
				text.Reset()
				text.WriteString(rest)
				for _, e := range readEvents(whole + "\n\n") {
					events <- e
				}
			}
			if err != nil {
				return
			}
		}
	}()
	next = func() event {
		t.Helper()
		select {
		case e := <-events:
			return e
		case <-time.After(10 * time.Second):
			t.Fatal("no event within 10 s")
			return event{}
		}
	}
	return next, func() {
		cancel()
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
}

// TestLiveSearch follows a search: each evaluation is an event, a client that reconnects gets those it
// has missed, and the end is an event too.
func TestLiveSearch(t *testing.T) {
	t.Parallel()
	kept := openLedger(t, t.TempDir())
	s := newServer(t, kept)
	id, folder, unlock := runningSearch(t, kept)
	evaluate(t, folder, 1, 200)
	next, disconnect := connect(t, s, id, "")
	first := next()
	if first.name != "progress" || first.id != "2" || !strings.Contains(first.data, `"evaluations":1`) {
		t.Errorf("first event %+v", first)
	}
	if e := next(); e.name != "elite" || !strings.Contains(e.data, "THREADS=32") {
		t.Errorf("second event %+v", e)
	}
	evaluate(t, folder, 2, 100)
	second := next()
	if !strings.Contains(second.data, `"gain":2`) || !strings.Contains(second.data, `"best":"softmax+THREADS=64"`) {
		t.Errorf("event after a new best %+v", second)
	}
	disconnect()
	evaluate(t, folder, 3, -1)
	evaluate(t, folder, 4, 50)
	next, disconnect = connect(t, s, id, second.id)
	defer disconnect()
	if e := next(); !strings.Contains(e.data, `"evaluations":3`) || !strings.Contains(e.data, `"failed":1`) {
		t.Errorf("the first event after a reconnection is %+v", e)
	}
	if e := next(); !strings.Contains(e.data, `"gain":4`) {
		t.Errorf("the second event after a reconnection is %+v", e)
	}
	page := get(s, "/tunings/"+id).Body.String()
	for _, want := range []string{`data-events="/api/tunings/` + id, "4, 1 failed", "default over best 4.000x", "new best", "attune-plot", "running"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of a running search lacks %q", want)
		}
	}
	unlock()
	for e := next(); e.name != "done"; e = next() {
		if e.name != "elite" {
			t.Errorf("event %+v", e)
		}
	}
	if page := get(s, "/tunings/"+id+"?part=live").Body.String(); !strings.Contains(page, "interrupted") || strings.Contains(page, "<html") {
		t.Error("the part of an interrupted search")
	}
}

// TestFinishedSearchHasNoEvents answers at once for a search that is recorded.
func TestFinishedSearchHasNoEvents(t *testing.T) {
	t.Parallel()
	s := newServer(t, published(t))
	events := readEvents(get(s, "/api/tunings/20261117-075034-rmsnorm-64bd56/events").Body.String())
	if len(events) != 1 || events[0].name != "done" || !strings.Contains(events[0].data, "finished") {
		t.Errorf("events %+v", events)
	}
}

// TestSelectionSearch shows the searches of a selection that is being tuned.
func TestSelectionSearch(t *testing.T) {
	t.Parallel()
	kept := openLedger(t, t.TempDir())
	s := newServer(t, kept)
	id := ledger.NewID(time.Now(), "stage7")
	folder, unlock, err := kept.StartTuning(id)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	writeFile(t, filepath.Join(folder, run.SelectionFile), []byte(`{"schema_version":1,"selection":"stage7","shapes":["a","b"]}`))
	for _, part := range []string{"1", "2"} {
		if err := os.Mkdir(filepath.Join(folder, part), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(folder, part, run.TuneJournal), []byte("{}\n"))
		evaluate(t, filepath.Join(folder, part), 1, 10)
	}
	if page := get(s, "/tunings/"+id).Body.String(); !strings.Contains(page, "selection stage7") || !strings.Contains(page, "2, 0 failed") {
		t.Errorf("the page: %s", page)
	}
	next, disconnect := connect(t, s, id, "")
	defer disconnect()
	next()
	if e := next(); e.id != "2.2" || e.name != "progress" {
		t.Errorf("event %+v", e)
	}
}

// TestStreamsAreLimited opens more streams than the server has.
func TestStreamsAreLimited(t *testing.T) {
	t.Parallel()
	s := newServer(t, published(t))
	for range maxStreams {
		s.streams <- struct{}{}
	}
	if w := get(s, "/api/tunings/20261117-075034-rmsnorm-64bd56/events"); w.Code != 503 {
		t.Errorf("status %d", w.Code)
	}
}

// TestLinkedSearchFiles shows nothing of files outside that links in the folder of a search lead to.
func TestLinkedSearchFiles(t *testing.T) {
	t.Parallel()
	kept := openLedger(t, t.TempDir())
	s := newServer(t, kept)
	id, folder, unlock := runningSearch(t, kept)
	defer unlock()
	evaluate(t, folder, 1, 200)
	outside := filepath.Join(t.TempDir(), "secret.json")
	elite, journals := filepath.Join(folder, "elite.json"), filepath.Join(folder, "part")
	if err := os.WriteFile(outside, []byte(`{"elites":[{"variant":"secret"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(elite); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Symlink(outside, elite), os.Symlink(filepath.Dir(outside), journals)); err != nil {
		t.Fatal(err)
	}
	if _, ok := readElites(folder); ok {
		t.Error("the elites behind a link are read")
	}
	for _, path := range []string{"/tunings/" + id, "/api/tunings/" + id} {
		if body := get(s, path).Body.String(); strings.Contains(body, "secret") {
			t.Errorf("%s shows what is behind a link", path)
		}
	}
}
