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

// Champion is the variant in production for one architecture, from one change of it on. Every change is a record of its own, which
// names the one before: the champion of today is in the last record, and nothing that came before is lost.
type Champion struct {
	SchemaVersion int       `json:"schema_version"`
	ID            string    `json:"id"`
	Change        Change    `json:"change"`
	Number        int       `json:"number"` // of the change, from 1 on, for this kernel and architecture
	Since         time.Time `json:"since"`
	Kernel        string    `json:"kernel"`
	Arch          string    `json:"arch"` // of the device, such as sm_90
	Variant       string    `json:"variant"`
	Run           string    `json:"run"` // the evidence
	CodeHash      string    `json:"code_hash"`
	Previous      *Previous `json:"previous,omitempty"` // nil in the first record
	Restores      string    `json:"restores,omitempty"` // of a rollback: the promotion that counts again
	Attune        string    `json:"attune,omitempty"`   // version of the program
}

// Change is how a champion came to be one.
type Change string

// The changes.
const (
	Promotion Change = "promote"
	Rollback  Change = "rollback"
)

// Previous names the record that a change follows. Its checksum makes a chain of the records: none can be rewritten or taken out unseen.
type Previous struct {
	ID      string `json:"id"`
	SHA256  string `json:"sha256"` // of its champion.json
	Variant string `json:"variant"`
	Run     string `json:"run"`
}

// Champions are the changes of champions: by kernel and architecture, and of each in the order in which they were made. Of two that were
// made apart and brought together by git, the later one counts.
type Champions []Champion

// Of is the champion of a kernel on an architecture now.
func (all Champions) Of(kernel, arch string) (Champion, bool) {
	for _, c := range slices.Backward(all) {
		if c.Kernel == kernel && c.Arch == arch {
			return c, true
		}
	}
	return Champion{}, false
}

// Now is every champion there is, in the same order.
func (all Champions) Now() []Champion {
	var now []Champion
	for _, c := range all {
		if last, _ := all.Of(c.Kernel, c.Arch); last.ID == c.ID {
			now = append(now, c)
		}
	}
	return now
}

// before is the promotion that counted before the champion c was promoted; false where c was the first.
func (all Champions) before(c Champion) (Champion, bool, error) {
	promoted, err := all.promotion(c.ID)
	if err != nil || promoted.Previous == nil {
		return Champion{}, false, err
	}
	earlier, err := all.promotion(promoted.Previous.ID)
	return earlier, err == nil, err
}

// promotion is the change by which the champion of a record was promoted: the record itself, or the one that it restored.
func (all Champions) promotion(id string) (Champion, error) {
	for range 2 {
		i := slices.IndexFunc(all, func(c Champion) bool { return c.ID == id })
		if i < 0 {
			return Champion{}, fmt.Errorf("the record %s/%s is missing; bring it back from git or a copy", championsName, id)
		}
		if all[i].Change == Promotion {
			return all[i], nil
		}
		id = all[i].Restores
	}
	return Champion{}, fmt.Errorf("%s/%s is said to be a promotion and is none; `attune ledger verify` says more", championsName, id)
}

// Champions reads every change of a champion. A record that is damaged is an error: a champion is not to be guessed.
func (l *Ledger) Champions(ctx context.Context) (Champions, error) {
	ids, err := l.champions().ids()
	if err != nil {
		return nil, err
	}
	var all Champions
	for _, id := range ids {
		c, err := l.readChampion(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("the record of a champion cannot be read; bring it back from git or a copy: %w", err)
		}
		all = append(all, c)
	}
	all.sort()
	return all, nil
}

func (all Champions) sort() {
	slices.SortFunc(all, func(a, b Champion) int {
		return cmp.Or(
			cmp.Compare(a.Kernel, b.Kernel), cmp.Compare(a.Arch, b.Arch),
			cmp.Compare(a.Number, b.Number), a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID),
		)
	})
}

// Promote makes a variant the champion, on the evidence of a run. The caller gives kernel, architecture, variant, run, code hash and
// version; whether the evidence is enough is for it to say.
func (l *Ledger) Promote(ctx context.Context, c Champion) (Champion, error) {
	return l.change(ctx, func(all Champions) (Champion, error) {
		now, ok := all.Of(c.Kernel, c.Arch)
		if ok && now.CodeHash == c.CodeHash {
			return c, fmt.Errorf("%s is the champion of %s already, with the same code, since %s by run %s",
				now.Variant, c.Arch, now.Since.Format(time.DateOnly), now.Run)
		}
		c.Change = Promotion
		return c, nil
	})
}

// Rollback makes the champion before the present one the champion again. The run that it was promoted on must still be there.
func (l *Ledger) Rollback(ctx context.Context, kernel, arch, version string) (Champion, error) {
	return l.change(ctx, func(all Champions) (Champion, error) {
		now, ok := all.Of(kernel, arch)
		if !ok {
			return now, fmt.Errorf("%s has no champion on %s; `attune promote RUN` makes one", kernel, arch)
		}
		earlier, ok, err := all.before(now)
		if err != nil {
			return now, err
		}
		if !ok {
			return now, fmt.Errorf("%s is the first champion of %s; there is none before it to return to", now.Variant, arch)
		}
		if _, err := l.readEntry(ctx, earlier.Run); err != nil {
			return now, fmt.Errorf("the champion before %s is %s, and its evidence cannot be read: %w", now.Variant, earlier.Variant, err)
		}
		back := earlier
		back.Change, back.Restores, back.Attune = Rollback, earlier.ID, version
		return back, nil
	})
}

// change records the next champion that next gives, while no other process does the same.
func (l *Ledger) change(ctx context.Context, next func(Champions) (Champion, error)) (Champion, error) {
	folder := l.champions()
	ask := func() (all Champions, c Champion, err error) {
		if all, err = l.Champions(ctx); err == nil {
			c, err = next(all)
		}
		return all, c, err
	}
	if _, _, err := ask(); err != nil { // before anything is made
		return Champion{}, err
	}
	if err := makeDir(folder.path); err != nil {
		return Champion{}, fmt.Errorf("the champion was not changed: %w", err)
	}
	// Where folders cannot be locked (NFS) two changes may follow the same one, and the later counts.
	unlock := lockDir(folder.path, syscall.LOCK_EX)
	defer unlock()
	all, c, err := ask()
	if err != nil {
		return Champion{}, err
	}
	c.SchemaVersion = championSchema
	c.Since = time.Now().UTC().Truncate(time.Microsecond)
	c.ID = NewID(c.Since, c.Arch)
	c.Number, c.Previous = 1, nil
	if now, ok := all.Of(c.Kernel, c.Arch); ok {
		s, err := folder.sums(now.ID)
		if err != nil {
			return Champion{}, err
		}
		c.Number, c.Previous = now.Number+1, &Previous{now.ID, s[championName], now.Variant, now.Run}
	}
	if err := c.check(); err != nil {
		return Champion{}, fmt.Errorf("the champion was not changed: %w", err)
	}
	document, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return Champion{}, fmt.Errorf("the champion was not changed: %w", err)
	}
	if err := folder.write(ctx, c.ID, map[string][]byte{championName: append(document, '\n')}); err != nil {
		return Champion{}, fmt.Errorf("the champion was not changed: %w", err)
	}
	if err := syncDir(folder.path); err != nil {
		return c, fmt.Errorf("the champion was changed, but this may be gone after a power cut: flushing %s: %w", folder.path, err)
	}
	return c, nil
}

func (l *Ledger) champions() folder {
	return folder{filepath.Join(l.dir, championsName), "champion", championName}
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
		return Champion{}, fmt.Errorf("champion %s: %s says that its id is %s: the directory was renamed", id, championName, c.ID)
	}
	return c, nil
}

func parseChampion(document []byte) (Champion, error) {
	var c Champion
	if err := json.Unmarshal(document, &c); err != nil {
		return Champion{}, fmt.Errorf("%s: %w", championName, err)
	}
	if c.SchemaVersion > championSchema {
		return Champion{}, fmt.Errorf("%s: it was written by a newer attune (schema %d, this one knows %d)", championName, c.SchemaVersion, championSchema)
	}
	if err := c.check(); err != nil {
		return Champion{}, fmt.Errorf("%s: %w", championName, err)
	}
	return c, nil
}

// check says whether a record makes sense by itself.
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
		return errors.New("it has no schema_version")
	case c.Change != Promotion && c.Change != Rollback:
		return fmt.Errorf("key change is %q; want %s or %s", c.Change, Promotion, Rollback)
	case (c.Change == Rollback) != (c.Restores != ""):
		return errors.New("a rollback, and nothing else, restores a promotion")
	case c.Number < 1 || (c.Number == 1) != (c.Previous == nil):
		return fmt.Errorf("change %d: the first change, and no other, follows none", c.Number)
	}
	return nil
}

// verifyChampions checks the records of champions, the chain that they make, and the runs that they rest on.
func (l *Ledger) verifyChampions(ctx context.Context, runs map[string]Entry) (sound int, problems []Problem, err error) {
	folder := l.champions()
	ids, err := folder.ids()
	if err != nil {
		return 0, nil, err
	}
	known := map[string]Champion{}
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
	add := func(format string, args ...any) {
		problems = append(problems, Problem{File: championName, What: fmt.Sprintf(format, args...)})
	}
	if run, ok := runs[c.Run]; !ok {
		add("the run %s that it rests on is not in the ledger", c.Run)
	} else if run.Kernel != c.Kernel || run.Variant != c.Variant || run.CodeHash != c.CodeHash {
		add("it is not of the kernel, variant and code of the run %s that it rests on", c.Run)
	}
	if p := c.Previous; p != nil {
		before, ok := known[p.ID]
		s, err := l.champions().sums(p.ID)
		switch {
		case !ok || err != nil:
			add("the record %s that it follows is missing or damaged", p.ID)
		case s[championName] != p.SHA256:
			add("the record %s that it follows was rewritten", p.ID)
		case before.Kernel != c.Kernel || before.Arch != c.Arch || before.Number != c.Number-1:
			add("the record %s that it follows is not the one before it", p.ID)
		}
	}
	if c.Change == Rollback {
		restored, ok := known[c.Restores]
		if !ok || restored.Change != Promotion || restored.Run != c.Run || restored.Kernel != c.Kernel || restored.Arch != c.Arch {
			add("the promotion %s that it restores is missing or another", c.Restores)
		}
	}
	return problems
}
