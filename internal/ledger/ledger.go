package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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

	mu    sync.Mutex // guards index
	index *index     // nil until the first query of a ledger with runs
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
	l.settle() // Verify reports what could not be settled
	if _, err := l.query(ctx, Filter{Limit: 1}); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Close closes the index.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
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
	return l.query(ctx, f)
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
		return Entry{}, fmt.Errorf("run %s: its %s has the id %s: the directory was renamed", id, runName, e.ID)
	}
	return e, nil
}

// query updates the index and queries it. If the index fails, query repeats it with a new index in
// memory.
func (l *Ledger) query(ctx context.Context, f Filter) ([]Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.index == nil {
		if _, err := os.Stat(l.runsPath()); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	entries, err := l.queryIndex(ctx, f)
	if err != nil && ctx.Err() == nil {
		l.useMemoryIndex(ctx)
		entries, err = l.queryIndex(ctx, f)
	}
	if err != nil {
		return nil, fmt.Errorf("read the ledger %s: %w", l.dir, err)
	}
	return entries, nil
}

func (l *Ledger) queryIndex(ctx context.Context, f Filter) ([]Entry, error) {
	if err := l.openIndex(ctx); err != nil {
		return nil, err
	}
	if err := l.updateIndex(ctx); err != nil {
		return nil, err
	}
	return l.index.query(ctx, f)
}

func (l *Ledger) openIndex(ctx context.Context) error {
	if l.index != nil {
		return nil
	}
	x, err := openIndex(ctx, l.indexPath(), l.runsPath())
	l.index = x
	return err
}

func (l *Ledger) useMemoryIndex(ctx context.Context) {
	_ = l.dropIndex()             // it has already failed
	l.index, _ = memoryIndex(ctx) // after a failure the next openIndex returns the error
}

// updateIndex applies the difference between the names in runs/ and the ids in the index.
func (l *Ledger) updateIndex(ctx context.Context) error {
	// The index is read before the directories. A recording makes the directory first, so a run
	// that is indexed and has no directory was removed.
	indexed, err := l.index.ids(ctx)
	if err != nil {
		return err
	}
	present, err := l.runs().ids()
	if err != nil {
		return err
	}
	var add []Entry
	for _, id := range present {
		if indexed[id] {
			delete(indexed, id)
			continue
		}
		e, err := l.readEntry(ctx, id)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil { // otherwise it is no finished run, and Verify reports the reason
			add = append(add, e)
		}
	}
	var drop []string
	for id := range indexed {
		drop = append(drop, id)
	}
	if len(add)+len(drop) == 0 {
		return nil
	}
	return l.index.update(ctx, add, drop)
}
