package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"attune/internal/problem"
	"attune/internal/profile"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
)

// tuning is a TuneRequest in progress.
type tuning struct {
	*Lab
	request  TuneRequest
	space    *tune.Space
	searcher *tune.Search
	builds   *builds
	refs     problem.References
	inputs   map[spec.Shape]problem.Reference // of the shapes, on which variants are timed
	session  *session
	done     func(run.TuneEvaluation)

	folder   string // empty if nothing is written
	isNew    bool   // the ledger has the folder, and this call has made it
	unlock   func()
	document run.TuneSearch

	flight      []*trial             // asked for and compiling, in the order of the strategy
	evaluations []run.TuneEvaluation // all of them
	entrants    []*entrant           // those with a cost, each code once
	known       map[code]int         // index in evaluations
	tried       map[string]bool      // variants that were evaluated, by key
	standard    *entrant             // the default
	best        *entrant             // the best so far: the incumbent
	insights    []profile.Insight    // of best
	counted     int                  // evaluations of the budget
	leftOut     int                  // patched variants of a resumed search that cannot be made again
	started     time.Time            // of this session
	earlier     time.Duration        // in evaluations of earlier sessions
	ended       string               // why the search ended
}

// entrant is an evaluated variant. Its build is made again when it is needed after a resume.
type entrant struct {
	run.TuneEvaluation
	lab     *Lab
	variant spec.Variant
	build   problem.Build
}

// maxFree limits the variants of equal code, which are not counted against a budget of evaluations:
// so many for each evaluation. A space of knobs that change nothing would never end.
const maxFree = 10

// search evaluates the default, then variants of the strategy and of the proposer until the budget
// is spent.
func (t *tuning) search(ctx context.Context) error {
	if t.standard == nil {
		if err := t.evaluateDefault(ctx); err != nil {
			return err
		}
	}
	for empty := 0; ; {
		proposed, err := t.evaluateProposals(ctx)
		if err != nil {
			return err
		}
		if t.ended = t.over(); t.ended != "" {
			return nil
		}
		next, err := t.next()
		if err != nil {
			return err
		}
		if empty++; proposed > 0 {
			empty = 0
		}
		if next == nil && t.mayPropose(empty) {
			t.pause(ctx, empty)
			continue
		}
		if next == nil {
			t.ended = "every variant was evaluated"
			return nil
		}
		if err := t.try(ctx, next); err != nil {
			return err
		}
	}
}

// maxEmpty is how many answers without a proposal end a search whose strategy has no more variants.
// They are a second apart.
const maxEmpty = 10

// mayPropose reports whether a proposer may still have something, after some answers without an
// evaluation: patched kernels have variants when the strategy has none left.
func (t *tuning) mayPropose(empty int) bool {
	if ender, ok := t.request.Proposer.(interface{ Ended() bool }); ok {
		return empty < maxEmpty && !ender.Ended()
	}
	return t.request.Proposer != nil && empty == 0
}

// pause waits before a proposer that had nothing is asked again.
func (t *tuning) pause(ctx context.Context, empty int) {
	if empty == 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

// over is why the budget is spent; empty if it is not.
func (t *tuning) over() string {
	b := t.request.Budget
	free := len(t.evaluations) - t.counted
	switch {
	case b.Evaluations > 0 && t.counted >= b.Evaluations:
		return fmt.Sprintf("the budget of %d evaluations is spent", b.Evaluations)
	case b.Evaluations > 0 && free >= maxFree*b.Evaluations:
		return fmt.Sprintf("%d variants had machine code that was evaluated before", free)
	case b.Time > 0 && t.spent() >= b.Time:
		return fmt.Sprintf("the budget of %s is spent", b.Time)
	}
	return ""
}

// spent is the time of all sessions.
func (t *tuning) spent() time.Duration { return t.earlier + time.Since(t.started) }

// evaluateDefault evaluates the default, which must run.
func (t *tuning) evaluateDefault(ctx context.Context) error {
	point, ok := tune.PointOf(t.space, t.request.Variant)
	if !ok {
		return RequestError(fmt.Sprintf("%s itself is not in the space of %s", t.request.Variant, t.request.Variant.Stage().Name))
	}
	c := t.newTrial(nil, t.request.Variant, point, "default")
	c.isDefault = true
	return t.try(ctx, c)
}

// next returns the strategy's next variant, and starts to compile those behind it; nil if the space
// is exhausted.
func (t *tuning) next() (*trial, error) {
	for len(t.flight) < t.document.Ahead {
		point, ok := t.searcher.Ask()
		if !ok {
			break
		}
		v, err := tune.VariantOf(t.request.Variant.Stage(), t.space, point)
		if err != nil {
			return nil, fmt.Errorf("BUG: the strategy proposed a variant that the kernel does not allow: %w", err)
		}
		t.builds.start(v)
		t.flight = append(t.flight, t.newTrial(nil, v, point, t.request.Strategy))
	}
	if len(t.flight) == 0 {
		return nil, nil
	}
	first := t.flight[0]
	t.flight = t.flight[1:]
	return first, nil
}

// evaluateProposals evaluates what the proposer suggests, except for variants that were evaluated or
// that the strategy has asked for. It returns the number of evaluations.
func (t *tuning) evaluateProposals(ctx context.Context) (evaluated int, err error) {
	if t.request.Proposer == nil || t.over() != "" {
		return 0, nil
	}
	t.step(t.request.Variant.String(), "waiting for the proposer")
	proposals, err := t.request.Proposer.Propose(ctx, t.state())
	if err != nil {
		return 0, err
	}
	for _, p := range proposals {
		c := t.newTrial(p.Lab, p.Variant, nil, cmp.Or(p.Origin, "proposer"))
		c.patch, c.kept, c.e.Parent = p.Patch, p.PatchFile, p.Parent
		if p.Lab == nil {
			c.point, _ = tune.PointOf(t.space, p.Variant)
		}
		if t.over() != "" || t.tried[c.key()] || p.Lab == nil && t.inFlight(p.Variant) {
			continue
		}
		if err := t.try(ctx, c); err != nil {
			return evaluated, err
		}
		evaluated++
	}
	return evaluated, nil
}

// inFlight reports whether the strategy has asked for a variant.
func (t *tuning) inFlight(v spec.Variant) bool {
	return slices.ContainsFunc(t.flight, func(f *trial) bool { return f.variant.String() == v.String() })
}

// state is what a proposer knows.
func (t *tuning) state() TuneState {
	s := TuneState{
		Space: t.space, Default: t.standard.TuneEvaluation, Best: t.best.TuneEvaluation, Evaluations: t.counted, Insights: t.insights,
		LeftOut: t.leftOut,
	}
	for _, e := range t.elites() {
		s.Elites = append(s.Elites, e.TuneEvaluation)
	}
	return s
}

// elites are the best variants so far, the best first.
func (t *tuning) elites() []*entrant {
	ranked := t.ranked()
	return ranked[:min(len(ranked), t.request.Options.Elites)]
}

func (t *tuning) ranked() []*entrant {
	ranked := slices.Clone(t.entrants)
	slices.SortStableFunc(ranked, func(a, b *entrant) int { return cmp.Compare(*a.Cost, *b.Cost) })
	return ranked
}

// try evaluates a variant, writes the result to the journal and reports it. An interrupted evaluation
// leaves no trace, so that a resumed search repeats it.
func (t *tuning) try(ctx context.Context, c *trial) error {
	began := time.Now()
	err := c.evaluate(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && c.foreign() {
		// Foreign code can break anything beside it. If the lab itself is broken, the next variant of
		// the kernel shows it.
		c.fail(run.FailedCrashed, err.Error(), err)
		err = nil
	}
	if err == nil && c.isDefault {
		err = c.mustRun()
	}
	if err != nil {
		return err
	}
	c.e.Seconds = time.Since(began).Seconds()
	if c.e.SameAs == "" { // others have the number of the evaluation that they repeat
		c.e.Number = t.counted + 1
	}
	if c.e.Best {
		c.explain(ctx)
	}
	if ctx.Err() != nil { // without its suggestion the sequence would be another one
		return ctx.Err()
	}
	if err := c.savePatch(); err != nil {
		return err
	}
	detail, err := json.Marshal(c.e)
	if err != nil {
		return fmt.Errorf("the journal: %w", err)
	}
	result := tune.Result{Failure: tune.Failure(c.e.Failure)}
	if c.e.OK() {
		result.Cost = *c.e.Cost
	}
	if err := t.searcher.Record(tune.Evaluation{Point: c.point, Result: result, Suggest: c.suggest, Detail: detail}); err != nil {
		return err
	}
	t.add(c.e, &entrant{c.e, c.lab, c.variant, c.build})
	if !c.foreign() {
		t.builds.forget(c.variant)
	}
	if err := t.writeElites(); err != nil {
		return err
	}
	t.done(c.e)
	return nil
}

// add takes an evaluation into the state of the search: a new one, or one of the journal.
func (t *tuning) add(e run.TuneEvaluation, who *entrant) {
	t.evaluations = append(t.evaluations, e)
	t.tried[trialKey(e.Variant, e.Patch)] = true
	for _, variant := range e.Demoted {
		t.demote(variant)
	}
	if e.SameAs != "" {
		t.unpatch(e, who)
		return
	}
	t.counted++
	if e.CodeHash != "" {
		t.known[code{e.CodeHash, e.Arch, e.LaunchKey}] = len(t.evaluations) - 1
	}
	if !e.OK() || who == nil {
		return
	}
	t.entrants = append(t.entrants, who)
	if t.standard == nil {
		t.standard = who
	}
	if e.Best {
		t.best = who
	}
}

// unpatch lets a variant of the kernel itself take the place of a patched one with the same machine
// code: the patch changes nothing. A resumed search without the proposer has only the former.
func (t *tuning) unpatch(e run.TuneEvaluation, who *entrant) {
	if e.Patch != "" || !e.OK() {
		return
	}
	at := slices.IndexFunc(t.entrants, func(o *entrant) bool {
		return code{o.CodeHash, o.Arch, o.LaunchKey} == code{e.CodeHash, e.Arch, e.LaunchKey}
	})
	switch {
	case at < 0:
		t.entrants = append(t.entrants, who)
		if *who.Cost < *t.best.Cost {
			t.best = who
		}
	case t.entrants[at].Patch != "":
		if t.best == t.entrants[at] {
			t.best = who
		}
		t.entrants[at] = who
	}
}

// demote removes a variant that turned out to be wrong while it was timed again.
func (t *tuning) demote(name string) {
	t.entrants = slices.DeleteFunc(t.entrants, func(e *entrant) bool { return e != t.standard && e.Name() == name })
	for i := range t.evaluations {
		if e := &t.evaluations[i]; e.Name() == name && e.OK() {
			e.Failure, e.Reason, e.Cost = run.FailedIncorrect, "a timed launch was wrong when it was timed again", nil
		}
	}
	if t.best != nil && t.best.Name() == name {
		t.best = t.ranked()[0]
	}
}

// writeElites replaces elite.json.
func (t *tuning) writeElites() error {
	if t.folder == "" {
		return nil
	}
	document := run.TuneElites{
		SchemaVersion: run.TuningSchemaVersion, ID: t.document.ID, Objective: t.request.Objective, Unit: run.ObjectiveUnit(t.request.Objective),
		Evaluations: t.counted, Default: t.standard.TuneEvaluation, Elites: []run.TuneEvaluation{},
	}
	for _, e := range t.elites() {
		document.Elites = append(document.Elites, e.TuneEvaluation)
	}
	return replaceJSON(filepath.Join(t.folder, run.TuneEliteFile), document)
}

// replaceJSON writes a document beside a file and moves it into its place: a reader sees the old
// document or the new one.
func replaceJSON(path string, document any) error {
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// step reports a step of the search.
func (t *tuning) step(subject, step string) {
	p := Progress{Subject: subject, Step: step, Done: t.counted, Total: t.request.Budget.Evaluations}
	t.progress(p)
}

func (t *tuning) close() error {
	t.builds.stop()
	t.session.close()
	err := t.refs.Close()
	if t.searcher != nil {
		err = errors.Join(err, t.searcher.Close())
	}
	t.unlock()
	return err
}

// ahead is how many variants compile while one is measured: one a core, at least 2. More would let
// the strategy choose with fewer results.
func ahead() int { return min(max(2, runtime.GOMAXPROCS(0)), 8) }
