package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var dawn = time.Date(2026, 11, 15, 3, 15, 22, 123456789, time.UTC)

// sampleEntry returns a run that started n seconds after dawn.
func sampleEntry(n int) Entry {
	at := dawn.Add(time.Duration(n) * time.Second)
	stage := fmt.Sprintf("stage%d", n%3)
	e := Entry{
		ID: NewID(at, stage), Time: at, Kernel: "sdpa", Variant: stage + "+TILE_N=32", Stage: stage, Device: "sim",
		Arch: "sm_89", Verdict: "not-measured", CodeHash: fmt.Sprintf("c0de%d", n%2), GitSHA: "0123456789abcdef",
		Headline: Headline{Shape: "1x8x512x64"},
	}
	if n%2 == 1 {
		e.Device, e.Arch, e.Verdict = "NVIDIA H200", "sm_90a", "merge"
		e.Headline.P50US, e.Headline.ParentRatio = new(12.5+float64(n)), new(1.25)
	}
	return e
}

func runFiles(e Entry) map[string][]byte {
	document, err := json.Marshal(struct {
		SchemaVersion int `json:"schema_version"`
		Entry
		Knobs map[string]int `json:"knobs"`
	}{1, e, map[string]int{"TILE_N": 32}})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return map[string][]byte{
		"run.json":     document,
		"samples.json": []byte(`[12.5, 12.75]`),
		"ptxas.log":    []byte("ptxas info: 0 bytes spill stores\n"),
		"report.md":    []byte("# " + e.ID + "\n"),
	}
}

func open(t testing.TB, dir string) *Ledger {
	t.Helper()
	l, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func record(t testing.TB, l *Ledger, e Entry) {
	t.Helper()
	got, err := l.Record(t.Context(), runFiles(e))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, got); diff != "" {
		t.Fatalf("Record returned another run (-want +got):\n%s", diff)
	}
}

// filled makes a ledger of n runs and returns them, oldest first.
func filled(t testing.TB, n int) (*Ledger, []Entry) {
	t.Helper()
	l := open(t, t.TempDir())
	var entries []Entry
	for i := range n {
		entries = append(entries, sampleEntry(i))
		record(t, l, entries[i])
	}
	return l, entries
}

// plant writes a run as git or cp does: without Record and with ordinary modes.
func plant(t testing.TB, dir string, e Entry) {
	t.Helper()
	files := runFiles(e)
	files[sumsName] = []byte(sumFiles(files).String())
	run := filepath.Join(dir, runsName, e.ID)
	if err := os.MkdirAll(run, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(run, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// seal enters planted records into the chain.
func seal(t testing.TB, dir string) {
	t.Helper()
	l := open(t, dir)
	defer l.Close() // an open index keeps a test from mounting the disk read-only
	if r, err := l.Seal(t.Context()); err != nil || len(r.Problems) > 0 {
		t.Fatalf("Seal: %+v, %v", r, err)
	}
}

// wantRuns checks that the ledger lists exactly these runs, given oldest first.
func wantRuns(t testing.TB, l *Ledger, want []Entry) {
	t.Helper()
	got, err := l.List(t.Context(), Filter{OldestFirst: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrong runs (-want +got):\n%s", diff)
	}
}

func wantProblems(t testing.TB, l *Ledger, runs int, want ...string) {
	t.Helper()
	r, err := l.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range r.Problems {
		got = append(got, p.String())
	}
	ok := len(got) == len(want)
	for i := range got {
		ok = ok && strings.Contains(got[i], want[i])
	}
	if !ok {
		t.Errorf("problems:\n  %s\nwant these, in order:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	if r.Runs != runs {
		t.Errorf("%d sound runs, want %d", r.Runs, runs)
	}
}

func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range found {
		out = append(out, f.Name())
	}
	return out
}

func TestRecordedRunIsFound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a ledger?with 100% odd#name", "deep")
	l := open(t, dir)
	e := sampleEntry(1)
	record(t, l, e)

	for _, l := range []*Ledger{l, open(t, dir)} {
		wantRuns(t, l, []Entry{e})
		wantProblems(t, l, 1)
		files, err := l.Files(t.Context(), e.ID)
		if diff := cmp.Diff([]string{"ptxas.log", "report.md", "run.json", "samples.json"}, files); err != nil || diff != "" {
			t.Errorf("Files: %v\n%s", err, diff)
		}
		for name, want := range runFiles(e) {
			got, err := l.Read(t.Context(), e.ID, name)
			if err != nil || string(got) != string(want) {
				t.Errorf("Read %s: %q, %v; want %q", name, got, err, want)
			}
		}
	}
	for _, name := range names(t, filepath.Join(dir, "runs", e.ID)) {
		info, err := os.Stat(filepath.Join(dir, "runs", e.ID, name))
		if err != nil || info.Mode().Perm()&0o222 != 0 {
			t.Errorf("%s can be written: %v, %v", name, info.Mode(), err)
		}
	}
	if got := names(t, dir); !slices.Equal(got, []string{"chain", "index.sqlite", "runs"}) {
		t.Errorf("the ledger holds %q", got)
	}
	if got := names(t, filepath.Join(dir, "runs")); !slices.Equal(got, []string{e.ID}) {
		t.Errorf("runs holds %q", got)
	}
}

func TestOpenCreatesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent")
	l := open(t, dir)
	wantRuns(t, l, nil)
	wantProblems(t, l, 0)
	if r, err := l.Reindex(t.Context()); err != nil || r.Runs != 0 {
		t.Errorf("Reindex: %+v, %v", r, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory was created: %v", err)
	}
	_, err := l.Find(t.Context(), "latest")
	wantError(t, err, "the ledger has no runs")
}

func TestOpenRefusesFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), file)
	wantError(t, err, file, "not a directory")
	_, err = Open(t.Context(), "")
	wantError(t, err, "no directory given")
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "runs"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), filepath.Dir(file))
	wantError(t, err, "list the runs")
}

func TestList(t *testing.T) {
	l, all := filled(t, 6)
	check := func(f Filter, want ...int) {
		t.Helper()
		got, err := l.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		var entries []Entry
		for _, n := range want {
			entries = append(entries, all[n])
		}
		if diff := cmp.Diff(entries, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", f, diff)
		}
	}
	check(Filter{}, 5, 4, 3, 2, 1, 0)
	check(Filter{OldestFirst: true}, 0, 1, 2, 3, 4, 5)
	check(Filter{Limit: 2}, 5, 4)
	check(Filter{Limit: 2, OldestFirst: true}, 0, 1)
	check(Filter{Kernel: "sdpa", Limit: 1}, 5)
	check(Filter{Kernel: "other"})
	check(Filter{Variant: "stage1+TILE_N=32"}, 4, 1)
	check(Filter{Stage: "stage2"}, 5, 2)
	check(Filter{Device: "sim"}, 4, 2, 0)
	check(Filter{Arch: "sm_90a"}, 5, 3, 1)
	check(Filter{Verdict: "merge", Stage: "stage0"}, 3)
	check(Filter{CodeHash: "c0de0"}, 4, 2, 0)
	check(Filter{Stage: "stage1' OR 1=1 --"})
}

func TestRecordRefuses(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "ledger"))
	check := func(change func(files map[string][]byte, e *Entry), parts ...string) {
		t.Helper()
		e := sampleEntry(0)
		files := runFiles(e)
		before := string(files["run.json"])
		change(files, &e)
		if string(files["run.json"]) == before {
			files["run.json"] = runFiles(e)["run.json"]
		}
		_, err := l.Record(t.Context(), files)
		wantError(t, err, append(parts, "not recorded")...)
	}
	check(func(f map[string][]byte, _ *Entry) { f["run.json"] = []byte("{") }, "run.json")
	check(func(_ map[string][]byte, e *Entry) { e.ID = "../escape" }, "not the id of a run")
	check(func(_ map[string][]byte, e *Entry) { e.ID = "" }, "not the id of a run")
	check(func(_ map[string][]byte, e *Entry) { e.Time = e.Time.Add(time.Second) }, "one clock reading")
	check(func(_ map[string][]byte, e *Entry) { e.Time = time.Time{} }, "one clock reading")
	check(func(_ map[string][]byte, e *Entry) { e.Kernel = "" }, "key kernel")
	check(func(_ map[string][]byte, e *Entry) { e.Variant = "" }, "key variant")
	check(func(_ map[string][]byte, e *Entry) { e.Verdict = "" }, "key verdict")
	check(func(f map[string][]byte, _ *Entry) { f["sha256sums"] = nil }, "the name sha256sums is reserved")
	check(func(f map[string][]byte, _ *Entry) { f["../x"] = nil }, `"../x"`)
	check(func(f map[string][]byte, _ *Entry) { f[".hidden"] = nil }, `".hidden"`)
	check(func(f map[string][]byte, _ *Entry) { f["\u212a"] = nil }, "characters") // a Kelvin sign, not a K
	_, err := l.Record(t.Context(), map[string][]byte{"report.md": nil})
	wantError(t, err, "no run.json", "not recorded")
	if _, err := os.Stat(l.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused run created the ledger: %v", err)
	}
}

func TestRecordConvertsTimeZones(t *testing.T) {
	l := open(t, t.TempDir())
	e := sampleEntry(0)
	e.Time = e.Time.In(time.FixedZone("", -5*3600))
	if _, err := l.Record(t.Context(), runFiles(e)); err != nil {
		t.Fatal(err)
	}
	e.Time = e.Time.UTC()
	wantRuns(t, l, []Entry{e})
}

func TestRecordNeverRewrites(t *testing.T) {
	l, all := filled(t, 1)
	changed := all[0]
	changed.Verdict = "merge"
	_, err := l.Record(t.Context(), runFiles(changed))
	wantError(t, err, all[0].ID, "not recorded", "already has a run with this id")
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v is not fs.ErrExist", err)
	}
	wantRuns(t, l, all)
	wantProblems(t, l, 1)
	if got := names(t, l.runsPath()); len(got) != 1 {
		t.Errorf("runs holds %q", got)
	}
}

func TestRecordStopsWhenCancelled(t *testing.T) {
	l, all := filled(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.Record(ctx, runFiles(sampleEntry(1)))
	wantError(t, err, "not recorded", "canceled")
	for what, err := range map[string]error{
		"List":    second(l.List(ctx, Filter{})),
		"Find":    second(l.Find(ctx, "latest")),
		"Read":    second(l.Read(ctx, all[0].ID, "run.json")),
		"Verify":  second(l.Verify(ctx)),
		"Reindex": second(l.Reindex(ctx)),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", what, err)
		}
	}
	wantRuns(t, l, all)
	wantProblems(t, l, 1)
	if got := names(t, l.runsPath()); len(got) != 1 {
		t.Errorf("runs holds %q", got)
	}
}

func second[T any](_ T, err error) error { return err }

func TestFind(t *testing.T) {
	l := open(t, t.TempDir())
	var all []Entry
	for i, id := range []string{
		"20261115-031522-stage2-3f9a1c",
		"20261115-031523-stage2-3f9a1d",
		"20261116-031524-base-2026aa",
		"20261116-031525-stage1-bb2026",
	} {
		e := sampleEntry(i)
		e.ID = id
		e.Time, _ = time.Parse(idTime, id[:len(idTime)])
		all = append(all, e)
		record(t, l, e)
	}
	found := func(ref string, want int) {
		t.Helper()
		got, err := l.Find(t.Context(), ref)
		if err != nil {
			t.Fatalf("Find %q: %v", ref, err)
		}
		if diff := cmp.Diff(all[want], got); diff != "" {
			t.Errorf("Find %q (-want +got):\n%s", ref, diff)
		}
	}
	missed := func(ref string, want RefError) {
		t.Helper()
		_, err := l.Find(t.Context(), ref)
		got, ok := errors.AsType[*RefError](err)
		want.Ref = ref
		if !ok {
			t.Fatalf("Find %q: %v", ref, err)
		}
		if diff := cmp.Diff(want, *got); diff != "" {
			t.Errorf("Find %q (-want +got):\n%s", ref, diff)
		}
		for _, id := range want.Candidates {
			wantError(t, err, id)
		}
		if errors.Is(err, fs.ErrNotExist) == want.Ambiguous {
			t.Errorf("Find %q: wrong kind of error: %v", ref, err)
		}
	}
	found("20261115-031522-stage2-3f9a1c", 0)
	found("20261115-031523", 1)
	found("3f9a1c", 0)
	found("1d", 1)
	found("stage2-3f9a1d", 1)
	found("latest", 3)
	missed("20261115", RefError{Ambiguous: true, Candidates: []string{all[1].ID, all[0].ID}})
	missed("2026", RefError{Ambiguous: true, Candidates: []string{all[3].ID, all[2].ID, all[1].ID, all[0].ID}})
	missed("3f9b1d", RefError{Candidates: []string{all[1].ID, all[0].ID, all[3].ID}})
	missed("20261151-031523-stage2", RefError{Candidates: []string{all[1].ID, all[0].ID, all[3].ID}})
	missed("", RefError{Candidates: []string{all[3].ID, all[2].ID, all[1].ID}})
	missed(strings.Repeat("x", 500), RefError{Candidates: []string{all[3].ID, all[2].ID, all[1].ID}})
}

// Find accepts every short id. An end that other ids begin or end with is longer.
func TestShortIDs(t *testing.T) {
	l := open(t, t.TempDir())
	var all []string
	for i, id := range []string{
		"20261115-031522-stage2-3f9a1c",
		"20261115-031523-stage1-3f9a1c",
		"20261116-031524-base-202611",
		"20261116-031525-stage1-bb2026",
	} {
		e := sampleEntry(i)
		e.ID = id
		e.Time, _ = time.Parse(idTime, id[:len(idTime)])
		all = append(all, id)
		record(t, l, e)
	}
	short, err := l.ShortIDs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"2-3f9a1c", "1-3f9a1c", "-202611", "bb2026"} {
		got := short(all[i])
		if got != want {
			t.Errorf("%s: got %s, want %s", all[i], got, want)
		}
		if e, err := l.Find(t.Context(), got); err != nil || e.ID != all[i] {
			t.Errorf("Find %s: %s, %v", got, e.ID, err)
		}
	}
}

func TestRefErrorIsShort(t *testing.T) {
	err := &RefError{Ref: "2", Ambiguous: true, Candidates: strings.Split("abcdefgh", "")}
	if got, want := err.Error(), `run "2" is ambiguous; it may be a, b, c, d, e, f and 2 more`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReadRefuses(t *testing.T) {
	l, all := filled(t, 1)
	id := all[0].ID
	_, err := l.Read(t.Context(), id, "none.txt")
	wantError(t, err, "none.txt", "it has ptxas.log, report.md, run.json, samples.json")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
	_, err = l.Read(t.Context(), id, "../../index.sqlite")
	wantError(t, err, "has no")
	_, err = l.Read(t.Context(), "..", "index.sqlite")
	wantError(t, err, "not the id of a run")
	_, err = l.Files(t.Context(), "..")
	wantError(t, err, "not the id of a run")
	_, err = l.Read(t.Context(), sampleEntry(5).ID, "run.json")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
	if err := os.Remove(filepath.Join(l.runPath(id), "report.md")); err != nil {
		t.Fatal(err)
	}
	_, err = l.Read(t.Context(), id, "report.md")
	wantError(t, err, id, "report.md")
}

// overwrite replaces a file of a record, which the ledger itself never does.
func overwrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestVerify(t *testing.T) {
	check := func(name string, damage func(t *testing.T, l *Ledger, run string), runs int, want ...string) {
		t.Run(name, func(t *testing.T) {
			l, all := filled(t, 2)
			damage(t, l, l.runPath(all[0].ID))
			wantProblems(t, l, runs, want...)
		})
	}
	check("sound", func(*testing.T, *Ledger, string) {}, 2)
	check("changed", func(t *testing.T, l *Ledger, run string) {
		overwrite(t, filepath.Join(run, "samples.json"), "[1]")
		_, err := l.Read(t.Context(), filepath.Base(run), "samples.json")
		wantError(t, err, "samples.json was changed")
	}, 1, "samples.json: was changed")
	check("missing", func(t *testing.T, _ *Ledger, run string) {
		if err := os.Remove(filepath.Join(run, "ptxas.log")); err != nil {
			t.Fatal(err)
		}
	}, 1, "ptxas.log: is missing")
	check("added", func(t *testing.T, _ *Ledger, run string) {
		overwrite(t, filepath.Join(run, "notes.txt"), "")
	}, 1, "notes.txt: was added")
	check("all three", func(t *testing.T, _ *Ledger, run string) {
		overwrite(t, filepath.Join(run, "report.md"), "")
		overwrite(t, filepath.Join(run, "samples.txt"), "")
		if err := os.Rename(filepath.Join(run, "samples.json"), filepath.Join(run, "other.json")); err != nil {
			t.Fatal(err)
		}
	}, 1, "report.md: was changed", "samples.json: is missing", "other.json: was added", "samples.txt: was added")
	check("link", func(t *testing.T, _ *Ledger, run string) {
		path := filepath.Join(run, "report.md")
		if err := errors.Join(os.Rename(path, run+"/../../report.md"), os.Symlink("../../report.md", path)); err != nil {
			t.Fatal(err)
		}
	}, 1, "report.md: cannot be read: it is not a regular file")
	check("no sums", func(t *testing.T, _ *Ledger, run string) {
		if err := os.Remove(filepath.Join(run, "sha256sums")); err != nil {
			t.Fatal(err)
		}
	}, 1, "sha256sums: the run cannot be checked")
	check("cut sums", func(t *testing.T, _ *Ledger, run string) {
		text, _ := os.ReadFile(filepath.Join(run, "sha256sums"))
		overwrite(t, filepath.Join(run, "sha256sums"), string(text[:len(text)-3]))
	}, 1, "sha256sums: the run cannot be checked")
	check("renamed", func(t *testing.T, _ *Ledger, run string) {
		if err := os.Rename(run, run[:len(run)-1]+"x"); err != nil {
			t.Fatal(err)
		}
	}, 1, "not a run; move it out of the ledger", "is missing, but line 2 of the chain names it")
	check("renamed to an id", func(t *testing.T, l *Ledger, run string) {
		if err := os.Rename(run, l.runPath(NewID(dawn, "other"))); err != nil {
			t.Fatal(err)
		}
	}, 1, "the directory was renamed", "is missing, but line 2 of the chain names it")
	check("other file", func(t *testing.T, l *Ledger, _ string) {
		overwrite(t, filepath.Join(l.runsPath(), ".DS_Store"), "")
	}, 2, "runs/.DS_Store: not a run; move it out of the ledger")
	check("index", func(t *testing.T, l *Ledger, run string) {
		other := sampleEntry(0)
		other.ID, other.Verdict = filepath.Base(run), "merge"
		if err := l.index.update(t.Context(), []Entry{other}, nil); err != nil {
			t.Fatal(err)
		}
	}, 1, "run.json: the index differs from it")
}

func TestDamagedRunIsNotListed(t *testing.T) {
	l, all := filled(t, 2)
	path := filepath.Join(l.runPath(all[0].ID), "run.json")
	document, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, path, strings.Replace(string(document), `"not-measured"`, `"merge"`, 1))
	wantRuns(t, l, all) // as in the index
	if found, err := l.Unreadable(t.Context(), ids(all)); err != nil || len(found) != 1 || found[0].Run != all[0].ID || !strings.Contains(found[0].What, "run.json was changed") {
		t.Errorf("Unreadable: %+v, %v", found, err)
	}
	r, err := l.Reindex(t.Context())
	if err != nil || r.Runs != 1 || len(r.Problems) != 1 || r.Problems[0].Run != all[0].ID || !strings.Contains(r.Problems[0].What, "`attune ledger remove "+all[0].ID+"`") {
		t.Errorf("Reindex: %+v, %v", r, err)
	}
	wantRuns(t, l, all[1:])
	if left := l.Unlisted(); len(left) != 1 || left[0].Run != all[0].ID || !strings.Contains(left[0].What, "run.json was changed") {
		t.Errorf("Unlisted: %+v", left)
	}
	_, err = l.Find(t.Context(), all[0].ID)
	wantError(t, err, "damaged", all[0].ID, "run.json was changed")
	wantProblems(t, l, 1, "run.json: was changed")
}

func TestRunsAddedAndRemovedByHand(t *testing.T) {
	l, all := filled(t, 2)
	// git or cp adds a run while the ledger is open.
	third := sampleEntry(2)
	plant(t, l.dir, third)
	wantRuns(t, l, append(slices.Clone(all), third))
	wantRuns(t, open(t, l.dir), append(slices.Clone(all), third))
	if err := os.RemoveAll(l.runPath(all[0].ID)); err != nil {
		t.Fatal(err)
	}
	wantRuns(t, l, []Entry{all[1], third})
	wantProblems(t, l, 1, third.ID+": is not in the chain", all[0].ID+": is missing, but line 2 of the chain names it")

	// A copy is incomplete at first.
	fourth := sampleEntry(3)
	plant(t, l.dir, fourth)
	sums := filepath.Join(l.runPath(fourth.ID), sumsName)
	if err := os.Rename(sums, sums+".part"); err != nil {
		t.Fatal(err)
	}
	wantRuns(t, open(t, l.dir), []Entry{all[1], third})
	if err := os.Rename(sums+".part", sums); err != nil {
		t.Fatal(err)
	}
	wantRuns(t, l, []Entry{all[1], third, fourth})
}

// Only new runs must have all keys.
func TestOldRunsMayLackKeys(t *testing.T) {
	dir := t.TempDir()
	e := sampleEntry(0)
	e = Entry{ID: e.ID, Time: e.Time}
	plant(t, dir, e)
	wantRuns(t, open(t, dir), []Entry{e})
}

func TestAbandonedRecordings(t *testing.T) {
	l, all := filled(t, 1)
	dead := exec.Command(os.Args[0], "-test.run=^$")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	id := sampleEntry(1).ID
	yesterday := time.Now().Add(-25 * time.Hour)
	mkdir := func(name string, at time.Time) string {
		t.Helper()
		path := filepath.Join(l.runsPath(), name)
		err := errors.Join(os.Mkdir(path, 0o755), writeFile(filepath.Join(path, "run.json"), nil), os.Chtimes(path, at, at))
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	now := time.Now()
	ofDead := mkdir(temporaryName(dead.Process.Pid, pidSpace(), id), now)
	mine := mkdir(temporaryName(os.Getpid(), pidSpace(), id), now)
	elsewhere := mkdir(temporaryName(dead.Process.Pid, "0123456789ab", id), now)
	old := mkdir(temporaryName(os.Getpid(), "0123456789ab", id), yesterday)
	unreadable := mkdir(".tmp-what", now)

	wantRuns(t, l, all)
	r, err := l.Verify(t.Context())
	if err != nil || r.Runs != 1 {
		t.Errorf("Verify: %+v, %v", r, err)
	}
	var got []string
	for _, p := range r.Problems {
		got = append(got, strings.TrimPrefix(p.File, "runs/"))
	}
	want := []string{ofDead, old}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Verify names (-want +got):\n%s", diff)
	}
	if r, err := l.Reindex(t.Context()); err != nil || r.Runs != 1 || r.Problems != nil {
		t.Errorf("Reindex: %+v, %v", r, err)
	}
	want = []string{mine, elsewhere, unreadable, all[0].ID}
	slices.Sort(want)
	if diff := cmp.Diff(want, names(t, l.runsPath())); diff != "" {
		t.Errorf("after Reindex (-want +got):\n%s", diff)
	}
	wantProblems(t, l, 1)
}

func TestSumsMatchSha256sum(t *testing.T) {
	tool, err := exec.LookPath("sha256sum")
	if err != nil {
		t.Skip("no sha256sum on this machine")
	}
	l, all := filled(t, 1)
	check := exec.Command(tool, "--check", "--strict", "sha256sums")
	check.Dir = l.runPath(all[0].ID)
	out, err := check.CombinedOutput()
	if err != nil || strings.Count(string(out), ": OK\n") != 4 {
		t.Errorf("%v\n%s", err, out)
	}
	tagged := exec.Command(tool, "ptxas.log", "report.md", "run.json", "samples.json")
	tagged.Dir = check.Dir
	out, err = tagged.Output()
	want, _ := os.ReadFile(filepath.Join(check.Dir, sumsName))
	if diff := cmp.Diff(string(want), string(out)); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestConcurrentUse(t *testing.T) {
	l := open(t, t.TempDir())
	var want []Entry
	for i := range 24 {
		want = append(want, sampleEntry(i))
	}
	var group sync.WaitGroup
	for _, e := range want {
		group.Go(func() {
			if _, err := l.Record(t.Context(), runFiles(e)); err != nil {
				t.Error(err)
			}
			if got, err := l.Find(t.Context(), e.ID); err != nil || got.ID != e.ID {
				t.Errorf("Find %s: %v, %v", e.ID, got, err)
			}
		})
	}
	group.Wait()
	wantRuns(t, l, want)
	wantProblems(t, l, len(want))
}

// endsAfter is a context that is cancelled between the first question and the next.
type endsAfter struct {
	context.Context
	asked int
}

func (c *endsAfter) Err() error {
	if c.asked++; c.asked > 1 {
		return context.Canceled
	}
	return nil
}

// Ctrl-C while a record is written does not lose it.
func TestRecordFinishesWhatItHasBegun(t *testing.T) {
	l, all := filled(t, 1)
	e := sampleEntry(1)
	if _, err := l.Record(&endsAfter{Context: t.Context()}, runFiles(e)); err != nil {
		t.Error(err)
	}
	wantRuns(t, l, append(all, e))
}
