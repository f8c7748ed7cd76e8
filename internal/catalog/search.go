package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"attune/internal/ledger"
	"attune/internal/report"
	"attune/internal/run"
)

// UnfinishedSearch is a search that runs or was interrupted.
type UnfinishedSearch struct {
	ID          string `json:"id"`
	Kernel      string `json:"kernel,omitempty"`
	Variant     string `json:"variant,omitempty"`
	Selection   string `json:"selection,omitempty"`
	Evaluations int    `json:"evaluations"` // lines of its journals
	Running     bool   `json:"running"`
	Folder      string `json:"folder"`
}

// Search reads the entry of a finished search.
func Search(ctx context.Context, kept *ledger.Ledger, id string) (report.TuningEntry, error) {
	text, err := kept.ReadTuning(ctx, id, run.TuningFile)
	if err != nil {
		return report.TuningEntry{}, err
	}
	return report.NewTuningEntry(text)
}

// Unfinished describes the searches that run or were interrupted, the newest first.
func Unfinished(kept *ledger.Ledger) ([]UnfinishedSearch, error) {
	ids, err := kept.UnfinishedTunings()
	var all []UnfinishedSearch
	for _, id := range ids {
		all = append(all, unfinished(kept, id))
	}
	return all, err
}

func unfinished(kept *ledger.Ledger, id string) UnfinishedSearch {
	u := UnfinishedSearch{ID: id, Folder: kept.TuningFolder(id), Running: Running(kept, id)}
	var one run.TuneSearch
	var selection run.SelectionSearch
	if readJSON(filepath.Join(u.Folder, run.TuneFile), &one) {
		u.Kernel, u.Variant = one.Identity.Kernel, one.Identity.Variant
	} else if readJSON(filepath.Join(u.Folder, run.SelectionFile), &selection) {
		u.Selection = selection.Selection
	}
	for _, journal := range Journals(u.Folder) {
		text, _ := os.ReadFile(journal) // one that cannot be read has none
		u.Evaluations += max(0, bytes.Count(text, []byte("\n"))-1)
	}
	return u
}

// Running reports whether a process holds the lock of an unfinished search.
func Running(kept *ledger.Ledger, id string) bool {
	unlock, err := kept.LockTuning(id)
	unlock()
	return err != nil && !errors.Is(err, fs.ErrNotExist) // a search without a result is removed
}

// Journals are the files with the evaluations of an unfinished search. Each has a line before them.
func Journals(folder string) (paths []string) {
	for _, pattern := range []string{run.TuneJournal, filepath.Join("*", run.TuneJournal)} {
		found, _ := filepath.Glob(filepath.Join(folder, pattern)) // only a pattern can be wrong
		paths = append(paths, found...)
	}
	return paths
}

// readJSON reports whether a file could be read.
func readJSON(file string, into any) bool {
	text, err := os.ReadFile(file)
	return err == nil && json.Unmarshal(text, into) == nil
}
