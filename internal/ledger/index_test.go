package ledger

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// indexed makes a closed ledger of n runs with a current index.
func indexed(t *testing.T, n int) (dir string, all []Entry) {
	t.Helper()
	dir = t.TempDir()
	for i := range n {
		all = append(all, sampleEntry(i))
		plant(t, dir, all[i])
	}
	seal(t, dir)
	l := open(t, dir)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, all
}

// onDisk counts the runs in the index file.
func onDisk(t *testing.T, dir string) int {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, indexName)+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	if err := db.QueryRow("SELECT count(*) FROM runs").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDamagedIndexIsRebuilt(t *testing.T) {
	if testing.Short() {
		t.Skip("rebuilds the index for each damage")
	}
	dir, all := indexed(t, 60)
	path := filepath.Join(dir, indexName)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(sound) < 4*4096 {
		t.Fatalf("the index has only %d bytes; the test wants several pages", len(sound))
	}
	check := func(name string, damage func() error) {
		t.Run(name, func(t *testing.T) {
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			l := open(t, dir)
			wantRuns(t, l, all)
			wantProblems(t, l, len(all))
			l.Close()
			if n := onDisk(t, dir); n != len(all) {
				t.Errorf("the new index holds %d runs, want %d", n, len(all))
			}
		})
	}
	write := func(data []byte) func() error {
		return func() error { return os.WriteFile(path, data, 0o644) }
	}
	execute := func(statement string) func() error {
		return func() error {
			db, err := sql.Open("sqlite", path)
			if err != nil {
				return err
			}
			defer db.Close()
			_, err = db.Exec(statement)
			return err
		}
	}
	check("sound", write(sound))
	check("deleted", func() error { return os.Remove(path) })
	check("empty", write(nil))
	check("text", write([]byte("this is not a database\n")))
	check("garbage", write(bytes.Repeat([]byte{0xa5, 0x5a, 0x42}, 5000)))
	for _, size := range []int{1, 99, 100, 512, 4095, 4096, 4097, 8192, 12000, len(sound) - 4096, len(sound) - 1} {
		check(fmt.Sprintf("cut to %d bytes", size), write(sound[:size]))
	}
	for page := range len(sound) / 4096 {
		for _, with := range []byte{0, 0xff} {
			data := bytes.Clone(sound)
			copy(data[page*4096:], bytes.Repeat([]byte{with}, 4096))
			check(fmt.Sprintf("page %d filled with %#x", page, with), write(data))
		}
	}
	for page := 1; page < len(sound)/4096-1; page++ {
		data := bytes.Clone(sound)
		copy(data[(page+1)*4096:], sound[page*4096:(page+1)*4096])
		check(fmt.Sprintf("page %d twice", page), write(data))
	}
	check("newer version", func() error {
		return execute("ALTER TABLE runs RENAME COLUMN kernel TO cernel; PRAGMA user_version = 2")()
	})
	check("older version", func() error { return execute("PRAGMA user_version = -1")() })
	check("other table", execute("DROP TABLE runs; CREATE TABLE runs (id TEXT)"))
	check("other program's", execute("DROP TABLE runs; CREATE TABLE notes (note TEXT); PRAGMA user_version = 0"))
	check("rows gone", execute("DELETE FROM runs WHERE stage = 'stage1'"))
	check("rows of nothing", execute("UPDATE runs SET id = 'x' || id WHERE stage = 'stage1'"))
	check("no time", execute("UPDATE runs SET time = 'yesterday'"))
	check("other figure", execute("UPDATE runs SET p50_us = 1.0 WHERE stage = 'stage1'"))
	check("no figure", execute("UPDATE runs SET p50_us = 9e999"))
}

func TestDamagedIndexIsMovedAside(t *testing.T) {
	dir, all := indexed(t, 1)
	path := filepath.Join(dir, indexName)
	for _, err := range []error{
		os.WriteFile(path, []byte("precious"), 0o644),
		os.WriteFile(path+"-journal", []byte("of another time"), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	wantRuns(t, open(t, dir), all)
	if got, err := os.ReadFile(path + ".bad"); err != nil || string(got) != "precious" {
		t.Errorf("moved aside: %q, %v", got, err)
	}
}

func TestIndexDamagedWhileOpen(t *testing.T) {
	dir, all := indexed(t, 3)
	l := open(t, dir)
	if err := os.WriteFile(filepath.Join(dir, indexName), bytes.Repeat([]byte("x"), 8192), 0o644); err != nil {
		t.Fatal(err)
	}
	next := sampleEntry(3)
	record(t, l, next)
	all = append(all, next)
	wantRuns(t, l, all)
	wantProblems(t, l, len(all))
	if r, err := l.Reindex(t.Context()); err != nil || r.Runs != len(all) {
		t.Errorf("Reindex: %+v, %v", r, err)
	}
	if n := onDisk(t, dir); n != len(all) {
		t.Errorf("the index holds %d runs, want %d", n, len(all))
	}
}

// A directory in place of the index file stands for every file that cannot be opened, as in a
// read-only checkout.
func TestUnusableIndex(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, indexName, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir)
	var all []Entry
	for i := range 3 {
		all = append(all, sampleEntry(i))
		record(t, l, all[i])
	}
	wantRuns(t, l, all)
	wantProblems(t, l, len(all))
	wantRuns(t, open(t, dir), all)
	_, err := l.Reindex(t.Context())
	wantError(t, err, indexName, "was not rebuilt")
	wantRuns(t, l, all)
}

func TestLockedIndex(t *testing.T) {
	defer func(d time.Duration) { busyTimeout = d }(busyTimeout)
	busyTimeout = 10 * time.Millisecond
	dir, all := indexed(t, 2)
	l := open(t, dir)
	other, err := sql.Open("sqlite", filepath.Join(dir, indexName))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetMaxOpenConns(1)
	if _, err := other.Exec("BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	next := sampleEntry(2)
	record(t, l, next)
	all = append(all, next)
	wantRuns(t, l, all)
	wantRuns(t, open(t, dir), all)
	_, err = l.Reindex(t.Context())
	wantError(t, err, "was not rebuilt", "locked")
	if _, err := other.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	wantRuns(t, open(t, dir), all)
	if n := onDisk(t, dir); n != len(all) {
		t.Errorf("the index holds %d runs, want %d", n, len(all))
	}
}

func TestRecordWaitsForIndex(t *testing.T) {
	defer func(d time.Duration) { busyTimeout = d }(busyTimeout)
	busyTimeout = 10 * time.Minute // on a loaded machine the lock may be held for longer than usual
	dir, _ := indexed(t, 1)
	l := open(t, dir)
	other, err := sql.Open("sqlite", filepath.Join(dir, indexName))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetMaxOpenConns(1)
	if _, err := other.Exec("BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	e := sampleEntry(1)
	recorded := make(chan error)
	go func() {
		_, err := l.Record(t.Context(), runFiles(e))
		recorded <- err
	}()
	for {
		if _, err := os.Stat(l.runPath(e.ID)); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond) // lets Record reach the lock; without it the test passes too, but proves less
	if _, err := other.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := <-recorded; err != nil {
		t.Fatal(err)
	}
	if n := onDisk(t, dir); n != 2 {
		t.Errorf("the index holds %d runs, want 2", n)
	}
}

func TestReadOnlyByMode(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("modes do not stop root; TestReadOnlyFileSystem and TestUnusableIndex cover the same code")
	}
	dir, all := indexed(t, 2)
	if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, runsName)} {
		if err := os.Chmod(path, 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(path, 0o755) })
	}
	wantReadOnly(t, dir, all)
}

func wantReadOnly(t *testing.T, dir string, all []Entry) {
	t.Helper()
	l := open(t, dir)
	wantRuns(t, l, all)
	wantProblems(t, l, len(all))
	_, err := l.Record(t.Context(), runFiles(sampleEntry(99)))
	wantError(t, err, "not recorded")
	wantRuns(t, l, all)
}

// A view in place of the table, which could have rows without end, and triggers are no index.
func TestForeignIndex(t *testing.T) {
	t.Parallel()
	for _, more := range []string{
		"DROP TABLE runs; CREATE VIEW runs AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id FROM n",
		"CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
	} {
		path := filepath.Join(t.TempDir(), indexName)
		x, _, err := tryIndex(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.db.ExecContext(t.Context(), more); err != nil {
			t.Fatal(err)
		}
		x.close()
		if _, _, err := tryIndex(t.Context(), path); !isDamage(err) {
			t.Errorf("%s: %v", more, err)
		}
	}
}

// A row that says something else than its record, with a right checksum, is not listed.
func TestForgedRow(t *testing.T) {
	dir, all := indexed(t, 3)
	forged := all[1]
	forged.Verdict = "merge"
	x, _, err := openIndex(t.Context(), filepath.Join(dir, indexName), filepath.Join(dir, runsName))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(x.update(t.Context(), []Entry{forged}, nil), x.close()); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir)
	wantRuns(t, l, all)
	wantProblems(t, l, len(all)) // the index was made again
}
