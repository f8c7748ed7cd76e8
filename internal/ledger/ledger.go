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

// Ledger is an open ledger. Its methods may be called from several goroutines at once.
type Ledger struct {
	dir string // absolute

	mu    sync.Mutex // guards index
	index *index     // nil until there is something to index
}

// Open opens the ledger in dir. A directory that is not there is an empty ledger, and the first Record makes it;
// one that cannot be written can still be read.
func Open(ctx context.Context, dir string) (*Ledger, error) {
	if dir == "" {
		return nil, errors.New("opening the ledger: no directory given")
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the ledger %s: %w", dir, err)
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("opening the ledger %s: it is not a directory", dir)
	}
	l := &Ledger{dir: path}
	if _, err := l.query(ctx, Filter{Limit: 1}); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Close releases the index. Runs are safe without it.
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

// List returns the finished runs that the filter chooses.
func (l *Ledger) List(ctx context.Context, f Filter) ([]Entry, error) {
	return l.query(ctx, f)
}

// Files returns the names of a run's files, in order, without sha256sums.
func (l *Ledger) Files(ctx context.Context, id string) ([]string, error) {
	s, err := l.runs().sums(id)
	if err != nil {
		return nil, err
	}
	return s.names(), ctx.Err()
}

// Read returns a file of a run. A file that is not what it was when it was recorded is an error.
func (l *Ledger) Read(ctx context.Context, id, name string) ([]byte, error) {
	return l.runs().read(ctx, id, name)
}

// runs is the folder of the runs.
func (l *Ledger) runs() folder { return folder{l.runsPath(), "run", runName} }

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
		return Entry{}, fmt.Errorf("run %s: %s says that its id is %s: the directory was renamed", id, runName, e.ID)
	}
	return e, nil
}

// query asks the index, after bringing it up to date. When the index fails, the same question goes to a new one in memory.
func (l *Ledger) query(ctx context.Context, f Filter) ([]Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.index == nil {
		if _, err := os.Stat(l.runsPath()); errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
	}
	entries, err := l.ask(ctx, f)
	if err != nil && ctx.Err() == nil {
		l.useMemory(ctx)
		entries, err = l.ask(ctx, f)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the ledger %s: %w", l.dir, err)
	}
	return entries, nil
}

func (l *Ledger) ask(ctx context.Context, f Filter) ([]Entry, error) {
	if err := l.needIndex(ctx); err != nil {
		return nil, err
	}
	if err := l.catchUp(ctx); err != nil {
		return nil, err
	}
	return l.index.query(ctx, f)
}

func (l *Ledger) needIndex(ctx context.Context) error {
	if l.index != nil {
		return nil
	}
	x, err := openIndex(ctx, l.indexPath(), l.runsPath())
	l.index = x
	return err
}

func (l *Ledger) useMemory(ctx context.Context) {
	_ = l.dropIndex()             // it failed already
	l.index, _ = memoryIndex(ctx) // a failure leaves no index, and needIndex says why
}

// catchUp makes the index agree with the names of the directories.
func (l *Ledger) catchUp(ctx context.Context) error {
	// The index is read before the directories: a run gets its directory first, so one that is indexed and has no
	// directory has been removed, and is not one that another process is recording now.
	indexed, err := l.index.ids(ctx)
	if err != nil {
		return err
	}
	there, err := l.runs().ids()
	if err != nil {
		return err
	}
	var add []Entry
	for _, id := range there {
		if indexed[id] {
			delete(indexed, id)
			continue
		}
		e, err := l.readEntry(ctx, id)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil { // otherwise it is not a finished run; Verify says why
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
