package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"attune/internal/tune"
)

type tuneOptions struct {
	replay, space, strategy string
	budget                  string
	repeat                  int
	seed                    uint64
	elites                  int
	journal, export         string
	resume                  bool
}

func (a *app) tuneCommand() *cobra.Command {
	var o tuneOptions
	cmd := &cobra.Command{
		Use:   "tune --replay CACHE",
		Short: "search recorded results, to compare search strategies",
		Long: `Tune searches the knobs of a kernel. With --replay it searches results that were
recorded for every variant: a Kernel Tuner cache or T4 results, plain or gzip.
It repeats the search with different seeds and counts the evaluations until a
variant is within 5 % of the best. Nothing is compiled or run.

  evo      elites, moves of one or two knobs, crossover, restarts; a model of
           the results so far chooses among the children (the default)
  bayes    the model chooses among random variants and neighbours of the best
  genetic  a population of 24; the worst is replaced
  anneal   simulated annealing over the budget
  random   without repetition
  grid     in the order of the definition

The space is what the recording holds, or a T1 definition (--space). Failed
variants count as evaluations. With --journal or --export it is one search over
the whole budget, which --resume continues after a kill. docs/tuning.md has more.`,
		Example: `  attune tune --replay gemm.json.gz
  attune tune --replay conv.json.gz --space conv.T1.json --strategy all
  attune tune --replay gemm.json.gz --strategy evo --repeat 100 --json
  attune tune --replay gemm.json.gz --journal gemm.jsonl --resume`,
	}
	f := cmd.Flags()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !f.Changed("repeat") && o.single() {
			o.repeat = 1
		}
		budget, err := o.check(args)
		if err != nil {
			return usageError{err}
		}
		return a.tune(cmd.Context(), o, budget)
	}
	f.StringVar(&o.replay, "replay", "", "`file` of recorded results: a Kernel Tuner cache or T4")
	f.StringVar(&o.space, "space", "", "T1 `file` with the knobs and constraints (default: what the recording holds)")
	f.StringVar(&o.strategy, "strategy", tune.DefaultStrategy, "strategies, with commas, or all")
	f.StringVar(&o.budget, "budget", strconv.Itoa(tune.DefaultBudget), "most evaluations of a search")
	f.IntVar(&o.repeat, "repeat", 100, "number of searches, each with another seed")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the first search")
	f.IntVar(&o.elites, "elites", tune.DefaultElites, "variants that evo keeps as parents")
	f.StringVar(&o.journal, "journal", "", "`file` that gets each evaluation of one search")
	f.BoolVar(&o.resume, "resume", false, "continue the search of the journal")
	f.StringVar(&o.export, "export", "", "`file` for the evaluations of one search: T4 if it ends in T4.json, else a cache")
	return cmd
}

// single reports whether the options ask for one search instead of a statistic.
func (o tuneOptions) single() bool { return o.journal != "" || o.export != "" }

// strategies are those of the flag.
func (o tuneOptions) strategies() []string {
	if o.strategy == "all" {
		return tune.Strategies
	}
	return strings.Split(o.strategy, ",")
}

// check returns the budget, or everything that is wrong with the options.
func (o tuneOptions) check(args []string) (int, error) {
	var errs []error
	if len(args) > 0 {
		errs = append(errs, fmt.Errorf("tune searches recorded results and takes no variant; got %q", args[0]))
	}
	if o.replay == "" {
		errs = append(errs, errors.New("tune needs recorded results, such as `attune tune --replay gemm.json.gz`"))
	}
	budget, err := strconv.Atoi(o.budget)
	if err != nil {
		errs = append(errs, fmt.Errorf("--budget %s: a replay takes a number of evaluations", o.budget))
	} else if budget < 1 {
		errs = append(errs, fmt.Errorf("--budget %d: want at least 1 evaluation", budget))
	}
	if o.repeat < 1 {
		errs = append(errs, fmt.Errorf("--repeat %d: want at least 1", o.repeat))
	}
	if o.elites < 1 {
		errs = append(errs, fmt.Errorf("--elites %d: want at least 1", o.elites))
	}
	if o.single() && (o.repeat != 1 || len(o.strategies()) != 1) {
		errs = append(errs, errors.New("--journal and --export take one search: one strategy, no --repeat"))
	}
	if o.resume && o.journal == "" {
		errs = append(errs, errors.New("--resume needs the journal to continue (--journal FILE)"))
	}
	for _, name := range o.strategies() {
		errs = append(errs, tune.CheckStrategy(name))
	}
	return budget, errors.Join(errs...)
}

func (a *app) tune(ctx context.Context, o tuneOptions, budget int) error {
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
	if o.single() {
		return a.searchReplay(ctx, o, replay, options)
	}
	var summaries []*tune.Summary
	for _, name := range o.strategies() {
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
	if !a.json {
		replay.WriteSummaries(a.stdout, a.screen(), summaries)
	}
	return nil
}

// loadReplay reads the recording and the space. A space without a variant is a mistake of its
// definition.
func (a *app) loadReplay(o tuneOptions) (*tune.Replay, error) {
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
	if ctx.Err() != nil {
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
	RandomMedian int     `json:"random_median_evaluations_to_5pct"` // computed
	Seconds      float64 `json:"seconds"`                           // of the repeats
}

func newTuneLine(r *tune.Replay, s *tune.Summary, seconds float64) tuneLine {
	return tuneLine{
		1, s, r.Recording.Kernel, r.Recording.Device, r.Recording.Objective, r.Variants, r.Failing, r.Optimum, r.Near,
		r.RandomMedian(), seconds,
	}
}

// printLine writes a JSON line.
func (a *app) printLine(line any) error { return json.NewEncoder(a.stdout).Encode(line) }

// searchReplay runs one search over the whole budget.
func (a *app) searchReplay(ctx context.Context, o tuneOptions, replay *tune.Replay, options tune.Options) (err error) {
	subject := fmt.Sprintf("recording of %s on %s", replay.Recording.Kernel, replay.Recording.Device)
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
	err = replay.Search(ctx, search, options.Budget, func(done int) {
		left := time.Since(start) * time.Duration(options.Budget-done) / time.Duration(done)
		status.Set("%s: %d of %d evaluations, about %s left", o.strategy, done, options.Budget, left.Round(time.Second))
	})
	status.Clear()
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted after %d evaluations; %s", len(search.Evaluations()), kept(o.journal))
	}
	if err != nil {
		return err
	}
	if err := exportSearch(replay, search, o.export); err != nil {
		return err
	}
	if a.json {
		return a.printLine(newSearchLine(replay, search, o.strategy))
	}
	replay.WriteBest(a.stdout, a.screen(), search)
	return nil
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
	file, err := os.Create(path)
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
	Variant    map[string]tune.Value `json:"variant"`
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
			line.Best = &searchVariant{map[string]tune.Value{}, r.Value(e.Cost), i + 1}
			for k, v := range r.Space.Values(e.Point) {
				line.Best.Variant[r.Space.Knobs[k].Name] = v
			}
		}
	}
	return line
}
