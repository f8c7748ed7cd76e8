package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"attune/internal/plot"
	"attune/internal/regular"
	"attune/internal/rule"
	"attune/internal/trial"
	"attune/internal/tune"
)

// maxRepeats limits the searches of a replay, whose results are kept for the quantiles: a billion of
// them take more than 8 GB.
const maxRepeats = 100_000

// replayOptions are those of a search of recorded results.
type replayOptions struct {
	replay, space, strategy string
	budget                  string
	repeat                  int
	seed                    uint64
	elites                  int
	journal, export, plot   string
	resume                  bool
}

// single reports whether the options ask for one search instead of a statistic.
func (o replayOptions) single() bool { return o.journal != "" || o.export != "" || o.plot != "" }

// strategies are those of the flag.
func (o replayOptions) strategies() []string {
	if o.strategy == "all" {
		return tune.Strategies
	}
	return strings.Split(o.strategy, ",")
}

// check returns the budget, or everything that is wrong with the options.
func (o replayOptions) check(args []string) (int, error) {
	var errs []error
	if len(args) > 0 {
		errs = append(errs, fmt.Errorf("--replay searches recorded results and takes no variant; got %q", args[0]))
	}
	if o.budget == "" {
		o.budget = strconv.Itoa(tune.DefaultBudget)
	}
	budget, err := strconv.Atoi(o.budget)
	if err != nil {
		errs = append(errs, fmt.Errorf("--budget %s: a replay takes a number of evaluations", o.budget))
	} else if budget < 1 {
		errs = append(errs, fmt.Errorf("--budget %d: want at least 1 evaluation", budget))
	}
	if o.repeat < 1 {
		errs = append(errs, fmt.Errorf("--repeat %d: want at least 1", o.repeat))
	} else if o.repeat > maxRepeats {
		errs = append(errs, fmt.Errorf("--repeat %d: want at most %d", o.repeat, maxRepeats))
	}
	if o.elites < 1 {
		errs = append(errs, fmt.Errorf("--elites %d: want at least 1", o.elites))
	}
	if o.single() && (o.repeat != 1 || len(o.strategies()) != 1) {
		errs = append(errs, errors.New("--journal, --export and --plot take one search: one strategy, no --repeat"))
	}
	if o.resume && o.journal == "" {
		errs = append(errs, errors.New("--resume needs the journal to continue (--journal FILE)"))
	}
	for _, name := range o.strategies() {
		errs = append(errs, tune.CheckStrategy(name))
	}
	errs = append(errs, o.checkFiles())
	return budget, errors.Join(errs...)
}

// tuneReplay searches recorded results.
func (a *app) tuneReplay(ctx context.Context, all tuneOptions, args []string) error {
	o := all.replayOptions
	if !slices.Contains(all.given, "repeat") && (o.single() || all.spread.asked()) {
		o.repeat = 1
	}
	budget, err := o.check(args)
	if o.single() && len(all.inFlight) > 0 && !all.spread.asked() {
		err = errors.Join(err, errors.New("--in-flight is for repeats or --workers; --journal, --export and --plot take one search, one candidate at a time"))
	}
	if err := errors.Join(all.checkFlags(), err); err != nil {
		return usageError{err}
	}
	replay, err := a.loadReplay(o)
	if err != nil {
		return err
	}
	for _, note := range replay.Notes() {
		a.note(note)
	}
	if !a.json {
		replay.Describe(a.stdout, a.screen())
	}
	options := tune.Options{Seed: o.seed, Budget: budget, Elites: o.elites}
	if all.spread.asked() {
		all.replayOptions = o
		return a.rehearse(ctx, all, replay, options)
	}
	if o.single() {
		return a.searchReplay(ctx, o, replay, options, nil)
	}
	var summaries []*tune.Summary
	inFlight := all.inFlight
	if len(inFlight) == 0 {
		inFlight = []int{1}
	}
	for _, name := range o.strategies() {
		for _, options.InFlight = range inFlight {
			summary, seconds, err := a.repeatReplay(ctx, replay, tune.Repeats{Strategy: name, Options: options, Count: o.repeat})
			if err != nil {
				return err
			}
			summaries = append(summaries, summary)
			if a.json {
				if err := a.printLine(newTuneLine(replay, summary, seconds)); err != nil {
					return err
				}
			}
		}
	}
	if !a.json {
		replay.WriteSummaries(a.stdout, a.screen(), summaries)
	}
	return nil
}

// loadReplay reads the recording and the space. A space without a variant is a mistake of its
// definition.
func (a *app) loadReplay(o replayOptions) (*tune.Replay, error) {
	a.status().Set("reading %s", o.replay)
	defer a.status().Clear()
	var space *tune.Space
	if o.space != "" {
		var err error
		if space, err = tune.LoadSpace(o.space); err != nil {
			if _, isPath := errors.AsType[*os.PathError](err); !isPath {
				err = usageError{err}
			}
			return nil, err
		}
	}
	recording, err := tune.LoadRecording(o.replay)
	if errors.Is(err, tune.ErrEmpty) {
		return nil, usageError{err}
	}
	if err != nil {
		return nil, err
	}
	replay, err := tune.NewReplay(recording, space)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", o.replay, err)}
	}
	return replay, nil
}

// repeatReplay runs the repeats of a strategy, with progress.
func (a *app) repeatReplay(ctx context.Context, replay *tune.Replay, r tune.Repeats) (*tune.Summary, float64, error) {
	start := time.Now()
	status := a.status()
	defer status.Clear()
	status.Set("%s: %d repeats", r.Strategy, r.Count)
	var finished atomic.Int64
	r.Progress = func(done int) {
		finished.Add(1)
		left := time.Since(start) * time.Duration(r.Count-done) / time.Duration(done)
		status.Set("%s: %d of %d repeats, about %s left", r.Strategy, done, r.Count, left.Round(time.Second))
	}
	summary, err := replay.Run(ctx, r)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted; %s: %d of %d repeats were finished", r.Strategy, finished.Load(), r.Count)
	}
	return summary, time.Since(start).Seconds(), err
}

// tuneLine is a line of `attune tune --json`.
type tuneLine struct {
	SchemaVersion int `json:"schema_version"`
	*tune.Summary
	Kernel       string  `json:"kernel"`
	Device       string  `json:"device"`
	Objective    string  `json:"objective"`
	Variants     int     `json:"variants"`
	Failing      int     `json:"failing"`
	Optimum      float64 `json:"optimum"`
	Near         int     `json:"variants_within_5pct"`
	RandomMedian *int    `json:"random_median_evaluations_to_5pct"` // computed; null if the space is too large to count
	Seconds      float64 `json:"seconds"`                           // of the repeats
}

func newTuneLine(r *tune.Replay, s *tune.Summary, seconds float64) tuneLine {
	variants, failing := r.Count()
	line := tuneLine{
		1, s, r.Recording.Kernel, r.Recording.Device, r.Recording.Objective, variants, failing, r.Optimum, r.Near, nil, seconds,
	}
	if median := r.RandomMedian(); median > 0 {
		line.RandomMedian = &median
	}
	return line
}

// printLine writes a JSON line.
func (a *app) printLine(line any) error { return json.NewEncoder(a.stdout).Encode(line) }

// searchReplay runs one search over the whole budget.
func (a *app) searchReplay(ctx context.Context, o replayOptions, replay *tune.Replay, options tune.Options, rehearse rehearsal) (err error) {
	subject := fmt.Sprintf("recording of %s on %s, results %s", replay.Recording.Kernel, replay.Recording.Device, replay.Fingerprint())
	search, err := tune.NewSearch(replay.Space, o.strategy, subject, options)
	if err != nil {
		return usageError{err}
	}
	if o.journal != "" {
		begin := search.Create
		if o.resume {
			begin = search.Resume
		}
		if err := begin(o.journal, false); err != nil {
			return usageError{err}
		}
		defer func() { err = errors.Join(err, search.Close()) }()
	}
	start := time.Now()
	status := a.status()
	progress := func(done int) {
		left := time.Since(start) * time.Duration(options.Budget-done) / time.Duration(done)
		status.Set("%s: %d of %d evaluations, about %s left", o.strategy, done, options.Budget, left.Round(time.Second))
	}
	if rehearse != nil {
		err = rehearse(ctx, replay, search, progress)
	} else {
		err = replay.Search(ctx, search, options.Budget, progress)
	}
	status.Clear()
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted after %d evaluations; %s", len(search.Evaluations()), kept(o.journal))
	}
	if err != nil {
		return err
	}
	if err := errors.Join(exportSearch(replay, search, o.export), plotSearch(replay, search, o)); err != nil {
		return err
	}
	if a.json {
		return a.printLine(newSearchLine(replay, search, o.strategy))
	}
	replay.WriteBest(a.stdout, a.screen(), search)
	return nil
}

// rehearsal drives a search of recorded results on workers.
type rehearsal func(ctx context.Context, replay *tune.Replay, search *tune.Search, progress func(done int)) error

// rehearse searches recorded results on workers that sleep as long as each variant took, and says how
// much faster that was than one machine.
func (a *app) rehearse(ctx context.Context, o tuneOptions, replay *tune.Replay, options tune.Options) error {
	if o.repeat != 1 || len(o.strategies()) != 1 || len(o.inFlight) > 1 || o.pace <= 0 {
		return usageError{errors.New("a rehearsal on workers is one search: one strategy, one --in-flight, no --repeat, and a --pace above 0")}
	}
	o.device.name = simDevice // nothing is computed
	s, err := a.openSpread(ctx, o.spread, o.device, o.reference)
	if err != nil {
		return err
	}
	defer s.close()
	flight := o.flight(s.workers)
	searcher := &trial.Searcher{Fleet: s.fleet, Class: s.class, Flight: flight}
	var recorded atomic.Int64 // nanoseconds
	id, start := fmt.Sprintf("%d-%s", o.seed, time.Now().Format(time.RFC3339Nano)), time.Now()
	err = a.searchReplay(ctx, o.replayOptions, replay, options, func(ctx context.Context, replay *tune.Replay, search *tune.Search, progress func(int)) error {
		return search.Drive(ctx, options.Budget, flight, func(ctx context.Context, p tune.Point) (tune.Result, error) {
			result, seconds := replay.Evaluate(p)
			sleep := time.Duration(seconds / o.pace * float64(time.Second))
			recorded.Add(int64(sleep))
			return searcher.Rehearse(ctx, trial.Rehearsal{Point: p, Result: result, Sleep: sleep, Search: id})
		}, progress)
	})
	if err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	alone := time.Duration(recorded.Load()).Seconds()
	line := fmt.Sprintf("%.1f s on %d workers, %d in flight; one after the other %.1f s: %.2fx", took, s.workers, flight, alone, alone/took)
	if a.json {
		return a.printLine(map[string]any{"schema_version": 1, "message_type": "rehearsal", "seconds": took, "recorded_s": alone, "workers": s.workers, "in_flight": flight})
	}
	a.screen().Paragraph(a.stdout, "", line, 2)
	return nil
}

// flight is how many candidates are evaluated at a time. The strategy gets results in the order in which
// it chose the candidates, so a slow one delays those after it. More in flight keep the workers busy; a
// strategy that learns then chooses with fewer results. With the recorded times of 400 variants of
// convolution on an A4000, four a worker allow 16 workers a speed-up of 14.7, and eight 15.7.
func (o tuneOptions) flight(workers int) int {
	switch {
	case len(o.inFlight) > 0:
		return o.inFlight[0]
	case o.strategy == "random" || o.strategy == "grid":
		return 8 * workers
	}
	return 2 * workers
}

func kept(journal string) string {
	if journal == "" {
		return "without --journal nothing is kept"
	}
	return fmt.Sprintf("--journal %s --resume continues", journal)
}

// exportSearch writes the evaluations of a search.
func exportSearch(replay *tune.Replay, search *tune.Search, path string) (err error) {
	if path == "" {
		return nil
	}
	file, err := regular.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	recording := replay.Subset(search.Evaluations())
	if strings.HasSuffix(strings.ToLower(path), "t4.json") {
		return recording.WriteT4(file)
	}
	return recording.WriteCache(file)
}

// plotSearch draws the course of a search.
func plotSearch(replay *tune.Replay, search *tune.Search, o replayOptions) error {
	if o.plot == "" {
		return nil
	}
	r := replay.Recording
	c := &plot.Convergence{
		Title: fmt.Sprintf("%s on %s, %s", cmp.Or(r.Kernel, "recorded results"), cmp.Or(r.Device, "an unknown device"), o.strategy), Objective: r.Objective,
		Unit: replay.Unit(), Maximised: replay.Value(1) < 0, Reference: replay.Optimum, ReferenceName: "best of the recording",
	}
	for _, e := range search.Evaluations() {
		value := math.NaN()
		if e.OK() {
			value = replay.Value(e.Cost)
		}
		c.Values = append(c.Values, value)
	}
	file, err := regular.Create(o.plot)
	if err != nil {
		return err
	}
	_, err = file.Write(c.SVG())
	return errors.Join(err, file.Close())
}

// searchLine is the JSON document of one search.
type searchLine struct {
	SchemaVersion int            `json:"schema_version"`
	Strategy      string         `json:"strategy"`
	Evaluations   int            `json:"evaluations"`
	Failed        int            `json:"failed"`
	To5pct        *int           `json:"evaluations_to_5pct"` // null if the search did not come so near
	Best          *searchVariant `json:"best"`                // null if no variant ran
	Optimum       float64        `json:"optimum"`
}

type searchVariant struct {
	Variant    map[string]rule.Value `json:"variant"`
	Value      float64               `json:"value"` // of the objective
	Evaluation int                   `json:"evaluation"`
}

func newSearchLine(r *tune.Replay, s *tune.Search, strategy string) searchLine {
	line := searchLine{SchemaVersion: 1, Strategy: strategy, Evaluations: len(s.Evaluations()), Optimum: r.Optimum}
	best, ok := s.Best()
	for i, e := range s.Evaluations() {
		if !e.OK() {
			line.Failed++
		}
		if line.To5pct == nil && r.Reached(e.Result) {
			line.To5pct = new(i + 1)
		}
		if ok && line.Best == nil && slices.Equal(e.Point, best.Point) {
			line.Best = &searchVariant{map[string]rule.Value{}, r.Value(e.Cost), i + 1}
			for k, v := range r.Space.Values(e.Point) {
				line.Best.Variant[r.Space.Knobs[k].Name] = v
			}
		}
	}
	return line
}
