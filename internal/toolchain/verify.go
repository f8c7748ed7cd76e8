package toolchain

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed" // records.txt
	"encoding/base64"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Damage is a file of the installed compiler that is not as its wheel has it.
type Damage struct {
	File    string `json:"file"` // relative to the install folder
	Problem string `json:"problem"`
}

func (d Damage) String() string { return d.File + " " + d.Problem }

// The problems of a damaged file.
const (
	fileMissing    = "is missing"
	fileChanged    = "does not match its hash"
	fileUnreadable = "cannot be read"
	fileNoProgram  = "is not executable"
	fileForeign    = "belongs to no wheel"
	fileLink       = "is a link"
	recordCut      = "is cut short"
)

// Verification is the result of Verify.
type Verification struct {
	Folder  string   `json:"folder"`
	Files   int      `json:"files"` // that have a hash
	Damaged []Damage `json:"damaged"`
}

// Verify compares every file of the compiler in the cache with the hash that pip recorded from its
// wheel, and what pip recorded with the digests in this program. Without an installed compiler the error is ErrNoCompiler.
func Verify(ctx context.Context, cacheDir string) (Verification, error) {
	dir := installDir(cacheDir)
	if _, err := os.Stat(dir); err != nil {
		return Verification{}, fmt.Errorf("%w in attune's cache; run `attune toolchain install`", ErrNoCompiler)
	}
	return verifyFolder(ctx, dir, nil)
}

// Damaged returns the damaged files of a compiler in attune's cache, as Verify does. Attune has no
// hashes of other compilers.
func (c *Compiler) Damaged(ctx context.Context) ([]Damage, error) {
	dir := c.folder()
	if dir == "" {
		return nil, nil
	}
	v, err := verifyFolder(ctx, dir, nil)
	return v.Damaged, err
}

// verifyFolder compares the files below an install folder with their hashes. It does not read the
// files that are known to be intact.
func verifyFolder(ctx context.Context, dir string, known signatures) (Verification, error) {
	v := Verification{Folder: dir, Damaged: []Damage{}}
	found, err := listFiles(dir)
	if err != nil {
		return v, fmt.Errorf("verify the compiler in %s: %w", dir, err)
	}
	hashes, damaged := recordedHashes(dir)
	v.Files, v.Damaged = len(hashes), append(v.Damaged, damaged...)
	for _, file := range found {
		if _, ok := hashes[file]; !ok && !isRecord(file) {
			v.Damaged = append(v.Damaged, Damage{file, fileForeign})
		}
	}
	for file := range known {
		delete(hashes, file)
	}
	v.Damaged = append(v.Damaged, compareFiles(ctx, dir, hashes)...)
	slices.SortFunc(v.Damaged, func(a, b Damage) int { return cmp.Compare(a.File, b.File) })
	return v, ctx.Err()
}

// compareFiles compares files with their hashes on all cores.
func compareFiles(ctx context.Context, dir string, hashes map[string]string) []Damage {
	var mu sync.Mutex
	var damaged []Damage
	pending := make(chan string)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for file := range pending {
				if problem := compareFile(filepath.Join(dir, file), hashes[file]); problem != "" {
					mu.Lock()
					damaged = append(damaged, Damage{file, problem})
					mu.Unlock()
				}
			}
		})
	}
	for file := range maps.Keys(hashes) {
		if ctx.Err() != nil {
			break
		}
		pending <- file
	}
	close(pending)
	workers.Wait()
	return damaged
}

// compareFile returns the problem of a file, or nothing if it has this hash.
func compareFile(name, want string) string {
	if info, err := os.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return fileLink // wheels have none, and the target may change unseen
	}
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fileMissing
	}
	if err != nil {
		return fileUnreadable
	}
	defer file.Close()
	hash, head := sha256.New(), make([]byte, 4)
	n, _ := io.ReadFull(file, head)
	hash.Write(head[:n])
	if _, err := io.Copy(hash, file); err != nil {
		return fileUnreadable
	}
	if base64.RawURLEncoding.EncodeToString(hash.Sum(nil)) != want {
		return fileChanged
	}
	// A wheel's list has no file modes. The programs are the ELF files in the folders named bin.
	isProgram := bytes.Equal(head, []byte("\x7fELF")) && filepath.Base(filepath.Dir(name)) == "bin"
	if isProgram && unix.Access(name, unix.X_OK) != nil {
		return fileNoProgram
	}
	return ""
}

// wheelLine is a line of wheels.txt.
var wheelLine = regexp.MustCompile(`(?m)^([a-z-]+)==(\S+) `)

//go:embed records.txt
var recordLines string

// recordDigest is a line of records.txt: wheel, release, architecture, digest.
var recordDigest = regexp.MustCompile(`(?m)^([a-z-]+)==(\S+) (\S+) ([0-9a-f]{64})$`)

// recordDigests are the digests of the wheels' lists for this architecture, by the path of the list.
// Lists of other architectures are taken as they are.
var recordDigests = func() map[string]string {
	digests := map[string]string{}
	for _, m := range recordDigest.FindAllStringSubmatch(recordLines, -1) {
		if m[3] == runtime.GOARCH {
			digests[recordName(m[1], m[2])] = m[4]
		}
	}
	return digests
}()

// wheelDigest is the SHA-256 of the hashes in a wheel's list, without the files that pip adds.
func wheelDigest(list string, hashes map[string]string) string {
	hash := sha256.New()
	for _, file := range slices.Sorted(maps.Keys(hashes)) {
		if base := path.Base(file); path.Dir(file) == path.Dir(list) && slices.Contains([]string{"INSTALLER", "REQUESTED", "direct_url.json"}, base) {
			continue
		}
		fmt.Fprintf(hash, "%s %s\n", file, hashes[file])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// recordedHashes reads the lists that pip has written for each pinned wheel. It returns the SHA-256
// of each file, and lists that are missing, damaged, or not those of the pinned wheels.
func recordedHashes(dir string) (map[string]string, []Damage) {
	hashes := map[string]string{}
	var damaged []Damage
	for _, m := range wheelLine.FindAllSubmatch(wheels, -1) {
		name := recordName(string(m[1]), string(m[2]))
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			damaged = append(damaged, Damage{name, fileMissing})
			continue
		}
		listed, err := parseRecord(text, name)
		if want, known := recordDigests[name]; err == nil && known && wheelDigest(name, listed) != want {
			err = errors.New(fileChanged)
		}
		if err != nil {
			damaged = append(damaged, Damage{name, err.Error()})
		}
		maps.Copy(hashes, listed)
	}
	return hashes, damaged
}

// recordName is the path of the list of a wheel's files.
func recordName(wheel, version string) string {
	return strings.ReplaceAll(wheel, "-", "_") + "-" + version + ".dist-info/RECORD"
}

// isRecord reports whether a file is the list of a pinned wheel, which has no hash of itself.
func isRecord(file string) bool {
	for _, m := range wheelLine.FindAllSubmatch(wheels, -1) {
		if file == recordName(string(m[1]), string(m[2])) {
			return true
		}
	}
	return false
}

// parseRecord parses a wheel's list: path, sha256=hash in URL-safe base64, and size. The list names
// itself without a hash. Files of a list that lost lines are found as files of no wheel.
func parseRecord(text []byte, self string) (map[string]string, error) {
	rows := csv.NewReader(bytes.NewReader(text))
	rows.FieldsPerRecord = 3
	hashes := map[string]string{}
	complete := false
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return hashes, errors.New("is not a list of files")
		}
		hash, ok := strings.CutPrefix(row[1], "sha256=")
		switch {
		case row[0] == self:
			complete = true
		case !ok || !fs.ValidPath(row[0]) || row[0] != path.Clean(row[0]):
			return hashes, errors.New("is not a list of files")
		default:
			hashes[row[0]] = hash
		}
	}
	if !complete {
		return hashes, errors.New(recordCut)
	}
	return hashes, nil
}

// stampFile is the file in an install folder with the signature of the files that were verified.
// Earlier versions, which did not compare the lists with digests, have a stamp of their own.
const (
	stampPrefix = ".verified"
	stampFile   = stampPrefix + "-lists"
)

// listFiles lists everything below dir that is not a folder, with slashes, without the stamp.
func listFiles(dir string) ([]string, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	var found []string
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !strings.HasPrefix(name, stampPrefix) {
			found = append(found, name)
		}
		return err
	})
	return found, err
}

// signatures has a text for each file below a folder that changes when the file is written, replaced,
// renamed or loses a mode bit.
type signatures map[string]string

// readSignatures reads sizes, times and inodes, and no contents, so it takes milliseconds.
func readSignatures(dir string) (signatures, error) {
	files, err := listFiles(dir)
	if err != nil {
		return nil, err
	}
	all := signatures{}
	for _, file := range files {
		var s unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, file), &s); err != nil {
			return nil, err
		}
		all[file] = fmt.Sprintln(file, s.Size, s.Mtim.Nano(), s.Ctim.Nano(), s.Ino, s.Mode)
	}
	return all, nil
}

// hash is the SHA-256 of all signatures. It depends on the digests, so that a program with others
// does not trust an earlier verification.
func (s signatures) hash() string {
	hash := sha256.New()
	io.WriteString(hash, recordLines)
	for _, file := range slices.Sorted(maps.Keys(s)) {
		io.WriteString(hash, s[file])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// hashed is what this process has hashed, by install folder.
var hashed = struct {
	sync.Mutex
	files  map[string]signatures // of intact files
	folder map[string]string     // hash of all signatures, if no file was damaged
}{files: map[string]signatures{}, folder: map[string]string{}}

// damaged returns the damaged files of a compiler in attune's cache; attune has no hashes of others.
// It reads files only if they have changed since an earlier verification. With fresh set, that
// verification must have been made by this process.
func (c *Compiler) damaged(ctx context.Context, fresh bool) ([]Damage, error) {
	dir := c.folder()
	if dir == "" {
		return nil, nil
	}
	hashed.Lock()
	defer hashed.Unlock()
	now, err := readSignatures(dir)
	if err != nil {
		return nil, fmt.Errorf("verify the compiler in %s: %w", dir, err)
	}
	stamp, _ := os.ReadFile(filepath.Join(dir, stampFile))
	if whole := now.hash(); hashed.folder[dir] == whole || !fresh && string(stamp) == whole+"\n" {
		return nil, nil
	}
	known := maps.Clone(hashed.files[dir])
	maps.DeleteFunc(known, func(file, signature string) bool { return now[file] != signature })
	v, err := verifyFolder(ctx, dir, known)
	if err != nil {
		return nil, err
	}
	if len(v.Damaged) == 0 {
		hashed.folder[dir] = now.hash()
		writeStamp(dir, now.hash())
	}
	for _, d := range v.Damaged {
		delete(now, d.File)
	}
	hashed.files[dir] = now
	return v.Damaged, nil
}

// writeStamp saves the signature of verified files for later processes. In a read-only cache they
// verify again.
func writeStamp(dir, signature string) {
	file, err := os.CreateTemp(dir, stampFile+"-")
	if err != nil {
		return
	}
	_, err = fmt.Fprintln(file, signature)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), filepath.Join(dir, stampFile))
	}
	if err != nil {
		os.Remove(file.Name())
	}
}
