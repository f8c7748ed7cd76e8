package ledger

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestState adds and removes a record directory: each gives another state.
func TestState(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	empty := kept.State()
	if !empty.Settled(time.Now()) {
		t.Error("an empty ledger is not settled")
	}
	record := filepath.Join(dir, runsName, "20261115-031522-stage2-3f9a1c")
	if err := os.MkdirAll(record, 0o755); err != nil {
		t.Fatal(err)
	}
	added := kept.State()
	if added == empty {
		t.Error("a new record does not change the state")
	}
	if added.Settled(time.Now()) || !added.Settled(time.Now().Add(time.Minute)) {
		t.Error("a state is settled too early, or never")
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, runsName), old, old); err != nil {
		t.Fatal(err)
	}
	before := kept.State()
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	if kept.State() == before {
		t.Error("a removed record does not change the state")
	}
}
