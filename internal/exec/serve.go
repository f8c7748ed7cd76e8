package exec

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"attune/internal/ptx"
)

// Serve makes a simulator for programs that are started elsewhere. ready gets the variables that such
// a program needs in its environment. Serve returns when the context ends.
func Serve(ctx context.Context, o Options, ready func(environment map[string]string) error) (*Outcome, error) {
	s := newServer(o)
	socket, end, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	err = ready(s.environment(socket))
	if err == nil {
		<-ctx.Done()
	}
	end()
	return &s.outcome, err
}

func newServer(o Options) *Server { return &Server{options: o, found: map[string]*Found{}} }

// listen serves the processes that connect to the socket until end is called.
func (s *Server) listen(ctx context.Context) (socket string, end func(), err error) {
	dir, err := os.MkdirTemp("", "attune-exec-")
	if err != nil {
		return "", nil, err
	}
	socket = filepath.Join(dir, "socket")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var sessions sync.WaitGroup
	sessions.Go(func() { s.accept(serving, listener, &sessions) })
	return socket, func() {
		listener.Close()
		stop()
		sessions.Wait()
		s.outcome.sort()
		os.RemoveAll(dir)
	}, nil
}

// report is what a program may ask about the launches of all programs: a finding of a launch, also one
// that an earlier launch had, or a line.
type report struct {
	Process int       `json:"process,omitempty"`
	Line    string    `json:"line,omitempty"`
	Text    string    `json:"text,omitempty"` // of the finding, as attune writes it
	Help    string    `json:"help,omitempty"` // what to do about it
	At      ptx.Frame `json:"at,omitzero"`    // its source line in the project, if it is known
	Finding *Found    `json:"finding,omitempty"`
}

// Limits of reports: the latest that are kept, and the bytes of an answer.
const (
	mostReports      = 1 << 14
	mostReportsBytes = 1 << 20
)

// keep adds a report for requestReports. The oldest make room for it. The lock is held.
func (s *Server) keep(r report) {
	if len(s.reports) == mostReports {
		s.reports = slices.Delete(s.reports, 0, mostReports/2)
		s.forgotten += mostReports / 2
	}
	s.reports = append(s.reports, r)
}

// keepFinding keeps a finding as it is now: later launches count on.
func (s *session) keepFinding(f *Found) {
	if s.options.Describe != nil {
		found := *f
		s.keep(report{Process: s.process, Finding: &found})
	}
}

// described adds the texts of a finding, which few programs ask for.
func (s *Server) described(r report) report {
	if r.Finding != nil {
		r.Text, r.Help = s.options.Describe(r.Finding), r.Finding.Remedy()
		r.At, _ = r.Finding.Where.Own()
	}
	return r
}

// answerReports answers with the reports since a place, the place behind them, and the warp
// instructions so far.
func (s *session) answerReports(f *fields) (status, []byte) {
	first := f.u64()
	s.mu.Lock()
	defer s.mu.Unlock()
	var answer struct {
		Next             int      `json:"next"`
		WarpInstructions uint64   `json:"warp_instructions"`
		Reports          []report `json:"reports"`
	}
	end := s.forgotten + len(s.reports)
	answer.Next, answer.WarpInstructions = max(int(min(first, uint64(end))), s.forgotten), s.outcome.WarpInstructions
	for room := mostReportsBytes / 2; answer.Next < end && room > 0; answer.Next++ {
		r := s.described(s.reports[answer.Next-s.forgotten])
		data, err := json.Marshal(r)
		if err != nil || len(data) > mostReportsBytes/2 {
			r = report{Process: r.Process, Line: "a finding is too long to be reported"}
		}
		room -= len(data)
		answer.Reports = append(answer.Reports, r)
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return invalidValue, nil
	}
	return success, data
}
