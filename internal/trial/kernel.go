package trial

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"

	"attune/internal/fleet"
	"attune/internal/spec"
)

// Kernel names the files of a kernel.
type Kernel struct {
	Files  string `json:"files,omitempty"`  // their archive among the fleet's objects; empty for the kernel in the program
	Folder string `json:"folder,omitempty"` // of kernel.toml in the archive
}

// Limits of an archive. A kernel has a few hundred kilobytes.
const (
	maxFile    = 16 << 20
	maxArchive = 128 << 20
)

// above is a path of kernel.toml that leads out of its folder.
var above = regexp.MustCompile(`(?:\.\./)+[A-Za-z0-9_./-]*|\.\.(?:/\.\.)*`)

// Send stores the files of a kernel's folder on the fleet: the folder itself, and what kernel.toml
// names above it. An empty folder is the kernel in the program.
func Send(ctx context.Context, objects fleet.Objects, folder string) (Kernel, error) {
	if folder == "" {
		return Kernel{}, nil
	}
	archive, inside, err := pack(folder)
	if err != nil {
		return Kernel{}, fmt.Errorf("send the kernel %s: %w", folder, err)
	}
	hash, err := objects.Put(ctx, archive)
	return Kernel{Files: hash, Folder: inside}, err
}

// pack makes an archive, with the same bytes for the same files. inside is the kernel's folder in it.
func pack(folder string) (archive []byte, inside string, err error) {
	folder, err = filepath.Abs(folder)
	if err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err != nil {
		return nil, "", err
	}
	text, err := os.ReadFile(filepath.Join(folder, spec.File))
	if err != nil {
		return nil, "", err
	}
	files := map[string]bool{}
	err = addTree(files, folder)
	root := folder
	for _, named := range above.FindAllString(string(text), -1) {
		place := filepath.Join(folder, named)
		if info, statErr := os.Stat(place); statErr == nil && info.IsDir() {
			err = errors.Join(err, addTree(files, place))
		} else if statErr == nil {
			place = filepath.Dir(place)
			err = errors.Join(err, addFolder(files, place))
		} else {
			continue // the build says so
		}
		for !strings.HasPrefix(place+"/", root+"/") {
			root = filepath.Dir(root)
		}
	}
	if err != nil {
		return nil, "", err
	}
	inside, _ = filepath.Rel(root, folder) // both are absolute
	archive, err = archiveOf(root, files)
	return archive, filepath.ToSlash(inside), err
}

// addTree adds all files below a folder, without hidden ones.
func addTree(files map[string]bool, folder string) error {
	return filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != folder && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case !entry.IsDir():
			files[name] = true
		}
		return nil
	})
}

// addFolder adds the files of a folder, without those of its folders: a reference imports its
// neighbours.
func addFolder(files map[string]bool, folder string) error {
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		if entry.Type().IsRegular() && !strings.HasPrefix(entry.Name(), ".") {
			files[filepath.Join(folder, entry.Name())] = true
		}
	}
	return err
}

func archiveOf(root string, files map[string]bool) ([]byte, error) {
	var out bytes.Buffer
	packed, err := zstd.NewWriter(&out)
	if err != nil {
		return nil, err
	}
	list := tar.NewWriter(packed)
	total := int64(0)
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue // a link that leads nowhere
		}
		if total += info.Size(); info.Size() > maxFile || total > maxArchive {
			return nil, fmt.Errorf("%s: a kernel's folder with more than %d MB, or a file with more than %d MB, is not sent", name, maxArchive>>20, maxFile>>20)
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		short, _ := filepath.Rel(root, name)
		head := tar.Header{Name: filepath.ToSlash(short), Mode: int64(0o644 | info.Mode()&0o111), Size: int64(len(text)), ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := errors.Join(list.WriteHeader(&head), writeAll(list, text)); err != nil {
			return nil, err
		}
	}
	err = errors.Join(list.Close(), packed.Close())
	return out.Bytes(), err
}

func writeAll(w io.Writer, text []byte) error {
	_, err := w.Write(text)
	return err
}

// fetch returns the folder of a kernel on this machine, below cache. It is empty for the kernel in
// the program.
func (k Kernel) fetch(ctx context.Context, objects fleet.Objects, cache string) (string, error) {
	if k.Files == "" {
		return "", nil
	}
	if !filepath.IsLocal(filepath.FromSlash(k.Folder)) {
		return "", fmt.Errorf("the kernel's folder %q is not in its archive", k.Folder)
	}
	place := filepath.Join(cache, path.Base(k.Files))
	if _, err := os.Stat(place); err == nil {
		return filepath.Join(place, filepath.FromSlash(k.Folder)), nil
	}
	archive, err := objects.Get(ctx, k.Files)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", &fleet.MachineError{Err: err}
	}
	part, err := os.MkdirTemp(cache, ".part-")
	if err != nil {
		return "", &fleet.MachineError{Err: err}
	}
	defer os.RemoveAll(part)
	if err := unpack(part, archive); err != nil {
		return "", err
	}
	if err := os.Chmod(part, 0o755); err != nil {
		return "", &fleet.MachineError{Err: err}
	}
	if err := os.Rename(part, place); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, other := os.Stat(place); other != nil { // no other worker was first
			return "", &fleet.MachineError{Err: err}
		}
	}
	return filepath.Join(place, filepath.FromSlash(k.Folder)), nil
}

// ofDisk reports whether an error is the disk's, as another machine need not have it.
func ofDisk(err error) bool {
	var number syscall.Errno
	return errors.As(err, &number) && slices.Contains([]syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.EACCES, syscall.EPERM, syscall.EMFILE, syscall.ENFILE,
	}, number)
}

// unpack writes the files of an archive below a folder, and nowhere else.
func unpack(folder string, archive []byte) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return &fleet.MachineError{Err: err}
	}
	defer root.Close()
	packed, err := zstd.NewReader(bytes.NewReader(archive), zstd.WithDecoderMaxMemory(maxArchive*2))
	if err != nil {
		return err
	}
	defer packed.Close()
	list := tar.NewReader(io.LimitReader(packed, maxArchive*2))
	for {
		head, err := list.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the kernel's archive: %w", err)
		}
		if head.Typeflag != tar.TypeReg {
			return fmt.Errorf("the kernel's archive has %s, which is no file", head.Name)
		}
		if head.Size > maxFile {
			return fmt.Errorf("the kernel's archive: %s has %d bytes; want at most %d", head.Name, head.Size, maxFile)
		}
		text, err := io.ReadAll(list)
		if err == nil {
			err = root.MkdirAll(path.Dir(head.Name), 0o755)
		}
		if err == nil {
			err = root.WriteFile(head.Name, text, fs.FileMode(head.Mode).Perm()&0o755|0o444)
		}
		if ofDisk(err) {
			return &fleet.MachineError{Err: err}
		}
		if err != nil {
			return fmt.Errorf("the kernel's archive: %w", err)
		}
	}
}
