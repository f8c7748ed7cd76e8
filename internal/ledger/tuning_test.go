package ledger

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// tuningFiles returns the files of a search that started n seconds after dawn.
func tuningFiles(n int) (id string, files map[string][]byte) {
	at := dawn.Add(time.Duration(n) * time.Second)
	id = NewID(at, "stage2")
	document, err := json.Marshal(map[string]any{"schema_version": 1, "id": id, "time": at, "kernel": "sdpa"})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return id, map[string][]byte{"tuning.json": document, "journal.jsonl": []byte("{}\n")}
}

func TestTunings(t *testing.T) {
	l, all := filled(t, 1)
	ctx := t.Context()
	id, files := tuningFiles(7)
	if err := l.RecordTuning(ctx, files); err != nil {
		t.Fatal(err)
	}
	if err := l.RecordTuning(ctx, files); err != nil { // a record that is there stays
		t.Error(err)
	}
	for _, ref := range []string{id, id[len(id)-6:], "latest-tuning"} {
		_, err := l.Find(ctx, ref)
		if got, ok := errors.AsType[*RefError](err); !ok || got.Tuning != id || !strings.Contains(err.Error(), id+" is a tuning, not a run") {
			t.Errorf("Find %q: %v", ref, err)
		}
	}
	if e, err := l.Find(ctx, "latest"); err != nil || e.ID != all[0].ID {
		t.Errorf("%+v, %v", e, err)
	}
	if text, err := l.ReadTuning(ctx, id, "journal.jsonl"); err != nil || string(text) != "{}\n" {
		t.Errorf("%q, %v", text, err)
	}
	if r, err := l.Verify(ctx); err != nil || r.Tunings != 1 || r.Runs != 1 || len(r.Problems) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := l.Sealed(id); err != nil {
		t.Error(err)
	}
	other, err := Open(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if r, err := other.Import(ctx, filepath.Join(l.dir, "tunings", id)); err != nil || r.Tunings != 1 || r.Runs != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := os.Chmod(filepath.Join(l.dir, "tunings", id, "journal.jsonl"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.dir, "tunings", id, "journal.jsonl"), []byte("[]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := l.Verify(ctx); err != nil || r.Tunings != 0 || len(r.Problems) != 1 || len(l.Damage(id)) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if name, err := l.Remove(ctx, "latest-tuning"); err != nil || name != "tunings/"+id {
		t.Errorf("%s, %v", name, err)
	}
	if _, err := l.Find(ctx, "latest-tuning"); err == nil || err.Error() != "the ledger has no tunings; `attune tune` makes one" {
		t.Error(err)
	}
}

func TestTuningsThatAreNotRecorded(t *testing.T) {
	l, _ := filled(t, 0)
	for want, files := range map[string]map[string][]byte{
		"it has no tuning.json":     {"journal.jsonl": nil},
		"tuning.json: ":             {"tuning.json": []byte("[")},
		"tuning.json: key id: ":     {"tuning.json": []byte(`{"id": "../.."}`)},
		"tuning.json: key time is ": {"tuning.json": []byte(`{"id": "20261115-031522-stage2-3f9a1c", "time": "2026-11-15T03:15:23Z"}`)},
	} {
		if err := l.RecordTuning(t.Context(), files); err == nil || !strings.Contains(err.Error(), "the tuning was not recorded: "+want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	_, files := tuningFiles(1)
	files["a/b"] = nil
	if err := l.RecordTuning(t.Context(), files); err == nil || !strings.Contains(err.Error(), "was not recorded: file name") {
		t.Error(err)
	}
}

// An unfinished search is a folder that one process has, and no record.
func TestUnfinishedTunings(t *testing.T) {
	l, _ := filled(t, 1)
	first, _ := tuningFiles(1)
	second, files := tuningFiles(2)
	for _, id := range []string{first, second} {
		dir, unlock, err := l.StartTuning(id)
		if err != nil || dir != l.TuningFolder(id) {
			t.Fatal(dir, err)
		}
		if _, err := l.LockTuning(id); !errors.Is(err, errBusy) {
			t.Error(err)
		}
		unlock()
	}
	if ids, err := l.UnfinishedTunings(); err != nil || !slices.Equal(ids, []string{second, first}) {
		t.Errorf("%q, %v", ids, err)
	}
	if r, err := l.Verify(t.Context()); err != nil || len(r.Problems) > 0 || r.Unfinished != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	third, _ := tuningFiles(3)
	_, unlock, err := l.StartTuning(third)
	if err != nil {
		t.Fatal(err)
	}
	if name, err := l.Remove(t.Context(), third); name != "" || !errors.Is(err, errBusy) {
		t.Errorf("%s, %v", name, err)
	}
	unlock()
	if name, err := l.Remove(t.Context(), third[len(third)-6:]); err != nil || name != "tuning/"+third {
		t.Errorf("%s, %v", name, err)
	}
	if _, err := l.Remove(t.Context(), third); !errors.As(err, new(*RefError)) {
		t.Error(err)
	}
	if err := l.RecordTuning(t.Context(), files); err != nil { // and killed before the folder is removed
		t.Fatal(err)
	}
	if ids, err := l.UnfinishedTunings(); err != nil || !slices.Equal(ids, []string{first}) {
		t.Errorf("%q, %v", ids, err)
	}
	if ids, err := l.Tunings(); err != nil || !slices.Equal(ids, []string{second}) {
		t.Errorf("%q, %v", ids, err)
	}
	if err := l.RemoveUnfinishedTuning(first); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(l.dir, unfinishedName)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, _, err := l.StartTuning("../.."); err == nil {
		t.Error("a path is taken as an id")
	}
	if err := l.RemoveUnfinishedTuning("../.."); err == nil {
		t.Error("a path is removed")
	}
	if _, err := l.LockTuning(first); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(l.dir, unfinishedName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.StartTuning(first); err == nil {
		t.Error("a search was started in a file")
	}
	if _, err := l.UnfinishedTunings(); err == nil {
		t.Error("a file has searches")
	}
	if _, err := l.Remove(t.Context(), first); err == nil {
		t.Error("a search of a file was removed")
	}
}

// The directories of searches are under the guards of the ledger: links in them lead nowhere.
func TestLinkedSearches(t *testing.T) {
	t.Parallel()
	l, _ := filled(t, 1)
	elsewhere, id := t.TempDir(), sampleEntry(3).ID
	victim := filepath.Join(elsewhere, id)
	if err := errors.Join(os.Mkdir(victim, 0o755), os.Symlink(elsewhere, filepath.Join(l.dir, unfinishedName))); err != nil {
		t.Fatal(err)
	}
	if ids, err := l.UnfinishedTunings(); err != nil || len(ids) > 0 {
		t.Errorf("%v, %v", ids, err)
	}
	if name, err := l.Remove(t.Context(), id); err == nil {
		t.Errorf("%s was removed", name)
	}
	for _, err := range []error{l.RemoveUnfinishedTuning(id), errorOf(l.LockTuning(id))} {
		if !errors.Is(err, errLinked) {
			t.Error(err)
		}
	}
	if _, _, err := l.StartTuning(id); !errors.Is(err, errLinked) {
		t.Error(err)
	}
	if _, err := os.Stat(victim); err != nil {
		t.Error(err)
	}
	wantProblems(t, l, 1, "tuning: is a symbolic link")

	if err := os.Remove(filepath.Join(l.dir, unfinishedName)); err != nil {
		t.Fatal(err)
	}
	dir, unlock, err := l.StartTuning(id)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "elite.json")); err != nil {
		t.Fatal(err)
	}
	wantProblems(t, l, 1, "tuning/"+id+"/elite.json: is not a regular file")
}

func errorOf[T any](_ T, err error) error { return err }

// A record behind a linked folder is not of this ledger.
func TestRemoveThroughALink(t *testing.T) {
	t.Parallel()
	l, all := filled(t, 1)
	elsewhere := filepath.Join(t.TempDir(), "runs")
	if err := errors.Join(os.Rename(l.runsPath(), elsewhere), os.Symlink(elsewhere, l.runsPath())); err != nil {
		t.Fatal(err)
	}
	_, err := l.Remove(t.Context(), all[0].ID)
	wantError(t, err, "runs is a symbolic link")
	if _, err := os.Stat(filepath.Join(elsewhere, all[0].ID)); err != nil {
		t.Error(err)
	}
}
