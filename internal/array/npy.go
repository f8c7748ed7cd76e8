package array

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.starlark.net/syntax"
)

const (
	npyMagic = "\x93NUMPY"

	// maxNPYHeader bounds the header. NumPy itself refuses more than 10 000 bytes.
	maxNPYHeader = 1 << 16
)

// npyTypes are the element types of a .npy file, without the byte order, and of what bytes they are.
// A Boolean is a byte. NumPy stores types that it does not know, such as bfloat16, as V2 and V1.
var npyTypes = map[string]struct {
	dtype DType
	word  int // bytes that the byte order concerns
}{
	"f8": {F64, 8}, "f4": {F32, 4}, "f2": {F16, 2},
	"i1": {I8, 1}, "u1": {U8, 1}, "b1": {U8, 1}, "V1": {U8, 1},
	"i4": {I32, 4}, "u4": {U32, 4}, "i8": {I64, 8}, "u8": {U64, 8},
	"i2": {U8, 2}, "u2": {U8, 2}, "V2": {U8, 2},
}

// npyHeader is the header of a .npy file.
type npyHeader struct {
	descr   string
	fortran bool
	shape   []int
}

// ReadNPY reads a .npy file of version 1 to 3, in C or Fortran order and either byte order.
// Elements of 16 bits that are no floats are read as U8 with a last extent of 2.
func ReadNPY(r io.Reader) (*Array, error) { return readNPY(r, nil) }

// readNPY reads a .npy file. The shape is compared with the wanted one before the elements are read.
func readNPY(r io.Reader, want []int) (*Array, error) {
	text, err := readNPYHeader(r)
	if err != nil {
		return nil, err
	}
	h, err := parseNPYHeader(text)
	if err != nil {
		return nil, err
	}
	element, ok := npyTypes[h.descr[1:]]
	if !ok {
		return nil, fmt.Errorf("the elements have the NumPy type %q; there are %s", h.descr, typeNames())
	}
	a := &Array{Type: element.dtype, Shape: h.shape}
	if element.word != element.dtype.Bytes() {
		a.Shape = append(slices.Clone(a.Shape), element.word)
	}
	elements, err := count(h.shape)
	if err == nil {
		err = a.checkShape(want)
	}
	if err != nil {
		return nil, err
	}
	data, err := readExactly(r, elements*element.word)
	if err != nil {
		return nil, fmt.Errorf("%d elements of %d bytes: %w", elements, element.word, err)
	}
	if h.descr[0] == '>' {
		for word := range slices.Chunk(data, element.word) {
			slices.Reverse(word)
		}
	}
	if h.fortran {
		data = fromFortran(data, h.shape, element.word)
	}
	a.Data = data
	return a, nil
}

// readExactly reads n bytes to the end of a file. It allocates what it reads, and not more than
// maxAnyShape of what the header of a damaged file claims.
func readExactly(r io.Reader, n int) ([]byte, error) {
	var data bytes.Buffer
	data.Grow(min(n, maxAnyShape) + bytes.MinRead)
	got, err := data.ReadFrom(io.LimitReader(r, int64(n)+1))
	switch {
	case err != nil:
		return nil, err
	case got < int64(n):
		return nil, fmt.Errorf("the file ends after %d bytes", got)
	case got > int64(n):
		return nil, errors.New("the file goes on behind them")
	}
	return data.Bytes(), nil
}

// readNPYHeader returns the dictionary of the header.
func readNPYHeader(r io.Reader) (string, error) {
	var start [8]byte
	if _, err := io.ReadFull(r, start[:]); err != nil || string(start[:6]) != npyMagic {
		return "", errors.New("it is no .npy file")
	}
	length := make([]byte, 4)
	switch start[6] {
	case 1:
		length = length[:2]
	case 2, 3:
	default:
		return "", fmt.Errorf("version %d of .npy files is unknown", start[6])
	}
	if _, err := io.ReadFull(r, length); err != nil {
		return "", errors.New("the header is cut off")
	}
	n := binary.LittleEndian.Uint32(append(length, 0, 0)[:4])
	if n > maxNPYHeader {
		return "", fmt.Errorf("the header has %d bytes; at most %d are read", n, maxNPYHeader)
	}
	header := make([]byte, n)
	if _, err := io.ReadFull(r, header); err != nil {
		return "", errors.New("the header is cut off")
	}
	return string(header), nil
}

// parseNPYHeader parses a header such as {'descr': '<f4', 'fortran_order': False, 'shape': (3,)}.
// The part of Python that it uses is also Starlark.
func parseNPYHeader(text string) (h npyHeader, err error) {
	wrong := fmt.Errorf("the header %.80q is wrong", strings.TrimSpace(text))
	expr, err := new(syntax.FileOptions).ParseExpr("header", strings.TrimSpace(text), 0)
	if err != nil {
		return h, wrong
	}
	dict, ok := expr.(*syntax.DictExpr)
	if !ok {
		return h, wrong
	}
	seen := 0
	for _, item := range dict.List {
		entry := item.(*syntax.DictEntry)
		key, _ := entry.Key.(*syntax.Literal)
		ok := false
		if key != nil {
			switch key.Value {
			case "descr":
				h.descr, ok = npyDescr(entry.Value)
			case "fortran_order":
				h.fortran, ok = npyBool(entry.Value)
			case "shape":
				h.shape, ok = npyShape(entry.Value)
			}
		}
		if !ok {
			return h, wrong
		}
		seen++
	}
	if seen != 3 || h.descr == "" || h.shape == nil {
		return h, wrong
	}
	return h, nil
}

// npyDescr returns a type with its byte order, such as <f4.
func npyDescr(e syntax.Expr) (string, bool) {
	if literal, ok := e.(*syntax.Literal); ok {
		text, ok := literal.Value.(string)
		return text, ok && len(text) >= 3 && strings.ContainsRune("<>|=", rune(text[0]))
	}
	return "", false
}

func npyBool(e syntax.Expr) (value, ok bool) {
	name, ok := e.(*syntax.Ident)
	if !ok {
		return false, false
	}
	return name.Name == "True", name.Name == "True" || name.Name == "False"
}

// npyShape returns the integers of a tuple. The tuple of one integer is (3,).
func npyShape(e syntax.Expr) ([]int, bool) {
	if paren, ok := e.(*syntax.ParenExpr); ok {
		e = paren.X
	}
	tuple, ok := e.(*syntax.TupleExpr)
	if !ok {
		return nil, false
	}
	shape := make([]int, 0, len(tuple.List)+1)
	for _, item := range tuple.List {
		literal, ok := item.(*syntax.Literal)
		if !ok {
			return nil, false
		}
		extent, ok := literal.Value.(int64)
		if !ok {
			return nil, false
		}
		shape = append(shape, int(extent))
	}
	return shape, true
}

// fromFortran brings elements from column-major to row-major order.
func fromFortran(data []byte, shape []int, size int) []byte {
	ordered := make([]byte, len(data))
	strides := make([]int, len(shape)) // of the column-major data, in elements
	stride := 1
	for i, extent := range shape {
		strides[i] = stride
		stride *= extent
	}
	index := make([]int, len(shape))
	from := 0
	for to := 0; to < len(data); to += size {
		copy(ordered[to:to+size], data[from*size:])
		for i := len(index) - 1; i >= 0; i-- {
			index[i]++
			from += strides[i]
			if index[i] < shape[i] {
				break
			}
			from -= index[i] * strides[i]
			index[i] = 0
		}
	}
	return ordered
}

// WriteNPY writes a .npy file. BF16 and 8-bit floats, which NumPy does not know, are written as
// float32.
func WriteNPY(w io.Writer, a *Array) error {
	if a.Type.Float() && a.Type != F64 && a.Type != F32 && a.Type != F16 {
		a = FromFloats(F32, a.Shape, a.Floats())
	}
	kind := "f"
	if !a.Type.Float() {
		kind = string(a.Type[0])
	}
	extents := make([]string, len(a.Shape))
	for i, extent := range a.Shape {
		extents[i] = fmt.Sprint(extent)
	}
	shape := strings.Join(extents, ", ")
	if len(extents) == 1 {
		shape += ","
	}
	header := fmt.Sprintf("{'descr': '<%s%d', 'fortran_order': False, 'shape': (%s), }", kind, a.Type.Bytes(), shape)
	// The data begin at a multiple of 64 bytes, and the header ends with a newline.
	start := len(npyMagic) + 4
	header += strings.Repeat(" ", 63-(start+len(header))%64) + "\n"
	prefix := binary.LittleEndian.AppendUint16([]byte(npyMagic+"\x01\x00"), uint16(len(header)))
	if _, err := w.Write(append(prefix, header...)); err != nil {
		return err
	}
	_, err := w.Write(a.Data)
	return err
}
