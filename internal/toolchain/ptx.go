package toolchain

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// Launch is what a kernel says of its own launch: the array attune_launch that its source defines (common/launch.cuh).
type Launch struct {
	Threads            int `json:"threads"`              // of a block
	QueryRows          int `json:"query_rows"`           // that one block computes
	DynamicSharedBytes int `json:"dynamic_shared_bytes"` // of a block

	// BlocksPerMultiprocessor is 0 for one block a tile, and else the most blocks that share out the tiles among them.
	BlocksPerMultiprocessor int `json:"blocks_per_multiprocessor,omitempty"`
}

// launchArray matches the definition of attune_launch as nvcc prints it: bytes or words, trailing zeros left out.
var launchArray = regexp.MustCompile(`\.align \d+ \.([bu](?:8|32)) attune_launch\[(\d+)\](?:\s*=\s*\{([^}]*)\})?;`)

// parseLaunch finds the launch contract in PTX.
func parseLaunch(ptx string) (Launch, error) {
	const fields, optional = 3, 1
	m := launchArray.FindStringSubmatch(ptx)
	if m == nil {
		return Launch{}, fmt.Errorf("the PTX has no array attune_launch; a kernel defines it with ATTUNE_LAUNCH (common/launch.cuh)")
	}
	width := 4
	if strings.HasSuffix(m[1], "8") {
		width = 1
	}
	n, err := strconv.Atoi(m[2])
	if err != nil || n != 4*fields/width && n != 4*(fields+optional)/width {
		return Launch{}, fmt.Errorf("attune_launch has %s elements of %d bytes, want %d or %d words", m[2], width, fields, fields+optional)
	}
	raw := make([]byte, 4*(fields+optional))
	for i, text := range strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
		value, err := strconv.ParseUint(text, 0, 8*width)
		switch {
		case err != nil:
			return Launch{}, fmt.Errorf("attune_launch: element %d: %w", i, err)
		case i >= n:
			return Launch{}, fmt.Errorf("attune_launch has more elements than it declares")
		case width == 1:
			raw[i] = byte(value)
		default:
			binary.LittleEndian.PutUint32(raw[4*i:], uint32(value))
		}
	}
	word := func(i int) int { return int(binary.LittleEndian.Uint32(raw[4*i:])) }
	launch := Launch{Threads: word(0), QueryRows: word(1), DynamicSharedBytes: word(2), BlocksPerMultiprocessor: word(3)}
	if launch.Threads < 1 || launch.Threads > 1024 || launch.QueryRows < 1 {
		return Launch{}, fmt.Errorf("attune_launch says %d threads and %d query rows a block; want 1 to 1024 and at least 1",
			launch.Threads, launch.QueryRows)
	}
	return launch, nil
}

var fileDirective = regexp.MustCompile(`(?m)^(\s*\.file\s+\d+\s+")([^"\n]*)(")`)

// portablePTX rids PTX of what depends on where it was compiled, so that the same sources give the same bytes on every
// machine: paths in .file become relative to the kernel (or "cuda/..." for the compiler's headers), and the hash of the working
// directory, which nvcc writes into the names of what only one file sees, becomes zeros.
func portablePTX(ptx []byte, workDir string) []byte {
	ptx = fileDirective.ReplaceAllFunc(ptx, func(directive []byte) []byte {
		m := fileDirective.FindSubmatch(directive)
		return fmt.Appendf(nil, "%s%s%s", m[1], portablePath(string(m[2]), workDir), m[3])
	})
	return zeroInternalHashes(ptx)
}

func portablePath(file, workDir string) string {
	file = path.Clean(file)
	if !path.IsAbs(file) {
		return file // portable already
	}
	if rest, ok := strings.CutPrefix(file, path.Clean(workDir)+"/"); ok {
		return rest
	}
	if at := strings.LastIndex(file, "/include/"); at >= 0 {
		return "cuda/" + file[at+len("/include/"):]
	}
	return path.Base(file)
}

// internalHash is the hash in a name such as _ZN37_INTERNAL_e4a5b5b7_7_sdpa_cu_b4840b9e... of something that only this file sees.
// Names in a namespace without a name have it after _GLOBAL__N__ as well.
var internalHash = regexp.MustCompile(`(?:_INTERNAL_|_GLOBAL__N__)([0-9a-f]{8})`)

// zeroInternalHashes replaces the hash in names, both where they are spelt out and in .debug_str, where they are lists of bytes.
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

// zeroHashes writes zeros over each hash, in place, and says whether there was one.
func zeroHashes(text []byte) bool {
	found := internalHash.FindAllSubmatchIndex(text, -1)
	for _, at := range found {
		copy(text[at[2]:at[3]], "00000000")
	}
	return found != nil
}

// byteList reads a line such as ".b8 95,90,78" of a debug section.
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
