package toolchain

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"attune/internal/child"
)

// exitError is the error of a shell script.
func exitError(t testing.TB, text string) error {
	t.Helper()
	family, err := child.StartFamily(exec.CommandContext(t.Context(), "sh", "-c", text), child.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err = family.Wait(); err == nil {
		t.Fatalf("%q succeeds", text)
	}
	return err
}

// The outputs are those of real compilers on real sources, and of damaged compilers.
func TestSymptomOf(t *testing.T) {
	const quoted = "ada/tiny.cu(16): error: static assertion failed with \"Segmentation fault, out of memory, not found\"\n" +
		"    static_assert(false, \"Killed: internal error\");\n    ^\n"
	for _, c := range []struct{ name, exit, output, want string }{
		{"front end", "exit 2", "ada/tiny.cu(16): error: identifier \"tyle\" is undefined\n    tyle[0]\n    ^\n\n1 error detected\n", ""},
		{"front end with a number", "exit 2", "ada/tiny.cu(16): error #20: identifier is undefined\n", ""},
		{"missing header", "exit 1", "ada/tiny.cu:3:10: fatal error: nothing.h: No such file or directory\ncompilation terminated.\n", ""},
		{"catastrophic", "exit 1", "ada/tiny.cu(3): catastrophic error: cannot open source file \"nothing.h\"\n", ""},
		{"#error", "exit 1", "In file included from <command-line>:\nada/tiny.cu:1:2: error: #error no\n", ""},
		{"ptxas with a line", "exit 255", "ptxas image.ptx, line 40; error   : Not a name of any known instruction: 'no'\n" +
			"ptxas fatal   : Ptx assembly aborted due to errors\n", ""},
		{"ptxas without a line", "exit 255", "ptxas error   : Entry function 'k' uses too much shared data (0x10000 bytes, 0xc000 max)\n", ""},
		{"unresolved", "exit 255", "ptxas fatal   : Unresolved extern function 'f'\n", ""},
		{"architecture", "exit 1", "nvcc fatal   : Unsupported gpu architecture 'compute_50'\n", ""},
		{"a source that quotes symptoms", "exit 2", quoted, ""},
		{"note", "exit 1", "ada/tiny.cu:3:9: note: '#pragma message: Segmentation fault'\nada/tiny.cu:4:2: error: #error no\n", ""},

		{"warning only", "exit 1", "ada/tiny.cu(3): warning #177-D: variable \"error\" was declared but never referenced\n", "ended with exit status 1: ada/tiny.cu(3)"},
		{"shell", "exit 1", "sh: 1: /opt/cuda/bin/../nvvm/bin/cicc: not found\n", "not found"},
		{"mode", "exit 1", "sh: 1: /opt/cuda/bin/../nvvm/bin/cicc: Permission denied\n", "Permission denied"},
		{"format", "exit 1", "sh: 1: cicc: Exec format error\n", "Exec format error"},
		{"library", "exit 127", "cicc: error while loading shared libraries: libm.so.6: cannot open shared object file\n", "shared libraries"},
		{"crash", "exit 1", "Segmentation fault (core dumped)\n", "Segmentation fault"},
		{"status", "exit 1", "nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)\n", "died due to signal 11"},
		{"error and crash", "exit 1", "ada/tiny.cu(3): error: no\nnvcc error   : 'cicc' died with status 0x8B\n", "died with status"},
		{"memory", "exit 255", "ptxas fatal   : Memory allocation failure\n", "Memory allocation failure"},
		{"host memory", "exit 1", "cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes\n", "out of memory"},
		{"host killed", "exit 1", "gcc: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n", "Killed signal"},
		{"disk", "exit 1", "fatal error: error writing to /tmp/x: No space left on device\n", "No space left"},
		{"bug with a place", "exit 1", "ada/tiny.cu(3): internal error: assertion failed\n", "internal error"},
		{"bug of ptxas", "exit 255", "ptxas fatal   : Internal error: writing file\n", "Internal error"},
		{"LLVM", "exit 1", "LLVM ERROR: Broken module\n", "LLVM ERROR"},
		{"toolkit header", "exit 1", "<command-line>: fatal error: cuda_runtime.h: No such file or directory\n", "cuda_runtime.h: No such file"},
		{"profile", "exit 1", "nvcc fatal   : Wrong syntax in file nvcc.profile: \"1\"\n", "Wrong syntax"},
		{"lost PTX", "exit 255", "ptxas fatal   : Input file 'image.ptx' could not be opened\nptxas fatal   : Ptx assembly aborted due to errors\n", "could not be opened"},
		{"bus error", "kill -BUS $$", "ada/tiny.cu(3): error: no\n", "crashed: bus error"},
	} {
		got := symptomOf("/opt/cuda/bin/nvcc", exitError(t, c.exit), c.output)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: symptom %q, want %q", c.name, got, c.want)
		}
	}
	if got := symptomOf("nvcc", errors.New("exec format error"), ""); got != "nvcc does not run: exec format error" {
		t.Errorf("no start: %q", got)
	}
}

func TestRemedies(t *testing.T) {
	intact := (&Compiler{Origin: "PATH"}).broken(t.Context(), tinyTarget(), "hm")
	if got := intact.Error(); got != "build plain for sm_89: the CUDA compiler does not work: hm; repair the toolkit of PATH, or set CUDA_HOME to another" {
		t.Errorf("%q", got)
	}
	c := pinned(t)
	if got := c.broken(t.Context(), tinyTarget(), "hm").Error(); !strings.Contains(got, "its files are intact: free memory and disk space") {
		t.Errorf("%q", got)
	}
}
