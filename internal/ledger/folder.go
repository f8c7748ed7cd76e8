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

// folder is where the directories of one kind lie: runs, benches, or changes of a champion. Each directory is written once and holds the document
// that it is there for, whatever belongs to that, and the checksums of all of it.
type folder struct {
	path     string
	kind     string // for messages
	document string
}

func (f folder) of(id string) string { return filepath.Join(f.path, id) }

// ids lists the directories that have an id for a name.
func (f folder) ids() ([]string, error) {
	found, err := os.ReadDir(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the %s: %w", filepath.Base(f.path), err)
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
	text, err := os.ReadFile(filepath.Join(f.of(id), sumsName))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", f.kind, id, err)
	}
	s, err := parseSums(string(text), f.document)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %s: %w", f.kind, id, sumsName, err)
	}
	return s, nil
}

// read returns a file as it was recorded, or an error. A file recorded as NAME.gz is also read as
// NAME, and is then returned decompressed.
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

// readFile returns a file with its bytes on disk, if they have the recorded checksum.
func (f folder) readFile(s sums, id, name string) ([]byte, error) {
	want, ok := s[name]
	if !ok {
		return nil, fmt.Errorf("%s %s has no %q: %w; it has %s", f.kind, id, name, fs.ErrNotExist, strings.Join(s.names(), ", "))
	}
	data, err := os.ReadFile(filepath.Join(f.of(id), name))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", f.kind, id, err)
	}
	if sumBytes(data) != want {
		return nil, fmt.Errorf("%s %s: %s was changed after it was recorded: it does not agree with %s", f.kind, id, name, sumsName)
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

// write puts a directory in place in one step, or leaves nothing.
func (f folder) write(ctx context.Context, id string, files map[string][]byte) error {
	err := f.tryWrite(ctx, id, files)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("the disk is full; free some space, or choose another ledger: %w", err)
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
	temporary := filepath.Join(f.path, temporaryName(os.Getpid(), place(), id))
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
		return fmt.Errorf("flushing %s: %w", temporary, err)
	}
	if err := os.Rename(temporary, f.of(id)); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("the ledger has a %s of this id: %w", f.kind, err)
	} else if err != nil {
		return err
	}
	return nil
}

// verify compares the files of a directory with its checksums.
func (f folder) verify(id string) []Problem {
	var problems []Problem
	add := func(file, format string, args ...any) {
		problems = append(problems, Problem{Run: id, File: file, What: fmt.Sprintf(format, args...)})
	}
	dir := f.of(id)
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
			add(name, "was changed: its SHA-256 is %s, but %s says %s", digest, sumsName, s[name])
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

// verifyAll checks the files of every record, and by `check` what those say that are whole. Problems name their files from the ledger's folder on.
func (f folder) verifyAll(ctx context.Context, ids []string, check func(id string) []Problem) (sound int, problems []Problem, err error) {
	problems = f.strays()
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return 0, nil, err
		}
		wrong := f.verify(id)
		if len(wrong) == 0 {
			wrong = check(id)
		}
		if len(wrong) == 0 {
			sound++
		}
		for _, p := range wrong {
			p.Run, p.File = "", filepath.Join(filepath.Base(f.path), id, p.File)
			problems = append(problems, p)
		}
	}
	return sound, problems, nil
}

// strays judges everything in a folder that has no id for a name.
func (f folder) strays() []Problem {
	found, _ := os.ReadDir(f.path) // which its ids were just read from
	var problems []Problem
	for _, d := range found {
		if _, err := parseID(d.Name()); err != nil || !d.IsDir() {
			problems = append(problems, f.stray(d)...)
		}
	}
	return problems
}

// stray judges what lies among the records and is none. A recording under way is no problem.
func (f folder) stray(d fs.DirEntry) []Problem {
	file := filepath.Join(filepath.Base(f.path), d.Name())
	if !strings.HasPrefix(d.Name(), temporaryPrefix) {
		return []Problem{{File: file, What: "this is not a " + f.kind + "; move it elsewhere"}}
	}
	if info, err := d.Info(); err != nil || !isLeftBehind(info) {
		return nil
	}
	return []Problem{{File: file, What: "left behind by a recording that did not finish; reindex removes it"}}
}

func (f folder) removeLeftBehind() []Problem {
	var problems []Problem
	found, _ := os.ReadDir(f.path)
	for _, d := range found {
		info, err := d.Info()
		if err != nil || !strings.HasPrefix(d.Name(), temporaryPrefix) || !isLeftBehind(info) {
			continue
		}
		if err := os.RemoveAll(f.of(d.Name())); err != nil {
			problems = append(problems, Problem{File: filepath.Join(filepath.Base(f.path), d.Name()), What: "cannot be removed: " + err.Error()})
		}
	}
	return problems
}

// lockDir takes the lock of a directory, syscall.LOCK_SH beside others or LOCK_EX alone, until it is released. Where
// directories cannot be locked there is none.
func lockDir(path string, how int) (unlock func()) {
	d, err := os.Open(path)
	if err != nil {
		return func() {}
	}
	for syscall.Flock(int(d.Fd()), how) == syscall.EINTR { // a signal is no reason to go without
	}
	return func() { d.Close() }
}
