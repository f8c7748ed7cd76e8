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
)

// Record writes a run: run.json, with the keys of [Entry] and an id from [NewID], and whatever other files belong to
// it. When it returns without an error the run is on disk and will be found. On an error nothing is kept, and the
// error says so; the one exception is a disk that takes the run but cannot be flushed, and there the Entry is
// returned as well. A run that is there already is not touched, and the error is an [fs.ErrExist].
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
	if err := l.runs().write(ctx, e.ID, files); err != nil {
		return Entry{}, fmt.Errorf("run %s was not recorded: %w", e.ID, err)
	}
	if err := syncDir(l.runsPath()); err != nil {
		return e, fmt.Errorf("run %s was recorded, but may be gone after a power cut: flushing %s: %w", e.ID, l.runsPath(), err)
	}

	// The run is safe, so a failure of the index is no failure of Record: the next question puts the index right.
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.needIndex(ctx); err == nil {
		_ = l.index.update(ctx, []Entry{e}, nil)
	}
	return e, nil
}

// writeFile makes a read-only file and waits until it is on disk. The mode holds for those who open the file later.
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
		err = closeErr // NFS may report a full disk only here
	}
	if err != nil {
		return fmt.Errorf("%d bytes: %w", len(data), err)
	}
	return nil
}

// makeDir makes a directory and those above it, and waits until their names are on disk.
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
		return fmt.Errorf("flushing %s: %w", parent, err)
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
		return nil // some network file systems cannot do this, and flush names by themselves
	}
	return err
}

const temporaryPrefix = ".tmp-"

// temporaryName is .tmp-<pid>-<place>-<id>: whose it is, so that one left behind by a dead process can be told.
func temporaryName(pid int, place, id string) string {
	return fmt.Sprintf("%s%d-%s-%s", temporaryPrefix, pid, place, id)
}

// place names the space that process numbers are unique in: a host, or a container on it.
func place() string {
	host, _ := os.Hostname()
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return fmt.Sprintf("%x", sha256.Sum256([]byte(host+"\n"+namespace)))[:12]
}

// isLeftBehind says whether the temporary directory of this name is of no use to anyone: its process is dead, or
// it is older than any recording takes. What belongs to a process elsewhere cannot be judged by its number.
func isLeftBehind(info fs.FileInfo) bool {
	if time.Since(info.ModTime()) > 24*time.Hour {
		return true
	}
	fields := strings.SplitN(strings.TrimPrefix(info.Name(), temporaryPrefix), "-", 3)
	pid, err := strconv.Atoi(fields[0])
	if err != nil || pid <= 0 || len(fields) != 3 || fields[1] != place() {
		return false
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
