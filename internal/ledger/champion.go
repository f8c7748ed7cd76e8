package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

const (
	championsName = "champions"
	championName  = "champion.json"

	championSchema = 1
)

// Champion is one record of the champion of a kernel on an architecture: the variant in production
// from Since on. Every change adds a record that names the one before it, so the newest record has
// the present champion and the older ones its history.
type Champion struct {
	SchemaVersion int       `json:"schema_version"`
	ID            string    `json:"id"`
	Change        Change    `json:"change"`
	Number        int       `json:"number"` // counts the changes of this kernel and architecture from 1
	Since         time.Time `json:"since"`
	Kernel        string    `json:"kernel"`
	Arch          string    `json:"arch"` // of the device, such as sm_90
	Variant       string    `json:"variant"`
	Run           string    `json:"run"` // the run that the variant was promoted on
	CodeHash      string    `json:"code_hash"`
	Previous      *Previous `json:"previous,omitempty"` // nil in the first record
	Restores      string    `json:"restores,omitempty"` // set in a rollback: the promotion it returns to
	Attune        string    `json:"attune,omitempty"`   // version of the program
}

// Change is the reason for a record.
type Change string

// The reasons.
const (
	Promotion Change = "promote"
	Rollback  Change = "rollback"
)

// Previous names the record before. Its checksum chains the records: Verify reports one that was
// rewritten or removed.
type Previous struct {
	ID      string `json:"id"`
	SHA256  string `json:"sha256"` // of its champion.json
	Variant string `json:"variant"`
	Run     string `json:"run"`
}

// Champions is every record, sorted by kernel, architecture and number. Of two records with the
// same number, which a git merge can bring together, the later one counts.
type Champions []Champion

// Of returns the present champion of a kernel on an architecture.
func (all Champions) Of(kernel, arch string) (Champion, bool) {
	for _, c := range slices.Backward(all) {
		if c.Kernel == kernel && c.Arch == arch {
			return c, true
		}
	}
	return Champion{}, false
}

// Now returns the present champion of every kernel and architecture, in the same order.
func (all Champions) Now() []Champion {
	var now []Champion
	for i, c := range all {
		if i+1 == len(all) || all[i+1].Kernel != c.Kernel || all[i+1].Arch != c.Arch {
			now = append(now, c)
		}
	}
	return now
}

// promotion returns the promotion with this id, or the one that the rollback with this id restored.
func (all Champions) promotion(id string) (Champion, error) {
	find := func(id string) (c Champion) {
		if i := slices.IndexFunc(all, func(c Champion) bool { return c.ID == id }); i >= 0 {
			c = all[i]
		}
		return c
	}
	c := find(id)
	if c.Change == Rollback {
		id = c.Restores
		c = find(id)
	}
	if c.Change != Promotion {
		return Champion{}, fmt.Errorf("the promotion %s/%s is missing; restore it from git or a copy", championsName, id)
	}
	return c, nil
}

// Champions reads every record. One damaged record is an error: without it the present champion is
// not known.
func (l *Ledger) Champions(ctx context.Context) (Champions, error) {
	ids, err := l.champions().ids()
	if err != nil {
		return nil, err
	}
	var all Champions
	for _, id := range ids {
		c, err := l.readChampion(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("a record of a champion cannot be read; restore it from git or a copy: %w", err)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Champion) int {
		return cmp.Or(
			cmp.Compare(a.Kernel, b.Kernel), cmp.Compare(a.Arch, b.Arch),
			cmp.Compare(a.Number, b.Number), a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID),
		)
	})
	return all, nil
}

// Promote makes a variant the champion. The caller sets kernel, architecture, variant, run, code
// hash and version, and has checked that the run is evidence enough.
func (l *Ledger) Promote(ctx context.Context, c Champion) (Champion, error) {
	return l.change(ctx, func(all Champions) (Champion, error) {
		now, ok := all.Of(c.Kernel, c.Arch)
		if ok && now.CodeHash == c.CodeHash {
			return c, fmt.Errorf("%s is already the champion of %s with the same code, since %s by run %s",
				now.Variant, c.Arch, now.Since.Format(time.DateOnly), now.Run)
		}
		if _, err := parseID(c.Run); err == nil {
			if err := l.Sealed(c.Run); err != nil {
				return c, fmt.Errorf("nothing was promoted: run %w", err)
			}
		}
		c.Change = Promotion
		return c, nil
	})
}

// Rollback returns to the champion before the present one. The run that it was promoted on must
// still be in the ledger.
func (l *Ledger) Rollback(ctx context.Context, kernel, arch, version string) (Champion, error) {
	return l.change(ctx, func(all Champions) (Champion, error) {
		now, ok := all.Of(kernel, arch)
		if !ok {
			return now, fmt.Errorf("%s has no champion on %s; `attune promote RUN` makes one", kernel, arch)
		}
		promoted, err := all.promotion(now.ID)
		if err != nil {
			return now, err
		}
		if promoted.Previous == nil {
			return now, fmt.Errorf("%s is the first champion of %s; there is no earlier one to return to", now.Variant, arch)
		}
		earlier, err := all.promotion(promoted.Previous.ID)
		if err != nil {
			return now, err
		}
		if _, err := l.readEntry(ctx, earlier.Run); err != nil {
			return now, fmt.Errorf("the champion before %s is %s, and its run cannot be read: %w", now.Variant, earlier.Variant, err)
		}
		earlier.Change, earlier.Restores, earlier.Attune = Rollback, earlier.ID, version
		return earlier, nil
	})
}

// change writes the record that next returns. A lock on the ledger keeps other processes from doing
// the same meanwhile. On file systems without locks (NFS) two changes may follow the same record.
func (l *Ledger) change(ctx context.Context, next func(Champions) (Champion, error)) (Champion, error) {
	unlock, err := l.lock(ctx, syscall.LOCK_EX)
	if err != nil {
		return Champion{}, err
	}
	defer unlock()
	all, err := l.Champions(ctx)
	if err != nil {
		return Champion{}, err
	}
	c, err := next(all)
	if err != nil {
		return Champion{}, err
	}
	c.SchemaVersion = championSchema
	c.Since = time.Now().UTC().Truncate(time.Microsecond)
	c.ID = NewID(c.Since, c.Arch)
	c.Number, c.Previous = 1, nil
	folder := l.champions()
	if now, ok := all.Of(c.Kernel, c.Arch); ok {
		s, err := folder.sums(now.ID)
		if err != nil {
			return Champion{}, err
		}
		c.Number, c.Previous = now.Number+1, &Previous{now.ID, s[championName], now.Variant, now.Run}
	}
	document, err := json.MarshalIndent(c, "", "  ")
	if err == nil {
		err = c.check()
	}
	var s staged
	if err == nil {
		s, err = folder.stage(ctx, c.ID, map[string][]byte{championName: append(document, '\n')})
	}
	if err == nil {
		err = l.publish(s)
	}
	if err != nil {
		return Champion{}, fmt.Errorf("the champion was not changed: %w", err)
	}
	if err := syncDir(folder.path); err != nil {
		return c, fmt.Errorf("the champion was changed, but a power cut may undo it: flush %s: %w", folder.path, err)
	}
	return c, nil
}

func (l *Ledger) champions() folder {
	return folder{filepath.Join(l.dir, championsName), "champion", championName, l.chain}
}

func (l *Ledger) readChampion(ctx context.Context, id string) (Champion, error) {
	document, err := l.champions().read(ctx, id, championName)
	if err != nil {
		return Champion{}, err
	}
	c, err := parseChampion(document)
	if err != nil {
		return Champion{}, fmt.Errorf("champion %s: %w", id, err)
	}
	if c.ID != id {
		return Champion{}, fmt.Errorf("champion %s: its %s has the id %s: the directory was renamed", id, championName, c.ID)
	}
	return c, nil
}

func parseChampion(document []byte) (Champion, error) {
	var c Champion
	err := json.Unmarshal(document, &c)
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return Champion{}, fmt.Errorf("%s: %w", championName, err)
	}
	return c, nil
}

// check reports the first contradiction within a record.
func (c Champion) check() error {
	for _, need := range []struct{ key, value string }{
		{"kernel", c.Kernel},
		{"arch", c.Arch},
		{"variant", c.Variant},
		{"code_hash", c.CodeHash},
	} {
		if need.value == "" {
			return fmt.Errorf("key %s is missing or empty", need.key)
		}
	}
	for _, id := range []string{c.ID, c.Run} {
		if _, err := parseID(id); err != nil {
			return err
		}
	}
	switch {
	case c.SchemaVersion < 1:
		return errors.New("key schema_version is missing")
	case c.SchemaVersion > championSchema:
		return fmt.Errorf("a newer attune wrote it (schema %d, this one reads %d)", c.SchemaVersion, championSchema)
	case c.Change != Promotion && c.Change != Rollback:
		return fmt.Errorf("key change is %q; want %s or %s", c.Change, Promotion, Rollback)
	case (c.Change == Rollback) != (c.Restores != ""):
		return errors.New("key restores must be set in a rollback, and only there")
	case c.Number < 1 || (c.Number == 1) != (c.Previous == nil):
		return fmt.Errorf("key number is %d: the first record, and only the first, has no previous one", c.Number)
	}
	return nil
}

// verifyChampions checks the records of champions, their chain, and the runs that they name.
func (l *Ledger) verifyChampions(ctx context.Context, runs map[string]Entry) (sound int, problems []Problem, err error) {
	folder := l.champions()
	ids, err := folder.ids()
	if err != nil {
		return 0, nil, err
	}
	known := map[string]Champion{} // only the readable ones
	for _, id := range ids {
		if c, err := l.readChampion(ctx, id); err == nil {
			known[id] = c
		}
	}
	return folder.verifyAll(ctx, ids, func(id string) []Problem { return l.verifyChampion(ctx, id, known, runs) })
}

func (l *Ledger) verifyChampion(ctx context.Context, id string, known map[string]Champion, runs map[string]Entry) []Problem {
	c, err := l.readChampion(ctx, id)
	if err != nil {
		return []Problem{{File: championName, What: err.Error()}}
	}
	var problems []Problem
	require := func(ok bool, format, id string) {
		if !ok {
			problems = append(problems, Problem{File: championName, What: fmt.Sprintf(format, id)})
		}
	}
	if run, ok := runs[c.Run]; !ok {
		require(false, "its run %s is not in the ledger", c.Run)
	} else {
		same := run.Kernel == c.Kernel && run.Variant == c.Variant && run.CodeHash == c.CodeHash
		require(same, "its run %s has another kernel, variant or code", c.Run)
	}
	if p := c.Previous; p != nil {
		before, ok := known[p.ID]
		s, err := l.champions().sums(p.ID)
		if !ok || err != nil {
			require(false, "the record %s before it is missing or damaged", p.ID)
		} else {
			require(s[championName] == p.SHA256, "the record %s before it was rewritten", p.ID)
			next := before.Kernel == c.Kernel && before.Arch == c.Arch && before.Number == c.Number-1
			require(next, "the record %s that it names as previous is not the one before it", p.ID)
		}
	}
	if c.Change == Rollback {
		r := known[c.Restores]
		same := r.Change == Promotion && r.Run == c.Run && r.Kernel == c.Kernel && r.Arch == c.Arch
		require(same, "the promotion %s that it restores is missing or different", c.Restores)
	}
	return problems
}
