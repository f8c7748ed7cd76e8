//go:build !nobrowser

package web

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"attune/internal/fleet"
)

// crowd is a fleet with every kind of entry: texts of others are hostile.
func crowd() *fleet.Status {
	now := time.Now()
	return &fleet.Status{
		SchemaVersion: 1, Server: "nats://127.0.0.1:4222",
		Classes: []fleet.ClassStatus{{Class: "nvidia-h200-3f2a91c0", Workers: 2, Running: 1, Waiting: 7}, {Class: "sim", Workers: 1}},
		Workers: []fleet.WorkerState{
			{Protocol: 1, Name: "gpu7", Class: "nvidia-h200-3f2a91c0", Since: now.Add(-time.Minute), Job: "evaluate 0123456789ab", Started: now.Add(-3 * time.Second), Done: 41, Up: 60, Running: 3, Busy: 30},
			{Protocol: 1, Name: "gpu8", Class: "nvidia-h200-3f2a91c0", Since: now, Failed: 2, Problem: "<script>alert(1)</script>", Draining: true},
			{Protocol: 1, Name: "sim-1", Class: "sim", Since: now},
		},
		Dead: []fleet.DeadLetter{{Job: fleet.Job{Class: "sim", Kind: "evaluate"}, Key: strings.Repeat("3f", 32), Reason: "3 workers were lost on it", Time: now}},
	}
}

// withFleet makes a server that of a fleet.
func withFleet(state *fleet.Status, err error) func(*Config) {
	return func(c *Config) {
		c.Fleet = func(ctx context.Context) (*fleet.Status, error) {
			if _, limited := ctx.Deadline(); !limited {
				return nil, errors.New("a page waits without limit")
			}
			return state, err
		}
	}
}

// TestFleetPage shows classes, workers, the queue and dead letters, and the part that is asked for again.
func TestFleetPage(t *testing.T) {
	t.Parallel()
	s := newServer(t, openLedger(t, filepath.Join(t.TempDir(), "none")), withFleet(crowd(), nil))
	page, part := get(s, "/fleet").Body.String(), get(s, "/fleet?part=live").Body.String()
	for _, want := range []string{"nvidia-h200-3f2a91c0", ">7<", "evaluate 0123456789ab", "50 %", "ends", "3 workers were lost on it", "3f3f3f3f3f3f", "&lt;script&gt;alert"} {
		if !strings.Contains(page, want) || !strings.Contains(part, want) {
			t.Errorf("the page or its part does not contain %q", want)
		}
	}
	if !strings.Contains(page, `data-part="/fleet?part=live"`) || !strings.Contains(page, `<noscript><meta http-equiv="refresh"`) {
		t.Error("the page is not live")
	}
	if strings.Contains(part, "<html") || strings.Contains(page, "<script>alert") {
		t.Error("the part is a page, or a text is not escaped")
	}
	if strings.Contains(get(s, "/runs").Body.String(), "http-equiv") {
		t.Error("every page is loaded again")
	}
}

// TestFleetAPI returns the document of attune fleet status, or why there is none.
func TestFleetAPI(t *testing.T) {
	t.Parallel()
	kept := openLedger(t, t.TempDir())
	s := newServer(t, kept, withFleet(crowd(), nil))
	d := readDescription(t, s)
	d.request(t, s, "/api/fleet", "/api/fleet")
	found := decode[fleet.Status](t, get(s, "/api/fleet"))
	if len(found.Workers) != 3 || found.Classes[0].Waiting != 7 || found.Dead[0].Reason != crowd().Dead[0].Reason {
		t.Errorf("the document is %+v", found)
	}
	silent := newServer(t, kept, withFleet(nil, errors.New("nats: timeout")))
	for _, path := range []string{"/fleet", "/api/fleet", "/fleet?part=live"} {
		if w := get(silent, path); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "does not answer: nats: timeout") {
			t.Errorf("%s: status %d: %s", path, w.Code, w.Body)
		}
	}
	if w := get(newServer(t, kept), "/api/fleet"); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "attune serve --fleet") {
		t.Errorf("without a fleet: status %d: %s", w.Code, w.Body)
	}
}

// TestBrowserFleet follows the fleet: a worker that joins appears without a reload.
func TestBrowserFleet(t *testing.T) {
	states := make(chan *fleet.Status, 1)
	states <- crowd()
	_, b := browse(t, published, func(c *Config) {
		c.Fleet = func(context.Context) (*fleet.Status, error) {
			state := <-states
			states <- state
			return state, nil
		}
	})
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		b.open("/fleet")
		for _, text := range value[[]string](b, contrastScript) {
			t.Errorf("%s: contrast %s", theme, text)
		}
	}
	checkLayout(t, b, "/fleet")
	value[any](b, `window.loaded = true`)
	next := crowd()
	next.Workers = append(slices.Clone(next.Workers), fleet.WorkerState{Protocol: 1, Name: "late", Class: "sim", Since: time.Now()})
	<-states
	states <- next
	b.until(`document.querySelector("#live").textContent.includes("late")`, 10*time.Second)
	if !value[bool](b, `window.loaded === true`) {
		t.Error("the page was loaded again")
	}
	b.check("/fleet")
}
