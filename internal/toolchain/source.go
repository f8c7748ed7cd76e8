package toolchain

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// sources is a source file of a kernel with every header it includes from the kernel's own folder, by path.
type sources map[string][]byte

var includeDirective = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*"([^"]+)"`)

// readSources collects root and, step by step, what it includes with quotes. Headers of the compiler (in angle brackets) are
// covered by the compiler's version.
func readSources(kernel fs.FS, root string) (sources, error) {
	found := sources{}
	pending := []string{root}
	includedBy := map[string]string{}
	for len(pending) > 0 {
		name := pending[0]
		pending = pending[1:]
		if _, seen := found[name]; seen {
			continue
		}
		text, err := fs.ReadFile(kernel, name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && includedBy[name] != "":
			return nil, fmt.Errorf("%s includes %s, which does not exist", includedBy[name], name)
		case err != nil:
			return nil, fmt.Errorf("read the kernel's source: %w", err)
		}
		found[name] = text
		for _, m := range includeDirective.FindAllSubmatch(text, -1) {
			header := path.Join(path.Dir(name), string(m[1]))
			if !fs.ValidPath(header) {
				return nil, fmt.Errorf("%s includes %s, which is outside of the kernel's folder", name, m[1])
			}
			includedBy[header] = name
			pending = append(pending, header)
		}
	}
	return found, nil
}

// hash is the SHA-256 of names and contents.
func (s sources) hash() string {
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(hash, "%s %d\n", name, len(s[name]))
		hash.Write(s[name])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// writeTo lays the files out under dir, for the compiler. They are all of one old age, because ptxas writes the time of a file's
// last change into the debug information.
func (s sources) writeTo(dir string) error {
	for name, text := range s {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
		if err := os.Chtimes(file, time.Unix(0, 0), time.Unix(0, 0)); err != nil {
			return err
		}
	}
	return nil
}
