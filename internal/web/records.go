package web

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"attune/internal/catalog"
	"attune/internal/document"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
)

// records reads a ledger for the pages. A record never changes, so it is read once; the lists are read
// again when a record was added or removed.
type records struct {
	kept   *ledger.Ledger
	kernel func() (*spec.Kernel, fs.FS, error)

	mu      sync.Mutex // guards what follows, and lets one request read the lists for all
	lists   *lists
	runs    cache[*run.Run]
	damaged map[string]string // reasons of listed runs that could not be read, by id
	benches cache[*run.Bench]
	tunings cache[catalog.TuningEntry]
}

// lists are the records of a ledger at one time.
type lists struct {
	state     ledger.State
	settled   bool // a later change is sure to give another state
	read      time.Time
	entries   []ledger.Entry // newest first
	kernels   []string       // of the entries, sorted
	at        map[string]int // index of each run in entries
	champions catalog.Champions
	marked    catalog.ChampionRuns // champions by their run
	damage    []damage             // what could not be read
	ladder    []*run.Run
	noLadder  bool                  // it cannot be read; damage has the reason
	plots     []inlinePlot          // of the ladder
	linear    document.Approximate  // runs of the ladder with approximate exponentials
	benches   []*run.Bench          // newest first
	tunings   []catalog.TuningEntry // finished searches, newest first

	lower sync.Once
	texts []string // of entries, in lower case, for filters
}

// The folders of a ledger. Pages of records have the same names.
const (
	runFolder    = "runs"
	benchFolder  = "benches"
	tuningFolder = "tunings"
)

// damage is a record that cannot be read. Damage of no record has neither folder nor id.
type damage struct{ folder, id, text string }

func newRecords(kept *ledger.Ledger, kernel func() (*spec.Kernel, fs.FS, error)) *records {
	return &records{kept: kept, kernel: kernel, damaged: map[string]string{}}
}

// ladderDevice is the device of the ladder: only a GPU has times.
const ladderDevice = "cuda"

// unsettledFor is how long lists are kept whose last change is so recent that the next one could have
// the same time. Reading 10,000 runs takes a quarter of a second.
const unsettledFor = 500 * time.Millisecond

// now returns the present lists.
func (k *records) now(ctx context.Context) (*lists, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	state := k.kept.State()
	if l := k.lists; l != nil && l.state == state && (l.settled || time.Since(l.read) < unsettledFor) {
		return l, nil
	}
	l := &lists{state: state, read: time.Now(), at: map[string]int{}}
	l.settled = state.Settled(l.read)
	var err error
	if l.entries, err = k.kept.List(ctx, ledger.Filter{}); err != nil {
		return nil, err
	}
	for i, e := range l.entries {
		l.at[e.ID] = i
	}
	l.kernels = kernelNames(l.entries)
	if l.champions, err = catalog.ReadChampions(ctx, k.kept, l.entries); err != nil {
		l.damage = append(l.damage, damage{text: err.Error()})
	}
	l.marked = l.champions.Runs()
	for _, p := range k.kept.Unlisted() {
		l.damage = append(l.damage, damage{runFolder, p.Run, p.What})
	}
	for _, e := range l.entries[:min(len(l.entries), overviewRuns)] {
		_, _ = k.readRun(ctx, e.ID) // it remembers a damaged run, for the overview
	}
	k.readLadder(ctx, l)
	if err := k.readBenches(ctx, l); err != nil {
		return nil, err
	}
	if err := k.readTunings(ctx, l); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil { // the lists may lack what was not read any more
		return nil, err
	}
	k.lists = l
	return l, nil
}

// damageIn returns the reasons why records of a folder cannot be read; of all with an empty folder.
// Of runs it knows those that a page has read: the list is that of the index.
func (k *records) damageIn(l *lists, folder string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	if folder == "" || folder == runFolder {
		for _, id := range slices.Sorted(maps.Keys(k.damaged)) {
			if _, listed := l.at[id]; listed {
				all = append(all, k.damaged[id])
			}
		}
	}
	for _, d := range l.damage {
		if folder == "" || folder == d.folder {
			all = append(all, d.text)
		}
	}
	if more := len(all) - maxRows; more > 0 {
		all = append(all[:maxRows], fmt.Sprintf("and %d more", more))
	}
	return all
}

// reason is the error of a record that is damaged and not listed, or nil.
func (l *lists) reason(folder, id string) error {
	i := slices.IndexFunc(l.damage, func(d damage) bool { return d.folder == folder && d.id == id })
	if i < 0 {
		return nil
	}
	return damagedRecord(l.damage[i].text)
}

func (k *records) readLadder(ctx context.Context, l *lists) {
	kernel, _, err := k.kernel()
	if err == nil {
		l.ladder, err = k.ladderRuns(ctx, kernel, l.entries)
	}
	if err != nil {
		l.noLadder, l.damage = true, append(l.damage, damage{text: "the ladder: " + err.Error()})
		return
	}
	l.linear = document.Approximate{}
	for _, r := range l.ladder {
		if k.isApproximate(ctx, r) {
			l.linear[r.ID] = true
		}
	}
	l.plots = ladderPlots(kernel.Name, l.ladder, l.linear)
}

// ladderRuns are the newest runs of the stages that can be read. The caller holds the lock.
func (k *records) ladderRuns(ctx context.Context, kernel *spec.Kernel, entries []ledger.Entry) ([]*run.Run, error) {
	runs, err := catalog.Ladder(kernel, ladderDevice, entries, func(id string) (*run.Run, error) { return k.readRun(ctx, id) })
	if len(runs) > 0 {
		return runs, nil // readRun remembers those that were left out
	}
	return nil, err
}

// isApproximate reports whether the kernel behind a run's headline computes exponentials by a linear
// approximation. Of a selection it is the part that took the shape. The caller holds the lock.
func (k *records) isApproximate(ctx context.Context, r *run.Run) bool {
	if r.Headline == nil || r.Problem != nil {
		return false
	}
	for _, part := range r.Parts {
		if slices.Contains(part.Shapes, r.Headline.Shape) {
			of, err := k.readRun(ctx, part.Run)
			if err != nil {
				return false // the page of the run says why
			}
			r = of
			break
		}
	}
	return r.Build != nil && document.ApproximateKnobs(r.Build.Knobs)
}

func (k *records) readBenches(ctx context.Context, l *lists) error {
	ids, err := k.kept.Benches()
	if err != nil {
		return err
	}
	for _, id := range ids {
		b, err := k.benches.get(id, func() (*run.Bench, error) { return catalog.Bench(ctx, k.kept, id) })
		if err == nil && b.ID != id {
			err = fmt.Errorf("bench %s: its document has the id %s: the directory was renamed", id, clip(b.ID, 80))
		}
		if err != nil {
			l.damage = append(l.damage, damage{benchFolder, id, err.Error()})
			continue
		}
		l.benches = append(l.benches, b)
	}
	return nil
}

func (k *records) readTunings(ctx context.Context, l *lists) error {
	ids, err := k.kept.Tunings()
	if err != nil {
		return err
	}
	for _, id := range ids {
		e, err := k.tunings.get(id, func() (catalog.TuningEntry, error) { return catalog.Search(ctx, k.kept, id) })
		if err == nil && e.ID != id {
			err = fmt.Errorf("tuning %s: its document has the id %s: the directory was renamed", id, clip(e.ID, 80))
		}
		if err != nil {
			l.damage = append(l.damage, damage{tuningFolder, id, err.Error()})
			continue
		}
		l.tunings = append(l.tunings, e)
	}
	return nil
}

// readRun reads a run without its samples, and remembers whether it is damaged. The caller holds the
// lock.
func (k *records) readRun(ctx context.Context, id string) (*run.Run, error) {
	r, err := k.runs.get(id, func() (*run.Run, error) { return catalog.Run(ctx, k.kept, id) })
	switch {
	case err == nil:
		delete(k.damaged, id)
	case ctx.Err() == nil: // else the client has gone, and the run may be sound
		k.damaged[id] = err.Error()
	}
	return r, err
}

// runTable is a table of runs.
type runTable struct {
	Label   string
	Kernels bool           // with a column of kernels: the ledger has several
	Rows    []ledger.Entry // with verdicts as they are shown
}

// table is a table of some runs of the lists.
func (k *records) table(ctx context.Context, l *lists, label string, entries []ledger.Entry) runTable {
	return runTable{label, len(l.kernels) > 1, k.shown(ctx, entries)}
}

// shown are runs with their verdicts as lists show them.
func (k *records) shown(ctx context.Context, entries []ledger.Entry) []ledger.Entry {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := slices.Clone(entries)
	document.ShowVerdicts(all, func(id string) (*run.Run, error) { return k.readRun(ctx, id) })
	return all
}

// run returns a run by its id. A text that is no id of a listed run never becomes a path.
func (k *records) run(ctx context.Context, id string) (*run.Run, error) {
	l, err := k.now(ctx)
	if err != nil {
		return nil, err
	}
	if _, ok := l.at[id]; !ok {
		return nil, k.unknownRun(ctx, l, id)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	r, err := k.readRun(ctx, id)
	if err != nil {
		return nil, damagedRecord(err.Error())
	}
	return r, nil
}

// unknownRun says why a text is no id of a listed run: the run is damaged, the text is a part of an id,
// or names a bench.
func (k *records) unknownRun(ctx context.Context, l *lists, id string) error {
	if err := l.reason(runFolder, id); err != nil {
		return err
	}
	found, err := k.kept.Find(ctx, id)
	if err == nil {
		return failure(http.StatusNotFound, "no run %q; give the whole id, %s", clip(id, 80), found.ID)
	}
	var unknown *ledger.RefError
	if !errors.As(err, &unknown) && ctx.Err() == nil {
		return damagedRecord(err.Error())
	}
	return notFound(err)
}

// withSamples returns a copy of a run with its samples.
func (k *records) withSamples(ctx context.Context, id string) (*run.Run, error) {
	r, err := k.run(ctx, id)
	if err != nil {
		return nil, err
	}
	whole := *r
	return &whole, catalog.ReadSamples(ctx, k.kept, &whole)
}

// bench returns a listed bench.
func (k *records) bench(ctx context.Context, id string) (*run.Bench, error) {
	l, err := k.now(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(l.benches, func(b *run.Bench) bool { return b.ID == id })
	if err := l.reason(benchFolder, id); i < 0 && err != nil {
		return nil, err
	}
	if i < 0 {
		return nil, failure(http.StatusNotFound, "no bench %q is listed; /benches lists them", clip(id, 80))
	}
	return l.benches[i], nil
}

// notFound gives an error the status of a missing record.
func notFound(err error) error { return failure(http.StatusNotFound, "%s", clip(err.Error(), 1000)) }

// damagedRecord is the error of a record that is there and cannot be read.
func damagedRecord(reason string) error {
	return &failed{http.StatusNotFound, "Damaged record", clip(reason, 1000) + "; `attune ledger verify` lists everything that is damaged"}
}

// cache keeps records by their id, the most recent ones.
type cache[T any] struct {
	known map[string]T
	order []string
}

// maxCached limits the records of a kind in memory. A run takes some 20 KB.
const maxCached = 1000

// get returns a known record, or reads it.
func (c *cache[T]) get(id string, read func() (T, error)) (T, error) {
	if v, ok := c.known[id]; ok {
		return v, nil
	}
	v, err := read()
	if err != nil {
		return v, err
	}
	if c.known == nil {
		c.known = map[string]T{}
	}
	c.known[id] = v
	if c.order = append(c.order, id); len(c.order) > maxCached {
		delete(c.known, c.order[0])
		c.order = c.order[1:]
	}
	return v, nil
}
