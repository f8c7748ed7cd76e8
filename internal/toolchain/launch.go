package toolchain

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Launch is a kernel's launch contract: the arrays attune_launch, attune_outputs and
// attune_tensor_maps that its source defines (include/launch.cuh).
type Launch struct {
	Threads            int `json:"threads"`              // per block
	QueryRows          int `json:"query_rows"`           // per block
	DynamicSharedBytes int `json:"dynamic_shared_bytes"` // per block

	// BlocksPerMultiprocessor is 0 for one block per tile. Otherwise blocks are persistent, and it
	// is the maximum of blocks on a multiprocessor.
	BlocksPerMultiprocessor int `json:"blocks_per_multiprocessor,omitempty"`

	Cluster    int         `json:"cluster,omitempty"`     // blocks of a cluster, in x; 0 for none
	TensorMaps []TensorMap `json:"tensor_maps,omitempty"` // parameters after all others
	Output     Output      `json:"output,omitempty"`      // number format of O
	LSE        LSE         `json:"lse,omitempty"`         // how LSE is summed; empty without LSE
}

// Output is the number format of a kernel's O.
type Output string

// The output formats.
const (
	FP16 Output = ""
	BF16 Output = "bf16"
)

// LSE is how a kernel sums exp(score) of a query for its LSE output, the logarithm of that sum.
type LSE string

// The ways to sum.
const (
	LSEInFP32  LSE = "fp32" // in FP32, before rounding
	LSERounded LSE = "e4m3" // on tensor cores, after rounding to E4M3
)

// TensorMap describes a tensor map that a kernel needs of one of its tensors.
type TensorMap struct {
	Argument     int `json:"argument"`      // 0 q, 1 k, 2 v, 3 o
	Rows         int `json:"rows"`          // of the box
	InnerBytes   int `json:"inner_bytes"`   // of a row of the box
	SwizzleBytes int `json:"swizzle_bytes"` // 0, 32, 64 or 128
}

var (
	launchArray  = arrayPattern("attune_launch")
	mapsArray    = arrayPattern("attune_tensor_maps")
	outputsArray = arrayPattern("attune_outputs")
)

// arrayPattern matches the definition of an array as nvcc prints it: as bytes or words, without
// trailing zeros.
func arrayPattern(name string) *regexp.Regexp {
	return regexp.MustCompile(`\.align \d+ \.([bu](?:8|32)) (` + name + `)\[(\d+)\](?:\s*=\s*\{([^}]*)\})?;`)
}

// parseLaunch reads the launch contract from PTX.
func parseLaunch(ptx string) (Launch, error) {
	words, err := readWords(ptx, launchArray)
	if err != nil {
		return Launch{}, err
	}
	switch n := len(words); {
	case n == 0:
		return Launch{}, fmt.Errorf("the PTX has no array attune_launch; a kernel defines it with ATTUNE_LAUNCH (include/launch.cuh)")
	case n < 3 || n > 5:
		return Launch{}, fmt.Errorf("attune_launch has %d words, want 3 to 5", n)
	}
	words = append(words, 0, 0)
	launch := Launch{Threads: words[0], QueryRows: words[1], DynamicSharedBytes: words[2], BlocksPerMultiprocessor: words[3]}
	if launch.Threads < 1 || launch.Threads > 1024 || launch.QueryRows < 1 {
		return Launch{}, fmt.Errorf("attune_launch has %d threads and %d query rows per block; want 1 to 1024 and at least 1",
			launch.Threads, launch.QueryRows)
	}
	const maxClusterBlocks = 16
	switch cluster := words[4]; {
	case cluster > maxClusterBlocks:
		return Launch{}, fmt.Errorf("attune_launch has clusters of %d blocks; want at most %d, and 1 for none", cluster, maxClusterBlocks)
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

// parseOutputs reads attune_outputs. A kernel without it writes an FP16 O and no LSE.
func (l *Launch) parseOutputs(ptx string) error {
	words, err := readWords(ptx, outputsArray)
	if err != nil || len(words) == 0 {
		return err
	}
	if len(words) > 2 {
		return fmt.Errorf("attune_outputs has %d words, want 1 or 2", len(words))
	}
	words = append(words, 0)
	sums, formats := []LSE{"", LSEInFP32, LSERounded}, []Output{FP16, BF16}
	if words[0] >= len(sums) || words[1] >= len(formats) {
		return fmt.Errorf("attune_outputs has lse %d and bf16 %d; want lse 0 (none), 1 (summed in FP32) "+
			"or 2 (summed after rounding), and bf16 0 or 1", words[0], words[1])
	}
	l.LSE, l.Output = sums[words[0]], formats[words[1]]
	return nil
}

// parseTensorMaps reads attune_tensor_maps. Most kernels have none.
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

// check rejects a map that is invalid for every shape.
func (m TensorMap) check() error {
	switch {
	case m.Argument > 3:
		return fmt.Errorf("its tensor is argument %d; want 0 (q), 1 (k), 2 (v) or 3 (o)", m.Argument)
	case m.Rows < 1 || m.Rows > 256:
		return fmt.Errorf("its box has %d rows; want 1 to 256", m.Rows)
	case m.InnerBytes < 1 || m.InnerBytes%16 != 0:
		return fmt.Errorf("a row of its box has %d bytes; want a multiple of 16", m.InnerBytes)
	case !slices.Contains([]int{0, 32, 64, 128}, m.SwizzleBytes):
		return fmt.Errorf("its swizzle is %d bytes; want 0, 32, 64 or 128", m.SwizzleBytes)
	case m.SwizzleBytes > 0 && m.InnerBytes > m.SwizzleBytes:
		return fmt.Errorf("a row of its box has %d bytes, more than the swizzle's %d", m.InnerBytes, m.SwizzleBytes)
	}
	return nil
}

// readWords reads the words of an array in the PTX. A missing array has no words.
func readWords(ptx string, pattern *regexp.Regexp) ([]int, error) {
	m := pattern.FindStringSubmatch(ptx)
	if m == nil {
		return nil, nil
	}
	name, width := m[2], 4
	if strings.HasSuffix(m[1], "8") {
		width = 1
	}
	const maxBytes = 256 // more than any contract needs
	n, err := strconv.Atoi(m[3])
	if err != nil || n < 1 || n > maxBytes/width || n*width%4 != 0 {
		return nil, fmt.Errorf("%s has %s elements of %d bytes, want whole words and at most %d bytes", name, m[3], width, maxBytes)
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
