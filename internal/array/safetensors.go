package array

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// maxSafetensorsHeader is the limit of the format itself.
const maxSafetensorsHeader = 100_000_000

// safetensorsTypes are the formats by their names in a file. Elements of 16 bits that are no floats
// are U8 with a last extent of 2.
var safetensorsTypes = map[string]DType{
	"F64": F64, "F32": F32, "F16": F16, "BF16": BF16, "F8_E4M3": E4M3, "F8_E5M2": E5M2,
	"I8": I8, "U8": U8, "BOOL": U8, "I16": U8, "U16": U8,
	"I32": I32, "U32": U32, "I64": I64, "U64": U64,
}

// safetensorsNames are the names of the formats in a file.
var safetensorsNames = map[DType]string{
	F64: "F64", F32: "F32", F16: "F16", BF16: "BF16", E4M3: "F8_E4M3", E5M2: "F8_E5M2",
	I8: "I8", U8: "U8", I32: "I32", U32: "U32", I64: "I64", U64: "U64",
}

// tensorEntry describes a tensor in the header of a file. The offsets count from the end of the
// header.
type tensorEntry struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets []int  `json:"data_offsets"`
}

// maxTensors bounds the tensors of a file, and with it the time to read its header: 1.5 s. The
// largest files of published models have some 100,000 in all their parts.
const maxTensors = 1 << 17

// safetensorsFile is a file with its header.
type safetensorsFile struct {
	r       io.ReaderAt
	data    int64 // offset of the elements
	entries map[string]tensorEntry
}

// ReadSafetensors reads the tensors of a safetensors file, by name. It checks that they fill the
// file without overlaps; a header has at most 100 MB.
func ReadSafetensors(r io.ReaderAt, size int64) (map[string]*Array, error) {
	f, err := openSafetensors(r, size)
	if err != nil {
		return nil, err
	}
	arrays := make(map[string]*Array, len(f.entries))
	for name := range f.entries {
		if arrays[name], err = f.read(name, nil); err != nil {
			return nil, err
		}
	}
	return arrays, nil
}

// openSafetensors reads and checks the header.
func openSafetensors(r io.ReaderAt, size int64) (*safetensorsFile, error) {
	var length [8]byte
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, errors.New("it is no safetensors file")
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxSafetensorsHeader || int64(n) > size-8 {
		return nil, fmt.Errorf("it is no safetensors file: a header of %d bytes in a file of %d", n, size)
	}
	text := make([]byte, n)
	if err := readAt(r, text, 8); err != nil {
		return nil, err
	}
	entries, err := parseSafetensorsHeader(text)
	if err != nil {
		return nil, err
	}
	data := size - 8 - int64(n)
	if err := checkOffsets(entries, data); err != nil {
		return nil, err
	}
	return &safetensorsFile{r, 8 + int64(n), entries}, nil
}

// read reads one tensor. Its shape must be the wanted one; nil accepts any.
func (f *safetensorsFile) read(name string, want []int) (*Array, error) {
	entry := f.entries[name]
	a, err := entry.array(name)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	if err := a.checkShape(want); err != nil {
		return nil, err
	}
	size := entry.Offsets[1] - entry.Offsets[0]
	if err := checkSize(int64(size), want); err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	a.Data = make([]byte, size)
	return a, readAt(f.r, a.Data, f.data+int64(entry.Offsets[0]))
}

// readAt fills data from a file that may be shorter than its size was.
func readAt(r io.ReaderAt, data []byte, offset int64) error {
	_, err := io.ReadFull(io.NewSectionReader(r, offset, int64(len(data))), data)
	return err
}

// parseSafetensorsHeader parses the JSON object of the header. Package json would accept a tensor
// that occurs twice.
func parseSafetensorsHeader(text []byte) (map[string]tensorEntry, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if start, err := decoder.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New("the header of the safetensors file is no JSON object")
	}
	entries := map[string]tensorEntry{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, fmt.Errorf("the header of the safetensors file: %w", err)
		}
		name, _ := token.(string)
		var raw json.RawMessage
		if err := decoder.Decode(&raw); err != nil {
			return nil, fmt.Errorf("the header of the safetensors file: tensor %q: %w", name, err)
		}
		if name == "__metadata__" {
			continue
		}
		if _, twice := entries[name]; twice {
			return nil, fmt.Errorf("the header of the safetensors file has tensor %q twice", name)
		}
		var entry tensorEntry
		if err := json.Unmarshal(raw, &entry); err != nil {
			return nil, fmt.Errorf("the header of the safetensors file: tensor %q has no dtype, shape and data_offsets", name)
		}
		entries[name] = entry
		if len(entries) > maxTensors {
			return nil, fmt.Errorf("the header of the safetensors file has more than %d tensors", maxTensors)
		}
	}
	if _, err := decoder.Token(); err != nil {
		return nil, fmt.Errorf("the header of the safetensors file: %w", err)
	}
	return entries, nil
}

// checkOffsets checks that the tensors fill size bytes without a gap or an overlap.
func checkOffsets(entries map[string]tensorEntry, size int64) error {
	names := make([]string, 0, len(entries))
	for name, entry := range entries {
		if len(entry.Offsets) != 2 || entry.Offsets[0] < 0 || entry.Offsets[0] > entry.Offsets[1] || int64(entry.Offsets[1]) > size {
			return fmt.Errorf("tensor %q has the offsets %v in %d bytes of data", name, entry.Offsets, size)
		}
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		x, y := entries[a].Offsets, entries[b].Offsets
		return cmp.Or(slices.Compare(x, y), cmp.Compare(a, b))
	})
	end := 0
	for _, name := range names {
		offsets := entries[name].Offsets
		if offsets[0] != end {
			return fmt.Errorf("tensor %q begins at byte %d of the data; the tensors before it end at %d", name, offsets[0], end)
		}
		end = offsets[1]
	}
	if int64(end) != size {
		return fmt.Errorf("the tensors end at byte %d; the file has %d bytes of data", end, size)
	}
	return nil
}

// array returns the tensor without its elements, whose size it has checked.
func (e tensorEntry) array(name string) (*Array, error) {
	dtype, ok := safetensorsTypes[e.DType]
	if !ok {
		return nil, fmt.Errorf("the elements are %q; there are %s", e.DType, typeNames())
	}
	a := &Array{Name: name, Type: dtype, Shape: e.Shape}
	if e.DType == "I16" || e.DType == "U16" {
		a.Shape = append(slices.Clone(a.Shape), 2)
	}
	elements, err := count(a.Shape)
	if err != nil {
		return nil, err
	}
	if bytes := e.Offsets[1] - e.Offsets[0]; elements*dtype.Bytes() != bytes {
		return nil, fmt.Errorf("the shape %v of %s needs %d bytes; the offsets have %d", e.Shape, e.DType, elements*dtype.Bytes(), bytes)
	}
	return a, nil
}

// WriteSafetensors writes a safetensors file. Tensors with larger elements stand first, so that all
// are aligned.
func WriteSafetensors(w io.Writer, arrays []*Array) error {
	arrays = slices.Clone(arrays)
	slices.SortStableFunc(arrays, func(a, b *Array) int { return cmp.Compare(b.Type.Bytes(), a.Type.Bytes()) })
	entries := make(map[string]tensorEntry, len(arrays))
	end := 0
	for _, a := range arrays {
		if _, twice := entries[a.Name]; twice {
			return fmt.Errorf("two tensors have the name %q", a.Name)
		}
		entries[a.Name] = tensorEntry{safetensorsNames[a.Type], append([]int{}, a.Shape...), []int{end, end + len(a.Data)}}
		end += len(a.Data)
	}
	header, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)); err != nil {
		return err
	}
	for _, a := range arrays {
		if _, err := w.Write(a.Data); err != nil {
			return err
		}
	}
	return nil
}
