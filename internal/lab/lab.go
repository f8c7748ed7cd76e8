package lab

import (
	"context"
	"maps"
	"time"

	"attune/internal/ledger"
	"attune/internal/problem"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// Lab is the equipment that requests share.
type Lab struct {
	Kernel  *spec.Kernel
	Builder *toolchain.Builder
	Ledger  *ledger.Ledger // Run records nothing if it is nil
	Device  Device
	Git     toolchain.Git
	Version string // of this program

	Problem        problem.Problem // in place of the one that the spec declares; may be nil
	ReferenceLimit time.Duration   // of one computation of a declared reference
	Python         string          // the interpreter of references; empty for ATTUNE_PYTHON, else python3

	trusted *toolchain.Builder // builds references in place of Builder, which has patched sources; may be nil

	Progress func(Progress) // called at each step of the work; may be nil

	// Describe returns the files of a record that people read, such as report.md, by name. It is called
	// with a *run.Run, a *run.Bench, a profile.Set, a run.FinishedSearch or a *run.SelectionTuning, before
	// the record is written whole. Without it a record has no such files.
	Describe func(record any) (map[string][]byte, error)
}

// Progress is one step of the work, for a status line.
type Progress struct {
	Subject string // a variant, a shape or peers
	Step    string
	Done    int
	Total   int // 0 for a step that is not one of a series

	// Entry is the requested variant or selection that a run is at, of Entries. All are zero in other
	// commands.
	Entry   int // from 1
	Entries int
	Name    string // of the entry

	// Share is the estimated share of the command's work that is finished, of a run or a bench.
	Share float64
}

func (l *Lab) progress(p Progress) {
	if l.Progress != nil {
		l.Progress(p)
	}
}

// Freeze makes the lab build from the sources of this moment until thaw is called: each file is read
// once. The references still read their inputs from the folder.
func (l *Lab) Freeze() (thaw func()) {
	builder, p := l.Builder, l.Problem
	l.Problem, l.Builder = l.problem(), builder.Frozen()
	return func() { l.Builder, l.Problem = builder, p }
}

// record gives the run an id and writes it into the ledger, with more files beside its documents.
// If that fails, the run has no id.
func (l *Lab) record(ctx context.Context, record *run.Run, more map[string][]byte) error {
	if l.Ledger == nil {
		return nil
	}
	record.ID = ledger.NewID(record.Time, record.Stage)
	files, err := record.Documents()
	if err == nil {
		maps.Copy(files, more)
		err = l.AddDescription(files, record)
	}
	if err == nil {
		ctx, cancel := finishing(ctx)
		defer cancel()
		_, err = l.Ledger.Record(ctx, files)
	}
	if err != nil {
		record.ID = ""
	}
	return err
}

// recordGrace is how long after Ctrl-C finished work may still be recorded. A record takes
// milliseconds; a ledger that another process has locked must not hold the command.
const recordGrace = 2 * time.Second

// finishing is the context for a record of finished work: it ends recordGrace after the given one.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	finishing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(recordGrace, cancel) })
	return finishing, func() { stop(); cancel() }
}

// AddDescription adds the files that people read to those of a record.
func (l *Lab) AddDescription(files map[string][]byte, record any) error {
	if l.Describe == nil {
		return nil
	}
	more, err := l.Describe(record)
	maps.Copy(files, more)
	return err
}
