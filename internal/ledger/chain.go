package ledger

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const (
	chainName   = "chain"
	chainFormat = "attune ledger chain "
	chainSchema = "1"
)

// The two actions of a link.
const (
	added   = "add"
	removed = "remove"
)

// firstLink stands for the hash before the first link.
var firstLink = strings.Repeat("0", 2*sha256.Size)

// link is one line of the chain: a record that was added or removed.
type link struct {
	action string
	record string // folder and id, such as runs/20261115-031522-stage2-3f9a1c
	seal   string // SHA-256 of the record's sha256sums, which has the checksums of its files
	hash   string // SHA-256 of the hash before and of the other fields
}

// hashAfter returns the hash of the link behind a link with the given hash.
func (k link) hashAfter(before string) string {
	return sumBytes([]byte(strings.Join([]string{before, k.action, k.record, k.seal}, " ") + "\n"))
}

// chain is the history of a ledger: every record that was added or removed, in order. The hash of
// the last link, the root, depends on all of them.
type chain struct {
	links  []link
	live   map[string]int // index of the link that added a record which was not removed since
	gone   map[string]int // index of the link that removed a record which was not added since
	exists bool           // false if the ledger has no chain yet
}

func newChain() *chain {
	return &chain{live: map[string]int{}, gone: map[string]int{}}
}

// clone returns a copy to which links can be added.
func (c *chain) clone() *chain {
	return &chain{links: slices.Clone(c.links), live: maps.Clone(c.live), gone: maps.Clone(c.gone), exists: c.exists}
}

// root returns the hash of the last link, or an empty string.
func (c *chain) root() string {
	if len(c.links) == 0 {
		return ""
	}
	return c.links[len(c.links)-1].hash
}

// seal returns the seal of a record that is in the ledger according to the chain.
func (c *chain) seal(record string) (string, bool) {
	i, ok := c.live[record]
	if !ok {
		return "", false
	}
	return c.links[i].seal, true
}

// line returns the line of the file that link i is in. The first line has the format.
func (c *chain) line(i int) int { return i + 2 }

// push appends a link.
func (c *chain) push(action, record, seal string) error {
	before, known := c.seal(record)
	switch {
	case action == added && known:
		return fmt.Errorf("%s is already in the chain", record)
	case action == removed && !known:
		return fmt.Errorf("%s is not in the chain and cannot be removed", record)
	case action == removed && seal != before:
		return fmt.Errorf("%s was added with another seal than it is removed with", record)
	}
	last := c.root()
	if last == "" {
		last = firstLink
	}
	k := link{action: action, record: record, seal: seal}
	k.hash = k.hashAfter(last)
	if action == added {
		c.live[record] = len(c.links)
		delete(c.gone, record)
	} else {
		c.gone[record] = len(c.links)
		delete(c.live, record)
	}
	c.links = append(c.links, k)
	return nil
}

// String returns the text of the file.
func (c *chain) String() string {
	var b strings.Builder
	b.WriteString(chainFormat + chainSchema + "\n")
	for _, k := range c.links {
		fmt.Fprintf(&b, "%s %s %s %s\n", k.action, k.record, k.seal, k.hash)
	}
	return b.String()
}

// parseChain reads the text of a chain. With an error, the chain ends before the line that the
// error names. The file is only ever replaced as a whole, so an incomplete line is damage.
func parseChain(text string) (*chain, error) {
	c := newChain()
	c.exists = true
	body, ended := strings.CutSuffix(text, "\n")
	lines := strings.Split(body, "\n")
	schema, ok := strings.CutPrefix(lines[0], chainFormat)
	switch {
	case !ok:
		return c, fmt.Errorf("line 1 is not %q", chainFormat+chainSchema)
	case schema != chainSchema:
		return c, fmt.Errorf("line 1: the format is %q, and this attune reads %s", schema, chainSchema)
	}
	for i, line := range lines[1:] {
		if err := c.parseLine(line); err != nil {
			return c, fmt.Errorf("line %d: %w", i+2, err)
		}
	}
	if !ended {
		return c, errors.New("its last line is incomplete")
	}
	return c, nil
}

func (c *chain) parseLine(line string) error {
	fields := strings.Split(line, " ")
	if len(fields) != 4 || fields[0] != added && fields[0] != removed {
		return fmt.Errorf("it is not %s or %s, a record, its seal and a hash", added, removed)
	}
	action, record, seal, hash := fields[0], fields[1], fields[2], fields[3]
	kind, id, _ := strings.Cut(record, "/")
	if _, err := parseID(id); err != nil || !slices.Contains([]string{runsName, benchesName, championsName, tuningsName}, kind) {
		return fmt.Errorf("%q is not a record", record)
	}
	if len(seal) != len(firstLink) || !isHex(seal) {
		return errors.New("the seal is not a SHA-256 in hex")
	}
	last := c.root()
	if last == "" {
		last = firstLink
	}
	if want := (link{action: action, record: record, seal: seal}).hashAfter(last); hash != want {
		return errors.New("its hash does not follow from the lines up to it: a line was changed, added, removed or moved")
	}
	return c.push(action, record, seal)
}

// chainFile is the file of a chain. It keeps what it has read until the file is replaced.
type chainFile struct {
	path string

	mu    sync.Mutex // guards the fields below
	info  fs.FileInfo
	chain *chain
	err   error
}

// load returns the chain, from memory if the file is the one that was read before. The caller must
// not change it. With an error the chain ends before the defect.
func (f *chainFile) load() (*chain, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Lstat(f.path)
	if err == nil && f.chain != nil && f.info != nil && os.SameFile(info, f.info) &&
		info.ModTime().Equal(f.info.ModTime()) && info.Size() == f.info.Size() {
		return f.chain, f.err
	}
	f.chain, f.err = f.parse()
	f.info = info // nil after an error, so that the next call reads again
	return f.chain, f.err
}

// forget makes the next load read the file.
func (f *chainFile) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.info = nil
}

// parse reads the file. A missing file is an empty chain.
func (f *chainFile) parse() (*chain, error) {
	text, err := readRegular(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return newChain(), nil
	}
	if err != nil {
		return newChain(), fmt.Errorf("cannot be read: %w", err)
	}
	return parseChain(string(text))
}

// parseSound reads the chain to append to it.
func (f *chainFile) parseSound() (*chain, error) {
	c, err := f.parse()
	if failure, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("the chain of the ledger cannot be read now: %w", failure)
	}
	if err != nil {
		return nil, fmt.Errorf("the chain of the ledger is damaged: %s: %w; restore it from git or a copy", f.path, err)
	}
	return c, nil
}

// replace writes the chain to a new file, which then takes the place of the old one.
func (f *chainFile) replace(c *chain) error {
	defer f.forget()
	dir := filepath.Dir(f.path)
	temporary := filepath.Join(dir, temporaryName(os.Getpid(), pidSpace(), chainName))
	_ = os.Remove(temporary) // of an earlier process with the same number
	err := writeFile(temporary, []byte(c.String()))
	if err == nil {
		err = os.Rename(temporary, f.path)
	}
	if err != nil {
		os.Remove(temporary)
		return err
	}
	return syncDir(dir)
}

// restore returns to an earlier chain after an error.
func (f *chainFile) restore(c *chain) error {
	if c.exists {
		return f.replace(c)
	}
	defer f.forget()
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
