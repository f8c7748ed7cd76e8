package toolchain

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"attune/internal/regular"
)

// anyHeader is an include in quotes or in angle brackets.
var anyHeader = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)`)

// headerSearch collects what a source without a launch contract includes: headers of the kernel's
// folder, and headers of the folders of -I. All others belong to the compiler, or are missing, which
// the compiler reports with the line.
type headerSearch struct {
	kernel  fs.FS
	tree    fs.FS    // has the folders of include; nil if they are on disk
	include []string // absolute folders
	found   sources
}

// outsidePrefix begins the names of headers that are not in the kernel's folder. They are hashed,
// and the compiler reads them where they are. The number of the folder and the path in it follow.
const outsidePrefix = "-I"

// readForeign reads the sources of a target without a launch contract. Its includes may name
// headers that only the compiler has.
func readForeign(kernel fs.FS, root string, own compilerFlags) (sources, error) {
	s := headerSearch{kernel: kernel, tree: own.tree, include: own.include, found: sources{}}
	for _, folder := range s.include {
		if info, err := s.stat(folder); err != nil || !info.IsDir() {
			return nil, &SourceError{Problem: fmt.Sprintf("there is no folder %s, which -I names", folder)}
		}
	}
	text, err := readSource(kernel, root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noSource(root)
	}
	if err != nil {
		return nil, err
	}
	s.found[root] = text
	if err := s.follow(root, inKernel, text); err != nil {
		return nil, err
	}
	return s.found, nil
}

// inKernel stands for the number of a folder of -I, for files of the kernel.
const inKernel = -1

// follow adds the headers that a file includes, or asks for with __has_include. The file is in a folder
// of -I or in the kernel's.
func (s *headerSearch) follow(name string, folder int, text []byte) error {
	asked, err := questions(name, text)
	if err != nil && folder == inKernel {
		return err
	}
	for _, m := range append(asked, anyHeader.FindAllSubmatch(text, -1)...) {
		if quoted := string(m[1]); quoted != "" {
			done, err := s.beside(name, folder, quoted)
			if err != nil {
				return err
			}
			if done {
				continue
			}
		}
		for i := range s.include {
			done, err := s.included(i, string(m[1])+string(m[2]))
			if err != nil {
				return err
			}
			if done {
				break
			}
		}
	}
	return nil
}

// beside looks for a header in the folder of the file that includes it.
func (s *headerSearch) beside(name string, folder int, header string) (bool, error) {
	file := path.Join(path.Dir(name), header)
	if folder != inKernel {
		return s.included(folder, file)
	}
	if path.IsAbs(header) || !fs.ValidPath(file) {
		if slices.ContainsFunc(s.include, func(dir string) bool { return s.isFile(filepath.Join(dir, header)) }) {
			return false, nil
		}
		return false, &SourceError{Problem: fmt.Sprintf("%s includes %s, which is outside the kernel's folder; name its folder by -I in flags", name, header)}
	}
	if _, seen := s.found[file]; seen {
		return true, nil
	}
	text, err := readSource(s.kernel, file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.found[file] = text
	return true, s.follow(file, inKernel, text)
}

// included adds a header of a folder of -I, if it exists. The name is the path in that folder.
func (s *headerSearch) included(folder int, name string) (bool, error) {
	key := fmt.Sprintf("%s%d/%s", outsidePrefix, folder, path.Clean(name))
	if _, seen := s.found[key]; seen {
		return true, nil
	}
	file := filepath.Join(s.include[folder], filepath.FromSlash(name))
	if !s.isFile(file) {
		return false, nil
	}
	text, err := s.readFile(file)
	if err != nil {
		return false, fmt.Errorf("read a header of -I: %w", err)
	}
	s.found[key] = text
	return true, s.follow(path.Clean(name), folder, text)
}

// isFile reports whether a path is a file and not a folder: <cuda> may be both in different folders.
func (s *headerSearch) isFile(name string) bool {
	info, err := s.stat(name)
	return err == nil && info.Mode().IsRegular()
}

func (s *headerSearch) stat(name string) (fs.FileInfo, error) {
	if s.tree != nil {
		return fs.Stat(s.tree, inTree(name))
	}
	return os.Stat(name)
}

func (s *headerSearch) readFile(name string) ([]byte, error) {
	if s.tree != nil {
		return fs.ReadFile(s.tree, inTree(name))
	}
	return regular.Read(name, maxSource)
}

// inTree is the name in a tree of a file with an absolute path, whose root is the tree.
func inTree(file string) string { return cmp.Or(strings.TrimPrefix(file, "/"), ".") }
