package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

const (
	runsName  = "runs"
	indexName = "index.sqlite"
	runName   = "run.json"
	sumsName  = "sha256sums"
)

// Ledger is an open ledger. It is safe for concurrent use.
type Ledger struct {
	dir   string // absolute
	chain *chainFile

	// Note receives a line about a lock that the ledger waits for, or a record that waits for it. It
	// may be nil.
	Note func(text string)

	mu       sync.Mutex // guards the fields below
	table    *table     // nil until the first query of a ledger with runs
	index    *index     // nil until then too, and if the file cannot be used
	compared bool       // the newest rows of the index are those of the records
	unusable bool       // the index has failed: the table has all that it would
	unlisted []Problem  // runs that the last query could not read
}

// Open opens the ledger in dir. A missing directory is an empty ledger, and the first record
// creates it. A read-only directory can still be read. In any other, Open finishes or removes what
// killed processes have left half-done.
func Open(ctx context.Context, dir string) (*Ledger, error) {
	if dir == "" {
		return nil, errors.New("open the ledger: no directory given")
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the ledger %s: %w", dir, err)
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("open the ledger %s: it is not a directory", dir)
	}
	l := &Ledger{dir: path, chain: &chainFile{path: filepath.Join(path, chainName)}}
	l.settle(ctx) // Verify reports what could not be settled
	if _, err := l.query(ctx, Filter{Limit: 1}); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Ledger) note(text string) {
	if l.Note != nil {
		l.Note(text)
	}
}

// Close closes the index. A later query opens it again.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table = nil
	return l.dropIndex()
}

func (l *Ledger) dropIndex() error {
	if l.index == nil {
		return nil
	}
	err := l.index.close()
	l.index = nil
	return err
}

// List returns the finished runs that the filter selects.
func (l *Ledger) List(ctx context.Context, f Filter) ([]Entry, error) {
	if err := l.compareRows(ctx); err != nil {
		return nil, fmt.Errorf("read the ledger %s: %w", l.dir, err)
	}
	return l.query(ctx, f)
}

// Unlisted returns the runs that the last query left out, with the reason why each cannot be read.
// A run that was damaged after it was listed is not among them; Unreadable finds it.
func (l *Ledger) Unlisted() []Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unlisted
}

// Files returns the sorted names of a run's files, without sha256sums.
func (l *Ledger) Files(ctx context.Context, id string) ([]string, error) {
	s, err := l.runs().sums(id)
	if err != nil {
		return nil, err
	}
	return s.names(), ctx.Err()
}

// Read returns a file of a run. A file whose checksum differs from the recorded one is an error.
func (l *Ledger) Read(ctx context.Context, id, name string) ([]byte, error) {
	return l.runs().read(ctx, id, name)
}

// Unreadable returns those of the runs whose document cannot be read or was changed, with the reason.
// It reads all of them, up to 100 KB each.
func (l *Ledger) Unreadable(ctx context.Context, ids []string) ([]Problem, error) {
	errs := make([]error, len(ids))
	if err := forEach(ctx, len(ids), func(i int) { _, errs[i] = l.Read(ctx, ids[i], runName) }); err != nil {
		return nil, err
	}
	var all []Problem
	for i, err := range errs {
		if err != nil {
			all = append(all, Problem{Run: ids[i], What: err.Error()})
		}
	}
	return all, nil
}

// Damage returns what is wrong with the files of a run, bench or tuning, other than its document.
func (l *Ledger) Damage(id string) []Problem {
	for _, f := range []folder{l.runs(), l.benches(), l.tunings()} {
		if _, err := os.Stat(f.dir(id)); err == nil {
			return f.named(id, f.verify(id))
		}
	}
	return nil
}

func (l *Ledger) runs() folder { return folder{l.runsPath(), "run", runName, l.chain} }

func (l *Ledger) runsPath() string         { return filepath.Join(l.dir, runsName) }
func (l *Ledger) runPath(id string) string { return filepath.Join(l.dir, runsName, id) }
func (l *Ledger) indexPath() string        { return filepath.Join(l.dir, indexName) }

// readEntry reads a finished run from its directory.
func (l *Ledger) readEntry(ctx context.Context, id string) (Entry, error) {
	document, err := l.Read(ctx, id, runName)
	if err != nil {
		return Entry{}, err
	}
	e, err := parseEntry(document)
	if err != nil {
		return Entry{}, fmt.Errorf("run %s: %w", id, err)
	}
	if e.ID != id {
		return Entry{}, &DamageError{id, fmt.Errorf("run %s: its %s has the id %s: the directory was renamed", id, runName, e.ID)}
	}
	return e, nil
}

// query brings the table up to date and queries it.
func (l *Ledger) query(ctx context.Context, f Filter) ([]Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refresh(ctx); err != nil {
		return nil, fmt.Errorf("read the ledger %s: %w", l.dir, err)
	}
	return l.table.query(f), nil
}

// refresh loads the table from the index and applies the difference between the names in runs/ and
// the ids in the table, to both. A failure of the index fails nothing.
func (l *Ledger) refresh(ctx context.Context) error {
	if l.table == nil {
		if _, err := os.Stat(l.runsPath()); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		rows, err := l.loadIndex(ctx)
		if err != nil {
			return err
		}
		l.table = newTable(rows)
	}
	now := stampOf(l.runsPath())
	if l.table.stamp.settled && now.same(l.table.stamp) {
		return nil
	}
	// The names are read after the table. A recording makes the directory first, so a run that is in
	// the table and has no directory was removed.
	unknown, gone, err := l.table.compare(l.runsPath())
	if err != nil {
		return err
	}
	add, unlisted, err := l.readEntries(ctx, unknown)
	if err != nil {
		return err
	}
	l.unlisted = unlisted
	l.table.update(add, gone)
	l.saveIndex(ctx, add, gone)
	if len(add) < len(unknown) {
		now.settled = false // a run that could not be read is tried again before the next query
	}
	l.table.stamp = now
	return ctx.Err()
}

// readEntries reads runs from their directories. Those that cannot be read are no finished runs; it
// returns them with the reason, sorted by id.
func (l *Ledger) readEntries(ctx context.Context, ids []string) (finished []Entry, unread []Problem, err error) {
	entries, errs := make([]Entry, len(ids)), make([]error, len(ids))
	if err := forEach(ctx, len(ids), func(i int) { entries[i], errs[i] = l.readEntry(ctx, ids[i]) }); err != nil {
		return nil, nil, err
	}
	for i, e := range entries {
		if errs[i] == nil {
			finished = append(finished, e)
		} else {
			unread = append(unread, Problem{Run: ids[i], What: errs[i].Error()})
		}
	}
	slices.SortFunc(unread, func(a, b Problem) int { return cmp.Compare(a.Run, b.Run) })
	return finished, unread, nil
}

// loadIndex returns the rows of the index, or none if it cannot be used.
func (l *Ledger) loadIndex(ctx context.Context) ([]Entry, error) {
	if l.unusable {
		return nil, nil
	}
	var rows []Entry
	var err error
	if l.index == nil {
		l.index, rows, err = openIndex(ctx, l.indexPath(), l.runsPath())
	} else {
		rows, err = l.index.load(ctx)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		l.abandonIndex()
		return nil, nil
	}
	return rows, nil
}

// checkedRows is how many rows of the index are compared with their records. It takes 22 ms on two
// cores. Verify compares all rows.
const checkedRows = 200

// compareRows compares the newest rows of the index with their records, once, and reads all records
// again if one differs: anybody can compute the checksum of a row. A record that cannot be read is
// reported elsewhere.
func (l *Ledger) compareRows(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.compared || l.table == nil {
		return nil
	}
	newest := l.table.entries[:min(len(l.table.entries), checkedRows)]
	differs := make([]bool, len(newest))
	err := forEach(ctx, len(newest), func(i int) {
		e, err := l.readEntry(ctx, newest[i].ID)
		differs[i] = err == nil && !e.equal(newest[i])
	})
	if err != nil {
		return err
	}
	l.compared = true
	if !slices.Contains(differs, true) {
		return nil
	}
	l.note("the index of the ledger differs from its records; it is made again")
	l.table = newTable(nil)
	return l.refresh(ctx)
}

// saveIndex adds and drops rows of the index.
func (l *Ledger) saveIndex(ctx context.Context, add []Entry, drop []string) {
	if l.unusable || len(add)+len(drop) == 0 {
		return
	}
	var err error
	if l.index == nil {
		l.index, _, err = openIndex(ctx, l.indexPath(), l.runsPath())
	}
	if err == nil {
		err = l.index.update(ctx, add, drop)
	}
	if err != nil && ctx.Err() == nil {
		l.abandonIndex()
	}
}

// abandonIndex closes an index that has failed. The next process tries it again.
func (l *Ledger) abandonIndex() {
	_ = l.dropIndex() // it has already failed
	l.unusable = true
}
