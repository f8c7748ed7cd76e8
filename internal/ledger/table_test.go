package ledger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// settleAtOnce lets stamps settle without the wait for a change that has the same time.
func settleAtOnce(t *testing.T) {
	before := timeStep
	timeStep = time.Millisecond
	t.Cleanup(func() { timeStep = before })
}

// nextTick waits until a change of a directory gets another time: kernels keep the time of the last
// clock tick, of 10 ms at most.
func nextTick() { time.Sleep(30 * time.Millisecond) }

// Runs that other programs add and remove are noticed, though the names in runs/ are only read if the
// directory has changed.
func TestQueryNoticesOtherPrograms(t *testing.T) {
	settleAtOnce(t)
	dir, all := indexed(t, 3)
	nextTick()
	l := open(t, dir)
	wantRuns(t, l, all)
	if !l.table.stamp.settled {
		t.Fatal("the stamp is not settled, so this test shows nothing")
	}
	more := sampleEntry(3)
	plant(t, dir, more)
	wantRuns(t, l, append(all, more))
	nextTick()
	wantRuns(t, l, append(all, more))
	if err := os.RemoveAll(l.runPath(all[0].ID)); err != nil {
		t.Fatal(err)
	}
	wantRuns(t, l, append(all[1:3:3], more))
	nextTick()
	if err := os.Rename(l.runsPath(), l.runsPath()+"-away"); err != nil {
		t.Fatal(err)
	}
	wantRuns(t, l, nil)
}

// An unchanged directory is not read again.
func TestUnchangedDirectoryIsNotRead(t *testing.T) {
	settleAtOnce(t)
	dir, all := indexed(t, 2)
	nextTick()
	l := open(t, dir)
	wantRuns(t, l, all)
	l.table.update(nil, []string{all[0].ID}) // a comparison would add it again
	wantRuns(t, l, all[1:])
}

// A run that could not be read is tried again, though a repair of its files does not change runs/.
func TestRepairedRunIsListed(t *testing.T) {
	settleAtOnce(t)
	dir, all := indexed(t, 2)
	document := filepath.Join(dir, runsName, all[1].ID, runName)
	if err := errors.Join(os.Rename(document, document+".away"), os.Remove(filepath.Join(dir, indexName))); err != nil {
		t.Fatal(err)
	}
	nextTick()
	l := open(t, dir)
	wantRuns(t, l, all[:1])
	if err := os.Rename(document+".away", document); err != nil {
		t.Fatal(err)
	}
	wantRuns(t, l, all)
}

func TestShortIDsOfManyRuns(t *testing.T) {
	l := open(t, t.TempDir())
	for _, id := range []string{"20261115-031522-a-3f9a1c", "20261115-031522-b-3f9a1c", "20261115-031522-c-202611"} {
		at, err := parseID(id)
		if err != nil {
			t.Fatal(err)
		}
		e := sampleEntry(0)
		e.ID, e.Time = id, at
		record(t, l, e)
	}
	short, err := l.ShortIDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"20261115-031522-a-3f9a1c": "a-3f9a1c",
		"20261115-031522-b-3f9a1c": "b-3f9a1c",
		"20261115-031522-c-202611": "-202611", // 202611 starts the others
	} {
		got := short(id)
		if got != want {
			t.Errorf("%s is shortened to %s, want %s", id, got, want)
		}
		if e, err := l.Find(t.Context(), got); err != nil || e.ID != id {
			t.Errorf("%s finds %s, %v", got, e.ID, err)
		}
	}
}

func TestForEach(t *testing.T) {
	var seen [100]atomic.Int32
	if err := forEach(t.Context(), len(seen), func(i int) { seen[i].Add(1) }); err != nil {
		t.Fatal(err)
	}
	for i := range seen {
		if n := seen[i].Load(); n != 1 {
			t.Errorf("number %d was taken %d times", i, n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	taken := atomic.Int32{}
	err := forEach(ctx, 1000, func(int) { taken.Add(1); cancel() })
	if !errors.Is(err, context.Canceled) || taken.Load() > 100 {
		t.Errorf("%d numbers were taken after the end, %v", taken.Load(), err)
	}
}
