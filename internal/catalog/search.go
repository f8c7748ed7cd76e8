package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"attune/internal/ledger"
	"attune/internal/regular"
	"attune/internal/run"
)

// TuningEntry is a finished search in a list.
type TuningEntry struct {
	ID          string    `json:"id"`
	Time        time.Time `json:"time"`
	Kernel      string    `json:"kernel"`
	Stage       string    `json:"stage,omitempty"`     // of a search from one variant
	Selection   string    `json:"selection,omitempty"` // of a tuned selection
	Device      string    `json:"device"`
	Objective   string    `json:"objective"`
	Evaluations int       `json:"evaluations"`
	Default     string    `json:"default,omitempty"`
	Best        string    `json:"best,omitempty"` // the default if none is better beyond doubt
	Ratio       *float64  `json:"ratio,omitempty"`
}

// NewTuningEntry describes the search of a tuning.json.
func NewTuningEntry(document []byte) (TuningEntry, error) {
	s, err := run.DecodeSelectionTuning(document)
	if err != nil {
		return TuningEntry{}, err
	}
	if s != nil {
		return TuningEntry{
			ID: s.ID, Time: s.Time, Kernel: s.Kernel, Selection: s.Selection, Device: s.Facts.Kind, Objective: s.Objective,
			Evaluations: s.Evaluations, Ratio: s.Proposal.Speedup,
		}, nil
	}
	t, err := run.DecodeTuning(document)
	if err != nil {
		return TuningEntry{}, err
	}
	e := TuningEntry{
		ID: t.ID, Time: t.Time, Kernel: t.Kernel, Stage: t.Stage, Device: t.Facts.Kind, Objective: t.Objective,
		Evaluations: t.Evaluations, Default: t.Default.Variant, Best: t.Best.Name(),
	}
	if t.Best.Ratio != nil {
		e.Ratio = &t.Best.Ratio.Ratio
	}
	return e, nil
}

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
func Search(ctx context.Context, kept *ledger.Ledger, id string) (TuningEntry, error) {
	text, err := kept.ReadTuning(ctx, id, run.TuningFile)
	if err != nil {
		return TuningEntry{}, err
	}
	return NewTuningEntry(text)
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
		text, _ := regular.ReadNoFollow(journal, maxFile) // one that cannot be read has none
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

// maxFile bounds a file of an unfinished search in bytes.
const maxFile = 64 << 20

// Journals are the files with the evaluations of an unfinished search. Each has a line before them.
// Folders behind links are left out: they are not of this search.
func Journals(folder string) (paths []string) {
	for _, pattern := range []string{run.TuneJournal, filepath.Join("*", run.TuneJournal)} {
		found, _ := filepath.Glob(filepath.Join(folder, pattern)) // only a pattern can be wrong
		paths = append(paths, found...)
	}
	return slices.DeleteFunc(paths, func(path string) bool {
		info, err := os.Lstat(filepath.Dir(path))
		return err != nil || !info.IsDir()
	})
}

// readJSON reports whether a file could be read.
func readJSON(file string, into any) bool {
	text, err := regular.ReadNoFollow(file, maxFile)
	return err == nil && json.Unmarshal(text, into) == nil
}

// Passes reports whether a filter of runs lets a finished search pass. Its variants are the default and
// the best; a selection is a stage and a variant. A verdict is one of runs only.
func Passes(f ledger.Filter, e TuningEntry) bool {
	among := func(want string, names ...string) bool { return want == "" || slices.Contains(names, want) }
	return f.Verdict == "" && among(f.Kernel, e.Kernel) && among(f.Stage, e.Stage, e.Selection) &&
		among(f.Variant, e.Default, e.Best, e.Selection) && among(f.Device, e.Device)
}

// PassingUnfinished are the unfinished searches of the kernel of a filter. Other filters let none pass.
func PassingUnfinished(f ledger.Filter, all []UnfinishedSearch) []UnfinishedSearch {
	if f.Verdict != "" || f.Stage != "" || f.Variant != "" || f.Device != "" {
		return nil
	}
	return slices.DeleteFunc(all, func(u UnfinishedSearch) bool {
		return f.Kernel != "" && u.Kernel != "" && f.Kernel != u.Kernel
	})
}
