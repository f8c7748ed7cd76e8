package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// table has the finished runs in memory. The index keeps it between processes.
type table struct {
	entries []Entry // newest first
	known   map[string]bool
	stamp   stamp // of runs/ when the table was compared with it
}

func newTable(entries []Entry) *table {
	t := &table{known: make(map[string]bool, len(entries))}
	t.update(entries, nil)
	return t
}

// update adds and drops runs. A run that is already there is left as it is: runs never change.
func (t *table) update(add []Entry, drop []string) {
	if len(drop) > 0 {
		for _, id := range drop {
			delete(t.known, id)
		}
		t.entries = slices.DeleteFunc(t.entries, func(e Entry) bool { return !t.known[e.ID] })
	}
	for _, e := range add {
		if !t.known[e.ID] {
			t.known[e.ID] = true
			t.entries = append(t.entries, e)
		}
	}
	if len(add) > 0 {
		slices.SortFunc(t.entries, func(a, b Entry) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(b.ID, a.ID)) })
	}
}

// query returns the runs that a filter selects. A nil table has none.
func (t *table) query(f Filter) []Entry {
	if t == nil {
		return nil
	}
	var selected []Entry
	for i, e := range t.entries {
		if f.OldestFirst {
			e = t.entries[len(t.entries)-1-i]
		}
		if !f.matches(e) {
			continue
		}
		if selected = append(selected, e); len(selected) == f.Limit {
			break
		}
	}
	return selected
}

// compare returns the ids in the directory of runs that the table has not, and those of the table
// that the directory has not.
func (t *table) compare(runs string) (unknown, gone []string, err error) {
	found, err := readUnsorted(runs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("list the %s: %w", filepath.Base(runs), err)
	}
	present := 0
	for _, d := range found {
		if !d.IsDir() {
			continue
		}
		if t.known[d.Name()] {
			present++
		} else if _, err := parseID(d.Name()); err == nil {
			unknown = append(unknown, d.Name())
		}
	}
	if present == len(t.known) {
		return unknown, nil, nil
	}
	there := make(map[string]bool, len(found))
	for _, d := range found {
		there[d.Name()] = d.IsDir()
	}
	for id := range t.known {
		if !there[id] {
			gone = append(gone, id)
		}
	}
	return unknown, gone, nil
}

// readUnsorted is os.ReadDir without the sorting, which takes longer than the reading.
func readUnsorted(dir string) ([]fs.DirEntry, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.ReadDir(-1)
}

// stamp identifies the names in a directory: its inode and the time at which a name was last added or
// removed. The kernel sets that time, and no program can set it back.
type stamp struct {
	device, inode uint64
	changed       unix.Timespec
	settled       bool // a further change is sure to give another time
}

// timeStep is above the resolution of the times that file systems keep. Two changes within it may
// have the same time.
var timeStep = 2 * time.Second

// stampOf returns the stamp of a directory, or one that is not settled if there is none. The caller
// takes it before it reads the names.
func stampOf(dir string) stamp {
	var info unix.Stat_t
	if err := unix.Stat(dir, &info); err != nil {
		return stamp{}
	}
	s := stamp{device: uint64(info.Dev), inode: info.Ino, changed: info.Ctim}
	s.settled = time.Since(time.Unix(s.changed.Unix())) > timeStep
	return s
}

// same reports whether two stamps are of the same names, if the older one is settled.
func (s stamp) same(other stamp) bool {
	return s.device == other.device && s.inode == other.inode && s.changed == other.changed
}

// forEach calls work for the numbers below n, on all processors, until ctx is done. Then it returns
// the error of ctx.
func forEach(ctx context.Context, n int, work func(i int)) error {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				work(i)
			}
		})
	}
	group.Wait()
	return ctx.Err()
}
