package ledger

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"attune/internal/regular"
)

// Record writes a run. The files must include run.json with the keys of [Entry] and an id from
// [NewID]. Without an error the run is on disk. After an error the ledger does not have the run,
// with one exception: if the disk cannot be flushed, Record returns the Entry and an error. An id
// that the ledger already has is an [fs.ErrExist], and the existing run stays as it is.
func (l *Ledger) Record(ctx context.Context, files map[string][]byte) (Entry, error) {
	document, ok := files[runName]
	if !ok {
		return Entry{}, fmt.Errorf("the run was not recorded: it has no %s", runName)
	}
	e, err := parseEntry(document)
	if err == nil {
		err = e.checkComplete()
	}
	if err != nil {
		return Entry{}, fmt.Errorf("the run was not recorded: %w", err)
	}
	if err := l.write(ctx, l.runs(), e.ID, files); err != nil {
		return Entry{}, fmt.Errorf("run %s was not recorded: %w", e.ID, err)
	}
	if err := syncDir(l.runsPath()); err != nil {
		return e, fmt.Errorf("run %s was recorded, but a power cut may undo it: flush %s: %w", e.ID, l.runsPath(), err)
	}

	// The run is on disk. If the index cannot be updated now, the next query does it.
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.table != nil {
		l.table.update([]Entry{e}, nil)
	}
	l.saveIndex(ctx, []Entry{e}, nil)
	return e, nil
}

// writeFile creates a read-only file and waits until it is on disk.
func writeFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr // NFS may report a full disk only on close
	}
	if err != nil {
		return fmt.Errorf("%d bytes: %w", len(data), err)
	}
	return nil
}

// maxFile bounds a file of a record, and what a compressed one expands to, in bytes.
const maxFile = 256 << 20

// readRegular reads a file. Anything else under its name, such as a symbolic link or a pipe, is an
// error.
func readRegular(path string) ([]byte, error) {
	data, err := regular.ReadNoFollow(path, maxFile)
	if errors.Is(err, regular.ErrNotRegular) {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), regular.ErrNotRegular)
	}
	return data, err
}

// openRegular opens a file. The error of what is no file leaves out the path, which messages have.
func openRegular(path string) (*os.File, error) {
	f, err := regular.OpenNoFollow(path)
	if errors.Is(err, regular.ErrNotRegular) {
		err = regular.ErrNotRegular
	}
	return f, err
}

// makeDir creates a directory and its parents, and waits until their names are on disk.
func makeDir(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := makeDir(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := syncDir(parent); err != nil {
		return fmt.Errorf("flush %s: %w", parent, err)
	}
	return nil
}

// syncDir waits until the names in a directory are on disk.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil // some network file systems have no such call and flush names themselves
	}
	return err
}

const temporaryPrefix = ".tmp-"

// temporaryName returns .tmp-<pid>-<pid space>-<id>. With the process in the name, the directory of
// a dead process can be recognised.
func temporaryName(pid int, space, id string) string {
	return fmt.Sprintf("%s%d-%s-%s", temporaryPrefix, pid, space, id)
}

// temporaryID returns the id in a name of temporaryName.
func temporaryID(name string) string {
	fields := strings.SplitN(strings.TrimPrefix(name, temporaryPrefix), "-", 3)
	return fields[len(fields)-1]
}

// pidSpace names the space in which process ids are unique: a host, or a container on it.
func pidSpace() string {
	host, _ := os.Hostname()
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return fmt.Sprintf("%x", sha256.Sum256([]byte(host+"\n"+namespace)))[:12]
}

// isAbandoned reports whether the recording of a temporary directory will never finish: its process
// is dead, or it is a day old. Of a process on another host or in another container only the age is
// known.
func isAbandoned(info fs.FileInfo) bool {
	if time.Since(info.ModTime()) > 24*time.Hour {
		return true
	}
	fields := strings.SplitN(strings.TrimPrefix(info.Name(), temporaryPrefix), "-", 3)
	pid, err := strconv.Atoi(fields[0])
	if err != nil || pid <= 0 || len(fields) != 3 || fields[1] != pidSpace() {
		return false
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
