package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// sums has the SHA-256 of each file of a record in hex, by name. Its text has the format of
// sha256sum.
type sums map[string]string

func sumFiles(files map[string][]byte) sums {
	s := make(sums, len(files))
	for name, data := range files {
		s[name] = sumBytes(data)
	}
	return s
}

func sumBytes(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}

func (s sums) names() []string {
	return slices.Sorted(maps.Keys(s))
}

func (s sums) String() string {
	var b strings.Builder
	for _, name := range s.names() {
		fmt.Fprintf(&b, "%s  %s\n", s[name], name)
	}
	return b.String()
}

// parseSums reads a sha256sums file. It is strict, because only this package writes them: a
// truncated file is an error. The file must list the document of the record.
func parseSums(text, document string) (sums, error) {
	body, ended := strings.CutSuffix(text, "\n")
	if !ended {
		return nil, errors.New("it is empty, or its last line is incomplete")
	}
	s := make(sums)
	for i, line := range strings.Split(body, "\n") {
		digest, name, found := strings.Cut(line, "  ")
		if !found || len(digest) != 2*sha256.Size || !isHex(digest) {
			return nil, fmt.Errorf("line %d is not a SHA-256 in hex, two spaces and a name", i+1)
		}
		if err := checkName(name); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if _, known := s[name]; known {
			return nil, fmt.Errorf("line %d: %s is listed twice", i+1, name)
		}
		s[name] = digest
	}
	if _, ok := s[document]; !ok {
		return nil, fmt.Errorf("it does not list %s", document)
	}
	return s, nil
}

// checkName checks the name of a file in a record. It must be a plain name without a path.
func checkName(name string) error {
	if name == sumsName {
		return fmt.Errorf("the name %s is reserved for the ledger", sumsName)
	}
	for _, r := range name {
		if !isNameByte(r) && !('A' <= r && r <= 'Z') {
			return fmt.Errorf("file name %q has characters other than letters, digits, dots, dashes and underscores", name)
		}
	}
	if name == "" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "-") || len(name) > 200 {
		return fmt.Errorf("file name %q is empty, hidden, too long or starts with a dash", name)
	}
	return nil
}
