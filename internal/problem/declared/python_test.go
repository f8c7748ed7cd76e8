//go:build linux

package declared

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"attune/internal/array"
	"attune/internal/child"
	"attune/internal/child/childtest"
	"attune/internal/problem"
	"attune/internal/python"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// Whatever a Python function does is reported in one line, and no fault of the kernel.
func TestPythonFailures(t *testing.T) {
	if testing.Short() {
		t.Skip("starts many processes")
	}
	needsNumPy(t)
	const head = "import numpy as np\ndef reference(axes, inputs):\n    "
	for name, c := range map[string]struct{ text, want string }{
		"right":            {head + "return {'y': 2 * inputs['x']}", ""},
		"prints":           {head + "print('x' * 10000); return {'y': 2 * inputs['x']}", ""},
		"no function":      {"x = 1", "it defines no function reference(axes, inputs)"},
		"no callable":      {"reference = 1", "it defines no function reference(axes, inputs)"},
		"one parameter":    {"def reference(x): pass", "reference takes 1 argument; want reference(axes, inputs)"},
		"no parameter":     {"def reference(): pass", "reference takes 0 arguments; want reference(axes, inputs)"},
		"an exception":     {head + "\n    raise ValueError('no luck\\nat all')", "ValueError: no luck (line 4)"},
		"a deep exception": {"import json\n" + head + "return json.loads('{')", "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1) (line 4)"},
		"a bad message":    {"class E(Exception):\n    def __str__(self): raise E()\n" + head + "raise E()", "E (line 5)"},
		"a wrong key":      {head + "return inputs['z']", "KeyError: 'z' (line 3)"},
		"no syntax":        {"x = 1\nx = = 2", "SyntaxError: invalid syntax (line 2)"},
		"a missing import": {"import nosuchmodule", "ModuleNotFoundError: No module named 'nosuchmodule' (line 1); PYTHON -m pip install nosuchmodule"},
		"exits by raising": {head + "raise SystemExit(3)", "SystemExit: 3 (line 3)"},
		"exits on import":  {"import sys\nsys.exit('bye')", "SystemExit: bye (line 2)"},
		"dies":             {head + "import os; print('bye'); os._exit(3)", "python3 exited (exit status 3): bye"},
		"is killed":        {head + "import os; os.kill(os.getpid(), 9)", "python3 exited (signal: killed)"},
		"dies on import":   {"import os\nos._exit(4)", "python3 exited (exit status 4)"},
		"a list":           {head + "return [1]", "returned a list; want a dict of arrays: y"},
		"nothing":          {head + "pass", "returned nothing; want a dict of arrays: y"},
		"missing":          {head + "return {}", `returned no "y"`},
		"extra":            {head + "return {'y': inputs['x'], 'z': 1}", `returned "z", which is no output; there are y`},
		"a wrong shape":    {head + "return {'y': inputs['x'][:, 1:]}", `"y" has shape (2, 2); kernel.toml declares (2, 3)`},
		"a flat shape":     {head + "return {'y': inputs['x'].ravel()}", `"y" has shape (6,); kernel.toml declares (2, 3)`},
		"complex":          {head + "return {'y': inputs['x'] + 0j}", `"y" has dtype complex64; want a real number type`},
		"objects":          {head + "return {'y': inputs['x'].astype(object)}", `"y" has dtype object; want a real number type`},
		"ragged":           {head + "return {'y': [[1, 2, 3], [1]]}", `"y" is no array: ValueError: `},
		"integers":         {head + "return {'y': np.ones((2, 3), dtype=np.int16)}", ""},
		"booleans":         {head + "return {'y': inputs['x'] > 0}", ""},
		"unsigned":         {head + "return {'y': np.ones((2, 3), dtype='>u4')}", ""},
		"closes pipes":     {head + "import os; os.close(4); return {'y': inputs['x']}", "python3 exited (exit status 1): "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := load(t, scale, map[string]string{"reference.py": c.text})
			refs := stop(t, p.References(problem.Options{}))
			_, err := refs.Get(t.Context(), p.instance(0))
			checkFailure(t, err, c.want)
		})
	}
}

// checkFailure checks that an error is that of the reference, in one line.
func checkFailure(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Error(err)
		}
		return
	}
	if known := new(*problem.ReferenceError); !errors.As(err, known) {
		t.Fatalf("%v; want %s", err, want)
	}
	text := err.Error()
	if before, after, found := strings.Cut(want, "PYTHON"); found {
		if !strings.HasPrefix(text, "reference.py: "+before) || !strings.HasSuffix(text, after) {
			t.Errorf("%q; want %q", text, want)
		}
		return
	}
	if text != "reference.py: "+want && !(strings.HasSuffix(want, ": ") && strings.HasPrefix(text, "reference.py: "+want)) {
		t.Errorf("%q; want %q", text, want)
	}
	if strings.ContainsAny(text, "\n\x1b") {
		t.Errorf("%q is not one line", text)
	}
}

// A function that hangs is killed, the next instance gets a new process, and after a second loss
// all fail at once.
func TestPythonThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	p := load(t, scale, map[string]string{"reference.py": ""})
	path := fakePython(t, "sleep 60", "")
	refs := stop(t, p.References(problem.Options{Python: path, Limit: 700 * time.Millisecond}))
	const want = "no result for its import within 700ms; --reference-timeout gives it more"
	_, err := refs.Get(t.Context(), p.instance(0))
	checkFailure(t, err, want)
	started := time.Now()
	_, err = refs.Get(t.Context(), p.instance(0))
	checkFailure(t, err, want)
	if took := time.Since(started); took > 300*time.Millisecond {
		t.Errorf("the same instance takes %s again", took)
	}
	_, err = refs.Get(t.Context(), p.instance(1))
	checkFailure(t, err, want)
	started = time.Now()
	_, err = refs.Get(t.Context(), p.instance(2))
	checkFailure(t, err, want)
	if took := time.Since(started); took > 300*time.Millisecond {
		t.Errorf("a third process was started, which took %s", took)
	}
}

// A function that takes more memory than it may is killed. The error has the limit and the variable.
func TestPythonThatTakesMemory(t *testing.T) {
	needsNumPy(t)
	t.Setenv(MemoryVariable, "150M")
	p := load(t, scale, map[string]string{"reference.py": "import numpy as np\ndef reference(axes, inputs):\n    parts = []\n    while True: parts.append(np.ones(1 << 20))"})
	refs := stop(t, p.References(problem.Options{}))
	_, err := refs.Get(t.Context(), p.instance(0))
	checkFailure(t, err, "needs more than 150 MB of memory for "+p.instance(0).String()+"; ATTUNE_REFERENCE_MEMORY=8G allows more")

	t.Setenv(MemoryVariable, "lots")
	refs = stop(t, p.References(problem.Options{}))
	_, err = refs.Get(t.Context(), p.instance(0))
	checkFailure(t, err, "ATTUNE_REFERENCE_MEMORY=lots: want a size such as 4G or 2048M")
}

// The limit of memory grows with the arrays, up to the machine.
func TestMemoryFor(t *testing.T) {
	const base = 100 << 20
	for bytes, want := range map[int]int64{0: base, 1 << 20: base + 512<<20, 1 << 30: max(base, child.MachineMemory()/4*3)} {
		if got := memoryFor(base, []*array.Array{nil, {Data: make([]byte, bytes)}}); got != want {
			t.Errorf("%d bytes: %d, want %d", bytes, got, want)
		}
	}
}

// fakePython writes a shell script that replies to hello and to compute.
func fakePython(t *testing.T, hello, compute string) string {
	t.Helper()
	if hello == "" {
		hello = `echo "{\"id\":$id,\"python\":\"3.12\",\"numpy\":\"2.0\",\"files\":[\"../../x\"]}" >&4`
	}
	path := filepath.Join(t.TempDir(), "python3")
	text := "#!/bin/sh\ncat >/dev/null\nwhile read -r line <&3; do\nid=${line#*\\\"id\\\":}; id=${id%%,*}\n" +
		"out=${line##*\\\"file\\\":\\\"}; out=${out%%\\\"*}\ncase $line in\n*hello*) " + hello + " ;;\n*) " + compute + " ;;\nesac\ndone\n"
	childtest.Program(t, path, text)
	return path
}

// A process that claims results which it has not computed is caught.
func TestPythonThatLies(t *testing.T) {
	reply := func(dtype, shape string) string {
		return `echo "{\"id\":$id,\"outputs\":[{\"name\":\"y\",\"dtype\":\"` + dtype + `\",\"shape\":` + shape + `}]}" >&4`
	}
	for name, c := range map[string]struct{ compute, want string }{
		"no outputs":    {`echo "{\"id\":$id}" >&4`, `returned no "y"`},
		"no file":       {reply("float64", "[2,3]"), `wrote no file of "y"`},
		"a short file":  {`printf 12345678 >"$out"; ` + reply("float64", "[2,3]"), `wrote 8 bytes of "y"; want 48`},
		"a folder":      {`mkdir "$out"; ` + reply("float64", "[2,3]"), `wrote no file of "y"`},
		"a pipe":        {`mkfifo "$out"; ` + reply("float64", "[2,3]"), `wrote no file of "y"`},
		"a link":        {`ln -s /dev/zero "$out"; ` + reply("float64", "[2,3]"), `wrote no file of "y"`},
		"another shape": {reply("float64", "[3]"), `"y" has shape (3,); kernel.toml declares (2, 3)`},
		"another dtype": {reply("complex128", "[2,3]"), `"y" has dtype complex128; want a real number type`},
		"a right file":  {`head -c 48 /dev/zero >"$out"; ` + reply("int64", "[2,3]"), ""},
		"no JSON":       {`echo Traceback >&4`, `python3 replied "Traceback", which is not JSON of the expected form`},
	} {
		t.Run(name, func(t *testing.T) {
			p := load(t, scale, map[string]string{"reference.py": ""})
			refs := stop(t, p.References(problem.Options{Python: fakePython(t, "", c.compute), Limit: time.Minute}))
			_, err := refs.Get(t.Context(), p.instance(0))
			checkFailure(t, err, c.want)
		})
	}
}

// A process that puts a pipe or a link in the place of an input neither blocks the next instance nor gets
// another file overwritten.
func TestPythonThatReplacesInputs(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, replace := range map[string]string{"a pipe": "mkfifo", "a link": "ln -s " + other} {
		t.Run(name, func(t *testing.T) {
			p := load(t, scale, map[string]string{"reference.py": ""})
			compute := `in="${out%output*}input0"; [ -f "$in" ] && rm "$in" && ` + replace + ` "$in"; head -c 48 /dev/zero >"$out"; ` +
				`echo "{\"id\":$id,\"outputs\":[{\"name\":\"y\",\"dtype\":\"int64\",\"shape\":[2,3]}]}" >&4`
			refs := stop(t, p.References(problem.Options{Python: fakePython(t, "", compute), Limit: 2 * time.Second}))
			for seed := range uint64(2) {
				if _, err := refs.Get(t.Context(), p.instance(seed)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "kept" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestPythonThatIsMissing(t *testing.T) {
	p := load(t, scale, map[string]string{"reference.py": ""})
	for _, c := range []struct{ requested, want string }{
		{"/no/python3", `there is no program "/no/python3", which --python names; ` + python.UseAnother},
		{"", "there is no python3 in PATH; install Python 3.9 or later, or name one with --python or ATTUNE_PYTHON"},
		{fakePython(t, `echo "{\"id\":$id,\"error\":\"No module named 'numpy'\",\"do\":\"python3 -m pip install numpy\"}" >&4`, ""), "No module named 'numpy'; python3 -m pip install numpy"},
		{fakePython(t, "echo ImportError; exit 1", ""), "python3 exited (exit status 1): ImportError"},
	} {
		if c.requested == "" {
			t.Setenv("PATH", t.TempDir())
			t.Setenv(python.Variable, "")
		}
		refs := stop(t, p.References(problem.Options{Python: c.requested}))
		for seed := range uint64(2) {
			_, err := refs.Get(t.Context(), p.instance(seed))
			checkFailure(t, err, c.want)
		}
		if c.requested == "" {
			t.Setenv("PATH", "/bin:/usr/bin")
		}
	}
	t.Setenv("TMPDIR", "/no/folder")
	_, err := p.References(problem.Options{}).Get(t.Context(), p.instance(0))
	if err == nil || !strings.HasSuffix(err.Error(), "no such file or directory; set TMPDIR to a writable folder") {
		t.Error(err)
	}
}

func TestRealNumPyIsMissing(t *testing.T) {
	needsNumPy(t)
	real, err := python.Find("")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "python3")
	childtest.Program(t, path, "#!/bin/sh\nexec "+real+" -S \"$@\"\n") // without site-packages
	p := load(t, scale, map[string]string{"reference.py": ""})
	_, err = stop(t, p.References(problem.Options{Python: path})).Get(t.Context(), p.instance(0))
	checkFailure(t, err, "No module named 'numpy'; `attune doctor --fix`, or PYTHON -m pip install numpy")
}

func TestCancelledReference(t *testing.T) {
	p := load(t, scale, map[string]string{"reference.py": ""})
	refs := stop(t, p.References(problem.Options{Python: fakePython(t, "sleep 60", "")}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := refs.Get(ctx, p.instance(0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// Facts name the versions and every file that decides about the reference.
func TestFacts(t *testing.T) {
	needsNumPy(t)
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(spec.File, scale)
	write("scale.cu", "\n")
	write("factor.py", "FACTOR = open('factor.txt').read()\n")
	write("factor.txt", "2\n")
	write("reference.py", "from factor import FACTOR\ndef reference(axes, inputs):\n    return {'y': int(FACTOR) * inputs['x'] + axes['rows'] - axes['n']}\n")
	kernel, err := spec.Load(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	p := New(kernel, os.DirFS(dir), dir)
	refs := stop(t, p.References(problem.Options{Secret: 7}))
	if refs.Facts() != nil || refs.Secret() != array.EdgeSeed+7 {
		t.Errorf("%v, %d", refs.Facts(), refs.Secret())
	}
	ref, err := refs.Get(t.Context(), p.instance(0))
	if err != nil {
		t.Fatal(err)
	}
	facts := refs.Facts()
	for _, key := range []string{"python", "numpy", "sha256:reference.py", "sha256:factor.py"} {
		if facts[key] == "" {
			t.Errorf("no %q in %v", key, facts)
		}
	}
	if len(facts) != 6 || facts["reference"] != "python" || facts["path"] != "reference.py" || len(p.Stale(facts)) > 0 {
		t.Errorf("%v, stale %v", facts, p.Stale(facts))
	}
	write("factor.py", "FACTOR = '3'\n")
	if stale := p.Stale(facts); len(stale) != 1 || stale[0] != "factor.py" {
		t.Errorf("stale: %v", stale)
	}
	x := ref.Peer().Arrays[0].Floats()
	for i := range x {
		x[i] = 2*x[i] - 1
	}
	result, err := ref.CompareValues(map[string][]float64{"y": x})
	if err != nil || result.MaxErr > 1e-6 {
		t.Errorf("%+v, %v", result, err)
	}
}

// The message about bad elements names a type of the reference that is too narrow for the output.
func TestNarrowReference(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second or more")
	}
	needsNumPy(t)
	for dtype, want := range map[string]string{
		"float16": "; the reference returned float16, which has fewer bits than f32: compute it in float64", "float32": "", "float64": "", "int32": "",
	} {
		p := load(t, scale, map[string]string{"reference.py": "import numpy as np\ndef reference(axes, inputs):\n    return {'y': np.ones((2, 3), np." + dtype + ")}\n"})
		refs := stop(t, p.References(problem.Options{}))
		ref, err := refs.Get(t.Context(), p.instance(0))
		if err != nil {
			t.Fatal(err)
		}
		b := problem.Build{Variant: p.kernel.Stages[0].Variant(), Image: &toolchain.Image{}}
		result, err := ref.Compare(b, [][]byte{make([]byte, 24)})
		if err != nil {
			t.Fatal(err)
		}
		_, wrong := ref.Judge(b, result, 1)
		if len(wrong) != 1 || strings.Contains(wrong[0], "fewer bits") != (want != "") || !strings.Contains(wrong[0], want) {
			t.Errorf("%s: %q; want %q", dtype, wrong, want)
		}
	}
}

// nested is a kernel's folder in a tree.
type nested struct {
	fs.FS
	tree fs.FS
}

func (n nested) Tree() (fs.FS, string) { return n.tree, "kernels/scale" }

// Several kernels share a reference of the folder above, on disk and embedded. Its facts name it by
// that path, and no other file outside of the kernel's folder is read for them.
func TestSharedReference(t *testing.T) {
	needsNumPy(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"kernels/scale/" + spec.File:     strings.Replace(scale, `"reference.py"`, `"../shared/reference.py"`, 1),
		"kernels/scale/scale.cu":         "\n",
		"kernels/shared/factor.py":       "FACTOR = 2\n",
		"kernels/shared/reference.py":    "from factor import FACTOR\ndef reference(axes, inputs):\n    return {'y': FACTOR * inputs['x']}\n",
		"kernels/shared/unused/other.py": "",
		"secret.py":                      "",
	} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(dir, "kernels/scale")
	kernel, err := spec.Load(os.DirFS(folder))
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*Problem{
		"on disk": New(kernel, os.DirFS(folder), folder), "embedded": New(kernel, nested{os.DirFS(folder), os.DirFS(dir)}, ""),
	} {
		refs := stop(t, p.References(problem.Options{}))
		if _, err := refs.Get(t.Context(), p.instance(0)); err != nil {
			t.Fatal(name, err)
		}
		facts := refs.Facts()
		for _, key := range []string{"sha256:../shared/reference.py", "sha256:../shared/factor.py"} {
			if facts[key] == "" {
				t.Errorf("%s: no %q in %v", name, key, facts)
			}
		}
		if stale := p.Stale(facts); len(stale) > 0 {
			t.Errorf("%s: stale %v", name, stale)
		}
		for _, outside := range []string{"../../secret.py", "../shared/../../secret.py", "/etc/hostname", "../scale/scale.cu"} {
			if sum := p.hashFile(outside); sum != "" {
				t.Errorf("%s: the hash of %s is %s", name, outside, sum)
			}
		}
	}
}
