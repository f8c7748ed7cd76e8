package tune

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"attune/internal/regular"
)

// journal is a file of JSON lines: one that identifies the search, then one for each evaluation,
// written when it ends. A line is written by one system call, so that a killed program leaves at
// most the last line incomplete.
type journal struct {
	file *os.File
	sync bool
}

// journalHeader is the first line.
type journalHeader struct {
	SchemaVersion int    `json:"schema_version"`
	MessageType   string `json:"message_type"` // "search"
	Search        string `json:"search"`
}

// journalLine is an evaluation. Asked is the number of answers of the strategy before it: with
// variants in flight a strategy is asked ahead of its results, and a resumed one must be too.
type journalLine struct {
	Asked   int      `json:"asked"`
	Own     bool     `json:"own,omitempty"`   // the caller's variant, not the strategy's
	Point   Point    `json:"point,omitempty"` // an index into the values of each knob; none outside of the space
	Cost    *float64 `json:"cost,omitempty"`
	Failure Failure  `json:"failure,omitempty"`

	Suggest []int           `json:"suggest,omitzero"` // knobs; an empty list takes an earlier suggestion back
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// Create writes the search to a new journal. With durable set each evaluation survives a crash of
// the machine, for some milliseconds each; without, only one of the program.
func (s *Search) Create(path string, durable bool) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the journal %s exists; resume it, or remove it to start again", path)
	}
	if err != nil {
		return err
	}
	s.journal = &journal{file, durable}
	return s.journal.append(journalHeader{1, "search", s.identity})
}

// Resume replays a journal through the strategy and continues it. It creates the journal if it does
// not exist, or was killed before its first line was complete.
func (s *Search) Resume(path string, durable bool) error {
	data, err := regular.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return s.Create(path, durable)
	}
	if err != nil {
		return err
	}
	data = data[:bytes.LastIndexByte(data, '\n')+1] // without an incomplete line
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	s.journal = &journal{file, durable}
	if err := s.replayLines(path, data); err != nil {
		return errors.Join(err, s.Close())
	}
	if err := errors.Join(file.Truncate(int64(len(data))), seekEnd(file)); err != nil {
		return err
	}
	if len(data) == 0 {
		return s.journal.append(journalHeader{1, "search", s.identity})
	}
	return nil
}

func seekEnd(file *os.File) error {
	_, err := file.Seek(0, 2)
	return err
}

func (s *Search) replayLines(path string, data []byte) error {
	for n, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		if len(data) == 0 {
			return nil
		}
		var err error
		if n == 0 {
			err = s.checkHeader(line)
		} else {
			err = s.replayLine(line)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, n+1, err)
		}
	}
	s.again = append([]Point(nil), s.pending...)
	return nil
}

func (s *Search) checkHeader(line []byte) error {
	var header journalHeader
	if err := json.Unmarshal(line, &header); err != nil || header.MessageType != "search" {
		return errors.New("this is not the journal of a search")
	}
	if header.Search != s.identity {
		return fmt.Errorf("the journal is of another search: it has %s; this search has %s", header.Search, s.identity)
	}
	return nil
}

// replayLine asks the strategy as often as the killed search did, then reports the result.
func (s *Search) replayLine(line []byte) error {
	var l journalLine
	if err := json.Unmarshal(line, &l); err != nil {
		return fmt.Errorf("damaged line: %w", err)
	}
	outside := l.Own && l.Point == nil && l.Detail != nil
	if len(l.Point) != len(s.space.Knobs) && !outside || l.Cost == nil && l.Failure == "" {
		return errors.New("damaged line: it has no whole result")
	}
	for s.asked < l.Asked {
		p, ok := s.strategy.Ask()
		if !ok {
			break
		}
		s.asked++
		s.pending = append(s.pending, p)
	}
	if !l.Own && !s.isPending(l.Point) {
		return errors.New("the strategy now proposes other variants than it did; remove the journal to start again")
	}
	e := Evaluation{Point: l.Point, Result: Result{Failure: l.Failure}, Suggest: l.Suggest, Detail: l.Detail}
	if l.Cost != nil {
		e.Cost = *l.Cost
	}
	s.record(e)
	return nil
}

// Close closes the journal.
func (s *Search) Close() error {
	if s.journal == nil {
		return nil
	}
	return s.journal.file.Close()
}

func (j *journal) write(asked int, own bool, e Evaluation) error {
	line := journalLine{Asked: asked, Own: own, Point: e.Point, Failure: e.Failure, Suggest: e.Suggest, Detail: e.Detail}
	if e.OK() {
		line.Cost = &e.Cost
	}
	return j.append(line)
}

func (j *journal) append(line any) error {
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("the journal: %w", err)
	}
	if _, err := j.file.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("the journal is incomplete: %w", err)
	}
	if j.sync {
		return j.file.Sync()
	}
	return nil
}
