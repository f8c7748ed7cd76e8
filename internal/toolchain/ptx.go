package toolchain

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Launch is what a kernel says of its own launch: the arrays attune_launch, attune_outputs and attune_tensor_maps that its source defines
// (common/launch.cuh).
type Launch struct {
	Threads            int `json:"threads"`              // of a block
	QueryRows          int `json:"query_rows"`           // that one block computes
	DynamicSharedBytes int `json:"dynamic_shared_bytes"` // of a block

	// BlocksPerMultiprocessor is 0 for one block a tile, and else the most blocks that share out the tiles among them.
	BlocksPerMultiprocessor int `json:"blocks_per_multiprocessor,omitempty"`

	Cluster    int         `json:"cluster,omitempty"`     // blocks of a cluster, side by side in x; 0 for none
	TensorMaps []TensorMap `json:"tensor_maps,omitempty"` // what the kernel takes behind its other arguments
	Output     Output      `json:"output,omitempty"`      // the format of o
	LSE        LSE         `json:"lse,omitempty"`         // how the sums come about whose logarithms follow o; empty where none do
}

// Output is the number format of a kernel's o.
type Output string

// The formats.
const (
	FP16 Output = ""
	BF16 Output = "bf16"
)

// LSE is how a kernel comes by the sum of the exponentials of a query's scores.
type LSE string

// The ways to sum.
const (
	LSEInFP32  LSE = "fp32"       // before the exponentials are rounded
	LSERounded LSE = "e4m3"       // of the exponentials as they were rounded to E4M3, on tensor cores
	LSELines   LSE = "e4m3-lines" // the same, some of which were straight lines from one power of two to the next
)

// TensorMap is a tensor map that a kernel wants of one of its tensors.
type TensorMap struct {
	Argument     int `json:"argument"`      // 0 q, 1 k, 2 v, 3 o
	Rows         int `json:"rows"`          // of the box
	InnerBytes   int `json:"inner_bytes"`   // of a row of the box
	SwizzleBytes int `json:"swizzle_bytes"` // 0, 32, 64 or 128
}

var (
	launchArray  = arrayForm("attune_launch")
	mapsArray    = arrayForm("attune_tensor_maps")
	outputsArray = arrayForm("attune_outputs")
)

// arrayForm matches the definition of an array as nvcc prints it: bytes or words, trailing zeros left out.
func arrayForm(name string) *regexp.Regexp {
	return regexp.MustCompile(`\.align \d+ \.([bu](?:8|32)) (` + name + `)\[(\d+)\](?:\s*=\s*\{([^}]*)\})?;`)
}

// parseLaunch finds the launch contract in PTX.
func parseLaunch(ptx string) (Launch, error) {
	words, err := readWords(ptx, launchArray)
	if err != nil {
		return Launch{}, err
	}
	switch n := len(words); {
	case n == 0:
		return Launch{}, fmt.Errorf("the PTX has no array attune_launch; a kernel defines it with ATTUNE_LAUNCH (common/launch.cuh)")
	case n < 3 || n > 5:
		return Launch{}, fmt.Errorf("attune_launch has %d words, want 3 to 5", n)
	}
	words = append(words, 0, 0)
	launch := Launch{Threads: words[0], QueryRows: words[1], DynamicSharedBytes: words[2], BlocksPerMultiprocessor: words[3]}
	if launch.Threads < 1 || launch.Threads > 1024 || launch.QueryRows < 1 {
		return Launch{}, fmt.Errorf("attune_launch says %d threads and %d query rows a block; want 1 to 1024 and at least 1",
			launch.Threads, launch.QueryRows)
	}
	const mostCluster = 16
	switch cluster := words[4]; {
	case cluster > mostCluster:
		return Launch{}, fmt.Errorf("attune_launch says clusters of %d blocks; want %d at most, and 1 for none", cluster, mostCluster)
	case cluster > 1:
		launch.Cluster = cluster
	}
	if launch.TensorMaps, err = parseTensorMaps(ptx); err != nil {
		return Launch{}, err
	}
	if err := launch.parseOutputs(ptx); err != nil {
		return Launch{}, err
	}
	return launch, nil
}

// parseOutputs finds what a kernel writes that is not an o of FP16 alone.
func (l *Launch) parseOutputs(ptx string) error {
	words, err := readWords(ptx, outputsArray)
	if err != nil || len(words) == 0 {
		return err
	}
	if len(words) > 2 {
		return fmt.Errorf("attune_outputs has %d words, want 1 or 2", len(words))
	}
	words = append(words, 0)
	sums, formats := []LSE{"", LSEInFP32, LSERounded, LSELines}, []Output{FP16, BF16}
	if words[0] >= len(sums) || words[1] >= len(formats) {
		return fmt.Errorf("attune_outputs says %d of lse and %d of bf16; want 0 (none), 1 (summed in FP32), 2 (of rounded exponentials) or 3 (of rounded lines), and 0 or 1",
			words[0], words[1])
	}
	l.LSE, l.Output = sums[words[0]], formats[words[1]]
	return nil
}

// parseTensorMaps finds what tensor maps a kernel wants; most want none.
func parseTensorMaps(ptx string) ([]TensorMap, error) {
	words, err := readWords(ptx, mapsArray)
	if err != nil {
		return nil, err
	}
	if len(words)%4 != 0 {
		return nil, fmt.Errorf("attune_tensor_maps has %d words, want 4 for each map", len(words))
	}
	var maps []TensorMap
	for row := range slices.Chunk(words, 4) {
		m := TensorMap{Argument: row[0], Rows: row[1], InnerBytes: row[2], SwizzleBytes: row[3]}
		if err := m.check(); err != nil {
			return nil, fmt.Errorf("attune_tensor_maps: map %d: %w", len(maps), err)
		}
		maps = append(maps, m)
	}
	return maps, nil
}

// check refuses what no shape can make right.
func (m TensorMap) check() error {
	switch {
	case m.Argument > 3:
		return fmt.Errorf("it is of argument %d; want 0 (q), 1 (k), 2 (v) or 3 (o)", m.Argument)
	case m.Rows < 1 || m.Rows > 256:
		return fmt.Errorf("its box has %d rows; want 1 to 256", m.Rows)
	case m.InnerBytes < 1 || m.InnerBytes%16 != 0:
		return fmt.Errorf("a row of its box has %d bytes; want a multiple of 16", m.InnerBytes)
	case !slices.Contains([]int{0, 32, 64, 128}, m.SwizzleBytes):
		return fmt.Errorf("its swizzle is %d bytes; want 0, 32, 64 or 128", m.SwizzleBytes)
	case m.SwizzleBytes > 0 && m.InnerBytes > m.SwizzleBytes:
		return fmt.Errorf("a row of its box has %d bytes, which is more than the swizzle's %d", m.InnerBytes, m.SwizzleBytes)
	}
	return nil
}

// readWords reads an array of a kernel's source from the PTX. There are no words where there is no such array.
func readWords(ptx string, form *regexp.Regexp) ([]int, error) {
	m := form.FindStringSubmatch(ptx)
	if m == nil {
		return nil, nil
	}
	name, width := m[2], 4
	if strings.HasSuffix(m[1], "8") {
		width = 1
	}
	const most = 256 // bytes, and more than anybody has to say
	n, err := strconv.Atoi(m[3])
	if err != nil || n < 1 || n > most/width || n*width%4 != 0 {
		return nil, fmt.Errorf("%s has %s elements of %d bytes, want whole words, and %d bytes at most", name, m[3], width, most)
	}
	raw := make([]byte, n*width)
	for i, text := range strings.FieldsFunc(m[4], func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
		value, err := strconv.ParseUint(text, 0, 8*width)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: element %d: %w", name, i, err)
		case i >= n:
			return nil, fmt.Errorf("%s has more elements than it declares", name)
		case width == 1:
			raw[i] = byte(value)
		default:
			binary.LittleEndian.PutUint32(raw[4*i:], uint32(value))
		}
	}
	words := make([]int, len(raw)/4)
	for i := range words {
		words[i] = int(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return words, nil
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
