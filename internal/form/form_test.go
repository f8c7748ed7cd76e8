package form

import (
	"strings"
	"testing"
	"testing/fstest"
)

// A kernel whose launch cannot be evaluated, or that the libraries cannot launch, is an error.
func TestDeclared(t *testing.T) {
	t.Parallel()
	const kernel = `name = "append"
about = "a"
archs = ["sm_90a"]
[shapes]
one = { n = 4 }
two = { n = 8 }
[[arg]]
name = "k"
type = "f16"
shape = ["n", 64]
[[arg]]
name = "y"
type = "f32"
shape = ["n"]
out = true
[[arg]]
name = "k_map"
tensormap = { arg = "k", box = [16, 1], swizzle = "32B" }
[launch]
grid = [1]
block = ["THREADS"]
shared = "4 // SHARE"
[reference]
python = "r.py"
[[knob]]
name = "THREADS"
values = [32]
default = 32
about = "a"
[[knob]]
name = "SHARE"
values = [0, 1]
default = 1
about = "a"
[run]
sim_shapes = ["one", "two"]
`
	folder := func(text string) fstest.MapFS {
		return fstest.MapFS{"kernel.toml": {Data: []byte(text)}, "append.cu": {Data: []byte("")}, "other.cu": {Data: []byte("")}, "r.py": {Data: []byte("")}}
	}
	forms, err := Declared(folder(kernel), "sm_90a")
	if err != nil || len(forms) != 1 || forms[0].Threads != 32 || forms[0].SharedBytes != 4 || forms[0].Arguments[0].Name != "k" {
		t.Errorf("%+v, %v", forms, err)
	}
	if forms, err := Declared(folder(kernel), "sm_80"); err != nil || len(forms) != 0 {
		t.Errorf("for sm_80: %+v, %v", forms, err)
	}
	for want, change := range map[string][2]string{
		"floored division by zero":                            {"default = 1", "default = 0"},
		`other: the library cannot launch the kernel "other"`: {`name = "append"`, `name = "other"`},
		"it has no knob THREADS, which the library needs":     {"THREADS", "WIDTH"},
		"k_map: its box depends on the shape":                 {`box = [16, 1]`, `box = [16, "n"]`},
		"k_map: it describes x; the library has maps of":      {`"k"`, `"x"`},
	} {
		broken := strings.ReplaceAll(kernel, change[0], change[1])
		if _, err := Declared(folder(broken), "sm_90a"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
}
