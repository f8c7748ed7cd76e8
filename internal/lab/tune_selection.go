package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"attune/internal/ledger"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tune"
)

// SelectionTuneRequest says which selection to tune, and how.
type SelectionTuneRequest struct {
	Selection *spec.Selection
	Holdout   []bool // of Search.Shapes: shapes that are not searched, and only test the table
	// Search is the search of each shape that is not held out. It starts from the form that the selection
	// has for the shape. Shapes are all shapes, and the budget is shared between the searches. Variant
	// and Folder are not used.
	Search TuneRequest
}

// selectionTuning is a SelectionTuneRequest in progress.
type selectionTuning struct {
	*Lab
	SelectionTuneRequest
	document run.SelectionSearch
	folder   string // empty if nothing is written
	isNew    bool   // this call has made the folder
	unlock   func()
	tunings  []*run.Tuning // of the searched shapes, in their order
}

// TuneSelection searches a form for each shape, measures the best forms of all shapes on every shape,
// and proposes a table with the fewest forms that are within 2 % of each shape's best. Each evaluation
// is passed to done. An interrupted call can be resumed: each shape has a journal of its own.
func (l *Lab) TuneSelection(ctx context.Context, r SelectionTuneRequest, done func(spec.Shape, run.TuneEvaluation)) (*run.SelectionTuning, error) {
	defer l.Freeze()()
	began := time.Now()
	t := &selectionTuning{Lab: l, SelectionTuneRequest: r, unlock: func() {}}
	if err := t.check(); err != nil {
		return nil, err
	}
	if err := t.open(); err != nil {
		return nil, err
	}
	defer func() { t.unlock() }()
	result, err := t.conduct(ctx, began, done)
	if err != nil && ctx.Err() == nil && t.isNew && !t.hasResults() {
		return nil, errors.Join(err, t.Ledger.RemoveUnfinishedTuning(t.document.ID))
	}
	return result, err
}

// hasResults reports whether a search of the folder has an evaluation, which a resumed call uses.
func (t *selectionTuning) hasResults() bool {
	found, _ := filepath.Glob(filepath.Join(t.folder, "*", run.TuneEliteFile)) // only a pattern can be wrong
	return len(found) > 0
}

// conduct searches the shapes, measures the forms and records the result.
func (t *selectionTuning) conduct(ctx context.Context, began time.Time, done func(spec.Shape, run.TuneEvaluation)) (*run.SelectionTuning, error) {
	for i, shape := range t.Search.Shapes {
		if t.Holdout[i] {
			continue
		}
		one, err := t.searchShape(ctx, i, func(e run.TuneEvaluation) { done(shape, e) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", shape, err)
		}
		t.tunings = append(t.tunings, one)
	}
	measured, err := t.measureForms(ctx)
	if err != nil {
		return nil, err
	}
	proposal, err := tune.Propose(*measured)
	if err != nil {
		return nil, err
	}
	result := t.result(measured, proposal)
	result.Seconds = time.Since(began).Seconds()
	return result, t.finish(ctx, result)
}

// CheckTuneSelection refuses a request that cannot be carried out. It needs no device.
func (l *Lab) CheckTuneSelection(r SelectionTuneRequest) error {
	t := &selectionTuning{Lab: l, SelectionTuneRequest: r}
	return t.check()
}

// check refuses what no search could begin with.
func (t *selectionTuning) check() error {
	searches := t.searches()
	b := t.Search.Budget
	switch {
	case len(t.Holdout) != len(t.Search.Shapes):
		return fmt.Errorf("BUG: %d shapes with %d marks", len(t.Search.Shapes), len(t.Holdout))
	case searches == 0:
		return RequestError("every shape is held out; a table needs shapes that it is derived from")
	case b.Evaluations > 0 && b.Evaluations < searches:
		return RequestError(fmt.Sprintf("a budget of %d evaluations is too small: %d shapes are searched, with at least one evaluation each",
			b.Evaluations, searches))
	}
	for i := range t.Search.Shapes {
		r, err := t.requestFor(i)
		if err != nil {
			return err
		}
		if _, _, err := t.planTune(r); err != nil {
			return fmt.Errorf("%s: %w", t.Search.Shapes[i], err)
		}
	}
	return nil
}

// searches is the number of shapes that are searched.
func (t *selectionTuning) searches() (n int) {
	for _, held := range t.Holdout {
		if !held {
			n++
		}
	}
	return n
}

// requestFor is the search of one shape.
func (t *selectionTuning) requestFor(i int) (TuneRequest, error) {
	shape := t.Search.Shapes[i]
	chosen, err := t.Selection.Choose(shape)
	if err != nil {
		return TuneRequest{}, RequestError(err.Error())
	}
	r := t.Search
	r.Variant, r.Shapes = chosen.Variant, []spec.Shape{shape}
	n := max(1, t.searches())
	r.Budget = TuneBudget{Evaluations: r.Budget.Evaluations / n, Time: r.Budget.Time / time.Duration(n)}
	r.Folder = ""
	if t.folder != "" {
		r.Folder = filepath.Join(t.folder, shapeFolder(i, shape))
	}
	return r, nil
}

// shapeFolder names the folder of a shape's search.
func shapeFolder(i int, shape spec.Shape) string {
	return run.FileName(fmt.Sprintf("%02d", i+1), shape.String())
}

// open makes the folder of a new call in the ledger, or finds that of the call to resume.
func (t *selectionTuning) open() error {
	started := time.Now().UTC().Truncate(time.Millisecond)
	t.document = run.SelectionSearch{
		SchemaVersion: run.TuningSchemaVersion, ID: ledger.NewID(started, t.Selection.Name), Time: started,
		Selection: t.Selection.Name, Evaluations: t.Search.Budget.Evaluations, BudgetSeconds: t.Search.Budget.Time.Seconds(),
	}
	for i, s := range t.Search.Shapes {
		t.document.Shapes = append(t.document.Shapes, s.String())
		if t.Holdout[i] {
			t.document.Holdout = append(t.document.Holdout, s.String())
		}
	}
	switch {
	case t.Ledger == nil && t.Search.Resume:
		return RequestError("there is no ledger with a search to resume")
	case t.Ledger == nil:
		return nil
	case t.Search.Resume:
		return t.findUnfinished()
	}
	var err error
	if t.folder, t.unlock, err = t.Ledger.StartTuning(t.document.ID); err != nil {
		return err
	}
	t.isNew = true
	return replaceJSON(filepath.Join(t.folder, run.SelectionFile), t.document)
}

// findUnfinished finds the newest unfinished call of the same selection and shapes. Its searches compare kernel, device and compiler.
func (t *selectionTuning) findUnfinished() error {
	ids, err := t.Ledger.UnfinishedTunings()
	if err != nil {
		return err
	}
	for _, id := range ids {
		folder := t.Ledger.TuningFolder(id)
		var document run.SelectionSearch
		text, err := os.ReadFile(filepath.Join(folder, run.SelectionFile))
		if err != nil || json.Unmarshal(text, &document) != nil {
			continue // the search of one variant, or killed before it began
		}
		same := t.document
		same.ID, same.Time = document.ID, document.Time
		same.Evaluations, same.BudgetSeconds = document.Evaluations, document.BudgetSeconds // these may differ
		if !reflect.DeepEqual(same, document) {
			continue
		}
		if t.unlock, err = t.Ledger.LockTuning(id); err != nil {
			t.unlock = func() {}
			return RequestError(fmt.Sprintf("the search %s is running in another process; wait for it or end it", id))
		}
		t.folder, t.document = folder, document
		return nil
	}
	return RequestError(fmt.Sprintf("there is no unfinished search of %s with these shapes to resume; without --resume a new one starts",
		t.Selection.Name))
}

// searchShape searches the forms of one shape, or reads the result of the search that was finished
// before an interruption.
func (t *selectionTuning) searchShape(ctx context.Context, i int, done func(run.TuneEvaluation)) (*run.Tuning, error) {
	r, err := t.requestFor(i)
	if err != nil {
		return nil, err
	}
	if r.Folder == "" {
		r.Resume = false
		return t.Tune(ctx, r, done)
	}
	finished, err := t.finishedSearch(ctx, r)
	if finished != nil || err != nil {
		return finished, err
	}
	_, err = os.Stat(filepath.Join(r.Folder, run.TuneFile))
	r.Resume = err == nil
	return t.Tune(ctx, r, done)
}

// finishedSearch reads the result of a search; nil if there is none yet.
func (t *selectionTuning) finishedSearch(ctx context.Context, r TuneRequest) (*run.Tuning, error) {
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
	now, err := t.newTuning(ctx, r)
	if err != nil {
		return nil, err
	}
	defer now.close()
	if difference := differs(finished.Identity, now.document.Identity); difference != "" {
		return nil, RequestError(fmt.Sprintf("the search in %s is another one: %s", r.Folder, difference))
	}
	return finished, nil
}

// forms are the present form of every shape, then the elites of all searches.
func (t *selectionTuning) forms() ([]spec.Variant, error) {
	var forms []spec.Variant
	add := func(v spec.Variant) {
		if !slices.ContainsFunc(forms, func(o spec.Variant) bool { return o.String() == v.String() }) {
			forms = append(forms, v)
		}
	}
	for _, shape := range t.Search.Shapes {
		chosen, err := t.Selection.Choose(shape)
		if err != nil {
			return nil, RequestError(err.Error())
		}
		add(chosen.Variant)
	}
	for _, one := range t.tunings {
		for _, elite := range one.Elites {
			if elite.Failure != "" || elite.Patch != "" {
				continue
			}
			v, err := t.Kernel.Variant(elite.Variant)
			if err != nil {
				return nil, err
			}
			add(v)
		}
	}
	return forms, nil
}

// result describes the whole.
func (t *selectionTuning) result(m *tune.Measured, p *tune.Proposal) *run.SelectionTuning {
	objective := t.tunings[0].Objective
	r := &run.SelectionTuning{
		SchemaVersion: run.TuningSchemaVersion, MessageType: run.SelectionMessage, ID: t.document.ID, Time: t.document.Time,
		Kernel: t.Kernel.Name, Selection: t.Selection.Name, Objective: objective, Unit: run.ObjectiveUnit(objective), Proposal: p,
		Facts: t.Device.facts, Git: t.Git, GitSHA: t.Git.SHA, Attune: t.Version,
	}
	for _, one := range t.tunings {
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
func (t *selectionTuning) finish(ctx context.Context, result *run.SelectionTuning) error {
	if t.folder == "" {
		return nil
	}
	document, err := result.Document()
	if err != nil {
		return err
	}
	files := map[string][]byte{run.TuningFile: document, run.ProposalFile: []byte(result.Proposal.TOML())}
	for i, shape := range t.Search.Shapes {
		name := shapeFolder(i, shape)
		entries, err := os.ReadDir(filepath.Join(t.folder, name))
		if t.Holdout[i] || err != nil {
			continue
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(t.folder, name, e.Name()))
			if err != nil {
				return err
			}
			files[name+"-"+e.Name()] = text
		}
	}
	if err := t.addDescription(files, result); err != nil {
		return err
	}
	if err := t.Ledger.RecordTuning(ctx, files); err != nil {
		return fmt.Errorf("%w; --resume records it", err)
	}
	return t.Ledger.RemoveUnfinishedTuning(t.document.ID)
}
