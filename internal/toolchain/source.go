package toolchain

import (
	"bytes"
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
	"syscall"
	"time"

	"attune/internal/regular"
)

// SourceError is the error of a source that breaks a rule of attune, whether or not it compiles: it
// includes a file outside the kernel's folder, or its launch contract is wrong.
type SourceError struct {
	Target  Target
	Problem string
}

func (e *SourceError) Error() string { return fmt.Sprintf("build %s: %s", e.Target, e.Problem) }

// forTarget enters the target into the SourceError of a function that does not know it.
func forTarget(t Target, err error) error {
	var broken *SourceError
	if errors.As(err, &broken) {
		broken.Target = t
	}
	return err
}

// outside is the error of a file that a build must not depend on: neither the hash of the sources
// nor the version of the compiler covers it. The rule is the same for paths, links and macros.
func outside(includer, file string) *SourceError {
	return &SourceError{Problem: fmt.Sprintf("%s includes %s, which is outside the kernel's folder; copy it into the folder", includer, file)}
}

// within reports whether a clean path is below one of the folders.
func within(file string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(dir string) bool { return strings.HasPrefix(file, strings.TrimSuffix(dir, "/")+"/") })
}

// Folder is the folder of a kernel on disk. Files behind links that lead out of it are refused.
func Folder(dir string) fs.FS { return folder{regular.Folder(dir), dir} }

type folder struct {
	fs.FS
	dir string
}

// errLink is the error of a link that leads out of the kernel's folder.
var errLink = errors.New("it is a link to a file outside the kernel's folder")

func (f folder) Open(name string) (fs.File, error) {
	root, err := filepath.Abs(f.dir)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err == nil {
		file, err := filepath.EvalSymlinks(filepath.Join(root, filepath.FromSlash(name)))
		if err == nil && file != root && !within(file, root) {
			return nil, &fs.PathError{Op: "open", Path: name, Err: errLink}
		}
	}
	return f.FS.Open(name)
}

// maxSource bounds a source or a header in bytes; it is far above the size of a generated one.
const maxSource = 64 << 20

// readSource reads a file of the kernel's folder. What the file is, other than its content, is a
// mistake of the source that names it.
func readSource(kernel fs.FS, name string) ([]byte, error) {
	text, err := readLimited(kernel, name)
	var large *regular.SizeError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err // the caller knows what includes it
	case errors.Is(err, errLink):
		return nil, &SourceError{Problem: fmt.Sprintf("read %s: %v; copy the file into the folder", name, errLink)}
	case errors.Is(err, regular.ErrNotRegular), errors.Is(err, syscall.EISDIR), errors.Is(err, fs.ErrInvalid):
		return nil, &SourceError{Problem: fmt.Sprintf("read %s: %v", name, regular.ErrNotRegular)}
	case errors.As(err, &large):
		return nil, &SourceError{Problem: large.Error()}
	case err != nil:
		return nil, fmt.Errorf("read a source of the kernel: %w", err)
	case bytes.IndexByte(text, 0) >= 0: // on which the host's preprocessor may crash
		return nil, &SourceError{Problem: fmt.Sprintf("%s is no text: it has a zero byte", name)}
	}
	return text, nil
}

// readLimited reads a file of at most maxSource bytes. Folders that are no folders on disk read in
// their own way.
func readLimited(kernel fs.FS, name string) ([]byte, error) {
	if own, ok := kernel.(fs.ReadFileFS); ok {
		return own.ReadFile(name)
	}
	file, err := kernel.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return regular.ReadAll(file, name, maxSource)
}

// noSource is the error of a source that does not exist.
func noSource(name string) *SourceError {
	return &SourceError{Problem: fmt.Sprintf("the source %s does not exist", name)}
}

// sources are a source file of a kernel and every header that it includes from the kernel's folder,
// by path.
type sources map[string][]byte

var (
	continuedLine    = regexp.MustCompile(`\\\r?\n`)
	includeDirective = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*"([^"]+)"`)
	anyInclude       = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include\w*(.*)`)
	plainInclude     = regexp.MustCompile(`^[ \t]*(?:"[^"]+"|<[^/>][^>]*>)`)
	condition        = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*(?:el)?if\b.*__has_include.*`)
	hasInclude       = regexp.MustCompile(`__has_include\w*[ \t]*\([ \t]*(?:"([^"]+)"|<([^>]+)>|([^)]*))`)
)

// readSources reads root and, recursively, the headers that it includes in quotes. Headers in angle
// brackets belong to the compiler; its version identifies them. Includes that a macro names are
// checked after the compilation, by checkIncluded.
func readSources(kernel fs.FS, root string) (sources, error) {
	found := sources{}
	pending := []header{{name: root}}
	for len(pending) > 0 {
		next := pending[0]
		pending = pending[1:]
		if _, seen := found[next.name]; seen {
			continue
		}
		text, err := readSource(kernel, next.name)
		switch {
		case errors.Is(err, fs.ErrNotExist) && next.optional:
			continue
		case errors.Is(err, fs.ErrNotExist) && next.includer != "":
			return nil, &SourceError{Problem: fmt.Sprintf("%s includes %s, which does not exist", next.includer, next.name)}
		case errors.Is(err, fs.ErrNotExist):
			return nil, noSource(next.name)
		case err != nil:
			return nil, err
		}
		found[next.name] = text
		headers, err := includes(next.name, text)
		if err != nil {
			return nil, err
		}
		pending = append(pending, headers...)
	}
	return found, nil
}

// header is a file that a source includes, or asks for.
type header struct {
	name     string // in the kernel's folder
	includer string
	optional bool // the includer asks with __has_include whether it exists
}

// blanks may stand before the # of a directive.
const blanks = " \t\v\f\r\n"

// directives returns the lines of a text that begin with #, or another spelling of it, after blanks:
// those of the preprocessor. They are a small share of a text, and a regular expression takes longer
// for each byte.
func directives(text []byte) []byte {
	var found []byte
	for line := range bytes.Lines(text) {
		start := bytes.TrimLeft(line, blanks)
		if bytes.HasPrefix(start, []byte("#")) || bytes.HasPrefix(start, []byte("%:")) || bytes.HasPrefix(start, []byte("??=")) {
			found = append(found, line...)
		}
	}
	return found
}

// includes lists the headers that a source names in quotes.
func includes(name string, text []byte) ([]header, error) {
	questions, err := questions(name, text)
	if err != nil {
		return nil, err
	}
	text = directives(continuedLine.ReplaceAll(text, nil))
	var all []header
	asked := map[string]bool{}
	for _, m := range questions {
		if m[1] != nil {
			file := path.Join(path.Dir(name), string(m[1]))
			asked[file] = true
			all = append(all, header{file, name, true})
		}
	}
	for _, m := range includeDirective.FindAllSubmatch(text, -1) {
		file, err := resolve(name, string(m[1]), true)
		if err != nil {
			return nil, err
		}
		all = append(all, header{file, name, asked[file]})
	}
	return all, nil
}

// questions finds the files that a source asks for with __has_include: the first submatch has those in
// quotes, the second those in angle brackets. The build depends on whether they exist, so they lie in
// the kernel's folder or in those of the compiler, and no macro names them.
func questions(name string, text []byte) ([][][]byte, error) {
	var all [][][]byte
	for _, line := range condition.FindAll(directives(continuedLine.ReplaceAll(text, nil)), -1) {
		for _, m := range hasInclude.FindAllSubmatch(line, -1) {
			if macro := strings.TrimSpace(string(m[3])); macro != "" {
				return nil, &SourceError{Problem: fmt.Sprintf("%s has __has_include(%s); name the file in quotes or angle brackets, "+
					"because the build depends on whether it exists", name, macro)}
			}
			if _, err := resolve(name, string(m[1])+string(m[2]), m[1] != nil); err != nil {
				return nil, err
			}
			all = append(all, m)
		}
	}
	return all, nil
}

// resolve is the path in the kernel's folder of a header that a source names, in quotes or in angle
// brackets.
func resolve(includer, file string, quoted bool) (string, error) {
	joined := path.Join(path.Dir(includer), file)
	if path.IsAbs(file) || quoted && !fs.ValidPath(joined) {
		return "", outside(includer, file)
	}
	return joined, nil
}

// macroDirective is the definition of a macro that can become the # of a directive: the preprocessor
// leaves it in its output, and NVIDIA's front end obeys it there.
var macroDirective = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*define[ \t]+\w+[ \t].*(?:#|%:|\?\?=)`)

// computed reports whether a source has an include that the text alone does not resolve.
func (s sources) computed() bool {
	for _, text := range s {
		lines := directives(continuedLine.ReplaceAll(text, nil))
		for _, m := range anyInclude.FindAllSubmatch(lines, -1) {
			if !plainInclude.Match(m[1]) {
				return true
			}
		}
		if macroDirective.Match(lines) {
			return true
		}
	}
	return false
}

// lineMarker is the line that the preprocessor writes where another file, or another line of it,
// begins. A 1 marks a file that it begins to read, a 3 the headers of the host compiler.
var lineMarker = regexp.MustCompile(`^# (\d+) "((?:[^"\\]|\\.)+)"((?: \d)*)\s*$`)

// pragma is a directive that the preprocessor leaves to the compiler.
var pragma = regexp.MustCompile(`^#[ \t]*pragma\b`)

// checkIncluded returns a SourceError if the compiler has read a file that is neither a source in
// dir nor in a folder of -I nor its own. nvcc --keep leaves the preprocessed source there, which names
// every file; that costs no further run. Without it the preprocessor has failed, and the files are
// those that its messages name.
func checkIncluded(c *Compiler, t Target, dir string, include []string, messages string) error {
	own := append([]string{dir, filepath.Dir(filepath.Dir(c.NVCC))}, include...)
	kept, err := filepath.Glob(filepath.Join(dir, "*.ii"))
	if err != nil {
		return err
	}
	if len(kept) == 0 {
		if foreign := foreignPlace(messages, own...); foreign != "" {
			return forTarget(t, outside(t.Source, foreign))
		}
	}
	for _, file := range kept {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := foreignFile(t.Source, text, own...); err != nil {
			return forTarget(t, err)
		}
	}
	return nil
}

// foreignFile returns a SourceError for the first file of a preprocessed source that is outside the
// folders and the compiler's headers, and for a directive that only NVIDIA's front end would obey.
// nvcc includes cuda_runtime.h before everything else, so the first one is in the folder of the
// toolkit's headers. The sources can write line markers, and a header of the kernel can call itself
// a system header, and with it all that it includes. So only the system headers before the first
// line of the sources show where such headers are.
func foreignFile(source string, preprocessed []byte, folders ...string) error {
	system := []string{"/usr"}
	runtime, trusted := false, true
	for line := range bytes.Lines(directives(preprocessed)) {
		line = bytes.Trim(line, blanks)
		m := lineMarker.FindSubmatch(line)
		if m == nil {
			if !pragma.Match(line) {
				return hiddenDirective(source, string(line))
			}
			continue
		}
		file := filepath.Clean(strings.ReplaceAll(string(m[2]), `\\`, `\`))
		local := !filepath.IsAbs(file) && filepath.IsLocal(file)
		if local && string(m[1]) != "0" { // line 0 is the command line
			trusted = false
		}
		isSystem := bytes.Contains(m[3], []byte("3"))
		switch {
		case local, !bytes.Contains(m[3], []byte("1")):
		case isSystem && trusted:
			system = append(system, filepath.Dir(file))
		case isSystem && within(file, system...), within(file, folders...):
		case !isSystem && !runtime && filepath.Base(file) == "cuda_runtime.h":
			runtime = true
			folders = append(folders, filepath.Dir(file))
		default:
			return outside(source, file)
		}
	}
	return nil
}

// hiddenDirective is the error of a directive that a macro, or a text of several lines, has written
// into the preprocessed source. Its files would be in no hash.
func hiddenDirective(source, line string) *SourceError {
	const most = 80
	if len(line) > most {
		line = line[:most] + "..."
	}
	return &SourceError{Problem: fmt.Sprintf("%s has the line %q after preprocessing; write directives without macros, "+
		"and begin no line of a string with #", source, line)}
}

// messagePlace is a file that a message of the host's preprocessor names, and its line.
var messagePlace = regexp.MustCompile(`(?m)^(?:In file included from |[ \t]+from )?([^\s:][^:\n]*):\d+[:,]`)

// foreignPlace is the first file in messages of the preprocessor that is outside the folders and in
// no folder of headers, or empty. Such a message may quote the file.
func foreignPlace(messages string, folders ...string) string {
	for _, m := range messagePlace.FindAllStringSubmatch(messages, -1) {
		file := filepath.Clean(m[1])
		if !filepath.IsLocal(file) && !within(file, folders...) && !strings.Contains(file, "/include/") {
			return file
		}
	}
	return ""
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

// writeTo writes the files below dir, for the compiler, with the headers of -I if they are not on
// disk. All get the same modification time, because ptxas writes it into the debug information.
func (s sources) writeTo(dir string, included bool) error {
	for name, text := range s {
		if !included && strings.HasPrefix(name, outsidePrefix) {
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
