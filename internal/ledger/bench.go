package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

const (
	benchesName = "benches"
	benchName   = "bench.json"
	latestBench = "latest-bench"
)

// benches returns the folder of the benches.
func (l *Ledger) benches() folder {
	return folder{filepath.Join(l.dir, benchesName), "bench", benchName, l.chain}
}

// RecordBench writes a bench. The files must include bench.json with an id from [NewID], the time
// in the id, and the kernel. As with [Ledger.Record], the record is complete or absent.
func (l *Ledger) RecordBench(ctx context.Context, files map[string][]byte) error {
	id, err := l.benches().identify(files)
	if err != nil {
		return err
	}
	return l.recordIdentified(ctx, l.benches(), id, files)
}

// ReadBench returns a file of a bench. A file whose checksum differs from the recorded one is an
// error.
func (l *Ledger) ReadBench(ctx context.Context, id, name string) ([]byte, error) {
	return l.benches().read(ctx, id, name)
}

// findBench returns the id of the bench that ref names. ref is an id, an unambiguous start or end
// of one, or "latest-bench". The id is empty if ref names no bench or several.
func (l *Ledger) findBench(ref string) (string, error) { return l.benches().findID(ref, latestBench) }

// identify returns the id of a record that is to be written: a bench or a tuning.
func (f folder) identify(files map[string][]byte) (id string, err error) {
	document, ok := files[f.document]
	if !ok {
		return "", fmt.Errorf("the %s was not recorded: it has no %s", f.kind, f.document)
	}
	if id, err = parseIdentified(f.document, document); err != nil {
		return "", fmt.Errorf("the %s was not recorded: %w", f.kind, err)
	}
	return id, nil
}

// recordIdentified writes the record of a bench or a tuning.
func (l *Ledger) recordIdentified(ctx context.Context, f folder, id string, files map[string][]byte) error {
	if err := l.write(ctx, f, id, files); err != nil {
		return fmt.Errorf("%s %s was not recorded: %w", f.kind, id, err)
	}
	if err := syncDir(f.path); err != nil {
		return fmt.Errorf("%s %s was recorded, but a power cut may undo it: flush %s: %w", f.kind, id, f.path, err)
	}
	return nil
}

// parseIdentified returns the id in the document of a bench or a tuning. It checks the keys that
// identify the record.
func parseIdentified(name string, document []byte) (id string, err error) {
	var b struct {
		ID     string    `json:"id"`
		Time   time.Time `json:"time"`
		Kernel string    `json:"kernel"`
	}
	if err := json.Unmarshal(document, &b); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	started, err := parseID(b.ID)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: key id: %w", name, err)
	case !b.Time.UTC().Truncate(time.Second).Equal(started):
		return "", fmt.Errorf("%s: key time is %s, but the id %s has %s: make both from one clock reading",
			name, b.Time.Format(time.RFC3339), b.ID, started.Format(time.RFC3339))
	case b.Kernel == "":
		return "", fmt.Errorf("%s: key kernel is missing or empty", name)
	}
	return b.ID, nil
}

// verifyIdentified checks the document of a bench or a tuning.
func verifyIdentified(ctx context.Context, f folder, id string) []Problem {
	document, err := f.read(ctx, id, f.document)
	recorded := ""
	if err == nil {
		recorded, err = parseIdentified(f.document, document)
	}
	if err == nil && recorded != id {
		err = errors.New("its id is " + recorded + ": the directory was renamed")
	}
	if err != nil {
		return []Problem{{File: f.document, What: err.Error()}}
	}
	return nil
}

// verifyIdentifieds checks the files of every record of a folder.
func verifyIdentifieds(ctx context.Context, f folder) (sound int, problems []Problem, err error) {
	ids, err := f.ids()
	if err != nil {
		return 0, nil, err
	}
	return f.verifyAll(ctx, ids, func(id string) []Problem { return verifyIdentified(ctx, f, id) })
}

// benchRefError returns the error of a reference that names a bench or a tuning instead of a run, or
// nil.
func (l *Ledger) benchRefError(ref string) error {
	id, err := l.findBench(ref)
	if err != nil {
		return err
	}
	if id != "" {
		return &RefError{Ref: ref, Bench: id}
	}
	id, err = l.tunings().findID(ref, latestTuning)
	if err != nil || id == "" {
		return err
	}
	return &RefError{Ref: ref, Tuning: id}
}
