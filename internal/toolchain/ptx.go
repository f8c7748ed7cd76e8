package toolchain

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
)

var fileDirective = regexp.MustCompile(`(?m)^(\s*\.file\s+\d+\s+")([^"\n]*)(")`)

// portablePTX removes the dependence of PTX on the build folder, so that the same sources give the
// same bytes on every machine. Paths in .file become relative to the kernel, or "cuda/..." for the
// compiler's headers; own has the folders of -I. nvcc writes a hash of the working directory into
// names with internal linkage; it becomes zeros.
func portablePTX(ptx []byte, workDir string, own compilerFlags) []byte {
	ptx = fileDirective.ReplaceAllFunc(ptx, func(directive []byte) []byte {
		m := fileDirective.FindSubmatch(directive)
		return fmt.Appendf(nil, "%s%s%s", m[1], portablePath(string(m[2]), workDir, own), m[3])
	})
	return zeroInternalHashes(ptx)
}

func portablePath(file, workDir string, own compilerFlags) string {
	file = path.Clean(file)
	if !path.IsAbs(file) {
		return file // portable already
	}
	if name := own.portableName(file); name != "" {
		return name
	}
	if rest, ok := strings.CutPrefix(file, path.Clean(workDir)+"/"); ok {
		return rest
	}
	if at := strings.LastIndex(file, "/include/"); at >= 0 {
		return "cuda/" + file[at+len("/include/"):]
	}
	return cmp.Or(own.numberedName(file), path.Base(file))
}

// completePTX reports whether nvcc has written PTX to its end: a function, a debug section or, with
// line information, the list of files. That of a source without functions ends with its header. A full disk can cut it short, and then ptxas would report a
// syntax error.
func completePTX(ptx []byte) bool { return ptxHeader.Match(ptx) && ptxEnd.Match(ptx) }

var (
	ptxHeader = regexp.MustCompile(`(?m)^\.version \d`)
	ptxEnd    = regexp.MustCompile(`(?:[};]|\n\s*\.file\s+\d+\s+"[^"\n]*"[^\n]*|\n\.address_size \d+)[ \t]*\n\s*$`)
)

// internalHash is the hash in a name with internal linkage, such as
// _ZN37_INTERNAL_e4a5b5b7_7_sdpa_cu_b4840b9e... Names in an anonymous namespace have it after
// _GLOBAL__N__ too.
var internalHash = regexp.MustCompile(`(?:_INTERNAL_|_GLOBAL__N__)([0-9a-f]{8})`)

// zeroInternalHashes zeroes the hash in names, both in plain text and in .debug_str, where names
// are lists of byte values over several lines.
func zeroInternalHashes(ptx []byte) []byte {
	zeroHashes(ptx)
	lines := bytes.Split(ptx, []byte("\n"))
	for i := 0; i < len(lines); {
		first := i
		var text []byte
		var counts []int
		for ; i < len(lines); i++ {
			numbers, ok := byteList(lines[i])
			if !ok {
				break
			}
			counts = append(counts, len(numbers))
			text = append(text, numbers...)
		}
		if i == first {
			i++
			continue
		}
		if zeroHashes(text) {
			for j, n := range counts {
				lines[first+j] = byteListLine(text[:n])
				text = text[n:]
			}
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

// zeroHashes zeroes each hash in place and reports whether there was one.
func zeroHashes(text []byte) bool {
	found := internalHash.FindAllSubmatchIndex(text, -1)
	for _, at := range found {
		copy(text[at[2]:at[3]], "00000000")
	}
	return found != nil
}

// byteList parses a line of a debug section such as ".b8 95,90,78".
func byteList(line []byte) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(".b8 "))
	if !ok {
		return nil, false
	}
	var list []byte
	for field := range bytes.SplitSeq(rest, []byte(",")) {
		n, err := strconv.ParseUint(string(field), 10, 8)
		if err != nil {
			return nil, false
		}
		list = append(list, byte(n))
	}
	return list, true
}

func byteListLine(list []byte) []byte {
	line := []byte(".b8 ")
	for i, b := range list {
		if i > 0 {
			line = append(line, ',')
		}
		line = strconv.AppendUint(line, uint64(b), 10)
	}
	return line
}
