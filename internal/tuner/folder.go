package tuner

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
	"strings"
	"time"

	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/regular"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
)

// folder is where the files of a search are until it is recorded. Its zero value writes nothing.
type folder struct {
	path   string
	isNew  bool   // the ledger has the folder, and this call has made it
	unlock func() // of a folder of the ledger; may be nil
}

// startFolder makes the folder of a new search in the ledger.
func startFolder(l *ledger.Ledger, id string) (folder, error) {
	path, unlock, err := l.StartTuning(id)
	return folder{path, err == nil, unlock}, err
}

// resumeFolder locks the newest folder of an unfinished search in the ledger that matches. Its path is
// empty if there is none.
func resumeFolder(l *ledger.Ledger, matches func(path string) bool) (folder, error) {
	ids, err := l.UnfinishedTunings()
	if err != nil {
		return folder{}, err
	}
	for _, id := range ids {
		path := l.TuningFolder(id)
		if !matches(path) {
			continue
		}
		unlock, err := l.LockTuning(id)
		if err != nil {
			return folder{}, lab.RequestError(fmt.Sprintf("the search %s is running in another process; wait for it or end it", id))
		}
		return folder{path: path, unlock: unlock}, nil
	}
	return folder{}, nil
}

func (f folder) close() {
	if f.unlock != nil {
		f.unlock()
	}
}

// maxDocument bounds a document of the folder in bytes.
const maxDocument = 64 << 20

// read reads a document of the folder.
func (f folder) read(name string, into any) error {
	text, err := regular.ReadNoFollow(filepath.Join(f.path, name), maxDocument)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// write replaces a document of the folder. It writes beside the file and moves the new one into its
// place: a reader sees the old document or the new one.
func (f folder) write(name string, document any) error {
	path := filepath.Join(f.path, name)
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return replace(path, append(text, '\n'))
}

func replace(path string, text []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, text, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// identity is what a resumed search must have in common with the one that it continues.
func (h *harness) identity() run.TuneIdentity {
	r, facts := &h.request, h.lab.Device.Facts()
	id := run.TuneIdentity{
		Kernel: h.lab.Kernel.Name, Sources: h.record.SourceHash, Variant: r.Variant.String(), Space: h.space.Fingerprint(), Seeds: r.Seeds,
		Objective: r.Objective, Strategy: r.Strategy, SearchSeed: r.Options.Seed, Elites: r.Options.Elites,
		Device: facts.Name, Driver: facts.Driver, Arch: h.record.Arch, Compiler: h.record.Compiler,
	}
	if d := h.lab.Kernel.Declared; d != nil {
		id.Spec, id.Reference = d.SHA256, referenceHash(h.lab.Builder.Folder(), d.Reference)
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
func referenceHash(kernel fs.FS, r spec.Reference) string {
	if r.Kind == "files" {
		return ""
	}
	text, err := fs.ReadFile(kernel, r.Path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))
}

// begin opens the folder of the search and, if it is resumed, restores its state from the journal.
func (s *search) begin(ctx context.Context) error {
	resumed, err := s.openFolder()
	if err != nil {
		return err
	}
	identity, err := json.Marshal(s.document.Identity)
	if err != nil {
		return err
	}
	if s.strategy, err = tune.NewSearch(s.space, s.request.Strategy, string(identity), s.request.Options); err != nil {
		return lab.RequestError(err.Error())
	}
	if s.folder.path == "" {
		return nil
	}
	if keeper, ok := s.request.Proposer.(Keeper); ok {
		if err := keeper.Open(s.folder.path); err != nil {
			return err
		}
	}
	journal := filepath.Join(s.folder.path, run.TuneJournal)
	if !resumed {
		if err := s.folder.write(run.TuneFile, s.document); err != nil {
			return err
		}
		return s.strategy.Create(journal, true)
	}
	if err := s.strategy.Resume(journal, true); err != nil {
		return err
	}
	return s.restore(ctx)
}

// openFolder makes the folder of a new search, or finds that of the search to resume.
func (s *search) openFolder() (resumed bool, err error) {
	kept := s.harness.lab.Ledger
	switch {
	case s.request.Folder != "":
		return s.openOwnFolder()
	case kept == nil && s.request.Resume:
		return false, lab.RequestError("there is no ledger with a search to resume")
	case kept == nil:
		return false, nil
	case s.request.Resume:
		return true, s.findUnfinished(kept)
	}
	s.folder, err = startFolder(kept, s.document.ID)
	return false, err
}

// openOwnFolder opens the folder of the request. An unfinished search in it is resumed on request
// only.
func (s *search) openOwnFolder() (resumed bool, err error) {
	s.folder.path = s.request.Folder
	document, err := s.folder.readSearch()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, os.MkdirAll(s.folder.path, 0o755)
	case err != nil:
		return false, err
	case !s.request.Resume:
		return false, lab.RequestError(fmt.Sprintf("%s has a search that was begun at %s; resume it or give another folder",
			s.folder.path, document.Time.Format(time.DateTime)))
	}
	if difference := differs(document.Identity, s.document.Identity); difference != "" {
		return false, lab.RequestError(fmt.Sprintf("the search in %s is another one; it differs in %s", s.folder.path, difference))
	}
	s.document = document
	return true, nil
}

// findUnfinished finds the newest unfinished search with the identity of the request.
func (s *search) findUnfinished(kept *ledger.Ledger) (err error) {
	other := ""
	s.folder, err = resumeFolder(kept, func(path string) bool {
		document, err := folder{path: path}.readSearch()
		if err != nil {
			return false // killed before its first evaluation
		}
		difference := differs(document.Identity, s.document.Identity)
		if difference == "" {
			s.document = document
		} else if other == "" {
			other = fmt.Sprintf("; the newest one, %s, differs in %s", filepath.Base(path), difference)
		}
		return difference == ""
	})
	if err == nil && s.folder.path == "" {
		err = lab.RequestError("there is no unfinished search of this request to resume" + other + "; without --resume a new one starts")
	}
	return err
}

// readSearch reads the description of the search.
func (f folder) readSearch() (run.TuneSearch, error) {
	var document run.TuneSearch
	err := f.read(run.TuneFile, &document)
	if err == nil && document.Ahead < 1 {
		err = errors.New("it has no number of variants in flight")
	}
	if err != nil {
		return document, fmt.Errorf("the search in %s: %w", f.path, err)
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

// restore makes the standings from the journal.
func (s *search) restore(ctx context.Context) error {
	for i, line := range s.strategy.Evaluations() {
		var e run.TuneEvaluation
		if err := json.Unmarshal(line.Detail, &e); err != nil {
			return fmt.Errorf("%s: evaluation %d: %w", filepath.Join(s.folder.path, run.TuneJournal), i+1, err)
		}
		c, err := s.restoreCandidate(ctx, e)
		if err != nil {
			return err
		}
		if c == nil && e.OK() && e.SameAs == "" {
			s.leftOut++
		}
		s.standings.add(e, c)
		s.earlier += time.Duration(e.Seconds * float64(time.Second))
	}
	if s.standings.standard == nil {
		return nil
	}
	if s.request.Resumed != nil {
		s.request.Resumed(s.state())
	}
	return s.writeElites()
}

// restoreCandidate is an evaluated candidate without its build; nil for a patched kernel that cannot
// be made again.
func (s *search) restoreCandidate(ctx context.Context, e run.TuneEvaluation) (*Candidate, error) {
	if e.Patch == "" {
		v, err := s.harness.lab.Kernel.Variant(e.Variant)
		return &Candidate{Variant: v, result: e}, err
	}
	restorer, ok := s.request.Proposer.(Restorer)
	if !ok || !e.OK() {
		return nil, nil
	}
	patch, err := os.ReadFile(filepath.Join(s.folder.path, e.Patch))
	if err != nil {
		return nil, err
	}
	c, err := restorer.Restore(ctx, e.Variant, e.Origin, patch)
	if err != nil {
		return nil, fmt.Errorf("restore %s (%s): %w", e.Variant, e.Origin, err)
	}
	c.result = e
	return &c, nil
}

// writeElites replaces elite.json.
func (s *search) writeElites() error {
	if s.folder.path == "" {
		return nil
	}
	return s.folder.write(run.TuneEliteFile, run.TuneElites{
		SchemaVersion: run.TuningSchemaVersion, ID: s.document.ID, Objective: s.request.Objective, Unit: run.ObjectiveUnit(s.request.Objective),
		Evaluations: s.standings.counted, Default: s.standings.standard.result, Elites: s.standings.elites(s.request.Options.Elites),
	})
}
