package propose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"attune/internal/child"
	"attune/internal/spec"
)

// Options describe a program and its place.
type Options struct {
	Command []string // of Command
	Limits  Limits   // the zero value stands for DefaultLimits
	// Note receives a line about each fault and each refused proposal. It may be nil.
	Note func(text string)
}

// Proposer asks a program for proposals. Its methods are called one at a time.
type Proposer struct {
	options Options
	subject Subject
	process *child.Process // nil before the first answer, and after a loss
	record  *record
	log     *logFile

	round     int
	proposals int // numbers given
	faults    int // in a row
	ended     bool
	closed    bool
	last      []Result // that the program does not know
	patches   patches
}

// Candidate is a proposal that may be built.
type Candidate struct {
	Proposal int // its number, for Report
	Variant  spec.Variant
	Patch    int               // number of the patch, 0 for the sources as they are
	Files    map[string][]byte // changed sources, by path; nil without a patch
	Diff     []byte            // nil without a patch
	Parent   string            // what it was made from
	About    string
}

// MemoryVariable raises the limit of memory of a program, which may have a language model in it.
const MemoryVariable = "ATTUNE_PROPOSER_MEMORY"

// maxFaults is the number of faults in a row after which a program is not asked again.
const maxFaults = 3

// New returns the proposer of a search. The program is started when it is first asked.
func New(o Options, s Subject) *Proposer {
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits
	}
	return &Proposer{options: o, subject: s, patches: patches{known: map[int]kept{}}, log: &logFile{}}
}

// Open names the folder of the search, for the program's log, the record of its proposals, and
// patches. Those of an earlier part of the search are kept. Without Open nothing is written.
func (p *Proposer) Open(folder string) error {
	var err error
	if p.patches, err = openPatches(folder, &p.subject); err != nil {
		return err
	}
	if p.record, err = openRecord(filepath.Join(folder, RecordFile)); err != nil {
		return err
	}
	p.proposals, p.round = p.record.proposals, p.record.rounds
	p.log = &logFile{path: filepath.Join(folder, LogFile)}
	return nil
}

// Files of a proposer in the folder of a search.
const (
	RecordFile = "proposals.jsonl"
	LogFile    = "proposer.log" // what the program prints on standard error
)

// Ended reports whether the program will not be asked again.
func (p *Proposer) Ended() bool { return p.ended }

// Ask tells the program the state of the search and returns its proposals. There are none after a
// fault. The error is that of a cancelled context, or of a record that cannot be written.
func (p *Proposer) Ask(ctx context.Context, s State) ([]Candidate, error) {
	if p.ended {
		return nil, nil
	}
	p.round++
	a, err := p.ask(ctx, s)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, p.fault(err)
	}
	if a.Type == "done" {
		p.ended = true
		p.stop()
		return nil, p.record.write(event{Message: "done", Round: p.round})
	}
	candidates, refused, err := p.candidates(a)
	if err != nil {
		return nil, err
	}
	if refused > 0 && len(candidates) == 0 {
		return nil, p.fault(fmt.Errorf("made %s, all of which were refused", count(refused, "proposal")))
	}
	p.faults = 0
	return candidates, nil
}

// ask sends the state to the program, which it starts if it does not run, and reads the answer.
func (p *Proposer) ask(ctx context.Context, s State) (answer, error) {
	var request []byte
	if p.process == nil {
		memory, err := child.EnvironmentMemory(MemoryVariable, child.DefaultMemory)
		if err != nil {
			return answer{}, fmt.Errorf("does not start: %w", err)
		}
		p.process, err = child.Start(child.Options{
			Command: p.options.Command, Printed: p.log, Memory: memory,
			Limit: time.Duration(p.options.Limits.Seconds * float64(time.Second)), MaxLine: p.options.Limits.LineBytes,
		})
		if err != nil {
			return answer{}, fmt.Errorf("does not start: %w", err)
		}
		request = encode(p.subject.hello(p.options.Limits))
	}
	request = append(request, encode(p.message(s))...)
	line, err := p.process.Exchange(ctx, request)
	if err != nil {
		if p.process.Excess() != nil {
			err = fmt.Errorf("%w; %s=8G allows more", err, MemoryVariable)
		}
		p.stop()
		return answer{}, err
	}
	p.last = nil
	a, err := decodeAnswer(line)
	if err == nil && a.Round != nil && *a.Round != p.round {
		err = fmt.Errorf("answered round %d in round %d", *a.Round, p.round)
	}
	if err != nil {
		// Its next line may answer this state instead of the next one.
		p.stop()
	}
	return a, err
}

// message is the state with empty lists in place of missing ones, so that a program need not expect
// null.
func (p *Proposer) message(s State) stateMessage {
	m := stateMessage{Type: "state", Round: p.round, State: s, Last: p.last}
	if m.Elites == nil {
		m.Elites = []Score{}
	}
	if m.Insights == nil {
		m.Insights = noInsights
	}
	if m.Last == nil {
		m.Last = []Result{}
	}
	return m
}

// fault records that the program gave nothing usable. It returns an error only if that fails.
func (p *Proposer) fault(why error) error {
	p.faults++
	text := child.OneLine(why.Error(), 400)
	rest := fmt.Sprintf("fault %d of %d in a row", p.faults, maxFaults)
	if p.faults == maxFaults {
		rest = fmt.Sprintf("after %d faults in a row it is not asked again", maxFaults)
		if p.log.used() {
			rest += fmt.Sprintf("; what it printed is in %s, and in the record when the search has ended: `attune show %s --file %s`",
				p.log.path, filepath.Base(filepath.Dir(p.log.path)), LogFile)
		}
		p.ended = true
		p.stop()
	}
	p.note("the proposer %s (%s)", text, rest)
	return p.record.write(event{Message: "fault", Round: p.round, Reason: text, Stopped: p.ended})
}

func (p *Proposer) note(format string, args ...any) {
	if p.options.Note != nil {
		p.options.Note(fmt.Sprintf(format, args...))
	}
}

// Report tells the program, with the next state, what became of a candidate.
func (p *Proposer) Report(r Result) error {
	r.Reason = child.OneLine(r.Reason, 400)
	p.last = append(p.last, r)
	return p.record.write(event{
		Message: "result", Proposal: r.Proposal, Variant: r.Variant, Patch: r.Patch, Stage: r.Stage, Reason: r.Reason, P50US: r.P50US, Cost: r.Cost, Best: r.Best,
	})
}

// stop ends the program and every process that it has started.
func (p *Proposer) stop() {
	if p.process == nil {
		return
	}
	p.process.Lose()
	p.process.Close()
	p.process = nil
}

// Files are the names of the files that it keeps in the folder of the search.
func (p *Proposer) Files() []string {
	if p.record == nil {
		return nil
	}
	names := []string{RecordFile}
	if p.log.used() {
		names = append(names, LogFile)
	}
	for _, n := range slices.Sorted(maps.Keys(p.patches.known)) {
		names = append(names, patchFile(n))
	}
	return names
}

// Close ends the program. It gets the end of its input and a few seconds to exit by itself.
func (p *Proposer) Close() error {
	if p.process != nil {
		p.process.Close()
		p.process = nil
	}
	p.ended = true
	if p.closed {
		return nil
	}
	p.closed = true
	return errors.Join(p.record.close(), p.log.close())
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
