//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// gzipBomb is gzip data that expands to 2 GB of zeros.
func gzipBomb(a *arena) string {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	a.must(err)
	zeros := make([]byte, 1<<20)
	for range 2 << 10 {
		_, err := z.Write(zeros)
		a.must(err)
	}
	a.must(z.Close())
	return packed.String()
}

// cacheFile is a recording of Kernel Tuner with text of it replaced.
func cacheFile(oldNew ...string) string {
	return strings.NewReplacer(oldNew...).Replace(`{"kernel_name": "gemm", "device_name": "chip", "problem_size": [64], "tune_params_keys": ["A", "B"],
 "tune_params": {"A": [1, 2], "B": [1, 2]}, "cache": {
 "1,1": {"A": 1, "B": 1, "time": 3.5}, "1,2": {"A": 1, "B": 2, "time": 2.5}, "2,1": {"A": 2, "B": 1, "time": 1.5}, "2,2": {"A": 2, "B": 2, "time": 0.5}}}`)
}

// t1File is a space with one condition.
func t1File(values, condition string) string {
	text, _ := json.Marshal(condition)
	return `{"General": {"BenchmarkName": "b"}, "ConfigurationSpace": {"TuningParameters": [{"Name": "A", "Type": "int", "Values": "` + values +
		`", "Default": 1}, {"Name": "B", "Type": "int", "Values": "[1, 2]", "Default": 1}], "Conditions": [{"Expression": ` + string(text) + `, "Parameters": ["A"]}]}, "KernelSpecification": {"KernelName": "k"}}`
}

func recordingAttacks() []attack {
	replay := func(name string, exit int, want string, put func(a *arena, file string)) attack {
		return attack{kind: "input", name: name, exit: exit, want: want, stage: func(a *arena) []string {
			put(a, "c.json")
			return []string{"tune", "--replay", "c.json", "--strategy", "random", "--repeat", "2", "--budget", "5"}
		}}
	}
	text := func(name string, exit int, want string, oldNew ...string) attack {
		return replay(name, exit, want, func(a *arena, file string) { a.write(file, cacheFile(oldNew...)) })
	}
	space := func(name string, exit int, want, values, condition string) attack {
		k := replay(name, exit, want, func(a *arena, file string) {
			a.write(file, cacheFile())
			a.write("t1.json", t1File(values, condition))
		})
		plain := k.stage
		k.stage = func(a *arena) []string { return append(plain(a), "--space", "t1.json") }
		return k
	}
	var many strings.Builder
	for i := range 300_000 {
		fmt.Fprintf(&many, `"%d,1": {"A": %d, "B": 1, "time": 3.5}, `, i+10, i+10)
	}
	slow := func(k attack) attack { k.with.slow = true; return k }
	const escapes = `\u001b]0;owned\u0007\u009b31m\u202e`
	return []attack{
		replay("a recording is a pipe", 1, "it is not a regular file", func(a *arena, file string) { a.pipe(file) }),
		replay("a recording is an endless device", 1, "it is not a regular file", func(a *arena, file string) { a.link(file, "/dev/zero") }),
		replay("a recording has 3 GB", 1, "c.json", func(a *arena, file string) { a.sparse(file, cacheFile(), 3<<30) }),
		slow(replay("a recording expands to 2 GB", 1, "c.json", func(a *arena, file string) { a.write(file, gzipBomb(a)) })),
		replay("a recording is half a gzip file", 1, "damaged gzip file", func(a *arena, file string) { a.write(file, "\x1f\x8b\x08\x00abc") }),
		replay("a recording is a file outside", 1, "c.json", func(a *arena, file string) { a.link(file, filepath.Join(a.outside, "secret.txt")) }),
		text("a recording's kernel has escapes", 0, "owned", `"gemm"`, `"`+escapes+`"`),
		text("a recording's knob has escapes", 0, "", `"A"`, `"`+escapes+`A"`),
		text("a recording's value has escapes", 0, "", `"A": [1, 2]`, `"A": ["`+escapes+`", 2]`, `"A": 1`, `"A": "`+escapes+`"`),
		text("a recording's objective has escapes", 1, "it has no", `"problem_size"`, `"objective": "`+escapes+`", "problem_size"`),
		text("a recording has times that are no numbers", 0, "", "3.5", "NaN", "0.5", "-Infinity", "1.5", "-3"),
		text("a recording has a time beyond a double", 0, "1 of which fail", "3.5", "1e999"),
		text("a recording nests 100,000 lists", 1, "exceeded max depth", `[64]`, strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)),
		text("a recording has the same knob twice", 1, "declared twice", `["A", "B"]`, `["A", "A"]`),
		text("a recording has integers of 100,000 digits", 1, "does not fit 64 bits", `"A": [1, 2]`, `"A": [`+strings.Repeat("9", 100_000)+`, 2]`),
		slow(text("a recording has 300,000 values of a knob", 1, "more than", `"cache": {`, `"cache": {`+many.String())),
		{kind: "flag", name: "a replay of a billion searches", exit: 2, want: "want at most", stage: func(a *arena) []string {
			a.write("c.json", cacheFile())
			return []string{"tune", "--replay", "c.json", "--strategy", "random", "--repeat", "1000000000", "--budget", "5"}
		}},
		space("a condition of 1.6 MB", 2, "", "[1, 2]", "A > 0"+strings.Repeat(" and A > 0", 160_000)),
		space("a condition opens a file", 2, "", "[1, 2]", "open('/etc/passwd').read() > A"),
		space("a condition imports a module", 2, "", "[1, 2]", "__import__('os').system('true') == A"),
		space("a condition computes a tower of powers", 2, "", "[1, 2]", "9 ** 9 ** 9 ** 9 > A"),
		space("values are a range of 10**12", 2, "", "range(10**12)", "A > 0"),
		space("values are a comprehension of 10**9", 2, "", "[i * j for i in range(100000) for j in range(10000)]", "A > 0"),
		space("a condition nests 50,000 brackets", 2, "", "[1, 2]", strings.Repeat("(", 50_000)+"A"+strings.Repeat(")", 50_000)),
	}
}

// proposer is an attack by a program that takes part in a search: a shell script that answers.
func proposer(name string, want, script string) attack {
	return attack{kind: "proposer", name: name, exit: 0, want: want, with: attackOptions{compiler: true}, stage: func(a *arena) []string {
		a.kernel()
		path := a.program("propose", "#!/bin/sh\n"+strings.ReplaceAll(script, "OUTSIDE", a.outside))
		return []string{"tune", "--kernel", "kernel", "--device", "sim", "--budget", "3", "--strategy", "random", "--proposer", path, "--proposer-timeout", "3s"}
	}}
}

// answers is a proposer that gives one answer, and is done.
func answers(name, want string, answer any) attack {
	k := proposer(name, want, "")
	plain := k.stage
	k.stage = func(a *arena) []string {
		args := plain(a)
		text, ok := answer.(string)
		if !ok {
			line, err := json.Marshal(answer)
			a.must(err)
			text = string(line)
		}
		a.write("answer", strings.ReplaceAll(text, "OUTSIDE", a.outside)+"\n")
		a.program("propose", "#!/bin/sh\nread hello; read state; cat "+a.at("answer")+"; read state; echo '{\"type\": \"done\"}'; read end\n")
		return args
	}
	return k
}

// patched is a proposer with one patch.
func patched(name, want, diff string) attack {
	return answers(name, want, map[string]any{"type": "proposals", "patches": []any{map[string]any{"diff": diff, "about": name}}})
}

// replaceLine is a diff of the last line of the victim's body.
func replaceLine(text string) string {
	return "--- k.cu\n+++ k.cu\n@@ -3 +3 @@\n-  if (i < n) y[i] = x[i] / 2;\n" + "+" + strings.ReplaceAll(text, "\n", "\n+") + "\n"
}

// before is a diff that adds lines before the kernel.
func before(lines string) string {
	added := "+" + strings.ReplaceAll(strings.TrimSuffix(lines, "\n"), "\n", "\n+") + "\n"
	return fmt.Sprintf("--- k.cu\n+++ k.cu\n@@ -1 +1,%d @@\n%s extern \"C\" __global__ void k(const float* x, float* y, int n) {\n", 1+strings.Count(added, "\n"), added)
}

func proposerAttacks() []attack {
	const good = "  if (i < n) y[i] = x[i] / 2;"
	variants := func(list ...any) map[string]any { return map[string]any{"type": "proposals", "variants": list} }
	ctrlC := proposer("a program that hangs while Ctrl-C comes", "interrupted", "trap '' INT TERM\nsleep 1000")
	ctrlC.exit, ctrlC.with.interrupt = exitInterrupted, 12*time.Second
	plain := ctrlC.stage
	ctrlC.stage = func(a *arena) []string { return append(plain(a), "--proposer-timeout", "600s") }
	return []attack{
		ctrlC,
		proposer("a program that never answers", "did not respond within", "sleep 1000"),
		proposer("a program that ignores signals", "did not respond within", "trap '' INT TERM HUP\nwhile true; do sleep 1; done"),
		proposer("a program that answers without end", "the proposer", "yes | tr -d '\\n'"),
		proposer("a program that logs without end", "the proposer", "yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx >&2"),
		proposer("a program that dies at once", "the proposer exited", "exit 3"),
		proposer("a program that leaves a process with its pipe", "the proposer", "sleep 500 &\nexit 0"),
		proposer("a program that stops itself", "the proposer", "kill -STOP $$"),
		proposer("a program that closes its output", "the proposer", "exec >&-\nsleep 100"),
		proposer("a program that says terminal escapes", "the proposer", "printf '\\033]0;owned\\007\\n'; printf '\\033[31mowned\\n' >&2; sleep 100"),
		proposer("a program that removes the index", "the proposer", "rm -rf .attune/index.sqlite; exit 1"),
		answers("an answer of 1.2 MB of one name", "", variants(map[string]any{"variant": "k" + strings.Repeat("+A=1", 300_000)})),
		answers("an answer that nests a million lists", "", `{"type": "proposals", "variants": `+strings.Repeat("[", 1_000_000)),
		answers("100,000 variants in an answer", "", variants(make([]any, 100_000)...)),
		answers("a knob with a number beyond a double", "", `{"type": "proposals", "variants": [{"knobs": {"THREADS": 1e999}}]}`),
		answers("knobs with escapes as names", "", variants(map[string]any{"knobs": map[string]int{"\x1b]0;owned\x07": 1}, "about": "\x1b[31mx"})),
		answers("an answer to another round", "", `{"type": "proposals", "round": 99999999, "variants": []}`),
		answers("a variant of a patch that does not exist", "", variants(map[string]any{"variant": "k", "patch": 1 << 40})),
		patched("a patch of a file outside", "refused", "--- /dev/null\n+++ ../outside/owned.cu\n@@ -0,0 +1 @@\n+x\n"),
		patched("a patch of an absolute path", "refused", "--- /dev/null\n+++ OUTSIDE/owned.cu\n@@ -0,0 +1 @@\n+x\n"),
		patched("a patch of the reference", "refused", "--- reference.py\n+++ reference.py\n@@ -2 +2 @@\n-    return {\"y\": inputs[\"x\"] / 2}\n+    return {}\n"),
		patched("a patch of kernel.toml", "refused", "--- kernel.toml\n+++ kernel.toml\n@@ -1 +1 @@\n-name = \"k\"\n+name = \"x\"\n"),
		patched("a patch that makes a link", "refused", "diff --git a/l.cuh b/l.cuh\nnew file mode 120000\n--- /dev/null\n+++ b/l.cuh\n@@ -0,0 +1 @@\n+OUTSIDE/secret.txt\n\\ No newline at end of file\n"),
		patched("a patch that renames", "refused", "diff --git a/k.cu b/x.cu\nrename from k.cu\nrename to x.cu\n"),
		patched("a patch that deletes", "refused", "--- k.cu\n+++ /dev/null\n@@ -1,4 +0,0 @@\n-x\n"),
		patched("a binary patch", "refused", "diff --git a/k.cu b/k.cu\nGIT binary patch\nliteral 5\nabc\n"),
		patched("a patch whose numbers overflow", "refused", "--- k.cu\n+++ k.cu\n@@ -99999999999999999999,1 +1,9223372036854775807 @@\n+x\n"),
		patched("a patch of 64 KB of hunks", "refused", "--- k.cu\n+++ k.cu\n"+strings.Repeat("@@ -1 +1 @@\n", 5_000)),
		patched("a patch of a megabyte", "refused", replaceLine(strings.Repeat("// "+good+"\n", 30_000)+good)),
		patched("a patch that includes a file outside", "refused", before("#include \"OUTSIDE/secret.txt\"")),
		patched("a patch with an include that a macro writes", "directive", before("#define H #\nH include \"OUTSIDE/secret.txt\"")),
		patched("a patch with an include by trigraphs", "refused", before("??=include \"OUTSIDE/secret.txt\"")),
		patched("a patch with an include in a comment's shadow", "refused", before("# /* a */ include /* b\n*/ \"OUTSIDE/secret.txt\"")),
		patched("a patch that asks whether a file exists", "refused", before("#if __has_include(\"OUTSIDE/secret.txt\")\n#error there\n#endif")),
		patched("a patch with a pragma that reads a file", "", before("_Pragma(\"GCC dependency \\\"OUTSIDE/secret.txt\\\"\")")),
		patched("a patch with nested macros", "", before(strings.Split(nested(9), "extern")[0])+strings.TrimPrefix(replaceLine("  if (i < n) y[i] = M9 0;"), "--- k.cu\n+++ k.cu\n")),
		patched("a patch with a constant expression that never ends", "", before("constexpr int f(int n) { int s = 0; while (n >= 0) { s ^= n; n = (n + 1) & 0xffff; } return s; }\n__device__ const int c = f(1);")),
		patched("a patch whose kernel never ends", "", replaceLine("  while (true) atomicAdd(y, 1.0f);")),
		patched("a patch with terminal escapes in an #error", "", before("#error \x1b]0;owned\x07\u202e")),
	}
}
