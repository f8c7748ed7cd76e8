package web

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"attune/internal/catalog"
	"attune/internal/document"
	"attune/internal/finding"
	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/ptx"
	"attune/internal/run"
)

// pageRows is the number of runs on a page of the list.
const pageRows = 100

// runList is a page of the list of runs.
type runList struct {
	Runs           runTable
	Total, Matched int
	Filter         filter
	Verdicts       []gate.Verdict
	Kernels        []string
	From, To       int
	Newer, Older   string // addresses; empty if there is none
	Damage         []string
}

// Devices are the choices of the form.
func (runList) Devices() []string { return []string{"cuda", "sim", "none"} }

// filter selects runs by what an address asks for.
type filter struct {
	Text, Kernel, Variant, Stage, Device, Arch, Verdict string
}

func newFilter(q url.Values) filter {
	return filter{
		Text: q.Get("q"), Kernel: q.Get("kernel"), Variant: q.Get("variant"), Stage: q.Get("stage"), Device: q.Get("device"),
		Arch: q.Get("arch"), Verdict: q.Get("verdict"),
	}
}

// matches reports whether a run has the values and every word of the filter. text is the run in lower
// case.
func (f filter) matches(e ledger.Entry, text string) bool {
	for _, pair := range [][2]string{
		{f.Kernel, e.Kernel}, {f.Variant, e.Variant}, {f.Stage, e.Stage}, {f.Device, e.Device}, {f.Arch, e.Arch}, {f.Verdict, e.Verdict},
	} {
		if pair[0] != "" && pair[0] != pair[1] {
			return false
		}
	}
	for _, word := range strings.Fields(strings.ToLower(f.Text)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// selected are the runs that match.
func (f filter) selected(l *lists) []ledger.Entry {
	if f == (filter{}) {
		return l.entries
	}
	l.lower.Do(func() {
		for _, e := range l.entries {
			l.texts = append(l.texts, strings.ToLower(strings.Join([]string{e.ID, e.Kernel, e.Variant, e.Device, e.Arch, e.Verdict, e.Headline.Shape}, " ")))
		}
	})
	var matched []ledger.Entry
	for i, e := range l.entries {
		if f.matches(e, l.texts[i]) {
			matched = append(matched, e)
		}
	}
	return matched
}

// ofLedger is the part of the filter that `attune history` has too.
func (f filter) ofLedger() ledger.Filter {
	return ledger.Filter{Kernel: f.Kernel, Variant: f.Variant, Stage: f.Stage, Device: f.Device, Verdict: f.Verdict}
}

// searches are the finished searches that match. A text or an architecture is one of runs only.
func (f filter) searches(all []catalog.TuningEntry) []catalog.TuningEntry {
	var matched []catalog.TuningEntry
	for _, e := range all {
		if f.Text == "" && f.Arch == "" && catalog.Passes(f.ofLedger(), e) {
			matched = append(matched, e)
		}
	}
	return matched
}

func (s *Server) runList(w http.ResponseWriter, r *http.Request) error {
	l, err := s.records.now(r.Context())
	if err != nil {
		return err
	}
	q := r.URL.Query()
	if err := checkVerdict(q); err != nil {
		return err
	}
	page := runList{Total: len(l.entries), Filter: newFilter(q), Verdicts: gate.Verdicts, Kernels: l.kernels, Damage: s.records.damageIn(l, runFolder)}
	matched := page.Filter.selected(l)
	page.Matched = len(matched)
	number, _ := strconv.Atoi(q.Get("page")) // what is no number is the first page
	number = max(1, min(number, (len(matched)+pageRows-1)/pageRows))
	first := (number - 1) * pageRows
	page.Runs = s.records.table(r.Context(), l, "Runs", matched[min(first, len(matched)):min(first+pageRows, len(matched))])
	page.From, page.To = first+1, first+len(page.Runs.Rows)
	at := func(n int) string {
		q.Set("page", strconv.Itoa(n))
		return "/runs?" + q.Encode()
	}
	if number > 1 {
		page.Newer = at(number - 1)
	}
	if first+pageRows < len(matched) {
		page.Older = at(number + 1)
	}
	return s.render(w, r, http.StatusOK, "runs", "Runs", page)
}

// kernelNames are the kernels of runs, sorted.
func kernelNames(entries []ledger.Entry) []string {
	known := map[string]bool{}
	var names []string
	const longest = 200
	for _, e := range entries {
		if !known[e.Kernel] && len(e.Kernel) <= longest {
			known[e.Kernel] = true
			names = append(names, e.Kernel)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), 100)]
}

// maxRows limits the rows of a table of figures, and maxText the length of a text. The record has all.
const maxRows, maxText = 200, 600

// body is a document in a page.
func body(d *document.Document) (template.HTML, error) { return d.Bounded(maxRows, maxText).Body() }

// runPage is one run: its document, and where to go from there.
type runPage struct {
	*run.Run
	Body     template.HTML
	Champion string         // architecture
	Link     string         // the variant in addresses; empty if it is of another kernel, or too long
	Others   []ledger.Entry // runs to compare with
	Damage   []string
}

func (s *Server) runPage(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	found, err := s.records.run(r.Context(), id)
	if err != nil {
		return err
	}
	l, err := s.records.now(r.Context())
	if err != nil {
		return err
	}
	page := runPage{Run: found, Champion: l.marked[id], Others: comparable(l.entries, found)}
	const longest = 500
	if kernel, _, err := s.config.Kernel(); err == nil && kernel.Name == found.Kernel && len(found.Variant) <= longest {
		page.Link = found.Variant
	}
	if err := s.config.Ledger.Sealed(id); err != nil {
		page.Damage = append(page.Damage, err.Error())
	}
	for _, p := range s.config.Ledger.Damage(id) {
		page.Damage = append(page.Damage, p.String())
	}
	if whole, err := s.records.withSamples(r.Context(), id); err == nil {
		found = whole
	} // without its samples the run has fewer plots; Damage says why
	study := &document.RunStudy{Run: found, Approximate: l.linear, Commands: s.config.Commands}
	if page.Link != "" {
		study.SourceLink = func(at ptx.Frame) string {
			q := url.Values{"variant": {page.Link}, "file": {at.File}, "line": {strconv.Itoa(at.Line)}}
			return "/kernel?" + q.Encode() + "#L" + strconv.Itoa(at.Line)
		}
	}
	if page.Body, err = body(study.Document()); err != nil {
		return err
	}
	return s.render(w, r, http.StatusOK, "run", found.Variant+", "+document.VerdictInList(found), page)
}

// comparable are some runs of the same kernel with times, the newest first.
func comparable(entries []ledger.Entry, with *run.Run) []ledger.Entry {
	const most = 40
	var others []ledger.Entry
	for _, e := range entries {
		if e.Kernel == with.Kernel && e.ID != with.ID && e.Headline.P50US != nil && len(others) < most {
			others = append(others, e)
		}
	}
	return others
}

// sourceFinding is a finding of a run.
type sourceFinding struct {
	run.Reported
	Places []ptx.Frame
}

// placesOf are the source lines of the instructions that a finding is about, in the kernel's folder
// where possible: the page shows its files.
func placesOf(f finding.Finding) []ptx.Frame {
	var all []ptx.Frame
	for _, at := range []*finding.Place{&f.Where, f.Other} {
		if at == nil {
			continue
		}
		own, known := at.Own()
		same := func(f ptx.Frame) bool { return f.File == own.File && f.Line == own.Line }
		if known && !slices.ContainsFunc(all, same) {
			all = append(all, own)
		}
	}
	return all
}

// findingsOf lists what the checkers have found on the outputs of a run.
func findingsOf(r *run.Run) []sourceFinding {
	var all []sourceFinding
	for _, f := range r.Reported() {
		all = append(all, sourceFinding{f, placesOf(f.Finding)})
	}
	return all[:min(len(all), maxRows)]
}
