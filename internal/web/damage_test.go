package web

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// overwrite damages the document of a run.
func overwrite(t *testing.T, dir, id string) {
	t.Helper()
	path := filepath.Join(dir, "runs", id, "run.json")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, []byte("{}"))
}

// TestDamagedLadder damages runs before and after the ledger has listed them. The overview names them
// and shows the others.
func TestDamagedLadder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	copyResults(t, dir)
	sound, err := newServer(t, openLedger(t, dir)).records.now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	onLadder := map[string]bool{}
	for _, r := range sound.ladder {
		onLadder[r.ID] = true
	}
	last := len(sound.entries) - 1
	for last >= 0 && onLadder[sound.entries[last].ID] {
		last--
	}
	first, second, old := sound.ladder[1].ID, sound.ladder[3].ID, sound.entries[last].ID
	if last < overviewRuns {
		t.Fatal("every old run is on the ladder; the test shows nothing")
	}
	for _, id := range []string{first, second, old} {
		overwrite(t, dir, id)
	}
	s := newServer(t, openLedger(t, dir))
	page := get(s, "/").Body.String()
	for _, want := range []string{"Damaged records", "run " + first, "run " + second, ">" + sound.ladder[2].Variant + "</a>", "35.60 us", "Report on the ladder"} {
		if !strings.Contains(page, want) {
			t.Errorf("the overview lacks %q", want)
		}
	}
	if l, err := s.records.now(t.Context()); err != nil || len(l.ladder) < len(sound.ladder)-2 {
		t.Errorf("%d stages, want %d without the damaged ones: %v", len(l.ladder), len(sound.ladder), err)
	}
	get(s, "/runs/"+old) // an old run is read when its page is opened
	for _, path := range []string{"/", "/runs"} {
		if !strings.Contains(get(s, path).Body.String(), "run "+old) {
			t.Errorf("%s does not name %s, whose page has shown that it is damaged", path, old)
		}
	}
}

// TestUnlistedRuns names runs that were damaged before the ledger could list them.
func TestUnlistedRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	copyResults(t, dir)
	damaged := []string{"20261116-160615-stage2-448d06", "20261116-160644-stage3b-64f3ef"}
	for _, id := range damaged {
		overwrite(t, dir, id)
	}
	s := newServer(t, openLedger(t, dir))
	for _, path := range []string{"/", "/runs"} {
		page := get(s, path).Body.String()
		for _, id := range damaged {
			if strings.Count(page, id) != 1 {
				t.Errorf("%s names %s %d times, want once", path, id, strings.Count(page, id))
			}
		}
	}
}

// TestOnlyDamagedLadder has one run of a stage, and it is damaged: the pages do not say that nothing was
// timed.
func TestOnlyDamagedLadder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plant(t, dir, 1)
	runs, err := os.ReadDir(filepath.Join(dir, "runs"))
	if err != nil {
		t.Fatal(err)
	}
	kept := openLedger(t, dir) // it lists the run
	overwrite(t, dir, runs[0].Name())
	s := newServer(t, kept)
	for _, path := range []string{"/", "/ladder"} {
		page := get(s, path).Body.String()
		if !strings.Contains(page, "can be read; see the damaged records") || !strings.Contains(page, "run "+runs[0].Name()) || strings.Contains(page, "was timed on a GPU yet") {
			t.Errorf("%s does not name the damaged run: %s", path, page)
		}
	}
}
