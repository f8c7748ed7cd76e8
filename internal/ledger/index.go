package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// index is the table of runs, in a file or in memory.
type index struct{ db *sql.DB }

// schemaVersion is stored as the database's user_version. There are no migrations: an index of another version is rebuilt.
const schemaVersion = 1

const schema = `
CREATE TABLE runs (
	id           TEXT PRIMARY KEY,
	time         TEXT NOT NULL,
	kernel       TEXT NOT NULL,
	variant      TEXT NOT NULL,
	stage        TEXT NOT NULL,
	device       TEXT NOT NULL,
	arch         TEXT NOT NULL,
	verdict      TEXT NOT NULL,
	code_hash    TEXT NOT NULL,
	git_sha      TEXT NOT NULL,
	shape        TEXT NOT NULL,
	p50_us       REAL,
	parent_ratio REAL,
	checksum     TEXT NOT NULL
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 1;`

const columns = `id, time, kernel, variant, stage, device, arch, verdict, code_hash, git_sha,
	shape, p50_us, parent_ratio, checksum`

// indexTime has a fixed width, so that the order of the texts is the order of the times.
const indexTime = "2006-01-02T15:04:05.000000000Z"

// busyTimeout is how long a process waits for the others that write the index. One write takes milliseconds.
var busyTimeout = 10 * time.Second

var errUnsound = errors.New("not a sound index of this version")

// checksum makes a damaged row known: SQLite notices that a page makes no sense, but not that a figure is wrong.
func checksum(e Entry) string {
	text, err := json.Marshal(e)
	if err != nil {
		return err.Error() // only of a damaged row
	}
	return sumBytes(text)
}

// openIndex opens or creates the index in the file at path, which stands beside the directory runs. A damaged one is moved aside.
//
// A journal belongs to a database by its name. A process that has the damaged file open while another moves it aside would
// take the new index's journal for that of its own file, and write it in there; so nobody opens a file while it is replaced.
// Where directories cannot be locked (NFS) two processes may replace it, and the later one's index stays: it holds the same.
func openIndex(ctx context.Context, path, runs string) (*index, error) {
	unlock := lockDir(runs, syscall.LOCK_SH)
	x, err := tryIndex(ctx, path)
	unlock()
	if !isDamage(err) {
		return x, err
	}
	defer lockDir(runs, syscall.LOCK_EX)()
	// Of several processes that find the damage, one replaces the file and the others find it whole here.
	if x, err = tryIndex(ctx, path); !isDamage(err) {
		return x, err
	}
	if err := os.Rename(path, path+".bad"); err != nil {
		return nil, fmt.Errorf("moving a damaged index aside: %w", err)
	}
	return tryIndex(ctx, path)
}

func tryIndex(ctx context.Context, path string) (*index, error) {
	options := url.Values{
		"_pragma": {fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()), "synchronous(NORMAL)"},
		"_txlock": {"immediate"},
	}
	return connect(ctx, (&url.URL{Scheme: "file", Path: path, RawQuery: options.Encode()}).String())
}

func memoryIndex(ctx context.Context) (*index, error) {
	return connect(ctx, ":memory:")
}

func connect(ctx context.Context, source string) (*index, error) {
	db, err := sql.Open("sqlite", source)
	if err != nil {
		return nil, fmt.Errorf("opening the index: %w", err)
	}
	db.SetMaxOpenConns(1) // a database in memory belongs to its connection
	x := &index{db}
	if err := x.prepare(ctx); err != nil {
		x.close()
		return nil, fmt.Errorf("opening the index: %w", err)
	}
	return x, nil
}

func (x *index) close() error { return x.db.Close() }

// prepare makes the table in a new database, and reads every row of an old one to see whether it is sound.
func (x *index) prepare(ctx context.Context) error {
	var version int
	const ask = "PRAGMA user_version"
	if err := x.db.QueryRowContext(ctx, ask).Scan(&version); err != nil {
		return err
	}
	if version == 0 {
		return x.write(ctx, func(tx *sql.Tx) error {
			// Another process may have made the table while this one waited for the lock.
			if err := tx.QueryRowContext(ctx, ask).Scan(&version); err != nil || version == schemaVersion {
				return err
			}
			var tables int
			if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
				return err
			}
			if version != 0 || tables != 0 {
				return errUnsound
			}
			_, err := tx.ExecContext(ctx, schema)
			return err
		})
	}
	if version != schemaVersion {
		return errUnsound
	}
	if _, err := x.ids(ctx); err != nil {
		return err
	}
	_, err := x.query(ctx, Filter{})
	return err
}

// isDamage tells errors that a new file cures from those it does not, such as a full disk or a missing permission.
func isDamage(err error) bool {
	if errors.Is(err, errUnsound) {
		return true
	}
	failure, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	switch failure.Code() & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_FORMAT:
		return true
	}
	return false
}

// write does work in one transaction, which holds the write lock from its start.
func (x *index) write(ctx context.Context, work func(*sql.Tx) error) error {
	tx, err := x.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// update adds and drops runs. Adding one that is there replaces it with the same: runs never change.
func (x *index) update(ctx context.Context, add []Entry, drop []string) error {
	return x.write(ctx, func(tx *sql.Tx) error {
		for _, id := range drop {
			if _, err := tx.ExecContext(ctx, "DELETE FROM runs WHERE id = ?", id); err != nil {
				return err
			}
		}
		return insert(ctx, tx, add)
	})
}

// replace forgets all runs and adds the given ones.
func (x *index) replace(ctx context.Context, all []Entry) error {
	return x.write(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "DELETE FROM runs"); err != nil {
			return err
		}
		return insert(ctx, tx, all)
	})
}

func insert(ctx context.Context, tx *sql.Tx, entries []Entry) error {
	statement, err := tx.PrepareContext(ctx, "INSERT OR REPLACE INTO runs ("+columns+") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
	if err != nil {
		return err
	}
	defer statement.Close()
	for _, e := range entries {
		_, err := statement.ExecContext(ctx, e.ID, e.Time.Format(indexTime), e.Kernel, e.Variant, e.Stage, e.Device, e.Arch,
			e.Verdict, e.CodeHash, e.GitSHA, e.Headline.Shape, e.Headline.P50US, e.Headline.ParentRatio, checksum(e))
		if err != nil {
			return err
		}
	}
	return nil
}

// ids returns the ids of all runs. SQLite reads them in the order they are stored in, so a page that is a copy of
// another, or out of place, shows itself here.
func (x *index) ids(ctx context.Context) (map[string]bool, error) {
	rows, err := x.db.QueryContext(ctx, "SELECT id FROM runs ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	ids := make(map[string]bool)
	for before := ""; rows.Next(); {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		if id <= before {
			return nil, fmt.Errorf("%w: run %q is out of order", errUnsound, id)
		}
		before = id
		ids[id] = true
	}
	return ids, rows.Err()
}

func (x *index) query(ctx context.Context, f Filter) ([]Entry, error) {
	var where []string
	var values []any
	for _, c := range []struct{ column, value string }{
		{"kernel", f.Kernel},
		{"variant", f.Variant},
		{"stage", f.Stage},
		{"device", f.Device},
		{"arch", f.Arch},
		{"verdict", f.Verdict},
		{"code_hash", f.CodeHash},
	} {
		if c.value != "" {
			where = append(where, c.column+" = ?")
			values = append(values, c.value)
		}
	}
	text := "SELECT " + columns + " FROM runs"
	if len(where) > 0 {
		text += " WHERE " + strings.Join(where, " AND ")
	}
	if f.OldestFirst {
		text += " ORDER BY time, id"
	} else {
		text += " ORDER BY time DESC, id DESC"
	}
	if f.Limit > 0 {
		text += fmt.Sprintf(" LIMIT %d", f.Limit)
	}
	rows, err := x.db.QueryContext(ctx, text, values...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var entries []Entry
	for rows.Next() {
		var e Entry
		var at, sum string
		if err := rows.Scan(&e.ID, &at, &e.Kernel, &e.Variant, &e.Stage, &e.Device, &e.Arch,
			&e.Verdict, &e.CodeHash, &e.GitSHA, &e.Headline.Shape, &e.Headline.P50US, &e.Headline.ParentRatio, &sum); err != nil {
			return nil, err
		}
		if e.Time, err = time.Parse(indexTime, at); err != nil || checksum(e) != sum {
			return nil, fmt.Errorf("%w: the row of run %q is damaged", errUnsound, e.ID)
		}
		entries = append(entries, e)
	}
	return entries, rows.Err()
}
