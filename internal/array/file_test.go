package array

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// npy makes a .npy file of version 1.
func npy(header string, data ...byte) string {
	text := npyMagic + "\x01\x00" + string(binary.LittleEndian.AppendUint16(nil, uint16(len(header)))) + header
	return text + string(data)
}

// safetensors makes a file from its JSON header.
func safetensors(header string, data ...byte) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + string(data)
}

func TestNPYRoundTrip(t *testing.T) {
	for _, dtype := range DTypes {
		for _, shape := range [][]int{{}, {3}, {2, 3}, {0, 4}, {1, 2, 1, 2}} {
			n, _ := count(shape)
			fill := "normal"
			if !dtype.Float() {
				fill = "iota"
			}
			a, err := Draw(dtype, shape, fill, 0, 0, uint64(n), "x")
			if err != nil {
				t.Fatal(err)
			}
			var file bytes.Buffer
			if err := WriteNPY(&file, a); err != nil {
				t.Fatal(err)
			}
			if start := file.Len() - len(a.Floats())*npyWidth(dtype); start%64 != 0 {
				t.Errorf("%s: the data begin at byte %d", dtype, start)
			}
			got, err := ReadNPY(&file)
			if err != nil {
				t.Fatal(err)
			}
			back, err := got.Convert(dtype)
			if err != nil || !bytes.Equal(back.Data, a.Data) || !slices.Equal(back.Shape, a.Shape) {
				t.Errorf("%s %v: %v, %v", dtype, shape, back, err)
			}
		}
	}
}

// npyWidth is the size of an element in a .npy file.
func npyWidth(t DType) int {
	if t == BF16 || t == E4M3 || t == E5M2 {
		return 4
	}
	return t.Bytes()
}

func TestReadNPY(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       Array
	}{
		{"big-endian", npy("{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }\n", 0, 0, 0, 1, 0, 0, 1, 0), Array{Type: I32, Shape: []int{2}, Data: []byte{1, 0, 0, 0, 0, 1, 0, 0}}},
		{"Fortran order", npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}", 0, 3, 1, 4, 2, 5), Array{Type: U8, Shape: []int{2, 3}, Data: []byte{0, 1, 2, 3, 4, 5}}},
		{"Fortran order of pairs", npy("{'descr': '<u2', 'fortran_order': True, 'shape': (2, 2)}", 0, 1, 4, 5, 2, 3, 6, 7), Array{Type: U8, Shape: []int{2, 2, 2}, Data: []byte{0, 1, 2, 3, 4, 5, 6, 7}}},
		{"big-endian pairs", npy("{'descr': '>u2', 'fortran_order': False, 'shape': (1,)}", 0x3f, 0x80), Array{Type: U8, Shape: []int{1, 2}, Data: []byte{0x80, 0x3f}}},
		{"a bfloat16 of another package", npy("{'descr': '<V2', 'fortran_order': False, 'shape': (1,)}", 0x80, 0x3f), Array{Type: U8, Shape: []int{1, 2}, Data: []byte{0x80, 0x3f}}},
		{"Booleans", npy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", 0, 1), Array{Type: U8, Shape: []int{2}, Data: []byte{0, 1}}},
		{"a scalar", npy("{'descr': '<f2', 'fortran_order': False, 'shape': ()}", 0, 0x3c), Array{Type: F16, Shape: []int{}, Data: []byte{0, 0x3c}}},
		{"keys in another order", npy("{'shape': (1,), 'fortran_order': False, 'descr': '|i1'}", 9), Array{Type: I8, Shape: []int{1}, Data: []byte{9}}},
		{"version 3", npyMagic + "\x03\x00\x39\x00\x00\x00{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}  \x07", Array{Type: U8, Shape: []int{1}, Data: []byte{7}}},
	} {
		got, err := ReadNPY(strings.NewReader(c.file))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if diff := cmp.Diff(c.want, *got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestReadNPYRefuses(t *testing.T) {
	header := func(h string) string { return fmt.Sprintf("the header %q is wrong", h) }
	for file, want := range map[string]string{
		"":                                    "it is no .npy file",
		"PK\x03\x04 a zip file":               "it is no .npy file",
		npyMagic + "\x04\x00":                 "version 4 of .npy files is unknown",
		npyMagic + "\x01\x00\x01":             "the header is cut off",
		npyMagic + "\x01\x00\xff\x00{}":       "the header is cut off",
		npyMagic + "\x02\x00\x01\x00\x01\x00": "the header has 65537 bytes; at most 65536 are read",
		npy("{"):                              header("{"),
		npy("7"):                              header("7"),
		npy("{}"):                             header("{}"),
		npy("{7: 8}"):                         header("{7: 8}"),
		npy("{x: 8}"):                         header("{x: 8}"),
		npy("{'descr': 8}"):                   header("{'descr': 8}"),
		npy("{'descr': [('a', '<f4')]}"):      header("{'descr': [('a', '<f4')]}"),
		npy("{'descr': 'f4'}"):                header("{'descr': 'f4'}"),
		npy("{'fortran_order': 1}"):           header("{'fortran_order': 1}"),
		npy("{'fortran_order': None}"):        header("{'fortran_order': None}"),
		npy("{'shape': (2)}"):                 header("{'shape': (2)}"),
		npy("{'shape': (a, b)}"):              header("{'shape': (a, b)}"),
		npy("{'shape': ('a', 'b')}"):          header("{'shape': ('a', 'b')}"),
		npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}"):                     `the elements have the NumPy type "<c8"; there are f64, f32, f16, bf16, e4m3, e5m2, i8, u8, i32, u32, i64, u64`,
		npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}"): "the shape [4611686018427387904 4] is no size of an array",
		npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,)}", 1, 2, 3):   "1000000000 elements of 4 bytes: the file ends after 3 bytes",
		npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 1, 2, 3, 4, 5):      "1 elements of 4 bytes: the file goes on behind them",
	} {
		if _, err := ReadNPY(strings.NewReader(file)); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", file, err, want)
		}
	}
}

var errBroken = errors.New("broken")

// broken fails after some bytes.
type broken struct{ left int }

func (b *broken) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errBroken
	}
	return len(p), nil
}

func TestFilesThatCannotBeWritten(t *testing.T) {
	a := &Array{Name: "x", Type: U8, Shape: []int{4}, Data: make([]byte, 4)}
	for _, left := range []int{0, 130} {
		if err := WriteNPY(&broken{left}, a); !errors.Is(err, errBroken) {
			t.Errorf("after %d bytes: %v", left, err)
		}
	}
	for _, left := range []int{0, 64} {
		if err := WriteSafetensors(&broken{left}, []*Array{a}); !errors.Is(err, errBroken) {
			t.Errorf("after %d bytes: %v", left, err)
		}
	}
	if err := WriteSafetensors(io.Discard, []*Array{a, a}); err == nil || err.Error() != `two tensors have the name "x"` {
		t.Errorf("two tensors of one name: %v", err)
	}
}

func TestSafetensorsRoundTrip(t *testing.T) {
	var arrays []*Array
	want := map[string]*Array{}
	for i := len(DTypes) - 1; i >= 0; i-- { // small elements first
		a := FromFloats(DTypes[i], []int{3, 1}, []float64{1, 2, 3})
		a.Name = "of " + string(DTypes[i])
		arrays = append(arrays, a)
		want[a.Name] = a
	}
	scalar := &Array{Name: "scalar", Type: F32, Shape: []int{}, Data: make([]byte, 4)}
	arrays, want["scalar"] = append(arrays, scalar), scalar
	var file bytes.Buffer
	if err := WriteSafetensors(&file, arrays); err != nil {
		t.Fatal(err)
	}
	got, err := ReadSafetensors(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadSafetensors(t *testing.T) {
	file := safetensors(`{"__metadata__":{"format":"pt"},"w":{"dtype":"I16","shape":[1],"data_offsets":[1,3]},"b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}} `, 1, 2, 3)
	got, err := ReadSafetensors(strings.NewReader(file), int64(len(file)))
	want := map[string]*Array{
		"w": {Name: "w", Type: U8, Shape: []int{1, 2}, Data: []byte{2, 3}},
		"b": {Name: "b", Type: U8, Shape: []int{1}, Data: []byte{1}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestReadSafetensorsRefuses(t *testing.T) {
	for file, want := range map[string]string{
		"":                                   "it is no safetensors file",
		"1234567":                            "it is no safetensors file",
		"\x01\x00\x00\x00\x00\x00\x00\x00":   "it is no safetensors file: a header of 1 bytes in a file of 8",
		"\xff\xff\xff\xff\xff\xff\xff\xff{}": "it is no safetensors file: a header of 18446744073709551615 bytes in a file of 10",
		safetensors("[]"):                    "the header of the safetensors file is no JSON object",
		safetensors(`{"a`):                   "the header of the safetensors file: unexpected EOF",
		safetensors(`{"a":`):                 `the header of the safetensors file: tensor "a": EOF`,
		safetensors(`{"a":{}`):               "the header of the safetensors file: EOF",
		safetensors(`{"a":{"dtype":7}}`):     `the header of the safetensors file: tensor "a" has no dtype, shape and data_offsets`,
		safetensors(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}}`): `the header of the safetensors file has tensor "a" twice`,
		safetensors(`{"a":{}}`): `tensor "a" has the offsets [] in 0 bytes of data`,
		safetensors(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 1):                                                           `tensor "a" has the offsets [0 2] in 1 bytes of data`,
		safetensors(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1):                                                           `tensor "a" has the offsets [1 0] in 1 bytes of data`,
		safetensors(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 1, 2, 3): `tensor "b" begins at byte 1 of the data; the tensors before it end at 2`,
		safetensors(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1, 2):                                                        "the tensors end at byte 1; the file has 2 bytes of data",
		safetensors(`{"a":{"dtype":"C64","shape":[1],"data_offsets":[0,1]}}`, 1):                                                          `tensor "a": the elements are "C64"; there are f64, f32, f16, bf16, e4m3, e5m2, i8, u8, i32, u32, i64, u64`,
		safetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1]}}`, 1):                                                          `tensor "a": the shape [1] of F32 needs 4 bytes; the offsets have 1`,
		safetensors(`{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1):                                                          `tensor "a": the shape [-1] is no size of an array`,
	} {
		if _, err := ReadSafetensors(strings.NewReader(file), int64(len(file))); err == nil || err.Error() != want {
			t.Errorf("%q: %v; want %s", file, err, want)
		}
	}
}

// A file that has become shorter since its size was read is an error, not zeros.
func TestReadSafetensorsThatShrinks(t *testing.T) {
	file := safetensors(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 1, 2, 3, 4)
	for _, n := range []int{20, len(file) - 2} {
		if _, err := ReadSafetensors(strings.NewReader(file[:n]), int64(len(file))); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: %v", n, len(file), err)
		}
	}
}

// streamed hides ReadAt of a file.
type streamed struct{ fs.FS }

func (s streamed) Open(name string) (fs.File, error) {
	file, err := s.FS.Open(name)
	return struct{ fs.File }{file}, err
}

func TestReadFile(t *testing.T) {
	two := safetensors(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 7, 8)
	folder := fstest.MapFS{
		"x.npy":           {Data: []byte(npy("{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", 9))},
		"bad.npy":         {Data: []byte("nothing")},
		"one.safetensors": {Data: []byte(safetensors(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 5))},
		"two.safetensors": {Data: []byte(two)},
		"bad.safetensors": {Data: []byte("nothing at all")},
		"x.bin":           {},
	}
	for _, c := range []struct{ path, tensor, want string }{
		{"x.npy", "", "[9]"},
		{"one.safetensors", "", "[5]"},
		{"two.safetensors", "b", "[8]"},
		{"x.npy", "t", "x.npy: a .npy file has one array without a name; leave out #t"},
		{"two.safetensors", "", "two.safetensors: it has 2 tensors (a, b); name one by FILE#TENSOR"},
		{"two.safetensors", "c", `two.safetensors: it has no tensor "c"; it has a, b`},
		{"bad.npy", "", "bad.npy: it is no .npy file"},
		{"bad.safetensors", "", "bad.safetensors: it is no safetensors file: a header of 2334956330817974126 bytes in a file of 14"},
		{"x.bin", "", "x.bin: want a file .npy or .safetensors"},
		{"none.npy", "", "open none.npy: file does not exist"},
	} {
		for _, fsys := range []fs.FS{folder, streamed{folder}} {
			got := ""
			if a, err := ReadFile(fsys, c.path, c.tensor, nil); err != nil {
				got = err.Error()
			} else {
				got = fmt.Sprint(a.Ints())
			}
			if got != c.want {
				t.Errorf("%s#%s: %s; want %s", c.path, c.tensor, got, c.want)
			}
		}
	}
}

// endless is the body of a file that must not be read.
type endless struct{ t *testing.T }

func (e endless) Read([]byte) (int, error) {
	e.t.Error("the elements of an array of another shape are read")
	return 0, io.EOF
}

// The shape of a file is compared before its elements are read.
func TestShapeBeforeElements(t *testing.T) {
	header := npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 8), }")
	_, err := readNPY(io.MultiReader(strings.NewReader(header), endless{t}), []int{4})
	if other, ok := errors.AsType[*ShapeError](err); !ok || !slices.Equal(other.Has, []int{1000000000, 8}) {
		t.Error(err)
	}
	folder := fstest.MapFS{
		"bits.npy": {Data: []byte(npy("{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }", 1, 2, 3, 4))},
		"x.safetensors": {Data: []byte(safetensors(
			`{"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}, "b": {"dtype": "U8", "shape": [1], "data_offsets": [2, 3]}}`, 1, 2, 3))},
		"dir.npy/x": {},
	}
	if _, err := ReadFile(folder, "bits.npy", "", []int{2}); err != nil { // the bits of a bf16
		t.Error(err)
	}
	if a, err := ReadFile(folder, "x.safetensors", "b", []int{1}); err != nil || a.Data[0] != 3 {
		t.Error(a, err)
	}
	if _, err := ReadFile(folder, "x.safetensors", "a", []int{1}); !errors.As(err, new(*ShapeError)) {
		t.Error(err)
	}
	if _, err := ReadFile(folder, "dir.npy", "", nil); err == nil || err.Error() != "dir.npy: it is not a regular file" {
		t.Error(err)
	}
}

// A header with a million names took 40 s, and a message about a missing one named them all.
func TestManyTensors(t *testing.T) {
	var header strings.Builder
	for i := range maxTensors + 1 {
		fmt.Fprintf(&header, `,"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i)
	}
	text := safetensors("{" + header.String()[1:] + "}")
	_, err := ReadSafetensors(strings.NewReader(text), int64(len(text)))
	if err == nil || !strings.Contains(err.Error(), "more than 131072 tensors") {
		t.Error(err)
	}
	if got := Names(strings.Split(strings.Repeat("x,", 22)+"x", ",")); got != strings.Repeat("x, ", 19)+"x and 3 more" {
		t.Error(got)
	}
}

// NumPy reads what WriteNPY writes, and ReadNPY reads what NumPy writes.
func TestNumPy(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || exec.Command(python, "-c", "import numpy").Run() != nil {
		t.Skip("there is no NumPy")
	}
	dir := t.TempDir()
	for _, dtype := range DTypes {
		var file bytes.Buffer
		if err := WriteNPY(&file, FromFloats(dtype, []int{2, 3}, []float64{0, 1, 2, 3, 4, 5})); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, string(dtype)+".npy"), file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program := `
import glob, numpy as np
for path in sorted(glob.glob("*.npy")):
    x = np.load(path)
    assert (x == np.arange(6).reshape(2, 3)).all(), (path, x)
    np.save("c-" + path, x * 2)
    np.save("fortran-" + path, np.asfortranarray(x * 2))
    np.save("big-" + path, (x * 2).astype(x.dtype.newbyteorder(">")))
np.save("bits.npy", np.array([0x3f80, 0x4000], np.uint16))
`
	command := exec.Command(python, "-c", program)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, dtype := range DTypes {
		for _, form := range []string{"c-", "fortran-", "big-"} {
			a, err := ReadFile(os.DirFS(dir), form+string(dtype)+".npy", "", nil)
			if err != nil {
				t.Fatal(err)
			}
			if a, err = a.Convert(dtype); err != nil || !slices.Equal(a.Floats(), []float64{0, 2, 4, 6, 8, 10}) || !slices.Equal(a.Shape, []int{2, 3}) {
				t.Errorf("%s%s: %v, %v", form, dtype, a, err)
			}
		}
	}
	bits, err := ReadFile(os.DirFS(dir), "bits.npy", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if bits, err = bits.Convert(BF16); err != nil || !slices.Equal(bits.Floats(), []float64{1, 2}) {
		t.Errorf("the bits of bf16: %v, %v", bits, err)
	}
}

func FuzzReadNPY(f *testing.F) {
	f.Add([]byte(npy("{'descr': '>i4', 'fortran_order': True, 'shape': (2, 1), }\n", 0, 0, 0, 1, 0, 0, 1, 0)))
	f.Add([]byte(npy("{'descr': '<u2', 'fortran_order': False, 'shape': ()}", 1, 2)))
	f.Add([]byte(npyMagic + "\x03\x00\x39\x00\x00\x00{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}  \x07"))
	f.Fuzz(func(t *testing.T, file []byte) {
		a, err := ReadNPY(bytes.NewReader(file))
		if err != nil {
			return
		}
		checkAgain(t, a, func(w io.Writer) error { return WriteNPY(w, a) }, func(again []byte) (*Array, error) {
			return ReadNPY(bytes.NewReader(again))
		})
	})
}

func FuzzReadSafetensors(f *testing.F) {
	f.Add([]byte(safetensors(`{"__metadata__":{"format":"pt"},"w":{"dtype":"I16","shape":[1],"data_offsets":[1,3]},"b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}} `, 1, 2, 3)))
	f.Fuzz(func(t *testing.T, file []byte) {
		arrays, err := ReadSafetensors(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		for name, a := range arrays {
			checkAgain(t, a, func(w io.Writer) error { return WriteSafetensors(w, []*Array{a}) }, func(again []byte) (*Array, error) {
				arrays, err := ReadSafetensors(bytes.NewReader(again), int64(len(again)))
				return arrays[name], err
			})
		}
	})
}

// checkAgain writes an array that was read, and reads it again.
func checkAgain(t *testing.T, a *Array, write func(io.Writer) error, read func([]byte) (*Array, error)) {
	t.Helper()
	if a.Len()*a.Type.Bytes() != len(a.Data) {
		t.Fatalf("%v of %s has %d bytes", a.Shape, a.Type, len(a.Data))
	}
	var file bytes.Buffer
	if err := write(&file); err != nil {
		t.Fatal(err)
	}
	again, err := read(file.Bytes())
	if err != nil || again == nil || !bytes.Equal(again.Data, a.Data) || !slices.Equal(again.Shape, a.Shape) || again.Type != a.Type {
		t.Fatalf("%v became %v, %v", a, again, err)
	}
}

// An array whose shape nobody expects has a limit: a sparse file takes no place on a disk.
func TestSparseArray(t *testing.T) {
	dir := t.TempDir()
	header := "{'descr': '<f4', 'fortran_order': False, 'shape': (2147483648,)}\n"
	tensor := `{"x":{"dtype":"F32","shape":[2147483648],"data_offsets":[0,8589934592]}}`
	for name, start := range map[string]string{"x.npy": npy(header), "x.safetensors": string([]byte{byte(len(tensor)), 0, 0, 0, 0, 0, 0, 0}) + tensor} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(start), 0o644), os.Truncate(path, int64(len(start))+8<<30)); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(os.DirFS(dir), name, "", nil); err == nil || !strings.Contains(err.Error(), "it has 8192 MB; at most 256 MB of an array are read") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
