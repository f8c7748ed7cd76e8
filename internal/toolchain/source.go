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
	"strings"
	"time"
)

// sources are a source file of a kernel and every header that it includes from the kernel's folder,
// by path.
type sources map[string][]byte

var includeDirective = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*"([^"]+)"`)

// readSources reads root and, recursively, the headers that it includes in quotes. Headers in angle
// brackets belong to the compiler; its version identifies them.
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
			return nil, fmt.Errorf("read a source of the kernel: %w", err)
		}
		found[name] = text
		for _, m := range includeDirective.FindAllSubmatch(text, -1) {
			header := path.Join(path.Dir(name), string(m[1]))
			if !fs.ValidPath(header) {
				return nil, fmt.Errorf("%s includes %s, which is outside the kernel's folder", name, m[1])
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

// writeTo writes the files below dir, for the compiler. All get the same modification time, because
// ptxas writes it into the debug information.
func (s sources) writeTo(dir string) error {
	for name, text := range s {
		if strings.HasPrefix(name, outsidePrefix) {
			continue
		}
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
