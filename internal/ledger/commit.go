package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// staged is a complete record in a temporary directory. Nobody reads it before it is published.
type staged struct {
	folder              folder
	id, temporary, seal string
}

func (s staged) discard() { os.RemoveAll(s.temporary) }

// stage writes the files of a record and their checksums to a temporary directory, and waits until
// they are on disk. After an error the directory is gone. The context is asked once, before the first
// file: a record whose writing has begun is finished, so that Ctrl-C does not lose it.
func (f folder) stage(ctx context.Context, id string, files map[string][]byte) (s staged, err error) {
	if err := ctx.Err(); err != nil {
		return s, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := checkName(name); err != nil {
			return s, err
		}
	}
	if err := makeDir(f.path); err != nil {
		return s, nameFullDisk(err)
	}
	text := sumFiles(files).String()
	s = staged{f, id, f.temporary(id), sumBytes([]byte(text))}
	if err := os.Mkdir(s.temporary, 0o777); err != nil {
		return s, nameFullDisk(err)
	}
	defer func() {
		if err != nil {
			s.discard()
			err = nameFullDisk(err)
		}
	}()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := writeFile(filepath.Join(s.temporary, name), files[name]); err != nil {
			return s, err
		}
	}
	if err := writeFile(filepath.Join(s.temporary, sumsName), []byte(text)); err != nil {
		return s, err
	}
	if err := syncDir(s.temporary); err != nil {
		return s, fmt.Errorf("flush %s: %w", s.temporary, err)
	}
	return s, nil
}

// temporary returns the directory in which this process writes or removes a record.
func (f folder) temporary(id string) string {
	return filepath.Join(f.path, temporaryName(os.Getpid(), pidSpace(), id))
}

// nameFullDisk adds what to do to the error of a full disk.
func nameFullDisk(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("the disk is full; free some space or use another ledger: %w", err)
	}
	return err
}

// write makes a record. After an error there is none, unless the wait for the lock was interrupted:
// then the complete record stays, and settle publishes it after this process has ended.
func (l *Ledger) write(ctx context.Context, f folder, id string, files map[string][]byte) error {
	s, err := f.stage(ctx, id, files)
	if err != nil {
		return err
	}
	unlock, err := l.lock(ctx, syscall.LOCK_EX)
	if err != nil {
		l.note(fmt.Sprintf("the %s %s is complete in %s; the next command on this ledger records it", f.kind, id, s.temporary))
		return err
	}
	defer unlock()
	return l.publish(s)
}

// publish enters records into the chain and then moves them into place. The caller holds the lock.
//
// The order makes a kill harmless. A complete record that the chain does not name yet is published by
// settle. One that the chain names is complete, and settle moves it into place. A record in place is
// in the chain.
func (l *Ledger) publish(records ...staged) (err error) {
	moved := 0
	before, err := l.chain.parseSound()
	defer func() {
		if err != nil {
			for _, s := range records[moved:] {
				s.discard()
			}
			err = nameFullDisk(err)
		}
	}()
	if err != nil {
		return err
	}
	after := before.clone()
	for _, s := range records {
		if _, err := os.Lstat(s.folder.dir(s.id)); err == nil {
			return fmt.Errorf("the ledger already has a %s with this id: %w", s.folder.kind, fs.ErrExist)
		}
		if err := after.push(added, s.folder.record(s.id), s.seal); err != nil {
			return fmt.Errorf("%w; restore it from git or a copy, or run `attune ledger remove %s`", err, s.id)
		}
	}
	if err := l.chain.replace(after); err != nil {
		return errors.Join(err, l.chain.restore(before))
	}
	for _, s := range records {
		if err := os.Rename(s.temporary, s.folder.dir(s.id)); err != nil {
			return errors.Join(err, l.retract(before, records[:moved]))
		}
		moved++
	}
	return nil
}

// retract writes a chain with the records that were moved into place before an error.
func (l *Ledger) retract(before *chain, moved []staged) error {
	for _, s := range moved {
		before.exists = true
		if err := before.push(added, s.folder.record(s.id), s.seal); err != nil {
			return err
		}
	}
	return l.chain.restore(before)
}

// folders returns the folders of all kinds of records.
func (l *Ledger) folders() []folder {
	return []folder{l.runs(), l.benches(), l.champions(), l.tunings()}
}

// settle finishes what killed processes have begun. A record that the chain names is moved into
// place, and a complete one is published. Other temporary directories of dead processes are removed.
// It returns what failed. It does not wait long for the lock: the next command settles too.
func (l *Ledger) settle(ctx context.Context) []Problem {
	if !l.hasTemporary() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, quietWait)
	defer cancel()
	unlock, err := l.lock(ctx, syscall.LOCK_EX)
	if err != nil {
		return nil
	}
	defer unlock()
	c, err := l.chain.parse()
	if err != nil {
		return nil // the lost links may name the directories; Verify reports the damage
	}
	var problems []Problem
	for _, f := range l.folders() {
		for _, d := range temporaries(f.path) {
			err := f.settle(c, d)
			if finished, ok := f.finished(c, d); err == nil && ok {
				err = l.publish(finished)
			}
			if err != nil {
				problems = append(problems, Problem{File: filepath.Join(filepath.Base(f.path), d.Name()), What: "cannot be removed: " + err.Error()})
			}
		}
	}
	for _, d := range temporaries(l.dir) {
		if info, err := d.Info(); err == nil && isAbandoned(info) {
			os.RemoveAll(filepath.Join(l.dir, d.Name()))
		}
	}
	return problems
}

// settle finishes or removes one temporary directory.
func (f folder) settle(c *chain, d fs.DirEntry) error {
	path := f.dir(d.Name())
	id := temporaryID(d.Name())
	if seal, ok := c.seal(f.record(id)); ok && f.isPending(id, d.Name(), seal) {
		if err := os.Rename(path, f.dir(id)); err != nil {
			return err
		}
		return syncDir(f.path)
	}
	if info, err := d.Info(); err != nil || !isAbandoned(info) {
		return nil
	}
	if _, ok := f.finished(c, d); ok {
		return nil
	}
	return os.RemoveAll(path)
}

// finished returns the complete record of a dead process that the chain has never named. A champion
// is none: the change was meant for the champion of that time.
func (f folder) finished(c *chain, d fs.DirEntry) (staged, bool) {
	id := temporaryID(d.Name())
	_, live := c.live[f.record(id)]
	_, gone := c.gone[f.record(id)]
	info, err := d.Info()
	if _, invalid := parseID(id); live || gone || invalid != nil || err != nil || !d.IsDir() || !isAbandoned(info) || f.document == championName {
		return staged{}, false
	}
	dir := f.dir(d.Name())
	text, err := readRegular(filepath.Join(dir, sumsName)) // written last
	if err != nil {
		return staged{}, false
	}
	s, err := parseSums(string(text), f.document)
	if err != nil || len(s.verify(dir, id)) > 0 {
		return staged{}, false
	}
	var document struct{ ID string }
	own, err := readRegular(filepath.Join(dir, f.document))
	if err != nil || json.Unmarshal(own, &document) != nil || document.ID != id {
		return staged{}, false
	}
	return staged{f, id, dir, sumBytes(text)}, true
}

// isPending reports whether a temporary directory holds a record with this seal that is not in its
// place.
func (f folder) isPending(id, temporary, seal string) bool {
	if _, err := os.Lstat(f.dir(id)); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	text, err := readRegular(filepath.Join(f.path, temporary, sumsName))
	return err == nil && sumBytes(text) == seal
}

func (l *Ledger) hasTemporary() bool {
	for _, f := range l.folders() {
		if len(temporaries(f.path)) > 0 {
			return true
		}
	}
	return len(temporaries(l.dir)) > 0
}

// temporaries returns the temporary files and directories in a directory.
func temporaries(dir string) []fs.DirEntry {
	found, _ := readUnsorted(dir)
	return slices.DeleteFunc(found, func(d fs.DirEntry) bool { return !strings.HasPrefix(d.Name(), temporaryPrefix) })
}
