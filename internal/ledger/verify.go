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
	"slices"
	"strings"
	"syscall"
)

// Report is the result of Verify, Reindex, Seal or Import.
type Report struct {
	Runs      int // Verify: runs without a problem; Reindex: indexed runs; else added ones
	Champions int // Verify: champion records without a problem; Reindex: 0; else added ones
	Benches   int // Verify: benches without a problem; Reindex: 0; else added ones
	Tunings   int // the same of finished searches
	// Unfinished counts the searches that run or were interrupted, of Verify. They are no records.
	Unfinished int
	Problems   []Problem

	Added []string // Seal and Import: the added records, such as runs/20261115-031522-stage2-3f9a1c
	// Unchained are the added records of ledgers without a chain: nothing but their own checksums
	// shows that they are the ones that were written.
	Unchained []string
	Root      string // hash of the last link of the chain; empty without a chain

	hashes []string // of all links
}

func (r *Report) add(f folder, id string) {
	r.Added = append(r.Added, f.record(id))
	switch f.document {
	case runName:
		r.Runs++
	case benchName:
		r.Benches++
	case tuningName:
		r.Tunings++
	default:
		r.Champions++
	}
}

func (r *Report) setChain(c *chain) {
	r.Root = c.root()
	for _, k := range c.links {
		r.hashes = append(r.hashes, k.hash)
	}
}

// Links returns the length of the chain.
func (r Report) Links() int { return len(r.hashes) }

// Since returns the number of links behind the one with this hash. It returns false if the chain
// has no such link: then the records up to it are not the ones of that time.
func (r Report) Since(root string) (links int, ok bool) {
	i := slices.Index(r.hashes, root)
	return len(r.hashes) - 1 - i, i >= 0
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
	if p.Run != "" {
		where = slices.Insert(where, 0, runsName)
	}
	return strings.Join(where, "/") + ": " + p.What
}

// Verify compares every file with its recorded checksum, every record with the chain, the index with
// the runs, and champion records with each other and with their runs. It changes nothing. Other
// processes can record when it has finished.
func (l *Ledger) Verify(ctx context.Context) (Report, error) {
	unlock, err := l.lock(ctx, syscall.LOCK_SH)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	l.chain.forget()
	indexed, err := l.indexed(ctx)
	if err != nil {
		return Report{}, err
	}
	ids, err := l.runs().ids()
	if err != nil {
		return Report{}, err
	}
	r := Report{Problems: l.runs().strays()}
	found := make([][]Problem, len(ids))
	if err := forEach(ctx, len(ids), func(i int) { found[i] = l.verifyRun(ctx, ids[i], indexed) }); err != nil {
		return Report{}, err
	}
	for _, problems := range found {
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
	benches, problems, err := verifyIdentifieds(ctx, l.benches())
	if err != nil {
		return Report{}, err
	}
	r.Benches, r.Problems = benches, append(r.Problems, problems...)
	tunings, problems, err := verifyIdentifieds(ctx, l.tunings())
	if err != nil {
		return Report{}, err
	}
	r.Tunings, r.Problems = tunings, append(r.Problems, problems...)
	unfinished, _ := l.unfinished().ids() // what is there is no record
	r.Unfinished = len(unfinished)
	problems, err = l.verifyChain(&r)
	r.Problems = append(r.Problems, problems...)
	return r, err
}

// indexed returns the rows of the index by id, or the runs of the table if the index cannot be used.
func (l *Ledger) indexed(ctx context.Context) (map[string]Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refresh(ctx); err != nil {
		return nil, fmt.Errorf("read the ledger %s: %w", l.dir, err)
	}
	rows := l.table.query(Filter{})
	if l.index != nil {
		if read, err := l.loadIndex(ctx); err != nil {
			return nil, err
		} else if l.index != nil { // not abandoned just now
			rows = read
		}
	}
	all := make(map[string]Entry, len(rows))
	for _, e := range rows {
		all[e.ID] = e
	}
	return all, nil
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
	return l.runs().unsealed(id)
}

// unsealed returns the problem of a record that a sound chain does not name. Of a missing or damaged
// chain there is one problem, and not one for each record.
func (f folder) unsealed(id string) []Problem {
	c, err := f.chain.load()
	if _, ok := c.seal(f.record(id)); ok || err != nil || !c.exists {
		return nil
	}
	what := "is not in the chain: it was copied in, or the chain was cut; check where it comes from, then `attune ledger seal` adds it"
	if i, ok := c.gone[f.record(id)]; ok {
		what = fmt.Sprintf("was removed (line %d of the chain) and is back; delete it, or `attune ledger seal` adds it again", c.line(i))
	}
	return []Problem{{Run: id, What: what}}
}

// verifyChain checks the chain, that every record in it is on disk, and that the parts of the ledger
// are what they should be and no links to other places.
func (l *Ledger) verifyChain(r *Report) ([]Problem, error) {
	problems := l.verifyParts()
	c, err := l.chain.load()
	r.setChain(c)
	if err != nil {
		problems = append(problems, Problem{File: chainName, What: err.Error() +
			"; restore it from git or a copy. If there is none, delete it, check the records, and run `attune ledger seal`"})
	}
	var missing []place
	count := 0
	for _, f := range l.folders() {
		ids, err := f.ids()
		if err != nil {
			return nil, err
		}
		count += len(ids)
		present := make(map[string]bool, len(ids))
		for _, id := range ids {
			present[id] = true
		}
		for record := range c.live {
			if id, ok := strings.CutPrefix(record, filepath.Base(f.path)+"/"); ok && !present[id] {
				missing = append(missing, place{f, id})
			}
		}
	}
	if err == nil && !c.exists && count > 0 {
		problems = append(problems, Problem{File: chainName, What: fmt.Sprintf("is missing: nothing shows that the %d records are the ones "+
			"that were written; restore it from git or a copy. If there was none, `attune ledger seal` makes it", count)})
	}
	sortByAge(missing)
	for _, at := range missing {
		problems = append(problems, at.folder.missing(c, at.id))
	}
	return problems, nil
}

// missing returns the problem of a record that the chain names and that is not on disk.
func (f folder) missing(c *chain, id string) Problem {
	i := c.live[f.record(id)]
	for _, d := range temporaries(f.path) {
		if temporaryID(d.Name()) == id && f.isPending(id, d.Name(), c.links[i].seal) {
			return Problem{File: f.record(id), What: "its recording was interrupted after it was complete; the next command that can write here finishes it"}
		}
	}
	what := fmt.Sprintf("is missing, but line %d of the chain names it; restore it from git or a copy", c.line(i))
	if f.document != championName {
		what += fmt.Sprintf(", or run `attune ledger remove %s` if it was deleted on purpose", id)
	}
	return Problem{File: f.record(id), What: what}
}

// verifyParts reports links in the place of the ledger's own files and directories.
func (l *Ledger) verifyParts() []Problem {
	var problems []Problem
	for _, name := range []string{runsName, benchesName, championsName, tuningsName, unfinishedName, indexName} {
		if info, err := os.Lstat(filepath.Join(l.dir, name)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			problems = append(problems, Problem{File: name, What: "is a symbolic link; a ledger is complete in its own directory"})
		}
	}
	return append(problems, l.verifySearches()...)
}

func sumFile(path string) (string, error) {
	f, err := openRegular(path)
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
	read, errs := make([]Entry, len(ids)), make([]error, len(ids))
	if err := forEach(ctx, len(ids), func(i int) { read[i], errs[i] = l.readEntry(ctx, ids[i]) }); err != nil {
		return Report{}, err
	}
	var entries []Entry
	for i, e := range read {
		if errs[i] != nil {
			r.Problems = append(r.Problems, Problem{Run: ids[i], What: fmt.Sprintf(
				"not indexed: %v; restore it from git or a copy, or run `attune ledger remove %s`", errs[i], ids[i])})
		} else {
			entries = append(entries, e)
		}
	}
	r.Problems = append(r.Problems, l.settle(ctx)...)
	if err := l.rebuild(ctx, entries); err != nil {
		return Report{}, fmt.Errorf("the index %s was not rebuilt; the runs are unchanged: %w", l.indexPath(), err)
	}
	r.Runs = len(entries)
	return r, nil
}

// rebuild replaces the rows of the index file, also of one that has failed.
func (l *Ledger) rebuild(ctx context.Context, entries []Entry) error {
	if _, err := os.Stat(l.runsPath()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.dropIndex() // its rows are replaced
	x, _, err := openIndex(ctx, l.indexPath(), l.runsPath())
	if err != nil {
		return err
	}
	l.index, l.unusable, l.table = x, false, newTable(entries)
	return x.replace(ctx, entries)
}
