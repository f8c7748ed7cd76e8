package ledger

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// folder holds the records of one kind: runs, benches or champions. Each record is a directory that
// is written once. It has one JSON document, other files, and the checksums of all of them.
type folder struct {
	path     string
	kind     string // in messages
	document string // name of the JSON document
}

func (f folder) dir(id string) string { return filepath.Join(f.path, id) }

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

func (f folder) sums(id string) (sums, error) {
	if _, err := parseID(id); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(f.dir(id), sumsName))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", f.kind, id, err)
	}
	s, err := parseSums(string(text), f.document)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %s: %w", f.kind, id, sumsName, err)
	}
	return s, nil
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
		text, err := decompress(data)
		if err != nil {
			return nil, fmt.Errorf("%s %s: decompress %s: %w", f.kind, id, name+compressedSuffix, err)
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
	data, err := os.ReadFile(filepath.Join(f.dir(id), name))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", f.kind, id, err)
	}
	if sumBytes(data) != want {
		return nil, fmt.Errorf("%s %s: %s was changed after it was recorded: its checksum is not the one in %s", f.kind, id, name, sumsName)
	}
	return data, nil
}

// compressedSuffix ends the names of files that are recorded compressed.
const compressedSuffix = ".gz"

func decompress(data []byte) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}

// write makes a record in one step. After an error there is no record.
func (f folder) write(ctx context.Context, id string, files map[string][]byte) error {
	err := f.tryWrite(ctx, id, files)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("the disk is full; free some space or use another ledger: %w", err)
	}
	return err
}

func (f folder) tryWrite(ctx context.Context, id string, files map[string][]byte) (err error) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := checkName(name); err != nil {
			return err
		}
	}
	if err := makeDir(f.path); err != nil {
		return err
	}
	temporary := filepath.Join(f.path, temporaryName(os.Getpid(), pidSpace(), id))
	if err := os.Mkdir(temporary, 0o777); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(temporary)
		}
	}()
	s := sumFiles(files)
	for _, name := range s.names() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(temporary, name), files[name]); err != nil {
			return err
		}
	}
	if err := writeFile(filepath.Join(temporary, sumsName), []byte(s.String())); err != nil {
		return err
	}
	if err := syncDir(temporary); err != nil {
		return fmt.Errorf("flush %s: %w", temporary, err)
	}
	if err := os.Rename(temporary, f.dir(id)); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the ledger already has a %s with this id: %w", f.kind, err)
	} else if err != nil {
		return err
	}
	return nil
}

// verify compares the files of a record with its checksums.
func (f folder) verify(id string) []Problem {
	var problems []Problem
	add := func(file, format string, args ...any) {
		problems = append(problems, Problem{Run: id, File: file, What: fmt.Sprintf(format, args...)})
	}
	dir := f.dir(id)
	s, err := f.sums(id)
	if err != nil {
		add(sumsName, "the %s cannot be checked: %v", f.kind, err)
		return problems
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
			sound++
		}
		for _, p := range found {
			p.Run, p.File = "", filepath.Join(filepath.Base(f.path), id, p.File)
			problems = append(problems, p)
		}
	}
	return sound, problems, nil
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
	return []Problem{{File: file, What: "an unfinished recording of a dead process; reindex removes it"}}
}

// removeAbandoned removes the unfinished recordings of dead processes.
func (f folder) removeAbandoned() []Problem {
	var problems []Problem
	found, _ := os.ReadDir(f.path)
	for _, d := range found {
		info, err := d.Info()
		if err != nil || !strings.HasPrefix(d.Name(), temporaryPrefix) || !isAbandoned(info) {
			continue
		}
		if err := os.RemoveAll(f.dir(d.Name())); err != nil {
			problems = append(problems, Problem{File: filepath.Join(filepath.Base(f.path), d.Name()), What: "cannot be removed: " + err.Error()})
		}
	}
	return problems
}

// lockDir locks a directory, shared (syscall.LOCK_SH) or exclusive (syscall.LOCK_EX), until unlock
// is called. On file systems that cannot lock directories it does nothing.
func lockDir(path string, how int) (unlock func()) {
	d, err := os.Open(path)
	if err != nil {
		return func() {}
	}
	for syscall.Flock(int(d.Fd()), how) == syscall.EINTR { // a signal interrupted the wait
	}
	return func() { d.Close() }
}
