package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"attune/internal/document"
	"attune/internal/lab"
	"attune/internal/run"
)

// runPrinter prints the runs of a command as they finish, and a summary. It shows the progress on
// the status line.
type runPrinter struct {
	*app
	work    *workplace
	verbose bool
	lines   bool     // the progress is written as JSON lines
	names   []string // requested variants and selections
	column  document.RunNames
	started time.Time
	runs    []*run.Run // finished, with the parts of selections
	quick   string
	leftOut string // shapes that the simulator did not run

	mu     sync.Mutex
	last   lab.Progress
	lastAt time.Duration // elapsed time at the last step
	wrote  time.Time     // time of the last line of progress
	done   chan struct{}
}

// newRunPrinter starts to show the progress of a workplace. The caller calls stop.
func (a *app) newRunPrinter(w *workplace, verbose bool, request lab.Request) *runPrinter {
	p := &runPrinter{app: a, work: w, verbose: verbose, started: time.Now(), done: make(chan struct{})}
	for _, v := range request.Variants {
		p.names = append(p.names, v.String())
	}
	for _, s := range request.Selections {
		p.names = append(p.names, s.Name)
	}
	p.column = document.NewRunNames(p.names, p.screen())
	w.Progress = func(step lab.Progress) {
		p.mu.Lock()
		p.last, p.lastAt = step, time.Since(p.started)
		p.mu.Unlock()
		p.show()
		p.writeProgress(step)
	}
	go p.tick()
	return p
}

// tick updates the times on the status line, also during a long step.
func (p *runPrinter) tick() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-ticker.C:
			p.show()
		}
	}
}

// show draws the status line, unless the work is finished.
func (p *runPrinter) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
	default:
		if p.last.Entries > 0 {
			p.work.status.Set("%s", runProgress(p.last, p.lastAt, time.Since(p.started)))
		}
	}
}

// progressEvery is the least time between two lines of progress.
const progressEvery = 200 * time.Millisecond

// writeProgress writes a step as a JSON line, for programs that started the command. The work calls
// it from one goroutine.
func (p *runPrinter) writeProgress(step lab.Progress) {
	if !p.lines || step.Entries == 0 || time.Since(p.wrote) < progressEvery {
		return
	}
	p.wrote = time.Now()
	_ = json.NewEncoder(p.stderr).Encode(map[string]any{ // without standard error there is nobody to tell
		"message_type": "progress", "entry": step.Entry, "entries": step.Entries, "name": step.Name, "step": step.Step,
		"done": step.Done, "total": step.Total, "share": step.Share, "elapsed_seconds": time.Since(p.started).Seconds(),
	})
}

// stop ends the status line.
func (p *runPrinter) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.done)
	p.work.status.Clear()
}

// runProgress is the status line of a run, such as
//
//	[5/12] stage3b  9/16   elapsed 0:12  left 0:18
//
// The step began at a time. The time left is an estimate from the work that was finished then.
func runProgress(p lab.Progress, began, elapsed time.Duration) string {
	step := p.Step
	if p.Total > 0 {
		step = fmt.Sprintf("%d/%d", p.Done, p.Total)
		if word, _, _ := strings.Cut(p.Step, " "); word != "correctness" {
			step = word + " " + step
		}
	}
	line := fmt.Sprintf("[%d/%d] %s  %s   elapsed %s", p.Entry, p.Entries, p.Name, step, clock(elapsed))
	return line + timeLeft(p.Share, began, elapsed)
}

// timeLeft ends a status line with an estimate from the share of the work that was finished when the
// step began; empty if the share is too small for one.
func timeLeft(share float64, began, elapsed time.Duration) string {
	const least = 0.02
	if share < least {
		return ""
	}
	total := time.Duration(float64(began) / share)
	return "  left " + clock(max(0, total-elapsed))
}

// clock is a duration in minutes and seconds.
func clock(d time.Duration) string {
	seconds := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}

// finished prints a run. The parts of a selection print only in a verbose run.
func (p *runPrinter) finished(r *run.Run) {
	p.runs = append(p.runs, r)
	p.work.status.Clear()
	switch {
	case p.json:
	case p.verbose:
		_ = (&document.RunStudy{Run: r, Sources: p.sources()}).Document().Terminal(p.stdout, p.screen())
	case r.PartOf == "":
		_ = document.RunLine(r, p.column).Terminal(p.stdout, p.screen())
	}
}

// end prints the details of what failed, and the summary unless the command did not finish. With
// --json it prints the document.
func (p *runPrinter) end(ctx context.Context, failed error) error {
	if p.json {
		return p.printJSON(map[string]any{"schema_version": run.SchemaVersion, "runs": append([]*run.Run{}, p.runs...)})
	}
	whole := withoutParts(p.runs)
	if !p.verbose {
		for _, r := range whole {
			if note := document.Excused(r); note != "" {
				p.screen().Paragraph(p.stdout, "", note, 2)
			}
		}
		if ctx.Err() == nil && p.quick == "" { // a quick set leaves out the shapes that may reach a line
			for i, line := range document.Unexecuted(whole) {
				p.screen().Paragraph(p.stdout, strings.Repeat("  ", min(i, 1)), line, 2)
			}
		}
		for _, r := range whole {
			if document.Failed(r) || document.Unchecked(r) {
				fmt.Fprintln(p.stdout)
				_ = document.Failure(r, p.sources()).Terminal(p.stdout, p.screen())
			}
		}
	}
	if ctx.Err() != nil || failed != nil || len(whole) == 0 {
		return nil
	}
	if len(whole) > 1 {
		fmt.Fprintln(p.stdout)
	}
	_ = document.Summary{
		Runs: whole, Elapsed: time.Since(p.started), Ledger: p.ledgerPath(), Quick: p.quick, LeftOut: p.leftOut,
	}.Document().Terminal(p.stdout, p.screen())
	return nil
}

// interrupted is the error of a run that Ctrl-C has ended. A finished run that could not be recorded
// is not counted as one of the ledger.
func (p *runPrinter) interrupted() error {
	finished := withoutParts(p.runs)
	recorded := 0
	for _, r := range finished {
		if r.ID != "" {
			recorded++
		}
	}
	switch {
	case len(p.runs) == 0:
		return fmt.Errorf("interrupted; 0 of %d runs were finished; nothing was recorded", len(p.names))
	case recorded < len(finished):
		return fmt.Errorf("interrupted; %d of %d runs were finished, and %d are in %s", len(finished), len(p.names), recorded, p.ledgerPath())
	}
	return fmt.Errorf("interrupted; %d of %d runs were finished and are in %s", len(finished), len(p.names), p.ledgerPath())
}
