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
	"path/filepath"
	"strings"
)

// Report is what Verify or Reindex found.
type Report struct {
	Runs     int // finished runs: those without a problem in Verify, those indexed in Reindex
	Problems []Problem
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

// Verify reads every file of every run and compares it with the run's sha256sums, and the index with the runs.
// It changes no run.
func (l *Ledger) Verify(ctx context.Context) (Report, error) {
	entries, err := l.List(ctx, Filter{})
	if err != nil {
		return Report{}, err
	}
	indexed := make(map[string]Entry, len(entries))
	for _, e := range entries {
		indexed[e.ID] = e
	}
	found, err := os.ReadDir(l.runsPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Report{}, fmt.Errorf("listing the runs: %w", err)
	}
	var r Report
	for _, f := range found {
		if err := ctx.Err(); err != nil {
			return Report{}, err
		}
		if _, err := parseID(f.Name()); err != nil || !f.IsDir() {
			r.Problems = append(r.Problems, strayProblem(f)...)
			continue
		}
		problems := l.verifyRun(ctx, f.Name(), indexed)
		if len(problems) == 0 {
			r.Runs++
		}
		r.Problems = append(r.Problems, problems...)
	}
	return r, nil
}

// strayProblem judges what lies among the runs and is none. A recording under way is no problem.
func strayProblem(f fs.DirEntry) []Problem {
	file := filepath.Join(runsName, f.Name())
	if !strings.HasPrefix(f.Name(), temporaryPrefix) {
		return []Problem{{File: file, What: "this is not a run; move it elsewhere"}}
	}
	if info, err := f.Info(); err != nil || !isLeftBehind(info) {
		return nil
	}
	return []Problem{{File: file, What: "left behind by a recording that did not finish; reindex removes it"}}
}

func (l *Ledger) verifyRun(ctx context.Context, id string, indexed map[string]Entry) []Problem {
	problems := l.verifyFiles(id)
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

func (l *Ledger) verifyFiles(id string) []Problem {
	var problems []Problem
	add := func(file, format string, args ...any) {
		problems = append(problems, Problem{Run: id, File: file, What: fmt.Sprintf(format, args...)})
	}
	dir := l.runPath(id)
	s, err := l.readSums(id)
	if err != nil {
		add(sumsName, "the run cannot be checked: %v", err)
		return problems
	}
	for _, name := range s.names() {
		digest, err := sumFile(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			add(name, "is missing")
		case err != nil:
			add(name, "cannot be read: %v", err)
		case digest != s[name]:
			add(name, "was changed: its SHA-256 is %s, but %s says %s", digest, sumsName, s[name])
		}
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		add("", "cannot be listed: %v", err)
	}
	for _, f := range there {
		if _, listed := s[f.Name()]; !listed && f.Name() != sumsName {
			add(f.Name(), "was added: %s does not list it", sumsName)
		}
	}
	return problems
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
	ids, err := l.runIDs()
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
	r.Problems = append(r.Problems, l.removeLeftBehind()...)
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

func (l *Ledger) removeLeftBehind() []Problem {
	var problems []Problem
	found, _ := os.ReadDir(l.runsPath())
	for _, f := range found {
		info, err := f.Info()
		if err != nil || !strings.HasPrefix(f.Name(), temporaryPrefix) || !isLeftBehind(info) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(l.runsPath(), f.Name())); err != nil {
			problems = append(problems, Problem{File: filepath.Join(runsName, f.Name()), What: "cannot be removed: " + err.Error()})
		}
	}
	return problems
}
