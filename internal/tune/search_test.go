package tune

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/rule"
	"attune/internal/terminal"
)

// record makes a recording of a landscape: a cache as Kernel Tuner writes it, read again.
func record(t *testing.T, l landscape) *Recording {
	t.Helper()
	r := &Recording{Kernel: "synthetic", Device: "none", Objective: "time", Space: l.space}
	for p := range l.space.All() {
		result := l.cost(p)
		r.Entries = append(r.Entries, Entry{Point: p, Value: result.Cost, Failure: result.Failure, Compile: 500, Benchmark: 100})
	}
	var out strings.Builder
	if err := r.WriteCache(&out); err != nil {
		t.Fatal(err)
	}
	again, err := ReadRecording([]byte(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func mustReplay(t *testing.T, r *Recording, s *Space) *Replay {
	t.Helper()
	replay, err := NewReplay(r, s)
	if err != nil {
		t.Fatal(err)
	}
	return replay
}

func quiet(int) {}

// A search that is killed at ten random moments and resumed ends with the evaluations of one that
// was not. A kill leaves the journal cut anywhere, also in the middle of a line.
func TestKilledSearchResumes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	replay := mustReplay(t, record(t, landscapes(t)["failing"]), nil)
	random := rand.New(rand.NewPCG(5, 5))
	for _, strategy := range Strategies {
		t.Run(strategy, func(t *testing.T) {
			const budget = 90
			options := Options{Seed: 9, Budget: budget}
			begin := func() *Search {
				s, err := NewSearch(replay.Space, strategy, "a recording", options)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			whole := begin()
			if err := replay.Search(t.Context(), whole, budget, quiet); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "journal.jsonl")
			for kill := range 11 {
				s := begin()
				if err := s.Resume(path, kill%2 == 0); err != nil {
					t.Fatal(err)
				}
				target := budget
				if kill < 10 {
					target = min(len(s.Evaluations())+random.IntN(25), budget)
				}
				if err := errors.Join(replay.Search(t.Context(), s, target, quiet), s.Close()); err != nil {
					t.Fatal(err)
				}
				if kill < 10 {
					cut(t, path, random)
					continue
				}
				if !slices.EqualFunc(s.Evaluations(), whole.Evaluations(), func(a, b Evaluation) bool { return slices.Equal(a.Point, b.Point) }) {
					t.Error("the resumed search made other evaluations")
				}
				a, _ := s.Best()
				b, _ := whole.Best()
				if !slices.Equal(a.Point, b.Point) || a.Cost != b.Cost {
					t.Errorf("best %v, want %v", a, b)
				}
			}
		})
	}
}

// cut removes up to 200 bytes from the end of a file.
func cut(t *testing.T, path string, random *rand.Rand) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:max(0, len(data)-random.IntN(200))], 0o644); err != nil {
		t.Fatal(err)
	}
}

// With variants in flight, a resumed search first hands out those without a result, and then
// continues the same sequence.
func TestResumeWithVariantsInFlight(t *testing.T) {
	l := landscapes(t)["layers"]
	run := func(path string, kill int) []Evaluation {
		s, err := NewSearch(l.space, "evo", "x", Options{Seed: 4})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Resume(path, false); err != nil {
			t.Fatal(err)
		}
		if len(s.Evaluations()) == 0 {
			first := s.space.Random(rand.New(rand.NewPCG(1, 1)))
			if err := s.Tell(first, l.cost(first)); err != nil { // the default variant, say
				t.Fatal(err)
			}
		}
		var flight []Point
		for len(s.Evaluations()) < kill {
			for len(flight) < 3 {
				p, _ := s.Ask()
				flight = append(flight, p)
			}
			e := Evaluation{Point: flight[0], Result: l.cost(flight[0])}
			switch len(s.Evaluations()) % 10 { // a suggestion that is taken back
			case 3:
				e.Suggest = s.strategy.(*evo).micro[:1]
			case 7:
				e.Suggest = []int{}
			}
			if err := s.Record(e); err != nil {
				t.Fatal(err)
			}
			flight = flight[1:]
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return s.Evaluations()
	}
	dir := t.TempDir()
	want := run(filepath.Join(dir, "whole"), 60)
	path := filepath.Join(dir, "killed")
	run(path, 20)
	run(path, 41)
	got := run(path, 60)
	if !slices.EqualFunc(got, want, func(a, b Evaluation) bool { return slices.Equal(a.Point, b.Point) }) {
		t.Error("the resumed search made other evaluations")
	}
}

func TestJournalErrors(t *testing.T) {
	l := landscapes(t)["tiny"]
	dir := t.TempDir()
	search := func(seed uint64) *Search {
		s, err := NewSearch(l.space, "random", "x", Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	path := filepath.Join(dir, "journal")
	s := search(1)
	if err := s.Create(path, true); err != nil {
		t.Fatal(err)
	}
	p, _ := s.Ask()
	if err := errors.Join(s.Tell(p, l.cost(p)), s.Close()); err != nil {
		t.Fatal(err)
	}
	if s.Tell(p, Result{Cost: 1}) == nil {
		t.Error("no error for a closed journal")
	}
	if s.Tell(p, Result{Cost: inf}) == nil {
		t.Error("no error for an infinite cost")
	}
	if err := search(1).Create(path, false); err == nil || !strings.Contains(err.Error(), "exists; resume it") {
		t.Error(err)
	}
	if err := search(2).Resume(path, false); err == nil || !strings.Contains(err.Error(), ":1: the journal is of another search: it has strategy random, seed 1") {
		t.Error(err)
	}
	if err := search(1).Create(filepath.Join(dir, "no", "folder"), false); err == nil {
		t.Error("no error without a folder")
	}
	if err := search(1).Resume(dir, false); err == nil {
		t.Error("no error for a folder")
	}
	header, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(header), "\n")
	for text, want := range map[string]string{
		"text\n":         ":1: this is not the journal of a search",
		first + "\n{\n":  ":2: damaged line",
		first + "\n{}\n": ":2: damaged line: it has no whole result",
		first + `` + "\n" + `{"asked": 1, "point": [9, 9], "cost": 1}` + "\n":  ":2: the strategy now proposes other variants",
		first + `` + "\n" + `{"asked": 99, "point": [9, 9], "cost": 1}` + "\n": ":2: the strategy now proposes other variants",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := search(1).Resume(path, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := search(1).Close(); err != nil {
		t.Error(err)
	}
}

// Details, suggestions and results outside of the space are in the journal, and a resumed search has
// them.
func TestJournalKeepsDetails(t *testing.T) {
	l := landscapes(t)["layers"]
	path := filepath.Join(t.TempDir(), "journal")
	begin := func() (*Search, *evo) {
		s, err := NewSearch(l.space, "evo", "x", Options{Seed: 4})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Resume(path, false); err != nil {
			t.Fatal(err)
		}
		return s, s.strategy.(*evo)
	}
	s, strategy := begin()
	p, _ := s.Ask()
	first := Evaluation{Point: p, Result: l.cost(p), Suggest: strategy.micro[1:2], Detail: []byte(`{"a":1}`)}
	outside := Evaluation{Result: Result{Cost: 1e-9}, Detail: []byte(`"patched"`)}
	if err := errors.Join(s.Record(first), s.Record(outside), s.Close()); err != nil {
		t.Fatal(err)
	}
	again, restored := begin()
	if got := again.Evaluations(); len(got) != 2 || string(got[0].Detail) != `{"a":1}` || got[1].Point != nil || string(got[1].Detail) != `"patched"` {
		t.Errorf("%+v", got)
	}
	if !slices.Equal(restored.suggested, strategy.micro[1:2]) || len(restored.told) != 1 {
		t.Errorf("suggested %v, %d results", restored.suggested, len(restored.told))
	}
	if best, _ := again.Best(); best.Cost != 1e-9 {
		t.Errorf("%+v", best)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// Moves prefer suggested knobs. Macro knobs are not suggested, and an empty suggestion ends it.
func TestSuggest(t *testing.T) {
	l := landscapes(t)["layers"]
	share := func(suggest []int) float64 {
		created, err := NewStrategy("evo", l.space, Options{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		e := created.(*evo)
		for range evoStart {
			p, _ := e.Ask()
			e.Tell(p, l.cost(p))
		}
		e.Suggest(suggest)
		elites, moved, all := best(e.told, 1), 0, 0
		for range 4000 {
			p, ok := e.child(elites)
			if !ok {
				continue
			}
			changed := []int{}
			for knob := range p {
				if p[knob] != elites[0].point[knob] {
					changed = append(changed, knob)
				}
			}
			if len(changed) == 1 {
				all++
				if changed[0] == e.micro[0] {
					moved++
				}
			}
		}
		return float64(moved) / float64(all)
	}
	created, _ := NewStrategy("evo", l.space, Options{})
	e := created.(*evo)
	without, with := share(nil), share([]int{e.micro[0], e.macro[0]})
	if with < without+0.2 {
		t.Errorf("share of a suggested knob: %.2f, without a suggestion %.2f", with, without)
	}
	if len(e.macro) == 0 {
		t.Fatal("the space has no macro knob")
	}
	e.Suggest(e.macro)
	if len(e.suggested) > 0 {
		t.Errorf("macro knobs are suggested: %v", e.suggested)
	}
}

func TestReplay(t *testing.T) {
	l := landscapes(t)["failing"]
	r := record(t, l)
	replay := mustReplay(t, r, nil)
	s, err := replay.Run(t.Context(), Repeats{Strategy: "evo", Options: Options{Budget: 500}, Count: 8, Progress: quiet})
	if err != nil || s.SuccessRate != 1 || s.Median == nil || math.Abs(*s.Seconds-0.6**s.Median) > 1e-9 {
		t.Errorf("%+v %v", s, err)
	}
	var out strings.Builder
	screen := terminal.Screen{Width: 200}
	replay.Describe(&out, screen)
	few, err := replay.Run(t.Context(), Repeats{Strategy: "random", Options: Options{Budget: 1}, Count: 3, Progress: quiet})
	if err != nil || few.Median != nil {
		t.Errorf("%+v %v", few, err)
	}
	minutes := *s
	minutes.Seconds = new(600.0)
	replay.WriteSummaries(&out, screen, []*Summary{s, few, &minutes})
	for _, want := range []string{"synthetic on none: 3840 variants, 2838 of which fail", "> 1", "100 %", "10 min", "8 repeats, each of at most 500 evaluations"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := replay.Run(ctx, Repeats{Strategy: "evo", Count: 2, Progress: quiet}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := replay.Run(t.Context(), Repeats{Strategy: "q", Count: 2, Progress: quiet}); err == nil {
		t.Error("no error for an unknown strategy")
	}
}

// Other results have another fingerprint; the order of the file does not matter.
func TestFingerprintOfResults(t *testing.T) {
	print := func(entries string) string {
		r, err := ReadRecording([]byte(`{"tune_params_keys": ["x"], "tune_params": {"x": [1, 2]}, "cache": {` + entries + "}}"))
		if err != nil {
			t.Fatal(err)
		}
		return mustReplay(t, r, nil).Fingerprint()
	}
	first := print(`"1": {"x": 1, "time": 1}, "2": {"x": 2, "time": 2}`)
	if first != print(`"2": {"x": 2, "time": 2}, "1": {"x": 1, "time": 1.0}`) {
		t.Error("the order of the results matters")
	}
	if first == print(`"1": {"x": 1, "time": 1}, "2": {"x": 2, "time": 2.5}`) || first == print(`"1": {"x": 1, "time": 1}, "2": {"x": 2, "time": "InvalidConfig"}`) {
		t.Error("other results have the same fingerprint")
	}
}

// Neighbouring seeds have no repeat in common, and a cut-off repeat is not counted as finished.
func TestRepeatsDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for seed := range uint64(100) {
		for i := range 100 {
			seen[repeatSeed(seed, i)] = true
		}
	}
	if len(seen) != 100*100 {
		t.Errorf("%d different seeds of 10000 repeats", len(seen))
	}
	replay := mustReplay(t, record(t, landscapes(t)["tiny"]), nil)
	ctx, cancel := context.WithCancel(t.Context())
	finished := 0
	_, err := replay.Run(ctx, Repeats{Strategy: "random", Options: Options{Budget: 9}, Count: 1, Progress: func(int) { finished++; cancel() }})
	if err != nil || finished != 1 {
		t.Errorf("%v after the last repeat, %d finished", err, finished)
	}
	if _, err := replay.Run(ctx, Repeats{Strategy: "random", Options: Options{Budget: 9}, Count: 1, Progress: func(int) { finished++ }}); !errors.Is(err, context.Canceled) || finished != 1 {
		t.Errorf("%v, %d finished", err, finished)
	}
}

// The computed median of a random search is that of the random strategy.
func TestRandomMedian(t *testing.T) {
	replay := mustReplay(t, record(t, landscapes(t)["rugged"]), nil)
	s, err := replay.Run(t.Context(), Repeats{Strategy: "random", Options: Options{Budget: 4000}, Count: 400, Progress: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if ratio := *s.Median / float64(replay.RandomMedian()); ratio < 0.8 || ratio > 1.25 {
		t.Errorf("median %v, computed %d", *s.Median, replay.RandomMedian())
	}
}

// The median of a random search is computed at once in a space of any size, and is the number of
// draws after which half of the searches have met a near variant.
func TestRandomMedianOfAnySize(t *testing.T) {
	for _, test := range []struct{ variants, missing, near, want int }{
		{1, 0, 1, 1},
		{12, 0, 1, 6},
		{12, 0, 2, 4},
		{12, 0, 12, 1},
		{4362, 0, 11, 267},
		{17956, 0, 10, 1203},
		{1, 1<<50 - 1, 1, 1 << 49},
		{2, 1 << 50, 2, 329768447776903},
		{5, -1, 1, 0},
	} {
		r := &Replay{Recorded: test.variants, Missing: test.missing, Near: test.near}
		if got := r.RandomMedian(); got < test.want || float64(got) > float64(test.want)*(1+1e-9) {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

// A T1 definition may have the knobs in another order, fewer values than the recording, and variants
// that were not recorded.
func TestReplayInSpace(t *testing.T) {
	r, err := ReadRecording([]byte(cacheText))
	if err != nil {
		t.Fatal(err)
	}
	modes := Knob{Name: "m", Values: []rule.Value{rule.Text("b"), rule.Text("c")}, Default: -1}
	replay := mustReplay(t, r, mustSpace(t, []Knob{modes, ints("x", 32, 16)}))
	if replay.Recorded != 2 || replay.Missing != 2 || replay.Outside != 2 || replay.Optimum != 1.5 {
		t.Errorf("%+v", replay)
	}
	if notes := replay.Notes(); len(notes) != 3 {
		t.Errorf("%q", notes)
	}
	var header strings.Builder
	if replay.Describe(&header, terminal.Screen{Width: 200}); !strings.Contains(header.String(), ": 4 variants, 3 of which fail") {
		t.Error(header.String())
	}
	if result, _ := replay.Evaluate(Point{1, 0}); result.OK() {
		t.Error("a variant that is not recorded has a result")
	}
	s, err := NewSearch(replay.Space, "grid", "x", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	replay.WriteBest(&out, terminal.Screen{Width: 200}, s)
	if err := replay.Search(t.Context(), s, 9, quiet); err != nil || len(s.Evaluations()) != 4 {
		t.Error(err)
	}
	replay.WriteBest(&out, terminal.Screen{Width: 200}, s)
	if want := "0 evaluations, all of which failed\nbest of 4 evaluations: 1.5 ms, 0.0 % over the best of the recording, at evaluation 1\n  m=b x=32\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	checkRoundTrip(t, replay.Subset(s.Evaluations()[:2]))
	exported := replay.Subset(s.Evaluations())
	if err := exported.WriteT4(&out); err != nil || exported.Entries[2].Failure != notRecorded || !strings.Contains(out.String(), `"runtime"`) {
		t.Error(err)
	}
	open := &Space{Knobs: []Knob{ints("x", 16, 32), modes}}
	open.components = []component{{knobs: []int{0, 1}, solver: open.solver(nil, []int{0, 1})}}
	header.Reset()
	if replay := mustReplay(t, r, open); replay.Missing != -1 || !strings.HasPrefix(replay.Notes()[1], "the space has too many variants to count") {
		t.Errorf("%+v %q", replay, replay.Notes())
	} else if replay.Describe(&header, terminal.Screen{Width: 200}); !strings.Contains(header.String(), "the median of a random search is not known") {
		t.Error(header.String())
	} else if replay.WriteSummaries(&header, terminal.Screen{Width: 200}, []*Summary{{Median: new(3.0)}}); strings.Contains(header.String(), "of random") {
		t.Error(header.String())
	}
	for _, test := range []struct {
		space *Space
		want  string
	}{
		{mustSpace(t, []Knob{ints("x", 16)}), `the space has no knob "m"`},
		{mustSpace(t, []Knob{ints("z", 16)}), `the recording has no knob "z"`},
		{mustSpace(t, []Knob{ints("x", 99), modes}), "no recorded variant is allowed"},
		{mustSpace(t, []Knob{ints("x", 16), {Name: "m", Values: []rule.Value{rule.Text("b")}}}), "no recorded variant ran"},
	} {
		if _, err := NewReplay(r, test.space); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
	}
}

// A time is over the best of the recording, a rate is below it, and both have their unit.
func TestDistanceToTheBest(t *testing.T) {
	for _, test := range []struct{ objective, first, second, want string }{
		{"time", "2", "1", "2 ms, 100.0 % over the best of the recording"},
		{"GFLOP/s", "477.58", "1151.2", "477.58 GFLOP/s, 58.5 % below the best of the recording"},
		{"score", "-2", "-1", "score -2, 100.0 % below the best of the recording"},
		{"score", "-2", "0", "score -2, 2 below the best of the recording"},
	} {
		r, err := ReadRecording([]byte(fmt.Sprintf(`{"tune_params_keys": ["x"], "tune_params": {"x": [1, 2]}, "objective": %q,
			"cache": {"1": {"x": 1, %[1]q: %[2]s}, "2": {"x": 2, %[1]q: %[3]s}}}`, test.objective, test.first, test.second)))
		if err != nil {
			t.Fatal(err)
		}
		replay := mustReplay(t, r, nil)
		s, err := NewSearch(replay.Space, "grid", "x", Options{})
		if err := errors.Join(err, replay.Search(t.Context(), s, 1, quiet)); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		replay.WriteBest(&out, terminal.Screen{Width: 200}, s)
		if want := "best of 1 evaluation: " + test.want + ", at evaluation 1\n  x=1\n"; out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}

// Describe names what it knows.
func TestDescribe(t *testing.T) {
	r, err := ReadRecording([]byte(`{"tune_params_keys": ["x"], "cache": {"1": {"x": 1, "time": 5}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	replay := mustReplay(t, r, nil)
	replay.Missing, replay.Outside = 1, 1
	if notes := replay.Notes(); len(notes) != 2 || !strings.HasPrefix(notes[0], "1 allowed variant is ") || !strings.HasPrefix(notes[1], "1 recorded result is ") {
		t.Errorf("%q", notes)
	}
	replay.Missing = 0
	replay.Describe(&out, terminal.Screen{Width: 300})
	if want := "recorded results: 1 variant, 0 of which fail; the best time is 5 ms, and 1 variant is within 5 % of it."; !strings.HasPrefix(out.String(), want) {
		t.Error(out.String())
	}
}

// The bars of the search, on recorded results of real kernels: ATTUNE_TUNING_DATA names a folder of
// Kernel Tuner caches.
func TestRecordedSpaces(t *testing.T) {
	dir := os.Getenv("ATTUNE_TUNING_DATA")
	files, _ := filepath.Glob(filepath.Join(dir, "*.json.gz"))
	if dir == "" || len(files) == 0 {
		t.Skip("ATTUNE_TUNING_DATA names no folder with caches")
	}
	var medians []float64
	for _, file := range files {
		r, err := LoadRecording(file)
		if err != nil {
			t.Fatal(err)
		}
		replay := mustReplay(t, r, nil)
		s, err := replay.Run(t.Context(), Repeats{Strategy: DefaultStrategy, Options: Options{Budget: 1000}, Count: 100, Progress: quiet})
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s: success %v", filepath.Base(file), s.SuccessRate)
		if s.SuccessRate < 1 || s.Median == nil || *s.Median > 0.6*float64(replay.RandomMedian()) {
			t.Errorf("%s, random needs %d", line, replay.RandomMedian())
			continue
		}
		t.Logf("%s, median %v, random %d", line, *s.Median, replay.RandomMedian())
		medians = append(medians, *s.Median)
	}
	if m := quantile(medians, 0.5); *m > 80 {
		t.Errorf("the median over the spaces is %v", *m)
	}
}
