package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"attune/internal/catalog"
	"attune/internal/regular"
	"attune/internal/run"
)

// search is the state of a search, read from its folder while it runs or was interrupted, else from
// its record.
type search struct {
	ID        string
	Name      string // of the variant or selection that it starts from
	Kernel    string
	Objective string
	Unit      string
	Device    string
	Strategy  string
	Shapes    []string

	State       string // running, interrupted, finished
	Evaluations []run.TuneEvaluation
	Failed      int
	Best        *run.TuneEvaluation
	Default     *run.TuneEvaluation
	Elites      []run.TuneEvaluation
}

// The states of a search.
const (
	searchRuns        = "running"
	searchInterrupted = "interrupted"
	searchFinished    = "finished"
)

// Counted is the number of evaluations of the budget.
func (s *search) Counted() int {
	n := 0
	for _, e := range s.Evaluations {
		if e.SameAs == "" {
			n++
		}
	}
	return n
}

// Gain is the default's cost over the best's.
func (s *search) Gain() *float64 {
	if s.Best == nil || s.Default == nil || s.Best.Cost == nil || s.Default.Cost == nil {
		return nil
	}
	gain := *s.Default.Cost / *s.Best.Cost
	if math.IsNaN(gain) || math.IsInf(gain, 0) {
		return nil
	}
	return &gain
}

// Recent are the last evaluations, the newest first.
func (s *search) Recent() []run.TuneEvaluation {
	const most = 15
	recent := slices.Clone(s.Evaluations[max(0, len(s.Evaluations)-most):])
	slices.Reverse(recent)
	return recent
}

// take counts evaluations.
func (s *search) take(evaluations []run.TuneEvaluation) {
	for i := range evaluations {
		e := &evaluations[i]
		if s.Default == nil {
			s.Default = e
		}
		if e.Best {
			s.Best = e
		}
		if !e.OK() {
			s.Failed++
		}
	}
	s.Evaluations = append(s.Evaluations, evaluations...)
}

// unfinishedSearch reads a search that runs or was interrupted. The id is one that the ledger lists.
func (s *Server) unfinishedSearch(id string) (*search, error) {
	ids, err := s.config.Ledger.UnfinishedTunings()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(ids, id) {
		return nil, failure(http.StatusNotFound, "no search %q; /tunings lists them", clip(id, 80))
	}
	folder := s.config.Ledger.TuningFolder(id)
	found := &search{ID: id, State: searchInterrupted}
	if catalog.Running(s.config.Ledger, id) {
		found.State = searchRuns
	}
	found.readIdentity(folder)
	for _, path := range catalog.Journals(folder) {
		j := &journal{path: path}
		evaluations, _ := j.next() // what can be read is shown
		found.take(evaluations)
	}
	if elites, ok := readElites(folder); ok {
		found.Elites = elites.Elites
	}
	return found, nil
}

// readIdentity reads what is searched. A search that was killed at its start has none.
func (s *search) readIdentity(folder string) {
	var one run.TuneSearch
	var selection run.SelectionSearch
	if text, err := regular.ReadNoFollow(filepath.Join(folder, run.TuneFile), maxSearchFile); err == nil && json.Unmarshal(text, &one) == nil {
		i := one.Identity
		s.Name, s.Kernel, s.Objective, s.Unit = i.Variant, i.Kernel, i.Objective, run.ObjectiveUnit(i.Objective)
		s.Device, s.Strategy, s.Shapes = i.Device, i.Strategy, i.Shapes
		return
	}
	if text, err := regular.ReadNoFollow(filepath.Join(folder, run.SelectionFile), maxSearchFile); err == nil && json.Unmarshal(text, &selection) == nil {
		s.Name, s.Shapes = "selection "+selection.Selection, selection.Shapes
	}
}

// maxSearchFile bounds a file of an unfinished search in bytes.
const maxSearchFile = 64 << 20

func readElites(folder string) (run.TuneElites, bool) {
	var elites run.TuneElites
	text, err := regular.ReadNoFollow(filepath.Join(folder, run.TuneEliteFile), maxSearchFile)
	return elites, err == nil && json.Unmarshal(text, &elites) == nil
}

// journal reads the evaluations that are appended to a file.
type journal struct {
	path   string
	offset int64
	lines  int // whole ones before the offset, with the header
}

// next returns the evaluations since the last call. A line that is not complete yet is left for the
// next one.
func (j *journal) next() ([]run.TuneEvaluation, error) {
	file, err := regular.OpenNoFollow(j.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if _, err := file.Seek(j.offset, io.SeekStart); err != nil {
		return nil, err
	}
	text, err := regular.ReadAll(file, j.path, maxSearchFile)
	if err != nil {
		return nil, err
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	j.offset += int64(len(text))
	return j.parse(text), nil
}

// parse reads whole lines. The first line of a journal identifies the search; a damaged line is left
// out.
func (j *journal) parse(text []byte) []run.TuneEvaluation {
	var all []run.TuneEvaluation
	for line := range bytes.Lines(text) {
		if j.lines++; j.lines == 1 {
			continue
		}
		var l struct {
			Detail run.TuneEvaluation `json:"detail"`
		}
		if err := json.Unmarshal(line, &l); err == nil {
			all = append(all, l.Detail)
		}
	}
	return all
}

// pollEvery is the time between two looks at the journal of a search.
const pollEvery = 300 * time.Millisecond

// lockEvery is the time between two looks at the lock of a search. Taking the lock too often could
// keep a search that resumes from getting it.
const lockEvery = 3 * time.Second

// follower sends the course of a search as events.
type follower struct {
	*stream
	server   *Server
	id       string
	folder   string
	journals []*journal
	skip     []int // lines of each journal that the client has
	counted  int
	failed   int
	best     *run.TuneEvaluation
	first    *run.TuneEvaluation
	elites   string // those that were sent
}

// searchProgress is the data of an event "progress": one evaluation, and the state after it.
type searchProgress struct {
	SchemaVersion int                `json:"schema_version"`
	ID            string             `json:"id"`
	Evaluations   int                `json:"evaluations"` // of the budget
	Failed        int                `json:"failed"`
	Best          string             `json:"best,omitempty"`
	Gain          *float64           `json:"gain,omitempty"` // the default's cost over the best's
	Evaluation    run.TuneEvaluation `json:"evaluation"`
}

// searchDone is the data of the event "done".
type searchDone struct {
	SchemaVersion int    `json:"schema_version"`
	ID            string `json:"id"`
	State         string `json:"state"` // finished or interrupted
}

// tuningEvents follows a search: events "progress", "elite" and, at its end, "done". A client that
// reconnects sends the id of the last event and gets the evaluations behind it.
func (s *Server) tuningEvents(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	finished, err := s.isFinished(id)
	if err != nil {
		return err
	}
	if !finished {
		if _, err := s.unfinishedSearch(id); err != nil {
			return err
		}
	}
	out, err := s.openStream(w)
	if err != nil {
		return err
	}
	defer out.close()
	f := &follower{stream: out, server: s, id: id, folder: s.config.Ledger.TuningFolder(id), skip: parseEventID(r.Header.Get("Last-Event-ID"))}
	f.follow(r.Context())
	return nil
}

// isFinished reports whether the ledger has the record of a search.
func (s *Server) isFinished(id string) (bool, error) {
	ids, err := s.config.Ledger.Tunings()
	return slices.Contains(ids, id), err
}

// parseEventID reads the numbers of lines in an event's id, such as 12 or 12.3; nil if it is none.
func parseEventID(text string) []int {
	var counts []int
	for part := range strings.SplitSeq(text, ".") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return nil
		}
		counts = append(counts, n)
	}
	return counts
}

// eventID has the number of lines of each journal.
func (f *follower) eventID() string {
	var parts []string
	for _, j := range f.journals {
		parts = append(parts, strconv.Itoa(j.lines))
	}
	return strings.Join(parts, ".")
}

// follow sends events until the search or the client ends.
func (f *follower) follow(ctx context.Context) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	locked := time.Time{}
	for {
		finished, err := f.server.isFinished(f.id)
		if err == nil {
			err = f.sendNew()
		}
		if err != nil || finished {
			_ = f.send("done", "", searchDone{1, f.id, searchFinished}) // the client may be gone
			return
		}
		if time.Since(locked) > lockEvery {
			if locked = time.Now(); !catalog.Running(f.server.config.Ledger, f.id) && !f.justFinished() {
				_ = f.send("done", "", searchDone{1, f.id, searchInterrupted})
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-f.server.done:
			return
		case <-ticker.C:
		}
		if f.beat() != nil {
			return
		}
	}
}

// justFinished reports whether the search was recorded while its lock was looked at.
func (f *follower) justFinished() bool {
	finished, err := f.server.isFinished(f.id)
	return err == nil && finished
}

// sendNew sends the evaluations and elites since the last call.
func (f *follower) sendNew() error {
	for _, path := range catalog.Journals(f.folder) {
		if !slices.ContainsFunc(f.journals, func(j *journal) bool { return j.path == path }) {
			f.journals = append(f.journals, &journal{path: path})
		}
	}
	for i, j := range f.journals {
		before := j.lines
		evaluations, err := j.next()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was recorded, and its folder removed
		}
		if err != nil {
			return err
		}
		after := j.lines
		for n, e := range evaluations {
			f.count(e)
			line := max(before, 1) + n + 1
			if i < len(f.skip) && line <= f.skip[i] {
				continue
			}
			j.lines = line // for the event's id
			if err := f.send("progress", f.eventID(), f.progress(e)); err != nil {
				return err
			}
		}
		j.lines = after
	}
	return f.sendElites()
}

func (f *follower) count(e run.TuneEvaluation) {
	if e.SameAs == "" {
		f.counted++
	}
	if !e.OK() {
		f.failed++
	}
	if f.first == nil {
		f.first = &e
	}
	if e.Best {
		f.best = &e
	}
}

func (f *follower) progress(e run.TuneEvaluation) searchProgress {
	state := search{Default: f.first, Best: f.best}
	p := searchProgress{SchemaVersion: 1, ID: f.id, Evaluations: f.counted, Failed: f.failed, Gain: state.Gain(), Evaluation: e}
	if f.best != nil {
		p.Best = f.best.Name()
	}
	return p
}

// sendElites sends elite.json after each change.
func (f *follower) sendElites() error {
	text, err := regular.ReadNoFollow(filepath.Join(f.folder, run.TuneEliteFile), maxSearchFile)
	if err != nil || string(text) == f.elites || !json.Valid(text) {
		return nil // there are none yet, or they are being written
	}
	f.elites = string(text)
	return f.send("elite", "", json.RawMessage(text))
}

// stream is an open connection for Server-Sent Events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	release func()
	last    time.Time
}

// beatEvery is the time after which a silent stream sends a comment, so that a connection that is
// gone is noticed.
const beatEvery = 15 * time.Second

// openStream starts the response. The caller closes it.
func (s *Server) openStream(w http.ResponseWriter) (*stream, error) {
	select {
	case s.streams <- struct{}{}:
	default:
		return nil, failure(http.StatusServiceUnavailable, "%d event streams are open already; close a page that follows a search", maxStreams)
	}
	out := &stream{w: w, control: http.NewResponseController(w), release: func() { <-s.streams }, last: time.Now()}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	_ = out.control.SetReadDeadline(time.Time{}) // the limit is for reading a request; a recorder in a test has none
	if _, err := out.write("retry: 1000\n\n"); err != nil {
		out.close()
		return nil, err
	}
	return out, nil
}

func (s *stream) close() { s.release() }

// send writes an event.
func (s *stream) send(event, id string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	message := fmt.Sprintf("event: %s\ndata: %s\n\n", event, text)
	if id != "" {
		message = "id: " + id + "\n" + message
	}
	_, err = s.write(message)
	return err
}

// beat writes a comment to a stream that was silent for some time.
func (s *stream) beat() error {
	if time.Since(s.last) < beatEvery {
		return nil
	}
	_, err := s.write(": still here\n\n")
	return err
}

func (s *stream) write(text string) (int, error) {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	s.last = time.Now()
	n, err := io.WriteString(s.w, text)
	if err == nil {
		err = s.control.Flush()
	}
	return n, err
}
