package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// roomForRecord is the free space that Ready requires in bytes. A run with the samples of ten shapes
// takes 0.3 MB, a bench of 36 shapes 0.7 MB.
const roomForRecord = 2 << 20

// Ready returns the reason for which a record could not be written now. A command that takes
// minutes asks before it starts. Nothing is written, and a missing ledger is not created.
func (l *Ledger) Ready() error {
	dir := l.dir
	for {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			return fmt.Errorf("the ledger %s cannot be made: %s is not a directory; give another --ledger", l.dir, dir)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the ledger %s cannot be used: %w; give another --ledger", l.dir, err)
		}
		if _, err := os.Lstat(dir); err == nil {
			return fmt.Errorf("the ledger %s cannot be made: the symbolic link %s leads nowhere; give another --ledger", l.dir, dir)
		}
		dir = filepath.Dir(dir)
	}
	if err := l.checkWritable(dir); err != nil {
		return err
	}
	_, err := l.chain.parseSound()
	return err
}

// checkWritable checks the permissions and the free space of the existing part of a ledger.
func (l *Ledger) checkWritable(dir string) error {
	paths := []string{dir}
	for _, f := range l.folders() {
		if _, err := os.Stat(f.path); err == nil {
			paths = append(paths, f.path)
		}
	}
	for _, path := range paths {
		switch err := unix.Access(path, unix.W_OK|unix.X_OK); {
		case errors.Is(err, syscall.EROFS):
			return fmt.Errorf("the ledger %s is on a read-only file system; give another --ledger", l.dir)
		case err != nil:
			return fmt.Errorf("the ledger %s is read-only: %s: %w; give another --ledger", l.dir, path, err)
		}
		var disk unix.Statfs_t
		if err := unix.Statfs(path, &disk); err != nil || disk.Blocks == 0 {
			continue // the size is not known, or has no limit
		}
		if free := disk.Bavail * uint64(disk.Bsize); free < roomForRecord || disk.Files > 0 && disk.Ffree == 0 {
			return fmt.Errorf("the disk of the ledger %s is full: %d KB and %d files are free, and a record may take %d KB; free some space or give another --ledger",
				l.dir, free>>10, disk.Ffree, roomForRecord>>10)
		}
	}
	return nil
}
