package web

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"
)

// childVariable makes the test binary act as `attune run`. Its value says how the run ends.
const childVariable = "ATTUNE_WEB_TEST_CHILD"

// child writes what `attune run --json --progress` writes.
func child() int {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	fmt.Fprintln(os.Stderr, `{"message_type":"progress","entry":1,"entries":2,"name":"stage2","step":"correctness","done":3,"total":8,"share":0.25}`)
	fmt.Fprintln(os.Stderr, `{"message_type":"note","message":"a <b>note</b>"}`)
	fmt.Fprintln(os.Stderr, "a plain line")
	document := `{"schema_version":1,"runs":[{"id":"20261116-160615-stage2-448d06","variant":"stage2","verdict":"incorrect"}]}`
	switch os.Getenv(childVariable) {
	case "wait":
		select {
		case <-interrupted:
			return 130
		case <-time.After(20 * time.Second):
		}
	case "fail":
		fmt.Fprintln(os.Stderr, `{"message_type":"exit_error","code":20,"message":"no GPU"}`)
		return 20
	case "incorrect":
		fmt.Println(document)
		return 11
	}
	fmt.Println(document)
	return 0
}

// withChild makes a server start the test binary.
func withChild(t *testing.T, mode string) func(*Config) {
	return func(c *Config) {
		c.Command = func(r StartRequest) ([]string, error) {
			if r.Variants[0] == "unknown" {
				return nil, fmt.Errorf("unknown stage %q", r.Variants[0])
			}
			program, err := os.Executable()
			return append([]string{"/usr/bin/env", childVariable + "=" + mode, program}, r.Variants...), err
		}
	}
}

var signedIn = []string{"Authorization", "Bearer " + testToken, "Content-Type", "application/json"}

// decode reads a document.
func decode[T any](t *testing.T, w *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return v
}

// waitFor waits for the end of a job.
func waitFor(t *testing.T, s *Server, number int) Job {
	t.Helper()
	for range 1000 {
		if now, _, err := s.jobs.get(number); err != nil || now.State != jobRuns {
			return now
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the job does not end")
	return Job{}
}

// TestStartRun starts a run by the API and follows it to its end.
func TestStartRun(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"ok": jobFinished, "incorrect": jobFinished, "fail": jobFailed} {
		s := newServer(t, openLedger(t, t.TempDir()), withChild(t, mode))
		w := do(s, http.MethodPost, "/api/runs", `{"variants":["stage2"],"device":"sim"}`, signedIn...)
		if w.Code != http.StatusAccepted || w.Header().Get("Location") != "/api/jobs/1" {
			t.Fatalf("status %d, location %q: %s", w.Code, w.Header().Get("Location"), w.Body)
		}
		events := get(s, "/api/jobs/1/events").Body.String()
		if !strings.Contains(events, "event: done\n") {
			t.Errorf("%s: events %q", mode, events)
		}
		j := waitFor(t, s, 1)
		if j.State != want || j.Progress == nil || j.Progress.Share != 0.25 || j.Messages[0] != "a <b>note</b>" || j.Messages[1] != "a plain line" {
			t.Errorf("%s: job %+v", mode, j)
		}
		if mode != "fail" && (len(j.Runs) != 1 || j.Runs[0].Variant != "stage2") {
			t.Errorf("%s: runs %v", mode, j.Runs)
		}
		page := get(s, "/start?part=jobs").Body.String()
		if !strings.Contains(page, "a &lt;b&gt;note&lt;/b&gt;") || strings.Contains(page, "<html") {
			t.Errorf("%s: page %s", mode, page)
		}
	}
}

// TestOneJobAtATime starts a second run while one runs, and cancels it.
func TestOneJobAtATime(t *testing.T) {
	t.Parallel()
	s := newServer(t, openLedger(t, t.TempDir()), withChild(t, "wait"))
	const body = `{"variants":["stage2"]}`
	if w := do(s, http.MethodPost, "/api/runs", body, signedIn...); w.Code != http.StatusAccepted {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	if w := do(s, http.MethodPost, "/api/runs", body, signedIn...); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "job 1 runs") {
		t.Errorf("a second run: status %d: %s", w.Code, w.Body)
	}
	form := []string{"Cookie", tokenCookie + "=" + testToken, "Content-Type", "application/x-www-form-urlencoded"}
	if w := do(s, http.MethodPost, "/start", "variant=stage2&device=sim", form...); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "job 1 runs") {
		t.Errorf("a second run by the form: status %d", w.Code)
	}
	if w := do(s, http.MethodDelete, "/api/jobs/9", "", signedIn...); w.Code != http.StatusNotFound {
		t.Errorf("cancel another: status %d", w.Code)
	}
	for range 200 { // the child must be able to take the signal
		if j, _, _ := s.jobs.get(1); len(j.Messages) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if w := do(s, http.MethodPost, "/cancel", "job=1", form...); w.Code != http.StatusSeeOther {
		t.Errorf("cancel: status %d: %s", w.Code, w.Body)
	}
	if j := waitFor(t, s, 1); j.State != jobCancelled {
		t.Errorf("state %s", j.State)
	}
	if w := do(s, http.MethodDelete, "/api/jobs/1", "", signedIn...); w.Code != http.StatusConflict {
		t.Errorf("cancel again: status %d", w.Code)
	}
	if w := do(s, http.MethodPost, "/start", "variant=stage2", form...); w.Code != http.StatusSeeOther {
		t.Errorf("the next run: status %d: %s", w.Code, alert(w.Body.String()))
	}
	if list := decode[struct{ Jobs []Job }](t, get(s, "/api/jobs")); len(list.Jobs) != 2 || list.Jobs[0].Number != 2 {
		t.Errorf("jobs %+v", list.Jobs)
	}
	s.jobs.close()
	if j := waitFor(t, s, 2); j.State != jobCancelled {
		t.Errorf("a closed server leaves its job %s", j.State)
	}
}

// TestRefusedStarts sends requests that start nothing.
func TestRefusedStarts(t *testing.T) {
	t.Parallel()
	s := newServer(t, openLedger(t, t.TempDir()), withChild(t, "ok"))
	for body, status := range map[string]int{
		`{"variants":["unknown"]}`:      http.StatusBadRequest,
		`{"variants":["stage2"],"x":1}`: http.StatusBadRequest,
		`{"variants":"stage2"}`:         http.StatusBadRequest,
		`{"variants":["stage2"]}{}`:     http.StatusBadRequest,
		`{`:                             http.StatusBadRequest,
		``:                              http.StatusBadRequest,
		`{"variants":["` + strings.Repeat("x", maxBodyBytes) + `"]}`: http.StatusRequestEntityTooLarge,
	} {
		if w := do(s, http.MethodPost, "/api/runs", body, signedIn...); w.Code != status {
			t.Errorf("%.40s: status %d, want %d: %s", body, w.Code, status, w.Body)
		}
	}
	if w := do(s, http.MethodPost, "/api/runs", `{"variants":["stage2"]}`, "Authorization", "Bearer "+testToken, "Content-Type", "text/plain"); w.Code != http.StatusUnsupportedMediaType {
		t.Errorf("a plain text: status %d", w.Code)
	}
	if jobs := s.jobs.list(); len(jobs) > 0 {
		t.Errorf("jobs were started: %+v", jobs)
	}
	without := newServer(t, openLedger(t, t.TempDir()))
	if w := do(without, http.MethodPost, "/api/runs", `{"variants":["stage2"]}`, signedIn...); w.Code != http.StatusNotImplemented {
		t.Errorf("a server that starts nothing: status %d", w.Code)
	}
}

// event is a Server-Sent Event.
type event struct{ id, name, data string }

// readEvents parses a stream.
func readEvents(text string) []event {
	var all []event
	var e event
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "":
			if e.name != "" {
				all = append(all, e)
			}
			e = event{}
		}
	}
	return all
}
