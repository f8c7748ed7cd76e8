package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/device"
	"attune/internal/fleet"
	"attune/internal/lab"
	"attune/internal/run"
	"attune/internal/tune"
	"attune/internal/tuner"
)

// here is a fleet in this process with a bench.
func here(t *testing.T, b *Bench) *fleet.Coordinator {
	t.Helper()
	h, err := fleet.StartHere(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	if err := h.Start(t.Context(), &fleet.Worker{Name: "one", Class: "sim", Do: b.Do}); err != nil {
		t.Fatal(err)
	}
	return h.Coordinator
}

// TestRehearse sleeps as long as recorded, and returns the recorded result.
func TestRehearse(t *testing.T) {
	t.Parallel()
	s := &Searcher{Fleet: here(t, &Bench{}), Class: "sim", Flight: 3}
	began := time.Now()
	found, err := s.Rehearse(t.Context(), Rehearsal{Point: tune.Point{1}, Result: tune.Result{Cost: 4}, Sleep: 200 * time.Millisecond, Search: "a"})
	if err != nil || found.Cost != 4 || time.Since(began) < 200*time.Millisecond || s.InFlight() != 3 {
		t.Errorf("%+v after %s: %v", found, time.Since(began), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rehearse(ctx, Rehearsal{Sleep: time.Hour}, func() {}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled rehearsal: %v", err)
	}
}

// TestCommands runs a command on a worker, and writes its record into a folder and nowhere else.
func TestCommands(t *testing.T) {
	t.Parallel()
	var ran []string
	b := &Bench{Version: "1", Cache: t.TempDir(), Command: func(_ context.Context, folder string, c Command, progress func()) (*Outcome, error) {
		ran = append(ran, folder+strings.Join(c.Args, " "))
		progress()
		return &Outcome{Exit: 3, Output: json.RawMessage(`{"a":1}`), Files: map[string][]byte{"runs/x/run.json": []byte("record")}}, nil
	}}
	c := &Commands{Fleet: here(t, b), Class: "sim", Setting: Setting{Version: "1"}}
	found, err := c.Do(t.Context(), Command{Args: []string{"run", "stage2"}})
	if err != nil || found.Exit != 3 || string(found.Output) != `{"a":1}` || len(ran) != 1 {
		t.Fatalf("%+v, %q: %v", found, ran, err)
	}
	folder := t.TempDir()
	if err := found.Write(t.Context(), c.Fleet.Objects(), folder); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(folder, "runs/x/run.json")); err != nil || string(text) != "record" {
		t.Errorf("the record is %q: %v", text, err)
	}
	hash := found.Record["runs/x/run.json"]
	for _, name := range []string{"../out", "/out", "a/../../out"} {
		if err := (&Outcome{Record: map[string]string{name: hash}}).Write(t.Context(), c.Fleet.Objects(), folder); err == nil || !strings.Contains(err.Error(), "the record has a file") {
			t.Errorf("%s is written: %v", name, err)
		}
	}
	if err := (&Outcome{Record: map[string]string{"x": strings.Repeat("0", 64)}}).Write(t.Context(), c.Fleet.Objects(), folder); err == nil {
		t.Error("a record without its file is written")
	}
	if err := found.Write(t.Context(), c.Fleet.Objects(), filepath.Join(folder, "none")); err == nil {
		t.Error("a folder that is not there")
	}
	for _, args := range [][]string{{"serve"}, {"worker"}, {}} {
		if _, err := c.Do(t.Context(), Command{Args: args}); err == nil || !strings.Contains(err.Error(), "a fleet does not run") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestFailures tells what the kernel or the request does from what the machine does.
func TestFailures(t *testing.T) {
	t.Parallel()
	var machineError *fleet.MachineError
	for _, test := range []struct {
		err     error
		machine bool
	}{
		{nil, false},
		{lab.RequestError("no such shape"), false},
		{fmt.Errorf("x: %w", &lab.WrongError{}), false},
		{&device.Crash{How: "signal: killed"}, false},
		{errors.New("no space left on device"), true},
	} {
		if got := errors.As(machine(t.Context(), test.err), &machineError); got != test.machine {
			t.Errorf("%v: of the machine is %t", test.err, got)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := machine(ended, errors.New("x")); errors.As(err, &machineError) {
		t.Error("a cancelled job is a failure of the machine")
	}
	b := &Bench{Version: "1", Lab: func(context.Context, string) (*lab.Lab, error) { return nil, errors.New("no compiler") }}
	job := func(kind, body string) fleet.Job {
		return fleet.Job{Class: "sim", Kind: kind, Body: json.RawMessage(body)}
	}
	for _, test := range []struct {
		job     fleet.Job
		want    string
		machine bool
	}{
		{job("later", `{}`), "no jobs of the kind later", true},
		{job(KindEvaluate, `{"version":"2"}`), "the kernel of attune 2 is asked for; this is 1", true},
		{job(KindFinals, `{"version":"2"}`), "the kernel of attune 2 is asked for", true},
		{job(KindCommand, `{"version":"2","args":["run"]}`), "the kernel of attune 2 is asked for", true},
		{job(KindEvaluate, `{"version":"1"}`), "no compiler", true},
		{job(KindEvaluate, `[]`), "cannot unmarshal", false},
		{job(KindFinals, `[]`), "cannot unmarshal", false},
		{job(KindCommand, `[]`), "cannot unmarshal", false},
		{job(KindRehearse, `[]`), "cannot unmarshal", false},
	} {
		_, err := b.Do(t.Context(), &test.job, &shelf{}, func() {})
		if err == nil || !strings.Contains(err.Error(), test.want) || errors.As(err, &machineError) != test.machine {
			t.Errorf("%s %s: %v, want %q, of the machine %t", test.job.Kind, test.job.Body, err, test.want, test.machine)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestSearcher names the variant and the finals in an error.
func TestSearcher(t *testing.T) {
	t.Parallel()
	b := &Bench{Version: "1", Lab: func(context.Context, string) (*lab.Lab, error) { return nil, lab.RequestError("no such kernel") }}
	s := &Searcher{Fleet: here(t, b), Class: "sim", Setting: Setting{Version: "1"}}
	if _, err := s.Evaluate(t.Context(), tuner.Trial{Variant: "v+A=1"}); err == nil || err.Error() != "v+A=1: one: no such kernel" {
		t.Errorf("an evaluation: %v", err)
	}
	if _, err := s.Conclude(t.Context(), tuner.Finals{Candidates: []run.TuneEvaluation{}}); err == nil || err.Error() != "the finals: one: no such kernel" {
		t.Errorf("the finals: %v", err)
	}
}
