package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// Report is the result of Verify or Reindex.
type Report struct {
	Runs      int // Verify: runs without a problem; Reindex: indexed runs
	Champions int // Verify: champion records without a problem; Reindex: 0
	Benches   int // Verify: benches without a problem; Reindex: 0
	Problems  []Problem
}

// Problem is one defect of a ledger.
type Problem struct {
	Run  string // may be empty
	File string // in the run's directory, or in the ledger's if Run is empty; may be empty
	What string
}

func (p Problem) String() string {
	var where []string
	for _, part := range []string{p.Run, p.File} {
		if part != "" {
			where = append(where, part)
		}
	}
	return strings.Join(where, "/") + ": " + p.What
}

// Verify compares every file with its recorded checksum, the index with the runs, and champion
// records with each other and with their runs. It changes nothing.
func (l *Ledger) Verify(ctx context.Context) (Report, error) {
	entries, err := l.List(ctx, Filter{})
	if err != nil {
		return Report{}, err
	}
	indexed := make(map[string]Entry, len(entries))
	for _, e := range entries {
		indexed[e.ID] = e
	}
	ids, err := l.runs().ids()
	if err != nil {
		return Report{}, err
	}
	r := Report{Problems: l.runs().strays()}
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return Report{}, err
		}
		problems := l.verifyRun(ctx, id, indexed)
		if len(problems) == 0 {
			r.Runs++
		}
		r.Problems = append(r.Problems, problems...)
	}
	champions, problems, err := l.verifyChampions(ctx, indexed)
	if err != nil {
		return Report{}, err
	}
	r.Champions, r.Problems = champions, append(r.Problems, problems...)
	benches, problems, err := l.verifyBenches(ctx)
	if err != nil {
		return Report{}, err
	}
	r.Benches, r.Problems = benches, append(r.Problems, problems...)
	return r, nil
}

func (l *Ledger) verifyRun(ctx context.Context, id string, indexed map[string]Entry) []Problem {
	problems := l.runs().verify(id)
	if len(problems) > 0 {
		return problems
	}
	e, err := l.readEntry(ctx, id)
	if err != nil {
		return []Problem{{Run: id, File: runName, What: err.Error()}}
	}
	// A run without a row was recorded after the index was read.
	if row, ok := indexed[id]; ok && !row.equal(e) {
		return []Problem{{Run: id, File: runName, What: "the index differs from it; reindex repairs the index"}}
	}
	return nil
}

func sumFile(path string) (string, error) {
	if info, err := os.Lstat(path); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Reindex rebuilds the index from the runs and removes unfinished recordings of dead processes. Its
// report names the runs that are not indexed, and why.
func (l *Ledger) Reindex(ctx context.Context) (Report, error) {
	var r Report
	ids, err := l.runs().ids()
	if err != nil {
		return r, err
	}
	var entries []Entry
	for _, id := range ids {
		e, err := l.readEntry(ctx, id)
		switch {
		case ctx.Err() != nil:
			return Report{}, ctx.Err()
		case err != nil:
			r.Problems = append(r.Problems, Problem{Run: id, What: "not indexed: " + err.Error()})
		default:
			entries = append(entries, e)
		}
	}
	for _, f := range []folder{l.runs(), l.champions(), l.benches()} {
		r.Problems = append(r.Problems, f.removeAbandoned()...)
	}
	if err := l.rebuild(ctx, entries); err != nil {
		return Report{}, fmt.Errorf("the index %s was not rebuilt; the runs are unchanged: %w", l.indexPath(), err)
	}
	r.Runs = len(entries)
	return r, nil
}

// rebuild replaces the rows of the index file, even if an index in memory is in use.
func (l *Ledger) rebuild(ctx context.Context, entries []Entry) error {
	if _, err := os.Stat(l.runsPath()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.dropIndex() // its rows are replaced
	if err := l.openIndex(ctx); err != nil {
		return err
	}
	return l.index.replace(ctx, entries)
}
