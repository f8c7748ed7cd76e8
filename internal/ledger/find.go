package ledger

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// latestRun is the reference of the newest run.
const latestRun = "latest"

// RefError is the error of a reference that does not name exactly one run.
type RefError struct {
	Ref       string
	Ambiguous bool
	Bench     string // id of the bench that the reference names; may be empty
	Tuning    string // id of the finished search that the reference names; may be empty
	// Candidates are the ids that the reference matches, or the three nearest if it matches none.
	Candidates []string
}

func (e *RefError) Error() string {
	const show = 6
	list := strings.Join(e.Candidates[:min(len(e.Candidates), show)], ", ")
	if more := len(e.Candidates) - show; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	switch {
	case e.Bench != "":
		return fmt.Sprintf("%s is a bench, not a run; `attune show` prints it", e.Bench)
	case e.Tuning != "":
		return fmt.Sprintf("%s is a tuning, not a run; `attune show` prints it", e.Tuning)
	case e.Ref == latestTuning:
		return "the ledger has no tunings; `attune tune` makes one"
	case e.Ref == latestBench:
		return "the ledger has no benches; `attune bench` makes one"
	case e.Ambiguous:
		return fmt.Sprintf("run %q is ambiguous; it may be %s", e.Ref, list)
	case len(e.Candidates) == 0:
		return fmt.Sprintf("no run %q: the ledger has no runs", e.Ref)
	default:
		return fmt.Sprintf("no run %q; the nearest are %s", e.Ref, list)
	}
}

// Is makes errors.Is(err, fs.ErrNotExist) true for a reference that names no run.
func (e *RefError) Is(target error) bool {
	return target == fs.ErrNotExist && !e.Ambiguous
}

// Find returns the run that ref names. ref is an id, an unambiguous start or end of one, or
// "latest". If ref names no run or several, the error is a [*RefError]. It has the id if ref names
// a bench.
func (l *Ledger) Find(ctx context.Context, ref string) (Entry, error) {
	entries, err := l.List(ctx, Filter{})
	if err != nil {
		return Entry{}, err
	}
	if ref == latestRun && len(entries) > 0 {
		return entries[0], nil
	}
	var matches []Entry
	for _, e := range entries {
		if e.ID == ref {
			return e, nil
		}
		if ref != "" && (strings.HasPrefix(e.ID, ref) || strings.HasSuffix(e.ID, ref)) {
			matches = append(matches, e)
		}
	}
	switch {
	case len(matches) == 1:
		return matches[0], nil
	case len(matches) > 1:
		return Entry{}, &RefError{Ref: ref, Ambiguous: true, Candidates: ids(matches)}
	}
	if err := l.benchRefError(ref); err != nil {
		return Entry{}, err
	}
	if err := l.damage(ctx, ref); err != nil {
		return Entry{}, err
	}
	return Entry{}, &RefError{Ref: ref, Candidates: nearest(ids(entries), ref)}
}

// damage returns the error of a run that is in the ledger and cannot be read. It returns nil for a
// run that is not there.
func (l *Ledger) damage(ctx context.Context, id string) error {
	if _, err := parseID(id); err != nil {
		return nil
	}
	if _, err := os.Stat(l.runPath(id)); err != nil {
		return nil
	}
	if _, err := l.readEntry(ctx, id); err != nil {
		return fmt.Errorf("the run is damaged and not listed: %w", err)
	}
	return nil // another process recorded it after the list was read
}

func ids(entries []Entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.ID)
	}
	return out
}

// minShortID is the length of the random end of an id.
const minShortID = 6

// ShortIDs returns a function that shortens the id of a run to its shortest unambiguous end of at
// least six characters. Find accepts it.
func (l *Ledger) ShortIDs(ctx context.Context) (func(id string) string, error) {
	entries, err := l.List(ctx, Filter{})
	if err != nil {
		return nil, err
	}
	all := ids(entries)
	counted := map[int]map[string]int{} // by length: how many ids start or end with a text
	return func(id string) string {
		for n := minShortID; n < len(id); n++ {
			if counted[n] == nil {
				counted[n] = countEnds(all, n)
			}
			end := id[len(id)-n:]
			own := 1
			if strings.HasPrefix(id, end) {
				own = 2
			}
			if counted[n][end] <= own {
				return end
			}
		}
		return id
	}, nil
}

// countEnds counts the starts and ends of n characters.
func countEnds(ids []string, n int) map[string]int {
	counts := make(map[string]int, 2*len(ids))
	for _, id := range ids {
		if len(id) >= n {
			counts[id[:n]]++
			counts[id[len(id)-n:]]++
		}
	}
	return counts
}

// nearest returns the three ids whose start or end has the smallest edit distance from ref.
func nearest(ids []string, ref string) []string {
	ref = ref[:min(len(ref), 80)]
	away := make(map[string]int, len(ids))
	for _, id := range ids {
		n := min(len(ref), len(id))
		away[id] = min(distance(ref, id[:n]), distance(ref, id[len(id)-n:]))
	}
	ids = slices.Clone(ids)
	slices.SortStableFunc(ids, func(a, b string) int { return cmp.Compare(away[a], away[b]) })
	return ids[:min(len(ids), 3)]
}

// distance is the edit distance of a and b: the bytes to insert, remove or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := corner
			if a[i] != b[j] {
				replace++
			}
			corner = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
