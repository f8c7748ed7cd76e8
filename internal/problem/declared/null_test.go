package declared

import (
	"math"
	"slices"
	"strings"
	"testing"

	"attune/internal/device"
	"attune/internal/problem"
	"attune/internal/spec"
)

// conditional is a kernel.toml whose input w and output z are there where the axis more is 1.
const conditional = `name = "scale"
[shapes]
plain = { n = 4, more = 0 }
full = { n = 4, more = 1 }
[[arg]]
name = "x"
type = "f32"
shape = ["n"]
[[arg]]
name = "w"
type = "f32"
shape = ["more"]
when = "more"
[[arg]]
name = "y"
type = "f32"
shape = ["n"]
out = true
[[arg]]
name = "z"
type = "f32"
shape = [2]
out = true
when = "more * THREADS"
[[arg]]
name = "x_map"
tensormap = { arg = "x", box = [4], swizzle_bytes = "32 // n * THREADS // 8" }
[launch]
grid = [1]
block = ["THREADS"]
[[knob]]
name = "THREADS"
values = [32, 64]
default = 32
`

// A buffer whose condition does not hold is a null pointer, takes no memory, and is no output. Each
// kind of reference is asked for the others alone.
func TestNullPointers(t *testing.T) {
	python := "def reference(axes, inputs):\n" +
		"    zeros = inputs['x'] * 0\n" +
		"    return {'y': zeros, 'z': zeros[:2] + (inputs['w'] * 0)} if axes['more'] else {'y': zeros}\n"
	for kind, text := range map[string]string{"source": "naive.cu", "python": "reference.py"} {
		t.Run(kind, func(t *testing.T) {
			launcher := newTrusted()
			if kind == "python" {
				needsNumPy(t)
			}
			p := load(t, conditional+"[reference]\n"+kind+" = \""+text+"\"\n", map[string]string{"naive.cu": "", "reference.py": python})
			refs := stop(t, p.References(problem.Options{Launch: launcher.launch}))
			b := problem.Build{Variant: p.kernel.Stages[0].Variant(), Image: launcher.image}
			for i, want := range []struct {
				size    float64
				present string
				outputs [][]byte
			}{
				{8, "x y", [][]byte{make([]byte, 16)}},
				{11, "x w y z", [][]byte{make([]byte, 16), make([]byte, 8)}},
			} {
				shape := p.kernel.Groups[i].Shapes[0]
				if got := p.Size(shape); got != want.size {
					t.Errorf("%s: %g elements", shape, got)
				}
				ref, err := refs.Get(t.Context(), p.Plain(shape, 0))
				if err != nil {
					t.Fatal(err)
				}
				checkPresent(t, ref, b, want.present)
				result, err := ref.Compare(b, want.outputs)
				if _, wrong := ref.Judge(b, result, 1); err != nil || len(result.Outputs) != len(want.outputs) || len(wrong) > 0 {
					t.Errorf("%s: %v, %v, %v", shape, result.Outputs, wrong, err)
				}
			}
			if got := p.LaunchKey(b); got != "THREADS=32" {
				t.Errorf("the condition of z has the knob THREADS; the key is %q", got)
			}
		})
	}
}

// checkPresent checks which arguments of a job, and of a peer, are buffers.
func checkPresent(t *testing.T, ref problem.Reference, b problem.Build, want string) {
	t.Helper()
	job, err := ref.Job(b, device.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	var got, peer []string
	for _, a := range job.Args {
		if a.IsBuffer() {
			got = append(got, a.Name)
		} else if a.TensorMap != nil {
			if a.TensorMap.Swizzle != "32B" {
				t.Errorf("the swizzle is %s", a.TensorMap.Swizzle)
			}
		} else if string(a.Scalar) != strings.Repeat("\x00", 8) {
			t.Errorf("%s is %x; want a null pointer", a.Name, a.Scalar)
		}
	}
	data := ref.Peer()
	for _, a := range slices.Concat(data.Arrays, data.Outputs) {
		peer = append(peer, a.Name)
	}
	if strings.Join(got, " ") != want || strings.Join(peer, " ") != want {
		t.Errorf("%s: buffers %q, of a peer %q; want %q", ref.Instance(), got, peer, want)
	}
}

// A condition or a swizzle that cannot be evaluated for a shape of the command line is an error.
func TestConditionFails(t *testing.T) {
	toml := strings.Replace(conditional, `"more * THREADS"`, `"more // n"`, 1) + "[reference]\nsource = \"naive.cu\"\n"
	p := load(t, toml, map[string]string{"naive.cu": ""})
	bad := spec.Axes("n=0,more=1")
	const want = `kernel.toml:24: "when" in [[arg]] "z" ("more // n") for n=0,more=1: floored division by zero`
	if _, err := p.buffers(p.defaults(bad), bad); err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
	if got := p.Size(bad); got < 1e300 {
		t.Errorf("a size of %g", got)
	}
	const wantMap = `kernel.toml:27: "swizzle_bytes" in tensormap of [[arg]] "x_map" ("32 // n * THREADS // 8") for n=0,more=1: floored division by zero`
	if _, err := p.arg(&p.Args[4], p.defaults(bad), bad, nil); err == nil || err.Error() != wantMap {
		t.Errorf("%v; want %s", err, wantMap)
	}
}

// An axis that is a flag has 0 in its range. Otherwise mutants of code behind the flag would count as
// equivalent.
func TestRangeOfFlags(t *testing.T) {
	toml := strings.Replace(conditional, "[launch]", "[[arg]]\nname = \"more\"\ntype = \"i32\"\nvalue = \"more\"\n[launch]", 1)
	p := load(t, toml+"[reference]\nsource = \"naive.cu\"\n", map[string]string{"naive.cu": ""})
	all := p.Parameters(problem.Build{})
	if r := all[len(all)-1].Range; r == nil || r.Min != 0 || r.Max != math.MaxInt32 {
		t.Errorf("the range is %v", r)
	}
}
