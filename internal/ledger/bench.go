package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
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
	document, ok := files[benchName]
	if !ok {
		return fmt.Errorf("the bench was not recorded: it has no %s", benchName)
	}
	id, err := parseBench(document)
	if err != nil {
		return fmt.Errorf("the bench was not recorded: %w", err)
	}
	folder := l.benches()
	if err := l.write(ctx, folder, id, files); err != nil {
		return fmt.Errorf("bench %s was not recorded: %w", id, err)
	}
	if err := syncDir(folder.path); err != nil {
		return fmt.Errorf("bench %s was recorded, but a power cut may undo it: flush %s: %w", id, folder.path, err)
	}
	return nil
}

// ReadBench returns a file of a bench. A file whose checksum differs from the recorded one is an
// error.
func (l *Ledger) ReadBench(ctx context.Context, id, name string) ([]byte, error) {
	return l.benches().read(ctx, id, name)
}

// findBench returns the id of the bench that ref names. ref is an id, an unambiguous start or end
// of one, or "latest-bench". The id is empty if ref names no bench or several.
func (l *Ledger) findBench(ref string) (string, error) {
	ids, err := l.benches().ids()
	if err != nil {
		return "", err
	}
	if ref == latestBench && len(ids) > 0 {
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

// parseBench returns the id in a bench.json. It checks the keys that identify a bench.
func parseBench(document []byte) (id string, err error) {
	var b struct {
		ID     string    `json:"id"`
		Time   time.Time `json:"time"`
		Kernel string    `json:"kernel"`
	}
	if err := json.Unmarshal(document, &b); err != nil {
		return "", fmt.Errorf("%s: %w", benchName, err)
	}
	started, err := parseID(b.ID)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: key id: %w", benchName, err)
	case !b.Time.UTC().Truncate(time.Second).Equal(started):
		return "", fmt.Errorf("%s: key time is %s, but the id %s has %s: make both from one clock reading",
			benchName, b.Time.Format(time.RFC3339), b.ID, started.Format(time.RFC3339))
	case b.Kernel == "":
		return "", fmt.Errorf("%s: key kernel is missing or empty", benchName)
	}
	return b.ID, nil
}

// verifyBenches checks the files of every bench.
func (l *Ledger) verifyBenches(ctx context.Context) (sound int, problems []Problem, err error) {
	folder := l.benches()
	ids, err := folder.ids()
	if err != nil {
		return 0, nil, err
	}
	return folder.verifyAll(ctx, ids, func(id string) []Problem { return l.verifyBench(ctx, id) })
}

func (l *Ledger) verifyBench(ctx context.Context, id string) []Problem {
	document, err := l.ReadBench(ctx, id, benchName)
	recorded := ""
	if err == nil {
		recorded, err = parseBench(document)
	}
	if err == nil && recorded != id {
		err = errors.New("its id is " + recorded + ": the directory was renamed")
	}
	if err != nil {
		return []Problem{{File: benchName, What: err.Error()}}
	}
	return nil
}

// benchRefError returns the error of a reference that names a bench instead of a run, or nil.
func (l *Ledger) benchRefError(ref string) error {
	id, err := l.findBench(ref)
	if err != nil || id == "" {
		return err
	}
	return &RefError{Ref: ref, Bench: id}
}
