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

// Report is what Verify or Reindex found.
type Report struct {
	Runs      int // finished runs: those without a problem in Verify, those indexed in Reindex
	Champions int // changes of a champion without a problem; Reindex does not look at them, for they are in no index
	Benches   int // benches without a problem; the same holds for them
	Problems  []Problem
}

// Problem is one thing that is wrong with a ledger.
type Problem struct {
	Run  string // empty when it is not about a run
	File string // in the run's directory, or in the ledger's when there is no run; empty when it is about the run as a whole
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

// Verify reads every file of every run and compares it with the run's sha256sums, the index with the runs, and the records of champions
// with each other and with the runs that they rest on. Benches are compared with their sha256sums. It changes nothing.
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
	// A run that is not indexed was recorded after the index was read.
	if row, ok := indexed[id]; ok && !row.equal(e) {
		return []Problem{{Run: id, File: runName, What: "the index says something else; reindex puts it right"}}
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

// Reindex builds the index anew from the runs, and removes what unfinished recordings of dead processes left
// behind. Its report names the runs that it had to leave out.
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
			r.Problems = append(r.Problems, Problem{Run: id, What: "left out: " + err.Error()})
		default:
			entries = append(entries, e)
		}
	}
	for _, f := range []folder{l.runs(), l.champions(), l.benches()} {
		r.Problems = append(r.Problems, f.removeLeftBehind()...)
	}
	if err := l.rebuild(ctx, entries); err != nil {
		return Report{}, fmt.Errorf("the index %s was not rebuilt, and the runs are not touched: %w", l.indexPath(), err)
	}
	r.Runs = len(entries)
	return r, nil
}

// rebuild starts from the index in the file, even if the one in memory is used now.
func (l *Ledger) rebuild(ctx context.Context, entries []Entry) error {
	if _, err := os.Stat(l.runsPath()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.dropIndex() // its content is not needed
	if err := l.needIndex(ctx); err != nil {
		return err
	}
	return l.index.replace(ctx, entries)
}
