//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A kernel that is right. The attacks change a part of it.
const (
	victimToml = `name = "k"

[shapes]
small = { n = 64 }

[[arg]]
name = "x"
type = "f32"
shape = ["n"]
fill = "normal"

[[arg]]
name = "y"
type = "f32"
shape = ["n"]
out = true

[[arg]]
name = "n"
type = "i32"
value = "n"

[launch]
grid = ["1"]
block = ["THREADS"]

[reference]
python = "reference.py"

[[knob]]
name = "THREADS"
values = [64, 128]
default = 64
`
	victimSource = `extern "C" __global__ void k(const float* x, float* y, int n) {
  const int i = threadIdx.x;
  if (i < n) y[i] = x[i] / 2;
}
`
	victimReference = `def reference(axes, inputs):
    return {"y": inputs["x"] / 2}
`
)

// kernel writes the kernel, with text of its kernel.toml replaced.
func (a *arena) kernel(oldNew ...string) {
	a.t.Helper()
	a.write("kernel/kernel.toml", victimToml)
	a.write("kernel/k.cu", victimSource)
	a.write("kernel/reference.py", victimReference)
	if len(oldNew) > 0 {
		a.change("kernel/kernel.toml", oldNew...)
	}
}

// toml is an attack by text of a kernel.toml, on a command that only reads it.
func toml(oldNew ...string) func(a *arena) []string {
	return func(a *arena) []string {
		a.kernel(oldNew...)
		return []string{"list", "knobs", "--kernel", "kernel"}
	}
}

// onSim is an attack by text of a kernel.toml, on a run.
func onSim(oldNew ...string) func(a *arena) []string {
	return func(a *arena) []string {
		a.kernel(oldNew...)
		return runOnSim
	}
}

// reference is an attack by the Python function that computes the right outputs.
func reference(name, want, text string, flags ...string) attack {
	return attack{kind: "file", name: name, exit: exitUnchecked, want: want, with: attackOptions{compiler: true}, stage: func(a *arena) []string {
		a.kernel()
		a.write("kernel/reference.py", text)
		return append(slices.Clone(runOnSim), flags...)
	}}
}

// interrupted is an attack during which Ctrl-C comes.
func interrupted(k attack, after time.Duration) attack {
	k.exit, k.with.interrupt = exitInterrupted, after
	return k
}

const (
	moreMemory = "ATTUNE_REFERENCE_MEMORY=8G allows more"

	// outliving begins a function that starts a process which the program could lose sight of.
	outliving = "import os, subprocess, time\ndef reference(axes, inputs):\n    subprocess.Popen('sleep 500 &', shell=True, start_new_session=True)\n    time.sleep(0.5)\n"
)

var runOnSim = []string{"run", "--kernel", "kernel", "--device", "sim"}

const knobEnd = "default = 64\n"

// manyKnobs are n knobs A0, A1 and so on, each with the values 0 to m.
func manyKnobs(n, m int) string {
	var text strings.Builder
	values := strings.Trim(strings.ReplaceAll(fmt.Sprint(make([]int, m+1)), " ", ","), "[]")
	if m > 0 {
		var list []string
		for v := range m + 1 {
			list = append(list, fmt.Sprint(v))
		}
		values = strings.Join(list, ",")
	}
	for i := range n {
		fmt.Fprintf(&text, "[[knob]]\nname = \"A%d\"\nvalues = [%s]\ndefault = 0\n", i, values)
	}
	return text.String()
}

// manyArguments are n scalars.
func manyArguments(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "[[arg]]\nname = \"a%d\"\ntype = \"i32\"\nvalue = %d\n\n", i, i)
	}
	return text.String()
}

func constraint(text string) string {
	return "\n[[constraint]]\nrule = " + fmt.Sprintf("%q", text) + "\n"
}

func kernelFileAttacks() []attack {
	sums := make([]string, 24)
	products := make([]string, 24)
	for i := range sums {
		sums[i] = fmt.Sprintf("A%d * A%d * %d", i, (i*7+3)%24, 2*i+1)
		products[i] = fmt.Sprintf("(A%d * %d + %d)", i, i*i+3, i+1)
	}
	file := func(name string, exit int, want string, stage func(a *arena) []string) attack {
		return attack{kind: "file", name: name, exit: exit, want: want, stage: stage}
	}
	at := func(place func(a *arena, name string) string) func(a *arena) []string {
		return func(a *arena) []string {
			a.kernel()
			place(a, "kernel/kernel.toml")
			return []string{"list", "knobs", "--kernel", "kernel"}
		}
	}
	needs := func(k attack) attack { k.with.compiler = true; return k }
	// A search in a space of 2**96 variants, of which the default is allowed and the others are hard to find.
	searched := func(condition string) func(a *arena) []string {
		return func(a *arena) []string {
			zero := make([]string, 24)
			for i := range zero {
				zero[i] = fmt.Sprintf("A%d == 0", i)
			}
			a.kernel(knobEnd, knobEnd+manyKnobs(24, 15)+constraint("("+strings.Join(zero, " and ")+") or "+condition))
			return []string{"tune", "--kernel", "kernel", "--device", "sim", "--budget", "3"}
		}
	}
	list := []attack{
		file("kernel.toml is a pipe", 2, "it is not a regular file", at((*arena).pipe)),
		file("kernel.toml is a folder", 2, "is a directory", at((*arena).folder)),
		file("kernel.toml links to an endless device", 2, "a link to a file outside", at(func(a *arena, name string) string { return a.link(name, "/dev/zero") })),
		file("kernel.toml links to itself", 2, "too many levels", at(func(a *arena, name string) string { return a.link(name, "kernel.toml") })),
		file("kernel.toml links to a file outside", 2, "a link to a file outside", at(func(a *arena, name string) string { return a.link(name, filepath.Join(a.outside, "secret.txt")) })),
		file("kernel.toml has 3 GB of zeros", 2, "a spec has at most 262144", at(func(a *arena, name string) string { return a.sparse(name, victimToml, 3<<30) })),
		file("kernel.toml is no text", 2, "kernel.toml", at(func(a *arena, name string) string { return a.write(name, "\x00\xff\xfe\x1b]0;owned\x07") })),
		file("kernel.toml nests arrays 100,000 deep", 2, "kernel.toml", toml("values = [64, 128]", "values = "+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000))),
		file("kernel.toml nests inline tables 100,000 deep", 2, "kernel.toml", toml("small = { n = 64 }", "small = "+strings.Repeat("{a=", 100_000)+"1"+strings.Repeat("}", 100_000))),
		file("kernel.toml has a dotted key of 200,000 parts", 2, "kernel.toml", toml("[launch]", "[launch]\n"+strings.Repeat("a.", 200_000)+"a = 1")),
		file("kernel.toml has a string without an end", 2, "kernel.toml", toml(`"normal"`, `"""normal`)),
		file("kernel.toml has 4,000 knobs", 0, "A3999", toml(knobEnd, knobEnd+manyKnobs(4_000, 1))),
		file("a knob has 50,000 values", 2, "values", toml("values = [64, 128]", "values = [64"+strings.Repeat(", 128", 45_000)+"]")),
		file("a knob has a value beyond 64 bits", 2, "kernel.toml", toml("values = [64, 128]", "values = [64, 99999999999999999999999]")),
		file("a knob is named like an option", 2, "knob", toml(`name = "THREADS"`, `name = "X -o /tmp/owned"`)),
		file("two knobs have one name", 2, "THREADS", toml(knobEnd, knobEnd+"[[knob]]\nname = \"THREADS\"\nvalues = [1]\ndefault = 1\n")),
		file("text about a knob has terminal escapes", 0, "owned", toml(knobEnd, knobEnd+"about = \"\\u001b]0;owned\\u0007\\u009b31m\"\n")),
		file("the kernel's name leaves the folder", 2, "name", toml(`name = "k"`, `name = "../../outside/k"`)),
		file("the kernel's name has terminal escapes", 2, "name", toml(`name = "k"`, `name = "\u001b[2Jk"`)),
		file("a rule of 1.6 MB", 2, "a spec has at most 262144", toml(knobEnd, knobEnd+constraint("THREADS > 0"+strings.Repeat(" and THREADS > 0", 100_000)))),
		file("a rule nests 100,000 brackets", 2, "rule", toml(knobEnd, knobEnd+constraint(strings.Repeat("(", 100_000)+"THREADS"+strings.Repeat(")", 100_000)))),
		file("a rule of 60,000 negations", 2, "rule", toml(knobEnd, knobEnd+constraint(strings.Repeat("not ", 60_000)+"THREADS"))),
		file("a rule computes a tower of powers", 2, "rule", toml(knobEnd, knobEnd+constraint("9 ** 9 ** 9 ** 9 > THREADS"))),
		file("a rule shifts by a billion", 2, "rule", toml(knobEnd, knobEnd+constraint("1 << (THREADS * 100000000) > 0"))),
		file("a rule multiplies to millions of digits", 2, "rule", toml(knobEnd, knobEnd+constraint(strings.Repeat("THREADS * ", 24_000)+"THREADS > 0"))),
		file("a rule repeats a string", 2, "rule", toml(knobEnd, knobEnd+constraint("'a' * 10000000000 == THREADS"))),
		file("a rule is a comprehension", 2, "rule", toml(knobEnd, knobEnd+constraint("len([x for x in range(10000000000)]) > THREADS"))),
		file("a rule calls itself", 2, "rule", toml(knobEnd, knobEnd+constraint("(lambda f: f(f))(lambda f: f(f))"))),
		file("a rule divides by zero", 2, "rule", toml(knobEnd, knobEnd+constraint("THREADS % (THREADS - THREADS) == 0"))),
		needs(file("a rule that no search solves", 0, "", searched(strings.Join(sums, " + ")+" == 100003"))),
		needs(file("a rule that is a product of 24 knobs", 0, "", searched(strings.Join(products, " * ")+" % 1000003 == 7"))),
		file("a stage is its own ancestor", 2, "parent", toml(knobEnd, knobEnd+"[[stage]]\nname = \"a\"\nparent = \"b\"\n[[stage]]\nname = \"b\"\nparent = \"a\"\n")),
		file("a stage's name is a path", 2, "name", toml(knobEnd, knobEnd+"[[stage]]\nname = \"../../outside/a\"\n")),
		file("a selection picks itself", 2, "selection", toml(knobEnd, knobEnd+"[[selection]]\nname = \"s\"\n[[selection.rule]]\nwhen = \"n > 0\"\nvariant = \"s\"\n")),
		file("kernel.toml has an unknown key with escapes", 2, "kernel.toml", toml(knobEnd, knobEnd+"\"\\u001b[31mx\" = 1\n")),
		needs(file("an axis is above 64 bits", 2, "n", onSim("n = 64", "n = 99999999999999999999"))),
		needs(file("a shape of an exabyte", 2, "", onSim(`shape = ["n"]`, `shape = ["n", "2**50"]`))),
		needs(file("a shape whose product overflows", 2, "", onSim(`shape = ["n"]`, `shape = ["n * 2**30", "2**30", "2**30"]`))),
		needs(file("a shape of 6 GB", 14, "choose a smaller shape", onSim(`shape = ["n"]`, `shape = ["n", "25000000"]`))),
		needs(file("a shape below zero", 2, "", onSim(`shape = ["n"]`, `shape = ["-n"]`))),
		needs(file("a fill without numbers", 2, "fill", onSim(`"normal"`, `"uniform(nan, inf)"`))),
		file("a grid of 617 digits", 2, "(617 digits) does not fit 64 bits", toml(`grid = ["1"]`, `grid = ["int(1e308) * int(1e308)"]`)),
		needs(file("500 arguments more than the kernel has", 10, "and 453 more", onSim("[launch]", manyArguments(500)+"[launch]"))),
		needs(file("a grid of 2**60 blocks", 2, "grid", onSim(`grid = ["1"]`, `grid = ["2**31 - 1", "65535", "65535"]`))),
		needs(file("a block of a million threads", 2, "block", onSim(`block = ["THREADS"]`, `block = ["10**6"]`))),
		needs(file("shared memory of a terabyte", 2, "shared", onSim(`block = ["THREADS"]`, "block = [\"THREADS\"]\nshared = \"2**40\""))),
		needs(file("a tensor map of 1,000 dimensions", 2, "box", onSim("[launch]", "[[arg]]\nname = \"m\"\ntensormap = { arg = \"x\", box = ["+strings.Repeat("1,", 999)+"1] }\n\n[launch]"))),
		needs(file("a tensor map of itself", 2, "m", onSim("[launch]", "[[arg]]\nname = \"m\"\ntensormap = { arg = \"m\", box = [1] }\n\n[launch]"))),
		needs(file("work of 10**400 operations", 2, "work", onSim("[launch]", "[work]\nflops = \"10**400\"\n\n[launch]"))),
		needs(file("the entry function is an option", 2, "entry", onSim(`name = "k"`+"\n", "name = \"k\"\nentry = \"--run\"\n"))),
		needs(file("the reference is a pipe", 2, "reference.py", func(a *arena) []string { a.kernel(); a.pipe("kernel/reference.py"); return runOnSim })),
		reference("the reference never answers", "no result", "import time\ndef reference(axes, inputs):\n    time.sleep(1000)\n", "--reference-timeout", "3s"),
		reference("the reference prints without end", "no result", "def reference(axes, inputs):\n    while True:\n        print('x' * 100000)\n", "--reference-timeout", "5s"),
		reference("the reference returns an endless shape", "has shape", "import numpy\ndef reference(axes, inputs):\n    return {'y': numpy.broadcast_to(numpy.float32(1), (1 << 40,))}\n"),
		reference("the reference raises a megabyte of escapes", "ValueError", "def reference(axes, inputs):\n    raise ValueError('\\x1b]0;owned\\x07' * 100000)\n"),
		reference("the reference writes into the answers", "not JSON", "import os\ndef reference(axes, inputs):\n    os.write(4, b'{' * 1000000 + b'\\n')\n    return {'y': inputs['x'] / 2}\n"),
		reference("the reference leaves a process behind", "exited", "import os, subprocess\ndef reference(axes, inputs):\n    subprocess.Popen(['sleep', '500'])\n    os._exit(0)\n"),
		reference("the reference leaves a process in another session", "exited", outliving+"    os._exit(0)\n"),
		reference("the reference leaves a process and is too late", "no result", outliving+"    time.sleep(500)\n", "--reference-timeout", "3s"),
		interrupted(reference("the reference has a process in another session while Ctrl-C comes", "interrupted", outliving+"    time.sleep(500)\n"), 12*time.Second),
		reference("the reference kills who watches it", "its supervisor was killed", "import os, time\ndef reference(axes, inputs):\n    os.kill(os.getppid(), 9)\n    time.sleep(500)\n"),
		reference("the reference takes all memory", moreMemory, "import numpy\ndef reference(axes, inputs):\n    return {'y': numpy.ones(1 << 40 >> 9)}\n"),
		reference("the import takes all memory", moreMemory, "all = [bytes([i & 255]) * (1 << 20) for i in range(1 << 14)]\n"),
		reference("the reference takes shared memory", moreMemory, "import mmap\ndef reference(axes, inputs):\n    all = []\n    while True:\n        all.append(mmap.mmap(-1, 1 << 24))\n        all[-1].write(b'x' * (1 << 24))\n"),
		reference("orphans of the reference take memory", moreMemory, "import os, time\ndef reference(axes, inputs):\n    for i in range(4):\n        if os.fork() == 0:\n            os.setsid()\n            if os.fork():\n                os._exit(0)\n"+
			"            all = []\n            while len(all) < 300:\n                all.append(bytes([i + 1]) * (1 << 20))\n                time.sleep(0.001)\n            time.sleep(100)\n    time.sleep(500)\n"),
	}
	return list
}

// npy is a NumPy file with a header and a body.
func npy(header, body string) string {
	text := "\x93NUMPY\x01\x00"
	return text + string(binary.LittleEndian.AppendUint16(nil, uint16(len(header)))) + header + body
}

// tensors is a safetensors file with a header and a body.
func tensors(header, body string) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + body
}

const f4 = "{'descr': '<f4', 'fortran_order': False, 'shape': "

func arrayAttacks() []attack {
	var manyNames strings.Builder
	for i := range 140_000 {
		fmt.Fprintf(&manyNames, `"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},`, i)
	}
	// Read by `attune sim`, which needs neither a compiler nor numpy.
	array := func(name, suffix, want string, write func(a *arena, file string)) attack {
		return attack{kind: "input", name: name, exit: 2, want: want, stage: func(a *arena) []string {
			write(a, "x"+suffix)
			a.write("k.ptx", copyPTX)
			return []string{"sim", "k.ptx", "--grid", "1", "--block", "32", "--arg", "f32:inout:x" + suffix}
		}}
	}
	text := func(s string) func(a *arena, file string) {
		return func(a *arena, file string) { a.write(file, s) }
	}
	return []attack{
		array("an array is a pipe", ".npy", "it is not a regular file", func(a *arena, file string) { a.pipe(file) }),
		array("an array is a folder", ".npy", "it is not a regular file", func(a *arena, file string) { a.folder(file) }),
		array("an array is an endless device", ".npy", "it is not a regular file", func(a *arena, file string) { a.link(file, "/dev/zero") }),
		array("an array is a file outside", ".npy", "x.npy", func(a *arena, file string) { a.link(file, filepath.Join(a.outside, "secret.txt")) }),
		array("a sparse .npy of 8 GB", ".npy", "x.npy", func(a *arena, file string) { a.sparse(file, npy(f4+"(2147483648,)}\n", ""), 8<<30) }),
		array("a .npy of 2**60 elements", ".npy", "x.npy", text(npy(f4+"(1152921504606846976,)}\n", "abcd"))),
		array("a .npy whose shape overflows", ".npy", "x.npy", text(npy(f4+"(4294967296, 4294967296, 4)}\n", "abcd"))),
		array("a .npy of Python objects", ".npy", "x.npy", text(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n", "cos\nsystem\n"))),
		array("a .npy header of 4 GB", ".npy", "x.npy", text("\x93NUMPY\x02\x00\xff\xff\xff\xff{")),
		array("a .npy header that nests 60,000 tuples", ".npy", "x.npy", text(npy(f4+strings.Repeat("(", 60_000), ""))),
		array("a .npy that ends early", ".npy", "x.npy", text(npy(f4+"(64,)}\n", "abcd"))),
		array("a .npy with escapes as its type", ".npy", "x.npy", text(npy("{'descr': '\x1b]0;owned\x07', 'fortran_order': False, 'shape': (1,)}\n", "abcd"))),
		array("a .npy of version 255", ".npy", "x.npy", text("\x93NUMPY\xff\xff\x00\x00")),
		array("a safetensors header of 2**63 bytes", ".safetensors", "x.safetensors", text("\xff\xff\xff\xff\xff\xff\xff\x7f{}")),
		array("a sparse safetensors file of 8 GB", ".safetensors", "x.safetensors", func(a *arena, file string) {
			a.sparse(file, tensors(`{"x":{"dtype":"F32","shape":[2147483646],"data_offsets":[0,8589934584]}}`, ""), 8<<30)
		}),
		array("a safetensors file with 140,000 names", ".safetensors", "x.safetensors", text(tensors("{"+strings.TrimSuffix(manyNames.String(), ",")+"}", ""))),
		array("a tensor outside of its file", ".safetensors", "x.safetensors", text(tensors(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[4096,4100]}}`, "abcd"))),
		array("a tensor that ends before it starts", ".safetensors", "x.safetensors", text(tensors(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, "abcd"))),
		array("a tensor with offsets below zero", ".safetensors", "x.safetensors", text(tensors(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`, "abcd"))),
		array("two tensors with one name", ".safetensors", "x.safetensors", text(tensors(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}`, "abcd"))),
		array("a safetensors header that nests 100,000 lists", ".safetensors", "x.safetensors", text(tensors(`{"x":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+"}", ""))),
		array("names of tensors with escapes", ".safetensors", "x.safetensors", text(tensors("{\"\\u001b[31ma\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "abcd"))),
		array("an array of an unknown suffix", ".pickle", "x.pickle", text("cos\nsystem\n(S'true'\ntR.")),
	}
}

// source is an attack by the text of a kernel, on a run with NVIDIA's compiler.
func source(name string, exit int, want, text string) attack {
	return attack{kind: "kernel", name: name, exit: exit, want: want, with: attackOptions{compiler: true}, stage: func(a *arena) []string {
		a.kernel()
		a.write("kernel/k.cu", strings.ReplaceAll(text, "OUTSIDE", filepath.Join(a.outside, "secret.txt")))
		return runOnSim
	}}
}

// nested are macros that expand to a multiple of themselves at each of n levels.
func nested(n int) string {
	var text strings.Builder
	text.WriteString("#define M0 x[i] + \n")
	for i := range n {
		fmt.Fprintf(&text, "#define M%d %s\n", i+1, strings.Repeat(fmt.Sprintf("M%d ", i), 10))
	}
	fmt.Fprintf(&text, `extern "C" __global__ void k(const float* x, float* y, int n) {
  const int i = threadIdx.x;
  if (i < n) y[i] = M%d 0;
}
`, n)
	return text.String()
}

func sourceAttacks() []attack {
	// nvcc ends a definition at a line break.
	accepted := func(k attack) attack { k.with.compiler, k.exit = true, 0; return k }
	body := func(text string) string {
		return strings.Replace(victimSource, "  if (i < n)", text+"\n  if (i < n)", 1)
	}
	place := func(name string, exit int, want string, put func(a *arena, file string)) attack {
		return attack{kind: "file", name: name, exit: exit, want: want, stage: func(a *arena) []string {
			a.kernel()
			put(a, "kernel/k.cu")
			return runOnSim
		}}
	}
	header := func(name, want string, put func(a *arena, file string)) attack {
		return attack{kind: "file", name: name, exit: 10, want: want, stage: func(a *arena) []string {
			a.kernel()
			a.write("kernel/k.cu", "#include \"h.cuh\"\n"+victimSource)
			put(a, "kernel/h.cuh")
			return runOnSim
		}}
	}
	flags := func(name, want, flags string) attack {
		return attack{kind: "flag", name: name, exit: 10, want: want, stage: func(a *arena) []string {
			a.kernel(`name = "k"`+"\n", "name = \"k\"\nflags = ["+strings.ReplaceAll(flags, "OUTSIDE", a.outside)+"]\n")
			a.program("kernel/wrapper", "#!/bin/sh\ntouch "+a.outside+"/owned\n")
			return runOnSim
		}}
	}
	return []attack{
		place("the source is a pipe", 2, "there is no file k.cu", func(a *arena, file string) { a.pipe(file) }),
		place("the source is a folder", 2, "k.cu is no file", func(a *arena, file string) { a.folder(file) }),
		place("the source is an endless device", 2, "there is no file k.cu", func(a *arena, file string) { a.link(file, "/dev/zero") }),
		place("the source has 3 GB", 10, "k.cu", func(a *arena, file string) { a.sparse(file, victimSource, 3<<30) }),
		place("the source is a file outside", 2, "there is no file k.cu", func(a *arena, file string) { a.link(file, filepath.Join(a.outside, "secret.txt")) }),
		{kind: "file", name: "the source's path leaves the folder", exit: 2, want: "source", stage: toml(`name = "k"`+"\n", "name = \"k\"\nsource = \"../../outside/secret.txt\"\n")},
		header("a header is a pipe", "it is not a regular file", func(a *arena, file string) { a.pipe(file) }),
		header("a header is a link to a file outside", "h.cuh", func(a *arena, file string) { a.link(file, filepath.Join(a.outside, "secret.txt")) }),
		header("a header has 3 GB", "h.cuh", func(a *arena, file string) { a.sparse(file, "", 3<<30) }),

		flags("a flag runs a program", "-wrapper", `"-Xcompiler", "-wrapper,./wrapper"`),
		flags("a flag names the compiler", "ccbin", `"-ccbin=./wrapper"`),
		flags("a flag writes a file", "time", `"--time=OUTSIDE/owned"`),
		flags("a flag includes a file", "include", `"-include", "OUTSIDE/secret.txt"`),
		flags("a flag reads flags from a file", "options-file", `"--options-file", "OUTSIDE/secret.txt"`),
		flags("a flag of ptxas writes a file", "-o", `"-Xptxas", "-o,OUTSIDE/owned"`),
		flags("a flag keeps files outside", "keep", `"--keep-dir=OUTSIDE"`),
		accepted(flags("a flag defines a macro with a line break", "", `"-DX=1\n#include \"OUTSIDE/secret.txt\""`)),
		flags("a flag runs the kernel", "run", `"--run"`),

		source("macros nested 8 deep", 10, "", nested(8)),
		source("macros nested 12 deep", 10, "", nested(12)),
		source("templates that instantiate without end", 10, "", "template <int N> struct T { static constexpr int v = T<N + 1>::v + T<N + 2>::v; };\n"+body("  n += T<0>::v;")),
		source("templates that double 26 times", 10, "", "template <int N, int M> struct T { static constexpr int v = T<N - 1, 2 * M>::v + T<N - 1, 2 * M + 1>::v; };\ntemplate <int M> struct T<0, M> { static constexpr int v = M; };\n"+body("  n += T<26, 0>::v;")),
		source("a constant expression that never ends", 10, "", "constexpr int f(int n) { int s = 0; while (n >= 0) { s ^= n; n = (n + 1) & 0xffff; } return s; }\n"+body("  constexpr int c = f(1); n += c;")),
		source("a constant expression that calls itself", 10, "", "constexpr long f(long n) { return f(n + 1) + 1; }\n"+body("  constexpr long c = f(1); n += c;")),
		source("a loop that is unrolled 100 million times", 11, "an endless loop?", body("#pragma unroll 100000000\n  for (int j = 0; j < 100000000; ++j) n += n * j ^ (n >> 3);\n")),
		source("six nested loops unrolled", 11, "an endless loop?", body(strings.Repeat("#pragma unroll\n  for (int a = 0; a < 40; ++a)\n", 6)+"    n = n * 3 ^ (n >> 1);")),
		source("200,000 warnings", 10, "", body(strings.Repeat("{ int a; }\n", 200_000))),
		source("an #error of 5 MB", 10, "", "#error "+strings.Repeat("x", 5<<20)+"\n"),
		source("an #error with terminal escapes", 10, "", "#error \x1b]0;owned\x07\x1b[31m \u009b2J \u202e\n"),
		source("a static_assert with terminal escapes", 10, "", "static_assert(false, \"\\x1b]0;owned\\x07\");\n"),
		source("an include that a macro writes", 10, "", "#define H #\nH include \"OUTSIDE\"\n"+victimSource),
		source("an include of an absolute path", 10, "", "#include \"OUTSIDE\"\n"+victimSource),
		source("an include that climbs out", 10, "", "#include \"../../outside/secret.txt\"\n"+victimSource),
		source("an include in angle brackets that climbs out", 10, "", "#include <../../../../../../../../../OUTSIDE>\n"+victimSource),
		source("an include by a macro", 10, "", "#define F \"OUTSIDE\"\n#include F\n"+victimSource),
		source("an include by digraphs", 10, "", "%:include \"OUTSIDE\"\n"+victimSource),
		source("an include over continued lines", 10, "", "#inc\\\nlude \"OUT\\\nSIDE\"\n#inc\\\nlude \"OUTSIDE\"\n"+victimSource),
		source("an include of an endless device", 10, "", "#include \"/dev/zero\"\n"+victimSource),
		source("an include of itself", 10, "", "#include __FILE__\n"+victimSource),
		source("an include of the terminal", 10, "", "#include \"/dev/stdin\"\n"+victimSource),
		source("an #embed", 10, "", "__device__ const unsigned char s[] = {\n#embed \"OUTSIDE\"\n};\n"+victimSource),
		source("a pragma that names a file outside", 0, "", "#pragma GCC dependency \"OUTSIDE\" read\n"+victimSource),
		source("a question whether a file exists", 10, "outside the kernel's folder", "#if __has_include(\"OUTSIDE\")\n#error it is there\n#endif\n#error end\n"+victimSource),
		source("a question whether the next file exists", 10, "outside the kernel's folder", "#if __has_include_next(\"OUTSIDE\")\n#error it is there\n#endif\n"+victimSource),
		source("a question about a file that a macro names", 10, "name the file in quotes", "#define F \"OUTSIDE\"\n#if __has_include(F)\n#error it is there\n#endif\n"+victimSource),
		source("a forged line marker", 10, "", "#line 1 \"OUTSIDE\"\n#error quoted\n"+victimSource),
		source("an assembler directive that reads a file", 10, "", body("  asm volatile(\".include \\\"OUTSIDE\\\"\");")),
		source("an assembler directive that inserts a file", 10, "", body("  asm volatile(\".incbin \\\"OUTSIDE\\\"\");")),
		source("assembler text that closes the kernel", 10, "", body("  asm volatile(\"ret; } .visible .entry owned() { ret;\");")),
		source("an array of a terabyte", 11, "", "__device__ char big[1ull << 40];\n"+body("  big[n] = 1;")),
		source("a local array of 4 GB", 11, "", body("  volatile char big[1ull << 32]; big[n] = 1;")),
		source("a constant array of 100 million numbers", 10, "", "__device__ const int big[100000000] = {1};\n"+body("  n += big[n];")),
		source("20,000 parameters", 10, "parameter space overflowed", "extern \"C\" __global__ void k(const float* x, float* y, int n"+strings.Repeat(", long", 20_000)+") {}\n"),
		source("20,000 kernels", 10, "", func() string {
			var text strings.Builder
			for i := range 20_000 {
				fmt.Fprintf(&text, "extern \"C\" __global__ void k%d(int* p) { *p = %d; }\n", i, i)
			}
			return text.String() + victimSource
		}()),
		source("an expression of 300,000 brackets", 10, "", body("  n += "+strings.Repeat("(", 300_000)+"1"+strings.Repeat(")", 300_000)+";")),
		source("a source without a kernel", 10, "no entry function", "int x;\n"),
		source("a source of zeros", 10, "no text", strings.Repeat("\x00", 1<<20)),
		source("a kernel that never ends", 11, "", body("  while (true) atomicAdd(y, 1.0f);")),
		source("a kernel that waits for itself", 11, "", body("  if (i == 0) __syncthreads(); else while (*(volatile float*)y == 0) {}")),
		source("a kernel that prints without end", 11, "", "#include <cstdio>\n"+body("  while (true) printf(\"\\x1b]0;owned\\x07%d\\n\", n);")),
		source("a kernel that calls itself without end", 11, "", "__device__ __noinline__ int f(int n, float* y) { volatile int a[64]; a[n & 63] = n; if (y[0] == 12345.0f) return n; return f(n + 1, y) + a[n & 63]; }\n"+body("  n += f(i, y);")),
		source("a kernel that allocates without end", 11, "", "#include <cstdlib>\n"+body("  for (int j = 0; j < 1000000; ++j) { char* p = (char*)malloc(1 << 20); if (p) p[j] = 1; }")),
		source("a kernel that writes through all of memory", 11, "", body("  for (long j = 0; j < 1000000; ++j) y[j << 20] = 1;")),
	}
}
