package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Sealed returns nil if the chain names the run or bench with this id, and the reason otherwise.
func (l *Ledger) Sealed(id string) error {
	c, err := l.chain.load()
	for _, f := range l.folders() {
		if _, ok := c.seal(f.record(id)); ok {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("%s cannot be trusted: the chain of the ledger is damaged; `attune ledger verify` names the damage", id)
	}
	return fmt.Errorf("%s is not in the chain of the ledger; check where it comes from, then `attune ledger seal` adds it", id)
}

// Seal enters every intact record that the chain does not name into the chain, the oldest first.
// Its report has the entered records, the ones that it refused, and those that are no longer as the
// chain has them.
func (l *Ledger) Seal(ctx context.Context) (Report, error) {
	unlock, err := l.lock(ctx, syscall.LOCK_EX)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	c, err := l.chain.parseSound()
	if err != nil {
		return Report{}, err
	}
	var r Report
	records, err := l.outside(c)
	if err != nil {
		return Report{}, err
	}
	for _, at := range records {
		if err := ctx.Err(); err != nil {
			return Report{}, err
		}
		problems := l.checkRecord(ctx, at.folder, at.id)
		if len(problems) == 0 {
			var text []byte
			if text, err = readRegular(filepath.Join(at.folder.dir(at.id), sumsName)); err == nil {
				err = c.push(added, at.folder.record(at.id), sumBytes(text))
			}
			if err != nil {
				return Report{}, err
			}
			r.add(at.folder, at.id)
		}
		r.Problems = append(r.Problems, problems...)
	}
	changed, err := l.changed(c)
	if err != nil {
		return Report{}, err
	}
	r.Problems = append(r.Problems, changed...)
	if len(r.Added) > 0 {
		if err := l.chain.replace(c); err != nil {
			return Report{}, fmt.Errorf("nothing was sealed: %w", nameFullDisk(err))
		}
	}
	r.setChain(c)
	return r, nil
}

// changed returns the problems of the records on disk that the chain names: their files are not the
// sealed ones.
func (l *Ledger) changed(c *chain) ([]Problem, error) {
	var problems []Problem
	for _, f := range l.folders() {
		ids, err := f.ids()
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if _, ok := c.seal(f.record(id)); ok {
				problems = append(problems, f.named(id, f.verify(id))...)
			}
		}
	}
	return problems, nil
}

// place is where a record is.
type place struct {
	folder folder
	id     string
}

// outside returns the records that are on disk and not in the chain, the oldest first.
func (l *Ledger) outside(c *chain) ([]place, error) {
	var records []place
	for _, f := range l.folders() {
		ids, err := f.ids()
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if _, ok := c.seal(f.record(id)); !ok {
				records = append(records, place{f, id})
			}
		}
	}
	sortByAge(records)
	return records, nil
}

// sortByAge sorts by id, which starts with the time. A champion comes after the run of its second.
func sortByAge(records []place) {
	slices.SortStableFunc(records, func(a, b place) int { return cmp.Compare(a.id, b.id) })
}

// checkRecord checks the files of a record and that its document can be read. It does not check
// whether the chain names it.
func (l *Ledger) checkRecord(ctx context.Context, f folder, id string) []Problem {
	problems := f.verify(id)
	if len(problems) > 0 {
		return f.named(id, problems)
	}
	var err error
	switch f.document {
	case runName:
		_, err = l.readEntry(ctx, id)
	case championName:
		_, err = l.readChampion(ctx, id)
	default:
		problems = verifyIdentified(ctx, f, id)
	}
	if err != nil {
		problems = []Problem{{File: f.document, What: err.Error()}}
	}
	return f.named(id, problems)
}

// Import copies records into the ledger and enters them into its chain. Each path is a ledger or
// the directory of one record in a ledger. A record that the ledger already has is skipped. Records
// that are damaged, or that the chain of their ledger does not name, are refused. One refusal
// refuses all. The report names the records of a ledger without a chain.
func (l *Ledger) Import(ctx context.Context, paths ...string) (Report, error) {
	var r Report
	var records []staged
	fail := func(err error) (Report, error) {
		for _, s := range records {
			s.discard()
		}
		return Report{}, fmt.Errorf("nothing was imported: %w", err)
	}
	for _, path := range paths {
		source, places, err := importable(ctx, path)
		if err != nil {
			return fail(err)
		}
		for _, at := range places {
			files, err := source.export(ctx, at)
			if err != nil {
				return fail(err)
			}
			to := l.folderOf(at.folder)
			if to.has(at.id, sumFiles(files)) {
				continue
			}
			s, err := to.stage(ctx, at.id, files)
			if err != nil {
				return fail(err)
			}
			records = append(records, s)
			r.add(to, at.id)
			if c, _ := source.chain.load(); !c.exists {
				r.Unchained = append(r.Unchained, to.record(at.id))
			}
		}
	}
	unlock, err := l.lock(ctx, syscall.LOCK_EX)
	if err != nil {
		return fail(err)
	}
	defer unlock()
	if len(records) > 0 {
		if err := l.publish(records...); err != nil {
			return Report{}, fmt.Errorf("the import ended: %w", err)
		}
	}
	c, err := l.chain.parseSound()
	if err != nil {
		return Report{}, err
	}
	r.setChain(c)
	return r, nil
}

// importable opens the ledger of a path and returns the records that the path names.
func importable(ctx context.Context, path string) (*Ledger, []place, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, nil, err
	}
	id, kind := filepath.Base(path), filepath.Base(filepath.Dir(path))
	dir := path
	_, notID := parseID(id)
	if notID == nil {
		dir = filepath.Dir(filepath.Dir(path))
	}
	source := &Ledger{dir: dir, chain: &chainFile{path: filepath.Join(dir, chainName)}}
	var records []place
	for _, f := range source.folders() {
		ids, err := f.ids()
		if err != nil {
			return nil, nil, err
		}
		for _, each := range ids {
			if notID != nil || each == id && kind == filepath.Base(f.path) {
				records = append(records, place{f, each})
			}
		}
	}
	if len(records) == 0 {
		return nil, nil, fmt.Errorf("%s is neither a ledger with records nor the directory of a record, such as .attune/runs/ID", path)
	}
	sortByAge(records)
	return source, records, ctx.Err()
}

// export returns the files of an intact record. In a ledger with a chain, the chain must name it.
func (l *Ledger) export(ctx context.Context, at place) (map[string][]byte, error) {
	if problems := l.checkRecord(ctx, at.folder, at.id); len(problems) > 0 {
		return nil, errors.New(filepath.Join(l.dir, problems[0].String()))
	}
	c, err := l.chain.load()
	if err == nil && c.exists {
		if _, ok := c.seal(at.folder.record(at.id)); !ok {
			err = errors.New("does not name " + at.folder.record(at.id))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; `attune ledger verify --ledger %s` names the damage", l.chain.path, err, l.dir)
	}
	s, err := at.folder.sums(at.id)
	if err != nil {
		return nil, err
	}
	files := make(map[string][]byte, len(s))
	for _, name := range s.names() {
		if files[name], err = at.folder.readFile(s, at.id, name); err != nil {
			return nil, err
		}
	}
	return files, ctx.Err()
}

// folderOf returns the folder of this ledger with the same kind of records.
func (l *Ledger) folderOf(other folder) folder {
	folders := l.folders()
	return folders[slices.IndexFunc(folders, func(f folder) bool { return f.document == other.document })]
}

// has reports whether the ledger has a sealed record with these checksums.
func (f folder) has(id string, want sums) bool {
	c, _ := f.chain.load()
	seal, ok := c.seal(f.record(id))
	if !ok || seal != sumBytes([]byte(want.String())) {
		return false
	}
	_, err := os.Lstat(f.dir(id))
	return err == nil
}

// Remove removes a run, a bench or a tuning on purpose: the chain gets a link that says so. ref is an
// id, an unambiguous start or end of one, "latest", "latest-bench" or "latest-tuning". The record may
// already be gone from the disk. A search that was interrupted is removed too, without a link. It
// returns the name of the record, such as runs/20261115-031522-stage2-3f9a1c.
func (l *Ledger) Remove(ctx context.Context, ref string) (string, error) {
	unlock, err := l.lock(ctx, syscall.LOCK_EX)
	if err != nil {
		return "", err
	}
	defer unlock()
	c, err := l.chain.parseSound()
	if err != nil {
		return "", err
	}
	at, err := l.removable(ctx, c, ref)
	if err != nil {
		name, second := l.removeInterrupted(ref)
		if name != "" || second != nil {
			return name, second
		}
		return "", err
	}
	if info, err := os.Lstat(at.folder.path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return "", fmt.Errorf("%s was not removed: %s is a symbolic link; a ledger is complete in its own directory", at.id, filepath.Base(at.folder.path))
	}
	record, path, temporary := at.folder.record(at.id), at.folder.dir(at.id), at.folder.temporary(at.id)
	fail := func(err error) (string, error) { return "", fmt.Errorf("%s was not removed: %w", record, err) }
	// If a kill comes before the link, settle moves the record back; after it, settle removes it.
	moved := os.Rename(path, temporary)
	if moved != nil && !errors.Is(moved, fs.ErrNotExist) {
		return fail(moved)
	}
	if seal, ok := c.seal(record); ok {
		err = c.push(removed, record, seal)
		if err == nil {
			err = l.chain.replace(c)
		}
	}
	if err != nil {
		if moved == nil {
			err = errors.Join(err, os.Rename(temporary, path))
		}
		return fail(nameFullDisk(err))
	}
	if err := os.RemoveAll(temporary); err != nil {
		return record, fmt.Errorf("%s was removed from the ledger, but its files were not deleted: %w", record, err)
	}
	return record, nil
}

// removable finds the record that ref names, among those on disk and those in the chain.
func (l *Ledger) removable(ctx context.Context, c *chain, ref string) (place, error) {
	named := map[string]place{}
	for _, f := range l.folders() {
		ids, err := f.ids()
		if err != nil {
			return place{}, err
		}
		for _, id := range ids {
			named[f.record(id)] = place{f, id}
		}
		for record := range c.live {
			if id, ok := strings.CutPrefix(record, filepath.Base(f.path)+"/"); ok {
				named[record] = place{f, id}
			}
		}
	}
	all := slices.Sorted(maps.Keys(named))
	var found, ids []string
	for _, record := range all {
		id := named[record].id
		ids = append(ids, id)
		if id == ref {
			found = []string{record}
			break
		}
		if ref != "" && (strings.HasPrefix(id, ref) || strings.HasSuffix(id, ref)) {
			found = append(found, record)
		}
	}
	switch ref {
	case latestRun:
		found = newest(all, runsName)
	case latestBench:
		found = newest(all, benchesName)
	case latestTuning:
		found = newest(all, tuningsName)
	}
	switch {
	case len(found) == 0:
		return place{}, &RefError{Ref: ref, Candidates: nearest(ids, ref)}
	case len(found) > 1:
		return place{}, &RefError{Ref: ref, Ambiguous: true, Candidates: found}
	}
	return named[found[0]], l.checkRemoval(ctx, named[found[0]])
}

// newest returns the last of sorted records in a folder: ids start with the time.
func newest(records []string, folder string) []string {
	for _, record := range slices.Backward(records) {
		if filepath.Dir(record) == folder {
			return []string{record}
		}
	}
	return nil
}

// checkRemoval refuses records that the champions depend on.
func (l *Ledger) checkRemoval(ctx context.Context, at place) error {
	if at.folder.document == championName {
		return fmt.Errorf("%s is a change of a champion, and later changes name it; it cannot be removed", at.id)
	}
	all, err := l.Champions(ctx)
	if err != nil {
		return err
	}
	for _, c := range all {
		if c.Run == at.id {
			return fmt.Errorf("run %s is the evidence of the champion record %s; it cannot be removed", at.id, c.ID)
		}
	}
	return nil
}
