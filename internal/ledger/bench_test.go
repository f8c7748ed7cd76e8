package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// benchFiles returns the files of a bench that started n seconds after dawn.
func benchFiles(n int) (id string, files map[string][]byte) {
	at := dawn.Add(time.Duration(n) * time.Second)
	id = NewID(at, "bench")
	document, err := json.Marshal(map[string]any{"schema_version": 1, "id": id, "time": at, "kernel": "sdpa", "rows": []int{}})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return id, map[string][]byte{"bench.json": document, "samples.json": []byte("[]"), "report.md": []byte("# a bench\n")}
}

func recordBench(t testing.TB, l *Ledger, n int) string {
	t.Helper()
	id, files := benchFiles(n)
	if err := l.RecordBench(t.Context(), files); err != nil {
		t.Fatal(err)
	}
	return id
}

// wantBenches checks the report of Verify.
func wantBenches(t testing.TB, l *Ledger, runs, benches int, problems ...string) {
	t.Helper()
	wantProblems(t, l, runs, problems...)
	if r, err := l.Verify(t.Context()); err != nil || r.Benches != benches {
		t.Errorf("%d sound benches, want %d; %v", r.Benches, benches, err)
	}
}

func TestBenches(t *testing.T) {
	l, all := filled(t, 2)
	first, second := recordBench(t, l, 5), recordBench(t, l, 6)
	found := func(ref, want string) {
		t.Helper()
		_, err := l.Find(t.Context(), ref)
		if got, ok := errors.AsType[*RefError](err); !ok || got.Bench != want || want != "" && !strings.Contains(err.Error(), want+" is a bench, not a run") {
			t.Errorf("Find %q: %v, want the bench %q", ref, err, want)
		}
	}
	found(first, first)
	found(second[len(second)-6:], second)
	found(second[:len(idTime)], second)
	found("latest-bench", second)
	found("nothing", "")
	found("", "")
	_, files := benchFiles(5)
	document, err := l.ReadBench(t.Context(), first, "report.md")
	if err != nil || string(document) != string(files["report.md"]) {
		t.Errorf("report.md: %q, %v", document, err)
	}
	if _, err := l.ReadBench(t.Context(), first, "ptxas.log"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not in the record: %v", err)
	}
	// Benches leave lists of runs unchanged.
	wantRuns(t, l, all)
	if e, err := l.Find(t.Context(), "latest"); err != nil || e.ID != all[1].ID {
		t.Errorf("latest: %s, %v", e.ID, err)
	}
	wantBenches(t, l, 2, 2)
	if r, err := l.Reindex(t.Context()); err != nil || r.Runs != 2 || len(r.Problems) > 0 {
		t.Errorf("Reindex: %+v, %v", r, err)
	}
	wantRuns(t, l, all)
}

// A ledger may have benches and no runs, or neither.
func TestBenchesAlone(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "ledger"))
	_, err := l.Find(t.Context(), "latest-bench")
	wantError(t, err, "the ledger has no benches")
	id := recordBench(t, l, 0)
	wantBenches(t, l, 0, 1)
	_, err = l.Find(t.Context(), "latest-bench")
	wantError(t, err, id)
	wantRuns(t, l, nil)
	if r, err := l.Reindex(t.Context()); err != nil || len(r.Problems) > 0 {
		t.Errorf("Reindex: %+v, %v", r, err)
	}
}

func TestRecordBenchRefuses(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "ledger"))
	check := func(want string, change func(files map[string][]byte)) {
		t.Helper()
		_, files := benchFiles(0)
		change(files)
		wantError(t, l.RecordBench(t.Context(), files), "was not recorded", want)
	}
	with := func(key, value string) func(map[string][]byte) {
		return func(files map[string][]byte) {
			var document map[string]any
			if err := json.Unmarshal(files["bench.json"], &document); err != nil {
				t.Fatal(err)
			}
			document[key] = value
			files["bench.json"], _ = json.Marshal(document)
		}
	}
	check("it has no bench.json", func(files map[string][]byte) { delete(files, "bench.json") })
	check("bench.json: ", func(files map[string][]byte) { files["bench.json"] = []byte("{") })
	check("key id", with("id", "../../etc"))
	check("make both from one clock reading", with("time", "2026-11-15T09:00:00Z"))
	check("key kernel is missing", with("kernel", ""))
	check("a/b", func(files map[string][]byte) { files["a/b"] = nil })
	if _, err := os.Stat(l.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused bench created the ledger: %v", err)
	}
	_, files := benchFiles(0)
	if err := l.RecordBench(t.Context(), files); err != nil {
		t.Fatal(err)
	}
	files["samples.json"] = []byte("[1]")
	if err := l.RecordBench(t.Context(), files); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a bench was written twice: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, files = benchFiles(1)
	if err := l.RecordBench(cancelled, files); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	wantBenches(t, l, 0, 1)
}

func TestVerifyBenches(t *testing.T) {
	check := func(name string, damage func(t *testing.T, l *Ledger, bench string), benches int, want ...string) {
		t.Run(name, func(t *testing.T) {
			l, _ := filled(t, 1)
			recordBench(t, l, 3)
			damage(t, l, l.benches().dir(recordBench(t, l, 4)))
			wantBenches(t, l, 1, benches, want...)
		})
	}
	check("changed", func(t *testing.T, l *Ledger, bench string) {
		overwrite(t, filepath.Join(bench, "bench.json"), "{}")
		_, err := l.ReadBench(t.Context(), filepath.Base(bench), "bench.json")
		wantError(t, err, "bench.json was changed after it was recorded")
	}, 1, "bench.json: was changed")
	check("missing", func(t *testing.T, _ *Ledger, bench string) {
		if err := os.Remove(filepath.Join(bench, "samples.json")); err != nil {
			t.Fatal(err)
		}
	}, 1, "samples.json: is missing")
	check("renamed to an id", func(t *testing.T, l *Ledger, bench string) {
		if err := os.Rename(bench, l.benches().dir(NewID(dawn, "other"))); err != nil {
			t.Fatal(err)
		}
	}, 1, "the directory was renamed", "is missing, but line 4 of the chain names it")
	check("other file", func(t *testing.T, l *Ledger, _ string) {
		overwrite(t, filepath.Join(l.benches().path, "notes.txt"), "")
	}, 2, "benches/notes.txt: not a bench")
}

// A recording that was killed leaves no bench, and Reindex removes its directory.
func TestKilledBench(t *testing.T) {
	l := open(t, t.TempDir())
	kept := recordBench(t, l, 0)
	dead := exec.Command(os.Args[0], "-test.run=^$")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	id, files := benchFiles(1)
	half := filepath.Join(l.benches().path, temporaryName(dead.Process.Pid, pidSpace(), id))
	if err := errors.Join(os.Mkdir(half, 0o755), writeFile(filepath.Join(half, "bench.json"), files["bench.json"])); err != nil {
		t.Fatal(err)
	}
	_, err := l.Find(t.Context(), "latest-bench")
	wantError(t, err, kept)
	if _, err := l.ReadBench(t.Context(), id, "bench.json"); err == nil {
		t.Error("an unfinished bench can be read")
	}
	wantBenches(t, l, 0, 1, "an unfinished recording of a dead process")
	if r, err := l.Reindex(t.Context()); err != nil || len(r.Problems) > 0 {
		t.Errorf("Reindex: %+v, %v", r, err)
	}
	wantBenches(t, l, 0, 1)
}

func FuzzBench(f *testing.F) {
	_, files := benchFiles(0)
	f.Add(files["bench.json"])
	f.Add([]byte(`{"id":"../..","time":"2026-11-15T03:15:22Z","kernel":"sdpa"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, document []byte) {
		if id, err := parseIdentified(benchName, document); err == nil && (strings.ContainsAny(id, "/\\") || len(id) < len(idTime)) {
			t.Errorf("%s is read as %q", document, id)
		}
	})
}
