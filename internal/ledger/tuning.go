package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	tuningsName = "tunings"
	tuningName  = "tuning.json"
	// unfinishedName is the directory of the searches that run or were interrupted. They are no records.
	unfinishedName = "tuning"
	latestTuning   = "latest-tuning"
)

// tunings returns the folder of the finished searches.
func (l *Ledger) tunings() folder {
	return folder{filepath.Join(l.dir, tuningsName), "tuning", tuningName, l.chain}
}

// RecordTuning writes a finished search. The files must include tuning.json with an id from [NewID],
// the time in the id, and the kernel. As with [Ledger.Record], the record is complete or absent. A
// record that the ledger already has is left as it is.
func (l *Ledger) RecordTuning(ctx context.Context, files map[string][]byte) error {
	id, err := l.tunings().identify(files)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(l.tunings().dir(id)); err == nil {
		return nil // the process was killed between this and the removal of the unfinished search
	}
	return l.recordIdentified(ctx, l.tunings(), id, files)
}

// ReadTuning returns a file of a finished search. A file whose checksum differs from the recorded one
// is an error.
func (l *Ledger) ReadTuning(ctx context.Context, id, name string) ([]byte, error) {
	return l.tunings().read(ctx, id, name)
}

// TuningFolder returns the directory of an unfinished search.
func (l *Ledger) TuningFolder(id string) string { return filepath.Join(l.dir, unfinishedName, id) }

// errLinked is the error of a link in place of the directory of the searches.
var errLinked = fmt.Errorf("%s is a symbolic link; a ledger is complete in its own directory", unfinishedName)

// checkSearches refuses a link in place of the directory of the searches: what it leads to is not of
// this ledger.
func (l *Ledger) checkSearches() error {
	if info, err := os.Lstat(filepath.Join(l.dir, unfinishedName)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return errLinked
	}
	return nil
}

// verifySearches reports what is neither a file nor a folder in the directories of unfinished searches.
func (l *Ledger) verifySearches() []Problem {
	if l.checkSearches() != nil {
		return nil // verifyParts reports it
	}
	var problems []Problem
	root := filepath.Join(l.dir, unfinishedName)
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !d.Type().IsRegular() {
			file, _ := filepath.Rel(l.dir, path) // it is below
			problems = append(problems, Problem{File: file, What: "is not a regular file; remove it: a search has files of its own only"})
		}
		return nil
	})
	return problems
}

// StartTuning makes the directory of a new search and locks it for this process.
func (l *Ledger) StartTuning(id string) (dir string, unlock func(), err error) {
	if _, err := parseID(id); err != nil {
		return "", func() {}, err
	}
	if err := l.checkSearches(); err != nil {
		return "", func() {}, err
	}
	dir = l.TuningFolder(id)
	if err := makeDir(dir); err != nil {
		return "", func() {}, nameFullDisk(err)
	}
	unlock, err = l.LockTuning(id)
	return dir, unlock, err
}

// errBusy is the error of a search that another process runs.
var errBusy = errors.New("another process runs it")

// LockTuning locks the directory of an unfinished search until unlock is called or the process ends.
func (l *Ledger) LockTuning(id string) (unlock func(), err error) {
	if err := l.checkSearches(); err != nil {
		return func() {}, err
	}
	d, err := os.Open(l.TuningFolder(id))
	if err != nil {
		return func() {}, err
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		d.Close()
		return func() {}, fmt.Errorf("the search %s: %w", id, errBusy)
	}
	return func() { unlockFile(d) }, nil // a file system without locks has none
}

// Tunings returns the ids of the finished searches, the newest first.
func (l *Ledger) Tunings() ([]string, error) { return l.tunings().newestFirst() }

// UnfinishedTunings returns the ids of the searches that run or were interrupted, the newest first.
// What was left of a search that is recorded is removed.
func (l *Ledger) UnfinishedTunings() ([]string, error) {
	if err := l.checkSearches(); err != nil {
		return nil, nil // Verify reports it; what it leads to is not of this ledger
	}
	ids, err := l.unfinished().newestFirst()
	return slices.DeleteFunc(ids, func(id string) bool {
		if !l.hasTuning(id) {
			return false
		}
		_ = l.RemoveUnfinishedTuning(id) // a leftover does no harm
		return true
	}), err
}

func (l *Ledger) unfinished() folder { return folder{path: filepath.Join(l.dir, unfinishedName)} }

func (l *Ledger) hasTuning(id string) bool {
	_, err := os.Lstat(l.tunings().dir(id))
	return err == nil
}

func (f folder) newestFirst() ([]string, error) {
	ids, err := f.ids()
	slices.Sort(ids)
	slices.Reverse(ids)
	return ids, err
}

// RemoveUnfinishedTuning removes the directory of a search that is recorded, or that has no result.
func (l *Ledger) RemoveUnfinishedTuning(id string) error {
	if _, err := parseID(id); err != nil {
		return err
	}
	if err := l.checkSearches(); err != nil {
		return err
	}
	if err := os.RemoveAll(l.TuningFolder(id)); err != nil {
		return fmt.Errorf("the folder of the search %s was not removed: %w", id, err)
	}
	_ = os.Remove(filepath.Join(l.dir, unfinishedName)) // if it is empty
	return nil
}

// removeInterrupted removes the search that ref names among those that were interrupted. It returns
// an empty name if there is none.
func (l *Ledger) removeInterrupted(ref string) (string, error) {
	if err := l.checkSearches(); err != nil {
		return "", nil
	}
	id, err := l.unfinished().findID(ref, "")
	if id == "" || err != nil {
		return "", err
	}
	unlock, err := l.LockTuning(id)
	if err != nil {
		return "", fmt.Errorf("%w; end it first", err)
	}
	defer unlock()
	return unfinishedName + "/" + id, l.RemoveUnfinishedTuning(id)
}

// findID returns the id that a reference names among those of a folder: an id, an unambiguous start
// or end of one, or the reference of the newest one. It is empty if there is none, or several.
func (f folder) findID(ref, latest string) (string, error) {
	ids, err := f.ids()
	if err != nil {
		return "", err
	}
	if ref == latest && len(ids) > 0 {
		return slices.Max(ids), nil // ids start with the time
	}
	var matches []string
	for _, id := range ids {
		if id == ref {
			return id, nil
		}
		if ref != "" && (strings.HasPrefix(id, ref) || strings.HasSuffix(id, ref)) {
			matches = append(matches, id)
		}
	}
	if len(matches) != 1 {
		return "", nil
	}
	return matches[0], nil
}
