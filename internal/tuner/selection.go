package tuner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"attune/internal/lab"
	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
)

// SelectionRequest says which selection to tune, and how.
type SelectionRequest struct {
	Selection *spec.Selection
	Holdout   []bool // of Search.Shapes: shapes that are not searched, and only test the table
	// Search is the search of each shape that is not held out. It starts from the form that the selection
	// has for the shape. Shapes are all shapes, and the budget is shared between the searches. Variant
	// and Folder are not used.
	Search Request
}

// selectionSearch is a SelectionRequest in progress.
type selectionSearch struct {
	lab      *lab.Lab
	request  SelectionRequest
	document run.SelectionSearch
	folder   folder
	tunings  []*run.Tuning // of the searched shapes, in their order
}

// SearchSelection searches a form for each shape, measures the best forms of all shapes on every
// shape, and proposes a table with the fewest forms that are within 2 % of each shape's best. Each
// evaluation is passed to done. An interrupted call can be resumed: each shape has a journal of its
// own.
func SearchSelection(ctx context.Context, l *lab.Lab, r SelectionRequest, done func(spec.Shape, run.TuneEvaluation)) (*run.SelectionTuning, error) {
	defer l.Freeze()()
	began := time.Now()
	s := &selectionSearch{lab: l, request: r}
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	defer s.folder.close()
	result, err := s.conduct(ctx, began, done)
	if err != nil && ctx.Err() == nil && s.folder.isNew && !s.hasResults() {
		return nil, errors.Join(err, l.Ledger.RemoveUnfinishedTuning(s.document.ID))
	}
	return result, err
}

// hasResults reports whether a search of the folder has an evaluation, which a resumed call uses.
func (s *selectionSearch) hasResults() bool {
	found, _ := filepath.Glob(filepath.Join(s.folder.path, "*", run.TuneEliteFile)) // only a pattern can be wrong
	return len(found) > 0
}

// conduct searches the shapes, measures the forms and records the result.
func (s *selectionSearch) conduct(ctx context.Context, began time.Time, done func(spec.Shape, run.TuneEvaluation)) (*run.SelectionTuning, error) {
	for i, shape := range s.request.Search.Shapes {
		if s.request.Holdout[i] {
			continue
		}
		one, err := s.searchShape(ctx, i, func(e run.TuneEvaluation) { done(shape, e) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", shape, err)
		}
		s.tunings = append(s.tunings, one)
	}
	measured, err := s.measureForms(ctx)
	if err != nil {
		return nil, err
	}
	proposal, err := tune.Propose(*measured)
	if err != nil {
		return nil, err
	}
	result := s.result(measured, proposal)
	result.Seconds = time.Since(began).Seconds()
	return result, s.finish(ctx, result)
}

// check refuses what no search could begin with.
func (s *selectionSearch) check() error {
	searches := s.searches()
	b := s.request.Search.Budget
	switch {
	case len(s.request.Holdout) != len(s.request.Search.Shapes):
		return fmt.Errorf("BUG: %d shapes with %d marks", len(s.request.Search.Shapes), len(s.request.Holdout))
	case searches == 0:
		return lab.RequestError("every shape is held out; a table needs shapes that it is derived from")
	case b.Evaluations > 0 && b.Evaluations < searches:
		return lab.RequestError(fmt.Sprintf("a budget of %d evaluations is too small: %d shapes are searched, with at least one evaluation each",
			b.Evaluations, searches))
	}
	for i := range s.request.Search.Shapes {
		r, err := s.requestFor(i)
		if err != nil {
			return err
		}
		if _, _, err := r.plan(s.lab); err != nil {
			return fmt.Errorf("%s: %w", s.request.Search.Shapes[i], err)
		}
	}
	return nil
}

// searches is the number of shapes that are searched.
func (s *selectionSearch) searches() (n int) {
	for _, held := range s.request.Holdout {
		if !held {
			n++
		}
	}
	return n
}

// requestFor is the search of one shape.
func (s *selectionSearch) requestFor(i int) (Request, error) {
	shape := s.request.Search.Shapes[i]
	chosen, err := s.request.Selection.Choose(shape)
	if err != nil {
		return Request{}, lab.RequestError(err.Error())
	}
	r := s.request.Search
	r.Variant, r.Shapes = chosen.Variant, []spec.Shape{shape}
	n := max(1, s.searches())
	r.Budget = Budget{Evaluations: r.Budget.Evaluations / n, Time: r.Budget.Time / time.Duration(n)}
	r.Folder = ""
	if s.folder.path != "" {
		r.Folder = filepath.Join(s.folder.path, shapeFolder(i, shape))
	}
	return r, nil
}

// shapeFolder names the folder of a shape's search.
func shapeFolder(i int, shape spec.Shape) string {
	return run.FileName(fmt.Sprintf("%02d", i+1), shape.String())
}

// open makes the folder of a new call in the ledger, or finds that of the call to resume.
func (s *selectionSearch) open() error {
	started := time.Now().UTC().Truncate(time.Millisecond)
	s.document = run.SelectionSearch{
		SchemaVersion: run.TuningSchemaVersion, ID: ledger.NewID(started, s.request.Selection.Name), Time: started,
		Selection: s.request.Selection.Name, Evaluations: s.request.Search.Budget.Evaluations, BudgetSeconds: s.request.Search.Budget.Time.Seconds(),
	}
	for i, shape := range s.request.Search.Shapes {
		s.document.Shapes = append(s.document.Shapes, shape.String())
		if s.request.Holdout[i] {
			s.document.Holdout = append(s.document.Holdout, shape.String())
		}
	}
	switch {
	case s.lab.Ledger == nil && s.request.Search.Resume:
		return lab.RequestError("there is no ledger with a search to resume")
	case s.lab.Ledger == nil:
		return nil
	case s.request.Search.Resume:
		return s.findUnfinished()
	}
	var err error
	if s.folder, err = startFolder(s.lab.Ledger, s.document.ID); err != nil {
		return err
	}
	return s.folder.write(run.SelectionFile, s.document)
}

// findUnfinished finds the newest unfinished call of the same selection and shapes. Its searches
// compare kernel, device and compiler.
func (s *selectionSearch) findUnfinished() (err error) {
	s.folder, err = resumeFolder(s.lab.Ledger, func(path string) bool {
		var document run.SelectionSearch
		if (folder{path: path}).read(run.SelectionFile, &document) != nil {
			return false // the search of one variant, or killed before it began
		}
		same := s.document
		same.ID, same.Time = document.ID, document.Time
		same.Evaluations, same.BudgetSeconds = document.Evaluations, document.BudgetSeconds // these may differ
		if !reflect.DeepEqual(same, document) {
			return false
		}
		s.document = document
		return true
	})
	if err == nil && s.folder.path == "" {
		err = lab.RequestError(fmt.Sprintf("there is no unfinished search of %s with these shapes to resume; without --resume a new one starts",
			s.request.Selection.Name))
	}
	return err
}

// searchShape searches the forms of one shape, or reads the result of the search that was finished
// before an interruption.
func (s *selectionSearch) searchShape(ctx context.Context, i int, done func(run.TuneEvaluation)) (*run.Tuning, error) {
	r, err := s.requestFor(i)
	if err != nil {
		return nil, err
	}
	if r.Folder == "" {
		r.Resume = false
		return searchFrozen(ctx, s.lab, r, done)
	}
	finished, err := s.finishedSearch(ctx, r)
	if finished != nil || err != nil {
		return finished, err
	}
	_, err = os.Stat(filepath.Join(r.Folder, run.TuneFile))
	r.Resume = err == nil
	return searchFrozen(ctx, s.lab, r, done)
}

// finishedSearch reads the result of a search; nil if there is none yet.
func (s *selectionSearch) finishedSearch(ctx context.Context, r Request) (*run.Tuning, error) {
	path := filepath.Join(r.Folder, run.TuningFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	finished, err := run.DecodeTuning(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h, err := newHarness(ctx, s.lab, r)
	if err != nil {
		return nil, err
	}
	defer h.pipeline.Close()
	if difference := differs(finished.Identity, h.identity()); difference != "" {
		return nil, lab.RequestError(fmt.Sprintf("the search in %s is another one: %s", r.Folder, difference))
	}
	return finished, nil
}

// forms are the present form of every shape, then the elites of all searches.
func (s *selectionSearch) forms() ([]spec.Variant, error) {
	var forms []spec.Variant
	add := func(v spec.Variant) {
		if !slices.ContainsFunc(forms, func(o spec.Variant) bool { return o.String() == v.String() }) {
			forms = append(forms, v)
		}
	}
	for _, shape := range s.request.Search.Shapes {
		chosen, err := s.request.Selection.Choose(shape)
		if err != nil {
			return nil, lab.RequestError(err.Error())
		}
		add(chosen.Variant)
	}
	for _, one := range s.tunings {
		for _, elite := range one.Elites {
			if elite.Failure != "" || elite.Patch != "" {
				continue
			}
			v, err := s.lab.Kernel.Variant(elite.Variant)
			if err != nil {
				return nil, err
			}
			add(v)
		}
	}
	return forms, nil
}

// result describes the whole.
func (s *selectionSearch) result(m *tune.Measured, p *tune.Proposal) *run.SelectionTuning {
	objective := s.tunings[0].Objective
	r := &run.SelectionTuning{
		SchemaVersion: run.TuningSchemaVersion, MessageType: run.SelectionMessage, ID: s.document.ID, Time: s.document.Time,
		Kernel: s.lab.Kernel.Name, Selection: s.request.Selection.Name, Objective: objective, Unit: run.ObjectiveUnit(objective), Proposal: p,
		Facts: s.lab.Device.Facts(), Git: s.lab.Git, GitSHA: s.lab.Git.SHA, Attune: s.lab.Version,
	}
	for _, one := range s.tunings {
		r.Evaluations += one.Evaluations
		r.Searches = append(r.Searches, one)
	}
	for i, v := range m.Forms {
		form := run.MeasuredForm{Variant: v.String()}
		for _, cost := range m.Costs[i] {
			form.Costs = append(form.Costs, known(cost))
		}
		r.Forms = append(r.Forms, form)
	}
	return r
}

// finish writes the record: the table, and the journal and the plots of each search.
func (s *selectionSearch) finish(ctx context.Context, result *run.SelectionTuning) error {
	if s.folder.path == "" {
		return nil
	}
	document, err := result.Document()
	if err != nil {
		return err
	}
	files := map[string][]byte{run.TuningFile: document, run.ProposalFile: []byte(result.Proposal.TOML())}
	for i, shape := range s.request.Search.Shapes {
		name := shapeFolder(i, shape)
		entries, err := os.ReadDir(filepath.Join(s.folder.path, name))
		if s.request.Holdout[i] || err != nil {
			continue
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(s.folder.path, name, e.Name()))
			if err != nil {
				return err
			}
			files[name+"-"+e.Name()] = text
		}
	}
	if err := s.lab.AddDescription(files, result); err != nil {
		return err
	}
	if err := s.lab.Ledger.RecordTuning(ctx, files); err != nil {
		return fmt.Errorf("%w; --resume records it", err)
	}
	return s.lab.Ledger.RemoveUnfinishedTuning(s.document.ID)
}
