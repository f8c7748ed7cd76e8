package lab

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"attune/internal/ledger"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/tune"
)

// newTuning checks the request, builds the default and describes the search. The caller closes it.
func (l *Lab) newTuning(ctx context.Context, r TuneRequest) (*tuning, error) {
	r, space, err := l.planTune(r)
	if err != nil {
		return nil, err
	}
	t := &tuning{
		Lab: l, request: r, space: space, refs: l.references(r.MaxWork, nil), session: l.newSession(), unlock: func() {},
		builds: l.startBuilds(ctx, r.Arch, r.Variant), known: map[code]int{}, tried: map[string]bool{}, started: time.Now(),
	}
	started := t.started.UTC().Truncate(time.Millisecond)
	t.document = run.TuneSearch{
		SchemaVersion: run.TuningSchemaVersion, ID: ledger.NewID(started, r.Variant.Stage().Name), Time: started, Ahead: ahead(),
	}
	t.step(r.Variant.String(), "building")
	image, err := t.builds.image(r.Variant)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	t.document.Identity = t.identity(problem.Build{Variant: r.Variant, Image: image})
	return t, nil
}

// identity is what a resumed search must have in common with the one that it continues.
func (t *tuning) identity(b problem.Build) run.TuneIdentity {
	r, record := &t.request, &b.Image.Record
	id := run.TuneIdentity{
		Kernel: t.Kernel.Name, Sources: record.SourceHash, Variant: r.Variant.String(), Space: t.space.Fingerprint(), Seeds: r.Seeds,
		Objective: r.Objective, Strategy: r.Strategy, SearchSeed: r.Options.Seed, Elites: r.Options.Elites,
		Device: t.Device.facts.Name, Driver: t.Device.facts.Driver, Arch: record.Arch, Compiler: record.Compiler,
	}
	if t.Kernel.Declared != nil {
		id.Spec, id.Reference = t.Kernel.Declared.SHA256, t.referenceHash()
	}
	if r.Strategy == "anneal" {
		id.Budget = r.Options.Budget
	}
	for _, s := range r.Shapes {
		id.Shapes = append(id.Shapes, s.String())
	}
	for _, s := range r.Small {
		id.Small = append(id.Small, s.String())
	}
	return id
}

// referenceHash is the hash of the file of a declared reference. It is empty for recorded outputs,
// which are large, and for a file that cannot be read: the first check then fails.
func (l *Lab) referenceHash() string {
	r := l.Kernel.Declared.Reference
	if r.Kind == "files" {
		return ""
	}
	text, err := fs.ReadFile(l.Builder.Folder(), r.Path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// begin opens the folder of the search and, if it is resumed, restores its state from the journal.
func (t *tuning) begin(ctx context.Context) error {
	resumed, err := t.openFolder(ctx)
	if err != nil {
		return err
	}
	identity, err := json.Marshal(t.document.Identity)
	if err != nil {
		return err
	}
	if t.searcher, err = tune.NewSearch(t.space, t.request.Strategy, string(identity), t.request.Options); err != nil {
		return RequestError(err.Error())
	}
	if t.folder == "" {
		return nil
	}
	if keeper, ok := t.request.Proposer.(Keeper); ok {
		if err := keeper.Open(t.folder); err != nil {
			return err
		}
	}
	journal := filepath.Join(t.folder, run.TuneJournal)
	if !resumed {
		if err := replaceJSON(filepath.Join(t.folder, run.TuneFile), t.document); err != nil {
			return err
		}
		return t.searcher.Create(journal, true)
	}
	if err := t.searcher.Resume(journal, true); err != nil {
		return err
	}
	return t.restore(ctx)
}

// openFolder makes the folder of a new search, or finds that of the search to resume.
func (t *tuning) openFolder(ctx context.Context) (resumed bool, err error) {
	switch {
	case t.request.Folder != "":
		return t.openOwnFolder()
	case t.Ledger == nil && t.request.Resume:
		return false, RequestError("there is no ledger with a search to resume")
	case t.Ledger == nil:
		return false, nil
	case t.request.Resume:
		return true, t.findUnfinished()
	}
	t.folder, t.unlock, err = t.Ledger.StartTuning(t.document.ID)
	t.isNew = err == nil
	return false, err
}

// openOwnFolder opens the folder of the request. An unfinished search in it is resumed on request
// only.
func (t *tuning) openOwnFolder() (resumed bool, err error) {
	t.folder = t.request.Folder
	document, err := readSearch(t.folder)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, os.MkdirAll(t.folder, 0o755)
	case err != nil:
		return false, err
	case !t.request.Resume:
		return false, RequestError(fmt.Sprintf("%s has a search that was begun at %s; resume it or give another folder",
			t.folder, document.Time.Format(time.DateTime)))
	}
	if difference := differs(document.Identity, t.document.Identity); difference != "" {
		return false, RequestError(fmt.Sprintf("the search in %s is another one; it differs in %s", t.folder, difference))
	}
	t.document = document
	return true, nil
}

// findUnfinished finds the newest unfinished search with the identity of the request.
func (t *tuning) findUnfinished() error {
	ids, err := t.Ledger.UnfinishedTunings()
	if err != nil {
		return err
	}
	other := ""
	for _, id := range ids {
		folder := t.Ledger.TuningFolder(id)
		document, err := readSearch(folder)
		if err != nil {
			continue // killed before its first evaluation
		}
		difference := differs(document.Identity, t.document.Identity)
		if difference == "" {
			if t.unlock, err = t.Ledger.LockTuning(id); err != nil {
				t.unlock = func() {}
				return RequestError(fmt.Sprintf("the search %s is running in another process; wait for it or end it", id))
			}
			t.folder, t.document = folder, document
			return nil
		}
		if other == "" {
			other = fmt.Sprintf("; the newest one, %s, differs in %s", id, difference)
		}
	}
	return RequestError("there is no unfinished search of this request to resume" + other + "; without --resume a new one starts")
}

func readSearch(folder string) (run.TuneSearch, error) {
	var document run.TuneSearch
	text, err := os.ReadFile(filepath.Join(folder, run.TuneFile))
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	if err == nil && document.Ahead < 1 {
		err = errors.New("it has no number of variants in flight")
	}
	if err != nil {
		return document, fmt.Errorf("the search in %s: %w", folder, err)
	}
	return document, nil
}

// differs names the first field in which two searches differ, with both values; empty if they are the
// same.
func differs(then, now run.TuneIdentity) string {
	a, b := reflect.ValueOf(then), reflect.ValueOf(now)
	for i := range a.NumField() {
		x, y := a.Field(i).Interface(), b.Field(i).Interface()
		if !reflect.DeepEqual(x, y) {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			return fmt.Sprintf("%s: %v then, %v now", strings.ReplaceAll(name, "_", " "), x, y)
		}
	}
	return ""
}

// restore makes the state of the search from its journal.
func (t *tuning) restore(ctx context.Context) error {
	for _, line := range t.searcher.Evaluations() {
		var e run.TuneEvaluation
		if err := json.Unmarshal(line.Detail, &e); err != nil {
			return fmt.Errorf("%s: evaluation %d: %w", filepath.Join(t.folder, run.TuneJournal), len(t.evaluations)+1, err)
		}
		who, err := t.restoreEntrant(ctx, e)
		if err != nil {
			return err
		}
		if who == nil && e.OK() && e.SameAs == "" {
			t.leftOut++
		}
		t.add(e, who)
		t.earlier += time.Duration(e.Seconds * float64(time.Second))
	}
	if t.standard == nil {
		return nil
	}
	if t.request.Resumed != nil {
		t.request.Resumed(t.state())
	}
	return t.writeElites()
}

// restoreEntrant is an evaluated variant without its build; nil for a patched kernel that cannot be
// made again.
func (t *tuning) restoreEntrant(ctx context.Context, e run.TuneEvaluation) (*entrant, error) {
	if e.Patch == "" {
		v, err := t.Kernel.Variant(e.Variant)
		return &entrant{TuneEvaluation: e, lab: t.Lab, variant: v}, err
	}
	restorer, ok := t.request.Proposer.(Restorer)
	if !ok || !e.OK() {
		return nil, nil
	}
	patch, err := os.ReadFile(filepath.Join(t.folder, e.Patch))
	if err != nil {
		return nil, err
	}
	p, err := restorer.Restore(ctx, e.Variant, e.Origin, patch)
	if err != nil {
		return nil, fmt.Errorf("restore %s (%s): %w", e.Variant, e.Origin, err)
	}
	return &entrant{TuneEvaluation: e, lab: p.Lab, variant: p.Variant}, nil
}

// folderFiles are the journal, the elites, the patches, and what a proposer of any part of the search
// has kept.
func (t *tuning) folderFiles() (map[string][]byte, error) {
	names := []string{run.TuneJournal, run.TuneEliteFile}
	for _, e := range t.evaluations {
		if e.Patch != "" {
			names = append(names, e.Patch)
		}
	}
	if keeper, ok := t.request.Proposer.(Keeper); ok {
		names = append(names, keeper.Files()...)
	}
	entries, err := os.ReadDir(t.folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if whole := !slices.Contains([]string{".new", ".part"}, filepath.Ext(e.Name())); whole && e.Type().IsRegular() && e.Name() != run.TuneFile {
			names = append(names, e.Name())
		}
	}
	files := map[string][]byte{}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(t.folder, name))
		if err != nil {
			return nil, err
		}
		files[name] = text
	}
	return files, nil
}

// writeAll writes the documents of a finished search into its folder, beside the journal. tuning.json
// comes last and appears as a whole, so that a folder that has it is complete.
func writeAll(folder string, files map[string][]byte) error {
	for name, data := range files {
		if name == run.TuneJournal || name == run.TuningFile {
			continue // the journal is there
		}
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			return err
		}
	}
	path := filepath.Join(folder, run.TuningFile)
	if err := os.WriteFile(path+".new", files[run.TuningFile], 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
