package tune

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"
	"time"
)

// drivenSpace has 12 variants; the cost of a point is known.
func drivenSpace(t *testing.T) *Space {
	t.Helper()
	space, err := NewSpace("driven", []Knob{ints("A", 1, 2, 4, 8), ints("B", 1, 2, 3)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return space
}

func driven(t *testing.T, strategy, journal string, ahead, budget int, evaluate func(context.Context, Point) (Result, error)) (*Search, error) {
	t.Helper()
	s, err := NewSearch(drivenSpace(t), strategy, "test", Options{Seed: 7})
	if err == nil && journal != "" {
		err = s.Create(journal, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s, s.Drive(t.Context(), budget, ahead, evaluate, func(int) {})
}

// TestDrive evaluates as many candidates at a time as are allowed. The search does not depend on which is done
// first, but on how many are in flight.
func TestDrive(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int32
	evaluator := func(order time.Duration) func(context.Context, Point) (Result, error) {
		return func(_ context.Context, p Point) (Result, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			delay := time.Duration(p[0]*3+p[1]) * time.Millisecond
			if order < 0 {
				delay = 12*time.Millisecond - delay
			}
			time.Sleep(delay)
			return Result{Cost: float64(10 + p[0] - p[1])}, nil
		}
	}
	for _, strategy := range []string{"evo", "random"} {
		a, err := driven(t, strategy, "", 4, 10, evaluator(1))
		b, other := driven(t, strategy, "", 4, 10, evaluator(-1))
		if err != nil || other != nil || len(a.Evaluations()) != 10 || !reflect.DeepEqual(a.Evaluations(), b.Evaluations()) {
			t.Errorf("%s: %v, %v: %v and %v", strategy, err, other, a.Evaluations(), b.Evaluations())
		}
	}
	if most.Load() != 4 {
		t.Errorf("%d candidates at a time, want 4", most.Load())
	}
	if all, err := driven(t, "random", "", 5, 100, evaluator(1)); err != nil || len(all.Evaluations()) != 12 {
		t.Errorf("a space of 12 variants: %d evaluations, %v", len(all.Evaluations()), err)
	}
}

// TestDriveEnds ends with the first error, and what is in flight is cancelled.
func TestDriveEnds(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	var n atomic.Int32
	s, err := driven(t, "random", filepath.Join(t.TempDir(), "j"), 3, 9, func(ctx context.Context, _ Point) (Result, error) {
		if n.Add(1) <= 2 {
			return Result{Cost: 1}, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(30 * time.Millisecond):
		}
		return Result{}, lost
	})
	if !errors.Is(err, lost) || len(s.Evaluations()) > 2 {
		t.Errorf("%d evaluations, %v", len(s.Evaluations()), err)
	}
}

// TestReplayInFlight: more machines take more evaluations, and less time.
func TestReplayInFlight(t *testing.T) {
	t.Parallel()
	var before *Summary
	r := mustReplay(t, record(t, landscapes(t)["failing"]), nil)
	for _, flight := range []int{0, 1, 4, 16} {
		s, err := r.Run(t.Context(), Repeats{Strategy: "evo", Options: Options{Seed: 1, Budget: 400, Elites: 3, InFlight: flight}, Count: 12, Progress: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if s.InFlight != max(1, flight) {
			t.Errorf("%d in flight, want %d", s.InFlight, flight)
		}
		if flight == 1 && (s.Median == nil || *s.Median != *before.Median) {
			t.Errorf("one in flight differs from the default: %v, %v", s.Median, before.Median)
		}
		if flight == 16 && *s.Median < *before.Median {
			t.Errorf("16 in flight need %v evaluations, fewer than %v", *s.Median, *before.Median)
		}
		before = s
	}
}
