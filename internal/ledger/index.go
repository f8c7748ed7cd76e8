package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// index is the file that keeps the table of runs between processes.
type index struct{ db *sql.DB }

// schemaVersion is the user_version of the database. An index of another version is rebuilt, so
// there are no migrations.
const schemaVersion = 2

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
PRAGMA user_version = 2;`

const columns = `id, time, kernel, variant, stage, device, arch, verdict, code_hash, git_sha,
	shape, p50_us, parent_ratio, checksum`

// indexTime has a fixed width, so texts sort in the order of the times.
const indexTime = "2006-01-02T15:04:05.000000000Z"

// busyTimeout limits the wait for other processes that write the index. One write takes
// milliseconds.
var busyTimeout = 10 * time.Second

var errDamaged = errors.New("the index is damaged or of another version")

// checksum detects a damaged row. SQLite detects a page with a broken structure, but not a wrong
// value. Opening an index computes it for every row, so it hashes the plain fields: as JSON they took
// four times as long.
func checksum(e Entry) string {
	text := make([]byte, 0, 512)
	for _, field := range []string{
		e.ID, e.Time.Format(indexTime), e.Kernel, e.Variant, e.Stage, e.Device, e.Arch, e.Verdict, e.CodeHash, e.GitSHA, e.Headline.Shape,
		figureText(e.Headline.P50US), figureText(e.Headline.ParentRatio),
	} {
		text = append(strconv.AppendInt(text, int64(len(field)), 10), ' ') // with the lengths no two rows have the same text
		text = append(text, field...)
	}
	return sumBytes(text)
}

func figureText(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'g', -1, 64)
}

// openIndex opens or creates the index in the file at path, next to the directory runs, and returns
// its rows. It moves a damaged file aside.
//
// SQLite finds the journal of a database by its name. If one process has the damaged file open
// while another replaces it, the first would apply the journal of the new index to the old file. A
// lock on runs therefore keeps processes from opening the file while it is replaced. Without locks
// (NFS) two processes may both replace it; the later index stays and has the same content.
func openIndex(ctx context.Context, path, runs string) (*index, []Entry, error) {
	waits, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	unlock, err := lockDir(waits, runs, syscall.LOCK_SH, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("open the index: %w", err)
	}
	x, rows, err := tryIndex(ctx, path)
	unlock()
	if !isDamage(err) {
		return x, rows, err
	}
	if unlock, err = lockDir(waits, runs, syscall.LOCK_EX, nil); err != nil {
		return nil, nil, fmt.Errorf("open the index: %w", err)
	}
	defer unlock()
	// Another process may have replaced the file while this one waited for the lock.
	if x, rows, err = tryIndex(ctx, path); !isDamage(err) {
		return x, rows, err
	}
	if err := os.Rename(path, path+".bad"); err != nil {
		return nil, nil, fmt.Errorf("move a damaged index aside: %w", err)
	}
	return tryIndex(ctx, path)
}

func tryIndex(ctx context.Context, path string) (*index, []Entry, error) {
	options := url.Values{
		"_pragma": {fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()), "synchronous(NORMAL)"},
		"_txlock": {"immediate"},
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: options.Encode()}).String())
	if err != nil {
		return nil, nil, fmt.Errorf("open the index: %w", err)
	}
	db.SetMaxOpenConns(1)
	x := &index{db}
	var rows []Entry
	if err = x.prepare(ctx); err == nil {
		rows, err = x.load(ctx)
	}
	if err != nil {
		x.close()
		return nil, nil, fmt.Errorf("open the index: %w", err)
	}
	return x, rows, nil
}

func (x *index) close() error { return x.db.Close() }

// prepare creates the table in a new database.
func (x *index) prepare(ctx context.Context) error {
	var version int
	const readVersion = "PRAGMA user_version"
	if err := x.db.QueryRowContext(ctx, readVersion).Scan(&version); err != nil {
		return err
	}
	if version == 0 {
		return x.write(ctx, func(tx *sql.Tx) error {
			// Another process may have created the table while this one waited for the lock.
			if err := tx.QueryRowContext(ctx, readVersion).Scan(&version); err != nil || version == schemaVersion {
				return err
			}
			var tables int
			if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
				return err
			}
			if version != 0 || tables != 0 {
				return errDamaged
			}
			_, err := tx.ExecContext(ctx, schema)
			return err
		})
	}
	if version != schemaVersion {
		return errDamaged
	}
	// A view in place of the table could have rows without end, and a trigger could act on changes.
	var others int
	const foreign = "SELECT count(*) FROM sqlite_schema WHERE type IN ('view', 'trigger') OR sql LIKE '%VIRTUAL%'"
	if err := x.db.QueryRowContext(ctx, foreign).Scan(&others); err != nil || others > 0 {
		return errors.Join(err, errDamaged)
	}
	return nil
}

// isDamage reports whether a new file would cure the error. It would not cure a full disk or a
// missing permission.
func isDamage(err error) bool {
	if errors.Is(err, errDamaged) {
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

// write calls work in one transaction, which has the write lock from the start.
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

// update adds and drops runs. A run that is already there is replaced by itself, as runs never
// change.
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

// replace drops all runs and adds the given ones.
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

// load reads all rows and detects damaged ones. SQLite reads them in storage order, so ids out of
// order reveal a page that is a copy of another one or in the wrong place.
func (x *index) load(ctx context.Context) ([]Entry, error) {
	rows, err := x.db.QueryContext(ctx, "SELECT "+columns+" FROM runs ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var entries []Entry
	for before := ""; rows.Next(); {
		var e Entry
		var at, sum string
		if err := rows.Scan(&e.ID, &at, &e.Kernel, &e.Variant, &e.Stage, &e.Device, &e.Arch,
			&e.Verdict, &e.CodeHash, &e.GitSHA, &e.Headline.Shape, &e.Headline.P50US, &e.Headline.ParentRatio, &sum); err != nil {
			return nil, err
		}
		if e.ID <= before {
			return nil, fmt.Errorf("%w: run %q is out of order", errDamaged, e.ID)
		}
		before = e.ID
		if e.Time, err = time.Parse(indexTime, at); err != nil || checksum(e) != sum {
			return nil, fmt.Errorf("%w: the row of run %q is damaged", errDamaged, e.ID)
		}
		entries = append(entries, e)
	}
	return entries, rows.Err()
}
