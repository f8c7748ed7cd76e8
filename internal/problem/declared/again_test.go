package declared

import (
	"context"
	"strings"
	"testing"

	"attune/internal/array"
	"attune/internal/problem"
	"attune/internal/toolchain"
)

// computed is the reference of an instance of the kernel scale, by a real Python.
func computed(t *testing.T, toml, python string, relaunch bool) (problem.Reference, problem.Build, problem.References) {
	t.Helper()
	needsNumPy(t)
	p := load(t, toml, map[string]string{"reference.py": python})
	refs := stop(t, p.References(problem.Options{}))
	i := p.instance(1)
	i.Relaunch = relaunch
	ref, err := refs.Get(t.Context(), i)
	if err != nil {
		t.Fatal(err)
	}
	return ref, problem.Build{Variant: p.kernel.Stages[0].Variant(), Image: &toolchain.Image{}}, refs
}

// The inputs of a relaunch differ from run to run, so its tolerance is wider. That of integers
// without a tolerance stays 0.
func TestToleranceOfARelaunch(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	const tolerance = "[tolerance]\ny = { abs = 0.1 }\n"
	check := func(toml string, relaunch bool, off float64, wrong string) {
		t.Helper()
		ref, b, _ := computed(t, toml, "def reference(axes, inputs):\n    return {'y': 0 * inputs['x'] + 3}\n", relaunch)
		dtype := array.F32
		if strings.Contains(toml, `"i32"`+"\nshape") {
			dtype = array.I32
		}
		out := array.FromFloats(array.F32, []int{2, 3}, []float64{3, 3, 3 + off, 3, 3, 3})
		if dtype == array.I32 {
			out.Data = []byte{3, 0, 0, 0, 3, 0, 0, 0, byte(3 + off), 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0, 3, 0, 0, 0}
		}
		result, err := ref.Compare(b, [][]byte{out.Data})
		if err != nil {
			t.Fatal(err)
		}
		_, got := ref.Judge(b, result, problem.TimedSlack)
		if text := strings.Join(got, "\n"); (text == "") != (wrong == "") || !strings.Contains(text, wrong) {
			t.Errorf("off by %g: %q; want %q", off, text, wrong)
		}
	}
	check(scale+tolerance, false, 0.11, "tolerance 0.1")
	check(scale+tolerance, true, 0.14, "")
	check(scale+tolerance, true, 0.16, "tolerance 0.15")
	integers := strings.ReplaceAll(scale, `"f32"`, `"i32"`)
	check(integers, true, 1, "1 of 6 elements are bad")
	check(integers+"[tolerance]\ny = { abs = 2 }\n", true, 3, "")
	check(integers+"[tolerance]\ny = { abs = 2 }\n", true, 4, "1 of 6 elements are bad")
}

// A function that is computed again and returns other results is at fault.
func TestRecompute(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	const state = "import numpy as np\nn = 0\ndef reference(axes, inputs):\n    global n\n    n += 1\n    y = np.zeros((2, 3))\n"
	for name, c := range map[string]struct{ toml, python, want string }{
		"a function":             {scale, state + "    return {'y': y}\n", ""},
		"NaN":                    {scale, state + "    return {'y': y * np.nan}\n", ""},
		"a counter":              {scale, state + "    y[1, 2] = n\n    return {'y': y}\n", "returned 1 and then 2 for y[1, 2] for equal inputs; compute it from axes and inputs alone"},
		"NaN at first":           {scale, state + "    y[0, 1] = np.nan if n == 1 else 0\n    return {'y': y}\n", "returned NaN and then 0 for y[0, 1] for equal inputs; compute it from axes and inputs alone"},
		"rounding":               {scale + "[tolerance]\ny = { abs = 1 }\n", state + "    return {'y': y + n}\n", ""},
		"an output that is free": {scale + "[tolerance]\ny = { abs = 0.1, bad_fraction = 1 }\n", state + "    return {'y': y + n}\n", ""},
		"a second failure":       {scale, state + "    return {'y': y} if n == 1 else {}\n", `returned no "y"`},
		"integers":               {strings.ReplaceAll(scale, `"f32"`, `"u64"`), state + "    return {'y': y.astype(int) + n}\n", "returned 1 and then 2 for y[0, 0] for equal inputs; compute it from axes and inputs alone"},
	} {
		t.Run(name, func(t *testing.T) {
			ref, b, refs := computed(t, c.toml, c.python, false)
			err := ref.(problem.Recomputed).Recompute(t.Context(), b)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v; want %s", err, c.want)
			}
			if strings.Contains(c.want, "equal inputs") {
				checkFailure(t, err, c.want)
				if _, again := refs.Get(context.Background(), ref.Instance()); again == nil || again.Error() != err.Error() {
					t.Errorf("the next variant gets %v", again)
				}
			}
			if err := ref.(problem.Recomputed).Recompute(t.Context(), b); err != nil {
				t.Errorf("it is computed a third time: %v", err)
			}
		})
	}
}

// Threads is the largest block over all shapes.
func TestThreads(t *testing.T) {
	toml := strings.Replace(strings.Replace(scale, `block = ["THREADS"]`, `block = ["THREADS", "rows", "96 // n"]`, 1),
		"small = { rows = 2, n = 3 }", "small = { rows = 2, n = 12 }\nlarge = { rows = 4, n = 32 }", 1)
	p := load(t, toml, map[string]string{"reference.py": ""})
	b := problem.Build{Variant: p.kernel.Stages[0].Variant()}
	if n, err := p.Threads(b, p.kernel.Groups[0].Shapes[:1]); n != 512 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	zero, err := p.kernel.Shapes("rows=4,n=0")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := p.Threads(b, zero); err == nil {
		t.Errorf("a block without an extent has %d threads", n)
	}
}
