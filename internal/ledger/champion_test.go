package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// contenders makes a ledger of n runs with different code.
func contenders(t testing.TB, n int) (*Ledger, []Entry) {
	t.Helper()
	l := open(t, t.TempDir())
	var entries []Entry
	for i := range n {
		e := sampleEntry(i)
		e.CodeHash = fmt.Sprintf("c0de%d", i)
		entries = append(entries, e)
		record(t, l, e)
	}
	return l, entries
}

// promotion returns the champion that a caller passes to Promote for a run.
func promotion(e Entry, arch string) Champion {
	return Champion{Kernel: e.Kernel, Arch: arch, Variant: e.Variant, Run: e.ID, CodeHash: e.CodeHash, Attune: "0.1.0"}
}

func promote(t testing.TB, l *Ledger, e Entry, arch string) Champion {
	t.Helper()
	c, err := l.Promote(t.Context(), promotion(e, arch))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func rollBack(t testing.TB, l *Ledger, arch string) Champion {
	t.Helper()
	c, err := l.Rollback(t.Context(), "sdpa", arch, "0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantChampion checks the run of an architecture's champion.
func wantChampion(t testing.TB, l *Ledger, arch, run string) {
	t.Helper()
	all, err := l.Champions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := all.Of("sdpa", arch); c.Run != run {
		t.Errorf("the champion of %s has run %q, want %q", arch, c.Run, run)
	}
}

func wantChampions(t testing.TB, l *Ledger, champions int, wants ...string) {
	t.Helper()
	report, err := l.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.Champions != champions || len(report.Problems) != len(wants) {
		t.Fatalf("%d sound champions, want %d; problems %v", report.Champions, champions, report.Problems)
	}
	for _, want := range wants {
		if !slices.ContainsFunc(report.Problems, func(p Problem) bool { return strings.Contains(p.String(), want) }) {
			t.Errorf("no problem contains %q: %v", want, report.Problems)
		}
	}
}

// Each rollback returns to the champion before, and every record stays.
func TestChampions(t *testing.T) {
	l, runs := contenders(t, 5)
	if _, err := l.Rollback(t.Context(), "sdpa", "sm_90", ""); err == nil || !strings.Contains(err.Error(), "has no champion on sm_90") {
		t.Errorf("rollback of nothing: %v", err)
	}
	if _, err := os.Stat(filepath.Join(l.dir, championsName)); err == nil {
		t.Error("a refused rollback created the folder")
	}
	first := promote(t, l, runs[0], "sm_90")
	other := promote(t, l, runs[3], "sm_89")
	second := promote(t, l, runs[1], "sm_90")
	want := &Previous{ID: first.ID, SHA256: second.Previous.SHA256, Variant: runs[0].Variant, Run: runs[0].ID}
	if diff := cmp.Diff(want, second.Previous); diff != "" || second.Number != 2 || first.Previous != nil || other.Number != 1 {
		t.Errorf("the second has number %d, the other architecture's %d; previous (-want +got)\n%s", second.Number, other.Number, diff)
	}
	wantChampion(t, l, "sm_90", runs[1].ID)
	wantChampion(t, l, "sm_89", runs[3].ID)

	back := rollBack(t, l, "sm_90")
	if back.Change != Rollback || back.Restores != first.ID || back.Run != first.Run || back.Variant != first.Variant || back.Previous.ID != second.ID {
		t.Errorf("the rollback is %+v", back)
	}
	_, err := l.Rollback(t.Context(), "sdpa", "sm_90", "")
	wantError(t, err, "is the first champion of sm_90")
	promote(t, l, runs[2], "sm_90")
	promote(t, l, runs[4], "sm_90")
	for _, run := range []string{runs[2].ID, runs[0].ID} {
		if got := rollBack(t, l, "sm_90"); got.Run != run {
			t.Errorf("rolled back to %s, want %s", got.Run, run)
		}
	}
	all, err := l.Champions(t.Context())
	if err != nil || len(all) != 8 {
		t.Errorf("%d records, %v", len(all), err)
	}
	var now []string
	for _, c := range all.Now() {
		now = append(now, c.Arch+" "+c.Run)
	}
	if diff := cmp.Diff([]string{"sm_89 " + runs[3].ID, "sm_90 " + runs[0].ID}, now); diff != "" {
		t.Error(diff)
	}

	// Champions do not depend on the index.
	if err := os.Remove(l.indexPath()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Reindex(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantChampion(t, l, "sm_90", runs[0].ID)
	wantChampions(t, l, 8)
}

func TestPromoteRefuses(t *testing.T) {
	l, runs := contenders(t, 2)
	promote(t, l, runs[0], "sm_90")
	_, err := l.Promote(t.Context(), promotion(runs[0], "sm_90"))
	wantError(t, err, "is already the champion of sm_90 with the same code, since 20")
	promote(t, l, runs[0], "sm_89") // another architecture has a champion of its own
	bad := promotion(runs[1], "sm_90")
	bad.CodeHash = ""
	_, err = l.Promote(t.Context(), bad)
	wantError(t, err, "the champion was not changed: key code_hash is missing or empty")
	bad = promotion(runs[1], "sm_90")
	bad.Run = "../.."
	_, err = l.Promote(t.Context(), bad)
	wantError(t, err, "is not the id of a run")
	wantChampions(t, l, 2)
}

// Verify reports every kind of damage to the records.
func TestVerifyChampions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	path := func(l *Ledger, c Champion) string { return filepath.Join(l.dir, championsName, c.ID) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// rewrite changes the text of a record, its checksums and the chain. What is left to give it away
	// is the record after it.
	rewrite := func(l *Ledger, c Champion, old, text string) {
		t.Helper()
		file := filepath.Join(path(l, c), championName)
		before, err := os.ReadFile(file)
		must(err)
		after := strings.Replace(string(before), old, text, 1)
		if after == string(before) {
			t.Fatalf("%q is not in %s", old, before)
		}
		must(os.Remove(file))
		must(os.WriteFile(file, []byte(after), 0o444))
		sums := filepath.Join(path(l, c), sumsName)
		must(os.Remove(sums))
		must(os.WriteFile(sums, []byte(sumFiles(map[string][]byte{championName: []byte(after)}).String()), 0o444))
		must(os.Remove(l.chain.path))
		_, err = l.Seal(t.Context())
		must(err)
	}
	check := func(damage func(l *Ledger, first, second, back Champion), sound int, wants ...string) {
		t.Helper()
		l, runs := contenders(t, 3)
		first := promote(t, l, runs[0], "sm_90")
		second := promote(t, l, runs[1], "sm_90")
		damage(l, first, second, rollBack(t, l, "sm_90"))
		wantChampions(t, l, sound, wants...)
	}
	check(func(*Ledger, Champion, Champion, Champion) {}, 3)
	check(func(l *Ledger, first, _, _ Champion) { must(os.RemoveAll(path(l, first))) }, 0,
		"before it is missing", "the promotion 2", ": is missing, but line 5 of the chain names it") // the second record follows it, and the rollback restores it
	check(func(l *Ledger, _, second, _ Champion) { rewrite(l, second, `"attune": "0.1.0"`, `"attune": "0.2.0"`) }, 2, "before it was rewritten")
	check(func(l *Ledger, _, _, back Champion) { rewrite(l, back, `"number": 3`, `"number": 7`) }, 2, "is not the one before it")
	check(func(l *Ledger, _, _, back Champion) { rewrite(l, back, back.CodeHash, "0ther") }, 2, "has another kernel, variant or code")
	check(func(l *Ledger, _, _, back Champion) { rewrite(l, back, `"rollback"`, `"coup"`) }, 2, `key change is "coup"`)
	check(func(l *Ledger, _, _, back Champion) {
		must(os.RemoveAll(l.runPath(back.Run)))
	}, 1, "is not in the ledger", "is not in the ledger", ": is missing, but line 2 of the chain names it")
	check(func(l *Ledger, _, second, _ Champion) {
		must(os.WriteFile(filepath.Join(path(l, second), "note"), nil, 0o644))
	}, 2, "/note: was added")
	check(func(l *Ledger, _, second, _ Champion) {
		must(os.WriteFile(filepath.Join(l.dir, championsName, "README"), nil, 0o644))
	}, 3, "champions/README: not a champion")
}

// A damaged record hides the present champion, so nothing can be promoted.
func TestPromoteRefusesDamagedRecords(t *testing.T) {
	l, runs := contenders(t, 2)
	c := promote(t, l, runs[0], "sm_90")
	file := filepath.Join(l.dir, championsName, c.ID, championName)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := l.Promote(t.Context(), promotion(runs[1], "sm_90"))
	wantError(t, err, "champion.json was changed after it was recorded")
	wantChampions(t, l, 0, "was changed")
}

// A rollback needs the run of the champion that it returns to.
func TestRollbackNeedsRun(t *testing.T) {
	l, runs := contenders(t, 2)
	promote(t, l, runs[0], "sm_90")
	promote(t, l, runs[1], "sm_90")
	if err := os.RemoveAll(l.runPath(runs[0].ID)); err != nil {
		t.Fatal(err)
	}
	_, err := l.Rollback(t.Context(), "sdpa", "sm_90", "")
	wantError(t, err, "its run cannot be read")
	wantChampion(t, l, "sm_90", runs[1].ID)
}

// Two branches may each add a record. After a git merge both are valid, and the later one counts.
func TestMergedChampions(t *testing.T) {
	l, runs := contenders(t, 3)
	promote(t, l, runs[0], "sm_90")
	elsewhere := open(t, t.TempDir())
	if err := os.CopyFS(elsewhere.dir, os.DirFS(l.dir)); err != nil {
		t.Fatal(err)
	}
	promote(t, l, runs[1], "sm_90")
	later := promote(t, elsewhere, runs[2], "sm_90")
	if err := os.CopyFS(filepath.Join(l.dir, championsName, later.ID), os.DirFS(filepath.Join(elsewhere.dir, championsName, later.ID))); err != nil {
		t.Fatal(err)
	}
	wantChampion(t, l, "sm_90", runs[2].ID)
	wantChampions(t, l, 2, later.ID+": is not in the chain")
	seal(t, l.dir)
	wantChampions(t, l, 3)
	if back := rollBack(t, l, "sm_90"); back.Run != runs[0].ID {
		t.Errorf("rolled back to %s", back.Run)
	}
	wantChampions(t, l, 4)
}

// Concurrent promotions form one chain.
func TestConcurrentPromotions(t *testing.T) {
	const many = 8
	l, runs := contenders(t, many)
	var wait sync.WaitGroup
	for i := range many {
		wait.Go(func() {
			if _, err := open(t, l.dir).Promote(t.Context(), promotion(runs[i], "sm_90")); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	all, err := l.Champions(t.Context())
	if err != nil || len(all) != many {
		t.Fatalf("%d records, %v", len(all), err)
	}
	for i, c := range all {
		if c.Number != i+1 {
			t.Errorf("record %d has number %d", i, c.Number)
		}
	}
}

func FuzzChampion(f *testing.F) {
	f.Add([]byte(`{"schema_version":1,"id":"20261115-031522-sm_90-3f9a1c","change":"promote","number":1,"since":"2026-11-15T03:15:22Z",` +
		`"kernel":"sdpa","arch":"sm_90","variant":"stage2","run":"20261115-031522-stage2-3f9a1c","code_hash":"c0de"}`))
	f.Add([]byte(`{"schema_version":1,"change":"rollback","number":2,"previous":{"id":"x"},"restores":"y"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, document []byte) {
		c, err := parseChampion(document)
		if err != nil {
			return
		}
		if err := c.check(); err != nil || strings.ContainsAny(c.ID+c.Run, "/\\") {
			t.Errorf("%s is read as %+v, %v", document, c, err)
		}
		if c.Previous == nil && c.Number != 1 {
			t.Errorf("%s: number %d follows nothing", document, c.Number)
		}
	})
}
