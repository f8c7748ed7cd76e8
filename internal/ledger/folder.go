package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"attune/internal/regular"
)

// folder holds the records of one kind: runs, benches or champions. Each record is a directory that
// is written once. It has one JSON document, other files, and the checksums of all of them.
type folder struct {
	path     string
	kind     string // in messages
	document string // name of the JSON document
	chain    *chainFile
}

func (f folder) dir(id string) string { return filepath.Join(f.path, id) }

// record returns the name of a record in the chain.
func (f folder) record(id string) string { return filepath.Base(f.path) + "/" + id }

// ids returns the names of all directories that are valid ids.
func (f folder) ids() ([]string, error) {
	found, err := os.ReadDir(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the %s: %w", filepath.Base(f.path), err)
	}
	var ids []string
	for _, d := range found {
		if _, err := parseID(d.Name()); err == nil && d.IsDir() {
			ids = append(ids, d.Name())
		}
	}
	return ids, nil
}

// sums returns the checksums of a record. If the chain names the record, they must have the seal in
// the chain. Other records can be read; Verify reports them.
func (f folder) sums(id string) (sums, error) {
	if _, err := parseID(id); err != nil {
		return nil, err
	}
	text, err := f.readRecorded(id, sumsName)
	if err != nil {
		return nil, err
	}
	c, _ := f.chain.load() // a damaged chain still has the seals before the defect
	if seal, ok := c.seal(f.record(id)); ok && sumBytes(text) != seal {
		return nil, &DamageError{id, fmt.Errorf("%s %s was rewritten after it was recorded: the SHA-256 of its %s is not the seal in %s",
			f.kind, id, sumsName, chainName)}
	}
	s, err := parseSums(string(text), f.document)
	if err != nil {
		return nil, &DamageError{id, fmt.Errorf("%s %s: %s: %w", f.kind, id, sumsName, err)}
	}
	return s, nil
}

// DamageError is the error of a record whose files are not as they were recorded.
type DamageError struct {
	ID  string
	err error
}

func (e *DamageError) Error() string { return e.err.Error() }
func (e *DamageError) Unwrap() error { return e.err }

// missingFile is the error of a file that a record has lost.
type missingFile struct{ kind, id, name string }

func (e missingFile) Error() string        { return fmt.Sprintf("%s %s: %s is missing", e.kind, e.id, e.name) }
func (e missingFile) Is(target error) bool { return target == fs.ErrNotExist }

// readRecorded reads a file that a record must have.
func (f folder) readRecorded(id, name string) ([]byte, error) {
	data, err := readRegular(filepath.Join(f.dir(id), name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, gone := os.Stat(f.dir(id)); gone == nil {
			return nil, &DamageError{id, missingFile{f.kind, id, name}}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", f.kind, id, err)
	}
	return data, nil
}

// read returns a file as it was recorded. A file recorded as NAME.gz is also read as NAME,
// decompressed.
func (f folder) read(ctx context.Context, id, name string) ([]byte, error) {
	s, err := f.sums(id)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	_, plain := s[name]
	if _, compressed := s[name+compressedSuffix]; compressed && !plain {
		data, err := f.readFile(s, id, name+compressedSuffix)
		if err != nil {
			return nil, err
		}
		text, err := regular.Decompress(data, name, maxFile)
		if err != nil {
			return nil, &DamageError{id, fmt.Errorf("%s %s: decompress %s: %w", f.kind, id, name+compressedSuffix, err)}
		}
		return text, nil
	}
	return f.readFile(s, id, name)
}

// readFile returns the bytes of a file, if they have the recorded checksum.
func (f folder) readFile(s sums, id, name string) ([]byte, error) {
	want, ok := s[name]
	if !ok {
		return nil, fmt.Errorf("%s %s has no %q: %w; it has %s", f.kind, id, name, fs.ErrNotExist, strings.Join(s.names(), ", "))
	}
	data, err := f.readRecorded(id, name)
	if err != nil {
		return nil, err
	}
	if sumBytes(data) != want {
		return nil, &DamageError{id, fmt.Errorf("%s %s: %s was changed after it was recorded: its checksum is not the one in %s", f.kind, id, name, sumsName)}
	}
	return data, nil
}

// compressedSuffix ends the names of files that are recorded compressed.
const compressedSuffix = ".gz"

// verify compares the files of a record with its checksums.
func (f folder) verify(id string) []Problem {
	s, err := f.sums(id)
	if err != nil {
		return []Problem{{Run: id, File: sumsName, What: fmt.Sprintf("the %s cannot be checked: %v", f.kind, err)}}
	}
	return s.verify(f.dir(id), id)
}

// verify compares the files of a directory with checksums. The id is that of its record.
func (s sums) verify(dir, id string) []Problem {
	var problems []Problem
	add := func(file, format string, args ...any) {
		problems = append(problems, Problem{Run: id, File: file, What: fmt.Sprintf(format, args...)})
	}
	for _, name := range s.names() {
		digest, err := sumFile(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			add(name, "is missing")
		case err != nil:
			add(name, "cannot be read: %v", err)
		case digest != s[name]:
			add(name, "was changed: its SHA-256 is %s, but %s has %s", digest, sumsName, s[name])
		}
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		add("", "cannot be listed: %v", err)
	}
	for _, d := range there {
		if _, listed := s[d.Name()]; !listed && d.Name() != sumsName {
			add(d.Name(), "was added: %s does not list it", sumsName)
		}
	}
	return problems
}

// verifyAll checks the files of every record, and calls check for the records whose files are
// intact. Problems name files relative to the ledger.
func (f folder) verifyAll(ctx context.Context, ids []string, check func(id string) []Problem) (sound int, problems []Problem, err error) {
	problems = f.strays()
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return 0, nil, err
		}
		found := f.verify(id)
		if len(found) == 0 {
			found = check(id)
		}
		if len(found) == 0 {
			found = f.unsealed(id)
		}
		if len(found) == 0 {
			sound++
		}
		problems = append(problems, f.named(id, found)...)
	}
	return sound, problems, nil
}

// named returns the problems of a record with files relative to the ledger.
func (f folder) named(id string, found []Problem) []Problem {
	var problems []Problem
	for _, p := range found {
		p.Run, p.File = "", filepath.Join(f.record(id), p.File)
		problems = append(problems, p)
	}
	return problems
}

// strays returns the problems of everything in the folder that is not a record.
func (f folder) strays() []Problem {
	found, _ := os.ReadDir(f.path) // the caller has just read it without an error
	var problems []Problem
	for _, d := range found {
		if _, err := parseID(d.Name()); err != nil || !d.IsDir() {
			problems = append(problems, f.stray(d)...)
		}
	}
	return problems
}

// stray returns the problem of a file that is not a record. A recording in progress is no problem.
func (f folder) stray(d fs.DirEntry) []Problem {
	file := filepath.Join(filepath.Base(f.path), d.Name())
	if !strings.HasPrefix(d.Name(), temporaryPrefix) {
		return []Problem{{File: file, What: "not a " + f.kind + "; move it out of the ledger"}}
	}
	if info, err := d.Info(); err != nil || !isAbandoned(info) {
		return nil
	}
	return []Problem{{File: file, What: "an unfinished recording of a dead process; the next command removes it"}}
}

// quietWait is the wait for a lock after which the user is told. A recording takes milliseconds.
const quietWait = 2 * time.Second

// lock locks the ledger, shared (syscall.LOCK_SH) or exclusive (syscall.LOCK_EX), until unlock is
// called. It waits until the context ends.
func (l *Ledger) lock(ctx context.Context, how int) (unlock func(), err error) {
	unlock, err = lockDir(ctx, l.dir, how, func() {
		l.note(fmt.Sprintf("waiting for the ledger %s, which another process has locked", l.dir))
	})
	if err != nil {
		return nil, fmt.Errorf("the ledger %s is locked by another process: %w", l.dir, err)
	}
	return unlock, nil
}

// lockDir locks a directory. On file systems that cannot lock directories it does nothing. It calls
// waiting, unless that is nil, if the lock is not free after quietWait.
func lockDir(ctx context.Context, path string, how int, waiting func()) (unlock func(), err error) {
	d, err := os.Open(path)
	if err != nil {
		return func() {}, nil
	}
	release := func() { unlockFile(d) }
	if !errors.Is(syscall.Flock(int(d.Fd()), how|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		return release, nil
	}
	locked := make(chan struct{})
	go func() { // a system call that nothing else can interrupt
		defer close(locked)
		for errors.Is(syscall.Flock(int(d.Fd()), how), syscall.EINTR) { // by a signal
		}
	}()
	notice := time.NewTimer(quietWait)
	defer notice.Stop()
	for {
		select {
		case <-locked:
			return release, nil
		case <-notice.C:
			if waiting != nil {
				waiting()
			}
		case <-ctx.Done():
			go func() {
				<-locked
				release()
			}()
			return nil, ctx.Err()
		}
	}
}

// unlockFile releases the lock of a file and closes it. Closing alone is not enough: a process that
// is being started has a copy of the descriptor until it executes its program, and with it the lock.
func unlockFile(d *os.File) {
	_ = syscall.Flock(int(d.Fd()), syscall.LOCK_UN)
	d.Close()
}
