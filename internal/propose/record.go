package propose

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// event is a line of the record: a proposal, a refused one, a result, a fault or the end.
type event struct {
	Message  string  `json:"message_type"`
	Round    int     `json:"round,omitempty"`
	Proposal int     `json:"proposal,omitempty"`
	Variant  string  `json:"variant,omitempty"`
	Patch    int     `json:"patch,omitempty"`
	Parent   string  `json:"parent,omitempty"`
	About    string  `json:"about,omitempty"`
	Stage    string  `json:"stage,omitempty"`
	Reason   string  `json:"reason,omitempty"`
	P50US    float64 `json:"p50_us,omitempty"`
	Cost     float64 `json:"cost,omitempty"`
	Best     bool    `json:"new_best,omitempty"`
	Stopped  bool    `json:"stopped,omitempty"` // it is not asked again
}

// record is the file of events. Each is written when it happens. The record of a search without a
// folder is nil and writes nothing.
type record struct {
	file      *os.File
	proposals int // that it has
	rounds    int
}

// openRecord opens a record and finds the last number that it has given. A line that a killed program
// left incomplete is removed.
func openRecord(name string) (*record, error) {
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	r := &record{}
	for line := range bytes.Lines(whole) {
		var e struct{ Proposal, Round int }
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s is damaged: %w", name, err)
		}
		r.proposals, r.rounds = max(r.proposals, e.Proposal), max(r.rounds, e.Round)
	}
	if r.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	_, seekErr := r.file.Seek(int64(len(whole)), 0)
	return r, errors.Join(r.file.Truncate(int64(len(whole))), seekErr)
}

func (r *record) write(e event) error {
	if r == nil {
		return nil
	}
	_, err := r.file.Write(encode(e))
	return err
}

func (r *record) close() error {
	if r == nil {
		return nil
	}
	return r.file.Close()
}

// patches are the accepted diffs of a search, numbered from 1.
type patches struct {
	dir   string // folder of the search; empty if they are not written
	known map[int]kept
}

type kept struct {
	diff  []byte
	files map[string][]byte
}

// patchFile is the name of a patch in the folder of the search, and in its record, which has no
// folders.
func patchFile(n int) string { return fmt.Sprintf("patch-%d.diff", n) }

// patchNumber is the number of a patch's file.
func patchNumber(name string) (int, bool) {
	text, ok := strings.CutPrefix(strings.TrimSuffix(name, ".diff"), "patch-")
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && patchFile(n) == name
}

// openPatches reads the patches of an earlier part of the search.
func openPatches(dir string, s *Subject) (patches, error) {
	p := patches{dir, map[int]kept{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return p, err
	}
	for _, entry := range entries {
		n, ok := patchNumber(entry.Name())
		if !ok {
			continue
		}
		diff, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return p, err
		}
		files, _, err := s.patched(diff)
		if err != nil {
			return p, fmt.Errorf("%s does not fit any more: %w", filepath.Join(dir, entry.Name()), err)
		}
		p.known[n] = kept{diff, files}
	}
	return p, nil
}

// add keeps a diff and returns its number. A diff that is known is refused.
func (p *patches) add(diff []byte, files map[string][]byte) (int, error) {
	last := 0
	for n, k := range p.known {
		if bytes.Equal(k.diff, diff) {
			return 0, fmt.Errorf(`it is patch %d again; other variants of it are proposed by "patch": %d`, n, n)
		}
		last = max(last, n)
	}
	n := last + 1
	if p.dir != "" {
		if err := p.write(n, diff); err != nil {
			return 0, err
		}
	}
	p.known[n] = kept{diff, files}
	return n, nil
}

// write writes a diff, whole or not at all.
func (p *patches) write(n int, diff []byte) error {
	name := filepath.Join(p.dir, patchFile(n))
	if err := os.WriteFile(name+".part", diff, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".part", name)
}

// maxLog limits the log of a program that prints without end.
const maxLog = 1 << 20

// logFile gets what the program prints on standard error. It is made with the first byte.
type logFile struct {
	path  string // empty if nothing is kept
	mutex sync.Mutex
	file  *os.File
	size  int
}

func (l *logFile) Write(data []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.path == "" {
		return len(data), nil
	}
	if l.file == nil {
		var err error
		if l.file, err = os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
			return 0, err
		}
	}
	if l.size += len(data); l.size > maxLog {
		return len(data), nil
	}
	return l.file.Write(data)
}

func (l *logFile) close() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// used reports whether the program has printed anything.
func (l *logFile) used() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.file != nil
}
