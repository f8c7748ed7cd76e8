package ledger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// lockByAnother locks a ledger as another process does, until unlock or the end of the test.
func lockByAnother(t *testing.T, l *Ledger) (unlock func()) {
	t.Helper()
	d, err := os.Open(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	unlock = sync.OnceFunc(func() { unlockFile(d) })
	t.Cleanup(unlock)
	return unlock
}

// A lock that another process does not release makes a recording wait with a message. The wait ends
// with the context, and the complete record is not lost.
func TestLockedByAnother(t *testing.T) {
	t.Parallel()
	l, all := filled(t, 1)
	unlock := lockByAnother(t, l)
	var notes []string
	l.Note = func(text string) { notes = append(notes, text) }
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // the record must be complete by then
	defer cancel()
	e := sampleEntry(1)
	if _, err := l.Record(ctx, runFiles(e)); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "is locked by another process") {
		t.Errorf("%v", err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], e.ID+" is complete in ") {
		t.Errorf("%q", notes)
	}
	for _, f := range []func() error{
		func() error { _, err := l.Verify(ctx); return err },
		func() error { _, err := l.Seal(ctx); return err },
		func() error { _, err := l.Remove(ctx, all[0].ID); return err },
	} {
		if err := f(); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	unlock()
	left := filepath.Join(l.runsPath(), temporaryName(deadPID(t), pidSpace(), e.ID)) // this process has ended
	if err := os.Rename(l.runs().temporary(e.ID), left); err != nil {
		t.Fatal(err)
	}
	wantRuns(t, open(t, l.dir), append(all, e))
}

// Opening a ledger does not wait for a lock that is never released.
func TestOpenLocked(t *testing.T) {
	t.Parallel()
	l, all := filled(t, 1)
	if err := os.Mkdir(filepath.Join(l.runsPath(), temporaryName(deadPID(t), pidSpace(), sampleEntry(1).ID)), 0o755); err != nil {
		t.Fatal(err)
	}
	lockByAnother(t, l)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if problems := l.settle(ctx); len(problems) > 0 {
		t.Error(problems)
	}
	if n := len(temporaries(l.runsPath())); n != 1 {
		t.Errorf("%d temporary directories", n)
	}
	wantRuns(t, l, all)
}

// A chain that cannot be read for want of a descriptor or a permission is not damaged.
func TestUnreadableChain(t *testing.T) {
	t.Parallel()
	l, _ := filled(t, 1)
	l.chain.path = filepath.Join(l.dir, strings.Repeat("y", 300)) // the name is too long
	_, err := l.chain.parseSound()
	if err == nil || strings.Contains(err.Error(), "damaged") || strings.Contains(err.Error(), "restore") {
		t.Error(err)
	}
}
