package regular

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrNotRegular is the error of a pipe, a device, a socket or a folder in place of a file.
var ErrNotRegular = errors.New("it is not a regular file")

// folderError is the error of a folder, which users name by mistake.
type folderError struct{}

func (folderError) Error() string        { return "is a directory" }
func (folderError) Is(target error) bool { return target == ErrNotRegular }

// SizeError is the error of a file with more bytes than its reader takes.
type SizeError struct {
	Path  string
	Limit int64
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%s has more than %d bytes; no such file is that large", e.Path, e.Limit)
}

// Open opens a file for reading. It does not wait for the writer of a pipe.
func Open(path string) (*os.File, error) { return open(path, 0, false) }

// OpenNoFollow opens a file, and no symbolic link at the end of the path.
func OpenNoFollow(path string) (*os.File, error) { return open(path, syscall.O_NOFOLLOW, false) }

func open(path string, flags int, folders bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|flags, 0)
	link := flags&syscall.O_NOFOLLOW != 0 && errors.Is(err, syscall.ELOOP)
	if link || errors.Is(err, syscall.ENXIO) { // a socket
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !(folders && info.IsDir()) {
		reason := ErrNotRegular
		if info.IsDir() {
			reason = folderError{}
		}
		err = &fs.PathError{Op: "open", Path: path, Err: reason}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Folder is a folder on disk, in which files are opened like Open does it.
func Folder(dir string) fs.FS { return folder(dir) }

type folder string

func (f folder) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	file, err := open(filepath.Join(string(f), filepath.FromSlash(name)), 0, true)
	if failure, ok := errors.AsType[*fs.PathError](err); ok {
		failure.Path = name // as in the folder, without the path of this machine
	}
	if err != nil {
		return nil, err
	}
	return file, nil
}

// Read reads a file of at most limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	return readOpen(f, path, limit)
}

// ReadNoFollow reads a file of at most limit bytes, and no symbolic link at the end of the path.
func ReadNoFollow(path string, limit int64) ([]byte, error) {
	f, err := OpenNoFollow(path)
	if err != nil {
		return nil, err
	}
	return readOpen(f, path, limit)
}

// readOpen reads and closes a file. One over the limit is refused before it is read.
func readOpen(f *os.File, path string, limit int64) ([]byte, error) {
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > limit {
		return nil, &SizeError{path, limit}
	}
	return ReadAll(f, path, limit)
}

// ReadAll reads to the end of a stream of at most limit bytes. The name is for messages.
func ReadAll(r io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, &SizeError{name, limit}
	}
	return data, err
}

// Decompress expands gzip data to at most limit bytes.
func Decompress(data []byte, name string, limit int64) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return ReadAll(z, name, limit)
}

// Create creates or empties a file that the user names. It does not wait for the reader of a pipe.
func Create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK, 0o666)
	if errors.Is(err, syscall.ENXIO) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("it is a pipe that nobody reads")}
	}
	return f, err
}

// Write writes a file of a folder that the user names. It writes nothing through a symbolic link,
// which somebody else may have put under the name of the file.
func Write(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0o644)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		return &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// Replace writes a file of a folder in which a foreign program writes too. Whatever has the name, a
// pipe or a link, is removed and not written to.
func Replace(path string, data []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// Writable is an error if no file can be created in a folder. Of one that does not exist yet it asks
// the nearest parent that does. It removes the file that it creates.
func Writable(dir string) error {
	place := dir
	for {
		info, err := os.Stat(place)
		if err == nil && info.IsDir() {
			break
		}
		if err == nil {
			return fmt.Errorf("%s is not a folder", place)
		}
		up := filepath.Dir(place)
		if up == place {
			return fmt.Errorf("%s cannot be created", dir)
		}
		place = up
	}
	probe, err := os.CreateTemp(place, ".attune-probe-")
	if err != nil {
		return err
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}
