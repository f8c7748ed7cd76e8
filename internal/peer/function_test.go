package peer

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"attune/internal/array"
	"attune/internal/problem"
	"attune/internal/spec"
)

const peerFiles = "testdata/peers"

func TestFunctions(t *testing.T) {
	rules := []spec.PeerRule{{Name: "torch", File: "peers.py", Function: "a_dict"}, {Name: "a_tensor", File: "peers.py", Function: "a_tensor"}}
	absolute, err := filepath.Abs(filepath.Join(peerFiles, "peers.py"))
	if err != nil {
		t.Fatal(err)
	}
	first := Peer{Kind: Python, Name: "torch", File: absolute, Function: "a_dict"}
	second := Peer{Kind: Python, Name: "a_tensor", File: absolute, Function: "a_tensor"}
	file := peerFiles + "/peers.py"
	for text, want := range map[string][]Peer{
		"all":                            {first, second},
		"none":                           nil,
		"torch":                          {first},
		"torch,none,torch":               {first},
		file + ":a_tensor":               {second},
		"a_tensor," + file + ":a_tensor": {second},
		"all," + file + ":wrong":         {first, second, {Kind: Python, Name: "wrong", File: absolute, Function: "wrong"}},
	} {
		if got, err := Functions(text, rules, peerFiles); err != nil || !cmp.Equal(want, got) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	if got, err := Functions("all", nil, ""); len(got) > 0 || err != nil {
		t.Errorf("all of none: %v, %v", got, err)
	}
	for text, want := range map[string]string{
		"torch-flash":                 `unknown peer "torch-flash"; there are torch, a_tensor, all, none, and FILE.py:FUNCTION`,
		"":                            `unknown peer ""; there are torch`,
		"no.py:f":                     "peer f: there is no file no.py",
		peerFiles + ":f":              "peer f: testdata/peers is a folder; want FILE.py:FUNCTION",
		file + ":":                    "want FILE.py:FUNCTION",
		":f":                          "peer :f: want FILE.py:FUNCTION",
		"a_tensor,helper.py:a_tensor": "two peers have the name a_tensor: ",
	} {
		if _, err := Functions(text, rules, peerFiles); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	if first.String() != "torch" {
		t.Error(first)
	}
	if got := Sources([]Peer{flash}); got != nil {
		t.Errorf("the sources of PyTorch's attention: %v", got)
	}
	gone := Peer{Kind: Python, Name: "gone", File: "/no/gone.py", Function: "f"}
	got := Sources([]Peer{first, gone})
	if prefix := "peers.py:a_dict sha256:"; len(got) != 2 || got["gone"] != "gone.py:f" ||
		!strings.HasPrefix(got["torch"], prefix) || len(got["torch"]) != len(prefix)+64 {
		t.Errorf("%v", got)
	}
}

// sum is the problem y = x + w on 2 rows of 4.
func sum() (data problem.PeerData, want []float64) {
	data.Axes = map[string]int{"rows": 2, "n": 4}
	x := []float64{1, 2, 3, 4, 5, 6, 7, math.NaN()}
	w := []float64{10, 20, 30, 40, 50, 60, 70, 80}
	for i := range x {
		want = append(want, x[i]+w[i])
	}
	add := func(name string, values []float64) {
		a := array.FromFloats(array.F16, []int{2, 4}, values)
		a.Name = name
		data.Arrays = append(data.Arrays, a)
	}
	add("x", x)
	add("w", w)
	data.Outputs = []*array.Array{{Name: "y", Type: array.F16, Shape: []int{2, 4}}}
	return data, want
}

func function(t *testing.T, file, name string) Peer {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(peerFiles, file))
	if err != nil {
		t.Fatal(err)
	}
	return Peer{Kind: Python, Name: name, File: path, Function: name}
}

// equalWithNaN compares values; NaN equals itself.
func equalWithNaN(a, b []float64) bool {
	return cmp.Equal(a, b, cmp.Comparer(func(x, y float64) bool { return x == y || x != x && y != y }))
}

// The real program with a fake PyTorch: functions are prepared, run and sampled.
func TestFunctionsOfAFile(t *testing.T) {
	h, err := startPython(t, "functions")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	data, want := sum()
	for _, name := range []string{"a_dict", "a_tensor", "a_dict"} {
		p := function(t, "peers.py", name)
		if err := h.Prepare(t.Context(), p, data, Graph{5, 2}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got, err := h.Output(t.Context(), p)
			if err != nil || !equalWithNaN(got["y"], want) {
				t.Errorf("%s: %v, %v; want %v", name, got, err, want)
			}
		}
		samples, err := h.Sample(t.Context(), p, 3, Pace{})
		if err != nil || len(samples) != 3 {
			t.Errorf("%s: %v, %v", name, samples, err)
		}
		if joules, err := h.Energy(t.Context(), p); joules != 0 || err != nil {
			t.Errorf("%s: %g J, %v", name, joules, err)
		}
	}
	if h.version != 1 {
		t.Errorf("the inputs were written %d times", h.version)
	}
	// A result that was computed before the graph is not that of the graph.
	cached := data
	cached.Outputs = []*array.Array{{Name: "y", Type: array.F32, Shape: []int{2, 4}}}
	p := function(t, "peers.py", "cached")
	if err := h.Prepare(t.Context(), p, cached, Graph{5, 2}); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Output(t.Context(), p); err != nil || !math.IsNaN(got["y"][0]) {
		t.Errorf("a remembered result: %v, %v", got, err)
	}
}

// Integers may be returned in another size. Inputs of 8-bit floats keep their bits.
func TestFunctionOfIntegers(t *testing.T) {
	h, err := startPython(t, "functions")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	data := problem.PeerData{
		Arrays: []*array.Array{
			{Name: "x", Type: array.I32, Shape: []int{2}, Data: []byte{1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}},
			{Name: "code", Type: array.E4M3, Shape: []int{3}, Data: []byte{0x38, 0xb8, 0x40}},
		},
		Outputs: []*array.Array{{Name: "count", Type: array.I32, Shape: []int{2}}, {Name: "code", Type: array.E4M3, Shape: []int{3}}},
	}
	p := function(t, "peers.py", "integers")
	if err := h.Prepare(t.Context(), p, data, Graph{1, 1}); err != nil {
		t.Fatal(err)
	}
	got, err := h.Output(t.Context(), p)
	if diff := cmp.Diff(map[string][]float64{"count": {2, 0}, "code": {1, -1, 2}}, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	data.Arrays[0] = &array.Array{Name: "x", Type: array.U32, Shape: []int{2}, Data: make([]byte, 8)}
	expectError(t, "a type that is too new", h.Prepare(t.Context(), p, data, Graph{1, 1}), "PyTorch 2.11.0 has no type uint32; ")
	if h.version != 2 {
		t.Errorf("the inputs were written %d times", h.version)
	}
}

// What a function does wrong is one line. Only a spoiled capture and a fault of the GPU lose the
// process.
func TestFunctionsThatFail(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Python for each function")
	}
	data, _ := sum()
	for _, c := range []struct {
		file, name, want string
		lost             bool
	}{
		{"peers.py", "raises", "ValueError: no (line 39)", false},
		{"peers.py", "exits", "SystemExit: 3 (line 43)", false},
		{"peers.py", "one_argument", "TypeError: one_argument() takes 1 positional argument but 2 were given", false},
		{"peers.py", "nothing", "returned nothing; want a dict of tensors: y", false},
		{"peers.py", "a_list", "returned a list; want a dict of tensors: y", false},
		{"peers.py", "another", `returned "z", which is no output; there are y`, false},
		{"peers.py", "no_output", `returned no "y"`, false},
		{"peers.py", "a_number", `"y" is a float; want a tensor`, false},
		{"peers.py", "on_the_host", `"y" is not on the GPU`, false},
		{"peers.py", "a_row", `"y" has shape (4,); kernel.toml declares (2, 4)`, false},
		{"peers.py", "wide", `"y" has type torch.float32; kernel.toml declares torch.float16; convert it in the function`, false},
		{"peers.py", "in_place", `it changes its input "x"; return a new tensor`, false},
		{"peers.py", "an_input", `"y" is in the memory of its input "x"; return a new tensor`, false},
		{"peers.py", "number", "peers.py defines no function number(axes, inputs)", false},
		{"peers.py", "no_such", "peers.py defines no function no_such(axes, inputs)", false},
		{"syntax.py", "f", "syntax.py: SyntaxError: ", false},
		{"imports.py", "f", "imports.py: ModuleNotFoundError: No module named 'no_such_library' (line 1); ", false},
		{"imports.py", "f", " -m pip install no_such_library", false},
		{"peers.py", "reads", "cannot be captured as a CUDA graph: RuntimeError: CUDA error: operation not permitted when stream is capturing (line 48)", true},
		{"peers.py", "exits_in_capture", "cannot be captured as a CUDA graph: SystemExit: enough", true},
		{"peers.py", "faults", "RuntimeError: CUDA error: an illegal memory access was encountered", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := startPython(t, "functions")
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			expectError(t, c.name, h.Prepare(t.Context(), function(t, c.file, c.name), data, Graph{2, 1}), c.want)
			if h.Lost() != c.lost {
				t.Errorf("lost is %t", h.Lost())
			}
			if c.lost {
				return
			}
			if err := h.Prepare(t.Context(), function(t, "peers.py", "a_dict"), data, Graph{2, 1}); err != nil {
				t.Errorf("the next function: %v", err)
			}
		})
	}
}

// A graph that ends the GPU context loses the process.
func TestFunctionThatFaultsLater(t *testing.T) {
	h, err := startPython(t, "functions")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	data, _ := sum()
	p := function(t, "peers.py", "faults_later")
	if err := h.Prepare(t.Context(), p, data, Graph{2, 1}); err != nil {
		t.Fatal(err)
	}
	_, err = h.Output(t.Context(), p)
	expectError(t, "a fault", err, "RuntimeError: CUDA error: an illegal memory access was encountered")
	if !h.Lost() {
		t.Error("the process is not lost")
	}
}

// What a helper claims about the outputs of a function is checked.
func TestFalseOutputs(t *testing.T) {
	data, _ := sum()
	for name, want := range map[string]string{
		"function: none":       "it returned 0 outputs; want 1",
		"function: other name": "it returned f16 of [2 4] as z; want f16 of [2 4] as y",
		"function: other type": "it returned i64 of [2 4] as y; want f16 of [2 4] as y",
		"function: no file":    "it wrote no output: ",
		"function: short":      "its output y has 3 bytes; want 16",
	} {
		t.Run(name, func(t *testing.T) {
			h := started(t, name)
			p := function(t, "peers.py", "a_dict")
			if err := h.Prepare(t.Context(), p, data, Graph{1, 1}); err != nil {
				t.Fatal(err)
			}
			_, err := h.Output(t.Context(), p)
			expectError(t, name, err, want)
		})
	}
	h := started(t, "good")
	p := function(t, "peers.py", "a_dict")
	if err := h.Prepare(t.Context(), p, data, Graph{1, 1}); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(h.file("out0/full"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := h.Output(t.Context(), p)
	expectError(t, "an output that cannot be removed", err, "remove its earlier output: ")
	data, _ = sum()
	if err := os.RemoveAll(h.folder); err != nil {
		t.Fatal(err)
	}
	expectError(t, "no folder", h.Prepare(t.Context(), p, data, Graph{1, 1}), "write its inputs: ")
	if err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// claims responds to a request for outputs with one output.
func claims(name, kind string, text []byte) behaviour {
	return on("output", func(r numbered) map[string]any {
		if text != nil {
			if err := os.WriteFile(r.Outputs[0].File, text, 0o600); err != nil {
				panic(err)
			}
		}
		return map[string]any{"outputs": []map[string]any{{"name": name, "dtype": kind, "shape": []int{2, 4}}}}
	})
}

func init() {
	behaviours["function: none"] = on("output", func(numbered) map[string]any { return map[string]any{} })
	behaviours["function: other name"] = claims("z", "f16", nil)
	behaviours["function: other type"] = claims("y", "i64", nil)
	behaviours["function: no file"] = claims("y", "f16", nil)
	behaviours["function: short"] = claims("y", "f16", []byte{1, 2, 3})
}
