package sdpa

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"attune/internal/array"
)

// Tensors of all formats come back from a file, E4M3 with its factors.
func TestSafetensors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	random := rand.New(rand.NewPCG(1, 2))
	want := map[string]*Tensor{}
	for _, dtype := range []DType{E4M3, FP16, BF16, FP32} {
		want[dtype.String()] = randomTensor(t, random, dtype, [4]int{2, 3, 4, 5})
	}
	want["plain"] = &Tensor{DType: E4M3, Shape: [4]int{1, 1, 1, 2}, Data: []byte{1, 2}}
	want["FP16.descale"] = randomTensor(t, random, FP32, [4]int{1, 1, 2, 3}) // no factors: FP16 has none
	for range 2 {                                                            // the second replaces the first
		if err := WriteSafetensors(path, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadSafetensors(path)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d tensors, %v", len(got), err)
	}
	for name, x := range want {
		y := got[name]
		if y == nil || y.DType != x.DType || y.Shape != x.Shape || !bytes.Equal(y.Data, x.Data) || !slices.Equal(y.Descale, x.Descale) {
			t.Errorf("%s came back as %+v", name, y)
		}
	}
	if some, err := ReadSafetensors(path, "plain", "BF16"); err != nil || len(some) != 2 || some["plain"].Descale != nil {
		t.Errorf("two by name: %v, %v", some, err)
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files are left, %v", len(files), err)
	}
	if info, err := files[0].Info(); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the file is %v, %v", info, err)
	}
}

// A file that is damaged, or has what tensors cannot be, is an error that names the file.
func TestSafetensorsErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, arrays ...*array.Array) string {
		var file bytes.Buffer
		if err := array.WriteSafetensors(&file, arrays); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	of := func(name string, t array.DType, shape ...int) *array.Array {
		a := array.FromFloats(t, shape, make([]float64, (&array.Array{Shape: shape}).Len()))
		a.Name = name
		return a
	}
	good := write("good", of("x", array.F32, 3, 2))
	mixed := write("mixed", of("x", array.F32, 3, 2), of("index", array.I64, 4))
	for _, test := range []struct{ path, name, want string }{
		{filepath.Join(dir, "missing"), "", "missing: no such file"},
		{dir, "", dir},
		{mixed, "", `tensor "index" has elements of i64; want f8_e4m3, f16, bf16 or f32, or name the tensors to read`},
		{good, "y", `it has no tensor "y"; it has x`},
		{write("rank", of("x", array.F32, 1, 1, 1, 1, 1)), "", `tensor "x" has the shape [1 1 1 1 1]`},
		{write("empty", of("x", array.F32, 0, 3)), "", `tensor "x": the shape [1 1 0 3] has rows 0`},
		{write("types", of("x", array.E4M3, 1, 2), of("x.descale", array.F16, 1)), "", `tensor "x.descale" has elements of f16; factors are f32`},
		{write("count", of("x", array.E4M3, 1, 2), of("x.descale", array.F32, 3)), "", `tensor "x" has 3 descale factors`},
	} {
		var names []string
		if test.name != "" {
			names = []string{test.name}
		}
		if _, err := ReadSafetensors(test.path, names...); err == nil || !strings.Contains(err.Error(), test.want) || strings.Count(err.Error(), "sdpa: ") != 1 {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
	if x, err := ReadSafetensors(mixed, "x"); err != nil || x["x"].Shape != [4]int{1, 1, 3, 2} {
		t.Errorf("one by name: %v, %v", x, err)
	}
	x := &Tensor{DType: E4M3, Shape: [4]int{1, 1, 1, 2}, Data: []byte{1, 2}, Descale: []float32{1}}
	for want, tensors := range map[string]map[string]*Tensor{
		`tensor "x" is nil`:                     {"x": nil},
		`two tensors have the name "x.descale"`: {"x": x, "x.descale": x},
	} {
		if err := WriteSafetensors(filepath.Join(dir, "new"), tensors); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for _, path := range []string{filepath.Join(dir, "none", "new"), dir} {
		if err := WriteSafetensors(path, nil); err == nil {
			t.Errorf("%s: a missing folder, or a folder, is no error", path)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*new*")); len(files) != 0 {
		t.Errorf("%v are left", files)
	}
}

// No file makes ReadSafetensors panic.
func FuzzReadSafetensors(f *testing.F) {
	header := `{"x":{"dtype":"F8_E4M3","shape":[1,2],"data_offsets":[0,2]},"x.descale":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}`
	f.Add([]byte(fmt.Sprintf("%c\x00\x00\x00\x00\x00\x00\x00%s", len(header), header) + "\x01\x02\x00\x00\x80\x3f"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		tensors, err := ReadSafetensors(path)
		if err != nil {
			return
		}
		for name, x := range tensors {
			if err := x.check(name); err != nil {
				t.Errorf("it accepts %v", err)
			}
		}
	})
}
